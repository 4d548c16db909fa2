//! The binary as a user runs it: figures, faults, restarts, files, and every kind of bad input.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn replay(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_replay")).args(options).output().expect("the binary runs")
}

/// Runs with `--json` and returns the figures.
fn figures(options: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let json = folder.path().join("out.json");
    let json = json.to_str().expect("a printable path");
    let output = replay(&[options, &["--json", json]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?}: {stderr}");
    assert_eq!(stderr, "", "nothing but figures when nobody watches");
    serde_json::from_str(&fs::read_to_string(json).expect("the file")).expect("JSON")
}

fn number(figures: &Value, field: &str) -> u64 {
    figures[field].as_u64().unwrap_or_else(|| panic!("{field} of {figures}"))
}

fn hit_rate(figures: &Value, policy: &str) -> f64 {
    figures["policies"][policy]["hit_rate"].as_f64().expect("a hit rate")
}

/// What holds for every run.
fn assert_sound(figures: &Value) {
    assert_eq!(figures["converged"], true, "{figures}");
    let answers = ["answers_equal", "answers_over", "answers_under"];
    let sum: u64 = answers.iter().map(|field| number(figures, field)).sum();
    assert_eq!(sum, number(figures, "answers"));
    assert!(number(figures, "events") <= number(figures, "requests"));
    assert_eq!(number(figures, "omitted"), 0);
}

/// What holds besides when nothing goes wrong and every command is published.
fn assert_exact(figures: &Value) {
    assert_sound(figures);
    assert_eq!(number(figures, "answers_under"), 0, "{figures}");
    let over = number(figures, "answers_over") as f64;
    assert!(over < 0.0003 * number(figures, "answers") as f64 + 3.0, "{figures}");
    let wrong = number(figures, "best_dc_wrong") as f64;
    assert!(wrong <= 0.001 * number(figures, "requests") as f64, "{figures}");
}

const FAULTS: [&str; 8] =
    ["--loss", "0.02", "--duplicate", "0.02", "--reorder", "0.02", "--restart-every", "70"];

#[test]
fn generated_traffic_is_answered_exactly_and_prefix_wins() {
    let figures = figures(&["--limit", "1500", "--blocks-per-worker", "1000"]);
    assert_exact(&figures);
    assert_eq!(number(&figures, "requests"), 1_500);
    assert_eq!(number(&figures, "answers"), 4 * 1_500);
    assert_eq!((number(&figures, "snapshots"), number(&figures, "resyncs")), (4, 0));
    for field in ["blocks_queried", "commands", "batches", "images", "lookup_ns_p50"] {
        assert!(number(&figures, field) > 0, "{field}");
    }
    assert!(number(&figures, "lookup_ns_p99") >= number(&figures, "lookup_ns_p50"));
    assert!(number(&figures, "wire_bytes_delta") > number(&figures, "images"));
    assert!(number(&figures, "wire_bytes_snapshot") > 0);
    assert_eq!(figures["hit_rate"], figures["policies"]["prefix"]["hit_rate"]);
    let prefix = hit_rate(&figures, "prefix");
    assert!(prefix > hit_rate(&figures, "load") + 0.05, "{figures}");
    assert!(prefix > hit_rate(&figures, "round-robin") + 0.05, "{figures}");
}

#[test]
fn a_seed_repeats_a_run_exactly_with_faults_and_all() {
    let run = |seed| {
        let mut figures = figures(&[&["--limit", "400", "--seed", seed][..], &FAULTS].concat());
        let figures = figures.as_object_mut().expect("an object");
        figures.retain(|field, _| !field.starts_with("lookup_ns"));
        Value::Object(figures.clone())
    };
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6"));
}

#[test]
fn a_policy_alone_achieves_what_it_does_beside_the_others() {
    let options = ["--limit", "600", "--restart-every", "100"];
    let all = figures(&options);
    for policy in ["prefix", "load", "round-robin"] {
        let alone = figures(&[&options[..], &["--policy", policy]].concat());
        assert_sound(&alone);
        assert_eq!(alone["policies"].as_object().map(serde_json::Map::len), Some(1));
        assert_eq!(hit_rate(&alone, policy), hit_rate(&all, policy), "{policy}");
        assert_eq!(alone["hit_rate"], alone["policies"][policy]["hit_rate"]);
    }
}

#[test]
fn restarts_alone_cost_answers_but_never_make_one_too_low() {
    let figures = figures(&["--limit", "1000", "--restart-every", "60"]);
    assert_sound(&figures);
    assert_eq!(number(&figures, "answers_under"), 0, "{figures}");
    assert!(number(&figures, "answers") < 4_000, "a restarted lane is absent for a while");
    assert!(number(&figures, "snapshots") > 4 + 4 * 5, "five consumers, five producers");
}

#[test]
fn every_kind_of_fault_is_survived() {
    for seed in ["1", "2", "3"] {
        let figures = figures(&[&["--limit", "700", "--seed", seed][..], &FAULTS].concat());
        assert_sound(&figures);
        assert!(number(&figures, "resyncs") > 0);
    }
    for fault in ["--loss", "--duplicate", "--reorder"] {
        for rate in ["0.3", "1"] {
            assert_sound(&figures(&["--limit", "120", fault, rate]));
        }
    }
}

#[test]
fn odd_shapes_work() {
    for options in [
        &["--limit", "1"][..],
        &["--limit", "150", "--dcs", "1"],
        &["--limit", "150", "--dcs", "64", "--workers", "1"],
        &["--limit", "150", "--workers", "20", "--blocks-per-worker", "50"],
    ] {
        assert_exact(&figures(options));
    }
    // A cache of one block, and batches that never come of themselves.
    for options in [&["--blocks-per-worker", "1"][..], &["--publish-every", "1000000"]] {
        assert_sound(&figures(&[&["--limit", "150"], options].concat()));
    }
}

#[test]
fn the_summary_and_the_report_show_the_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("report.html");
    let output = replay(&["--limit", "200", "--report", path.to_str().expect("a printable path")]);
    let summary = String::from_utf8_lossy(&output.stdout);
    for part in ["200 with", "prefix", "round-robin", "answers", "lookup", "converged", "yes"] {
        assert!(summary.contains(part), "{part} in {summary}");
    }
    let report = fs::read_to_string(path).expect("the report");
    assert_eq!(report.matches("<svg").count(), 4);
    for outside in ["http:", "https:", "<script", "<link", "url(", "NaN"] {
        assert!(!report.contains(outside), "{outside}");
    }
}

#[test]
fn nonsense_options_are_refused() {
    for options in [
        &["--dcs", "0"][..],
        &["--dcs", "65"],
        &["--dcs", "-1"],
        &["--workers", "0"],
        &["--blocks-per-worker", "0"],
        &["--publish-every", "0"],
        &["--loss", "1.5"],
        &["--duplicate", "-0.5"],
        &["--reorder", "NaN"],
        &["--restart-every", "x"],
        &["--limit", "0"],
        &["--policy", "none"],
        &["--seed", "-1"],
        &["--trace"],
        &["--what"],
        &["stray"],
        &["--json", "/"],
        &["--report", "no/such/folder/report.html"],
        &["--dcs", "64", "--workers", "4096", "--blocks-per-worker", "16777216"],
    ] {
        let output = replay(options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("error: ") && stderr.contains(options[0]), "{options:?}: {stderr}");
    }
}

const ROW: &str =
    r#"{"timestamp": 5, "input_length": 1000, "output_length": 3, "hash_ids": [7, 8]}"#;

#[test]
fn bad_traces_are_refused_with_place_and_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let second = |line: &str| format!("{ROW}\n{line}\n").into_bytes();
    let missing_field = r#"{"timestamp": 5, "hash_ids": [7, 8]}"#;
    let negative = r#"{"timestamp": -5, "input_length": 1, "hash_ids": [7, 8]}"#;
    let long = [b"{\"a\": \"".to_vec(), vec![b'x'; 70 << 20]].concat();
    let zstd = zstd::encode_all(ROW.as_bytes(), 1).expect("in memory");
    for (name, content, place, reason) in [
        ("json", second("{"), ":2: ", "EOF"),
        ("text", second("hello"), ":2: ", "not a JSON object"),
        ("field", second(missing_field), ":2: ", "input_length"),
        ("negative", second(negative), ":2: ", "-5"),
        ("utf8", [ROW.as_bytes(), b"\n\xFF\n"].concat(), ":2: ", "UTF-8"),
        ("format", b"{\"a\": 1}\n".to_vec(), ":1: ", "no known trace format"),
        ("long", long, ":1: ", "longer than"),
        ("cut.zst", zstd[..zstd.len() - 3].to_vec(), ":1: ", "cannot read"),
        ("cut.gz", vec![0x1F, 0x8B, 8, 0], ":1: ", "cannot read"),
        ("empty", Vec::new(), ": ", "no requests"),
        ("blank", b"\r\n\n".to_vec(), ": ", "no requests"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("write a temporary file");
        assert_refused(&path, place, reason);
    }
    assert_refused(&folder.path().join("missing"), ": ", "");
    assert_refused(folder.path(), ": ", "directory");
}

fn assert_refused(path: &Path, place: &str, reason: &str) {
    let path = path.to_str().expect("a printable path");
    let output = replay(&["--trace", path]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(&format!("{path}{place}")), "{stderr}");
    assert!(stderr.contains(reason), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn a_limit_stops_before_a_bad_line() {
    let folder: TempDir = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("trace.jsonl");
    fs::write(&path, format!("{ROW}\n{ROW}\nnonsense\n")).expect("write a temporary file");
    let figures = figures(&["--trace", path.to_str().expect("a printable path"), "--limit", "2"]);
    assert_exact(&figures);
    // The first prompt of two blocks is new, the second one is the same.
    assert_eq!((number(&figures, "blocks_queried"), number(&figures, "events")), (4, 1));
    assert_eq!(figures["hit_rate"], 0.5);
}

#[test]
fn recorded_traces_are_answered_exactly_and_prefix_wins() {
    let Some(traces) = common::traces() else { return };
    for (file, limit) in [
        ("mooncake_fast25_conversation.jsonl", "2500"),
        ("mooncake_fast25_synthetic.jsonl", "1500"),
        ("mooncake_arxiv_head_1000.jsonl", "1000"),
        ("agentic_coding_head.jsonl", "100"),
        ("agentic_coding_710.jsonl.zst", "100"),
    ] {
        let path = traces.join(file);
        let path = path.to_str().expect("a printable path");
        let figures = figures(&["--trace", path, "--limit", limit]);
        assert_exact(&figures);
        let prefix = hit_rate(&figures, "prefix");
        for other in ["load", "round-robin"] {
            assert!(prefix > hit_rate(&figures, other), "{file}: {figures}");
        }
    }
}

#[test]
fn recorded_traces_converge_after_faults_and_restarts() {
    let Some(traces) = common::traces() else { return };
    for (file, limit) in
        [("mooncake_fast25_conversation.jsonl", "1000"), ("agentic_coding_head.jsonl", "60")]
    {
        let path = traces.join(file);
        let path = path.to_str().expect("a printable path");
        assert_sound(&figures(&[&["--trace", path, "--limit", limit][..], &FAULTS].concat()));
    }
}

#[test]
fn with_large_caches_prefix_comes_near_the_cache_that_never_evicts() {
    let Some(traces) = common::traces() else { return };
    for (file, never_evicting) in [
        ("mooncake_fast25_conversation.jsonl", 0.3664),
        ("mooncake_fast25_synthetic.jsonl", 0.6396),
    ] {
        let path = traces.join(file);
        let path = path.to_str().expect("a printable path");
        let large = ["--blocks-per-worker", "100000"];
        // One worker in one DC that never evicts is the oracle itself.
        let one = ["--dcs", "1", "--workers", "1", "--blocks-per-worker", "200000"];
        let alone = figures(&[&["--trace", path][..], &one].concat());
        assert!((hit_rate(&alone, "prefix") - never_evicting).abs() < 0.000_05, "{alone}");
        let spread = figures(&[&["--trace", path, "--dcs", "4"][..], &large].concat());
        assert_exact(&spread);
        assert!(hit_rate(&spread, "prefix") > never_evicting - 0.005, "{spread}");
    }
}
