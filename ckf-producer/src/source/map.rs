//! The hash map of the fronts that remember blocks.

use ahash::RandomState;
use hashbrown::HashMap;

use crate::HashSeeds;

/// A map under a hash that the host seeds. Iterating it would leak the seeds' order into what the
/// crate says, so nobody does.
pub(super) type Map<K, V> = HashMap<K, V, RandomState>;

/// An empty map.
pub(super) fn new<K, V>(seeds: HashSeeds) -> Map<K, V> {
    let [a, b, c, d] = seeds.words();
    Map::with_hasher(RandomState::with_seeds(a, b, c, d))
}
