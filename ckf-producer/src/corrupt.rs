//! Faults and extreme states made on purpose, for tests of the invariant check and of what a fenced pool does.

use ckf_core::{BlockHash, TableDigest};
use ckf_protocol::Sequence;

use crate::Pool;
use crate::buckets::Tag;
use crate::member::Member;
use crate::ownership::OwnerId;

/// A fault in a pool's exact state or in what is made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// The filter loses the fingerprint of an owned block.
    LostFingerprint,
    /// The filter gains a fingerprint that nobody owns.
    ForeignFingerprint,
    /// A fingerprint is filed under another owner.
    WrongTag,
    /// A member's set loses a block, and nothing else hears of it.
    LostBlock,
    /// A member's set gains a block, and nothing else hears of it.
    GainedBlock,
    /// A second member owns a block that nobody counts.
    DoubleOwner,
    /// A set keeps a mark of a replacement that is long over.
    StrayMark,
    /// A block that is in the filter counts as omitted, too.
    StrayOmission,
    /// A member is listed that owns nothing.
    EmptyMember,
    /// The published digest is another one.
    Digest,
    /// A bucket changes and is not listed for the next batch.
    UnlistedBucket,
    /// Two buckets change, and one is listed in the place of the other, too.
    TwiceListedBucket,
    /// A bucket is listed that has not changed.
    StrayListing,
}

impl Corruption {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::LostFingerprint,
        Self::ForeignFingerprint,
        Self::WrongTag,
        Self::LostBlock,
        Self::GainedBlock,
        Self::DoubleOwner,
        Self::StrayMark,
        Self::StrayOmission,
        Self::EmptyMember,
        Self::Digest,
        Self::UnlistedBucket,
        Self::TwiceListedBucket,
        Self::StrayListing,
    ];
}

/// A block that no test stores.
const STRANGER: BlockHash = BlockHash::new(0x5741_4E47_4552);

impl Pool {
    /// Brings a fault about. Needs a sealed pool with room in the filter, whose first member owns a
    /// block alone that is in the filter, and a second member, with whom others share blocks; returns
    /// that block.
    ///
    /// # Panics
    /// When the pool is not such a one.
    #[doc(hidden)]
    pub fn corrupt(&mut self, corruption: Corruption) -> BlockHash {
        let (first, key, address) = {
            let (_, first, blocks) = self.ownership.members().next().expect("a member");
            let key = blocks.iter().map(|held| held.key).find(|key| self.is_sole(first, *key));
            let key = key.expect("a block of the first member alone");
            (first, key, self.format().address(self.ownership.scramble().block(key)))
        };
        let (_, second, _) = self.ownership.members().nth(1).expect("a second member");
        let stranger = self.ownership.scramble().key(STRANGER);
        let Self { ownership, projection, budget, position, .. } = self;
        match corruption {
            Corruption::LostFingerprint => {
                assert!(projection.table.remove(&address, |_| ()));
            }
            Corruption::ForeignFingerprint => {
                let address = projection.table.format().address(STRANGER);
                projection.table.insert(&address, |_| ()).expect("room");
            }
            Corruption::WrongTag => {
                let slot = projection.table.find(&address).next().expect("in the filter");
                projection.table.buckets_mut().set_tag(slot, Tag::sole(second));
            }
            Corruption::LostBlock => assert!(ownership.lose(first, key, budget)),
            Corruption::GainedBlock => {
                ownership.gain(first, stranger, budget).expect("memory");
            }
            Corruption::DoubleOwner => {
                ownership.gain(second, key, budget).expect("memory");
            }
            Corruption::StrayMark => ownership.keep(first, key),
            Corruption::StrayOmission => {
                let shared = projection.shared().iter().next().expect("a block of two members");
                projection.omitted_mut().enter(shared.key, 1, budget).expect("memory");
            }
            Corruption::EmptyMember => {
                ownership.enter(Member::new(u64::MAX, u32::MAX), budget).expect("memory");
            }
            Corruption::Digest => position.digest = TableDigest::new(!position.digest.get()),
            Corruption::UnlistedBucket => {
                let (member, ..) = ownership.members().next().expect("a member");
                assert_eq!(self.store(member, &[STRANGER]).first_owners, 1);
                self.projection.table.buckets_mut().forget_dirty();
            }
            Corruption::TwiceListedBucket => {
                let (member, ..) = ownership.members().next().expect("a member");
                let strangers = [STRANGER, BlockHash::new(!STRANGER.get())];
                assert_eq!(self.store(member, &strangers).first_owners, 2);
                let buckets = self.projection.table.buckets_mut();
                let &[twice, _] = buckets.listed() else { panic!("not in two buckets") };
                buckets.dirty_mut().clear();
                (0..2).for_each(|_| buckets.dirty_mut().push(twice));
            }
            Corruption::StrayListing => {
                projection.table.buckets_mut().dirty_mut().push(address.first);
            }
        }
        self.ownership.scramble().block(key)
    }

    /// Counts on from this batch number, as if so many batches had been published.
    #[doc(hidden)]
    pub fn wind_to(&mut self, sequence: Sequence) {
        self.position.sequence = sequence;
    }

    /// Whether the filter knows this owner of the block and no other.
    fn is_sole(&self, at: OwnerId, key: crate::ownership::Key) -> bool {
        let address = self.format().address(self.ownership.scramble().block(key));
        self.projection.counted(key).is_none() && self.projection.suspects(&address).eq([at])
    }
}
