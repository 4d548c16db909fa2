//! The fast search from block-local hashes: the sequence hashes are rolled here, and while that
//! goes on, every eighth is looked for.
//!
//! Rolling takes about as long as all the waiting of a search. So the looks are asked for as soon
//! as they are rolled, and each is taken some blocks later, when its rows are near; the gap of a
//! lane that is missed is asked for at once. What is left to wait for at the end is little.

use ckf_core::{BlockHash, LocalHash, sequence::roll};

use super::jump::{Gaps, Jump};
use super::{Depths, lanes_of};
use crate::lanes::Scan;
use crate::row::Spot;

/// Blocks that are rolled before the gaps among them are closed.
const RUN: usize = 128;
/// Blocks from look to look.
const STRIDE: usize = 8;
/// Looks that are on their way, a power of two: about one memory latency of rolling.
const LAG: usize = 4;

/// The looks of a run: positions count from 1, since 0 is the last block of the run before, or the
/// beginning, which every lane holds.
struct Run {
    hashes: [BlockHash; RUN + 1],
    /// Looks on their way, by number modulo their count.
    looks: [(u32, Spot); LAG],
    asked: usize,
    taken: usize,
    /// The position of the last look taken.
    before: u32,
}

impl<S: Scan, const W: usize> Jump<'_, S, W> {
    /// [`search`](Jump::search) for one prompt. Nothing is rolled much further than some lane holds
    /// the prompt.
    #[inline(always)]
    pub(crate) fn search_local(&self, locals: &[LocalHash], lanes: u64, depths: &mut Depths) {
        let (mut alive, mut offset) = (lanes, 0);
        let mut run = Run {
            hashes: [BlockHash::new(0); RUN + 1],
            looks: [(0, Spot::default()); LAG],
            asked: 0,
            taken: 0,
            before: 0,
        };
        let mut gaps = Gaps::none(0);
        let mut parent = None;
        for blocks in locals.chunks(RUN) {
            let entered = alive;
            gaps.base = offset;
            run.before = 0;
            let mut rolled = 0;
            for blocks in blocks.chunks(STRIDE) {
                for &local in blocks {
                    let hash = roll(parent, local);
                    parent = Some(hash);
                    rolled += 1;
                    run.hashes[rolled] = hash;
                }
                if offset == 0 && rolled <= STRIDE {
                    // What decides about prompts that nobody holds.
                    alive = self.ask_look(&mut run, 1, alive, &mut gaps, depths);
                }
                alive = self.ask_look(&mut run, rolled, alive, &mut gaps, depths);
                if alive == 0 {
                    break;
                }
            }
            while alive != 0 && run.taken < run.asked {
                alive = self.take_look(&mut run, alive, &mut gaps, depths);
            }
            self.close(&mut gaps, &[&run.hashes[..]], core::array::from_mut(depths));
            if self.window > 1 {
                self.verify(&run.hashes[1..=rolled], entered & !alive, offset, depths);
            }
            if alive == 0 {
                return;
            }
            offset += blocks.len() as u32;
            run.hashes[0] = run.hashes[blocks.len()];
            for lane in lanes_of(alive) {
                depths[lane] = offset;
            }
        }
    }

    /// Asks for a look, once there is room; returns the lanes that are left.
    #[inline(always)]
    fn ask_look(
        &self,
        run: &mut Run,
        position: usize,
        mut alive: u64,
        gaps: &mut Gaps,
        depths: &mut Depths,
    ) -> u64 {
        if run.asked - run.taken == LAG {
            alive = self.take_look(run, alive, gaps, depths);
        }
        let address = self.ground.addressing.address(run.hashes[position]);
        self.ground.rows.fetch_lanes(&address, alive);
        run.looks[run.asked % LAG] = (position as u32, Spot::of(&address));
        run.asked += 1;
        alive
    }

    /// Takes the oldest look; returns the lanes that are left.
    #[inline(always)]
    fn take_look(&self, run: &mut Run, alive: u64, gaps: &mut Gaps, depths: &mut Depths) -> u64 {
        let (position, spot) = run.looks[run.taken % LAG];
        run.taken += 1;
        let held = self.holders(&spot, alive);
        let depths = core::array::from_mut(depths);
        self.part(0, alive & !held, run.before, position, &[&run.hashes[..]], gaps, depths);
        run.before = position;
        held
    }
}
