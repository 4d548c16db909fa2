//! The hash map of the fronts that remember blocks: many small tables, so that growing never takes
//! long.
//!
//! A map that doubles in one go stalls the thread for as long as it takes to move everything: three
//! quarters of a second with ten million blocks. Here one small table after the other is split in
//! two as the map fills (linear hashing), and no insertion moves more than some thousand entries.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use ckf_core::{BlockHash, EngineBlockId};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::HashSeeds;
use crate::ownership::Scramble;

/// Entries of a table on average at which the next one is split. The tables not split yet in a round
/// hold up to twice as many as the others.
const ENTRIES_PER_TABLE: usize = 768;

/// Where in a key the number of the table is. hashbrown places an entry in its table by the lowest
/// bits and tells neighbours apart by the highest seven.
const TABLE_BITS: u32 = 24;

/// What a map can be asked for.
pub(super) trait Bits {
    fn bits(self) -> u64;
}

impl Bits for BlockHash {
    fn bits(self) -> u64 {
        self.get()
    }
}

impl Bits for EngineBlockId {
    fn bits(self) -> u64 {
        self.get()
    }
}

/// A key as a map holds it: scattered, computed once for all that is done with it.
#[derive(Debug)]
pub(super) struct Hashed<K>(u64, PhantomData<K>);

impl<K> Clone for Hashed<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Hashed<K> {}

/// A map under keys that are scattered by a secret permutation. That is its own hash, so an entry
/// that moves to another table has nothing to compute. Iterating it would leak the seeds' order into
/// what the crate says, so nobody can.
#[derive(Clone)]
pub(super) struct Map<K, V> {
    scramble: Scramble,
    /// Never empty.
    tables: Vec<HashTable<(u64, V)>>,
    len: usize,
    keys: PhantomData<K>,
}

/// How many entries there are: whatever has a map shall be fit for a log.
impl<K, V> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Map({} entries)", self.len)
    }
}

impl<K: Bits, V: Copy> Map<K, V> {
    pub(super) fn new(seeds: HashSeeds) -> Self {
        let tables = Vec::from([HashTable::new()]);
        Self { scramble: Scramble::new(seeds), tables, len: 0, keys: PhantomData }
    }

    #[inline]
    pub(super) fn hashed(&self, key: K) -> Hashed<K> {
        Hashed(self.scramble.key(BlockHash::new(key.bits())).get(), PhantomData)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn clear(&mut self) {
        self.tables.truncate(1);
        self.tables.shrink_to_fit();
        self.tables[0] = HashTable::new();
        self.len = 0;
    }

    /// Cost: two memory accesses. Look-ups made one after the other wait for memory together, so that
    /// it pays to look all keys of an event up before anything is done with the first.
    #[inline]
    pub(super) fn get(&self, Hashed(key, _): Hashed<K>) -> Option<&V> {
        self.tables[self.table_of(key)].find(key, |entry| entry.0 == key).map(|entry| &entry.1)
    }

    pub(super) fn get_mut(&mut self, Hashed(key, _): Hashed<K>) -> Option<&mut V> {
        let at = self.table_of(key);
        self.tables[at].find_mut(key, |entry| entry.0 == key).map(|entry| &mut entry.1)
    }

    #[inline]
    pub(super) fn contains(&self, key: Hashed<K>) -> bool {
        self.get(key).is_some()
    }

    /// Makes room for one more entry under this key; `false` when memory is refused.
    ///
    /// Cost: now and then some thousand entries move.
    #[inline]
    pub(super) fn reserve(&mut self, Hashed(key, _): Hashed<K>) -> bool {
        if self.len >= self.tables.len() * ENTRIES_PER_TABLE {
            // Without memory for a split a table becomes larger than others, that is all.
            self.split();
        }
        let at = self.table_of(key);
        self.tables[at].try_reserve(1, hash).is_ok()
    }

    /// Inserts the value if the key is new; returns what stands there otherwise.
    /// [`reserve`](Self::reserve) comes first.
    #[inline]
    pub(super) fn insert(&mut self, Hashed(key, _): Hashed<K>, value: V) -> Option<&mut V> {
        let at = self.table_of(key);
        match self.tables[at].entry(key, |entry| entry.0 == key, hash) {
            Entry::Occupied(occupied) => Some(&mut occupied.into_mut().1),
            Entry::Vacant(vacant) => {
                vacant.insert((key, value));
                self.len += 1;
                None
            }
        }
    }

    /// Changes what stands under the key, and removes it unless `stays` says that it stays; returns
    /// the value as it is then.
    #[inline]
    pub(super) fn update(
        &mut self,
        Hashed(key, _): Hashed<K>,
        stays: impl FnOnce(&mut V) -> bool,
    ) -> Option<V> {
        let at = self.table_of(key);
        let mut found = self.tables[at].find_entry(key, |entry| entry.0 == key).ok()?;
        let entry = found.get_mut();
        let stays = stays(&mut entry.1);
        let value = entry.1;
        if !stays {
            found.remove();
            self.len -= 1;
        }
        Some(value)
    }

    /// Which table a key belongs to: the lowest bits that number all tables, or one bit less where
    /// that table is still to be split off.
    #[inline]
    fn table_of(&self, key: u64) -> usize {
        let number = (key >> TABLE_BITS) as usize;
        let mask = usize::MAX >> self.tables.len().leading_zeros();
        let wide = number & mask;
        if wide < self.tables.len() { wide } else { number & (mask >> 1) }
    }

    /// Splits one table: those of its entries that have the next bit set move to a new one. Changes
    /// nothing when memory is refused.
    #[cold]
    fn split(&mut self) -> Option<()> {
        let count = self.tables.len();
        let bit = 1 << count.ilog2();
        let moves = |entry: &(u64, V)| (entry.0 >> TABLE_BITS) & bit != 0;
        let old = count - bit as usize;
        let mut new = HashTable::new();
        let moving = self.tables[old].iter().filter(|entry| moves(entry)).count();
        new.try_reserve(moving, hash).ok()?;
        self.tables.try_reserve(1).ok()?;
        for entry in self.tables[old].extract_if(|entry| moves(entry)) {
            new.insert_unique(entry.0, entry, hash);
        }
        self.tables.push(new);
        Some(())
    }
}

fn hash<V>(entry: &(u64, V)) -> u64 {
    entry.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use ckf_core::mix64;
    use proptest::prelude::*;

    fn seeds() -> HashSeeds {
        HashSeeds::new([1, 2, 3, 4])
    }

    #[test]
    fn every_entry_is_found_at_every_number_of_tables() {
        let mut map = Map::new(seeds());
        for key in 0u64..20_000 {
            let hashed = map.hashed(BlockHash::new(mix64(key)));
            assert!(map.reserve(hashed));
            assert_eq!(map.insert(hashed, key), None);
            // Each table that is about to be split, and others.
            if key % ENTRIES_PER_TABLE as u64 == 0 {
                assert!(
                    (0..=key)
                        .all(|key| map.get(map.hashed(BlockHash::new(mix64(key)))) == Some(&key))
                );
                assert!(!map.contains(map.hashed(BlockHash::new(mix64(key + 1)))));
            }
        }
        assert_eq!(map.tables.len(), 20_000usize.div_ceil(ENTRIES_PER_TABLE));
        let longest = map.tables.iter().map(HashTable::len).max();
        assert!(longest < Some(3 * ENTRIES_PER_TABLE), "{longest:?}");
        for key in 0u64..20_000 {
            assert_eq!(map.update(map.hashed(BlockHash::new(mix64(key))), |_| false), Some(key));
        }
        assert_eq!(map.len(), 0);
    }

    proptest! {
        #[test]
        fn a_map_is_a_map(ops in prop::collection::vec((0u8..8, 0u64..4000), 0..6000)) {
            let (mut map, mut model) = (Map::new(seeds()), BTreeMap::new());
            for (op, key) in ops {
                let hashed = map.hashed(BlockHash::new(key));
                match op {
                    0..6 => {
                        prop_assert!(map.reserve(hashed));
                        let held = map.insert(hashed, op).copied();
                        prop_assert_eq!(held, model.get(&key).copied());
                        model.entry(key).or_insert(op);
                    }
                    6 => prop_assert_eq!(map.update(hashed, |_| false), model.remove(&key)),
                    _ => prop_assert_eq!(map.get(hashed), model.get(&key)),
                }
                prop_assert_eq!(map.len(), model.len());
            }
            prop_assert!((0..4000).all(|key| map.get(map.hashed(BlockHash::new(key))) == model.get(&key)));
            map.clear();
            prop_assert!(map.len() == 0 && (0..4000).all(|key| !map.contains(map.hashed(BlockHash::new(key)))));
        }
    }
}
