//! The exact search: every position in turn, rows asked for well ahead.

use ckf_core::{Address, BlockHash};

use super::{Depths, Ground, Search, record};
use crate::lanes::Scan;

/// Positions whose rows are on their way, a power of two.
const AHEAD: usize = 16;

/// The first position that each lane misses, exactly, whatever else it holds.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'a, S, const W: usize>(Ground<'a, S, W>);

/// A walk over this ground.
#[inline(always)]
pub(crate) fn walk<S: Scan, const W: usize>(ground: Ground<'_, S, W>) -> Walk<'_, S, W> {
    Walk(ground)
}

impl<S: Scan, const W: usize> Search for Walk<'_, S, W> {
    /// At most one look at each position. A prompt that nobody holds costs four fetched positions.
    #[inline(always)]
    fn search(&self, prefix: &[BlockHash], lanes: u64, offset: u32, depths: &mut Depths) -> u64 {
        let Ground { scan, rows, format } = self.0;
        let Some(&start) = prefix.first() else { return lanes };
        let mut ring: [Address; AHEAD] = [format.address(start); AHEAD];
        let mut alive = lanes;
        let mut fetched = 0;
        for position in 0..prefix.len() {
            // Two positions are asked for per position looked at, until all room is used: what an
            // unknown prompt asks for in vain stays small.
            let until = prefix.len().min(position + AHEAD).min(4 + 2 * position);
            while fetched < until {
                let address = format.address(prefix[fetched]);
                rows.fetch_lanes(&address, alive);
                ring[fetched % AHEAD] = address;
                fetched += 1;
            }
            let held = rows.holders(scan, &ring[position % AHEAD], alive) & alive;
            if held != alive {
                record(depths, alive & !held, offset + position as u32);
                alive = held;
                if alive == 0 {
                    return 0;
                }
            }
        }
        record(depths, alive, offset + prefix.len() as u32);
        alive
    }

    #[inline(always)]
    fn next_look(&self, position: u32, _: u32) -> u32 {
        position + 1
    }
}
