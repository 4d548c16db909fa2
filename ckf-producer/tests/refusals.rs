//! Memory refused at every single reservation of a script of commands, one run for each place.

use std::collections::BTreeSet;

use ckf_core::{BlockHash, Format};
use ckf_producer::{
    Command, CommandError, GrowError, HashSeeds, Member, Pool, PoolConfig, WorkerId,
};

const UNIVERSE: u64 = 320;

fn hashes(numbers: impl IntoIterator<Item = u64>) -> Vec<BlockHash> {
    numbers.into_iter().map(BlockHash::new).collect()
}

/// Every kind of command, with blocks of one and of several owners, and more than fit the filter.
fn script() -> Vec<Command> {
    let member = |number| Member::new(number / 2, number as u32 % 2);
    let store = |m, range| Command::Store { member: member(m), hashes: hashes(range) };
    let mut script: Vec<_> = (0..6).map(|m| store(m, m * 30..m * 30 + 90)).collect();
    script.extend((0..60).map(|number| Command::Store {
        member: member(number % 7),
        hashes: hashes([(number * 37) % UNIVERSE]),
    }));
    script.extend([
        Command::Remove { member: member(1), hashes: hashes(60..200) },
        Command::ReplaceMember { member: member(2), hashes: hashes((0..UNIVERSE).step_by(3)) },
        Command::ReplaceMember { member: member(3), hashes: hashes(0..2) },
        Command::ClearMember { member: member(4) },
        Command::ReplaceMember { member: member(9), hashes: hashes(200..UNIVERSE) },
        Command::RemoveWorker { worker: WorkerId::new(0) },
        store(0, 0..UNIVERSE),
    ]);
    script
}

fn new_pool() -> Pool {
    let format = Format::any_count(50, 3).unwrap();
    Pool::new(PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4])).with_readmissions(3)).unwrap()
}

/// Who owns what, exactly.
fn owned(pool: &Pool) -> BTreeSet<(Member, u64)> {
    let members = (0..5).flat_map(|worker| (0..2).map(move |rank| Member::new(worker, rank)));
    members
        .flat_map(|member| (0..UNIVERSE).map(move |block| (member, block)))
        .filter(|(member, block)| pool.owns(*member, BlockHash::new(*block)))
        .collect()
}

#[test]
fn every_refused_reservation_leaves_exact_state() {
    let (mut pool, mut refused) = (new_pool(), 0);
    for (number, command) in script().into_iter().enumerate() {
        let before = owned(&pool);
        let mut whole = pool.clone();
        assert_eq!(whole.apply(&command).error, None);
        let after = owned(&whole);
        let used = pool.stats().bytes.total();
        let mut limit = Some(used);
        while let Some(max_bytes) = limit {
            let mut tried = pool.clone();
            tried.set_max_bytes(max_bytes);
            let outcome = tried.apply(&command);
            assert_eq!(tried.check(), Ok(()), "command {number}, limit {max_bytes}");
            let error = match outcome.error {
                None => None,
                Some(CommandError::Allocation(error)) => Some(error),
                Some(other) => panic!("{other:?}"),
            };
            let now = owned(&tried);
            match error {
                Some(_) => {
                    refused += 1;
                    // What a refusal may leave undone are gains, of blocks that are reported.
                    assert!(now.is_subset(&after) && now != after, "{number}: {outcome:?}");
                    assert!(before.intersection(&after).all(|edge| now.contains(edge)));
                    assert_eq!((after.len() - now.len()) as u64, outcome.failed);
                    assert!(matches!(
                        command,
                        Command::Store { .. } | Command::ReplaceMember { .. }
                    ));
                }
                None => assert_eq!(now, after),
            }
            // The same command once there is memory: nothing was lost on the way.
            tried.set_max_bytes(u64::MAX);
            assert_eq!(tried.apply(&command).error, None);
            assert_eq!(owned(&tried), after);
            assert_eq!(tried.check(), Ok(()));
            // Nothing smaller is ever reserved, so that each reservation is the one refused in some run.
            limit = error.map(|_| max_bytes + 8);
        }
        pool = whole;
    }
    assert!(refused > 300, "only {refused} refusals were met");
}

#[test]
fn a_refused_growth_changes_nothing() {
    let mut pool = new_pool();
    script().iter().for_each(|command| assert_eq!(pool.apply(command).error, None));
    let (held, used) = (owned(&pool), pool.stats().bytes.total());
    let (layout, sequence, digest) = (pool.layout(), pool.sequence(), pool.digest());
    let words: Vec<_> = pool.words().collect();
    let format = Format::any_count(300, 9).unwrap();
    let (mut limit, mut refused) = (used, 0);
    loop {
        let mut tried = pool.clone();
        let before = tried.stats().bytes;
        tried.set_max_bytes(limit);
        match tried.grow(format) {
            Ok(_) => break,
            Err(GrowError::Allocation(_)) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!((tried.layout(), tried.sequence(), tried.digest()), (layout, sequence, digest));
        assert!(tried.words().eq(words.iter().copied()));
        assert_eq!(tried.stats().bytes, before, "all was given back");
        assert_eq!(tried.check(), Ok(()));
        // The pool goes on as if nobody had asked.
        tried.set_max_bytes(u64::MAX);
        assert_eq!(tried.grow(format).ok(), layout.checked_next());
        assert_eq!(owned(&tried), held);
        assert_eq!(tried.check(), Ok(()));
        limit += 97;
    }
    assert!(refused > 50, "only {refused} refusals were met");
}

/// A copy of a pool gives back what it takes, and goes on to take what it needs.
#[test]
fn a_cloned_pool_keeps_its_books() {
    let format = |count| Format::any_count(count, 3).unwrap();
    let config = PoolConfig::new(format(10_000), HashSeeds::new([1, 2, 3, 4]));
    let mut pool = Pool::new(config).unwrap().clone();
    let member = Member::new(1, 0);
    // More dirty buckets than half of them: a list that grows by doubling takes more than all need.
    pool.store(member, &hashes(0..9_000));
    let before = pool.stats().bytes.total();
    assert!(pool.seal().unwrap().is_some());
    assert_eq!(pool.stats().bytes.total(), before, "a batch takes no memory");
    pool.grow(format(2)).unwrap();
    pool.clear_member(member);
    assert_eq!(pool.store(member, &hashes(0..100)).error, None);
    pool.grow(format(10_000)).unwrap();
    assert_eq!((pool.store(member, &hashes(0..9_000)).error, pool.check()), (None, Ok(())));
}

/// A pool whose first memory is refused does not come to be.
#[test]
fn a_refused_pool_is_an_error() {
    let format = Format::any_count(50, 3).unwrap();
    let config =
        |max_bytes| PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4])).with_max_bytes(max_bytes);
    let needed = new_pool().stats().bytes.total();
    for max_bytes in 0..needed {
        assert!(Pool::new(config(max_bytes)).is_err(), "{max_bytes} of {needed}");
    }
    assert!(Pool::new(config(needed)).is_ok());
}
