//! One segment of a set: a few hundred lines with a bounded rebuild.

use alloc::vec::Vec;

use ckf_core::AllocationError;

use super::line::{Line, slots};
use super::scramble::Key;
use crate::budget::Budget;

/// Open addressing by lines: a key lies in its home line or, where that was full, in one of the
/// following lines; each full line on the way counts it as passed.
#[derive(Clone, Debug)]
pub(super) struct Segment<L> {
    lines: Vec<L>,
    len: u32,
    /// Keys that the lines take before they must be more: six slots in seven, so that most keys
    /// find room in their home lines.
    limit: u32,
}

/// Where a key lies within a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) line: u32,
    pub(super) slot: u8,
}

/// What became of a key that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It is here now.
    New,
    /// It was here.
    Held,
    /// The segment has no room for it: nothing has changed.
    NoRoom,
}

/// The line that a key prefers: its low half, spread over any number of lines.
#[inline]
fn home(key: Key, lines: usize) -> usize {
    (((key.get() & 0xFFFF_FFFF) * lines as u64) >> 32) as usize
}

/// The line after `at`, round the end.
#[inline]
fn after(at: usize, lines: usize) -> usize {
    if at + 1 == lines { 0 } else { at + 1 }
}

impl<L: Line> Segment<L> {
    pub(super) const fn new() -> Self {
        Self { lines: Vec::new(), len: 0, limit: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn lines(&self) -> &[L] {
        &self.lines
    }

    /// Bytes taken from the budget.
    pub(super) fn bytes(&self) -> u64 {
        Budget::bytes_of(&self.lines)
    }

    #[cfg(test)]
    pub(super) fn is_within_limit(&self) -> bool {
        self.len <= self.limit
    }

    /// The line that `key` prefers.
    #[inline]
    pub(super) fn home(&self, key: Key) -> usize {
        home(key, self.lines.len())
    }

    /// Brings a line near.
    #[inline]
    pub(super) fn touch(&self, line: usize) -> u64 {
        self.lines.get(line).map_or(0, L::touch)
    }

    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<Spot> {
        let at = home(key, self.lines.len());
        let line = self.lines.get(at)?;
        match line.find(key) {
            Some(slot) => Some(Spot { line: at as u32, slot: slot as u8 }),
            None if line.passed() == 0 => None,
            None => self.find_after(at, key),
        }
    }

    /// The search in the lines that follow the home line.
    fn find_after(&self, home: usize, key: Key) -> Option<Spot> {
        let mut at = home;
        for _ in 1..self.lines.len() {
            at = after(at, self.lines.len());
            let line = &self.lines[at];
            if let Some(slot) = line.find(key) {
                return Some(Spot { line: at as u32, slot: slot as u8 });
            }
            if line.passed() == 0 {
                return None;
            }
        }
        None
    }

    /// How many more keys fit without growing.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.limit.saturating_sub(self.len)
    }

    /// Stores a key that is not here and whose home is `home`, where there is
    /// [room](Self::room) for it.
    #[inline(always)]
    pub(super) fn add_new(&mut self, home: usize, key: Key, count: u16) {
        let (line, slot) = vacancy_from(home, &mut self.lines);
        line.put(slot, key, count);
        self.len += 1;
    }

    /// Stores a key, unless it is here.
    #[inline]
    pub(super) fn add(&mut self, key: Key, count: u16) -> Added {
        let has_room = self.room() > 0;
        let at = home(key, self.lines.len());
        let Some(line) = self.lines.get_mut(at) else { return Added::NoRoom };
        if line.find(key).is_some() {
            return Added::Held;
        }
        match line.vacancy() {
            Some(slot) if line.passed() == 0 && has_room => {
                line.put(slot, key, count);
                self.len += 1;
                Added::New
            }
            _ => self.add_after(at, key, count),
        }
    }

    /// Stores a key that is not in its home line, unless it is in one that follows.
    fn add_after(&mut self, home: usize, key: Key, count: u16) -> Added {
        if self.lines[home].passed() != 0 && self.find_after(home, key).is_some() {
            return Added::Held;
        }
        if self.room() == 0 {
            return Added::NoRoom;
        }
        self.add_new(home, key, count);
        Added::New
    }

    #[inline]
    pub(super) fn count(&self, spot: Spot) -> u16 {
        self.lines[spot.line as usize].count(usize::from(spot.slot))
    }

    /// Sets a count other than 0.
    #[inline]
    pub(super) fn set_count(&mut self, spot: Spot, count: u16) {
        self.lines[spot.line as usize].set_count(usize::from(spot.slot), count);
    }

    /// Removes the key at `spot`. Nothing else moves.
    #[inline]
    pub(super) fn remove(&mut self, key: Key, spot: Spot) {
        let at = spot.line as usize;
        self.unpass(key, at);
        self.lines[at].free(usize::from(spot.slot));
        self.len -= 1;
    }

    /// A key that lay in line `at` passes no other lines any more.
    #[inline]
    fn unpass(&mut self, key: Key, at: usize) {
        let count = self.lines.len();
        let mut passed = home(key, count);
        while passed != at {
            self.lines[passed].unpass();
            passed = after(passed, count);
        }
    }

    /// Gives the segment another number of lines, which must have room for its keys.
    #[cold]
    pub(super) fn rebuild(
        &mut self,
        lines: usize,
        budget: &mut Budget,
    ) -> Result<(), AllocationError> {
        let mut fresh = empty_lines(lines, budget)?;
        for line in &self.lines {
            slots::<L>(line.taken()).for_each(|slot| copy_to(&mut fresh, line, slot));
        }
        budget.release(core::mem::replace(&mut self.lines, fresh));
        self.limit = limit::<L>(lines);
        Ok(())
    }

    /// Moves the keys in which bit `bit` is set into a new segment of `lines` lines, or of as many
    /// as here if that is more: then all of them would fit. On refusal nothing has changed.
    ///
    /// One pass over both segments in order: homes ascend with the keys' low halves in each. Keys
    /// that stay do not move, also those that would find room nearer to their homes now.
    #[cold]
    pub(super) fn split(
        &mut self,
        bit: u32,
        lines: usize,
        budget: &mut Budget,
    ) -> Result<Self, AllocationError> {
        let mut upper = empty_lines(lines.max(self.lines.len()), budget)?;
        let mut moved = 0;
        let mut strangers = self.lines.last().is_some_and(|last| last.passed() != 0);
        for at in 0..self.lines.len() {
            let line = &self.lines[at];
            let leaving = line.taken() & line.keys_with(bit);
            for slot in slots::<L>(leaving) {
                copy_to(&mut upper, line, slot);
                moved += 1;
            }
            if strangers {
                let line = *line;
                slots::<L>(leaving).for_each(|slot| self.unpass(line.key(slot), at));
            }
            let line = &mut self.lines[at];
            strangers = line.passed() != 0;
            line.free_all(leaving);
        }
        self.len -= moved;
        let limit = limit::<L>(upper.len());
        Ok(Self { lines: upper, len: moved, limit })
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

/// Keys that so many lines take.
fn limit<L: Line>(lines: usize) -> u32 {
    (lines * L::SLOTS * 6).div_ceil(7) as u32
}

fn empty_lines<L: Line>(count: usize, budget: &mut Budget) -> Result<Vec<L>, AllocationError> {
    let mut lines = budget.vec(count)?;
    lines.resize(count, L::EMPTY);
    Ok(lines)
}

/// Stores a key of another segment in the first line from its home on that has a free slot, with its
/// count. There must be one.
#[inline]
fn copy_to<L: Line>(lines: &mut [L], other: &L, from: usize) {
    let (line, slot) = vacancy_from(home(other.key(from), lines.len()), lines);
    line.copy(slot, other, from);
}

/// The slot for a key with this home that is to be stored; full lines on the way to it count the
/// key as passed.
#[inline(always)]
fn vacancy_from<L: Line>(home: usize, lines: &mut [L]) -> (&mut L, usize) {
    let len = lines.len();
    let mut at = home;
    loop {
        match lines[at].vacancy() {
            Some(slot) => return (&mut lines[at], slot),
            None => lines[at].pass(),
        }
        at = after(at, len);
    }
}
