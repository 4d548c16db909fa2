//! Stand-ins until `ckf-protocol` has them.
#![allow(missing_docs)]

macro_rules! id {
    ($name:ident) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u64);
        impl $name {
            #[inline]
            pub const fn new(value: u64) -> Self {
                Self(value)
            }
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }
        }
    };
}
id!(DcId);
id!(Sequence);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);
impl Instant {
    #[inline]
    pub const fn from_millis(value: u64) -> Self {
        Self(value)
    }
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(u8);
impl Lane {
    #[inline]
    pub const fn new(lane: u8) -> Option<Self> {
        if lane < 64 { Some(Self(lane)) } else { None }
    }
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }
}
