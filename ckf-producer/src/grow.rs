//! Layout generations: the filter in another format, rebuilt from exact state.

use ckf_core::{Format, TableDigest};
use ckf_protocol::LayoutGeneration;

use crate::batch::Position;
use crate::event::Occupancy;
use crate::projection::Projection;
use crate::{GrowError, Pool};

impl Pool {
    /// Gives the filter another bucket count, seed or indexing: a new layout generation.
    ///
    /// The new filter is filled from exact ownership, so nothing is lost, and blocks that were
    /// omitted are tried again. It starts as its own published state under the next sequence
    /// number: every subscriber needs a fresh snapshot, and there is no batch that leads to it.
    /// Pending changes are part of it.
    ///
    /// Cost: in one go, two memory accesses a distinct block, some 50 to 100 ms a million. Old
    /// and new filter are held at the same time.
    ///
    /// # Errors
    /// [`GrowError`]; then nothing has changed.
    pub fn grow(&mut self, format: Format) -> Result<LayoutGeneration, GrowError> {
        self.fence_state()?;
        let exhausted = GrowError::NumbersExhausted;
        let layout = self.layout.checked_next().ok_or(exhausted)?;
        let sequence = self.position.sequence.checked_next().ok_or(exhausted)?;

        let scramble = *self.ownership.scramble();
        let mut fresh = Projection::new(format, scramble, &mut self.budget)?;
        for held in self.ownership.refcounts().iter() {
            let address = format.address(scramble.block(held.key));
            if let Err(refused) = fresh.insert(held.key, &address, &mut self.budget) {
                fresh.release(&mut self.budget);
                return Err(refused.into());
            }
        }
        fresh.continue_counters(&self.projection);
        fresh.dirty.publish(&fresh.table);
        let digest = TableDigest::of_words(fresh.table.words());
        core::mem::replace(&mut self.projection, fresh).release(&mut self.budget);
        self.position = Position { sequence, digest };
        self.layout = layout;
        self.occupancy = Occupancy::new(format, self.config.occupancy_level());
        self.occupancy.note(self.projection.table.stored());
        Ok(layout)
    }
}
