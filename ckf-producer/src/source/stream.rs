//! The stream of one member: what the host hands in and takes out.

use ckf_protocol::Instant;

use super::config::SourceConfig;
use super::front::{BlockChange, BlockChanges, Front, SourceEvent};
use super::ids::{EventId, RequestId, SourceGeneration};
use super::output::{
    Doubt, Handled, Outbox, SourceNotice, SourceRequest, SourceStats, StreamState, WakeReason,
};
use super::queue::Queue;
use super::recovery::Recovery;
use crate::command::Command;
use crate::member::Member;

/// The ordered stream of one member.
///
/// # Order of calls
/// Any order is safe, nothing has to be polled in between, and a `now` that goes back is taken
/// for the latest one seen. Commands must reach the pool in the order in which they are polled.
///
/// # Cost
/// An event costs its front, plus a map operation while it waits. A call works off as many waiting
/// events as the queue may hold at most.
///
/// The [module](super) tells what it does with gaps, generations and time.
#[derive(Clone, Debug)]
pub struct SourceStream<F: Front> {
    pub(super) member: Member,
    pub(super) config: SourceConfig,
    pub(super) front: F,
    pub(super) now: Instant,
    pub(super) generation: Option<SourceGeneration>,
    /// The last event whose effects are in the member's state. Never goes back in a generation.
    pub(super) applied: Option<EventId>,
    /// The last event known to exist.
    pub(super) newest: Option<EventId>,
    /// Why the member's state is not exactly that of `applied`; `None` when it is.
    pub(super) doubt: Option<Doubt>,
    pub(super) queue: Queue<F::Event>,
    pub(super) recovery: Option<Recovery>,
    /// Whether the stream was ever live.
    pub(super) recovered: bool,
    /// Where the gap ends for which a full state is asked because it is too long for history.
    pub(super) goal: Option<EventId>,
    /// Until when orphans are only counted.
    pub(super) orphans_rest: Instant,
    /// Until when a doubt that the host brought about waits before the full state is asked.
    pub(super) host_rest: Instant,
    /// Whether the source has shown that it has only its latest events to tell.
    pub(super) only_latest: bool,
    pub(super) next_request: RequestId,
    pub(super) out: Outbox,
    pub(super) stats: SourceStats,
}

/// How a generation relates to the current one.
pub(super) enum Fence {
    Old,
    Current,
}

impl<F: Front> SourceStream<F> {
    /// The stream of `member`, whose events go through `front`, an empty one.
    pub fn new(member: Member, config: SourceConfig, front: F) -> Self {
        Self {
            member,
            config,
            front,
            now: Instant::ZERO,
            generation: None,
            applied: None,
            newest: None,
            doubt: Some(Doubt::FirstContact),
            queue: Queue::new(config.max_queued_events() as usize, config.max_queued_bytes()),
            recovery: None,
            recovered: false,
            goal: None,
            orphans_rest: Instant::ZERO,
            host_rest: Instant::ZERO,
            only_latest: false,
            next_request: RequestId::new(0),
            out: Outbox::new(member, config.max_notices()),
            stats: SourceStats::default(),
        }
    }

    // What happens outside.

    /// The source is there in this generation: the first sign of life of a member whose events
    /// may be long in coming.
    pub fn handle_announced(&mut self, generation: SourceGeneration, now: Instant) -> Handled {
        match self.enter(generation, now) {
            Fence::Old => Handled::OldGeneration,
            Fence::Current => {
                self.settle();
                Handled::Noted
            }
        }
    }

    /// An event, live or from history: both are the same to the stream.
    pub fn handle_event(
        &mut self,
        generation: SourceGeneration,
        id: EventId,
        event: F::Event,
        now: Instant,
    ) -> Handled {
        if let Fence::Old = self.enter(generation, now) {
            return Handled::OldGeneration;
        }
        // What waits for nothing but the parents of orphans is not given up for them.
        while !self.queue.has_room(event.bytes()) && self.forgive_orphans() {
            self.settle();
        }
        if self.is_past(id) || self.queue.contains(id) {
            self.stats.duplicates += 1;
            return Handled::Duplicate;
        }
        self.newest = self.newest.max(Some(id));
        // Nothing can be missing before the first event, and nothing before a clear matters.
        let is_first = self.is_untouched() && self.config.first_event() == Some(id);
        let handled = if is_first || event.clears() {
            self.stats.covered += self.queue.drop_through(id);
            self.doubt = None;
            self.advance(id, event);
            Handled::Applied
        } else if self.doubt.is_none() && self.next() == Some(id) {
            self.advance(id, event);
            Handled::Applied
        } else {
            let given_up = self.queue.push(id, event.bytes(), event);
            self.note_given_up(given_up)
        };
        self.settle();
        handled
    }

    /// The source says that `last` is the last event it has published, or that it has published
    /// none: a loss at the very end comes to light without new data.
    pub fn handle_heartbeat(
        &mut self,
        generation: SourceGeneration,
        last: Option<EventId>,
        now: Instant,
    ) -> Handled {
        if let Fence::Old = self.enter(generation, now) {
            return Handled::OldGeneration;
        }
        if last.is_none() && self.newest.is_none() && self.is_untouched() {
            self.doubt = None;
        }
        self.newest = self.newest.max(last);
        self.settle();
        Handled::Noted
    }

    /// A history answer is over: what it did not bring, it cannot bring. Its events went to
    /// [`handle_event`](Self::handle_event) before.
    pub fn handle_history_end(&mut self, request: RequestId, now: Instant) -> Handled {
        self.now = self.now.latest(now);
        if !self.close_history(request, false) {
            return Handled::Late;
        }
        self.settle();
        Handled::Noted
    }

    /// The source cannot answer the question `request`: it never had history, or not that far
    /// back, or it cannot dump its state now.
    pub fn handle_unavailable(&mut self, request: RequestId, now: Instant) -> Handled {
        self.now = self.now.latest(now);
        if self.awaits_full_state(request) {
            if self.forgive_orphans() {
                self.settle();
            }
            return Handled::Noted;
        }
        if !self.close_history(request, true) {
            self.stats.late_answers += 1;
            return Handled::Late;
        }
        self.settle();
        Handled::Noted
    }

    /// The host no longer trusts what the pool holds of this member, for instance because the
    /// pool reported an error for one of its commands: asks for the full state.
    ///
    /// When that was asked for the same reason and came less than the longest back-off ago, it is asked
    /// once that has passed: a pool without memory for the member makes the host suspicious of every
    /// state.
    pub fn handle_suspect(&mut self, now: Instant) -> Handled {
        self.now = self.now.latest(now);
        self.raise(Doubt::Host);
        self.settle();
        Handled::Noted
    }

    /// Time has passed. Calls without need do nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.latest(now);
        self.check_timers();
    }

    // What the host takes out.

    /// The next command for the pool.
    #[must_use]
    pub fn poll_command(&mut self) -> Option<Command> {
        self.out.pop_command()
    }

    /// The next question to the source. A later one makes an earlier one that was not polled yet
    /// needless, so there is one at most.
    #[must_use]
    pub fn poll_request(&mut self) -> Option<SourceRequest> {
        self.out.request.take()
    }

    /// The next notice.
    #[must_use]
    pub fn poll_notice(&mut self) -> Option<SourceNotice> {
        self.out.pop_notice()
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called, and why; never at the end of
    /// time. Any other `handle_*` may change it.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, WakeReason)> {
        self.recovery.as_ref().and_then(Recovery::timeout)
    }

    // What it is.

    /// Whose stream this is.
    pub fn member(&self) -> Member {
        self.member
    }

    /// Where the stream stands.
    pub fn state(&self) -> StreamState {
        match (&self.recovery, self.generation) {
            (_, None) => StreamState::Idle,
            (Some(_), _) => StreamState::Recovering { doubt: self.doubt },
            (None, _) if self.doubt.is_some() => StreamState::Failed,
            (None, _) => StreamState::Live,
        }
    }

    /// The generation, once there was a sign of life.
    pub fn generation(&self) -> Option<SourceGeneration> {
        self.generation
    }

    /// The last event whose effects are in the commands.
    pub fn applied(&self) -> Option<EventId> {
        self.applied
    }

    /// Whether the stream was ever live.
    pub fn has_recovered(&self) -> bool {
        self.recovered
    }

    /// Events that wait, and their bytes.
    pub fn queued(&self) -> (usize, u64) {
        (self.queue.len(), self.queue.bytes())
    }

    /// Counters.
    pub fn stats(&self) -> SourceStats {
        SourceStats { dropped_notices: self.out.dropped_notices, ..self.stats }
    }

    /// The front.
    pub fn front(&self) -> &F {
        &self.front
    }

    pub(super) fn has_commands(&self) -> bool {
        self.out.has_commands()
    }

    /// Bytes of stores and removals that wait.
    pub(super) fn command_bytes(&self) -> u64 {
        self.out.command_bytes()
    }

    /// Drops the commands that wait; a full state takes their place.
    pub(super) fn give_up_commands(&mut self) {
        self.fall_behind();
        self.settle();
    }

    pub(super) fn has_request(&self) -> bool {
        self.out.request.is_some()
    }

    pub(super) fn has_notices(&self) -> bool {
        self.out.has_notices()
    }

    /// Gives up at least so many waiting events and bytes of them, as far as there are any.
    pub(super) fn shed(&mut self, over: (usize, u64)) -> Handled {
        let (mut over, mut held) = (over, self.queued());
        while over != (0, 0) && self.forgive_orphans() {
            self.settle();
            let left = self.queued();
            over.0 = over.0.saturating_sub(held.0 - left.0);
            over.1 = over.1.saturating_sub(held.1 - left.1);
            held = left;
        }
        let given_up = self.queue.shed(over.0, over.1);
        self.stats.shed += given_up;
        let handled = self.note_given_up(given_up);
        self.settle();
        handled
    }

    // How.

    /// Some waiting events, or none, were given up.
    fn note_given_up(&mut self, events: u64) -> Handled {
        if events == 0 {
            return Handled::Queued;
        }
        self.stats.overflowed += events;
        self.raise(Doubt::Overflow);
        Handled::Overflowed
    }

    /// The id that follows what is applied; `None` at the end of the numbering, or when nothing
    /// is applied and numbering starts anywhere.
    pub(super) fn next(&self) -> Option<EventId> {
        match self.applied {
            Some(applied) => applied.checked_next(),
            None => self.config.first_event(),
        }
    }

    /// Whether the event's effects are applied, or it stands before the first event.
    fn is_past(&self, id: EventId) -> bool {
        match self.applied {
            Some(applied) => id <= applied,
            None => self.config.first_event().is_some_and(|first| id < first),
        }
    }

    /// Whether the member is known to hold nothing, as before the first event of a generation.
    fn is_untouched(&self) -> bool {
        let nothing_came =
            matches!(self.doubt, Some(Doubt::FirstContact | Doubt::Replaced | Doubt::Failed));
        nothing_came && self.applied.is_none() && self.config.first_event().is_some()
    }

    /// Compares a generation with the current one and enters it when it is newer.
    pub(super) fn enter(&mut self, generation: SourceGeneration, now: Instant) -> Fence {
        self.now = self.now.latest(now);
        if self.generation.is_some_and(|current| generation < current) {
            self.stats.old_generation += 1;
            return Fence::Old;
        }
        if self.generation != Some(generation) {
            let replaced = self.generation.replace(generation).is_some();
            self.begin(generation, replaced);
        }
        Fence::Current
    }

    /// Starts a generation from nothing. What an earlier one held is cleared before anything of
    /// this one counts.
    fn begin(&mut self, generation: SourceGeneration, replaced: bool) {
        self.stats.covered += self.queue.clear();
        self.applied = None;
        self.newest = None;
        self.recovery = None;
        self.goal = None;
        self.out.request = None;
        self.orphans_rest = Instant::ZERO;
        self.only_latest = false;
        self.doubt = Some(Doubt::FirstContact);
        if replaced {
            self.doubt = Some(Doubt::Replaced);
            self.front.reset();
            self.out.clear_member();
            self.out.notify(SourceNotice::Replaced { generation });
            self.stats.replacements += 1;
        }
    }

    /// Applies the event that follows.
    pub(super) fn advance(&mut self, id: EventId, event: F::Event) {
        let mut changes = BlockChanges::default();
        let orphans = self.front.apply(event, &mut changes);
        self.applied = Some(id);
        self.stats.applied += 1;
        if self.recovery.as_ref().is_some_and(Recovery::asks_history) {
            self.note_progress();
        }
        let member = self.member;
        let mut waiting = 0;
        for change in changes {
            waiting = match change {
                BlockChange::Store(hashes) => self.out.push(Command::Store { member, hashes }),
                BlockChange::Remove(hashes) => self.out.push(Command::Remove { member, hashes }),
                BlockChange::Clear => {
                    self.out.clear_member();
                    0
                }
            };
        }
        if orphans > 0 {
            self.note_orphans(orphans);
        }
        if waiting > self.config.max_command_bytes() {
            self.fall_behind();
        }
    }

    /// The host left too many commands waiting.
    fn fall_behind(&mut self) {
        self.stats.backlogs += 1;
        self.doubt = Some(Doubt::Backlog);
        self.front.reset();
        self.out.clear_member();
    }

    /// Counts orphans and recovers for them, unless the source would not tell more than it has: the
    /// last full state is young, or there is none to be had.
    fn note_orphans(&mut self, blocks: u64) {
        self.stats.orphan_blocks += blocks;
        self.out.notify(SourceNotice::Orphans { blocks });
        if self.now >= self.orphans_rest && !self.only_latest {
            self.doubt.get_or_insert(Doubt::Orphans);
        }
    }
}
