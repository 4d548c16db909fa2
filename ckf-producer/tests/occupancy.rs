//! The event that tells a host to grow the filter: when it comes, how often, and what it suggests.

use ckf_core::{BlockHash, Format, Sizing};
use ckf_producer::{ConfigError, HashSeeds, Member, Pool, PoolConfig, PoolEvent};

const MEMBER: Member = Member::new(1, 0);
const BUCKETS: u64 = 500;
/// Slots of the filter.
const SLOTS: u64 = 4 * BUCKETS;

fn pool(level: u16) -> Pool {
    let format = Format::any_count(BUCKETS, 3).unwrap();
    let config = PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]));
    Pool::new(config.with_occupancy_level(level).unwrap()).unwrap()
}

fn blocks(range: std::ops::Range<u64>) -> Vec<BlockHash> {
    range.map(BlockHash::new).collect()
}

/// The one event, if there is one.
fn crossed(pool: &mut Pool) -> Option<(u16, u64, u32)> {
    let event = pool.poll_event();
    assert_eq!(pool.poll_event(), None, "one event at most");
    match event? {
        PoolEvent::OccupancyCrossed { per_mille, blocks, suggested_buckets } => {
            Some((per_mille, blocks, suggested_buckets))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_event_comes_once_when_the_level_is_reached() {
    let mut pool = pool(500);
    pool.store(MEMBER, &blocks(0..999));
    assert_eq!(crossed(&mut pool), None, "one below");
    // Blocks that are owned already, or by others too, take no room.
    pool.store(MEMBER, &blocks(0..999));
    pool.store(Member::new(2, 0), &blocks(0..999));
    assert_eq!(crossed(&mut pool), None);
    pool.store(MEMBER, &blocks(999..1000));
    let suggested = Sizing::for_blocks(1000, 600).unwrap().bucket_count();
    assert_eq!(crossed(&mut pool), Some((500, 1000, suggested)));
    for block in 1000..1500 {
        pool.store(MEMBER, &blocks(block..block + 1));
        assert_eq!(crossed(&mut pool), None, "told before");
    }
}

/// A filter refuses before it is quite full. What it refuses counts, or a high level would never be
/// reached.
#[test]
fn omitted_blocks_count() {
    let mut pool = pool(1000);
    pool.store(MEMBER, &blocks(0..SLOTS - 1));
    assert!(pool.stats().omitted > 0 && crossed(&mut pool).is_none());
    pool.store(MEMBER, &blocks(SLOTS - 1..SLOTS));
    let (per_mille, blocks, _) = crossed(&mut pool).unwrap();
    assert!(per_mille < 1000 && blocks == SLOTS);
}

/// Growth counts as commands do: what its new filter refuses shows at once.
#[test]
fn omitted_blocks_count_in_a_grown_filter_too() {
    let mut pool = pool(1000);
    pool.store(MEMBER, &blocks(0..SLOTS + 100));
    assert!(crossed(&mut pool).is_some());
    pool.grow(Format::any_count(BUCKETS, 4).unwrap()).unwrap();
    assert!(pool.table().stored() < SLOTS && pool.stats().omitted > 0);
    assert_eq!(crossed(&mut pool).map(|(_, blocks, _)| blocks), Some(SLOTS + 100));
    // The same blocks, told by a command.
    pool.flush();
    assert_eq!(crossed(&mut pool), None, "told before");
}

#[test]
fn it_comes_again_only_after_a_clear_fall() {
    let mut pool = pool(500);
    pool.store(MEMBER, &blocks(0..1000));
    assert!(crossed(&mut pool).is_some());
    let twentieth = SLOTS / 20;
    // Back and forth across the level.
    for _ in 0..10 {
        pool.remove(MEMBER, &blocks(0..twentieth));
        pool.store(MEMBER, &blocks(0..twentieth));
        assert_eq!(crossed(&mut pool), None);
    }
    pool.remove(MEMBER, &blocks(0..twentieth + 1));
    assert_eq!(crossed(&mut pool), None, "a fall is no event");
    pool.store(MEMBER, &blocks(0..twentieth + 1));
    assert!(crossed(&mut pool).is_some());
    // However it falls and rises.
    pool.clear_member(MEMBER);
    pool.replace_member(MEMBER, &blocks(5000..6000));
    assert!(crossed(&mut pool).is_some());
}

#[test]
fn an_event_that_nobody_fetched_is_taken_back_by_a_fall() {
    let mut pool = pool(500);
    pool.store(MEMBER, &blocks(0..1000));
    pool.clear_member(MEMBER);
    assert_eq!(crossed(&mut pool), None);
    pool.store(MEMBER, &blocks(0..1000));
    assert!(crossed(&mut pool).is_some());
}

#[test]
fn the_suggested_size_ends_it_and_growth_starts_anew() {
    let mut pool = pool(850);
    pool.store(MEMBER, &blocks(0..3000));
    let (per_mille, held, suggested) = crossed(&mut pool).unwrap();
    // Blocks that found no room are counted: they are what the new filter is for.
    assert!(pool.stats().omitted >= 1000 && held == 3000, "{held}");
    assert!(per_mille >= 950, "{per_mille}");
    pool.grow(Format::any_count(suggested.into(), 4).unwrap()).unwrap();
    assert_eq!(crossed(&mut pool), None);
    assert_eq!(pool.stats().omitted, 0);
    assert!((580..=600).contains(&pool.stats().occupancy_per_mille));
    // The new filter has a level of its own.
    let level = (u64::from(suggested) * 4 * 850).div_ceil(1000);
    pool.store(MEMBER, &blocks(3000..level - 1));
    assert_eq!(crossed(&mut pool), None);
    pool.store(MEMBER, &blocks(level - 1..level));
    assert!(crossed(&mut pool).is_some());
    // A filter that is too small from the start says so at once.
    pool.grow(Format::any_count(800, 5).unwrap()).unwrap();
    assert!(crossed(&mut pool).is_some());
    assert_eq!(pool.check(), Ok(()));
}

#[test]
fn levels_from_one_to_a_thousand_per_mille_are_legal() {
    let config = PoolConfig::new(Format::any_count(2, 3).unwrap(), HashSeeds::new([1, 2, 3, 4]));
    for per_mille in [0, 1001, u16::MAX] {
        let refused = Err(ConfigError::Occupancy { per_mille });
        assert_eq!(config.with_occupancy_level(per_mille).map(|_| ()), refused);
    }
    // The smallest filter: the first block crosses a level of 1 per mille.
    let mut pool = Pool::new(config.with_occupancy_level(1).unwrap()).unwrap();
    pool.flush();
    assert_eq!(crossed(&mut pool), None);
    pool.store(MEMBER, &blocks(0..1));
    assert_eq!(
        crossed(&mut pool).map(|(per_mille, blocks, _)| (per_mille, blocks)),
        Some((125, 1))
    );
}
