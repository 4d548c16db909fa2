//! The words of a table: one row a bucket, one word a lane, in whole cache lines.

use ckf_core::AllocationError;

use crate::sync::{AtomicU64, Ordering};

/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = 8;

/// One cache line of bucket words. The unit of the row scan and of memory handed in by a host.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Line(pub(crate) [AtomicU64; LINE_WORDS]);

#[cfg(not(ckf_loom))]
const _: () = assert!(size_of::<Line>() == 64 && align_of::<Line>() == 64);

/// All rows of a table, bucket-major and lane-minor. A row is `width` words, a power of two, and
/// never straddles a line that it does not fill.
#[derive(Debug)]
pub(crate) struct Rows {
    lines: Vec<Line>,
    /// log2 of the words of a row.
    shift: u32,
}

impl Rows {
    /// Empty rows, wide enough for `lanes`.
    pub(crate) fn new(buckets: u32, lanes: u32) -> Result<Self, AllocationError> {
        let shift = lanes.next_power_of_two().trailing_zeros();
        let count = ((buckets as usize) << shift).div_ceil(LINE_WORDS);
        let mut lines = Vec::new();
        lines
            .try_reserve_exact(count)
            .map_err(|_| AllocationError { bytes: count as u64 * 64 })?;
        lines.resize_with(count, Line::default);
        Ok(Self { lines, shift })
    }

    /// Words of a row.
    #[inline]
    pub(crate) fn width(&self) -> usize {
        1 << self.shift
    }

    /// All lines, for the row scan.
    #[inline]
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The word of one lane in one bucket. Relaxed: what orders it is written in the table's
    /// "Orderings".
    #[inline]
    pub(crate) fn load(&self, bucket: u32, lane: u8) -> u64 {
        self.word(bucket, lane).load(Ordering::Relaxed)
    }

    /// Stores the word of one lane in one bucket, relaxed.
    #[inline]
    pub(crate) fn store(&self, bucket: u32, lane: u8, word: u64) {
        self.word(bucket, lane).store(word, Ordering::Relaxed);
    }

    #[inline]
    fn word(&self, bucket: u32, lane: u8) -> &AtomicU64 {
        let index = (bucket as usize) << self.shift | usize::from(lane);
        &self.lines[index / LINE_WORDS].0[index % LINE_WORDS]
    }
}
