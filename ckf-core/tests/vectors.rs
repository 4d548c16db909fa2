//! Frozen vectors of addressing and digests. `docs/wire/check.py` computes them in another language.
#![allow(clippy::disallowed_methods)] // Tests find the shared data through the environment.

use std::path::PathBuf;

use ckf_core::{BlockHash, BucketImage, Fingerprint, Format, Indexing, TableDigest};

/// One address line: the format, the hash, and where it must be.
struct Vector {
    format: Format,
    hash: BlockHash,
    fingerprint: u16,
    first: u32,
    second: u32,
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

/// The lines that start with a word, split.
fn lines(word: &str) -> Vec<Vec<&'static str>> {
    include_str!("vectors/addressing.txt")
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|cells| cells[0] == word)
        .collect()
}

fn vectors() -> Vec<Vector> {
    let vector = |cells: Vec<&str>| {
        let [_, indexing, seed, count, hash, fingerprint, first, second] = cells[..] else {
            panic!("{cells:?}")
        };
        let indexing = match indexing {
            "any_count" => Indexing::AnyCount,
            "power_of_two" => Indexing::PowerOfTwo,
            other => panic!("{other}"),
        };
        Vector {
            format: Format::new(indexing, count.parse().unwrap(), hex(seed)).unwrap(),
            hash: BlockHash::new(hex(hash)),
            fingerprint: hex(fingerprint) as u16,
            first: first.parse().unwrap(),
            second: second.parse().unwrap(),
        }
    };
    lines("address").into_iter().map(vector).collect()
}

fn check(vector: &Vector) {
    let Vector { format, hash, .. } = vector;
    let address = format.address(*hash);
    assert_eq!(address.fingerprint.get(), vector.fingerprint, "{format:?} {hash}");
    assert_eq!(address.first.get(), vector.first, "{format:?} {hash}");
    assert_eq!(address.second.get(), vector.second, "{format:?} {hash}");
    assert_eq!(format.alternate(address.second, address.fingerprint), address.first);
}

#[test]
fn addresses_are_those_of_the_file() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 251);
    vectors.iter().for_each(check);
}

#[test]
fn f24_f28_the_file_has_the_cases_that_go_wrong_elsewhere() {
    let vectors = vectors();
    let count = |case: &dyn Fn(&Vector) -> bool| vectors.iter().filter(|v| case(v)).count();
    let any = |v: &Vector| v.format.indexing() == Indexing::AnyCount;
    let zero_fingerprints = count(&|v| v.fingerprint == 1);
    let self_mirrored = count(&|v| v.first == v.second && any(v));
    let largest = count(&|v| v.format.bucket_count() >= Format::MAX_BUCKETS - 1);
    let smallest = count(&|v| v.format.bucket_count() == Format::MIN_BUCKETS);
    assert!(zero_fingerprints >= 8);
    assert!(self_mirrored >= 4);
    assert!(largest >= 40 && smallest >= 20);
    assert_eq!(count(&|v| v.first == v.second && !any(v)), 0);
}

#[test]
fn digest_shares_are_those_of_the_file() {
    let lines = lines("digest");
    assert_eq!(lines.len(), 20);
    for cells in lines {
        let [_, bucket, image, share] = cells[..] else { panic!("{cells:?}") };
        let image = BucketImage::new(hex(image));
        let bucket = bucket.parse().unwrap();
        let digest = TableDigest::EMPTY.replaced(bucket, BucketImage::EMPTY, image);
        assert_eq!(digest.get(), hex(share), "{bucket} {image:?}");
        assert_eq!(digest.replaced(bucket, image, BucketImage::EMPTY), TableDigest::EMPTY);
    }
}

#[test]
fn dynamo_addresses_agree() {
    let shared = std::env::var_os("CKF_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")),
        PathBuf::from,
    );
    let text = match std::fs::read_to_string(shared.join("data/hash_vectors/dynamo_1_6_1.json")) {
        Ok(text) => text,
        Err(error) => {
            let required = std::env::var_os("CKF_REQUIRE_SHARED").is_some_and(|value| value == "1");
            assert!(!required, "shared data is required: {error}");
            println!("skipped: no shared data");
            return;
        }
    };
    let json: serde_json::Value = serde_json::from_str(&text).expect("the vectors are JSON");
    let cases = json["cuckoo_addressing"].as_array().unwrap();
    assert_eq!(cases.len(), 8);
    for case in cases {
        let text = |key: &str| hex(case[key].as_str().unwrap());
        let number = |key: &str| case[key].as_u64().unwrap();
        check(&Vector {
            format: Format::power_of_two(number("bucket_count"), text("seed")).unwrap(),
            hash: BlockHash::new(text("sequence_hash")),
            fingerprint: text("fingerprint") as u16,
            first: number("bucket_a") as u32,
            second: number("bucket_b") as u32,
        });
    }
}

#[test]
fn no_fingerprint_is_zero() {
    assert_eq!(Fingerprint::new(0), None);
    assert!(vectors().iter().all(|vector| vector.fingerprint != 0));
}
