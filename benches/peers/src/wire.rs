//! Bytes on the wire for the same changes.
//!
//! Ours are the frames that the producer hands out, headers included. Dynamo's are computed from the
//! image lists that its producer hands out and its published layout: a header of 48 bytes, 16 or 12
//! more for a snapshot chunk or a delta, 8 bytes a bucket or 12 an image; the envelope that carries
//! them (some hundred bytes a message) is left out.

use serde_json::{Map, Value, json};

use crate::measure::{Rng, round1};
use crate::producer::{Subject, bucket_count};
use crate::workload::{Chain, fresh_chain};
use crate::{dynamo, ours};

const BLOCKS: usize = 128;
const COMMANDS: usize = 1000;

/// A producer with one subscriber.
pub trait Publishing: Subject {
    /// Bytes of a snapshot of the present state; later batches go to its subscriber.
    fn snapshot_bytes(&mut self) -> usize;
    /// Applies a command; bytes of the batch it completes, 0 if it completes none.
    fn published_bytes(&mut self, command: Self::Command) -> usize;
}

/// Snapshot and deltas of a pool that holds `size` blocks.
pub fn compare(size: usize) -> Value {
    let buckets = bucket_count(size);
    let mut out = Map::new();
    out.insert("load".into(), json!(size as f64 / (4 * buckets) as f64));
    out.insert("ours".into(), run::<ours::Stream>(size, buckets));
    out.insert("dynamo".into(), run::<dynamo::Producer>(size, buckets));
    let tight = ours::tight_bucket_count(size);
    let mut own_size = run::<ours::Stream>(size, tight);
    own_size["load"] = json!(size as f64 / (4 * tight) as f64);
    out.insert("ours_at_default_load".into(), own_size);
    out.into()
}

fn run<P: Publishing>(size: usize, buckets: usize) -> Value {
    let chains = size / BLOCKS;
    let chain = |number| fresh_chain(number, BLOCKS);
    let fill = |producer: &mut P| {
        for number in 0..chains {
            producer.apply(P::store(0, &chain(number), 0, BLOCKS));
        }
    };
    let mut json = Map::new();
    let mut producer = P::new(buckets, 1);
    fill(&mut producer);
    json.insert("snapshot_bytes".into(), json!(producer.snapshot_bytes()));
    let mut rng = Rng::new(5);
    let mut hashes: Vec<u64> =
        (0..chains.min(COMMANDS)).flat_map(|number| chain(number).sequence).collect();
    rng.shuffle(&mut hashes);
    // Removing first makes the room that storing takes again.
    let removed: usize =
        hashes.chunks(BLOCKS).map(|hashes| producer.published_bytes(P::remove(0, hashes))).sum();
    let stored: usize = (0..chains.min(COMMANDS))
        .map(|number| producer.published_bytes(P::store(0, &chain(chains + number), 0, BLOCKS)))
        .sum();
    let per_block = |bytes: usize, blocks: usize| round1(bytes as f64 / blocks.max(1) as f64);
    json.insert("store_bytes_per_block".into(), json!(per_block(stored, hashes.len())));
    json.insert("remove_bytes_per_block".into(), json!(per_block(removed, hashes.len())));
    json.insert("decode_bytes_per_block".into(), json!(decode::<P>(size, buckets)));
    json.into()
}

/// Commands of one block, a batch every 16.
fn decode<P: Publishing>(size: usize, buckets: usize) -> f64 {
    const CADENCE: usize = 16;
    let mut producer = P::new(buckets, CADENCE);
    for number in 0..size / BLOCKS {
        producer.apply(P::store(0, &fresh_chain(number, BLOCKS / 2), 0, BLOCKS / 2));
    }
    producer.snapshot_bytes();
    let grown: Vec<Chain> =
        (0..(size / BLOCKS).min(64)).map(|number| fresh_chain(number, BLOCKS)).collect();
    let (mut bytes, mut blocks) = (0, 0);
    for at in BLOCKS / 2..BLOCKS {
        for chain in &grown {
            bytes += producer.published_bytes(P::store(0, chain, at, at + 1));
            blocks += 1;
        }
    }
    round1(bytes as f64 / blocks.max(1) as f64)
}
