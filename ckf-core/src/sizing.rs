//! Sizing: how many buckets a number of blocks needs, and what that costs.

use crate::Format;
use crate::error::SizingError;

/// Spare buckets of the smallest tables, where chance could crowd one bucket.
const SPARE_BUCKETS: u64 = 14;

/// A table size for a number of blocks.
///
/// ```
/// use ckf_core::Sizing;
///
/// let sizing = Sizing::for_blocks(10_000_000, Sizing::DEFAULT_LOAD)?;
/// assert_eq!(sizing.bucket_count(), 2_777_778);
/// assert_eq!(sizing.bytes(), 22_222_224);
/// // About one wrong "yes" in 9,100 questions.
/// assert!((0.000_10..0.000_12).contains(&sizing.false_positive_rate()));
/// # Ok::<(), ckf_core::SizingError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    blocks: u64,
    bucket_count: u32,
}

impl Sizing {
    /// 90 %: insertions stay cheap and refusals do not occur in practice.
    pub const DEFAULT_LOAD: u16 = 900;
    /// Highest target load: above it insertions are refused now and then.
    pub const MAX_LOAD: u16 = 950;

    /// The smallest size that holds `blocks` distinct blocks at no more than `load_per_mille`.
    /// Tables of a few buckets get spare ones, so that what was promised fits there too.
    ///
    /// # Errors
    /// [`SizingError::Load`] outside 1 to 950, [`SizingError::TooMany`] where more than
    /// [`Format::MAX_BUCKETS`] would be needed. Nothing is allocated.
    pub const fn for_blocks(blocks: u64, load_per_mille: u16) -> Result<Self, SizingError> {
        if load_per_mille == 0 || load_per_mille > Self::MAX_LOAD {
            return Err(SizingError::Load { per_mille: load_per_mille });
        }
        let slots = (blocks as u128 * 1000).div_ceil(load_per_mille as u128);
        let mut buckets = slots.div_ceil(Format::SLOTS as u128);
        // A bucket's candidates never exceed its slots for up to four blocks.
        if blocks > Format::SLOTS as u64 && buckets < 64 * SPARE_BUCKETS as u128 {
            buckets += SPARE_BUCKETS as u128 - buckets / 64;
        }
        if buckets > Format::MAX_BUCKETS as u128 {
            return Err(SizingError::TooMany { blocks, per_mille: load_per_mille });
        }
        let buckets = if buckets < Format::MIN_BUCKETS as u128 {
            Format::MIN_BUCKETS
        } else {
            buckets as u32
        };
        Ok(Self { blocks, bucket_count: buckets })
    }

    /// Blocks that it is made for.
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Buckets.
    pub const fn bucket_count(&self) -> u32 {
        self.bucket_count
    }

    /// Bytes of one table's words.
    pub const fn bytes(&self) -> u64 {
        self.bucket_count as u64 * 8
    }

    /// Expected share of wrong "yes" answers about blocks that are not there, once all are in:
    /// eight slots times the load, in 65,535 (Fan et al., "Cuckoo Filter", CoNEXT 2014).
    pub fn false_positive_rate(&self) -> f64 {
        let load = self.blocks as f64 / (f64::from(self.bucket_count) * f64::from(Format::SLOTS));
        8.0 * load / 65_535.0
    }

    /// The default format of this size.
    pub const fn format(&self, seed: u64) -> Format {
        Format::sized(self.bucket_count, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockHash, Table};

    #[test]
    fn f29_small_sizes_hold_what_they_promise() {
        for load in [500, 900, 950] {
            for blocks in (0..=64).chain([100, 200, 500, 900, 1000, 2000, 4000]) {
                let sizing = Sizing::for_blocks(blocks, load).unwrap();
                let format = sizing.format(1);
                for set in 0..100u64 {
                    let mut table = Table::new(format).unwrap();
                    for i in 0..blocks {
                        let hash =
                            BlockHash::new((set << 32 | i).wrapping_mul(0xD134_2543_DE82_EF95));
                        table
                            .insert(&format.address(hash), |_| ())
                            .unwrap_or_else(|e| panic!("{i} of {blocks} in {sizing:?}: {e}"));
                    }
                }
            }
        }
    }

    #[test]
    fn f29_large_sizes_are_typed_errors() {
        for blocks in [1 << 32, 1 << 40, 1 << 60, u64::MAX] {
            for load in [1, 900, 950] {
                assert_eq!(
                    Sizing::for_blocks(blocks, load),
                    Err(SizingError::TooMany { blocks, per_mille: load })
                );
            }
        }
        assert!(Sizing::for_blocks(4_000_000_000, 950).is_ok());
        for load in [0, 951, 1000, u16::MAX] {
            assert_eq!(Sizing::for_blocks(1, load), Err(SizingError::Load { per_mille: load }));
        }
    }

    #[test]
    fn load_is_never_above_the_target() {
        for blocks in 1..3000 {
            let sizing = Sizing::for_blocks(blocks, 900).unwrap();
            let count = u64::from(sizing.bucket_count());
            assert_eq!(Format::any_count(count, blocks), Ok(sizing.format(blocks)));
            assert!(blocks * 1000 <= count * 4 * 900 || sizing.bucket_count() == 2);
        }
    }
}
