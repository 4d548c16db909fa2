//! Compiles only when nothing below links `std`: a second panic handler is an error.

#![no_std]

use ckf_core as _;
use ckf_producer as _;
use ckf_protocol as _;

use core::alloc::{GlobalAlloc, Layout};

struct NoHeap;

// SAFETY: never hands out memory, which the contract of `GlobalAlloc` allows: null is a refusal.
unsafe impl GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static HEAP: NoHeap = NoHeap;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
