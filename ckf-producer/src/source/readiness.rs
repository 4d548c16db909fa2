//! When a pool's sources have told enough for the pool to be used.

use ckf_protocol::{Instant, Millis};

use super::config::SourceConfigError;

/// "At least so many per cent of the expected members recovered, or the time limit passed."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyRule {
    percent: u8,
    limit: Millis,
}

impl ReadyRule {
    /// Ready once `percent` of the expected members have recovered, at the latest after `limit`.
    ///
    /// # Errors
    /// [`SourceConfigError::Share`] for a share outside 1 to 100.
    pub const fn new(percent: u8, limit: Millis) -> Result<Self, SourceConfigError> {
        if percent == 0 || percent > 100 {
            return Err(SourceConfigError::Share { percent });
        }
        Ok(Self { percent, limit })
    }
}

/// How far the sources of a pool are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Readiness {
    /// Members that the host expects.
    pub expected: usize,
    /// Of those: members whose state was exactly known at least once.
    pub recovered: usize,
    /// Why the pool is ready; `None` while it is not. Once ready, a pool stays so.
    pub ready: Option<ReadyReason>,
}

/// Why a pool is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadyReason {
    /// Enough of the expected members recovered.
    Recovered,
    /// The time limit passed.
    TimeLimit,
}

/// Applies a [`ReadyRule`].
#[derive(Clone, Debug)]
pub(super) struct Gate {
    rule: ReadyRule,
    limit: Instant,
    pub(super) expected: usize,
    pub(super) recovered: usize,
    ready: Option<ReadyReason>,
}

impl Gate {
    pub(super) fn new(rule: ReadyRule, now: Instant) -> Self {
        let limit = now.saturating_add(rule.limit);
        Self { rule, limit, expected: 0, recovered: 0, ready: None }
    }

    /// Whether the pool became ready just now. A pool of which nothing is expected yet waits for
    /// the limit: its members are merely not discovered.
    pub(super) fn check(&mut self, now: Instant) -> bool {
        if self.ready.is_some() {
            return false;
        }
        let enough =
            self.recovered as u128 * 100 >= self.expected as u128 * u128::from(self.rule.percent);
        if self.expected > 0 && enough {
            self.ready = Some(ReadyReason::Recovered);
        } else if self.limit.is_due(now) {
            self.ready = Some(ReadyReason::TimeLimit);
        }
        self.ready.is_some()
    }

    /// When the limit passes, while that matters and unless it is the end of time.
    pub(super) fn timeout(&self) -> Option<Instant> {
        (self.ready.is_none() && self.limit < Instant::END).then_some(self.limit)
    }

    pub(super) fn readiness(&self) -> Readiness {
        Readiness { expected: self.expected, recovered: self.recovered, ready: self.ready }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn share_or_limit_whichever_comes_first() {
        let rule = ReadyRule::new(67, Millis::new(1000)).unwrap();
        let mut gate = Gate::new(rule, at(500));
        assert!(!gate.check(at(600)), "nothing is expected, nothing is known");
        gate.expected = 3;
        gate.recovered = 2;
        assert!(!gate.check(at(700)), "66.7 is not 67");
        assert_eq!(gate.timeout(), Some(at(1500)));
        assert!(!gate.check(at(1499)));
        assert!(gate.check(at(1500)));
        assert_eq!(gate.readiness().ready, Some(ReadyReason::TimeLimit));
        assert_eq!(gate.timeout(), None);

        let mut gate = Gate::new(ReadyRule::new(66, Millis::new(u64::MAX)).unwrap(), at(0));
        assert_eq!(gate.timeout(), None, "a limit that never passes");
        assert!(!gate.check(at(u64::MAX)));

        let mut gate = Gate::new(ReadyRule::new(66, Millis::new(1000)).unwrap(), at(0));
        gate.expected = 3;
        gate.recovered = 2;
        assert!(gate.check(at(1)));
        assert!(!gate.check(at(2)), "becomes ready once");
        gate.expected = 30;
        assert_eq!(gate.readiness().ready, Some(ReadyReason::Recovered), "and stays so");
    }

    #[test]
    fn shares_outside_the_range_are_refused() {
        for percent in [0, 101, 255] {
            let refused = Err(SourceConfigError::Share { percent });
            assert_eq!(ReadyRule::new(percent, Millis::new(1)), refused);
        }
    }
}
