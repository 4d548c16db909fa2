//! Stop 5: batches. In come dirty buckets; out goes one numbered batch, sampled after a complete
//! command. Next stop: `ckf-protocol/src/delta.rs`.

use core::fmt;
use core::ops::Range;

use ckf_core::TableDigest;
use ckf_protocol::Sequence;

use crate::buckets::{Changes, PoolBuckets};
use crate::{Pool, SealError};

/// Where a pool's publication stands: the last batch, and the digest of what it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) sequence: Sequence,
    pub(crate) digest: TableDigest,
}

impl Position {
    pub(crate) const START: Self = Self { sequence: Sequence::ZERO, digest: TableDigest::EMPTY };
}

/// Counters of batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchCounters {
    pub(crate) images: u64,
    pub(crate) net_reverted: u64,
}

impl Pool {
    /// Ends a batch: every bucket that differs from its published image, under the next sequence
    /// number. Call it between commands, as often as readers shall hear of changes.
    ///
    /// `None`, and no number is used, when no bucket differs. Buckets that changed and went back
    /// are left out and counted. Cost: by dirty buckets; nothing is allocated, nothing encoded.
    ///
    /// # Errors
    /// [`SealError`]; then nothing has changed and no dirty bucket is lost.
    pub fn seal(&mut self) -> Result<Option<SealedBatch<'_>>, SealError> {
        self.fence_state()?;
        let buckets = self.projection.table.buckets_mut();
        if buckets.dirty_len() == 0 {
            return Ok(None);
        }
        let base = self.position;
        let (len, digest) = buckets.list(base.digest);
        if len == 0 {
            self.batches.net_reverted += u64::from(buckets.dirty_len());
            buckets.publish();
            return Ok(None);
        }
        let sequence = base.sequence.checked_next().ok_or(SealError::SequenceExhausted)?;
        let (position, counters) = (&mut self.position, &mut self.batches);
        let end = Position { sequence, digest };
        Ok(Some(SealedBatch { buckets, position, counters, end, len }))
    }

    /// The number of the last batch.
    pub fn sequence(&self) -> Sequence {
        self.position.sequence
    }

    /// Digest of the table as it was at [`sequence`](Self::sequence).
    pub fn digest(&self) -> TableDigest {
        self.position.digest
    }

    /// Bucket words as they were at [`sequence`](Self::sequence), for snapshots: pending changes
    /// do not show. `None` when the range leaves the table. Cost: none, until they are read.
    pub fn published_words(
        &self,
        buckets: Range<u32>,
    ) -> Option<impl ExactSizeIterator<Item = u64> + Clone + use<'_>> {
        self.projection.table.buckets().published_words(buckets)
    }
}

/// A batch that is ready to be sent.
///
/// It is a view of the pool and holds no memory of its own. Dropping it completes the batch: its
/// images count as published from then on, whether anybody encoded them or not.
pub struct SealedBatch<'a> {
    buckets: &'a mut PoolBuckets,
    position: &'a mut Position,
    counters: &'a mut BatchCounters,
    end: Position,
    len: u32,
}

impl SealedBatch<'_> {
    /// This batch's number; its base is the number before.
    pub fn sequence(&self) -> Sequence {
        self.end.sequence
    }

    /// Digest of the table before the batch.
    pub fn base_digest(&self) -> TableDigest {
        self.position.digest
    }

    /// Digest of the table after the batch.
    pub fn digest(&self) -> TableDigest {
        self.end.digest
    }

    /// Number of changed buckets, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The changed buckets, ascending: the image published before, and the image now. Can be
    /// listed as often as needed.
    pub fn changes(&self) -> Changes<'_> {
        self.buckets.changes()
    }
}

impl Drop for SealedBatch<'_> {
    fn drop(&mut self) {
        self.counters.images += u64::from(self.len);
        self.counters.net_reverted += u64::from(self.buckets.dirty_len() - self.len);
        self.buckets.publish();
        *self.position = self.end;
    }
}

impl fmt::Debug for SealedBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = &self.end;
        f.debug_struct("SealedBatch")
            .field("sequence", &end.sequence)
            .field("digest", &end.digest)
            .field("len", &self.len())
            .finish()
    }
}
