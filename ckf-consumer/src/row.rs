//! The words of a table: one row a bucket, one word a lane, in whole cache lines.

use core::fmt;

use ckf_core::{Address, AllocationError};

use crate::lanes::{Scan, advise_huge, prefetch};
use crate::sync::{AtomicU64, Ordering};

/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = 8;

/// Bit 0 of each slot of a word.
const SLOT_ONES: u64 = 0x0001_0001_0001_0001;

/// One cache line of bucket words: the unit of the row scan, and of memory handed in by a host.
///
/// 64 bytes, aligned to 64, laid out as in C; all bytes are valid. So a host that maps memory of its
/// own may take any part of it that is aligned like this, and that nothing else touches, for lines.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Line(pub(crate) [AtomicU64; LINE_WORDS]);

#[cfg(not(ckf_loom))]
const _: () = assert!(size_of::<Line>() == 64 && align_of::<Line>() == 64);

/// All rows of a table, bucket-major and lane-minor. A row is a power of two of words; it begins
/// at a multiple of its own size, so that it straddles no line that it does not fill.
pub(crate) struct Rows {
    memory: Memory,
    /// The line of bucket 0.
    start: usize,
    /// Lines of all rows.
    count: usize,
    /// log2 of the words of a row.
    shift: u32,
}

enum Memory {
    Own(Vec<Line>),
    Lent(&'static [Line]),
}

impl Rows {
    /// Rows of empty words, wide enough for `lanes`.
    pub(crate) fn new(buckets: u32, lanes: u32) -> Result<Self, AllocationError> {
        let count = Self::lines_needed(buckets, lanes);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| AllocationError { bytes: count as u64 * 64 })?;
        advise_huge(lines.spare_capacity_mut());
        lines.resize_with(count, Line::default);
        Ok(Self::of(Memory::Own(lines), buckets, lanes))
    }

    /// Rows in memory of the host; `None` when it is less than
    /// [`lines_needed`](Self::lines_needed).
    pub(crate) fn within(memory: &'static [Line], buckets: u32, lanes: u32) -> Option<Self> {
        let enough = memory.len() >= Self::lines_needed(buckets, lanes);
        enough.then(|| Self::of(Memory::Lent(memory), buckets, lanes))
    }

    /// Lines to ask for: those of the rows, and room to align them.
    pub(crate) fn lines_needed(buckets: u32, lanes: u32) -> usize {
        let (count, row) = Self::shape(buckets, lanes);
        count + row - 1
    }

    /// Lines of all rows, and of one, at least 1.
    fn shape(buckets: u32, lanes: u32) -> (usize, usize) {
        let width = lanes.next_power_of_two() as usize;
        let words = (buckets as usize).saturating_mul(width);
        (words.div_ceil(LINE_WORDS), width.div_ceil(LINE_WORDS))
    }

    fn of(memory: Memory, buckets: u32, lanes: u32) -> Self {
        let (count, row) = Self::shape(buckets, lanes);
        let shift = lanes.next_power_of_two().trailing_zeros();
        let first = memory.lines().as_ptr().addr() / size_of::<Line>();
        Self { start: first.wrapping_neg() % row, count, shift, memory }
    }

    #[inline]
    fn lines(&self) -> &[Line] {
        &self.memory.lines()[self.start..][..self.count]
    }

    /// log2 of the words of a row.
    #[inline]
    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// The rows, for queries, which are compiled for a shape.
    #[inline]
    pub(crate) fn view<R: Shape>(&self, shape: R) -> View<'_, R> {
        debug_assert_eq!(shape.shift(), self.shift);
        View { lines: self.lines(), shape }
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
        &self.lines()[index / LINE_WORDS].0[index % LINE_WORDS]
    }

    /// Stores one lane's words of consecutive buckets, relaxed, until either end is reached.
    /// Returns how many.
    #[inline]
    pub(crate) fn store_run(&self, first: u32, lane: u8, words: impl Iterator<Item = u64>) -> u32 {
        let start = (first as usize) << self.shift | usize::from(lane);
        let lines = self.lines();
        let places = (start..lines.len() * LINE_WORDS).step_by(1 << self.shift);
        let mut stored = 0;
        for (place, word) in places.zip(words) {
            lines[place / LINE_WORDS].0[place % LINE_WORDS].store(word, Ordering::Relaxed);
            stored += 1;
        }
        stored
    }
}

/// How much there is of them, not their words: whatever holds a table shall be fit for a log.
impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({} lines, {} words a row)", self.count, 1 << self.shift)
    }
}

impl Memory {
    #[inline]
    fn lines(&self) -> &[Line] {
        match self {
            Self::Own(lines) => lines,
            Self::Lent(lines) => lines,
        }
    }
}

/// Where a block lies, and what its words are compared with; small, and cheap to keep by the dozen.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spot {
    pub(crate) first: u32,
    pub(crate) second: u32,
    // Wide enough to leave no padding: then a table of them is cleared in one go.
    pub(crate) fingerprint: u32,
}

impl Spot {
    #[inline(always)]
    pub(crate) fn of(address: &Address) -> Self {
        Self {
            first: address.first.get(),
            second: address.second.get(),
            fingerprint: u32::from(address.fingerprint.get()),
        }
    }
}

/// Whether a slot of either word is the fingerprint. Free of branches.
#[inline(always)]
pub(crate) fn holds(first: u64, second: u64, fingerprint: u16) -> bool {
    let wanted = u64::from(fingerprint) * SLOT_ONES;
    // A slot that is 0 borrows from its own top bit. Slots above it may borrow as well, which does
    // not matter to the question whether there is any.
    let borrows = |word: u64| word.wrapping_sub(SLOT_ONES) & !word;
    (borrows(first ^ wanted) | borrows(second ^ wanted)) & (SLOT_ONES << 15) != 0
}

/// What queries are compiled for: how wide rows are. The widths that most tables have are known
/// then; what is compiled for the others serves several.
pub(crate) trait Shape: Copy {
    /// log2 of the words of a row.
    fn shift(self) -> u32;

    /// Whether rows are parts of a line.
    #[inline(always)]
    fn is_narrow(self) -> bool {
        self.shift() < 3
    }

    /// Whether rows are of more than two lines.
    #[inline(always)]
    fn is_wide(self) -> bool {
        self.shift() > 4
    }

    /// Words of a row.
    #[inline(always)]
    fn width(self) -> usize {
        1 << self.shift()
    }
}

/// Rows of `1 << SHIFT` words.
#[derive(Clone, Copy)]
pub(crate) struct Fixed<const SHIFT: u32>;

/// Rows of four lines or eight.
#[derive(Clone, Copy)]
pub(crate) struct Wide(pub(crate) u32);

/// Rows of any width.
#[derive(Clone, Copy)]
pub(crate) struct Width(pub(crate) u32);

impl<const SHIFT: u32> Shape for Fixed<SHIFT> {
    #[inline(always)]
    fn shift(self) -> u32 {
        SHIFT
    }
}

impl Shape for Wide {
    #[inline(always)]
    fn shift(self) -> u32 {
        self.0
    }

    #[inline(always)]
    fn is_narrow(self) -> bool {
        false
    }

    #[inline(always)]
    fn is_wide(self) -> bool {
        true
    }
}

impl Shape for Width {
    #[inline(always)]
    fn shift(self) -> u32 {
        self.0
    }
}

/// The rows of a table, as queries read them.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, R> {
    lines: &'a [Line],
    pub(crate) shape: R,
}

impl<R: Shape> View<'_, R> {
    /// Lines of a row that fills at least one.
    #[inline(always)]
    fn row(&self) -> usize {
        self.shape.width() / LINE_WORDS
    }

    /// Where the word of a lane lies, in words.
    #[inline(always)]
    fn place(&self, bucket: usize, lane: usize) -> usize {
        bucket << self.shape.shift() | lane
    }

    /// Which line the word of a lane lies in.
    #[inline(always)]
    fn line(&self, bucket: usize, lane: usize) -> usize {
        self.place(bucket, lane) / LINE_WORDS
    }

    /// Asks for both rows of an address.
    #[inline(always)]
    pub(crate) fn fetch(&self, address: &Address) {
        for bucket in [address.first.to_usize(), address.second.to_usize()] {
            for lane in (0..self.shape.width()).step_by(LINE_WORDS) {
                prefetch(self.lines, self.line(bucket, lane));
            }
        }
    }

    /// Asks for the lines of both rows that hold any of `lanes`.
    #[inline(always)]
    pub(crate) fn fetch_lanes(&self, address: &Address, lanes: u64) {
        if self.row() <= 1 {
            return self.fetch(address);
        }
        for line in (0..self.row()).filter(|line| lanes >> (line * LINE_WORDS) & 0xFF != 0) {
            self.fetch_lane(address, line * LINE_WORDS);
        }
    }

    /// Whether every line of a row holds any of `lanes`.
    #[inline(always)]
    pub(crate) fn all_lines(&self, lanes: u64) -> bool {
        let fours = lanes | lanes >> 4;
        let twos = fours | fours >> 2;
        let any = (twos | twos >> 1) & 0x0101_0101_0101_0101;
        any.count_ones() as usize >= self.row()
    }

    /// Asks for the two words of one lane.
    #[inline(always)]
    pub(crate) fn fetch_lane(&self, address: &Address, lane: usize) {
        prefetch(self.lines, self.line(address.first.to_usize(), lane));
        prefetch(self.lines, self.line(address.second.to_usize(), lane));
    }

    /// The lanes that hold the address, of those that share a line with one of `lanes`.
    #[inline(always)]
    pub(crate) fn holders(&self, scan: impl Scan, spot: &Spot, lanes: u64) -> u64 {
        let mut mask = 0;
        if self.shape.is_narrow() {
            for lane in (0..self.shape.width()).rev() {
                mask = mask << 1 | u64::from(self.holds(spot, lane));
            }
            return mask;
        }
        let first = &self.lines[self.line(spot.first as usize, 0)..][..self.row()];
        let second = &self.lines[self.line(spot.second as usize, 0)..][..self.row()];
        for (line, (first, second)) in first.iter().zip(second).enumerate() {
            // The line's lanes; a row of one line is always scanned.
            if self.row() == 1 || lanes >> (line * LINE_WORDS) & 0xFF != 0 {
                let found = scan.either(first, second, spot.fingerprint as u16);
                mask |= found << (line * LINE_WORDS);
            }
        }
        mask
    }

    /// Whether one lane holds the block.
    #[inline(always)]
    pub(crate) fn holds(&self, spot: &Spot, lane: usize) -> bool {
        // No branch between the two: both words are on their way already.
        holds(self.word(spot.first, lane), self.word(spot.second, lane), spot.fingerprint as u16)
    }

    #[inline(always)]
    fn word(&self, bucket: u32, lane: usize) -> u64 {
        let word = self.place(bucket as usize, lane);
        self.lines[word / LINE_WORDS].0[word % LINE_WORDS].load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(ckf_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_row_straddles_no_line_that_it_does_not_fill() {
        for lanes in 1..=64 {
            let rows = Rows::new(37, lanes).unwrap();
            let width = 1usize << rows.shift();
            assert!(
                width.is_power_of_two() && width >= lanes as usize && width < 2 * lanes as usize
            );
            for bucket in [0, 1, 2, 36] {
                let first = std::ptr::from_ref(rows.word(bucket, 0)).addr();
                assert_eq!(first % (width * 8), 0, "{lanes} lanes, bucket {bucket}");
                let last = std::ptr::from_ref(rows.word(bucket, width as u8 - 1)).addr();
                assert_eq!(last - first, (width - 1) * 8);
            }
        }
    }

    #[test]
    fn only_the_lanes_that_are_configured_take_memory() {
        for (lanes, bytes) in [(1, 8), (2, 16), (3, 32), (8, 64), (9, 128), (33, 512), (64, 512)] {
            let lines = Rows::lines_needed(1000, lanes);
            assert!(lines * 64 <= 1000 * bytes + 512, "{lanes} lanes take {lines} lines");
        }
    }

    #[test]
    fn memory_of_a_host_is_used_where_it_suffices() {
        let needed = Rows::lines_needed(10, 16);
        let memory: &'static [Line] =
            (0..needed).map(|_| Line::default()).collect::<Vec<_>>().leak();
        assert!(Rows::within(&memory[1..], 10, 16).is_none());
        let rows = Rows::within(memory, 10, 16).unwrap();
        rows.store(9, 15, 77);
        assert_eq!(rows.load(9, 15), 77);
        let stored = |line: &Line| line.0.iter().any(|word| word.load(Ordering::Relaxed) == 77);
        assert_eq!(memory.iter().filter(|line| stored(line)).count(), 1);
    }
}
