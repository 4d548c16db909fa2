//! The figures of a run, as the JSON file has them and as a person reads them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::policy::Policy;

/// Figures of the main policy, and the hit rates of all that ran. Times are nanoseconds, sizes
/// bytes.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Figures {
    /// Requests replayed.
    pub requests: u64,
    /// Blocks of all their prompts.
    pub blocks_queried: u64,
    /// Batches of changes published by workers.
    pub events: u64,
    /// Commands that stage 1 handed to producers.
    pub commands: u64,
    /// Batches published by producers.
    pub batches: u64,
    /// Bucket images in them.
    pub images: u64,
    /// Bytes of deltas sent to the consumer.
    pub wire_bytes_delta: u64,
    /// Bytes of snapshots sent to the consumer.
    pub wire_bytes_snapshot: u64,
    /// Snapshots installed by the consumer.
    pub snapshots: u64,
    /// Subscriptions that lanes had to repeat: after a gap, a lost connection, a silence.
    pub resyncs: u64,
    /// Blocks owned but without room in a filter, at the end.
    pub omitted: u64,
    /// Answers: one per query and ready lane.
    pub answers: u64,
    /// Answers equal to the oracle's.
    pub answers_equal: u64,
    /// Answers deeper than the oracle's.
    pub answers_over: u64,
    /// Answers less deep than the oracle's.
    pub answers_under: u64,
    /// Requests whose deepest DC by the consumer is not one of the deepest by the oracle, because
    /// of a wrong answer or because the right lane was not ready.
    pub best_dc_wrong: u64,
    /// Blocks served from a cache / blocks queried.
    pub hit_rate: f64,
    /// Median time of a lookup over all lanes.
    pub lookup_ns_p50: u64,
    /// 99th percentile of the same.
    pub lookup_ns_p99: u64,
    /// After the final drain every lane's words equal its producer's words, and every producer
    /// owns as many blocks as the oracle.
    pub converged: bool,
    /// What each policy that ran achieved, by its name.
    pub policies: BTreeMap<&'static str, PolicyFigures>,
}

/// What one policy achieved.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PolicyFigures {
    /// Blocks served from a cache / blocks queried.
    pub hit_rate: f64,
}

/// `part / whole`, 0 of nothing.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, text: String| {
            writeln!(f, "  {name:<11}{text}")
        };
        let share = |part, whole| format!("{:.4} %", 100.0 * ratio(part, whole));
        line(
            f,
            "requests",
            format!("{} with {} blocks", count(self.requests), count(self.blocks_queried)),
        )?;
        for name in Policy::ALL.map(Policy::name) {
            if let Some(policy) = self.policies.get(name) {
                line(f, "hit rate", format!("{:>5.1} %  {name}", 100.0 * policy.hit_rate))?;
            }
        }
        line(
            f,
            "producers",
            format!(
                "{} events, {} commands, {} batches with {} images, {} blocks omitted",
                count(self.events),
                count(self.commands),
                count(self.batches),
                count(self.images),
                count(self.omitted)
            ),
        )?;
        line(
            f,
            "wire",
            format!(
                "{} of deltas, {} of snapshots",
                bytes(self.wire_bytes_delta),
                bytes(self.wire_bytes_snapshot)
            ),
        )?;
        line(
            f,
            "lanes",
            format!(
                "{} snapshots installed, {} resyncs",
                count(self.snapshots),
                count(self.resyncs)
            ),
        )?;
        line(
            f,
            "answers",
            format!(
                "{}: {} equal to the oracle's, {} over ({}), {} under ({})",
                count(self.answers),
                count(self.answers_equal),
                count(self.answers_over),
                share(self.answers_over, self.answers),
                count(self.answers_under),
                share(self.answers_under, self.answers)
            ),
        )?;
        line(
            f,
            "best DC",
            format!(
                "wrong for {} requests ({})",
                count(self.best_dc_wrong),
                share(self.best_dc_wrong, self.requests)
            ),
        )?;
        line(
            f,
            "lookup",
            format!("p50 {}, p99 {}", nanos(self.lookup_ns_p50), nanos(self.lookup_ns_p99)),
        )?;
        let verdict = if self.converged {
            "yes: every lane equals its producer, word for word"
        } else {
            "NO"
        };
        line(f, "converged", verdict.to_owned())
    }
}

/// A number with its thousands set apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in a unit that suits it.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// A duration in a unit that suits it.
pub fn nanos(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        _ => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [count(0), count(999), count(1_000), count(12_345_678)],
            ["0", "999", "1 000", "12 345 678"]
        );
        assert_eq!([bytes(5), bytes(2_048), bytes(3 << 20)], ["5 B", "2.0 KiB", "3.0 MiB"]);
        assert_eq!([nanos(5), nanos(2_500), nanos(3_000_000)], ["5 ns", "2.5 µs", "3.0 ms"]);
        assert_eq!((ratio(1, 4), ratio(1, 0)), (0.25, 0.0));
    }
}
