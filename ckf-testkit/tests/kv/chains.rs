//! Engines' own chained hashes, rebuilt as a reader would.

use ckf_core::BlockHash;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::shared;

type Sha = [u8; 32];

/// vLLM's `sha256_cbor`: SHA-256 over the canonical CBOR of (parent digest, tokens, extra keys); the
/// root's parent is the hash of a seed text. The id is the last 8 bytes.
pub(crate) fn vllm(seed: &str, tokens: &[u32], block_size: usize) -> Vec<BlockHash> {
    let mut text = Vec::new();
    head(&mut text, 3, seed.len() as u32);
    text.extend(seed.as_bytes());
    let mut parent: Sha = Sha256::digest(&text).into();
    let mut ids = Vec::new();
    for block in tokens.chunks_exact(block_size) {
        let mut cbor = Vec::new();
        head(&mut cbor, 4, 3);
        head(&mut cbor, 2, 32);
        cbor.extend(parent);
        head(&mut cbor, 4, block.len() as u32);
        block.iter().for_each(|token| head(&mut cbor, 0, *token));
        cbor.push(0xF6);
        parent = Sha256::digest(&cbor).into();
        ids.push(BlockHash::new(u64::from_be_bytes(parent[24..].try_into().unwrap())));
    }
    ids
}

/// The shortest head of a CBOR item.
fn head(to: &mut Vec<u8>, major: u8, value: u32) {
    let major = major << 5;
    match value {
        0..24 => to.push(major | value as u8),
        24..0x100 => to.extend([major | 24, value as u8]),
        0x100..0x1_0000 => {
            to.push(major | 25);
            to.extend((value as u16).to_be_bytes());
        }
        _ => {
            to.push(major | 26);
            to.extend(value.to_be_bytes());
        }
    }
}

/// SGLang's chain: SHA-256 over the parent digest, none at the root, and the tokens. The id is the
/// first 8 bytes.
pub(crate) fn sglang(tokens: &[u32], block_size: usize) -> Vec<BlockHash> {
    let mut parent: Option<Sha> = None;
    let mut ids = Vec::new();
    for block in tokens.chunks_exact(block_size) {
        let mut sha = Sha256::new();
        parent.iter().for_each(|parent| sha.update(parent));
        block.iter().for_each(|token| sha.update(token.to_le_bytes()));
        let digest: Sha = sha.finalize().into();
        ids.push(BlockHash::new(u64::from_be_bytes(digest[..8].try_into().unwrap())));
        parent = Some(digest);
    }
    ids
}

#[test]
fn rebuilt_chains_equal_the_engines() {
    let Some(file) = shared::json("hash_vectors/engines.json") else { return };
    // Plain text only: salts and adapters enter the chains in ways of their own.
    let plain = |engine: &str| -> Vec<Value> {
        let cases = file[engine].as_array().unwrap().iter();
        cases.filter(|case| case["name"].as_str().unwrap().starts_with("plain")).cloned().collect()
    };
    let tokens = |case: &Value| -> Vec<u32> {
        case["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32).collect()
    };
    let published = |case: &Value| -> Vec<BlockHash> {
        let id = |id: &Value| match id.as_i64() {
            Some(signed) => BlockHash::from_signed(signed),
            None => BlockHash::new(id.as_str().unwrap().parse().unwrap()),
        };
        case["event_ints"].as_array().unwrap().iter().map(id).collect()
    };
    let (vllm_cases, sglang_cases) = (plain("vllm_sha256_cbor"), plain("sglang"));
    assert_eq!((vllm_cases.len(), sglang_cases.len()), (2, 1));
    for case in vllm_cases {
        let seed = case["none_hash_seed"].as_str().unwrap();
        assert_eq!(vllm(seed, &tokens(&case), 16), published(&case), "{seed}");
    }
    for case in sglang_cases {
        assert_eq!(sglang(&tokens(&case), 16), published(&case));
    }
}
