//! Field reports about ownership and the filter, each as a test of the pool.

use ckf_core::{Address, BlockHash, Format};
use ckf_producer::{
    CommandError, HashSeeds, Member, Outcome, Pool, PoolConfig, Producer, PublishConfig,
};
use ckf_protocol::{DcId, IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, PoolId};

fn pool(buckets: u64) -> Pool {
    let format = Format::any_count(buckets, 11).unwrap();
    Pool::new(PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]))).unwrap()
}

fn blocks(numbers: impl IntoIterator<Item = u64>) -> Vec<BlockHash> {
    numbers.into_iter().map(BlockHash::new).collect()
}

fn member(worker: u64, rank: u32) -> Member {
    Member::new(worker, rank)
}

/// Two blocks that the filter cannot tell apart.
fn twins(format: &Format) -> [BlockHash; 2] {
    let mut seen: Vec<(Address, BlockHash)> = Vec::new();
    for hash in (0..).map(BlockHash::new) {
        let address = format.address(hash);
        if let Some((_, twin)) = seen.iter().find(|(other, _)| *other == address) {
            return [*twin, hash];
        }
        if seen.len() < 20_000 {
            seen.push((address, hash));
        }
    }
    unreachable!("addresses of a small table repeat")
}

/// What readers would see: the words published last, with the batch number.
fn published(pool: &mut Pool) -> Vec<u64> {
    drop(pool.seal().unwrap());
    let buckets = pool.format().bucket_count();
    pool.published_words(0..buckets).unwrap().collect()
}

#[test]
fn f03_every_hash_is_an_ordinary_one() {
    let mut pool = pool(16);
    let edge = [BlockHash::from_signed(0), BlockHash::from_signed(100)];
    let edge = [edge[0], edge[1], BlockHash::from_signed(i64::MIN), BlockHash::from_signed(-1)];
    assert_eq!(pool.store(member(1, 0), &edge).first_owners, 4);
    assert!(edge.iter().all(|&hash| pool.owners(hash) == 1 && pool.table().contains(hash)));
    assert_eq!(pool.remove(member(1, 0), &edge).final_removals, 4);
    assert!(pool.words().all(|word| word == 0));
}

#[test]
fn f04_a_hash_repeated_in_a_command_counts_once() {
    let mut pool = pool(16);
    let stored = pool.store(member(1, 0), &blocks([7, 9, 7]));
    assert_eq!((stored.first_owners, stored.already_owned), (2, 1));
    assert_eq!(pool.table().copies(&pool.format().address(BlockHash::new(7))), 1);
    let removed = pool.remove(member(1, 0), &blocks([7]));
    assert_eq!((removed.final_removals, pool.owners(BlockHash::new(7))), (1, 0));
    let removed = pool.remove(member(1, 0), &blocks([9, 9]));
    assert_eq!((removed.final_removals, removed.unknown), (1, 1));
    assert_eq!(pool.replace_member(member(1, 0), &blocks([4, 4, 5])).first_owners, 2);
    assert_eq!(pool.owned_blocks(member(1, 0)), 2);
    assert_eq!(pool.stats().distinct_blocks, 2);
}

#[test]
fn f06_the_pool_has_set_semantics() {
    let mut pool = pool(16);
    let h3 = BlockHash::new(3);
    let counts: Vec<u32> =
        [pool.store(member(1, 0), &blocks(1..=7)), pool.store(member(1, 0), &[h3])]
            .map(|_| pool.owners(h3))
            .into_iter()
            .chain(
                [pool.remove(member(1, 0), &[h3]), pool.remove(member(1, 0), &[h3])]
                    .map(|_| pool.owners(h3)),
            )
            .collect();
    assert_eq!(counts, [1, 1, 0, 0]);
    assert!(!pool.table().contains(h3));
}

#[test]
fn f07_removing_what_is_not_owned_touches_nothing() {
    let mut pool = pool(8);
    let [x, y] = twins(&pool.format());
    pool.store(member(1, 0), &[x]);
    let before = published(&mut pool);
    for (who, what) in [(member(2, 0), x), (member(1, 0), y), (member(9, 9), y), (member(1, 1), x)]
    {
        let outcome = pool.remove(who, &[what]);
        assert_eq!(outcome, Outcome { unknown: 1, ..Outcome::default() });
        assert_eq!(pool.stats().dirty_buckets, 0);
        assert_eq!(pool.stats().members, 1);
    }
    assert!(pool.seal().unwrap().is_none());
    assert!(pool.words().eq(before));
    assert!(pool.table().contains(x));

    // The twin is a copy of its own: it comes and goes without the other.
    pool.store(member(2, 0), &[y]);
    assert_eq!(pool.table().copies(&pool.format().address(x)), 2);
    pool.remove(member(2, 0), &[y]);
    assert_eq!(pool.table().copies(&pool.format().address(x)), 1);
    assert_eq!((pool.table().stored(), pool.owners(x)), (1, 1));
}

#[test]
fn f08_a_store_told_twice_counts_once() {
    let mut pool = pool(64);
    let a = [BlockHash::new(5)];
    let mut counts = Vec::new();
    let mut note = |pool: &Pool| counts.push(pool.owners(a[0]));
    for worker in [1, 1, 2] {
        pool.store(member(worker, 0), &a);
        note(&pool);
    }
    for worker in [1, 1] {
        pool.remove(member(worker, 0), &a);
        note(&pool);
    }
    drop(pool.seal().unwrap());
    pool.remove(member(2, 0), &a);
    note(&pool);
    assert_eq!(counts, [1, 1, 2, 1, 1, 0]);
    assert_eq!(pool.stats().dirty_buckets, 1);
    assert_eq!(pool.seal().unwrap().map(|batch| batch.len()), Some(1));
}

#[test]
fn f10_ranks_are_members_of_their_own() {
    let mut pool = pool(64);
    let (a, d) = (BlockHash::new(1), BlockHash::new(4));
    pool.store(member(7, 0), &[a]);
    pool.store(member(7, 1), &[a]);
    pool.store(member(7, 5), &[d]);
    assert_eq!(pool.owners(a), 2);
    pool.clear_member(member(7, 0));
    assert_eq!((pool.owners(a), pool.owners(d)), (1, 1));
    assert!(pool.table().contains(a) && pool.table().contains(d));
    let outcome = pool.remove_worker(member(7, 0).worker);
    assert_eq!(outcome.final_removals, 2);
    assert_eq!(pool.stats().members, 0);
    assert!(pool.words().all(|word| word == 0));
}

#[test]
fn f11_a_clear_empties_the_member_and_only_it() {
    let mut pool = pool(40_000);
    pool.store(member(1, 0), &blocks(0..100_000));
    pool.store(member(2, 0), &blocks(99_999..100_009));
    drop(pool.seal().unwrap());
    let outcome = pool.clear_member(member(1, 0));
    assert_eq!((outcome.released, outcome.final_removals), (1, 99_999));
    assert_eq!(pool.stats().distinct_blocks, 10);
    assert_eq!(pool.table().stored(), 10);
    assert!(pool.seal().unwrap().is_some(), "readers are told");
    for empty in [member(3, 0), member(1, 0)] {
        assert_eq!(pool.clear_member(empty), Outcome::default());
        assert!(pool.seal().unwrap().is_none());
    }
}

#[test]
fn f12_a_replacement_is_a_difference() {
    let mut pool = pool(64);
    pool.store(member(1, 0), &blocks([1, 2, 3]));
    pool.store(member(2, 0), &blocks([2]));
    drop(pool.seal().unwrap());
    let outcome = pool.replace_member(member(1, 0), &blocks([3, 4]));
    assert_eq!(outcome.final_removals, 1);
    assert_eq!((pool.owners(BlockHash::new(1)), pool.owners(BlockHash::new(2))), (0, 1));
    let address = pool.format().address(BlockHash::new(3));
    for bucket in [address.first, address.second] {
        // Block 3 is in both states: what holds it is the same before and after the batch.
        let mut words = pool.published_words(bucket.get()..bucket.get() + 1).unwrap();
        let was = ckf_core::BucketImage::new(words.next().unwrap()).copies(address.fingerprint);
        assert_eq!(was, pool.table().image(bucket).copies(address.fingerprint));
    }
    assert!(pool.seal().unwrap().is_some());

    // The same set again says nothing to readers.
    let outcome = pool.replace_member(member(1, 0), &blocks([4, 3]));
    assert_eq!(outcome.already_owned, 2);
    assert!(pool.seal().unwrap().is_none());

    pool.replace_member(member(1, 0), &[]);
    assert_eq!(pool.stats().distinct_blocks, 1);
    assert_eq!(pool.owners(BlockHash::new(2)), 1);
    assert_eq!(pool.owned_blocks(member(1, 0)), 0);
}

#[test]
fn f26_omitted_blocks_stay_owned_and_come_back() {
    let mut pool = pool(16);
    let all = blocks(0..200);
    let outcome = pool.store(member(1, 0), &all);
    assert_eq!(outcome.first_owners, 200);
    assert!(outcome.omitted > 100, "{outcome:?}");
    assert_eq!(pool.stats().omitted, outcome.omitted);
    assert!(pool.check().is_ok());
    assert_eq!(pool.table().stored() + pool.stats().omitted, 200);

    // Removing an omitted block is exact: the filter is not touched for it.
    let missing = all.iter().copied().find(|&hash| !pool.table().contains(hash)).unwrap();
    let stored = pool.table().stored();
    pool.remove(member(1, 0), &[missing]);
    assert_eq!(pool.table().stored(), stored);
    assert_eq!(pool.owners(missing), 0);

    // Room returns: every block that is still owned is found again.
    let kept: Vec<_> = all.iter().copied().filter(|&hash| hash != missing).step_by(5).collect();
    let gone: Vec<_> = all.iter().copied().filter(|hash| !kept.contains(hash)).collect();
    for some in gone.chunks(3) {
        pool.remove(member(1, 0), some);
    }
    for _ in 0..200 {
        pool.flush();
    }
    assert_eq!(pool.stats().omitted, 0);
    assert!(kept.iter().all(|&hash| pool.table().contains(hash)));
    assert_eq!(pool.table().stored(), kept.len() as u64);
    assert!(pool.check().is_ok());
}

/// A block that several members own, and its twin, which one of them owns alone: whoever else gains
/// the block must not be taken for its second owner.
#[test]
fn f28_a_twin_of_a_shared_block_is_counted_apart() {
    let mut pool = pool(16);
    let [shared, twin] = twins(&pool.format());
    for number in 1..=2 {
        pool.store(member(number, 0), &[shared]);
    }
    assert_eq!(pool.store(member(2, 0), &[twin]).first_owners, 1);
    for number in 3..=5 {
        let outcome = pool.store(member(number, 0), &[shared]);
        assert_eq!((outcome.shared, outcome.first_owners), (1, 0));
    }
    assert_eq!((pool.owners(shared), pool.owners(twin), pool.table().stored()), (5, 1, 2));
    assert!(pool.check().is_ok());
    for number in 1..=5 {
        let outcome = pool.remove(member(number, 0), &[shared]);
        assert_eq!(outcome.final_removals, u64::from(number == 5));
    }
    assert_eq!((pool.owners(shared), pool.owners(twin), pool.table().stored()), (0, 1, 1));
    assert_eq!(pool.remove(member(2, 0), &[twin]).final_removals, 1);
    assert!(pool.check().is_ok());
}

#[test]
fn f29_a_promised_number_of_blocks_fits() {
    for count in [0, 1, 2, 4, 5, 6, 7, 8, 9, 13, 100, 1000] {
        for set in 0..20 {
            let sizing =
                ckf_core::Sizing::for_blocks(count, ckf_core::Sizing::DEFAULT_LOAD).unwrap();
            let config = PoolConfig::new(sizing.format(set), HashSeeds::new([1, 2, 3, 4]));
            let mut pool = Pool::new(config).unwrap();
            pool.store(member(1, 0), &blocks((0..count).map(|i| i << 32 | set)));
            assert_eq!(pool.stats().omitted, 0, "{count} blocks, set {set}");
        }
    }
}

#[test]
fn f37_numbers_are_given_after_whole_commands() {
    let mut pool = pool(40_000);
    pool.store(member(1, 0), &blocks(0..100_000));
    let first = pool.seal().unwrap().map(|batch| batch.sequence().get());
    pool.clear_member(member(1, 0));
    let second = pool.seal().unwrap().map(|batch| batch.sequence().get());
    assert_eq!((first, second), (Some(1), Some(2)));
    let buckets = pool.format().bucket_count();
    assert!(pool.published_words(0..buckets).unwrap().all(|word| word == 0));
}

/// A batch that is leaked instead of dropped was not published: its buckets stay dirty, and the next
/// batch takes its place.
#[test]
fn a_leaked_batch_loses_nothing() {
    let mut pool = pool(50);
    pool.store(member(1, 0), &[BlockHash::new(1), BlockHash::new(2)]);
    let batch = pool.seal().unwrap().unwrap();
    let (sequence, digest, first) = (batch.sequence(), batch.digest(), batch.len());
    std::mem::forget(batch);
    assert_eq!(pool.stats().dirty_buckets, first);
    assert_eq!(pool.check(), Ok(()));
    let batch = pool.seal().unwrap().unwrap();
    assert_eq!((batch.sequence(), batch.digest(), batch.len()), (sequence, digest, first));
    drop(batch);
    pool.store(member(1, 0), &[BlockHash::new(3)]);
    assert_eq!(pool.seal().unwrap().unwrap().len(), 1);
    assert!(published(&mut pool).into_iter().eq(pool.words()));
}

/// Nor is a bucket counted twice that was in a leaked batch and has changed again since.
#[test]
fn a_leaked_batch_is_counted_once() {
    let mut pool = pool(50);
    pool.store(member(1, 0), &[BlockHash::new(1), BlockHash::new(2)]);
    let marked = {
        let batch = pool.seal().unwrap().unwrap();
        let len = batch.len();
        std::mem::forget(batch);
        len
    };
    pool.remove(member(1, 0), &[BlockHash::new(1)]);
    let len = pool.seal().unwrap().unwrap().len();
    assert_eq!(pool.stats().net_reverted, u64::from(marked - len));
}

/// Nor is a bucket that had gone back already when its batch was leaked.
#[test]
fn what_a_leaked_batch_leaves_out_is_counted_once() {
    let mut pool = pool(1_000);
    pool.store(member(1, 0), &blocks(0..100));
    pool.remove(member(1, 0), &blocks(0..90));
    for _ in 0..3 {
        std::mem::forget(pool.seal().unwrap().unwrap());
        assert_eq!(pool.stats().net_reverted, 0, "nothing was published");
    }
    let dirty = pool.stats().dirty_buckets;
    let len = pool.seal().unwrap().unwrap().len();
    assert!(len < dirty);
    assert_eq!(pool.stats().net_reverted, u64::from(dirty - len));
    // Where all have gone back there is no batch, but they are counted.
    pool.store(member(2, 0), &blocks([1_000]));
    pool.remove(member(2, 0), &blocks([1_000]));
    assert!(pool.seal().unwrap().is_none());
    assert_eq!(pool.stats().net_reverted, u64::from(dirty - len) + 1);
}

#[test]
fn there_are_no_more_members_than_configured() {
    let format = Format::any_count(16, 11).unwrap();
    let config = PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4])).with_max_members(2).unwrap();
    let mut pool = Pool::new(config).unwrap();
    assert_eq!(pool.store(member(1, 0), &blocks([1])).error, None);
    assert_eq!(pool.store(member(1, 1), &blocks([1])).error, None);
    let refused = pool.store(member(2, 0), &blocks([1, 2]));
    assert_eq!(refused.error, Some(CommandError::TooManyMembers { limit: 2 }));
    assert_eq!((pool.owners(BlockHash::new(1)), pool.owners(BlockHash::new(2))), (2, 0));
    // Who has nothing any more leaves its place to another.
    pool.clear_member(member(1, 0));
    assert_eq!(pool.store(member(2, 0), &blocks([1, 2])).error, None);
}

/// What a nearly full filter costs, and what is published, can be read from the counters, also
/// after it has grown.
#[test]
fn counters_tell_of_moves_searches_and_images() {
    let mut pool = pool(100);
    assert_eq!(pool.store(member(1, 0), &blocks(1..=380)).omitted, 0);
    let before = pool.stats();
    assert!(before.kicks > 0 && before.searched_buckets >= before.kicks, "{before:?}");
    assert_eq!(before.images, 0);
    let batch = pool.seal().unwrap().unwrap();
    let images = u64::from(batch.len());
    drop(batch);
    assert!(images > 90);
    assert_eq!(pool.stats().images, images);
    pool.grow(Format::any_count(200, 11).unwrap()).unwrap();
    let after = pool.stats();
    assert!(after.kicks >= before.kicks && after.searched_buckets >= before.searched_buckets);
}

/// A host that prints a struct of its own with a producer in it must print neither every block nor
/// the secret under which they are held.
#[test]
fn a_producer_is_fit_for_a_log() {
    const SECRET: u64 = 0x0123_4567_89AB_CDEF;
    let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
    let domain = IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) };
    let id = PoolId { domain, dc: DcId::new(7) };
    let format = Format::any_count(30_000, 11).unwrap();
    let config = PoolConfig::new(format, HashSeeds::new([SECRET; 4]));
    let mut producer =
        Producer::new(config, PublishConfig::default(), id, Incarnation::new(1)).unwrap();
    producer.store(member(1, 0), &blocks(0..100_000));
    let pool = producer.pool();
    for printed in [format!("{producer:?}"), format!("{pool:?} {:?}", pool.table().buckets())] {
        assert!(printed.len() < 4_000 && printed.contains("100000"), "{} bytes", printed.len());
        assert!(!printed.contains(&SECRET.to_string()), "{printed}");
    }
    let mut copy = pool.clone();
    let batch = copy.seal().unwrap().unwrap();
    assert!(format!("{batch:?} {:?}", batch.changes()).len() < 1_000);
}
