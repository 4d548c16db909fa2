//! The one file that knows the crates of this repository. Everything else calls these functions.

use std::hint::black_box;
use std::rc::Rc;

use ckf_core::{BlockHash, Format};
use ckf_producer::{HashSeeds, Member, Pool, PoolConfig};

use crate::lookups::{Row, Writer};
use crate::producer::Subject;
use crate::workload::{Chain, Query, Workload};

/// Rows `ours.jump`, `ours.walk`, `ours.batch8`, `ours.local` over tables filled with the workload.
pub fn lookup_rows(_workload: &dyn Workload, _queries: &Rc<[Query]>) -> Vec<Row> {
    Vec::new()
}

/// A jump row and a writer that applies the next delta to lane 0 of the same table.
pub fn lookup_with_writer(
    _workload: &dyn Workload,
    _queries: &Rc<[Query]>,
) -> Option<(Row, Writer)> {
    None
}

/// The producer of one pool: exact state, projection and batches.
pub struct Producer {
    pool: Pool,
    cadence: usize,
    pending: usize,
}

/// Blocks that a member gains (true) or loses.
pub struct Command {
    member: Member,
    blocks: Vec<BlockHash>,
    store: bool,
}

impl Subject for Producer {
    type Command = Command;

    fn new(bucket_count: usize, cadence: usize) -> Self {
        let format = Format::any_count(bucket_count as u64, SEED).expect("a legal count");
        let config = PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]));
        Self { pool: Pool::new(config).expect("memory"), cadence, pending: 0 }
    }

    fn store(member: usize, chain: &Chain, from: usize, to: usize) -> Command {
        Command {
            member: self::member(member),
            blocks: blocks(&chain.sequence[from..to]),
            store: true,
        }
    }

    fn remove(member: usize, hashes: &[u64]) -> Command {
        Command { member: self::member(member), blocks: blocks(hashes), store: false }
    }

    fn apply(&mut self, command: Command) -> usize {
        let outcome = if command.store {
            self.pool.store(command.member, &command.blocks)
        } else {
            self.pool.remove(command.member, &command.blocks)
        };
        assert!(outcome.error.is_none() && outcome.omitted == 0, "{outcome:?}");
        self.pending += 1;
        if self.pending < self.cadence {
            return 0;
        }
        self.pending = 0;
        let Some(batch) = self.pool.seal().expect("not fenced") else {
            return 0;
        };
        // A host without subscribers would not even look; Dynamo's producer hands out a list.
        batch.changes().map(|change| black_box(change).after).count()
    }

    fn filter_bytes(&self) -> usize {
        self.pool.stats().bytes.filter as usize
    }

    fn own_bytes(&self) -> usize {
        let bytes = self.pool.stats().bytes;
        (bytes.total() - bytes.filter) as usize
    }

    fn edges(&self) -> usize {
        self.pool.stats().edges as usize
    }
}

const SEED: u64 = 42;

fn member(number: usize) -> Member {
    Member::new(number as u64, 0)
}

fn blocks(hashes: &[u64]) -> Vec<BlockHash> {
    hashes.iter().copied().map(BlockHash::new).collect()
}
