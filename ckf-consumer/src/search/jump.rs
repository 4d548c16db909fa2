//! The fast search: few positions, whose rows are all asked for before any is looked at.
//!
//! For prefixes without holes, a lane holds all positions below its depth and none above, so that
//! its depth can be bisected. What costs is not the looking but the waiting for memory, so the
//! rounds are few and wide:
//!
//! 1. Opening: the first and the last position, and a grid between them, for all lanes at once.
//!    The grid is asked for before it is known to be needed.
//! 2. Each lane that holds the first position is bisected on the grid, without a branch on what
//!    was found: the words are there or on their way.
//! 3. Rounds: each lane's remaining gap gets a grid of its own, of which only that lane's words
//!    are asked for, until no gap is left.

use core::array;
use core::hint::select_unpredictable;

use ckf_core::{Address, BlockHash};

use super::walk::walk;
use super::{Depths, Ground, Search, lanes_of};
use crate::lanes::Scan;

/// Requests that are searched together.
pub(crate) const GROUP: usize = 8;

/// log2 of the parts into which a gap is cut in a round.
const STEPS: u32 = 3;
/// The same for the opening of a long prefix.
const LONG_STEPS: u32 = 4;
/// Positions from which on a prefix is long: more than two rounds of [`STEPS`] can decide.
const LONG: u32 = 66;
/// Gaps that are looked at together.
const GAPS: usize = 8;

/// The bisecting search.
#[derive(Clone, Copy)]
pub(crate) struct Jump<'a, S, const W: usize> {
    pub(crate) ground: Ground<'a, S, W>,
    /// How many positions right before the depth must be held, at least 1.
    pub(crate) window: u32,
}

/// Between a position that a lane holds and one that it misses, or the end.
#[derive(Clone, Copy, Default)]
struct Gap {
    request: u8,
    lane: u8,
    held: u32,
    missed: u32,
}

/// Gaps that wait for a round.
struct Gaps {
    list: [Gap; GAPS],
    len: usize,
}

/// The first look at a prefix.
struct Opening {
    first: Address,
    last: Address,
    /// Between first and last position.
    span: Gap,
    steps: u32,
    /// Where each part of the span begins.
    grid: [Address; 1 << LONG_STEPS],
}

impl<S: Scan, const W: usize> Search for Jump<'_, S, W> {
    /// Looks at some eight to sixteen positions, and at three or four more for each lane whose
    /// depth is neither 0 nor the whole length.
    #[inline(always)]
    fn search(&self, prefix: &[BlockHash], lanes: u64, offset: u32, depths: &mut Depths) -> u64 {
        self.search_group([prefix], lanes, offset, array::from_mut(depths));
        let end = offset + prefix.len() as u32;
        lanes_of(lanes).filter(|&lane| depths[lane] == end).fold(0, |all, lane| all | 1 << lane)
    }

    #[inline(always)]
    fn next_look(&self, position: u32, len: u32) -> u32 {
        let (span, steps) = Self::span(len);
        let mut cuts = (1..1 << steps).map(|part| span.cut(part, steps));
        cuts.find(|&cut| cut > position).unwrap_or(span.missed)
    }
}

impl<S: Scan, const W: usize> Jump<'_, S, W> {
    /// [`search`](Search::search) for several prefixes, whose waiting for memory overlaps.
    #[inline(always)]
    pub(crate) fn search_group<const N: usize>(
        &self,
        prefixes: [&[BlockHash]; N],
        lanes: u64,
        offset: u32,
        depths: &mut [Depths; N],
    ) {
        let openings: [_; N] = array::from_fn(|request| self.open(prefixes[request]));
        let mut gaps = Gaps { list: [Gap::default(); GAPS], len: 0 };
        for (request, opening) in openings.iter().enumerate() {
            let Some(opening) = opening else { continue };
            for lane in lanes_of(self.holders_of_first(opening, lanes)) {
                let gap = Gap { request: request as u8, lane: lane as u8, ..opening.span };
                let held = |part: usize| self.ground.rows.holds(&opening.grid[part], lane);
                let gap = gap.bisected(opening.steps, held);
                let whole = gap.missed == opening.span.missed
                    && self.ground.rows.holds(&opening.last, lane);
                if whole {
                    depths[request][lane] = offset + gap.missed + 1;
                } else if gap.is_closed() {
                    depths[request][lane] = offset + gap.held + 1;
                } else {
                    gaps.list[gaps.len] = gap;
                    gaps.len += 1;
                    if gaps.len == GAPS {
                        self.close(&mut gaps, &prefixes, offset, depths);
                    }
                }
            }
        }
        self.close(&mut gaps, &prefixes, offset, depths);
        if self.window > 1 {
            for (prefix, depths) in prefixes.iter().zip(depths) {
                self.verify(prefix, lanes, offset, depths);
            }
        }
    }

    /// From the first to the last of `len` positions, and log2 of the parts of the first look.
    #[inline(always)]
    fn span(len: u32) -> (Gap, u32) {
        let span = Gap { missed: len.saturating_sub(1), ..Gap::default() };
        let most = match len {
            // A grid of rows of many lines costs more than the round that it saves.
            _ if W > 16 => 0,
            LONG.. => LONG_STEPS,
            _ => STEPS,
        };
        (span, span.unknown_bits().min(most))
    }

    /// Asks for all that the first look at a prefix needs. `None` for an empty one.
    #[inline(always)]
    fn open(&self, prefix: &[BlockHash]) -> Option<Opening> {
        let Ground { rows, format, .. } = self.ground;
        let (span, steps) = Self::span(prefix.len() as u32);
        let first = format.address(*prefix.first()?);
        rows.fetch(&first);
        let last = format.address(*prefix.last()?);
        rows.fetch(&last);
        let mut opening = Opening { first, last, span, steps, grid: [first; 1 << LONG_STEPS] };
        for part in breadth_first(steps) {
            let address = format.address(prefix[span.cut(part, steps) as usize]);
            rows.fetch(&address);
            opening.grid[part as usize] = address;
        }
        Some(opening)
    }

    /// Of `lanes`, those that hold the first position.
    #[inline(always)]
    fn holders_of_first(&self, opening: &Opening, lanes: u64) -> u64 {
        self.ground.rows.holders(self.ground.scan, &opening.first, lanes) & lanes
    }

    /// Rounds, until no gap is left.
    #[inline(always)]
    fn close<const N: usize>(
        &self,
        gaps: &mut Gaps,
        prefixes: &[&[BlockHash]; N],
        offset: u32,
        depths: &mut [Depths; N],
    ) {
        let Ground { rows, format, .. } = self.ground;
        while gaps.len > 0 {
            let waiting = core::mem::take(&mut gaps.len);
            let Some(&filler) = prefixes[usize::from(gaps.list[0].request)].first() else { return };
            let mut grids = [[format.address(filler); 1 << STEPS]; GAPS];
            for (gap, grid) in gaps.list[..waiting].iter().zip(&mut grids) {
                let prefix = prefixes[usize::from(gap.request)];
                let steps = gap.unknown_bits().min(STEPS);
                for part in breadth_first(steps) {
                    let address = format.address(prefix[gap.cut(part, steps) as usize]);
                    rows.fetch_lane(&address, usize::from(gap.lane));
                    grid[part as usize] = address;
                }
            }
            for (index, grid) in grids[..waiting].iter().enumerate() {
                let gap = gaps.list[index];
                let lane = usize::from(gap.lane);
                let steps = gap.unknown_bits().min(STEPS);
                let gap = gap.bisected(steps, |part| rows.holds(&grid[part], lane));
                if gap.is_closed() {
                    depths[usize::from(gap.request)][lane] = offset + gap.held + 1;
                } else {
                    gaps.list[gaps.len] = gap;
                    gaps.len += 1;
                }
            }
        }
    }

    /// Looks at the window before each depth; a lane that misses a position there is walked.
    fn verify(&self, prefix: &[BlockHash], lanes: u64, offset: u32, depths: &mut Depths) {
        let Ground { rows, format, .. } = self.ground;
        // The position right before the depth was looked at already.
        let window = |depth: u32| {
            let end = (depth - offset).saturating_sub(1) as usize;
            end.saturating_sub(self.window as usize - 1)..end
        };
        for lane in lanes_of(lanes) {
            for &hash in &prefix[window(depths[lane])] {
                rows.fetch_lane(&format.address(hash), lane);
            }
        }
        for lane in lanes_of(lanes) {
            let window = window(depths[lane]);
            let missed = window.clone().find(|&at| !rows.holds(&format.address(prefix[at]), lane));
            if let Some(missed) = missed {
                depths[lane] = offset;
                walk(self.ground).search(&prefix[..missed], 1 << lane, offset, depths);
            }
        }
    }
}

impl Gap {
    /// Bits of the number of positions whose state is unknown.
    #[inline(always)]
    fn unknown_bits(&self) -> u32 {
        u32::BITS - self.missed.saturating_sub(self.held + 1).leading_zeros()
    }

    /// Whether nothing is unknown.
    #[inline(always)]
    fn is_closed(&self) -> bool {
        self.missed <= self.held + 1
    }

    /// Where part `part` of two to the `steps` begins: part 0 at `held`, the last one ends at
    /// `missed`.
    #[inline(always)]
    fn cut(&self, part: u32, steps: u32) -> u32 {
        let len = u64::from(self.missed - self.held);
        self.held + ((len * u64::from(part)) >> steps) as u32
    }

    /// The part that is left, given which parts' beginnings are held. No branch depends on what
    /// `held` says, so that the words it reads are waited for only one after the other, never
    /// guessed and taken back.
    #[inline(always)]
    fn bisected(self, steps: u32, held: impl Fn(usize) -> bool) -> Self {
        let part = (0..steps).rev().fold(0, |part, step| {
            let next = part + (1 << step);
            select_unpredictable(held(next as usize), next, part)
        });
        Self { held: self.cut(part, steps), missed: self.cut(part + 1, steps), ..self }
    }
}

/// The inner cuts of two to the `steps` parts: the middle one, then the middles of the halves, and
/// so on.
#[inline(always)]
fn breadth_first(steps: u32) -> impl Iterator<Item = u32> {
    (0..steps).rev().flat_map(move |step| (1 << step..1 << steps).step_by(2 << step))
}
