//! How much one frame may hold.

use ckf_core::Format;
use thiserror::Error;

use crate::layout::{self, MAX_PATCH};

/// Bounds on frames, for both directions: a writer stays within them, a reader refuses what is
/// above. The defaults are what every reader must accept, so a writer may exceed them only where
/// both sides were configured to.
///
/// ```
/// use ckf_protocol::Limits;
///
/// let limits = Limits::default().with_bucket_count(1000);
/// assert_eq!(limits.max_patches(), 65_536);
/// let small = Limits::new(4096, 100, 256)?;
/// assert_eq!(small.max_frame(), 4096);
/// # Ok::<(), ckf_protocol::LimitsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    max_frame: u32,
    max_patches: u32,
    max_chunk_buckets: u32,
    bucket_count: u32,
}

/// Why [`Limits`] are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// The frame limit is outside 256 bytes to 1 GiB.
    #[error("frame limit of {max_frame} bytes is outside 256 to 2^30")]
    Frame {
        /// The limit that was asked for.
        max_frame: u32,
    },
    /// A limit of 0 patches.
    #[error("a delta must be allowed at least one patch")]
    Patches,
    /// The chunk limit is 0, or such a chunk could exceed the frame limit.
    #[error("chunks of {max_chunk_buckets} buckets do not fit frames of {max_frame} bytes")]
    ChunkBuckets {
        /// The limit that was asked for.
        max_chunk_buckets: u32,
        /// The frame limit.
        max_frame: u32,
    },
}

impl Limits {
    /// Fewest bytes that [`max_frame`](Self::max_frame) may be.
    pub const MIN_FRAME: u32 = 256;
    /// Most bytes that [`max_frame`](Self::max_frame) may be.
    pub const MAX_FRAME: u32 = 1 << 30;

    /// Limits for frames of at most `max_frame` bytes, deltas of at most `max_patches` patches and
    /// chunks of at most `max_chunk_buckets` buckets, for tables of any size.
    ///
    /// # Errors
    /// [`LimitsError`]; a full chunk takes 32 bytes and 8.5 a bucket, and must fit a frame.
    pub const fn new(
        max_frame: u32,
        max_patches: u32,
        max_chunk_buckets: u32,
    ) -> Result<Self, LimitsError> {
        if max_frame < Self::MIN_FRAME || max_frame > Self::MAX_FRAME {
            return Err(LimitsError::Frame { max_frame });
        }
        if max_patches == 0 {
            return Err(LimitsError::Patches);
        }
        if max_chunk_buckets == 0 || full_chunk(max_chunk_buckets) > max_frame as u64 {
            return Err(LimitsError::ChunkBuckets { max_chunk_buckets, max_frame });
        }
        Ok(Self { max_frame, max_patches, max_chunk_buckets, bucket_count: Format::MAX_BUCKETS })
    }

    /// The same limits for tables of `bucket_count` buckets: no bucket from there on is accepted.
    #[must_use]
    pub const fn with_bucket_count(self, bucket_count: u32) -> Self {
        Self { bucket_count, ..self }
    }

    /// Bytes of a frame, header included.
    pub const fn max_frame(&self) -> u32 {
        self.max_frame
    }

    /// Patches of one delta frame.
    pub const fn max_patches(&self) -> u32 {
        self.max_patches
    }

    /// Buckets of one snapshot chunk.
    pub const fn max_chunk_buckets(&self) -> u32 {
        self.max_chunk_buckets
    }

    /// Buckets of the table; [`Format::MAX_BUCKETS`] where it is not known.
    pub const fn bucket_count(&self) -> u32 {
        self.bucket_count
    }

    /// Bytes of a frame's body at most.
    pub(crate) const fn max_body(&self) -> usize {
        self.max_frame as usize - layout::header::LEN
    }
}

impl Default for Limits {
    /// Frames of 1 MiB, deltas of 65,536 patches, chunks of 65,536 buckets.
    fn default() -> Self {
        const DEFAULT: Limits = match Limits::new(1 << 20, 1 << 16, 1 << 16) {
            Ok(limits) => limits,
            Err(_) => panic!("the default limits are legal"),
        };
        DEFAULT
    }
}

/// Bytes of a frame with a chunk of full buckets.
const fn full_chunk(buckets: u32) -> u64 {
    let fixed = layout::header::LEN + layout::snapshot_chunk::LEN;
    fixed as u64 + buckets.div_ceil(2) as u64 + buckets as u64 * 8
}

// One patch always fits a delta of the smallest frames.
const _: () =
    assert!(layout::header::LEN + layout::delta::LEN + MAX_PATCH <= Limits::MIN_FRAME as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_typed_errors() {
        let frame = |max_frame| Limits::new(max_frame, 1, 1).err();
        assert_eq!(frame(255), Some(LimitsError::Frame { max_frame: 255 }));
        assert_eq!(frame((1 << 30) + 1), Some(LimitsError::Frame { max_frame: (1 << 30) + 1 }));
        assert_eq!(Limits::new(256, 0, 1), Err(LimitsError::Patches));
        for max_chunk_buckets in [0, 27, u32::MAX] {
            assert_eq!(
                Limits::new(256, 1, max_chunk_buckets),
                Err(LimitsError::ChunkBuckets { max_chunk_buckets, max_frame: 256 })
            );
        }
        assert!(Limits::new(256, u32::MAX, 26).is_ok());
    }
}
