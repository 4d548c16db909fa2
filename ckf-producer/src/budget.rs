//! Memory that a pool may take. Every growing part asks here first, so that running out of memory
//! is an error value at a known place and never an abort in the middle of a command.

use alloc::vec::Vec;

use ckf_core::AllocationError;

/// Bytes taken and the limit.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    used: u64,
    limit: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { used: 0, limit }
    }

    /// A budget with this limit of which so much is used.
    pub(crate) fn with_used(&self, used: u64) -> Self {
        Self { used, limit: self.limit }
    }

    /// Bytes taken.
    #[inline]
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Changes the limit. One below what is in use takes nothing away; it refuses all growth.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Bytes of a vector's memory.
    pub(crate) fn bytes_of<T>(vec: &Vec<T>) -> u64 {
        vec.capacity() as u64 * size_of::<T>() as u64
    }

    /// An empty vector with room for exactly `len` items.
    pub(crate) fn vec<T>(&mut self, len: usize) -> Result<Vec<T>, AllocationError> {
        let bytes = len as u64 * size_of::<T>() as u64;
        let refused = AllocationError { bytes };
        if self.used.checked_add(bytes).is_none_or(|used| used > self.limit) {
            return Err(refused);
        }
        let mut vec = Vec::new();
        vec.try_reserve_exact(len).map_err(|_| refused)?;
        self.used += Self::bytes_of(&vec);
        Ok(vec)
    }

    /// Makes room for one more item, half as much again when full.
    pub(crate) fn reserve_one<T>(&mut self, vec: &mut Vec<T>) -> Result<(), AllocationError> {
        if vec.len() < vec.capacity() {
            return Ok(());
        }
        let mut larger = self.vec(vec.len() + (vec.len() / 2).max(1))?;
        larger.append(vec);
        self.release(core::mem::replace(vec, larger));
        Ok(())
    }

    /// Gives a vector's memory back.
    pub(crate) fn release<T>(&mut self, vec: Vec<T>) {
        let bytes = Self::bytes_of(&vec);
        debug_assert!(bytes <= self.used, "only what was taken can be given back");
        self.used -= bytes;
    }
}
