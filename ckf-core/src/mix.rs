//! The one mixer of the ckf family for everything that is not a filter address.

/// The increment of SplitMix64, 2^64 divided by the golden ratio: odd, so that its multiples visit
/// all 64-bit numbers.
pub const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Scatters 64 bits: a bijection in which every bit of the input moves about half of the bits of
/// the output. The finaliser of SplitMix64 (Steele, Lea, Flood 2014); for digests, jitter and ids,
/// not for secrets.
///
/// It maps 0 to 0; where that matters, add [`GOLDEN_GAMMA`] first. Numbers drawn one after another
/// are `mix64` of a state to which [`GOLDEN_GAMMA`] is added each time.
///
/// ```
/// use ckf_core::{GOLDEN_GAMMA, mix64};
///
/// // The first numbers of SplitMix64 from state 0, as published with it.
/// assert_eq!(mix64(GOLDEN_GAMMA), 0xE220_A839_7B1D_CDAF);
/// assert_eq!(mix64(GOLDEN_GAMMA.wrapping_mul(2)), 0x6E78_9E6A_A1B9_65F4);
/// ```
#[inline]
#[must_use]
pub const fn mix64(value: u64) -> u64 {
    let x = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
