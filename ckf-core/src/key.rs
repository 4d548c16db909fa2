//! The three key spaces of the system, kept apart by type.
//!
//! Only a [`BlockHash`] may enter a filter or a query: it is the one value that both the writer
//! and the reader can rebuild from a request. A [`LocalHash`] is a step on the way there, and an
//! [`EngineBlockId`] is an engine's private name for a block that no reader can ever compute.
//! There is deliberately no conversion between them; the bridge from local hashes is
//! [`sequence::roll`](crate::sequence::roll), the bridge from engine ids is the translator of
//! `ckf-producer`.

use core::fmt;

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Wraps the 64 bits as they are. Every value is legal, 0 and `u64::MAX` included.
            #[inline]
            pub const fn new(bits: u64) -> Self {
                Self(bits)
            }

            /// Takes the bit pattern of a signed value, as engines that publish `i64` mean it.
            #[inline]
            pub const fn from_signed(bits: i64) -> Self {
                Self(bits as u64)
            }

            /// The 64 bits.
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:016x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }
    };
}

key! {
    /// The full 64-bit sequence hash of one KV block: it stands for the block and all before it.
    BlockHash
}

key! {
    /// The hash of one block's own tokens, position and predecessors left out.
    LocalHash
}

key! {
    /// An engine's private name for a block. Never enters a filter (report F01).
    EngineBlockId
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn f03_signed_and_unsigned_forms_are_the_same_bits() {
        for (signed, bits) in [(0, 0), (100, 100), (i64::MIN, 1 << 63), (-1, u64::MAX)] {
            assert_eq!(BlockHash::from_signed(signed), BlockHash::new(bits));
            assert_eq!(EngineBlockId::from_signed(signed).get(), bits);
        }
        assert_eq!(format!("{}", BlockHash::from_signed(-1)), "ffffffffffffffff");
    }
}
