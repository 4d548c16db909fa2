//! Limits and periods of publication, checked on construction.

use ckf_protocol::{Limits, Millis};
use thiserror::Error;

/// Limits and periods of a pool's publication, always valid.
///
/// ```
/// use ckf_producer::PublishConfig;
/// use ckf_protocol::Millis;
///
/// let config = PublishConfig::default().with_max_subscribers(1000)?.with_heartbeat(Millis::from_secs(1))?;
/// assert_eq!(config.max_subscribers(), 1000);
/// # Ok::<(), ckf_producer::PublishConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishConfig {
    limits: Limits,
    chunk_buckets: u32,
    max_subscribers: u32,
    outbox_messages: u32,
    outbox_bytes: u64,
    heartbeat: Millis,
    snapshot_progress: Millis,
}

/// Why a [`PublishConfig`] is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PublishConfigError {
    /// A number or period that must not be zero.
    #[error("`{field}` is zero")]
    Zero {
        /// Which one.
        field: &'static str,
    },
    /// Chunks larger than a frame may be.
    #[error("chunks of {chunk_buckets} buckets are above the limit of {limit}")]
    ChunkBuckets {
        /// The size that was asked for.
        chunk_buckets: u32,
        /// What the message limits allow.
        limit: u32,
    },
}

impl PublishConfig {
    /// Within these message limits: chunks of 8,192 buckets or as many as fit, 256 subscribers,
    /// outboxes of 1,024 messages and 16 MiB, a heartbeat every 2 s, 10 s from chunk to chunk.
    pub const fn new(limits: Limits) -> Self {
        let most = limits.max_chunk_buckets();
        Self {
            limits,
            chunk_buckets: if most < 8192 { most } else { 8192 },
            max_subscribers: 256,
            outbox_messages: 1024,
            outbox_bytes: 16 << 20,
            heartbeat: Millis::from_secs(2),
            snapshot_progress: Millis::from_secs(10),
        }
    }

    /// Buckets of a snapshot chunk: the unit of work of one poll. A full one takes 8.5 bytes a
    /// bucket.
    ///
    /// # Errors
    /// [`PublishConfigError`] for 0, or more than the message limits allow.
    pub const fn with_chunk_buckets(mut self, buckets: u32) -> Result<Self, PublishConfigError> {
        let limit = self.limits.max_chunk_buckets();
        if buckets == 0 {
            return Err(PublishConfigError::Zero { field: "chunk_buckets" });
        }
        if buckets > limit {
            return Err(PublishConfigError::ChunkBuckets { chunk_buckets: buckets, limit });
        }
        self.chunk_buckets = buckets;
        Ok(self)
    }

    /// Leases at one time.
    ///
    /// # Errors
    /// [`PublishConfigError::Zero`]
    pub const fn with_max_subscribers(mut self, count: u32) -> Result<Self, PublishConfigError> {
        if count == 0 {
            return Err(PublishConfigError::Zero { field: "max_subscribers" });
        }
        self.max_subscribers = count;
        Ok(self)
    }

    /// What may wait for one subscriber. One that lets more than this pile up loses its lease. A
    /// single batch above the byte limit costs every subscriber its lease, so leave room for the
    /// largest: 13 bytes a changed bucket at most.
    ///
    /// # Errors
    /// [`PublishConfigError::Zero`]
    pub const fn with_outbox(
        mut self,
        messages: u32,
        bytes: u64,
    ) -> Result<Self, PublishConfigError> {
        if messages == 0 {
            return Err(PublishConfigError::Zero { field: "outbox_messages" });
        }
        if bytes == 0 {
            return Err(PublishConfigError::Zero { field: "outbox_bytes" });
        }
        self.outbox_messages = messages;
        self.outbox_bytes = bytes;
        Ok(self)
    }

    /// A subscriber that was sent nothing for this long gets a heartbeat.
    ///
    /// # Errors
    /// [`PublishConfigError::Zero`]
    pub const fn with_heartbeat(mut self, interval: Millis) -> Result<Self, PublishConfigError> {
        if interval.get() == 0 {
            return Err(PublishConfigError::Zero { field: "heartbeat" });
        }
        self.heartbeat = interval;
        Ok(self)
    }

    /// A subscriber that takes no snapshot chunk for this long loses its lease.
    ///
    /// # Errors
    /// [`PublishConfigError::Zero`]
    pub const fn with_snapshot_progress(
        mut self,
        longest: Millis,
    ) -> Result<Self, PublishConfigError> {
        if longest.get() == 0 {
            return Err(PublishConfigError::Zero { field: "snapshot_progress" });
        }
        self.snapshot_progress = longest;
        Ok(self)
    }

    /// What one message may hold.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Buckets of a snapshot chunk.
    pub const fn chunk_buckets(&self) -> u32 {
        self.chunk_buckets
    }

    /// Leases at one time.
    pub const fn max_subscribers(&self) -> u32 {
        self.max_subscribers
    }

    /// Messages that may wait for one subscriber.
    pub const fn outbox_messages(&self) -> u32 {
        self.outbox_messages
    }

    /// Bytes that may wait for one subscriber.
    pub const fn outbox_bytes(&self) -> u64 {
        self.outbox_bytes
    }

    /// Longest silence towards a subscriber.
    pub const fn heartbeat(&self) -> Millis {
        self.heartbeat
    }

    /// Longest time from one snapshot chunk to the next.
    pub const fn snapshot_progress(&self) -> Millis {
        self.snapshot_progress
    }
}

impl Default for PublishConfig {
    /// [`new`](Self::new) with the default message limits.
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_typed_errors() {
        let good = PublishConfig::default();
        let zero = |field| Err(PublishConfigError::Zero { field });
        assert_eq!(good.with_chunk_buckets(0), zero("chunk_buckets"));
        assert_eq!(good.with_max_subscribers(0), zero("max_subscribers"));
        assert_eq!(good.with_outbox(0, 1), zero("outbox_messages"));
        assert_eq!(good.with_outbox(1, 0), zero("outbox_bytes"));
        assert_eq!(good.with_heartbeat(Millis::new(0)), zero("heartbeat"));
        assert_eq!(good.with_snapshot_progress(Millis::new(0)), zero("snapshot_progress"));
        let limit = good.limits().max_chunk_buckets();
        let chunk_buckets = limit + 1;
        assert_eq!(
            good.with_chunk_buckets(chunk_buckets),
            Err(PublishConfigError::ChunkBuckets { chunk_buckets, limit })
        );
    }

    #[test]
    fn small_message_limits_make_small_chunks() {
        let limits = Limits::new(256, 10, 5).unwrap();
        assert_eq!(PublishConfig::new(limits).chunk_buckets(), 5);
    }
}
