//! Requests of a recorded trace, streamed from a file.
//!
//! Three formats are recognised by the keys of the first line that is not blank:
//!
//! | format | a line is | recognised by | block |
//! |---|---|---|---|
//! | Mooncake | one request, `timestamp` in milliseconds | `hash_ids` | 512 tokens |
//! | Bailian | one request, `timestamp` in seconds | `hash_ids` and `chat_id` | 16 tokens |
//! | agentic | one conversation with all its requests | `requests` | 64 tokens |
//!
//! What is asked of a line:
//! - `timestamp`, `input_length` and `hash_ids` must be there and in range; `output_length` may be
//!   left out; other keys are ignored. Any `u64` is a legal id; negative numbers are not.
//! - Every id is one block of the query, the last one of a Mooncake row included, although it may
//!   stand for a partial block. `input_length` is checked but not compared with the number of ids:
//!   traces cut into other block sizes are common, and the ids alone decide.
//! - Blank lines, a byte order mark and CRLF line ends are accepted. A file without a single
//!   request is an error.
//! - Times that go backwards are accepted; the replay's clock stands still meanwhile.

mod agentic;
mod error;
mod lines;
mod rows;

use std::path::Path;

use ckf_core::{BlockHash, LocalHash, sequence};
use serde::Deserialize;
use serde::de::IgnoredAny;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use error::TraceError;

use agentic::Interleaved;
use lines::Lines;
use rows::{Row, TimeUnit};

/// One prompt to be routed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Arrival in milliseconds; only differences between requests mean anything.
    pub at: u64,
    /// The sequence hashes of its blocks, first block first. May be empty.
    pub blocks: Vec<BlockHash>,
}

/// A trace being read: an iterator of requests that ends after the first error.
pub struct Trace {
    lines: Lines,
    format: Format,
    served: bool,
    failed: bool,
}

enum Format {
    Unknown { seed: u64 },
    Rows(TimeUnit),
    Conversations(Interleaved),
}

impl Trace {
    /// Opens the file and looks at its first bytes for compression; lines are read as requests are
    /// taken. `seed` fixes the start offsets of conversations and matters to no other format.
    ///
    /// Memory: one line, and for conversations the bounded number that runs at once.
    pub fn open(path: &Path, seed: u64) -> Result<Self, TraceError> {
        let lines = Lines::open(path)?;
        Ok(Self { lines, format: Format::Unknown { seed }, served: false, failed: false })
    }

    /// Bytes of the file read so far, and its size in bytes; for a progress bar.
    pub fn bytes_read(&self) -> (u64, u64) {
        self.lines.position()
    }

    fn read(&mut self) -> Result<Option<Request>, TraceError> {
        let mut first = None;
        if let Format::Unknown { seed } = self.format {
            let Some(line) = self.lines.next_line()? else { return Ok(None) };
            let line = line.to_owned();
            self.format = recognise(&line, seed).map_err(|reason| self.lines.bad(reason))?;
            first = Some(line);
        }
        match &mut self.format {
            Format::Unknown { .. } => Ok(None),
            Format::Conversations(interleaved) => interleaved.next(first, &mut self.lines),
            Format::Rows(unit) => {
                let line = match &first {
                    Some(line) => line,
                    None => match self.lines.next_line()? {
                        Some(line) => line,
                        None => return Ok(None),
                    },
                };
                Row::parse(line, *unit).map(Some).map_err(|reason| self.lines.bad(reason))
            }
        }
    }
}

impl Iterator for Trace {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let result = match self.read() {
            Ok(None) if !self.served => Err(self.lines.empty()),
            result => result,
        };
        self.served = true;
        self.failed = result.is_err();
        result.transpose()
    }
}

/// The format whose keys the line has.
fn recognise(line: &str, seed: u64) -> Result<Format, String> {
    #[derive(Deserialize)]
    struct Keys {
        hash_ids: Option<IgnoredAny>,
        chat_id: Option<IgnoredAny>,
        requests: Option<IgnoredAny>,
    }
    let keys: Keys = parse(line)?;
    match (keys.requests, keys.hash_ids, keys.chat_id) {
        (Some(_), _, _) => Ok(Format::Conversations(Interleaved::new(seed))),
        (None, Some(_), Some(_)) => Ok(Format::Rows(TimeUnit::Seconds)),
        (None, Some(_), None) => Ok(Format::Rows(TimeUnit::Milliseconds)),
        (None, None, _) => {
            Err("no known trace format: a line must have `hash_ids` (one request) or `requests` \
                 (one conversation)"
                .to_owned())
        }
    }
}

/// Parses one line of JSON; the error says the column but no line, which the caller knows better.
fn parse<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, String> {
    if !line.starts_with('{') {
        return Err("not a JSON object".to_owned());
    }
    serde_json::from_str(line).map_err(|error| {
        let column = error.column();
        let text = error.to_string();
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
        format!("{reason} (column {column})")
    })
}

/// The latest time stamp taken, in milliseconds: about 31 700 years, exact in a double.
const MAX_MILLIS: f64 = 1e15;

/// Milliseconds of a time given in some unit, refused when negative or absurd.
fn millis(time: f64, per_unit: f64) -> Result<u64, String> {
    let millis = time * per_unit;
    if (0.0..=MAX_MILLIS).contains(&millis) {
        Ok(millis as u64)
    } else {
        Err(format!("time {time} is not within 0 and {} ms", MAX_MILLIS as u64))
    }
}

/// Longest prompt or answer taken, in tokens; far above any model.
const MAX_TOKENS: u64 = 1 << 40;

/// Refuses an absurd number of tokens; negative and fractional ones were refused by the parser.
fn check_tokens(key: &str, tokens: Option<u64>) -> Result<(), String> {
    match tokens {
        Some(tokens) if tokens > MAX_TOKENS => {
            Err(format!("{key} {tokens} is above {MAX_TOKENS} tokens"))
        }
        _ => Ok(()),
    }
}

/// A block's own hash, standing in for the tokens that a trace does not publish: a function of the
/// id and of the scope in which ids are unique.
fn local_hash(scope: u64, id: u64) -> LocalHash {
    LocalHash::new(xxh3_64_with_seed(&id.to_le_bytes(), scope))
}

/// The sequence hashes of a prompt given by ids, as an engine would chain them.
fn sequence_hashes(scope: u64, ids: &[u64]) -> Vec<BlockHash> {
    sequence::roll_all(None, ids.iter().map(|&id| local_hash(scope, id))).collect()
}

#[cfg(test)]
mod tests;
