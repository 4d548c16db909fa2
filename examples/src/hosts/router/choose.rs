//! Where a request goes: the data center where least work is left, all things told in blocks.

use std::cmp::Ordering;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What one request under way on an endpoint counts, in blocks of prefill.
const LOAD: f64 = 4.0;

/// What a data center whose caches are full of blocks in use counts beyond an empty one, in blocks of
/// prefill: requests that come on top have to wait for some to end.
const FULL: f64 = 32.0;

/// One data center, as seen by one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Leading blocks that it holds; `None` while its lane is not ready.
    pub depth: Option<usize>,
    /// Requests under way.
    pub in_flight: u64,
    /// Endpoints that share them.
    pub endpoints: usize,
    /// What sending a request there costs, in blocks.
    pub cost: f64,
    /// Blocks used, and blocks in all, of its caches; `None` while nobody says.
    pub kv: Option<(u64, u64)>,
    /// Whether it may be used at all.
    pub serving: bool,
}

impl View {
    /// Work left for a prompt of so many blocks. A lane that is not ready promises nothing.
    fn score(&self, blocks: usize, usual_share: f64) -> f64 {
        let missing = blocks.saturating_sub(self.depth.unwrap_or(0)) as f64;
        let under_way = self.in_flight as f64 / self.endpoints.max(1) as f64;
        let used = self.used_share().unwrap_or(usual_share);
        missing + self.cost + LOAD * under_way + FULL * used
    }

    /// The share of its caches that is used, 0 to 1.
    fn used_share(&self) -> Option<f64> {
        let (used, total) = self.kv.filter(|(_, total)| *total > 0)?;
        Some((used as f64 / total as f64).min(1.0))
    }
}

/// The data centers that may be used, best first; equal ones in the order given. One whose caches
/// nobody knows counts as full as the others are on average: unknown is not idle.
pub fn order(views: &[View], blocks: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..views.len()).filter(|&dc| views[dc].serving).collect();
    let known: Vec<f64> = order.iter().filter_map(|&dc| views[dc].used_share()).collect();
    let usual_share = known.iter().sum::<f64>() / known.len().max(1) as f64;
    let score = |&dc: &usize| views[dc].score(blocks, usual_share);
    order.sort_by(|a, b| score(a).partial_cmp(&score(b)).unwrap_or(Ordering::Equal));
    order
}

/// The endpoints of one data center in the order of preference for requests of one conversation:
/// the same conversation, or rather its beginning, prefers the same endpoint, and each endpoint
/// that goes away spreads its conversations over all others (rendezvous hashing).
pub fn prefer<'a>(urls: impl Iterator<Item = &'a str>, conversation: u64) -> Vec<usize> {
    let mut order: Vec<_> = urls
        .enumerate()
        .map(|(i, url)| (xxh3_64_with_seed(url.as_bytes(), conversation), i))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, i)| i).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: View =
        View { depth: Some(0), in_flight: 0, endpoints: 1, cost: 0.0, kv: None, serving: true };

    #[test]
    fn depth_load_and_cost_are_weighed_in_blocks() {
        let deep = View { depth: Some(30), ..IDLE };
        assert_eq!(order(&[IDLE, deep], 40), [1, 0]);
        assert_eq!(order(&[IDLE, View { in_flight: 8, ..deep }], 40), [0, 1], "deep but busy");
        assert_eq!(order(&[IDLE, View { in_flight: 8, endpoints: 2, ..deep }], 40), [1, 0]);
        assert_eq!(order(&[IDLE, View { cost: 31.0, ..deep }], 40), [0, 1], "deep but far");
        assert_eq!(order(&[IDLE, View { serving: false, ..deep }], 40), [0], "deep but closed");
        assert_eq!(order(&[deep, View { depth: Some(99), ..IDLE }], 20), [0, 1], "deep enough");
    }

    #[test]
    fn without_ready_lanes_load_and_cost_decide() {
        let blind = |in_flight| View { depth: None, in_flight, ..IDLE };
        assert_eq!(order(&[blind(3), blind(1), View { cost: 5.0, ..blind(0) }], 100), [1, 2, 0]);
    }

    #[test]
    fn full_caches_weigh_and_unknown_ones_count_as_usual() {
        let used = |used, total| View { kv: Some((used, total)), ..IDLE };
        assert_eq!(order(&[used(9, 10), used(1, 10)], 4), [1, 0]);
        assert_eq!(order(&[View { depth: Some(20), ..used(9, 10) }, used(5, 10)], 40), [0, 1]);
        // Between the two that are known; with nothing known, nothing changes.
        assert_eq!(order(&[used(9, 10), IDLE, used(1, 10)], 4), [2, 1, 0]);
        assert_eq!(order(&[IDLE, IDLE, used(0, 0)], 4), [0, 1, 2]);
        assert_eq!(order(&[used(u64::MAX, 1), used(10, 10)], 4), [0, 1], "never more than full");
    }

    #[test]
    fn a_conversation_stays_and_spreads_when_its_endpoint_goes() {
        let all = ["http://a", "http://b", "http://c"];
        let mut seconds = [0; 3];
        for conversation in 0..300 {
            let order = prefer(all.into_iter(), conversation);
            let without: Vec<_> = all.into_iter().filter(|url| *url != all[order[0]]).collect();
            let next = prefer(without.iter().copied(), conversation)[0];
            assert_eq!(without[next], all[order[1]]);
            if order[0] == 0 {
                seconds[order[1]] += 1;
            }
        }
        assert!(seconds[1] > 20 && seconds[2] > 20, "{seconds:?}");
    }
}
