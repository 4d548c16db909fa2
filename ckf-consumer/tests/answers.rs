//! What becomes of a lane's words from tenant to tenant, and what answers say of lanes that are not
//! asked.

#[allow(dead_code, reason = "only the manifest and jumps of known words are used here")]
mod common;

use ckf_consumer::{
    Backend, Consumer, ConsumerConfig, LaneMask, LaneWriter, Line, Matches, SearchMode,
};
use ckf_core::{BlockHash, BucketImage, BucketIndex, Format, LocalHash, Table, sequence};
use ckf_protocol::{ConsumerId, DcId, Epoch, Instant, Lane, Sequence};
use common::{Known, manifest};

const BUCKETS: u32 = 29;

fn format() -> Format {
    Format::any_count(u64::from(BUCKETS), 3).expect("legal")
}

fn lane(number: u8) -> Lane {
    Lane::new(number).expect("below 64")
}

fn bucket(index: u32) -> BucketIndex {
    format().bucket(index).expect("inside")
}

fn words(writer: &LaneWriter) -> Vec<u64> {
    format().buckets().map(|bucket| writer.word(bucket).get()).collect()
}

fn publish(writer: &mut LaneWriter, number: u64) {
    writer.publish_ready(Sequence::new(number), Instant::from_millis(10 * number));
}

/// Full buckets, each another one.
fn images(from: u32, count: u32) -> impl Iterator<Item = BucketImage> {
    (from..from + count).map(|bucket| BucketImage::new(0x0001_0001_0001_0001 + u64::from(bucket)))
}

/// Every lane of a row is full of a former tenant's words.
fn tenanted(lanes: usize) -> (ckf_consumer::QueryHandle, Vec<LaneWriter>) {
    let (query, mut writers) =
        Consumer::writers(&manifest(format(), lanes), ConsumerConfig::default()).expect("memory");
    for writer in &mut writers {
        writer.begin_install(DcId::new(1));
        writer.store_run(bucket(0), images(0, BUCKETS));
        publish(writer, 1);
    }
    (query, writers)
}

#[test]
fn nothing_is_left_of_a_former_tenant_whatever_runs_are_left_out() {
    let all: Vec<u64> = images(0, BUCKETS).map(BucketImage::get).collect();
    for lanes in [1, 3, 8, 20] {
        for (from, count) in [(0, 0), (0, 7), (5, 7), (28, 1), (5, 24), (0, BUCKETS)] {
            let (_query, mut writers) = tenanted(lanes);
            writers[lanes - 1].begin_install(DcId::new(2));
            if count > 0 {
                writers[lanes - 1].store_run(bucket(from), images(from, count));
            }
            // One that comes late overwrites, and uncovers nothing.
            writers[lanes - 1].store_run(bucket(0), images(0, count.min(1)));
            publish(&mut writers[lanes - 1], 2);
            let held = |at: u32| (from..from + count).contains(&at) || count > 0 && at == 0;
            let expected: Vec<_> =
                (0..BUCKETS).map(|at| if held(at) { all[at as usize] } else { 0 }).collect();
            assert_eq!(words(&writers[lanes - 1]), expected, "{lanes} {from} {count}");
            assert!(writers[..lanes - 1].iter().all(|writer| words(writer) == all));
        }
    }
}

#[test]
fn a_run_that_goes_beyond_the_table_ends_with_it() {
    for lanes in [1, 3, 8, 20] {
        let (_query, mut writers) = tenanted(lanes);
        let others: Vec<_> = writers[1..].iter().map(words).collect();
        writers[0].begin_install(DcId::new(2));
        writers[0].store_run(bucket(20), images(0, 1000));
        publish(&mut writers[0], 2);
        let stored: Vec<_> = images(0, 9).map(BucketImage::get).collect();
        assert_eq!(words(&writers[0])[20..], stored);
        assert_eq!(words(&writers[0])[..20], [0; 20]);
        assert_eq!(writers[1..].iter().map(words).collect::<Vec<_>>(), others);
    }
}

#[test]
fn only_an_installation_that_ended_makes_a_lane_ready() {
    let (query, mut writers) = tenanted(2);
    let fresh = |at: u8| {
        let freshness = query.freshness(lane(at))?;
        Some((freshness.dc.get(), freshness.sequence.get(), freshness.last_message.as_millis()))
    };
    let writer = &mut writers[1];
    assert_eq!(fresh(1), Some((1, 1, 10)));
    writer.note(Sequence::new(5), Instant::from_millis(77));
    assert_eq!(fresh(1), Some((1, 5, 77)));
    // At once when it begins, also over a lane that is in use.
    writer.begin_install(DcId::new(2));
    assert_eq!((fresh(1), writer.is_ready()), (None, false));
    writer.note(Sequence::new(9), Instant::from_millis(99));
    publish(writer, 3);
    assert_eq!(fresh(1), Some((2, 3, 30)));
    writer.retire();
    assert_eq!((fresh(1), writer.is_ready()), (None, false));
    // Out of turn all of this does nothing.
    let before = words(writer);
    writer.store_run(bucket(0), images(7, 9));
    publish(writer, 4);
    writer.note(Sequence::new(9), Instant::from_millis(99));
    assert_eq!((fresh(1), words(writer)), (None, before));
    // A lane beyond those of the table is never ready; one whose writer is gone, no more.
    assert_eq!(fresh(63), None);
    assert_eq!(query.ready(), LaneMask::single(lane(0)));
    drop(writers);
    assert_eq!((fresh(0), query.ready()), (None, LaneMask::EMPTY));
}

#[test]
fn a_lane_that_was_not_asked_is_absent_from_every_part_of_an_answer() {
    let (query, mut writers) = tenanted(3);
    let block = [BlockHash::new(5)];
    let before = query.find_prefix(&block);
    writers[1].retire();
    // Into an answer in which the lane was there.
    let mut answer = before;
    query.find_prefix_into(&block, &mut answer);
    assert_eq!((answer.dc(lane(1)), answer.depth(lane(1))), (None, None));
    assert_eq!((answer.dc(lane(0)), answer.dc(lane(63))), (Some(DcId::new(1)), None));
    assert!(!query.contains(block[0]).contains(lane(1)));
    // Lanes of no depth tie for the best; absent ones do not.
    assert_eq!((answer.best_depth(), answer.best().bits()), (Some(0), 0b101));
    assert!(answer != before, "other lanes");
    let longer = query.find_prefix(&[block[0], BlockHash::new(6)]);
    assert!(longer != answer, "another question");
    assert_eq!(Matches::NONE.best(), LaneMask::EMPTY);
}

#[test]
fn a_batch_fills_answers_that_were_not_there() {
    let (query, _writers) = tenanted(5);
    let prefix: Vec<_> = (0..9).map(BlockHash::new).collect();
    let prefixes: Vec<_> = (0..9).map(|len| &prefix[..len]).collect();
    for handle in [query.clone(), query.with_mode(SearchMode::JUMP)] {
        let mut answers = Vec::new();
        handle.find_prefix_batch(&prefixes, &mut answers);
        for (answer, prefix) in answers.iter().zip(&prefixes) {
            assert_eq!(answer.asked(), prefix.len());
            assert!(answer.iter().all(|(_, dc, depth)| (dc, depth) == (DcId::new(1), 0)));
            assert_eq!(answer.ready(), LaneMask::first(5));
        }
        handle.find_prefix_batch(&[], &mut answers);
        assert!(answers.is_empty());
    }
}

/// As a false positive of the filter would have it: nothing between the ends is held.
#[test]
fn a_last_block_that_is_held_alone_deceives_no_jump() {
    let locals: Vec<_> = (0..120u64).map(|i| LocalHash::new(i * 77 + 1)).collect();
    let prefix: Vec<_> = sequence::roll_all(None, locals.iter().copied()).collect();
    let format = Format::any_count(5_000, 3).expect("legal");
    let lanes = [[0, 119], [0, 0]].map(|held: [usize; 2]| {
        let mut table = Table::new(format).expect("small");
        for position in held {
            table.insert(&format.address(prefix[position]), |_| ()).expect("room");
        }
        table.words().to_vec()
    });
    for lanes in [vec![lanes[0].clone()], lanes.to_vec()] {
        let known = Known::new(format, lanes, Backend::best());
        let jump = known.jump(1);
        assert_eq!(jump.find_prefix(&prefix).depth(lane(0)), Some(1));
        assert_eq!(jump.find_prefix_local(&locals).depth(lane(0)), Some(1));
        let mut answers = Vec::new();
        jump.find_prefix_batch(&[&prefix], &mut answers);
        assert_eq!(answers[0].depth(lane(0)), Some(1));
    }
}

#[test]
fn lanes_of_one_consumer_do_not_come_back_in_one_instant() {
    let (_query, mut sessions) =
        Consumer::new(&manifest(format(), 16), ConsumerConfig::default(), ConsumerId::new(1))
            .expect("memory");
    let mut waits: Vec<_> = (100..)
        .zip(&mut sessions)
        .map(|(dc, session)| {
            session.assign(DcId::new(dc), Epoch::new(1), Instant::ZERO).expect("newer");
            session.handle_disconnected(Instant::ZERO);
            session.poll_timeout().expect("a back-off").0
        })
        .collect();
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 8, "{waits:?}");
}

#[test]
fn masks_are_sets() {
    let [a, b] = [0b0110, 0b0011].map(LaneMask::from_bits);
    assert_eq!([(a & b).bits(), (a | b).bits(), (!a).bits()], [0b0010, 0b0111, !0b0110]);
    let both = [0, 1, 63, 64, 100].map(|count| LaneMask::first(count).len());
    assert_eq!(both, [0, 1, 63, 64, 64]);
    assert_eq!((a.iter().len(), a.into_iter().collect::<LaneMask>()), (2, a));
    assert_eq!(format!("{a:?}"), "{1, 2}");
}

/// A router that prints a struct of its own with a handle in it must not print the table.
#[test]
fn what_holds_a_table_is_fit_for_a_log() {
    let format = Format::any_count(100_000, 7).unwrap();
    let manifest = manifest(format, 16);
    let lines = ConsumerConfig::lines_needed(&manifest);
    let memory: &'static [Line] = (0..lines).map(|_| Line::default()).collect::<Vec<_>>().leak();
    for config in [ConsumerConfig::default(), ConsumerConfig::default().with_memory(memory)] {
        let printed = format!("{config:?}");
        assert!(printed.len() < 1_000 && printed.contains("memory_lines"), "{printed}");
        let (query, writers) = Consumer::writers(&manifest, config.clone()).unwrap();
        let (_, sessions) = Consumer::new(&manifest, config, ConsumerId::new(1)).unwrap();
        for printed in
            [format!("{query:?}"), format!("{:?}", writers[3]), format!("{:?}", sessions[3])]
        {
            assert!(
                printed.len() < 10_000 && printed.contains("100000"),
                "{} bytes",
                printed.len()
            );
        }
    }
}
