//! The fast search from block-local hashes: the sequence hashes are rolled here, and while that
//! goes on, every eighth is looked for.
//!
//! Rolling takes about as long as all the waiting of a search. So the looks are asked for as soon
//! as they are rolled, and each is taken some blocks later, when its rows are near; the gap of a
//! lane that is missed is asked for at once. What is left to wait for at the end is little.

use ckf_core::sequence::{roll, roll_all};
use ckf_core::{Addresser, BlockHash, LocalHash};

use super::gaps::{Along, Gaps};
use super::jump::Jump;
use super::{Depths, lanes_of, walk};
use crate::lanes::Scan;
use crate::row::{Shape, Spot};

/// Blocks that are rolled before the gaps among them are closed.
const RUN: usize = 128;
/// Blocks from look to look.
const STRIDE: usize = 8;
/// Looks that are on their way, a power of two: about one memory latency of rolling.
const LAG: usize = 4;

/// Looks on their way. The counts are kept apart, in registers.
type Looks = [(u32, Spot); LAG];

/// How far the looks of a run are. Positions count from 1, since 0 is the last block of the run
/// before, or the beginning, which every lane holds.
#[derive(Clone, Copy)]
struct Progress {
    alive: u64,
    asked: usize,
    taken: usize,
    /// The position of the last look taken.
    before: u32,
    /// Gaps that wait.
    waiting: usize,
}

impl<S: Scan, A: Addresser, R: Shape> Jump<'_, S, A, R> {
    /// [`search`](Jump::search) for one prompt. Nothing is rolled much further than some lane holds
    /// the prompt.
    #[inline(always)]
    pub(crate) fn search_local(&self, locals: &[LocalHash], lanes: u64, depths: &mut Depths) {
        self.look_along(locals, lanes, depths);
        if self.window > 1 {
            self.verify_local(locals, lanes, depths);
        }
    }

    /// The search before anything is verified.
    #[inline(always)]
    fn look_along(&self, locals: &[LocalHash], lanes: u64, depths: &mut Depths) {
        let mut hashes = [BlockHash::new(0); RUN + 1];
        let mut looks = [(0, Spot::default()); LAG];
        let mut gaps = Gaps::<8, 8>::NONE;
        let (mut alive, mut base, mut parent) = (lanes, 0, None);
        for blocks in locals.chunks(RUN) {
            let mut at = Progress { alive, asked: 0, taken: 0, before: 0, waiting: 0 };
            let mut rolled = 0;
            for blocks in blocks.chunks(STRIDE) {
                for &local in blocks {
                    let hash = roll(parent, local);
                    parent = Some(hash);
                    rolled += 1;
                    hashes[rolled] = hash;
                }
                let along = Along { prefixes: [&hashes], base };
                // The first block of all decides about prompts that nobody holds.
                let first = (base == 0 && rolled <= STRIDE && rolled > 1).then_some(1);
                for position in first.into_iter().chain([rolled]) {
                    if at.asked - at.taken == LAG {
                        at = self.take_look(at, &along, &looks, &mut gaps, depths);
                    }
                    let address = self.ground.addresser.address(hashes[position]);
                    self.ground.rows.fetch_lanes(&address, at.alive);
                    looks[at.asked % LAG] = (position as u32, Spot::of(&address));
                    at.asked += 1;
                }
                if at.alive == 0 {
                    break;
                }
            }
            let along = Along { prefixes: [&hashes], base };
            while at.alive != 0 && at.taken < at.asked {
                at = self.take_look(at, &along, &looks, &mut gaps, depths);
            }
            self.close(&along, &mut gaps, at.waiting, core::array::from_mut(depths));
            alive = at.alive;
            if alive == 0 {
                return;
            }
            base += blocks.len() as u32;
            hashes[0] = hashes[blocks.len()];
            for lane in lanes_of(alive) {
                depths[lane] = base;
            }
        }
    }

    /// [`verify`](Jump::verify). Windows may begin before the last run, so what they hold is rolled
    /// once more.
    fn verify_local(&self, locals: &[LocalHash], lanes: u64, depths: &mut Depths) {
        let deepest = lanes_of(lanes).map(|lane| depths[lane]).max().unwrap_or(0);
        let mut hashes = [BlockHash::new(0); RUN];
        let (mut missed, mut offset, mut parent) = (0, 0, None);
        for blocks in locals[..deepest as usize].chunks(RUN) {
            let run = &mut hashes[..blocks.len()];
            for (hash, &local) in run.iter_mut().zip(blocks) {
                *hash = roll(parent, local);
                parent = Some(*hash);
            }
            missed |= self.unverified(run, offset, lanes & !missed, depths);
            offset += blocks.len() as u32;
        }
        if missed != 0 {
            walk(self.ground, roll_all(None, locals.iter().copied()), missed, depths);
        }
    }

    /// Takes the oldest look.
    #[inline(always)]
    fn take_look(
        &self,
        mut at: Progress,
        along: &Along<'_, 1>,
        looks: &Looks,
        gaps: &mut Gaps<8, 8>,
        depths: &mut Depths,
    ) -> Progress {
        let (position, spot) = looks[at.taken % LAG];
        let held = self.holders(&spot, at.alive);
        let (missed, range) = (at.alive & !held, at.before..position);
        let depths = core::array::from_mut(depths);
        at.waiting = self.part(0, missed, range, along, gaps, at.waiting, depths);
        Progress { alive: held, taken: at.taken + 1, before: position, ..at }
    }
}
