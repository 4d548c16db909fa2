//! Whether a relay says something often enough for the router's patience: the router is not told how
//! often a relay's heartbeats come, but it can hear it.

use ckf_protocol::{Instant, Millis};

/// Retirements for silence in a row, with no life between them that was longer than the silence, that
/// are no chance.
const IN_A_ROW: u32 = 2;

/// The rhythm of one relay, as far as it is known.
#[derive(Debug)]
pub struct Rhythm {
    silence: Millis,
    /// When the lane became ready.
    ready: Option<Instant>,
    silent: u32,
    warned: bool,
}

impl Rhythm {
    /// Of a relay whose lane is retired after this silence.
    pub fn new(silence: Millis) -> Self {
        Self { silence, ready: None, silent: 0, warned: false }
    }

    /// The lane became ready.
    pub fn ready(&mut self, now: Instant) {
        self.ready = Some(now);
    }

    /// A frame came that was believed. What comes later after the start than the patience lasts shows
    /// that the relay says something in time.
    pub fn heard(&mut self, now: Instant) {
        if self.ready.is_some_and(|ready| now.saturating_since(ready) > self.silence) {
            self.silent = 0;
        }
    }

    /// A heartbeat came so long after the frame before it. Returns what is to be said about that; once.
    pub fn heartbeat(&mut self, pause: Millis) -> Option<String> {
        self.silent = 0;
        let (pause, silence) = (pause.get(), self.silence.get());
        self.warn(pause > silence / 2, || {
            format!(
                "a heartbeat came after {pause} ms: with --silence-ms {silence} a single lost one \
                 retires the lane"
            )
        })
    }

    /// The lane was retired, for silence or something else. Returns what is to be said about that; once.
    pub fn retired(&mut self, for_silence: bool) -> Option<String> {
        self.ready = None;
        self.silent = if for_silence { self.silent + 1 } else { 0 };
        let silence = self.silence.get();
        self.warn(self.silent >= IN_A_ROW, || {
            format!(
                "its relay is there, and yet nothing comes within {silence} ms: \
                 --silence-ms is shorter than the relay's --heartbeat-ms, it seems"
            )
        })
    }

    fn warn(&mut self, reason: bool, text: impl FnOnce() -> String) -> Option<String> {
        let first = reason && !self.warned;
        self.warned |= reason;
        first.then(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rhythm_that_bears_no_loss_is_mentioned_once() {
        let mut rhythm = Rhythm::new(Millis::new(3000));
        assert_eq!(rhythm.heartbeat(Millis::new(1500)), None);
        let said = rhythm.heartbeat(Millis::new(2000)).unwrap();
        assert!(said.contains("2000") && said.contains("--silence-ms"), "{said}");
        assert_eq!(rhythm.heartbeat(Millis::new(2000)), None);
    }

    #[test]
    fn a_relay_that_is_silent_again_and_again_is_mentioned_once() {
        let mut rhythm = Rhythm::new(Millis::new(500));
        assert_eq!(rhythm.retired(true), None);
        assert_eq!(rhythm.retired(false), None);
        assert_eq!(rhythm.retired(true), None);
        assert_eq!(rhythm.heartbeat(Millis::new(100)), None);
        assert_eq!(rhythm.retired(true), None);
        let said = rhythm.retired(true).unwrap();
        assert!(said.contains("500") && said.contains("--heartbeat-ms"), "{said}");
        assert_eq!(rhythm.retired(true), None);
    }

    #[test]
    fn two_silences_of_a_lane_that_lived_between_them_are_chance() {
        let mut rhythm = Rhythm::new(Millis::new(500));
        for start in [0, 10_000, 20_000] {
            rhythm.ready(Instant::from_millis(start));
            // Deltas only, as from a busy pool.
            for now in (start..start + 2_000).step_by(100) {
                rhythm.heard(Instant::from_millis(now));
            }
            assert_eq!(rhythm.retired(true), None);
        }
        // Frames right after the start tell nothing about the patience.
        rhythm.ready(Instant::from_millis(30_000));
        rhythm.heard(Instant::from_millis(30_400));
        assert!(rhythm.retired(true).is_some());
    }
}
