//! From a Dynamo relay's filter updates to the frames of one of our leases.

use bytes::Bytes;
use ckf_core::{BucketImage, TableDigest};
use ckf_protocol::{
    DeltaWriter, Heartbeat, LeaseId, LeaseTerms, Limits, ProducerIdentity, Sequence, SharedBody,
    SnapshotBegin, SnapshotEnd, Subscribe, encode_chunk,
};

use super::cbi1::{Content, Filter, Payload, images, words};
use super::{ContractError, check_envelope, identity, missing};
use crate::hosts::draw;
use crate::hosts::proto::dynamo as proto;

/// Buckets of the chunks that we make of theirs.
const CHUNK_BUCKETS: u32 = 16 << 10;

/// Translates one pool stream, from its first update to its end.
///
/// It keeps a copy of the table, since a lane is told digests and single slots, of which Dynamo's
/// updates know nothing. A change of the table that is none, which Dynamo may send, takes no number
/// in our stream: from there on our numbers are lower than theirs.
#[derive(Debug)]
pub struct Importer {
    theirs: proto::ProducerIdentity,
    identity: ProducerIdentity,
    terms: LeaseTerms,
    limits: Limits,
    table: Vec<u64>,
    digest: TableDigest,
    /// Position in their stream; `None` before the first chunk.
    sequence: Option<u64>,
    ours: Sequence,
    /// The first bucket of the next chunk while the snapshot is incomplete.
    next_bucket: Option<usize>,
}

impl Importer {
    /// For the lease that `subscribe` asks for, fed by the stream of `producer`.
    ///
    /// # Errors
    /// An identity that does not make sense; whether it is the right one, the lane decides.
    pub fn new(
        subscribe: &Subscribe,
        producer: proto::ProducerIdentity,
    ) -> Result<Self, ContractError> {
        let identity = identity(&producer)?;
        let lease = (0..).find_map(|more| LeaseId::new(draw().wrapping_add(more)));
        Ok(Self {
            theirs: producer,
            identity,
            terms: LeaseTerms {
                lease: lease.expect("two numbers in a row are not both 0"),
                consumer: subscribe.consumer,
                lane: subscribe.lane,
                epoch: subscribe.epoch,
            },
            limits: Limits::default().with_bucket_count(identity.format.bucket_count()),
            table: vec![0; identity.format.bucket_count() as usize],
            digest: TableDigest::EMPTY,
            sequence: None,
            ours: Sequence::ZERO,
            next_bucket: Some(0),
        })
    }

    /// The frames that say what this update says.
    ///
    /// # Errors
    /// [`ContractError`]: the stream must be closed.
    pub fn handle(&mut self, update: &proto::FilterUpdate) -> Result<Vec<Bytes>, ContractError> {
        check_envelope(update.contract_marker, update.protocol_version)?;
        if update.producer.as_ref() != Some(&self.theirs) {
            return Err(ContractError::Producer);
        }
        use proto::FilterUpdateKind::*;
        match update.kind() {
            Heartbeat if self.next_bucket.is_none() => self.heartbeat(update),
            SnapshotChunk | Delta => self.payload(update),
            _ => Err(missing("kind")),
        }
    }

    fn payload(&mut self, update: &proto::FilterUpdate) -> Result<Vec<Bytes>, ContractError> {
        let payload = Payload::parse(&update.payload)?;
        let format = &self.identity.format;
        let filter = Filter {
            seed: format.seed(),
            buckets: u64::from(format.bucket_count()),
            dc: self.identity.pool.dc.get(),
        };
        if payload.filter != filter {
            return Err(ContractError::Producer);
        }
        self.expect(update.sequence, payload.sequence)?;
        let is_chunk = update.kind() == proto::FilterUpdateKind::SnapshotChunk;
        match payload.content {
            Content::Chunk { first, words: bytes, .. } if is_chunk => {
                self.expect(update.sequence, update.base_sequence)?;
                self.chunk(update.sequence, first, bytes)
            }
            Content::Delta { base, images } if !is_chunk => {
                self.expect(self.sequence.unwrap_or(0), base)?;
                self.expect(base, update.base_sequence)?;
                self.delta(update.sequence, images)
            }
            _ => Err(missing("kind")),
        }
    }

    fn expect(&self, expected: u64, found: u64) -> Result<(), ContractError> {
        if expected == found { Ok(()) } else { Err(ContractError::Gap { expected, found }) }
    }

    fn chunk(
        &mut self,
        sequence: u64,
        first: u64,
        bytes: &[u8],
    ) -> Result<Vec<Bytes>, ContractError> {
        let next = self.next_bucket.ok_or(missing("kind"))?;
        self.expect(next as u64, first)?;
        let mut frames = Vec::new();
        if next == 0 {
            self.sequence = Some(sequence);
            self.ours = Sequence::new(sequence);
            let begin = SnapshotBegin {
                terms: self.terms,
                identity: self.identity,
                sequence: self.ours,
                chunk_buckets: CHUNK_BUCKETS,
            };
            frames.push(begin.to_frame().to_bytes().into());
        }
        self.expect(self.sequence.unwrap_or(0), sequence)?;
        let mut end = next;
        for (to, word) in self.table[next..].iter_mut().zip(words(bytes)) {
            *to = word;
            end += 1;
        }
        self.next_bucket = (end < self.table.len()).then_some(end);
        if self.next_bucket.is_none() {
            // Our chunks are cut at places of our own.
            for (index, words) in self.table.chunks(CHUNK_BUCKETS as usize).enumerate() {
                let first = index as u32 * CHUNK_BUCKETS;
                let body = encode_chunk(first, words.iter().copied(), &self.limits);
                frames.push(self.frame(&body.map_err(|_| missing("bucket_count"))?));
            }
            self.digest = TableDigest::of_words(&self.table);
            let end = SnapshotEnd { sequence: self.ours, digest: self.digest };
            frames.push(self.frame(&end.to_body()));
        }
        Ok(frames)
    }

    fn delta(&mut self, sequence: u64, bytes: &[u8]) -> Result<Vec<Bytes>, ContractError> {
        let last = self.sequence.filter(|_| self.next_bucket.is_none()).ok_or(missing("kind"))?;
        self.expect(last.wrapping_add(1), sequence)?;
        let next = self.ours.checked_next().ok_or(missing("sequence"))?;
        // In any order, and of one bucket's images the last one counts.
        let mut changed: Vec<(u32, u64)> = images(bytes).collect();
        changed.reverse();
        changed.sort_by_key(|(bucket, _)| *bucket);
        changed.dedup_by_key(|(bucket, _)| *bucket);
        let mut writer = DeltaWriter::new(next, self.digest, &self.limits);
        for (bucket, word) in changed {
            let before = std::mem::replace(&mut self.table[bucket as usize], word);
            let (before, after) = (BucketImage::new(before), BucketImage::new(word));
            writer.push(bucket, before, after).map_err(|_| missing("bucket"))?;
        }
        let batch = writer.finish().map_err(|_| missing("sequence"))?;
        self.sequence = Some(sequence);
        self.digest = batch.digest;
        if !batch.parts.is_empty() {
            self.ours = next;
        }
        Ok(batch.parts.iter().map(|part| self.frame(part)).collect())
    }

    fn heartbeat(&self, update: &proto::FilterUpdate) -> Result<Vec<Bytes>, ContractError> {
        let last = self.sequence.unwrap_or(0);
        self.expect(last, update.base_sequence)?;
        self.expect(last, update.sequence)?;
        let heartbeat = Heartbeat { sequence: self.ours, digest: self.digest, drain: false };
        Ok(vec![self.frame(&heartbeat.to_body())])
    }

    fn frame(&self, body: &SharedBody) -> Bytes {
        body.frame(self.terms.lease).to_bytes().into()
    }

    /// The copy of the table.
    pub fn table(&self) -> &[u64] {
        &self.table
    }
}
