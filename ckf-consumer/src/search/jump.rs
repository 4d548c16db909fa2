//! The fast search: few positions, whose rows are all asked for before any is looked at.
//!
//! For prefixes without holes, a lane holds all positions below its depth and none above, so few
//! positions tell where that is. What costs is not the looking but the waiting for memory, so the
//! looks are few and wide:
//!
//! 1. Opening: the first position, every eighth or so, and the last one, for all lanes at once.
//!    All of them are asked for before it is known which are needed.
//! 2. They are looked at in order. A lane that is missed at one of them has a gap: between there
//!    and the look before, where it was held.
//! 3. Rounds: each gap is cut into eight parts, and only that lane's words are asked for at the
//!    cuts; they are looked at when all gaps are known. Prompts of up to 128 blocks are decided
//!    then; longer ones take a round more for every factor of eight.

use core::hint::select_unpredictable;

use ckf_core::BlockHash;

use super::{Depths, Ground, lanes_of, walk};
use crate::lanes::Scan;
use crate::row::Spot;

/// Requests that are searched together.
pub(crate) const GROUP: usize = 8;

/// log2 of the parts into which a gap is cut.
const STEPS: u32 = 3;
/// Most looks of an opening between the first and the last one.
const LOOKS: usize = 15;
/// Gaps that wait for their words together.
const GAPS: usize = 16;

/// The search by few looks.
#[derive(Clone, Copy)]
pub(crate) struct Jump<'a, S, const W: usize> {
    pub(crate) ground: Ground<'a, S, W>,
    /// How many positions right before the depth must be held, at least 1.
    pub(crate) window: u32,
}

/// The looks of the opening, on their way.
#[derive(Clone, Copy, Default)]
struct Opening {
    first: Spot,
    /// Every position that is a multiple of the stride, from the stride on.
    between: [Spot; LOOKS],
    last: Spot,
    /// log2 of the stride.
    stride: u32,
    looks: u32,
}

/// Between a position that a lane holds and one that it misses.
#[derive(Clone, Copy, Default)]
struct Gap {
    request: u16,
    lane: u16,
    held: u32,
    missed: u32,
}

/// Gaps, and the words at their cuts, on their way.
pub(super) struct Gaps {
    list: [Gap; GAPS],
    /// Where the parts of each gap begin, from the second one on.
    cuts: [[Spot; 1 << STEPS]; GAPS],
    len: usize,
    /// Depth of a lane that holds position 0 and misses position 1.
    pub(super) base: u32,
}

// No closure is given to the standard library in what follows: it would be compiled on its own,
// for any processor, and called for every position.
impl<S: Scan, const W: usize> Jump<'_, S, W> {
    /// Finds, for each of `lanes`, how many blocks of each prefix from the start it holds; the
    /// depths are 0 before. The waiting of all prefixes overlaps.
    #[inline(always)]
    pub(crate) fn search<const N: usize>(
        &self,
        prefixes: [&[BlockHash]; N],
        lanes: u64,
        depths: &mut [Depths; N],
    ) {
        let mut openings = [Opening::default(); N];
        for request in 0..N {
            self.open(prefixes[request], &mut openings[request]);
        }
        let mut gaps = Gaps::none(1);
        for request in 0..N {
            self.look(request, &openings[request], lanes, &prefixes, &mut gaps, depths);
        }
        self.close(&mut gaps, &prefixes, depths);
        if self.window > 1 {
            for request in 0..N {
                self.verify(prefixes[request], lanes, 0, &mut depths[request]);
            }
        }
    }

    /// Asks for all looks of the opening.
    #[inline(always)]
    fn open(&self, prefix: &[BlockHash], opening: &mut Opening) {
        let (Some(&first), Some(&last)) = (prefix.first(), prefix.last()) else { return };
        opening.first = self.fetched(first);
        let inner = (prefix.len() - 1) as u32;
        opening.stride = stride::<W>(inner);
        let mut position = 1 << opening.stride;
        while position < inner {
            let spot = self.fetched(prefix[position as usize]);
            opening.between[opening.looks as usize] = spot;
            opening.looks += 1;
            position += 1 << opening.stride;
        }
        opening.last = self.fetched(last);
    }

    /// Looks at what the opening asked for, in order, and asks for the gaps.
    #[inline(always)]
    fn look<const N: usize>(
        &self,
        request: usize,
        opening: &Opening,
        lanes: u64,
        prefixes: &[&[BlockHash]; N],
        gaps: &mut Gaps,
        depths: &mut [Depths; N],
    ) {
        let Some(inner) = prefixes[request].len().checked_sub(1) else { return };
        let mut alive = self.holders(&opening.first, lanes);
        let mut before = 0;
        for look in 0..opening.looks as usize {
            if alive == 0 {
                return;
            }
            let held = self.holders(&opening.between[look], alive);
            let here = before + (1 << opening.stride);
            self.part(request, alive & !held, before, here, prefixes, gaps, depths);
            (alive, before) = (held, here);
        }
        let whole = self.holders(&opening.last, alive);
        self.part(request, alive & !whole, before, inner as u32, prefixes, gaps, depths);
        for lane in lanes_of(whole) {
            depths[request][lane] = inner as u32 + 1;
        }
    }

    /// Takes lanes that hold one position and miss a later one into the gaps.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "inlined; they are the state of one search")]
    pub(super) fn part<const N: usize>(
        &self,
        request: usize,
        lanes: u64,
        held: u32,
        missed: u32,
        prefixes: &[&[BlockHash]; N],
        gaps: &mut Gaps,
        depths: &mut [Depths; N],
    ) {
        for lane in lanes_of(lanes) {
            let gap = Gap { request: request as u16, lane: lane as u16, held, missed };
            depths[request][lane] = gaps.base + held;
            if gap.is_open() {
                if gaps.len == GAPS {
                    self.close(gaps, prefixes, depths);
                }
                self.ask(gaps, gap, prefixes);
            }
        }
    }

    /// Where a block lies; its rows are asked for.
    #[inline(always)]
    pub(super) fn fetched(&self, hash: BlockHash) -> Spot {
        let address = self.ground.addressing.address(hash);
        self.ground.rows.fetch(&address);
        Spot::of(&address)
    }

    /// Of `lanes`, those that hold the block.
    #[inline(always)]
    pub(super) fn holders(&self, spot: &Spot, lanes: u64) -> u64 {
        self.ground.rows.holders(self.ground.scan, spot, lanes) & lanes
    }

    /// Asks for the words of a gap; there is room for it.
    #[inline(always)]
    fn ask<const N: usize>(&self, gaps: &mut Gaps, gap: Gap, prefixes: &[&[BlockHash]; N]) {
        let prefix = prefixes[usize::from(gap.request)];
        // Always all parts, also of a small gap: looking at a position twice costs less than
        // guessing how many there are. First those that are looked at first.
        for part in [4, 2, 6, 1, 3, 5, 7] {
            let address = self.ground.addressing.address(prefix[gap.cut(part) as usize]);
            self.ground.rows.fetch_lane(&address, usize::from(gap.lane));
            gaps.cuts[gaps.len][part as usize] = Spot::of(&address);
        }
        gaps.list[gaps.len] = gap;
        gaps.len += 1;
    }

    /// Rounds, until no gap is left.
    #[inline(always)]
    pub(super) fn close<const N: usize>(
        &self,
        gaps: &mut Gaps,
        prefixes: &[&[BlockHash]; N],
        depths: &mut [Depths; N],
    ) {
        while gaps.len > 0 {
            let waiting = core::mem::take(&mut gaps.len);
            for index in 0..waiting {
                let gap = self.bisected(gaps.list[index], &gaps.cuts[index]);
                depths[usize::from(gap.request)][usize::from(gap.lane)] =
                    gaps.base + gap.held;
                if gap.is_open() {
                    self.ask(gaps, gap, prefixes);
                }
            }
        }
    }

    /// The part of a gap that is left. No branch depends on what the words say, so that they are
    /// waited for only one after the other, never guessed and taken back.
    #[inline(always)]
    fn bisected(&self, gap: Gap, cuts: &[Spot; 1 << STEPS]) -> Gap {
        let lane = usize::from(gap.lane);
        let mut part = 0;
        for step in (0..STEPS).rev() {
            let next = part + (1 << step);
            let held = self.ground.rows.holds(&cuts[next as usize], lane);
            part = select_unpredictable(held, next, part);
        }
        Gap { held: gap.cut(part), missed: gap.cut(part + 1), ..gap }
    }

    /// Looks at the window before the depth of each of `lanes`; a lane that misses a position
    /// there is walked. `offset` is the number of blocks before `prefix`.
    pub(super) fn verify(&self, prefix: &[BlockHash], lanes: u64, offset: u32, depths: &mut Depths) {
        let Ground { rows, addressing, .. } = self.ground;
        // The position right before the depth was looked at already.
        let window = |depth: u32| {
            let end = (depth - offset).saturating_sub(1) as usize;
            end.saturating_sub(self.window as usize - 1)..end
        };
        for lane in lanes_of(lanes) {
            for &hash in &prefix[window(depths[lane])] {
                rows.fetch_lane(&addressing.address(hash), lane);
            }
        }
        for lane in lanes_of(lanes) {
            let missed = window(depths[lane])
                .find(|&at| !rows.holds(&Spot::of(&addressing.address(prefix[at])), lane));
            if let Some(missed) = missed {
                depths[lane] = offset;
                walk(self.ground, prefix[..missed].iter().copied(), 1 << lane, offset, depths);
            }
        }
    }
}

/// log2 of the distance between the looks of an opening, of which the last one is at `inner`. As
/// small as the number of looks allows, but not below eight where more than seven would be needed:
/// what is left between them is decided in one round.
#[inline(always)]
fn stride<const W: usize>(inner: u32) -> u32 {
    // Rows of many lines take so long to come that fewer looks and more rounds are better.
    let most = match W {
        ..=16 => LOOKS as u32,
        32 => 7,
        _ => 3,
    };
    let at_most = |looks: u32| {
        // The smallest power of two of which `looks` more multiples than 0 are not below `inner`.
        let least = inner.div_ceil(looks + 1);
        u32::BITS - least.saturating_sub(1).leading_zeros()
    };
    at_most(most.min(7)).min(STEPS).max(at_most(most))
}

impl Gaps {
    #[inline(always)]
    pub(super) fn none(base: u32) -> Self {
        let cuts = [[Spot::default(); 1 << STEPS]; GAPS];
        Self { list: [Gap::default(); GAPS], cuts, len: 0, base }
    }
}

impl Gap {
    /// Whether anything is unknown.
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.missed > self.held + 1
    }

    /// Where part `part` of eight begins: part 0 at `held`, the last one ends at `missed`.
    #[inline(always)]
    fn cut(&self, part: u32) -> u32 {
        let len = u64::from(self.missed - self.held);
        self.held + ((len * u64::from(part)) >> STEPS) as u32
    }
}
