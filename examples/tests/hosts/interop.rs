//! Recorded from Dynamo's own code: what its producer published and what its consumer found, in lanes
//! fed by that producer and by ours. Written by `benches/peers`, which has those dependencies:
//!
//! `cargo run -- --only interop --batches 24 --seed 1 --record ../../examples/tests/hosts/interop.txt`

use std::ops::Range;

use ckf_consumer::{LaneSession, QueryHandle};
use ckf_core::{BlockHash, Format};
use ckf_examples::hosts::dynamo::cbi1::{self, Content, Filter, Payload};
use ckf_examples::hosts::dynamo::export::{Exporter, Step};
use ckf_examples::hosts::dynamo::import::Importer;
use ckf_examples::hosts::dynamo::{MARKER, PROTOCOL_VERSION, to_identity};
use ckf_examples::hosts::identity::PoolNames;
use ckf_examples::hosts::proto::dynamo as proto;
use ckf_producer::{HashSeeds, Member, PoolConfig, Producer, PublishConfig, SubscriberId};
use ckf_protocol::{Incarnation, Instant, LayoutGeneration, ProducerIdentity};

use crate::dynamo::consumer;

const RECORD: &str = include_str!("interop.txt");
const NOW: Instant = Instant::ZERO;

/// What a line says, its numbers and images still as text.
struct Line<'a> {
    what: &'a str,
    words: Vec<&'a str>,
}

impl Line<'_> {
    fn number(&self, at: usize) -> usize {
        self.words[at].parse().unwrap()
    }

    fn member(&self) -> Member {
        Member::new(self.number(0) as u64, 0)
    }

    fn images(&self) -> Vec<(u32, u64)> {
        let image = |word: &&str| {
            let (bucket, image) = word.split_once(':').unwrap();
            (bucket.parse().unwrap(), u64::from_str_radix(image, 16).unwrap())
        };
        self.words.iter().map(image).collect()
    }
}

struct Recording {
    format: Format,
    chains: Vec<Vec<BlockHash>>,
}

impl Recording {
    fn read() -> Self {
        let mut lines = RECORD.lines();
        let (buckets, seed) =
            lines.next().unwrap().strip_prefix("format ").unwrap().split_once(' ').unwrap();
        let seed = u64::from_str_radix(seed, 16).unwrap();
        let hash = |word| BlockHash::new(u64::from_str_radix(word, 16).unwrap());
        let chains = lines.filter_map(|line| line.strip_prefix("chain "));
        Self {
            format: Format::power_of_two(buckets.parse().unwrap(), seed).unwrap(),
            chains: chains.map(|hashes| hashes.split(' ').map(hash).collect()).collect(),
        }
    }

    /// The lines of one side's lane.
    fn side(&self, side: &'static str) -> impl Iterator<Item = Line<'static>> {
        RECORD.lines().filter_map(move |line| {
            let mut words = line.strip_prefix(side)?.strip_prefix(' ')?.split(' ');
            Some(Line { what: words.next()?, words: words.collect() })
        })
    }

    fn blocks(&self, chain: usize, range: Range<usize>) -> &[BlockHash] {
        &self.chains[chain][range]
    }

    fn identity(&self) -> ProducerIdentity {
        let names = PoolNames { model: "sim".into(), block_size: 16, pool: "default".into() };
        ProducerIdentity {
            pool: names.pool_id(1),
            incarnation: Incarnation::new(1),
            layout: LayoutGeneration::FIRST,
            format: self.format,
        }
    }

    /// Whether our consumer finds as deep as Dynamo's did.
    fn check_depth(&self, line: &Line<'_>, query: &QueryHandle, session: &LaneSession) {
        let blocks = self.blocks(line.number(0), 0..line.number(1));
        let found = query.find_prefix_walk(blocks).depth(session.lane());
        assert_eq!(found, Some(line.number(2) as u32), "chain {}", line.words[0]);
    }
}

fn hear(importer: &mut Importer, session: &mut LaneSession, update: &proto::FilterUpdate) {
    for frame in importer.handle(update).unwrap() {
        let _ = session.handle_frame(&frame, NOW);
    }
}

/// What Dynamo's producer published makes lanes of ours in which everything is found as deep as by
/// Dynamo's own consumer.
#[test]
fn batches_of_dynamos_producer_give_its_consumers_depths() {
    let recording = Recording::read();
    let identity = recording.identity();
    let producer = to_identity(&identity).expect("a format that Dynamo has");
    let (query, mut session, mut importer) = consumer(&producer);
    let buckets = u64::from(identity.format.bucket_count());
    let filter = Filter { seed: identity.format.seed(), buckets, dc: identity.pool.dc.get() };
    let update =
        |kind: proto::FilterUpdateKind, base, sequence, payload: Vec<u8>| proto::FilterUpdate {
            protocol_version: PROTOCOL_VERSION,
            producer: Some(producer.clone()),
            base_sequence: base,
            sequence,
            kind: kind.into(),
            payload: payload.into(),
            contract_marker: MARKER,
            ..Default::default()
        };
    let empty = vec![0; buckets as usize];
    for chunk in cbi1::snapshot(filter, 0, &empty) {
        let chunk = update(proto::FilterUpdateKind::SnapshotChunk, 0, 0, chunk);
        hear(&mut importer, &mut session, &chunk);
    }
    let (mut sequence, mut depths) = (0, 0);
    for line in recording.side("d") {
        match line.what {
            "batch" if !line.words.is_empty() => {
                let next = sequence + 1;
                let delta = cbi1::delta(filter, sequence, next, &line.images()).unwrap();
                let delta = update(proto::FilterUpdateKind::Delta, sequence, next, delta);
                hear(&mut importer, &mut session, &delta);
                sequence = next;
            }
            "depth" => {
                recording.check_depth(&line, &query, &session);
                depths += 1;
            }
            _ => {}
        }
    }
    assert!(sequence >= 20 && depths > 100, "{sequence} batches, {depths} depths");
}

/// Our producer, given the same commands, publishes in Dynamo's words what Dynamo's consumer was fed
/// then, image by image; so what that found still holds, and our own consumer finds the same.
#[test]
fn our_updates_are_those_that_dynamos_consumer_was_fed() {
    let recording = Recording::read();
    let identity = recording.identity();
    let producer = to_identity(&identity).expect("a format that Dynamo has");
    let (query, mut session, mut importer) = consumer(&producer);
    let config = PoolConfig::new(recording.format, HashSeeds::new([1, 2, 3, 2]));
    let publish = PublishConfig::default();
    let mut producer = Producer::new(config, publish, identity.pool, identity.incarnation).unwrap();
    let link = SubscriberId::new(1);
    let mut exporter = Exporter::new(identity.pool, identity.format, Default::default(), NOW);
    let subscription = exporter.session().poll_transmit().unwrap();
    let _ = producer.handle_frame(link, &subscription, NOW);
    let mut updates = |producer: &mut Producer| {
        let mut updates = Vec::new();
        while let Some(frame) = producer.poll_frame(link, NOW) {
            match exporter.handle(&frame.to_bytes(), NOW) {
                Step::Quiet => {}
                Step::Ready => updates.extend(exporter.snapshot().unwrap()),
                Step::Update(update) => updates.push(*update),
                Step::Over => panic!("the exporter follows"),
            }
        }
        updates
    };
    for update in updates(&mut producer) {
        hear(&mut importer, &mut session, &update);
    }
    let (mut batches, mut depths) = (0, 0);
    for line in recording.side("o") {
        match line.what {
            "store" => {
                let range = line.number(2)..line.number(3);
                producer.store(line.member(), recording.blocks(line.number(1), range));
            }
            "remove" => {
                let chain = recording.blocks(line.number(1), 0..48);
                let blocks: Vec<_> =
                    (2..line.words.len()).map(|at| chain[line.number(at)]).collect();
                producer.remove(line.member(), &blocks);
            }
            "clear" => drop(producer.clear_member(line.member())),
            "batch" => {
                producer.publish(NOW).unwrap();
                let updates = updates(&mut producer);
                let mut images: Vec<_> =
                    updates.iter().flat_map(|u| images_of(&u.payload)).collect();
                // Their order within a batch means nothing.
                images.sort_unstable();
                assert_eq!(images, line.images(), "batch {batches}");
                updates.iter().for_each(|update| hear(&mut importer, &mut session, update));
                batches += 1;
            }
            "depth" => {
                recording.check_depth(&line, &query, &session);
                depths += 1;
            }
            what => panic!("{what}"),
        }
    }
    assert!(batches > 20 && depths > 100, "{batches} batches, {depths} depths");
}

fn images_of(payload: &[u8]) -> Vec<(u32, u64)> {
    match Payload::parse(payload).unwrap().content {
        Content::Delta { images, .. } => cbi1::images(images).collect(),
        Content::Chunk { .. } => panic!("a delta"),
    }
}
