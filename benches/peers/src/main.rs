//! Measures these crates and their peers side by side, in one process run.
//!
//! See README.md for what is measured, how, and what the output means.

mod args;
mod dynamo;
mod kvindex;
mod lookups;
mod measure;
mod ours;
mod producer;
mod workload;

use serde_json::{Map, Value, json};

use crate::args::{Args, Part, USAGE};
use crate::lookups::Options;
use crate::measure::Clock;
use crate::workload::{Families, QueryLength, Trace};

fn main() {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            std::process::exit(2);
        }
    };
    measure::pin(0);
    let clock = Clock::calibrate();
    let mut out = Map::new();
    if args.wants(Part::Lookups) {
        lookups(&args, &clock, &mut out);
    }
    if args.wants(Part::Producer) {
        progress("producer");
        let size = args.blocks_per_lane;
        let sizes = [size / 10, size, 10 * size].map(|size| size.min(10_000_000));
        out.insert("producer".into(), producer::compare(&sizes, size.min(1_000_000), &clock));
    }
    let out = Value::from(out);
    println!("{out:#}");
}

fn lookups(args: &Args, clock: &Clock, out: &mut Map<String, Value>) {
    let options = Options { queries: args.queries, rounds: args.rounds, writer: true };
    let plain = Options { writer: false, ..options };
    let typical = QueryLength::Uniform(8, 127);
    progress("families");
    let families = Families::new(args.lanes, args.blocks_per_lane, 128, typical);
    out.insert("families".into(), lookups::compare(&families, options, clock).into());
    for file in ["mooncake_fast25_conversation", "mooncake_fast25_synthetic"] {
        progress(file);
        let path = args.trace_folder().join(file).with_extension("jsonl");
        match Trace::mooncake(&path, args.lanes) {
            Ok(trace) => out.insert(file.into(), lookups::compare(&trace, plain, clock).into()),
            Err(message) => out.insert(file.into(), json!({ "skipped": message })),
        };
    }
}

/// Where we are, for whoever waits; the result alone goes to the standard output.
fn progress(what: &str) {
    eprintln!("measuring: {what}");
}
