//! The router's side: makes of everybody's frames those of one lane's lease.

use std::time::Duration;

use async_nats::Client;
use bytes::Bytes;
use ckf_protocol::{
    Header, Kind, LeaseId, LeaseTerms, Limits, Message, ProducerIdentity, SnapshotBegin, Subscribe,
    decode, peek_header,
};
use futures::{StreamExt, stream};

use super::{feed_subject, join_subject};
use crate::hosts::HostResult;
use crate::hosts::router::link::Frames;

/// Longest wait for the relay to take a request.
const JOIN: Duration = Duration::from_secs(3);

/// A way to the relays behind one NATS server.
#[derive(Clone, Debug)]
pub struct NatsLink(Client);

impl NatsLink {
    /// Over this connection.
    pub fn new(client: Client) -> Self {
        Self(client)
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
        let feed = self.0.subscribe(feed_subject(&pool)).await?;
        // The server knows of the subscription before the relay knows of the request.
        self.0.flush().await?;
        let answer = self.0.request(join_subject(&pool), frame.into());
        let answer = tokio::time::timeout(JOIN, answer).await??.payload;
        if !answer.is_empty() {
            return Ok(Box::pin(stream::iter([Ok(answer)])));
        }
        let binder = Binder::new(subscribe);
        let frames =
            feed.scan(binder, |binder, message| std::future::ready(binder.take(message.payload)));
        Ok(Box::pin(frames.filter_map(|frame| std::future::ready(frame.map(Ok)))))
    }
}

/// Writes one lane's lease into frames of other leases of the same stream.
#[derive(Debug)]
pub struct Binder {
    subscribe: Subscribe,
    bound: Option<(LeaseId, ProducerIdentity)>,
}

impl Binder {
    /// For the lease that `subscribe` asks for.
    pub fn new(subscribe: Subscribe) -> Self {
        Self { subscribe, bound: None }
    }

    /// One frame of the subject: `None` at the end of the stream, `Some(None)` for a frame that is
    /// for others.
    pub fn take(&mut self, frame: Bytes) -> Option<Option<Bytes>> {
        let header = peek_header(&frame, &Limits::default()).ok();
        let Some((lease, kind)) =
            header.and_then(|header| Some((header.lease()?, header.kind().ok()?)))
        else {
            return Some(None);
        };
        match (kind, self.bound) {
            (Kind::SnapshotBegin, _) => self.begin(&frame),
            (_, None) => Some(None),
            // The snapshot of the round that this lane joined; later rounds are for others.
            (Kind::SnapshotChunk | Kind::SnapshotEnd, Some((ours, _))) => {
                Some((lease == ours).then_some(frame))
            }
            (Kind::Delta | Kind::Heartbeat, Some((ours, _))) => Some(Some(relabel(&frame, ours))),
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

/// The frame under another lease: 8 bytes of its header, and the header's checksum over the 20 bytes
/// before it. The body and its checksum stay as they are.
fn relabel(frame: &[u8], lease: LeaseId) -> Bytes {
    let mut frame = frame.to_vec();
    frame[8..16].copy_from_slice(&lease.get().to_le_bytes());
    let checksum = crc32c::crc32c(&frame[..Header::LEN - 4]);
    frame[Header::LEN - 4..Header::LEN].copy_from_slice(&checksum.to_le_bytes());
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckf_core::{BucketImage, TableDigest};
    use ckf_protocol::{DeltaWriter, Sequence};

    #[test]
    fn a_relabelled_frame_is_whole_and_of_the_other_lease() {
        let limits = Limits::default();
        let mut delta = DeltaWriter::new(Sequence::new(1), TableDigest::EMPTY, &limits);
        delta.push(7, BucketImage::new(0), BucketImage::new(99)).unwrap();
        let parts = delta.finish().unwrap();
        let [theirs, ours] = [5, 6].map(|lease| LeaseId::new(lease).unwrap());
        let frame = relabel(&parts.parts[0].frame(theirs).to_bytes(), ours);
        assert_eq!(frame, parts.parts[0].frame(ours).to_bytes());
        assert!(
            matches!(decode(&frame, &limits), Ok(Message::Delta { lease, .. }) if lease == ours)
        );
    }
}
