//! The invariant check: is the exact state what it must be, and the filter its projection?

use ckf_core::{Address, BucketImage, BucketIndex, GOLDEN_GAMMA, TableDigest, mix64};

use crate::Pool;
use crate::buckets::Tag;
use crate::error::Violation;
use crate::ownership::Key;

impl Pool {
    /// Checks every invariant of the pool and fences it when one does not hold.
    ///
    /// For hosts that want to know, at start, at idle times or when readers report divergence.
    /// Cost: some memory accesses per ownership and per filter slot, about a second for ten
    /// million blocks. Allocates nothing: sets that must be equal are compared by sums of 64-bit
    /// mixed values, which finds faults, not forgeries.
    ///
    /// # Errors
    /// [`Violation`], the first one found. The pool is fenced from then on.
    pub fn check(&mut self) -> Result<(), Violation> {
        self.fence_state()?;
        let verdict = self
            .check_omissions()
            .and_then(|()| self.check_ownership())
            .and_then(|()| self.check_filter())
            .and_then(|()| self.check_published());
        verdict.inspect_err(|&violation| self.fence(violation))
    }

    /// Members' sets and counts are sound and tell the same, and blocks that are not counted have
    /// one owner.
    fn check_ownership(&self) -> Result<(), Violation> {
        let (ownership, projection) = (&self.ownership, &self.projection);
        let (shared, omitted) = (projection.shared(), projection.omitted());
        if !shared.is_consistent() || !ownership.is_consistent() {
            return Err(Violation::Refcounts);
        }
        let (mut owned, mut counted) = (0u64, 0u64);
        for (member, at, blocks) in ownership.members() {
            if blocks.len() == 0 || !blocks.is_consistent() || blocks.iter().any(|b| b.count != 1) {
                return Err(Violation::MemberSet { member });
            }
            for held in blocks.iter() {
                if projection.counted(held.key).is_some() {
                    owned = owned.wrapping_add(mix(held.key.get()));
                    continue;
                }
                let address = self.address(held.key);
                let mut others = projection.suspects(&address).filter(|&other| other != at);
                if others.any(|other| ownership.owns(other, held.key)) {
                    return Err(Violation::Edges);
                }
            }
        }
        for held in shared.iter().chain(omitted.iter()) {
            counted = counted.wrapping_add(u64::from(held.count).wrapping_mul(mix(held.key.get())));
        }
        if owned == counted { Ok(()) } else { Err(Violation::Edges) }
    }

    /// No block is both omitted and in the filter.
    fn check_omissions(&self) -> Result<(), Violation> {
        let (shared, omitted) = (self.projection.shared(), self.projection.omitted());
        let sound = omitted.is_consistent() && omitted.iter().all(|b| shared.owners(b.key) == 0);
        if sound { Ok(()) } else { Err(Violation::Omissions) }
    }

    /// The filter holds the fingerprints of all owned blocks but the omitted ones, each in one of
    /// its two buckets and with the tag of its owner.
    fn check_filter(&self) -> Result<(), Violation> {
        let (table, format, projection) = (&self.projection.table, self.format(), &self.projection);
        let copy = |address: &Address, tag: Tag| {
            let (low, high) =
                (address.first.min(address.second), address.first.max(address.second));
            let pair = u64::from(low.get()) << 32 | u64::from(high.get());
            let owner = tag.owner().map_or(1 << 16, |owner| u64::from(owner.get()));
            mix(pair ^ mix(u64::from(address.fingerprint.get()) << 32 | owner))
        };
        let (mut held, mut stored) = (0u64, 0u64);
        for first in format.buckets() {
            for (slot, fingerprint) in table.image(first).slots().enumerate() {
                let Some(fingerprint) = fingerprint else { continue };
                let second = format.alternate(first, fingerprint);
                let tag = table.buckets().tag_of(first, slot);
                held = held.wrapping_add(copy(&Address { fingerprint, first, second }, tag));
                stored += 1;
            }
        }
        let (mut expected, mut owned) = (0u64, 0);
        for (_, at, blocks) in self.ownership.members() {
            for block in blocks.iter().filter(|b| projection.counted(b.key).is_none()) {
                expected = expected.wrapping_add(copy(&self.address(block.key), Tag::sole(at)));
                owned += 1;
            }
        }
        for block in projection.shared().iter() {
            expected = expected.wrapping_add(copy(&self.address(block.key), Tag::SHARED));
            owned += 1;
        }
        let sound = held == expected && stored == table.stored() && stored == owned;
        if sound { Ok(()) } else { Err(Violation::Filter) }
    }

    fn address(&self, key: Key) -> Address {
        self.format().address(self.ownership.scramble().block(key))
    }

    /// Only dirty buckets differ from their published images, each of them is listed once, and the
    /// digest is that of the published images.
    fn check_published(&self) -> Result<(), Violation> {
        let buckets = self.projection.table.buckets();
        let sum = |sum: u64, at: BucketIndex| sum.wrapping_add(mix(u64::from(at.get())));
        let listed = buckets.listed().iter().fold(0, |listed, &at| sum(listed, at));
        let (mut digest, mut dirty, mut unknown) = (TableDigest::EMPTY, 0, 0);
        for at in self.format().buckets() {
            digest = digest.replaced(at.get(), BucketImage::EMPTY, buckets.published(at));
            if buckets.is_dirty(at) {
                dirty = sum(dirty, at);
            } else {
                unknown += u32::from(buckets.change(at).is_some());
            }
        }
        let sound = unknown == 0 && listed == dirty && digest == self.position.digest;
        if sound { Ok(()) } else { Err(Violation::Published) }
    }
}

/// Scatters 64 bits, 0 included, so that sums of different sets differ.
fn mix(value: u64) -> u64 {
    mix64(value.wrapping_add(GOLDEN_GAMMA))
}
