//! Stop 6: a batch on the wire. In goes what a producer sealed; out comes, on the other side, a
//! view that was checked once and then cannot fail. Next stop: `ckf-consumer/src/session`.

use alloc::vec;
use alloc::vec::Vec;
use core::iter::FusedIterator;

use ckf_core::{BucketImage, TableDigest};

use crate::codec::{self, Fields, Slots, Varints, put, put_slots, put_varint};
use crate::error::{DecodeError, EncodeError, Fault};
use crate::frame::{Kind, SharedBody};
use crate::layout::{self, MAX_PATCH, MIN_PATCH, delta as at, name};
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
    /// The slots of its patches.
    slots: Vec<u8>,
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
            slots: Vec::new(),
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
        if self.count == self.limits.max_images()
            || self.body.len() + self.slots.len() + MAX_PATCH > self.limits.max_body()
        {
            self.close(false)?;
        }
        // The first gap of a part is the bucket itself: each part can be read alone.
        let base = if self.count == 0 { 0 } else { self.last_bucket.unwrap_or(0) };
        put_varint(&mut self.body, u64::from(bucket - base) << 4 | u64::from(patch.mask));
        put_slots(&mut self.slots, patch.image.get(), patch.mask);
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
        self.body.extend_from_slice(&self.slots);
        self.parts.push(SharedBody::new(Kind::Delta, &self.body));
        self.body.truncate(at::LEN);
        self.slots.clear();
        self.count = 0;
        self.next_part += 1;
        Ok(())
    }
}

/// A delta that was checked as a whole: order, bounds, counts, spelling. Reading it cannot fail.
#[derive(Clone, Copy)]
pub struct DeltaView<'a> {
    sequence: Sequence,
    digest: TableDigest,
    part: u16,
    last: bool,
    count: u32,
    last_bucket: u32,
    /// Heads, then slots.
    patches: &'a [u8],
    /// The slots alone.
    slots: &'a [u8],
}

impl<'a> DeltaView<'a> {
    /// Checks a delta's body. Cost: one pass; allocates nothing.
    ///
    /// # Errors
    /// [`DecodeError`] with any of the faults; see `docs/WIRE.md`.
    pub fn parse(body: &'a [u8], limits: &Limits) -> Result<Self, DecodeError> {
        let (fields, patches) = Fields::prefix(body, layout::header::LEN, at::LEN)?;
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
        let needed = u64::from(count) * MIN_PATCH as u64;
        if needed > patches.len() as u64 {
            let (needed, left) = (u32::try_from(needed).unwrap_or(u32::MAX), patches.len() as u32);
            return Err(fields.error(at::COUNT, Fault::Truncated { needed, left }));
        }
        let (last_bucket, slots) = check(patches, count, limits.bucket_count())?;
        Ok(Self {
            sequence: Sequence::new(sequence),
            digest: TableDigest::new(fields.u64(at::DIGEST)),
            part: fields.u16(at::PART),
            last: flags == layout::DELTA_LAST,
            count,
            last_bucket,
            patches,
            slots,
        })
    }

    /// Number of the batch. It continues from the number before it, which is never 0's.
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
        self.count as usize
    }

    /// The highest bucket that is patched: where it is inside a table, all are.
    pub const fn last_bucket(&self) -> u32 {
        self.last_bucket
    }

    /// The patches, buckets strictly ascending.
    pub const fn patches(&self) -> Patches<'a> {
        Patches {
            heads: Varints::new(self.patches),
            slots: Slots::new(self.slots),
            bucket: 0,
            left: self.count,
        }
    }
}

impl core::fmt::Debug for DeltaView<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DeltaView")
            .field("sequence", &self.sequence)
            .field("part", &self.part)
            .field("last", &self.last)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl PartialEq for DeltaView<'_> {
    /// Whether the two say the same.
    fn eq(&self, other: &Self) -> bool {
        // The spelling is unique, so the bytes decide.
        (self.sequence, self.digest, self.part, self.last, self.count, self.patches)
            == (other.sequence, other.digest, other.part, other.last, other.count, other.patches)
    }
}

impl Eq for DeltaView<'_> {}

/// Iterator over a delta's patches.
#[derive(Clone)]
pub struct Patches<'a> {
    heads: Varints<'a>,
    slots: Slots<'a>,
    bucket: u32,
    left: u32,
}

impl Iterator for Patches<'_> {
    type Item = Patch;

    #[inline]
    fn next(&mut self) -> Option<Patch> {
        self.left = self.left.checked_sub(1)?;
        // Checked by `DeltaView::parse`: neither ends early nor overflows.
        let head = self.heads.next().ok()?;
        let mask = head as u8 & 15;
        self.bucket = self.bucket.wrapping_add((head >> 4) as u32);
        let image = BucketImage::new(self.slots.next(mask));
        Some(Patch { bucket: self.bucket, mask, image })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Patches<'_> {}
impl FusedIterator for Patches<'_> {}

/// Checks `count` patches that must fill `bytes`; returns the last bucket, and the slots alone.
fn check(bytes: &[u8], count: u32, bucket_count: u32) -> Result<(u32, &[u8]), DecodeError> {
    let error = |field, at: usize, fault| DecodeError {
        field,
        offset: (layout::header::LEN + at::LEN + at) as u32,
        fault,
    };
    let mut heads = Varints::new(bytes);
    let mut bucket = 0u64;
    let mut needed = 0;
    for index in 0..count {
        let start = heads.at();
        let head = heads.next().map_err(|fault| error(name::HEADS, start, fault))?;
        let (gap, mask) = (head >> 4, head as u8 & 15);
        let order = gap != 0 || index == 0;
        bucket += gap;
        if mask == 0 || !order || bucket >= u64::from(bucket_count) {
            let fault = if mask == 0 {
                Fault::Value { value: head }
            } else if !order {
                Fault::Order { bucket: bucket as u32 }
            } else {
                Fault::Bucket { bucket, count: bucket_count }
            };
            return Err(error(name::HEADS, start, fault));
        }
        needed += codec::slots_len(mask);
    }
    let slots = &bytes[heads.at()..];
    if slots.len() < needed {
        let fault = Fault::Truncated { needed: needed as u32, left: slots.len() as u32 };
        return Err(error(name::VALUES, heads.at(), fault));
    }
    if slots.len() > needed {
        let fault = Fault::Trailing { count: (slots.len() - needed) as u32 };
        return Err(error(name::VALUES, heads.at() + needed, fault));
    }
    Ok((bucket as u32, slots))
}
