//! The portable row scan: relaxed loads, one word at a time. The oracle of the others.

use ckf_core::{BucketImage, Fingerprint};

use super::{Operation, Scan};
use crate::row::Line;
use crate::sync::Ordering;

/// Always available.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

impl Scan for Scalar {
    #[inline(always)]
    fn either(self, first: &Line, second: &Line, fingerprint: Fingerprint) -> u64 {
        first.0.iter().zip(&second.0).rev().fold(0, |mask, (first, second)| {
            let held = BucketImage::new(first.load(Ordering::Relaxed)).contains(fingerprint)
                | BucketImage::new(second.load(Ordering::Relaxed)).contains(fingerprint);
            mask << 1 | u64::from(held)
        })
    }

    #[inline(always)]
    fn enter<O: Operation>(self, operation: O) -> O::Output {
        operation.run(self)
    }
}
