//! Open-loop load: 16 pools, one consumer. Block operations are offered at a fixed rate; a rate is
//! kept up with when everything is done, applied and drained within 1.10 times the window.
//!
//! One thread runs the producers and applies their deltas, another one the lookups. Every cell (one
//! side at one rate) runs in a fresh process.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::measure::{Clock, Samples, pin};
use crate::schedule::{Schedule, Step};
use crate::workload::Chain;
use crate::{dynamo, ours};

/// Producers and consumer under test.
pub trait Subject: Sized {
    type Request: Send;
    type Event: Send;
    type Writer: Send;
    type Reader: Send;

    /// Pools for this many blocks each, all lanes ready and empty.
    fn start(blocks_per_pool: usize) -> (Self::Writer, Self::Reader);
    fn request(chain: &Chain) -> Self::Request;
    /// The commands of one step, from what an engine reports: block-local hashes and sequence
    /// hashes of what was stored, and what was removed.
    fn events(step: &Step) -> Vec<Self::Event>;
    /// Applies, publishes and delivers.
    fn write(writer: &mut Self::Writer, pool: usize, event: Self::Event);
    /// The deepest lane's depth.
    fn find(reader: &Self::Reader, request: &Self::Request) -> u32;
    /// Whether every lane holds everything its producer has published.
    fn drained(writer: &Self::Writer) -> bool;
}

/// How long a rate is offered.
const WINDOW: Duration = Duration::from_millis(1000);
const KEEP_UP: f64 = 1.10;

/// Looks for the highest rate that each side keeps up with.
pub fn search(trace: &Path, blocks_per_pool: usize) -> Value {
    let mut out = Map::new();
    for side in ["ours", "dynamo"] {
        let mut cells = Vec::new();
        let mut cell = |rate: f64| {
            let found = spawn(side, trace, blocks_per_pool, rate);
            let kept = found["kept_up"] == json!(true);
            cells.push(found);
            kept
        };
        let (mut kept, mut lost) = (0.0, 2e6);
        while lost < 1e9 && cell(lost) {
            (kept, lost) = (lost, 2.0 * lost);
        }
        for _ in 0..4 {
            let middle = (kept + lost) / 2.0;
            if cell(middle) { kept = middle } else { lost = middle }
        }
        out.insert(side.into(), json!({ "kept_up_ops_per_s": kept, "cells": cells }));
    }
    out.insert("window_s".into(), json!(WINDOW.as_secs_f64()));
    out.into()
}

/// One cell in a process of its own.
fn spawn(side: &str, trace: &Path, blocks_per_pool: usize, rate: f64) -> Value {
    let program = std::env::current_exe().expect("we run");
    let output = Command::new(program)
        .args(["--cell", side, "--rate", &rate.to_string()])
        .args(["--blocks-per-lane", &blocks_per_pool.to_string(), "--traces"])
        .arg(trace)
        .output();
    match output {
        Ok(output) if output.status.success() => serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| json!({ "failed": error.to_string() })),
        Ok(output) => json!({ "failed": String::from_utf8_lossy(&output.stderr) }),
        Err(error) => json!({ "failed": error.to_string() }),
    }
}

/// Runs one cell in this process.
pub fn cell(side: &str, trace: &Path, blocks_per_pool: usize, rate: f64) -> Result<Value, String> {
    let operations = (rate * WINDOW.as_secs_f64()) as usize;
    let schedule = Schedule::new(trace, blocks_per_pool, operations)?;
    Ok(match side {
        "ours" => run::<ours::Load>(schedule, blocks_per_pool, rate),
        _ => run::<dynamo::Load>(schedule, blocks_per_pool, rate),
    })
}

fn run<S: Subject>(schedule: Schedule, blocks_per_pool: usize, rate: f64) -> Value {
    let clock = Clock::calibrate();
    let (mut writer, reader) = S::start(blocks_per_pool);
    for step in &schedule.warm {
        for event in S::events(step) {
            S::write(&mut writer, step.pool, event);
        }
    }
    // When each step is due, by the operations before it.
    let (mut due, mut requests, mut events) = (Vec::new(), Vec::new(), Vec::new());
    let mut operations = 0;
    for step in &schedule.timed {
        due.push(operations as f64 / rate);
        operations += step.operations();
        requests.push(S::request(&step.chain));
        events.push((step.pool, S::events(step)));
    }
    drop(schedule);
    let window = operations as f64 / rate;
    let start = Instant::now() + Duration::from_millis(20);
    let mut late = Samples::default();
    late.reserve(due.len());
    let (reads, writes, deep) = std::thread::scope(|scope| {
        let (due, writer) = (&due, &mut writer);
        let writing = scope.spawn(move || {
            pin(1);
            for ((pool, events), &due) in events.into_iter().zip(due) {
                wait(start, due);
                for event in events {
                    S::write(writer, pool, event);
                }
            }
            start.elapsed().as_secs_f64()
        });
        pin(0);
        let mut deep = 0u64;
        for (request, &due) in requests.iter().zip(due) {
            wait(start, due);
            deep += u64::from(S::find(&reader, request));
            let late_s = (start.elapsed().as_secs_f64() - due).max(0.0);
            late.push(clock.ticks_of(late_s));
        }
        let reads = start.elapsed().as_secs_f64();
        (reads, writing.join().expect("no panic"), deep)
    });
    // Deltas are applied as they are published: when the writer is done, the lanes are drained.
    let drained = S::drained(&writer);
    let total = reads.max(writes);
    json!({
        "offered_ops_per_s": rate, "operations": operations, "window_s": window,
        "achieved_ops_per_s": operations as f64 / total, "total_s": total,
        "lookups_done_s": reads, "events_done_s": writes, "final_drain_s": (total - window).max(0.0),
        "lookup_latency": late.summary(&clock, 1.0).json(), "blocks_found": deep, "drained": drained,
        "kept_up": drained && total <= KEEP_UP * window,
    })
}

/// Waits for the moment `due` seconds after the start; returns at once when it is past.
fn wait(start: Instant, due: f64) {
    let due = start + Duration::from_secs_f64(due);
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}
