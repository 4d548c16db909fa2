use std::collections::{BTreeMap, BTreeSet};

use ckf_core::BlockHash;
use ckf_producer::source::{
    BlockChange, Direct, EventId, FullState, PoolSources, PoolSourcesConfig, ReadyRule,
    RequestKind, SourceConfig, SourceGeneration, SourceRequest, SourcesError, StreamState,
};
use ckf_producer::{Command, Member};
use ckf_protocol::{Instant, Millis};

use super::Choices;

const MEMBERS: [Member; 3] =
    [Member::new(0, 0), Member::new(0, u32::MAX), Member::new(u64::MAX, 7)];
/// Limits of what waits: in a stream, and in all together.
const QUEUE: (u32, u64) = (4, 600);
const POOL_QUEUE: (usize, u64) = (9, 1200);

/// The streams of a pool under events, gaps, repetitions, restarts, removals, late, short and
/// missing answers, in time that jumps and goes back. Where a stream claims to know its member's
/// state, it does, whatever was lost before; queues keep their bounds; and every recovery comes to
/// an end, with answers in the true state, without them at its deadline.
pub fn source_ops(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut bench = Bench::new(&mut choices);
    while !choices.is_empty() {
        bench.step(&mut choices);
        bench.check();
    }
    let mut silent = bench.clone();
    silent.fall_silent();
    bench.calm_down();
}

/// One life of a source: what it published, and its state after each event.
#[derive(Clone, Default)]
struct Life {
    events: Vec<Vec<BlockChange>>,
    states: Vec<BTreeSet<BlockHash>>,
}

impl Life {
    fn state(&self, published: usize) -> BTreeSet<BlockHash> {
        published.checked_sub(1).map_or_else(BTreeSet::new, |last| self.states[last].clone())
    }

    fn publish(&mut self, changes: Vec<BlockChange>) {
        let mut state = self.state(self.states.len());
        for change in &changes {
            match change {
                BlockChange::Store(hashes) => state.extend(hashes),
                BlockChange::Remove(hashes) => state.retain(|held| !hashes.contains(held)),
                BlockChange::Clear => state.clear(),
            }
        }
        self.events.push(changes);
        self.states.push(state);
    }
}

#[derive(Clone)]
struct Bench {
    sources: PoolSources<Direct>,
    /// Id of the first event of every life.
    first: u64,
    lives: BTreeMap<Member, Vec<Life>>,
    /// Events on the way: member, life, index.
    network: Vec<(Member, usize, usize)>,
    /// Questions on the way, with what their life had published when they were asked.
    questions: Vec<(SourceRequest, usize)>,
    held: BTreeMap<Member, BTreeSet<BlockHash>>,
    /// Generation and last event that were applied, of streams that are there.
    applied: BTreeMap<Member, (Option<SourceGeneration>, Option<EventId>)>,
    /// The generation in which members left that nobody announced since.
    left: BTreeMap<Member, SourceGeneration>,
    now: Instant,
    /// Events that a source keeps for replay.
    retention: usize,
}

fn generation(life: usize) -> SourceGeneration {
    SourceGeneration::new(life as u64)
}

impl Bench {
    fn new(choices: &mut Choices<'_>) -> Self {
        let (first, known) = match choices.byte() % 4 {
            0 => (0, true),
            1 => (1000, false),
            // Numbers end soon.
            2 => (u64::MAX - 8, true),
            _ => (u64::MAX - 8, false),
        };
        let stream = SourceConfig::new(u64::from(choices.byte()))
            .with_first_event(known.then_some(EventId::new(first)))
            .with_max_history(choices.below(8) as u64)
            .with_queue(QUEUE.0, QUEUE.1)
            .and_then(|config| config.with_max_command_bytes(300))
            .and_then(|config| config.with_back_off(Millis::new(10), Millis::new(80)))
            .and_then(|config| config.with_deadline(Millis::new(500)))
            .expect("legal limits");
        let rule = ReadyRule::new(60, Millis::new(1000)).expect("a share");
        let config = PoolSourcesConfig::new(stream, rule)
            .with_max_members(MEMBERS.len())
            .and_then(|config| config.with_max_queued(POOL_QUEUE.0, POOL_QUEUE.1))
            .expect("legal limits");
        Self {
            sources: PoolSources::new(config, Direct, Instant::ZERO),
            first,
            lives: MEMBERS.map(|member| (member, vec![Life::default()])).into(),
            network: Vec::new(),
            questions: Vec::new(),
            held: BTreeMap::new(),
            applied: BTreeMap::new(),
            left: BTreeMap::new(),
            now: Instant::ZERO,
            retention: 1 + choices.below(12),
        }
    }

    /// The current life of a member, and its number.
    fn life(&mut self, member: Member) -> (usize, &mut Life) {
        let lives = self.lives.get_mut(&member).expect("every member has lives");
        let number = lives.len() - 1;
        (number, &mut lives[number])
    }

    /// The last of so many events; `None` of none.
    fn last_id(&self, published: usize) -> Option<EventId> {
        Some(EventId::new(self.first + published.checked_sub(1)? as u64))
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let op = choices.byte();
        let member = MEMBERS[choices.below(MEMBERS.len())];
        let now = self.now;
        match op % 16 {
            0..3 => self.publish(member, choices),
            3..6 => {
                // Mostly in order.
                let pick = choices.below(4 * self.network.len().max(1));
                let pick = if pick < self.network.len() { pick } else { 0 };
                if pick < self.network.len() {
                    let (member, life, index) = self.network.remove(pick);
                    self.hand(member, life, index);
                }
            }
            6 if !self.network.is_empty() => {
                let (member, life, index) = self.network[choices.below(self.network.len())];
                self.hand(member, life, index);
            }
            7 if !self.network.is_empty() => {
                self.network.remove(choices.below(self.network.len()));
            }
            8 => self.heartbeat(member),
            9 => match choices.byte() % 8 {
                0 => self.lives.get_mut(&member).expect("lives").push(Life::default()),
                1 => {
                    self.bounded(|sources| sources.expect(member, now));
                    self.left.remove(&member);
                }
                2 => {
                    self.note_leaver(member);
                    self.sources.remove(member, now);
                }
                3 => {
                    let of_worker = |other: &Member| other.worker == member.worker;
                    MEMBERS.into_iter().filter(of_worker).for_each(|m| self.note_leaver(m));
                    self.sources.remove_worker(member.worker, now);
                }
                4 => {
                    self.sources.handle_suspect(member, now);
                }
                _ => {
                    let (life, _) = self.life(member);
                    self.bounded(|sources| sources.announce(member, generation(life), now));
                    self.left.remove(&member);
                }
            },
            10 => self.ask(),
            11 | 12 if !self.questions.is_empty() => {
                // By the life that is there now, of what there is now.
                let pick = choices.below(self.questions.len());
                let (request, _) = self.questions.swap_remove(pick);
                let (life, source) = self.life(request.member);
                let published = source.events.len();
                let most = choices.below(8);
                self.answer(request, life, published, most, choices.byte().is_multiple_of(2));
            }
            13 if !self.questions.is_empty() => {
                // As it was asked, or from a copy that is a little behind; perhaps again later.
                let (request, published) = self.questions[choices.below(self.questions.len())];
                let published = published.saturating_sub(choices.below(8).saturating_sub(4));
                let life = request.generation.get() as usize;
                self.answer(request, life, published, usize::MAX, true);
            }
            14 if !self.questions.is_empty() => {
                let pick = choices.below(self.questions.len());
                let (request, _) = self.questions.swap_remove(pick);
                self.sources.handle_unavailable(request.member, request.id, now);
            }
            _ => {
                let millis = u64::from(choices.u16());
                self.now = self.now.saturating_add(Millis::new(millis % 700));
                // Now and then the clock goes back.
                let now = if millis > 60_000 { Instant::from_millis(millis) } else { self.now };
                self.sources.handle_timeout(now);
            }
        }
        // A host may be late.
        if op < 224 {
            self.drain();
        }
    }

    fn publish(&mut self, member: Member, choices: &mut Choices<'_>) {
        let room = (u64::MAX - self.first) as usize;
        let mut changes = Vec::new();
        for _ in 0..choices.byte() % 3 {
            let (kind, count) = (choices.byte() % 8, choices.below(4));
            let mut block = || match choices.byte() % 13 {
                12 => BlockHash::new(u64::MAX),
                number => BlockHash::new(number.into()),
            };
            let hashes = (0..count).map(|_| block()).collect();
            changes.push(match kind {
                0 => BlockChange::Clear,
                1..4 => BlockChange::Remove(hashes),
                _ => BlockChange::Store(hashes),
            });
        }
        let (life, source) = self.life(member);
        if source.events.len() <= room {
            source.publish(changes);
            let index = source.events.len() - 1;
            self.network.push((member, life, index));
        }
    }

    fn hand(&mut self, member: Member, life: usize, index: usize) {
        let event = self.lives[&member][life].events[index].clone();
        let (id, now) = (EventId::new(self.first + index as u64), self.now);
        self.bounded(|sources| sources.handle_event(member, generation(life), id, event, now));
    }

    fn heartbeat(&mut self, member: Member) {
        let (life, source) = self.life(member);
        let published = source.events.len();
        let (last, now) = (self.last_id(published), self.now);
        self.bounded(|sources| sources.handle_heartbeat(member, generation(life), last, now));
    }

    fn note_leaver(&mut self, member: Member) {
        let stream = self.sources.stream(member);
        if let Some(generation) = stream.and_then(|stream| stream.generation()) {
            self.left.insert(member, generation);
        }
        self.applied.remove(&member);
    }

    /// A call that may be refused for want of room, and for nothing else.
    fn bounded<T>(
        &mut self,
        call: impl FnOnce(&mut PoolSources<Direct>) -> Result<T, SourcesError>,
    ) {
        let refused = call(&mut self.sources).err();
        assert!(matches!(refused, None | Some(SourcesError::TooManyMembers { .. })), "{refused:?}");
    }

    fn ask(&mut self) {
        while let Some(request) = self.sources.poll_request() {
            let life = &self.lives[&request.member][request.generation.get() as usize];
            self.questions.push((request, life.events.len()));
        }
    }

    /// The answer of a life that has published so many events: at most `most` events of history,
    /// then perhaps the end of it.
    fn answer(
        &mut self,
        request: SourceRequest,
        life: usize,
        published: usize,
        most: usize,
        end: bool,
    ) {
        let member = request.member;
        match request.kind {
            RequestKind::History { from, to } => {
                assert!(from <= to && from.get() >= self.first);
                let oldest = published.saturating_sub(self.retention);
                let from = ((from.get() - self.first) as usize).max(oldest);
                for index in (from..published).take(most) {
                    self.hand(member, life, index);
                }
                if end {
                    self.sources.handle_history_end(member, request.id, self.now);
                }
            }
            RequestKind::FullState => {
                let held = self.lives[&member][life].state(published);
                let content = vec![BlockChange::Store(held.into_iter().collect())];
                let as_of = self.last_id(published);
                let state = FullState { generation: generation(life), as_of, content };
                self.sources.handle_full_state(member, request.id, state, self.now);
            }
            other => panic!("unknown question {other:?}"),
        }
    }

    /// What the pool would hold.
    fn drain(&mut self) {
        while let Some(command) = self.sources.poll_command() {
            match command {
                Command::Store { member, hashes } => {
                    self.held.entry(member).or_default().extend(hashes);
                }
                Command::Remove { member, hashes } => {
                    self.held.entry(member).or_default().retain(|held| !hashes.contains(held));
                }
                Command::ClearMember { member } => {
                    self.held.remove(&member);
                }
                Command::RemoveWorker { worker } => {
                    self.held.retain(|member, _| member.worker != worker);
                }
                Command::ReplaceMember { member, hashes } => {
                    self.held.insert(member, hashes.into_iter().collect());
                }
                other => panic!("stage 1 does not say {other:?}"),
            }
        }
        for (member, held) in &self.held {
            if self.sources.stream(*member).is_none() {
                assert!(held.is_empty(), "{member} is gone");
            }
        }
        for member in self.sources.members() {
            self.check_held(member);
        }
    }

    /// Where a stream claims to know the state, it does.
    fn check_held(&self, member: Member) {
        let Some(stream) = self.sources.stream(member) else { return };
        let empty = BTreeSet::new();
        let held = self.held.get(&member).unwrap_or(&empty);
        let Some(life) = stream.generation() else {
            assert!(held.is_empty(), "{member} was never heard of");
            return;
        };
        match stream.state() {
            StreamState::Live | StreamState::Recovering { doubt: None } => {
                let applied = stream.applied().map_or(0, |id| id.get() - self.first + 1);
                let truth = self.lives[&member][life.get() as usize].state(applied as usize);
                assert_eq!(held, &truth, "{member} as of {:?}", stream.applied());
            }
            StreamState::Failed => assert!(held.is_empty(), "{member} failed"),
            _ => {}
        }
    }

    fn check(&mut self) {
        let mut sum = (0, 0);
        for member in self.sources.members() {
            let stream = self.sources.stream(member).expect("it is there");
            let (events, bytes) = stream.queued();
            assert!(events <= QUEUE.0 as usize && bytes <= QUEUE.1);
            sum = (sum.0 + events, sum.1 + bytes);
            let at = (stream.generation(), stream.applied());
            let before = self.applied.insert(member, at);
            assert!(before <= Some(at), "{member} went back from {before:?} to {at:?}");
            if let Some(left) = self.left.remove(&member) {
                assert!(stream.generation() > Some(left), "late data brought {member} back");
            }
            let recovering = matches!(stream.state(), StreamState::Recovering { .. });
            assert_eq!(stream.poll_timeout().is_some(), recovering);
        }
        assert_eq!(sum, self.sources.queued());
        assert!(sum.0 <= POOL_QUEUE.0 && sum.1 <= POOL_QUEUE.1);
        assert!(self.sources.members().count() <= MEMBERS.len());
        let readiness = self.sources.readiness();
        assert!(readiness.recovered <= readiness.expected);
    }

    /// Nobody answers any more: every recovery fails at its deadline and says so.
    fn fall_silent(&mut self) {
        self.drain();
        let recovering = |bench: &Self| {
            let state = |member| bench.sources.stream(member).map(|stream| stream.state());
            let states = MEMBERS.map(state).into_iter().flatten();
            states.filter(|state| matches!(state, StreamState::Recovering { .. })).count() as u64
        };
        let (open, failed) = (recovering(self), self.sources.stats().failures);
        for calls in 0.. {
            let Some((due, _)) = self.sources.poll_timeout() else { break };
            assert!(calls < 300, "no end of waiting");
            self.now = self.now.latest(due);
            self.sources.handle_timeout(self.now);
            self.drain();
            self.check();
        }
        assert_eq!(recovering(self), 0);
        assert_eq!(self.sources.stats().failures - failed, open);
    }

    /// What is on the way arrives, every question is answered: the streams end in the true states of
    /// their sources, after few questions.
    fn calm_down(&mut self) {
        self.drain();
        for (member, life, index) in core::mem::take(&mut self.network) {
            self.hand(member, life, index);
            self.drain();
        }
        for member in MEMBERS {
            let (life, source) = self.life(member);
            if source.events.is_empty() {
                // Numbering that starts anywhere says nothing before it starts.
                source.publish(Vec::new());
            }
            let now = self.now;
            self.bounded(|sources| sources.announce(member, generation(life), now));
            self.left.remove(&member);
            self.heartbeat(member);
        }
        for rounds in 0.. {
            assert!(rounds < 60, "no end of questions");
            self.drain();
            self.check();
            self.questions.clear();
            self.ask();
            for (request, published) in core::mem::take(&mut self.questions) {
                let life = request.generation.get() as usize;
                self.answer(request, life, published, usize::MAX, true);
            }
            let live = |stream: &ckf_producer::source::SourceStream<Direct>| {
                stream.state() == StreamState::Live
            };
            if MEMBERS.iter().all(|member| self.sources.stream(*member).is_some_and(live)) {
                break;
            }
            if let Some((due, _)) = self.sources.poll_timeout() {
                self.now = self.now.latest(due);
                self.sources.handle_timeout(self.now);
            }
            // Sources go on telling that they are there.
            MEMBERS.into_iter().for_each(|member| self.heartbeat(member));
        }
        self.drain();
        for member in MEMBERS {
            let (life, source) = self.life(member);
            let (published, truth) = (source.events.len(), source.state(source.events.len()));
            let stream = self.sources.stream(member).expect("it was announced");
            assert_eq!(stream.generation(), Some(generation(life)));
            assert_eq!(stream.applied(), self.last_id(published));
            assert_eq!(self.held.get(&member).cloned().unwrap_or_default(), truth);
        }
    }
}
