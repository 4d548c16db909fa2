//! How queries search: the same rows, two orders of looking at them.
//!
//! [`walk()`] looks at every position in turn; [`Jump`] at few, many at a time. Both are generic over
//! the width of a row and the backend of the row scan, and write depths into plain arrays; what is
//! captured before and checked after is the business of [`query`](crate::query).

mod gaps;
mod jump;
mod many;
mod rolled;
mod shared;
mod walk;

pub(crate) use jump::Jump;
pub(crate) use many::GROUP;
pub(crate) use walk::walk;

use ckf_protocol::Lane;

use crate::row::{Shape, View};

/// A depth for each lane.
pub(crate) type Depths = [u32; Lane::MAX_COUNT];

/// What all searches look at.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a, S, A, R> {
    pub(crate) scan: S,
    pub(crate) rows: View<'a, R>,
    pub(crate) addresser: A,
}

impl<S, A, R: Shape> Ground<'_, S, A, R> {
    /// Writes that no lane holds anything.
    #[inline(always)]
    pub(crate) fn clear(&self, depths: &mut Depths) {
        depths[..self.rows.shape.width()].fill(0);
    }
}

/// The lanes of a mask, ascending.
#[inline(always)]
fn lanes_of(mut lanes: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let lane = (lanes != 0).then(|| lanes.trailing_zeros() as usize)?;
        lanes &= lanes - 1;
        Some(lane)
    })
}

/// Writes one depth for each of some lanes.
#[inline(always)]
fn record(depths: &mut Depths, lanes: u64, depth: u32) {
    lanes_of(lanes).for_each(|lane| depths[lane] = depth);
}
