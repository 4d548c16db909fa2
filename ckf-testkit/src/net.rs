//! A seeded link that loses, repeats, reorders, delays and damages frames, in virtual milliseconds.
//!
//! A [`Link`] is one direction; a connection is two of them. Nothing here knows what a frame means.
//!
//! ```
//! use ckf_testkit::net::{Faults, Link};
//!
//! let mut link = Link::new(Faults { loss: 0.5, ..Faults::NONE }, 42);
//! for i in 0..1000u32 {
//!     link.send(&i.to_le_bytes(), 0);
//! }
//! let arrived = std::iter::from_fn(|| link.deliver(0)).count();
//! assert_eq!(link.stats().lost + arrived as u64, 1000);
//! assert!((400..600).contains(&arrived));
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::AddAssign;

use crate::rng::Rng;

/// What a link does to frames. Each probability is drawn per frame, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Probability that a frame never arrives.
    pub loss: f64,
    /// Probability that a frame arrives a second time, with a delay of its own.
    pub duplicate: f64,
    /// Probability that a copy is held back, so that later frames overtake it.
    pub reorder: f64,
    /// Probability that a copy loses some of its last bytes.
    pub truncate: f64,
    /// Probability that one bit of a copy is inverted.
    pub flip: f64,
    /// Shortest delay of a frame in ms.
    pub delay_min: u64,
    /// Longest delay of a frame in ms. Above [`delay_min`](Self::delay_min) frames overtake
    /// each other even without [`reorder`](Self::reorder).
    pub delay_max: u64,
    /// A frame that is held back waits 1 to this many ms more.
    pub hold_max: u64,
}

impl Faults {
    /// Every frame arrives once, unchanged, in order and at once.
    pub const NONE: Self = Self {
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        truncate: 0.0,
        flip: 0.0,
        delay_min: 0,
        delay_max: 0,
        hold_max: 20,
    };
}

/// What happened to the frames so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Frames handed in.
    pub sent: u64,
    /// Bytes of the frames handed in.
    pub sent_bytes: u64,
    /// Copies handed out.
    pub delivered: u64,
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames lost to a partition, or in flight when the link was cut.
    pub cut: u64,
    /// Extra copies made.
    pub duplicated: u64,
    /// Copies held back.
    pub reordered: u64,
    /// Copies truncated.
    pub truncated: u64,
    /// Copies with an inverted bit.
    pub flipped: u64,
}

impl AddAssign for LinkStats {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.cut += other.cut;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.truncated += other.truncated;
        self.flipped += other.flipped;
    }
}

/// One direction of a faulty connection.
///
/// Equal seeds, faults and calls give equal deliveries. Memory is what is in flight.
#[derive(Clone, Debug)]
pub struct Link {
    faults: Faults,
    rng: Rng,
    partitioned: bool,
    calm: bool,
    /// Earliest first; frames of one instant in the order they were sent.
    in_flight: BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>,
    copies: u64,
    stats: LinkStats,
}

impl Link {
    /// An empty link.
    pub fn new(faults: Faults, seed: u64) -> Self {
        Self {
            faults,
            rng: Rng::new(seed),
            partitioned: false,
            calm: false,
            in_flight: BinaryHeap::new(),
            copies: 0,
            stats: LinkStats::default(),
        }
    }

    /// Hands a frame in at `now` ms.
    pub fn send(&mut self, frame: &[u8], now: u64) {
        self.stats.sent += 1;
        self.stats.sent_bytes += frame.len() as u64;
        if self.partitioned {
            self.stats.cut += 1;
            return;
        }
        if self.strikes(self.faults.loss) {
            self.stats.lost += 1;
            return;
        }
        self.launch(frame.to_vec(), now);
        if self.strikes(self.faults.duplicate) {
            self.stats.duplicated += 1;
            self.launch(frame.to_vec(), now);
        }
    }

    fn strikes(&mut self, probability: f64) -> bool {
        self.rng.chance(probability) && !self.calm
    }

    /// Puts one copy in flight.
    fn launch(&mut self, mut frame: Vec<u8>, now: u64) {
        let Faults { delay_min, delay_max, .. } = self.faults;
        let mut at =
            now + self.rng.between(delay_min, if self.calm { delay_min } else { delay_max });
        if self.strikes(self.faults.reorder) {
            self.stats.reordered += 1;
            at += self.rng.between(1, self.faults.hold_max.max(1));
        }
        if !frame.is_empty() && self.strikes(self.faults.truncate) {
            self.stats.truncated += 1;
            frame.truncate(self.rng.below(frame.len() as u64) as usize);
        }
        if !frame.is_empty() && self.strikes(self.faults.flip) {
            self.stats.flipped += 1;
            let bit = self.rng.below(frame.len() as u64 * 8);
            frame[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        self.copies += 1;
        self.in_flight.push(Reverse((at, self.copies, frame)));
    }

    /// The next frame that has arrived by `now` ms.
    #[must_use]
    pub fn deliver(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.next_delivery()? > now {
            return None;
        }
        let Reverse((_, _, frame)) = self.in_flight.pop()?;
        self.stats.delivered += 1;
        Some(frame)
    }

    /// When the next frame arrives, in ms.
    #[must_use]
    pub fn next_delivery(&self) -> Option<u64> {
        self.in_flight.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Starts or ends a partition: frames sent during one are lost, frames in flight still arrive.
    pub fn set_partitioned(&mut self, partitioned: bool) {
        self.partitioned = partitioned;
    }

    /// Stops or resumes all faults for frames sent from now on; the shortest delay stays.
    pub fn set_calm(&mut self, calm: bool) {
        self.calm = calm;
    }

    /// Drops everything in flight, as when a connection is closed.
    pub fn cut(&mut self) {
        self.stats.cut += self.in_flight.len() as u64;
        self.in_flight.clear();
    }

    /// Frames in flight, extra copies counted.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// What happened so far.
    pub fn stats(&self) -> LinkStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(faults: Faults, seed: u64) -> (Vec<(u64, Vec<u8>)>, LinkStats) {
        let mut link = Link::new(faults, seed);
        let mut seen = Vec::new();
        for now in 0..2_000u64 {
            link.send(&now.to_le_bytes(), now);
            while let Some(frame) = link.deliver(now) {
                seen.push((now, frame));
            }
        }
        while let Some(at) = link.next_delivery() {
            seen.push((at, link.deliver(at).unwrap()));
        }
        (seen, link.stats())
    }

    #[test]
    fn without_faults_everything_arrives_in_order() {
        let (seen, _) = arrivals(Faults { delay_min: 3, delay_max: 3, ..Faults::NONE }, 1);
        let expected = (0..2_000u64).map(|i| (i + 3, i.to_le_bytes().to_vec()));
        assert!(seen.into_iter().eq(expected));
    }

    #[test]
    fn each_fault_happens_about_as_often_as_asked_and_alone() {
        let about = |n: u64| assert!((130..270).contains(&n), "{n}");
        let (seen, stats) = arrivals(Faults { loss: 0.1, ..Faults::NONE }, 2);
        about(stats.lost);
        assert_eq!(seen.len() as u64, 2_000 - stats.lost);

        let (seen, stats) = arrivals(Faults { duplicate: 0.1, ..Faults::NONE }, 3);
        about(stats.duplicated);
        assert_eq!(seen.len() as u64, 2_000 + stats.duplicated);

        let (seen, stats) = arrivals(Faults { reorder: 0.1, ..Faults::NONE }, 4);
        about(stats.reordered);
        assert!(
            !seen.is_sorted_by_key(|(_, frame)| frame[..8]
                .iter()
                .rev()
                .copied()
                .collect::<Vec<_>>())
        );

        let (seen, stats) = arrivals(Faults { truncate: 0.1, ..Faults::NONE }, 5);
        about(stats.truncated);
        assert_eq!(
            seen.iter().filter(|(_, frame)| frame.len() < 8).count() as u64,
            stats.truncated
        );

        let (seen, stats) = arrivals(Faults { flip: 0.1, ..Faults::NONE }, 6);
        about(stats.flipped);
        let wrong = seen.iter().zip(0u64..).filter(|((_, frame), i)| frame[..] != i.to_le_bytes());
        assert_eq!(wrong.count() as u64, stats.flipped);
    }

    #[test]
    fn a_seed_repeats_a_run() {
        let faults = Faults {
            loss: 0.1,
            duplicate: 0.1,
            reorder: 0.1,
            truncate: 0.1,
            flip: 0.1,
            delay_min: 1,
            delay_max: 30,
            hold_max: 50,
        };
        assert_eq!(arrivals(faults, 9), arrivals(faults, 9));
        assert_ne!(arrivals(faults, 9), arrivals(faults, 10));
    }

    #[test]
    fn a_partition_loses_what_is_sent_and_a_cut_what_is_in_flight() {
        let mut link = Link::new(Faults { delay_min: 5, delay_max: 5, ..Faults::NONE }, 1);
        link.send(b"before", 0);
        link.set_partitioned(true);
        link.send(b"during", 1);
        assert_eq!(link.deliver(10).as_deref(), Some(&b"before"[..]));
        link.set_partitioned(false);
        link.send(b"after", 10);
        link.cut();
        assert_eq!((link.deliver(100), link.stats().cut), (None, 2));
    }
}
