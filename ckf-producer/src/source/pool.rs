//! All streams of a pool: who is expected, who is there, whether enough is known.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use ckf_protocol::Instant;

use super::answers::FullState;
use super::config::PoolSourcesConfig;
use super::departed::Departed;
use super::front::Front;
use super::ids::{EventId, RequestId, SourceGeneration};
use super::output::{Handled, SourceRequest, SourceStats, SourcesError, SourcesNotice, WakeReason};
use super::readiness::{Gate, Readiness};
use super::stream::SourceStream;
use super::turns::Turns;
use crate::command::Command;
use crate::member::{Member, WorkerId};

#[derive(Clone, Debug)]
struct Slot<F: Front> {
    stream: SourceStream<F>,
    expected: bool,
    /// Under which time the stream is listed in `wake`.
    due: Option<Instant>,
    /// What the stream adds to the pool's sums of waiting events and commands.
    queued: Queued,
    command_bytes: u64,
}

impl<F: Front> Slot<F> {
    /// Brings what the stream adds to the pool's sum of waiting commands up to date.
    fn count_commands(&mut self, sum: &mut u64) {
        let before = core::mem::replace(&mut self.command_bytes, self.stream.command_bytes());
        *sum = *sum - before + self.command_bytes;
    }
}

/// Events that wait, and their bytes.
type Queued = (usize, u64);

/// The streams of all members of one pool, each for itself: numbering, generations and recovery of
/// one never touch another, ranks of one worker included (report F10).
///
/// The calls are those of [`SourceStream`], with the member in front. Work of a call is that of the
/// one stream it goes to, plus look-ups that grow with the logarithm of the members;
/// [`handle_timeout`](Self::handle_timeout) serves all streams that are due.
#[derive(Clone, Debug)]
pub struct PoolSources<F: Front> {
    config: PoolSourcesConfig,
    front: F,
    now: Instant,
    members: BTreeMap<Member, Slot<F>>,
    departed: Departed,
    /// Events that wait in all streams together.
    queued: Queued,
    /// Bytes of the commands that wait in all streams together.
    command_bytes: u64,
    wake: BTreeSet<(Instant, Member)>,
    with_commands: Turns,
    with_requests: Turns,
    with_notices: Turns,
    /// Members and workers whose blocks go; before all commands of streams.
    clears: BTreeSet<Member>,
    worker_removals: BTreeSet<WorkerId>,
    gate: Gate,
    became_ready: bool,
    /// Counters of the streams that are gone.
    past: SourceStats,
    refused: u64,
}

impl<F: Front + Clone> PoolSources<F> {
    /// No members yet. Each gets a clone of `front`, an empty one. The time limit of the ready
    /// rule starts now.
    pub fn new(config: PoolSourcesConfig, front: F, now: Instant) -> Self {
        Self {
            config,
            front,
            now,
            members: BTreeMap::new(),
            departed: Departed::new(config.max_members),
            queued: (0, 0),
            command_bytes: 0,
            wake: BTreeSet::new(),
            with_commands: Turns::default(),
            with_requests: Turns::default(),
            with_notices: Turns::default(),
            clears: BTreeSet::new(),
            worker_removals: BTreeSet::new(),
            gate: Gate::new(config.ready, now),
            became_ready: false,
            past: SourceStats::default(),
            refused: 0,
        }
    }

    // Discovery.

    /// This member should come: the pool is not ready without most of those. Name all of them
    /// before the first sign of life of any, lest the pool be ready with the first.
    ///
    /// # Errors
    /// [`SourcesError::TooManyMembers`].
    pub fn expect(&mut self, member: Member, now: Instant) -> Result<(), SourcesError> {
        self.now = self.now.latest(now);
        let slot = self.slot(member)?;
        let newly = !core::mem::replace(&mut slot.expected, true);
        let recovered = slot.stream.has_recovered();
        if newly {
            self.gate.expected += 1;
            self.gate.recovered += usize::from(recovered);
        }
        // Should it leave again before anything is heard of it, what it said before it left the first
        // time is late still.
        self.touch(member);
        Ok(())
    }

    /// This member is there, in this generation: what it holds is asked for at once. Unlike data,
    /// an announcement, like an expectation, brings a removed member back in whatever generation.
    ///
    /// # Errors
    /// [`SourcesError::TooManyMembers`].
    pub fn announce(
        &mut self,
        member: Member,
        generation: SourceGeneration,
        now: Instant,
    ) -> Result<Handled, SourcesError> {
        self.now = self.now.latest(now);
        self.slot(member)?;
        self.departed.remove(member);
        self.with(member, |stream| stream.handle_announced(generation, now))
    }

    /// This member is gone: its blocks go, and everything that its stream knew. Returns whether
    /// there was such a member.
    pub fn remove(&mut self, member: Member, now: Instant) -> bool {
        self.now = self.now.latest(now);
        let there = self.drop_stream(member);
        if there {
            self.clears.insert(member);
            self.check_ready();
        }
        there
    }

    /// This worker is gone, with all ranks, those seen in data only included. Returns how many
    /// members it had.
    pub fn remove_worker(&mut self, worker: WorkerId, now: Instant) -> usize {
        self.now = self.now.latest(now);
        let ranks = Member::new(worker.get(), 0)..=Member::new(worker.get(), u32::MAX);
        let members: Vec<Member> = self.members.range(ranks).map(|(m, _)| *m).collect();
        members.iter().for_each(|member| {
            self.drop_stream(*member);
        });
        if !members.is_empty() {
            self.worker_removals.insert(worker);
            self.check_ready();
        }
        members.len()
    }

    // What happens outside; see the methods of the same names of `SourceStream`.

    /// See [`SourceStream::handle_event`]. Where the events that wait in all streams become too many,
    /// this member's oldest ones are given up, as they are in a stream of its own.
    ///
    /// # Errors
    /// [`SourcesError`], for members that are not there yet.
    pub fn handle_event(
        &mut self,
        member: Member,
        generation: SourceGeneration,
        id: EventId,
        event: F::Event,
        now: Instant,
    ) -> Result<Handled, SourcesError> {
        let handled = self.discover(member, generation, now, |stream| {
            stream.handle_event(generation, id, event, now)
        })?;
        // Only this stream can have made it too much, so that it has enough to give up.
        let (events, bytes) = self.queued;
        let (max_events, max_bytes) = self.config.max_queued;
        if events <= max_events && bytes <= max_bytes {
            return Ok(handled);
        }
        let over = (events.saturating_sub(max_events), bytes.saturating_sub(max_bytes));
        self.with(member, |stream| stream.shed(over))
    }

    /// See [`SourceStream::handle_heartbeat`].
    ///
    /// # Errors
    /// [`SourcesError`], for members that are not there yet.
    pub fn handle_heartbeat(
        &mut self,
        member: Member,
        generation: SourceGeneration,
        last: Option<EventId>,
        now: Instant,
    ) -> Result<Handled, SourcesError> {
        self.discover(member, generation, now, |stream| {
            stream.handle_heartbeat(generation, last, now)
        })
    }

    /// See [`SourceStream::handle_history_end`]. For a member that is gone the answer is late.
    pub fn handle_history_end(
        &mut self,
        member: Member,
        request: RequestId,
        now: Instant,
    ) -> Handled {
        self.answer(member, now, |stream| stream.handle_history_end(request, now))
    }

    /// See [`SourceStream::handle_full_state`]. For a member that is gone the answer is late.
    pub fn handle_full_state(
        &mut self,
        member: Member,
        request: RequestId,
        state: FullState<F::Event>,
        now: Instant,
    ) -> Handled {
        self.answer(member, now, |stream| stream.handle_full_state(request, state, now))
    }

    /// See [`SourceStream::handle_latest`]. For a member that is gone the answer is late.
    pub fn handle_latest(
        &mut self,
        member: Member,
        request: RequestId,
        generation: SourceGeneration,
        events: Vec<(EventId, F::Event)>,
        now: Instant,
    ) -> Handled {
        self.answer(member, now, |stream| stream.handle_latest(request, generation, events, now))
    }

    /// See [`SourceStream::handle_unavailable`]. For a member that is gone the answer is late.
    pub fn handle_unavailable(
        &mut self,
        member: Member,
        request: RequestId,
        now: Instant,
    ) -> Handled {
        self.answer(member, now, |stream| stream.handle_unavailable(request, now))
    }

    /// See [`SourceStream::handle_suspect`]. Of an unknown member there is nothing to suspect.
    pub fn handle_suspect(&mut self, member: Member, now: Instant) -> Handled {
        self.answer(member, now, |stream| stream.handle_suspect(now))
    }

    /// Time has passed: serves every stream that is due, and the ready rule.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.latest(now);
        let now = self.now;
        // Each stream is served once: one whose next time is due at once waits for the next call.
        let due: Vec<Member> =
            self.wake.iter().take_while(|(at, _)| *at <= now).map(|(_, member)| *member).collect();
        for member in due {
            let _ = self.with(member, |stream| stream.handle_timeout(now));
        }
        self.check_ready();
    }

    // What the host takes out.

    /// The next command for the pool. Commands must reach it in this order, in which members take turns.
    #[must_use]
    pub fn poll_command(&mut self) -> Option<Command> {
        if let Some(worker) = self.worker_removals.pop_first() {
            return Some(Command::RemoveWorker { worker });
        }
        if let Some(member) = self.clears.pop_first() {
            return Some(Command::ClearMember { member });
        }
        let (slots, sum) = (&mut self.members, &mut self.command_bytes);
        self.with_commands.serve(|member| {
            let slot = slots.get_mut(&member)?;
            let command = slot.stream.poll_command()?;
            slot.count_commands(sum);
            Some((command, slot.stream.has_commands()))
        })
    }

    /// The next question to a source.
    #[must_use]
    pub fn poll_request(&mut self) -> Option<SourceRequest> {
        let slots = &mut self.members;
        self.with_requests
            .serve(|member| Some((slots.get_mut(&member)?.stream.poll_request()?, false)))
    }

    /// The next notice.
    #[must_use]
    pub fn poll_notice(&mut self) -> Option<SourcesNotice> {
        if core::mem::take(&mut self.became_ready) {
            return Some(SourcesNotice::Ready);
        }
        let slots = &mut self.members;
        self.with_notices.serve(|member| {
            let stream = &mut slots.get_mut(&member)?.stream;
            let notice = stream.poll_notice()?;
            Some((SourcesNotice::Stream { member, notice }, stream.has_notices()))
        })
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called, and why; never at the end of
    /// time.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, WakeReason)> {
        let stream = self.wake.first().and_then(|(_, member)| {
            self.members.get(member).and_then(|slot| slot.stream.poll_timeout())
        });
        let gate = self.gate.timeout().map(|at| (at, WakeReason::ReadyLimit));
        stream.into_iter().chain(gate).min()
    }

    // What it is.

    /// Whether the pool can be used.
    pub fn readiness(&self) -> Readiness {
        self.gate.readiness()
    }

    /// The stream of a member that is there.
    pub fn stream(&self, member: Member) -> Option<&SourceStream<F>> {
        self.members.get(&member).map(|slot| &slot.stream)
    }

    /// The members that are there, in order.
    pub fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.members.keys().copied()
    }

    /// Counters of all streams, those of members that are gone included. Cost: the members.
    pub fn stats(&self) -> SourceStats {
        let mut sum = self.past;
        self.members.values().for_each(|slot| sum.add(&slot.stream.stats()));
        sum
    }

    /// Events that wait in all streams together, and their bytes: never above the limit of the
    /// [configuration](PoolSourcesConfig::with_max_queued).
    pub fn queued(&self) -> (usize, u64) {
        self.queued
    }

    /// Bytes of the commands that wait in all streams together: never above the limit of the
    /// [configuration](PoolSourcesConfig::with_max_command_bytes).
    pub fn command_bytes(&self) -> u64 {
        self.command_bytes
    }

    /// Events and heartbeats refused with a [`SourcesError`].
    pub fn refused(&self) -> u64 {
        self.refused
    }

    // How.

    /// The slot of a member, made if need be.
    fn slot(&mut self, member: Member) -> Result<&mut Slot<F>, SourcesError> {
        let room = self.members.len() + self.clears.len() + self.worker_removals.len();
        if room >= self.config.max_members && !self.members.contains_key(&member) {
            return Err(SourcesError::TooManyMembers { max_members: self.config.max_members });
        }
        Ok(self.members.entry(member).or_insert_with(|| Slot {
            stream: SourceStream::new(member, self.config.stream, self.front.clone()),
            expected: false,
            due: None,
            queued: (0, 0),
            command_bytes: 0,
        }))
    }

    /// Hands data to a member's stream, which is made if need be and allowed.
    fn discover(
        &mut self,
        member: Member,
        generation: SourceGeneration,
        now: Instant,
        hand: impl FnOnce(&mut SourceStream<F>) -> Handled,
    ) -> Result<Handled, SourcesError> {
        self.now = self.now.latest(now);
        if !self.members.contains_key(&member) {
            if self.departed.covers(member, generation) {
                self.past.old_generation += 1;
                return Ok(Handled::OldGeneration);
            }
            if !self.config.discover {
                self.refused += 1;
                return Err(SourcesError::UnknownMember { member });
            }
            if let Err(error) = self.slot(member).map(|_| ()) {
                self.refused += 1;
                return Err(error);
            }
            self.departed.remove(member);
        }
        self.with(member, hand)
    }

    /// Hands an answer to a member's stream, if there is one.
    fn answer(
        &mut self,
        member: Member,
        now: Instant,
        hand: impl FnOnce(&mut SourceStream<F>) -> Handled,
    ) -> Handled {
        self.now = self.now.latest(now);
        self.with(member, hand).unwrap_or_else(|_| {
            self.past.late_answers += 1;
            Handled::Late
        })
    }

    /// Hands something to the stream of a member that is there. All that changes a stream comes
    /// through here, the passing of time too: any of it may be what makes the stream live.
    fn with<T>(
        &mut self,
        member: Member,
        hand: impl FnOnce(&mut SourceStream<F>) -> T,
    ) -> Result<T, SourcesError> {
        let slot = self.members.get_mut(&member).ok_or(SourcesError::UnknownMember { member })?;
        let before = slot.stream.has_recovered();
        let handled = hand(&mut slot.stream);
        // Only this stream can have made it too much, and what it gives up is enough.
        let others = self.command_bytes - slot.command_bytes;
        if slot.stream.command_bytes() > self.config.max_command_bytes - others {
            slot.stream.give_up_commands();
        }
        if slot.expected && !before && slot.stream.has_recovered() {
            self.gate.recovered += 1;
        }
        self.touch(member);
        Ok(handled)
    }

    /// Lists a stream wherever it has something to say.
    fn touch(&mut self, member: Member) {
        let Some(slot) = self.members.get_mut(&member) else { return };
        let due = slot.stream.poll_timeout().map(|(at, _)| at);
        if due != slot.due {
            slot.due.into_iter().for_each(|at| {
                self.wake.remove(&(at, member));
            });
            due.into_iter().for_each(|at| {
                self.wake.insert((at, member));
            });
            slot.due = due;
        }
        let before = core::mem::replace(&mut slot.queued, slot.stream.queued());
        self.queued.0 = self.queued.0 - before.0 + slot.queued.0;
        self.queued.1 = self.queued.1 - before.1 + slot.queued.1;
        slot.count_commands(&mut self.command_bytes);
        if slot.stream.has_commands() {
            self.with_commands.insert(member);
        }
        if slot.stream.has_request() {
            self.with_requests.insert(member);
        }
        if slot.stream.has_notices() {
            self.with_notices.insert(member);
        }
        self.check_ready();
    }

    fn check_ready(&mut self) {
        self.became_ready |= self.gate.check(self.now);
    }

    /// Forgets a member's stream; returns whether there was one.
    fn drop_stream(&mut self, member: Member) -> bool {
        let Some(slot) = self.members.remove(&member) else { return false };
        slot.due.into_iter().for_each(|at| {
            self.wake.remove(&(at, member));
        });
        self.queued.0 -= slot.queued.0;
        self.queued.1 -= slot.queued.1;
        self.command_bytes -= slot.command_bytes;
        for list in [&mut self.with_commands, &mut self.with_requests, &mut self.with_notices] {
            list.remove(member);
        }
        if slot.expected {
            self.gate.expected -= 1;
            self.gate.recovered -= usize::from(slot.stream.has_recovered());
        }
        self.past.add(&slot.stream.stats());
        if let Some(generation) = slot.stream.generation() {
            self.departed.insert(member, generation);
        }
        true
    }
}
