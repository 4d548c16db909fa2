//! How a stream gets back what it missed: what to ask, when to ask again, when to give up.

use ckf_protocol::Instant;

use super::config::SourceConfig;
use super::front::Front;
use super::ids::{EventId, RequestId};
use super::output::{Doubt, RequestKind, SourceNotice, SourceRequest, WakeReason};
use super::stream::SourceStream;

/// A recovery under way: a series of questions that ends when nothing is missing any more.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    /// The question asked last.
    request: RequestId,
    kind: RequestKind,
    /// Whether it still waits for its answer.
    open: bool,
    /// Times asked since the last progress.
    attempts: u32,
    retry_at: Instant,
    deadline: Instant,
}

impl Recovery {
    fn new(now: Instant, config: &SourceConfig) -> Self {
        Self {
            request: RequestId::new(0),
            kind: RequestKind::FullState,
            open: false,
            attempts: 0,
            retry_at: now,
            deadline: now.saturating_add(config.deadline()),
        }
    }

    /// When something is to be done, unless that is at the end of time.
    pub(super) fn timeout(&self) -> Option<(Instant, WakeReason)> {
        let next = (self.retry_at, WakeReason::Retry).min((self.deadline, WakeReason::Deadline));
        (next.0 < Instant::END).then_some(next)
    }

    /// Whether the question asked last is one for history.
    pub(super) fn asks_history(&self) -> bool {
        is_history(self.kind)
    }

    /// Whether a question of this sort waits for its answer.
    fn awaits(&self, kind: RequestKind) -> bool {
        self.open && self.asks_history() == is_history(kind)
    }
}

fn is_history(kind: RequestKind) -> bool {
    matches!(kind, RequestKind::History { .. })
}

impl<F: Front> SourceStream<F> {
    /// Applies what can be applied, then sees to it that what is still missing is asked for.
    /// Every `handle_*` that changes anything ends here.
    pub(super) fn settle(&mut self) {
        while self.doubt.is_none()
            && let Some(next) = self.next()
            && let Some(event) = self.queue.take(next)
        {
            self.advance(next, event);
        }
        if self.generation.is_none() {
            return;
        }
        match self.missing() {
            Some(kind) => self.ask(kind),
            None => self.finish(),
        }
    }

    /// What has to be asked for, if anything.
    fn missing(&mut self) -> Option<RequestKind> {
        if self.doubt.is_some() {
            return Some(RequestKind::FullState);
        }
        let from = self.next()?;
        let to = match self.queue.first() {
            // All that waits lies behind the gap, so the first of it is not the first of all ids.
            Some(first) => EventId::new(first.get() - 1),
            None => self.newest.filter(|newest| *newest >= from)?,
        };
        if to.get() - from.get() < self.config.max_history() {
            return Some(RequestKind::History { from, to });
        }
        self.goal = Some(to);
        self.doubt = Some(Doubt::LongGap);
        Some(RequestKind::FullState)
    }

    /// Sees to it that a question of this sort is open.
    fn ask(&mut self, kind: RequestKind) {
        if self.recovery.is_none() {
            self.stats.recoveries += 1;
            self.out.notify(SourceNotice::RecoveryStarted { doubt: self.doubt });
        }
        let recovery = self.recovery.get_or_insert_with(|| Recovery::new(self.now, &self.config));
        if recovery.awaits(kind) {
            return;
        }
        let of_host = matches!(self.doubt, Some(Doubt::Host | Doubt::Backlog));
        if of_host && self.now < self.host_rest {
            recovery.retry_at = self.host_rest;
            recovery.deadline = self.host_rest.saturating_add(self.config.deadline());
            return self.open(kind);
        }
        // The first question and the one that follows it go out at once, and after progress again.
        // Otherwise two answers that never meet would be asked for as fast as they come.
        let at_once = recovery.attempts <= 1;
        self.open(kind);
        if at_once {
            self.send();
        }
    }

    /// Puts a new question in the place of the one asked last, to be sent when it is time.
    fn open(&mut self, kind: RequestKind) {
        let Some(recovery) = &mut self.recovery else { return };
        recovery.request = self.next_request;
        recovery.kind = kind;
        recovery.open = true;
        self.next_request = RequestId::new(self.next_request.get().wrapping_add(1));
        self.out.request = None;
    }

    /// Asks, or asks again.
    fn send(&mut self) {
        let (Some(recovery), Some(generation)) = (&mut self.recovery, self.generation) else {
            return;
        };
        recovery.attempts = recovery.attempts.saturating_add(1);
        let salt = self.member.worker.get() ^ u64::from(self.member.rank.get()).rotate_left(32);
        let wait = self.config.back_off(salt, recovery.attempts);
        recovery.retry_at = self.now.saturating_add(wait);
        self.stats.requests += 1;
        self.out.request = Some(SourceRequest {
            id: recovery.request,
            attempt: recovery.attempts,
            member: self.member,
            generation,
            kind: recovery.kind,
        });
    }

    /// The stream came a step further: patience starts anew.
    pub(super) fn note_progress(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.attempts = 0;
            recovery.deadline = self.now.saturating_add(self.config.deadline());
        }
    }

    /// Whether history could tell what lies between a full state as of one event and another event.
    pub(super) fn is_near(&self, as_of: Option<EventId>, goal: Option<EventId>) -> bool {
        let number = |id: Option<EventId>| id.map_or(0, EventId::get);
        number(goal).saturating_sub(number(as_of)) <= self.config.max_history()
    }

    /// Nothing is missing.
    fn finish(&mut self) {
        self.goal = None;
        if self.recovery.take().is_some() || !self.recovered {
            self.recovered = true;
            self.out.request = None;
            self.out.notify(SourceNotice::Recovered { through: self.applied });
        }
    }

    /// Notes a doubt, unless there is one that is at least as grave.
    pub(super) fn raise(&mut self, doubt: Doubt) {
        let is_graver =
            |held: Doubt| held == Doubt::Orphans || (held.leaves_state() && !doubt.leaves_state());
        if self.doubt.is_none_or(is_graver) {
            self.doubt = Some(doubt);
        }
    }

    /// If the only doubt is about orphans: goes on without their parents. Returns whether it was.
    pub(super) fn forgive_orphans(&mut self) -> bool {
        let only_orphans = self.doubt == Some(Doubt::Orphans);
        if only_orphans {
            self.doubt = None;
            self.rest_from_orphans();
            // What waits behind them may be another gap, which nobody was asked about yet.
            self.note_progress();
        }
        only_orphans
    }

    /// For some time orphans are only counted.
    pub(super) fn rest_from_orphans(&mut self) {
        self.orphans_rest = self.now.saturating_add(self.config.orphan_interval());
    }

    /// Asks again or gives up, when it is time.
    pub(super) fn check_timers(&mut self) {
        let Some(recovery) = &self.recovery else { return };
        if recovery.deadline.is_due(self.now) {
            self.give_up();
        } else if recovery.retry_at.is_due(self.now) {
            if recovery.asks_history() && recovery.attempts >= self.config.history_attempts() {
                self.doubt = Some(Doubt::NoHistory);
                self.open(RequestKind::FullState);
            }
            self.send();
        }
    }

    /// Ends a recovery that came to nothing. A member whose state is unknown owns nothing.
    fn give_up(&mut self) {
        if self.forgive_orphans() {
            return self.settle();
        }
        self.stats.failures += 1;
        self.stats.covered += self.queue.clear();
        self.doubt = Some(Doubt::Failed);
        self.recovery = None;
        self.goal = None;
        self.front.reset();
        self.out.request = None;
        self.out.clear_member();
        self.out.notify(SourceNotice::RecoveryFailed);
    }

    /// Whether this is the open question for a full state.
    pub(super) fn awaits_full_state(&self, request: RequestId) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| {
            recovery.request == request && recovery.awaits(RequestKind::FullState)
        })
    }

    /// The open question has its answer.
    pub(super) fn close_question(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.open = false;
        }
    }

    /// A history answer is over. Returns whether it belongs to the open question.
    ///
    /// History that brought the stream further is asked on; otherwise it has nothing to give.
    pub(super) fn close_history(&mut self, request: RequestId, unavailable: bool) -> bool {
        let next = self.next();
        let Some(recovery) = &mut self.recovery else { return false };
        let RequestKind::History { from, .. } = recovery.kind else { return false };
        if recovery.request != request || !recovery.open {
            return false;
        }
        recovery.open = false;
        if unavailable || next == Some(from) {
            self.raise(Doubt::NoHistory);
        }
        true
    }
}
