//! The AVX-512 row scan: a cache line an instruction.

use core::arch::asm;
use core::arch::x86_64::{
    __m512i, _mm512_min_epu16, _mm512_set1_epi16, _mm512_subs_epu16, _mm512_test_epi64_mask,
    _mm512_xor_si512,
};

use super::{Operation, Scan};
use crate::row::Line;

/// The proof that the processor has what [`enter`] and [`either`] enable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The proof, where it holds.
    pub(crate) fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        has.then_some(Self(()))
    }
}

impl Scan for Avx512 {
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

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
fn enter<O: Operation>(scan: Avx512, operation: O) {
    operation.run(scan);
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn either(first: &Line, second: &Line, fingerprint: u16) -> u64 {
    let wanted = _mm512_set1_epi16(fingerprint as i16);
    // A slot of the minimum is 0 where either line's slot is the wanted one; then 1 - it is 1,
    // and 0 elsewhere.
    let nearest = _mm512_min_epu16(
        _mm512_xor_si512(load(first), wanted),
        _mm512_xor_si512(load(second), wanted),
    );
    let equal = _mm512_subs_epu16(_mm512_set1_epi16(1), nearest);
    u64::from(_mm512_test_epi64_mask(equal, equal))
}

/// The eight words of a line. See "Loads" of the parent module.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(line: &Line) -> __m512i {
    let words: __m512i;
    // SAFETY:
    // - the reference is valid for reads of 64 bytes and aligned to 64, as `vmovdqa64` asks; the
    //   size and alignment of `Line` are asserted where it is defined;
    // - the instruction writes nothing but its output register;
    // - other threads may store to the words meanwhile: the block does what eight relaxed loads
    //   would do, and all bit patterns are valid.
    unsafe {
        asm!("vmovdqa64 {words}, [{line}]", words = out(zmm_reg) words, line = in(reg) line,
            options(readonly, nostack, preserves_flags));
    }
    words
}
