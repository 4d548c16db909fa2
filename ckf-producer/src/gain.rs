//! How a member gains blocks: in groups, of which nearly all are new.

use core::hint::black_box;
use core::iter;

use ckf_core::BlockHash;

use crate::ownership::{Home, OwnerId, Ownership};
use crate::pool::{GROUP, Prepared};
use crate::projection::{Gain, Projection};
use crate::{Member, Outcome, Pool};

impl Pool {
    /// The member gains these blocks.
    pub(crate) fn gain_all(&mut self, member: Member, blocks: &[BlockHash], outcome: &mut Outcome) {
        if blocks.is_empty() {
            return;
        }
        let at = match self.ownership.enter(member, &mut self.budget) {
            Ok(at) => at,
            Err(error) => return outcome.refuse(blocks.len(), error),
        };
        self.groups(blocks, |pool, group| pool.gain_group(at, group, outcome));
        self.ownership.leave_if_empty(member, at, &mut self.budget);
    }

    /// The member gains the blocks of one group.
    ///
    /// Nearly always its set has room for all of them. Where it has not, blocks go one by one until it
    /// has grown, as far as it must: blocks that it holds already, or that spread over small segments,
    /// need no room.
    #[inline(always)]
    fn gain_group(&mut self, at: OwnerId, group: &[Prepared], outcome: &mut Outcome) {
        let mut homes = [Home::default(); GROUP];
        black_box(group.iter().fold(0, |near, b| near ^ self.projection.touch(&b.address)));
        let mut rest = group;
        while !rest.is_empty() {
            let room = self.ownership.rooms(at, rest.iter().map(|block| block.key), &mut homes);
            let (roomy, tight) = rest.split_at(room);
            self.gain_with_room(at, roomy, &homes, outcome);
            rest = tight;
            let used = self.budget.used();
            while let Some((block, others)) = rest.split_first() {
                self.gain_known(at, block, outcome);
                rest = others;
                if self.budget.used() != used {
                    break;
                }
            }
        }
    }

    /// The member gains blocks for which its set has room, at these homes.
    ///
    /// Most of them are new. New ones in a row go into the filter together, then into the set: two
    /// short loops, each with little to keep in mind.
    #[inline(always)]
    fn gain_with_room(
        &mut self,
        at: OwnerId,
        blocks: &[Prepared],
        homes: &[Home],
        outcome: &mut Outcome,
    ) {
        let (mut rest, mut expect_new) = (blocks, true);
        while !rest.is_empty() {
            if expect_new {
                let homes = &homes[blocks.len() - rest.len()..];
                let new = enter_filter(&mut self.projection, at, rest);
                enter_set(&mut self.ownership, at, &rest[..new], homes);
                outcome.first_owners += new as u64;
                rest = &rest[new..];
            }
            if let Some((block, others)) = rest.split_first() {
                let Outcome { first_owners, shared, .. } = *outcome;
                self.gain_known(at, block, outcome);
                // Blocks that others own come in a row, too.
                if expect_new && outcome.shared != shared {
                    black_box(self.touch_shared(others));
                }
                expect_new = outcome.first_owners != first_owners;
                rest = others;
            }
        }
    }

    /// The whole of a command that stores one block, as decoding engines report them, in the case
    /// that it nearly always is: a member that owns others gains a block that nobody owns. Returns
    /// whether it was; if not, nothing has changed.
    ///
    /// Such a block, as the filter tells, is not in the member's set either: no search. Nothing is
    /// omitted then, so nothing waits for re-admission.
    #[inline]
    pub(crate) fn store_new(&mut self, member: Member, block: BlockHash) -> bool {
        if self.violation.is_some() {
            return false;
        }
        // All lines that the block needs are asked for at once: buckets before the search for the
        // member, its home before the wait for them.
        let block = self.compute(block);
        black_box(self.projection.touch(&block.address));
        let Some(at) = self.ownership.find(member) else { return false };
        let Some(home) = self.ownership.room(at, block.key) else { return false };
        if self.projection.gain_new(at, iter::once(&block.address)) == 0 {
            return false;
        }
        self.ownership.gain_new(at, iter::once((home, block.key)));
        self.occupancy.note(self.projection.distinct());
        true
    }

    /// The member gains a block that others may own, or it itself, or that needs more room.
    #[inline(never)]
    fn gain_known(&mut self, at: OwnerId, block: &Prepared, outcome: &mut Outcome) {
        let Self { ownership, projection, budget, .. } = self;
        match ownership.gain(at, block.key, budget) {
            Ok(true) => {}
            Ok(false) => {
                outcome.already_owned += 1;
                return;
            }
            Err(refused) => {
                outcome.fail(refused);
                return;
            }
        }
        let owns = |other| ownership.owns(other, block.key);
        match projection.gain(at, block.key, &block.address, budget, owns) {
            Ok(Gain::First) => outcome.first_owners += 1,
            Ok(Gain::Shared) => outcome.shared += 1,
            Ok(Gain::Omitted) => {
                outcome.first_owners += 1;
                outcome.omitted += 1;
            }
            Err(refused) => {
                // Homes of the group's other blocks stay valid.
                ownership.give_back(at, block.key);
                outcome.fail(refused);
            }
        }
    }
}

#[inline(never)]
fn enter_filter(projection: &mut Projection, at: OwnerId, blocks: &[Prepared]) -> usize {
    projection.gain_new(at, blocks.iter().map(|block| &block.address))
}

#[inline(never)]
fn enter_set(ownership: &mut Ownership, at: OwnerId, blocks: &[Prepared], homes: &[Home]) {
    let keys = blocks.iter().map(|block| block.key);
    ownership.gain_new(at, keys.zip(homes).map(|(key, &home)| (home, key)));
}
