//! What a worker tells the DC: numbered changes of its cache, heartbeats, and answers to questions.

use std::collections::VecDeque;

use ckf_core::BlockHash;
use ckf_producer::Member;
use ckf_producer::source::{
    BlockChange, EventId, FullState, RequestId, RequestKind, SourceGeneration, SourceRequest,
};

use super::cache::{LruCache, Served};

/// One message of a worker.
#[derive(Debug, Clone)]
pub struct FromWorker {
    /// Who sends it.
    pub member: Member,
    /// In which of its lives.
    pub generation: SourceGeneration,
    /// What it says.
    pub content: Content,
}

/// What a worker's message says.
#[derive(Debug, Clone)]
pub enum Content {
    /// Its cache changed; live or repeated from history.
    Event(EventId, Vec<BlockChange>),
    /// It is there, and this is its last event.
    Heartbeat(Option<EventId>),
    /// That was all it could tell of its history.
    HistoryEnd(RequestId),
    /// All that it holds.
    FullState(RequestId, FullState<Vec<BlockChange>>),
}

/// Events a worker can repeat.
const HISTORY: usize = 64;

/// The publishing side of one worker.
#[derive(Debug)]
pub struct EventLog {
    member: Member,
    generation: SourceGeneration,
    next: u64,
    history: VecDeque<(EventId, Vec<BlockChange>)>,
}

impl EventLog {
    /// A worker in its first life that has published nothing.
    pub fn new(member: Member) -> Self {
        let generation = SourceGeneration::new(1);
        Self { member, generation, next: 0, history: VecDeque::new() }
    }

    /// Who publishes.
    pub fn member(&self) -> Member {
        self.member
    }

    /// The current life.
    pub fn generation(&self) -> SourceGeneration {
        self.generation
    }

    /// Starts a new life: numbers start again, history is empty.
    pub fn restart(&mut self) {
        self.generation = SourceGeneration::new(self.generation.get() + 1);
        self.next = 0;
        self.history.clear();
    }

    /// The event of a served prompt: what had to go, then what came. `None` when nothing changed.
    pub fn event(&mut self, served: Served) -> Option<FromWorker> {
        let mut changes = Vec::new();
        if !served.evicted.is_empty() {
            changes.push(BlockChange::Remove(served.evicted));
        }
        if !served.stored.is_empty() {
            changes.push(BlockChange::Store(served.stored));
        }
        if changes.is_empty() {
            return None;
        }
        let id = EventId::new(self.next);
        self.next += 1;
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back((id, changes.clone()));
        Some(self.message(Content::Event(id, changes)))
    }

    /// A sign of life.
    pub fn heartbeat(&self) -> FromWorker {
        self.message(Content::Heartbeat(self.last()))
    }

    /// The answer to a question of stage 1, as messages in order; none to one about another life.
    /// `cache` is this worker's.
    pub fn answer(&self, request: &SourceRequest, cache: &LruCache) -> Vec<FromWorker> {
        if request.generation != self.generation {
            return Vec::new();
        }
        match request.kind {
            RequestKind::History { from, to } => {
                let asked = self.history.iter().filter(|(id, _)| (from..=to).contains(id));
                let events = asked.map(|(id, changes)| Content::Event(*id, changes.clone()));
                let end = std::iter::once(Content::HistoryEnd(request.id));
                events.chain(end).map(|content| self.message(content)).collect()
            }
            _ => {
                let blocks: Vec<BlockHash> = cache.blocks().collect();
                let content = vec![BlockChange::Store(blocks)];
                let generation = self.generation;
                let state = FullState { generation, as_of: self.last(), content };
                vec![self.message(Content::FullState(request.id, state))]
            }
        }
    }

    fn last(&self) -> Option<EventId> {
        self.next.checked_sub(1).map(EventId::new)
    }

    fn message(&self, content: Content) -> FromWorker {
        FromWorker { member: self.member, generation: self.generation, content }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(from: u64, len: u64) -> Vec<BlockHash> {
        (from..from + len).map(BlockHash::new).collect()
    }

    fn request(kind: RequestKind, generation: u64) -> SourceRequest {
        let (id, member) = (RequestId::new(9), Member::new(3, 0));
        let generation = SourceGeneration::new(generation);
        SourceRequest { id, attempt: 1, member, generation, kind }
    }

    #[test]
    fn evictions_come_before_the_stores_they_make_room_for() {
        let mut cache = LruCache::new(4);
        let mut log = EventLog::new(Member::new(3, 0));
        assert!(log.event(cache.serve(&[])).is_none(), "no change, no event");
        let first = log.event(cache.serve(&prompt(0, 4))).expect("a change");
        let second = log.event(cache.serve(&prompt(10, 2))).expect("a change");
        let Content::Event(id, changes) = first.content else { panic!("an event") };
        assert_eq!(id, EventId::new(0));
        assert_eq!(changes, [BlockChange::Store(prompt(0, 4))]);
        let Content::Event(id, changes) = second.content else { panic!("an event") };
        assert_eq!(id, EventId::new(1));
        let evicted = vec![BlockHash::new(3), BlockHash::new(2)];
        assert_eq!(changes, [BlockChange::Remove(evicted), BlockChange::Store(prompt(10, 2))]);
    }

    #[test]
    fn history_reaches_back_so_far_and_a_new_life_starts_anew() {
        let mut cache = LruCache::new(1_000);
        let mut log = EventLog::new(Member::new(3, 0));
        for i in 0..HISTORY as u64 + 10 {
            log.event(cache.serve(&prompt(i, 1)));
        }
        let ask = |log: &EventLog, from, to, generation| {
            let kind = RequestKind::History { from: EventId::new(from), to: EventId::new(to) };
            log.answer(&request(kind, generation), &cache).len()
        };
        assert_eq!(ask(&log, 20, 22, 1), 4, "three events and the end");
        assert_eq!(ask(&log, 0, 10, 1), 2, "only event 10 is left");
        assert_eq!(ask(&log, 20, 22, 2), 0, "another life was asked");
        let state = log.answer(&request(RequestKind::FullState, 1), &cache);
        let Content::FullState(_, state) = &state[0].content else { panic!("a full state") };
        assert_eq!(state.as_of, Some(EventId::new(HISTORY as u64 + 9)));

        log.restart();
        assert_eq!(ask(&log, 0, 5, 2), 1, "nothing but the end");
        let Content::Heartbeat(last) = log.heartbeat().content else { panic!("a heartbeat") };
        assert_eq!((last, log.generation()), (None, SourceGeneration::new(2)));
    }
}
