//! The fast search for several requests: by halves, all at once.
//!
//! A request alone waits for memory, so [`Jump::search`] asks for more than it needs to wait less
//! often. Several requests wait together, and then what costs is how much is asked for at all. So
//! each asks for its first, its middle and its last position, for all lanes, and what is left to
//! find out about single lanes is halved round by round.

use ckf_core::{Addresser, BlockHash};

use super::Depths;
use super::gaps::{Along, Gaps};
use super::jump::Jump;
use crate::lanes::Scan;
use crate::row::{Shape, Spot};

/// Requests that are searched together.
pub(crate) const GROUP: usize = 8;
/// Gaps that wait together.
const GAPS: usize = 32;

impl<S: Scan, A: Addresser, R: Shape> Jump<'_, S, A, R> {
    /// [`search`](Jump::search) for several prefixes, whose waiting overlaps.
    #[inline(always)]
    pub(crate) fn search_many(
        &self,
        prefixes: [&[BlockHash]; GROUP],
        lanes: u64,
        depths: &mut [Depths; GROUP],
    ) {
        let mut looks = [[Spot::default(); 3]; GROUP];
        for (prefix, looks) in prefixes.iter().zip(&mut looks) {
            if let (Some(&first), Some(&last)) = (prefix.first(), prefix.last()) {
                let middle = prefix[middle(prefix)];
                let at = |hash| self.fetched(hash, lanes);
                *looks = [at(first), at(middle), at(last)];
            }
        }
        let along = Along { prefixes, base: 1 };
        let (mut gaps, mut waiting) = (Gaps::<GAPS, 2>::NONE, 0);
        for request in 0..GROUP {
            let [first, between, last] = &looks[request];
            let len = prefixes[request].len() as u32;
            if len == 0 {
                self.ground.clear(&mut depths[request]);
                continue;
            }
            let middle = middle(prefixes[request]) as u32;
            let (whole, alive) = self.enter(&[*first, *last], lanes, len, &mut depths[request]);
            let held = self.holders(between, whole | alive);
            let lower = (whole | alive) & !held;
            for (lanes, range) in [(lower, 0..middle), (alive & held, middle..len - 1)] {
                waiting = self.part(request, lanes, range, &along, &mut gaps, waiting, depths);
            }
        }
        self.close(&along, &mut gaps, waiting, depths);
        if self.window > 1 {
            for (prefix, depths) in prefixes.iter().zip(depths) {
                self.verify(prefix, lanes, depths);
            }
        }
    }
}

/// The position in the middle of a prefix that is not empty.
#[inline(always)]
fn middle(prefix: &[BlockHash]) -> usize {
    (prefix.len() - 1) / 2
}
