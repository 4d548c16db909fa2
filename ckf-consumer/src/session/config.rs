//! Timings and limits of a lane session, checked on construction.

use ckf_protocol::{Limits, Millis};
use thiserror::Error;

/// How long a session waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionTimes {
    /// From when the session subscribes, and has the message for the host, to the first message of the new
    /// lease.
    pub subscribe: Millis,
    /// From one snapshot chunk to the next one.
    pub snapshot_progress: Millis,
    /// Longest silence of a ready lane's producer. Several times its heartbeat interval.
    pub silence: Millis,
    /// Back-off after the first failure; doubles with each one that follows.
    pub backoff_min: Millis,
    /// Longest back-off. A lane that was ready for this long starts over at
    /// [`backoff_min`](Self::backoff_min).
    pub backoff_max: Millis,
}

impl Default for SessionTimes {
    /// 5 s, 10 s, 15 s, 100 ms, 10 s in the order of the fields: for wide-area links.
    fn default() -> Self {
        Self {
            subscribe: Millis::from_secs(5),
            snapshot_progress: Millis::from_secs(10),
            silence: Millis::from_secs(15),
            backoff_min: Millis::new(100),
            backoff_max: Millis::from_secs(10),
        }
    }
}

/// Timings and limits of a session, always valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SessionConfig {
    pub(super) times: SessionTimes,
    pub(super) limits: Limits,
}

/// Why a [`SessionConfig`] is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SessionConfigError {
    /// A time is zero, which would make the session spin.
    #[error("the time `{field}` is zero")]
    Zero {
        /// Which one.
        field: &'static str,
    },
    /// The back-off starts above its end.
    #[error("back-off starts at {min} ms, above its longest of {max} ms")]
    BackoffRange {
        /// Where it starts, in ms.
        min: u64,
        /// Its longest, in ms.
        max: u64,
    },
}

impl SessionConfig {
    /// A configuration of these times and message limits. Limits below the defaults are for
    /// producers that were configured to stay within them too: a lane cannot follow any other, and
    /// is retired as [`Malformed`](super::Failure::Malformed) each time.
    ///
    /// # Errors
    /// [`SessionConfigError`]
    pub fn new(times: SessionTimes, limits: Limits) -> Result<Self, SessionConfigError> {
        let named = [
            ("subscribe", times.subscribe),
            ("snapshot_progress", times.snapshot_progress),
            ("silence", times.silence),
            ("backoff_min", times.backoff_min),
        ];
        if let Some((field, _)) = named.into_iter().find(|(_, time)| time.get() == 0) {
            return Err(SessionConfigError::Zero { field });
        }
        if times.backoff_min > times.backoff_max {
            let (min, max) = (times.backoff_min.get(), times.backoff_max.get());
            return Err(SessionConfigError::BackoffRange { min, max });
        }
        Ok(Self { times, limits })
    }

    /// How long the session waits for what.
    pub fn times(&self) -> &SessionTimes {
        &self.times
    }

    /// What a message may hold at most.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_times_are_typed_errors() {
        let new = |times| SessionConfig::new(times, Limits::default());
        let good = SessionTimes::default();
        assert_eq!(new(good), Ok(SessionConfig::default()));
        let zero = Millis::new(0);
        let bad = [
            ("subscribe", SessionTimes { subscribe: zero, ..good }),
            ("snapshot_progress", SessionTimes { snapshot_progress: zero, ..good }),
            ("silence", SessionTimes { silence: zero, ..good }),
            ("backoff_min", SessionTimes { backoff_min: zero, ..good }),
        ];
        for (field, times) in bad {
            assert_eq!(new(times), Err(SessionConfigError::Zero { field }));
        }
        let crossed =
            SessionTimes { backoff_min: Millis::new(9), backoff_max: Millis::new(8), ..good };
        assert_eq!(new(crossed), Err(SessionConfigError::BackoffRange { min: 9, max: 8 }));
    }
}
