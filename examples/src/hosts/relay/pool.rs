//! One pool's task: the only owner of its sources and its producer, which have no locks.
//!
//! Everything reaches it through one bounded channel. What it sends goes into small bounded channels
//! too, one per subscriber, and only as fast as they are emptied: what waits, waits in the producer,
//! which bounds it and ends the lease of a subscriber that is too slow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use ckf_core::TableDigest;
use ckf_producer::source::{
    PoolSources, Readiness, SourceNotice, SourceRequest, SourceStats, SourcesNotice, StreamState,
    Translator, TranslatorStats,
};
use ckf_producer::{
    LeaseEnd, Member, PoolEvent, PoolStats, Producer, ProducerEvent, PublishStats, Request,
    SubscriberId,
};
use ckf_protocol::{Instant, ProducerIdentity, Sequence};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

use super::PoolPlan;
use crate::hosts::HostResult;
use crate::hosts::clock::Clock;
use crate::hosts::source::{SourceMessage, SourceNews};
use crate::{log, log_about};

/// Frames under way to one subscriber; more wait in the producer.
const LINK_FRAMES: usize = 8;
/// Payloads of messages from sources under way, in bytes.
pub const NEWS_BYTES: u32 = 64 << 20;
/// Messages from sources that are taken before the others get their turn.
const BURST: usize = 256;

/// What the task is told, beside the messages of sources.
#[derive(Debug)]
pub enum PoolInput {
    /// A subscriber's frame opens a link; frames for it come out of the channel given back.
    Open(Bytes, oneshot::Sender<mpsc::Receiver<Bytes>>),
    /// An engine belongs to the pool from now on; its questions go into the channel. Answered when
    /// that is so: only then may anything be said about it.
    Expect(Member, mpsc::Sender<SourceRequest>, oneshot::Sender<()>),
    /// An engine no longer belongs to the pool.
    Forget(Member),
    /// Asks how things are.
    Report(oneshot::Sender<PoolReport>),
    /// Publish all, tell the subscribers good-bye, and end.
    Shutdown,
}

/// How a pool is.
#[derive(Clone, Debug)]
pub struct PoolReport {
    /// Whose stream it is.
    pub identity: ProducerIdentity,
    /// The last batch.
    pub sequence: Sequence,
    /// Digest of the table after it.
    pub digest: TableDigest,
    /// Exact state.
    pub pool: PoolStats,
    /// Publication.
    pub publish: PublishStats,
    /// Commands, messages and batches that failed; the log has the reasons.
    pub errors: u64,
    /// Sources.
    pub sources: SourceStats,
    /// How far the sources are.
    pub readiness: Readiness,
    /// Per member: blocks, state of its stream, what the translator left out.
    pub members: Vec<(Member, u64, StreamState, TranslatorStats)>,
}

/// How others reach a pool's task.
#[derive(Clone, Debug)]
pub struct PoolHandle {
    /// What the pool is.
    pub plan: Arc<PoolPlan>,
    /// Its inputs.
    pub input: mpsc::Sender<PoolInput>,
    /// Its engines' messages.
    pub news: mpsc::Sender<SourceMessage>,
    /// Room for the messages that are under way, in bytes of their payloads.
    pub room: Arc<Semaphore>,
    /// Wakes it when a subscriber took a frame or went away.
    pub wake: Arc<Notify>,
}

impl PoolHandle {
    /// Starts the task of one pool.
    ///
    /// # Errors
    /// Memory for the filter is refused, or the plan is nonsense.
    pub fn start(plan: PoolPlan, clock: Clock) -> HostResult<Self> {
        let (config, front) = plan.sources()?;
        let (input, inputs) = mpsc::channel(64);
        let (news, all_news) = mpsc::channel(256);
        let wake = Arc::new(Notify::new());
        let task = PoolTask {
            clock,
            producer: plan.producer()?,
            sources: PoolSources::new(config, front, clock.now()),
            plan: Arc::new(plan),
            links: BTreeMap::new(),
            last_link: 0,
            questions: BTreeMap::new(),
            orphaned: BTreeSet::new(),
            wake: wake.clone(),
            errors: 0,
            batch_due: None,
        };
        let plan = task.plan.clone();
        tokio::spawn(task.run(inputs, all_news));
        let room = Arc::new(Semaphore::new(NEWS_BYTES as usize));
        Ok(Self { plan, input, news, room, wake })
    }

    /// How the pool is; `None` when its task has ended.
    pub async fn report(&self) -> Option<PoolReport> {
        let (answer, report) = oneshot::channel();
        self.input.send(PoolInput::Report(answer)).await.ok()?;
        report.await.ok()
    }

    /// [`open`](Self::open), but not before the pool's sources have told enough: an empty table must
    /// not pass for an empty data center.
    pub async fn open_ready(&self, frame: Bytes) -> Option<mpsc::Receiver<Bytes>> {
        self.report().await?.readiness.ready?;
        self.open(frame).await
    }

    /// Opens a link with a subscriber's first frame; `None` when the pool's task has ended.
    pub async fn open(&self, frame: Bytes) -> Option<mpsc::Receiver<Bytes>> {
        let (answer, link) = oneshot::channel();
        self.input.send(PoolInput::Open(frame, answer)).await.ok()?;
        link.await.ok()
    }
}

/// The next frame of a link that there may not be; without one, never.
pub async fn next_frame(link: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    match link {
        Some(frames) => frames.recv().await,
        None => std::future::pending().await,
    }
}

/// One subscriber: one link, one lease.
struct Link {
    frames: mpsc::Sender<Bytes>,
    /// Its lease is over: it closes after the last frame.
    over: bool,
}

struct PoolTask {
    plan: Arc<PoolPlan>,
    clock: Clock,
    producer: Producer,
    sources: PoolSources<Translator>,
    links: BTreeMap<SubscriberId, Link>,
    last_link: u64,
    questions: BTreeMap<Member, mpsc::Sender<SourceRequest>>,
    /// Engines with blocks of unknown parents, as the log has it.
    orphaned: BTreeSet<Member>,
    wake: Arc<Notify>,
    errors: u64,
    /// When the changes so far go out; `None` when there are none.
    batch_due: Option<Instant>,
}

impl PoolTask {
    async fn run(
        mut self,
        mut inputs: mpsc::Receiver<PoolInput>,
        mut news: mpsc::Receiver<SourceMessage>,
    ) {
        loop {
            let wake = self.wake.clone();
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(PoolInput::Shutdown) | None => break,
                    Some(input) => self.take(input),
                },
                Some(message) = news.recv() => {
                    self.hear(message);
                    for _ in 1..BURST {
                        let Ok(message) = news.try_recv() else { break };
                        self.hear(message);
                    }
                }
                () = wake.notified() => {}
                () = self.clock.sleep_until(self.next_due()) => {}
            }
            self.turn();
        }
        let now = self.clock.now();
        let _ = self.producer.drain(now);
        self.flush();
        self.producer.shutdown(now);
        self.flush();
    }

    fn take(&mut self, input: PoolInput) {
        let now = self.clock.now();
        match input {
            PoolInput::Open(frame, answer) => {
                self.last_link += 1;
                let link = SubscriberId::new(self.last_link);
                let (frames, receiver) = mpsc::channel(LINK_FRAMES);
                if answer.send(receiver).is_ok() {
                    let granted = self.producer.handle_frame(link, &frame, now);
                    let over = !matches!(granted, Request::Granted(_));
                    self.links.insert(link, Link { frames, over });
                }
            }
            PoolInput::Expect(member, questions, done) => match self.sources.expect(member, now) {
                Ok(()) => {
                    self.questions.insert(member, questions);
                    let _ = done.send(());
                }
                Err(error) => self.failed(format_args!("{member}: {error}")),
            },
            PoolInput::Forget(member) => {
                // Ends its watcher, too: nobody asks it any more.
                self.questions.remove(&member);
                self.orphaned.remove(&member);
                self.sources.remove(member, now);
            }
            PoolInput::Report(answer) => {
                let _ = answer.send(self.report());
            }
            PoolInput::Shutdown => {}
        }
    }

    /// Step 1 of the sources' loop: what arrived.
    fn hear(&mut self, message: SourceMessage) {
        let (now, sources) = (self.clock.now(), &mut self.sources);
        let SourceMessage { member, generation, what, room: _held } = message;
        if !self.questions.contains_key(&member) {
            return;
        }
        let told = match what {
            SourceNews::Announced => sources.announce(member, generation, now),
            SourceNews::Batch(id, events) => {
                sources.handle_event(member, generation, id, events, now)
            }
            SourceNews::HistoryEnd(request) => Ok(sources.handle_history_end(member, request, now)),
            SourceNews::Latest(request, batches) => {
                Ok(sources.handle_latest(member, request, generation, batches, now))
            }
            SourceNews::Unavailable(request) => {
                Ok(sources.handle_unavailable(member, request, now))
            }
        };
        if let Err(error) = told {
            self.failed(format_args!("{member}: {error}"));
        }
    }

    /// All that the machines have to do or say now.
    fn turn(&mut self) {
        let now = self.clock.now();
        self.sources.handle_timeout(now);
        self.producer.handle_timeout(now);
        while let Some(command) = self.sources.poll_command() {
            let outcome = self.producer.apply(&command);
            if let Some(error) = outcome.error {
                self.failed(error);
                if let Some(member) = command.member() {
                    self.sources.handle_suspect(member, now);
                }
            }
            self.batch_due.get_or_insert(now.saturating_add(self.plan.batch));
        }
        while let Some(question) = self.sources.poll_request() {
            // A source that is busy is asked again after the back-off.
            if let Some(questions) = self.questions.get(&question.member) {
                let _ = questions.try_send(question);
            }
        }
        if self.batch_due.is_some_and(|due| due <= now) {
            self.batch_due = None;
            if let Err(error) = self.producer.publish(now) {
                self.failed(error);
            }
        }
        self.note_events();
        self.flush();
    }

    fn failed(&mut self, what: impl std::fmt::Display) {
        self.errors += 1;
        log_about!(format_args!("pool {}", self.plan.name), "{what}");
    }

    /// Hands frames to the links that have room, and parts with those that are gone.
    fn flush(&mut self) {
        let now = self.clock.now();
        let producer = &mut self.producer;
        self.links.retain(|&link, Link { frames, over }| {
            loop {
                match frames.try_reserve() {
                    Err(mpsc::error::TrySendError::Closed(())) => {
                        producer.handle_disconnected(link, now);
                        return false;
                    }
                    Err(mpsc::error::TrySendError::Full(())) => return true,
                    Ok(room) => match producer.poll_frame(link, now) {
                        Some(frame) => room.send(frame.to_bytes().into()),
                        None => return !*over,
                    },
                }
            }
        });
    }

    fn next_due(&self) -> Option<Instant> {
        let sources = self.sources.poll_timeout().map(|(at, _)| at);
        let producer = self.producer.poll_timeout().map(|(at, _)| at);
        [sources, producer, self.batch_due].into_iter().flatten().min()
    }

    /// Logs what there is to log, and marks links whose lease is over.
    fn note_events(&mut self) {
        let name = &self.plan.name;
        while let Some(notice) = self.sources.poll_notice() {
            match notice {
                SourcesNotice::Ready => log!("pool {name}: ready, {:?}", self.sources.readiness()),
                SourcesNotice::Stream { notice: SourceNotice::Recovered { .. }, .. } => {}
                SourcesNotice::Stream { member, notice } => {
                    // Of an engine whose first blocks were never heard there are many, all alike.
                    let again = match notice {
                        SourceNotice::Orphans { .. } => !self.orphaned.insert(member),
                        SourceNotice::Replaced { .. } => {
                            self.orphaned.remove(&member);
                            false
                        }
                        _ => false,
                    };
                    if !again {
                        log_about!(format_args!("pool {name}: {member}"), "{notice:?}");
                    }
                }
                _ => {}
            }
        }
        let subscribers = format_args!("pool {name}: a subscriber").to_string();
        while let Some(event) = self.producer.poll_event() {
            if let ProducerEvent::Ended { subscriber, .. } = event
                && let Some(link) = self.links.get_mut(&subscriber)
            {
                link.over = true;
            }
            match event {
                ProducerEvent::Ended { end: LeaseEnd::Retired(reason), terms, .. } => {
                    let (consumer, lane) = (terms.consumer, terms.lane);
                    log_about!(&subscribers, "consumer {consumer} lane {lane}: {reason:?}");
                }
                ProducerEvent::Rejected { reason, .. } => {
                    log_about!(&subscribers, "rejected: {reason:?}");
                }
                ProducerEvent::Pool(PoolEvent::OccupancyCrossed {
                    per_mille,
                    suggested_buckets,
                    ..
                }) => {
                    log_about!(
                        format_args!("pool {name}"),
                        "{per_mille} per mille full; {suggested_buckets} buckets would do"
                    );
                }
                ProducerEvent::Pool(event) => log_about!(format_args!("pool {name}"), "{event:?}"),
                _ => {}
            }
        }
    }

    fn report(&self) -> PoolReport {
        let pool = self.producer.pool();
        let members = self.sources.members().filter_map(|member| {
            let stream = self.sources.stream(member)?;
            let blocks = pool.owned_blocks(member);
            Some((member, blocks, stream.state(), stream.front().stats()))
        });
        PoolReport {
            identity: self.producer.identity(),
            sequence: pool.sequence(),
            digest: pool.digest(),
            pool: pool.stats(),
            publish: self.producer.stats(),
            errors: self.errors,
            sources: self.sources.stats(),
            readiness: self.sources.readiness(),
            members: members.collect(),
        }
    }
}
