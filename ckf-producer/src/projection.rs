//! The filter as a projection of exact ownership, and the blocks that it has no room for.

use ckf_core::{Address, AllocationError, Format, Table};

use crate::budget::Budget;
use crate::dirty::Dirty;
use crate::error::Violation;
use crate::ownership::{CountedSet, Cursor, Held, Key, LINE_SLOTS, Scramble};

/// Searches for room that one command may waste on re-admission before it leaves it at that.
const FRUITLESS_PER_COMMAND: u32 = 2;
/// Lines of the omitted set that one command may look through for re-admission.
const LINES_PER_COMMAND: u32 = 512;

/// Filter, dirty buckets and omissions. The filter holds exactly one copy of the fingerprint of
/// each owned block that is not in `omitted`.
#[derive(Clone, Debug)]
pub(crate) struct Projection {
    pub(crate) table: Table,
    pub(crate) dirty: Dirty,
    omitted: CountedSet,
    scramble: Scramble,
    /// Where the next re-admission looks.
    cursor: Cursor,
    /// Refused re-admissions in a row, since the last change that could have made room.
    fruitless: u64,
    counters: FilterCounters,
}

/// Counters over the life of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FilterCounters {
    pub(crate) kicks: u64,
    pub(crate) refused: u64,
    pub(crate) readmitted: u64,
}

/// What became of a block's fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    Stored,
    Omitted,
}

impl Projection {
    /// An empty filter.
    pub(crate) fn new(
        format: Format,
        scramble: Scramble,
        budget: &mut Budget,
    ) -> Result<Self, AllocationError> {
        let table = charged_table(format, budget)?;
        let dirty = match Dirty::new(&table, budget) {
            Ok(dirty) => dirty,
            Err(refused) => {
                budget.discharge(format.table_bytes());
                return Err(refused);
            }
        };
        Ok(Self {
            table,
            dirty,
            omitted: CountedSet::new(),
            scramble,
            cursor: Cursor::default(),
            fruitless: 0,
            counters: FilterCounters::default(),
        })
    }

    /// Gives all memory back.
    pub(crate) fn release(self, budget: &mut Budget) {
        budget.discharge(self.table.format().table_bytes());
        self.dirty.release(budget);
        self.omitted.release(budget);
    }

    pub(crate) fn omitted(&self) -> &CountedSet {
        &self.omitted
    }

    pub(crate) fn counters(&self) -> FilterCounters {
        self.counters
    }

    /// Continues the counters of a former projection.
    pub(crate) fn continue_counters(&mut self, former: &Self) {
        self.counters.kicks += former.counters.kicks;
        self.counters.refused += former.counters.refused;
        self.counters.readmitted += former.counters.readmitted;
    }

    /// Enters a block that got its first owner. Without room for it in the filter it is remembered
    /// as omitted.
    ///
    /// # Errors
    /// [`AllocationError`] when even that is refused; nothing has changed then.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        key: Key,
        address: &Address,
        budget: &mut Budget,
    ) -> Result<Placed, AllocationError> {
        let dirty = &mut self.dirty;
        match self.table.insert(address, |change| dirty.mark(&change)) {
            Ok(moves) => {
                self.counters.kicks += u64::from(moves);
                Ok(Placed::Stored)
            }
            Err(_full) => self.omit(key, budget),
        }
    }

    #[cold]
    fn omit(&mut self, key: Key, budget: &mut Budget) -> Result<Placed, AllocationError> {
        self.omitted.reserve(key, budget)?;
        self.omitted.insert(key, 1);
        self.counters.refused += 1;
        // The set may have grown and moved blocks about, so the round starts anew.
        self.fruitless = 0;
        Ok(Placed::Omitted)
    }

    /// Takes a block out that lost its last owner: out of the filter, or off the omitted ones.
    #[inline]
    pub(crate) fn remove(
        &mut self,
        key: Key,
        address: &Address,
        budget: &mut Budget,
    ) -> Result<(), Violation> {
        if self.omitted.len() != 0 && self.forget_omitted(key, budget) {
            return Ok(());
        }
        let dirty = &mut self.dirty;
        if self.table.remove(address, |change| dirty.mark(&change)) {
            self.fruitless = 0;
            Ok(())
        } else {
            Err(Violation::Filter)
        }
    }

    fn forget_omitted(&mut self, key: Key, budget: &mut Budget) -> bool {
        let Some(place) = self.omitted.find(key) else { return false };
        self.omitted.remove(key, place, budget);
        self.fruitless = 0;
        self.drop_if_none_omitted(budget);
        true
    }

    fn drop_if_none_omitted(&mut self, budget: &mut Budget) {
        if self.omitted.len() == 0 {
            core::mem::replace(&mut self.omitted, CountedSet::new()).release(budget);
            self.cursor = Cursor::default();
        }
    }

    /// Tries to find room for up to `limit` omitted blocks; returns how many found it.
    ///
    /// Goes round the omitted blocks from command to command, until none of them has found room
    /// since the filter last lost a fingerprint. Work is bounded by `limit`, a few refused searches,
    /// and a number of lines looked at; without omitted blocks it is one comparison.
    #[inline]
    pub(crate) fn readmit(&mut self, limit: u32, budget: &mut Budget) -> u64 {
        if self.omitted.len() == 0 || self.fruitless >= self.omitted.len() {
            return 0;
        }
        self.readmit_some(limit, budget)
    }

    #[cold]
    fn readmit_some(&mut self, limit: u32, budget: &mut Budget) -> u64 {
        let (mut readmitted, mut fruitless) = (0, 0);
        'lines: for _ in 0..LINES_PER_COMMAND {
            let (here, mut line) = (self.cursor, [None; LINE_SLOTS]);
            match self.omitted.next_line(&mut self.cursor) {
                Some(held) => line.iter_mut().zip(held).for_each(|(slot, held)| *slot = Some(held)),
                None => self.cursor = Cursor::default(),
            }
            for held in line.into_iter().flatten() {
                if readmitted == limit || fruitless == FRUITLESS_PER_COMMAND {
                    self.cursor = here;
                    break 'lines;
                }
                if self.readmit_one(held) {
                    readmitted += 1;
                } else {
                    fruitless += 1;
                }
            }
            if self.fruitless >= self.omitted.len() {
                break;
            }
        }
        if readmitted != 0 {
            // Shrinking moves blocks about, so the round starts anew.
            self.fruitless = 0;
            self.omitted.shrink(budget);
            self.drop_if_none_omitted(budget);
            self.counters.readmitted += u64::from(readmitted);
        }
        u64::from(readmitted)
    }

    fn readmit_one(&mut self, held: Held) -> bool {
        let address = self.table.format().address(self.scramble.block(held.key));
        let dirty = &mut self.dirty;
        match self.table.insert(&address, |change| dirty.mark(&change)) {
            Ok(moves) => {
                self.counters.kicks += u64::from(moves);
                self.omitted.remove_in_walk(held.key, held.place);
                self.fruitless = 0;
                true
            }
            Err(_full) => {
                self.fruitless += 1;
                false
            }
        }
    }
}

/// An empty table whose memory is taken from the budget.
fn charged_table(format: Format, budget: &mut Budget) -> Result<Table, AllocationError> {
    budget.charge(format.table_bytes())?;
    Table::new(format).inspect_err(|_| budget.discharge(format.table_bytes()))
}
