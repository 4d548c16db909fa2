//! The demo, as it is, with the programs under test.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{RELAY, row, shared};

/// Three data centers with three engines each, three relays, one router, the recorded trace; a relay
/// and the router are killed half way. No request fails and all pictures agree in the end.
#[test]
fn the_demo_converges_without_a_failed_request() {
    let Some(trace) = shared("traces/mooncake_fast25_conversation.jsonl") else { return };
    let started = Instant::now();
    let demo = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/demo.sh"))
        .arg(trace)
        .env("CKF_BIN", Path::new(RELAY).parent().expect("a folder"))
        .env("CKF_DEMO_PORT", row(40).to_string())
        .output()
        .expect("the demo starts");
    let (out, log) = (String::from_utf8_lossy(&demo.stdout), String::from_utf8_lossy(&demo.stderr));
    assert!(demo.status.success(), "{out}\n{log}");
    let summaries: Vec<serde_json::Value> =
        out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(summaries.len(), 3, "{out}");
    for summary in &summaries {
        assert_eq!((&summary["requests"], &summary["failed"]), (&300.into(), &0.into()), "{out}");
        assert!(summary["hits"].as_u64() > Some(100), "{out}");
    }
    // The router was away: somebody must have noticed, or the test tests nothing.
    assert!(summaries[2]["retries"].as_u64() > Some(0), "{out}");
    assert_eq!(out.matches("120 depths equal").count(), 3, "{out}");
    assert!(started.elapsed() < Duration::from_secs(180));
}
