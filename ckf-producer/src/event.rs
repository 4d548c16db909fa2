//! What a pool tells its host unasked.

use ckf_core::{Format, Sizing};

use crate::buckets::PoolTable;
use crate::error::Violation;

/// An event of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolEvent {
    /// More blocks are owned than fill the filter to the configured level: time to [grow](crate::Pool::grow) it. Told
    /// once, and again only after occupancy has fallen a twentieth of the slots below the level.
    OccupancyCrossed {
        /// Occupancy now, per mille of the slots.
        per_mille: u16,
        /// Distinct blocks owned, omitted ones included.
        blocks: u64,
        /// Buckets at which these blocks would fill the filter to 60 %. A filter of power-of-two
        /// indexing takes the next power of two.
        suggested_buckets: u32,
    },
    /// The pool's exact state is suspect: it takes no commands and publishes nothing until the
    /// host replaces it by a new pool under a new incarnation.
    Fenced {
        /// What does not hold.
        violation: Violation,
    },
}

/// Target load of a suggested size, per mille.
const SUGGESTED_LOAD: u16 = 600;

/// Watches the filter's occupancy. It counts what should be in the filter, omitted blocks included:
/// a filter that refuses never gets full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupancy {
    level: u64,
    rearm_below: u64,
    armed: bool,
    pending: bool,
}

impl Occupancy {
    pub(crate) fn new(format: Format, level_per_mille: u16) -> Self {
        let slots = format.slot_count();
        let level = (slots * u64::from(level_per_mille)).div_ceil(1000);
        let rearm_below = level.saturating_sub(slots / 20);
        Self { level, rearm_below, armed: true, pending: false }
    }

    #[inline]
    pub(crate) fn note(&mut self, blocks: u64) {
        if self.armed && blocks >= self.level {
            self.armed = false;
            self.pending = true;
        } else if !self.armed && blocks < self.rearm_below {
            self.armed = true;
            self.pending = false;
        }
    }

    pub(crate) fn poll(&mut self, table: &PoolTable, blocks: u64) -> Option<PoolEvent> {
        if !core::mem::take(&mut self.pending) {
            return None;
        }
        let sizing = Sizing::for_blocks(blocks, SUGGESTED_LOAD);
        Some(PoolEvent::OccupancyCrossed {
            per_mille: table.load_per_mille(),
            blocks,
            suggested_buckets: sizing.map_or(Format::MAX_BUCKETS, |sizing| sizing.bucket_count()),
        })
    }
}
