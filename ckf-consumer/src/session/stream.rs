//! Where a lane stands within one lease, and whether a message is the next one.

use std::cmp::Ordering;

use ckf_core::TableDigest;
use ckf_protocol::{LeaseId, ProducerExpectation, ProducerIdentity, Sequence, SnapshotBegin};

use super::Failure;

/// A lease and how far its stream has been applied.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    begin: SnapshotBegin,
    /// The last batch that is complete.
    sequence: Sequence,
    /// Parts of the batch after it that have been applied.
    parts: u32,
    /// Digest of the buckets below `filled`, all parts included.
    digest: TableDigest,
    /// Buckets that the snapshot has brought.
    filled: u32,
}

/// How a message's position relates to the stream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Applied before.
    Past,
    /// The one that follows.
    Next,
    /// Something before it is missing.
    Ahead,
}

impl Stream {
    pub(super) fn new(begin: SnapshotBegin) -> Self {
        Self { begin, sequence: begin.sequence, parts: 0, digest: TableDigest::EMPTY, filled: 0 }
    }

    pub(super) fn lease(&self) -> LeaseId {
        self.begin.terms.lease
    }

    #[cfg(feature = "_model")]
    pub(super) fn begin(&self) -> &SnapshotBegin {
        &self.begin
    }

    /// In what another opening of this lease differs, if it does; of several, the first.
    pub(super) fn mismatch(&self, other: &SnapshotBegin) -> Option<&'static str> {
        let (identity, theirs) = (&self.begin.identity, &other.identity);
        let expected = ProducerExpectation { pool: identity.pool, format: identity.format };
        let rest = [
            ("incarnation", identity.incarnation == theirs.incarnation),
            ("layout generation", identity.layout == theirs.layout),
            ("opening", self.begin == *other),
        ];
        let differs = || rest.into_iter().find(|&(_, same)| !same).map(|(field, _)| field);
        theirs.mismatch(&expected).or_else(differs)
    }

    pub(super) fn identity(&self) -> &ProducerIdentity {
        &self.begin.identity
    }

    pub(super) fn sequence(&self) -> Sequence {
        self.sequence
    }

    pub(super) fn digest(&self) -> TableDigest {
        self.digest
    }

    pub(super) fn filled(&self) -> u32 {
        self.filled
    }

    #[cfg(feature = "_model")]
    pub(super) fn parts(&self) -> u32 {
        self.parts
    }

    /// What is wrong with a message of batch `found` that is not the next one.
    pub(super) fn gap(&self, found: Sequence) -> Failure {
        Failure::Gap { installed: self.sequence, parts: self.parts, found }
    }

    /// Whether the lane is exactly at the end of a batch.
    pub(super) fn is_whole(&self) -> bool {
        self.parts == 0
    }

    /// Where part `part` of batch `sequence` stands.
    pub(super) fn place_part(&self, sequence: Sequence, part: u16) -> Place {
        if sequence <= self.sequence {
            Place::Past
        } else if self.sequence.checked_next() != Some(sequence) {
            Place::Ahead
        } else {
            match u32::from(part).cmp(&self.parts) {
                Ordering::Less => Place::Past,
                Ordering::Equal => Place::Next,
                Ordering::Greater => Place::Ahead,
            }
        }
    }

    /// Where a message stands that says "complete up to `sequence`".
    pub(super) fn place_mark(&self, sequence: Sequence) -> Place {
        if sequence < self.sequence || sequence == self.sequence && !self.is_whole() {
            Place::Past
        } else if sequence == self.sequence {
            Place::Next
        } else {
            Place::Ahead
        }
    }

    /// Where a chunk stands that starts at bucket `first` and has `count` of them, in a table of
    /// `buckets`.
    pub(super) fn place_chunk(&self, first: u32, count: u32, buckets: u32) -> Place {
        let length = |first: u32| self.begin.chunk_buckets.min(buckets.saturating_sub(first));
        if first < self.filled
            && first.is_multiple_of(self.begin.chunk_buckets)
            && count == length(first)
        {
            Place::Past
        } else if first == self.filled && count == length(first) && count > 0 {
            Place::Next
        } else {
            Place::Ahead
        }
    }

    /// Notes that a chunk was stored, which ends before bucket `filled`.
    pub(super) fn chunk_stored(&mut self, filled: u32, digest: TableDigest) {
        self.filled = filled;
        self.digest = digest;
    }

    /// Notes that the next part was applied.
    pub(super) fn part_applied(&mut self, sequence: Sequence, last: bool, digest: TableDigest) {
        self.digest = digest;
        if last {
            self.sequence = sequence;
            self.parts = 0;
        } else {
            self.parts += 1;
        }
    }
}
