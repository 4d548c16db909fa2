//! The id translator alone: store and random removal of engine blocks by number of ids held, and
//! the longest single event. Not a test: it prints figures.
//!
//! `cargo bench -p ckf-producer --bench translator -- 100000 1000000 10000000`

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use ckf_core::{EngineBlockId, GOLDEN_GAMMA, mix64};
use ckf_producer::HashSeeds;
use ckf_producer::source::{
    BlockChanges, EngineEvent, Front, RemovedBlocks, StoredBlocks, Tokens, Translator,
    TranslatorConfig,
};

const BLOCKS: u64 = 128;
const BLOCK_SIZE: u32 = 16;

fn main() {
    let sizes: Vec<u64> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    for size in if sizes.is_empty() { vec![100_000] } else { sizes } {
        measure(size / BLOCKS);
    }
}

fn id(number: u64) -> EngineBlockId {
    EngineBlockId::new(mix64(number.wrapping_add(GOLDEN_GAMMA)))
}

/// One sequence of blocks of its own.
fn stored(sequence: u64) -> Vec<EngineEvent> {
    let first = sequence * BLOCKS;
    let tokens = (0..BLOCKS * u64::from(BLOCK_SIZE)).map(|t| mix64(first + t) as u32).collect();
    vec![EngineEvent::Stored(StoredBlocks {
        ids: (first..first + BLOCKS).map(id).collect(),
        tokens: Tokens::Plain(tokens),
        block_size: BLOCK_SIZE,
        ..StoredBlocks::default()
    })]
}

fn measure(sequences: u64) {
    let block_size = NonZeroU32::new(BLOCK_SIZE).expect("not 0");
    let seeds = HashSeeds::new([11, 12, 13, 14]);
    let mut translator = Translator::new(TranslatorConfig::new(block_size, seeds));
    let mut run = |name: &str, event: &mut dyn FnMut(u64) -> Vec<EngineEvent>| {
        let mut times: Vec<Duration> = (0..sequences)
            .map(|sequence| {
                let event = event(sequence);
                let mut changes = BlockChanges::default();
                let start = Instant::now();
                let orphans = translator.apply(event, &mut changes);
                let taken = start.elapsed();
                assert_eq!(orphans, 0);
                taken
            })
            .collect();
        let (held, _) = translator.blocks();
        let total: Duration = times.iter().sum();
        times.sort_unstable();
        let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000];
        println!(
            "{name} {:>9} blocks: {:.2} M blocks/s; an event of {BLOCKS}: p50 {:?}, p99.9 {:?}, \
             worst {:?}; {held} held",
            sequences * BLOCKS,
            (sequences * BLOCKS) as f64 / total.as_secs_f64() / 1e6,
            at(500),
            at(999),
            at(1000),
        );
    };
    run("store ", &mut stored);
    let mut order: Vec<u64> = (0..sequences * BLOCKS).collect();
    order.sort_unstable_by_key(|number| mix64(!number));
    run("remove", &mut |sequence| {
        let from = (sequence * BLOCKS) as usize;
        let ids = order[from..from + BLOCKS as usize].iter().map(|number| id(*number)).collect();
        vec![EngineEvent::Removed(RemovedBlocks { ids, ..RemovedBlocks::default() })]
    });
}
