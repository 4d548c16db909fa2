//! Stop 6: a batch on the wire. In goes what a producer sealed; out comes, on the other side, a
//! view that was checked once and then cannot fail. Next stop: `ckf-consumer/src/session`.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::iter::FusedIterator;

use ckf_core::{BucketImage, TableDigest};

use crate::codec::{
    self, Fields, gather, low_bytes, put, put_start, short_len, slots_len, spread, window,
};
use crate::error::{DecodeError, EncodeError, Fault};
use crate::frame::{Kind, SharedBody};
use crate::layout::{self, MAX_PATCH, delta as at, name};
use crate::{Limits, Sequence};

/// New values of some slots of one bucket: absolute, hence harmless to apply twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Which bucket.
    pub bucket: u32,
    /// Which slots, bit 0 for slot 0; never 0.
    pub mask: u8,
    /// The new values in their places, 0 where a slot is now empty and in slots not named.
    pub image: BucketImage,
}

impl Patch {
    /// What turns `before` into `after`; `None` when they are equal.
    #[inline]
    pub const fn between(bucket: u32, before: BucketImage, after: BucketImage) -> Option<Self> {
        let mask = codec::occupancy(before.get() ^ after.get());
        if mask == 0 {
            return None;
        }
        let image = BucketImage::new(after.get() & codec::slot_bits(mask));
        Some(Self { bucket, mask, image })
    }

    /// The bucket's image after the patch, `before` being the one before it.
    #[inline]
    #[must_use]
    pub const fn apply(&self, before: BucketImage) -> BucketImage {
        BucketImage::new(before.get() & !codec::slot_bits(self.mask) | self.image.get())
    }
}

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
    /// The part being written: room for its fixed fields, then the heads of its patches.
    body: Vec<u8>,
    /// The gaps before its buckets.
    gaps: Vec<u8>,
    /// The values of its slots.
    values: Vec<u8>,
    count: u32,
    next_part: u32,
    last_bucket: Option<u32>,
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
        let body = vec![0; at::LEN];
        Self {
            limits: *limits,
            sequence,
            digest,
            body,
            gaps: Vec::new(),
            values: Vec::new(),
            count: 0,
            next_part: 0,
            last_bucket: None,
            parts: Vec::new(),
        }
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
        if self.last_bucket.is_some_and(|last| bucket <= last) {
            return Err(EncodeError::Order { bucket });
        }
        if bucket >= self.limits.bucket_count() {
            return Err(EncodeError::Bucket { bucket, count: self.limits.bucket_count() });
        }
        let Some(patch) = Patch::between(bucket, before, after) else { return Ok(()) };
        let len = self.body.len() + self.gaps.len() + self.values.len();
        if self.count == self.limits.max_images() || len + MAX_PATCH > self.limits.max_body() {
            self.close(false)?;
        }
        // The first gap of a part is the bucket itself: each part can be read alone.
        let base = if self.count == 0 { 0 } else { self.last_bucket.unwrap_or(0) };
        let gap = bucket - base;
        let gap_len = short_len(gap);
        self.body.push((gap_len as u8) << layout::HEAD_GAP_SHIFT | patch.mask);
        put_start(&mut self.gaps, u64::from(gap), gap_len);
        put_start(&mut self.values, gather(patch.image.get(), patch.mask), slots_len(patch.mask));
        self.count += 1;
        self.last_bucket = Some(bucket);
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
        if self.count > 0 {
            self.close(true)?;
        }
        Ok(DeltaParts { parts: self.parts, digest: self.digest })
    }

    /// Ends the current part.
    fn close(&mut self, last: bool) -> Result<(), EncodeError> {
        let part = u16::try_from(self.next_part).map_err(|_| EncodeError::TooManyParts)?;
        let flags = if last { layout::DELTA_LAST } else { 0 };
        put(&mut self.body, at::SEQUENCE, self.sequence.get().to_le_bytes());
        put(&mut self.body, at::DIGEST, self.digest.get().to_le_bytes());
        put(&mut self.body, at::COUNT, self.count.to_le_bytes());
        put(&mut self.body, at::PART, part.to_le_bytes());
        put(&mut self.body, at::FLAGS, flags.to_le_bytes());
        self.body.extend_from_slice(&self.gaps);
        self.body.extend_from_slice(&self.values);
        self.parts.push(SharedBody::new(Kind::Delta, &self.body));
        self.body.truncate(at::LEN);
        self.gaps.clear();
        self.values.clear();
        self.count = 0;
        self.next_part += 1;
        Ok(())
    }
}

/// A delta that was checked as a whole: order, bounds, counts, spelling. Reading it cannot fail.
#[derive(Clone, PartialEq, Eq)]
pub struct DeltaView<'a> {
    sequence: Sequence,
    digest: TableDigest,
    part: u16,
    last: bool,
    last_bucket: u32,
    patches: Patches<'a>,
}

impl<'a> DeltaView<'a> {
    /// Checks a delta's body. Cost: one pass; allocates nothing.
    ///
    /// # Errors
    /// [`DecodeError`] with nearly any of the faults; see `docs/WIRE.md`.
    pub fn parse(body: &'a [u8], limits: &Limits) -> Result<Self, DecodeError> {
        let (fields, rest) = Fields::prefix(body, layout::header::LEN, at::LEN)?;
        let sequence = fields.u64(at::SEQUENCE);
        if sequence == 0 {
            return Err(fields.value(at::SEQUENCE, 0));
        }
        let flags = fields.u16(at::FLAGS);
        if flags & !layout::DELTA_LAST != 0 {
            return Err(fields.value(at::FLAGS, u64::from(flags)));
        }
        let count = fields.u32(at::COUNT);
        if count == 0 {
            return Err(fields.value(at::COUNT, 0));
        }
        if count > limits.max_images() {
            let (value, limit) = (u64::from(count), u64::from(limits.max_images()));
            return Err(fields.error(at::COUNT, Fault::Limit { value, limit }));
        }
        let patches = Patches::split(rest, count)?;
        Ok(Self {
            sequence: Sequence::new(sequence),
            digest: TableDigest::new(fields.u64(at::DIGEST)),
            part: fields.u16(at::PART),
            last: flags == layout::DELTA_LAST,
            last_bucket: patches.check_buckets(limits.bucket_count())?,
            patches,
        })
    }

    /// Number of the batch, never 0. The batch continues from the number before it.
    pub const fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Digest of the table after this part.
    pub const fn digest(&self) -> TableDigest {
        self.digest
    }

    /// Position of this part within the batch, from 0.
    pub const fn part(&self) -> u16 {
        self.part
    }

    /// Whether the batch is complete with this part.
    pub const fn last(&self) -> bool {
        self.last
    }

    /// Number of patches, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a delta is never empty")]
    pub const fn len(&self) -> usize {
        self.patches.heads.len()
    }

    /// The highest bucket that is patched: where it is inside a table, all are.
    pub const fn last_bucket(&self) -> u32 {
        self.last_bucket
    }

    /// The patches, buckets strictly ascending.
    pub fn patches(&self) -> Patches<'a> {
        self.patches.clone()
    }
}

impl fmt::Debug for DeltaView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaView")
            .field("sequence", &self.sequence)
            .field("digest", &self.digest)
            .field("part", &self.part)
            .field("last", &self.last)
            .field("patches", &self.patches.len())
            .finish()
    }
}

/// Iterator over a delta's patches.
#[derive(Clone, PartialEq, Eq)]
pub struct Patches<'a> {
    /// One byte a patch: its mask, and the length of its gap.
    heads: &'a [u8],
    gaps: &'a [u8],
    values: &'a [u8],
    /// The bucket of the last patch; 0 before the first one.
    bucket: u32,
}

impl<'a> Patches<'a> {
    /// Splits what follows a delta's fixed fields into the three arrays that must fill it.
    fn split(rest: &'a [u8], count: u32) -> Result<Self, DecodeError> {
        let origin = layout::header::LEN + at::LEN;
        let error = |field, at, fault| DecodeError { field, offset: (origin + at) as u32, fault };
        let short = |field, at, needed: usize, left: usize| {
            error(field, at, Fault::Truncated { needed: needed as u32, left: left as u32 })
        };
        let count = count as usize;
        let Some((heads, rest)) = rest.split_at_checked(count) else {
            return Err(short(name::HEADS, 0, count, rest.len()));
        };
        let (mut gaps_len, mut values_len) = (0, 0);
        for (index, &head) in heads.iter().enumerate() {
            let (mask, gap_len) = halves(head);
            if mask == 0 || gap_len > layout::MAX_GAP {
                return Err(error(name::HEADS, index, Fault::Value { value: u64::from(head) }));
            }
            gaps_len += gap_len;
            values_len += slots_len(mask);
        }
        let Some((gaps, values)) = rest.split_at_checked(gaps_len) else {
            return Err(short(name::GAPS, count, gaps_len, rest.len()));
        };
        if values.len() < values_len {
            return Err(short(name::VALUES, count + gaps_len, values_len, values.len()));
        }
        if values.len() > values_len {
            let fault = Fault::Trailing { count: (values.len() - values_len) as u32 };
            return Err(error(name::VALUES, count + gaps_len + values_len, fault));
        }
        Ok(Self { heads, gaps, values, bucket: 0 })
    }

    /// Checks that buckets ascend, stay inside the table, and that gaps have no leading zeros.
    /// Returns the last bucket.
    fn check_buckets(&self, bucket_count: u32) -> Result<u32, DecodeError> {
        let (mut bucket, mut at) = (0u64, 0);
        for (index, &head) in self.heads.iter().enumerate() {
            let (_, len) = halves(head);
            let gap = low_bytes(window(self.gaps, at), len);
            let repeats = gap == 0 && index > 0;
            bucket += u64::from(gap);
            if short_len(gap) != len || repeats || bucket >= u64::from(bucket_count) {
                let fault = if short_len(gap) != len {
                    Fault::Overlong
                } else if repeats {
                    Fault::Order { bucket: bucket as u32 }
                } else {
                    Fault::Bucket { bucket, count: bucket_count }
                };
                let offset = layout::header::LEN + at::LEN + self.heads.len() + at;
                return Err(DecodeError { field: name::GAPS, offset: offset as u32, fault });
            }
            at += len;
        }
        Ok(bucket as u32)
    }
}

impl Iterator for Patches<'_> {
    type Item = Patch;

    #[inline]
    fn next(&mut self) -> Option<Patch> {
        let (&head, heads) = self.heads.split_first()?;
        let (mask, gap_len) = halves(head);
        // `split` and `check_buckets` saw to it that nothing here is cut short or wraps.
        self.heads = heads;
        self.bucket = self.bucket.wrapping_add(low_bytes(window(self.gaps, 0), gap_len));
        self.gaps = self.gaps.get(gap_len..).unwrap_or(&[]);
        let image = BucketImage::new(spread(window(self.values, 0), mask));
        self.values = self.values.get(slots_len(mask)..).unwrap_or(&[]);
        Some(Patch { bucket: self.bucket, mask, image })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.heads.len(), Some(self.heads.len()))
    }
}

impl ExactSizeIterator for Patches<'_> {}
impl FusedIterator for Patches<'_> {}

/// A patch's mask and the length of its gap.
#[inline]
const fn halves(head: u8) -> (u8, usize) {
    (head & 15, (head >> layout::HEAD_GAP_SHIFT) as usize)
}
