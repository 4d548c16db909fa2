//! A set of block hashes with a small count each, which never stops to grow as a whole.
//!
//! The set is cut into segments by the high bits of its keys. It grows one segment at a time: as
//! soon as there are [`Set::SEGMENT_KEYS`] keys per segment, the next segment in the order of the keys
//! is split in two, round after round (after the linear hashing of Litwin 1980). So no insertion
//! ever moves more than one segment's keys, and half of those stay where they are.
//!
//! A segment that is split late in a round holds more keys until then, up to twice as many as one
//! that is split early; and so do its halves in the next round, because they keep its place in the
//! order. Therefore each segment is made as large as its place demands, and all are filled to the
//! same degree when their turn comes.

use alloc::vec::Vec;
use core::hint::black_box;

use ckf_core::AllocationError;

use super::line::Line;
use super::scramble::Key;
use super::segment::{Added, Segment, Spot};
use crate::budget::Budget;

/// Lines of a segment at the beginning of the order; at its end, there are twice as many.
const SEGMENT_LINES: usize = 384;
/// Keys per segment, on average, at which the next one is split, as a share of the slots of
/// [`SEGMENT_LINES`]: 5.25 keys a line of 7. Fuller lines would save memory, and more keys would
/// spill over their home lines.
const SHARE: [u64; 2] = [3, 4];
/// Keys per line, on average, below which a segment shrinks.
const SPARSE: usize = 1;

/// Hashes with a small count each, in lines of layout `L`. Searches take the scrambled block hash,
/// made once per command by the caller and shared by all sets.
#[derive(Clone, Debug)]
pub(crate) struct Set<L> {
    /// In the order of the keys.
    pub(super) segments: Vec<Segment<L>>,
    /// Rounds of splitting that are complete.
    round: u32,
    /// Segments that were split in the present round: the first ones.
    split: usize,
    pub(super) len: u64,
}

/// Where a hash lies. Valid until the set is changed by an insertion or shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) segment: u32,
    pub(super) spot: Spot,
}

/// The line that a hash prefers. Valid until a segment grows, splits or shrinks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Home {
    segment: u32,
    line: u32,
}

impl<L: Line> Set<L> {
    /// Keys per segment, on average, at which the next one is split.
    const SEGMENT_KEYS: u64 = (SEGMENT_LINES * L::SLOTS) as u64 * SHARE[0] / SHARE[1];

    /// An empty set without memory.
    pub(crate) const fn new() -> Self {
        Self { segments: Vec::new(), round: 0, split: 0, len: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes taken from the budget.
    pub(crate) fn bytes(&self) -> u64 {
        let lines: u64 = self.segments.iter().map(Segment::bytes).sum();
        lines + Budget::bytes_of(&self.segments)
    }

    /// The segment of a key: its `round` high bits, or one bit more where that segment has been
    /// split in this round. Free of branches, which would be guessed wrong half of the time.
    #[inline]
    fn segment_of(&self, key: Key) -> usize {
        let fine = (key.0 >> (63 - self.round)) as usize;
        let coarse = fine / 2;
        coarse + (fine - coarse).min(self.split)
    }

    /// Brings the memory of `hash` near; the value means nothing.
    #[inline]
    pub(crate) fn touch(&self, key: Key) -> u64 {
        match self.segments.get(self.segment_of(key)) {
            Some(segment) => segment.touch(segment.home(key)),
            None => 0,
        }
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<Place> {
        let segment = self.segment_of(key);
        let spot = self.segments.get(segment)?.find(key)?;
        Some(Place { segment: segment as u32, spot })
    }

    #[inline]
    pub(crate) fn count(&self, place: Place) -> u16 {
        self.segments[place.segment as usize].count(place.spot)
    }

    /// Sets a count other than 0.
    #[inline]
    pub(crate) fn set_count(&mut self, place: Place, count: u16) {
        self.segments[place.segment as usize].set_count(place.spot, count);
    }

    /// Finds the home of a hash and brings it near; `None` if there is no room without growth.
    #[inline]
    pub(crate) fn room(&self, key: Key) -> Option<Home> {
        let (home, segment) = self.home(key)?;
        black_box(segment.touch(home.line as usize));
        (self.spare() > 0 && segment.room() > 0).then_some(home)
    }

    /// Finds the homes of a few hashes and brings them near. Returns for how many of them, from the
    /// first on, there is room without growth, whichever of them are in the set.
    #[inline]
    pub(crate) fn rooms(
        &self,
        keys: impl ExactSizeIterator<Item = Key>,
        homes: &mut [Home],
    ) -> usize {
        let (mut room, mut near) = (self.spare().min(keys.len() as u64) as u32, 0);
        for (home, key) in homes.iter_mut().zip(keys) {
            let Some((found, segment)) = self.home(key) else { return 0 };
            *home = found;
            room = room.min(segment.room());
            near ^= segment.touch(found.line as usize);
        }
        black_box(near);
        room as usize
    }

    /// The home of a hash, and its segment; `None` in a set without memory.
    #[inline(always)]
    fn home(&self, key: Key) -> Option<(Home, &Segment<L>)> {
        let at = self.segment_of(key);
        let segment = self.segments.get(at)?;
        Some((Home { segment: at as u32, line: segment.home(key) as u32 }, segment))
    }

    /// Stores hashes that are known not to be in the set, each with its home, where there is
    /// [room](Self::rooms) for them, and with a count other than 0.
    #[inline(always)]
    pub(crate) fn add_new(&mut self, new: impl ExactSizeIterator<Item = (Home, Key)>, count: u16) {
        self.len += new.len() as u64;
        for (home, key) in new {
            self.segments[home.segment as usize].add_new(home.line as usize, key, count);
        }
    }

    /// Stores a hash with a count other than 0, unless it is in the set; returns whether it was
    /// not.
    ///
    /// # Errors
    /// [`AllocationError`] when memory is needed and refused; what the set holds is unchanged then.
    #[inline]
    pub(crate) fn add(
        &mut self,
        key: Key,
        count: u16,
        budget: &mut Budget,
    ) -> Result<bool, AllocationError> {
        if self.spare() > 0 {
            let segment = self.segment_of(key);
            match self.segments[segment].add(key, count) {
                Added::New => {
                    self.len += 1;
                    return Ok(true);
                }
                Added::Held => return Ok(false),
                Added::NoRoom => {}
            }
        }
        self.add_to_full(key, count, budget)
    }

    #[cold]
    fn add_to_full(
        &mut self,
        key: Key,
        count: u16,
        budget: &mut Budget,
    ) -> Result<bool, AllocationError> {
        if self.find(key).is_some() {
            return Ok(false);
        }
        self.make_room(key, budget)?;
        let segment = self.segment_of(key);
        let added = self.segments[segment].add(key, count);
        debug_assert_eq!(added, Added::New, "there is room for it");
        self.len += 1;
        Ok(true)
    }

    /// Makes sure that [`add`](Self::add) of this hash finds room.
    ///
    /// # Errors
    /// [`AllocationError`] when memory is refused; what the set holds is unchanged either way.
    pub(crate) fn reserve(&mut self, key: Key, budget: &mut Budget) -> Result<(), AllocationError> {
        if self.spare() > 0 && self.segments[self.segment_of(key)].room() > 0 {
            return Ok(());
        }
        self.make_room(key, budget)
    }

    /// How many hashes more it takes to make another segment due.
    #[inline]
    fn spare(&self) -> u64 {
        (self.segments.len() as u64 * Self::SEGMENT_KEYS).saturating_sub(self.len)
    }

    #[cold]
    fn make_room(&mut self, key: Key, budget: &mut Budget) -> Result<(), AllocationError> {
        if self.segments.is_empty() {
            budget.reserve_one(&mut self.segments)?;
            self.segments.push(Segment::new());
        }
        if self.spare() == 0 {
            self.split_next(budget)?;
        }
        let segment = self.segment_of(key);
        let segment = &mut self.segments[segment];
        if segment.room() > 0 {
            return Ok(());
        }
        // A first segment, or one that shrank, grows fourfold, and last sixfold, until it is as large
        // as its place demands. Beyond that it takes chance to need more.
        let lines = segment.lines().len();
        let more = match lines {
            0 => 1,
            1..64 => lines * 3,
            64..SEGMENT_LINES => SEGMENT_LINES - lines,
            _ => lines / 8,
        };
        segment.rebuild(lines + more, budget)
    }

    /// Splits the first segment that was not split in this round.
    fn split_next(&mut self, budget: &mut Budget) -> Result<(), AllocationError> {
        budget.reserve_one(&mut self.segments)?;
        let (round, at) = (self.round, 2 * self.split);
        let place = (SEGMENT_LINES * (at + 1)) >> (round + 1);
        let upper = self.segments[at].split(63 - round, SEGMENT_LINES + place, budget)?;
        self.segments.insert(at + 1, upper);
        self.split += 1;
        if self.split == 1 << round {
            (self.round, self.split) = (round + 1, 0);
        }
        Ok(())
    }

    /// Removes the hash, if it is in the set; returns whether it was.
    #[inline]
    pub(crate) fn take(&mut self, key: Key, budget: &mut Budget) -> bool {
        let segment = self.segment_of(key);
        let Some(segment) = self.segments.get_mut(segment) else { return false };
        let Some(spot) = segment.find(key) else { return false };
        segment.remove(key, spot);
        self.len -= 1;
        shrink_if_sparse(segment, budget);
        true
    }

    /// Removes the hash at `place`, and gives memory back now and then.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key, place: Place, budget: &mut Budget) {
        let segment = &mut self.segments[place.segment as usize];
        segment.remove(key, place.spot);
        self.len -= 1;
        shrink_if_sparse(segment, budget);
    }

    /// Gives memory back after removals in a walk.
    pub(crate) fn shrink(&mut self, budget: &mut Budget) {
        for segment in &mut self.segments {
            shrink_if_sparse(segment, budget);
        }
    }

    /// Gives all memory back.
    pub(crate) fn release(self, budget: &mut Budget) {
        let mut segments = self.segments;
        for segment in segments.drain(..) {
            segment.release(budget);
        }
        budget.release(segments);
    }

    /// Whether every hash is where a search finds it, and lengths are right.
    pub(crate) fn is_consistent(&self) -> bool {
        let segments = self.segments.iter().enumerate();
        let placed = |(at, segment): (usize, &Segment<L>)| {
            let mut entries = segment.lines().iter().flat_map(L::entries);
            segment.is_consistent() && entries.all(|(_, key, _)| self.segment_of(key) == at)
        };
        self.segments.iter().map(|segment| segment.len() as u64).sum::<u64>() == self.len
            && segments.into_iter().all(placed)
    }
}

/// Gives memory back once few keys are left. A refused allocation only delays it.
#[inline]
fn shrink_if_sparse<L: Line>(segment: &mut Segment<L>, budget: &mut Budget) {
    let lines = segment.lines().len();
    if segment.len() < lines * SPARSE && lines > 4 {
        let _delayed = segment.rebuild(lines / 4, budget);
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::{CountLine, MarkLine};
    use super::super::scramble::{HashSeeds, Scramble};
    use super::*;
    use ckf_core::BlockHash;
    use core::iter;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec as StdVec;

    fn no_limit() -> Budget {
        Budget::new(u64::MAX)
    }

    fn keys(pattern: u64, count: u64) -> StdVec<Key> {
        let scramble = Scramble::new(HashSeeds::new([1, 2, 3, 4]));
        (0..count).map(|i| scramble.key(BlockHash::new(i.wrapping_mul(pattern)))).collect()
    }

    fn add<L: Line>(
        set: &mut Set<L>,
        key: Key,
        budget: &mut Budget,
    ) -> Result<(), AllocationError> {
        set.add(key, 1, budget).map(|new| assert!(new))
    }

    /// Sequential and patterned hashes, through all kinds of growth, and back to nothing.
    #[test]
    fn grows_and_shrinks_with_any_pattern() {
        grows_and_shrinks::<MarkLine>(19);
        grows_and_shrinks::<CountLine>(22);
    }

    fn grows_and_shrinks<L: Line>(bytes_a_key: u64) {
        for pattern in [1, 64, 1 << 32, 1 << 48, 0x0001_0001_0001_0001] {
            let (mut set, mut budget) = (Set::<L>::new(), no_limit());
            let keys = keys(pattern, 1 << 16);
            for (number, &key) in keys.iter().enumerate() {
                assert_eq!(set.find(key), None);
                add(&mut set, key, &mut budget).unwrap();
                assert_eq!(set.len(), number as u64 + 1);
            }
            assert!(set.is_consistent());
            assert_eq!(set.bytes(), budget.used());
            assert!(set.bytes() <= bytes_a_key * set.len(), "{} bytes", set.bytes());
            assert!(set.segments.len() > 16);
            for &key in &keys {
                let place = set.find(key).expect("stored");
                set.remove(key, place, &mut budget);
            }
            assert!(set.is_consistent());
            assert_eq!(set.len(), 0);
            // A few lines a segment are left until the set is dropped.
            assert!(set.bytes() < 600 * set.segments.len() as u64, "{} bytes", set.bytes());
            set.release(&mut budget);
            assert_eq!(budget.used(), 0);
        }
    }

    /// Groups go into the set as far as it says that it has room, and nothing grows for them.
    #[test]
    fn what_there_is_room_for_goes_in_without_growth() {
        let (mut set, mut budget) = (Set::<MarkLine>::new(), no_limit());
        let all = keys(1, 1 << 14);
        let (mut homes, mut parts, mut alone) = ([Home::default(); 31], 0, 0);
        for group in all.chunks(homes.len()) {
            let mut rest = group;
            while !rest.is_empty() {
                let room = set.rooms(rest.iter().copied(), &mut homes);
                let before = set.bytes();
                set.add_new(homes.iter().copied().zip(rest[..room].iter().copied()).take(room), 1);
                assert_eq!(set.bytes(), before);
                assert!(set.segments.iter().all(Segment::is_within_limit));
                parts += usize::from(room != 0 && room < rest.len());
                rest = &rest[room..];
                if let Some((&key, others)) = rest.split_first() {
                    add(&mut set, key, &mut budget).unwrap();
                    (rest, alone) = (others, alone + 1);
                }
            }
            assert!(set.is_consistent());
        }
        assert!(all.iter().all(|&key| set.find(key).is_some()));
        assert!(parts > 5 && alone < all.len() / 50, "{parts} parts, {alone} alone");
    }

    /// No insertion moves more than a segment, however large the set is.
    #[test]
    fn one_insertion_changes_at_most_two_segments() {
        let (mut set, mut budget) = (Set::<MarkLine>::new(), no_limit());
        for key in keys(1, 1 << 16) {
            let before = set.bytes();
            add(&mut set, key, &mut budget).unwrap();
            let grown = set.bytes().abs_diff(before);
            assert!(grown <= 2 * 2 * SEGMENT_LINES as u64 * 64 + 4096, "{grown} bytes at once");
        }
    }

    /// Memory refused at every reservation in turn: what the set holds is unchanged.
    #[test]
    fn a_refused_reservation_changes_nothing() {
        let keys = keys(1, 12_000);
        let (mut set, mut budget) = (Set::<MarkLine>::new(), no_limit());
        let mut refusals = 0;
        for (number, &key) in keys.iter().enumerate() {
            for slack in [0, 64, 4096, 40_000, 70_000] {
                budget.set_limit(budget.used() + slack);
                let before = set.len();
                if set.reserve(key, &mut budget).is_ok() {
                    break;
                }
                assert!(set.add(key, 1, &mut budget).is_err());
                refusals += 1;
                assert_eq!((set.len(), set.find(key)), (before, None));
                if number % 64 == 0 {
                    assert!(keys[..number].iter().all(|&key| set.find(key).is_some()));
                }
            }
            budget.set_limit(u64::MAX);
            add(&mut set, key, &mut budget).unwrap();
            assert_eq!(set.bytes(), budget.used());
        }
        assert!(set.is_consistent());
        assert!(refusals > 20, "{refusals}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn equals_a_map(
            ops in prop::collection::vec((0u64..20_000, 0u8..8, any::<u16>()), 0..12_000),
            preload in 0u64..9_000,
        ) {
            equals_a_map_with::<MarkLine>(&ops, preload);
            equals_a_map_with::<CountLine>(&ops, preload);
        }
    }

    fn equals_a_map_with<L: Line>(ops: &[(u64, u8, u16)], preload: u64) {
        let (mut set, mut budget) = (Set::<L>::new(), no_limit());
        let all = keys(3, 20_000);
        let mut oracle = BTreeMap::new();
        for number in 0..preload {
            add(&mut set, all[number as usize], &mut budget).unwrap();
            oracle.insert(number, 1);
        }
        for &(number, op, count) in ops {
            let (key, count) = (all[number as usize], 1 + count % L::MAX_COUNT);
            let place = set.find(key);
            assert_eq!(place.map(|place| set.count(place)), oracle.get(&number).copied());
            match (place, op) {
                (None, 0..=1) => {
                    if let Some(home) = set.room(key) {
                        set.add_new(iter::once((home, key)), count);
                        oracle.insert(number, count);
                    }
                }
                (_, 0..=3) => {
                    assert_eq!(set.add(key, count, &mut budget), Ok(place.is_none()));
                    oracle.entry(number).or_insert(count);
                }
                (Some(place), 4) => {
                    set.set_count(place, count);
                    oracle.insert(number, count);
                }
                (_, 5) => {
                    assert_eq!(set.take(key, &mut budget), place.is_some());
                    oracle.remove(&number);
                }
                (Some(place), _) => {
                    set.remove(key, place, &mut budget);
                    oracle.remove(&number);
                }
                (None, _) => {}
            }
        }
        assert!(set.is_consistent());
        assert_eq!(set.bytes(), budget.used());
        assert_eq!(set.len() as usize, oracle.len());
        let mut held: StdVec<_> = set.iter().map(|held| (held.key.0, held.count)).collect();
        let mut expected: StdVec<_> =
            oracle.iter().map(|(&number, &count)| (all[number as usize].0, count)).collect();
        held.sort_unstable();
        expected.sort_unstable();
        assert_eq!(held, expected);
    }
}
