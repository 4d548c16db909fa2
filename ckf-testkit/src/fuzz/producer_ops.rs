use ckf_core::BlockHash;
use ckf_producer::{Command, HashSeeds, Member, Pool, PoolConfig, WorkerId};

use super::Choices;
use crate::oracle::Oracle;
use crate::scenario;

/// Blocks that commands speak of. Two of them are the ends of the range (report F03).
const BLOCKS: u64 = 96;

fn block(choice: u8) -> BlockHash {
    match u64::from(choice) % BLOCKS {
        95 => BlockHash::new(u64::MAX),
        number => BlockHash::new(number),
    }
}

/// Commands, batches, new layouts and refused memory on a pool, against plain sets. Ownership is
/// exact after every command, the pool's own check holds, and what is published is what a reader
/// that applied every batch would hold.
pub fn producer_ops(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    // From far too small to roomy.
    let buckets = 4 + choices.below(40) as u32;
    let config = PoolConfig::new(scenario::format(buckets), HashSeeds::new([5, 6, 7, 8]));
    let mut pool = Pool::new(config).expect("a small pool");
    let mut oracle = Oracle::new();
    let mut reader = vec![0u64; buckets as usize];
    while !choices.is_empty() {
        match choices.byte() % 16 {
            0..11 => run(&mut pool, &mut oracle, &command(&mut choices)),
            11 | 12 => publish(&mut pool, &mut reader),
            13 => {
                let buckets = 4 + choices.below(40) as u32;
                if pool.grow(scenario::format(buckets)).is_ok() {
                    reader = published(&pool);
                }
            }
            14 => pool.set_max_bytes(pool.stats().bytes.total() + u64::from(choices.u16())),
            _ => pool.set_max_bytes(u64::MAX),
        }
    }
    pool.set_max_bytes(u64::MAX);
    assert_eq!(pool.check(), Ok(()));
    publish(&mut pool, &mut reader);
    for hash in (0..=u8::MAX).map(block) {
        assert_eq!(pool.owners(hash) as usize, oracle.owners(hash), "{hash}");
    }
    let distinct = oracle.distinct();
    assert_eq!(pool.stats().distinct_blocks, distinct.len() as u64);
    let missing = distinct.iter().filter(|&&hash| !pool.table().contains(hash)).count() as u64;
    assert!(missing <= pool.stats().omitted, "{missing} owned blocks are not found");
}

fn command(choices: &mut Choices<'_>) -> Command {
    let kind = choices.byte();
    let member = Member::new(u64::from(kind >> 4) % 3, u32::from(kind >> 6) % 2);
    let len = choices.below(40);
    let hashes = |choices: &mut Choices<'_>| choices.take(len).iter().map(|&b| block(b)).collect();
    match kind % 8 {
        0..4 => Command::Store { member, hashes: hashes(choices) },
        4 | 5 => Command::Remove { member, hashes: hashes(choices) },
        6 if len == 0 => Command::RemoveWorker { worker: WorkerId::new(member.worker.get()) },
        6 if len == 1 => Command::ClearMember { member },
        6 => Command::ReplaceMember { member, hashes: hashes(choices) },
        _ => Command::Flush,
    }
}

fn run(pool: &mut Pool, oracle: &mut Oracle, command: &Command) {
    let before = oracle.clone();
    oracle.apply(command);
    let outcome = pool.apply(command);
    assert_eq!(outcome.failed > 0, outcome.error.is_some(), "{outcome:?}");
    let (Command::Store { member, .. } | Command::ReplaceMember { member, .. }) = command else {
        assert_eq!(outcome.error, None, "only gaining blocks needs memory");
        return;
    };
    if outcome.error.is_some() {
        // Blocks were refused: the member has a part of what it should have, and what it had.
        let owned: Vec<_> =
            (0..BLOCKS as u8).map(block).filter(|&hash| pool.owns(*member, hash)).collect();
        let wanted: Vec<_> = oracle.owned(*member).collect();
        assert!(owned.iter().all(|hash| wanted.contains(hash)));
        let kept = before.owned(*member).filter(|hash| wanted.contains(hash));
        assert!(kept.into_iter().all(|hash| owned.contains(&hash)), "a failure lost a block");
        oracle.replace_member(*member, &owned);
    }
}

fn publish(pool: &mut Pool, reader: &mut [u64]) {
    if let Some(batch) = pool.seal().expect("numbers last") {
        for change in batch.changes() {
            let word = &mut reader[change.bucket.to_usize()];
            assert_eq!(*word, change.before.get());
            assert_ne!(change.before, change.after, "net-reverted buckets are left out");
            *word = change.after.get();
        }
    }
    assert_eq!(reader, published(pool));
    assert_eq!(reader, pool.table().words());
}

fn published(pool: &Pool) -> Vec<u64> {
    let buckets = pool.format().bucket_count();
    pool.published_words(0..buckets).expect("the whole table").to_vec()
}
