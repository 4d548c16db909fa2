//! Measures these crates and their peers side by side, in one process run.
//!
//! See README.md for what is measured, how, and what the output means.

mod args;
mod dynamo;
mod filter;
mod interop;
mod kvindex;
mod load;
mod lookups;
mod measure;
mod ours;
mod peers;
mod producer;
mod schedule;
mod tables;
mod targets;
mod wire;
mod workload;

use serde_json::{Map, Value, json};

use crate::args::{Args, Part, USAGE};
use crate::lookups::Options;
use crate::measure::{Clock, quiet};
use crate::workload::{Families, QueryLength, Trace};

const MILLION: usize = 1_000_000;

fn main() {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            std::process::exit(2);
        }
    };
    if let Some(side) = &args.cell {
        match load::cell(side, &args.conversation(), args.blocks_per_lane, args.rate) {
            Ok(found) => println!("{found}"),
            Err(message) => {
                eprintln!("{message}");
                std::process::exit(1);
            }
        }
        return;
    }
    if args.only == Some(Part::Interop) {
        let done = interop::run(args.seed, args.batches).and_then(|(report, record)| {
            println!("{report}");
            let written = args.record.as_ref().map(|path| std::fs::write(path, record));
            written.transpose().map_err(|error| format!("--record: {error}"))
        });
        match done {
            Ok(_) => {}
            Err(difference) => {
                eprintln!("{difference}");
                std::process::exit(1);
            }
        }
        return;
    }
    measure::pin(0);
    let clock = Clock::calibrate();
    let mut out = Map::new();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let settings = json!({ "arguments": arguments, "huge_pages": cfg!(feature = "huge-pages") });
    out.insert("settings".into(), settings);
    if args.wants(Part::Lookups) {
        lookups(&args, &clock, &mut out);
    }
    if args.wants(Part::Producer) {
        progress("producer");
        let size = args.blocks_per_lane;
        let largest = (10 * size).min(10 * MILLION);
        let sizes = [100, 10, 1].map(|part| (largest / part).max(1));
        let found = quiet("producer", || producer::compare(&sizes, size.min(MILLION), &clock));
        out.insert("producer".into(), found);
    }
    if args.wants(Part::Filter) {
        progress("filter");
        let found = quiet("filter", || filter::compare(args.blocks_per_lane.min(MILLION), &clock));
        out.insert("filter".into(), found);
    }
    if args.wants(Part::Wire) {
        progress("wire");
        out.insert("wire".into(), wire::compare(args.blocks_per_lane.min(MILLION)));
    }
    if args.wants(Part::Load) {
        progress("load");
        let blocks_per_pool = (args.blocks_per_lane / 8).clamp(1, 125_000);
        let found = quiet("load", || load::search(&args.trace_folder(), blocks_per_pool));
        out.insert("load".into(), found);
    }
    out.insert("ratios".into(), targets::ratios(&out).into());
    if args.json {
        println!("{:#}", Value::from(with_paths(out)));
    } else {
        tables::print(&out);
    }
}

fn lookups(args: &Args, clock: &Clock, out: &mut Map<String, Value>) {
    let options = Options { queries: args.queries, rounds: args.rounds, writer: true };
    let plain = Options { writer: false, ..options };
    let typical = QueryLength::Uniform(8, 127);
    let size = args.blocks_per_lane;
    let mut families = |name: &str, workload: Families, options| {
        progress(name);
        let found = lookups::compare(&workload, options, clock);
        out.insert(name.into(), found.into());
    };
    let asked = match args.query_blocks {
        Some(blocks) => Families::new(args.lanes, size, blocks, QueryLength::Fixed(blocks)),
        None => Families::new(args.lanes, size, 128, typical),
    };
    families("families", asked, options);
    if args.lanes == 16 && args.query_blocks.is_none() {
        // The targets name sizes; a run covers those it is large enough for.
        if size > MILLION {
            families(targets::AT_1M, Families::new(16, MILLION, 128, typical), options);
        }
        if size >= MILLION {
            families(targets::LANES_64, Families::new(64, MILLION, 128, typical), plain);
        }
        if size >= 10 * MILLION {
            let long = Families::new(16, 10 * MILLION, 4096, QueryLength::Fixed(4096));
            let few = Options { queries: args.queries.div_ceil(20), ..plain };
            families(targets::LONG, long, few);
        }
        let exact = [(MILLION, targets::AT_1M), (10 * MILLION, targets::AT_10M)];
        if let Some((_, name)) = exact.into_iter().find(|(exact, _)| *exact == size) {
            out.insert(name.into(), out["families"].clone());
        }
    }
    for file in ["mooncake_fast25_conversation", "mooncake_fast25_synthetic"] {
        progress(file);
        let path = args.trace_folder().join(file).with_extension("jsonl");
        match Trace::mooncake(&path, args.lanes) {
            Ok(trace) => out.insert(file.into(), lookups::compare(&trace, plain, clock).into()),
            Err(message) => out.insert(file.into(), json!({ "skipped": message })),
        };
    }
}

/// Rows have dotted names, such as `ours.jump`. For readers that take a dot for a path, every row is
/// also there under its path, and `producer.ours` and `producer.dynamo` under their dotted names.
fn with_paths(mut out: Map<String, Value>) -> Map<String, Value> {
    for run in out.values_mut().filter(|run| run.get("workload").is_some()) {
        let rows: Vec<_> =
            run.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
        for (name, row) in rows {
            if let Some((side, row_name)) = name.split_once('.') {
                run[side][row_name] = row;
            }
        }
    }
    for side in ["ours", "dynamo"] {
        if let Some(found) = out.get("producer").and_then(|producer| producer.get(side)).cloned() {
            out.insert(format!("producer.{side}"), found);
        }
    }
    out
}

/// Where we are, for whoever waits; the result alone goes to the standard output.
fn progress(what: &str) {
    eprintln!("measuring: {what}");
}
