//! One segment of a counted set: a few hundred lines with a bounded rebuild.

use alloc::vec::Vec;

use ckf_core::AllocationError;

use super::line::Line;
use super::scramble::Key;
use crate::budget::Budget;

/// Keys in eight lines, on average, above which a segment has no room.
const FULL_BY_EIGHT: usize = 54;

/// Open addressing by lines: a key lies in its home line or, where that was full, in one of the
/// following lines; each full line on the way counts it as passed.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    lines: Vec<Line>,
    len: u32,
}

/// Where a key lies within a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) line: u32,
    pub(super) slot: u8,
}

/// The line that a key prefers: its low half, spread over any number of lines.
#[inline]
fn home(key: Key, lines: usize) -> usize {
    (((key.0 & 0xFFFF_FFFF) * lines as u64) >> 32) as usize
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

    /// Brings the home line of `key` near.
    #[inline]
    pub(super) fn touch(&self, key: Key) -> u64 {
        self.lines.get(home(key, self.lines.len())).map_or(0, Line::touch)
    }

    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<Spot> {
        let count = self.lines.len();
        let mut at = home(key, count);
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

    /// Whether one more key fits without growing.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len() * 8 < self.lines.len() * FULL_BY_EIGHT
    }

    /// Stores a key that is not here; there must be room.
    #[inline]
    pub(super) fn insert(&mut self, key: Key, count: u8) {
        debug_assert!(self.find(key).is_none());
        insert_in(&mut self.lines, key, count);
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

    /// Removes the key at `spot`. Nothing else moves.
    #[inline]
    pub(super) fn remove(&mut self, key: Key, spot: Spot) {
        let count = self.lines.len();
        let mut at = home(key, count);
        while at != spot.line as usize {
            self.lines[at].unpass();
            at = if at + 1 == count { 0 } else { at + 1 };
        }
        self.lines[at].set_count(usize::from(spot.slot), 0);
        self.len -= 1;
    }

    /// Gives the segment another number of lines, which must have room for its keys.
    #[cold]
    pub(super) fn rebuild(
        &mut self,
        lines: usize,
        budget: &mut Budget,
    ) -> Result<(), AllocationError> {
        let mut fresh = empty_lines(lines, budget)?;
        for (_, key, count) in self.lines.iter().flat_map(Line::entries) {
            insert_in(&mut fresh, key, count);
        }
        budget.release(core::mem::replace(&mut self.lines, fresh));
        Ok(())
    }

    /// Moves the keys that `leaves` picks into a new segment of `lines` lines, or of as many as
    /// here if that is more: then all of them would fit. On refusal nothing has changed.
    #[cold]
    pub(super) fn split(
        &mut self,
        leaves: impl Fn(Key) -> bool,
        lines: usize,
        budget: &mut Budget,
    ) -> Result<Self, AllocationError> {
        let count = self.lines.len();
        let mut upper = Self { lines: empty_lines(lines.max(count), budget)?, len: 0 };
        for at in 0..count {
            // Keys that stay but are not in their home line may find room there now.
            let moves = |key| leaves(key) | (home(key, count) != at);
            let line = self.lines[at];
            for (slot, key, keys_count) in line.entries_where(moves) {
                self.remove(key, Spot { line: at as u32, slot: slot as u8 });
                let target = if leaves(key) { &mut upper } else { &mut *self };
                target.insert(key, keys_count);
            }
        }
        Ok(upper)
    }

    /// Gives all memory back.
    pub(super) fn release(self, budget: &mut Budget) {
        budget.release(self.lines);
    }

    /// Whether lengths and passed counts agree with the keys that are here, each of them where
    /// a search finds it.
    pub(super) fn is_consistent(&self) -> bool {
        let mut len = 0;
        for (at, line) in self.lines.iter().enumerate() {
            for (slot, key, _) in line.entries() {
                let spot = Spot { line: at as u32, slot: slot as u8 };
                if self.find(key) != Some(spot) {
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
fn insert_in(lines: &mut [Line], key: Key, count: u8) {
    let mut at = home(key, lines.len());
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
