//! What members own, as the pool sees it: the filter, the blocks that have several owners, and
//! the blocks that the filter has no room for.
//!
//! The filter is the pool's index of owners. A block with one owner, as most have, lies in no set
//! but that of its owner: a [tag](Tag) beside its fingerprint names it. Who gains a block looks
//! at the block's two buckets. If none of their eight slots holds its fingerprint, nobody owned it.
//! If one does, its tag says whom to ask. Blocks with several owners, and the omitted ones, which
//! have no fingerprint to tag, are counted in sets of their own.
//!
//! What holds between commands: over the whole filter, the pairs of fingerprint and tag are exactly
//! those of the owned blocks: with the owner's tag where there is one and the block is not counted,
//! with [`Tag::SHARED`] where it is in `shared`, none where it is in `omitted`. Fingerprints that
//! are equal in the same two buckets are interchangeable, also across blocks.

use ckf_core::{
    Address, AllocationError, BucketImage, Change, Copies, Format, SlotIndex, TableDigest,
};

use crate::buckets::{PoolBuckets, PoolTable, Tag};
use crate::budget::Budget;
use crate::error::Violation;
use crate::ownership::{CLASSES, Counts, Held, Key, OwnerId, Scramble};
use crate::readmission::{Readmission, SearchCredit};

/// Filter with tags, published images and dirty buckets, shared and omitted blocks.
#[derive(Clone)]
pub(crate) struct Projection {
    pub(crate) table: PoolTable,
    /// Blocks in the filter that have several owners, or once had.
    pub(crate) shared: Counts,
    /// Blocks that are not in the filter, whatever their number of owners.
    pub(crate) omitted: Counts,
    pub(crate) scramble: Scramble,
    pub(crate) readmission: Readmission,
    pub(crate) credit: SearchCredit,
    pub(crate) counters: FilterCounters,
}

/// Counters over the life of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FilterCounters {
    pub(crate) kicks: u64,
    pub(crate) refused: u64,
    pub(crate) readmitted: u64,
    pub(crate) searched: u64,
}

/// What a member's gain of a block is for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gain {
    /// Others own it too.
    Shared,
    /// Nobody did, and its fingerprint is in the filter now.
    First,
    /// Nobody did, and the filter has no room for it.
    Omitted,
}

/// What a member's loss of a block is for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Released,
    Final,
}

impl Projection {
    /// An empty filter.
    pub(crate) fn new(
        format: Format,
        scramble: Scramble,
        budget: &mut Budget,
    ) -> Result<Self, AllocationError> {
        let buckets = PoolBuckets::new(format, budget)?;
        Ok(Self {
            table: PoolTable::in_buckets(format, buckets),
            shared: Counts::new(),
            omitted: Counts::new(),
            scramble,
            readmission: Readmission::default(),
            credit: SearchCredit::default(),
            counters: FilterCounters::default(),
        })
    }

    /// Gives all memory back.
    pub(crate) fn release(self, budget: &mut Budget) {
        self.table.into_buckets().release(budget);
        self.shared.release(budget);
        self.omitted.release(budget);
    }

    pub(crate) fn shared(&self) -> &Counts {
        &self.shared
    }

    pub(crate) fn omitted(&self) -> &Counts {
        &self.omitted
    }

    #[cfg(feature = "_model")]
    pub(crate) fn omitted_mut(&mut self) -> &mut Counts {
        &mut self.omitted
    }

    /// Blocks that anybody owns.
    #[inline]
    pub(crate) fn distinct(&self) -> u64 {
        self.table.stored() + self.omitted.len()
    }

    /// Blocks by number of owners: 1, 2, 3-4, 5-8, ..., up to 2^16.
    pub(crate) fn histogram(&self) -> [u64; CLASSES] {
        let (shared, omitted) = (self.shared.histogram(), self.omitted.histogram());
        let mut histogram = core::array::from_fn(|class| shared[class] + omitted[class]);
        histogram[0] += self.distinct() - self.shared.len() - self.omitted.len();
        histogram
    }

    /// Whether the block is counted, and its owners then; `None` when it has one or none.
    pub(crate) fn counted(&self, key: Key) -> Option<u16> {
        let shared = self.shared.owners(key);
        let owners = if shared == 0 { self.omitted.owners(key) } else { shared };
        (owners != 0).then_some(owners)
    }

    /// Those who may be the sole owner of a block that is not counted: at most eight, nearly always
    /// one if somebody owns it and nobody else.
    pub(crate) fn suspects(&self, address: &Address) -> impl Iterator<Item = OwnerId> + '_ {
        self.table.find(address).filter_map(|slot| self.tag(slot).owner())
    }

    pub(crate) fn counters(&self) -> FilterCounters {
        self.counters
    }

    /// Continues the counters of a former projection.
    pub(crate) fn continue_counters(&mut self, former: &Self) {
        self.counters.kicks += former.counters.kicks;
        self.counters.refused += former.counters.refused;
        self.counters.readmitted += former.counters.readmitted;
        self.counters.searched += former.counters.searched;
    }

    /// Reads one word of each of the block's buckets.
    #[inline]
    pub(crate) fn touch(&self, address: &Address) -> u64 {
        self.table.image(address.first).get() ^ self.table.image(address.second).get()
    }

    /// Reads one word of what is needed, besides the buckets, to count an owner on or off.
    #[inline]
    pub(crate) fn touch_shared(&self, key: Key) -> u64 {
        if self.shared.len() == 0 { 0 } else { self.shared.touch(key) }
    }

    #[inline]
    fn tag(&self, slot: SlotIndex) -> Tag {
        self.table.buckets().tag(slot)
    }

    /// Counts the member as the owner of blocks that nobody owns, up to the first of which that does
    /// not show at a look at its buckets, or for which these have no free slot; returns how many
    /// there are before it. None while any block is omitted.
    #[inline(always)]
    pub(crate) fn gain_new<'a>(
        &mut self,
        at: OwnerId,
        addresses: impl ExactSizeIterator<Item = &'a Address>,
    ) -> usize {
        if self.omitted.len() != 0 {
            return 0;
        }
        let (all, tag) = (addresses.len(), Tag::sole(at));
        for (new, address) in addresses.enumerate() {
            let Some(change) = self.table.put_new(address) else { return new };
            self.table.buckets_mut().set_tag(change.slot(), tag);
        }
        all
    }

    /// Counts the member as an owner of a block that it did not own. `owns` says, exactly, whether
    /// another member owns the block.
    ///
    /// # Errors
    /// [`AllocationError`] when memory is refused; nothing has changed then.
    pub(crate) fn gain(
        &mut self,
        at: OwnerId,
        key: Key,
        address: &Address,
        budget: &mut Budget,
        owns: impl FnMut(OwnerId) -> bool,
    ) -> Result<Gain, AllocationError> {
        if self.join(at, key, self.table.find(address), budget, owns)? {
            return Ok(Gain::Shared);
        }
        self.enter(key, address, Tag::sole(at), 1, budget)
    }

    /// Counts one more owner of a block that somebody owns; `false` when nobody does.
    fn join(
        &mut self,
        at: OwnerId,
        key: Key,
        copies: Copies,
        budget: &mut Budget,
        mut owns: impl FnMut(OwnerId) -> bool,
    ) -> Result<bool, AllocationError> {
        // Counted blocks first: one of them may have a twin whose sole owner owns both.
        if copies.clone().any(|slot| self.tag(slot) == Tag::SHARED) && self.shared.gain(key) {
            return Ok(true);
        }
        if self.omitted.len() != 0 && self.omitted.gain(key) {
            return Ok(true);
        }
        for slot in copies {
            // A copy of the member's own is that of another block.
            let owner = self.tag(slot).owner();
            if owner.is_some_and(|owner| owner != at && owns(owner)) {
                self.shared.enter(key, 2, budget)?;
                self.table.buckets_mut().set_tag(slot, Tag::SHARED);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Enters a block that is not in the filter: with the tag of its sole owner, or as a shared
    /// one. Without room for it in the filter it is remembered as omitted; so it is, unsearched,
    /// where searches for others have used up what they may.
    fn enter(
        &mut self,
        key: Key,
        address: &Address,
        tag: Tag,
        owners: u16,
        budget: &mut Budget,
    ) -> Result<Gain, AllocationError> {
        if self.put(address, tag) {
            return Ok(Gain::First);
        }
        self.credit.grant_for_block();
        if self.credit.is_left() && self.make_place(address, tag) {
            return Ok(Gain::First);
        }
        self.omit(key, owners, budget)
    }

    /// Writes a fingerprint with its tag to a free slot of its buckets, if there is one.
    pub(crate) fn put(&mut self, address: &Address, tag: Tag) -> bool {
        let Some(change) = self.table.put(address) else { return false };
        self.table.buckets_mut().set_tag(change.slot(), tag);
        true
    }

    /// Writes a fingerprint with its tag to the filter, if moving others makes room. Takes the
    /// search from the credit.
    #[cold]
    pub(crate) fn make_place(&mut self, address: &Address, tag: Tag) -> bool {
        let (mut gained, mut searched) = (None, 0);
        // The last change is that of the new fingerprint.
        let last = |change: Change| gained = Some(change.slot());
        let placed = self.table.insert_counting(address, &mut searched, last);
        self.credit.take(searched);
        self.counters.searched += u64::from(searched);
        let (Ok(moves), Some(slot)) = (placed, gained) else { return false };
        self.table.buckets_mut().set_tag(slot, tag);
        self.counters.kicks += u64::from(moves);
        true
    }

    #[cold]
    fn omit(
        &mut self,
        key: Key,
        owners: u16,
        budget: &mut Budget,
    ) -> Result<Gain, AllocationError> {
        self.omitted.enter(key, owners, budget)?;
        self.counters.refused += 1;
        // Perhaps nobody has searched for it yet; and the set may have moved blocks about.
        self.readmission.start_anew();
        Ok(Gain::Omitted)
    }

    /// Counts off an owner of a block: the block has left the member's set.
    ///
    /// # Errors
    /// [`Violation::Filter`] when the block is neither counted nor in the filter.
    #[inline]
    pub(crate) fn lose(
        &mut self,
        at: OwnerId,
        key: Key,
        address: &Address,
        budget: &mut Budget,
    ) -> Result<Loss, Violation> {
        let copies = self.table.find(address);
        match copies.single() {
            Some(slot) if self.omitted.len() == 0 && self.tag(slot) == Tag::sole(at) => {
                self.vacate(slot);
                Ok(Loss::Final)
            }
            _ => self.part(at, key, copies, budget),
        }
    }

    /// Counts off an owner of a block that may be counted, or whose fingerprint is not the only
    /// one of its kind.
    fn part(
        &mut self,
        at: OwnerId,
        key: Key,
        mut copies: Copies,
        budget: &mut Budget,
    ) -> Result<Loss, Violation> {
        let tagged = |tag| copies.clone().find(|&slot| self.tag(slot) == tag);
        if let Some(slot) = tagged(Tag::SHARED) {
            match self.shared.lose(key, budget) {
                Some(0) => {
                    self.vacate(slot);
                    return Ok(Loss::Final);
                }
                Some(_) => return Ok(Loss::Released),
                None => {}
            }
        }
        if self.omitted.len() != 0 {
            match self.omitted.lose(key, budget) {
                Some(0) => {
                    self.readmission.start_anew();
                    self.drop_if_none_omitted(budget);
                    return Ok(Loss::Final);
                }
                Some(_) => return Ok(Loss::Released),
                None => {}
            }
        }
        let own = copies.find(|&slot| self.tag(slot) == Tag::sole(at));
        self.vacate(own.ok_or(Violation::Filter)?);
        Ok(Loss::Final)
    }

    #[inline]
    fn vacate(&mut self, slot: SlotIndex) {
        self.table.vacate(slot);
        self.readmission.start_anew();
    }

    /// Enters a block of a former projection of the same owners, with its sole owner.
    ///
    /// # Errors
    /// [`AllocationError`] when memory is refused; nothing has changed then.
    pub(crate) fn adopt_sole(
        &mut self,
        at: OwnerId,
        key: Key,
        budget: &mut Budget,
    ) -> Result<(), AllocationError> {
        let address = self.table.format().address(self.scramble.block(key));
        self.enter(key, &address, Tag::sole(at), 1, budget).map(|_| ())
    }

    /// Enters a block of a former projection of the same owners that is counted there.
    ///
    /// # Errors
    /// [`AllocationError`] when memory is refused; nothing has changed then.
    pub(crate) fn adopt_counted(
        &mut self,
        held: Held,
        budget: &mut Budget,
    ) -> Result<(), AllocationError> {
        let address = self.table.format().address(self.scramble.block(held.key));
        self.shared.reserve(held.key, budget)?;
        if self.enter(held.key, &address, Tag::SHARED, held.count, budget)? == Gain::First {
            self.shared.enter(held.key, held.count, budget)?;
        }
        Ok(())
    }

    /// Makes the filter as it is the published one.
    pub(crate) fn publish_all(&mut self) {
        self.table.buckets_mut().publish();
    }

    /// Digest of the filter as it is. Cost: by all buckets.
    pub(crate) fn digest(&self) -> TableDigest {
        let images = self.table.format().buckets().map(|at| (at.get(), self.table.image(at)));
        images.fold(TableDigest::EMPTY, |digest, (at, image)| {
            digest.replaced(at, BucketImage::EMPTY, image)
        })
    }

    pub(crate) fn drop_if_none_omitted(&mut self, budget: &mut Budget) {
        if self.omitted.len() == 0 {
            core::mem::replace(&mut self.omitted, Counts::new()).release(budget);
            self.readmission = Readmission::default();
        }
    }
}
