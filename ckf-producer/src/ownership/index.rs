//! Members with their places, in order.

use alloc::vec::Vec;

use ckf_core::AllocationError;

use super::OwnerId;
use crate::budget::Budget;
use crate::{Member, WorkerId};

/// Members and their places, ascending, in chunks: one that comes or goes moves the rest of a chunk,
/// however many there are. Up to [`MOST`](Self::MOST) are one chunk, which is searched like a vector.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// None of them is empty.
    chunks: Vec<Vec<Entry>>,
    len: usize,
}

type Entry = (Member, OwnerId);

/// One number that compares as the member does, in two instructions.
#[inline]
fn rank(member: Member) -> u128 {
    u128::from(member.worker.get()) << 64 | u128::from(member.rank.get())
}

impl Index {
    /// Members of a chunk.
    const MOST: usize = 256;

    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> u64 {
        let chunks: u64 = self.chunks.iter().map(Budget::bytes_of).sum();
        chunks + Budget::bytes_of(&self.chunks)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
        self.chunks.iter().flatten().copied()
    }

    /// The chunk that the member is in or belongs in.
    #[inline]
    fn chunk_of(&self, member: Member) -> usize {
        let begins_before = |chunk: &Vec<Entry>| rank(chunk[0].0) <= rank(member);
        self.chunks.partition_point(begins_before).saturating_sub(1)
    }

    #[inline]
    fn search(chunk: &[Entry], member: Member) -> Result<usize, usize> {
        chunk.binary_search_by_key(&rank(member), |&(member, _)| rank(member))
    }

    #[inline]
    pub(super) fn find(&self, member: Member) -> Option<OwnerId> {
        let chunk = self.chunks.get(self.chunk_of(member))?;
        Self::search(chunk, member).ok().map(|at| chunk[at].1)
    }

    /// The last member of a worker.
    pub(super) fn last_of(&self, worker: WorkerId) -> Option<Member> {
        let last = self.chunk_of(Member { worker, rank: crate::DpRank::new(u32::MAX) });
        let chunk = self.chunks.get(last)?;
        let end = chunk.partition_point(|(member, _)| member.worker <= worker);
        let member = chunk[..end].last()?.0;
        (member.worker == worker).then_some(member)
    }

    /// Enters a member that is not here.
    ///
    /// # Errors
    /// [`AllocationError`]; nobody has come then.
    pub(super) fn insert(
        &mut self,
        member: Member,
        place: OwnerId,
        budget: &mut Budget,
    ) -> Result<(), AllocationError> {
        let mut at = self.chunk_of(member);
        match self.chunks.get_mut(at) {
            None => {
                budget.reserve_one(&mut self.chunks)?;
                self.chunks.push(budget.vec(1)?);
            }
            Some(chunk) if chunk.len() < Self::MOST => budget.reserve_one(chunk)?,
            Some(_) => {
                self.split(at, budget)?;
                at = self.chunk_of(member);
            }
        }
        let chunk = &mut self.chunks[at];
        if let Err(here) = Self::search(chunk, member) {
            chunk.insert(here, (member, place));
            self.len += 1;
        }
        Ok(())
    }

    /// Moves the upper half of a chunk into a new one.
    fn split(&mut self, at: usize, budget: &mut Budget) -> Result<(), AllocationError> {
        budget.reserve_one(&mut self.chunks)?;
        let mut upper = budget.vec(Self::MOST)?;
        upper.extend(self.chunks[at].drain(Self::MOST / 2..));
        self.chunks.insert(at + 1, upper);
        Ok(())
    }

    /// Takes a member out, if it is here.
    pub(super) fn remove(&mut self, member: Member, budget: &mut Budget) {
        let at = self.chunk_of(member);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let Ok(here) = Self::search(chunk, member) else { return };
        chunk.remove(here);
        self.len -= 1;
        if chunk.is_empty() {
            budget.release(self.chunks.remove(at));
        }
    }

    /// Gives all memory back.
    pub(super) fn release(self, budget: &mut Budget) {
        let mut chunks = self.chunks;
        chunks.drain(..).for_each(|chunk| budget.release(chunk));
        budget.release(chunks);
    }

    /// Whether members ascend and are as many as counted.
    pub(super) fn is_consistent(&self) -> bool {
        let sound = self.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= Self::MOST);
        sound && self.iter().count() == self.len && self.iter().is_sorted_by(|(a, _), (b, _)| a < b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use ckf_core::mix64;

    /// Members come and go in any order, some refused, over many chunks and back to none.
    #[test]
    fn equals_an_ordered_map_in_any_order() {
        const COUNT: u64 = 2_000;
        let order: [fn(u64) -> u64; 3] = [|n| n, |n| COUNT - 1 - n, |n| n * 1_117 % COUNT];
        for (up, down) in (0..9).map(|n| (order[n / 3], order[n % 3])) {
            let (mut index, mut oracle) = (Index::new(), BTreeMap::new());
            let mut budget = Budget::new(u64::MAX);
            let member = |n: u64| Member::new(n / 3, (n % 3) as u32);
            let check = |index: &Index, oracle: &BTreeMap<_, _>, budget: &Budget| {
                assert!(index.is_consistent());
                assert!(index.iter().eq(oracle.iter().map(|(&member, &at)| (member, at))));
                assert_eq!((index.len(), index.bytes()), (oracle.len(), budget.used()));
                for n in (0..COUNT).step_by(7) {
                    assert_eq!(index.find(member(n)), oracle.get(&member(n)).copied());
                    let worker = member(n).worker;
                    let last = oracle.keys().rfind(|member| member.worker == worker);
                    assert_eq!(index.last_of(worker), last.copied());
                }
            };
            for n in 0..COUNT {
                let (member, at) = (member(up(n)), OwnerId::new(up(n) as u16));
                if mix64(n).is_multiple_of(5) {
                    budget.set_limit(budget.used() + mix64(n) % 3 * 100);
                }
                let refused = index.insert(member, at, &mut budget).is_err();
                budget.set_limit(u64::MAX);
                if refused {
                    assert_eq!((index.find(member), index.is_consistent()), (None, true));
                    index.insert(member, at, &mut budget).unwrap();
                }
                oracle.insert(member, at);
                if n % 200 == 0 {
                    check(&index, &oracle, &budget);
                }
            }
            for n in 0..COUNT {
                if n % 200 == 0 {
                    check(&index, &oracle, &budget);
                }
                index.remove(member(down(n)), &mut budget);
                index.remove(member(COUNT + n), &mut budget);
                oracle.remove(&member(down(n)));
            }
            check(&index, &oracle, &budget);
            index.release(&mut budget);
            assert_eq!(budget.used(), 0);
        }
    }

    /// However many there are, one that comes or goes moves no more than a chunk and the list of chunks.
    #[test]
    fn chunks_stay_small_and_few() {
        let (mut index, mut budget) = (Index::new(), Budget::new(u64::MAX));
        for n in (0..60_000).rev() {
            index.insert(Member::new(n, 0), OwnerId::new(n as u16), &mut budget).unwrap();
        }
        assert!(index.chunks.iter().all(|chunk| chunk.len() <= Index::MOST));
        assert!(index.chunks.len() <= 2 * 60_000 / Index::MOST + 1, "{}", index.chunks.len());
    }
}
