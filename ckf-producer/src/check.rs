//! The invariant check: is the exact state what it must be, and the filter its projection?

use ckf_core::{Fingerprint, GOLDEN_GAMMA, TableDigest, mix64};

use crate::Pool;
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
            .check_ownership()
            .and_then(|()| self.check_omissions())
            .and_then(|()| self.check_filter())
            .and_then(|()| self.check_published());
        verdict.inspect_err(|&violation| self.fence(violation))
    }

    /// Members' sets and refcounts are sound and tell the same.
    fn check_ownership(&self) -> Result<(), Violation> {
        let (ownership, refcounts) = (&self.ownership, self.ownership.refcounts());
        if !refcounts.is_consistent() {
            return Err(Violation::Refcounts);
        }
        let (mut owned, mut counted) = (0u64, 0u64);
        for (member, blocks) in ownership.members() {
            if blocks.len() == 0 || !blocks.is_consistent() || blocks.iter().any(|b| b.count != 1) {
                return Err(Violation::MemberSet { member });
            }
            for held in blocks.iter() {
                if refcounts.find(held.key).is_none() {
                    return Err(Violation::Edges);
                }
                owned = owned.wrapping_add(mix(held.key.get()));
            }
        }
        for held in refcounts.iter() {
            let owners = u64::from(refcounts.owners(held.key));
            counted = counted.wrapping_add(owners.wrapping_mul(mix(held.key.get())));
        }
        if owned == counted { Ok(()) } else { Err(Violation::Edges) }
    }

    /// Every omitted block is owned.
    fn check_omissions(&self) -> Result<(), Violation> {
        let omitted = self.projection.omitted();
        let owned = |key| self.ownership.refcounts().find(key).is_some();
        let sound = omitted.is_consistent() && omitted.iter().all(|held| owned(held.key));
        if sound { Ok(()) } else { Err(Violation::Omissions) }
    }

    /// The filter holds the fingerprints of all owned blocks but the omitted ones, each in one of
    /// its two buckets.
    fn check_filter(&self) -> Result<(), Violation> {
        let (table, format) = (&self.projection.table, self.format());
        let copy = |bucket, fingerprint: Fingerprint| {
            let other = format.alternate(bucket, fingerprint);
            let pair =
                u64::from(bucket.min(other).get()) << 32 | u64::from(bucket.max(other).get());
            mix(pair ^ mix(u64::from(fingerprint.get())))
        };
        let block = |key: Key| {
            let address = format.address(self.ownership.scramble().block(key));
            copy(address.first, address.fingerprint)
        };
        let (mut held, mut stored) = (0u64, 0u64);
        for bucket in format.buckets() {
            for fingerprint in table.image(bucket).slots().flatten() {
                held = held.wrapping_add(copy(bucket, fingerprint));
                stored += 1;
            }
        }
        let mut expected = 0u64;
        for owned in self.ownership.refcounts().iter() {
            expected = expected.wrapping_add(block(owned.key));
        }
        for omitted in self.projection.omitted().iter() {
            expected = expected.wrapping_sub(block(omitted.key));
        }
        let distinct = self.ownership.refcounts().len();
        let sound = held == expected
            && stored == table.stored()
            && stored + self.projection.omitted().len() == distinct;
        if sound { Ok(()) } else { Err(Violation::Filter) }
    }

    /// Only dirty buckets differ from their published images, and the digest is that of those.
    fn check_published(&self) -> Result<(), Violation> {
        let (table, dirty) = (&self.projection.table, &self.projection.dirty);
        let mut pairs = self.format().buckets().zip(dirty.published());
        let sound = dirty.published().len() == table.words().len()
            && pairs.all(|(at, &word)| table.image(at).get() == word || dirty.is_marked(at))
            && TableDigest::of_words(dirty.published()) == self.position.digest;
        if sound { Ok(()) } else { Err(Violation::Published) }
    }
}

/// Scatters 64 bits, 0 included, so that sums of different sets differ.
fn mix(value: u64) -> u64 {
    mix64(value.wrapping_add(GOLDEN_GAMMA))
}
