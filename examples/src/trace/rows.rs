//! Formats with one request a line: Mooncake and Bailian.

use serde::Deserialize;

use super::{Request, check_tokens, millis, parse, sequence_hashes};

/// Ids of these formats are unique in the whole file, so all rows share one scope.
const FILE_SCOPE: u64 = 0;

/// Unit of `timestamp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeUnit {
    /// Mooncake.
    Milliseconds,
    /// Bailian.
    Seconds,
}

/// The keys the replay looks at.
#[derive(Deserialize)]
pub(super) struct Row {
    timestamp: f64,
    input_length: u64,
    output_length: Option<u64>,
    hash_ids: Vec<u64>,
}

impl Row {
    /// Turns one line into a request. Cost: linear in the line.
    pub(super) fn parse(line: &str, unit: TimeUnit) -> Result<Request, String> {
        let row: Self = parse(line)?;
        check_tokens("input_length", Some(row.input_length))?;
        check_tokens("output_length", row.output_length)?;
        let per_unit = match unit {
            TimeUnit::Milliseconds => 1.0,
            TimeUnit::Seconds => 1_000.0,
        };
        let at = millis(row.timestamp, per_unit)?;
        Ok(Request { at, blocks: sequence_hashes(FILE_SCOPE, &row.hash_ids) })
    }
}
