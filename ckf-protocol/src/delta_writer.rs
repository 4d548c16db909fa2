//! Stop 6, write side: a batch on the wire. In comes what a producer sealed; out go bodies that all
//! subscribers share. Next stop: `ckf-protocol/src/delta.rs`, on the other side.

use alloc::vec;
use alloc::vec::Vec;

use ckf_core::{BucketImage, TableDigest};

use crate::codec::{Starts, gather, put, short_len, slots_len};
use crate::error::EncodeError;
use crate::frame::{Kind, SharedBody};
use crate::layout::{self, MAX_PATCH, delta as at};
use crate::{Limits, Patch, Sequence};

/// Encodes one batch, in as many parts as the limits ask for.
///
/// ```
/// use ckf_core::{BucketImage, TableDigest};
/// use ckf_protocol::{DeltaWriter, LeaseId, Limits, Message, Sequence, decode};
///
/// let limits = Limits::default();
/// let mut writer = DeltaWriter::new(Sequence::new(1), TableDigest::EMPTY, &limits);
/// writer.push(7, BucketImage::EMPTY, BucketImage::new(0xABCD))?;
/// let batch = writer.finish()?;
///
/// // Encoded once, framed for each subscriber.
/// let lease = LeaseId::new(99).expect("not 0");
/// let bytes = batch.parts[0].frame(lease).to_bytes();
/// let Message::Delta { delta, .. } = decode(&bytes, &limits)? else { panic!("a delta") };
/// assert!(delta.last());
/// assert_eq!(delta.digest(), batch.digest);
/// assert_eq!(delta.patches().next().map(|patch| patch.bucket), Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeltaWriter {
    limits: Limits,
    sequence: Sequence,
    digest: TableDigest,
    /// The lowest bucket that may come.
    next_bucket: u32,
    part: PartWriter,
    parts: Vec<SharedBody>,
}

/// An encoded batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaParts {
    /// The bodies, to be sent in this order; none when nothing changed.
    pub parts: Vec<SharedBody>,
    /// Digest of the table after the batch.
    pub digest: TableDigest,
}

impl DeltaWriter {
    /// Starts batch `sequence`; `digest` is that of the table after the batch before it.
    pub fn new(sequence: Sequence, digest: TableDigest, limits: &Limits) -> Self {
        let (part, parts) = (PartWriter::new(), Vec::new());
        Self { limits: *limits, sequence, digest, next_bucket: 0, part, parts }
    }

    /// Adds a bucket: its image as published before, its image now. Only the slots that differ are
    /// written; a bucket with none is left out. Buckets come in ascending order.
    ///
    /// # Errors
    /// [`EncodeError::Order`], [`EncodeError::Bucket`], [`EncodeError::TooManyParts`]; the bucket
    /// is then not in the batch.
    #[inline]
    pub fn push(
        &mut self,
        bucket: u32,
        before: BucketImage,
        after: BucketImage,
    ) -> Result<(), EncodeError> {
        if bucket < self.next_bucket {
            return Err(EncodeError::Order { bucket });
        }
        if bucket >= self.limits.bucket_count() {
            return Err(EncodeError::Bucket { bucket, count: self.limits.bucket_count() });
        }
        let Some(patch) = Patch::between(bucket, before, after) else { return Ok(()) };
        if !self.part.has_room(&self.limits) {
            // The part that would begin must have a number as well.
            u16::try_from(self.parts.len() + 1).map_err(|_| EncodeError::TooManyParts)?;
            self.close(false);
        }
        self.part.push(&patch);
        self.next_bucket = bucket + 1;
        self.digest = self.digest.replaced(bucket, before, after);
        Ok(())
    }

    /// The encoded batch.
    ///
    /// # Errors
    /// [`EncodeError::Sequence`] for batch 0, which does not exist: it would continue from nothing.
    pub fn finish(mut self) -> Result<DeltaParts, EncodeError> {
        if self.sequence == Sequence::ZERO {
            return Err(EncodeError::Sequence);
        }
        if self.part.len() > 0 {
            self.close(true);
        }
        Ok(DeltaParts { parts: self.parts, digest: self.digest })
    }

    /// Ends the current part.
    fn close(&mut self, last: bool) {
        let part = u16::try_from(self.parts.len()).expect("no part begins without a number");
        self.parts.push(self.part.close(self.sequence, self.digest, part, last));
    }
}

/// Writes one part: heads and entries grow side by side and are joined at its end.
#[derive(Clone, Debug)]
pub(crate) struct PartWriter {
    /// Room for the fixed fields, then the heads.
    body: Vec<u8>,
    /// The gap and the values of each patch.
    entries: Starts,
    /// The bucket of the last patch; 0 before the first one.
    bucket: u32,
}

impl PartWriter {
    pub(crate) fn new() -> Self {
        let body = vec![0; at::LEN];
        Self { body, entries: Starts::new(), bucket: 0 }
    }

    /// Number of patches.
    fn len(&self) -> usize {
        self.body.len() - at::LEN
    }

    /// Whether any further patch stays within the limits.
    fn has_room(&self, limits: &Limits) -> bool {
        let bytes = self.body.len() + self.entries.len();
        self.len() < limits.max_patches() as usize && bytes + MAX_PATCH <= limits.max_body()
    }

    /// Appends a patch of a bucket above all before it.
    #[inline]
    pub(crate) fn push(&mut self, patch: &Patch) {
        let gap = patch.bucket - self.bucket;
        let gap_len = short_len(gap);
        self.body.push((gap_len as u8) << layout::HEAD_GAP_SHIFT | patch.mask);
        self.entries.push(u64::from(gap), gap_len);
        self.entries.push(gather(patch.image.get(), patch.mask), slots_len(patch.mask));
        self.bucket = patch.bucket;
    }

    /// Completes the part and starts an empty one.
    pub(crate) fn close(
        &mut self,
        sequence: Sequence,
        digest: TableDigest,
        part: u16,
        last: bool,
    ) -> SharedBody {
        let flags = if last { layout::DELTA_LAST } else { 0 };
        put(&mut self.body, at::SEQUENCE, sequence.get().to_le_bytes());
        put(&mut self.body, at::DIGEST, digest.get().to_le_bytes());
        let count = self.len() as u32;
        put(&mut self.body, at::COUNT, count.to_le_bytes());
        put(&mut self.body, at::PART, part.to_le_bytes());
        put(&mut self.body, at::FLAGS, flags.to_le_bytes());
        self.body.extend_from_slice(self.entries.as_slice());
        let body = SharedBody::new(Kind::Delta, &self.body);
        self.body.truncate(at::LEN);
        self.entries.clear();
        self.bucket = 0;
        body
    }
}
