//! Walks over a set, line by line, during which hashes may be taken out of it.

use super::line::Line;
use super::scramble::Key;
use super::segment::Spot;
use super::set::{Place, Set};

/// Position of a walk over all hashes of a set. Always legal; what lies there changes as hashes move.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    segment: usize,
    line: usize,
    slot: usize,
}

impl Cursor {
    /// Before the hash that lies there.
    pub(crate) fn at(place: Place) -> Self {
        let Spot { line, slot } = place.spot;
        Self { segment: place.segment as usize, line: line as usize, slot: usize::from(slot) }
    }

    /// Behind the hash that lies there.
    pub(crate) fn after(place: Place) -> Self {
        let at = Self::at(place);
        Self { slot: at.slot + 1, ..at }
    }
}

/// A hash found in a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) key: Key,
    pub(crate) count: u16,
    pub(crate) place: Place,
}

impl<L: Line> Set<L> {
    /// The hashes of the line at `cursor` from there on; it moves to the next line. `None` at the
    /// end.
    pub(crate) fn next_line(&self, cursor: &mut Cursor) -> Option<impl Iterator<Item = Held> + '_> {
        loop {
            let segment = self.segments.get(cursor.segment)?;
            if let Some(line) = segment.lines().get(cursor.line) {
                let at = *cursor;
                *cursor = Cursor { line: at.line + 1, slot: 0, ..at };
                return Some(held(at, line));
            }
            *cursor = Cursor { segment: cursor.segment + 1, line: 0, slot: 0 };
        }
    }

    /// All hashes with their counts, in no meaningful order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Held> + '_ {
        self.segments.iter().enumerate().flat_map(|(segment, lines)| {
            let lines = lines.lines().iter().enumerate();
            lines.flat_map(move |(line, held_here)| {
                held(Cursor { segment, line, slot: 0 }, held_here)
            })
        })
    }

    /// Removes the hash at `place`; every other place and every cursor stays valid.
    #[inline]
    pub(crate) fn remove_in_walk(&mut self, key: Key, place: Place) {
        self.segments[place.segment as usize].remove(key, place.spot);
        self.len -= 1;
    }
}

fn held<L: Line>(at: Cursor, line: &L) -> impl Iterator<Item = Held> + '_ {
    let entries = line.entries().skip_while(move |&(slot, ..)| slot < at.slot);
    entries.map(move |(slot, key, count)| {
        let spot = Spot { line: at.line as u32, slot: slot as u8 };
        Held { key, count, place: Place { segment: at.segment as u32, spot } }
    })
}
