//! The fuzz bodies on stable: the committed corpus, damaged messages of every kind, and random
//! bytes with shrinking.

use std::fs;
use std::path::{Path, PathBuf};

use ckf_testkit::fuzz::{TARGETS, decode};
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

/// Any calls in any order are safe: what the machines promise does not depend on a polite host.
fn random(body: fn(&[u8]), longest: usize) {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let bytes = prop::collection::vec(any::<u8>(), 0..longest);
    proptest!(config, |(bytes in bytes)| body(&bytes));
}

#[test]
fn random_calls_of_a_filter() {
    random(TARGETS[2].1, 600);
}

#[test]
fn random_calls_of_a_producer() {
    random(TARGETS[3].1, 600);
}

#[test]
fn random_calls_of_a_session() {
    random(TARGETS[4].1, 1000);
}

#[test]
fn random_ways_end_to_end() {
    random(TARGETS[1].1, 400);
}

#[test]
fn random_frames() {
    random(TARGETS[0].1, 200);
}
