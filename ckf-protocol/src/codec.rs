//! Bounded reading and writing of little-endian fields. Nothing here allocates for a reader.

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

/// Reads the varints at the start of some bytes.
#[derive(Clone, Copy)]
pub(crate) struct Varints<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Top bit of each byte: set on all bytes of a varint but its last.
const MORE: u64 = 0x8080_8080_8080_8080;

impl<'a> Varints<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// The next one: seven bits a byte, low ones first, top bit set on all but the last byte, no
    /// byte more than the value needs, at most ten.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<u64, Fault> {
        // Lengths vary, so a byte-by-byte loop would be mispredicted: all of it at once instead.
        let window = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk);
        let Some(x) = window.copied().map(u64::from_le_bytes) else { return self.next_slowly() };
        let ends = !x & MORE;
        if ends == 0 {
            return self.next_slowly();
        }
        let bits = ends.trailing_zeros() + 1;
        let value = join(x & (u64::MAX >> (64 - bits)));
        if bits > 8 && value >> (bits / 8 * 7 - 7) == 0 {
            return Err(Fault::Overlong);
        }
        self.at += bits as usize / 8;
        Ok(value)
    }

    /// The same for the last few bytes and for the longest values.
    #[cold]
    fn next_slowly(&mut self) -> Result<u64, Fault> {
        let left = &self.bytes[self.at..];
        let mut value = 0u64;
        for (index, &byte) in left.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * index);
            if byte & 0x80 == 0 {
                if (index > 0 && byte == 0) || (index == 9 && byte > 1) {
                    return Err(Fault::Overlong);
                }
                self.at += index + 1;
                return Ok(value);
            }
        }
        if left.len() >= 10 {
            return Err(Fault::Overlong);
        }
        Err(Fault::Truncated { needed: left.len() as u32 + 1, left: left.len() as u32 })
    }
}

/// Joins the low seven bits of each byte.
#[inline]
const fn join(x: u64) -> u64 {
    let x = (x & 0x007F_007F_007F_007F) | ((x & 0x7F00_7F00_7F00_7F00) >> 1);
    let x = (x & 0x0000_3FFF_0000_3FFF) | ((x & 0x3FFF_0000_3FFF_0000) >> 2);
    (x & 0x0FFF_FFFF) | ((x & 0x0FFF_FFFF_0000_0000) >> 4)
}

/// Reads slots, of which the caller knows that they are all there.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Slots<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next slots, put in the places that `mask` names; the others are 0. Slots beyond the end
    /// are 0 too.
    #[inline]
    pub(crate) fn next(&mut self, mask: u8) -> u64 {
        let left = self.bytes.get(self.at..).unwrap_or(&[]);
        let packed = match left.first_chunk() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => left.iter().rev().fold(0, |packed, &byte| packed << 8 | u64::from(byte)),
        };
        self.at += slots_len(mask);
        spread(packed, mask)
    }
}

/// Bit 0 of each slot of a word.
const ONES: u64 = 0x0001_0001_0001_0001;

/// Bytes of the slots that `mask` names.
#[inline]
pub(crate) const fn slots_len(mask: u8) -> usize {
    // Nibble m holds twice the number of bits in m. A popcount would be a call on older CPUs.
    (0x8664_6442_6442_4220_u64 >> (mask % 16 * 4)) as usize & 15
}

/// Puts the low slots of `packed` in the places that `mask` names.
#[inline]
const fn spread(mut packed: u64, mask: u8) -> u64 {
    let mut word = 0;
    let mut slot = 0;
    while slot < 4 {
        let taken = (mask >> slot & 1) as u64;
        word |= (packed & (0xFFFF * taken)) << (16 * slot);
        packed >>= 16 * taken;
        slot += 1;
    }
    word
}

/// Collects the slots of `word` that `mask` names in the low ones.
#[inline]
pub(crate) const fn gather(word: u64, mask: u8) -> u64 {
    let mut packed = 0;
    let mut shift = 0;
    let mut slot = 0;
    while slot < 4 {
        let taken = (mask >> slot & 1) as u64;
        packed |= ((word >> (16 * slot)) & (0xFFFF * taken)) << (shift & 63);
        shift += 16 * taken;
        slot += 1;
    }
    packed
}

/// One bit for each slot of `word` that is not 0.
#[inline]
pub(crate) const fn occupancy(word: u64) -> u8 {
    let mut any = word | word >> 8;
    any |= any >> 4;
    any |= any >> 2;
    any |= any >> 1;
    // Bits 0, 16, 32 and 48 meet at 48 to 51; nothing else that the product adds gets there.
    ((any & ONES).wrapping_mul(1 << 48 | 1 << 33 | 1 << 18 | 1 << 3) >> 48) as u8 & 15
}

/// All bits of the slots that `mask` names.
#[inline]
pub(crate) const fn slot_bits(mask: u8) -> u64 {
    // Bit i of the mask goes to bit 16 i.
    let ones = ((mask & 15) as u64 * (1 | 1 << 15 | 1 << 30 | 1 << 45)) & ONES;
    ones * 0xFFFF
}

/// Appends a varint of at most 56 bits.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, value: u64) {
    debug_assert!(value < 1 << 56);
    let x = (value & 0x0FFF_FFFF) | ((value << 4) & 0x0FFF_FFFF_0000_0000);
    let x = (x & 0x0000_3FFF_0000_3FFF) | ((x << 2) & 0x3FFF_0000_3FFF_0000);
    let x = (x & 0x007F_007F_007F_007F) | ((x << 1) & 0x7F00_7F00_7F00_7F00);
    // The byte that holds the highest bit is the last; at least one.
    let last = (63 - (x | 1).leading_zeros()) / 8;
    let x = x | (MORE & ((1 << (8 * last)) - 1));
    put_start(out, x, last as usize + 1);
}

/// Appends the `mask`ed slots of `word`, lowest first.
#[inline]
pub(crate) fn put_slots(out: &mut Vec<u8>, word: u64, mask: u8) {
    put_start(out, gather(word, mask), slots_len(mask));
}

/// Appends the first `len` bytes of a number: eight at once and the rest away again, which is
/// faster than to copy a varying number.
#[inline]
fn put_start(out: &mut Vec<u8>, bytes: u64, len: usize) {
    let end = out.len() + len;
    out.extend_from_slice(&bytes.to_le_bytes());
    out.truncate(end);
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

    /// A varint by the book.
    fn plain_varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    #[test]
    fn varints_have_at_most_ten_bytes_and_64_bits() {
        let mut bytes = plain_varint(u64::MAX);
        assert_eq!(bytes.len(), 10);
        assert_eq!(Varints::new(&bytes).next(), Ok(u64::MAX));
        bytes[9] = 2;
        assert_eq!(Varints::new(&bytes).next(), Err(Fault::Overlong));
        assert_eq!(Varints::new(&[0xFF; 20]).next(), Err(Fault::Overlong));
    }

    proptest! {
        #[test]
        fn varints_round_trip(value: u64, shift in 0u32..64, tail in 0usize..9) {
            let value = value >> shift;
            let mut bytes = plain_varint(value);
            if value < 1 << 56 {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                prop_assert_eq!(&out, &bytes);
            }
            let len = bytes.len();
            let read = |bytes: &[u8], tail| {
                let bytes: Vec<u8> = bytes.iter().copied().chain((0..tail).map(|_| 0xAB)).collect();
                let mut varints = Varints::new(&bytes);
                varints.next().map(|value| (value, varints.at()))
            };
            prop_assert_eq!(read(&bytes, tail), Ok((value, len)));
            let cut = Fault::Truncated { needed: len as u32, left: len as u32 - 1 };
            prop_assert_eq!(read(&bytes[..len - 1], 0), Err(cut));
            // One more byte of zeros is another spelling of the same value.
            bytes[len - 1] |= 0x80;
            bytes.push(0);
            prop_assert_eq!(read(&bytes, tail), Err(Fault::Overlong));
        }

        #[test]
        fn slots_round_trip(word: u64, mask in 0u8..16, tail in 0usize..9) {
            let mut bytes = Vec::new();
            put_slots(&mut bytes, word, mask);
            let expected: Vec<u8> = (0..4)
                .filter(|slot| mask >> slot & 1 == 1)
                .flat_map(|slot| ((word >> (16 * slot)) as u16).to_le_bytes())
                .collect();
            prop_assert_eq!(&bytes, &expected);
            prop_assert_eq!(bytes.len(), slots_len(mask));
            bytes.resize(bytes.len() + tail, 0xAB);
            let mut slots = Slots::new(&bytes);
            prop_assert_eq!(slots.next(mask), word & slot_bits(mask));
            prop_assert_eq!(slots.at, expected.len());
        }
    }
}
