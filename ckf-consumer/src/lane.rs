//! The writing end of one lane. In come words of the pool that holds the lane; out goes what
//! queries see. Next stop: [`table`](crate::table).

use ckf_core::{BucketImage, BucketIndex, Format};

use crate::sync::Arc;
use crate::table::Table;
use ckf_protocol::{DcId, Instant, Lane, Sequence};

/// The only writer of one lane. `Send`, not `Clone`: there is one per lane of a consumer.
///
/// The life of a lane: [`begin_install`](Self::begin_install), [`store_run`](Self::store_run)
/// until all is there, [`publish_ready`](Self::publish_ready), then [`store`](Self::store) and
/// [`note`](Self::note) for each delta, and [`retire`](Self::retire) at any time. Any other order
/// of calls is harmless.
///
/// ```
/// fn can_move<T: Send>() {}
/// can_move::<ckf_consumer::LaneWriter>();
/// ```
///
/// ```compile_fail,E0277
/// fn can_double<T: Clone>() {}
/// can_double::<ckf_consumer::LaneWriter>();
/// ```
///
/// Nor can two threads write through one at the same time:
///
/// ```compile_fail,E0499
/// fn write(mut writer: ckf_consumer::LaneWriter) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| writer.retire());
///         scope.spawn(|| writer.retire());
///     });
/// }
/// ```
#[derive(Debug)]
pub struct LaneWriter {
    table: Arc<Table>,
    lane: Lane,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No usable words.
    Idle,
    /// Words of a new tenancy arrive; all buckets below `filled` belong to it.
    Installing { filled: u32 },
    /// Queries may use the lane.
    Ready,
}

impl LaneWriter {
    pub(crate) fn new(table: Arc<Table>, lane: Lane) -> Self {
        Self { table, lane, phase: Phase::Idle }
    }

    /// Which lane this is.
    #[inline]
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// The format of the lane's words.
    #[inline]
    pub fn format(&self) -> &Format {
        self.table.format()
    }

    /// Whether queries may use the lane.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Withdraws the lane and makes `dc` its tenant. A query that had captured the lane leaves it
    /// out of its answer. Nothing is cleared here: [`store_run`](Self::store_run) and
    /// [`publish_ready`](Self::publish_ready) overwrite whatever a former tenant left. Constant
    /// cost.
    pub fn begin_install(&mut self, dc: DcId) {
        self.table.begin_tenancy(self.lane, dc);
        self.phase = Phase::Installing { filled: 0 };
    }

    /// Stores the images of consecutive buckets of an installation, `first` and onwards. Runs are
    /// stored in ascending order; buckets that are jumped over become empty. A run that starts
    /// below one stored before overwrites it. What would go beyond the table is ignored.
    ///
    /// Outside of an installation this does nothing.
    pub fn store_run(&mut self, first: BucketIndex, images: impl IntoIterator<Item = BucketImage>) {
        let Phase::Installing { filled } = self.phase else { return };
        let first = first.get();
        self.clear(filled, first);
        let words = images.into_iter().map(BucketImage::get);
        let words = words.take((self.format().bucket_count().saturating_sub(first)) as usize);
        let end = first + self.table.rows().store_run(first, self.lane.get(), words);
        self.phase = Phase::Installing { filled: filled.max(end) };
    }

    /// Ends the installation: buckets after the last run become empty, and queries that start from
    /// now on use the lane, as of `sequence`. Does nothing outside of an installation.
    pub fn publish_ready(&mut self, sequence: Sequence, now: Instant) {
        let Phase::Installing { filled } = self.phase else { return };
        self.clear(filled, self.format().bucket_count());
        self.table.note(self.lane, sequence, now);
        self.table.publish(self.lane);
        self.phase = Phase::Ready;
    }

    /// Empties the buckets from `from` to before `to`.
    fn clear(&self, from: u32, to: u32) {
        let len = to.saturating_sub(from) as usize;
        self.table.rows().store_run(from, self.lane.get(), core::iter::repeat_n(0, len));
    }

    /// The image of one bucket of this table's format.
    ///
    /// # Panics
    /// When `bucket` comes from a larger format.
    #[inline]
    pub fn word(&self, bucket: BucketIndex) -> BucketImage {
        BucketImage::new(self.table.rows().load(bucket.get(), self.lane.get()))
    }

    /// Stores the image of one bucket: queries see it at once, or a little later.
    ///
    /// # Panics
    /// When `bucket` comes from a larger format.
    #[inline]
    pub fn store(&mut self, bucket: BucketIndex, image: BucketImage) {
        self.table.rows().store(bucket.get(), self.lane.get(), image.get());
    }

    /// Records that the lane is complete up to `sequence` and heard of its pool at `now`. Does
    /// nothing unless the lane is ready.
    #[inline]
    pub fn note(&mut self, sequence: Sequence, now: Instant) {
        if self.is_ready() {
            self.table.note(self.lane, sequence, now);
        }
    }

    /// Withdraws the lane: queries that start from now on do not use it. One that had captured it
    /// may still finish with it. Constant cost; no-op when the lane is not ready.
    pub fn retire(&mut self) {
        self.table.withdraw(self.lane);
        self.phase = Phase::Idle;
    }
}

impl Drop for LaneWriter {
    /// A lane without a writer must not stay in use.
    fn drop(&mut self) {
        self.retire();
    }
}
