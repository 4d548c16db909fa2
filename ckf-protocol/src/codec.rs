//! Bounded reading and writing of little-endian fields. Nothing here allocates for a reader.

use alloc::vec;
use alloc::vec::Vec;

use crate::error::{DecodeError, Fault};
use crate::layout::{self, Field};

/// The bytes of one fixed structure, all there: reading a field of it cannot fail.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    /// Where the structure starts in the frame.
    origin: usize,
}

impl<'a> Fields<'a> {
    /// A structure of exactly `len` bytes.
    pub(crate) fn exact(bytes: &'a [u8], origin: usize, len: usize) -> Result<Self, DecodeError> {
        let (fields, rest) = Self::prefix(bytes, origin, len)?;
        if rest.is_empty() {
            return Ok(fields);
        }
        let fault = Fault::Trailing { count: rest.len() as u32 };
        Err(DecodeError { field: layout::name::BODY, offset: (origin + len) as u32, fault })
    }

    /// A structure of `len` bytes at the start of `bytes`, and the bytes after it.
    pub(crate) fn prefix(
        bytes: &'a [u8],
        origin: usize,
        len: usize,
    ) -> Result<(Self, &'a [u8]), DecodeError> {
        match bytes.split_at_checked(len) {
            Some((bytes, rest)) => Ok((Self { bytes, origin }, rest)),
            None => {
                let fault = Fault::Truncated { needed: len as u32, left: bytes.len() as u32 };
                let field = if origin == 0 { layout::name::FRAME } else { layout::name::BODY };
                Err(DecodeError { field, offset: origin as u32, fault })
            }
        }
    }

    /// The structure within a field.
    pub(crate) fn inner(self, field: Field) -> Self {
        Self { bytes: &self.bytes[field.at..field.at + field.len], origin: self.origin + field.at }
    }

    fn array<const N: usize>(self, field: Field) -> [u8; N] {
        debug_assert_eq!(field.len, N, "{}", field.name);
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[field.at..field.at + N]);
        array
    }

    pub(crate) fn u8(self, field: Field) -> u8 {
        u8::from_le_bytes(self.array(field))
    }

    pub(crate) fn u16(self, field: Field) -> u16 {
        u16::from_le_bytes(self.array(field))
    }

    pub(crate) fn u32(self, field: Field) -> u32 {
        u32::from_le_bytes(self.array(field))
    }

    pub(crate) fn u64(self, field: Field) -> u64 {
        u64::from_le_bytes(self.array(field))
    }

    pub(crate) fn digest(self, field: Field) -> [u8; 16] {
        self.array(field)
    }

    /// That a reserved field is 0.
    pub(crate) fn zero(self, field: Field) -> Result<(), DecodeError> {
        let bytes = &self.bytes[field.at..field.at + field.len];
        match bytes.iter().find(|&&byte| byte != 0) {
            None => Ok(()),
            Some(&byte) => Err(self.value(field, u64::from(byte))),
        }
    }

    /// An error about a field.
    pub(crate) fn error(self, field: Field, fault: Fault) -> DecodeError {
        DecodeError { field: field.name, offset: (self.origin + field.at) as u32, fault }
    }

    /// The error that a field's value has no meaning.
    pub(crate) fn value(self, field: Field, value: u64) -> DecodeError {
        self.error(field, Fault::Value { value })
    }
}

/// Writes a field of a fixed structure.
pub(crate) fn put<const N: usize>(structure: &mut [u8], field: Field, bytes: [u8; N]) {
    debug_assert_eq!(field.len, N, "{}", field.name);
    structure[field.at..field.at + N].copy_from_slice(&bytes);
}

/// The `u64` that starts at byte `at`; what lies beyond the end counts as 0.
#[inline]
pub(crate) fn window(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(<[u8]>::first_chunk) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => last_window(bytes, at),
    }
}

#[cold]
fn last_window(bytes: &[u8], at: usize) -> u64 {
    bytes.iter().skip(at).rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Bytes that grow by the starts of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts {
    bytes: Vec<u8>,
    /// How many of the bytes count.
    len: usize,
}

impl Starts {
    pub(crate) const fn new() -> Self {
        Self { bytes: Vec::new(), len: 0 }
    }

    /// None, with room for `len` bytes.
    pub(crate) fn with_room(len: usize) -> Self {
        Self { bytes: vec![0; len + 8], len: 0 }
    }

    /// Appends the first `len` bytes of a number: all eight are written, which is faster than to
    /// copy a varying number, and the next ones go over what does not count.
    #[inline]
    pub(crate) fn push(&mut self, number: u64, len: usize) {
        let end = self.len + 8;
        match self.bytes.get_mut(self.len..end) {
            Some(bytes) => bytes.copy_from_slice(&number.to_le_bytes()),
            None => self.grow(number),
        }
        self.len += len;
    }

    #[cold]
    fn grow(&mut self, number: u64) {
        self.bytes.resize((self.bytes.len() * 2).max(256), 0);
        self.bytes[self.len..self.len + 8].copy_from_slice(&number.to_le_bytes());
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}

/// Bytes that a number takes without its leading zeros, 0 for 0.
#[inline]
pub(crate) const fn short_len(number: u32) -> usize {
    (u32::BITS - number.leading_zeros()).div_ceil(8) as usize
}

/// The low `len` bytes of a number, `len` being at most 4.
#[inline]
pub(crate) const fn low_bytes(number: u64, len: usize) -> u32 {
    (number & ((1 << (8 * len)) - 1)) as u32
}

/// What follows from a mask of slots.
#[derive(Clone, Copy)]
struct Shape {
    /// All bits of the named slots.
    bits: u64,
    /// Bytes of the named slots.
    len: u8,
    /// Bits of the named slots in the lower half.
    low_len: u8,
    /// Bits by which the first named slot of each half lies above the half's start: 0 or 16.
    low_up: u8,
    high_up: u8,
}

/// Looked up, since computing it takes longer than all else about a patch.
static SHAPES: [Shape; 16] = {
    let mut shapes = [Shape { bits: 0, len: 0, low_len: 0, low_up: 0, high_up: 0 }; 16];
    let mut mask = 0;
    while mask < 16 {
        let shape = &mut shapes[mask];
        let mut slot = 0;
        while slot < 4 {
            if mask >> slot & 1 == 1 {
                shape.bits |= 0xFFFF << (16 * slot);
            }
            slot += 1;
        }
        shape.len = 2 * mask.count_ones() as u8;
        shape.low_len = 16 * (mask & 3).count_ones() as u8;
        shape.low_up = if mask & 3 == 2 { 16 } else { 0 };
        shape.high_up = if mask >> 2 == 2 { 16 } else { 0 };
        mask += 1;
    }
    shapes
};

#[inline]
fn shape(mask: u8) -> &'static Shape {
    &SHAPES[usize::from(mask & 15)]
}

/// Bytes of the slots that `mask` names.
#[inline]
pub(crate) fn slots_len(mask: u8) -> usize {
    usize::from(shape(mask).len)
}

/// All bits of the slots that `mask` names.
#[inline]
pub(crate) fn slot_bits(mask: u8) -> u64 {
    shape(mask).bits
}

/// Puts the low slots of `packed` in the places that `mask` names; the others are 0.
#[inline]
pub(crate) fn spread(packed: u64, mask: u8) -> u64 {
    let shape = shape(mask);
    let low = (packed << shape.low_up) & 0xFFFF_FFFF;
    let high = packed >> shape.low_len << shape.high_up << 32;
    (low | high) & shape.bits
}

/// Collects the slots of `word` that `mask` names in the low ones; the others are 0.
#[inline]
pub(crate) fn gather(word: u64, mask: u8) -> u64 {
    let shape = shape(mask);
    let word = word & shape.bits;
    let low = (word & 0xFFFF_FFFF) >> shape.low_up;
    let high = word >> 32 >> shape.high_up << shape.low_len;
    low | high
}

/// Bit 0 of each slot of a word.
const ONES: u64 = 0x0001_0001_0001_0001;

/// One bit for each slot of `word` that is not 0.
#[inline]
pub(crate) const fn occupancy(word: u64) -> u8 {
    // Fifteen bits that are not all 0 carry into the sixteenth, and never beyond.
    let low = (word & (ONES * 0x7FFF)) + ONES * 0x7FFF;
    let ones = ((low | word) >> 15) & ONES;
    // Bits 0, 16, 32 and 48 meet at 48 to 51; nothing else that the product adds gets there.
    (ones.wrapping_mul(1 << 48 | 1 << 33 | 1 << 18 | 1 << 3) >> 48) as u8 & 15
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn occupancy_equals_the_slot_by_slot_answer() {
        let values = [0u64, 1, 2, 0x80, 0xFF, 0x100, 0x8000, 0xFFFF];
        for a in values {
            for b in values {
                for c in values {
                    for d in values {
                        let word = a | b << 16 | c << 32 | d << 48;
                        let expected = u8::from(a != 0)
                            | u8::from(b != 0) << 1
                            | u8::from(c != 0) << 2
                            | u8::from(d != 0) << 3;
                        assert_eq!(occupancy(word), expected, "{word:016x}");
                    }
                }
            }
        }
    }

    #[test]
    fn short_numbers_lose_only_leading_zeros() {
        for shift in 0..32 {
            for number in [0, 1, (1 << shift) - 1, 1 << shift, u32::MAX >> shift] {
                let len = short_len(number);
                assert_eq!(low_bytes(u64::from(number) | 0xAB << 56, len), number);
                assert!(len == 0 || low_bytes(u64::from(number), len - 1) != number);
            }
        }
    }

    proptest! {
        #[test]
        fn slots_round_trip(word: u64, mask in 0u8..16, before in 0usize..3, after in 0usize..9) {
            let expected: Vec<u8> = (0..4)
                .filter(|slot| mask >> slot & 1 == 1)
                .flat_map(|slot| ((word >> (16 * slot)) as u16).to_le_bytes())
                .collect();
            let mut starts = Starts::new();
            starts.push(0xABAB, before);
            starts.push(gather(word, mask), slots_len(mask));
            let mut bytes = starts.as_slice().to_vec();
            prop_assert_eq!(&bytes[before..], &expected);
            bytes.resize(bytes.len() + after, 0xAB);
            prop_assert_eq!(spread(window(&bytes, before), mask), word & slot_bits(mask));
        }

        #[test]
        fn windows_end_in_zeros(bytes: Vec<u8>, at in 0usize..200) {
            let mut padded = bytes.clone();
            padded.resize(bytes.len().max(at) + 8, 0);
            let expected = padded[at..].iter().take(8).rev().fold(0, |word, &b| word << 8 | u64::from(b));
            prop_assert_eq!(window(&bytes, at), expected);
        }
    }
}
