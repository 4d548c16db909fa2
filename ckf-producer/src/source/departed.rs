//! Members that were removed: what still arrives of them is late, and brings nobody back.

use alloc::collections::BTreeMap;

use super::ids::SourceGeneration;
use crate::member::Member;

/// The last generation of each member that left, the most recent leavers up to a limit.
#[derive(Clone, Debug)]
pub(super) struct Departed {
    last: BTreeMap<Member, (SourceGeneration, u64)>,
    /// The leavers in the order in which they left.
    order: BTreeMap<u64, Member>,
    left: u64,
    max: usize,
}

impl Departed {
    pub(super) fn new(max: usize) -> Self {
        Self { last: BTreeMap::new(), order: BTreeMap::new(), left: 0, max }
    }

    /// A member left in this generation.
    pub(super) fn insert(&mut self, member: Member, generation: SourceGeneration) {
        self.remove(member);
        while self.last.len() >= self.max {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.last.remove(&oldest);
        }
        self.left += 1;
        self.last.insert(member, (generation, self.left));
        self.order.insert(self.left, member);
    }

    /// A member is back.
    pub(super) fn remove(&mut self, member: Member) {
        if let Some((_, left)) = self.last.remove(&member) {
            self.order.remove(&left);
        }
    }

    /// Whether data of this generation comes from before the member left.
    pub(super) fn covers(&self, member: Member, generation: SourceGeneration) -> bool {
        self.last.get(&member).is_some_and(|(last, _)| generation <= *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_recent_leavers_are_remembered() {
        let life = SourceGeneration::new;
        let mut departed = Departed::new(3);
        // In no order of their numbers; a member that leaves again counts as the latest.
        for worker in [5, 9, 5, 1, 2] {
            departed.insert(Member::new(worker, 0), life(3));
        }
        let known: alloc::vec::Vec<_> =
            (0..10).filter(|worker| departed.covers(Member::new(*worker, 0), life(3))).collect();
        assert_eq!(known, [1, 2, 5]);
        assert!(!departed.covers(Member::new(1, 0), life(4)), "a new life is nothing late");
        departed.remove(Member::new(1, 0));
        assert!(!departed.covers(Member::new(1, 0), life(3)));
        assert_eq!((departed.last.len(), departed.order.len()), (2, 2));
    }
}
