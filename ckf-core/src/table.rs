//! Stop 3: the filter of one pool. In comes the address of a block whose first owner appeared or
//! whose last owner left; out go the buckets that changed. Next stop: `ckf-producer/src/dirty.rs`.

use alloc::vec::Vec;
use core::fmt;

use crate::error::{AllocationError, Full};
use crate::kick::{Plan, plan};
use crate::{
    Address, BlockHash, BucketImage, BucketIndex, Buckets, Change, Copies, Format, SlotIndex,
};

/// A packed cuckoo filter: a multiset of fingerprints that supports removal.
///
/// Holds no keys. The caller must remove only what it inserted and what was not refused; the exact
/// ownership of `ckf-producer` sees to that.
///
/// Its buckets are words in a row, unless the caller brings [`Buckets`] of its own.
#[derive(Clone, PartialEq, Eq)]
pub struct Table<B = Vec<u64>> {
    format: Format,
    buckets: B,
    stored: u64,
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
        Ok(Self { format, buckets: words, stored: 0 })
    }

    /// All bucket words, bucket 0 first.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.buckets
    }
}

impl<B: Buckets> Table<B> {
    /// A table in these buckets, with what they hold. Cost: a look at each.
    ///
    /// # Panics
    /// When there are not as many as the format says.
    pub fn in_buckets(format: Format, buckets: B) -> Self {
        assert_eq!(buckets.count(), format.bucket_count() as usize, "as many as the format says");
        let stored = format.buckets().map(|at| u64::from(buckets.image(at).occupied())).sum();
        Self { format, buckets, stored }
    }

    /// The buckets, with all that is kept in them.
    #[inline]
    pub fn buckets(&self) -> &B {
        &self.buckets
    }

    /// The buckets, for what is kept beside their images. Who changes images here makes
    /// [`stored`](Self::stored) wrong.
    #[inline]
    pub fn buckets_mut(&mut self) -> &mut B {
        &mut self.buckets
    }

    /// Gives the buckets back.
    pub fn into_buckets(self) -> B {
        self.buckets
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

    /// The image of one bucket of this table's format.
    ///
    /// # Panics
    /// When `bucket` comes from a larger format.
    #[inline]
    pub fn image(&self, bucket: BucketIndex) -> BucketImage {
        self.buckets.image(bucket)
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

    /// Where the copies counted by [`copies`](Self::copies) lie. Valid until the table changes.
    #[inline]
    pub fn find(&self, address: &Address) -> Copies {
        let Address { fingerprint, first, second } = *address;
        let of_second = self.image(second).matches(fingerprint);
        let slots =
            [self.image(first).matches(fingerprint), if first == second { 0 } else { of_second }];
        Copies { buckets: [first, second], slots }
    }

    /// Stores one copy. `on_change` hears of each bucket that changed, in the order of the writes;
    /// a bucket in the middle of a relocation is heard of twice. Returns the number of residents
    /// that had to move, 0 in most cases.
    ///
    /// # Errors
    /// [`Full`] when the bounded search finds no room; then nothing has changed, and the same
    /// insertion is refused again until the table changes.
    #[inline]
    pub fn insert(
        &mut self,
        address: &Address,
        on_change: impl FnMut(Change),
    ) -> Result<u32, Full> {
        self.insert_counting(address, &mut 0, on_change)
    }

    /// [`insert`](Self::insert) for callers that have to bound their work. Adds to `searched` the
    /// full buckets whose residents were thought of, whether room was found or not, each at the
    /// price of a look at four other buckets: none if a candidate bucket has a free slot, most
    /// often 1 or 2 otherwise, and 544 at most, in a table that is practically full.
    ///
    /// # Errors
    /// [`Full`], as [`insert`](Self::insert).
    #[inline]
    pub fn insert_counting(
        &mut self,
        address: &Address,
        searched: &mut u32,
        mut on_change: impl FnMut(Change),
    ) -> Result<u32, Full> {
        match self.put(address) {
            Some(change) => {
                on_change(change);
                Ok(0)
            }
            None => self.insert_by_moving(address, searched, &mut on_change),
        }
    }

    /// Stores one copy if a candidate bucket has a free slot; no resident moves. `None`, and
    /// nothing has changed, when both are full: then [`insert`](Self::insert) may still find room.
    #[inline]
    pub fn put(&mut self, address: &Address) -> Option<Change> {
        self.put_beside(address, self.image(address.first), self.image(address.second))
    }

    /// [`put`](Self::put), and `None` also when one of the candidate buckets holds the fingerprint
    /// already. One look at the buckets answers both.
    #[inline(always)]
    pub fn put_new(&mut self, address: &Address) -> Option<Change> {
        let (first, second) = (self.image(address.first), self.image(address.second));
        if first.matches(address.fingerprint) | second.matches(address.fingerprint) != 0 {
            return None;
        }
        self.put_beside(address, first, second)
    }

    /// Stores one copy in the emptier one of the candidate buckets, whose images are given: a more
    /// even table needs fewer relocations later. Slots are taken from the lowest on, so the larger
    /// mask of free slots is that of the emptier bucket, but for what removals have left behind.
    #[inline(always)]
    fn put_beside(
        &mut self,
        address: &Address,
        first: BucketImage,
        second: BucketImage,
    ) -> Option<Change> {
        let (free, free_second) = (first.free(), second.free());
        let (bucket, before, free) = if free_second > free {
            (address.second, second, free_second)
        } else {
            (address.first, first, free)
        };
        let after = before.with_in(free, address.fingerprint)?;
        self.buckets.set_image(bucket, after);
        self.stored += 1;
        Some(Change { bucket, before, after })
    }

    /// Makes room by moving residents, then stores.
    #[cold]
    fn insert_by_moving(
        &mut self,
        address: &Address,
        searched: &mut u32,
        on_change: &mut impl FnMut(Change),
    ) -> Result<u32, Full> {
        let plan = plan(&self.format, &self.buckets, address, searched).ok_or(Full)?;
        self.relocate(&plan, on_change);
        let Some(after) = self.image(plan.target()).with(address.fingerprint) else {
            unreachable!("a plan makes room in its target")
        };
        self.write(plan.target(), after, on_change);
        self.stored += 1;
        Ok(plan.moves().len() as u32)
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
            let room = self.write(step.to, to, on_change);
            self.buckets.follow(SlotIndex { bucket: step.from, slot: step.slot }, room);
            let left = from.without_slot(u32::from(step.slot));
            debug_assert_eq!(from.copies(resident), left.copies(resident) + 1);
            self.write(step.from, left, on_change);
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

    /// Empties the slot and says what changed; a slot that is empty stays so. For callers that tell
    /// equal fingerprints apart by the slots that they lie in.
    ///
    /// # Panics
    /// When `slot` comes from a larger format.
    #[inline]
    pub fn vacate(&mut self, slot: SlotIndex) -> Change {
        let before = self.image(slot.bucket);
        let after = before.without_slot(u32::from(slot.slot));
        self.buckets.set_image(slot.bucket, after);
        self.stored -= u64::from(before != after);
        Change { bucket: slot.bucket, before, after }
    }

    #[inline]
    fn write(
        &mut self,
        bucket: BucketIndex,
        after: BucketImage,
        on_change: &mut impl FnMut(Change),
    ) -> SlotIndex {
        let change = Change { bucket, before: self.image(bucket), after };
        self.buckets.set_image(bucket, after);
        on_change(change);
        change.slot()
    }
}

/// Shape and content in numbers, not millions of words: whatever holds a table shall be fit for a log.
impl<B> fmt::Debug for Table<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, stored, .. } = self;
        f.debug_struct("Table")
            .field("format", format)
            .field("stored", stored)
            .finish_non_exhaustive()
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

    /// The work of a search, in full buckets gone through: few at usual loads, bounded at any, and none
    /// where there is a free slot.
    #[test]
    fn f26_a_search_is_counted_and_bounded() {
        let format = Format::any_count(5_000, 1).unwrap();
        let mut table = Table::new(format).unwrap();
        let (mut searches, mut total, mut most) = (0, 0, 0);
        for i in 0..20_000 {
            let address = format.address(BlockHash::new(i));
            let full = [address.first, address.second].map(|at| table.image(at).occupied() == 4);
            let mut searched = 7;
            let moves = table.insert_counting(&address, &mut searched, |_| ());
            searched -= 7;
            assert_eq!(searched != 0, full == [true; 2]);
            assert!(moves.is_err() || (moves == Ok(0)) == (searched == 0));
            assert!(searched <= 544, "{searched}");
            searches += u32::from(i < 19_000 && searched != 0);
            total += if i < 19_000 { searched } else { 0 };
            most = most.max(searched);
            assert_eq!(moves.is_err(), searched == 544, "it gives up only at its bound");
        }
        assert!(searches > 1_000 && total < 3 * searches, "{total} in {searches} up to 95 %");
        assert_eq!(most, 544);
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

    /// What is stored only where it is new is new, and stored as by an insertion.
    #[test]
    fn f26_a_new_fingerprint_goes_where_an_insertion_puts_it() {
        let format = Format::any_count(3, 9).unwrap();
        let (mut table, accepted, _) = filled(format);
        for &hash in &accepted {
            assert!(table.remove(&format.address(hash), |_| ()));
            let (mut other, address) = (table.clone(), format.address(hash));
            let (before, copies) = (table.clone(), table.copies(&address));
            let mut changed = None;
            other.insert(&address, |change| changed = Some(change)).unwrap();
            match table.put_new(&address) {
                Some(change) => assert_eq!((Some(change), &table, copies), (changed, &other, 0)),
                None => assert!(copies > 0 && table == before),
            }
            table = other;
        }
    }

    /// Slots found are those that hold the fingerprint, and a vacated one is what a removal takes.
    #[test]
    fn f28_copies_are_found_slot_by_slot() {
        for count in [2, 3, 4, 5] {
            let format = Format::any_count(count, 9).unwrap();
            let (mut table, accepted, _) = filled(format);
            for hash in accepted {
                let address = format.address(hash);
                let copies: Vec<_> = table.find(&address).collect();
                assert_eq!(copies.len() as u32, table.copies(&address));
                assert_eq!(table.find(&address).is_empty(), copies.is_empty());
                let single = (copies.len() == 1).then(|| copies[0]);
                assert_eq!(table.find(&address).single(), single);
                for slot in &copies {
                    let held = table.image(slot.bucket()).slot(slot.within() as u32);
                    assert_eq!(held, Some(address.fingerprint));
                }
                let (last, stored) = (copies[copies.len() - 1], table.stored());
                let change = table.vacate(last);
                assert_eq!((change.slot(), table.stored()), (last, stored - 1));
                assert_eq!(table.find(&address).count(), copies.len() - 1);
                let again = table.vacate(last);
                assert_eq!((again.before, table.stored()), (again.after, stored - 1));
            }
            assert!(table.words().iter().all(|&word| word == 0));
        }
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
