//! Snapshot chunks, encoded when a subscriber asks and shared by those that ask for the same one.

use alloc::collections::VecDeque;

use ckf_protocol::{EncodeError, Limits, Sequence, SharedBody, encode_chunk};

use crate::Pool;

/// The chunks encoded last. Subscribers that start together walk the table side by side, so a few
/// are enough; one that walks alone pays for its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    recent: VecDeque<(Sequence, u32, SharedBody)>,
}

impl Chunks {
    const KEPT: usize = 4;

    /// The chunk of at most `buckets` buckets from `first` on, as published, and whether it was at
    /// hand. Cost: a pass over the chunk's words, or nothing.
    pub(super) fn get(
        &mut self,
        pool: &Pool,
        first: u32,
        buckets: u32,
        limits: &Limits,
    ) -> Result<(SharedBody, bool), EncodeError> {
        let sequence = pool.sequence();
        let known = self.recent.iter().find(|(s, f, _)| (*s, *f) == (sequence, first));
        if let Some((_, _, body)) = known {
            return Ok((body.clone(), true));
        }
        let end = first.saturating_add(buckets).min(pool.format().bucket_count());
        let outside = EncodeError::ChunkLen { len: 0, limit: limits.max_chunk_buckets() };
        let words = pool.published_words(first..end).ok_or(outside)?;
        let body = encode_chunk(first, words, limits)?;
        if self.recent.len() == Self::KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back((sequence, first, body.clone()));
        Ok((body, false))
    }

    /// Gives the memory back, when nobody reads a snapshot.
    pub(super) fn clear(&mut self) {
        self.recent.clear();
    }
}
