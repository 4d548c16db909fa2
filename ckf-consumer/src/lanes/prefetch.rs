//! Asking for a cache line before it is needed.

use crate::row::Line;

/// Asks for line `index` of `lines`. A hint: it reads nothing, and an index outside is harmless.
#[inline(always)]
pub(crate) fn prefetch(lines: &[Line], index: usize) {
    let line = lines.as_ptr().wrapping_add(index);
    #[cfg(all(target_arch = "x86_64", not(any(ckf_loom, miri))))]
    // SAFETY: SSE, which every x86-64 processor has, is all that it needs; a prefetch of any
    // address, even one outside all memory, neither faults nor counts as an access.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(any(ckf_loom, miri))))]
    // SAFETY: a prefetch of any address neither faults nor counts as an access.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{line}]", line = in(reg) line,
            options(readonly, nostack, preserves_flags));
    }
    #[cfg(any(ckf_loom, miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = line;
}
