//! The one file that names atomics: the standard ones, or loom's under `cfg(ckf_loom)`.
//!
//! Everything shared between threads is built from these words. What pairs with what is written
//! in the "Orderings" section of [`table`](crate::table).

#[cfg(not(ckf_loom))]
pub(crate) use std::{
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering, fence},
};

#[cfg(ckf_loom)]
pub(crate) use loom::{
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering, fence},
};
