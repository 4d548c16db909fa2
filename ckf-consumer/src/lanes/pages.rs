//! Large pages for the rows, where the platform offers them.

/// Asks the kernel to back this memory, which nothing has touched yet, with huge pages. Only with
/// the feature `huge-pages`, and only on Linux; a refusal changes nothing.
#[cfg_attr(
    not(all(feature = "huge-pages", target_os = "linux")),
    expect(clippy::needless_pass_by_ref_mut, reason = "written by the kernel where it is used")
)]
pub(crate) fn advise_huge<T>(memory: &mut [core::mem::MaybeUninit<T>]) {
    #[cfg(all(feature = "huge-pages", target_os = "linux", not(any(ckf_loom, miri))))]
    {
        // Whole pages of the smallest size that any Linux target has and all accept: 64 KiB.
        const PAGE: usize = 1 << 16;
        let start = memory.as_mut_ptr();
        let skipped = start.addr().wrapping_neg() % PAGE;
        let Some(rest) = size_of_val(memory).checked_sub(skipped) else { return };
        let len = rest - rest % PAGE;
        // SAFETY:
        // - the range is whole pages within `memory`, which is borrowed for us alone;
        // - `MADV_HUGEPAGE` keeps contents and mapping as they are.
        unsafe {
            libc::madvise(start.wrapping_byte_add(skipped).cast(), len, libc::MADV_HUGEPAGE);
        }
    }
    #[cfg(not(all(feature = "huge-pages", target_os = "linux", not(any(ckf_loom, miri)))))]
    let _ = memory;
}
