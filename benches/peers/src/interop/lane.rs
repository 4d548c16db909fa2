//! One lane: a producer of either side, and its streams into both consumers.

use ckf_consumer::{Handled, LaneSession};
use ckf_core::{BlockHash, BucketImage, TableDigest};
use ckf_producer::{Member, Request, SubscriberId};
use ckf_protocol::{
    DcId, DeltaWriter, Epoch, Instant, LeaseId, LeaseTerms, Limits, Message, ProducerIdentity,
    Sequence, SharedBody, SnapshotBegin, SnapshotEnd, Subscribe, decode, encode_chunk,
};
use dynamo_kv_router::RouterEvent;
use dynamo_kv_router::indexer::cuckoo::{
    DcCkfState, GlobalCkfBucketImage, GlobalCkfDelta, GlobalCkfIngestOutcome,
    GlobalCkfLaneIngestor, GlobalCkfSnapshot, LaneLease, ProducerIdentity as TheirIdentity,
};

const LINK: SubscriberId = SubscriberId::new(1);
const NOW: Instant = Instant::from_millis(1);
/// Buckets of the chunks that we make of Dynamo's snapshots.
const CHUNK_BUCKETS: u32 = 256;

/// What a lane is fed with. Both are told to publish; neither does so by itself.
pub enum Upstream {
    Dynamo(Box<DcCkfState>),
    Ours(Box<ckf_producer::Producer>),
}

/// A command in the words of either side.
pub struct Told {
    pub event: RouterEvent,
    pub member: Member,
    pub blocks: Vec<BlockHash>,
    pub what: What,
}

#[derive(Clone, Copy)]
pub enum What {
    Store,
    Remove,
    Clear,
}

pub struct Lane {
    pub upstream: Upstream,
    pub session: LaneSession,
    pub dc: DcId,
    pub identity: ProducerIdentity,
    pub limits: Limits,
    /// Dynamo's ingestion side, and where it is in its stream.
    pub ingestor: GlobalCkfLaneIngestor,
    pub their_identity: TheirIdentity,
    pub their_lease: LaneLease,
    pub their_sequence: u64,
    /// The table as it was published last, and its number and digest in our stream.
    pub mirror: Vec<u64>,
    pub sequence: Sequence,
    pub digest: TableDigest,
    pub lease: Option<LeaseId>,
}

impl Lane {
    pub fn apply(&mut self, told: Told) {
        match &mut self.upstream {
            Upstream::Dynamo(state) => {
                let outcome = state.apply_event(told.event);
                assert!(outcome.first_error().is_none(), "{:?}", outcome.first_error());
            }
            Upstream::Ours(producer) => {
                let outcome = match told.what {
                    What::Store => producer.store(told.member, &told.blocks),
                    What::Remove => producer.remove(told.member, &told.blocks),
                    What::Clear => producer.clear_member(told.member),
                };
                assert!(outcome.error.is_none() && outcome.omitted == 0, "{outcome:?}");
            }
        }
    }

    /// New leases in both consumers, with snapshots of the present state.
    pub fn lease(&mut self) -> Result<(), String> {
        let epoch = self.session.epoch().map_or(1, |epoch| epoch.get() + 1);
        self.session.assign(self.dc, Epoch::new(epoch), NOW).map_err(|error| error.to_string())?;
        while let Some(frame) = self.session.poll_transmit() {
            match decode(&frame, &self.limits) {
                Ok(Message::Subscribe(subscribe)) => self.subscribe(&subscribe, &frame)?,
                // The lease that ends: our producer hears of it, Dynamo's knows of none.
                _ => drop(self.answered(&frame)?),
            }
        }
        let lease = self.their_lease;
        self.their_lease = LaneLease::new(lease.consumer_instance(), lease.physical_lane(), epoch);
        self.their_sequence += 1;
        self.ingestor
            .assign(self.their_identity, self.their_lease)
            .map_err(|error| error.to_string())?;
        let snapshot = GlobalCkfSnapshot::new(
            self.their_identity,
            self.their_lease,
            self.their_sequence,
            self.mirror.clone().into_boxed_slice(),
        );
        match self.ingestor.install_snapshot(&snapshot) {
            GlobalCkfIngestOutcome::SnapshotInstalled { .. } => Ok(()),
            outcome => Err(format!("Dynamo's lane: {outcome:?}")),
        }
    }

    fn subscribe(&mut self, subscribe: &Subscribe, frame: &[u8]) -> Result<(), String> {
        let Upstream::Dynamo(state) = &mut self.upstream else {
            let frames = self.answered(frame)?;
            self.take(&frames)?;
            return Ok(());
        };
        let (tail, words) = state.barrier_snapshot().map_err(|error| error.to_string())?;
        // What was pending is part of the snapshot.
        drop(tail);
        self.mirror = words.into_vec();
        self.digest = TableDigest::of_words(&self.mirror);
        let lease = LeaseId::new(subscribe.epoch.get()).ok_or("epoch 0")?;
        self.lease = Some(lease);
        let Subscribe { consumer, lane, epoch, .. } = *subscribe;
        let begin = SnapshotBegin {
            terms: LeaseTerms { lease, consumer, lane, epoch },
            identity: self.identity,
            sequence: self.sequence,
            chunk_buckets: CHUNK_BUCKETS,
        };
        self.hear(&begin.to_frame().to_bytes())?;
        for first in (0..self.mirror.len()).step_by(CHUNK_BUCKETS as usize) {
            let end = self.mirror.len().min(first + CHUNK_BUCKETS as usize);
            let words = self.mirror[first..end].iter().copied();
            let body = encode_chunk(first as u32, words, &self.limits);
            self.send(&body.map_err(|error| error.to_string())?)?;
        }
        let end = SnapshotEnd { sequence: self.sequence, digest: self.digest };
        self.send(&end.to_body())
    }

    /// Our producer's answer to a frame.
    fn answered(&mut self, frame: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let Upstream::Ours(producer) = &mut self.upstream else { return Ok(Vec::new()) };
        match producer.handle_frame(LINK, frame, NOW) {
            Request::Granted(_) | Request::Released(_) => {}
            answer => return Err(format!("our producer: {answer:?}")),
        }
        Ok(std::iter::from_fn(|| Some(producer.poll_frame(LINK, NOW)?.to_bytes())).collect())
    }

    /// What changed since the last batch goes to both consumers; returns its bucket images, by bucket
    /// and word.
    pub fn publish(&mut self) -> Result<Vec<(usize, u64)>, String> {
        let images = match &mut self.upstream {
            Upstream::Dynamo(state) => {
                let Some(batch) = state.flush() else { return Ok(Vec::new()) };
                self.relay(batch.images())?
            }
            Upstream::Ours(producer) => {
                let published = producer.publish(NOW).map_err(|error| error.to_string())?;
                let frames: Vec<_> =
                    std::iter::from_fn(|| Some(producer.poll_frame(LINK, NOW)?.to_bytes()))
                        .collect();
                let images = self.take(&frames)?;
                if published.is_some() == images.is_empty() {
                    return Err(format!("{published:?} with {} images", images.len()));
                }
                images
            }
        };
        if images.is_empty() {
            return Ok(Vec::new());
        }
        let (base, next) = (self.their_sequence, self.their_sequence + 1);
        let published = images.iter().map(|image| (image.bucket(), image.value())).collect();
        let delta = GlobalCkfDelta::new(self.their_identity, self.their_lease, base, next, images);
        match self.ingestor.apply_delta(&delta) {
            GlobalCkfIngestOutcome::DeltaApplied { .. } => self.their_sequence = next,
            outcome => return Err(format!("Dynamo's lane: {outcome:?}")),
        }
        Ok(published)
    }

    /// Dynamo's images, as frames to our lane, and as they are for Dynamo's own.
    fn relay(
        &mut self,
        images: &[GlobalCkfBucketImage],
    ) -> Result<Vec<GlobalCkfBucketImage>, String> {
        let next = self.sequence.checked_next().ok_or("out of numbers")?;
        let mut sorted: Vec<_> = images.iter().map(|i| (i.bucket(), i.value())).collect();
        sorted.sort_unstable();
        let mut writer = DeltaWriter::new(next, self.digest, &self.limits);
        for (bucket, word) in sorted {
            let before = std::mem::replace(&mut self.mirror[bucket], word);
            writer
                .push(bucket as u32, BucketImage::new(before), BucketImage::new(word))
                .map_err(|error| error.to_string())?;
        }
        let batch = writer.finish().map_err(|error| error.to_string())?;
        self.digest = batch.digest;
        if !batch.parts.is_empty() {
            self.sequence = next;
        }
        batch.parts.iter().try_for_each(|part| self.send(part))?;
        Ok(images.iter().map(|i| GlobalCkfBucketImage::new(i.bucket(), i.value())).collect())
    }

    /// Our producer's frames go to our lane as they are; what they change, as bucket images.
    fn take(&mut self, frames: &[Vec<u8>]) -> Result<Vec<GlobalCkfBucketImage>, String> {
        let mut images = Vec::new();
        for frame in frames {
            match decode(frame, &self.limits).map_err(|error| error.to_string())? {
                Message::SnapshotChunk { chunk, .. } => {
                    let first = chunk.first() as usize;
                    for (to, word) in self.mirror[first..].iter_mut().zip(chunk.words()) {
                        *to = word;
                    }
                }
                Message::Delta { delta, .. } => {
                    for patch in delta.patches() {
                        let word = &mut self.mirror[patch.bucket as usize];
                        *word = patch.apply(BucketImage::new(*word)).get();
                        images.push(GlobalCkfBucketImage::new(patch.bucket as usize, *word));
                    }
                }
                _ => {}
            }
            self.hear(frame)?;
        }
        Ok(images)
    }

    fn send(&mut self, body: &SharedBody) -> Result<(), String> {
        let lease = self.lease.ok_or("no lease")?;
        self.hear(&body.frame(lease).to_bytes())
    }

    fn hear(&mut self, frame: &[u8]) -> Result<(), String> {
        match self.session.handle_frame(frame, NOW) {
            Handled::Retired(failure) => Err(format!("our lane is retired: {failure:?}")),
            Handled::Rejected(reason) => Err(format!("our lane is rejected: {reason:?}")),
            Handled::Ignored(reason) => Err(format!("our lane ignores: {reason:?}")),
            _ => Ok(()),
        }
    }

    /// Our lane's words, against those of the producer, and what was published.
    pub fn compare(&mut self) -> Result<(), String> {
        let words: Vec<u64> = match &mut self.upstream {
            Upstream::Dynamo(state) => {
                let (tail, words) = state.barrier_snapshot().map_err(|error| error.to_string())?;
                if tail.is_some_and(|tail| !tail.images().is_empty()) {
                    return Err("unpublished images".to_owned());
                }
                words.into_vec()
            }
            Upstream::Ours(producer) => producer.pool().words().collect(),
        };
        let format = self.identity.format;
        for (bucket, &word) in words.iter().enumerate() {
            let index = format.bucket(bucket as u32).ok_or("no such bucket")?;
            let lane = self.session.store().word(index).get();
            if (lane, self.mirror[bucket]) != (word, word) {
                return Err(format!("bucket {bucket}: {word:016x} became {lane:016x}"));
            }
        }
        Ok(())
    }
}
