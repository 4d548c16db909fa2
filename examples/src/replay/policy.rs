//! Which of several holders gets a request.

/// How a request finds its DC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// The longest prefix; ties and misses by load.
    Prefix,
    /// The least loaded DC.
    Load,
    /// One DC after the other.
    RoundRobin,
}

impl Policy {
    /// All policies, the one this project is about first.
    pub const ALL: [Self; 3] = [Self::Prefix, Self::Load, Self::RoundRobin];

    /// The name on the command line and in the JSON file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::Load => "load",
            Self::RoundRobin => "round-robin",
        }
    }
}

/// The holder of the longest prefix, or of one nearly as long but with less load.
///
/// Depths that differ by at most an eighth of the prompt count as tied. Without that slack nearly
/// every prompt would follow the few shared system blocks to whoever held them first, and one DC
/// would get all the traffic (on the Mooncake chat trace the hit rate falls by a quarter).
///
/// `depths` and `loads` have one entry a holder; `blocks` is the prompt's length. Returns the index
/// of the choice, the lowest of equals; 0 when there are no holders.
pub fn deepest_or_idlest(depths: &[usize], loads: &[u64], blocks: usize) -> usize {
    let deepest = depths.iter().copied().max().unwrap_or(0);
    let slack = blocks / 8;
    let tied = (0..depths.len()).filter(|&i| depths[i] + slack >= deepest);
    tied.min_by_key(|&i| loads[i]).unwrap_or(0)
}

/// The index of the least loaded, the lowest of equals; 0 when there are none.
pub fn idlest(loads: &[u64]) -> usize {
    (0..loads.len()).min_by_key(|&i| loads[i]).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clearly_longer_prefix_wins_whatever_the_load() {
        assert_eq!(deepest_or_idlest(&[0, 9, 3], &[0, 900, 1], 16), 1);
    }

    #[test]
    fn ties_near_ties_and_misses_go_by_load_then_by_order() {
        assert_eq!(deepest_or_idlest(&[9, 9, 9], &[3, 2, 2], 16), 1);
        assert_eq!(deepest_or_idlest(&[1, 0, 0], &[7, 5, 6], 14), 1);
        assert_eq!(deepest_or_idlest(&[1, 0, 0], &[7, 5, 6], 7), 0, "no slack for a short prompt");
        assert_eq!(deepest_or_idlest(&[0, 0, 0], &[7, 5, 3], 14), 2);
        assert_eq!(idlest(&[4, 2, 2]), 1);
        assert_eq!((deepest_or_idlest(&[], &[], 3), idlest(&[])), (0, 0));
    }
}
