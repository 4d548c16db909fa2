//! The AVX2 row scan: half a cache line an instruction.

use core::arch::asm;
use core::arch::x86_64::{
    __m256i, _mm256_castsi256_pd, _mm256_cmpeq_epi16, _mm256_cmpeq_epi64, _mm256_min_epu16,
    _mm256_movemask_pd, _mm256_set1_epi16, _mm256_setzero_si256, _mm256_xor_si256,
};

use super::{Operation, Scan};
use crate::row::Line;
use crate::sync::AtomicU64;

/// The proof that the processor has what [`enter`] and [`either`] enable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The proof, where it holds.
    pub(crate) fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        has.then_some(Self(()))
    }
}

impl Scan for Avx2 {
    #[inline(always)]
    fn either(self, first: &Line, second: &Line, fingerprint: u16) -> u64 {
        // SAFETY: `self` exists, so the processor has the features.
        unsafe { either(first, second, fingerprint) }
    }

    #[inline(always)]
    fn enter<O: Operation>(self, operation: O) {
        // SAFETY: `self` exists, so the processor has the features.
        unsafe { enter(self, operation) };
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn enter<O: Operation>(scan: Avx2, operation: O) {
    operation.run(scan);
}

#[inline]
#[target_feature(enable = "avx2")]
fn either(first: &Line, second: &Line, fingerprint: u16) -> u64 {
    let wanted = _mm256_set1_epi16(fingerprint as i16);
    let ([first_low, first_high], [second_low, second_high]) = (halves(first), halves(second));
    half(first_low, second_low, wanted) | half(first_high, second_high, wanted) << 4
}

/// [`either`] of four words.
#[inline]
#[target_feature(enable = "avx2")]
fn half(first: &[AtomicU64; 4], second: &[AtomicU64; 4], wanted: __m256i) -> u64 {
    // A slot of the minimum is 0 where either line's slot is the wanted one.
    let nearest = _mm256_min_epu16(
        _mm256_xor_si256(load(first), wanted),
        _mm256_xor_si256(load(second), wanted),
    );
    let zero = _mm256_setzero_si256();
    let equal = _mm256_cmpeq_epi16(nearest, zero);
    let without = _mm256_cmpeq_epi64(equal, zero);
    (_mm256_movemask_pd(_mm256_castsi256_pd(without)) ^ 0xF) as u64
}

#[inline]
fn halves(line: &Line) -> [&[AtomicU64; 4]; 2] {
    let (Some(low), Some(high)) = (line.0.first_chunk(), line.0.last_chunk()) else {
        unreachable!("a line has eight words")
    };
    [low, high]
}

/// Four words. See "Loads" of the parent module.
#[inline]
#[target_feature(enable = "avx")]
fn load(words: &[AtomicU64; 4]) -> __m256i {
    let loaded: __m256i;
    // SAFETY:
    // - the reference is valid for reads of 32 bytes; `vmovdqu` asks for no alignment;
    // - the instruction writes nothing but its output register;
    // - other threads may store to the words meanwhile: the block does what four relaxed loads
    //   would do, and all bit patterns are valid.
    unsafe {
        asm!("vmovdqu {loaded}, [{words}]", loaded = out(ymm_reg) loaded, words = in(reg) words,
            options(readonly, nostack, preserves_flags));
    }
    loaded
}
