//! Snapshot chunks: which slots are occupied, then what they hold.

use alloc::vec;
use core::iter::FusedIterator;

use ckf_core::BucketImage;

use crate::Limits;
use crate::codec::{Fields, Starts, gather, occupancy, put, slots_len, spread, window};
use crate::error::{DecodeError, EncodeError, Fault};
use crate::frame::{Kind, SharedBody};
use crate::layout::{self, name, snapshot_chunk as at};

/// Encodes the words of consecutive buckets, the first of them `first`. Cost: one pass.
///
/// ```
/// use ckf_protocol::{LeaseId, Limits, Message, decode, encode_chunk};
///
/// let limits = Limits::default();
/// let words = [0, 0xABCD, 0x1234_0000_0000_5678];
/// let body = encode_chunk(100, words, &limits)?;
/// let bytes = body.frame(LeaseId::new(99).expect("not 0")).to_bytes();
/// let Message::SnapshotChunk { chunk, .. } = decode(&bytes, &limits)? else { panic!("a chunk") };
/// assert_eq!(chunk.first(), 100);
/// assert!(chunk.words().eq(words));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`EncodeError::ChunkLen`] for no words or more than the limits allow, [`EncodeError::Bucket`]
/// when the last one is outside the table.
pub fn encode_chunk<I>(first: u32, words: I, limits: &Limits) -> Result<SharedBody, EncodeError>
where
    I: IntoIterator<Item = u64>,
    I::IntoIter: ExactSizeIterator,
{
    let words = words.into_iter();
    let len = words.len();
    if len == 0 || len > limits.max_chunk_buckets() as usize {
        return Err(EncodeError::ChunkLen { len, limit: limits.max_chunk_buckets() });
    }
    let end = u64::from(first) + len as u64;
    if end > u64::from(limits.bucket_count()) {
        let bucket = u32::try_from(end - 1).unwrap_or(u32::MAX);
        return Err(EncodeError::Bucket { bucket, count: limits.bucket_count() });
    }
    Ok(chunk_body(first, words))
}

fn chunk_body(first: u32, words: impl ExactSizeIterator<Item = u64>) -> SharedBody {
    let len = words.len();
    let mut body = vec![0; at::LEN + len.div_ceil(2)];
    let mut slots = Starts::with_room(len * 8);
    put(&mut body, at::FIRST, first.to_le_bytes());
    put(&mut body, at::COUNT, (len as u32).to_le_bytes());
    for (index, word) in words.take(len).enumerate() {
        let mask = occupancy(word);
        body[at::LEN + index / 2] |= mask << (index % 2 * 4);
        slots.push(gather(word, mask), slots_len(mask));
    }
    body.extend_from_slice(slots.as_slice());
    SharedBody::new(Kind::SnapshotChunk, &body)
}

/// A snapshot chunk that was checked as a whole. Reading it cannot fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChunkView<'a> {
    first: u32,
    count: u32,
    masks: &'a [u8],
    slots: &'a [u8],
}

impl<'a> ChunkView<'a> {
    /// Checks a chunk's body. Cost: one pass; allocates nothing.
    ///
    /// # Errors
    /// [`DecodeError`]; see `docs/WIRE.md`.
    pub fn parse(body: &'a [u8], limits: &Limits) -> Result<Self, DecodeError> {
        let (fields, rest) = Fields::prefix(body, layout::header::LEN, at::LEN)?;
        let (first, count) = (fields.u32(at::FIRST), fields.u32(at::COUNT));
        if count == 0 {
            return Err(fields.value(at::COUNT, 0));
        }
        if count > limits.max_chunk_buckets() {
            let (value, limit) = (u64::from(count), u64::from(limits.max_chunk_buckets()));
            return Err(fields.error(at::COUNT, Fault::Limit { value, limit }));
        }
        let end = u64::from(first) + u64::from(count);
        if end > u64::from(limits.bucket_count()) {
            let fault = Fault::Bucket { bucket: end - 1, count: limits.bucket_count() };
            return Err(fields.error(at::FIRST, fault));
        }
        let error = |field, at: usize, fault| DecodeError {
            field,
            offset: (layout::header::LEN + at::LEN + at) as u32,
            fault,
        };
        let masks_len = (count as usize).div_ceil(2);
        let Some((masks, slots)) = rest.split_at_checked(masks_len) else {
            let fault = Fault::Truncated { needed: masks_len as u32, left: rest.len() as u32 };
            return Err(error(name::MASKS, 0, fault));
        };
        let spare = masks[masks_len - 1] >> 4;
        if count % 2 == 1 && spare != 0 {
            let fault = Fault::Value { value: u64::from(spare) };
            return Err(error(name::MASKS, masks_len - 1, fault));
        }
        let needed: usize = masks.iter().map(|&mask| slots_len(mask) + slots_len(mask >> 4)).sum();
        if slots.len() < needed {
            let fault = Fault::Truncated { needed: needed as u32, left: slots.len() as u32 };
            return Err(error(name::SLOTS, masks_len, fault));
        }
        if slots.len() > needed {
            let fault = Fault::Trailing { count: (slots.len() - needed) as u32 };
            return Err(error(name::SLOTS, masks_len + needed, fault));
        }
        let is_zero = |slot: &[u8]| slot == [0, 0];
        // All of them without leaving early, which the compiler can do many at a time.
        if slots.chunks_exact(2).fold(false, |any, slot| any | is_zero(slot)) {
            let index = slots.chunks_exact(2).position(is_zero).unwrap_or(0);
            return Err(error(name::SLOTS, masks_len + 2 * index, Fault::EmptySlot));
        }
        Ok(Self { first, count, masks, slots })
    }

    /// The first bucket.
    pub const fn first(&self) -> u32 {
        self.first
    }

    /// Number of buckets, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a chunk is never empty")]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// A body that says the same, made from what was read.
    pub(crate) fn to_body(self) -> SharedBody {
        chunk_body(self.first, self.words())
    }

    /// The words of the buckets, the first bucket's first.
    pub const fn words(&self) -> Words<'a> {
        Words { masks: self.masks, slots: self.slots, at: 0, end: self.count }
    }

    /// The buckets and their images, ascending.
    pub fn images(&self) -> impl Iterator<Item = (u32, BucketImage)> + use<'a> {
        (self.first..).zip(self.words().map(BucketImage::new))
    }
}

impl core::fmt::Debug for ChunkView<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ChunkView")
            .field("first", &self.first)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Iterator over a chunk's words.
#[derive(Clone)]
pub struct Words<'a> {
    masks: &'a [u8],
    slots: &'a [u8],
    at: u32,
    end: u32,
}

impl Iterator for Words<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.at == self.end {
            return None;
        }
        let mask = *self.masks.get(self.at as usize / 2)? >> (self.at % 2 * 4) & 15;
        self.at += 1;
        // Checked by `ChunkView::parse`: all occupied slots are there.
        let word = spread(window(self.slots, 0), mask);
        self.slots = self.slots.get(slots_len(mask)..).unwrap_or(&[]);
        Some(word)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.at) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Words<'_> {}
impl FusedIterator for Words<'_> {}
