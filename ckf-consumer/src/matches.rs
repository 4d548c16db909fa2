//! The answer of a query: pools, depths, best.

use core::fmt;

use ckf_protocol::{DcId, Lane};

use crate::LaneMask;

/// What a query found, by lane. A lane that was not ready is absent, which is not depth 0.
#[derive(Clone, Copy)]
pub struct Matches {
    pub(crate) ready: LaneMask,
    pub(crate) len: usize,
    pub(crate) depths: [u32; Lane::MAX_COUNT],
    pub(crate) dcs: [u64; Lane::MAX_COUNT],
}

/// As [`find_prefix_into`](crate::QueryHandle::find_prefix_into) says.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Matches>() == 784);

impl Matches {
    /// An answer about no lanes, to be filled by
    /// [`find_prefix_into`](crate::QueryHandle::find_prefix_into).
    pub const NONE: Self = Self {
        ready: LaneMask::EMPTY,
        len: 0,
        depths: [0; Lane::MAX_COUNT],
        dcs: [0; Lane::MAX_COUNT],
    };

    /// The lanes that were asked.
    pub fn ready(&self) -> LaneMask {
        self.ready
    }

    /// Blocks asked for.
    pub fn asked(&self) -> usize {
        self.len
    }

    /// Leading blocks that the lane's pool holds; `None` for a lane that was not ready.
    pub fn depth(&self, lane: Lane) -> Option<u32> {
        self.ready.contains(lane).then(|| self.depths[lane.to_usize()])
    }

    /// The data center in the lane when the query ran; `None` for a lane that was not ready.
    pub fn dc(&self, lane: Lane) -> Option<DcId> {
        self.ready.contains(lane).then(|| DcId::new(self.dcs[lane.to_usize()]))
    }

    /// Lane, data center and depth of each ready lane, by lane.
    pub fn iter(&self) -> impl Iterator<Item = (Lane, DcId, u32)> + '_ {
        self.ready.iter().map(|lane| {
            let at = lane.to_usize();
            (lane, DcId::new(self.dcs[at]), self.depths[at])
        })
    }

    /// The greatest depth of a ready lane; `None` when no lane was ready.
    pub fn best_depth(&self) -> Option<u32> {
        self.iter().map(|(.., depth)| depth).max()
    }

    /// The lanes of the greatest depth; all ready lanes when none holds anything.
    pub fn best(&self) -> LaneMask {
        let best = self.best_depth();
        self.iter().filter(|&(.., depth)| Some(depth) == best).map(|(lane, ..)| lane).collect()
    }
}

/// Equal when the same lanes were asked and found the same.
impl PartialEq for Matches {
    fn eq(&self, other: &Self) -> bool {
        self.ready == other.ready && self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Matches {}

impl fmt::Debug for Matches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
