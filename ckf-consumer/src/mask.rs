//! Stop 10: a set of lanes, the shape of every answer. In comes what the row scan found; out go
//! lanes, in ascending order. End of the line.

use core::fmt;

use ckf_protocol::Lane;

/// A set of lanes.
///
/// ```
/// use ckf_consumer::LaneMask;
///
/// let mask = LaneMask::from_bits(0b1010);
/// assert_eq!(mask.iter().map(|lane| lane.get()).collect::<Vec<_>>(), [1, 3]);
/// assert_eq!((mask & LaneMask::first(2)).len(), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LaneMask(u64);

impl LaneMask {
    /// No lane.
    pub const EMPTY: Self = Self(0);

    /// The set with lane `i` for every set bit `i`.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The lanes below `count`; all 64 from 64 on.
    #[inline]
    pub const fn first(count: u32) -> Self {
        if count >= 64 { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// One lane.
    #[inline]
    pub const fn single(lane: Lane) -> Self {
        Self(1 << lane.get())
    }

    /// Bit `i` for lane `i`.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// How many lanes.
    #[inline]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `lane` is in the set.
    #[inline]
    pub const fn contains(self, lane: Lane) -> bool {
        self.0 >> lane.get() & 1 != 0
    }

    /// The lanes, ascending.
    #[inline]
    pub fn iter(self) -> LaneIter {
        LaneIter(self.0)
    }
}

impl core::ops::BitAnd for LaneMask {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl core::ops::BitOr for LaneMask {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl core::ops::Not for LaneMask {
    type Output = Self;

    #[inline]
    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl FromIterator<Lane> for LaneMask {
    fn from_iter<I: IntoIterator<Item = Lane>>(lanes: I) -> Self {
        lanes.into_iter().fold(Self::EMPTY, |mask, lane| mask | Self::single(lane))
    }
}

impl IntoIterator for LaneMask {
    type Item = Lane;
    type IntoIter = LaneIter;

    #[inline]
    fn into_iter(self) -> LaneIter {
        self.iter()
    }
}

impl fmt::Debug for LaneMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Lane::get)).finish()
    }
}

/// The lanes of a [`LaneMask`], ascending.
#[derive(Clone, Debug)]
pub struct LaneIter(u64);

impl Iterator for LaneIter {
    type Item = Lane;

    #[inline]
    fn next(&mut self) -> Option<Lane> {
        // 64 when nothing is left, which is no lane.
        let lane = Lane::new(self.0.trailing_zeros() as u8).ok()?;
        self.0 &= self.0.wrapping_sub(1);
        Some(lane)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.0.count_ones() as usize;
        (len, Some(len))
    }
}

impl ExactSizeIterator for LaneIter {}
impl core::iter::FusedIterator for LaneIter {}
