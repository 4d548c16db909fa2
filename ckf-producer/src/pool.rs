//! The pool: exact ownership of one data center's blocks and its projection into the filter.

use core::hint::black_box;

use ckf_core::{Address, AllocationError, BlockHash, Format, Table};
use ckf_protocol::LayoutGeneration;

use crate::batch::{BatchCounters, Position};
use crate::budget::Budget;
use crate::error::Violation;
use crate::event::{Occupancy, PoolEvent};
use crate::ownership::{Cursor, Gain, Key, Loss, OwnerIndex, Ownership};
use crate::projection::{Placed, Projection};
use crate::{Member, Outcome, PoolConfig, WorkerId};

/// Blocks prepared at a time. Their lines of memory are asked for together, so that the waits for
/// them overlap, before the first of them is applied.
const GROUP: usize = 16;

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
#[derive(Clone, Debug)]
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

/// What a command does with each of its blocks.
#[derive(Clone, Copy)]
enum Step {
    /// The member gains the block.
    Gain(OwnerIndex),
    /// The member loses the block.
    Lose(OwnerIndex),
    /// A member that has the block in no set any more is counted off.
    Release,
    /// The block stays in a replacement.
    Keep(OwnerIndex),
}

impl Step {
    fn owner(self) -> Option<OwnerIndex> {
        match self {
            Self::Gain(at) | Self::Lose(at) | Self::Keep(at) => Some(at),
            Self::Release => None,
        }
    }
}

/// A block with all that is computed from its hash.
#[derive(Clone, Copy)]
struct Prepared {
    key: Key,
    address: Address,
}

impl Pool {
    /// An empty pool: the start of a new incarnation. Takes the filter's memory twice over (the
    /// filter and its published image); all else grows with what is owned.
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
    pub fn table(&self) -> &Table {
        &self.projection.table
    }

    /// How many members own the block, exactly.
    pub fn owners(&self, block: BlockHash) -> u32 {
        self.ownership.refcounts().owners(self.ownership.scramble().key(block))
    }

    /// Whether the member owns the block, exactly.
    pub fn owns(&self, member: Member, block: BlockHash) -> bool {
        self.ownership.owns(member, block)
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
        if let Err(violation) = self.fence_state() {
            return Outcome::refused(blocks.len(), violation);
        }
        let mut outcome = Outcome::default();
        if !blocks.is_empty() {
            match self.ownership.enter(member, &mut self.budget) {
                Ok(at) => {
                    self.step_all(Step::Gain(at), blocks, &mut outcome);
                    self.ownership.drop_if_empty(at, &mut self.budget);
                }
                Err(error) => outcome = Outcome::refused(blocks.len(), error),
            }
        }
        self.finish(outcome)
    }

    /// The member no longer owns these blocks. Blocks that it does not own are counted as unknown
    /// and change nothing. Needs no memory. Cost: a few memory accesses a block.
    pub fn remove(&mut self, member: Member, blocks: &[BlockHash]) -> Outcome {
        if let Err(violation) = self.fence_state() {
            return Outcome::refused(blocks.len(), violation);
        }
        let mut outcome = Outcome::default();
        match self.ownership.find(member) {
            Some(at) => {
                self.step_all(Step::Lose(at), blocks, &mut outcome);
                self.ownership.drop_if_empty(at, &mut self.budget);
            }
            None => outcome.unknown = blocks.len() as u64,
        }
        self.finish(outcome)
    }

    /// The member owns nothing any more. Needs no memory. Cost: by the member's own blocks,
    /// whatever the pool holds.
    pub fn clear_member(&mut self, member: Member) -> Outcome {
        if let Err(violation) = self.fence_state() {
            return Outcome::refused(0, violation);
        }
        let mut outcome = Outcome::default();
        self.clear(member, &mut outcome);
        self.finish(outcome)
    }

    /// All ranks of the worker own nothing any more. Needs no memory. Cost: by their own blocks.
    pub fn remove_worker(&mut self, worker: WorkerId) -> Outcome {
        if let Err(violation) = self.fence_state() {
            return Outcome::refused(0, violation);
        }
        let mut outcome = Outcome::default();
        while let Some(member) = self.ownership.first_of(worker) {
            self.clear(member, &mut outcome);
        }
        self.finish(outcome)
    }

    /// The member owns exactly these blocks.
    ///
    /// By difference: first the blocks that are not among them are lost, then the missing ones are
    /// gained. A block in both states is not touched in the filter, so it is absent from no batch.
    /// Where memory is refused for a new block, that block is not owned; all others are as wished.
    /// Needs no memory beyond that of the larger of the two states. Cost: by the blocks of both.
    pub fn replace_member(&mut self, member: Member, blocks: &[BlockHash]) -> Outcome {
        if let Err(violation) = self.fence_state() {
            return Outcome::refused(blocks.len(), violation);
        }
        let mut outcome = Outcome::default();
        if let Some(at) = self.ownership.find(member) {
            self.keep_only(at, blocks, &mut outcome);
            self.ownership.drop_if_empty(at, &mut self.budget);
        }
        if !blocks.is_empty() {
            match self.ownership.enter(member, &mut self.budget) {
                Ok(at) => {
                    self.step_all(Step::Gain(at), blocks, &mut outcome);
                    self.ownership.drop_if_empty(at, &mut self.budget);
                }
                Err(error) => {
                    outcome.failed = blocks.len() as u64;
                    outcome.error.get_or_insert(error);
                }
            }
        }
        self.finish(outcome)
    }

    /// A command without blocks: only the share of re-admission that every command does.
    pub fn flush(&mut self) -> Outcome {
        match self.fence_state() {
            Ok(()) => self.finish(Outcome::default()),
            Err(violation) => Outcome::refused(0, violation),
        }
    }

    /// The next event, oldest first. At most one of each kind waits.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<PoolEvent> {
        if let (Some(violation), false) = (self.violation, self.fence_told) {
            self.fence_told = true;
            return Some(PoolEvent::Fenced { violation });
        }
        self.occupancy.poll(&self.projection.table, self.ownership.refcounts().len())
    }

    pub(crate) fn fence_state(&self) -> Result<(), Violation> {
        self.violation.map_or(Ok(()), Err)
    }

    /// Ends all commands and batches of this pool; the first reason stays.
    pub(crate) fn fence(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// What every command ends with.
    fn finish(&mut self, mut outcome: Outcome) -> Outcome {
        match self.violation {
            Some(violation) => outcome.error = outcome.error.or(Some(violation.into())),
            None => {
                let limit = self.config.readmissions();
                outcome.readmitted = self.projection.readmit(limit, &mut self.budget);
                self.occupancy.note(self.projection.table.stored());
            }
        }
        outcome
    }

    /// Takes one step with each block, in order, a group at a time.
    fn step_all(&mut self, step: Step, blocks: &[BlockHash], outcome: &mut Outcome) {
        let (groups, rest) = blocks.as_chunks::<GROUP>();
        groups.iter().for_each(|group| self.step_group(step, group, outcome));
        let (groups, rest) = rest.as_chunks::<{ GROUP / 4 }>();
        groups.iter().for_each(|group| self.step_group(step, group, outcome));
        rest.iter().for_each(|&block| self.step_group(step, &[block], outcome));
    }

    #[inline]
    fn step_group<const N: usize>(
        &mut self,
        step: Step,
        blocks: &[BlockHash; N],
        outcome: &mut Outcome,
    ) {
        for block in self.prepare(step.owner(), blocks) {
            match step {
                Step::Gain(at) => self.gain(at, block, outcome),
                Step::Lose(at) => {
                    let loss = self.ownership.lose(at, block.key, &mut self.budget);
                    self.lost(loss, block, outcome);
                }
                Step::Release => {
                    let loss = self.ownership.release(block.key, &mut self.budget);
                    self.lost(loss, block, outcome);
                }
                Step::Keep(at) => self.ownership.keep(at, block.key),
            }
        }
    }

    #[inline]
    fn gain(&mut self, at: OwnerIndex, block: Prepared, outcome: &mut Outcome) {
        let Self { ownership, projection, budget, .. } = self;
        let mut omitted = 0;
        let gain = ownership.gain(at, block.key, budget, |budget| {
            let placed = projection.insert(block.key, &block.address, budget)?;
            omitted = u64::from(placed == Placed::Omitted);
            Ok(())
        });
        outcome.omitted += omitted;
        match gain {
            Ok(Gain::First) => outcome.first_owners += 1,
            Ok(Gain::Shared) => outcome.shared += 1,
            Ok(Gain::AlreadyOwned) => outcome.already_owned += 1,
            Err(refused) => outcome.fail(refused),
        }
    }

    #[inline]
    fn lost(&mut self, loss: Result<Loss, Violation>, block: Prepared, outcome: &mut Outcome) {
        match loss {
            Ok(Loss::Unknown) => outcome.unknown += 1,
            Ok(Loss::Released) => outcome.released += 1,
            Ok(Loss::Final) => {
                outcome.final_removals += 1;
                let removed = self.projection.remove(block.key, &block.address, &mut self.budget);
                if let Err(violation) = removed {
                    self.fence(violation);
                }
            }
            Err(violation) => self.fence(violation),
        }
    }

    fn clear(&mut self, member: Member, outcome: &mut Outcome) {
        let Some(at) = self.ownership.find(member) else { return };
        let owned = self.ownership.take(at, &mut self.budget);
        let (mut cursor, mut losses) = (Cursor::default(), Losses::EMPTY);
        while let Some(line) = owned.next_line(&mut cursor) {
            line.for_each(|held| losses.push(self.ownership.scramble().block(held.key)));
            if losses.is_nearly_full() {
                self.step_all(Step::Release, losses.take(), outcome);
            }
        }
        self.step_all(Step::Release, losses.take(), outcome);
        owned.release(&mut self.budget);
    }

    fn keep_only(&mut self, at: OwnerIndex, blocks: &[BlockHash], outcome: &mut Outcome) {
        self.step_all(Step::Keep(at), blocks, outcome);
        let (mut cursor, mut losses) = (Cursor::default(), Losses::EMPTY);
        while self.ownership.sweep(at, &mut cursor, |block| losses.push(block)) {
            if losses.is_nearly_full() {
                self.step_all(Step::Release, losses.take(), outcome);
            }
        }
        self.step_all(Step::Release, losses.take(), outcome);
        self.ownership.shrink(at, &mut self.budget);
    }

    /// Computes what is needed of each block and reads one word of each line of memory that it
    /// will need. These reads do not depend on each other, so the processor waits for all of them
    /// at once; when the blocks are applied one by one, their lines are near.
    #[inline]
    fn prepare<const N: usize>(
        &self,
        at: Option<OwnerIndex>,
        blocks: &[BlockHash; N],
    ) -> [Prepared; N] {
        let mut prepared = [self.compute(blocks[0]); N];
        for (prepared, &block) in prepared.iter_mut().zip(blocks).skip(1) {
            *prepared = self.compute(block);
        }
        // A loop of its own: the fewer instructions between the reads, the more are under way.
        black_box(prepared.iter().fold(0, |near, block| near ^ self.touch(at, block)));
        prepared
    }

    #[inline]
    fn compute(&self, block: BlockHash) -> Prepared {
        let key = self.ownership.scramble().key(block);
        Prepared { key, address: self.projection.table.format().address(block) }
    }

    #[inline]
    fn touch(&self, at: Option<OwnerIndex>, block: &Prepared) -> u64 {
        let table = &self.projection.table;
        self.ownership.touch(at, block.key)
            ^ table.image(block.address.first).get()
            ^ table.image(block.address.second).get()
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
