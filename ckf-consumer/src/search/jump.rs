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
use core::ops::Range;

use ckf_core::{Addresser, BlockHash};

use super::{Depths, Ground, lanes_of, walk};
use crate::lanes::Scan;
use crate::row::Spot;

/// Requests that are searched together.
pub(crate) const GROUP: usize = 8;

/// log2 of the most parts into which a gap is cut.
const STEPS: u32 = 3;
/// Most looks of an opening between the first and the last one.
const LOOKS: usize = 15;

/// The same where rows are wide, and as long as no gap grows beyond what one round decides.
const FEW_LOOKS: u32 = 7;

/// The search by few looks.
#[derive(Clone, Copy)]
pub(crate) struct Jump<'a, S, A, const W: usize> {
    pub(crate) ground: Ground<'a, S, A, W>,
    /// How many positions right before the depth must be held, at least 1.
    pub(crate) window: u32,
}

/// The looks of the opening, on their way.
#[derive(Clone, Copy, Default)]
struct Opening {
    first: Spot,
    between: [Spot; LOOKS],
    last: Spot,
}

/// Between a position that a lane holds and one that it misses.
#[derive(Clone, Copy, Default)]
struct Gap {
    request: u16,
    lane: u16,
    held: u32,
    missed: u32,
}

/// Gaps, and the words at their cuts, on their way. How many there are is kept apart, in a
/// register, which an array beside it would not allow.
pub(super) struct Gaps<const G: usize> {
    list: [Gap; G],
    /// Where the parts of each gap begin, from the second one on.
    cuts: [[Spot; 1 << STEPS]; G],
}

/// What a search goes along.
#[derive(Clone, Copy)]
pub(super) struct Along<'a, const N: usize> {
    pub(super) prefixes: [&'a [BlockHash]; N],
    /// The depth of a lane that holds position 0 and not position 1.
    pub(super) base: u32,
}

// No closure is given to the standard library in what follows: it would be compiled on its own,
// for any processor, and called for every position.
impl<S: Scan, A: Addresser, const W: usize> Jump<'_, S, A, W> {
    /// log2 of the parts into which a gap is cut. Among many lanes many have gaps, and then fewer
    /// words and more rounds are better.
    const STEPS: u32 = if W > 16 { 1 } else { STEPS };

    /// Finds, for each of `lanes`, how many blocks of each prefix from the start it holds; the
    /// depths are 0 before. The waiting of all prefixes overlaps. Up to `G` gaps wait together.
    #[inline(always)]
    pub(crate) fn search<const N: usize, const G: usize>(
        &self,
        prefixes: [&[BlockHash]; N],
        lanes: u64,
        depths: &mut [Depths; N],
    ) {
        let mut openings = [Opening::default(); N];
        for request in 0..N {
            self.open(prefixes[request], &mut openings[request]);
        }
        let (mut gaps, mut waiting) = (Gaps::<G>::NONE, 0);
        let along = Along { prefixes, base: 1 };
        for request in 0..N {
            let Some(inner) = prefixes[request].len().checked_sub(1) else { continue };
            let (inner, opening) = (inner as u32, &openings[request]);
            let mut alive = self.holders(&opening.first, lanes);
            let (step, looks) = looks::<W>(inner);
            let mut before = 0;
            for look in 0..looks {
                if alive == 0 {
                    break;
                }
                let held = self.holders(&opening.between[look as usize], alive);
                let missed = alive & !held;
                waiting = self.part(
                    request,
                    missed,
                    before..before + step,
                    &along,
                    &mut gaps,
                    waiting,
                    depths,
                );
                (alive, before) = (held, before + step);
            }
            let whole = self.holders(&opening.last, alive);
            waiting = self.part(
                request,
                alive & !whole,
                before..inner,
                &along,
                &mut gaps,
                waiting,
                depths,
            );
            for lane in lanes_of(whole) {
                depths[request][lane] = inner + 1;
            }
        }
        self.close(&along, &mut gaps, waiting, depths);
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
        let (step, looks) = looks::<W>((prefix.len() - 1) as u32);
        let mut position = step;
        for spot in &mut opening.between[..looks as usize] {
            *spot = self.fetched(prefix[position as usize]);
            position += step;
        }
        opening.last = self.fetched(last);
    }

    /// Takes lanes that hold the start of a range and miss its end into the gaps; returns how many
    /// gaps wait then.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "inlined; they are the state of one search")]
    pub(super) fn part<const N: usize, const G: usize>(
        &self,
        request: usize,
        lanes: u64,
        range: Range<u32>,
        along: &Along<'_, N>,
        gaps: &mut Gaps<G>,
        mut waiting: usize,
        depths: &mut [Depths; N],
    ) -> usize {
        for lane in lanes_of(lanes) {
            let (request, lane) = (request as u16, lane as u16);
            let gap = Gap { request, lane, held: range.start, missed: range.end };
            depths[usize::from(request)][usize::from(lane)] = along.base + gap.held;
            if gap.is_open() {
                if waiting == G {
                    self.close(along, gaps, waiting, depths);
                    waiting = 0;
                }
                self.ask(gap, along, gaps, waiting);
                waiting += 1;
            }
        }
        waiting
    }

    /// Where a block lies; its rows are asked for.
    #[inline(always)]
    fn fetched(&self, hash: BlockHash) -> Spot {
        let address = self.ground.addresser.address(hash);
        self.ground.rows.fetch(&address);
        Spot::of(&address)
    }

    /// Of `lanes`, those that hold the block.
    #[inline(always)]
    pub(super) fn holders(&self, spot: &Spot, lanes: u64) -> u64 {
        self.ground.rows.holders(self.ground.scan, spot, lanes) & lanes
    }

    /// Asks for the words of a gap.
    #[inline(always)]
    fn ask<const N: usize, const G: usize>(
        &self,
        gap: Gap,
        along: &Along<'_, N>,
        gaps: &mut Gaps<G>,
        index: usize,
    ) {
        let prefix = along.prefixes[usize::from(gap.request)];
        let cuts = &mut gaps.cuts[index];
        // Always all parts, also of a small gap: looking at a position twice costs less than
        // guessing how many there are. First those that are looked at first.
        let order: &[u32] = if Self::STEPS == STEPS { &[4, 2, 6, 1, 3, 5, 7] } else { &[1] };
        for &part in order {
            let address =
                self.ground.addresser.address(prefix[gap.cut(part, Self::STEPS) as usize]);
            self.ground.rows.fetch_lane(&address, usize::from(gap.lane));
            cuts[part as usize] = Spot::of(&address);
        }
        gaps.list[index] = gap;
    }

    /// Rounds, until no gap is left.
    #[inline(always)]
    pub(super) fn close<const N: usize, const G: usize>(
        &self,
        along: &Along<'_, N>,
        gaps: &mut Gaps<G>,
        mut waiting: usize,
        depths: &mut [Depths; N],
    ) {
        while waiting > 0 {
            let asked = core::mem::take(&mut waiting);
            for index in 0..asked {
                let gap = self.bisected(gaps.list[index], &gaps.cuts[index]);
                depths[usize::from(gap.request)][usize::from(gap.lane)] = along.base + gap.held;
                if gap.is_open() {
                    self.ask(gap, along, gaps, waiting);
                    waiting += 1;
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
        for step in (0..Self::STEPS).rev() {
            let next = part + (1 << step);
            let held = self.ground.rows.holds(&cuts[next as usize], lane);
            part = select_unpredictable(held, next, part);
        }
        Gap { held: gap.cut(part, Self::STEPS), missed: gap.cut(part + 1, Self::STEPS), ..gap }
    }

    /// Looks at the window before the depth of each of `lanes`; a lane that misses a position
    /// there is walked. `offset` is the number of blocks before `prefix`.
    pub(super) fn verify(
        &self,
        prefix: &[BlockHash],
        lanes: u64,
        offset: u32,
        depths: &mut Depths,
    ) {
        let Ground { rows, addresser, .. } = self.ground;
        // The position right before the depth was looked at already.
        let window = |depth: u32| {
            let end = (depth - offset).saturating_sub(1) as usize;
            end.saturating_sub(self.window as usize - 1)..end
        };
        for lane in lanes_of(lanes) {
            for &hash in &prefix[window(depths[lane])] {
                rows.fetch_lane(&addresser.address(hash), lane);
            }
        }
        for lane in lanes_of(lanes) {
            let missed = window(depths[lane])
                .find(|&at| !rows.holds(&Spot::of(&addresser.address(prefix[at])), lane));
            if let Some(missed) = missed {
                depths[lane] = offset;
                walk(self.ground, prefix[..missed].iter().copied(), 1 << lane, offset, depths);
            }
        }
    }
}

/// The distance between the looks of an opening, and how many there are between the first one, at
/// 0, and the last one, at `inner`. The distance is as small as the number of looks allows, but not
/// below eight where more than seven looks would be needed: what is left then is decided in one
/// round.
#[inline(always)]
fn looks<const W: usize>(inner: u32) -> (u32, u32) {
    // Rows of many lines take so long to come that fewer looks and more rounds are better.
    let most = if W > 16 { FEW_LOOKS } else { LOOKS as u32 };
    // The smallest log2 of a distance of which no more than so many multiples are below `inner`.
    let least = |looks: u32| {
        let parts = inner.div_ceil(looks + 1);
        u32::BITS - parts.saturating_sub(1).leading_zeros()
    };
    let distance = least(FEW_LOOKS).min(STEPS).max(least(most));
    (1 << distance, inner.saturating_sub(1) >> distance)
}

impl<const G: usize> Gaps<G> {
    pub(super) const NONE: Self = {
        let spot = Spot { first: 0, second: 0, fingerprint: 0 };
        let gap = Gap { request: 0, lane: 0, held: 0, missed: 0 };
        Self { list: [gap; G], cuts: [[spot; 1 << STEPS]; G] }
    };
}

impl Gap {
    /// Whether anything is unknown.
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.missed > self.held + 1
    }

    /// Where part `part` of two to the `steps` begins: part 0 at `held`, the last one ends at
    /// `missed`.
    #[inline(always)]
    fn cut(&self, part: u32, steps: u32) -> u32 {
        let len = u64::from(self.missed - self.held);
        self.held + ((len * u64::from(part)) >> steps) as u32
    }
}
