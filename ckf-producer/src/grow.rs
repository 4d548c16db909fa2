//! Layout generations: the filter in another format, rebuilt from exact state.

use ckf_core::{AllocationError, Format};
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
    /// Cost: in one go, a few memory accesses an ownership, some 50 to 100 ms a million. Old
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
        if let Err(refused) = self.fill(&mut fresh) {
            fresh.release(&mut self.budget);
            return Err(refused.into());
        }
        fresh.continue_counters(&self.projection);
        fresh.publish_all();
        let digest = fresh.digest();
        core::mem::replace(&mut self.projection, fresh).release(&mut self.budget);
        self.position = Position { sequence, digest };
        self.layout = layout;
        self.occupancy = Occupancy::new(format, self.config.occupancy_level());
        self.occupancy.note(self.projection.distinct());
        Ok(layout)
    }

    /// Enters every owned block into an empty projection.
    fn fill(&mut self, fresh: &mut Projection) -> Result<(), AllocationError> {
        let (ownership, former, budget) = (&self.ownership, &self.projection, &mut self.budget);
        for held in former.shared().iter().chain(former.omitted().iter()) {
            fresh.adopt_counted(held, budget)?;
        }
        for (_, at, blocks) in ownership.members() {
            for held in blocks.iter().filter(|held| former.counted(held.key).is_none()) {
                fresh.adopt_sole(at, held.key, budget)?;
            }
        }
        Ok(())
    }
}
