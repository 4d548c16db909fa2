//! Which wire versions two sides have in common.

use thiserror::Error;

/// A range of wire versions, both ends included, never empty, never with version 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VersionRange {
    min: u8,
    max: u8,
}

/// Why a [`VersionRange`] is refused: it is empty or holds version 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("wire versions {min} to {max} are no range")]
pub struct VersionRangeError {
    /// The lower end.
    pub min: u8,
    /// The upper end.
    pub max: u8,
}

impl VersionRange {
    /// The version that this crate writes.
    pub const CURRENT: u8 = 1;
    /// The versions that this crate reads.
    pub const SUPPORTED: Self = Self { min: 1, max: 1 };

    /// The versions from `min` to `max`.
    ///
    /// # Errors
    /// [`VersionRangeError`] when `min` is 0 or above `max`.
    pub const fn new(min: u8, max: u8) -> Result<Self, VersionRangeError> {
        if min == 0 || min > max {
            return Err(VersionRangeError { min, max });
        }
        Ok(Self { min, max })
    }

    /// The lower end.
    pub const fn min(self) -> u8 {
        self.min
    }

    /// The upper end.
    pub const fn max(self) -> u8 {
        self.max
    }

    /// Whether `version` is one of them.
    pub const fn contains(self, version: u8) -> bool {
        self.min <= version && version <= self.max
    }

    /// The version that a lease between the two uses: the highest that both have. `None` means
    /// that the producer rejects the subscription with its own range.
    pub const fn common(self, other: Self) -> Option<u8> {
        let highest = if self.max < other.max { self.max } else { other.max };
        if self.contains(highest) && other.contains(highest) { Some(highest) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_is_the_highest_of_both_or_nothing() {
        for a in 1..6 {
            for b in a..6 {
                for c in 1..6 {
                    for d in c..6 {
                        let (one, two) =
                            (VersionRange::new(a, b).unwrap(), VersionRange::new(c, d).unwrap());
                        let both = (1..6).rev().find(|&v| one.contains(v) && two.contains(v));
                        assert_eq!(one.common(two), both, "{one:?} {two:?}");
                        assert_eq!(two.common(one), both);
                    }
                }
            }
        }
        assert_eq!(VersionRange::new(0, 1), Err(VersionRangeError { min: 0, max: 1 }));
        assert_eq!(VersionRange::new(2, 1), Err(VersionRangeError { min: 2, max: 1 }));
    }
}
