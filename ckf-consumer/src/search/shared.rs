//! Gaps that several lanes share, as at the end of a system prompt that every data center holds.
//!
//! They go through the gap together: whole rows are asked for at its cuts, and looked at in order,
//! as in an opening. Where lanes part, each group has a smaller gap, until the groups are so small
//! that each lane goes on alone.

use core::ops::Range;

use ckf_core::Addresser;

use super::gaps::{Along, Gap, Gaps};
use super::jump::Jump;
use super::{Depths, record};
use crate::lanes::Scan;
use crate::row::{LINE_WORDS, Shape, Spot};

/// Shared gaps that wait together. Lanes of further ones go on alone.
const QUEUE: usize = 8;

/// A gap that several lanes share, and the rows at its cuts into `P` parts, on their way.
#[derive(Clone, Copy)]
pub(super) struct SharedGap<const P: usize> {
    lanes: u64,
    gap: Gap,
    cuts: [Spot; P],
}

/// Shared gaps, first in, first out.
pub(super) struct Shared<const P: usize> {
    queue: [SharedGap<P>; QUEUE],
    first: usize,
    len: usize,
}

impl<S: Scan, A: Addresser, R: Shape> Jump<'_, S, A, R> {
    /// Most lanes with the same gap that go on alone. A row has a line for every eight lanes.
    #[inline(always)]
    pub(super) fn apart(&self) -> u32 {
        (self.ground.rows.shape.width() / LINE_WORDS).max(1) as u32
    }

    /// Asks for the rows at the cuts of a gap. There must be room for it.
    #[inline(always)]
    pub(super) fn share<const N: usize, const P: usize>(
        &self,
        request: usize,
        lanes: u64,
        range: Range<u32>,
        along: &Along<'_, N>,
        shared: &mut Shared<P>,
        depths: &mut Depths,
    ) {
        record(depths, lanes, along.base + range.start);
        let gap = Gap { request: request as u16, lane: 0, held: range.start, missed: range.end };
        let entry = &mut shared.queue[(shared.first + shared.len) % QUEUE];
        (entry.lanes, entry.gap) = (lanes, gap);
        for part in 1..P {
            let position = gap.cut(part as u32, P.ilog2());
            let address = self.ground.addresser.address(along.prefixes[request][position as usize]);
            self.ground.rows.fetch_lanes(&address, lanes);
            entry.cuts[part] = Spot::of(&address);
        }
        shared.len += 1;
    }

    /// Looks at the cuts of a shared gap, and takes what is left of it into the gaps.
    #[inline(always)]
    pub(super) fn part_shared<const N: usize, const G: usize, const P: usize>(
        &self,
        &SharedGap { lanes, gap, ref cuts }: &SharedGap<P>,
        along: &Along<'_, N>,
        gaps: &mut Gaps<G, P>,
        waiting: usize,
        depths: &mut [Depths; N],
    ) -> usize {
        let (request, range) = (usize::from(gap.request), gap.held..gap.missed);
        let at = |part| gap.cut(part, P.ilog2());
        self.part_at(request, lanes, range, &cuts[1..], at, along, gaps, waiting, depths)
    }
}

impl<const P: usize> Shared<P> {
    pub(super) const NONE: Self = {
        let gap = Gap { request: 0, lane: 0, held: 0, missed: 0 };
        let cuts = [Spot { first: 0, second: 0, fingerprint: 0 }; P];
        Self { queue: [SharedGap { lanes: 0, gap, cuts }; QUEUE], first: 0, len: 0 }
    };

    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        self.len < QUEUE
    }

    /// Takes the gap that waits longest.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<SharedGap<P>> {
        if self.len == 0 {
            return None;
        }
        let taken = self.queue[self.first];
        (self.first, self.len) = ((self.first + 1) % QUEUE, self.len - 1);
        Some(taken)
    }
}
