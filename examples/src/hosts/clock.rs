//! The time that machines are told: milliseconds since the process started.

use std::time::Duration;

use ckf_protocol::{Instant, Millis};

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock(tokio::time::Instant);

impl Clock {
    /// Starts at 0.
    pub fn start() -> Self {
        Self(tokio::time::Instant::now())
    }

    /// Milliseconds since the start.
    pub fn now(self) -> Instant {
        Instant::from_millis(self.0.elapsed().as_millis() as u64)
    }

    /// Returns at the given time; never for `None`: what a machine's `poll_timeout` gives.
    pub async fn sleep_until(self, at: Option<Instant>) {
        match at {
            // A millisecond late on purpose: `now` must not round down to before the deadline.
            Some(at) => {
                let after_start = Duration::from_millis(at.as_millis().saturating_add(1));
                match self.0.checked_add(after_start) {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            }
            None => std::future::pending().await,
        }
    }
}

/// A machine's span as the standard library's.
pub fn duration(span: Millis) -> Duration {
    Duration::from_millis(span.get())
}
