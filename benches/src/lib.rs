//! Inputs that the benches share. Deterministic: a seed gives the same input on every machine.

pub mod world;

use ckf_core::{BlockHash, Format, Sizing, Table};
use ckf_producer::{HashSeeds, Pool, PoolConfig};

/// `count` distinct block hashes; sets of different `seed` share none in practice.
pub fn hashes(seed: u64, count: usize) -> Vec<BlockHash> {
    let mut state = seed.wrapping_mul(0xD134_2543_DE82_EF95);
    (0..count)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut x = state;
            x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            BlockHash::new(x ^ (x >> 31))
        })
        .collect()
}

/// A table of `buckets` buckets filled to `per_mille` with the hashes of seed 1, and these hashes.
///
/// # Panics
/// When the format or the load is not possible.
pub fn filled_table(buckets: u64, per_mille: u64) -> (Table, Vec<BlockHash>) {
    let format = Format::any_count(buckets, 7).expect("a legal bucket count");
    let mut table = Table::new(format).expect("memory for the table");
    let hashes = hashes(1, (buckets * 4 * per_mille / 1000) as usize);
    for &hash in &hashes {
        table.insert(&format.address(hash), |_| ()).expect("room at this load");
    }
    (table, hashes)
}

/// An empty pool for `blocks` distinct blocks at `per_mille` load.
///
/// # Panics
/// When the size is not possible.
pub fn pool(blocks: usize, per_mille: u16) -> Pool {
    let sizing = Sizing::for_blocks(blocks as u64, per_mille).expect("a legal size");
    let format = sizing.format(7);
    Pool::new(PoolConfig::new(format, HashSeeds::new([1, 2, 3, 4]))).expect("memory for the pool")
}
