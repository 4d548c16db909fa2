//! What happened over the run, in at most [`MAX_WINDOWS`] windows however long it was.

/// Most windows kept; reaching it merges pairs and doubles the width.
pub const MAX_WINDOWS: usize = 256;

/// Sums over some consecutive requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Window {
    /// Requests in it.
    pub requests: u64,
    /// Simulated milliseconds at its end.
    pub ends_at: u64,
    /// Blocks queried.
    pub blocks: u64,
    /// Blocks served from a cache, one entry a policy.
    pub hits: Vec<u64>,
    /// Answers of each DC: (queries answered, sum of the depths).
    pub depths: Vec<(u64, u64)>,
    /// Bytes of deltas and of snapshots sent.
    pub wire: [u64; 2],
}

impl Window {
    /// Makes this window reach to the end of a later one.
    pub fn add(&mut self, later: &Self) {
        self.requests += later.requests;
        self.ends_at = later.ends_at;
        self.blocks += later.blocks;
        self.hits.resize(later.hits.len().max(self.hits.len()), 0);
        self.hits.iter_mut().zip(&later.hits).for_each(|(sum, &more)| *sum += more);
        self.depths.resize(later.depths.len().max(self.depths.len()), (0, 0));
        for (sum, &(answers, depth)) in self.depths.iter_mut().zip(&later.depths) {
            *sum = (sum.0 + answers, sum.1 + depth);
        }
        self.wire = [self.wire[0] + later.wire[0], self.wire[1] + later.wire[1]];
    }
}

/// Windows of equal numbers of requests; only the last may be shorter.
#[derive(Debug)]
pub struct Timeline {
    windows: Vec<Window>,
    width: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { windows: Vec::new(), width: 1 }
    }
}

impl Timeline {
    /// Adds what one request brought.
    pub fn add(&mut self, one: &Window) {
        match self.windows.last_mut() {
            Some(last) if last.requests < self.width => last.add(one),
            _ => {
                if self.windows.len() == MAX_WINDOWS {
                    self.halve();
                }
                self.windows.push(one.clone());
            }
        }
    }

    /// The windows in order of time.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    fn halve(&mut self) {
        self.width *= 2;
        let pairs = self.windows.chunks(2).map(|pair| {
            let mut sum = pair[0].clone();
            pair[1..].iter().for_each(|later| sum.add(later));
            sum
        });
        self.windows = pairs.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_stay_few_even_and_complete() {
        let mut timeline = Timeline::default();
        for i in 0..10_007 {
            timeline.add(&Window {
                requests: 1,
                ends_at: i,
                blocks: 2,
                hits: vec![1, 0],
                depths: vec![(1, 3)],
                wire: [5, 7],
            });
            assert!(timeline.windows().len() <= MAX_WINDOWS);
        }
        let windows = timeline.windows();
        let sum = |field: fn(&Window) -> u64| windows.iter().map(field).sum::<u64>();
        assert_eq!(sum(|w| w.requests), 10_007);
        assert_eq!((sum(|w| w.hits[0]), sum(|w| w.hits[1])), (10_007, 0));
        assert_eq!((sum(|w| w.depths[0].1), sum(|w| w.wire[1])), (30_021, 70_049));
        assert_eq!(windows.last().map(|w| w.ends_at), Some(10_006));
        assert!(windows[..windows.len() - 1].iter().all(|w| w.requests == 64));
    }
}
