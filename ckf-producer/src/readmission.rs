//! Omitted blocks that come back, and how much searching for room a command may do.
//!
//! A search for room is dear where there is hardly any: up to 544 full buckets, each with a look at
//! four others. So searches live on a [credit](SearchCredit), and a block whose buckets are full when
//! none is left is omitted without a search. Up to 96 % occupancy the credit is never used up: there a
//! block takes less than 6 buckets on average.
//!
//! Omitted blocks, searched for or not, are tried in rounds, a few with every command. A round ends
//! when all of them were refused since the filter last lost a fingerprint.

use crate::buckets::Tag;
use crate::budget::Budget;
use crate::ownership::{Cursor, Held, LINE_SLOTS};
use crate::projection::Projection;

/// Lines of the omitted set that one command may look through for re-admission.
const LINES_PER_COMMAND: u32 = 512;

/// How many full buckets searches for room may still go through. The last search may overdraw it, so
/// a command of `n` blocks goes through `MOST + n * PER_BLOCK + PER_COMMAND` and a search at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SearchCredit(i32);

impl SearchCredit {
    /// What can be saved up for blocks that take more than others.
    const MOST: i32 = 2048;
    /// Granted for a block with full buckets: three times what it takes at 95 % occupancy.
    const PER_BLOCK: i32 = 16;
    /// Granted to a command for omitted blocks.
    const PER_COMMAND: i32 = 128;

    pub(crate) fn grant_for_block(&mut self) {
        self.grant(Self::PER_BLOCK);
    }

    fn grant(&mut self, buckets: i32) {
        self.0 = (self.0 + buckets).min(Self::MOST);
    }

    /// Whether a search may begin.
    pub(crate) fn is_left(self) -> bool {
        self.0 > 0
    }

    /// Takes away what a search went through.
    pub(crate) fn take(&mut self, searched: u32) {
        self.0 = self.0.saturating_sub_unsigned(searched);
    }
}

/// How far the present round has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readmission {
    /// The block that is next.
    cursor: Cursor,
    /// Blocks refused in a row since the round began.
    refused: u64,
}

impl Readmission {
    /// Begins a round: there may be room for blocks that were refused.
    #[inline]
    pub(crate) fn start_anew(&mut self) {
        self.refused = 0;
    }
}

/// What became of one block.
enum Tried {
    Readmitted,
    NoRoom,
    /// There may be some, but no credit is left for the search.
    NoCredit,
    /// There may be some, but no memory to count the block.
    NoMemory,
}

impl Projection {
    /// Tries to find room for up to `limit` omitted blocks; returns how many found it.
    ///
    /// Work is bounded by `limit`, the [credit](SearchCredit), and a number of lines looked at; without
    /// omitted blocks it is one comparison.
    #[inline]
    pub(crate) fn readmit(&mut self, limit: u32, budget: &mut Budget) -> u64 {
        if self.omitted.len() == 0 || self.readmission.refused >= self.omitted.len() {
            return 0;
        }
        self.readmit_some(limit, budget)
    }

    #[cold]
    fn readmit_some(&mut self, limit: u32, budget: &mut Budget) -> u64 {
        self.credit.grant(SearchCredit::PER_COMMAND);
        let mut readmitted = 0;
        'lines: for _ in 0..LINES_PER_COMMAND {
            let mut line = [None; LINE_SLOTS];
            match self.omitted.next_line(&mut self.readmission.cursor) {
                Some(held) => line.iter_mut().zip(held).for_each(|(slot, held)| *slot = Some(held)),
                None => self.readmission.cursor = Cursor::default(),
            }
            for held in line.into_iter().flatten() {
                if readmitted == limit {
                    self.readmission.cursor = Cursor::at(held.place);
                    break 'lines;
                }
                match self.readmit_one(held, budget) {
                    Tried::Readmitted => readmitted += 1,
                    Tried::NoRoom => self.readmission.refused += 1,
                    Tried::NoCredit => {
                        self.readmission.cursor = Cursor::at(held.place);
                        break 'lines;
                    }
                    // The next one may need none.
                    Tried::NoMemory => {
                        self.readmission.cursor = Cursor::after(held.place);
                        break 'lines;
                    }
                }
            }
            if self.readmission.refused >= self.omitted.len() {
                break;
            }
        }
        if readmitted != 0 {
            // Shrinking moves blocks about.
            self.readmission.start_anew();
            self.omitted.shrink(budget);
            self.drop_if_none_omitted(budget);
            self.counters.readmitted += u64::from(readmitted);
        }
        u64::from(readmitted)
    }

    /// A re-admitted block is counted as a shared one, also with one owner: nobody knows which.
    fn readmit_one(&mut self, held: Held, budget: &mut Budget) -> Tried {
        let address = self.table.format().address(self.scramble.block(held.key));
        if self.shared.reserve(held.key, budget).is_err() {
            return Tried::NoMemory;
        }
        if !self.put(&address, Tag::SHARED) {
            if !self.credit.is_left() {
                return Tried::NoCredit;
            }
            if !self.make_place(&address, Tag::SHARED) {
                return Tried::NoRoom;
            }
        }
        let entered = self.shared.enter(held.key, held.count, budget);
        debug_assert!(entered.is_ok(), "there is room for it");
        self.omitted.remove_in_walk(held);
        self.readmission.start_anew();
        Tried::Readmitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership::{HashSeeds, OwnerId, Scramble};
    use ckf_core::{BlockHash, Format};

    /// A set that was large has lines without blocks; a command looks at so many of them only. Each
    /// one of the blocks that are left comes back in its turn.
    #[test]
    fn a_command_walks_past_a_bounded_number_of_lines() {
        let (mut budget, format) = (Budget::new(u64::MAX), Format::any_count(100, 1).unwrap());
        let scramble = Scramble::new(HashSeeds::new([1, 2, 3, 4]));
        let mut filter = Projection::new(format, scramble, &mut budget).unwrap();
        let key = |number| scramble.key(BlockHash::new(number));
        (0..1_000_000)
            .for_each(|number| filter.omitted.enter(key(number), 1, &mut budget).unwrap());
        let left = 40;
        for number in left..1_000_000 {
            assert_eq!(filter.omitted.lose(key(number), &mut budget), Some(0));
        }
        let lines = |filter: &Projection| {
            let mut cursor = Cursor::default();
            core::iter::from_fn(|| filter.omitted.next_line(&mut cursor).map(|_| ())).count()
        };
        let (lines, mut found, mut commands) = (lines(&filter), 0, 0);
        assert!(lines > LINES_PER_COMMAND as usize, "{lines}");
        while filter.omitted.len() != 0 {
            let more = filter.readmit(left as u32, &mut budget);
            assert!(more < left, "all of them lie within one command's lines");
            (found, commands) = (found + more, commands + 1);
        }
        assert_eq!(found, left);
        assert_eq!(commands, lines.div_ceil(LINES_PER_COMMAND as usize));
        let address = |number| format.address(BlockHash::new(number));
        assert!((0..left).all(|number| filter.table.holds(&address(number))));
        assert_eq!(filter.suspects(&address(0)).next(), None::<OwnerId>);
    }
}
