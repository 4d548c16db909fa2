//! Answers to questions for the full state: what takes the place of what the stream knew.

use alloc::vec::Vec;

use ckf_protocol::Instant;

use super::front::{BlockChanges, Front};
use super::ids::{EventId, RequestId, SourceGeneration};
use super::output::{Doubt, Handled, SourceNotice};
use super::stream::{Fence, SourceStream};

/// All that a member holds, as of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullState<E> {
    /// The generation that it describes.
    pub generation: SourceGeneration,
    /// The last event that is in it; `None` when the generation has published nothing yet, which
    /// means something only where the id of the first event is known.
    pub as_of: Option<EventId>,
    /// What makes an empty member this one, complete: it replaces whatever the member held. A
    /// source that has no more than its latest events to tell answers with
    /// [`handle_latest`](SourceStream::handle_latest).
    pub content: E,
}

impl<F: Front> SourceStream<F> {
    /// A full state, in answer to the question `request`.
    pub fn handle_full_state(
        &mut self,
        request: RequestId,
        state: FullState<F::Event>,
        now: Instant,
    ) -> Handled {
        if let Some(late) = self.refuse_late(request, state.generation, now) {
            return late;
        }
        if state.as_of < self.applied
            || (state.as_of.is_none() && self.config.first_event().is_none())
        {
            self.stats.unusable_states += 1;
            return Handled::Unusable;
        }
        self.stats.full_states += 1;
        self.install(state.as_of, [state.content]);
        self.settle();
        Handled::Applied
    }

    /// The answer to the question `request`, for a full state, of a source that has none to give:
    /// the latest events that it still has, oldest first, without those that cannot be read.
    /// Those after the last hole are certain; the [module](super) tells what becomes of the rest.
    pub fn handle_latest(
        &mut self,
        request: RequestId,
        generation: SourceGeneration,
        mut events: Vec<(EventId, F::Event)>,
        now: Instant,
    ) -> Handled {
        if let Some(late) = self.refuse_late(request, generation, now) {
            return late;
        }
        let is_hole = |pair: &[(EventId, F::Event)]| pair[0].0.checked_next() != Some(pair[1].0);
        let certain = events.windows(2).rposition(is_hole).map_or(0, |hole| hole + 1);
        events.drain(..certain);
        // Without any, those that wait are the latest ones; without these, nothing is left to tell.
        let first = events.first().map(|(id, _)| *id).or(self.queue.last_run());
        if events.is_empty() && first == Some(EventId::new(0)) {
            // Nothing comes before the least of all numbers, wherever numbering may start.
            let mut next = first;
            while let Some(id) = next
                && let Some(event) = self.queue.take(id)
            {
                events.push((id, event));
                next = id.checked_next();
            }
        }
        let before = match first {
            None => self.newest,
            Some(_) if first == self.config.first_event() => None,
            Some(first) => first.get().checked_sub(1).map(EventId::new),
        };
        let last = events.last().map_or(before, |(id, _)| Some(*id));
        let continues = |doubt: Doubt| {
            doubt == Doubt::Orphans || (doubt.leaves_state() && before <= self.applied)
        };
        if self.doubt.is_some_and(continues) {
            self.carry_on(events);
        } else if last < self.applied || (last.is_none() && self.config.first_event().is_none()) {
            self.stats.unusable_states += 1;
            return Handled::Unusable;
        } else {
            self.stats.started_over += 1;
            self.install(last, events.into_iter().map(|(_, event)| event));
        }
        self.newest = self.newest.max(last);
        self.only_latest = true;
        self.settle();
        Handled::Applied
    }

    /// Takes note of the generation of an answer; what becomes of one that nobody waits for any more.
    fn refuse_late(
        &mut self,
        request: RequestId,
        generation: SourceGeneration,
        now: Instant,
    ) -> Option<Handled> {
        if let Fence::Old = self.enter(generation, now) {
            self.stats.late_answers += 1;
            return Some(Handled::OldGeneration);
        }
        if !self.awaits_full_state(request) {
            self.stats.late_answers += 1;
            self.settle();
            return Some(Handled::Late);
        }
        None
    }

    /// Goes on from the last event applied with those that follow it.
    fn carry_on(&mut self, events: Vec<(EventId, F::Event)>) {
        self.close_question();
        self.doubt = None;
        for (id, event) in events {
            if self.doubt.is_none() && self.next() == Some(id) {
                self.advance(id, event);
            }
        }
        if let Some(applied) = self.applied {
            self.stats.covered += self.queue.drop_through(applied);
        }
    }

    /// Puts what these events make of an empty member in the place of whatever it held.
    fn install(&mut self, as_of: Option<EventId>, content: impl IntoIterator<Item = F::Event>) {
        let mut changes = BlockChanges::default();
        self.front.reset();
        let orphans = content.into_iter().map(|event| self.front.apply(event, &mut changes)).sum();
        self.out.replace_member(changes.into_blocks());
        if let Some(as_of) = as_of {
            self.stats.covered += self.queue.drop_through(as_of);
        }
        // A state that leaves the gap that it was asked for as good as it was is no progress: an event
        // that there never was, of a number far ahead, would be asked for without end.
        if as_of > self.applied && self.is_near(as_of, self.goal) {
            self.note_progress();
        }
        match self.doubt {
            // What made one recovery fail must not make all fail that follow. If it was no event that
            // never was, the next sign of life tells of it again.
            Some(Doubt::Failed) => self.newest = as_of,
            Some(Doubt::Host | Doubt::Backlog) => {
                self.host_rest = self.now.saturating_add(self.config.longest_back_off());
            }
            _ => {}
        }
        self.close_question();
        self.rest_from_orphans();
        self.applied = as_of;
        self.doubt = None;
        if orphans > 0 {
            // The state has holes of its own; asking for it again would not mend them.
            self.stats.orphan_blocks += orphans;
            self.out.notify(SourceNotice::Orphans { blocks: orphans });
        }
    }
}
