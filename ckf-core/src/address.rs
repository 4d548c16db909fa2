//! Addressing: from a block hash to a fingerprint and two buckets. Frozen; the vectors are in
//! `tests/vectors/addressing.txt`.

use core::num::NonZeroU16;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{BlockHash, Format, GOLDEN_GAMMA, Indexing};

/// The multiplier of XXH3's mixing of short inputs (xxHash specification, "XXH3 4 to 8 bytes").
const XXH3_PRIME: u64 = 0x9FB2_1C65_1E98_DF25;
/// Bytes 8 to 15 of XXH3's secret, exclusive or bytes 16 to 23.
const XXH3_SECRET: u64 = 0x1CAD_21F7_2C81_017C ^ 0xDB97_9083_E96D_D4DE;

/// The non-zero 16 bits that stand for a block in the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Fingerprint(NonZeroU16);

impl Fingerprint {
    /// The fingerprint with these bits; `None` for 0, which marks an empty slot.
    #[inline]
    pub const fn new(bits: u16) -> Option<Self> {
        match NonZeroU16::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Low 16 bits of a mixed hash, 1 where those are 0.
    #[inline]
    const fn of_mixed(mixed: u64) -> Self {
        match NonZeroU16::new(mixed as u16) {
            Some(bits) => Self(bits),
            None => Self(NonZeroU16::MIN),
        }
    }

    /// The 16 bits, never 0.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

/// Position of a bucket in tables of one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct BucketIndex(u32);

impl BucketIndex {
    /// The position as a number, below the format's bucket count.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The position as a slice index.
    #[inline]
    pub const fn to_usize(self) -> usize {
        self.0 as usize
    }
}

/// Where a block lives in a filter: its fingerprint and its two candidate buckets.
///
/// The two may be the same bucket; then it is the only candidate and holds at most four copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// What a slot holds.
    pub fingerprint: Fingerprint,
    /// First candidate.
    pub first: BucketIndex,
    /// Second candidate.
    pub second: BucketIndex,
}

/// Finds the addresses of blocks in one format. What does not depend on the block is computed
/// once, and code that is generic over this decides once how buckets are found.
pub trait Addresser: Copy {
    /// [`Format::address`]. Cost: some 25 instructions, no memory access.
    fn address(&self, hash: BlockHash) -> Address;
}

/// The [`Addresser`] of a format.
#[derive(Clone, Copy, Debug)]
pub enum Addressing {
    /// Of one with [`Indexing::AnyCount`].
    AnyCount(AnyCount),
    /// Of one with [`Indexing::PowerOfTwo`].
    PowerOfTwo(PowerOfTwo),
}

/// Addresses where any bucket count goes.
#[derive(Clone, Copy, Debug)]
pub struct AnyCount {
    flip: u64,
    count: u32,
}

/// Addresses where the second bucket is found by exclusive or.
#[derive(Clone, Copy, Debug)]
pub struct PowerOfTwo {
    flip: u64,
    format: Format,
}

impl Addresser for AnyCount {
    #[inline(always)]
    fn address(&self, hash: BlockHash) -> Address {
        let mixed = xxh3_of_u64(hash.get(), self.flip);
        let fingerprint = Fingerprint::of_mixed(mixed);
        let first = BucketIndex(scale(mixed, self.count));
        Address { fingerprint, first, second: first.mirrored(fingerprint, self.count) }
    }
}

impl Addresser for PowerOfTwo {
    #[inline(always)]
    fn address(&self, hash: BlockHash) -> Address {
        let mixed = xxh3_of_u64(hash.get(), self.flip);
        let fingerprint = Fingerprint::of_mixed(mixed);
        let first = BucketIndex((mixed >> 16) as u32 & (self.format.bucket_count() - 1));
        Address { fingerprint, first, second: self.format.alternate(first, fingerprint) }
    }
}

impl BucketIndex {
    /// The other candidate where any bucket count goes: first + second = sum (mod count), so each
    /// is the mirror of the other.
    #[inline(always)]
    fn mirrored(self, fingerprint: Fingerprint, count: u32) -> Self {
        let sum = scale(u64::from(fingerprint.get()).wrapping_mul(GOLDEN_GAMMA), count);
        // The smaller one as unsigned numbers is the one that did not wrap below 0.
        let other = sum.wrapping_sub(self.0);
        Self(other.min(other.wrapping_add(count)))
    }
}

/// XXH3-64 of eight bytes, little-endian, with the seed that `flip` was made of. Written out since
/// the library's way to it decides on the length, and mixes the seed, for every block anew.
#[inline(always)]
const fn xxh3_of_u64(bits: u64, flip: u64) -> u64 {
    let keyed = bits.rotate_left(32) ^ flip;
    let mixed = keyed ^ keyed.rotate_left(49) ^ keyed.rotate_left(24);
    let mixed = mixed.wrapping_mul(XXH3_PRIME);
    let mixed = mixed ^ ((mixed >> 35) + 8);
    let mixed = mixed.wrapping_mul(XXH3_PRIME);
    mixed ^ (mixed >> 28)
}

/// Of a seed, what [`xxh3_of_u64`] needs.
#[inline(always)]
const fn xxh3_flip(seed: u64) -> u64 {
    let seed = seed ^ ((seed as u32).swap_bytes() as u64) << 32;
    XXH3_SECRET.wrapping_sub(seed)
}

impl Format {
    /// The address of a block. Cost: one XXH3-64 of 8 bytes ([`Indexing::PowerOfTwo`]: one more,
    /// of 2 bytes) and a few multiplications; no memory access. For many blocks of one format see
    /// [`addressing`](Self::addressing).
    #[inline]
    pub fn address(&self, hash: BlockHash) -> Address {
        match self.addressing() {
            Addressing::AnyCount(addresser) => addresser.address(hash),
            Addressing::PowerOfTwo(addresser) => addresser.address(hash),
        }
    }

    /// This format, ready for many addresses.
    #[inline]
    pub const fn addressing(&self) -> Addressing {
        let flip = xxh3_flip(self.seed());
        match self.indexing() {
            Indexing::AnyCount => {
                Addressing::AnyCount(AnyCount { flip, count: self.bucket_count() })
            }
            Indexing::PowerOfTwo => Addressing::PowerOfTwo(PowerOfTwo { flip, format: *self }),
        }
    }

    /// The other candidate bucket of a fingerprint found in `bucket`. Its own inverse.
    #[inline]
    pub fn alternate(&self, bucket: BucketIndex, fingerprint: Fingerprint) -> BucketIndex {
        let count = self.bucket_count();
        match self.indexing() {
            Indexing::AnyCount => bucket.mirrored(fingerprint, count),
            Indexing::PowerOfTwo => {
                let bytes = fingerprint.get().to_le_bytes();
                let step =
                    xxh3_64_with_seed(&bytes, self.seed() ^ GOLDEN_GAMMA) as u32 & (count - 1);
                BucketIndex(bucket.0 ^ step.max(1))
            }
        }
    }

    /// The bucket at `index`, or `None` outside the table.
    #[inline]
    pub const fn bucket(&self, index: u32) -> Option<BucketIndex> {
        if index < self.bucket_count() { Some(BucketIndex(index)) } else { None }
    }

    /// All buckets, ascending.
    pub fn buckets(&self) -> impl ExactSizeIterator<Item = BucketIndex> + use<> {
        (0..self.bucket_count()).map(BucketIndex)
    }
}

/// Maps 64 bits evenly onto `0..count`: the high half of the 128-bit product.
#[inline]
const fn scale(bits: u64, count: u32) -> u32 {
    ((bits as u128 * count as u128) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> impl Iterator<Item = Format> {
        (2..=1024).flat_map(|count| {
            let any = Format::any_count(count, 7).ok();
            let xor = Format::power_of_two(count, 7).ok();
            any.into_iter().chain(xor)
        })
    }

    #[test]
    fn f23_alternate_is_its_own_inverse_for_every_count() {
        for format in counts() {
            for bucket in format.buckets() {
                for bits in [1, 2, 3, 255, 256, 0x7FFF, 0x8000, 0xACD9, 65534, 65535] {
                    let fingerprint = Fingerprint::new(bits).unwrap();
                    let other = format.alternate(bucket, fingerprint);
                    assert!(other.get() < format.bucket_count(), "{format:?} {bucket:?} {bits}");
                    assert_eq!(format.alternate(other, fingerprint), bucket, "{format:?} {bits}");
                }
            }
        }
    }

    #[test]
    fn f23_alternate_is_its_own_inverse_at_the_largest_counts() {
        for count in [Format::MAX_BUCKETS - 1, Format::MAX_BUCKETS] {
            let format = Format::any_count(u64::from(count), 7).unwrap();
            for index in [0, 1, count / 2, count - 2, count - 1] {
                for bits in 1..=u16::MAX {
                    let fingerprint = Fingerprint::new(bits).unwrap();
                    let bucket = format.bucket(index).unwrap();
                    let other = format.alternate(bucket, fingerprint);
                    assert!(other.get() < count);
                    assert_eq!(format.alternate(other, fingerprint), bucket);
                }
            }
        }
    }

    /// The written-out hash against the library's.
    #[test]
    fn the_mixing_is_xxh3() {
        for seed in [0, 1, 42, 1 << 31, 1 << 32, Format::DYNAMO_SEED, u64::MAX] {
            let mut bits = seed ^ GOLDEN_GAMMA;
            for _ in 0..1000 {
                bits = bits.wrapping_mul(XXH3_PRIME).rotate_left(29) ^ seed;
                for bits in [bits, bits & 0xFFFF, 0, u64::MAX] {
                    let expected = xxh3_64_with_seed(&bits.to_le_bytes(), seed);
                    assert_eq!(xxh3_of_u64(bits, xxh3_flip(seed)), expected, "{bits:x} {seed:x}");
                }
            }
        }
    }

    #[test]
    fn f24_raw_zero_becomes_one() {
        let format = Format::any_count(1000, 11).unwrap();
        let zeros = (0..1_000_000)
            .map(BlockHash::new)
            .filter(|hash| xxh3_64_with_seed(&hash.get().to_le_bytes(), 11) as u16 == 0)
            .inspect(|&hash| assert_eq!(format.address(hash).fingerprint.get(), 1))
            .count();
        assert!((3..60).contains(&zeros), "about 15 expected, {zeros} seen");
    }

    #[test]
    fn indices_spread_evenly() {
        let format = Format::any_count(37, 3).unwrap();
        let mut first = [0u32; 37];
        let mut second = [0u32; 37];
        for i in 0..37_000 {
            let address = format.address(BlockHash::new(i));
            first[address.first.to_usize()] += 1;
            second[address.second.to_usize()] += 1;
        }
        for n in first.into_iter().chain(second) {
            assert!((850..1150).contains(&n), "{n}");
        }
    }
}
