//! The default input: seeded traffic of multi-turn chats and questions about long documents.
//!
//! A chat starts with one of a few system prompts (some far more popular than others) and grows by
//! a few blocks a turn; each turn's prompt repeats everything before it. A document session puts one
//! of many long documents behind the common instructions and asks a handful of questions about it,
//! each prompt ending differently. Popular documents are opened again and again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ckf_core::{BlockHash, LocalHash, sequence};

use crate::rng::Rng;
use crate::trace::Request;

/// Requests of a run that sets no limit.
pub const DEFAULT_REQUESTS: u64 = 20_000;

const SYSTEM_PROMPTS: u64 = 12;
const DOCUMENTS: u64 = 300;
/// Mean milliseconds between two new sessions.
const MEAN_GAP: u64 = 400;

/// An endless stream of requests in order of time, the same for the same seed.
///
/// Memory: the sessions that run at once, a few hundred.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    next_start: u64,
    started: u64,
    running: BinaryHeap<Reverse<Session>>,
}

/// Ordered by the next request's time, then by age.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Session {
    at: u64,
    number: u64,
    turns_left: u64,
    /// Blocks that every later prompt of the session repeats.
    context: Vec<BlockHash>,
    /// Whether a prompt becomes part of the context (a chat) or not (a document).
    grows: bool,
}

impl Generator {
    /// Traffic fixed by the seed.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed, 0x6E4), next_start: 0, started: 0, running: BinaryHeap::new() }
    }

    fn start_session(&mut self) -> Session {
        let (at, number) = (self.next_start, self.started);
        self.next_start += self.rng.between(0, 2 * MEAN_GAP);
        self.started += 1;
        let mut context = Vec::new();
        let grows = self.rng.chance(0.75);
        if grows {
            let system = skewed(&mut self.rng, SYSTEM_PROMPTS);
            // Lengths are functions of the number, so that a shared text is the same each time.
            append_text(&mut context, Text::System(system), 4 + system * 7 % 20);
        } else {
            let document = skewed(&mut self.rng, DOCUMENTS);
            append_text(&mut context, Text::Instructions, 3);
            append_text(&mut context, Text::Document(document), 60 + document * 37 % 240);
        }
        let turns_left = if grows { self.rng.between(1, 14) } else { self.rng.between(1, 5) };
        Session { at, number, turns_left, context, grows }
    }

    fn take_turn(&mut self, mut session: Session) -> Request {
        let fresh = self.rng.between(1, if session.grows { 12 } else { 4 });
        let text = Text::Turn(session.number, session.turns_left);
        let mut blocks = session.context.clone();
        append_text(&mut blocks, text, fresh);
        let request = Request { at: session.at, blocks };
        session.turns_left -= 1;
        if session.turns_left > 0 {
            session.at += self.rng.between(3_000, 60_000);
            if session.grows {
                session.context.clone_from(&request.blocks);
            }
            self.running.push(Reverse(session));
        }
        request
    }
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        while self.running.peek().is_none_or(|Reverse(first)| first.at >= self.next_start) {
            let session = self.start_session();
            self.running.push(Reverse(session));
        }
        let Reverse(session) = self.running.pop()?;
        Some(self.take_turn(session))
    }
}

/// What a run of blocks says; equal texts have equal blocks.
enum Text {
    System(u64),
    Instructions,
    Document(u64),
    Turn(u64, u64),
}

fn append_text(blocks: &mut Vec<BlockHash>, text: Text, count: u64) {
    let words = match text {
        Text::System(number) => [0, number, 0],
        Text::Instructions => [1, 0, 0],
        Text::Document(number) => [2, number, 0],
        Text::Turn(session, turn) => [3, session, turn],
    };
    let local = |i: u64| {
        let mut bytes = [0; 32];
        for (to, word) in bytes.chunks_exact_mut(8).zip([words[0], words[1], words[2], i]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        LocalHash::new(xxhash_rust::xxh3::xxh3_64(&bytes))
    };
    let parent = blocks.last().copied();
    blocks.extend(sequence::roll_all(parent, (0..count).map(local)));
}

/// A number in `0..count`, small ones much likelier: the smallest of three draws.
fn skewed(rng: &mut Rng, count: u64) -> u64 {
    rng.below(count).min(rng.below(count)).min(rng.below(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_seed_fixes_everything() {
        let take = |seed| Generator::new(seed).take(500).collect::<Vec<_>>();
        assert_eq!(take(3), take(3));
        assert_ne!(take(3), take(4));
    }

    #[test]
    fn traffic_is_ordered_bounded_and_worth_caching() {
        let mut generator = Generator::new(1);
        let mut resident = HashSet::new();
        let (mut blocks, mut hits, mut last, mut lone) = (0, 0, 0, 0);
        for _ in 0..5_000 {
            let request = generator.next().expect("endless");
            assert!(request.at >= last);
            last = request.at;
            let leading =
                request.blocks.iter().take_while(|block| resident.contains(*block)).count();
            blocks += request.blocks.len();
            hits += leading;
            lone += usize::from(leading == 0);
            resident.extend(request.blocks);
            assert!(generator.running.len() < 2_000);
        }
        let rate = hits as f64 / blocks as f64;
        assert!((0.5..0.95).contains(&rate), "{rate}");
        assert!(lone > 0 && lone < 100, "{lone}");
    }
}
