//! From the frames of one of our leases to Dynamo's filter updates.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use ckf_consumer::{Handled, LaneSession, LaneStore, SessionConfig};
use ckf_core::{BucketImage, BucketIndex, Format};
use ckf_protocol::{ConsumerId, DcId, Epoch, Instant, Lane, PoolId, ProducerIdentity, Sequence};

use super::cbi1::{self, Filter};
use super::{MARKER, PROTOCOL_VERSION, to_identity};
use crate::hosts::draw;
use crate::hosts::proto::dynamo as proto;

/// A copy of a pool's table that remembers what changed. It is a lane without a query side.
#[derive(Debug)]
pub struct Mirror {
    format: Format,
    words: Vec<u64>,
    changed: RefCell<Vec<(u32, u64)>>,
    sequence: Option<Sequence>,
}

impl LaneStore for Mirror {
    fn format(&self) -> &Format {
        &self.format
    }

    fn begin_install(&mut self, _: DcId) {
        self.sequence = None;
        self.changed.get_mut().clear();
        self.words.fill(0);
    }

    fn store_run(&mut self, first: BucketIndex, images: impl Iterator<Item = BucketImage>) {
        for (word, image) in self.words[first.to_usize()..].iter_mut().zip(images) {
            *word = image.get();
        }
    }

    fn publish_ready(&mut self, sequence: Sequence, _: Instant) {
        self.changed.get_mut().clear();
        self.sequence = Some(sequence);
    }

    fn word(&self, bucket: BucketIndex) -> BucketImage {
        BucketImage::new(self.words[bucket.to_usize()])
    }

    fn store(&mut self, bucket: BucketIndex, image: BucketImage) {
        self.words[bucket.to_usize()] = image.get();
        self.changed.get_mut().push((bucket.get(), image.get()));
    }

    fn note(&mut self, sequence: Sequence, _: Instant) {
        self.sequence = Some(sequence);
    }

    fn retire(&mut self) {
        self.sequence = None;
    }
}

/// What a frame made necessary.
#[derive(Debug)]
pub enum Step {
    /// Nothing for subscribers.
    Quiet,
    /// The pool can be read: subscribers start with [`Exporter::snapshot`].
    Ready,
    /// For every subscriber.
    Update(Box<proto::FilterUpdate>),
    /// Subscribers must start over.
    Over,
}

/// Follows a pool as a subscriber and says the same in Dynamo's words.
#[derive(Debug)]
pub struct Exporter {
    session: LaneSession<Mirror>,
    relay: proto::RelayIdentity,
    /// Up to where subscribers were told.
    told: u64,
}

impl Exporter {
    /// A follower of `pool`, which must have a power-of-two format.
    pub fn new(pool: PoolId, format: Format, relay: proto::RelayIdentity, now: Instant) -> Self {
        let words = vec![0; format.bucket_count() as usize];
        let mirror = Mirror { format, words, changed: RefCell::default(), sequence: None };
        let lane = Lane::new(0).expect("lane 0 exists");
        let (consumer, domain) = (ConsumerId::new(draw()), pool.domain);
        let mut session =
            LaneSession::new(mirror, SessionConfig::default(), consumer, lane, domain, draw());
        session.assign(pool.dc, Epoch::new(1), now).expect("a fresh session takes any epoch");
        Self { session, relay, told: 0 }
    }

    /// The session: its host feeds it like any other, frames aside.
    pub fn session(&mut self) -> &mut LaneSession<Mirror> {
        &mut self.session
    }

    /// Whose stream it is, while there is one.
    pub fn identity(&self) -> Option<ProducerIdentity> {
        self.session.position().map(|(identity, _)| identity)
    }

    /// Takes in one frame of the pool.
    pub fn handle(&mut self, frame: &[u8], now: Instant) -> Step {
        match self.session.handle_frame(frame, now) {
            Handled::Ready(sequence) => {
                self.told = sequence.get();
                Step::Ready
            }
            Handled::Applied(sequence) if sequence.get() > self.told => self.delta(sequence),
            Handled::Retired(_) | Handled::Rejected(_) => Step::Over,
            _ => Step::Quiet,
        }
    }

    /// All changes since the last one told, in one delta: the parts of a batch belong together.
    fn delta(&mut self, sequence: Sequence) -> Step {
        let Some((filter, _)) = self.stream() else { return Step::Quiet };
        let changed = self.session.store().changed.take();
        let base = std::mem::replace(&mut self.told, sequence.get());
        let payload = cbi1::delta(filter, base, sequence.get(), &changed);
        let Some(payload) = payload else { return Step::Over };
        let kind = proto::FilterUpdateKind::Delta;
        self.update(kind, base, payload)
            .map_or(Step::Quiet, |update| Step::Update(Box::new(update)))
    }

    /// The updates that a new subscriber starts with; `None` while there is no complete table.
    pub fn snapshot(&self) -> Option<Vec<proto::FilterUpdate>> {
        let (filter, sequence) = self.stream()?;
        let words = &self.session.store().words;
        cbi1::snapshot(filter, sequence, words)
            .map(|payload| self.update(proto::FilterUpdateKind::SnapshotChunk, sequence, payload))
            .collect()
    }

    /// What says that nothing happened.
    pub fn heartbeat(&self) -> Option<proto::FilterUpdate> {
        self.update(proto::FilterUpdateKind::Heartbeat, self.told, Vec::new())
    }

    fn stream(&self) -> Option<(Filter, u64)> {
        let (identity, _) = self.session.position()?;
        let (seed, buckets) = (identity.format.seed(), u64::from(identity.format.bucket_count()));
        Some((Filter { seed, buckets, dc: identity.pool.dc.get() }, self.told))
    }

    fn update(
        &self,
        kind: proto::FilterUpdateKind,
        base: u64,
        payload: Vec<u8>,
    ) -> Option<proto::FilterUpdate> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(proto::FilterUpdate {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(self.relay),
            producer: Some(to_identity(&self.identity()?)?),
            base_sequence: base,
            sequence: self.told,
            send_ts_us: since.as_micros() as u64,
            kind: kind.into(),
            payload: payload.into(),
            contract_marker: MARKER,
        })
    }
}
