//! How many bytes the format takes, next to 12 bytes an image with a header of 48 for deltas, and
//! 8 bytes a bucket for snapshots.

mod common;

use std::collections::BTreeMap;

use ckf_core::{BlockHash, BucketImage, Format, Table, TableDigest};
use ckf_protocol::{DeltaWriter, Limits, Sequence, encode_chunk};

/// Numbers that look random, the same each time.
fn numbers() -> impl FnMut() -> u64 {
    let mut state = 7u64;
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 27)
    }
}

/// A table of `buckets` at `per_mille` load, and the blocks in it.
fn filled(buckets: u64, per_mille: u16, next: &mut impl FnMut() -> u64) -> (Table, Vec<BlockHash>) {
    let format = Format::any_count(buckets, 42).unwrap();
    let mut table = Table::new(format).unwrap();
    let mut blocks = Vec::new();
    while table.load_per_mille() < per_mille {
        let hash = BlockHash::new(next());
        table.insert(&format.address(hash), |_| ()).unwrap();
        blocks.push(hash);
    }
    (table, blocks)
}

/// Share of the plain encoding that deltas of 16 changes take, eviction and storing in turns.
fn delta_share(buckets: u64, per_mille: u16) -> f64 {
    let limits = Limits::default();
    let mut next = numbers();
    let (mut table, mut blocks) = filled(buckets, per_mille, &mut next);
    let format = *table.format();
    let (mut ours, mut plain, mut images) = (0, 0, 0);
    for sequence in 1..=500 {
        let mut dirty = BTreeMap::<u32, (BucketImage, BucketImage)>::new();
        let mut note = |change: ckf_core::Change| {
            dirty
                .entry(change.bucket.get())
                .and_modify(|(_, after)| *after = change.after)
                .or_insert((change.before, change.after));
        };
        for _ in 0..8 {
            let victim = blocks.swap_remove(next() as usize % blocks.len());
            assert!(table.remove(&format.address(victim), &mut note));
            let hash = BlockHash::new(next());
            table.insert(&format.address(hash), &mut note).unwrap();
            blocks.push(hash);
        }
        dirty.retain(|_, (before, after)| before != after);
        let mut writer = DeltaWriter::new(Sequence::new(sequence), TableDigest::EMPTY, &limits);
        for (&bucket, &(before, after)) in &dirty {
            writer.push(bucket, before, after).unwrap();
        }
        ours += writer.finish().unwrap().parts.iter().map(|p| p.frame_len()).sum::<usize>();
        plain += 12 * dirty.len() + 48;
        images += dirty.len();
    }
    let share = ours as f64 / plain as f64;
    println!(
        "{buckets} buckets at {per_mille} per mille: {} images, {:.2} bytes an image, {share:.3} of the plain encoding",
        images,
        ours as f64 / images as f64
    );
    share
}

#[test]
fn deltas_of_16_changes_take_at_most_three_quarters_of_the_plain_encoding() {
    for (buckets, per_mille) in [(2_000, 600), (60_000, 600), (60_000, 900), (250_000, 950)] {
        let share = delta_share(buckets, per_mille);
        assert!(share <= 0.75, "{buckets} {per_mille}: {share}");
    }
}

#[test]
fn deltas_of_huge_tables_too() {
    // No table is made: 16 single slots anywhere among 2^30 buckets, the widest gaps there are.
    let mut next = numbers();
    let mut buckets: Vec<u32> = (0..16).map(|_| (next() >> 34) as u32).collect();
    buckets.sort_unstable();
    let limits = Limits::default();
    let mut writer = DeltaWriter::new(Sequence::new(1), TableDigest::EMPTY, &limits);
    for &bucket in &buckets {
        writer.push(bucket, BucketImage::EMPTY, BucketImage::new(5)).unwrap();
    }
    let bytes = writer.finish().unwrap().parts[0].frame_len();
    println!("16 single slots among 2^30 buckets: {bytes} bytes, plain {}", 12 * 16 + 48);
    assert!(bytes * 4 <= (12 * 16 + 48) * 3, "{bytes}");
}

#[test]
fn snapshots_take_at_most_three_quarters_of_the_plain_encoding_at_60_percent_load() {
    let limits = Limits::default();
    for (per_mille, most) in [(300, 0.40), (600, 0.68), (900, 0.98), (950, 1.03)] {
        let (table, _) = filled(50_000, per_mille, &mut numbers());
        let mut bytes = 0;
        for (index, words) in table.words().chunks(16_384).enumerate() {
            let first = index as u32 * 16_384;
            bytes += encode_chunk(first, words.iter().copied(), &limits).unwrap().frame_len();
        }
        let share = bytes as f64 / table.format().table_bytes() as f64;
        println!("{per_mille} per mille: {share:.4} of 8 bytes a bucket");
        assert!(share <= most, "{per_mille}: {share}");
    }
}
