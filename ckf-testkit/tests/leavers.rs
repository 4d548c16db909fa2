//! Members that come and go for a long time leave nothing behind in stage 1: counted in bytes.

#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ckf_producer::source::{
    BlockChange, CopyCounter, Direct, EngineEvent, EventId, Front, FullState, PoolSources,
    PoolSourcesConfig, ReadyRule, SourceConfig, SourceGeneration, StoredBlocks, Tokens, Translator,
    TranslatorConfig,
};
use ckf_producer::{HashSeeds, Member, WorkerId};
use ckf_protocol::Millis;
use ckf_testkit::scenario::{at, hashes};

/// Counts what the threads of the tests hold.
struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get() + layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const SEEDS: HashSeeds = HashSeeds::new([1, 2, 3, 4]);
const MAX_MEMBERS: usize = 64;

fn config() -> PoolSourcesConfig {
    let rule = ReadyRule::new(50, Millis::new(1000)).expect("a share");
    PoolSourcesConfig::new(SourceConfig::new(1), rule).with_max_members(MAX_MEMBERS).expect("not 0")
}

fn life(number: u64) -> SourceGeneration {
    SourceGeneration::new(number)
}

fn drain<F: Front + Clone>(sources: &mut PoolSources<F>) {
    while sources.poll_command().is_some() {}
    while sources.poll_request().is_some() {}
    while sources.poll_notice().is_some() {}
}

/// What a life of a member may leave anywhere: applied and waiting events, an open question, a
/// deadline, notices, commands.
fn live<F: Front + Clone>(
    sources: &mut PoolSources<F>,
    member: Member,
    generation: u64,
    event: impl Fn(u64) -> F::Event,
) {
    let now = at(generation);
    let generation = life(generation);
    sources.expect(member, now).expect("room");
    sources.announce(member, generation, now).expect("room");
    if let Some(request) = sources.poll_request() {
        let state = FullState { generation, as_of: Some(EventId::new(0)), content: event(0) };
        sources.handle_full_state(request.member, request.id, state, now);
    }
    for number in [1, 2, 9, 10, 11] {
        let id = EventId::new(number);
        sources.handle_event(member, generation, id, event(number), now).expect("room");
    }
    sources.handle_timeout(now);
}

/// Bytes held after so many rounds, with nothing but the leavers' numbers kept.
fn rounds<F: Front + Clone>(
    front: F,
    event: impl Fn(u64) -> F::Event + Copy,
    counts: [u64; 2],
) -> [i64; 2] {
    let before = HELD.get();
    let mut sources = PoolSources::new(config(), front.clone(), at(0));
    let mut held = [0; 2];
    let mut generation = 0;
    for (held, count) in held.iter_mut().zip(counts) {
        for _ in 0..count {
            generation += 1;
            // Workers that were never there before, some with several ranks, and one that stays.
            let worker = generation % 7 * 1000 + generation;
            live(&mut sources, Member::new(worker, 0), generation, event);
            live(&mut sources, Member::new(worker, u32::MAX), generation, event);
            live(&mut sources, Member::new(1 << 40, 0), generation, event);
            drain(&mut sources);
            if generation % 2 == 0 {
                sources.remove(Member::new(worker, 0), at(generation));
                sources.remove(Member::new(worker, u32::MAX), at(generation));
            } else {
                assert_eq!(sources.remove_worker(WorkerId::new(worker), at(generation)), 2);
            }
            drain(&mut sources);
        }
        assert_eq!(sources.members().count(), 1);
        *held = HELD.get() - before;
    }
    drop(sources);
    assert_eq!(HELD.get(), before, "all memory comes back with the sources");
    held
}

fn direct(number: u64) -> Vec<BlockChange> {
    vec![BlockChange::Store(hashes(number * 100..number * 100 + 100))]
}

fn engine(number: u64) -> Vec<EngineEvent> {
    let ids = (0..100).map(|at| ckf_core::EngineBlockId::new(number * 100 + at)).collect();
    let tokens = Tokens::Plain((0..1600).collect());
    vec![EngineEvent::Stored(StoredBlocks { ids, tokens, block_size: 16, ..Default::default() })]
}

#[test]
fn members_that_leave_take_everything_along() {
    // Enough leavers to fill the list of them, then thousands more.
    let counts = [200, 3000];
    let translator = TranslatorConfig::new(core::num::NonZeroU32::new(16).expect("16"), SEEDS);
    for [early, late] in [
        rounds(Direct, direct, counts),
        rounds(CopyCounter::new(Direct, 1 << 20, SEEDS), direct, counts),
        rounds(Translator::new(translator), engine, counts),
    ] {
        // Trees of the same size may have some more or fewer nodes.
        assert!((late - early).abs() < 4096, "{early} bytes became {late}");
    }
}

#[test]
fn a_member_replaced_thousands_of_times_stays_small() {
    let mut sources = PoolSources::new(config(), CopyCounter::new(Direct, 1 << 20, SEEDS), at(0));
    let member = Member::new(3, 1);
    let mut held = [0; 2];
    for (held, lives) in held.iter_mut().zip([1..100, 100..5000]) {
        for generation in lives {
            live(&mut sources, member, generation, direct);
            // The front forgets with each life; a host that never polls piles nothing up either.
            let blocks = sources.stream(member).expect("it is there").front().blocks();
            assert!(blocks <= 300, "{blocks}");
        }
        *held = HELD.get();
    }
    drain(&mut sources);
    assert_eq!(sources.stats().replacements, 4998);
    assert!((held[1] - held[0]).abs() < 16 << 10, "{held:?}");
}

/// Of the streams themselves: ten thousand members, and none of them after they have left.
#[test]
fn ten_thousand_members_come_and_go() {
    let before = HELD.get();
    let config = config().with_max_members(10_000).expect("not 0");
    let mut sources = PoolSources::new(config, Direct, at(0));
    for worker in 0..10_000 {
        live(&mut sources, Member::new(worker, 0), 1, direct);
    }
    assert!(sources.announce(Member::new(10_000, 0), life(1), at(1)).is_err());
    let (events, bytes) = sources.queued();
    assert!(events >= 30_000 && bytes >= 800 * 30_000);
    drain(&mut sources);
    sources.handle_timeout(at(10_000_000));
    assert_eq!(sources.queued(), (0, 0));
    assert_eq!(sources.stats().failures, 10_000);
    assert_eq!(sources.poll_timeout(), None);
    drain(&mut sources);
    for worker in 0..10_000 {
        assert_eq!(sources.remove_worker(WorkerId::new(worker), at(10_000_000)), 1);
        drain(&mut sources);
    }
    let left = HELD.get() - before;
    assert!(left < 10_000 * 150, "the numbers of leavers take {left} bytes");
}
