//! The fuzz bodies on stable: the committed corpus, damaged messages of every kind, and random
//! bytes with shrinking.

use std::fs;
use std::path::{Path, PathBuf};

use ckf_core::Format;
use ckf_producer::{Member, SubscriberId};
use ckf_protocol::{Limits, decode as decode_frame};
use ckf_testkit::fuzz::{TARGETS, decode};
use ckf_testkit::scenario::*;
use proptest::prelude::*;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

#[test]
fn the_committed_corpus_passes() {
    for (name, body) in TARGETS {
        let folder = corpus().join(name);
        let mut files: Vec<_> = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.expect("a readable folder").path())
            .collect();
        files.sort();
        for file in &files {
            println!("{}", file.display());
            body(&fs::read(file).expect("a readable file"));
        }
        assert!(files.len() >= 10, "{name} has a corpus of only {} files", files.len());
        println!("{name}: {} files", files.len());
    }
}

#[test]
fn every_byte_of_every_frame_of_the_corpus_may_change() {
    for entry in fs::read_dir(corpus().join("decode")).expect("a corpus") {
        let frame = fs::read(entry.expect("a readable folder").path()).expect("a readable file");
        for index in 0..frame.len().min(200) {
            for flip in [1, 0x80, 0xFF] {
                let mut frame = frame.clone();
                frame[index] ^= flip;
                decode(&frame);
            }
            decode(&frame[..index]);
        }
    }
}

/// Frames of every kind, as a start for the fuzzer: `cargo test -p ckf-testkit --test corpus --
/// --ignored` writes them to `fuzz/corpus/decode`.
#[test]
#[ignore = "writes files"]
fn write_one_frame_of_every_kind() {
    let format = format(40);
    let mut producer = producer(7, 3, format, small_publish(16));
    let mut session = session(1, 2, format, quick_session());
    let member = Member::new(1, 0);
    producer.store(member, &hashes(0..50));
    producer.publish(at(0)).expect("numbers last");
    assign(&mut session, 7, 0);
    let mut frames = vec![session.poll_transmit().expect("it subscribes")];
    let link = SubscriberId::new(1);
    let _ = producer.handle_frame(link, &frames[0], at(0));
    producer.store(member, &hashes(100..104));
    producer.drain(at(0)).expect("numbers last");
    while let Some(frame) = producer.poll_frame(link, at(0)) {
        frames.push(frame.to_bytes());
        let _ = session.handle_frame(frames.last().expect("just pushed"), at(0));
    }
    let subscribe = frames[0].clone();
    session.unassign(at(0));
    frames.push(session.poll_transmit().expect("it gives its lease back"));
    producer.grow(Format::power_of_two(64, 5).expect("a legal size")).expect("memory is there");
    frames.extend(producer.poll_frame(link, at(0)).map(|frame| frame.to_bytes()));
    for _ in 0..2 {
        let _ = producer.handle_frame(link, &subscribe, at(0));
        frames.extend(producer.poll_frame(link, at(0)).map(|frame| frame.to_bytes()));
        producer.shutdown(at(0));
    }
    for frame in frames {
        let Ok(message) = decode_frame(&frame, &Limits::default()) else { panic!("not a frame") };
        let name = format!("{:?}-{}", message.kind(), frame.len()).to_lowercase();
        fs::write(corpus().join("decode").join(name), &frame).expect("a writable folder");
    }
}

/// Any calls in any order are safe: what the machines promise does not depend on a polite host.
fn random(name: &str, longest: usize) {
    let (_, body) = TARGETS.into_iter().find(|target| target.0 == name).expect("a target");
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let bytes = prop::collection::vec(any::<u8>(), 0..longest);
    proptest!(config, |(bytes in bytes)| body(&bytes));
}

#[test]
fn random_calls_of_a_filter() {
    random("filter_ops", 600);
}

#[test]
fn random_calls_of_a_producer() {
    random("producer_ops", 600);
}

#[test]
fn random_calls_of_a_session() {
    random("session_ops", 1000);
}

#[test]
fn random_calls_of_the_sources_of_a_pool() {
    random("source_ops", 1500);
}

#[test]
fn random_ways_end_to_end() {
    random("end_to_end", 400);
}

#[test]
fn random_frames() {
    random("decode", 200);
}

#[test]
fn random_messages_of_engines() {
    random("kv_events", 200);
}
