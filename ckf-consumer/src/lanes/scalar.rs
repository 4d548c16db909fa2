//! The portable row scan: relaxed loads, one word at a time. The oracle of the others.

use super::{Operation, Scan};
use crate::row::{Line, holds};
use crate::sync::Ordering;

/// Always available.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

impl Scan for Scalar {
    #[inline(always)]
    fn either(self, first: &Line, second: &Line, fingerprint: u16) -> u64 {
        let mut mask = 0;
        for (first, second) in first.0.iter().zip(&second.0).rev() {
            let (first, second) = (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
            mask = mask << 1 | u64::from(holds(first, second, fingerprint));
        }
        mask
    }

    #[inline(always)]
    fn enter<O: Operation>(self, operation: O) {
        operation.run(self);
    }
}
