//! The sequence hashes against the vectors that Dynamo's published crates computed.
#![allow(clippy::disallowed_methods)] // Tests find the shared data through the environment.

use std::path::PathBuf;

use ckf_core::sequence::{Scope, roll_all};
use ckf_core::{BlockHash, LocalHash};
use serde_json::Value;

/// The vectors, or `None` (with a note) where the shared data is absent.
fn vectors() -> Option<Value> {
    let shared = std::env::var_os("CKF_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")),
        PathBuf::from,
    );
    match std::fs::read_to_string(shared.join("data/hash_vectors/dynamo_1_6_1.json")) {
        Ok(text) => Some(serde_json::from_str(&text).expect("the vectors are JSON")),
        Err(error) if std::env::var_os("CKF_REQUIRE_SHARED").is_some() => {
            panic!("shared data is required: {error}")
        }
        Err(_) => {
            println!("skipped: no shared data");
            None
        }
    }
}

fn numbers(value: &Value) -> Vec<u64> {
    let digits = |v: &Value| u64::from_str_radix(v.as_str().unwrap(), 16).unwrap();
    value.as_array().unwrap().iter().map(digits).collect()
}

fn tokens(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32).collect()
}

fn check(locals: &[LocalHash], case: &Value, local_key: &str, name: &str) {
    let got: Vec<u64> = locals.iter().map(|l| l.get()).collect();
    assert_eq!(got, numbers(&case[local_key]), "{name}: local hashes");
    let got: Vec<u64> = roll_all(None, locals.iter().copied()).map(BlockHash::get).collect();
    assert_eq!(got, numbers(&case["sequence_hashes"]), "{name}: sequence hashes");
}

#[test]
fn text_windows_agree_with_dynamo() {
    let Some(file) = vectors() else { return };
    let cases = file["vectors"].as_array().unwrap();
    assert_eq!(cases.len(), 11);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let scope = Scope::new(case["lora_name"].as_str(), case["cache_namespace"].as_str());
        assert_eq!(format!("{:016x}", scope.seed()), case["seed"].as_str().unwrap(), "{name}");
        let tokens = tokens(&case["tokens"]);
        let block_size = case["block_size"].as_u64().unwrap() as usize;
        let locals: Vec<LocalHash> = match case["is_eagle"].as_bool().unwrap() {
            true => scope.eagle_local_hashes(&tokens, block_size).collect(),
            false => scope.local_hashes(&tokens, block_size).collect(),
        };
        check(&locals, case, "local_block_hashes", name);
    }
}

#[test]
fn media_windows_agree_with_dynamo() {
    let Some(file) = vectors() else { return };
    let case = &file["multimodal"]["router_event_form"];
    let tokens = tokens(&case["tokens"]);
    let block_size = case["block_size"].as_u64().unwrap() as usize;
    let media = case["mm_hashes_per_block"].as_array().unwrap();
    assert_eq!(media.len(), tokens.len() / block_size);
    let locals: Vec<LocalHash> = tokens
        .chunks_exact(block_size)
        .zip(media)
        .map(|(window, media)| {
            let media = if media.is_null() { vec![] } else { numbers(media) };
            Scope::default().local_hash_with_media(window, &media)
        })
        .collect();
    check(&locals, case, "local_block_hashes", "media");
}
