//! The NEON row scan: a quarter of a cache line an instruction.
//!
//! No machine of ours has such a processor: `ci/neon.sh` runs the tests under an emulator where the
//! target and the emulator are installed. Its speed was never measured.

use core::arch::aarch64::{
    uint16x8_t, uint64x2_t, vaddvq_u16, vandq_u16, vceqq_u16, vcombine_u16, vcombine_u32,
    vdupq_n_u16, vld1q_u16, vorrq_u16, vqmovn_u32, vqmovn_u64, vreinterpretq_u64_u16, vtstq_u16,
};
use core::arch::asm;

use super::{Operation, Scan};
use crate::row::Line;
use crate::sync::AtomicU64;

/// The proof that the processor has NEON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(());

impl Neon {
    /// The proof, where it holds.
    pub(crate) fn new() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

impl Scan for Neon {
    #[inline(always)]
    fn either(self, first: &Line, second: &Line, fingerprint: u16) -> u64 {
        // SAFETY: `self` exists, so the processor has the feature.
        unsafe { either(first, second, fingerprint) }
    }

    #[inline(always)]
    fn enter<O: Operation>(self, operation: O) {
        // SAFETY: `self` exists, so the processor has the feature.
        unsafe { enter(self, operation) };
    }
}

#[target_feature(enable = "neon")]
fn enter<O: Operation>(scan: Neon, operation: O) {
    operation.run(scan)
}

#[inline]
#[target_feature(enable = "neon")]
fn either(first: &Line, second: &Line, fingerprint: u16) -> u64 {
    const WEIGHTS: [u16; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
    let wanted = vdupq_n_u16(fingerprint);
    let [a, b, c, d] = [0, 2, 4, 6].map(|at| pair(first, second, at, wanted));
    // Saturating narrowing keeps "not 0" from eight bytes down to two.
    let low = vqmovn_u32(vcombine_u32(vqmovn_u64(a), vqmovn_u64(b)));
    let high = vqmovn_u32(vcombine_u32(vqmovn_u64(c), vqmovn_u64(d)));
    let words = vcombine_u16(low, high);
    // SAFETY: the constant is eight `u16`, as the load asks.
    let weights = unsafe { vld1q_u16(WEIGHTS.as_ptr()) };
    u64::from(vaddvq_u16(vandq_u16(vtstq_u16(words, words), weights)))
}

/// Not 0 in each of two words, from `at` on, where either line's word holds the wanted slot.
#[inline]
#[target_feature(enable = "neon")]
fn pair(first: &Line, second: &Line, at: usize, wanted: uint16x8_t) -> uint64x2_t {
    let (Some(first), Some(second)) = (first.0[at..].first_chunk(), second.0[at..].first_chunk())
    else {
        unreachable!("a line has eight words")
    };
    let equal = vorrq_u16(vceqq_u16(load(first), wanted), vceqq_u16(load(second), wanted));
    vreinterpretq_u64_u16(equal)
}

/// Two words. See "Loads" of the parent module.
#[inline]
#[target_feature(enable = "neon")]
fn load(words: &[AtomicU64; 2]) -> uint16x8_t {
    let loaded: uint16x8_t;
    // SAFETY:
    // - the reference is valid for reads of 16 bytes; `ldr` asks for no more alignment than it has;
    // - the instruction writes nothing but its output register;
    // - other threads may store to the words meanwhile: the block does what two relaxed loads
    //   would do, and all bit patterns are valid.
    unsafe {
        asm!("ldr {loaded:q}, [{words}]", loaded = out(vreg) loaded, words = in(reg) words,
            options(readonly, nostack, preserves_flags));
    }
    loaded
}
