//! Engines' own chained hashes, rebuilt as a reader would.

use ckf_core::BlockHash;
use sha2::{Digest, Sha256};

use crate::shared;

type Sha = [u8; 32];

/// vLLM's `sha256_cbor`: SHA-256 over the canonical CBOR of (parent digest, tokens, extra keys); the
/// root's parent is the hash of a seed text. The id is the last 8 bytes.
pub(crate) fn vllm(seed: &str, tokens: &[u32], block_size: usize) -> Vec<BlockHash> {
    vllm_digests(seed, tokens, block_size)
        .iter()
        .map(|digest| BlockHash::new(u64::from_be_bytes(digest[24..].try_into().unwrap())))
        .collect()
}

fn vllm_digests(seed: &str, tokens: &[u32], block_size: usize) -> Vec<Sha> {
    let mut text = Vec::new();
    head(&mut text, 3, seed.len() as u32);
    text.extend(seed.as_bytes());
    let mut parent: Sha = Sha256::digest(&text).into();
    let mut digests = Vec::new();
    for block in tokens.chunks_exact(block_size) {
        let mut cbor = Vec::new();
        head(&mut cbor, 4, 3);
        head(&mut cbor, 2, 32);
        cbor.extend(parent);
        head(&mut cbor, 4, block.len() as u32);
        block.iter().for_each(|token| head(&mut cbor, 0, *token));
        cbor.push(0xF6);
        parent = Sha256::digest(&cbor).into();
        digests.push(parent);
    }
    digests
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
    sglang_digests(tokens, block_size)
        .iter()
        .map(|digest| BlockHash::new(u64::from_be_bytes(digest[..8].try_into().unwrap())))
        .collect()
}

fn sglang_digests(tokens: &[u32], block_size: usize) -> Vec<Sha> {
    let mut parent: Option<Sha> = None;
    let mut digests = Vec::new();
    for block in tokens.chunks_exact(block_size) {
        let mut sha = Sha256::new();
        parent.iter().for_each(|parent| sha.update(parent));
        block.iter().for_each(|token| sha.update(token.to_le_bytes()));
        let digest: Sha = sha.finalize().into();
        digests.push(digest);
        parent = Some(digest);
    }
    digests
}

#[test]
fn rebuilt_chains_equal_the_engines() {
    let Some(file) = shared::json("hash_vectors/engines.json") else { return };
    let mut checked = 0;
    let hex = |digest: &Sha| digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (engine, cases) in file.as_object().unwrap() {
        for case in cases.as_array().into_iter().flatten() {
            // Plain text only: salts and adapters enter the two chains in ways of their own.
            let is_plain = case["name"].as_str().unwrap().starts_with("plain");
            let Some(tokens) = case["tokens"].as_array().filter(|_| is_plain) else { continue };
            let tokens: Vec<u32> = tokens.iter().filter_map(|t| Some(t.as_u64()? as u32)).collect();
            let block_size = case["block_size"].as_u64().unwrap() as usize;
            let digests = match engine.as_str() {
                "vllm_sha256_cbor" => {
                    vllm_digests(case["none_hash_seed"].as_str().unwrap(), &tokens, block_size)
                }
                _ => sglang_digests(&tokens, block_size),
            };
            let expected: Vec<&str> =
                case["digests"].as_array().unwrap().iter().map(|d| d.as_str().unwrap()).collect();
            assert_eq!(digests.iter().map(hex).collect::<Vec<_>>(), expected, "{engine}");
            checked += 1;
        }
    }
    assert!(checked >= 3, "{checked}");
}
