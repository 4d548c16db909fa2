//! When something restarts, and what.

use super::args::Args;
use crate::rng::Rng;

/// Something that starts again with nothing in its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// A worker: new generation, empty cache.
    Worker {
        /// Its DC.
        dc: usize,
        /// Which of the DC's workers.
        worker: usize,
    },
    /// A DC's producer: new incarnation, rebuilt from its workers.
    Producer {
        /// Its DC.
        dc: usize,
    },
    /// The consumer: new instance, fresh snapshots.
    Consumer,
}

/// Restarts in a rotation whose order and victims the seed fixes.
#[derive(Debug)]
pub struct Restarts {
    every: u64,
    requests: u64,
    dcs: u64,
    workers: u64,
    rotation: [u8; 3],
    rng: Rng,
}

impl Restarts {
    /// As the options say; never for an interval of 0.
    pub fn new(args: &Args) -> Self {
        let mut rng = Rng::new(args.seed, 0x2E57A27);
        let mut rotation = [0, 1, 2];
        rotation.swap(2, rng.below(3) as usize);
        rotation.swap(1, rng.below(2) as usize);
        let (dcs, workers) = (u64::from(args.dcs), u64::from(args.workers));
        Self { every: args.restart_every, requests: 0, dcs, workers, rotation, rng }
    }

    /// Called once a request: what restarts before it.
    pub fn due(&mut self) -> Option<Restart> {
        let before = self.requests;
        self.requests += 1;
        if before == 0 || self.every == 0 || !before.is_multiple_of(self.every) {
            return None;
        }
        let dc = self.rng.below(self.dcs) as usize;
        let worker = self.rng.below(self.workers) as usize;
        let turn = before / self.every % 3;
        Some(match self.rotation[turn as usize] {
            0 => Restart::Worker { dc, worker },
            1 => Restart::Producer { dc },
            _ => Restart::Consumer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn first(line: &str, requests: usize) -> Vec<Option<Restart>> {
        let args = Args::parse_from(std::iter::once("replay").chain(line.split_whitespace()));
        let mut restarts = Restarts::new(&args);
        (0..requests).map(|_| restarts.due()).collect()
    }

    #[test]
    fn every_kind_has_its_turn() {
        for seed in 0..20 {
            let all = first(&format!("--restart-every 10 --seed {seed}"), 61);
            assert!(all.iter().enumerate().all(|(i, due)| due.is_some() == (i > 0 && i % 10 == 0)));
            let of = |kind: fn(&Restart) -> bool| all.iter().flatten().filter(|r| kind(r)).count();
            assert_eq!(of(|r| matches!(r, Restart::Worker { .. })), 2);
            assert_eq!(of(|r| matches!(r, Restart::Producer { .. })), 2);
            assert_eq!(of(|r| matches!(r, Restart::Consumer)), 2);
            assert_eq!(all, first(&format!("--restart-every 10 --seed {seed}"), 61));
        }
        assert!(first("--restart-every 0", 100).iter().all(Option::is_none));
    }
}
