//! `CBI1`, the payload of Dynamo's filter updates: bucket words, whole or changed ones.

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 4] = b"CBI1";
const HEADER: usize = 48;
const CHUNK_HEADER: usize = 16;
const DELTA_HEADER: usize = 12;
const IMAGE: usize = 12;

/// Buckets of one chunk at most.
pub const MAX_CHUNK_BUCKETS: usize = 524_288;
/// Images of one delta at most.
pub const MAX_IMAGES: usize = 349_525;
/// Buckets of a filter at most.
const MAX_BUCKETS: u64 = 1 << 24;

/// Why bytes are no payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// They are too few, or too many.
    #[error("wrong length")]
    Length,
    /// A field has a value that version 1 does not know.
    #[error("field `{field}`")]
    Field {
        /// Which one.
        field: &'static str,
    },
    /// The checksum is wrong.
    #[error("checksum")]
    Checksum,
}

/// What is said of a filter in every payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Seed of the mixing.
    pub seed: u64,
    /// Number of buckets, a power of two.
    pub buckets: u64,
    /// The data center.
    pub dc: u64,
}

/// A payload that was checked as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a> {
    /// Which filter.
    pub filter: Filter,
    /// The batch up to which it is complete.
    pub sequence: u64,
    /// Its content.
    pub content: Content<'a>,
}

/// See [`Payload`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Consecutive buckets of a snapshot.
    Chunk {
        /// Number of the chunk, from 0.
        index: u32,
        /// Number of chunks.
        count: u32,
        /// The first bucket.
        first: u64,
        /// Eight bytes a bucket.
        words: &'a [u8],
    },
    /// Buckets that changed.
    Delta {
        /// The batch that it continues from.
        base: u64,
        /// Twelve bytes an image.
        images: &'a [u8],
    },
}

impl<'a> Payload<'a> {
    /// Reads a payload. Cost: a checksum over it; buckets are within the filter.
    ///
    /// # Errors
    /// [`PayloadError`]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PayloadError> {
        let (header, body) = bytes.split_at_checked(HEADER).ok_or(PayloadError::Length)?;
        let field =
            |good: bool, field| if good { Ok(()) } else { Err(PayloadError::Field { field }) };
        field(header.starts_with(MAGIC), "magic")?;
        field(u16_at(header, 4) == 1, "wire version")?;
        field((header[8], header[9], u16_at(header, 10)) == (16, 4, 1), "format")?;
        if u32_at(header, 44) != xxh3_64(body) as u32 {
            return Err(PayloadError::Checksum);
        }
        let filter = Filter {
            seed: u64_at(header, 12),
            buckets: u64_at(header, 20),
            dc: u64_at(header, 28),
        };
        let buckets = filter.buckets;
        field(buckets.is_power_of_two() && (2..=MAX_BUCKETS).contains(&buckets), "bucket count")?;
        let content = match u16_at(header, 6) {
            1 => {
                let (fixed, words) =
                    body.split_at_checked(CHUNK_HEADER).ok_or(PayloadError::Length)?;
                let (index, count) = (u32_at(fixed, 0), u32_at(fixed, 4));
                let first = u64_at(fixed, 8);
                field(index < count, "chunk index")?;
                let len = words.len() / 8;
                if words.len() % 8 != 0 || len == 0 || len > MAX_CHUNK_BUCKETS {
                    return Err(PayloadError::Length);
                }
                field(
                    first.checked_add(len as u64).is_some_and(|end| end <= buckets),
                    "first bucket",
                )?;
                Content::Chunk { index, count, first, words }
            }
            2 => {
                let (fixed, images) =
                    body.split_at_checked(DELTA_HEADER).ok_or(PayloadError::Length)?;
                let count = u32_at(fixed, 8) as usize;
                if count > MAX_IMAGES || images.len() != count * IMAGE {
                    return Err(PayloadError::Length);
                }
                let inside =
                    images.chunks_exact(IMAGE).all(|image| u64::from(u32_at(image, 0)) < buckets);
                field(inside, "bucket")?;
                Content::Delta { base: u64_at(fixed, 0), images }
            }
            _ => return Err(PayloadError::Field { field: "kind" }),
        };
        Ok(Self { filter, sequence: u64_at(header, 36), content })
    }
}

/// The words of a chunk.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64_at(word, 0))
}

/// The images of a delta: buckets and their words.
pub fn images(bytes: &[u8]) -> impl Iterator<Item = (u32, u64)> {
    bytes.chunks_exact(IMAGE).map(|image| (u32_at(image, 0), u64_at(image, 4)))
}

/// A snapshot as payloads, in order.
pub fn snapshot(filter: Filter, sequence: u64, table: &[u64]) -> impl Iterator<Item = Vec<u8>> {
    let count = table.len().div_ceil(MAX_CHUNK_BUCKETS) as u32;
    table.chunks(MAX_CHUNK_BUCKETS).enumerate().map(move |(index, words)| {
        let mut body = Vec::with_capacity(CHUNK_HEADER + words.len() * 8);
        body.extend((index as u32).to_le_bytes());
        body.extend(count.to_le_bytes());
        body.extend(((index * MAX_CHUNK_BUCKETS) as u64).to_le_bytes());
        words.iter().for_each(|word| body.extend(word.to_le_bytes()));
        frame(filter, sequence, 1, &body)
    })
}

/// A delta as payload; `None` when it has more images than one may have.
pub fn delta(filter: Filter, base: u64, sequence: u64, images: &[(u32, u64)]) -> Option<Vec<u8>> {
    if images.len() > MAX_IMAGES {
        return None;
    }
    let mut body = Vec::with_capacity(DELTA_HEADER + images.len() * IMAGE);
    body.extend(base.to_le_bytes());
    body.extend((images.len() as u32).to_le_bytes());
    for (bucket, word) in images {
        body.extend(bucket.to_le_bytes());
        body.extend(word.to_le_bytes());
    }
    Some(frame(filter, sequence, 2, &body))
}

fn frame(filter: Filter, sequence: u64, kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(MAGIC);
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend([16, 4]);
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(filter.seed.to_le_bytes());
    bytes.extend(filter.buckets.to_le_bytes());
    bytes.extend(filter.dc.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend((xxh3_64(body) as u32).to_le_bytes());
    bytes.extend(body);
    bytes
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILTER: Filter = Filter { seed: 5, buckets: 4, dc: 9 };

    #[test]
    fn what_was_written_is_read_and_any_damage_is_an_error() {
        let chunk = snapshot(FILTER, 7, &[1, 2, 3, u64::MAX]).next().unwrap();
        let parsed = Payload::parse(&chunk).unwrap();
        let Content::Chunk { index: 0, count: 1, first: 0, words: bytes } = parsed.content else {
            panic!("{parsed:?}");
        };
        assert_eq!((parsed.filter, parsed.sequence), (FILTER, 7));
        assert!(words(bytes).eq([1, 2, 3, u64::MAX]));
        let delta = delta(FILTER, 7, 8, &[(3, 11), (0, 12)]).unwrap();
        let Content::Delta { base: 7, images: bytes } = Payload::parse(&delta).unwrap().content
        else {
            panic!("a delta");
        };
        assert!(images(bytes).eq([(3, 11), (0, 12)]));
        for payload in [chunk, delta] {
            for len in 0..payload.len() {
                assert!(Payload::parse(&payload[..len]).is_err(), "cut at {len}");
            }
            for at in (0..12).chain(44..payload.len()) {
                let mut damaged = payload.clone();
                damaged[at] ^= 0x20;
                assert!(Payload::parse(&damaged).is_err(), "damaged at {at}");
            }
        }
    }

    #[test]
    fn buckets_outside_are_refused() {
        assert!(Payload::parse(&delta(FILTER, 0, 1, &[(4, 0)]).unwrap()).is_err());
        assert!(Payload::parse(&snapshot(FILTER, 0, &[0; 5]).next().unwrap()).is_err());
        let odd = Filter { buckets: 5, ..FILTER };
        assert!(Payload::parse(&delta(odd, 0, 1, &[]).unwrap()).is_err());
    }
}
