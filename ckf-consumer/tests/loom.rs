//! All interleavings of writers and a query that the memory model allows, on tables of two buckets
//! and two lanes. Run by `ci/loom.sh`. Each pairing that `src/table.rs` lists under "Orderings"
//! names its test here.
#![cfg(ckf_loom)]

use std::sync::Mutex;

use ckf_consumer::{Consumer, ConsumerConfig, LaneWriter, QueryHandle, SearchMode};
use ckf_core::{BlockHash, BucketImage, Format};
use ckf_protocol::{
    DcId, IdentityHalf, IdentitySource, IndexerDomainId, Instant, Lane, Manifest, Sequence,
};
use loom::thread;

const OLD: DcId = DcId::new(1);
const NEW: DcId = DcId::new(2);

fn format() -> Format {
    Format::any_count(2, 7).expect("two buckets")
}

fn consumer() -> (QueryHandle, [LaneWriter; 2]) {
    lanes([OLD, NEW])
}

/// A consumer with a lane for each data center.
fn lanes<const N: usize>(dcs: [DcId; N]) -> (QueryHandle, [LaneWriter; N]) {
    let half = |byte| IdentityHalf { digest: [byte; 16], source: IdentitySource::Explicit };
    let domain = IndexerDomainId { cache_semantics: half(1), routing_scope: half(2) };
    let builder = Manifest::builder(domain, format());
    let manifest = dcs.into_iter().fold(builder, |builder, dc| builder.dc(dc));
    let (query, writers) =
        Consumer::writers(&manifest.build().expect("distinct"), ConsumerConfig::default())
            .expect("sixteen bytes");
    (query, writers.try_into().expect("one writer a lane"))
}

/// Two blocks of different fingerprints, each with two different buckets.
fn blocks() -> [BlockHash; 2] {
    let format = format();
    let mut found = (0..).map(BlockHash::new).filter(|&hash| {
        let address = format.address(hash);
        address.first != address.second
    });
    let first = found.next().expect("half of all");
    let other =
        |&hash: &BlockHash| format.address(hash).fingerprint != format.address(first).fingerprint;
    [first, found.find(other).expect("nearly all")]
}

/// A bucket that holds the block.
fn image(hash: BlockHash) -> BucketImage {
    BucketImage::EMPTY.with(format().address(hash).fingerprint).expect("empty before")
}

/// Installs words that hold exactly these blocks, each in its first bucket.
fn install(writer: &mut LaneWriter, dc: DcId, held: &[BlockHash], sequence: u64) {
    let format = format();
    let images = format.buckets().map(|bucket| {
        held.iter()
            .filter(|&&hash| format.address(hash).first == bucket)
            .fold(BucketImage::EMPTY, |image, &hash| {
                image.with(format.address(hash).fingerprint).expect("room for two")
            })
    });
    writer.begin_install(dc);
    writer.store_run(format.bucket(0).expect("there is a bucket 0"), images);
    writer.publish_ready(Sequence::new(sequence), Instant::from_millis(10 * sequence));
}

fn lane(number: u8) -> Lane {
    Lane::new(number).expect("below 64")
}

#[test]
fn publication_shows_the_whole_installation() {
    loom::model(|| {
        let (query, [mut writer, _other]) = consumer();
        let [a, b] = blocks();
        let installer = thread::spawn(move || {
            install(&mut writer, NEW, &[a, b], 1);
            writer
        });
        let matches = query.find_prefix_walk(&[a, b]);
        if let Some(depth) = matches.depth(lane(0)) {
            assert_eq!((depth, matches.dc(lane(0))), (2, Some(NEW)));
        }
        let _writer = installer.join().expect("no panic");
        assert_eq!(query.find_prefix_walk(&[a, b]).depth(lane(0)), Some(2));
    });
}

#[test]
fn a_retired_lane_may_be_finished_with() {
    loom::model(|| {
        let (query, [mut writer, _other]) = consumer();
        let [a, _] = blocks();
        install(&mut writer, OLD, &[a], 1);
        let retiring = thread::spawn(move || {
            writer.retire();
            writer
        });
        let matches = query.find_prefix_walk(&[a]);
        assert!(matches!(matches.depth(lane(0)), None | Some(1)), "{matches:?}");
        let _writer = retiring.join().expect("no panic");
        assert_eq!(query.find_prefix_walk(&[a]).depth(lane(0)), None);
    });
}

#[test]
fn no_answer_names_one_pool_with_the_words_of_another() {
    loom::model(|| {
        let (query, [mut writer, _other]) = consumer();
        let [a, b] = blocks();
        install(&mut writer, OLD, &[a], 1);
        let reuse = thread::spawn(move || {
            install(&mut writer, NEW, &[b], 1);
            writer
        });
        let matches = query.find_prefix_walk(&[a]);
        match (matches.dc(lane(0)), matches.depth(lane(0))) {
            (None, None) | (Some(OLD), Some(1)) | (Some(NEW), Some(0)) => {}
            other => panic!("{other:?}"),
        }
        let _writer = reuse.join().expect("no panic");
        let matches = query.find_prefix_walk(&[b]);
        assert_eq!((matches.dc(lane(0)), matches.depth(lane(0))), (Some(NEW), Some(1)));
    });
}

/// A lane of which one tenant held `a`, and the next one, which moves in meanwhile, holds `b`.
fn moving_in(writer: LaneWriter, [a, b]: [BlockHash; 2]) -> thread::JoinHandle<LaneWriter> {
    let mut writer = writer;
    install(&mut writer, OLD, &[a], 1);
    thread::spawn(move || {
        install(&mut writer, NEW, &[b], 1);
        writer
    })
}

#[test]
fn no_answer_of_a_batch_names_one_pool_with_the_words_of_another() {
    // One lane and one preemption: a jump looks so often that all of it would take minutes.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(1);
    model.check(|| {
        let (query, [writer]) = lanes([OLD]);
        let blocks = blocks();
        let reuse = moving_in(writer, blocks);
        let mut answers = Vec::new();
        let query = query.with_mode(SearchMode::JUMP);
        query.find_prefix_batch(&[&blocks[..1]], &mut answers);
        match (answers[0].dc(lane(0)), answers[0].depth(lane(0))) {
            (None, None) | (Some(OLD), Some(1)) | (Some(NEW), Some(0)) => {}
            other => panic!("{other:?}"),
        }
        let _writer = reuse.join().expect("no panic");
    });
}

/// Who finds a block of the next tenant saw that tenant's lane published.
#[test]
fn a_block_is_not_found_in_a_lane_whose_installation_is_under_way() {
    loom::model(|| {
        let (query, [writer, _other]) = consumer();
        let blocks = blocks();
        let reuse = moving_in(writer, blocks);
        if query.contains(blocks[1]).contains(lane(0)) {
            assert_eq!(query.freshness(lane(0)).map(|freshness| freshness.dc), Some(NEW));
        }
        let _writer = reuse.join().expect("no panic");
        assert!(query.contains(blocks[1]).contains(lane(0)));
    });
}

#[test]
fn freshness_is_of_one_tenancy() {
    loom::model(|| {
        let (query, [mut writer, _other]) = consumer();
        install(&mut writer, OLD, &[], 7);
        let reuse = thread::spawn(move || {
            install(&mut writer, NEW, &[], 3);
            writer.note(Sequence::new(4), Instant::from_millis(40));
            writer
        });
        if let Some(freshness) = query.freshness(lane(0)) {
            let (sequence, time) = (freshness.sequence.get(), freshness.last_message.as_millis());
            match freshness.dc {
                OLD => assert_eq!((sequence, time), (7, 70)),
                NEW => assert!([3, 4].contains(&sequence) && [30, 40].contains(&time)),
                other => panic!("{other:?}"),
            }
        }
        let _writer = reuse.join().expect("no panic");
        assert_eq!(query.freshness(lane(0)).expect("ready").sequence.get(), 4);
    });
}

#[test]
fn a_change_of_one_lane_leaves_the_other_in_the_answer() {
    loom::model(|| {
        let (query, [mut first, mut second]) = consumer();
        let [a, b] = blocks();
        install(&mut first, OLD, &[a], 1);
        install(&mut second, OLD, &[a], 1);
        let reuse = thread::spawn(move || {
            install(&mut first, NEW, &[b], 1);
            first
        });
        let matches = query.find_prefix_walk(&[a]);
        assert_eq!(matches.depth(lane(1)), Some(1), "{matches:?}");
        let _first = reuse.join().expect("no panic");
    });
}

#[test]
fn two_lanes_are_written_by_two_threads() {
    loom::model(|| {
        let (query, writers) = consumer();
        let [a, _] = blocks();
        let installing = writers.map(|mut writer| {
            thread::spawn(move || {
                install(&mut writer, NEW, &[a], 1);
                writer
            })
        });
        let matches = query.find_prefix_walk(&[a]);
        assert!(matches.iter().all(|(_, dc, depth)| (dc, depth) == (NEW, 1)), "{matches:?}");
        let _writers = installing.map(|thread| thread.join().expect("no panic"));
        assert_eq!(query.find_prefix_walk(&[a]).best().bits(), 0b11);
    });
}

/// A relocation gains before it loses, and still a query whose two loads straddle the stores can
/// miss the block, as "Consistency" says. Once the delta is applied, none does.
#[test]
fn a_moving_fingerprint_may_be_missed_until_the_delta_is_in() {
    static SEEN: Mutex<[bool; 2]> = Mutex::new([false; 2]);
    loom::model(|| {
        let (query, [mut writer, _other]) = consumer();
        let [a, _] = blocks();
        install(&mut writer, OLD, &[a], 1);
        let address = format().address(a);
        let moving = thread::spawn(move || {
            writer.store(address.second, image(a));
            writer.store(address.first, BucketImage::EMPTY);
            writer.note(Sequence::new(2), Instant::from_millis(20));
            writer
        });
        let found = query.find_prefix_walk(&[a]).depth(lane(0)) == Some(1);
        SEEN.lock().expect("no panic")[usize::from(found)] = true;
        let _writer = moving.join().expect("no panic");
        assert_eq!(query.find_prefix_walk(&[a]).depth(lane(0)), Some(1));
        assert!(query.contains(a).contains(lane(0)));
    });
    assert_eq!(
        *SEEN.lock().expect("no panic"),
        [true, true],
        "the miss is real, and so is the hit"
    );
}
