//! A table that is also known word by word.

use ckf_consumer::{
    Backend, Consumer, ConsumerConfig, LaneMask, LaneWriter, QueryHandle, SearchMode,
};
use ckf_core::{BlockHash, BucketImage, Format};
use ckf_protocol::{
    DcId, IdentityHalf, IdentitySource, IndexerDomainId, Instant, Manifest, Sequence,
};

/// One lane for each of `0..lanes`, data center `100 + lane`.
pub(crate) fn manifest(format: Format, lanes: usize) -> Manifest {
    let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
    let domain = IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) };
    (0..lanes as u64)
        .fold(Manifest::builder(domain, format), |builder, lane| builder.dc(DcId::new(100 + lane)))
        .build()
        .expect("distinct pools of one domain")
}

/// All backends that can run here.
pub(crate) fn backends() -> impl Iterator<Item = Backend> {
    Backend::ALL.into_iter().filter(|backend| backend.is_available())
}

/// A query handle, its writers, and the words that the writers were given.
pub(crate) struct Known {
    pub(crate) format: Format,
    pub(crate) query: QueryHandle,
    pub(crate) writers: Vec<LaneWriter>,
    /// By lane, then by bucket.
    pub(crate) words: Vec<Vec<u64>>,
}

impl Known {
    /// `words` in ready lanes, scanned by `backend`.
    pub(crate) fn new(format: Format, words: Vec<Vec<u64>>, backend: Backend) -> Self {
        let config = ConsumerConfig::default().with_backend(backend);
        let (query, mut writers) =
            Consumer::writers(&manifest(format, words.len()), config).expect("available");
        for (writer, words) in writers.iter_mut().zip(&words) {
            writer.begin_install(DcId::new(100 + u64::from(writer.lane().get())));
            let first = format.bucket(0).expect("there is a bucket 0");
            writer.store_run(first, words.iter().copied().map(BucketImage::new));
            writer.publish_ready(Sequence::new(1), Instant::from_millis(1));
        }
        Self { format, query, writers, words }
    }

    /// The naive answer to one block.
    pub(crate) fn holds(&self, lane: usize, hash: BlockHash) -> bool {
        let address = self.format.address(hash);
        [address.first, address.second].into_iter().any(|bucket| {
            BucketImage::new(self.words[lane][bucket.to_usize()]).contains(address.fingerprint)
        })
    }

    /// The naive answer to a prefix: linear, up to the first miss.
    pub(crate) fn depth(&self, lane: usize, prefix: &[BlockHash]) -> u32 {
        prefix.iter().take_while(|&&hash| self.holds(lane, hash)).count() as u32
    }

    /// Whether a lane holds nothing of the prefix after its first miss.
    pub(crate) fn is_without_holes(&self, lane: usize, prefix: &[BlockHash]) -> bool {
        let depth = self.depth(lane, prefix) as usize;
        !prefix[depth..].iter().any(|&hash| self.holds(lane, hash))
    }

    /// The lanes that are asked.
    pub(crate) fn ready(&self) -> LaneMask {
        self.query.ready()
    }

    /// This table's handle in a jump mode.
    pub(crate) fn jump(&self, window: u32) -> QueryHandle {
        self.query.clone().with_mode(SearchMode::Jump { window })
    }

    /// Compares every search with the naive answer on the same words.
    pub(crate) fn check(&self, prefix: &[BlockHash]) {
        let walk = self.query.find_prefix_walk(prefix);
        assert_eq!(walk.asked(), prefix.len());
        assert_eq!(walk.ready().len() as usize, self.words.len());
        for (lane, dc, depth) in walk.iter() {
            assert_eq!(dc.get(), 100 + u64::from(lane.get()));
            assert_eq!(depth, self.depth(lane.to_usize(), prefix), "walk, {lane:?}");
        }
        for window in [1, 2, 7, u32::MAX] {
            let jump = self.jump(window).find_prefix(prefix);
            for (lane, _, depth) in jump.iter() {
                self.check_jump(lane.to_usize(), prefix, window, depth);
            }
            assert_eq!(jump.iter().count(), self.words.len());
        }
        if let Some(&first) = prefix.first() {
            let holders: Vec<_> = self.query.contains(first).iter().map(|l| l.to_usize()).collect();
            let naive = (0..self.words.len()).filter(|&lane| self.holds(lane, first));
            assert_eq!(holders, naive.collect::<Vec<_>>());
        }
    }

    /// What the documentation of [`SearchMode::Jump`] promises.
    pub(crate) fn check_jump(&self, lane: usize, prefix: &[BlockHash], window: u32, depth: u32) {
        let exact = self.depth(lane, prefix);
        let at = depth as usize;
        assert!(at <= prefix.len());
        assert!(depth >= exact, "lane {lane}: {depth} below {exact}");
        if self.is_without_holes(lane, prefix) {
            assert_eq!(depth, exact, "lane {lane} has no holes");
        }
        if let Some(&next) = prefix.get(at) {
            assert!(!self.holds(lane, next), "lane {lane}, depth {depth}: the next one is held");
        }
        let window = &prefix[at.saturating_sub(window as usize)..at];
        assert!(window.iter().all(|&hash| self.holds(lane, hash)), "lane {lane}, depth {depth}");
    }
}
