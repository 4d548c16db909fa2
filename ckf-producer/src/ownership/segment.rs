//! One segment of a counted set: a few hundred lines with a bounded rebuild.

use alloc::vec::Vec;

use ckf_core::AllocationError;

use super::line::Line;
use crate::budget::Budget;

/// Hashes per line, on average, above which a segment grows.
const FULL: usize = 6;
/// Hashes per line, on average, below which a segment shrinks.
const SPARSE: usize = 1;

/// Open addressing by lines: a hash lies in its home line or, where that was full, in one of the
/// following lines; each full line on the way counts it as passed.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    lines: Vec<Line>,
    len: u32,
}

/// Where a hash lies within a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) line: u32,
    pub(super) slot: u8,
}

/// The line that a hash prefers: the high bits, spread over any number of lines.
#[inline]
fn home(hash: u64, lines: usize) -> usize {
    ((u128::from(hash) * lines as u128) >> 64) as usize
}

/// Lines for `len` hashes right after a rebuild: filled four fifths of the way to growing.
fn lines_for(len: usize) -> usize {
    (len * 5).div_ceil(FULL * 4).max(1)
}

impl Segment {
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Bytes taken from the budget.
    pub(super) fn bytes(&self) -> u64 {
        Budget::bytes_of(&self.lines)
    }

    /// Brings the home line of `hash` near.
    #[inline]
    pub(super) fn touch(&self, hash: u64) -> u64 {
        self.lines.get(home(hash, self.lines.len())).map_or(0, Line::touch)
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, key: u64) -> Option<Spot> {
        let count = self.lines.len();
        let mut at = home(hash, count);
        for _ in 0..count {
            let line = &self.lines[at];
            if let Some(slot) = line.find(key) {
                return Some(Spot { line: at as u32, slot: slot as u8 });
            }
            if line.passed() == 0 {
                return None;
            }
            at = if at + 1 == count { 0 } else { at + 1 };
        }
        None
    }

    /// Whether one more hash fits without growing.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len() < self.lines.len() * FULL
    }

    /// Stores a hash that is not here; there must be room.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, key: u64, count: u8) {
        debug_assert!(self.find(hash, key).is_none());
        insert_in(&mut self.lines, hash, key, count);
        self.len += 1;
    }

    #[inline]
    pub(super) fn count(&self, spot: Spot) -> u8 {
        self.lines[spot.line as usize].count(usize::from(spot.slot))
    }

    /// Sets a count other than 0.
    #[inline]
    pub(super) fn set_count(&mut self, spot: Spot, count: u8) {
        debug_assert!(count != 0);
        self.lines[spot.line as usize].set_count(usize::from(spot.slot), count);
    }

    /// Removes the hash at `spot`. Nothing else moves.
    #[inline]
    pub(super) fn remove(&mut self, hash: u64, spot: Spot) {
        let count = self.lines.len();
        let mut at = home(hash, count);
        while at != spot.line as usize {
            self.lines[at].unpass();
            at = if at + 1 == count { 0 } else { at + 1 };
        }
        self.lines[at].set_count(usize::from(spot.slot), 0);
        self.len -= 1;
    }

    /// Makes room for one more hash: a quarter more lines, all hashes placed anew.
    pub(super) fn grow(
        &mut self,
        hasher: impl Fn(u64) -> u64,
        budget: &mut Budget,
    ) -> Result<(), AllocationError> {
        let lines = (self.lines.len() * 5).div_ceil(4);
        self.rebuild(lines.max(lines_for(self.len() + 1)), hasher, budget)
    }

    /// Gives memory back once few hashes are left. A refused allocation only delays it.
    pub(super) fn shrink_if_sparse(&mut self, hasher: impl Fn(u64) -> u64, budget: &mut Budget) {
        if self.lines.len() > 4 && self.len() < self.lines.len() * SPARSE {
            // Half way between sparse and full, so that neither is reached again soon.
            let lines = lines_for(self.len() * 2);
            let _delayed = self.rebuild(lines, hasher, budget);
        }
    }

    fn rebuild(
        &mut self,
        lines: usize,
        hasher: impl Fn(u64) -> u64,
        budget: &mut Budget,
    ) -> Result<(), AllocationError> {
        let mut fresh = empty_lines(lines, budget)?;
        for (_, key, count) in self.lines.iter().flat_map(Line::entries) {
            insert_in(&mut fresh, hasher(key), key, count);
        }
        budget.release(core::mem::replace(&mut self.lines, fresh));
        Ok(())
    }

    /// Moves the hashes that `leaves` picks into a new segment; both end up as full as after a
    /// rebuild. On refusal nothing has changed.
    pub(super) fn split(
        &mut self,
        leaves: impl Fn(u64) -> bool,
        hasher: impl Fn(u64) -> u64,
        budget: &mut Budget,
    ) -> Result<Self, AllocationError> {
        let all = || self.lines.iter().flat_map(Line::entries);
        let leaving = all().filter(|&(_, key, _)| leaves(hasher(key))).count();
        let staying = self.len() - leaving;
        let mut upper = empty_lines(lines_for(leaving), budget)?;
        let mut lower = match empty_lines(lines_for(staying), budget) {
            Ok(lines) => lines,
            Err(refused) => {
                budget.release(upper);
                return Err(refused);
            }
        };
        for (_, key, count) in all() {
            let hash = hasher(key);
            insert_in(if leaves(hash) { &mut upper } else { &mut lower }, hash, key, count);
        }
        budget.release(core::mem::replace(&mut self.lines, lower));
        self.len = staying as u32;
        Ok(Self { lines: upper, len: leaving as u32 })
    }

    /// Gives all memory back.
    pub(super) fn release(self, budget: &mut Budget) {
        budget.release(self.lines);
    }

    /// Whether lengths and passed counts agree with the hashes that are here, each of them where
    /// a search finds it.
    pub(super) fn is_consistent(&self, hasher: impl Fn(u64) -> u64) -> bool {
        let mut len = 0;
        for (at, line) in self.lines.iter().enumerate() {
            for (slot, key, _) in line.entries() {
                let spot = Spot { line: at as u32, slot: slot as u8 };
                if self.find(hasher(key), key) != Some(spot) {
                    return false;
                }
                len += 1;
            }
        }
        len == self.len()
    }
}

fn empty_lines(count: usize, budget: &mut Budget) -> Result<Vec<Line>, AllocationError> {
    let mut lines = budget.vec(count)?;
    lines.resize(count, Line::EMPTY);
    Ok(lines)
}

#[inline]
fn insert_in(lines: &mut [Line], hash: u64, key: u64, count: u8) {
    let mut at = home(hash, lines.len());
    loop {
        let line = &mut lines[at];
        if let Some(slot) = line.free_slot() {
            line.put(slot, key, count);
            return;
        }
        line.pass();
        at = if at + 1 == lines.len() { 0 } else { at + 1 };
    }
}
