//! Names of what a source sends: events, generations, and the questions asked back.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Wraps the number as it is. Every value is legal.
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The number.
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// Position of an event in its source's numbering. Rises by one per event within a generation.
    EventId
}

impl EventId {
    /// The following id; `None` at the end of the range.
    pub const fn checked_next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(next) => Some(Self(next)),
            None => None,
        }
    }
}

number! {
    /// One life of a source, strictly rising per member: a start time or a counter of the host's.
    ///
    /// It says that the member's cache and its numbering began anew. A new connection, or a
    /// restart of something between source and host, is not a new generation (report F15).
    SourceGeneration
}

number! {
    /// Names a question to a source. Repetitions of a question carry the same id, so that an
    /// answer to any of them is recognised, and the second one as late.
    RequestId
}
