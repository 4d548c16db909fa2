//! Searching from block-local hashes: the sequence hashes are rolled here, a run at a time, while
//! the rows of earlier ones are on their way.

use core::array;

use ckf_core::{BlockHash, LocalHash, sequence::roll};

use super::{Depths, Ground, Search};
use crate::lanes::Scan;

/// Blocks of a run: what is rolled in vain for a prompt that ends in it.
const RUN: usize = 128;
/// Blocks that are rolled before the first one's rows are looked at: about one memory latency.
const HEAD: usize = 24;

/// Finds, for each of `lanes`, how many blocks from the start it holds. Nothing is rolled beyond
/// the run in which the last lane ends.
#[inline(always)]
pub(crate) fn rolled<S: Scan, const W: usize>(
    ground: Ground<'_, S, W>,
    search: &impl Search,
    locals: &[LocalHash],
    lanes: u64,
    depths: &mut Depths,
) {
    let Ground { scan, rows, format } = ground;
    let mut hashes: [BlockHash; RUN] = array::from_fn(|_| BlockHash::new(0));
    let mut alive = lanes;
    let mut offset = 0;
    let mut parent = None;
    for run in locals.chunks(RUN) {
        let hashes = &mut hashes[..run.len()];
        let mut next_look = 0;
        for (position, (&local, slot)) in (0..).zip(run.iter().zip(&mut *hashes)) {
            let hash = roll(parent, local);
            *slot = hash;
            parent = Some(hash);
            if position == next_look {
                rows.fetch_lanes(&format.address(hash), alive);
                next_look = search.next_look(position, run.len() as u32);
            }
            if position as usize == HEAD {
                break;
            }
        }
        if run.len() > HEAD {
            if rows.holders(scan, &format.address(hashes[0]), alive) & alive == 0 {
                return;
            }
            for position in HEAD + 1..run.len() {
                let hash = roll(parent, run[position]);
                hashes[position] = hash;
                parent = Some(hash);
                if position as u32 == next_look {
                    rows.fetch_lanes(&format.address(hash), alive);
                    next_look = search.next_look(position as u32, run.len() as u32);
                }
            }
        }
        alive = search.search(hashes, alive, offset, depths);
        if alive == 0 {
            return;
        }
        offset += run.len() as u32;
    }
}
