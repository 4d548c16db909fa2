use ckf_consumer::{Handled, SessionState};
use ckf_protocol::{
    ConsumerId, DcId, Epoch, Incarnation, Lane, LayoutGeneration, LeaseId, LeaseTerms, Message,
    ProducerIdentity, RetireReason, Subscribe, decode,
};
use ckf_protocol::{Instant, Limits, Millis};

use super::Choices;
use crate::forge::{Stream, reseal};
use crate::scenario::{self, Session};

const BUCKETS: u32 = 12;
const CHUNK: u32 = 5;

/// Calls on one session in any order: real streams and forged ones, frames broken with right
/// checksums and wrong ones, time that jumps and goes back, assignments, lost connections. A ready
/// lane always holds what its stream published, and only its stream changes words.
pub fn session_ops(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let format = scenario::format(BUCKETS);
    let mut bench = Bench {
        session: scenario::session(1, 3, format, scenario::quick_session()),
        now: Instant::ZERO,
        wanted: None,
        streams: Vec::new(),
        epoch: 0,
        leases: 0,
    };
    while !choices.is_empty() {
        bench.step(&mut choices);
        bench.check();
    }
}

struct Bench {
    session: Session,
    now: Instant,
    /// The subscription sent last.
    wanted: Option<Subscribe>,
    /// Streams opened, the oldest first.
    streams: Vec<Stream>,
    epoch: u64,
    leases: u64,
}

impl Bench {
    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() % 16 {
            0 => {
                self.epoch += u64::from(choices.byte() % 3);
                let dc = DcId::new(u64::from(choices.byte() % 2));
                let last = self.session.epoch();
                let result = self.session.assign(dc, Epoch::new(self.epoch), self.now);
                assert_eq!(result.is_err(), last.is_some_and(|last| last.get() >= self.epoch));
            }
            1 => self.session.unassign(self.now),
            2 => self.session.handle_disconnected(self.now),
            3 => self.session.handle_timeout(self.now),
            4 => {
                if let Some((due, _)) = self.session.poll_timeout() {
                    self.now = self.now.latest(due);
                    self.session.handle_timeout(self.now);
                }
            }
            5 => self.now = self.now.saturating_add(Millis::new(u64::from(choices.u16()))),
            6 => self.session.handle_timeout(Instant::from_millis(u64::from(choices.byte()))),
            7 => self.transmit(),
            8 => self.open(choices),
            _ => self.deliver(choices),
        }
        if let Some(epoch) = self.session.epoch() {
            self.epoch = self.epoch.max(epoch.get());
        }
    }

    fn transmit(&mut self) {
        let mut epochs = self.wanted.map(|wanted| wanted.epoch);
        for _ in 0..6 {
            let Some(frame) = self.session.poll_transmit() else { return };
            match decode(&frame, &Limits::default()) {
                Ok(Message::Subscribe(subscribe)) => {
                    assert!(epochs < Some(subscribe.epoch), "epochs rise strictly");
                    epochs = Some(subscribe.epoch);
                    self.wanted = Some(subscribe);
                }
                Ok(Message::Unsubscribe(_)) => {}
                other => panic!("a session sent {other:?}"),
            }
        }
        panic!("at most five frames wait");
    }

    /// A producer opens a stream, mostly for the subscription sent last.
    fn open(&mut self, choices: &mut Choices<'_>) {
        let Some(wanted) = self.wanted else { return };
        let odd = choices.byte();
        self.leases += 1;
        let mut terms = LeaseTerms {
            lease: LeaseId::new(self.leases).expect("not 0"),
            consumer: wanted.consumer,
            lane: wanted.lane,
            epoch: wanted.epoch,
        };
        let mut identity = ProducerIdentity {
            pool: wanted.expected.pool,
            incarnation: Incarnation::new(self.leases),
            layout: LayoutGeneration::FIRST,
            format: wanted.expected.format,
        };
        match odd {
            0 => terms.consumer = ConsumerId::new(2),
            1 => terms.lane = Lane::new(4).expect("below 64"),
            2 => terms.epoch = Epoch::new(terms.epoch.get().wrapping_sub(1)),
            3 => identity.pool.dc = DcId::new(9),
            4 => identity.format = scenario::format(BUCKETS + 1),
            _ => {}
        }
        let words = (0..BUCKETS).map(|bucket| u64::from(choices.byte() & 7) << (bucket % 4 * 16));
        let words = words.collect();
        self.streams.push(Stream::new(terms, identity, u64::from(odd & 3), words, CHUNK));
    }

    /// A frame of one of the streams arrives, perhaps damaged.
    fn deliver(&mut self, choices: &mut Choices<'_>) {
        let last = self.streams.len().saturating_sub(1);
        // Mostly the newest stream.
        let pick = choices.byte();
        let index = if pick < 200 { last } else { choices.below(last + 1) };
        let Some(stream) = self.streams.get_mut(index) else {
            let bytes = choices.take(64);
            self.receive(bytes);
            return;
        };
        let mut frame = match choices.byte() % 12 {
            0..3 => stream.begin(),
            3..6 => {
                let chunks = stream.chunks();
                chunks[choices.below(chunks.len())].clone()
            }
            6 => stream.end(),
            7 | 8 => {
                let first = choices.below(BUCKETS as usize - 1) as u32;
                // A batch changes something, or it is none.
                let word =
                    (stream.words[first as usize] ^ u64::from(choices.byte())).wrapping_add(1);
                let word = if word == stream.words[first as usize] { !word } else { word };
                stream.delta(&[(first, word)])
            }
            9 => stream.heartbeat(choices.byte().is_multiple_of(2)),
            10 => stream.retire(RetireReason::Lagged),
            _ => {
                for frame in stream.snapshot() {
                    self.receive(&frame);
                }
                return;
            }
        };
        match choices.byte() {
            damage @ 0..32 => {
                let at = choices.below(frame.len());
                frame[at] ^= damage | 1;
            }
            damage @ 32..48 => {
                // Damage that no checksum tells. The lease stays: another one is no damage.
                let at = 24 + choices.below(frame.len() - 24);
                if at < frame.len() {
                    frame[at] ^= damage;
                }
                reseal(&mut frame);
                self.receive_forged(&frame);
                return;
            }
            48..56 => frame.truncate(choices.below(frame.len())),
            _ => {}
        }
        self.receive(&frame);
    }

    fn receive(&mut self, frame: &[u8]) {
        let (lease, stores) = (self.session.lease(), self.session.store().stores());
        let handled = self.session.handle_frame(frame, self.now);
        if self.session.store().stores() != stores {
            let named = frame.get(8..16).map(|bytes| bytes.to_vec());
            let current = lease.map(|lease| lease.get().to_le_bytes().to_vec());
            assert_eq!(named, current, "a foreign frame changed words: {handled:?}");
            assert!(matches!(handled, Handled::Chunk | Handled::Applied(_)), "{handled:?}");
        }
    }

    /// A lying producer can tell its own lane anything, so this lane is not compared any more.
    fn receive_forged(&mut self, frame: &[u8]) {
        self.receive(frame);
        self.session.handle_disconnected(self.now);
    }

    fn check(&mut self) {
        let ready = self.session.state() == SessionState::Ready;
        assert_eq!(ready, self.session.store().is_ready());
        if let (Some((identity, sequence)), Some(lease)) =
            (self.session.position(), self.session.lease())
        {
            let stream = self.streams.iter().find(|stream| stream.terms.lease == lease);
            let stream = stream.expect("only opened streams are accepted");
            assert_eq!(identity, stream.identity);
            assert!(sequence <= stream.sequence);
            if sequence == stream.sequence {
                assert_eq!(self.session.store().words(), stream.words);
            }
        }
        let waiting = std::iter::from_fn(|| self.session.poll_event()).count();
        assert!(waiting <= Session::MAX_EVENTS);
    }
}
