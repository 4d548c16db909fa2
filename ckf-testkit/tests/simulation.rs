//! A million random steps of 16 pools and 4 consumers.
//!
//! | environment | meaning |
//! |---|---|
//! | `CKF_SIM_STEPS` | steps, 1,000,000 by default |
//! | `CKF_SIM_SEED` | the first seed |
//! | `CKF_SIM_RUNS` | number of seeds, 4 by default |

use std::env;
use std::panic::catch_unwind;
use std::time::Instant;

use ckf_testkit::sim::{Report, Size, run};

fn setting(name: &str, otherwise: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => otherwise,
    }
}

/// Runs a seed; when it fails, says in one line how to see it again.
fn run_or_tell(size: Size, seed: u64) -> Report {
    let fault = match catch_unwind(|| run(size, seed)) {
        Ok(Ok(report)) => return report,
        Ok(Err(what)) => what,
        Err(_) => "a panic, see above".into(),
    };
    panic!(
        "{fault}\nreproduce: CKF_SIM_SEED={seed} CKF_SIM_STEPS={} cargo test --release -p ckf-testkit --test simulation",
        size.steps
    );
}

#[test]
fn every_lane_follows_its_pool_through_a_million_mishaps() {
    let steps = setting("CKF_SIM_STEPS", 1_000_000);
    let first = setting("CKF_SIM_SEED", 1);
    let size = Size { pools: 16, consumers: 4, steps, buckets: 64 };
    for seed in first..first + setting("CKF_SIM_RUNS", 4) {
        let started = Instant::now();
        let report = run_or_tell(size, seed);
        println!("seed {seed}: {report:#?}\n{:.1} s", started.elapsed().as_secs_f32());
        assert!(report.steps >= steps);
        if steps >= 1_000_000 {
            something_of_everything(&report);
        }
    }
}

/// A simulation in which a fault never struck would prove nothing about it.
fn something_of_everything(report: &Report) {
    let links = &report.links;
    for (what, count) in [
        ("loss", links.lost),
        ("cut", links.cut),
        ("duplication", links.duplicated),
        ("reordering", links.reordered),
        ("truncation", links.truncated),
        ("bit flip", links.flipped),
        ("gap", report.sessions.failures.gap),
        ("snapshot gap", report.sessions.failures.snapshot_gap),
        ("malformed", report.sessions.failures.malformed),
        ("ended by the producer", report.sessions.failures.by_producer),
        ("subscribe deadline", report.sessions.failures.subscribe_deadline),
        ("snapshot deadline", report.sessions.failures.snapshot_deadline),
        ("silence", report.sessions.failures.silence),
        ("disconnection", report.sessions.failures.disconnected),
        ("unreadable", report.sessions.ignored.unreadable),
        ("foreign lease", report.sessions.ignored.foreign_lease),
        ("foreign terms", report.sessions.ignored.foreign_terms),
        ("duplicate", report.sessions.ignored.duplicate),
        ("snapshot", report.sessions.snapshots),
        ("delta", report.sessions.deltas),
        ("heartbeat", report.sessions.heartbeats),
        ("lag", report.ended.lagged),
        ("replacement", report.ended.replaced),
        ("layout change", report.ended.layout_changed),
    ] {
        assert!(count > 0, "no {what} in the whole simulation");
    }
    assert_eq!(report.sessions.failures.identity, 0);
    assert!(report.convergences >= 20);
}
