//! Stop 3: the filter of one pool. In comes the address of a block whose first owner appeared or
//! whose last owner left; out go the buckets that changed. Next stop: `ckf-producer/src/dirty.rs`.

use alloc::vec::Vec;

use crate::error::{AllocationError, Full};
use crate::kick::{Plan, plan};
use crate::{Address, BlockHash, BucketImage, BucketIndex, Format};

/// A packed cuckoo filter: a multiset of fingerprints that supports removal.
///
/// Holds no keys. The caller must remove only what it inserted and what was not refused; the exact
/// ownership of `ckf-producer` sees to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    format: Format,
    words: Vec<u64>,
    stored: u64,
}

/// One changed bucket: where, and its image before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which bucket.
    pub bucket: BucketIndex,
    /// Its image before.
    pub before: BucketImage,
    /// Its image now.
    pub after: BucketImage,
}

impl Table {
    /// An empty table. Takes eight bytes a bucket.
    ///
    /// # Errors
    /// [`AllocationError`] when the memory is refused.
    pub fn new(format: Format) -> Result<Self, AllocationError> {
        let mut words = Vec::new();
        let len = format.bucket_count() as usize;
        words
            .try_reserve_exact(len)
            .map_err(|_| AllocationError { bytes: format.table_bytes() })?;
        words.resize(len, 0);
        Ok(Self { format, words, stored: 0 })
    }

    /// Shape and seed.
    #[inline]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Fingerprints stored, copies counted.
    #[inline]
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// Slots taken, per mille of all slots, rounded down.
    pub fn load_per_mille(&self) -> u16 {
        (u128::from(self.stored) * 1000 / u128::from(self.format.slot_count())) as u16
    }

    /// All bucket words, bucket 0 first.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The image of one bucket of this table's format.
    ///
    /// # Panics
    /// When `bucket` comes from a larger format.
    #[inline]
    pub fn image(&self, bucket: BucketIndex) -> BucketImage {
        BucketImage::new(self.words[bucket.to_usize()])
    }

    /// Whether the block is probably stored: always `true` for a stored block, and for another one
    /// with a probability of about eight slots times the load in 65,535.
    #[inline]
    pub fn contains(&self, hash: BlockHash) -> bool {
        self.holds(&self.format.address(hash))
    }

    /// [`contains`](Self::contains) for an address made by this table's format.
    #[inline]
    pub fn holds(&self, address: &Address) -> bool {
        self.image(address.first).contains(address.fingerprint)
            || self.image(address.second).contains(address.fingerprint)
    }

    /// Copies of the fingerprint in its candidate buckets, 0 to 8. For diagnosis: copies of other
    /// blocks with an equal address count too.
    pub fn copies(&self, address: &Address) -> u32 {
        let first = self.image(address.first).copies(address.fingerprint);
        if address.first == address.second {
            return first;
        }
        first + self.image(address.second).copies(address.fingerprint)
    }

    /// Stores one copy. `on_change` hears of each bucket that changed, in the order of the writes;
    /// a bucket in the middle of a relocation is heard of twice. Returns the number of residents
    /// that had to move, 0 in most cases.
    ///
    /// # Errors
    /// [`Full`] when the bounded search finds no room; then nothing has changed, and the same
    /// insertion is refused again until something is removed.
    #[inline]
    pub fn insert(
        &mut self,
        address: &Address,
        mut on_change: impl FnMut(Change),
    ) -> Result<u32, Full> {
        let (first, second) = (self.image(address.first), self.image(address.second));
        // The emptier bucket first: a more even table needs fewer relocations later.
        let bucket =
            if second.occupied() < first.occupied() { address.second } else { address.first };
        let mut moves = 0;
        if !self.put(bucket, address, &mut on_change) {
            let plan = plan(&self.format, &self.words, address).ok_or(Full)?;
            self.relocate(&plan, &mut on_change);
            self.put(plan.target(), address, &mut on_change);
            moves = plan.moves().len() as u32;
        }
        self.stored += 1;
        Ok(moves)
    }

    /// Writes the fingerprint to `bucket`; `false`, and nothing written, when it is full.
    #[inline]
    fn put(
        &mut self,
        bucket: BucketIndex,
        address: &Address,
        on_change: &mut impl FnMut(Change),
    ) -> bool {
        let Some(after) = self.image(bucket).with(address.fingerprint) else { return false };
        self.write(bucket, after, on_change);
        true
    }

    /// Makes the moves of a plan. Each resident is written to its new bucket before its slot is
    /// given away.
    fn relocate(&mut self, plan: &Plan, on_change: &mut impl FnMut(Change)) {
        for step in plan.moves() {
            let from = self.image(step.from);
            let resident = from.slot(u32::from(step.slot));
            let room =
                resident.and_then(|resident| Some((resident, self.image(step.to).with(resident)?)));
            let Some((resident, to)) = room else { unreachable!("a plan fits its own table") };
            self.write(step.to, to, on_change);
            let left = from.get() & !(0xFFFF << (u32::from(step.slot) * 16));
            debug_assert_eq!(from.copies(resident), BucketImage::new(left).copies(resident) + 1);
            self.write(step.from, BucketImage::new(left), on_change);
        }
    }

    /// Removes one copy of the fingerprint. Returns whether there was one.
    #[inline]
    pub fn remove(&mut self, address: &Address, mut on_change: impl FnMut(Change)) -> bool {
        // Both are looked at before one is chosen: which one it is cannot be guessed.
        let (first, second) = (self.image(address.first), self.image(address.second));
        let (bucket, image) = if first.contains(address.fingerprint) {
            (address.first, first)
        } else {
            (address.second, second)
        };
        if let Some(after) = image.without(address.fingerprint) {
            self.write(bucket, after, &mut on_change);
            self.stored -= 1;
            return true;
        }
        false
    }

    #[inline]
    fn write(
        &mut self,
        bucket: BucketIndex,
        after: BucketImage,
        on_change: &mut impl FnMut(Change),
    ) {
        let word = &mut self.words[bucket.to_usize()];
        let before = BucketImage::new(*word);
        *word = after.get();
        on_change(Change { bucket, before, after });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fingerprint;

    fn filled(format: Format) -> (Table, Vec<BlockHash>, BlockHash) {
        let mut table = Table::new(format).unwrap();
        let mut accepted = Vec::new();
        for i in 0.. {
            let hash = BlockHash::new(i);
            let before = table.clone();
            match table.insert(&format.address(hash), |_| ()) {
                Ok(_) => accepted.push(hash),
                Err(Full) => {
                    assert_eq!(table, before);
                    return (table, accepted, hash);
                }
            }
        }
        unreachable!("a table of bounded size refuses at last")
    }

    #[test]
    fn f26_a_refusal_changes_nothing_and_is_repeated() {
        for count in [2, 3, 4, 5, 16, 100] {
            for seed in 0..20 {
                let format = Format::any_count(count, seed).unwrap();
                let (mut table, accepted, refused) = filled(format);
                let before = table.clone();
                let again = table.insert(&format.address(refused), |_| panic!("no change"));
                assert_eq!(again, Err(Full));
                assert_eq!(table, before);
                assert!(accepted.iter().all(|&hash| table.contains(hash)));
            }
        }
    }

    #[test]
    fn f23_filled_to_refusal_nothing_accepted_is_missing() {
        for format in
            [Format::any_count(1024, 1), Format::power_of_two(1024, 1), Format::any_count(1000, 2)]
        {
            let format = format.unwrap();
            let (mut table, accepted, _) = filled(format);
            assert!(table.load_per_mille() >= 950, "{}", table.load_per_mille());
            assert_eq!(table.stored(), accepted.len() as u64);
            for &hash in &accepted {
                assert!(table.contains(hash));
            }
            for &hash in &accepted {
                assert!(table.remove(&format.address(hash), |_| ()));
            }
            assert!(table.words().iter().all(|&word| word == 0));
        }
    }

    #[test]
    fn f28_a_bucket_that_is_its_own_mirror_counts_each_copy_once() {
        let mut seen = 0;
        for count in 2..=200 {
            let format = Format::any_count(count, 9).unwrap();
            let Some(address) = (0..100_000)
                .map(|i| format.address(BlockHash::new(i)))
                .find(|address| address.first == address.second)
            else {
                continue;
            };
            seen += 1;
            let mut table = Table::new(format).unwrap();
            for copies in 1..=4 {
                assert_eq!(table.insert(&address, |_| ()), Ok(0));
                assert_eq!(table.copies(&address), copies);
            }
            assert_eq!(table.insert(&address, |_| ()), Err(Full));
            assert!(table.remove(&address, |_| ()));
            assert_eq!(table.copies(&address), 3);
        }
        assert!(seen > 150, "mirrors exist for nearly all counts: {seen}");
    }

    #[test]
    fn f28_xor_indexing_has_no_self_mirror() {
        for count in [2, 4, 64, 1024] {
            let format = Format::power_of_two(count, 9).unwrap();
            for bits in 1..=u16::MAX {
                let bucket = format.bucket(1).unwrap();
                assert_ne!(format.alternate(bucket, Fingerprint::new(bits).unwrap()), bucket);
            }
        }
    }

    #[test]
    fn f24_zero_fingerprint_is_never_written() {
        let format = Format::any_count(16, 11).unwrap();
        let zeros = (0..1_000_000).map(BlockHash::new).filter(|hash| {
            xxhash_rust::xxh3::xxh3_64_with_seed(&hash.get().to_le_bytes(), 11) as u16 == 0
        });
        let mut table = Table::new(format).unwrap();
        let zeros: Vec<_> = zeros.collect();
        assert!(zeros.len() > 3);
        for &hash in &zeros {
            assert!(!table.contains(hash) || table.stored() > 0);
            table
                .insert(&format.address(hash), |change| {
                    assert!(change.after.occupied() > change.before.occupied());
                })
                .unwrap();
            assert!(table.contains(hash));
        }
        for &hash in &zeros {
            assert!(table.remove(&format.address(hash), |_| ()));
        }
        assert!(table.words().iter().all(|&word| word == 0));
    }
}
