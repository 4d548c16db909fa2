//! Errors of this crate's constructor.

use ckf_core::AllocationError;
use thiserror::Error;

use crate::Backend;

/// Why a consumer cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// The memory of the rows was refused.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// The host's memory is too small for the rows.
    #[error("{given} lines of memory given, {needed} needed")]
    Memory {
        /// Lines that the host gave.
        given: usize,
        /// Lines that it takes: [`ConsumerConfig::lines_needed`](crate::ConsumerConfig::lines_needed).
        needed: usize,
    },
    /// This processor or build does not have the backend that was asked for.
    #[error("backend {backend:?} is not available")]
    Backend {
        /// The backend that was asked for.
        backend: Backend,
    },
}
