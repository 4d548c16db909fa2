//! The short programs run and say what they are there to show.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().expect("the program runs")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts that the parts stand in the text in this order.
fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at =
            rest.find(part).unwrap_or_else(|| panic!("`{part}` is not, or too early, in\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn quickstart_passes_every_stop_and_inspect_prints_its_wire() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wire = folder.path().join("wire");
    let path = wire.to_str().expect("a printable path");
    let text = stdout(&run(env!("CARGO_BIN_EXE_quickstart"), &[path]));
    let stops: Vec<_> = (1..=10).map(|stop| format!("stop {stop} ")).collect();
    assert_in_order(&text, &stops.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(text.contains("data center 0 holds the first 7 blocks"), "{text}");

    let inspect = env!("CARGO_BIN_EXE_inspect");
    let text = stdout(&run(inspect, &[path]));
    let kinds = ["Subscribe", "SnapshotBegin", "SnapshotChunk", "SnapshotEnd", "Delta"];
    assert_in_order(&text, &kinds);
    assert_in_order(&text, &["patches: 7", "and 3 more"]);
    let all = stdout(&run(inspect, &["--all", path]));
    assert_eq!(all.matches(" slots ").count(), 7);

    let bytes = fs::read(&wire).expect("the wire file");
    for (name, bad) in [("cut", &bytes[..bytes.len() - 1]), ("shifted", &bytes[1..])] {
        let path = folder.path().join(name);
        fs::write(&path, bad).expect("write a temporary file");
        let output = run(inspect, &[path.to_str().expect("a printable path")]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(name) && stderr.contains("frame at byte"), "{stderr}");
    }
    assert_eq!(run(inspect, &["no-such-file"]).status.code(), Some(2));
}

#[test]
fn lossy_is_absent_rather_than_wrong_and_comes_back() {
    let text = stdout(&run(env!("CARGO_BIN_EXE_lossy"), &[]));
    let ready = "holds batch";
    assert_in_order(&text, &[ready, "Gap", ready, "Gap", ready, "Silence", ready, "incarnation 2"]);
    assert_in_order(&text, &["absent    of 30", "depth 30  of 30", "absent    of 40", "depth 40"]);
}

#[test]
fn threads_settle_on_the_whole_prefix() {
    let text = stdout(&run(env!("CARGO_BIN_EXE_threads"), &[]));
    assert!(text.contains("settled   depth Some(100) of 100"), "{text}");
    assert!(
        !text.contains("writer    0 batches") && !text.contains("readers   0 lookups"),
        "{text}"
    );
}

/// Cargo builds examples with all tests of a package, but not for one of them alone.
#[test]
fn hosts_to_embed_find_all_blocks() {
    let programs = Path::new(env!("CARGO_BIN_EXE_quickstart")).with_file_name("examples");
    for name in ["embed_threads", "embed_loop"] {
        let program = programs.join(name).with_extension(std::env::consts::EXE_EXTENSION);
        if !program.exists() {
            println!("skipped: {name} is not built; `cargo test -p ckf-examples` builds it");
            continue;
        }
        let text = stdout(&run(program.to_str().expect("a printable path"), &[]));
        assert!(text.contains("all 40 blocks found"), "{text}");
    }
}
