//! The router's side: makes of everybody's frames those of one lane's lease.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use bytes::Bytes;
use ckf_protocol::{
    Header, Kind, LeaseId, LeaseTerms, Limits, Message, ProducerIdentity, SnapshotBegin, Subscribe,
    decode, peek_header,
};
use futures::{StreamExt, stream};

use super::{ERROR, ERROR_CODE, NatsCounters, feed_subject, join_subject};
use crate::hosts::HostResult;
use crate::hosts::router::link::Frames;

/// Longest wait for the relay to take a request.
const JOIN: Duration = Duration::from_secs(3);

/// A way to the relays behind one NATS server.
#[derive(Clone, Debug)]
pub struct NatsLink {
    client: Client,
    counters: Arc<NatsCounters>,
}

impl NatsLink {
    /// Over this connection.
    pub fn new(client: Client, counters: Arc<NatsCounters>) -> Self {
        Self { client, counters }
    }

    /// Listens to the pool that the Subscribe frame names, and asks for a snapshot.
    ///
    /// # Errors
    /// No server, or no relay that answers.
    pub async fn open(&self, frame: Vec<u8>) -> HostResult<Frames> {
        let Message::Subscribe(subscribe) = decode(&frame, &Limits::default())? else {
            return Err("not a Subscribe frame".into());
        };
        let pool = subscribe.expected.pool;
        let feed = self.client.subscribe(feed_subject(&pool)).await?;
        // The server knows of the subscription before the relay knows of the request.
        self.client.flush().await?;
        let answer = self.client.request(join_subject(&pool), frame.into());
        let answer = tokio::time::timeout(JOIN, answer).await??;
        let header = |name| answer.headers.as_ref().and_then(|headers| headers.get(name));
        if let Some(code) = header(ERROR_CODE) {
            let why = header(ERROR).map_or("", |why| why.as_str());
            return Err(format!("the relay answers {code}: {why}").into());
        }
        if !answer.payload.is_empty() {
            return Ok(Box::pin(stream::iter([Ok(answer.payload)])));
        }
        let binder = Binder::new(subscribe, self.counters.clone());
        let frames =
            feed.scan(binder, |binder, message| std::future::ready(binder.take(message.payload)));
        Ok(Box::pin(frames.filter_map(|frame| std::future::ready(frame.map(Ok)))))
    }
}

/// Writes one lane's lease into frames of other leases of the same stream.
#[derive(Debug)]
pub struct Binder {
    subscribe: Subscribe,
    counters: Arc<NatsCounters>,
    bound: Option<(LeaseId, ProducerIdentity)>,
}

impl Binder {
    /// For the lease that `subscribe` asks for.
    pub fn new(subscribe: Subscribe, counters: Arc<NatsCounters>) -> Self {
        Self { subscribe, counters, bound: None }
    }

    /// One frame of the subject: `None` at the end of the stream, `Some(None)` for a frame that is
    /// for others, or none at all: anybody on the server can write here, and that must not cost this
    /// lane its lease. Such frames are counted.
    pub fn take(&mut self, frame: Bytes) -> Option<Option<Bytes>> {
        let limits = Limits::default();
        let header = match decode(&frame, &limits) {
            // A producer says nothing else.
            Ok(
                Message::SnapshotBegin(_)
                | Message::SnapshotChunk { .. }
                | Message::SnapshotEnd { .. }
                | Message::Delta { .. }
                | Message::Heartbeat { .. }
                | Message::Retire { .. },
            ) => peek_header(&frame, &limits).ok(),
            _ => None,
        };
        let of_lease =
            header.and_then(|header| Some((header, header.kind().ok()?, header.lease()?)));
        let Some((header, kind, lease)) = of_lease else {
            self.counters.garbage_frames.up();
            return Some(None);
        };
        match (kind, self.bound) {
            (Kind::SnapshotBegin, _) => self.begin(&frame),
            (_, None) => Some(None),
            // The snapshot of the round that this lane joined; later rounds are for others.
            (Kind::SnapshotChunk | Kind::SnapshotEnd, Some((ours, _))) => {
                Some((lease == ours).then_some(frame))
            }
            (Kind::Delta | Kind::Heartbeat, Some((ours, _))) => {
                Some(passed_on(&frame, &header, ours))
            }
            // The present lease gives way to the next round, unless the relay goes away; then
            // nothing follows, and the lane notices the silence. Either way not this lane's lease.
            _ => Some(None),
        }
    }

    fn begin(&mut self, frame: &[u8]) -> Option<Option<Bytes>> {
        let Ok(Message::SnapshotBegin(begin)) = decode(frame, &Limits::default()) else {
            return Some(None);
        };
        match self.bound {
            Some((_, identity)) if identity == begin.identity => Some(None),
            // Another life of the producer: what this lane holds is of the former one.
            Some(_) => None,
            None => {
                let lease = begin.terms.lease;
                self.bound = Some((lease, begin.identity));
                let Subscribe { consumer, lane, epoch, .. } = self.subscribe;
                let terms = LeaseTerms { lease, consumer, lane, epoch };
                let begin = SnapshotBegin { terms, ..begin };
                Some(Some(begin.to_frame().to_bytes().into()))
            }
        }
    }
}

/// The frame under another lease; its body stays as it is.
fn passed_on(frame: &[u8], header: &Header, lease: LeaseId) -> Option<Bytes> {
    let header = header.with_lease(lease).ok()?;
    Some([&header[..], &frame[Header::LEN..]].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckf_core::{Format, TableDigest};
    use ckf_protocol::{
        ConsumerId, DcId, Epoch, Heartbeat, IdentityHalf, IdentitySource, Incarnation,
        IndexerDomainId, Lane, LayoutGeneration, PoolId, ProducerExpectation, Retire, RetireReason,
        Sequence, SnapshotEnd, VersionRange,
    };

    fn identity(incarnation: u64) -> ProducerIdentity {
        let half = IdentityHalf { digest: [1; 16], source: IdentitySource::Explicit };
        let domain = IndexerDomainId { cache_semantics: half, routing_scope: half };
        ProducerIdentity {
            pool: PoolId { domain, dc: DcId::new(1) },
            incarnation: Incarnation::new(incarnation),
            layout: LayoutGeneration::FIRST,
            format: Format::any_count(4, 1).unwrap(),
        }
    }

    fn begin(receiver: u64, lease: LeaseId, incarnation: u64) -> Bytes {
        let terms = LeaseTerms {
            lease,
            consumer: ConsumerId::new(receiver),
            lane: Lane::new(0).unwrap(),
            epoch: Epoch::new(1),
        };
        let (identity, sequence) = (identity(incarnation), Sequence::new(3));
        let begin = SnapshotBegin { terms, identity, sequence, chunk_buckets: 4 };
        begin.to_frame().to_bytes().into()
    }

    #[test]
    fn a_lane_gets_one_round_and_all_deltas_under_its_own_lease() {
        let [ours, later] = [5, 6].map(|lease| LeaseId::new(lease).unwrap());
        let (sequence, digest) = (Sequence::new(3), TableDigest::EMPTY);
        let end =
            |lease| Bytes::from(SnapshotEnd { sequence, digest }.to_body().frame(lease).to_bytes());
        let beat = |lease| {
            let beat = Heartbeat { sequence, digest, drain: false };
            Bytes::from(beat.to_body().frame(lease).to_bytes())
        };
        let retire = Retire { reason: RetireReason::Replaced }.to_body().frame(ours).to_bytes();
        let counters = Arc::<NatsCounters>::default();
        let subscribe = Subscribe {
            consumer: ConsumerId::new(77),
            lane: Lane::new(0).unwrap(),
            epoch: Epoch::new(1),
            versions: VersionRange::SUPPORTED,
            expected: ProducerExpectation { pool: identity(1).pool, format: identity(1).format },
        };
        let mut damaged = end(ours).to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        let request = subscribe.to_frame().to_bytes();
        let mut binder = Binder::new(subscribe, counters.clone());
        for (frame, expected) in [
            (beat(ours), None),
            (end(ours), None),
            (Bytes::from_static(b"garbage"), None),
            (request.into(), None),
            (begin(1, ours, 1), Some(begin(77, ours, 1))),
            // A header that is believable, a body that is not: the frame counts for nothing.
            (damaged.into(), None),
            (end(ours), Some(end(ours))),
            (beat(ours), Some(beat(ours))),
            // The next round is for others, but its lease goes on where the former one ended.
            (begin(1, later, 1), None),
            (end(later), None),
            (retire.into(), None),
            (beat(later), Some(beat(ours))),
        ] {
            assert_eq!(binder.take(frame), Some(expected));
        }
        assert_eq!(counters.garbage_frames.get(), 3);
        assert_eq!(binder.take(begin(1, later, 2)), None, "another life of the producer");
    }
}
