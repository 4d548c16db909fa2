//! Lines for the log, and how many of them a peer may cause.
//!
//! Whatever a peer does wrong, it can do a thousand times a second. Counters count all of it; the log
//! has some lines of each peer a minute, and then how many there would have been.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::lock;

/// Lines about one peer in each span of this length.
const LINES: u32 = 10;
const SPAN: Duration = Duration::from_secs(60);
/// Characters of one of them.
const LONGEST: usize = 500;

/// Writes one line to the standard error: what a host would send to its log.
#[macro_export]
macro_rules! log {
    ($($arg:tt)*) => { eprintln!("{}", format_args!($($arg)*)) };
}

/// Writes a line `WHO: ...` about something that others bring about, unless there are too many of them
/// about the same `who` already. That must be a name of our own, not one that a peer may choose.
#[macro_export]
macro_rules! log_about {
    ($who:expr, $($arg:tt)*) => { $crate::hosts::log::about($who, format_args!($($arg)*)) };
}

/// See [`log_about`](crate::log_about).
pub fn about(who: impl Display, what: fmt::Arguments<'_>) {
    static SHARES: Mutex<BTreeMap<String, Share>> = Mutex::new(BTreeMap::new());
    let who = who.to_string();
    let now = Instant::now();
    let share = lock(&SHARES).entry(who.clone()).or_insert_with(|| Share::new(now)).take(now);
    // Their words are theirs: no lines of their own making, and no end of them.
    let what: String = what.to_string().chars().map(plain).take(LONGEST).collect();
    match share {
        Some(0) => crate::log!("{who}: {what}"),
        Some(kept_back) => crate::log!("{who}: {what} ({kept_back} lines before were kept back)"),
        None => {}
    }
}

fn plain(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

/// What one peer has had of the log.
struct Share {
    since: Instant,
    said: u32,
    kept_back: u64,
}

impl Share {
    fn new(now: Instant) -> Self {
        Self { since: now, said: 0, kept_back: 0 }
    }

    /// Whether a line may be written now, and then how many were not since the last one.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) >= SPAN {
            (self.since, self.said) = (now, 0);
        }
        if self.said >= LINES {
            self.kept_back += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.kept_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_gets_its_share_of_the_log_and_no_more() {
        let start = Instant::now();
        let mut share = Share::new(start);
        let said = (0..1000).filter_map(|_| share.take(start)).collect::<Vec<_>>();
        assert_eq!(said, [0; LINES as usize]);
        assert_eq!(share.take(start + SPAN - Duration::from_millis(1)), None);
        assert_eq!(share.take(start + SPAN), Some(991), "what was kept back is told");
        assert_eq!(share.take(start + SPAN), Some(0));
    }
}
