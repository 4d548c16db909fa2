//! The shared data, where it is there.

use std::path::PathBuf;

use ckf_producer::HashSeeds;
use serde_json::Value;

pub(crate) const SEEDS: HashSeeds = HashSeeds::new([1, 2, 3, 4]);

/// The contents of a file under `data/`, or `None` (with a note) where the data is absent.
pub(crate) fn read(path: &str) -> Option<Vec<u8>> {
    let shared = std::env::var_os("CKF_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")),
        PathBuf::from,
    );
    match std::fs::read(shared.join("data").join(path)) {
        Ok(bytes) => Some(bytes),
        Err(error) if std::env::var_os("CKF_REQUIRE_SHARED").is_some() => {
            panic!("shared data is required: {path}: {error}")
        }
        Err(_) => {
            println!("skipped: no shared data {path}");
            None
        }
    }
}

pub(crate) fn json(path: &str) -> Option<Value> {
    read(path).map(|bytes| serde_json::from_slice(&bytes).expect("the file is JSON"))
}
