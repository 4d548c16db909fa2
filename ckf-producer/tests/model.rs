//! The pool against a naive oracle: sets of blocks by member, and a copy of the table that is
//! brought forward by nothing but sealed batches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use ckf_core::{BlockHash, BucketIndex, Format, Table, TableDigest};
use ckf_producer::{
    CommandError, HashSeeds, Member, Outcome, Pool, PoolBuckets, PoolConfig, WorkerId,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Store(Member, Vec<BlockHash>),
    Remove(Member, Vec<BlockHash>),
    Clear(Member),
    RemoveWorker(WorkerId),
    Replace(Member, Vec<BlockHash>),
    Flush,
    Seal,
    Grow(u64, u64),
    /// Refuse memory from the bytes now in use on, after this many more.
    Budget(Option<u64>),
}

fn member() -> impl Strategy<Value = Member> {
    (0u64..3, 0u32..2).prop_map(|(worker, rank)| Member::new(worker, rank))
}

/// The seed of the filters that a model starts with.
const SEED: u64 = 1;

/// Blocks with few different fingerprints: in a small filter, many of them cannot be told apart.
static TWINS: LazyLock<Vec<BlockHash>> = LazyLock::new(|| {
    let format = Format::any_count(2, SEED).unwrap();
    let alike = |&hash: &BlockHash| format.address(hash).fingerprint.get() <= 3;
    (1000..).map(BlockHash::new).filter(alike).take(60).collect()
});

/// A small universe, so that members share and repeat blocks, with the ends of the range in it.
fn block() -> impl Strategy<Value = BlockHash> {
    prop_oneof![
        4 => (0u64..40).prop_map(BlockHash::new),
        5 => (0..TWINS.len()).prop_map(|at| TWINS[at]),
        1 => prop_oneof![Just(u64::MAX), Just(1 << 63)].prop_map(BlockHash::new),
    ]
}

fn blocks() -> impl Strategy<Value = Vec<BlockHash>> {
    prop_oneof![prop::collection::vec(block(), 0..4), prop::collection::vec(block(), 0..50),]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (member(), blocks()).prop_map(|(m, b)| Op::Store(m, b)),
        5 => (member(), blocks()).prop_map(|(m, b)| Op::Remove(m, b)),
        1 => member().prop_map(Op::Clear),
        1 => (0u64..4).prop_map(|w| Op::RemoveWorker(WorkerId::new(w))),
        2 => (member(), blocks()).prop_map(|(m, b)| Op::Replace(m, b)),
        1 => Just(Op::Flush),
        4 => Just(Op::Seal),
        1 => (2u64..40, prop_oneof![Just(SEED), 0u64..3]).prop_map(|(count, seed)| Op::Grow(count, seed)),
        2 => prop_oneof![Just(None), (0u64..600).prop_map(Some), Just(Some(0))].prop_map(Op::Budget),
    ]
}

type Owned = BTreeMap<Member, BTreeSet<BlockHash>>;

/// A fingerprint and its unordered pair of buckets: all that a filter knows of a block.
type Copy = (BucketIndex, BucketIndex, u16);

struct Model {
    pool: Pool,
    owned: Owned,
    published: Vec<u64>,
    /// Blocks re-admitted so far, by what commands said.
    readmitted: u64,
    /// Kicks and refused insertions counted last: growth goes on counting.
    counted: (u64, u64),
}

impl Model {
    fn new(buckets: u64) -> Self {
        let format = Format::any_count(buckets, SEED).unwrap();
        let config = PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4])).with_readmissions(5);
        let pool = Pool::new(config).unwrap();
        let published = vec![0; pool.words().len()];
        Self { pool, owned: Owned::new(), published, readmitted: 0, counted: (0, 0) }
    }

    fn owners(&self, block: BlockHash) -> u32 {
        self.owned.values().filter(|blocks| blocks.contains(&block)).count() as u32
    }

    fn distinct(&self) -> BTreeSet<BlockHash> {
        self.owned.values().flatten().copied().collect()
    }

    fn run(&mut self, op: &Op) {
        let before = self.owned.clone();
        let outcome = match op {
            Op::Store(member, blocks) => {
                let outcome = self.pool.store(*member, blocks);
                self.expect_gains(*member, blocks, &before);
                self.expect_counts(*member, blocks, &before, &outcome);
                outcome
            }
            Op::Remove(member, blocks) => {
                let outcome = self.pool.remove(*member, blocks);
                let mut unknown = 0;
                for block in blocks {
                    let owned = self.owned.get_mut(member);
                    unknown += u64::from(!owned.is_some_and(|owned| owned.remove(block)));
                }
                assert_eq!(outcome.unknown, unknown);
                self.expect_losses(&before, &outcome);
                outcome
            }
            Op::Clear(member) => {
                let outcome = self.pool.clear_member(*member);
                self.owned.remove(member);
                self.expect_losses(&before, &outcome);
                outcome
            }
            Op::RemoveWorker(worker) => {
                let outcome = self.pool.remove_worker(*worker);
                self.owned.retain(|member, _| member.worker != *worker);
                self.expect_losses(&before, &outcome);
                outcome
            }
            Op::Replace(member, blocks) => {
                let outcome = self.pool.replace_member(*member, blocks);
                let wished: BTreeSet<_> = blocks.iter().copied().collect();
                if let Some(owned) = self.owned.get_mut(member) {
                    owned.retain(|block| wished.contains(block));
                }
                self.expect_losses(&before, &outcome);
                let kept = self.owned.clone();
                self.expect_gains(*member, blocks, &kept);
                self.expect_counts(*member, blocks, &kept, &outcome);
                outcome
            }
            Op::Flush => self.pool.flush(),
            Op::Seal => return self.seal(),
            Op::Grow(count, seed) => return self.grow(*count, *seed),
            Op::Budget(slack) => {
                let used = self.pool.stats().bytes.total();
                self.pool.set_max_bytes(slack.map_or(u64::MAX, |slack| used + slack));
                return;
            }
        };
        assert_eq!(outcome.error.is_some(), outcome.failed > 0);
        assert!(matches!(outcome.error, None | Some(CommandError::Allocation(_))), "{outcome:?}");
        assert!(outcome.readmitted <= 5);
        self.readmitted += outcome.readmitted;
    }

    /// Enters the blocks that the pool took; those that it refused stay out.
    fn expect_gains(&mut self, member: Member, blocks: &[BlockHash], before: &Owned) {
        let gained = blocks.iter().copied().filter(|&block| self.pool.owns(member, block));
        self.owned.entry(member).or_default().extend(gained);
        for block in blocks {
            let owned_before = before.get(&member).is_some_and(|owned| owned.contains(block));
            assert!(!owned_before || self.pool.owns(member, *block));
        }
    }

    fn expect_counts(&self, member: Member, blocks: &[BlockHash], before: &Owned, got: &Outcome) {
        let all = blocks.len() as u64;
        assert_eq!(got.first_owners + got.shared + got.already_owned + got.failed, all);
        let distinct: BTreeSet<_> = blocks.iter().copied().collect();
        let owned_before = before.get(&member);
        let new = |block: &&BlockHash| !owned_before.is_some_and(|owned| owned.contains(block));
        let gained = |block: &&BlockHash| self.owned[&member].contains(block);
        let shared = |block: &&BlockHash| before.values().any(|owned| owned.contains(block));
        let gains = || distinct.iter().filter(new).filter(gained);
        assert_eq!(got.shared, gains().filter(shared).count() as u64);
        assert_eq!(got.first_owners, gains().filter(|b| !shared(b)).count() as u64);
        if got.failed == 0 {
            assert_eq!(gains().count(), distinct.iter().filter(new).count());
        }
    }

    fn expect_losses(&self, before: &Owned, got: &Outcome) {
        let edges = |owned: &Owned| owned.values().map(BTreeSet::len).sum::<usize>() as u64;
        let blocks = |owned: &Owned| owned.values().flatten().collect::<BTreeSet<_>>().len() as u64;
        let (lost, gone) =
            (edges(before) - edges(&self.owned), blocks(before) - blocks(&self.owned));
        assert_eq!((got.released, got.final_removals), (lost - gone, gone));
    }

    fn seal(&mut self) {
        let (sequence, base) = (self.pool.sequence(), self.pool.digest());
        let words: Vec<_> = self.pool.words().collect();
        if let Some(batch) = self.pool.seal().unwrap() {
            assert_eq!(Some(batch.sequence()), sequence.checked_next());
            assert_eq!(batch.base_digest(), base);
            assert_eq!(batch.changes().count(), batch.len() as usize);
            assert!(batch.changes().is_sorted_by(|a, b| a.bucket < b.bucket));
            for change in batch.changes() {
                let word = &mut self.published[change.bucket.to_usize()];
                assert_ne!(change.before, change.after);
                assert_eq!(change.before.get(), *word);
                *word = change.after.get();
            }
            assert_eq!(batch.digest(), TableDigest::of_words(&self.published));
        } else {
            assert_eq!((self.pool.sequence(), self.pool.digest()), (sequence, base));
        }
        assert_eq!(self.published, words);
        assert_eq!(self.pool.stats().dirty_buckets, 0);
        assert!(self.pool.seal().unwrap().is_none());
    }

    fn grow(&mut self, count: u64, seed: u64) {
        let (layout, sequence) = (self.pool.layout(), self.pool.sequence());
        let before: Vec<_> = self.pool.words().collect();
        match self.pool.grow(Format::any_count(count, seed).unwrap()) {
            Ok(next) => {
                assert_eq!((Some(next), next), (layout.checked_next(), self.pool.layout()));
                assert_eq!(Some(self.pool.sequence()), sequence.checked_next());
                self.published = self.pool.words().collect();
            }
            Err(_refused) => {
                assert_eq!((layout, sequence), (self.pool.layout(), self.pool.sequence()));
                assert!(self.pool.words().eq(before));
            }
        }
    }

    fn verify(&mut self) {
        self.owned.retain(|_, blocks| !blocks.is_empty());
        let stats = self.pool.stats();
        assert_eq!(stats.readmitted, self.readmitted);
        let counted = (stats.kicks, stats.refused_insertions);
        assert!(counted.0 >= self.counted.0 && counted.1 >= self.counted.1);
        self.counted = counted;
        assert_eq!(stats.members as usize, self.owned.len());
        assert_eq!(stats.edges as usize, self.owned.values().map(BTreeSet::len).sum::<usize>());
        for (&member, blocks) in &self.owned {
            assert_eq!(self.pool.owned_blocks(member), blocks.len() as u64);
            assert!(blocks.iter().all(|&block| self.pool.owns(member, block)));
        }
        let distinct = self.distinct();
        assert_eq!(stats.distinct_blocks as usize, distinct.len());
        let mut histogram = [0; 17];
        for &block in &distinct {
            assert_eq!(self.pool.owners(block), self.owners(block));
            histogram[self.owners(block).next_power_of_two().ilog2() as usize] += 1;
        }
        assert_eq!(stats.owners_histogram, histogram);

        // The filter holds nothing but owned blocks, and lacks as many as are omitted.
        let mut left = copies(self.pool.table());
        let mut absent = 0;
        for &block in &distinct {
            let count = left.entry(copy_of(&self.pool.format(), block)).or_default();
            absent += u64::from(*count == 0);
            *count = count.saturating_sub(1);
        }
        assert!(left.values().all(|&count| count == 0));
        assert_eq!(absent, stats.omitted);

        let published = self.pool.published_words(0..self.pool.format().bucket_count()).unwrap();
        let published: Vec<_> = published.collect();
        assert_eq!(self.published, published);
        assert_eq!(self.pool.digest(), TableDigest::of_words(&published));
        assert_eq!(self.pool.check(), Ok(()));
    }
}

fn copy_of(format: &Format, block: BlockHash) -> Copy {
    let address = format.address(block);
    let (first, second) = (address.first, address.second);
    (first.min(second), first.max(second), address.fingerprint.get())
}

fn copies(table: &Table<PoolBuckets>) -> BTreeMap<Copy, u32> {
    let mut copies = BTreeMap::new();
    for bucket in table.format().buckets() {
        for fingerprint in table.image(bucket).slots().flatten() {
            let other = table.format().alternate(bucket, fingerprint);
            let copy = (bucket.min(other), bucket.max(other), fingerprint.get());
            *copies.entry(copy).or_default() += 1;
        }
    }
    copies
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// Any commands, with tables too small for the blocks, memory refused at any point, growth
    /// and batches in between.
    #[test]
    fn equals_the_oracle(buckets in 2u64..30, ops in prop::collection::vec(op(), 1..60)) {
        let mut model = Model::new(buckets);
        for op in &ops {
            model.run(op);
            model.verify();
        }
        // Once memory is there again, all that was refused can be stored.
        model.run(&Op::Budget(None));
        for op in &ops {
            if let Op::Store(member, blocks) = op {
                let outcome = model.pool.store(*member, blocks);
                prop_assert_eq!(outcome.failed, 0);
                model.readmitted += outcome.readmitted;
                model.owned.entry(*member).or_default().extend(blocks);
            }
        }
        model.verify();
        // And once everything is removed, nothing is left of it.
        for worker in 0..3 {
            model.readmitted += model.pool.remove_worker(WorkerId::new(worker)).readmitted;
        }
        model.owned.clear();
        model.seal();
        model.verify();
        prop_assert!(model.pool.words().all(|word| word == 0));
        let bytes = model.pool.stats().bytes;
        prop_assert_eq!(bytes.omitted + bytes.member_sets, 0);
    }

    /// A command of one block that is refused leaves no trace at all.
    #[test]
    fn a_refused_block_leaves_no_trace(
        buckets in 2u64..12,
        ops in prop::collection::vec(op(), 0..30),
        member in member(),
        block in block(),
        slack in 0u64..400,
    ) {
        let mut model = Model::new(buckets);
        ops.iter().for_each(|op| model.run(op));
        let used = model.pool.stats().bytes.total();
        model.pool.set_max_bytes(used + slack);
        let mut tried = model.pool.clone();
        let outcome = tried.store(member, &[block]);
        if outcome.failed == 1 && outcome.readmitted == 0 {
            prop_assert!(tried.words().eq(model.pool.words()));
            let (mut before, mut after) = (model.pool.stats(), tried.stats());
            // Memory that was reserved for the block may stay reserved.
            (before.bytes, after.bytes) = Default::default();
            (before.refused_insertions, after.refused_insertions) = Default::default();
            (before.searched_buckets, after.searched_buckets) = Default::default();
            prop_assert_eq!(before, after);
            prop_assert_eq!(tried.owners(block), model.pool.owners(block));
            prop_assert!(!tried.owns(member, block));
            prop_assert_eq!(tried.check(), Ok(()));
        }
    }
}
