//! Exact ownership the naive way: one ordered set per member. Slow, obvious, the judge of others.

use std::collections::{BTreeMap, BTreeSet};

use ckf_core::BlockHash;
use ckf_producer::{Command, Member, WorkerId};

/// Who owns what, by the plainest means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Oracle {
    members: BTreeMap<Member, BTreeSet<BlockHash>>,
}

impl Oracle {
    /// Nobody owns anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Does what the command says.
    pub fn apply(&mut self, command: &Command) {
        match command {
            Command::Store { member, hashes } => self.store(*member, hashes),
            Command::Remove { member, hashes } => self.remove(*member, hashes),
            Command::ClearMember { member } => self.clear_member(*member),
            Command::RemoveWorker { worker } => self.remove_worker(*worker),
            Command::ReplaceMember { member, hashes } => self.replace_member(*member, hashes),
            Command::Flush => {}
        }
    }

    /// The member owns these blocks too.
    pub fn store(&mut self, member: Member, hashes: &[BlockHash]) {
        if !hashes.is_empty() {
            self.members.entry(member).or_default().extend(hashes);
        }
    }

    /// The member owns these blocks no more.
    pub fn remove(&mut self, member: Member, hashes: &[BlockHash]) {
        if let Some(owned) = self.members.get_mut(&member) {
            for hash in hashes {
                owned.remove(hash);
            }
            if owned.is_empty() {
                self.members.remove(&member);
            }
        }
    }

    /// The member owns nothing.
    pub fn clear_member(&mut self, member: Member) {
        self.members.remove(&member);
    }

    /// All ranks of the worker own nothing.
    pub fn remove_worker(&mut self, worker: WorkerId) {
        self.members.retain(|member, _| member.worker != worker);
    }

    /// The member owns exactly these blocks.
    pub fn replace_member(&mut self, member: Member, hashes: &[BlockHash]) {
        self.members.remove(&member);
        self.store(member, hashes);
    }

    /// Members that own something.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        self.members.keys().copied()
    }

    /// What a member owns, ascending.
    pub fn owned(&self, member: Member) -> impl Iterator<Item = BlockHash> {
        self.members.get(&member).into_iter().flatten().copied()
    }

    /// How many members own the block.
    pub fn owners(&self, hash: BlockHash) -> usize {
        self.members.values().filter(|owned| owned.contains(&hash)).count()
    }

    /// All blocks that somebody owns, each once, ascending.
    pub fn distinct(&self) -> BTreeSet<BlockHash> {
        self.members.values().flatten().copied().collect()
    }

    /// How many leading blocks of `prompt` somebody owns without a hole.
    pub fn depth(&self, prompt: &[BlockHash]) -> usize {
        prompt.iter().take_while(|&&hash| self.owners(hash) > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::hashes;

    #[test]
    fn f04_f07_f12_sets_are_sets() {
        let (a, b) = (Member::new(1, 0), Member::new(2, 0));
        let mut oracle = Oracle::new();
        oracle.store(a, &hashes([7, 9, 7]));
        oracle.store(b, &hashes([9]));
        oracle.remove(b, &hashes([7]));
        oracle.remove(Member::new(9, 9), &hashes([7]));
        assert_eq!(oracle.depth(&hashes([7, 9, 8])), 2);
        assert_eq!(oracle.owners(BlockHash::new(9)), 2);
        oracle.replace_member(a, &hashes([4, 4, 5]));
        assert!(oracle.distinct().into_iter().eq(hashes([4, 5, 9])));
        oracle.remove_worker(WorkerId::new(1));
        oracle.clear_member(b);
        assert_eq!(oracle, Oracle::new());
    }
}
