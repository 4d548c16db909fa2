//! The targets: one row for each, met or not, measured or not.

use serde_json::{Map, Value, json};

/// How a value is judged.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Below(f64),
}

impl Bound {
    fn met(self, value: f64) -> bool {
        match self {
            Self::AtMost(target) => value <= target,
            Self::AtLeast(target) => value >= target,
            Self::Below(target) => value < target,
        }
    }

    fn parts(self) -> (&'static str, f64) {
        match self {
            Self::AtMost(target) => ("at most", target),
            Self::AtLeast(target) => ("at least", target),
            Self::Below(target) => ("below", target),
        }
    }
}

/// Results by path, `None` where a part was not measured.
struct Results<'a>(&'a Map<String, Value>);

impl Results<'_> {
    fn at(&self, path: &[&str]) -> Option<f64> {
        let (first, rest) = path.split_first()?;
        let start = self.0.get(*first)?;
        rest.iter().try_fold(start, |value, key| value.get(*key))?.as_f64()
    }

    /// Quotient of two figures of one run of lookups.
    fn ratio(&self, run: &str, figure: &str, ours: &str, theirs: f64) -> Option<f64> {
        Some(self.at(&[run, ours, figure])? / theirs)
    }

    fn faster_exact(&self, run: &str, figure: &str) -> Option<f64> {
        let chain = self.at(&[run, "kvindex.chain", figure])?;
        let maps = self.at(&[run, "kvindex.find_matches", figure])?;
        let tree = self.at(&[run, "dynamo.tree", figure])?;
        Some(chain.min(maps).min(tree))
    }

    fn against_filter(&self, run: &str, figure: &str, ours: &str) -> Option<f64> {
        self.ratio(run, figure, ours, self.at(&[run, "dynamo.filter", figure])?)
    }

    fn against_exact(&self, run: &str, figure: &str, ours: &str) -> Option<f64> {
        self.ratio(run, figure, ours, self.faster_exact(run, figure)?)
    }

    /// As [`against_filter`](Self::against_filter), the time of their sequence hashing taken off.
    fn against_unhashed(&self, run: &str, figure: &str, ours: &str) -> Option<f64> {
        let theirs = self.at(&[run, "dynamo.filter", figure])?;
        self.ratio(run, figure, ours, theirs - self.at(&[run, "dynamo.hashing", figure])?)
    }

    /// Throughput of ours over theirs, in a producer scenario.
    fn throughput(&self, path: &[&str]) -> Option<f64> {
        let [ours, theirs] = ["ours", "dynamo"].map(|side| self.at(&producer(side, path)));
        Some(ours? / theirs?)
    }

    /// As [`throughput`](Self::throughput), the time of their sequence hashing taken off.
    fn unhashed_throughput(&self, path: &[&str]) -> Option<f64> {
        let ours = self.at(&producer("ours", path))?;
        let theirs = 1e9 / self.at(&producer("dynamo", path))?;
        Some(ours / 1e9 * (theirs - self.at(&["producer", "hashing_ns_per_block"])?))
    }
}

fn producer<'a>(side: &'a str, path: &[&'a str]) -> Vec<&'a str> {
    [&["producer", side], path].concat()
}

/// Names of the runs that the lookup targets speak of.
pub const AT_1M: &str = "families_1000000";
pub const AT_10M: &str = "families_10000000";
pub const LANES_64: &str = "families_64_lanes";
pub const LONG: &str = "families_4096_blocks";

/// One entry per target, in the order in which the targets are stated.
pub fn ratios(out: &Map<String, Value>) -> Vec<Value> {
    let results = Results(out);
    let mut rows = Rows(Vec::new());
    lookups(&results, &mut rows);
    producers(&results, &mut rows);
    rows.0
}

struct Rows(Vec<Value>);

impl Rows {
    fn add(&mut self, name: &str, bound: Bound, value: Option<f64>) {
        let (relation, target) = bound.parts();
        self.0.push(json!({
            "name": name, "value": value, "relation": relation, "target": target,
            "met": value.map(|value| bound.met(value)),
        }));
    }

    /// A row whose peer does more work than ours: also says what is left without it.
    fn add_fair(&mut self, name: &str, bound: Bound, value: Option<f64>, without: Option<f64>) {
        self.add(name, bound, value);
        if let Some(row) = self.0.last_mut() {
            row["value_without_hashing"] = json!(without);
        }
    }

    /// What the last row would be if each request counted with the median of its rounds.
    fn by_medians(&mut self, value: Option<f64>) {
        if let Some(row) = self.0.last_mut() {
            row["value_by_medians"] = json!(value);
        }
    }
}

fn lookups(r: &Results<'_>, rows: &mut Rows) {
    use Bound::{AtMost, Below};
    let (p50, p99, steady) = ("p50_ns", "p99_ns", "median_p99_ns");
    for (run, size, filter) in [(AT_1M, "1 M", 0.1), (AT_10M, "10 M", 0.125)] {
        rows.add_fair(
            &format!("lookup p50, {size}: jump / filter"),
            AtMost(filter),
            r.against_filter(run, p50, "ours.jump"),
            r.against_unhashed(run, p50, "ours.jump"),
        );
        rows.add(
            &format!("lookup p50, {size}: jump / faster exact"),
            AtMost(0.5),
            r.against_exact(run, p50, "ours.jump"),
        );
        rows.add(
            &format!("lookup p50, {size}: walk / faster exact"),
            AtMost(1.0),
            r.against_exact(run, p50, "ours.walk"),
        );
    }
    rows.add_fair(
        "lookup p99, 10 M: jump / filter",
        AtMost(0.125),
        r.against_filter(AT_10M, p99, "ours.jump"),
        r.against_unhashed(AT_10M, p99, "ours.jump"),
    );
    rows.by_medians(r.against_filter(AT_10M, steady, "ours.jump"));
    rows.add(
        "lookup p99, 10 M: jump / faster exact",
        AtMost(0.75),
        r.against_exact(AT_10M, p99, "ours.jump"),
    );
    rows.by_medians(r.against_exact(AT_10M, steady, "ours.jump"));
    rows.add_fair(
        "lookup p99, 10 M: walk / filter",
        Below(0.25),
        r.against_filter(AT_10M, p99, "ours.walk"),
        r.against_unhashed(AT_10M, p99, "ours.walk"),
    );
    rows.by_medians(r.against_filter(AT_10M, steady, "ours.walk"));
    for (run, size) in [(AT_1M, "1 M"), (AT_10M, "10 M")] {
        rows.add(
            &format!("lookup p50 from local hashes, {size}: ours / faster exact"),
            Below(1.0),
            r.against_exact(run, p50, "ours.local"),
        );
    }
    let single = r.at(&[AT_10M, "ours.jump", p50]);
    rows.add(
        "batch of 8, 10 M: per request / single",
        AtMost(0.7),
        single.and_then(|single| r.ratio(AT_10M, p50, "ours.batch8", single)),
    );
    rows.add(
        "64 lanes, 1 M: jump p50 / faster exact",
        Below(1.0),
        r.against_exact(LANES_64, p50, "ours.jump"),
    );
    rows.add(
        "4,096 blocks, 10 M: jump p50 / faster exact",
        AtMost(1.0 / 3.0),
        r.against_exact(LONG, p50, "ours.jump"),
    );
    let busy = r.at(&[AT_10M, "busy", "ours.jump", "p50_ratio"]);
    rows.add(
        "lookup p50 while a lane applies deltas / idle",
        AtMost(1.3),
        busy.or_else(|| r.at(&[AT_1M, "busy", "ours.jump", "p50_ratio"])),
    );
    rows.add(
        "memory for lookups, 10 M: MB",
        AtMost(365.0),
        r.at(&[AT_10M, "ours.jump", "mem_bytes"]).map(|bytes| bytes / 1e6),
    );
    let installs = |row| r.at(&[AT_10M, row, "install_ms"]);
    rows.add(
        "snapshot install per lane, 10 M: ours / filter",
        AtMost(0.5),
        installs("ours.jump").zip(installs("dynamo.filter")).map(|(ours, theirs)| ours / theirs),
    );
}

fn producers(r: &Results<'_>, rows: &mut Rows) {
    use Bound::{AtLeast, AtMost};
    let sizes = [("held_100000", "100 k"), ("held_1000000", "1 M"), ("held_10000000", "10 M")];
    for (held, size) in sizes {
        let path = [held, "store_blocks_per_s"];
        rows.add_fair(
            &format!("store, {size} held: throughput ours / theirs"),
            AtLeast(3.0),
            r.throughput(&path),
            r.unhashed_throughput(&path),
        );
    }
    for ((held, size), target) in sizes.into_iter().zip([3.0, 5.0, 8.0]) {
        rows.add(
            &format!("remove in random order, {size} held: throughput ours / theirs"),
            AtLeast(target),
            r.throughput(&[held, "remove_blocks_per_s"]),
        );
    }
    // Smaller runs measure these at their own size.
    let at_1m = |value: Option<f64>| value.filter(|_| r.at(&["producer", "held"]) == Some(1e6));
    rows.add(
        "mixed, 1 M, 8 members sharing half: throughput ours / theirs",
        AtLeast(3.0),
        at_1m(r.throughput(&["mixed_blocks_per_s"])),
    );
    let path = ["decode_blocks_per_s"];
    rows.add_fair(
        "commands of 1 block, 1 M held: throughput ours / theirs",
        AtLeast(2.0),
        at_1m(r.throughput(&path)),
        at_1m(r.unhashed_throughput(&path)),
    );
    let big =
        |side, path: &[&'static str]| r.at(&producer(side, &[&["held_10000000"], path].concat()));
    let bytes = ["ours", "dynamo"].map(|side| big(side, &["bytes_per_edge"]));
    rows.add("memory per edge, 10 M: bytes", AtMost(32.0), bytes[0]);
    rows.add(
        "memory per edge, 10 M: ours / theirs",
        AtMost(0.6),
        bytes[0].zip(bytes[1]).map(|(ours, theirs)| ours / theirs),
    );
    let p999 = ["ours", "dynamo"].map(|side| big(side, &["p999_command_ns"]));
    rows.add(
        "command of 128 blocks, 10 M, p99.9: ours / theirs",
        AtMost(1.0 / 3.0),
        p999[0].zip(p999[1]).map(|(ours, theirs)| ours / theirs),
    );
    rows.add(
        "command of 128 blocks, 10 M, worst: ms",
        AtMost(5.0),
        big("ours", &["worst_command_ns"]).map(|ns| ns / 1e6),
    );
}
