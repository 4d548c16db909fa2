//! Stop 6, read side: a delta as a view that was checked once and then cannot fail. In come a
//! frame's bytes; out go patches. Next stop: `ckf-consumer/src/session`.

use core::fmt;
use core::iter::FusedIterator;

use ckf_core::{BucketImage, TableDigest};

use crate::codec::{self, Fields, low_bytes, short_len, slots_len, spread, window};
use crate::delta_writer::PartWriter;
use crate::error::{DecodeError, Fault};
use crate::frame::SharedBody;
use crate::layout::{self, delta as at, name};
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
    pub fn between(bucket: u32, before: BucketImage, after: BucketImage) -> Option<Self> {
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
    pub fn apply(&self, before: BucketImage) -> BucketImage {
        BucketImage::new(before.get() & !codec::slot_bits(self.mask) | self.image.get())
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
        if count > limits.max_patches() {
            let (value, limit) = (u64::from(count), u64::from(limits.max_patches()));
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

    /// A body that says the same, made from what was read.
    pub(crate) fn to_body(&self) -> SharedBody {
        let mut writer = PartWriter::new();
        self.patches().for_each(|patch| writer.push(&patch));
        writer.close(self.sequence, self.digest, self.part, self.last)
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
    /// Gap and values of each patch.
    entries: &'a [u8],
    /// The bucket of the last patch; 0 before the first one.
    bucket: u32,
}

impl<'a> Patches<'a> {
    /// Splits what follows a delta's fixed fields into heads and entries, which must fill it.
    fn split(rest: &'a [u8], count: u32) -> Result<Self, DecodeError> {
        let count = count as usize;
        let truncated = |needed: usize, left: usize| Fault::Truncated {
            needed: needed as u32,
            left: left as u32,
        };
        let Some((heads, entries)) = rest.split_at_checked(count) else {
            return Err(error(name::HEADS, 0, truncated(count, rest.len())));
        };
        let mut len = 0;
        for (index, &head) in heads.iter().enumerate() {
            let (mask, gap_len) = halves(head);
            if mask == 0 || gap_len > layout::MAX_GAP {
                return Err(error(name::HEADS, index, Fault::Value { value: u64::from(head) }));
            }
            len += gap_len + slots_len(mask);
        }
        if entries.len() < len {
            return Err(error(name::ENTRIES, count, truncated(len, entries.len())));
        }
        if entries.len() > len {
            let fault = Fault::Trailing { count: (entries.len() - len) as u32 };
            return Err(error(name::ENTRIES, count + len, fault));
        }
        Ok(Self { heads, entries, bucket: 0 })
    }

    /// Checks that buckets ascend, stay inside the table, and that gaps have no leading zeros.
    /// Returns the last bucket.
    fn check_buckets(&self, bucket_count: u32) -> Result<u32, DecodeError> {
        let (mut bucket, mut at) = (0u64, 0);
        for (index, &head) in self.heads.iter().enumerate() {
            let (mask, len) = halves(head);
            let gap = low_bytes(window(self.entries, at), len);
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
                return Err(error(name::GAP, self.heads.len() + at, fault));
            }
            at += len + slots_len(mask);
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
        let gap = low_bytes(window(self.entries, 0), gap_len);
        let image = BucketImage::new(spread(window(self.entries, gap_len), mask));
        // `split` and `check_buckets` saw to it that nothing here is cut short or wraps.
        self.bucket = self.bucket.wrapping_add(gap);
        self.heads = heads;
        self.entries = self.entries.get(gap_len + slots_len(mask)..).unwrap_or(&[]);
        Some(Patch { bucket: self.bucket, mask, image })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.heads.len(), Some(self.heads.len()))
    }
}

impl ExactSizeIterator for Patches<'_> {}
impl FusedIterator for Patches<'_> {}

/// An error `at` bytes after a delta's fixed fields.
fn error(field: &'static str, at: usize, fault: Fault) -> DecodeError {
    DecodeError { field, offset: (layout::header::LEN + at::LEN + at) as u32, fault }
}

/// A patch's mask and the length of its gap.
#[inline]
const fn halves(head: u8) -> (u8, usize) {
    (head & 15, (head >> layout::HEAD_GAP_SHIFT) as usize)
}
