//! Stop 9: queries. In come the hashes of a request's blocks; out goes, by lane, how many of them
//! from the start are there. Next stop: [`matches`](crate::Matches).

use core::array;

use ckf_core::{Addresser, Addressing, BlockHash, LocalHash, sequence};
use ckf_protocol::{DcId, Instant, Lane, Sequence};

use crate::LaneMask;
use crate::lanes::{Backend, Operation, Scan};
use crate::matches::Matches;
use crate::row::{Fixed, Shape, Spot, View, Wide, Width};
use crate::search::{Depths, GROUP, Ground, Jump, walk};
use crate::sync::Arc;
use crate::table::Table;

/// How a query looks for depths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SearchMode {
    /// Looks at every block in turn. The answer is exactly the number of blocks before the first
    /// one that the lane's words do not hold, whatever they hold after it.
    #[default]
    Walk,
    /// Looks at few blocks, and between two of them only for lanes that hold the one and miss the
    /// other: about half the time of a walk.
    ///
    /// Where a lane's pool holds blocks of the prefix only up to some depth, and none after it, the
    /// answer is that of a walk, but for false positives of the filter. A pool that has evicted
    /// blocks in the middle and kept later ones ("holes") may get a larger depth than from a walk,
    /// never a smaller one and never more than was asked for. In every case the block right before
    /// the depth was found held, and the block at the depth, if there is one, was found missing.
    Jump {
        /// How many blocks right before the depth must all be found held, at least 1, which costs
        /// nothing. Each more costs about one look per lane. A lane that misses one of them is
        /// walked, so that its answer is exact. From local hashes, both roll once more.
        window: u32,
    },
}

impl SearchMode {
    /// A jump that verifies nothing but the last block.
    pub const JUMP: Self = Self::Jump { window: 1 };
}

/// Asks all ready lanes at once. Cheap to clone; any number of threads may ask at the same time.
///
/// No method takes a lock, and none but [`find_prefix_batch`](Self::find_prefix_batch) allocates.
/// What an answer may mix is written in the crate's "Consistency" section.
///
/// ```
/// # use ckf_consumer::QueryHandle;
/// fn shared<T: Clone + Send + Sync + 'static>() {}
/// shared::<QueryHandle>();
/// ```
#[derive(Clone, Debug)]
pub struct QueryHandle {
    table: Arc<Table>,
    mode: SearchMode,
}

/// How far a lane has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Whose words the lane holds.
    pub dc: DcId,
    /// The last batch that is in.
    pub sequence: Sequence,
    /// When the lane last heard of its pool, in the host's time. May belong to the message before
    /// or after the one of `sequence`, of the same tenancy.
    pub last_message: Instant,
}

impl QueryHandle {
    pub(crate) fn new(table: Arc<Table>, mode: SearchMode) -> Self {
        Self { table, mode }
    }

    /// This handle with another search mode.
    #[must_use]
    pub fn with_mode(mut self, mode: SearchMode) -> Self {
        self.mode = mode;
        self
    }

    /// How this handle searches.
    pub fn mode(&self) -> SearchMode {
        self.mode
    }

    /// The instructions of the row scan.
    pub fn backend(&self) -> Backend {
        self.table.backend()
    }

    /// For every ready lane, how many blocks from the start of `prefix` it probably holds without
    /// a gap. Searches in the handle's mode.
    #[inline]
    pub fn find_prefix(&self, prefix: &[BlockHash]) -> Matches {
        let mut answer = Matches::NONE;
        self.find_prefix_into(prefix, &mut answer);
        answer
    }

    /// [`find_prefix`](Self::find_prefix) into an answer that is there, whatever it held. An answer
    /// is 784 bytes, and a loop that keeps one saves some ten nanoseconds of clearing and moving it.
    #[inline]
    pub fn find_prefix_into(&self, prefix: &[BlockHash], answer: &mut Matches) {
        self.find_by(self.mode, prefix, answer);
    }

    /// [`find_prefix`](Self::find_prefix) by [`SearchMode::Walk`].
    #[inline]
    pub fn find_prefix_walk(&self, prefix: &[BlockHash]) -> Matches {
        let mut answer = Matches::NONE;
        self.find_by(SearchMode::Walk, prefix, &mut answer);
        answer
    }

    /// [`find_prefix`](Self::find_prefix) by [`SearchMode::JUMP`].
    #[inline]
    pub fn find_prefix_jump(&self, prefix: &[BlockHash]) -> Matches {
        let mut answer = Matches::NONE;
        self.find_by(SearchMode::JUMP, prefix, &mut answer);
        answer
    }

    /// [`find_prefix`](Self::find_prefix) from block-local hashes: the canonical sequence hashes
    /// ([`ckf_core::sequence::roll`]) are computed here, while rows are on their way, and not much
    /// further than some lane holds the prompt.
    #[inline]
    pub fn find_prefix_local(&self, prefix: &[LocalHash]) -> Matches {
        let mut answer = Matches::NONE;
        self.find_prefix_local_into(prefix, &mut answer);
        answer
    }

    /// [`find_prefix_local`](Self::find_prefix_local) into an answer that is there, as
    /// [`find_prefix_into`](Self::find_prefix_into).
    #[inline(never)]
    pub fn find_prefix_local_into(&self, prefix: &[LocalHash], answer: &mut Matches) {
        let prefix = clip(prefix);
        match self.mode {
            SearchMode::Walk => {
                let hashes = sequence::roll_all(None, prefix.iter().copied());
                self.fill(prefix.len(), answer, Walk(hashes));
            }
            SearchMode::Jump { window } => {
                self.fill(prefix.len(), answer, JumpLocal { prefix, window });
            }
        }
    }

    /// [`find_prefix`](Self::find_prefix) for several requests: `answers` becomes one for each, in
    /// order. In jump mode up to eight requests wait for memory together, which takes about 0.6
    /// times as long as one after the other; a fifth longer only where 32 lanes or more hold all of
    /// long prompts, since then there is little to wait for. In walk mode they go one after the other.
    /// About a lane with holes a batch may say another of the depths that [`SearchMode::Jump`] allows.
    /// Each group of eight sees the lanes that were ready when it began. From block-local hashes, roll
    /// them first ([`ckf_core::sequence::roll_all`]): there is no wait of one request left to hide it in.
    pub fn find_prefix_batch(&self, prefixes: &[&[BlockHash]], answers: &mut Vec<Matches>) {
        answers.resize(prefixes.len(), Matches::NONE);
        let SearchMode::Jump { window } = self.mode else {
            for (prefix, answer) in prefixes.iter().zip(answers) {
                self.find_prefix_into(prefix, answer);
            }
            return;
        };
        let mut depths = [[0; Lane::MAX_COUNT]; GROUP];
        for (group, answers) in prefixes.chunks(GROUP).zip(answers.chunks_mut(GROUP)) {
            let captured = self.table.capture();
            let lanes = captured.ready;
            let prefixes = array::from_fn(|i| group.get(i).map_or(&[][..], |prefix| clip(prefix)));
            self.run(Group { prefixes, window }, lanes, &mut depths);
            for ((answer, prefix), depths) in answers.iter_mut().zip(group).zip(&depths) {
                answer.len = clip(prefix).len();
                answer.depths = *depths;
                self.table.read_dcs(&mut answer.dcs);
            }
            let ready = LaneMask::from_bits(self.table.confirm(captured));
            answers.iter_mut().for_each(|answer| answer.ready = ready);
        }
    }

    /// The lanes that a query asks now. One load; lanes may come and go right after it.
    pub fn ready(&self) -> LaneMask {
        LaneMask::from_bits(self.table.capture().ready)
    }

    /// The ready lanes that probably hold the block.
    pub fn contains(&self, hash: BlockHash) -> LaneMask {
        let captured = self.table.capture();
        let mut found = 0;
        self.run(Contains(hash), captured.ready, &mut found);
        LaneMask::from_bits(found & self.table.confirm(captured))
    }

    /// How far a lane has come; `None` unless it is ready and stays so with the same tenant while
    /// this looks.
    pub fn freshness(&self, lane: Lane) -> Option<Freshness> {
        let captured = self.table.capture();
        if !LaneMask::from_bits(captured.ready).contains(lane) {
            return None;
        }
        let dc = self.table.dc(lane);
        let (sequence, last_message) = self.table.noted(lane);
        let confirmed = LaneMask::from_bits(self.table.confirm(captured));
        confirmed.contains(lane).then_some(Freshness { dc, sequence, last_message })
    }

    // Not inlined, so that searches are compiled here and not again in every crate that asks.
    #[inline(never)]
    fn find_by(&self, mode: SearchMode, prefix: &[BlockHash], answer: &mut Matches) {
        let prefix = clip(prefix);
        match mode {
            SearchMode::Walk => {
                self.fill(prefix.len(), answer, Walk(prefix.iter().copied()));
            }
            SearchMode::Jump { window } => {
                self.fill(prefix.len(), answer, JumpTo { prefix, window });
            }
        }
    }

    /// Fills an answer by a search.
    fn fill<O: OnRows<[Depths; 1]>>(&self, len: usize, answer: &mut Matches, search: O) {
        let captured = self.table.capture();
        self.run(search, captured.ready, array::from_mut(&mut answer.depths));
        self.table.read_dcs(&mut answer.dcs);
        answer.len = len;
        answer.ready = LaneMask::from_bits(self.table.confirm(captured));
    }

    /// Runs an operation in the code for this table's shape, addressing and backend. Tables that
    /// are indexed as Dynamo's are share one code for all widths. Where no lane is ready there is
    /// nothing to look at, and `found` stays as it is.
    #[inline]
    fn run<T>(&self, operation: impl OnRows<T>, lanes: u64, found: &mut T) {
        if lanes == 0 {
            return;
        }
        let (rows, scan) = (self.table.rows(), self.table.scan());
        let task = Task { operation, lanes, found };
        match (self.table.addressing(), rows.shift()) {
            (Addressing::AnyCount(by), 0) => scan.enter(task.at(rows.view(Fixed::<0>), by)),
            (Addressing::AnyCount(by), 1) => scan.enter(task.at(rows.view(Fixed::<1>), by)),
            (Addressing::AnyCount(by), 2) => scan.enter(task.at(rows.view(Fixed::<2>), by)),
            (Addressing::AnyCount(by), 3) => scan.enter(task.at(rows.view(Fixed::<3>), by)),
            (Addressing::AnyCount(by), 4) => scan.enter(task.at(rows.view(Fixed::<4>), by)),
            (Addressing::AnyCount(by), log2) => scan.enter(task.at(rows.view(Wide(log2)), by)),
            (Addressing::PowerOfTwo(by), log2) => scan.enter(task.at(rows.view(Width(log2)), by)),
        }
    }
}

/// Positions are 32 bits wide.
#[inline]
fn clip<T>(prefix: &[T]) -> &[T] {
    &prefix[..prefix.len().min(u32::MAX as usize)]
}

/// What is done on rows of any width. Each search is an operation of its own, so that what is
/// compiled for it is small.
trait OnRows<T> {
    fn on<S: Scan, A: Addresser, R: Shape>(
        self,
        ground: Ground<'_, S, A, R>,
        lanes: u64,
        found: &mut T,
    );
}

/// Such an operation with what it takes, before it is known how rows are.
struct Task<'a, O, T> {
    operation: O,
    lanes: u64,
    found: &'a mut T,
}

impl<'a, O, T> Task<'a, O, T> {
    #[inline(always)]
    fn at<A, R>(self, rows: View<'a, R>, addresser: A) -> At<'a, O, T, A, R> {
        At { task: self, rows, addresser }
    }
}

/// The same at one shape and one way of addressing, for one backend after the other.
struct At<'a, O, T, A, R> {
    task: Task<'a, O, T>,
    rows: View<'a, R>,
    addresser: A,
}

impl<O: OnRows<T>, T, A: Addresser, R: Shape> Operation for At<'_, O, T, A, R> {
    #[inline(always)]
    fn run<S: Scan>(self, scan: S) {
        let Task { operation, lanes, found } = self.task;
        operation.on(Ground { scan, rows: self.rows, addresser: self.addresser }, lanes, found);
    }
}

/// A walk along hashes that are there, or are rolled as it goes.
struct Walk<I>(I);

impl<I: Iterator<Item = BlockHash>> OnRows<[Depths; 1]> for Walk<I> {
    #[inline(always)]
    fn on<S: Scan, A: Addresser, R: Shape>(
        self,
        ground: Ground<'_, S, A, R>,
        lanes: u64,
        [depths]: &mut [Depths; 1],
    ) {
        ground.clear(depths);
        walk(ground, self.0, lanes, depths);
    }
}

struct JumpLocal<'a> {
    prefix: &'a [LocalHash],
    window: u32,
}

impl OnRows<[Depths; 1]> for JumpLocal<'_> {
    #[inline(always)]
    fn on<S: Scan, A: Addresser, R: Shape>(
        self,
        ground: Ground<'_, S, A, R>,
        lanes: u64,
        [depths]: &mut [Depths; 1],
    ) {
        ground.clear(depths);
        Jump { ground, window: self.window }.search_local(self.prefix, lanes, depths);
    }
}

struct JumpTo<'a> {
    prefix: &'a [BlockHash],
    window: u32,
}

impl OnRows<[Depths; 1]> for JumpTo<'_> {
    #[inline(always)]
    fn on<S: Scan, A: Addresser, R: Shape>(
        self,
        ground: Ground<'_, S, A, R>,
        lanes: u64,
        [depths]: &mut [Depths; 1],
    ) {
        Jump { ground, window: self.window }.search(self.prefix, lanes, depths);
    }
}

/// A jump for several requests.
struct Group<'a> {
    prefixes: [&'a [BlockHash]; GROUP],
    window: u32,
}

impl OnRows<[Depths; GROUP]> for Group<'_> {
    #[inline(always)]
    fn on<S: Scan, A: Addresser, R: Shape>(
        self,
        ground: Ground<'_, S, A, R>,
        lanes: u64,
        depths: &mut [Depths; GROUP],
    ) {
        Jump { ground, window: self.window }.search_many(self.prefixes, lanes, depths);
    }
}

struct Contains(BlockHash);

impl OnRows<u64> for Contains {
    #[inline(always)]
    fn on<S: Scan, A: Addresser, R: Shape>(
        self,
        ground: Ground<'_, S, A, R>,
        lanes: u64,
        found: &mut u64,
    ) {
        let spot = Spot::of(&ground.addresser.address(self.0));
        *found = ground.rows.holders(ground.scan, &spot, lanes) & lanes;
    }
}

#[cfg(all(test, not(ckf_loom)))]
mod tests {
    use super::*;
    use crate::{Consumer, ConsumerConfig};
    use ckf_core::Format;
    use ckf_protocol::{IdentityHalf, IdentitySource, IndexerDomainId, Manifest};

    #[test]
    fn where_no_lane_is_ready_no_prompt_is_looked_at() {
        let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
        let domain = IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) };
        let manifest = (0..16)
            .fold(Manifest::builder(domain, Format::any_count(100, 1).unwrap()), |builder, dc| {
                builder.dc(DcId::new(dc))
            })
            .build()
            .unwrap();
        let (query, mut writers) = Consumer::writers(&manifest, ConsumerConfig::default()).unwrap();
        let rolled = |answer: &mut Matches| {
            let mut rolled = 0;
            let hashes = (0..10_000).map(BlockHash::new).inspect(|_| rolled += 1);
            query.fill(10_000, answer, Walk(hashes));
            rolled
        };
        let mut answer = Matches::NONE;
        assert_eq!(rolled(&mut answer), 0);
        writers[3].begin_install(DcId::new(3));
        writers[3].publish_ready(Sequence::ZERO, Instant::ZERO);
        assert!((1..100).contains(&rolled(&mut answer)));
        writers[3].retire();
        // Whatever the answer held before.
        assert_eq!(rolled(&mut answer), 0);
        assert_eq!((answer.asked(), answer.iter().count()), (10_000, 0));
        assert_eq!((answer.best_depth(), answer.best()), (None, LaneMask::EMPTY));
    }
}
