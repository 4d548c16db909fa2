//! What a host decides about source streams.

use ckf_core::{GOLDEN_GAMMA, mix64};
use ckf_protocol::Millis;
use thiserror::Error;

use super::ids::EventId;
use super::readiness::ReadyRule;

/// Why a [`SourceConfig`] or [`PoolSourcesConfig`] is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SourceConfigError {
    /// A limit that must be at least 1 is 0.
    #[error("limit `{name}` is 0")]
    Zero {
        /// Name of the limit.
        name: &'static str,
    },
    /// The longest back-off is shorter than the first one, or the first one is 0.
    #[error("back-off from {first} ms to {longest} ms")]
    BackOff {
        /// First span, in milliseconds.
        first: u64,
        /// Longest span, in milliseconds.
        longest: u64,
    },
    /// A share outside 1 to 100 per cent.
    #[error("share of {percent} per cent is outside 1 to 100")]
    Share {
        /// The share that was asked for.
        percent: u8,
    },
}

/// Limits and patience of one source stream.
///
/// ```
/// use ckf_protocol::Millis;
/// use ckf_producer::source::{EventId, SourceConfig};
///
/// let config = SourceConfig::new(7)
///     .with_first_event(None) // numbering starts anywhere
///     .with_max_history(256)
///     .with_back_off(Millis::new(200), Millis::from_secs(5))?;
/// assert_eq!(config.first_event(), None);
/// # Ok::<(), ckf_producer::source::SourceConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceConfig {
    seed: u64,
    first_event: Option<EventId>,
    max_history: u64,
    history_attempts: u32,
    max_queued_events: u32,
    max_queued_bytes: u64,
    max_command_bytes: u64,
    max_notices: u32,
    first_back_off: Millis,
    longest_back_off: Millis,
    deadline: Millis,
    orphan_interval: Millis,
}

impl SourceConfig {
    /// Numbering from 0; gaps of up to 10,000 events asked from history, at most 3 times; queues
    /// of 65,536 events, 64 MiB and 64 notices; commands of 64 MiB; back-off from 500 ms to 30 s,
    /// deadline 2 minutes; recovery for orphans at most every 30 s.
    ///
    /// `seed` spreads the back-off of the members: equal seeds repeat a run exactly.
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            first_event: Some(EventId::new(0)),
            max_history: 10_000,
            history_attempts: 3,
            max_queued_events: 65_536,
            max_queued_bytes: 64 << 20,
            max_command_bytes: 64 << 20,
            max_notices: 64,
            first_back_off: Millis::new(500),
            longest_back_off: Millis::from_secs(30),
            deadline: Millis::from_secs(120),
            orphan_interval: Millis::from_secs(30),
        }
    }

    /// The id of a generation's very first event, before which the member holds nothing. `None`
    /// where numbering starts anywhere: then the state is unknown until a full state or a clear.
    #[must_use]
    pub const fn with_first_event(mut self, first: Option<EventId>) -> Self {
        self.first_event = first;
        self
    }

    /// The largest gap, in events, that is asked from history; 0 for sources without history.
    #[must_use]
    pub const fn with_max_history(mut self, events: u64) -> Self {
        self.max_history = events;
        self
    }

    /// How often history is asked without progress before a full state is asked instead.
    ///
    /// # Errors
    /// [`SourceConfigError::Zero`]; for sources without history, see
    /// [`with_max_history`](Self::with_max_history).
    pub const fn with_history_attempts(mut self, attempts: u32) -> Result<Self, SourceConfigError> {
        if attempts == 0 {
            return Err(SourceConfigError::Zero { name: "history_attempts" });
        }
        self.history_attempts = attempts;
        Ok(self)
    }

    /// Limits of the events that wait during a recovery. An event larger than `bytes` can only be
    /// covered by a full state.
    ///
    /// # Errors
    /// [`SourceConfigError::Zero`].
    pub const fn with_queue(mut self, events: u32, bytes: u64) -> Result<Self, SourceConfigError> {
        if events == 0 || bytes == 0 {
            return Err(SourceConfigError::Zero { name: "queue" });
        }
        self.max_queued_events = events;
        self.max_queued_bytes = bytes;
        Ok(self)
    }

    /// Bytes of stores and removals that may wait for the host; one clear or full state may wait
    /// before them. Beyond them the stream drops the commands, clears the member and recovers by full state.
    ///
    /// # Errors
    /// [`SourceConfigError::Zero`].
    pub const fn with_max_command_bytes(mut self, bytes: u64) -> Result<Self, SourceConfigError> {
        if bytes == 0 {
            return Err(SourceConfigError::Zero { name: "max_command_bytes" });
        }
        self.max_command_bytes = bytes;
        Ok(self)
    }

    /// Notices that may wait for the host; the oldest go first. 0 for none at all.
    #[must_use]
    pub const fn with_max_notices(mut self, notices: u32) -> Self {
        self.max_notices = notices;
        self
    }

    /// How long to wait for an answer before asking again: `first`, then twice as long each time
    /// up to `longest`; the upper half of each span is random, so that members that lost the same
    /// event do not ask again at the same moment.
    ///
    /// # Errors
    /// [`SourceConfigError::BackOff`] for a first span of 0 or one above `longest`.
    pub const fn with_back_off(
        mut self,
        first: Millis,
        longest: Millis,
    ) -> Result<Self, SourceConfigError> {
        if first.get() == 0 || first.get() > longest.get() {
            return Err(SourceConfigError::BackOff { first: first.get(), longest: longest.get() });
        }
        self.first_back_off = first;
        self.longest_back_off = longest;
        Ok(self)
    }

    /// How long a recovery may go without progress before it fails.
    ///
    /// # Errors
    /// [`SourceConfigError::Zero`].
    pub const fn with_deadline(mut self, deadline: Millis) -> Result<Self, SourceConfigError> {
        if deadline.get() == 0 {
            return Err(SourceConfigError::Zero { name: "deadline" });
        }
        self.deadline = deadline;
        Ok(self)
    }

    /// Orphans start a recovery only this long after the previous one ended; in between they are
    /// counted. A source whose full states never hold the missing parents then costs one full
    /// state per span; one that has no full state is not asked for orphans again in its life.
    #[must_use]
    pub const fn with_orphan_interval(mut self, interval: Millis) -> Self {
        self.orphan_interval = interval;
        self
    }

    /// The id of a generation's first event.
    pub const fn first_event(&self) -> Option<EventId> {
        self.first_event
    }

    /// The largest gap that is asked from history.
    pub const fn max_history(&self) -> u64 {
        self.max_history
    }

    /// How often history is asked without progress.
    pub const fn history_attempts(&self) -> u32 {
        self.history_attempts
    }

    /// Events that may wait during a recovery.
    pub const fn max_queued_events(&self) -> u32 {
        self.max_queued_events
    }

    /// Bytes of events that may wait during a recovery.
    pub const fn max_queued_bytes(&self) -> u64 {
        self.max_queued_bytes
    }

    /// Bytes of commands that may wait for the host.
    pub const fn max_command_bytes(&self) -> u64 {
        self.max_command_bytes
    }

    /// Notices that may wait for the host.
    pub const fn max_notices(&self) -> u32 {
        self.max_notices
    }

    /// How long to wait before a question is repeated, at most.
    pub const fn longest_back_off(&self) -> Millis {
        self.longest_back_off
    }

    /// How long a recovery may go without progress.
    pub const fn deadline(&self) -> Millis {
        self.deadline
    }

    /// The shortest span between recoveries for orphans.
    pub const fn orphan_interval(&self) -> Millis {
        self.orphan_interval
    }

    /// How long to wait after the question number `attempt` (1, 2, ...) of a member.
    pub(super) fn back_off(&self, salt: u64, attempt: u32) -> Millis {
        let own = mix64(salt.wrapping_add(GOLDEN_GAMMA)) ^ u64::from(attempt);
        let random = mix64(self.seed ^ mix64(own.wrapping_add(GOLDEN_GAMMA)));
        self.first_back_off.back_off(self.longest_back_off, attempt.saturating_sub(1), random)
    }
}

/// Limits and rules of a pool's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSourcesConfig {
    pub(super) stream: SourceConfig,
    pub(super) ready: ReadyRule,
    pub(super) max_members: usize,
    pub(super) discover: bool,
    /// Events that may wait in all streams together, and their bytes.
    pub(super) max_queued: (usize, u64),
    /// Bytes of commands that may wait in all streams together.
    pub(super) max_command_bytes: u64,
}

impl PoolSourcesConfig {
    /// Streams like `stream`, at most 4096 of them, also of members that nobody announced; at most
    /// 2^20 events and 1 GiB of them wait, and 1 GiB of commands.
    pub const fn new(stream: SourceConfig, ready: ReadyRule) -> Self {
        let max_queued = (1 << 20, 1 << 30);
        let max_command_bytes = 1 << 30;
        Self { stream, ready, max_members: 4096, discover: true, max_queued, max_command_bytes }
    }

    /// Limits of the events that wait during recoveries, in all streams together. Each stream has
    /// [its own](SourceConfig::with_queue) besides.
    ///
    /// # Errors
    /// [`SourceConfigError::Zero`].
    pub const fn with_max_queued(
        mut self,
        events: usize,
        bytes: u64,
    ) -> Result<Self, SourceConfigError> {
        if events == 0 || bytes == 0 {
            return Err(SourceConfigError::Zero { name: "max_queued" });
        }
        self.max_queued = (events, bytes);
        Ok(self)
    }

    /// Bytes of commands that may wait for the host in all streams together, besides
    /// [each stream's own](SourceConfig::with_max_command_bytes) limit. The stream whose commands
    /// would exceed them drops its own, clears the member and recovers by full state.
    ///
    /// # Errors
    /// [`SourceConfigError::Zero`].
    pub const fn with_max_command_bytes(mut self, bytes: u64) -> Result<Self, SourceConfigError> {
        if bytes == 0 {
            return Err(SourceConfigError::Zero { name: "max_command_bytes" });
        }
        self.max_command_bytes = bytes;
        Ok(self)
    }

    /// How many members there can be at one time.
    ///
    /// # Errors
    /// [`SourceConfigError::Zero`].
    pub const fn with_max_members(mut self, members: usize) -> Result<Self, SourceConfigError> {
        if members == 0 {
            return Err(SourceConfigError::Zero { name: "max_members" });
        }
        self.max_members = members;
        Ok(self)
    }

    /// Whether a member that appears in data without having been announced gets a stream. If not,
    /// what it sends is refused.
    #[must_use]
    pub const fn with_discovery(mut self, discover: bool) -> Self {
        self.discover = discover;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_spreads_and_ends() {
        let config = SourceConfig::new(1).with_back_off(Millis::new(100), Millis::new(1000));
        let config = config.unwrap();
        let mut seen = alloc::collections::BTreeSet::new();
        for salt in 0..200 {
            for (attempt, span) in [(1, 100), (2, 200), (4, 800), (5, 1000), (u32::MAX, 1000)] {
                let wait = config.back_off(salt, attempt).get();
                assert!((span / 2..=span).contains(&wait), "{attempt}: {wait}");
                assert_eq!(wait, config.back_off(salt, attempt).get(), "repeatable");
                seen.insert((attempt, wait));
            }
        }
        assert!(seen.len() > 150, "waits are spread: {}", seen.len());
    }

    #[test]
    fn nonsense_is_refused() {
        let config = SourceConfig::new(0);
        let zero = |name| SourceConfigError::Zero { name };
        assert_eq!(config.with_queue(0, 1), Err(zero("queue")));
        assert_eq!(config.with_queue(1, 0), Err(zero("queue")));
        assert_eq!(config.with_history_attempts(0), Err(zero("history_attempts")));
        assert_eq!(config.with_max_command_bytes(0), Err(zero("max_command_bytes")));
        assert_eq!(config.with_deadline(Millis::new(0)), Err(zero("deadline")));
        assert_eq!(
            config.with_back_off(Millis::new(2), Millis::new(1)),
            Err(SourceConfigError::BackOff { first: 2, longest: 1 })
        );
        assert!(config.with_back_off(Millis::new(0), Millis::new(1)).is_err());
    }
}
