//! The hash map of the fronts that remember blocks: many small tables, so that growing never takes
//! long.
//!
//! A map that doubles in one go stalls the thread for as long as it takes to move everything: three
//! quarters of a second with ten million blocks. Here one small table after the other is split in
//! two as the map fills (linear hashing), and no insertion moves more than some thousand entries.

use alloc::vec::Vec;
use core::hash::Hash;

use ahash::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::HashSeeds;

/// Entries of a table on average at which the next one is split. The tables not split yet in a round
/// hold up to twice as many as the others.
const ENTRIES_PER_TABLE: usize = 768;

/// Where in a hash the number of the table is. hashbrown places an entry in its table by the lowest
/// bits and tells neighbours apart by the highest seven.
const TABLE_BITS: u32 = 24;

/// A key with its hash, which is computed once for all that is done with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashed<K> {
    key: K,
    hash: u64,
}

impl<K: Copy> Hashed<K> {
    pub(super) fn key(self) -> K {
        self.key
    }
}

/// A map under a hash that the host seeds. Iterating it would leak the seeds' order into what the
/// crate says, so nobody can.
#[derive(Clone, Debug)]
pub(super) struct Map<K, V> {
    hasher: RandomState,
    /// Never empty.
    tables: Vec<HashTable<(K, V)>>,
    len: usize,
}

impl<K: Hash + Eq + Copy, V: Copy> Map<K, V> {
    pub(super) fn new(seeds: HashSeeds) -> Self {
        let [a, b, c, d] = seeds.words();
        let tables = Vec::from([HashTable::new()]);
        Self { hasher: RandomState::with_seeds(a, b, c, d), tables, len: 0 }
    }

    #[inline]
    pub(super) fn hashed(&self, key: K) -> Hashed<K> {
        Hashed { key, hash: self.hasher.hash_one(key) }
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
    pub(super) fn get(&self, Hashed { key, hash }: Hashed<K>) -> Option<&V> {
        self.table(hash).find(hash, |entry| entry.0 == key).map(|entry| &entry.1)
    }

    pub(super) fn get_mut(&mut self, Hashed { key, hash }: Hashed<K>) -> Option<&mut V> {
        let at = self.table_of(hash);
        self.tables[at].find_mut(hash, |entry| entry.0 == key).map(|entry| &mut entry.1)
    }

    pub(super) fn contains(&self, key: Hashed<K>) -> bool {
        self.get(key).is_some()
    }

    /// Makes room for one more entry under this key; `false` when memory is refused.
    ///
    /// Cost: now and then some thousand entries move.
    pub(super) fn reserve(&mut self, Hashed { hash, .. }: Hashed<K>) -> bool {
        if self.len >= self.tables.len() * ENTRIES_PER_TABLE {
            // Without memory for a split a table becomes larger than others, that is all.
            self.split();
        }
        let at = self.table_of(hash);
        let Self { hasher, tables, .. } = self;
        tables[at].try_reserve(1, |entry| hasher.hash_one(entry.0)).is_ok()
    }

    /// Inserts the value if the key is new; returns what stands there otherwise.
    /// [`reserve`](Self::reserve) comes first.
    pub(super) fn insert(&mut self, Hashed { key, hash }: Hashed<K>, value: V) -> Option<&mut V> {
        let at = self.table_of(hash);
        let Self { hasher, tables, len } = self;
        match tables[at].entry(hash, |entry| entry.0 == key, |entry| hasher.hash_one(entry.0)) {
            Entry::Occupied(occupied) => Some(&mut occupied.into_mut().1),
            Entry::Vacant(vacant) => {
                vacant.insert((key, value));
                *len += 1;
                None
            }
        }
    }

    pub(super) fn remove(&mut self, Hashed { key, hash }: Hashed<K>) -> Option<V> {
        let at = self.table_of(hash);
        let found = self.tables[at].find_entry(hash, |entry| entry.0 == key).ok()?;
        let ((_, value), _) = found.remove();
        self.len -= 1;
        Some(value)
    }

    /// Which table a hash belongs to: the lowest bits that number all tables, or one bit less where
    /// that table is still to be split off.
    fn table_of(&self, hash: u64) -> usize {
        let number = (hash >> TABLE_BITS) as usize;
        let mask = usize::MAX >> self.tables.len().leading_zeros();
        let wide = number & mask;
        if wide < self.tables.len() { wide } else { number & (mask >> 1) }
    }

    fn table(&self, hash: u64) -> &HashTable<(K, V)> {
        &self.tables[self.table_of(hash)]
    }

    /// Splits one table: those of its entries that have the next bit set move to a new one. Changes
    /// nothing when memory is refused.
    fn split(&mut self) -> Option<()> {
        let count = self.tables.len();
        let bit = 1 << count.ilog2();
        let Self { hasher, tables, .. } = self;
        let hash = |entry: &(K, V)| hasher.hash_one(entry.0);
        let moves = |entry: &(K, V)| (hash(entry) >> TABLE_BITS) & bit != 0;
        let old = &mut tables[count - bit as usize];
        let mut new = HashTable::new();
        new.try_reserve(old.iter().filter(|entry| moves(entry)).count(), hash).ok()?;
        tables.try_reserve(1).ok()?;
        for entry in tables[count - bit as usize].extract_if(|entry| moves(entry)) {
            new.insert_unique(hash(&entry), entry, hash);
        }
        tables.push(new);
        Some(())
    }
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
            let hashed = map.hashed(mix64(key));
            assert!(map.reserve(hashed));
            assert_eq!(map.insert(hashed, key), None);
            // Each table that is about to be split, and others.
            if key % ENTRIES_PER_TABLE as u64 == 0 {
                assert!((0..=key).all(|key| map.get(map.hashed(mix64(key))) == Some(&key)));
                assert!(!map.contains(map.hashed(mix64(key + 1))));
            }
        }
        assert_eq!(map.tables.len(), 20_000usize.div_ceil(ENTRIES_PER_TABLE));
        let longest = map.tables.iter().map(HashTable::len).max();
        assert!(longest < Some(3 * ENTRIES_PER_TABLE), "{longest:?}");
        for key in 0u64..20_000 {
            assert_eq!(map.remove(map.hashed(mix64(key))), Some(key));
        }
        assert_eq!(map.len(), 0);
    }

    proptest! {
        #[test]
        fn a_map_is_a_map(ops in prop::collection::vec((0u8..8, 0u64..4000), 0..6000)) {
            let (mut map, mut model) = (Map::new(seeds()), BTreeMap::new());
            for (op, key) in ops {
                let hashed = map.hashed(key);
                match op {
                    0..6 => {
                        prop_assert!(map.reserve(hashed));
                        let held = map.insert(hashed, op).copied();
                        prop_assert_eq!(held, model.get(&key).copied());
                        model.entry(key).or_insert(op);
                    }
                    6 => prop_assert_eq!(map.remove(hashed), model.remove(&key)),
                    _ => prop_assert_eq!(map.get(hashed), model.get(&key)),
                }
                prop_assert_eq!(map.len(), model.len());
            }
            prop_assert!((0..4000).all(|key| map.get(map.hashed(key)) == model.get(&key)));
            map.clear();
            prop_assert!(map.len() == 0 && (0..4000).all(|key| !map.contains(map.hashed(key))));
        }
    }
}
