//! Stop 2: exact ownership. In come a member and a block that it gained or lost; out goes whether
//! it is the block's first owner, its last, or only one of several. Next stop:
//! `ckf-core/src/table.rs`.
//!
//! Every member has a set of its blocks, and the pool counts the owners of each block. All of them
//! are [`CountedSet`]s: about 12 bytes a block, no stall when they grow.

mod counted;
mod line;
mod refcounts;
mod scramble;
mod segment;

use alloc::vec::Vec;

use ckf_core::{AllocationError, BlockHash};

use crate::budget::Budget;
use crate::error::Violation;
use crate::{CommandError, Member, WorkerId};

pub(crate) use counted::{CountedSet, Cursor, Held};
pub(crate) use line::LINE_SLOTS;
pub(crate) use refcounts::{CLASSES, Refcounts};
pub use scramble::HashSeeds;
pub(crate) use scramble::{Key, Scramble};

/// The exact state of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Ownership {
    scramble: Scramble,
    /// Members that own at least one block, ascending.
    members: Vec<Owner>,
    refcounts: Refcounts,
    max_members: u32,
}

/// A member and its blocks. Their counts in the set are marks: 1, or [`KEPT`] during a replacement.
#[derive(Clone, Debug)]
struct Owner {
    member: Member,
    blocks: CountedSet,
}

/// The block is in the new state of a member that is being replaced.
const KEPT: u8 = 2;

/// Which member, as a position that is valid until a member comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerIndex(usize);

/// What a member's gain of a block is for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gain {
    AlreadyOwned,
    Shared,
    First,
}

/// What a member's loss of a block is for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Unknown,
    Released,
    Final,
}

impl Ownership {
    pub(crate) fn new(seeds: HashSeeds, max_members: u32) -> Self {
        let (scramble, refcounts) = (Scramble::new(seeds), Refcounts::new());
        Self { scramble, members: Vec::new(), refcounts, max_members }
    }

    /// Translates between block hashes and the keys of the sets.
    #[inline]
    pub(crate) fn scramble(&self) -> &Scramble {
        &self.scramble
    }

    pub(crate) fn refcounts(&self) -> &Refcounts {
        &self.refcounts
    }

    /// Members with their blocks, ascending.
    pub(crate) fn members(&self) -> impl ExactSizeIterator<Item = (Member, &CountedSet)> {
        self.members.iter().map(|owner| (owner.member, &owner.blocks))
    }

    /// Bytes of the members' sets.
    pub(crate) fn member_bytes(&self) -> u64 {
        let sets: u64 = self.members.iter().map(|owner| owner.blocks.bytes()).sum();
        sets + Budget::bytes_of(&self.members)
    }

    pub(crate) fn find(&self, member: Member) -> Option<OwnerIndex> {
        self.members.binary_search_by_key(&member, |owner| owner.member).ok().map(OwnerIndex)
    }

    pub(crate) fn owns(&self, member: Member, block: BlockHash) -> bool {
        let key = self.scramble.key(block);
        self.find(member).is_some_and(|at| self.members[at.0].blocks.find(key).is_some())
    }

    pub(crate) fn owned_blocks(&self, member: Member) -> u64 {
        self.find(member).map_or(0, |at| self.members[at.0].blocks.len())
    }

    /// The first member of a worker that owns anything.
    pub(crate) fn first_of(&self, worker: WorkerId) -> Option<Member> {
        let at = self.members.partition_point(|owner| owner.member.worker < worker);
        let member = self.members.get(at)?.member;
        (member.worker == worker).then_some(member)
    }

    /// The member's place, made if it has none. One that ends up without blocks must be
    /// [dropped](Self::drop_if_empty) again.
    pub(crate) fn enter(
        &mut self,
        member: Member,
        budget: &mut Budget,
    ) -> Result<OwnerIndex, CommandError> {
        match self.members.binary_search_by_key(&member, |owner| owner.member) {
            Ok(at) => Ok(OwnerIndex(at)),
            Err(_) if self.members.len() >= self.max_members as usize => {
                Err(CommandError::TooManyMembers { limit: self.max_members })
            }
            Err(at) => {
                budget.reserve_one(&mut self.members)?;
                let blocks = CountedSet::new();
                self.members.insert(at, Owner { member, blocks });
                Ok(OwnerIndex(at))
            }
        }
    }

    /// Forgets a member that owns nothing, and gives its memory back.
    pub(crate) fn drop_if_empty(&mut self, at: OwnerIndex, budget: &mut Budget) {
        if self.members[at.0].blocks.len() == 0 {
            self.take(at, budget).release(budget);
        }
    }

    /// Takes a member out with all its blocks; their refcounts still count it.
    pub(crate) fn take(&mut self, at: OwnerIndex, budget: &mut Budget) -> CountedSet {
        let owner = self.members.remove(at.0);
        if self.members.is_empty() {
            budget.release(core::mem::take(&mut self.members));
        }
        owner.blocks
    }

    /// Reads one word of each line that a command will need for this block.
    #[inline]
    pub(crate) fn touch(&self, at: Option<OwnerIndex>, key: Key) -> u64 {
        let own = at.map_or(0, |at| self.members[at.0].blocks.touch(key));
        own ^ self.refcounts.touch(key)
    }

    /// Makes the member an owner of the block. For a first owner, `project` enters the block into
    /// the filter once everything else is certain to succeed.
    ///
    /// # Errors
    /// [`AllocationError`]; what is owned by whom is unchanged then.
    #[inline]
    pub(crate) fn gain(
        &mut self,
        at: OwnerIndex,
        key: Key,
        budget: &mut Budget,
        project: impl FnOnce(&mut Budget) -> Result<(), AllocationError>,
    ) -> Result<Gain, AllocationError> {
        let blocks = &mut self.members[at.0].blocks;
        if blocks.find(key).is_some() {
            return Ok(Gain::AlreadyOwned);
        }
        blocks.reserve(key, budget)?;
        let gain = match self.refcounts.find(key) {
            Some(place) => {
                self.refcounts.add(key, place, budget)?;
                Gain::Shared
            }
            None => {
                self.refcounts.reserve(key, budget)?;
                project(budget)?;
                self.refcounts.insert(key);
                Gain::First
            }
        };
        blocks.insert(key, 1);
        Ok(gain)
    }

    /// Ends the member's ownership of the block.
    #[inline]
    pub(crate) fn lose(
        &mut self,
        at: OwnerIndex,
        key: Key,
        budget: &mut Budget,
    ) -> Result<Loss, Violation> {
        let blocks = &mut self.members[at.0].blocks;
        let Some(place) = blocks.find(key) else {
            return Ok(Loss::Unknown);
        };
        blocks.remove(key, place, budget);
        self.release(key, budget)
    }

    /// Counts one owner fewer of a block that is in no set of the former owner any more.
    #[inline]
    pub(crate) fn release(&mut self, key: Key, budget: &mut Budget) -> Result<Loss, Violation> {
        let Some(place) = self.refcounts.find(key) else { return Err(Violation::Edges) };
        let last = self.refcounts.release_one(key, place, budget);
        Ok(if last { Loss::Final } else { Loss::Released })
    }

    /// Marks the block as part of the member's new state, if it owns it.
    #[inline]
    pub(crate) fn keep(&mut self, at: OwnerIndex, key: Key) {
        let blocks = &mut self.members[at.0].blocks;
        if let Some(place) = blocks.find(key) {
            blocks.set_count(place, KEPT);
        }
    }

    /// Takes blocks that are not marked out of the member's set and hands them to `out`, and
    /// removes the marks of the others; returns `false` at the end. Looks at one line.
    pub(crate) fn sweep(
        &mut self,
        at: OwnerIndex,
        cursor: &mut Cursor,
        mut out: impl FnMut(BlockHash),
    ) -> bool {
        let blocks = &mut self.members[at.0].blocks;
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
                out(self.scramble.block(held.key));
            }
        }
        true
    }

    /// Gives memory back after a sweep.
    pub(crate) fn shrink(&mut self, at: OwnerIndex, budget: &mut Budget) {
        self.members[at.0].blocks.shrink(budget);
    }
}
