//! Encoding and decoding a million images, as deltas and as snapshot chunks.
//!
//! Throughput is told of the frames' bytes ("wire") and of the images' words ("words"): both are
//! payload to somebody.

use std::hint::black_box;

use ckf_core::{BucketImage, TableDigest};
use ckf_protocol::{
    DeltaWriter, LeaseId, Limits, Message, Sequence, SharedBody, decode, encode_chunk,
};
use criterion::{Criterion, Throughput};

const IMAGES: usize = 1_000_000;

/// A small generator, so that the input is the same each time.
fn numbers() -> impl FnMut() -> u64 {
    let mut state = 1u64;
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 27)
    }
}

/// A word whose slots are taken with a chance of `per_mille`.
fn word(next: &mut impl FnMut() -> u64, per_mille: u64) -> u64 {
    (0..4).fold(0, |word, _| {
        let bits = next();
        let slot = if bits % 1000 < per_mille { (bits >> 32) & 0xFFFF | 1 } else { 0 };
        word << 16 | slot
    })
}

/// Ascending buckets with a mean gap of about `gap`, the images of each before and after.
fn changes(gap: u64, one_slot: bool) -> Vec<(u32, BucketImage, BucketImage)> {
    let mut next = numbers();
    let mut bucket = 0;
    (0..IMAGES)
        .map(|_| {
            bucket += 1 + (next() % (2 * gap - 1)) as u32;
            let before = word(&mut next, 900);
            let after = if one_slot {
                let slot = next() % 4 * 16;
                before ^ (next() % 0xFFFF + 1) << slot
            } else {
                !before
            };
            (bucket, BucketImage::new(before), BucketImage::new(after))
        })
        .collect()
}

/// The parts of one batch.
fn encode(changes: &[(u32, BucketImage, BucketImage)], limits: &Limits) -> Vec<SharedBody> {
    let mut writer = DeltaWriter::new(Sequence::new(1), TableDigest::EMPTY, limits);
    for &(bucket, before, after) in changes {
        writer.push(bucket, before, after).expect("ascending and inside");
    }
    writer.finish().expect("number 1").parts
}

/// Writes the frames for one subscriber to a buffer that is used again, as a link would.
fn send(bodies: &[SharedBody], out: &mut Vec<u8>) {
    out.clear();
    bodies.iter().for_each(|body| body.frame(lease()).write_to(out));
}

fn lease() -> LeaseId {
    LeaseId::new(7).expect("not 0")
}

/// The bytes of each frame.
fn received(bodies: &[SharedBody]) -> Vec<Vec<u8>> {
    bodies.iter().map(|body| body.frame(lease()).to_bytes()).collect()
}

/// Everything that a reader does short of storing: checks, then visits every patch.
fn read(frames: &[Vec<u8>], limits: &Limits) -> u64 {
    let mut sum = 0u64;
    for frame in frames {
        let Ok(Message::Delta { delta, .. }) = decode(frame, limits) else { panic!("a delta") };
        for patch in delta.patches() {
            sum = sum.wrapping_add(patch.image.get() ^ u64::from(patch.bucket));
        }
    }
    sum
}

fn deltas(criterion: &mut Criterion) {
    let limits = Limits::default();
    for (name, gap, one_slot) in
        [("dense_one_slot", 3, true), ("sparse_one_slot", 500, true), ("whole_buckets", 3, false)]
    {
        let changes = changes(gap, one_slot);
        let frames = received(&encode(&changes, &limits));
        let mut out = Vec::new();
        let wire: usize = frames.iter().map(Vec::len).sum();
        for (unit, bytes) in [("wire", wire), ("words", IMAGES * 8)] {
            let mut group = criterion.benchmark_group(format!("delta/{name}/{unit}"));
            group.sample_size(20).throughput(Throughput::Bytes(bytes as u64));
            group.bench_function("encode", |b| {
                b.iter(|| send(&encode(black_box(&changes), &limits), &mut out))
            });
            group.bench_function("decode", |b| b.iter(|| read(black_box(&frames), &limits)));
            group.finish();
        }
    }
}

fn chunks(criterion: &mut Criterion) {
    let limits = Limits::default();
    let mut next = numbers();
    let words: Vec<u64> = (0..IMAGES).map(|_| word(&mut next, 600)).collect();
    let encode = |words: &[u64]| -> Vec<SharedBody> {
        let chunks = words.chunks(16_384).enumerate().map(|(index, words)| {
            let first = index as u32 * 16_384;
            encode_chunk(first, words.iter().copied(), &limits).expect("inside the limits")
        });
        chunks.collect()
    };
    let frames = received(&encode(&words));
    let mut out = Vec::new();
    let wire: usize = frames.iter().map(Vec::len).sum();
    for (unit, bytes) in [("wire", wire), ("words", IMAGES * 8)] {
        let mut group = criterion.benchmark_group(format!("snapshot/load_600/{unit}"));
        group.sample_size(20).throughput(Throughput::Bytes(bytes as u64));
        group.bench_function("encode", |b| b.iter(|| send(&encode(black_box(&words)), &mut out)));
        group.bench_function("decode", |b| {
            b.iter(|| {
                frames.iter().fold(0u64, |sum, frame| match decode(frame, &limits) {
                    Ok(Message::SnapshotChunk { chunk, .. }) => {
                        chunk.words().fold(sum, |sum, word| sum.wrapping_add(word))
                    }
                    other => panic!("a chunk, not {other:?}"),
                })
            });
        });
        group.finish();
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    deltas(&mut criterion);
    chunks(&mut criterion);
    criterion.final_summary();
}
