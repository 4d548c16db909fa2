//! The bare filter: addressing, insert, remove, contains, by size and load.

#![allow(missing_docs, reason = "criterion makes public functions")]

use std::hint::black_box;

use ckf_benches::{filled_table, hashes};
use ckf_core::{BlockHash, Format};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const GROUP: usize = 1024;

fn addressing(c: &mut Criterion) {
    let keys = hashes(2, GROUP);
    let mut group = c.benchmark_group("address");
    group.throughput(Throughput::Elements(GROUP as u64));
    let formats =
        [("any", Format::any_count(1_000_003, 7)), ("xor", Format::power_of_two(1 << 20, 7))];
    for (name, format) in formats {
        let format = format.expect("a legal format");
        group.bench_function(name, |b| {
            b.iter(|| keys.iter().for_each(|&key| _ = black_box(format.address(key))));
        });
    }
    group.finish();
}

fn by_size_and_load(c: &mut Criterion) {
    for buckets in [30_000u64, 300_000, 3_000_000] {
        for load in [600, 900] {
            let (mut table, stored) = filled_table(buckets, load);
            let format = *table.format();
            let id = format!("{buckets} buckets, {load} per mille");
            let extra = hashes(3, GROUP);

            let mut group = c.benchmark_group("table");
            group.throughput(Throughput::Elements(GROUP as u64));
            let picked: Vec<BlockHash> =
                stored.iter().step_by(stored.len() / GROUP).take(GROUP).copied().collect();
            for (name, keys) in [("contains, there", &picked), ("contains, not there", &extra)] {
                group.bench_with_input(BenchmarkId::new(name, &id), keys, |b, keys| {
                    b.iter(|| keys.iter().filter(|&&key| table.contains(key)).count());
                });
            }
            group.bench_function(BenchmarkId::new("insert and remove", &id), |b| {
                b.iter_batched(
                    || (),
                    |()| {
                        for &key in &extra {
                            table.insert(&format.address(key), |_| ()).expect("room at this load");
                        }
                        for &key in &extra {
                            assert!(table.remove(&format.address(key), |_| ()));
                        }
                    },
                    BatchSize::SmallInput,
                );
            });
            group.finish();
        }
    }
}

criterion_group!(benches, addressing, by_size_and_load);
criterion_main!(benches);
