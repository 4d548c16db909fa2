//! The agentic format: one conversation a line, ids local to it, no arrival times between them.
//!
//! Order of the requests. Conversations start in file order, each a seeded gap after the one
//! before it. At most [`MAX_ACTIVE`] run at once: when that many do, the next one starts when one of
//! them has made its last request. Within a conversation requests come by their own time, those of
//! a subagent at the subagent's time plus theirs. Over all running conversations the earliest
//! request comes first; of equally early ones, that of the conversation that stands first in the
//! file.

use std::collections::VecDeque;

use ckf_core::{BlockHash, sequence};
use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64;

use super::lines::Lines;
use super::{Request, TraceError, check_tokens, local_hash, millis, parse};
use crate::rng::Rng;

/// Conversations that run at once; bounds memory whatever the length of the file.
const MAX_ACTIVE: usize = 16;

/// Mean milliseconds between two starts; gaps are spread evenly from zero to twice this.
const MEAN_GAP: u64 = 60_000;

/// Conversations merged into one stream of requests.
pub(super) struct Interleaved {
    rng: Rng,
    /// Running conversations in file order.
    active: Vec<Conversation>,
    /// The next one in the file, read but not started.
    waiting: Option<Conversation>,
    last_start: u64,
    at_end: bool,
}

impl Interleaved {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed, 0xA6E7),
            active: Vec::new(),
            waiting: None,
            last_start: 0,
            at_end: false,
        }
    }

    /// The next request. `first` is a line that was taken from `lines` but not used yet.
    pub(super) fn next(
        &mut self,
        mut first: Option<String>,
        lines: &mut Lines,
    ) -> Result<Option<Request>, TraceError> {
        loop {
            let earliest = (0..self.active.len()).min_by_key(|&i| self.active[i].next_at());
            let room = self.active.len() < MAX_ACTIVE;
            if self.waiting.is_none() && !self.at_end {
                self.read_ahead(first.take(), lines)?;
            }
            let starts = self.waiting.as_ref().is_some_and(|waiting| {
                earliest.is_none_or(|i| waiting.start < self.active[i].next_at())
            });
            if room
                && starts
                && let Some(conversation) = self.waiting.take()
            {
                self.last_start = conversation.start;
                self.active.push(conversation);
                continue;
            }
            let Some(i) = earliest else { return Ok(None) };
            let request = self.active[i].take();
            if self.active[i].turns.is_empty() {
                self.active.remove(i);
                // One that had to wait for room starts now, not in the past.
                if let Some(waiting) = &mut self.waiting {
                    waiting.start = waiting.start.max(request.at);
                }
            }
            return Ok(Some(request));
        }
    }

    /// Reads conversations until one has a request, and gives it its start.
    fn read_ahead(&mut self, first: Option<String>, lines: &mut Lines) -> Result<(), TraceError> {
        let mut first = first;
        while self.waiting.is_none() {
            let parsed = match first.take() {
                Some(line) => Conversation::parse(&line),
                None => match lines.next_line()? {
                    Some(line) => Conversation::parse(line),
                    None => {
                        self.at_end = true;
                        return Ok(());
                    }
                },
            };
            let mut conversation = parsed.map_err(|reason| lines.bad(reason))?;
            if !conversation.turns.is_empty() {
                let gap = self.rng.between(0, 2 * MEAN_GAP);
                conversation.start = self.last_start.saturating_add(gap);
                self.waiting = Some(conversation);
            }
        }
        Ok(())
    }
}

/// A parsed conversation. Consecutive prompts mostly repeat their beginning, so a turn keeps only
/// what differs from the turn before it; a conversation of megabytes takes a few hundred KiB.
#[derive(Default)]
struct Conversation {
    start: u64,
    turns: VecDeque<Turn>,
    /// The blocks of the turn taken last.
    current: Vec<BlockHash>,
}

struct Turn {
    /// Milliseconds after the conversation's start.
    after: u64,
    /// Leading blocks equal to those of the turn before.
    shared: usize,
    /// The other blocks.
    rest: Vec<BlockHash>,
}

impl Conversation {
    fn parse(line: &str) -> Result<Self, String> {
        let line: Line = parse(line)?;
        if line.hash_id_scope != "local" {
            return Err(format!("hash_id_scope `{}` is not `local`", line.hash_id_scope));
        }
        let scope = xxh3_64(line.id.as_bytes());
        let mut prompts = Vec::new();
        flatten(line.requests, 0, &mut prompts)?;
        prompts.sort_by_key(|&(after, _)| after);

        let mut conversation = Self::default();
        let (mut ids, mut blocks): (Vec<u64>, Vec<BlockHash>) = (Vec::new(), Vec::new());
        for (after, next_ids) in prompts {
            let shared = ids.iter().zip(&next_ids).take_while(|(a, b)| a == b).count();
            let parent = shared.checked_sub(1).map(|last| blocks[last]);
            let locals = next_ids[shared..].iter().map(|&id| local_hash(scope, id));
            let rest: Vec<_> = sequence::roll_all(parent, locals).collect();
            blocks.truncate(shared);
            blocks.extend_from_slice(&rest);
            ids = next_ids;
            conversation.turns.push_back(Turn { after, shared, rest });
        }
        Ok(conversation)
    }

    /// When the next request is due; `u64::MAX` when there is none.
    fn next_at(&self) -> u64 {
        self.turns.front().map_or(u64::MAX, |turn| self.start.saturating_add(turn.after))
    }

    /// Takes the next request; an empty one when there is none.
    fn take(&mut self) -> Request {
        let at = self.next_at();
        if let Some(turn) = self.turns.pop_front() {
            self.current.truncate(turn.shared);
            self.current.extend_from_slice(&turn.rest);
        }
        Request { at, blocks: self.current.clone() }
    }
}

#[derive(Deserialize)]
struct Line {
    id: String,
    #[serde(default = "local")]
    hash_id_scope: String,
    requests: Vec<Entry>,
}

fn local() -> String {
    "local".to_owned()
}

/// A request, or a subagent with requests of its own.
#[derive(Deserialize)]
struct Entry {
    t: f64,
    #[serde(rename = "in")]
    input: Option<u64>,
    out: Option<u64>,
    hash_ids: Option<Vec<u64>>,
    requests: Option<Vec<Entry>>,
}

fn flatten(
    entries: Vec<Entry>,
    base: u64,
    prompts: &mut Vec<(u64, Vec<u64>)>,
) -> Result<(), String> {
    for (i, entry) in entries.into_iter().enumerate() {
        let blame = |reason| format!("request {i}: {reason}");
        let after = millis(entry.t, 1_000.0).map_err(blame)?;
        check_tokens("in", entry.input).map_err(blame)?;
        check_tokens("out", entry.out).map_err(blame)?;
        // A nesting is at most as deep as the JSON parser allows, so this cannot overflow.
        let after = base + after;
        match (entry.requests, entry.hash_ids) {
            (Some(inner), _) => flatten(inner, after, prompts)?,
            (None, Some(ids)) => prompts.push((after, ids)),
            (None, None) => return Err(blame("missing field `hash_ids`".to_owned())),
        }
    }
    Ok(())
}
