//! Stop 1: commands. In comes what stage 1 or the host has to say about one member's blocks; out
//! go, block by block, gains and losses of ownership. Next stop: `ownership/mod.rs`.

use alloc::vec::Vec;

use ckf_core::BlockHash;

use crate::{CommandError, Member, Pool, WorkerId};

/// One change to what members own, as a value. A batch never splits a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// See [`Pool::store`].
    Store {
        /// Who owns the blocks from now on.
        member: Member,
        /// The blocks, in any order.
        hashes: Vec<BlockHash>,
    },
    /// See [`Pool::remove`].
    Remove {
        /// Who no longer owns the blocks.
        member: Member,
        /// The blocks, in any order.
        hashes: Vec<BlockHash>,
    },
    /// See [`Pool::clear_member`].
    ClearMember {
        /// Who owns nothing from now on.
        member: Member,
    },
    /// See [`Pool::remove_worker`].
    RemoveWorker {
        /// All ranks of this worker own nothing from now on.
        worker: WorkerId,
    },
    /// See [`Pool::replace_member`].
    ReplaceMember {
        /// Whose blocks are replaced.
        member: Member,
        /// All that it owns from now on.
        hashes: Vec<BlockHash>,
    },
    /// See [`Pool::flush`].
    Flush,
}

impl Command {
    /// Whose blocks it changes, when that is one member: who is suspect when the command fails.
    pub const fn member(&self) -> Option<Member> {
        match self {
            Self::Store { member, .. }
            | Self::Remove { member, .. }
            | Self::ClearMember { member }
            | Self::ReplaceMember { member, .. } => Some(*member),
            Self::RemoveWorker { .. } | Self::Flush => None,
        }
    }
}

impl Pool {
    /// Applies a command given as a value.
    pub fn apply(&mut self, command: &Command) -> Outcome {
        match command {
            Command::Store { member, hashes } => self.store(*member, hashes),
            Command::Remove { member, hashes } => self.remove(*member, hashes),
            Command::ClearMember { member } => self.clear_member(*member),
            Command::RemoveWorker { worker } => self.remove_worker(*worker),
            Command::ReplaceMember { member, hashes } => self.replace_member(*member, hashes),
            Command::Flush => self.flush(),
        }
    }
}

/// What a command did, in blocks.
///
/// Each hash of a command is counted exactly once, in the field that tells what became of it. A
/// hash that a command repeats is one block: its second mention finds the state that the first
/// one left, and is counted as already owned, or as unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Gained, and no member had owned it.
    pub first_owners: u64,
    /// Gained, and other members own it too.
    pub shared: u64,
    /// Stored, but the member owned it before.
    pub already_owned: u64,
    /// Lost, and other members still own it.
    pub released: u64,
    /// Lost, and no member owns it any more.
    pub final_removals: u64,
    /// To be removed, but the member does not own it.
    pub unknown: u64,
    /// Failed: unchanged, see [`error`](Self::error).
    pub failed: u64,
    /// Of the first owners: blocks for which the filter found no room.
    pub omitted: u64,
    /// Blocks omitted earlier that found room now. None of the command's own.
    pub readmitted: u64,
    /// The first error. Blocks before and after the failed ones were applied.
    pub error: Option<CommandError>,
}

impl Outcome {
    /// Counts so many failed blocks.
    #[cold]
    pub(crate) fn refuse(&mut self, blocks: usize, error: impl Into<CommandError>) {
        self.failed += blocks as u64;
        self.error.get_or_insert(error.into());
    }

    /// Counts one failed block.
    pub(crate) fn fail(&mut self, error: impl Into<CommandError>) {
        self.failed += 1;
        self.error.get_or_insert(error.into());
    }
}
