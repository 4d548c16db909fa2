//! Stop 9: queries. In come the hashes of a request's blocks; out goes, by lane, how many of them
//! from the start are there. Next stop: [`matches`](crate::Matches).

use core::array;

use ckf_core::{Addressing, BlockHash, LocalHash, sequence};
use ckf_protocol::{DcId, Instant, Lane, Sequence};

use crate::LaneMask;
use crate::lanes::{Backend, Operation, Scan};
use crate::matches::Matches;
use crate::row::{Spot, View};
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
    /// Looks at few blocks and bisects: about half the time of a walk, or less.
    ///
    /// Where a lane's pool holds blocks of the prefix only up to some depth, and none after it, the
    /// answer is that of a walk, but for false positives of the filter. A pool that has evicted
    /// blocks in the middle and kept later ones ("holes") may get a larger depth than from a walk,
    /// never a smaller one and never more than was asked for. In every case the block right before
    /// the depth was found held, and the block at the depth, if there is one, was found missing.
    Jump {
        /// How many blocks right before the depth must all be found held, at least 1, which costs
        /// nothing. Each more costs about one look per lane. A lane that misses one of them is
        /// walked, so that its answer is exact.
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
        self.find(self.mode, Request::Blocks(prefix))
    }

    /// [`find_prefix`](Self::find_prefix) by [`SearchMode::Walk`].
    #[inline]
    pub fn find_prefix_walk(&self, prefix: &[BlockHash]) -> Matches {
        self.find(SearchMode::Walk, Request::Blocks(prefix))
    }

    /// [`find_prefix`](Self::find_prefix) by [`SearchMode::JUMP`].
    #[inline]
    pub fn find_prefix_jump(&self, prefix: &[BlockHash]) -> Matches {
        self.find(SearchMode::JUMP, Request::Blocks(prefix))
    }

    /// [`find_prefix`](Self::find_prefix) from block-local hashes: the canonical sequence hashes
    /// ([`ckf_core::sequence::roll`]) are computed here, while rows are on their way, and no
    /// further than some lane holds the prompt.
    #[inline]
    pub fn find_prefix_local(&self, prefix: &[LocalHash]) -> Matches {
        self.find(self.mode, Request::Local(prefix))
    }

    /// [`find_prefix`](Self::find_prefix) for several requests: `answers` becomes one for each, in
    /// order. In jump mode up to eight requests wait for memory together, which takes much less
    /// time than one after the other. Each group of eight sees the lanes
    /// that were ready when it began.
    pub fn find_prefix_batch(&self, prefixes: &[&[BlockHash]], answers: &mut Vec<Matches>) {
        answers.clear();
        answers.reserve(prefixes.len());
        let SearchMode::Jump { window } = self.mode else {
            answers.extend(prefixes.iter().map(|prefix| self.find_prefix(prefix)));
            return;
        };
        for group in prefixes.chunks(GROUP) {
            let captured = self.table.capture();
            let prefixes = array::from_fn(|i| group.get(i).map_or(&[][..], |prefix| clip(prefix)));
            let mut depths = [[0; Lane::MAX_COUNT]; GROUP];
            let lanes = captured.ready;
            self.run(Group { prefixes, window, lanes, depths: &mut depths });
            let first = answers.len();
            answers.extend(group.iter().map(|prefix| Matches::of(prefix.len())));
            let answers = &mut answers[first..];
            for (answer, depths) in answers.iter_mut().zip(&depths) {
                answer.depths = *depths;
                self.table.read_dcs(&mut answer.dcs);
            }
            let ready = LaneMask::from_bits(self.table.confirm(captured));
            answers.iter_mut().for_each(|answer| answer.ready = ready);
        }
    }

    /// The ready lanes that probably hold the block.
    pub fn contains(&self, hash: BlockHash) -> LaneMask {
        let captured = self.table.capture();
        let lanes = captured.ready;
        let found = self.run(Contains { hash, lanes });
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

    #[inline]
    fn find(&self, mode: SearchMode, request: Request<'_>) -> Matches {
        let len = match request {
            Request::Blocks(prefix) => prefix.len(),
            Request::Local(prefix) => prefix.len(),
        };
        let mut matches = Matches::of(len);
        let captured = self.table.capture();
        let lanes = captured.ready;
        self.run(Find { mode, request, lanes, depths: &mut matches.depths });
        self.table.read_dcs(&mut matches.dcs);
        matches.ready = LaneMask::from_bits(self.table.confirm(captured));
        matches
    }

    /// Runs an operation in the code for this table's width and backend.
    #[inline]
    fn run<O: OnRows>(&self, operation: O) -> O::Output {
        match self.table.rows().width() {
            1 => self.run_at::<O, 1>(operation),
            2 => self.run_at::<O, 2>(operation),
            4 => self.run_at::<O, 4>(operation),
            8 => self.run_at::<O, 8>(operation),
            16 => self.run_at::<O, 16>(operation),
            32 => self.run_at::<O, 32>(operation),
            _ => self.run_at::<O, 64>(operation),
        }
    }

    #[inline]
    fn run_at<O: OnRows, const W: usize>(&self, operation: O) -> O::Output {
        let (rows, addressing) = (self.table.rows().view::<W>(), *self.table.addressing());
        self.table.scan().enter(At { operation, rows, addressing })
    }
}

/// Positions are 32 bits wide.
#[inline]
fn clip<T>(prefix: &[T]) -> &[T] {
    &prefix[..prefix.len().min(u32::MAX as usize)]
}

/// What is done on rows of any width.
trait OnRows {
    type Output;

    fn on<S: Scan, const W: usize>(self, ground: Ground<'_, S, W>) -> Self::Output;
}

/// The same at one width, for one backend after the other.
struct At<'a, O, const W: usize> {
    operation: O,
    rows: View<'a, W>,
    addressing: Addressing,
}

impl<O: OnRows, const W: usize> Operation for At<'_, O, W> {
    type Output = O::Output;

    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> O::Output {
        self.operation.on(Ground { scan, rows: self.rows, addressing: self.addressing })
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
enum Request<'a> {
    Blocks(&'a [BlockHash]),
    Local(&'a [LocalHash]),
}

/// One request.
struct Find<'a> {
    mode: SearchMode,
    request: Request<'a>,
    lanes: u64,
    depths: &'a mut Depths,
}

impl OnRows for Find<'_> {
    type Output = ();

    #[inline(always)]
    fn on<S: Scan, const W: usize>(self, ground: Ground<'_, S, W>) {
        let Self { mode, request, lanes, depths } = self;
        match (mode, request) {
            (SearchMode::Walk, Request::Blocks(prefix)) => {
                walk(ground, clip(prefix).iter().copied(), lanes, 0, depths);
            }
            (SearchMode::Walk, Request::Local(prefix)) => {
                let hashes = sequence::roll_all(None, clip(prefix).iter().copied());
                walk(ground, hashes, lanes, 0, depths);
            }
            (SearchMode::Jump { window }, Request::Blocks(prefix)) => {
                let jump = Jump { ground, window };
                jump.search([clip(prefix)], lanes, array::from_mut(depths));
            }
            (SearchMode::Jump { window }, Request::Local(prefix)) => {
                Jump { ground, window }.search_local(clip(prefix), lanes, depths);
            }
        }
    }
}

/// Several requests at once.
struct Group<'a> {
    prefixes: [&'a [BlockHash]; GROUP],
    window: u32,
    lanes: u64,
    depths: &'a mut [Depths; GROUP],
}

impl OnRows for Group<'_> {
    type Output = ();

    #[inline(always)]
    fn on<S: Scan, const W: usize>(self, ground: Ground<'_, S, W>) {
        let jump = Jump { ground, window: self.window };
        jump.search(self.prefixes, self.lanes, self.depths);
    }
}

/// One block.
struct Contains {
    hash: BlockHash,
    lanes: u64,
}

impl OnRows for Contains {
    type Output = u64;

    #[inline(always)]
    fn on<S: Scan, const W: usize>(self, ground: Ground<'_, S, W>) -> u64 {
        let spot = Spot::of(&ground.addressing.address(self.hash));
        ground.rows.holders(ground.scan, &spot, self.lanes) & self.lanes
    }
}
