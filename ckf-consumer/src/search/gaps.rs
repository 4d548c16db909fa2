//! What is left to find out about a lane, and the rounds that find it out.
//!
//! A gap lies between a position that the lane holds and one that it misses. Each round cuts every
//! gap into parts, asks for that lane's words at all cuts of all gaps, and only then looks. The
//! more parts, the fewer rounds of waiting, and the more words that nobody would have needed.
//!
//! Lanes that share a gap go through it together ([`shared`](super::shared)), as long as they are
//! many.

use core::hint::select_unpredictable;
use core::ops::Range;

use ckf_core::{Addresser, BlockHash};

use super::jump::Jump;
use super::shared::Shared;
use super::{Depths, Ground, lanes_of};
use crate::lanes::Scan;
use crate::row::{Shape, Spot};

/// Between a position that a lane holds and one that it misses.
#[derive(Clone, Copy)]
pub(super) struct Gap {
    pub(super) request: u16,
    /// Of a gap that several lanes share, any of them.
    pub(super) lane: u16,
    pub(super) held: u32,
    pub(super) missed: u32,
}

/// Up to `G` gaps, and the words at their cuts into `P` parts, two to eight, on their way. How many
/// there are is kept apart, in a register, which an array beside it would not allow.
pub(super) struct Gaps<const G: usize, const P: usize> {
    list: [Gap; G],
    /// Where the parts of each gap begin, from the second one on.
    cuts: [[Spot; P]; G],
    pub(super) shared: Shared<P>,
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
impl<S: Scan, A: Addresser, R: Shape> Jump<'_, S, A, R> {
    /// Takes lanes that hold the start of a range and miss its end into the gaps; returns how many
    /// gaps wait then.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "inlined; they are the state of one search")]
    pub(super) fn part<const N: usize, const G: usize, const P: usize>(
        &self,
        request: usize,
        lanes: u64,
        range: Range<u32>,
        along: &Along<'_, N>,
        gaps: &mut Gaps<G, P>,
        mut waiting: usize,
        depths: &mut [Depths; N],
    ) -> usize {
        if lanes.count_ones() > self.apart() && range.len() > 1 && gaps.shared.has_room() {
            self.share(request, lanes, range, along, &mut gaps.shared, &mut depths[request]);
            return waiting;
        }
        for lane in lanes_of(lanes) {
            let (request, lane) = (request as u16, lane as u16);
            let gap = Gap { request, lane, held: range.start, missed: range.end };
            depths[usize::from(request)][usize::from(lane)] = along.base + gap.held;
            if gap.is_open() {
                if waiting == G {
                    self.scanless().rounds_early(along, gaps, depths);
                    waiting = 0;
                }
                self.ask(gap, along, gaps, waiting);
                waiting += 1;
            }
        }
        waiting
    }

    /// Takes lanes that hold the start of a range and miss its end into the gaps, each between the
    /// look at which it is missed and the one before; returns how many gaps wait then. Look `n`,
    /// counted from 1, is at position `at(n)`; its rows are on their way.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "inlined; they are the state of one search")]
    pub(super) fn part_at<const N: usize, const G: usize, const P: usize>(
        &self,
        request: usize,
        mut lanes: u64,
        Range { start: mut before, end }: Range<u32>,
        looks: &[Spot],
        at: impl Fn(u32) -> u32,
        along: &Along<'_, N>,
        gaps: &mut Gaps<G, P>,
        mut waiting: usize,
        depths: &mut [Depths; N],
    ) -> usize {
        for (look, spot) in (1..).zip(looks) {
            if lanes == 0 {
                return waiting;
            }
            let held = self.holders(spot, lanes);
            let (missed, position) = (lanes & !held, at(look));
            let range = before..position;
            waiting = self.part(request, missed, range, along, gaps, waiting, depths);
            (lanes, before) = (held, position);
        }
        self.part(request, lanes, before..end, along, gaps, waiting, depths)
    }

    /// Finds out about all gaps.
    #[inline(always)]
    pub(super) fn close<const N: usize, const G: usize, const P: usize>(
        &self,
        along: &Along<'_, N>,
        gaps: &mut Gaps<G, P>,
        mut waiting: usize,
        depths: &mut [Depths; N],
    ) {
        while let Some(shared) = gaps.shared.take() {
            waiting = self.part_shared(&shared, along, gaps, waiting, depths);
        }
        self.rounds(along, gaps, waiting, depths);
    }

    /// This search for what needs no row scan, so that one code serves all backends.
    #[inline(always)]
    fn scanless(&self) -> Jump<'_, (), A, R> {
        let Ground { rows, addresser, .. } = self.ground;
        Jump { ground: Ground { scan: (), rows, addresser }, window: self.window }
    }
}

// Words of single lanes, which need no row scan.
impl<S, A: Addresser, R: Shape> Jump<'_, S, A, R> {
    /// Asks for the words of a gap.
    #[inline(always)]
    fn ask<const N: usize, const G: usize, const P: usize>(
        &self,
        gap: Gap,
        along: &Along<'_, N>,
        gaps: &mut Gaps<G, P>,
        index: usize,
    ) {
        let prefix = along.prefixes[usize::from(gap.request)];
        let cuts = &mut gaps.cuts[index];
        // Always all parts, also of a small gap: looking at a position twice costs less than
        // guessing how many there are. First those that are looked at first.
        let order: &[u32] = match P {
            2 => &[1],
            4 => &[2, 1, 3],
            _ => &[4, 2, 6, 1, 3, 5, 7],
        };
        for &part in order {
            let address = self.ground.addresser.address(prefix[gap.cut(part, P.ilog2()) as usize]);
            self.ground.rows.fetch_lane(&address, usize::from(gap.lane));
            cuts[part as usize] = Spot::of(&address);
        }
        gaps.list[index] = gap;
    }

    /// Rounds before all gaps are known, where there are more than there is room for.
    #[cold]
    #[inline(never)]
    fn rounds_early<const N: usize, const G: usize, const P: usize>(
        &self,
        along: &Along<'_, N>,
        gaps: &mut Gaps<G, P>,
        depths: &mut [Depths; N],
    ) {
        self.rounds(along, gaps, G, depths);
    }

    /// Rounds, until no gap of a single lane is left.
    #[inline(always)]
    fn rounds<const N: usize, const G: usize, const P: usize>(
        &self,
        along: &Along<'_, N>,
        gaps: &mut Gaps<G, P>,
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
    fn bisected<const P: usize>(&self, gap: Gap, cuts: &[Spot; P]) -> Gap {
        let lane = usize::from(gap.lane);
        let mut part = 0;
        for step in (0..P.ilog2()).rev() {
            let next = part + (1 << step);
            let held = self.ground.rows.holds(&cuts[next as usize], lane);
            part = select_unpredictable(held, next, part);
        }
        Gap { held: gap.cut(part, P.ilog2()), missed: gap.cut(part + 1, P.ilog2()), ..gap }
    }
}

impl<const G: usize, const P: usize> Gaps<G, P> {
    pub(super) const NONE: Self = {
        let spot = Spot { first: 0, second: 0, fingerprint: 0 };
        let gap = Gap { request: 0, lane: 0, held: 0, missed: 0 };
        Self { list: [gap; G], cuts: [[spot; P]; G], shared: Shared::NONE }
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
    pub(super) fn cut(&self, part: u32, steps: u32) -> u32 {
        let len = u64::from(self.missed - self.held);
        self.held + ((len * u64::from(part)) >> steps) as u32
    }
}
