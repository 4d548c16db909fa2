//! Members that have something for the host, served in turn.

use alloc::collections::BTreeSet;
use core::ops::Bound;

use crate::member::Member;

/// Members that have something to say. Each has its turn, so that a host that takes out a few things
/// at a time hears of all of them, however much one has to say.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    members: BTreeSet<Member>,
    /// Who was served last.
    last: Option<Member>,
}

impl Turns {
    pub(super) fn insert(&mut self, member: Member) {
        self.members.insert(member);
    }

    pub(super) fn remove(&mut self, member: Member) {
        self.members.remove(&member);
    }

    /// Takes one item from the next member, which leaves the list when it has no more.
    pub(super) fn serve<T>(
        &mut self,
        mut take: impl FnMut(Member) -> Option<(T, bool)>,
    ) -> Option<T> {
        while let Some(member) = self.next() {
            self.last = Some(member);
            let taken = take(member);
            if !matches!(taken, Some((_, true))) {
                self.members.remove(&member);
            }
            if let Some((item, _)) = taken {
                return Some(item);
            }
        }
        None
    }

    fn next(&self) -> Option<Member> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = self.members.range((after, Bound::Unbounded));
        later.next().or(self.members.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn all_have_their_turn_until_they_have_no_more() {
        let mut left = [3, 0, 1, 2];
        let mut turns = Turns::default();
        (0..5).for_each(|rank| turns.insert(Member::new(7, rank)));
        turns.remove(Member::new(7, 4));
        let mut take = || {
            turns.serve(|member| {
                let left = &mut left[member.rank.get() as usize];
                *left = u32::checked_sub(*left, 1)?;
                Some((member.rank.get(), *left > 0))
            })
        };
        let served: Vec<u32> = core::iter::from_fn(&mut take).collect();
        assert_eq!(served, [0, 2, 3, 0, 3, 0]);
    }
}
