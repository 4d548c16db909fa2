//! The exact search: every position in turn, rows asked for well ahead.

use ckf_core::{Addresser, BlockHash};

use super::{Depths, Ground, record};
use crate::lanes::Scan;
use crate::row::{Shape, Spot};

/// Positions whose rows are on their way, a power of two.
const AHEAD: usize = 16;
/// Positions that are asked for before the first is looked at: what a prompt that nobody holds
/// costs in vain.
const START: usize = 4;

/// Finds, for each of `lanes`, the first position that it misses, exactly, whatever else it holds,
/// and writes that. Hashes are taken as rows are asked for, so that computing them
/// costs no more than waiting would.
#[inline(always)]
pub(crate) fn walk<S: Scan, A: Addresser, R: Shape>(
    ground: Ground<'_, S, A, R>,
    mut hashes: impl Iterator<Item = BlockHash>,
    lanes: u64,
    depths: &mut Depths,
) {
    let Ground { scan, rows, addresser } = ground;
    let mut ring = [Spot::default(); AHEAD];
    let (mut alive, mut fetched, mut position) = (lanes, 0, 0);
    // Two positions are asked for per position looked at, until all room is used.
    let mut until = START;
    loop {
        while fetched < until {
            let Some(hash) = hashes.next() else {
                until = fetched;
                break;
            };
            let address = addresser.address(hash);
            rows.fetch_lanes(&address, alive);
            ring[fetched % AHEAD] = Spot::of(&address);
            fetched += 1;
        }
        if position == fetched {
            return record(depths, alive, position as u32);
        }
        let held = rows.holders(scan, &ring[position % AHEAD], alive) & alive;
        if held != alive {
            record(depths, alive & !held, position as u32);
            alive = held;
            if alive == 0 {
                return;
            }
        }
        position += 1;
        until = (until + 2).min(position + AHEAD);
    }
}
