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

/// Reads varints and slots of a body's tail.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Bytes not yet read.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// A varint: seven bits a byte, low ones first, top bit set on all but the last byte, no byte
    /// more than the value needs, at most ten.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0u64;
        for index in 0..10 {
            let Some(&byte) = self.bytes.get(self.at + index) else {
                return Err(Fault::Truncated {
                    needed: index as u32 + 1,
                    left: self.left() as u32,
                });
            };
            value |= u64::from(byte & 0x7F) << (7 * index);
            if byte & 0x80 == 0 {
                let overlong = (index > 0 && byte == 0) || (index == 9 && byte > 1);
                if overlong {
                    return Err(Fault::Overlong);
                }
                self.at += index + 1;
                return Ok(value);
            }
        }
        Err(Fault::Overlong)
    }

    /// The `mask`ed slots of an image, lowest first, put in their places; the others are 0.
    #[inline]
    pub(crate) fn slots(&mut self, mask: u8) -> Result<u64, Fault> {
        let len = 2 * mask.count_ones() as usize;
        let left = self.left();
        let bytes = if left >= 8 {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&self.bytes[self.at..self.at + 8]);
            bytes
        } else if left >= len {
            let mut bytes = [0; 8];
            bytes[..left].copy_from_slice(&self.bytes[self.at..]);
            bytes
        } else {
            return Err(Fault::Truncated { needed: len as u32, left: left as u32 });
        };
        self.at += len;
        Ok(spread(u64::from_le_bytes(bytes), mask))
    }
}

/// Puts the low slots of `packed` in the places that `mask` names.
#[inline]
pub(crate) const fn spread(mut packed: u64, mask: u8) -> u64 {
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
    any &= 0x0001_0001_0001_0001;
    // Bits 0, 16, 32 and 48 come together in the low four.
    (any.wrapping_mul(1 << 48 | 1 << 33 | 1 << 18 | 1 << 3) >> 48) as u8 & 15
}

/// All bits of the slots that `mask` names.
#[inline]
pub(crate) const fn slot_bits(mask: u8) -> u64 {
    spread(u64::MAX, mask)
}

/// Appends a varint.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the `mask`ed slots of `word`, lowest first.
#[inline]
pub(crate) fn put_slots(out: &mut Vec<u8>, word: u64, mask: u8) {
    let packed = gather(word, mask).to_le_bytes();
    out.extend_from_slice(&packed[..2 * mask.count_ones() as usize]);
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

    proptest! {
        #[test]
        fn varints_round_trip(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert_eq!(reader.left(), 0);
            // One more byte of zeros is another spelling of the same value.
            let last = bytes.len() - 1;
            bytes[last] |= 0x80;
            bytes.push(0);
            prop_assert_eq!(Reader::new(&bytes).varint(), Err(Fault::Overlong));
        }

        #[test]
        fn slots_round_trip(word: u64, mask in 0u8..16, tail in 0usize..9) {
            let mut bytes = Vec::new();
            put_slots(&mut bytes, word, mask);
            let len = bytes.len();
            bytes.resize(len + tail, 0xAB);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.slots(mask), Ok(word & slot_bits(mask)));
            prop_assert_eq!(reader.at(), len);
            if len > 0 {
                let cut = Reader::new(&bytes[..len - 1]).slots(mask);
                prop_assert_eq!(cut, Err(Fault::Truncated { needed: len as u32, left: len as u32 - 1 }));
            }
        }
    }
}
