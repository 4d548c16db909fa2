//! Memory of the exact sets follows what is held, not how often or in how large commands it was
//! told.

use ckf_core::{BlockHash, Format};
use ckf_producer::{HashSeeds, Member, Pool, PoolConfig};

fn pool(buckets: u64) -> Pool {
    let format = Format::any_count(buckets, 1).unwrap();
    Pool::new(PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]))).unwrap()
}

fn blocks(first: u64, count: u64) -> Vec<BlockHash> {
    (first..first + count).map(|n| BlockHash::new(ckf_core::mix64(n + 1))).collect()
}

fn bytes(pool: &Pool) -> u64 {
    pool.stats().bytes.member_sets
}

/// A member that is replaced by what it holds already, or stores it again, takes nothing more, and
/// so leaves others what a limit leaves them.
#[test]
fn what_is_repeated_takes_no_memory() {
    for count in [1, 4, 5, 15, 20, 23, 31, 33, 40, 90, 400, 1_500] {
        let mut pool = pool(60_000);
        let members = 90_000 / count.max(60);
        let all: Vec<_> = (0..members).map(|n| blocks(n * count, count)).collect();
        for (worker, blocks) in (0..).zip(&all) {
            assert_eq!(pool.store(Member::new(worker, 0), blocks).first_owners, count);
        }
        let before = bytes(&pool);
        for (worker, blocks) in (0..).zip(&all) {
            let member = Member::new(worker, 0);
            assert_eq!(pool.replace_member(member, blocks).already_owned, count);
            assert_eq!(pool.store(member, blocks).already_owned, count);
        }
        assert_eq!(bytes(&pool), before, "{count} blocks a member");
    }
}

/// A set that was large keeps its segments, each with few blocks. Blocks that come and go in groups
/// spread over them, and each segment grows for its own only.
#[test]
fn a_set_that_shrank_stays_small() {
    const MEMBER: Member = Member::new(1, 0);
    let mut pool = pool(60_000);
    let mut held = blocks(0, 200_000);
    held.chunks(128).for_each(|blocks| _ = pool.store(MEMBER, blocks));
    held.split_off(1_500).chunks(128).for_each(|blocks| _ = pool.remove(MEMBER, blocks));
    let before = bytes(&pool);
    for round in 0..2_000 {
        let at = (round * 32) % (held.len() - 32);
        pool.remove(MEMBER, &held[at..at + 32]);
        held.splice(at..at + 32, blocks(1_000_000 + round as u64 * 32, 32));
        pool.store(MEMBER, &held[at..at + 32]);
        let now = bytes(&pool);
        assert!(now <= before + before / 4, "{now} bytes, {before} in the beginning");
    }
    pool.check().unwrap();
}
