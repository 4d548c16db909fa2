//! The keyed permutation under which the exact sets hold block hashes.

use core::fmt;

use ckf_core::{BlockHash, GOLDEN_GAMMA, mix64};

/// Seeds of the exact sets. The host draws them at random and keeps them to itself, so that nobody
/// outside can choose block hashes that crowd one segment. They never leave the process and do not
/// influence the filter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashSeeds([u64; 4]);

impl HashSeeds {
    /// Seeds from 32 random bytes.
    pub const fn new(seeds: [u64; 4]) -> Self {
        Self(seeds)
    }
}

impl fmt::Debug for HashSeeds {
    /// Keeps the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSeeds(..)")
    }
}

/// A block hash as the exact sets hold it: scattered evenly over the 64-bit numbers.
///
/// It is its own hash, so a set that moves it to another place has nothing to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(super) u64);

impl Key {
    pub(super) const ZERO: Self = Self(0);

    /// The 64 bits.
    #[inline]
    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

/// A bijection of the 64-bit numbers: two rounds of xor, odd multiplication and shift, with secret
/// constants and multipliers.
#[derive(Clone, Copy)]
pub(crate) struct Scramble {
    xor: [u64; 2],
    multiply: [u64; 2],
    undo: [u64; 2],
}

impl Scramble {
    pub(crate) fn new(seeds: HashSeeds) -> Self {
        let [a, b, c, d] = seeds.0;
        let multiply = [multiplier(c), multiplier(d)];
        Self { xor: [a, b], multiply, undo: multiply.map(inverse) }
    }

    #[inline]
    pub(crate) fn key(&self, block: BlockHash) -> Key {
        let x = (block.get() ^ self.xor[0]).wrapping_mul(self.multiply[0]);
        let x = ((x ^ (x >> 32)) ^ self.xor[1]).wrapping_mul(self.multiply[1]);
        Key(x ^ (x >> 32))
    }

    #[inline]
    pub(crate) fn block(&self, key: Key) -> BlockHash {
        let x = (key.0 ^ (key.0 >> 32)).wrapping_mul(self.undo[1]) ^ self.xor[1];
        BlockHash::new((x ^ (x >> 32)).wrapping_mul(self.undo[0]) ^ self.xor[0])
    }
}

impl fmt::Debug for Scramble {
    /// Keeps the secret: whoever knows these numbers knows the seeds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scramble(..)")
    }
}

/// An odd multiplier with bits all over, even from a seed of few bits.
fn multiplier(seed: u64) -> u64 {
    mix64(seed.wrapping_add(GOLDEN_GAMMA)) | 1
}

/// The number whose product with the odd `factor` is 1 modulo 2^64. Newton's iteration: each
/// round doubles the number of right bits, of which an odd number as its own guess has three.
fn inverse(factor: u64) -> u64 {
    let refine = |guess: u64| guess.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(guess)));
    (0..5).fold(factor, |guess, _| refine(guess))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_a_bijection(seeds: [u64; 4], block: u64) {
            let scramble = Scramble::new(HashSeeds::new(seeds));
            for block in [block, 0, 1, u64::MAX] {
                let block = BlockHash::new(block);
                prop_assert_eq!(scramble.block(scramble.key(block)), block);
            }
        }
    }

    /// Block hashes of simple patterns spread over high bits (the line) and low bits (the segment).
    #[test]
    fn patterns_spread_evenly() {
        for seeds in [[0; 4], [1, 2, 3, 4], [u64::MAX; 4], [0x1234_5678, 9, 1 << 63, 77]] {
            let scramble = Scramble::new(HashSeeds::new(seeds));
            for step in [1, 2, 64, 4096, 1 << 20, 1 << 32, 1 << 40, 1 << 48, 0x0101_0101_0101_0101]
            {
                let (mut high, mut low) = ([0u32; 256], [0u32; 256]);
                for i in 0u64..1 << 16 {
                    let key = scramble.key(BlockHash::new(i.wrapping_mul(step))).0;
                    high[(key >> 56) as usize] += 1;
                    low[(key & 255) as usize] += 1;
                }
                // 256 on average; chance alone stays within eight standard deviations.
                for count in high.into_iter().chain(low) {
                    assert!((128..=384).contains(&count), "{seeds:?} {step:x}: {count}");
                }
            }
        }
    }
}
