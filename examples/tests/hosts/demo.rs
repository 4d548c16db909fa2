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
    let figure = |part: usize, name: &str| summaries[part][name].as_u64().expect("a number");
    for part in 0..3 {
        assert_eq!((figure(part, "requests"), figure(part, "failed")), (300, 0), "{out}");
        assert!(figure(part, "hits") > 100, "{out}");
    }
    // A relay's death is nobody's business; the router's is that of the requests under way.
    assert_eq!([figure(0, "retries"), figure(1, "retries")], [0, 0], "{out}");
    let (cut, retries) = (figure(2, "cut"), figure(2, "retries"));
    assert!(cut >= 1 && retries >= cut, "{out}");
    let under_way = |who: &str| {
        let line = format!("requests under way when the {who} was killed: ");
        let said = out.lines().find_map(|found| found.strip_prefix(&line)).expect("it is said");
        said.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u64>>()
    };
    for who in ["relay", "router"] {
        let counts = under_way(who);
        assert!(counts.len() == 2 && counts.iter().all(|&count| count >= 1), "{out}");
    }
    assert_eq!(out.matches("120 depths equal").count(), 3, "{out}");
    assert!(started.elapsed() < Duration::from_secs(180));
}
