//! Writers and readers on real threads: tenants come and go, snapshots are installed, deltas applied,
//! while queries of every kind run. `cargo test --release -p ckf-consumer --test stress -- --ignored`.
#![cfg(not(ckf_loom))]

#[allow(dead_code, reason = "only the manifest and the backends are used here")]
mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ckf_consumer::{Consumer, ConsumerConfig, LaneWriter, Matches, QueryHandle};
use ckf_core::{BlockHash, BucketImage, Format, GOLDEN_GAMMA, Table, mix64};
use ckf_protocol::{DcId, Instant, Lane, Sequence};
use common::{backends, manifest};

const LANES: u64 = 4;
const TENANTS: u64 = 50_000;
const READERS: u64 = 3;
/// Blocks of a tenant's family that are held at first, and at most.
const HELD: (usize, usize) = (40, 64);
/// Batches of a tenancy.
const BATCHES: u64 = 6;
/// Sequences of one tenancy; those of the next one start above.
const SPAN: u64 = 1_000;

/// A tenant of a lane; its data center is a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tenant {
    lane: u64,
    number: u64,
}

impl Tenant {
    fn dc(self) -> DcId {
        DcId::new(self.number << 8 | self.lane)
    }

    fn of(dc: DcId) -> Self {
        Self { lane: dc.get() & 0xFF, number: dc.get() >> 8 }
    }

    /// The blocks that it is asked for, of which it holds the first few.
    fn family(self) -> Vec<BlockHash> {
        let seed = mix64(self.dc().get().wrapping_add(GOLDEN_GAMMA));
        (0..HELD.1 as u64 + 16).map(|i| BlockHash::new(mix64(seed.wrapping_add(i)))).collect()
    }

    /// Its table with few and with many of the blocks, those of the many moved about.
    fn tables(self, format: Format) -> [Table; 2] {
        let family = self.family();
        let mut table = Table::new(format).expect("small");
        let mut fill = |blocks: &[BlockHash]| {
            for block in blocks {
                table.insert(&format.address(*block), |_| ()).expect("room");
            }
            table.clone()
        };
        [fill(&family[..HELD.0]), fill(&family[HELD.0..HELD.1])]
    }
}

struct Bench {
    format: Format,
    query: QueryHandle,
    /// The latest tenant of each lane.
    latest: [AtomicU64; LANES as usize],
    done: AtomicBool,
    /// Answers that were looked at, and those that named the tenant asked for.
    answers: AtomicU64,
    hits: AtomicU64,
}

impl Bench {
    /// The life of a lane: tenant after tenant, each with a snapshot and deltas forth and back.
    fn write(&self, writer: &mut LaneWriter) {
        let lane = u64::from(writer.lane().get());
        let first = self.format.bucket(0).expect("there is a bucket 0");
        for number in 1..=TENANTS {
            let tenant = Tenant { lane, number };
            let tables = tenant.tables(self.format);
            self.latest[lane as usize].store(number, Ordering::Relaxed);
            let note = |batch| (Sequence::new(number * SPAN + batch), number * SPAN + batch);
            let mut images = tables[0].words().iter().copied().map(BucketImage::new);
            writer.begin_install(tenant.dc());
            let half = images.len() / 2;
            writer.store_run(first, images.by_ref().take(half));
            // Now and then a snapshot breaks off, and the next tenant finds its words.
            if number % 7 == 0 {
                continue;
            }
            let middle = self.format.bucket(half as u32).expect("inside");
            writer.store_run(middle, images);
            let (sequence, at) = note(0);
            writer.publish_ready(sequence, Instant::from_millis(at));
            for batch in 1..=BATCHES {
                let (from, to) = (&tables[1 - (batch % 2) as usize], &tables[(batch % 2) as usize]);
                for bucket in self.format.buckets() {
                    if from.image(bucket) != to.image(bucket) {
                        writer.store(bucket, to.image(bucket));
                    }
                }
                let (sequence, at) = note(batch);
                writer.note(sequence, Instant::from_millis(at));
            }
            if number % 11 == 0 {
                writer.retire();
            }
        }
    }

    /// What an answer may say of a block, whatever mixture of its tenant's batches it has seen.
    fn may_hold(tables: &[Table; 2], format: &Format, block: BlockHash) -> bool {
        let address = format.address(block);
        let in_bucket =
            |bucket| tables.iter().any(|t| t.image(bucket).contains(address.fingerprint));
        in_bucket(address.first) || in_bucket(address.second)
    }

    fn judge(&self, asked: Tenant, prefix: &[BlockHash], matches: &Matches, walk: bool) {
        assert_eq!(matches.asked(), prefix.len());
        let (mut seen, mut hits) = (0, 0);
        for (lane, dc, depth) in matches.iter() {
            let tenant = Tenant::of(dc);
            assert_eq!(tenant.lane, u64::from(lane.get()), "a data center of another lane");
            seen += 1;
            hits += u64::from(tenant == asked);
            let expected = if tenant == asked { HELD.1 } else { 0 };
            if depth as usize <= expected {
                continue;
            }
            // More than is held can only be chance, and then the words show it.
            let tables = tenant.tables(self.format);
            let held = |block: &&BlockHash| Self::may_hold(&tables, &self.format, **block);
            let depth = depth as usize;
            assert!(depth <= prefix.len());
            if walk {
                let most = prefix.iter().take_while(held).count();
                assert!(depth <= most, "{tenant:?} answered {depth} of {most} to {asked:?}");
            } else {
                assert!(held(&&prefix[depth - 1]), "{tenant:?} answered {depth} to {asked:?}");
            }
        }
        self.answers.fetch_add(seen, Ordering::Relaxed);
        self.hits.fetch_add(hits, Ordering::Relaxed);
    }

    fn read(&self, reader: u64) {
        let (query, mut draw) = (self.query.clone(), mix64(reader + 1));
        let mut batch = Vec::new();
        while !self.done.load(Ordering::Relaxed) {
            draw = mix64(draw.wrapping_add(GOLDEN_GAMMA));
            let lane = draw % LANES;
            let latest = self.latest[lane as usize].load(Ordering::Relaxed);
            // The tenant of the moment, or one of its neighbours in time.
            let asked = Tenant { lane, number: (latest + draw / 7 % 3).saturating_sub(1) };
            let prefix = asked.family();
            self.judge(asked, &prefix, &query.find_prefix_walk(&prefix), true);
            self.judge(asked, &prefix, &query.find_prefix_jump(&prefix), false);
            query.find_prefix_batch(&[&prefix, &prefix[..3], &[]], &mut batch);
            self.judge(asked, &prefix, &batch[0], true);
            self.judge(asked, &prefix[..3], &batch[1], true);
            self.judge(asked, &[], &batch[2], true);
            let _ = query.contains(prefix[0]);
            for lane in 0..LANES as u8 {
                let lane = Lane::new(lane).expect("below 64");
                let Some(fresh) = query.freshness(lane) else { continue };
                let tenant = Tenant::of(fresh.dc);
                assert_eq!(tenant.lane, u64::from(lane.get()));
                let (sequence, heard) = (fresh.sequence.get(), fresh.last_message.as_millis());
                assert_eq!(sequence / SPAN, tenant.number, "another tenant's sequence");
                assert_eq!(heard / SPAN, tenant.number, "another tenant's time");
            }
        }
    }
}

#[test]
#[ignore = "seconds on every core"]
fn answers_of_busy_lanes_are_possible_ones() {
    let format = Format::any_count(24, 5).expect("legal");
    for backend in backends() {
        let config = ConsumerConfig::default().with_backend(backend);
        let (query, writers) =
            Consumer::writers(&manifest(format, LANES as usize), config).expect("memory");
        let latest = [const { AtomicU64::new(0) }; LANES as usize];
        let zero = || AtomicU64::new(0);
        let (done, answers, hits) = (AtomicBool::new(false), zero(), zero());
        let bench = Bench { format, query, latest, done, answers, hits };
        let writers = thread::scope(|scope| {
            for reader in 0..READERS {
                let bench = &bench;
                scope.spawn(move || bench.read(reader));
            }
            let spawn = |mut writer: LaneWriter| {
                let bench = &bench;
                scope.spawn(move || {
                    bench.write(&mut writer);
                    writer
                })
            };
            let writing: Vec<_> = writers.into_iter().map(spawn).collect();
            let finish = |writer: thread::ScopedJoinHandle<'_, LaneWriter>| writer.join();
            let writers: Vec<_> = writing.into_iter().map(finish).collect();
            bench.done.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.expect("no panic")).collect::<Vec<_>>()
        });
        let (answers, hits) = (bench.answers.into_inner(), bench.hits.into_inner());
        println!("{backend:?}: {answers} answers of lanes, {hits} of the tenant asked for");
        assert!(answers > 1_000 && hits > 100, "the readers were hardly there");

        // Once all is quiet, the last tenants that stayed are answered exactly.
        for writer in &writers {
            let tenant = Tenant { lane: writer.lane().get().into(), number: TENANTS };
            let matches = bench.query.find_prefix_walk(&tenant.family());
            if writer.is_ready() {
                let tables = tenant.tables(format);
                let last = &tables[(BATCHES % 2) as usize];
                let held = tenant.family().into_iter().take_while(|hash| last.contains(*hash));
                assert_eq!(matches.depth(writer.lane()), Some(held.count() as u32));
            } else {
                assert_eq!(matches.depth(writer.lane()), None);
            }
        }
    }
}
