//! The fast search: few positions, whose rows are all asked for before any is looked at.
//!
//! For prefixes without holes, a lane holds all positions below its depth and none above, so few
//! positions tell where that is. What costs is not the looking but the waiting for memory, so the
//! looks are few and wide:
//!
//! 1. Opening: the first position, the last one, and every eighth or so between, for all lanes at
//!    once. All of them are asked for before it is known which are needed.
//! 2. The ends are looked at first: a lane that misses the first position holds nothing, and one
//!    that holds both, and the look before the last, is taken to hold all. Only the others are
//!    looked for at every look, in order. A lane that is missed there has a gap: between there and
//!    the look before, where it was held.
//! 3. Rounds on that lane's words alone ([`gaps`](super::gaps)). Prompts of up to 128 blocks are
//!    decided by one, or by two where many lanes have gaps.

use ckf_core::{Addresser, BlockHash};

use super::gaps::{Along, Gaps};
use super::{Depths, Ground, lanes_of, walk};
use crate::lanes::Scan;
use crate::row::{Shape, Spot};

/// Most looks of an opening between the first and the last position.
const LOOKS: usize = 15;
/// The same where looks are dear or gaps take several rounds in any case, and as long as one round
/// decides what is left.
const FEW_LOOKS: u32 = 7;
/// log2 of the parts of a gap that one round decides.
const STEPS: u32 = 3;
/// Most lanes with gaps whose words are worth asking for in one round instead of two: of more
/// lanes, the words that nobody would have needed take longer to come than a second round does.
const FEW_GAPS: u32 = 4;
/// Most positions after the first one that an opening and one round decide.
const ONE_ROUND: usize = (LOOKS + 1) << STEPS;

/// The search by few looks.
#[derive(Clone, Copy)]
pub(crate) struct Jump<'a, S, A, R> {
    pub(crate) ground: Ground<'a, S, A, R>,
    /// How many positions right before the depth must be held, at least 1.
    pub(crate) window: u32,
}

impl<S: Scan, A: Addresser, R: Shape> Jump<'_, S, A, R> {
    /// Finds, for each of `lanes`, how many blocks of a prefix from the start it holds, and writes
    /// 0 for the others.
    #[inline(always)]
    pub(crate) fn search(&self, prefix: &[BlockHash], lanes: u64, depths: &mut Depths) {
        self.open(prefix, lanes, depths);
        if self.window > 1 {
            self.verify(prefix, lanes, depths);
        }
    }

    /// The opening; then rounds of gaps, in so many parts as serves best.
    #[inline(always)]
    fn open(&self, prefix: &[BlockHash], lanes: u64, depths: &mut Depths) {
        let (Some(&first), Some(&last)) = (prefix.first(), prefix.last()) else {
            return self.ground.clear(depths);
        };
        let inner = (prefix.len() - 1) as u32;
        let ends = [self.fetched(first, lanes), self.fetched(last, lanes)];
        let (step, looks) = self.looks(inner);
        let mut between = [Spot::default(); LOOKS];
        let mut position = step;
        for spot in &mut between[..looks as usize] {
            *spot = self.fetched(prefix[position as usize], lanes);
            position += step;
        }
        let (whole, alive) = self.enter(&ends, lanes, inner + 1, depths);
        let between = &between[..looks as usize];
        // Often nothing is left to find out. Even to clear room for gaps takes longer than this.
        if alive == 0 && self.doubtful(whole, between) == 0 {
            return;
        }
        let (long, few) = (inner as usize > ONE_ROUND, alive.count_ones() <= FEW_GAPS);
        let of = [whole, alive];
        // Of rows of many lines, so many lanes have gaps that few words of each are best.
        if self.ground.rows.shape.is_wide() || long && !few {
            self.narrow::<16, 2>(prefix, between, step, of, depths);
        } else if long || !few {
            self.narrow::<8, 4>(prefix, between, step, of, depths);
        } else {
            self.narrow::<{ FEW_GAPS as usize }, 8>(prefix, between, step, of, depths);
        }
    }

    /// Looks at what the opening asked for between the ends, every `step` positions, and goes on
    /// with gaps in `P` parts. Of the lanes, those of `whole` hold both ends and those of `alive`
    /// the first one only.
    #[inline(always)]
    fn narrow<const G: usize, const P: usize>(
        &self,
        prefix: &[BlockHash],
        between: &[Spot],
        step: u32,
        [whole, alive]: [u64; 2],
        depths: &mut Depths,
    ) {
        let inner = (prefix.len() - 1) as u32;
        let along = Along { prefixes: [prefix], base: 1 };
        let mut gaps = Gaps::<G, P>::NONE;
        let depths = core::array::from_mut(depths);
        let (range, at) = (0..inner, |look| look * step);
        let mut waiting = self.part_at(0, alive, range, between, at, &along, &mut gaps, 0, depths);
        // While the words of the gaps come: the last position alone may be a false positive.
        let (doubtful, range) = (self.doubtful(whole, between), 0..between.len() as u32 * step);
        waiting = self.part(0, doubtful, range, &along, &mut gaps, waiting, depths);
        self.close(&along, &mut gaps, waiting, depths);
    }

    /// Of lanes that hold both ends, those that miss the last position looked at between them.
    #[inline(always)]
    fn doubtful(&self, whole: u64, between: &[Spot]) -> u64 {
        let Some(near) = between.last() else { return 0 };
        whole & !self.holders(near, whole)
    }

    /// Looks at the first and the last position of a prefix, and writes the depths of lanes that
    /// hold both, or miss the first. Returns those that hold both, and
    /// those that hold the first only.
    #[inline(always)]
    pub(super) fn enter(
        &self,
        [first, last]: &[Spot; 2],
        lanes: u64,
        len: u32,
        depths: &mut Depths,
    ) -> (u64, u64) {
        let entered = self.holders(first, lanes);
        let whole = self.holders(last, entered);
        let width = self.ground.rows.shape.width();
        for (lane, depth) in depths[..width].iter_mut().enumerate() {
            *depth = if whole >> lane & 1 != 0 { len } else { 0 };
        }
        (whole, entered & !whole)
    }

    /// Where a block lies; its rows are asked for, of wide ones what holds any of `lanes`.
    #[inline(always)]
    pub(super) fn fetched(&self, hash: BlockHash, lanes: u64) -> Spot {
        let address = self.ground.addresser.address(hash);
        if self.ground.rows.shape.is_wide() && !self.ground.rows.all_lines(lanes) {
            self.ground.rows.fetch_lanes(&address, lanes);
        } else {
            self.ground.rows.fetch(&address);
        }
        Spot::of(&address)
    }

    /// Of `lanes`, those that hold the block.
    #[inline(always)]
    pub(super) fn holders(&self, spot: &Spot, lanes: u64) -> u64 {
        self.ground.rows.holders(self.ground.scan, spot, lanes) & lanes
    }

    /// Looks at the window before the depth of each of `lanes`; those that miss a position there are
    /// walked.
    pub(super) fn verify(&self, prefix: &[BlockHash], lanes: u64, depths: &mut Depths) {
        let missed = self.unverified(prefix, 0, lanes, depths);
        if missed != 0 {
            walk(self.ground, prefix.iter().copied(), missed, depths);
        }
    }

    /// Of `lanes`, those that miss a position within the window before their depth, as far as it lies
    /// in `run`, before which there are `offset` blocks.
    pub(super) fn unverified(
        &self,
        run: &[BlockHash],
        offset: u32,
        lanes: u64,
        depths: &Depths,
    ) -> u64 {
        let Ground { rows, addresser, .. } = self.ground;
        let within_run = |position: u32| (position.saturating_sub(offset) as usize).min(run.len());
        let window = |depth: u32| {
            // The position right before the depth was looked at already.
            let start = within_run(depth.saturating_sub(self.window));
            &run[start..within_run(depth.saturating_sub(1)).max(start)]
        };
        for lane in lanes_of(lanes) {
            for &hash in window(depths[lane]) {
                rows.fetch_lane(&addresser.address(hash), lane);
            }
        }
        let missing = |&lane: &usize| {
            let mut window = window(depths[lane]).iter();
            window.any(|&hash| !rows.holds(&Spot::of(&addresser.address(hash)), lane))
        };
        lanes_of(lanes).filter(missing).fold(0, |lanes, lane| lanes | 1 << lane)
    }

    /// The distance between the looks of an opening, and how many there are between the first one,
    /// at 0, and the last one, at `inner`. The distance is as small as the number of looks allows,
    /// but not below eight where more than seven looks would be needed: what is left then is
    /// decided in one round.
    #[inline(always)]
    fn looks(&self, inner: u32) -> (u32, u32) {
        let few = self.ground.rows.shape.is_wide() || inner as usize > ONE_ROUND;
        // The smallest log2 of a distance of which no more than so many multiples are below
        // `inner`.
        let least = |looks: u32| {
            let parts = inner.div_ceil(looks + 1);
            u32::BITS - parts.saturating_sub(1).leading_zeros()
        };
        let most = if few { FEW_LOOKS } else { LOOKS as u32 };
        let distance = least(FEW_LOOKS).min(STEPS).max(least(most));
        (1 << distance, inner.saturating_sub(1) >> distance)
    }
}
