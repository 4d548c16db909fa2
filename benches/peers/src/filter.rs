//! The bare filter: one thread, no ownership, no publication.

use std::collections::hash_map::DefaultHasher;
use std::hint::black_box;

use cuckoofilter::CuckooFilter;
use scalable_cuckoo_filter::ScalableCuckooFilter;
use serde_json::{Map, Value, json};

use crate::measure::{Clock, mix, round1};
use crate::ours;

/// A filter under test.
pub trait Subject {
    const NAME: &'static str;
    /// Room for this many items.
    fn new(items: usize) -> Self;
    /// False when refused.
    fn insert(&mut self, item: u64) -> bool;
    fn contains(&self, item: u64) -> bool;
    fn remove(&mut self, item: u64) -> bool;
    fn bytes(&self) -> usize;
}

struct Plain(CuckooFilter<DefaultHasher>);

impl Subject for Plain {
    const NAME: &'static str = "cuckoofilter";

    fn new(items: usize) -> Self {
        Self(CuckooFilter::with_capacity(items))
    }

    fn insert(&mut self, item: u64) -> bool {
        self.0.add(&item).is_ok()
    }

    fn contains(&self, item: u64) -> bool {
        self.0.contains(&item)
    }

    fn remove(&mut self, item: u64) -> bool {
        self.0.delete(&item)
    }

    fn bytes(&self) -> usize {
        self.0.memory_usage()
    }
}

struct Scalable(ScalableCuckooFilter<u64>);

impl Subject for Scalable {
    const NAME: &'static str = "scalable_cuckoo_filter";

    fn new(items: usize) -> Self {
        // As rare wrong answers as 16-bit fingerprints give.
        Self(ScalableCuckooFilter::new(items, 0.000_12))
    }

    fn insert(&mut self, item: u64) -> bool {
        self.0.insert(&item);
        true
    }

    fn contains(&self, item: u64) -> bool {
        self.0.contains(&item)
    }

    fn remove(&mut self, item: u64) -> bool {
        self.0.remove(&item)
    }

    fn bytes(&self) -> usize {
        self.0.bits() as usize / 8
    }
}

/// Ours and theirs with about `items` items: 90 % of the next power of two, which suits all three.
pub fn compare(items: usize, clock: &Clock) -> Value {
    let items = items.next_power_of_two() * 9 / 10;
    const ROUNDS: usize = 3;
    let mut out = Map::new();
    for round in 0..ROUNDS {
        for (name, found) in [
            run::<ours::Filter>(items, round, clock),
            run::<Plain>(items, round, clock),
            run::<Scalable>(items, round, clock),
        ] {
            // The best round of each: the rest is disturbance.
            let best = out.entry(name).or_insert_with(|| found.clone());
            for key in ["insert_ns", "hit_ns", "miss_ns", "remove_ns"] {
                if found[key].as_f64() < best[key].as_f64() {
                    best[key] = found[key].clone();
                }
            }
        }
    }
    out.into()
}

fn run<S: Subject>(items: usize, round: usize, clock: &Clock) -> (&'static str, Value) {
    let item = |number: usize| mix((round * 4 * items + number) as u64);
    let mut filter = S::new(items);
    let per_item = |count: usize, work: &mut dyn FnMut(usize)| {
        let before = Clock::ticks();
        (0..count).for_each(work);
        round1(clock.ns(Clock::ticks() - before) / count as f64)
    };
    let (mut refused, mut lost, mut wrong, mut unremoved) = (0, 0, 0, 0);
    let insert = per_item(items, &mut |at| refused += usize::from(!filter.insert(item(at))));
    let hit = per_item(items, &mut |at| lost += usize::from(!black_box(filter.contains(item(at)))));
    let miss = per_item(items, &mut |at| {
        wrong += usize::from(black_box(filter.contains(item(items + at))))
    });
    let bytes = filter.bytes();
    let remove = per_item(items, &mut |at| unremoved += usize::from(!filter.remove(item(at))));
    let json = json!({
        "items": items, "insert_ns": insert, "hit_ns": hit, "miss_ns": miss, "remove_ns": remove,
        "bytes_per_item": (100.0 * bytes as f64 / items as f64).round() / 100.0,
        "false_positive_rate": wrong as f64 / items as f64,
        "refused": refused, "false_negatives": lost, "not_removed": unremoved,
    });
    (S::NAME, json)
}
