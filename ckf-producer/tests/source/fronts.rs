//! The small fronts.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ckf_core::{BlockHash, EngineBlockId};
use ckf_producer::HashSeeds;
use ckf_producer::source::{
    BlockChange, BlockChanges, ChainedIds, CopyCounter, Direct, EngineEvent, Front, Medium, Place,
    RemovedBlocks, StoredBlocks, Tokens, Translator, TranslatorConfig,
};
use proptest::prelude::*;

use crate::support::*;

fn apply<F: Front>(front: &mut F, event: F::Event) -> Vec<BlockChange> {
    let mut changes = BlockChanges::default();
    assert_eq!(front.apply(event, &mut changes), 0);
    changes.into_iter().collect()
}

proptest! {
    /// The counter lets through what a map of counts says, in one event or many.
    #[test]
    fn f06_a_counter_passes_first_copies_and_last_removals(
        ops in prop::collection::vec((0u8..12, 0u64..6), 0..200),
        together in 1usize..5,
    ) {
        let mut counter = CopyCounter::new(Direct, 5, SEEDS);
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        for group in ops.chunks(together) {
            let mut event = Vec::new();
            for (op, block) in group {
                let block = vec![h(*block)];
                event.push(match op {
                    0..=6 => BlockChange::Store(block),
                    7..=10 => BlockChange::Remove(block),
                    _ => BlockChange::Clear,
                });
            }
            let before: Vec<u64> = counts.keys().copied().collect();
            for (op, block) in group {
                match op {
                    0..=6 if counts.len() < 5 || counts.contains_key(block) => {
                        *counts.entry(*block).or_default() += 1;
                    }
                    0..=6 => {}
                    7..=10 => {
                        if let Some(count) = counts.get_mut(block) {
                            *count -= 1;
                            if *count == 0 {
                                counts.remove(block);
                            }
                        }
                    }
                    _ => counts.clear(),
                }
            }
            // What passed turns the set before into the set after.
            let mut set: Vec<u64> = before;
            for change in apply(&mut counter, event) {
                match change {
                    BlockChange::Store(blocks) => {
                        for block in blocks {
                            prop_assert!(!set.contains(&block.get()), "stored twice");
                            set.push(block.get());
                        }
                    }
                    BlockChange::Remove(blocks) => {
                        for block in blocks {
                            prop_assert!(set.contains(&block.get()), "removed twice");
                            set.retain(|held| *held != block.get());
                        }
                    }
                    BlockChange::Clear => set.clear(),
                }
            }
            set.sort_unstable();
            prop_assert_eq!(set, counts.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(counter.blocks(), counts.len());
        }
    }
}

#[test]
fn a_full_counter_refuses_new_blocks_and_says_so() {
    let mut counter = CopyCounter::new(Direct, 2, SEEDS);
    assert_eq!(apply(&mut counter, store([1, 2, 3, 1])), store([1, 2]));
    assert_eq!(counter.refused(), 1);
    assert_eq!(apply(&mut counter, remove([3])), vec![]);
    assert_eq!(apply(&mut counter, remove([2])), remove([2]));
    assert_eq!(apply(&mut counter, store([3])), store([3]));
}

/// What a full state tells comes after a reset, and counts from nothing.
#[test]
fn f06_a_reset_forgets_all_copies() {
    let mut counter = CopyCounter::new(Direct, 5, SEEDS);
    assert_eq!(apply(&mut counter, store([1, 1, 2])), store([1, 2]));
    counter.reset();
    assert_eq!(counter.blocks(), 0);
    assert_eq!(apply(&mut counter, store([1])), store([1]));
    assert_eq!(apply(&mut counter, remove([1, 2])), remove([1]));
}

#[test]
fn chained_ids_pass_as_they_are_and_places_are_kept_apart() {
    let stored = |ids: &[i64], medium| {
        EngineEvent::Stored(StoredBlocks {
            ids: ids.iter().map(|id| EngineBlockId::from_signed(*id)).collect(),
            place: Place { medium, ..Place::default() },
            ..StoredBlocks::default()
        })
    };
    let removed = |ids: &[i64], medium| {
        EngineEvent::Removed(RemovedBlocks {
            ids: ids.iter().map(|id| EngineBlockId::from_signed(*id)).collect(),
            place: Place { medium, ..Place::default() },
        })
    };
    let mut front = ChainedIds::new(Medium::Device);
    // Signed and unsigned forms are the same bits (report F03).
    let changes = apply(&mut front, vec![stored(&[0, -1, i64::MIN], Medium::Device)]);
    assert_eq!(changes, store([0, u64::MAX, 1 << 63]));
    assert_eq!(apply(&mut front, vec![removed(&[-1], Medium::Host)]), vec![]);
    assert_eq!(apply(&mut front, vec![stored(&[7], Medium::Unknown)]), vec![]);
    assert_eq!(apply(&mut front, vec![removed(&[-1], Medium::Device)]), remove([u64::MAX]));
    assert_eq!(apply(&mut front, vec![EngineEvent::Cleared]), vec![BlockChange::Clear]);
    let places = front.places();
    assert_eq!((places.other_medium, places.unknown_medium), (1, 1));

    // Physical copies of an engine with chained ids.
    let mut front = CopyCounter::new(ChainedIds::new(Medium::Device), 100, SEEDS);
    apply(&mut front, vec![stored(&[5, 5], Medium::Device), stored(&[5], Medium::Host)]);
    assert_eq!(apply(&mut front, vec![removed(&[5], Medium::Device)]), vec![]);
    assert_eq!(apply(&mut front, vec![removed(&[5], Medium::Host)]), vec![]);
    assert_eq!(
        apply(&mut front, vec![removed(&[5], Medium::Device)]),
        vec![BlockChange::Remove(vec![BlockHash::new(5)])]
    );
}

/// Nor may a front print every block, or the secret under which it holds them.
#[test]
fn a_front_is_fit_for_a_log() {
    const SECRET: u64 = 0x0123_4567_89AB_CDEF;
    let seeds = HashSeeds::new([SECRET; 4]);
    let mut counter = CopyCounter::new(Direct, 10_000, seeds);
    assert_eq!(apply(&mut counter, store(0..10_000)).len(), 1);
    let mut translator = Translator::new(TranslatorConfig::new(NonZeroU32::MIN, seeds));
    let blocks = StoredBlocks {
        ids: (0..10_000).map(EngineBlockId::new).collect(),
        tokens: Tokens::Plain((0..10_000).collect()),
        block_size: 1,
        ..StoredBlocks::default()
    };
    assert_eq!(apply(&mut translator, vec![EngineEvent::Stored(blocks)]).len(), 1);
    for printed in [format!("{counter:?}"), format!("{translator:?}")] {
        assert!(
            printed.len() < 2_000 && printed.contains("10000 entries"),
            "{} bytes",
            printed.len()
        );
        assert!(!printed.contains(&SECRET.to_string()), "{printed}");
    }
}
