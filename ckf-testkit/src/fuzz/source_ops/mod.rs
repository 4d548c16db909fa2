//! Stage 1 of a pool.

mod checks;
mod model;

use std::collections::BTreeMap;

use ckf_core::BlockHash;
use ckf_producer::source::{
    BlockChange, Doubt, EventId, FullState, Handled, PoolSources, PoolSourcesConfig, ReadyRule,
    RequestKind, SourceConfig, SourceGeneration, SourceRequest, SourceStream, SourcesError,
    StreamState,
};
use ckf_producer::{Command, Member};
use ckf_protocol::{Instant, Millis};

use self::model::{Blocks, Follower, Life, Told};
use super::Choices;

const MEMBERS: [Member; 3] =
    [Member::new(0, 0), Member::new(0, u32::MAX), Member::new(u64::MAX, 7)];
/// Limits of what waits: in a stream, and in all together.
const QUEUE: (u32, u64) = (4, 600);
const POOL_QUEUE: (usize, u64) = (9, 1200);

/// The streams of a pool under events, gaps, orphans, repetitions, restarts, removals, late, short
/// and missing answers of sources with and without full states, in time that jumps and goes back.
/// Nothing is ever held that the source does not hold as of the last event applied; where a stream
/// claims to know the state, only orphans, and what latest events could not tell, are missing; orphans
/// cost nothing that is held; queues keep their bounds; and every recovery comes to an end.
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

/// What sources tell when they are asked for their full state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tells {
    State,
    /// The latest events. Each bit that is set makes one of them unreadable, beginning with the last.
    Latest {
        holes: u8,
    },
    Nothing,
}

#[derive(Clone)]
struct Bench {
    sources: PoolSources<Follower>,
    /// Id of the first event of every life.
    first: u64,
    lives: BTreeMap<Member, Vec<Life>>,
    /// Events on the way: member, life, index.
    network: Vec<(Member, usize, usize)>,
    /// Questions on the way, with what their life had published when they were asked.
    questions: Vec<(SourceRequest, usize)>,
    held: BTreeMap<Member, Blocks>,
    /// Generation and last event that were applied, of streams that are there.
    applied: BTreeMap<Member, (Option<SourceGeneration>, Option<EventId>)>,
    /// The generation in which members left that nobody announced since.
    left: BTreeMap<Member, SourceGeneration>,
    now: Instant,
    /// Events that a source keeps for replay.
    retention: usize,
    tells: Tells,
}

fn told(
    life: usize,
    published: usize,
    parent: Option<BlockHash>,
    changes: Vec<BlockChange>,
) -> Told {
    Told { life, published, whole: false, parent, changes }
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
        let keeps = choices.byte();
        Self {
            sources: PoolSources::new(config, Follower::default(), Instant::ZERO),
            first,
            lives: MEMBERS.map(|member| (member, vec![Life::default()])).into(),
            network: Vec::new(),
            questions: Vec::new(),
            held: BTreeMap::new(),
            applied: BTreeMap::new(),
            left: BTreeMap::new(),
            now: Instant::ZERO,
            retention: 1 + usize::from(keeps % 12),
            tells: match keeps / 12 % 4 {
                0 | 1 => Tells::State,
                2 => Tells::Latest { holes: 0 },
                _ => Tells::Nothing,
            },
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
                    self.call(|sources| sources.remove(member, now));
                }
                3 => {
                    let of_worker = |other: &Member| other.worker == member.worker;
                    MEMBERS.into_iter().filter(of_worker).for_each(|m| self.note_leaver(m));
                    self.call(|sources| sources.remove_worker(member.worker, now));
                }
                4 => {
                    self.call(|sources| sources.handle_suspect(member, now));
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
                let (most, how) = (choices.below(8), choices.byte());
                self.tells = match how % 8 {
                    1 | 3 => Tells::Latest { holes: how / 8 },
                    5 => Tells::Nothing,
                    _ => Tells::State,
                };
                self.answer(request, life, published, most, how.is_multiple_of(2));
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
                self.call(|sources| sources.handle_unavailable(request.member, request.id, now));
            }
            _ => {
                let millis = u64::from(choices.u16());
                self.now = self.now.saturating_add(Millis::new(millis % 700));
                // Now and then the clock goes back.
                let now = if millis > 60_000 { Instant::from_millis(millis) } else { self.now };
                self.call(|sources| sources.handle_timeout(now));
            }
        }
        // A host may be late.
        if op < 224 {
            self.drain();
        }
    }

    fn publish(&mut self, member: Member, choices: &mut Choices<'_>) {
        let room = (u64::MAX - self.first) as usize;
        let (mut changes, shape) = (Vec::new(), choices.byte());
        let parent = (shape / 3 % 16).checked_sub(6).map(|number| BlockHash::new(number.into()));
        for _ in 0..shape % 3 {
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
            source.publish(told(life, source.events.len() + 1, parent, changes));
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
        call: impl FnOnce(&mut PoolSources<Follower>) -> Result<T, SourcesError>,
    ) {
        let refused = self.call(call).err();
        assert!(matches!(refused, None | Some(SourcesError::TooManyMembers { .. })), "{refused:?}");
    }

    /// Any call. Of a stream with no doubt but orphans it takes nothing, unless the source or a full
    /// state says so.
    fn call<T>(&mut self, call: impl FnOnce(&mut PoolSources<Follower>) -> T) -> T {
        let losses = |stream: &SourceStream<Follower>| {
            let stats = stream.stats();
            (stats.started_over, stats.failures, stats.replacements)
        };
        let streams = MEMBERS.map(|member| self.sources.stream(member).cloned());
        let result = call(&mut self.sources);
        for before in streams.into_iter().flatten() {
            let orphans = StreamState::Recovering { doubt: Some(Doubt::Orphans) };
            if let Some(after) = self.sources.stream(before.member())
                && before.state() == orphans
                && before.generation() == after.generation()
            {
                assert_eq!(losses(&before), losses(after), "orphans cost {}", before.member());
            }
        }
        result
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
                    let now = self.now;
                    self.call(|sources| sources.handle_history_end(member, request.id, now));
                }
            }
            RequestKind::FullState => match self.tells {
                Tells::State => self.tell_state(request, life, published),
                Tells::Latest { holes } => {
                    let oldest = published.saturating_sub(self.retention);
                    let readable = |index: &usize| {
                        holes.checked_shr((published - 1 - index) as u32).unwrap_or(0) & 1 == 0
                    };
                    let events = (oldest..published).filter(readable).collect();
                    self.tell_latest(request, life, events);
                }
                Tells::Nothing => self.tell_latest(request, life, Vec::new()),
            },
            other => panic!("unknown question {other:?}"),
        }
    }

    fn tell_state(&mut self, request: SourceRequest, life: usize, published: usize) {
        let (held, _) = self.lives[&request.member][life].state(published);
        let changes = vec![BlockChange::Store(held.into_iter().collect())];
        let content = Told { whole: true, ..told(life, published, None, changes) };
        let as_of = self.last_id(published);
        let (state, now) = (FullState { generation: generation(life), as_of, content }, self.now);
        self.call(|sources| sources.handle_full_state(request.member, request.id, state, now));
    }

    /// Tells the events with these indices as the latest ones. Those after the last hole are certain;
    /// what is known so far is kept or goes by the rule of the module `source`.
    fn tell_latest(&mut self, request: SourceRequest, life: usize, events: Vec<usize>) {
        let (member, now) = (request.member, self.now);
        let published = |stream: &SourceStream<Follower>, first: u64| {
            stream.applied().map_or(0, |id| (id.get() - first + 1) as usize)
        };
        let before = self.sources.stream(member).cloned();
        let source = self.lives[&member][life].events.clone();
        let id = |index: usize| EventId::new(self.first + index as u64);
        let pairs = events.iter().map(|index| (id(*index), source[*index].clone())).collect();
        let handled = self.call(|sources| {
            sources.handle_latest(member, request.id, generation(life), pairs, now)
        });
        let (Some(before), Some(&last), Handled::Applied) = (before, events.last(), handled) else {
            return;
        };
        let after = self.sources.stream(member).expect("it took the answer");
        let run = events.iter().rev().zip(0..).take_while(|(index, back)| **index + back == last);
        let first = last + 1 - run.count();
        let doubt = match before.state() {
            StreamState::Recovering { doubt } => doubt.expect("it asked for the full state"),
            state => panic!("{state:?} asked for the full state"),
        };
        let leaves_state = matches!(doubt, Doubt::LongGap | Doubt::NoHistory | Doubt::Overflow);
        let reaches_back = first <= published(&before, self.first);
        let keeps = doubt == Doubt::Orphans || (leaves_state && reaches_back);
        let started_over = after.stats().started_over - before.stats().started_over;
        assert_eq!(started_over, u64::from(!keeps), "{doubt:?}");
        let comprises = !keeps || after.front().from.is_some_and(|from| from <= first + 1);
        if comprises
            && after.stats().backlogs == before.stats().backlogs
            && let Some(told) = source.get(first..published(after, self.first))
        {
            let (certain, known) = (Follower::after(told), &after.front().known);
            assert!(certain.is_subset(known), "{member} lost what is certain");
            assert!(keeps || certain == *known, "{member} kept what may have gone");
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
}
