//! Where a session puts its lane's words.

use ckf_core::{BucketImage, BucketIndex, Format};
use ckf_protocol::{DcId, Instant, Sequence};

use crate::LaneWriter;

/// The words of one lane, as a session writes them: [`LaneWriter`] in a consumer, a plain vector
/// in tests that explore the session without threads.
///
/// The session calls [`begin_install`](Self::begin_install), then
/// [`store_run`](Self::store_run) for all buckets in ascending order, then
/// [`publish_ready`](Self::publish_ready), then [`store`](Self::store) and
/// [`note`](Self::note) for each delta, and [`retire`](Self::retire) at any time.
pub trait LaneStore {
    /// Shape and seed of the words.
    fn format(&self) -> &Format;
    /// Withdraws the lane from queries and makes `dc` the owner of the words that follow.
    fn begin_install(&mut self, dc: DcId);
    /// Stores the images of consecutive buckets during an installation.
    fn store_run(&mut self, first: BucketIndex, images: impl Iterator<Item = BucketImage>);
    /// Lets queries use the lane, as of `sequence`.
    fn publish_ready(&mut self, sequence: Sequence, now: Instant);
    /// The image of one bucket.
    fn word(&self, bucket: BucketIndex) -> BucketImage;
    /// Stores the image of one bucket.
    fn store(&mut self, bucket: BucketIndex, image: BucketImage);
    /// Records that a ready lane is complete up to `sequence`, heard of at `now`.
    fn note(&mut self, sequence: Sequence, now: Instant);
    /// Withdraws the lane from queries.
    fn retire(&mut self);
}

impl LaneStore for LaneWriter {
    #[inline]
    fn format(&self) -> &Format {
        self.format()
    }

    fn begin_install(&mut self, dc: DcId) {
        self.begin_install(dc);
    }

    #[inline]
    fn store_run(&mut self, first: BucketIndex, images: impl Iterator<Item = BucketImage>) {
        self.store_run(first, images);
    }

    fn publish_ready(&mut self, sequence: Sequence, now: Instant) {
        self.publish_ready(sequence, now);
    }

    #[inline]
    fn word(&self, bucket: BucketIndex) -> BucketImage {
        self.word(bucket)
    }

    #[inline]
    fn store(&mut self, bucket: BucketIndex, image: BucketImage) {
        self.store(bucket, image);
    }

    fn note(&mut self, sequence: Sequence, now: Instant) {
        self.note(sequence, now);
    }

    fn retire(&mut self) {
        self.retire();
    }
}
