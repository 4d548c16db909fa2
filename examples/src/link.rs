//! An in-memory link that loses, repeats and delays what it carries, by seed.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// Probabilities, each within 0 and 1, of what may happen to one message.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Faults {
    /// It never arrives.
    pub loss: f64,
    /// It arrives twice.
    pub duplicate: f64,
    /// It arrives up to [`MAX_DELAY`] milliseconds late, after messages sent later.
    pub reorder: f64,
}

/// Longest delay of a reordered message in milliseconds.
pub const MAX_DELAY: u64 = 50;

/// One direction of a link. Without faults a message arrives at once and in order.
#[derive(Debug)]
pub struct Link<T> {
    faults: Faults,
    rng: Rng,
    /// Messages under way by due time, then by order of sending.
    under_way: BTreeMap<(u64, u64), T>,
    sent: u64,
}

impl<T: Clone> Link<T> {
    /// An empty link whose faults are fixed by the random numbers given.
    pub fn new(faults: Faults, rng: Rng) -> Self {
        Self { faults, rng, under_way: BTreeMap::new(), sent: 0 }
    }

    /// Sends a message at `now` milliseconds.
    pub fn send(&mut self, message: T, now: u64) {
        if self.rng.chance(self.faults.loss) {
            return;
        }
        if self.rng.chance(self.faults.duplicate) {
            self.put(message.clone(), now);
        }
        self.put(message, now);
    }

    /// The next message that has arrived by `now`, if there is one.
    #[must_use]
    pub fn receive(&mut self, now: u64) -> Option<T> {
        let first = self.under_way.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// When the next message arrives.
    pub fn next_due(&self) -> Option<u64> {
        self.under_way.first_key_value().map(|(&(due, _), _)| due)
    }

    /// From now on nothing goes wrong; what is under way still arrives.
    pub fn heal(&mut self) {
        self.faults = Faults::default();
    }

    /// Drops everything under way, as a broken connection does.
    pub fn cut(&mut self) {
        self.under_way.clear();
    }

    fn put(&mut self, message: T, now: u64) {
        let late = self.rng.chance(self.faults.reorder);
        let delay = if late { self.rng.between(1, MAX_DELAY) } else { 0 };
        self.under_way.insert((now + delay, self.sent), message);
        self.sent += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends 10 000 numbers, one a millisecond, and returns what came out, in order.
    fn carry(faults: Faults) -> Vec<u64> {
        let mut link = Link::new(faults, Rng::new(1, 0));
        let mut out = Vec::new();
        for now in 0..10_000 {
            link.send(now, now);
            out.extend(std::iter::from_fn(|| link.receive(now)));
        }
        while let Some(due) = link.next_due() {
            out.extend(link.receive(due));
        }
        out
    }

    #[test]
    fn a_faultless_link_carries_everything_in_order_at_once() {
        let mut link = Link::new(Faults::default(), Rng::new(1, 0));
        link.send(1, 5);
        link.send(2, 5);
        assert_eq!((link.receive(4), link.next_due()), (None, Some(5)));
        assert_eq!((link.receive(5), link.receive(5), link.receive(5)), (Some(1), Some(2), None));
        assert_eq!(carry(Faults::default()), (0..10_000).collect::<Vec<_>>());
    }

    #[test]
    fn each_fault_happens_about_as_often_as_asked_and_no_other() {
        let lossy = carry(Faults { loss: 0.1, ..Faults::default() });
        assert!((8_800..9_200).contains(&lossy.len()), "{}", lossy.len());
        assert!(lossy.is_sorted());

        let repeated = carry(Faults { duplicate: 0.1, ..Faults::default() });
        assert!((10_800..11_200).contains(&repeated.len()), "{}", repeated.len());
        assert!(repeated.is_sorted());

        let mut shuffled = carry(Faults { reorder: 0.1, ..Faults::default() });
        let late = shuffled.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!((700..1_200).contains(&late), "{late}");
        shuffled.sort_unstable();
        assert_eq!(shuffled, (0..10_000).collect::<Vec<_>>());
    }

    #[test]
    fn healing_ends_the_faults_and_cutting_empties_the_link() {
        let mut link = Link::new(Faults { loss: 1.0, ..Faults::default() }, Rng::new(1, 0));
        link.send(1, 0);
        link.heal();
        link.send(2, 0);
        assert_eq!(link.receive(0), Some(2));
        link.send(3, 0);
        link.cut();
        assert_eq!(link.next_due(), None);
    }
}
