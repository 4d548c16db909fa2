//! Nonsense in options and files: a helpful error, another exit code than 0, never a panic.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::site::Site;
use crate::support::{ENGINE, RELAY, ROUTER, args, local, tls};

/// What a program says when it refuses to start.
pub(crate) fn refused(program: &str, line: &[String]) -> String {
    let mut child = Command::new(program)
        .args(line)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(10) {
            let _ = child.kill();
            panic!("started all the same: {line:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{line:?}");
    assert!(!said.contains("panicked") && said.contains("error"), "{line:?}: {said}");
    said
}

/// The line with one option's value replaced.
fn with(line: &[String], option: &str, value: &str) -> Vec<String> {
    let mut line = line.to_vec();
    match line.iter().position(|word| word == option) {
        Some(at) => line[at + 1] = value.to_owned(),
        None => line.extend([option.to_owned(), value.to_owned()]),
    }
    line
}

/// Files that are not what they should be.
fn bad_files(folder: &Path) -> Vec<String> {
    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.join(name), bytes).unwrap();
        folder.join(name).display().to_string()
    };
    vec![
        file("empty", b""),
        file("binary", &[0, 0xFF, 0x80, 10].repeat(100)),
        file("huge", &vec![b'x'; 3 << 20]),
        file("text", b"hello\n"),
        folder.display().to_string(),
        folder.join("absent").display().to_string(),
        "/dev/zero".to_owned(),
    ]
}

#[test]
fn a_relay_refuses_nonsense() {
    let site = Site::new(0);
    let folder = site.folder.path();
    let mut good = args(&format!(
        "--dc-id 1 --listen {} --admin {}",
        local(site.feed),
        local(site.relay_admin)
    ));
    good.extend(tls(folder, "relay"));
    for (option, values) in [
        ("--listen", &["", "here", "1.2.3.4:5", "127.0.0.1:99999"][..]),
        ("--admin", &["", "127.0.0.1"]),
        ("--protocol", &["", "smtp"]),
        ("--source", &["", "zmq://", "tcp://h:1", "zmq://h:1?pool=absent", "zmq://h:1?rank=x"]),
        ("--source", &["zmq://h:0", "zmq://h:1?replay=0", "zmq://h:1?worker=1&worker=2"]),
        ("--away-ms", &["0", "x"]),
        // Without effect here.
        ("--snapshot-progress-ms", &["1000"]),
        ("--nats-token-file", &["token"]),
        ("--protocol", &["dynamo"]),
        ("--block-size", &["0", "-1", "x"]),
        ("--blocks", &["0", "18446744073709551615", "1e9"]),
        ("--batch-ms", &["0", "99999999999"]),
        ("--heartbeat-ms", &["0", "-5"]),
        ("--keepalive-ms", &["0"]),
        ("--nats", &["", "http://h:1", "nats://user:secret@h:1", "tls://"]),
        ("--key-file", &["x"]),
    ] {
        for value in values {
            let said = refused(RELAY, &with(&good, option, value));
            assert!(!said.contains("secret@"), "{said}");
        }
    }
    for option in ["--ca", "--cert", "--key", "--sources-file"] {
        for path in bad_files(folder) {
            let said = refused(RELAY, &with(&good, option, &path));
            assert!(said.contains(&path) || said.contains("line 1"), "{option} {path}: {said}");
        }
    }
    // Of files that belong to others, too.
    for (option, file) in [("--key", "router.key"), ("--key", "ca.pem"), ("--cert", "relay.key")] {
        refused(RELAY, &with(&good, option, &folder.join(file).display().to_string()));
    }
    refused(RELAY, &args("--dc-id 1"));
    refused(RELAY, &[&good[..], &args("--pool a --pool a")].concat());
    let twice = args("--source zmq://h:1?worker=1 --source zmq://h:2?worker=1");
    assert!(refused(RELAY, &[&good[..], &twice].concat()).contains("two sources"));
    for path in bad_files(folder) {
        let token = args(&format!("--nats nats://127.0.0.1:1 --nats-token-file {path}"));
        if !path.ends_with("text") {
            refused(RELAY, &[&good[..], &token].concat());
        }
    }
}

/// What would have no effect must not pass for a setting: certificates above all.
#[test]
fn options_without_effect_are_refused() {
    let site = Site::new(0);
    let certificates = tls(site.folder.path(), "relay");
    let relay = format!(
        "--protocol dynamo --dc-id 1 --listen {} --admin {}",
        local(site.feed),
        local(site.relay_admin)
    );
    let router = |protocol: &str, relay: &str| {
        args(&format!(
            "--protocol {protocol} --listen {} --admin {} \
             --dc id=1,relay={relay}://127.0.0.1:1,endpoint=http://127.0.0.1:1",
            local(site.front),
            local(site.router_admin)
        ))
    };
    for (program, line, more, named) in [
        (RELAY, args(&relay), certificates.clone(), "--ca"),
        (RELAY, args(&relay), args("--seed 1"), "--seed"),
        (RELAY, args(&relay), args("--nats-token-file x"), "--nats-token-file"),
        (RELAY, args(&relay), args("--ca x"), "--cert"),
        (ROUTER, router("dynamo", "http"), certificates.clone(), "--ca"),
        (ROUTER, router("dynamo", "http"), args("--seed 1"), "--seed"),
        (ROUTER, router("dynamo", "http"), args("--blocks 10"), "--blocks"),
        (ROUTER, router("dynamo", "https"), vec![], "--ca"),
        (ROUTER, router("ckf", "nats"), certificates.clone(), "--ca"),
        (ROUTER, router("ckf", "nats"), args("--keepalive-ms 500"), "--keepalive-ms"),
        (ROUTER, router("ckf", "https"), vec![], "--ca"),
        (ROUTER, router("dynamo", "http"), args("--nats-token-file x"), "--nats-token-file"),
        (ROUTER, router("ckf", "http"), vec![], "plain text"),
        (ROUTER, router("ckf", "http"), certificates.clone(), "plain text"),
    ] {
        let said = refused(program, &[&line[..], &more].concat());
        assert!(said.contains(named), "{line:?} {more:?}: {said}");
    }
}

#[test]
fn a_router_refuses_nonsense() {
    let site = Site::new(0);
    let folder = site.folder.path();
    let dc = "id=1,relay=https://127.0.0.1:1,endpoint=http://127.0.0.1:1";
    let mut good = args(&format!(
        "--listen {} --admin {} --dc {dc}",
        local(site.front),
        local(site.router_admin)
    ));
    good.extend(tls(folder, "router"));
    for (option, values) in [
        ("--listen", &["", "here"][..]),
        ("--silence-ms", &["0", "x"]),
        ("--patience-ms", &["0"]),
        ("--blocks", &["0", "18446744073709551615"]),
        ("--dc", &["", "id=1", "id=1,relay=https://h:1", "relay=h,endpoint=g,id=2"]),
        ("--dc", &["id=1,relay=nats://me:secret@h:1,endpoint=http://h:1"]),
        ("--dc", &["id=1,relay=https://h:1,endpoint=http://me:secret@h:1"]),
        ("--token", &["secret"]),
    ] {
        for value in values {
            let said = refused(ROUTER, &with(&good, option, value));
            assert!(!said.contains("me:secret"), "{said}");
        }
    }
    for option in ["--ca", "--cert", "--key"] {
        for path in bad_files(folder) {
            let said = refused(ROUTER, &with(&good, option, &path));
            assert!(said.contains(&path), "{option} {path}: {said}");
        }
    }
    let twice = args(&format!("--dc {dc}"));
    refused(ROUTER, &[&good[..], &twice].concat());
    let bare = &good[..good.len() - 6];
    assert!(refused(ROUTER, bare).contains("--ca"));
}

#[test]
fn an_engine_and_its_client_refuse_nonsense() {
    let folder = tempfile::tempdir().unwrap();
    refused(ENGINE, &args("serve --listen 127.0.0.1:0 --events here --replay 127.0.0.1:0"));
    refused(ENGINE, &args("fly"));
    refused(ENGINE, &args("certs /dev/null/x"));
    for path in bad_files(folder.path()) {
        if !path.ends_with("empty") {
            refused(ENGINE, &args(&format!("drive --router http://127.0.0.1:1 --trace {path}")));
        }
    }
}
