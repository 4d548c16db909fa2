//! Frames that the Python implementation wrote: those in `golden/python`, and those in the folder
//! that `CKF_PYTHON_FRAMES` names (`ci/wire.sh` fills one with random messages).
#![allow(clippy::disallowed_methods)] // Tests find the folder through the environment.

use std::fs;
use std::path::{Path, PathBuf};

use ckf_protocol::{Kind, Limits, decode};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/python"))
}

/// Decodes and encodes every frame of a folder; returns how many of each kind there were.
fn read_all(folder: &Path) -> Vec<usize> {
    let mut counts = vec![0; Kind::ALL.len()];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let message = decode(&bytes, &Limits::default())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(message.to_frame().to_bytes(), bytes, "{}", path.display());
        counts[Kind::ALL.iter().position(|&kind| kind == message.kind()).unwrap()] += 1;
    }
    counts
}

#[test]
fn python_frames_decode_and_encode_alike() {
    assert_eq!(read_all(&folder()), [4; Kind::ALL.len()]);
}

#[test]
fn random_python_frames_decode_and_encode_alike() {
    let Some(folder) = std::env::var_os("CKF_PYTHON_FRAMES") else {
        println!("skipped: CKF_PYTHON_FRAMES names no folder");
        return;
    };
    let counts = read_all(Path::new(&folder));
    assert!(counts.iter().sum::<usize>() > 0, "no frames in {}", folder.display());
    println!("{counts:?} frames of the kinds {:?}", Kind::ALL);
}
