//! What source streams tell their host: questions, notices, errors, counters.

use alloc::collections::VecDeque;

use ckf_core::BlockHash;
use thiserror::Error;

use super::ids::{EventId, RequestId, SourceGeneration};
use crate::command::Command;
use crate::member::Member;

/// A question that the host passes on to the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceRequest {
    /// Names the question; repetitions of it carry the same id.
    pub id: RequestId,
    /// Which of the repetitions this is, from 1.
    pub attempt: u32,
    /// Whose events are asked for.
    pub member: Member,
    /// The generation that is asked. An answer of another one does not count.
    pub generation: SourceGeneration,
    /// What is asked.
    pub kind: RequestKind,
}

/// What a source is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestKind {
    /// Past events. An answer may run past `to`, as engines' replay sockets do.
    History {
        /// The first event that is missing.
        from: EventId,
        /// The last one that is known to be missing.
        to: EventId,
    },
    /// All that the member holds, and the id of the last event that is in it.
    FullState,
}

/// Why the stream does not know the member's state exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Doubt {
    /// The stream joined in the middle.
    FirstContact,
    /// The source began a new life.
    Replaced,
    /// More events are missing than are asked from history.
    LongGap,
    /// History could not give what is missing.
    NoHistory,
    /// More events waited than the member's queue, or those of the pool together, may hold.
    Overflow,
    /// The host left more commands waiting than are kept, of the member or of the pool.
    Backlog,
    /// An event built on blocks that the stream has never seen. All else is known: the one doubt
    /// for which nothing is ever cleared.
    Orphans,
    /// The host said so.
    Host,
    /// A recovery came to nothing.
    Failed,
}

impl Doubt {
    /// Whether the pool holds the member's state as of the last event applied: only what follows
    /// is missing, or what was missing from the beginning.
    pub(super) fn leaves_state(self) -> bool {
        matches!(self, Self::LongGap | Self::NoHistory | Self::Overflow | Self::Orphans)
    }
}

/// Something that happened to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceNotice {
    /// Events are missing, or the state is in doubt; the stream asks.
    RecoveryStarted {
        /// Why a full state is needed; `None` for a gap that history should fill.
        doubt: Option<Doubt>,
    },
    /// The stream knows the state exactly again, up to and including this event.
    Recovered {
        /// The last event applied; `None` when the generation has published nothing yet.
        through: Option<EventId>,
    },
    /// The deadline passed without progress. The member is cleared; the next sign of life starts
    /// over.
    RecoveryFailed,
    /// The source began a new life: what the old one held is cleared.
    Replaced {
        /// The new generation.
        generation: SourceGeneration,
    },
    /// Blocks could not be placed because a predecessor is unknown.
    Orphans {
        /// How many.
        blocks: u64,
    },
}

/// What became of something that was handed to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Handled {
    /// Its commands are ready to be polled.
    Applied,
    /// It waits for earlier events.
    Queued,
    /// More wait than the limits allow: the oldest of the member's were given up, this one perhaps
    /// among them, for a full state to cover.
    Overflowed,
    /// Its effects are already applied, or it waits already.
    Duplicate,
    /// It is of a generation that is over, or of a member that was removed.
    OldGeneration,
    /// An answer to a question that is no longer open.
    Late,
    /// An answer that does not help: the question stays open.
    Unusable,
    /// Taken notice of; nothing else to say.
    Noted,
}

/// Why a stream wants to be called at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WakeReason {
    /// To ask again.
    Retry,
    /// To give a recovery up.
    Deadline,
    /// To call the pool ready although members are missing.
    ReadyLimit,
}

/// Where a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamState {
    /// The source has given no sign of life yet.
    Idle,
    /// All that is known to be published is applied.
    Live,
    /// Something is missing and was asked for.
    Recovering {
        /// Why a full state is needed; `None` while history is asked.
        doubt: Option<Doubt>,
    },
    /// A recovery failed; the next sign of life starts over.
    Failed,
}

/// Counters of a stream, from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStats {
    /// Events applied, each once.
    pub applied: u64,
    /// Events dropped because their effects were applied or waiting already.
    pub duplicates: u64,
    /// Events dropped from the queue because a full state or a clear covered them.
    pub covered: u64,
    /// Events given up because too many waited, of the member or of the pool.
    pub overflowed: u64,
    /// Of these, those given up for the limit of the pool.
    pub shed: u64,
    /// Events, heartbeats and answers of generations that were over.
    pub old_generation: u64,
    /// Answers to questions that were no longer open.
    pub late_answers: u64,
    /// Full states and latest events that could not be used: older than what is applied.
    pub unusable_states: u64,
    /// Questions asked, repetitions included.
    pub requests: u64,
    /// Recoveries that were started.
    pub recoveries: u64,
    /// Recoveries that failed.
    pub failures: u64,
    /// Full states installed.
    pub full_states: u64,
    /// Times that the member started over from the latest events, as its source has no full state.
    pub started_over: u64,
    /// Generations that followed another one.
    pub replacements: u64,
    /// Orphaned blocks.
    pub orphan_blocks: u64,
    /// Times that commands were dropped because the host left too many waiting.
    pub backlogs: u64,
    /// Notices dropped because the host left too many waiting.
    pub dropped_notices: u64,
}

impl SourceStats {
    /// Adds another stream's counters to these.
    pub(super) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.applied, other.applied),
            (&mut self.duplicates, other.duplicates),
            (&mut self.covered, other.covered),
            (&mut self.overflowed, other.overflowed),
            (&mut self.shed, other.shed),
            (&mut self.old_generation, other.old_generation),
            (&mut self.late_answers, other.late_answers),
            (&mut self.unusable_states, other.unusable_states),
            (&mut self.requests, other.requests),
            (&mut self.recoveries, other.recoveries),
            (&mut self.failures, other.failures),
            (&mut self.full_states, other.full_states),
            (&mut self.started_over, other.started_over),
            (&mut self.replacements, other.replacements),
            (&mut self.orphan_blocks, other.orphan_blocks),
            (&mut self.backlogs, other.backlogs),
            (&mut self.dropped_notices, other.dropped_notices),
        ];
        for (to, from) in pairs {
            *to += from;
        }
    }
}

/// What waits for the host.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    member: Member,
    commands: VecDeque<Command>,
    command_bytes: u64,
    pub(super) request: Option<SourceRequest>,
    notices: VecDeque<SourceNotice>,
    max_notices: usize,
    pub(super) dropped_notices: u64,
}

impl Outbox {
    pub(super) fn new(member: Member, max_notices: u32) -> Self {
        Self {
            member,
            commands: VecDeque::new(),
            command_bytes: 0,
            request: None,
            notices: VecDeque::new(),
            max_notices: max_notices as usize,
            dropped_notices: 0,
        }
    }

    /// Adds a command; returns the bytes of commands that wait now.
    pub(super) fn push(&mut self, command: Command) -> u64 {
        self.command_bytes += command_bytes(&command);
        self.commands.push_back(command);
        self.command_bytes
    }

    /// Drops the commands that wait and says that the member holds nothing: what was dropped
    /// cannot matter any more.
    pub(super) fn clear_member(&mut self) {
        self.commands.clear();
        self.command_bytes = 0;
        self.commands.push_back(Command::ClearMember { member: self.member });
    }

    /// Drops the commands that wait and says all that the member holds.
    pub(super) fn replace_member(&mut self, hashes: alloc::vec::Vec<BlockHash>) {
        self.commands.clear();
        self.command_bytes = 0;
        self.commands.push_back(Command::ReplaceMember { member: self.member, hashes });
    }

    pub(super) fn pop_command(&mut self) -> Option<Command> {
        let command = self.commands.pop_front()?;
        self.command_bytes -= command_bytes(&command);
        Some(command)
    }

    pub(super) fn command_bytes(&self) -> u64 {
        self.command_bytes
    }

    pub(super) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    pub(super) fn notify(&mut self, notice: SourceNotice) {
        self.notices.push_back(notice);
        while self.notices.len() > self.max_notices {
            self.notices.pop_front();
            self.dropped_notices += 1;
        }
    }

    pub(super) fn pop_notice(&mut self) -> Option<SourceNotice> {
        self.notices.pop_front()
    }

    pub(super) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }
}

/// What a command counts towards the limits. A clear and a full state do not: there is at most one of
/// them, the first, and it is what one needs to get below the limits again.
fn command_bytes(command: &Command) -> u64 {
    match command {
        Command::Store { hashes, .. } | Command::Remove { hashes, .. } => {
            (size_of::<Command>() + hashes.len() * 8) as u64
        }
        _ => 0,
    }
}

/// Why something for a member was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SourcesError {
    /// There are as many members as there can be.
    #[error("no room for another member beside {max_members}")]
    TooManyMembers {
        /// The limit.
        max_members: usize,
    },
    /// Nobody announced this member, and discovery is off.
    #[error("unknown member {member}")]
    UnknownMember {
        /// The member.
        member: Member,
    },
}

/// Something that happened to a pool's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourcesNotice {
    /// Something happened to a member's stream.
    Stream {
        /// The member.
        member: Member,
        /// What happened.
        notice: SourceNotice,
    },
    /// The pool became ready; [`PoolSources::readiness`](super::PoolSources::readiness) tells why.
    Ready,
}
