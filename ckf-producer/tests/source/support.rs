//! A stream and a pool side by side.

use ckf_core::{BlockHash, Sizing};
use ckf_producer::source::{
    BlockChange, Direct, EventId, Front, FullState, Handled, RequestId, RequestKind, SourceConfig,
    SourceGeneration, SourceNotice, SourceRequest, SourceStream,
};
use ckf_producer::{HashSeeds, Member, Pool, PoolConfig};
use ckf_protocol::{Instant, Millis};

pub(crate) const MEMBER: Member = Member::new(1, 0);
pub(crate) const SEEDS: HashSeeds = HashSeeds::new([1, 2, 3, 4]);

pub(crate) fn h(bits: u64) -> BlockHash {
    BlockHash::new(bits)
}

pub(crate) fn hashes(bits: impl IntoIterator<Item = u64>) -> Vec<BlockHash> {
    bits.into_iter().map(BlockHash::new).collect()
}

pub(crate) fn store(bits: impl IntoIterator<Item = u64>) -> Vec<BlockChange> {
    vec![BlockChange::Store(hashes(bits))]
}

pub(crate) fn remove(bits: impl IntoIterator<Item = u64>) -> Vec<BlockChange> {
    vec![BlockChange::Remove(hashes(bits))]
}

pub(crate) fn generation(number: u64) -> SourceGeneration {
    SourceGeneration::new(number)
}

pub(crate) fn id(number: u64) -> EventId {
    EventId::new(number)
}

pub(crate) fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Questions are repeated after 0.1 to 1 s, and given up after 10 s.
pub(crate) fn patient() -> SourceConfig {
    SourceConfig::new(1)
        .with_back_off(Millis::new(100), Millis::new(1000))
        .unwrap()
        .with_deadline(Millis::new(10_000))
        .unwrap()
}

pub(crate) fn new_pool() -> Pool {
    let format = Sizing::for_blocks(100_000, 600).unwrap().format(42);
    Pool::new(PoolConfig::new(format, SEEDS)).unwrap()
}

pub(crate) fn history(from: u64, to: u64) -> RequestKind {
    RequestKind::History { from: id(from), to: id(to) }
}

/// How many leading blocks the pool's filter holds.
pub(crate) fn depth(pool: &Pool, blocks: &[BlockHash]) -> usize {
    blocks.iter().take_while(|hash| pool.table().contains(**hash)).count()
}

/// One stream whose commands reach a pool.
pub(crate) struct World<F: Front> {
    pub(crate) stream: SourceStream<F>,
    pub(crate) pool: Pool,
    pub(crate) now: u64,
}

impl World<Direct> {
    pub(crate) fn direct(config: SourceConfig) -> Self {
        Self::new(config, Direct)
    }
}

impl<F: Front> World<F> {
    pub(crate) fn new(config: SourceConfig, front: F) -> Self {
        let stream = SourceStream::new(MEMBER, config, front);
        Self { stream, pool: new_pool(), now: 0 }
    }

    pub(crate) fn event(&mut self, life: u64, number: u64, event: F::Event) -> Handled {
        let handled = self.stream.handle_event(generation(life), id(number), event, at(self.now));
        self.drain();
        handled
    }

    pub(crate) fn heartbeat(&mut self, life: u64, last: impl Into<Option<u64>>) -> Handled {
        let last = last.into().map(EventId::new);
        let handled = self.stream.handle_heartbeat(generation(life), last, at(self.now));
        self.drain();
        handled
    }

    pub(crate) fn full_state(
        &mut self,
        request: RequestId,
        life: u64,
        as_of: impl Into<Option<u64>>,
        content: F::Event,
    ) -> Handled {
        let as_of = as_of.into().map(EventId::new);
        let state = FullState { generation: generation(life), as_of, content };
        let handled = self.stream.handle_full_state(request, state, at(self.now));
        self.drain();
        handled
    }

    pub(crate) fn latest(
        &mut self,
        request: RequestId,
        life: u64,
        events: impl IntoIterator<Item = (u64, F::Event)>,
    ) -> Handled {
        let events = events.into_iter().map(|(number, event)| (id(number), event)).collect();
        let handled = self.stream.handle_latest(request, generation(life), events, at(self.now));
        self.drain();
        handled
    }

    pub(crate) fn history_end(&mut self, request: RequestId) -> Handled {
        let handled = self.stream.handle_history_end(request, at(self.now));
        self.drain();
        handled
    }

    pub(crate) fn unavailable(&mut self, request: RequestId) -> Handled {
        let handled = self.stream.handle_unavailable(request, at(self.now));
        self.drain();
        handled
    }

    /// Lets time pass up to the stream's next deadline.
    pub(crate) fn sleep(&mut self) {
        let (when, _) = self.stream.poll_timeout().expect("the stream waits for something");
        self.now = self.now.max(when.as_millis());
        self.stream.handle_timeout(at(self.now));
        self.drain();
    }

    /// The question that the stream asks now.
    pub(crate) fn request(&mut self) -> SourceRequest {
        self.stream.poll_request().expect("the stream asks something")
    }

    pub(crate) fn drain(&mut self) {
        while let Some(command) = self.stream.poll_command() {
            assert_eq!(self.pool.apply(&command).error, None);
        }
    }

    pub(crate) fn notices(&mut self) -> Vec<SourceNotice> {
        std::iter::from_fn(|| self.stream.poll_notice()).collect()
    }

    /// Checks that the pool holds exactly these blocks of the member.
    pub(crate) fn assert_owns(&self, bits: impl IntoIterator<Item = u64>) {
        let bits: Vec<u64> = bits.into_iter().collect();
        assert_eq!(self.pool.owned_blocks(MEMBER), bits.len() as u64);
        for hash in hashes(bits) {
            assert!(self.pool.owns(MEMBER, hash), "{hash} is missing");
            assert!(self.pool.table().contains(hash), "{hash} is not in the filter");
        }
    }
}
