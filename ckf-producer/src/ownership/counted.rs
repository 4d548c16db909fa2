//! A set of block hashes with a small count each, which never stops to grow as a whole.
//!
//! The set is cut into segments. It grows one segment at a time: a full segment gets a quarter more
//! lines, and every [`SEGMENT_HASHES`] hashes one segment, in turn, is split in two (linear hashing:
//! Litwin 1980). So no insertion ever moves more than about twice that many hashes.

use alloc::vec::Vec;

use ckf_core::AllocationError;

use super::line::Line;
use super::segment::{Segment, Spot};
use crate::budget::Budget;
use crate::config::KeyedHash;

/// Hashes per segment on average. Segments that are yet to be split hold up to twice as many.
const SEGMENT_HASHES: u64 = 2048;

/// Hashes with counts 1 to 255. Searches take the keyed hash of the block hash, made once by
/// the caller by [`KeyedHash::hash`] and shared by all sets.
#[derive(Clone, Debug)]
pub(crate) struct CountedSet {
    hasher: KeyedHash,
    segments: Vec<Segment>,
    len: u64,
}

/// Where a hash lies. Valid until the set is changed by an insertion or shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    segment: u32,
    spot: Spot,
}

/// Position of a walk over all lines of a set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    segment: usize,
    line: usize,
}

impl CountedSet {
    /// An empty set without memory.
    pub(crate) fn new(hasher: KeyedHash) -> Self {
        Self { hasher, segments: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes taken from the budget.
    pub(crate) fn bytes(&self) -> u64 {
        let lines: u64 = self.segments.iter().map(Segment::bytes).sum();
        lines + Budget::bytes_of(&self.segments)
    }

    /// The segment of a hash: its low bits, one bit fewer where that segment is yet to be made.
    #[inline]
    fn segment_of(hash: u64, count: usize) -> usize {
        let mask = count.next_power_of_two() - 1;
        let segment = hash as usize & mask;
        if segment < count { segment } else { segment & (mask >> 1) }
    }

    /// Brings the memory of `hash` near; the value means nothing.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u64 {
        match self.segments.get(Self::segment_of(hash, self.segments.len())) {
            Some(segment) => segment.touch(hash),
            None => 0,
        }
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, key: u64) -> Option<Place> {
        let segment = Self::segment_of(hash, self.segments.len());
        let spot = self.segments.get(segment)?.find(hash, key)?;
        Some(Place { segment: segment as u32, spot })
    }

    #[inline]
    pub(crate) fn count(&self, place: Place) -> u8 {
        self.segments[place.segment as usize].count(place.spot)
    }

    /// Sets a count other than 0.
    #[inline]
    pub(crate) fn set_count(&mut self, place: Place, count: u8) {
        self.segments[place.segment as usize].set_count(place.spot, count);
    }

    /// Makes sure that [`insert`](Self::insert) of this hash finds room.
    ///
    /// # Errors
    /// [`AllocationError`] when memory is refused; what the set holds is unchanged either way.
    #[inline]
    pub(crate) fn reserve(
        &mut self,
        hash: u64,
        budget: &mut Budget,
    ) -> Result<(), AllocationError> {
        let count = self.segments.len();
        if self.len < count as u64 * SEGMENT_HASHES {
            if self.segments[Self::segment_of(hash, count)].has_room() {
                return Ok(());
            }
        }
        self.make_room(hash, budget)
    }

    #[cold]
    fn make_room(&mut self, hash: u64, budget: &mut Budget) -> Result<(), AllocationError> {
        let count = self.segments.len();
        if self.len >= count as u64 * SEGMENT_HASHES {
            budget.reserve_one(&mut self.segments)?;
            let fresh = match Self::split_source(count) {
                Some(source) => {
                    let leaves = |hash| Self::segment_of(hash, count + 1) == count;
                    self.segments[source].split(leaves, |key| self.hasher.hash(key), budget)?
                }
                None => Segment::default(),
            };
            self.segments.push(fresh);
        }
        let segment = Self::segment_of(hash, self.segments.len());
        let segment = &mut self.segments[segment];
        if segment.has_room() {
            return Ok(());
        }
        segment.grow(|key| self.hasher.hash(key), budget)
    }

    /// The segment whose hashes are shared with segment number `count` when that is added.
    fn split_source(count: usize) -> Option<usize> {
        if count == 0 { None } else { Some(count & ((count + 1).next_power_of_two() / 2 - 1)) }
    }

    /// Stores a hash that is not in the set, with a count other than 0. Needs a successful
    /// [`reserve`](Self::reserve) since the last insertion.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, key: u64, count: u8) {
        let segment = Self::segment_of(hash, self.segments.len());
        self.segments[segment].insert(hash, key, count);
        self.len += 1;
    }

    /// Removes the hash at `place`, and gives memory back now and then.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, place: Place, budget: &mut Budget) {
        let segment = &mut self.segments[place.segment as usize];
        segment.remove(hash, place.spot);
        self.len -= 1;
        segment.shrink_if_sparse(|key| self.hasher.hash(key), budget);
    }

    /// Removes the hash at `place`; every other place and every cursor stays valid.
    #[inline]
    pub(crate) fn remove_in_walk(&mut self, hash: u64, place: Place) {
        self.segments[place.segment as usize].remove(hash, place.spot);
        self.len -= 1;
    }

    /// Gives memory back after removals in a walk.
    pub(crate) fn shrink(&mut self, budget: &mut Budget) {
        for segment in &mut self.segments {
            segment.shrink_if_sparse(|key| self.hasher.hash(key), budget);
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

    /// The hashes of the line at `cursor`, which moves on; `None` at the end.
    pub(crate) fn next_line(&self, cursor: &mut Cursor) -> Option<impl Iterator<Item = Held> + '_> {
        loop {
            let segment = self.segments.get(cursor.segment)?;
            if let Some(line) = segment.lines().get(cursor.line) {
                let at = *cursor;
                cursor.line += 1;
                return Some(held(at, line));
            }
            *cursor = Cursor { segment: cursor.segment + 1, line: 0 };
        }
    }

    /// All hashes with their counts, in no meaningful order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Held> + '_ {
        self.segments.iter().enumerate().flat_map(|(segment, lines)| {
            let lines = lines.lines().iter().enumerate();
            lines.flat_map(move |(line, held_here)| held(Cursor { segment, line }, held_here))
        })
    }

    /// Whether every hash is where a search finds it, and lengths are right.
    pub(crate) fn is_consistent(&self) -> bool {
        let count = self.segments.len();
        let segments = self.segments.iter().enumerate();
        let placed = |(at, segment): (usize, &Segment)| {
            let mut entries = segment.lines().iter().flat_map(Line::entries);
            segment.is_consistent(|key| self.hasher.hash(key))
                && entries.all(|(_, key, _)| Self::segment_of(self.hasher.hash(key), count) == at)
        };
        self.segments.iter().map(|segment| segment.len() as u64).sum::<u64>() == self.len
            && segments.into_iter().all(placed)
    }
}

/// A hash found in a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) key: u64,
    pub(crate) count: u8,
    pub(crate) place: Place,
}

fn held(at: Cursor, line: &Line) -> impl Iterator<Item = Held> + '_ {
    line.entries().map(move |(slot, key, count)| {
        let spot = Spot { line: at.line as u32, slot: slot as u8 };
        Held { key, count, place: Place { segment: at.segment as u32, spot } }
    })
}
