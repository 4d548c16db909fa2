//! Stop 2: exact ownership. In come a member and a block that it gained or lost; out goes whether
//! that is news of this member. What it means for the pool, the [projection](crate::projection)
//! knows: the filter is its index of owners. Next stop: `ckf-core/src/table.rs`.
//!
//! Every member has a [`Set`] of its blocks: about 16 bytes a block, no stall when it grows.

mod counts;
mod index;
mod line;
mod scramble;
mod segment;
mod set;
mod walk;

use alloc::vec::Vec;

use ckf_core::AllocationError;

use crate::budget::Budget;
use crate::{CommandError, Member, WorkerId};

use index::Index;

pub(crate) use counts::{CLASSES, Counts};
pub(crate) use line::{LINE_SLOTS, MarkLine};
pub use scramble::HashSeeds;
pub(crate) use scramble::{Key, Scramble};
pub(crate) use set::{Home, Set};
pub(crate) use walk::{Cursor, Held};

/// Who owns what: the exact state of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Ownership {
    scramble: Scramble,
    /// Members that own at least one block, with their places.
    index: Index,
    /// By place.
    owners: Vec<Owner>,
    /// The place given up last.
    vacant: Option<OwnerId>,
    max_members: u32,
}

/// One member's blocks. Their counts in the set are marks: 1, or [`KEPT`] during a replacement.
#[derive(Clone, Debug)]
struct Owner {
    blocks: Set<MarkLine>,
    /// The place given up before this one, once this one is given up.
    vacant: Option<OwnerId>,
}

/// The block is in the new state of a member that is being replaced.
const KEPT: u16 = 2;

/// Which member: a small number that stays the same as long as the member owns anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerId(u16);

impl OwnerId {
    /// The number, below [`PoolConfig::MAX_MEMBERS`](crate::PoolConfig::MAX_MEMBERS).
    #[inline]
    pub(crate) fn get(self) -> u16 {
        self.0
    }

    /// The id with this number.
    #[inline]
    pub(crate) fn new(number: u16) -> Self {
        Self(number)
    }
}

impl Ownership {
    pub(crate) fn new(seeds: HashSeeds, max_members: u32) -> Self {
        let (index, owners) = (Index::new(), Vec::new());
        Self { scramble: Scramble::new(seeds), index, owners, vacant: None, max_members }
    }

    /// Translates between block hashes and the keys of the sets.
    #[inline]
    pub(crate) fn scramble(&self) -> &Scramble {
        &self.scramble
    }

    /// Members with their blocks, ascending.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Member, OwnerId, &Set<MarkLine>)> {
        self.index.iter().map(|(member, at)| (member, at, self.blocks(at)))
    }

    /// How many members there are.
    pub(crate) fn member_count(&self) -> usize {
        self.index.len()
    }

    /// Bytes of the members' sets.
    pub(crate) fn bytes(&self) -> u64 {
        let sets: u64 = self.owners.iter().map(|owner| owner.blocks.bytes()).sum();
        sets + Budget::bytes_of(&self.owners) + self.index.bytes()
    }

    #[inline]
    pub(crate) fn find(&self, member: Member) -> Option<OwnerId> {
        self.index.find(member)
    }

    #[inline]
    fn blocks(&self, at: OwnerId) -> &Set<MarkLine> {
        &self.owners[usize::from(at.0)].blocks
    }

    #[inline]
    fn blocks_mut(&mut self, at: OwnerId) -> &mut Set<MarkLine> {
        &mut self.owners[usize::from(at.0)].blocks
    }

    /// Whether the member of this place, which may be vacant, owns the block.
    #[inline]
    pub(crate) fn owns(&self, at: OwnerId, key: Key) -> bool {
        let owner = self.owners.get(usize::from(at.0));
        owner.is_some_and(|owner| owner.blocks.find(key).is_some())
    }

    pub(crate) fn owned_blocks(&self, member: Member) -> u64 {
        self.find(member).map_or(0, |at| self.blocks(at).len())
    }

    /// The last member of a worker that owns anything: the one that leaves the index most easily.
    pub(crate) fn last_of(&self, worker: WorkerId) -> Option<Member> {
        self.index.last_of(worker)
    }

    /// The member's place, made if it has none. One that ends up without blocks must
    /// [leave](Self::leave_if_empty) again.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        member: Member,
        budget: &mut Budget,
    ) -> Result<OwnerId, CommandError> {
        match self.find(member) {
            Some(at) => Ok(at),
            None => self.admit(member, budget),
        }
    }

    #[cold]
    fn admit(&mut self, member: Member, budget: &mut Budget) -> Result<OwnerId, CommandError> {
        if self.index.len() >= self.max_members as usize {
            return Err(CommandError::TooManyMembers { limit: self.max_members });
        }
        let admitted = self.take_place(member, budget);
        if admitted.is_err() {
            self.release_if_nobody_is_left(budget);
        }
        Ok(admitted?)
    }

    /// Gives the member a vacant place, or else a new one.
    fn take_place(
        &mut self,
        member: Member,
        budget: &mut Budget,
    ) -> Result<OwnerId, AllocationError> {
        if let Some(at) = self.vacant {
            self.index.insert(member, at, budget)?;
            self.vacant = self.owners[usize::from(at.0)].vacant;
            return Ok(at);
        }
        budget.reserve_one(&mut self.owners)?;
        // No more places than members at one time, and those have 16 bits to spare.
        let at = OwnerId(self.owners.len() as u16);
        self.index.insert(member, at, budget)?;
        self.owners.push(Owner { blocks: Set::new(), vacant: None });
        Ok(at)
    }

    /// Forgets a member that owns nothing, and gives its memory back.
    #[inline]
    pub(crate) fn leave_if_empty(&mut self, member: Member, at: OwnerId, budget: &mut Budget) {
        if self.blocks(at).len() == 0 {
            self.leave(member, at, budget);
        }
    }

    #[cold]
    fn leave(&mut self, member: Member, at: OwnerId, budget: &mut Budget) {
        self.take_blocks(at).release(budget);
        self.index.remove(member, budget);
        self.owners[usize::from(at.0)].vacant = self.vacant.replace(at);
        self.release_if_nobody_is_left(budget);
    }

    fn release_if_nobody_is_left(&mut self, budget: &mut Budget) {
        if self.index.len() == 0 {
            core::mem::replace(&mut self.index, Index::new()).release(budget);
            budget.release(core::mem::take(&mut self.owners));
            self.vacant = None;
        }
    }

    /// Takes all blocks out of the member's set. It keeps its place until it
    /// [leaves](Self::leave_if_empty).
    pub(crate) fn take_blocks(&mut self, at: OwnerId) -> Set<MarkLine> {
        core::mem::replace(self.blocks_mut(at), Set::new())
    }

    /// Reads one word of the line that a command will need for this block.
    #[inline]
    pub(crate) fn touch(&self, at: OwnerId, key: Key) -> u64 {
        self.blocks(at).touch(key)
    }

    /// Finds the block's home in the member's set and brings it near; `None` if that must grow for
    /// the block.
    #[inline]
    pub(crate) fn room(&self, at: OwnerId, key: Key) -> Option<Home> {
        self.blocks(at).room(key)
    }

    /// Finds the homes of a few blocks in the member's set and brings them near; returns for how many
    /// of them, from the first on, it need not grow.
    #[inline]
    pub(crate) fn rooms(
        &self,
        at: OwnerId,
        keys: impl ExactSizeIterator<Item = Key>,
        homes: &mut [Home],
    ) -> usize {
        self.blocks(at).rooms(keys, homes)
    }

    /// Puts blocks that are known not to be in the member's set into it, each at its home.
    #[inline(always)]
    pub(crate) fn gain_new(
        &mut self,
        at: OwnerId,
        new: impl ExactSizeIterator<Item = (Home, Key)>,
    ) {
        self.blocks_mut(at).add_new(new, 1);
    }

    /// Puts the block into the member's set; returns whether it was not in it.
    ///
    /// # Errors
    /// [`AllocationError`]; the set is unchanged then.
    #[inline]
    pub(crate) fn gain(
        &mut self,
        at: OwnerId,
        key: Key,
        budget: &mut Budget,
    ) -> Result<bool, AllocationError> {
        self.blocks_mut(at).add(key, 1, budget)
    }

    /// Takes the block out of the member's set; returns whether it was in it.
    #[inline]
    pub(crate) fn lose(&mut self, at: OwnerId, key: Key, budget: &mut Budget) -> bool {
        self.blocks_mut(at).take(key, budget)
    }

    /// Takes a block that it just gained out of the member's set. Nothing else moves.
    #[cold]
    pub(crate) fn give_back(&mut self, at: OwnerId, key: Key) {
        let blocks = self.blocks_mut(at);
        if let Some(place) = blocks.find(key) {
            blocks.remove_in_walk(key, place);
        }
    }

    /// Marks the block as part of the member's new state, if it owns it.
    #[inline]
    pub(crate) fn keep(&mut self, at: OwnerId, key: Key) {
        let blocks = self.blocks_mut(at);
        if let Some(place) = blocks.find(key) {
            blocks.set_count(place, KEPT);
        }
    }

    /// Takes blocks that are not marked out of the member's set and hands them to `out`, and
    /// removes the marks of the others; returns `false` at the end. Looks at one line.
    pub(crate) fn sweep(
        &mut self,
        at: OwnerId,
        cursor: &mut Cursor,
        mut out: impl FnMut(Key),
    ) -> bool {
        let blocks = self.blocks_mut(at);
        let Some(line) = blocks.next_line(cursor) else { return false };
        let mut found = [None; LINE_SLOTS];
        for (slot, held) in found.iter_mut().zip(line) {
            *slot = Some(held);
        }
        for held in found.into_iter().flatten() {
            if held.count == KEPT {
                blocks.set_count(held.place, 1);
            } else {
                blocks.remove_in_walk(held.key, held.place);
                out(held.key);
            }
        }
        true
    }

    /// Gives memory back after a sweep.
    pub(crate) fn shrink(&mut self, at: OwnerId, budget: &mut Budget) {
        self.blocks_mut(at).shrink(budget);
    }

    /// Whether every member has a place of its own, and the places left are the vacant ones.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut vacant = 0;
        let mut next = self.vacant;
        while let Some(at) = next {
            vacant += 1;
            if vacant > self.owners.len() {
                return false;
            }
            let Some(owner) = self.owners.get(usize::from(at.0)) else { return false };
            if owner.blocks.len() != 0 {
                return false;
            }
            next = owner.vacant;
        }
        // Members own blocks, so none of them sits on a vacant place.
        self.index.is_consistent()
            && self.members().all(|(_, _, blocks)| blocks.len() != 0)
            && self.index.len() + vacant == self.owners.len()
    }
}
