//! Random interleavings of loss, repetition, reordering, restarts, late and missing answers,
//! against a source whose true state is known after every event.

use std::collections::BTreeSet;

use ckf_producer::Command;
use ckf_producer::source::{
    BlockChange, BlockChanges, Direct, EventId, Front, FullState, RequestKind, SourceConfig,
    SourceEvent, SourceRequest, SourceStream, StreamState,
};
use ckf_protocol::Millis;
use proptest::prelude::*;

use crate::support::*;

/// An event that knows its place, so that its front can tell whether it came in order.
#[derive(Clone, Debug)]
struct Numbered {
    life: u64,
    number: u64,
    /// A full state: may follow anything.
    whole: bool,
    changes: Vec<BlockChange>,
}

/// Checks that every event is applied once, in order, and none is skipped.
#[derive(Clone, Debug, Default)]
struct OrderCheck {
    next: Option<(u64, u64)>,
    applied: BTreeSet<(u64, u64)>,
}

impl SourceEvent for Numbered {
    fn bytes(&self) -> u64 {
        self.changes.bytes()
    }

    fn clears(&self) -> bool {
        self.changes.clears()
    }
}

impl Front for OrderCheck {
    type Event = Numbered;

    fn apply(&mut self, event: Numbered, changes: &mut BlockChanges) -> u64 {
        if !event.whole {
            let at = (event.life, event.number);
            assert!(self.applied.insert(at), "{at:?} is applied twice");
            match self.next {
                Some(next) if event.clears() => assert!(at >= next, "backwards"),
                Some(next) => assert_eq!(at, next, "out of order"),
                None => {}
            }
        }
        // Wraps when a full state says that nothing was published before number 0.
        self.next = Some((event.life, event.number.wrapping_add(1)));
        Direct.apply(event.changes, changes)
    }

    fn reset(&mut self) {
        self.next = None;
    }
}

/// One life of the source: its events, and its state after each.
#[derive(Clone, Debug)]
struct Life {
    first: u64,
    events: Vec<Vec<BlockChange>>,
    states: Vec<BTreeSet<u64>>,
}

impl Life {
    fn new(first: u64) -> Self {
        Self { first, events: Vec::new(), states: Vec::new() }
    }

    fn last(&self) -> Option<u64> {
        (self.first + self.events.len() as u64).checked_sub(1).filter(|last| *last >= self.first)
    }

    fn publish(&mut self, changes: Vec<BlockChange>) {
        let mut state = self.states.last().cloned().unwrap_or_default();
        for change in &changes {
            match change {
                BlockChange::Store(hashes) => state.extend(hashes.iter().map(|hash| hash.get())),
                BlockChange::Remove(hashes) => {
                    hashes.iter().for_each(|hash| {
                        state.remove(&hash.get());
                    });
                }
                BlockChange::Clear => state.clear(),
            }
        }
        self.events.push(changes);
        self.states.push(state);
    }

    /// The state as of an event.
    fn state(&self, as_of: Option<EventId>) -> BTreeSet<u64> {
        as_of.map_or_else(BTreeSet::new, |id| self.states[(id.get() - self.first) as usize].clone())
    }
}

#[derive(Clone, Debug)]
enum Op {
    Publish(Vec<BlockChange>),
    Deliver(usize),
    Repeat(usize),
    Lose(usize),
    Heartbeat,
    Restart,
    Announce,
    /// Takes the question to the source, which remembers what it would answer now.
    Ask,
    Answer {
        which: usize,
        truncate: usize,
        end: bool,
    },
    AnswerAsAsked(usize),
    Unavailable(usize),
    Suspect,
    Wait(u64),
    Poll,
}

fn change() -> impl Strategy<Value = BlockChange> {
    let blocks = || prop::collection::vec(0u64..12, 0..4).prop_map(hashes);
    prop_oneof![
        10 => blocks().prop_map(BlockChange::Store),
        6 => blocks().prop_map(BlockChange::Remove),
        1 => Just(BlockChange::Clear),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let which = any::<usize>;
    prop_oneof![
        12 => prop::collection::vec(change(), 0..3).prop_map(Op::Publish),
        12 => which().prop_map(Op::Deliver),
        3 => which().prop_map(Op::Repeat),
        3 => which().prop_map(Op::Lose),
        2 => Just(Op::Heartbeat),
        1 => Just(Op::Restart),
        1 => Just(Op::Announce),
        4 => Just(Op::Ask),
        6 => (which(), 0usize..8, any::<bool>())
            .prop_map(|(which, truncate, end)| Op::Answer { which, truncate, end }),
        2 => which().prop_map(Op::AnswerAsAsked),
        1 => which().prop_map(Op::Unavailable),
        1 => Just(Op::Suspect),
        3 => (0u64..600).prop_map(Op::Wait),
        6 => Just(Op::Poll),
    ]
}

struct Simulation {
    config: SourceConfig,
    stream: SourceStream<OrderCheck>,
    lives: Vec<Life>,
    /// Events on the way.
    network: Vec<Numbered>,
    /// Questions at the source, with its last event when they came.
    questions: Vec<(SourceRequest, Option<u64>)>,
    held: BTreeSet<u64>,
    now: u64,
    /// Events that the source keeps for replay.
    retention: u64,
}

impl Simulation {
    fn new(config: SourceConfig, retention: u64) -> Self {
        let mut simulation = Self {
            config,
            stream: SourceStream::new(MEMBER, config, OrderCheck::default()),
            lives: Vec::new(),
            network: Vec::new(),
            questions: Vec::new(),
            held: BTreeSet::new(),
            now: 0,
            retention,
        };
        simulation.restart();
        simulation
    }

    fn restart(&mut self) {
        let first = self.config.first_event().map_or(1_000_000, |first| first.get());
        self.lives.push(Life::new(first));
    }

    fn life(&mut self) -> (u64, &mut Life) {
        (self.lives.len() as u64 - 1, self.lives.last_mut().expect("there is one"))
    }

    fn poll(&mut self) {
        while let Some(command) = self.stream.poll_command() {
            match command {
                Command::Store { hashes, .. } => self.held.extend(hashes.iter().map(|h| h.get())),
                Command::Remove { hashes, .. } => hashes.iter().for_each(|hash| {
                    self.held.remove(&hash.get());
                }),
                Command::ClearMember { .. } => self.held.clear(),
                Command::ReplaceMember { hashes, .. } => {
                    self.held = hashes.iter().map(|h| h.get()).collect();
                }
                other => panic!("a stream does not say {other:?}"),
            }
        }
    }

    fn hand(&mut self, event: Numbered) {
        let (life, number) = (generation(event.life), id(event.number));
        self.stream.handle_event(life, number, event, at(self.now));
    }

    /// The answer to a question, as the source's life `life` gives it when its last event is
    /// `last`. At most `truncate` events of history, then perhaps the end.
    fn answer(
        &mut self,
        request: SourceRequest,
        life: u64,
        last: Option<u64>,
        truncate: usize,
        end: bool,
    ) {
        let source = self.lives[life as usize].clone();
        match request.kind {
            RequestKind::History { from, .. } => {
                // Which numbers a host asks for after a restart means nothing to the new life.
                let Some(last) = last else { return };
                let oldest = (last + 1).saturating_sub(self.retention).max(source.first);
                let from = from.get().max(oldest);
                for number in (from..=last).take(truncate) {
                    let changes = source.events[(number - source.first) as usize].clone();
                    self.hand(Numbered { life, number, whole: false, changes });
                }
                if end {
                    self.stream.handle_history_end(request.id, at(self.now));
                }
            }
            RequestKind::FullState => {
                let as_of = last.map(EventId::new);
                let changes = store(source.state(as_of));
                let number = last.unwrap_or(source.first.wrapping_sub(1));
                let content = Numbered { life, number, whole: true, changes };
                let state = FullState { generation: generation(life), as_of, content };
                self.stream.handle_full_state(request.id, state, at(self.now));
            }
            _ => panic!("unknown question"),
        }
    }

    fn step(&mut self, op: Op) {
        let now = at(self.now);
        let (life, source) = self.life();
        let last = source.last();
        match op {
            Op::Publish(changes) => {
                source.publish(changes.clone());
                let number = source.last().expect("something was published");
                self.network.push(Numbered { life, number, whole: false, changes });
            }
            Op::Deliver(which) if !self.network.is_empty() => {
                // Mostly in order.
                let which = if which % 4 == 0 { which % self.network.len() } else { 0 };
                let event = self.network.remove(which);
                self.hand(event);
            }
            Op::Repeat(which) if !self.network.is_empty() => {
                let event = self.network[which % self.network.len()].clone();
                self.hand(event);
            }
            Op::Lose(which) if !self.network.is_empty() => {
                self.network.remove(which % self.network.len());
            }
            Op::Heartbeat => {
                self.stream.handle_heartbeat(generation(life), last.map(EventId::new), now);
            }
            Op::Restart => self.restart(),
            Op::Announce => {
                self.stream.handle_announced(generation(life), now);
            }
            Op::Ask => {
                if let Some(request) = self.stream.poll_request() {
                    let last = self.lives[request.generation.get() as usize].last();
                    self.questions.push((request, last));
                }
            }
            Op::Answer { which, truncate, end } if !self.questions.is_empty() => {
                let (request, _) = self.questions.swap_remove(which % self.questions.len());
                self.answer(request, life, last, truncate, end);
            }
            Op::AnswerAsAsked(which) if !self.questions.is_empty() => {
                // Made when the question came, delivered now, and again perhaps.
                let (request, last) = self.questions[which % self.questions.len()];
                self.answer(request, request.generation.get(), last, usize::MAX, true);
            }
            Op::Unavailable(which) if !self.questions.is_empty() => {
                let (request, _) = self.questions.swap_remove(which % self.questions.len());
                self.stream.handle_unavailable(request.id, now);
            }
            Op::Suspect => {
                self.stream.handle_suspect(now);
            }
            Op::Wait(millis) => {
                self.now += millis;
                self.stream.handle_timeout(at(self.now));
            }
            Op::Poll => self.poll(),
            _ => {}
        }
        self.check();
    }

    /// What holds at all times.
    fn check(&self) {
        let (events, bytes) = self.stream.queued();
        assert!(events as u64 <= u64::from(self.config.max_queued_events()));
        assert!(bytes <= self.config.max_queued_bytes());
        let recovering = matches!(self.stream.state(), StreamState::Recovering { .. });
        assert_eq!(self.stream.poll_timeout().is_some(), recovering);
        assert!(self.questions.len() < 10_000);
    }

    /// Where the stream claims to know the state exactly, it does.
    fn check_state(&mut self) {
        self.poll();
        let Some(life) = self.stream.generation() else {
            assert!(self.held.is_empty());
            return;
        };
        match self.stream.state() {
            StreamState::Live | StreamState::Recovering { doubt: None } => {
                let truth = self.lives[life.get() as usize].state(self.stream.applied());
                assert_eq!(self.held, truth);
            }
            StreamState::Failed => assert!(self.held.is_empty()),
            _ => {}
        }
    }

    /// The network calms down and every question is answered: the stream ends in the source's
    /// true state, after few questions.
    fn calm_down(&mut self) {
        while !self.network.is_empty() {
            let event = self.network.remove(0);
            self.hand(event);
        }
        let (life, source) = self.life();
        let last = source.last();
        let heartbeat = last.map(EventId::new);
        // Numbering that starts anywhere says nothing before it starts.
        if last.is_none() && self.config.first_event().is_none() {
            return;
        }
        self.stream.handle_heartbeat(generation(life), heartbeat, at(self.now));
        let mut asked = 0;
        while self.stream.state() != StreamState::Live {
            let Some(request) = self.stream.poll_request() else {
                let (when, _) = self.stream.poll_timeout().expect("it waits for something");
                self.now = self.now.max(when.as_millis());
                self.stream.handle_timeout(at(self.now));
                self.stream.handle_heartbeat(generation(life), heartbeat, at(self.now));
                continue;
            };
            asked += 1;
            assert!(asked < 20, "no end of questions");
            self.answer(request, life, last, usize::MAX, true);
        }
        self.check_state();
        assert_eq!(self.stream.generation(), Some(generation(life)));
        assert_eq!(self.stream.applied(), heartbeat);
        let truth = self.lives[life as usize].state(heartbeat);
        assert_eq!(self.held, truth);
    }
}

fn config() -> impl Strategy<Value = SourceConfig> {
    let first = prop_oneof![Just(Some(0)), Just(Some(7)), Just(None)];
    (first, prop_oneof![Just(0u64), Just(2), Just(100)], 1u32..4, any::<bool>(), any::<bool>())
        .prop_map(|(first, max_history, attempts, small_queue, small_backlog)| {
            let config = SourceConfig::new(5)
                .with_first_event(first.map(EventId::new))
                .with_max_history(max_history)
                .with_history_attempts(attempts)
                .unwrap()
                .with_back_off(Millis::new(100), Millis::new(800))
                .unwrap()
                .with_deadline(Millis::new(2000))
                .unwrap();
            let config = match small_queue {
                true => config.with_queue(3, 400).unwrap(),
                false => config,
            };
            match small_backlog {
                true => config.with_max_command_bytes(300).unwrap(),
                false => config,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn streams_end_in_the_true_state_of_their_source(
        config in config(),
        retention in prop_oneof![Just(0u64), Just(3), Just(1000)],
        poll_always in any::<bool>(),
        ops in prop::collection::vec(op(), 0..120),
    ) {
        let mut simulation = Simulation::new(config, retention);
        for op in ops {
            simulation.step(op);
            if poll_always {
                simulation.check_state();
            }
        }
        simulation.check_state();
        simulation.calm_down();
    }
}

/// The wanted states are reached, so the property above says something.
#[test]
fn the_simulation_reaches_every_state() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut sum = ckf_producer::source::SourceStats::default();
    let (mut failed, mut history) = (0, 0);
    for _ in 0..400 {
        let config = config().new_tree(&mut runner).unwrap().current();
        let ops = prop::collection::vec(op(), 120).new_tree(&mut runner).unwrap().current();
        let mut simulation = Simulation::new(config, 3);
        for op in ops {
            simulation.step(op);
            failed += u32::from(simulation.stream.state() == StreamState::Failed);
            let filling = StreamState::Recovering { doubt: None };
            history += u32::from(simulation.stream.state() == filling);
        }
        let stats = simulation.stream.stats();
        sum.applied += stats.applied;
        sum.duplicates += stats.duplicates;
        sum.covered += stats.covered;
        sum.overflowed += stats.overflowed;
        sum.old_generation += stats.old_generation;
        sum.late_answers += stats.late_answers;
        sum.unusable_states += stats.unusable_states;
        sum.full_states += stats.full_states;
        sum.replacements += stats.replacements;
        sum.backlogs += stats.backlogs;
    }
    println!("{sum:?}, failed {failed}, filling {history}");
    let reached = [
        sum.applied,
        sum.duplicates,
        sum.covered,
        sum.overflowed,
        sum.old_generation,
        sum.late_answers,
        sum.unusable_states,
        sum.full_states,
        sum.replacements,
        sum.backlogs,
        failed.into(),
        history.into(),
    ];
    assert!(reached.iter().all(|count| *count > 0), "{reached:?}");
}
