//! A system to be explored: one shipped producer, some shipped sessions, and a network that
//! misbehaves a bounded number of times. `tests/model.rs` walks through all its states; a fuzz
//! target walks long ways through larger ones.
//!
//! A frame that is not meddled with goes from one machine straight into the other; delay is the
//! frame staying unpolled. A mishap loses a frame, keeps a copy of it back, or holds the frame
//! itself back; what is kept or held may be delivered at any later time, also after a crash of
//! either side. That is every loss, duplication and reordering of up to the budgeted number of
//! frames.
//!
//! Each machine has its own clock, which stands still except when a timeout is explored: then all
//! that is due on that machine happens. So no behaviour depends on a point in time, and points in
//! time are no part of the state.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::scenario::{self, Session, hashes};
use ckf_consumer::{Handled, SessionState};
use ckf_producer::{Command, Member, Producer, PublishConfig, SubscriberId};
use ckf_protocol::{DcId, Epoch, Incarnation, Instant, Limits, Millis, Sequence, peek_header};

/// Sizes of a system.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Consumers, one lane each.
    pub consumers: usize,
    /// Losses, duplications, reorderings, crashes, disconnections and early timeouts in all.
    pub mishaps: u8,
    /// Of these, crashes and disconnections at most.
    pub crashes: u8,
    /// Buckets of a chunk, of 4.
    pub chunk: u32,
    /// Patches of a delta.
    pub images: u32,
    /// Messages of an outbox.
    pub outbox: u32,
}

/// What the network may do to the next frame, besides delivering it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meddling {
    /// Drop it.
    Lose,
    /// Deliver it and keep a copy for later.
    Copy,
    /// Keep it for later, so that others overtake it.
    Hold,
}

/// One step of the system. Numbers name a consumer, and a kept frame of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next command of the script.
    Command,
    /// A batch.
    Publish,
    /// The producer's next frame for a consumer.
    Down(usize, Option<Meddling>),
    /// A consumer's next frame.
    Up(usize, Option<Meddling>),
    /// A frame kept on the way down arrives.
    ReleaseDown(usize, usize),
    /// A frame kept on the way up arrives.
    ReleaseUp(usize, usize),
    /// All that is due at the producer, and more: an hour passes.
    ProducerTimeout,
    /// The next deadline of a session passes.
    SessionTimeout(usize),
    /// A connection breaks and both sides hear of it.
    Disconnect(usize),
    /// The producer starts anew from its sources; nobody is told.
    CrashProducer,
    /// A consumer starts anew; the producer is not told.
    CrashConsumer(usize),
}

/// A consumer with its link to the producer.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Its lane.
    pub session: Session,
    now: Instant,
    /// Process starts so far: each is another consumer instance.
    starts: u64,
    link: u64,
    kept_down: Vec<Vec<u8>>,
    kept_up: Vec<Vec<u8>>,
}

/// The whole system.
#[derive(Clone, Debug)]
pub struct World {
    bounds: Bounds,
    script: Arc<[Command]>,
    /// The producer.
    pub producer: Producer,
    now: Instant,
    executed: usize,
    incarnation: u64,
    /// The consumers.
    pub readers: Vec<Reader>,
    mishaps: u8,
    crashes: u8,
    /// The published words of every batch of every life of the producer.
    history: BTreeMap<(Incarnation, Sequence), Vec<u64>>,
    /// A frame on another lease than the current one changed a word or opened a lane.
    pub foreign_effect: bool,
}

const DC: u64 = 7;
const BUCKETS: u32 = 4;

/// Up to five commands that fill the four buckets, share blocks, relocate and empty them again.
pub fn script(commands: usize) -> Arc<[Command]> {
    let (a, b) = (Member::new(1, 0), Member::new(2, 0));
    let all = [
        Command::Store { member: a, hashes: hashes(0..6) },
        Command::Store { member: b, hashes: hashes(4..9) },
        Command::Remove { member: a, hashes: hashes(0..3) },
        Command::ReplaceMember { member: b, hashes: hashes([8, 20, 21]) },
        Command::ClearMember { member: a },
    ];
    all.into_iter().take(commands).collect()
}

fn new_producer(incarnation: u64, bounds: &Bounds) -> Producer {
    let limits = Limits::new(256, bounds.images, bounds.chunk).expect("legal limits");
    let config = PublishConfig::new(limits)
        .with_outbox(bounds.outbox, 1 << 20)
        .and_then(|config| config.with_heartbeat(Millis::new(1)))
        .expect("not 0");
    scenario::producer(DC, incarnation, scenario::format(BUCKETS), config)
}

impl Reader {
    fn new(index: usize, starts: u64) -> Self {
        let consumer = 100 * (index as u64 + 1) + starts;
        let format = scenario::format(BUCKETS);
        let mut session =
            scenario::session(consumer, index as u8, format, scenario::quick_session());
        session.assign(DcId::new(DC), Epoch::new(1), Instant::ZERO).expect("a first epoch");
        Self {
            session,
            now: Instant::ZERO,
            starts,
            link: index as u64 * 100,
            kept_down: Vec::new(),
            kept_up: Vec::new(),
        }
    }

    /// The producer's name for its connection.
    pub fn link(&self) -> SubscriberId {
        SubscriberId::new(self.link)
    }

    fn next_up(&mut self) -> Option<Vec<u8>> {
        self.session.poll_transmit()
    }

    /// Hands a frame to the session. Returns whether it had an effect that it must not have.
    fn receive(&mut self, frame: &[u8]) -> bool {
        let known = peek_header(frame, &Limits::default()).ok().and_then(|header| header.lease());
        let current = self.session.lease();
        let (stores, ready) = (self.session.store().stores(), self.session.store().is_ready());
        let handled = self.session.handle_frame(frame, self.now);
        let accepted = matches!(handled, Handled::Installing);
        let foreign = known.is_none() || known != current && !accepted;
        let touched =
            self.session.store().stores() != stores || self.session.store().is_ready() != ready;
        foreign && touched
    }
}

impl World {
    /// A system in which nothing has happened yet: every consumer is about to subscribe.
    pub fn new(bounds: &Bounds, script: Arc<[Command]>) -> Self {
        let mut world = Self {
            bounds: *bounds,
            script,
            producer: new_producer(1, bounds),
            now: Instant::ZERO,
            executed: 0,
            incarnation: 1,
            readers: (0..bounds.consumers).map(|index| Reader::new(index, 0)).collect(),
            mishaps: bounds.mishaps,
            crashes: bounds.crashes,
            history: BTreeMap::new(),
            foreign_effect: false,
        };
        world.record();
        world
    }

    fn record(&mut self) {
        let pool = self.producer.pool();
        let words = pool.published_words(0..BUCKETS).expect("the whole table").collect();
        let key = (self.producer.identity().incarnation, pool.sequence());
        self.history.insert(key, words);
    }

    fn dirty(&self) -> bool {
        self.producer.pool().stats().dirty_buckets > 0
    }

    /// Everything that can happen next.
    pub fn actions(&self, actions: &mut Vec<Action>) {
        if self.executed < self.script.len() {
            actions.push(Action::Command);
        }
        if self.dirty() {
            actions.push(Action::Publish);
        }
        let meddled = [Meddling::Lose, Meddling::Copy, Meddling::Hold].map(Some);
        for (i, reader) in self.readers.iter().enumerate() {
            let waits_up = reader.clone().next_up().is_some();
            let waits_down = self.producer.has_frames(reader.link());
            if waits_down {
                actions.push(Action::Down(i, None));
            }
            if waits_up {
                actions.push(Action::Up(i, None));
            }
            if self.mishaps > 0 {
                if waits_down {
                    actions.extend(meddled.map(|how| Action::Down(i, how)));
                }
                if waits_up {
                    actions.extend(meddled.map(|how| Action::Up(i, how)));
                }
                if self.crashes > 0 {
                    actions.push(Action::Disconnect(i));
                    actions.push(Action::CrashConsumer(i));
                }
            }
            actions.extend((0..reader.kept_down.len()).map(|k| Action::ReleaseDown(i, k)));
            actions.extend((0..reader.kept_up.len()).map(|k| Action::ReleaseUp(i, k)));
            if !waits_up && (self.mishaps > 0 || self.is_stuck(reader, waits_down)) {
                actions.push(Action::SessionTimeout(i));
            }
        }
        if self.producer.poll_timeout().is_some() && (self.mishaps > 0 || self.ticks_freely()) {
            actions.push(Action::ProducerTimeout);
        }
        if self.mishaps > 0 && self.crashes > 0 {
            actions.push(Action::CrashProducer);
        }
    }

    /// Whether only time can help this reader, so that its timeout is no mishap.
    fn is_stuck(&self, reader: &Reader, waits_down: bool) -> bool {
        let lease = self.producer.lease(reader.link()).map(|terms| terms.lease);
        match reader.session.state() {
            SessionState::BackingOff => true,
            SessionState::Unassigned => false,
            SessionState::Subscribing => !waits_down,
            SessionState::Installing | SessionState::Ready => {
                !waits_down && lease != reader.session.lease()
            }
        }
    }

    /// Whether a timeout of the producer does nothing but heartbeats.
    fn ticks_freely(&self) -> bool {
        self.producer.stats().snapshots_running == 0
            && self.readers.iter().all(|reader| !self.producer.has_frames(reader.link()))
    }

    fn mishap(&mut self) {
        self.mishaps = self.mishaps.saturating_sub(1);
    }

    fn crash(&mut self) {
        self.mishap();
        self.crashes = self.crashes.saturating_sub(1);
    }

    /// Takes one step.
    pub fn step(&mut self, action: Action) {
        match action {
            Action::Command => {
                self.producer.apply(&self.script[self.executed]);
                self.executed += 1;
            }
            Action::Publish => {
                self.producer.publish(self.now).expect("numbers last");
                self.record();
            }
            Action::Down(i, how) => {
                if how.is_some() {
                    self.mishap();
                }
                let link = self.readers[i].link();
                let frame = self.producer.poll_frame(link, self.now).map(|frame| frame.to_bytes());
                if let Some(frame) = frame {
                    self.down(i, frame, how);
                }
            }
            Action::Up(i, how) => {
                if how.is_some() {
                    self.mishap();
                }
                if let Some(frame) = self.readers[i].next_up() {
                    self.up(i, frame, how);
                }
            }
            Action::ReleaseDown(i, k) => {
                let frame = self.readers[i].kept_down.remove(k);
                self.down(i, frame, None);
            }
            Action::ReleaseUp(i, k) => {
                let frame = self.readers[i].kept_up.remove(k);
                self.up(i, frame, None);
            }
            Action::ProducerTimeout => {
                if !self.ticks_freely() {
                    self.mishap();
                }
                self.now = self.now.saturating_add(Millis::from_secs(3600));
                self.producer.handle_timeout(self.now);
            }
            Action::SessionTimeout(i) => {
                let waits_down = self.producer.has_frames(self.readers[i].link());
                if !self.is_stuck(&self.readers[i], waits_down) {
                    self.mishap();
                }
                let reader = &mut self.readers[i];
                if let Some((due, _)) = reader.session.poll_timeout() {
                    reader.now = reader.now.latest(due);
                    reader.session.handle_timeout(reader.now);
                }
            }
            Action::Disconnect(i) => {
                self.crash();
                let (now, reader) = (self.now, &mut self.readers[i]);
                self.producer.handle_disconnected(reader.link(), now);
                reader.session.handle_disconnected(reader.now);
                reader.link += 1;
            }
            Action::CrashProducer => {
                self.crash();
                self.incarnation += 1;
                self.producer = new_producer(self.incarnation, &self.bounds);
                for command in &self.script[..self.executed] {
                    self.producer.apply(command);
                }
                self.record();
            }
            Action::CrashConsumer(i) => {
                // The link stays: the producer hears of nothing.
                self.crash();
                let old = &self.readers[i];
                let mut new = Reader::new(i, old.starts + 1);
                new.link = old.link;
                new.kept_down = old.kept_down.clone();
                new.kept_up = old.kept_up.clone();
                self.readers[i] = new;
            }
        }
    }

    fn down(&mut self, i: usize, frame: Vec<u8>, how: Option<Meddling>) {
        let reader = &mut self.readers[i];
        if !matches!(how, Some(Meddling::Lose | Meddling::Hold)) {
            self.foreign_effect |= reader.receive(&frame);
        }
        if matches!(how, Some(Meddling::Copy | Meddling::Hold)) {
            reader.kept_down.push(frame);
            reader.kept_down.sort_unstable();
        }
    }

    fn up(&mut self, i: usize, frame: Vec<u8>, how: Option<Meddling>) {
        let reader = &mut self.readers[i];
        if !matches!(how, Some(Meddling::Lose | Meddling::Hold)) {
            let _ = self.producer.handle_frame(reader.link(), &frame, self.now);
        }
        if matches!(how, Some(Meddling::Copy | Meddling::Hold)) {
            reader.kept_up.push(frame);
            reader.kept_up.sort_unstable();
        }
    }

    /// Whether every ready lane holds what the producer published as the batch that it names.
    pub fn ready_lanes_are_exact(&self) -> bool {
        self.readers.iter().all(|reader| {
            let Some((identity, sequence)) = reader.session.position() else { return true };
            if !reader.session.is_between_batches() {
                return true;
            }
            let words = self.history.get(&(identity.incarnation, sequence));
            words.is_some_and(|words| words == reader.session.store().words())
        })
    }

    /// Whether sessions and what queries see agree on which lanes are ready.
    pub fn readiness_agrees(&self) -> bool {
        self.readers.iter().all(|reader| {
            let ready = reader.session.state() == SessionState::Ready;
            ready == reader.session.store().is_ready()
        })
    }

    /// Whether every lane is ready at the producer's last batch.
    pub fn converged(&self) -> bool {
        self.readers.iter().all(|reader| scenario::converged(&self.producer, &reader.session))
    }

    /// From here on nothing is lost and time passes: does every lane come to hold what the
    /// producer has published last, in a bounded number of rounds?
    pub fn recovers(&self) -> bool {
        let mut world = self.clone();
        if world.dirty() {
            world.step(Action::Publish);
        }
        for _ in 0..20 {
            world.settle();
            if world.converged() {
                return true;
            }
            world.now = world.now.saturating_add(Millis::new(1));
            world.producer.handle_timeout(world.now);
            world.settle();
            for i in 0..world.readers.len() {
                if !scenario::converged(&world.producer, &world.readers[i].session) {
                    world.step(Action::SessionTimeout(i));
                }
            }
        }
        false
    }

    /// Delivers everything there is.
    fn settle(&mut self) {
        for i in 0..self.readers.len() {
            while !self.readers[i].kept_down.is_empty() {
                self.step(Action::ReleaseDown(i, 0));
            }
            while !self.readers[i].kept_up.is_empty() {
                self.step(Action::ReleaseUp(i, 0));
            }
            loop {
                if let Some(frame) = self.readers[i].next_up() {
                    self.up(i, frame, None);
                } else if self.producer.has_frames(self.readers[i].link()) {
                    self.step(Action::Down(i, None));
                } else {
                    break;
                }
            }
        }
    }

    /// Whether all commands are executed.
    pub fn is_through(&self) -> bool {
        self.executed == self.script.len()
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.executed, self.incarnation, self.mishaps, self.crashes).hash(state);
        self.foreign_effect.hash(state);
        self.history.hash(state);
        self.producer.fingerprint(state);
        for reader in &self.readers {
            reader.session.fingerprint(state);
            (reader.starts, reader.link, &reader.kept_down, &reader.kept_up).hash(state);
        }
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        let digest = |world: &Self| {
            let mut hasher = DefaultHasher::new();
            world.hash(&mut hasher);
            hasher.finish()
        };
        digest(self) == digest(other)
    }
}
