//! The pool: exact ownership of one data center's blocks and its projection into the filter.

use core::fmt;
use core::hint::black_box;

use ckf_core::{Address, Addresser, Addressing, AllocationError, BlockHash, Format, Table};
use ckf_protocol::LayoutGeneration;

use crate::batch::{BatchCounters, Position};
use crate::buckets::PoolBuckets;
use crate::budget::Budget;
use crate::error::Violation;
use crate::event::{Occupancy, PoolEvent};
use crate::ownership::{Cursor, Key, OwnerId, Ownership};
use crate::projection::{Loss, Projection};
use crate::{Member, Outcome, PoolConfig, WorkerId};

/// Blocks prepared at a time. Their lines of memory are asked for together, so that the waits for
/// them overlap, before the first of them is applied.
pub(crate) const GROUP: usize = 32;

/// Exact ownership of one pool's blocks, its filter, and what has changed since the last batch.
///
/// One owner, one thread, no clock. Commands go in by [`store`](Self::store),
/// [`remove`](Self::remove), [`clear_member`](Self::clear_member),
/// [`remove_worker`](Self::remove_worker), [`replace_member`](Self::replace_member) and
/// [`flush`](Self::flush); batches come out by [`seal`](Self::seal), events by
/// [`poll_event`](Self::poll_event). Any order of calls is safe.
///
/// What holds after every command, also a failed one:
/// - a member owns a block or does not (set semantics); how often it said so does not matter;
/// - the filter holds exactly one copy of the fingerprint of every owned block that is not omitted;
/// - a bucket whose image differs from the published one is dirty.
///
/// A command that fails for a block (memory refused) changes nothing for that block. The others
/// are applied, those after it too, and the first error is reported.
pub struct Pool {
    pub(crate) config: PoolConfig,
    pub(crate) budget: Budget,
    pub(crate) ownership: Ownership,
    pub(crate) projection: Projection,
    pub(crate) position: Position,
    pub(crate) layout: LayoutGeneration,
    pub(crate) batches: BatchCounters,
    pub(crate) occupancy: Occupancy,
    pub(crate) violation: Option<Violation>,
    pub(crate) fence_told: bool,
}

impl Clone for Pool {
    /// A copy of vectors has no spare room but that for dirty buckets, so its budget counts what the
    /// copy takes.
    fn clone(&self) -> Self {
        let mut pool = Self {
            config: self.config,
            budget: self.budget.clone(),
            ownership: self.ownership.clone(),
            projection: self.projection.clone(),
            position: self.position,
            layout: self.layout,
            batches: self.batches,
            occupancy: self.occupancy,
            violation: self.violation,
            fence_told: self.fence_told,
        };
        pool.budget = pool.budget.with_used(pool.bytes().total());
        pool
    }
}

/// Counters, not every block and its owners: whatever has a pool shall be fit for a log.
impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("format", &self.format())
            .field("layout", &self.layout)
            .field("position", &self.position)
            .field("stats", &self.stats())
            .field("violation", &self.violation)
            .finish_non_exhaustive()
    }
}

/// A block with all that is computed from its hash.
#[derive(Clone, Copy)]
pub(crate) struct Prepared {
    pub(crate) key: Key,
    pub(crate) address: Address,
}

impl Pool {
    /// An empty pool: the start of a new incarnation. Takes the filter's memory four and a half
    /// times over (the filter, its published image, owner tags, and as much to keep these on one
    /// cache line; a list of dirty buckets); all else grows with what is owned.
    ///
    /// # Errors
    /// [`AllocationError`] when that memory is refused.
    pub fn new(config: PoolConfig) -> Result<Self, AllocationError> {
        let mut budget = Budget::new(config.max_bytes());
        let ownership = Ownership::new(config.seeds(), config.max_members());
        let scramble = *ownership.scramble();
        let projection = Projection::new(config.format(), scramble, &mut budget)?;
        Ok(Self {
            config,
            budget,
            ownership,
            projection,
            position: Position::START,
            layout: LayoutGeneration::FIRST,
            batches: BatchCounters::default(),
            occupancy: Occupancy::new(config.format(), config.occupancy_level()),
            violation: None,
            fence_told: false,
        })
    }

    /// Shape and seed of the filter.
    pub fn format(&self) -> Format {
        *self.projection.table.format()
    }

    /// Which layout generation the filter is in.
    pub fn layout(&self) -> LayoutGeneration {
        self.layout
    }

    /// The filter as it is now, pending changes included.
    pub fn table(&self) -> &Table<PoolBuckets> {
        &self.projection.table
    }

    /// Its bucket words, bucket 0 first.
    pub fn words(&self) -> impl ExactSizeIterator<Item = u64> + Clone + use<'_> {
        self.projection.table.buckets().words()
    }

    /// How many members own the block, exactly.
    pub fn owners(&self, block: BlockHash) -> u32 {
        let block = self.compute(block);
        let owns = |at| self.ownership.owns(at, block.key);
        match self.projection.counted(block.key) {
            Some(owners) => u32::from(owners),
            None => u32::from(self.projection.suspects(&block.address).any(owns)),
        }
    }

    /// Whether the member owns the block, exactly.
    pub fn owns(&self, member: Member, block: BlockHash) -> bool {
        let key = self.ownership.scramble().key(block);
        self.ownership.find(member).is_some_and(|at| self.ownership.owns(at, key))
    }

    /// How many blocks the member owns.
    pub fn owned_blocks(&self, member: Member) -> u64 {
        self.ownership.owned_blocks(member)
    }

    /// Changes the limit of memory. A limit below what is in use takes nothing away; it refuses
    /// all growth.
    pub fn set_max_bytes(&mut self, max_bytes: u64) {
        self.budget.set_limit(max_bytes);
    }

    /// The member owns these blocks, besides those that it owned before.
    ///
    /// Cost: a few memory accesses a block; now and then some thousand hashes move to a grown
    /// segment. A block that finds no room in the filter is owned all the same and omitted.
    pub fn store(&mut self, member: Member, blocks: &[BlockHash]) -> Outcome {
        match *blocks {
            [block] if self.store_new(member, block) => {
                Outcome { first_owners: 1, ..Outcome::default() }
            }
            _ => self.command(blocks.len(), |pool, outcome| pool.gain_all(member, blocks, outcome)),
        }
    }

    /// The member no longer owns these blocks. Blocks that it does not own are counted as unknown
    /// and change nothing. Needs no memory. Cost: a few memory accesses a block.
    pub fn remove(&mut self, member: Member, blocks: &[BlockHash]) -> Outcome {
        self.command(blocks.len(), |pool, outcome| match pool.ownership.find(member) {
            Some(at) => {
                pool.lose_all(at, blocks, outcome);
                pool.ownership.leave_if_empty(member, at, &mut pool.budget);
            }
            None => outcome.unknown = blocks.len() as u64,
        })
    }

    /// The member owns nothing any more. Needs no memory. Cost: by the member's own blocks,
    /// whatever the pool holds.
    pub fn clear_member(&mut self, member: Member) -> Outcome {
        self.command(0, |pool, outcome| pool.clear(member, outcome))
    }

    /// All ranks of the worker own nothing any more. Needs no memory. Cost: by their own blocks.
    pub fn remove_worker(&mut self, worker: WorkerId) -> Outcome {
        self.command(0, |pool, outcome| {
            while let Some(member) = pool.ownership.last_of(worker) {
                pool.clear(member, outcome);
            }
        })
    }

    /// The member owns exactly these blocks.
    ///
    /// By difference: first the blocks that are not among them are lost, then the missing ones are
    /// gained. A block in both states is not touched in the filter, so it is absent from no batch.
    /// Where memory is refused for a new block, that block is not owned; all others are as wished.
    /// Needs no memory beyond that of the larger of the two states. Cost: by the blocks of both.
    pub fn replace_member(&mut self, member: Member, blocks: &[BlockHash]) -> Outcome {
        self.command(blocks.len(), |pool, outcome| {
            if let Some(at) = pool.ownership.find(member) {
                pool.keep_only(at, blocks, outcome);
                pool.ownership.leave_if_empty(member, at, &mut pool.budget);
            }
            pool.gain_all(member, blocks, outcome);
        })
    }

    /// A command without blocks: only the share of re-admission that every command does.
    pub fn flush(&mut self) -> Outcome {
        self.command(0, |_, _| ())
    }

    /// The next event, oldest first. At most one of each kind waits.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<PoolEvent> {
        if let (Some(violation), false) = (self.violation, self.fence_told) {
            self.fence_told = true;
            return Some(PoolEvent::Fenced { violation });
        }
        self.occupancy.poll(&self.projection.table, self.projection.distinct())
    }

    pub(crate) fn fence_state(&self) -> Result<(), Violation> {
        self.violation.map_or(Ok(()), Err)
    }

    /// Ends all commands and batches of this pool; the first reason stays.
    pub(crate) fn fence(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// Runs a command about so many blocks, and does what every command ends with.
    #[inline]
    fn command(&mut self, blocks: usize, run: impl FnOnce(&mut Self, &mut Outcome)) -> Outcome {
        let mut outcome = Outcome::default();
        match self.violation {
            None => {
                run(self, &mut outcome);
                self.finish(&mut outcome);
            }
            Some(violation) => outcome.refuse(blocks, violation),
        }
        outcome
    }

    #[inline]
    fn finish(&mut self, outcome: &mut Outcome) {
        match self.violation {
            Some(violation) => outcome.error = outcome.error.or(Some(violation.into())),
            None => {
                let limit = self.config.readmissions();
                outcome.readmitted = self.projection.readmit(limit, &mut self.budget);
                self.occupancy.note(self.projection.distinct());
            }
        }
    }

    /// The member loses these blocks, as far as it has them.
    fn lose_all(&mut self, at: OwnerId, blocks: &[BlockHash], outcome: &mut Outcome) {
        let near =
            |pool: &Self, blocks: &[Prepared]| pool.touch(at, blocks) ^ pool.touch_shared(blocks);
        self.each(blocks, near, |pool, block| {
            if pool.ownership.lose(at, block.key, &mut pool.budget) {
                pool.count_off(at, block, outcome);
            } else {
                outcome.unknown += 1;
            }
        });
    }

    /// The member, which has these blocks in its set no more, is counted off as their owner.
    fn count_off_all(&mut self, at: OwnerId, blocks: &[BlockHash], outcome: &mut Outcome) {
        let near = |pool: &Self, blocks: &[Prepared]| {
            let filter = blocks.iter().fold(0, |near, b| near ^ pool.projection.touch(&b.address));
            filter ^ pool.touch_shared(blocks)
        };
        self.each(blocks, near, |pool, block| pool.count_off(at, block, outcome));
    }

    #[inline]
    fn count_off(&mut self, at: OwnerId, block: &Prepared, outcome: &mut Outcome) {
        match self.projection.lose(at, block.key, &block.address, &mut self.budget) {
            Ok(Loss::Released) => outcome.released += 1,
            Ok(Loss::Final) => outcome.final_removals += 1,
            Err(violation) => self.fence(violation),
        }
    }

    fn clear(&mut self, member: Member, outcome: &mut Outcome) {
        let Some(at) = self.ownership.find(member) else { return };
        let owned = self.ownership.take_blocks(at);
        let (mut cursor, mut losses) = (Cursor::default(), Losses::EMPTY);
        while let Some(line) = owned.next_line(&mut cursor) {
            line.for_each(|held| losses.push(self.ownership.scramble().block(held.key)));
            if losses.is_nearly_full() {
                self.count_off_all(at, losses.take(), outcome);
            }
        }
        self.count_off_all(at, losses.take(), outcome);
        owned.release(&mut self.budget);
        self.ownership.leave_if_empty(member, at, &mut self.budget);
    }

    fn keep_only(&mut self, at: OwnerId, blocks: &[BlockHash], outcome: &mut Outcome) {
        let near = |pool: &Self, blocks: &[Prepared]| {
            blocks.iter().fold(0, |near, block| near ^ pool.ownership.touch(at, block.key))
        };
        self.each(blocks, near, |pool, block| pool.ownership.keep(at, block.key));
        let (scramble, mut cursor) = (*self.ownership.scramble(), Cursor::default());
        let mut losses = Losses::EMPTY;
        while self.ownership.sweep(at, &mut cursor, |key| losses.push(scramble.block(key))) {
            if losses.is_nearly_full() {
                self.count_off_all(at, losses.take(), outcome);
            }
        }
        self.count_off_all(at, losses.take(), outcome);
        self.ownership.shrink(at, &mut self.budget);
    }

    /// Does something with each block, in order, a group at a time.
    ///
    /// Makes the memory of a group `near`: reads one word of each line that its blocks will need.
    /// These reads do not depend on each other, so the processor waits for all of them at once.
    #[inline]
    fn each(
        &mut self,
        blocks: &[BlockHash],
        near: impl Fn(&Self, &[Prepared]) -> u64,
        mut act: impl FnMut(&mut Self, &Prepared),
    ) {
        self.groups(blocks, |pool, group| {
            black_box(near(pool, group));
            group.iter().for_each(|block| act(pool, block));
        });
    }

    /// Does something with groups of blocks, in order. Computes what is needed of each block.
    #[inline]
    pub(crate) fn groups(
        &mut self,
        blocks: &[BlockHash],
        mut act: impl FnMut(&mut Self, &[Prepared]),
    ) {
        let Some(&first) = blocks.first() else { return };
        let mut prepared = [self.compute(first); GROUP];
        for group in blocks.chunks(GROUP) {
            let prepared = &mut prepared[..group.len()];
            match self.projection.table.format().addressing() {
                Addressing::AnyCount(addresser) => self.prepare(addresser, group, prepared),
                Addressing::PowerOfTwo(addresser) => self.prepare(addresser, group, prepared),
            }
            act(self, prepared);
        }
    }

    #[inline]
    fn prepare(&self, addresser: impl Addresser, group: &[BlockHash], prepared: &mut [Prepared]) {
        let scramble = *self.ownership.scramble();
        for (prepared, &block) in prepared.iter_mut().zip(group) {
            *prepared = Prepared { key: scramble.key(block), address: addresser.address(block) };
        }
    }

    /// Reads what all commands need: the member's set and the filter.
    #[inline]
    fn touch(&self, at: OwnerId, blocks: &[Prepared]) -> u64 {
        // A loop of its own: the fewer instructions between the reads, the more are under way.
        blocks.iter().fold(0, |near, block| {
            near ^ self.ownership.touch(at, block.key) ^ self.projection.touch(&block.address)
        })
    }

    /// Reads what it takes besides to count an owner on or off.
    #[inline]
    pub(crate) fn touch_shared(&self, blocks: &[Prepared]) -> u64 {
        blocks.iter().fold(0, |near, block| near ^ self.projection.touch_shared(block.key))
    }

    #[inline]
    pub(crate) fn compute(&self, block: BlockHash) -> Prepared {
        let key = self.ownership.scramble().key(block);
        Prepared { key, address: self.projection.table.format().address(block) }
    }
}

/// Blocks that a member has lost and that are still counted as its own.
struct Losses {
    blocks: [BlockHash; Self::CAPACITY],
    len: usize,
}

impl Losses {
    const CAPACITY: usize = 128;
    const EMPTY: Self = Self { blocks: [BlockHash::new(0); Self::CAPACITY], len: 0 };

    fn push(&mut self, block: BlockHash) {
        self.blocks[self.len] = block;
        self.len += 1;
    }

    /// Whether another line might not fit.
    fn is_nearly_full(&self) -> bool {
        self.len + crate::ownership::LINE_SLOTS > Self::CAPACITY
    }

    fn take(&mut self) -> &[BlockHash] {
        &self.blocks[..core::mem::take(&mut self.len)]
    }
}
