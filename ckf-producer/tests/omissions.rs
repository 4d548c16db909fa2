//! Blocks that the filter has no room for: what searching for room may cost, and that every one of them
//! is found again, searched for or not, once there is room for it. Work is counted, not timed.

use std::collections::BTreeSet;

use ckf_core::{BlockHash, Format, mix64};
use ckf_producer::{HashSeeds, Member, Outcome, Pool, PoolConfig};
use proptest::prelude::*;

const MEMBER: Member = Member::new(1, 0);

fn config(buckets: u64, seed: u64) -> PoolConfig {
    let format = Format::any_count(buckets, seed).unwrap();
    PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]))
}

fn pool(buckets: u64) -> Pool {
    Pool::new(config(buckets, 3)).unwrap()
}

fn blocks(range: std::ops::Range<u64>) -> Vec<BlockHash> {
    range.map(|n| BlockHash::new(mix64(n + 1))).collect()
}

/// Full buckets that a command may go through: what was saved up, so much a block and a command, and
/// the search that is under way at the end.
fn bound(blocks: usize) -> u64 {
    2048 + 16 * blocks as u64 + 128 + 544
}

/// Runs a command about so many blocks and checks its work.
fn bounded(pool: &mut Pool, blocks: usize, run: impl FnOnce(&mut Pool) -> Outcome) -> Outcome {
    let before = pool.stats().searched_buckets;
    let outcome = run(pool);
    let searched = pool.stats().searched_buckets - before;
    assert!(searched <= bound(blocks), "{searched} buckets for {blocks} blocks");
    outcome
}

/// Flushes until a round is over without a find. A block may need a few commands for its search.
fn settle(pool: &mut Pool) {
    let mut left = 0;
    while left < 6 * pool.stats().omitted {
        let outcome = bounded(pool, 0, Pool::flush);
        left = if outcome.readmitted == 0 { left + 1 } else { 0 };
    }
    let searched = pool.stats().searched_buckets;
    pool.flush();
    assert_eq!(pool.stats().searched_buckets, searched, "nobody searches in vain for ever");
}

#[test]
fn searches_for_room_are_bounded_in_an_overfull_filter() {
    for (buckets, size) in [(2_000, 1), (2_000, 128), (2_000, 5_000), (10, 1), (10, 128)] {
        let (mut pool, mut next, mut commands) = (pool(buckets), 0, 0);
        while next < buckets * 8 {
            let all = blocks(next..next + size);
            bounded(&mut pool, all.len(), |pool| pool.store(MEMBER, &all));
            (next, commands) = (next + size, commands + 1);
        }
        // Not only each command: all of them together, so none can lean on another.
        let searched = pool.stats().searched_buckets;
        assert!(searched <= 2048 + 544 + 16 * next + 128 * commands, "{searched}");
        assert!(pool.stats().omitted >= buckets * 4 && pool.stats().occupancy_per_mille > 950);
        for first in (0..next / 2).step_by(100) {
            let gone = blocks(first..first + 50);
            bounded(&mut pool, 50, |pool| pool.remove(MEMBER, &gone));
        }
        let new = blocks(next..next + buckets * 8);
        bounded(&mut pool, new.len(), |pool| pool.replace_member(MEMBER, &new));
        bounded(&mut pool, 0, |pool| pool.clear_member(MEMBER));
    }
}

/// A growth, too, is bounded: into a filter that is far too small, and again into one that is not.
#[test]
fn searches_for_room_are_bounded_in_a_growth() {
    let mut pool = pool(5_000);
    pool.store(MEMBER, &blocks(0..10_000));
    let before = pool.stats().searched_buckets;
    pool.grow(Format::any_count(50, 4).unwrap()).unwrap();
    assert!(pool.stats().searched_buckets - before <= bound(10_000));
    assert!(pool.stats().omitted >= 9_800 && pool.check().is_ok());
    pool.grow(Format::any_count(2_632, 5).unwrap()).unwrap();
    assert_eq!((pool.stats().omitted, pool.stats().occupancy_per_mille), (0, 949));
}

/// Up to 95 % occupancy searches get all that they need, whatever the size of the commands.
#[test]
fn nothing_is_omitted_up_to_ninety_five_per_cent() {
    for (seed, size) in [(1, 1), (2, 128), (3, 19_000), (4, 7)] {
        let mut pool = Pool::new(config(5_000, seed)).unwrap();
        let all = blocks(0..19_000);
        for some in all.chunks(size) {
            assert_eq!(pool.store(MEMBER, some).omitted, 0);
        }
        assert_eq!(pool.stats().occupancy_per_mille, 950);
        // And as blocks come and go.
        for round in 0..100 {
            pool.remove(MEMBER, &blocks(round * 190..(round + 1) * 190));
            let next = 19_000 + round * 190;
            for some in blocks(next..next + 190).chunks(size) {
                assert_eq!(pool.store(MEMBER, some).omitted, 0);
            }
        }
        assert_eq!(pool.stats().refused_insertions, 0);
    }
}

/// One command fills the filter further than its searches may take it. There is room for what was
/// omitted without a search, and the commands that follow find it; nothing has to go for that.
#[test]
fn f26_what_was_not_searched_for_is_found_though_nothing_is_removed() {
    let mut pool = pool(5_000);
    let all = blocks(0..19_500);
    let outcome = pool.store(MEMBER, &all);
    assert!(outcome.omitted > 10, "{outcome:?}");
    let refused = outcome.omitted - outcome.readmitted;
    assert_eq!(pool.stats().omitted, refused);
    settle(&mut pool);
    assert_eq!((pool.stats().omitted, pool.table().stored()), (0, 19_500));
    assert!(all.iter().all(|&hash| pool.table().contains(hash)));
    assert_eq!(pool.check(), Ok(()));
}

/// Where a mass of blocks goes, each command brings back as many as it may.
#[test]
fn omitted_blocks_come_back_at_the_configured_pace() {
    for limit in [0, 1, 7, 64, 1_000] {
        let mut pool = Pool::new(config(2_000, 3).with_readmissions(limit)).unwrap();
        pool.store(Member::new(2, 0), &blocks(0..8_000));
        pool.store(MEMBER, &blocks(8_000..11_000));
        let before = pool.stats();
        assert!(before.omitted > 3_000);
        let mut readmitted = pool.clear_member(Member::new(2, 0)).readmitted;
        assert_eq!(readmitted, u64::from(limit));
        let left = pool.stats().omitted;
        for _ in 0..left / u64::from(limit.max(1)) {
            let more = pool.flush().readmitted;
            assert_eq!(more, u64::from(limit));
            readmitted += more;
        }
        readmitted += pool.flush().readmitted;
        assert_eq!(pool.stats().omitted, if limit == 0 { left } else { 0 });
        assert_eq!(pool.stats().readmitted - before.readmitted, readmitted);
        assert_eq!(pool.check(), Ok(()));
    }
}

/// Room without memory to count a re-admitted block: it comes back as soon as there is memory, though
/// nothing else happens.
#[test]
fn omitted_blocks_come_back_when_memory_does() {
    let mut pool = pool(100);
    pool.store(MEMBER, &blocks(0..360));
    pool.store(Member::new(2, 0), &blocks(360..900));
    assert!(pool.stats().omitted > 400);
    pool.set_max_bytes(0);
    pool.clear_member(MEMBER);
    (0..5_000).for_each(|_| _ = pool.flush());
    let omitted = pool.stats().omitted;
    assert!(omitted > 400 && pool.table().stored() + omitted == pool.stats().distinct_blocks);
    pool.set_max_bytes(u64::MAX);
    let room = 4 * 100 - pool.table().stored();
    assert!(room > 300);
    settle(&mut pool);
    assert!(pool.stats().omitted + 300 < omitted, "{} of {omitted}", pool.stats().omitted);
    assert_eq!(pool.check(), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whatever goes from an overfull filter: once the re-admissions have settled, not one block is
    /// omitted for which a search would find room.
    #[test]
    fn f26_no_block_stays_omitted_for_which_there_is_room(
        buckets in 2u64..60,
        extra in 1u64..200,
        removals in prop::collection::vec(prop::collection::vec(any::<u64>(), 1..6), 1..8),
        seed in 0u64..1000,
    ) {
        let mut pool = Pool::new(config(buckets, seed)).unwrap();
        let mut owned: BTreeSet<_> = blocks(seed << 32..(seed << 32) + buckets * 4 + extra).into_iter().collect();
        pool.store(MEMBER, &owned.iter().copied().collect::<Vec<_>>());
        for removal in removals {
            let gone: Vec<_> = removal
                .iter()
                .filter_map(|at| owned.iter().nth((at % owned.len() as u64) as usize).copied())
                .collect();
            pool.remove(MEMBER, &gone);
            gone.iter().for_each(|hash| _ = owned.remove(hash));
            settle(&mut pool);
            let mut table = pool.table().clone();
            for &hash in owned.iter().filter(|&&hash| !pool.table().contains(hash)) {
                let placed = table.insert(&pool.format().address(hash), |_| ());
                prop_assert!(placed.is_err(), "{hash:?} could be in the filter");
            }
        }
        prop_assert_eq!(pool.check(), Ok(()));
    }
}
