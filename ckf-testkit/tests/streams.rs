//! Batches, snapshots and what gets lost on the way: every command reaches every lane, or the lane
//! knows that it did not.

use std::collections::BTreeMap;

use ckf_consumer::{Failure, Handled, LaneStore, SessionEvent, SessionState, Waiting};
use ckf_core::{BlockHash, BucketImage, TableDigest};
use ckf_producer::{Member, Producer, SubscriberId};
use ckf_protocol::{Kind, Limits, Message, Sequence, decode};
use ckf_testkit::rng::Rng;
use ckf_testkit::scenario::*;

const DC: u64 = 7;
const LINK: SubscriberId = SubscriberId::new(1);
const MEMBER: Member = Member::new(1, 0);

/// Whether a query of this one lane would say yes.
fn found(session: &Session, hash: BlockHash) -> bool {
    let store = session.store();
    let address = store.format().address(hash);
    [address.first, address.second]
        .into_iter()
        .any(|bucket| store.word(bucket).contains(address.fingerprint))
}

fn subscribed(producer: &mut Producer, now: u64) -> Session {
    let mut session = session(1, 0, producer.pool().format(), quick_session());
    assign(&mut session, DC, now);
    let frame = session.poll_transmit().unwrap();
    let _ = producer.handle_frame(LINK, &frame, at(now));
    session
}

#[test]
fn f03_every_width_and_sign_of_a_hash_is_ordinary() {
    let mut producer = producer(DC, 1, format(50), small_publish(16));
    let mut session = subscribed(&mut producer, 0);
    let unsigned = hashes([0, 100, 1 << 63, u64::MAX]);
    let signed = [0, 100, i64::MIN, -1].map(BlockHash::from_signed);
    assert_eq!(unsigned, signed);
    producer.store(MEMBER, &unsigned);
    producer.publish(at(1)).unwrap();
    exchange(&mut producer, LINK, &mut session, 1);
    for (i, hash) in signed.into_iter().enumerate() {
        assert!(found(&session, hash), "{hash}");
        producer.remove(MEMBER, &[hash]);
        producer.publish(at(2)).unwrap();
        exchange(&mut producer, LINK, &mut session, 2);
        assert!(!found(&session, hash), "{hash}");
        let left = unsigned[i + 1..].iter().all(|&hash| found(&session, hash));
        assert!(left, "each is another block");
    }
    assert!(session.store().words().iter().all(|&word| word == 0));
}

/// Runs a fixed life (a snapshot, eight batches, then idleness) in which the producer's `lost`
/// frames vanish. Returns how many frames the producer sent until the idleness.
fn life_with_losses(lost: &[usize]) -> usize {
    let mut producer = producer(DC, 1, format(100), small_publish(25));
    producer.store(MEMBER, &hashes(0..100));
    producer.publish(at(0)).unwrap();
    let mut session = subscribed(&mut producer, 0);
    let mut sent = 0;
    let carry = |producer: &mut Producer, session: &mut Session, sent: &mut usize, now: u64| {
        while let Some(frame) = session.poll_transmit() {
            let _ = producer.handle_frame(LINK, &frame, at(now));
        }
        while let Some(frame) = producer.poll_frame(LINK, at(now)) {
            if !lost.contains(sent) {
                let _ = session.handle_frame(&frame.to_bytes(), at(now));
            }
            *sent += 1;
        }
    };
    for i in 0..8 {
        producer.store(MEMBER, &hashes([1000 + i]));
        producer.publish(at(i)).unwrap();
        carry(&mut producer, &mut session, &mut sent, i);
    }
    let frames = sent;
    // Nothing more is published: time and heartbeats have to do.
    let mut now = 8;
    while !converged(&producer, &session) {
        let due =
            [producer.poll_timeout().map(|(at, _)| at), session.poll_timeout().map(|(at, _)| at)];
        now = due.into_iter().flatten().min().unwrap().as_millis().max(now);
        assert!(now < 10_000, "lost {lost:?}: a lost tail shows by the next heartbeat");
        producer.handle_timeout(at(now));
        session.handle_timeout(at(now));
        carry(&mut producer, &mut session, &mut sent, now);
    }
    assert_eq!(session.stats().failures.silence, 0, "lost {lost:?}");
    frames
}

#[test]
fn f21_a_loss_at_any_position_is_noticed_the_last_one_included() {
    let frames = life_with_losses(&[]);
    assert_eq!(frames, 1 + 4 + 1 + 8, "begin, chunks, end, batches");
    for first in 0..frames {
        life_with_losses(&[first]);
        for second in first + 1..frames + 2 {
            life_with_losses(&[first, second]);
        }
    }
    life_with_losses(&(0..frames).collect::<Vec<_>>());
}

#[test]
fn f21_a_drain_marker_tells_at_once_what_a_heartbeat_tells_later() {
    for drain in [false, true] {
        let mut producer = producer(DC, 1, format(100), small_publish(25));
        let mut session = subscribed(&mut producer, 0);
        exchange(&mut producer, LINK, &mut session, 0);
        // d 8->9 arrives, d 9->10 is lost.
        for i in 1..=10 {
            producer.store(MEMBER, &hashes([i]));
            producer.publish(at(i)).unwrap();
            let frame = producer.poll_frame(LINK, at(i)).unwrap();
            if i < 10 {
                let _ = session.handle_frame(&frame.to_bytes(), at(i));
            }
        }
        assert_eq!(session.state(), SessionState::Ready);
        if drain {
            producer.drain(at(11)).unwrap();
        } else {
            let (due, _) = producer.poll_timeout().unwrap();
            producer.handle_timeout(due);
        }
        let marker = producer.poll_frame(LINK, at(11)).unwrap();
        let gap = Failure::Gap { installed: Sequence::new(9), parts: 0, found: Sequence::new(10) };
        let fate = session.handle_frame(&marker.to_bytes(), at(11));
        assert_eq!(fate, Handled::Retired(gap), "drain: {drain}");
    }
}

#[test]
fn f21_silence_retires_the_lane() {
    let mut producer = producer(DC, 1, format(100), small_publish(25));
    let mut session = subscribed(&mut producer, 0);
    exchange(&mut producer, LINK, &mut session, 0);
    let (due, waiting) = session.poll_timeout().unwrap();
    assert_eq!((due, waiting), (at(6000), Waiting::Silence));
    session.handle_timeout(at(5999));
    session.handle_timeout(at(0));
    assert_eq!(session.state(), SessionState::Ready);
    session.handle_timeout(due);
    assert_eq!(session.state(), SessionState::BackingOff);
    assert_eq!(session.stats().failures.silence, 1);
}

/// One subscription at a random moment of a random life, batches every `cadence` commands.
fn snapshot_amid_commands(rng: &mut Rng, cadence: u64) {
    let mut producer = producer(DC, 1, format(40), small_publish(8));
    let mut session = session(1, 0, format(40), quick_session());
    let mut published = BTreeMap::new();
    published.insert(Sequence::ZERO, producer.pool().words().collect::<Vec<_>>());
    let (start, mut ends) = (rng.below(30), 0);
    for step in 0..60 {
        let hashes = hashes((0..=rng.below(3)).map(|_| rng.below(60)));
        if rng.chance(0.6) {
            producer.store(MEMBER, &hashes);
        } else {
            producer.remove(MEMBER, &hashes);
        }
        if step % cadence == cadence - 1
            && let Some(sequence) = producer.publish(at(step)).unwrap()
        {
            published.insert(sequence, producer.pool().words().collect::<Vec<_>>());
        }
        if step == start {
            assign(&mut session, DC, step);
            let frame = session.poll_transmit().unwrap();
            let _ = producer.handle_frame(LINK, &frame, at(step));
        }
        for _ in 0..rng.below(4) {
            let Some(frame) = producer.poll_frame(LINK, at(step)) else { break };
            let frame = frame.to_bytes();
            let before = session.position().map(|(_, sequence)| sequence);
            let fate = session.handle_frame(&frame, at(step));
            match decode(&frame, &Limits::default()).unwrap() {
                Message::SnapshotEnd { end, .. } => {
                    ends += 1;
                    assert_eq!(fate, Handled::Ready(end.sequence));
                    assert_eq!(session.store().words(), published[&end.sequence]);
                }
                Message::Delta { delta, .. } if before.is_some() && delta.part() == 0 => {
                    assert_eq!(before.and_then(Sequence::checked_next), Some(delta.sequence()));
                }
                _ => {}
            }
            if session.is_between_batches() {
                let (_, sequence) = session.position().unwrap();
                assert_eq!(session.store().words(), published[&sequence]);
            }
        }
    }
    producer.drain(at(100)).unwrap();
    exchange(&mut producer, LINK, &mut session, 100);
    assert!(converged(&producer, &session));
    assert!(producer.pool().words().eq(session.store().words().iter().copied()));
    assert_eq!(session.stats().failures.total(), 0);
    assert!(ends <= 1);
}

#[test]
fn f31_a_snapshot_holds_exactly_the_commands_up_to_its_sequence() {
    let mut rng = Rng::new(31);
    for round in 0..10_000 {
        snapshot_amid_commands(&mut rng, [1, 3, 64][round % 3]);
    }
}

#[test]
fn f37_removals_during_an_absence_are_not_missed() {
    let mut producer = producer(DC, 1, format(100), small_publish(25));
    let mut session = subscribed(&mut producer, 0);
    let x = BlockHash::new(77);
    for i in 1..=20 {
        producer.store(MEMBER, &[if i == 5 { x } else { BlockHash::new(1000 + i) }]);
        producer.publish(at(i)).unwrap();
        exchange(&mut producer, LINK, &mut session, i);
    }
    assert!(found(&session, x));
    assert_eq!(session.position().map(|(_, sequence)| sequence.get()), Some(20));

    session.handle_disconnected(at(21));
    producer.handle_disconnected(LINK, at(21));
    for i in 21..=25 {
        producer.remove(MEMBER, &[if i == 23 { x } else { BlockHash::new(985 + i) }]);
        producer.publish(at(i)).unwrap();
    }
    assert!(!session.store().is_ready(), "no query sees what may be stale");
    let (due, _) = session.poll_timeout().unwrap();
    session.handle_timeout(due);
    let fates = exchange(&mut producer, LINK, &mut session, due.as_millis());
    assert_eq!(fates.last(), Some(&Handled::Ready(Sequence::new(25))));
    assert!(!found(&session, x));
    assert!(converged(&producer, &session));
}

#[test]
fn f37_a_large_command_is_one_batch_in_however_many_parts() {
    let format = format(40_000);
    let mut producer =
        producer(DC, 1, format, small_publish(128).with_outbox(4096, 1 << 24).unwrap());
    let mut session = subscribed(&mut producer, 0);
    producer.store(MEMBER, &hashes(0..100_000));
    assert_eq!(producer.publish(at(1)), Ok(Some(Sequence::new(1))));
    exchange(&mut producer, LINK, &mut session, 1);
    producer.clear_member(MEMBER);
    assert_eq!(producer.publish(at(2)), Ok(Some(Sequence::new(2))));
    let mut parts = 0;
    while let Some(frame) = producer.poll_frame(LINK, at(2)) {
        assert_eq!(frame.kind(), Kind::Delta);
        assert!(frame.len() <= 4096);
        parts += 1;
        let fate = session.handle_frame(&frame.to_bytes(), at(2));
        let installed = if producer.has_frames(LINK) { 1 } else { 2 };
        assert_eq!(fate, Handled::Applied(Sequence::new(installed)), "numbers move with the last");
    }
    assert!(parts > 100, "{parts}");
    assert!(session.store().words().iter().all(|&word| word == 0));
}

#[test]
fn every_drain_marker_says_that_all_is_there() {
    let mut producer = producer(DC, 1, format(200), small_publish(10));
    let mut session = subscribed(&mut producer, 0);
    // Asked for in the middle of the snapshot: it comes after the end.
    for _ in 0..5 {
        let frame = producer.poll_frame(LINK, at(0)).unwrap();
        let _ = session.handle_frame(&frame.to_bytes(), at(0));
    }
    producer.store(MEMBER, &hashes(0..30));
    producer.drain(at(1)).unwrap();
    exchange(&mut producer, LINK, &mut session, 1);
    let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).collect();
    let sequence = Sequence::new(1);
    assert!(
        matches!(events[..], [SessionEvent::Ready { .. }, SessionEvent::Drained { sequence: s }] if s == sequence)
    );
    assert!(converged(&producer, &session));
}

#[test]
fn wire_bytes_stay_below_three_quarters_of_a_plain_encoding() {
    // One member's cache of 20,000 blocks in a table at 60 %: 16 changes a batch, half of them
    // evictions, from short sequences as requests bring them.
    let blocks = 20_000u64;
    let buckets = (blocks as f64 / 4.0 / 0.6) as u32;
    let publish = small_publish(128).with_outbox(64, 1 << 20).unwrap();
    let mut producer = producer(DC, 1, format(buckets), publish);
    producer.store(MEMBER, &hashes(0..blocks));
    producer.publish(at(0)).unwrap();
    let mut session = subscribed(&mut producer, 0);
    exchange(&mut producer, LINK, &mut session, 0);
    let snapshot = producer.stats().snapshots.bytes as f64 / (8.0 * f64::from(buckets));

    let before = producer.pool().stats().images;
    for batch in 0..2_000 {
        producer.store(MEMBER, &hashes(blocks + batch * 8..blocks + batch * 8 + 8));
        producer.remove(MEMBER, &hashes(batch * 8..batch * 8 + 8));
        producer.publish(at(batch)).unwrap();
        exchange(&mut producer, LINK, &mut session, batch);
    }
    assert!(converged(&producer, &session));
    let images = producer.pool().stats().images - before;
    let deltas = producer.stats().deltas;
    assert_eq!(deltas.frames, 2_000);
    let plain = 12 * images + 48 * deltas.frames;
    let ratio = deltas.bytes as f64 / plain as f64;
    println!(
        "deltas: {} bytes for {images} images, {ratio:.3} of 12 an image and 48 a batch",
        deltas.bytes
    );
    println!("snapshot: {snapshot:.3} of 8 bytes a bucket at 60 % load");
    assert!(ratio <= 0.75, "{ratio}");
    assert!(snapshot <= 0.75, "{snapshot}");
}

#[test]
fn digests_of_lane_and_producer_are_those_of_their_words() {
    let mut producer = producer(DC, 1, format(64), small_publish(16));
    let mut session = subscribed(&mut producer, 0);
    for i in 0..200 {
        producer.store(MEMBER, &hashes([i]));
        producer.remove(MEMBER, &hashes([i.saturating_sub(90)]));
        producer.publish(at(i)).unwrap();
        exchange(&mut producer, LINK, &mut session, i);
        let words = session.store().words();
        assert_eq!(producer.pool().digest(), TableDigest::of_words(words));
    }
    assert!(session.store().words().iter().any(|&word| BucketImage::new(word).occupied() > 1));
}
