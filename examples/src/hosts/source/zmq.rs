//! The sockets of one engine: SUB for live batches, DEALER for questions to its replay socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ckf_producer::source::{EngineEvent, EventId, RequestKind, SourceRequest};
use ckf_testkit::kv_events::{Batch, Reader, Token};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use super::life::Life;
use super::spec::SourceSpec;
use super::zmtp::{Connection, Role, ZmtpError};
use super::{SourceCounters, SourceMessage, SourceNews};
use crate::hosts::clock::Clock;
use crate::hosts::relay::pool::NEWS_BYTES;
use crate::log_about;

/// Longest time for a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Pauses between attempts: from the first, each twice the one before, up to the longest. The first one
/// is shorter than any process takes to start, so that nobody listens then where one has ended.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_millis(200);
/// Longest pause within a replay: engines serve it between batches, and may give it up half way.
const REPLAY_PAUSE: Duration = Duration::from_secs(2);
/// Longest time for a whole replay.
const REPLAY: Duration = Duration::from_secs(30);
/// Events of one batch at most.
const MAX_EVENTS: usize = 1 << 16;
/// Bytes of one replay at most, and what each batch counts beyond its payload.
const MAX_REPLAY: usize = 256 << 20;
const PER_BATCH: usize = 64;

/// Watches one engine until the pool or the relay has had enough.
pub struct Watcher {
    /// Which engine.
    pub spec: SourceSpec,
    /// What happened.
    pub counters: Arc<SourceCounters>,
    /// The relay's time.
    pub clock: Clock,
    /// The pool. Waiting for room in it slows the engine's socket, not the engine.
    pub pool: mpsc::Sender<SourceMessage>,
    /// The pool's room for payloads under way, which all its engines share.
    pub room: Arc<Semaphore>,
    /// The pool's questions.
    pub questions: mpsc::Receiver<SourceRequest>,
    /// What is known of the engine's life.
    pub life: Life,
    /// How long its blocks are believed in while nothing proves that it still lives that life.
    pub patience: Duration,
    /// Since when nothing proves it.
    pub doubt: Option<Instant>,
}

/// The pool is gone, or wants no more of this source.
struct Over;

impl Watcher {
    /// Runs until the pool drops its end.
    pub async fn run(mut self) {
        let mut last = String::new();
        let mut pause = FIRST_PAUSE;
        loop {
            let connects = self.counters.connects.get();
            let Ok(error) = self.connected().await else { return };
            if self.counters.connects.get() > connects {
                pause = FIRST_PAUSE;
            }
            self.counters.disconnects.up();
            self.count(&error);
            let said = error.to_string();
            // An engine that stays away is mentioned once.
            if said != last {
                log_about!(self.name(), "{said}");
                last = said;
            }
            if self.away(&error).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSE);
        }
    }

    /// The engine cannot be reached: is that the end of its life?
    async fn away(&mut self, error: &ZmtpError) -> Result<(), Over> {
        if self.life.newest().is_none() {
            return Ok(());
        }
        let since = *self.doubt.get_or_insert_with(Instant::now);
        if self.spec.replay.is_none() && is_refusal(error) {
            self.counters.restarts.up();
            self.begin().await
        } else if since.elapsed() >= self.patience {
            self.give_up().await
        } else {
            Ok(())
        }
    }

    /// Nothing has proved for too long that the engine is the one that we knew.
    async fn give_up(&mut self) -> Result<(), Over> {
        self.counters.given_up.up();
        log_about!(self.name(), "its blocks are forgotten, as nothing proves them");
        self.begin().await
    }

    async fn begin(&mut self) -> Result<(), Over> {
        self.doubt = None;
        self.life.begin();
        self.tell(SourceNews::Announced).await
    }

    /// One connection, from the attempt to the loss; why it was lost.
    async fn connected(&mut self) -> Result<ZmtpError, Over> {
        let open = timeout(CONNECT, Connection::open(&self.spec.events, Role::Sub));
        let open = open.await.map_err(io::Error::from).map_err(ZmtpError::from).flatten();
        let mut socket = match open {
            Ok(socket) => socket,
            Err(error) => {
                // Nobody to ask: say so, or the pool would wait for nothing.
                while let Ok(question) = self.questions.try_recv() {
                    self.tell(SourceNews::Unavailable(question.id)).await?;
                }
                return if self.questions.is_closed() { Err(Over) } else { Ok(error) };
            }
        };
        self.counters.connects.up();
        self.greet().await?;
        loop {
            let doubted_until = self.doubt.map(|since| since + self.patience);
            tokio::select! {
                () = sleep_until(doubted_until) => self.give_up().await?,
                message = socket.receive() => match message {
                    Ok(message) => self.live(&message).await?,
                    Err(error) => return Ok(error),
                },
                question = self.questions.recv() => match question {
                    Some(question) => self.answer(question).await?,
                    None => return Err(Over),
                },
            }
        }
    }

    /// First contact, or contact again: is it the engine that we knew, and what did we miss?
    async fn greet(&mut self) -> Result<(), Over> {
        if let (Some(newest), Some(_)) = (self.life.newest(), &self.spec.replay)
            && let Some(batches) = self.replay(newest.get()).await
        {
            self.doubt = None;
            let first = batches.first().map(|(number, payload)| (*number, payload.as_ref()));
            if self.life.reconnected(first) {
                self.counters.restarts.up();
            } else {
                self.tell_batches(batches).await?;
            }
        }
        self.tell(SourceNews::Announced).await
    }

    async fn live(&mut self, message: &[Bytes]) -> Result<(), Over> {
        let batch = if let [_topic, batch @ ..] = message { batch_of(batch) } else { None };
        let Some((number, payload)) = batch else {
            self.counters.garbage.up();
            return Ok(());
        };
        self.counters.batches.up();
        self.counters.bytes.add(payload.len() as u64);
        // The next number is that of the same life; any other one is dealt with here or as a gap.
        self.doubt = None;
        if self.life.live(number, &payload) {
            self.counters.restarts.up();
        }
        // Without events its number is used up: the pool notices the gap and asks for it.
        self.tell_batch(number, &payload).await
    }

    async fn tell_batch(&self, number: u64, payload: &[u8]) -> Result<(), Over> {
        let room = self.make_room(payload.len()).await;
        match self.decode(payload) {
            Some(events) => self.send(SourceNews::Batch(EventId::new(number), events), room).await,
            None => Ok(()),
        }
    }

    /// Waits until so many bytes of payload may be decoded and sent.
    async fn make_room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(NEWS_BYTES).min(NEWS_BYTES);
        self.room.clone().acquire_many_owned(bytes).await.ok()
    }

    async fn answer(&mut self, question: SourceRequest) -> Result<(), Over> {
        if question.generation != self.life.generation() {
            return Ok(());
        }
        let from = match question.kind {
            RequestKind::History { from, .. } => from.get(),
            _ => 0,
        };
        if self.spec.replay.is_none() {
            // The engine cannot be asked: what came live is all that there is.
            let nothing = match question.kind {
                RequestKind::History { .. } => SourceNews::HistoryEnd(question.id),
                _ => SourceNews::Latest(question.id, Vec::new()),
            };
            return self.tell(nothing).await;
        }
        let Some(batches) = self.replay(from).await else {
            return self.tell(SourceNews::Unavailable(question.id)).await;
        };
        if let RequestKind::History { .. } = question.kind {
            self.tell_batches(batches).await?;
            return self.tell(SourceNews::HistoryEnd(question.id)).await;
        }
        let room = self.make_room(batches.iter().map(|(_, payload)| payload.len()).sum()).await;
        let decode =
            |(number, payload): &(u64, Bytes)| Some((EventId::new(*number), self.decode(payload)?));
        let readable = batches.iter().filter_map(decode).collect();
        self.remember(&batches);
        self.send(SourceNews::Latest(question.id, readable), room).await
    }

    /// What the log calls it.
    fn name(&self) -> String {
        format!("source {}", self.spec.events)
    }

    fn remember(&mut self, batches: &[(u64, Bytes)]) {
        if let Some((number, payload)) = batches.last() {
            self.life.replayed(*number, payload);
        }
    }

    async fn tell_batches(&mut self, batches: Vec<(u64, Bytes)>) -> Result<(), Over> {
        self.remember(&batches);
        for (number, payload) in batches {
            self.tell_batch(number, &payload).await?;
        }
        Ok(())
    }

    /// All batches that the engine still has, from number `from` on; `None` without an answer.
    async fn replay(&self, from: u64) -> Option<Vec<(u64, Bytes)>> {
        self.counters.replays.up();
        let endpoint = self.spec.replay.as_ref()?;
        let answer = timeout(REPLAY, ask(endpoint, from)).await.map_err(io::Error::from);
        match answer.map_err(ZmtpError::from).flatten() {
            Ok(mut batches) => {
                self.heard();
                let line = in_line(&batches);
                if line < batches.len() {
                    self.counters.failed_replays.up();
                    let far = batches[line].0;
                    log_about!(
                        self.name(),
                        "replay: number {far} does not follow; left out from there on"
                    );
                    batches.truncate(line);
                }
                Some(batches)
            }
            Err(error) => {
                self.counters.failed_replays.up();
                self.count(&error);
                log_about!(self.name(), "replay: {error}");
                None
            }
        }
    }

    /// Counts what a peer did that none may do.
    fn count(&self, error: &ZmtpError) {
        match error {
            ZmtpError::TooLarge { .. } => self.counters.oversized.up(),
            ZmtpError::Protocol(_) => self.counters.garbage.up(),
            _ => {}
        }
    }

    fn decode(&self, payload: &[u8]) -> Option<Vec<EngineEvent>> {
        let Some(batch) = checked(payload) else {
            self.counters.garbage.up();
            return None;
        };
        self.heard();
        self.counters.unknown_events.add(batch.unknown as u64);
        if batch.rank.is_some_and(|rank| rank != self.spec.member.rank.get()) {
            self.counters.foreign_rank.up();
        }
        Some(batch.into_engine_events())
    }

    fn heard(&self) {
        self.counters.heard_at.set(self.clock.now().as_millis());
    }

    async fn tell(&self, what: SourceNews) -> Result<(), Over> {
        self.send(what, None).await
    }

    async fn send(&self, what: SourceNews, room: Option<OwnedSemaphorePermit>) -> Result<(), Over> {
        let (member, generation) = (self.spec.member, self.life.generation());
        let message = SourceMessage { member, generation, what, room };
        self.pool.send(message).await.map_err(|_| Over)
    }
}

/// Nobody listens at an address that can be reached: no hiccup of a network looks like that.
fn is_refusal(error: &ZmtpError) -> bool {
    matches!(error, ZmtpError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Sleeps until then, or for ever.
async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// One question to a replay socket. A connection of its own: an answer that was given up must not
/// run into the next one.
async fn ask(endpoint: &str, from: u64) -> Result<Vec<(u64, Bytes)>, ZmtpError> {
    let open = timeout(CONNECT, Connection::open(endpoint, Role::Dealer));
    let mut socket = open.await.map_err(io::Error::from)??;
    socket.send(&[b"", &from.to_be_bytes()]).await?;
    let (mut batches, mut bytes) = (Vec::new(), 0);
    loop {
        let message = timeout(REPLAY_PAUSE, socket.receive()).await.map_err(io::Error::from)??;
        // Older answers carry no topic; sequence and payload are always the last two frames.
        let [.., number, payload] = &message[..] else {
            return Err(ZmtpError::Protocol("a replay of single frames"));
        };
        if payload.is_empty() {
            return Ok(batches);
        }
        bytes += payload.len() + PER_BATCH;
        if bytes > MAX_REPLAY {
            return Err(ZmtpError::TooLarge { announced: bytes as u64 });
        }
        let batch = batch_of(&[number.clone(), payload.clone()]);
        batches.push(batch.ok_or(ZmtpError::Protocol("a replay without numbers"))?);
    }
}

/// How many batches come before one that is further ahead than the next. Engines keep what they
/// published without holes. A number far ahead would pass for the newest one, and all that come live
/// after it for duplicates.
fn in_line(batches: &[(u64, Bytes)]) -> usize {
    let mut newest = None;
    batches
        .iter()
        .position(|&(number, _)| {
            let far = newest.is_some_and(|newest: u64| number.saturating_sub(newest) > 1);
            newest = newest.max(Some(number));
            far
        })
        .unwrap_or(batches.len())
}

/// A batch of at most [`MAX_EVENTS`]: an event takes more memory than the few bytes that it can have.
fn checked(payload: &[u8]) -> Option<Batch> {
    let mut reader = Reader::new(payload);
    reader.token().ok()?;
    reader.skip().ok()?;
    let few = matches!(reader.token(), Ok(Token::Array(events)) if events <= MAX_EVENTS);
    if few { Batch::decode(payload).ok() } else { None }
}

/// Sequence number and payload, from the frames of one batch.
fn batch_of(frames: &[Bytes]) -> Option<(u64, Bytes)> {
    let [number, payload] = frames else { return None };
    Some((u64::from_be_bytes(number.as_ref().try_into().ok()?), payload.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_too_many_events_are_refused_before_they_are_decoded() {
        let batch = |events: u32| {
            let mut bytes = vec![0x93, 0xCB, 0, 0, 0, 0, 0, 0, 0, 0, 0xDD];
            bytes.extend(events.to_be_bytes());
            bytes.extend([&[0x91, 0xB0][..], b"AllBlocksCleared"].concat().repeat(events as usize));
            bytes.push(0xC0);
            bytes
        };
        assert_eq!(checked(&batch(MAX_EVENTS as u32)).unwrap().events.len(), MAX_EVENTS);
        assert!(Batch::decode(&batch(MAX_EVENTS as u32 + 1)).is_ok());
        assert!(checked(&batch(MAX_EVENTS as u32 + 1)).is_none());
        for len in 0..30 {
            assert!(checked(&batch(2)[..len]).is_none(), "{len}");
        }
    }
}
