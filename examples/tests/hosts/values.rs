//! Values that no option takes, for each program: refused at the start with the option's name, one line
//! for people, no panic, and never repeating what may be a secret.

use crate::nonsense::refused;
use crate::site::Site;
use crate::support::{ENGINE, RELAY, ROUTER, args, local, tls};

/// Names that are none.
const NAMES: [&str; 4] = ["", " ", "a\tb", "trailing "];
/// Numbers that no count takes.
const COUNTS: [&str; 7] = ["", "0", "-1", "1.5", "x", "1e3", "18446744073709551616"];

fn line(words: &str, option: &str, value: &str) -> Vec<String> {
    let mut line = args(words);
    // In one word, since a value may begin with a minus.
    line.push(format!("{option}={value}"));
    line
}

#[test]
fn a_relay_takes_no_nonsense() {
    let site = Site::new(0);
    let certificates = tls(site.folder.path(), "relay");
    let common = format!("--listen {} --admin {}", local(site.feed), local(site.relay_admin));
    let dcs = ["18446744073709551616", "-1", "+1", "0x", "0xfffffffffffffffff", "1.5", "1st"];
    for dc in NAMES.into_iter().chain(dcs) {
        let said = refused(RELAY, &[line(&common, "--dc-id", dc), certificates.clone()].concat());
        assert!(said.contains("--dc-id"), "{dc:?}: {said}");
    }
    let common = format!("{common} --dc-id 1");
    let sources = [
        "zmq://me:secret@h:1",
        "zmq://h:1/path",
        "zmq://h:1?worker=1&worker=1",
        "zmq://h:1?rank=4294967296",
        "zmq://h:1?worker=18446744073709551616",
        "zmq://h:1?replay=0",
        "zmq://h i:1",
        "ZMQ://h:1",
    ];
    let sizes = ["65537", "4294967295"];
    let table: [(&str, Vec<&str>); 8] = [
        ("--source", sources.into()),
        ("--pool", NAMES.into()),
        ("--model", NAMES.into()),
        ("--block-size", [&COUNTS[..], &sizes].concat()),
        ("--blocks", COUNTS.into()),
        ("--batch-ms", COUNTS.into()),
        ("--nats", vec!["", "nats://h/path", "nats://h:0", "nats://h?x", "nats://a:secret@h"]),
        ("--seed", vec!["", "-1", "x", "18446744073709551616"]),
    ];
    for (option, values) in table {
        for value in values {
            let said =
                refused(RELAY, &[line(&common, option, value), certificates.clone()].concat());
            let named = said.contains(option) || option == "--nats";
            assert!(named && !said.contains("secret@"), "{option} {value:?}: {said}");
        }
    }
    let twice = line(&format!("{common} --source zmq://h:1"), "--source", "zmq://h:1");
    assert!(refused(RELAY, &[twice, certificates].concat()).contains("twice"));
}

#[test]
fn a_router_takes_no_nonsense() {
    let site = Site::new(0);
    let certificates = tls(site.folder.path(), "router");
    let common = format!("--listen {} --admin {}", local(site.front), local(site.router_admin));
    let good = "id=1,relay=https://127.0.0.1:1,endpoint=http://127.0.0.1:1";
    let bad = |more: &str| format!("{good}{more}");
    for dc in [
        bad(",id=1"),
        bad(",relay=https://127.0.0.1:1"),
        bad(",cost=1,cost=1"),
        bad(",cost=nan"),
        bad(",cost=inf"),
        bad(",cost=-1e300"),
        bad(",cost=-1"),
        bad(",pool="),
        bad(",pool=a,pool=b"),
        bad(",endpoint=http://127.0.0.1:1"),
        bad(",endpoint=http://h/v1"),
        bad(",endpoint=http://h?x"),
        bad(",endpoint=http://h#x"),
        bad(",endpoint=http://h:0"),
        bad(",endpoint=http://me:secret@h"),
        bad(",endpoint=https://h"),
        bad(",colour=red"),
        bad(","),
        good.replace("id=1", "id=18446744073709551616"),
        good.replace("id=1", "id=-1"),
        good.replace("id=1", "id="),
        good.replace("relay=https", "relay=http"),
        good.replace("relay=https://127.0.0.1:1", "relay=https://127.0.0.1:1/x"),
        good.replace("relay=https://", "relay=https://me:secret@"),
    ] {
        let said = refused(ROUTER, &[line(&common, "--dc", &dc), certificates.clone()].concat());
        let why = ["--dc", "plain text", "twice"].iter().any(|word| said.contains(word));
        assert!(why && !said.contains("secret@"), "{dc}: {said}");
    }
    let common = format!("{common} --dc {good}");
    let table: [(&str, Vec<&str>); 10] = [
        ("--bodies-mib", [&COUNTS[..], &["3", "65537"]].concat()),
        ("--keepalive-ms", COUNTS.into()),
        ("--pool", NAMES.into()),
        ("--model", NAMES.into()),
        ("--block-size", [&COUNTS[..], &["65537", "4294967295"]].concat()),
        ("--blocks", COUNTS.into()),
        ("--silence-ms", COUNTS.into()),
        ("--patience-ms", COUNTS.into()),
        ("--drain-ms", COUNTS.into()),
        (
            "--dc",
            vec![
                "id=1,relay=https://h,endpoint=http://h",
                "id=0x1,relay=https://h,endpoint=http://h",
            ],
        ),
    ];
    for (option, values) in table {
        for value in values {
            let all = [line(&common, option, value), certificates.clone()].concat();
            let said = refused(ROUTER, &all);
            assert!(said.contains(option) || said.contains("twice"), "{option} {value:?}: {said}");
        }
    }
}

#[test]
fn an_engine_and_its_clients_take_no_nonsense() {
    let serve = "serve --listen 127.0.0.1:0 --events 127.0.0.1:0 --replay 127.0.0.1:0";
    let drive = "drive --trace /dev/null";
    let verify = "verify --trace /dev/null --router http://h";
    let urls = ["", "h", "https://h", "http://h/v1", "http://h:0", "http://me:secret@h"];
    let table: [(&str, &str, Vec<&str>); 11] = [
        (serve, "--name", NAMES.into()),
        (serve, "--topic", NAMES.into()),
        (serve, "--capacity", COUNTS.into()),
        (serve, "--block-size", [&COUNTS[..], &["65537", "4294967295"]].concat()),
        (serve, "--rank", vec!["-1", "4294967296", "x"]),
        (serve, "--token-ms", vec!["-1", "60001", "x"]),
        (drive, "--router", urls.into()),
        (
            "drive --trace /dev/null --router http://h",
            "--concurrency",
            [&COUNTS[..], &["1025"]].concat(),
        ),
        ("drive --trace /dev/null --router http://h", "--requests", COUNTS.into()),
        ("drive --trace /dev/null --router http://h", "--patience", vec!["-1", "86401", "x"]),
        (
            verify,
            "--engine",
            vec!["", "1", "=http://h", "-1=http://h", "1=https://h", "1=http://a:secret@h"],
        ),
    ];
    for (words, option, values) in table {
        for value in values {
            let said = refused(ENGINE, &line(words, option, value));
            assert!(
                said.contains(option) && !said.contains("secret@"),
                "{option} {value:?}: {said}"
            );
        }
    }
    assert!(refused(ENGINE, &args(verify)).contains("--engine"));
}
