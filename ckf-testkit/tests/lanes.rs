//! What a lane believes: forged, stale, broken and skipping streams against the shipped session.

use ckf_consumer::{Failure, Handled, Ignored, SessionEvent, SessionState, Waiting};
use ckf_core::Format;
use ckf_protocol::{
    ConsumerId, DcId, Epoch, Fault, IdentitySource, Incarnation, Lane, LayoutGeneration, LeaseId,
    LeaseTerms, ProducerIdentity, Reject, RejectReason, RetireReason, Sequence,
};
use ckf_testkit::forge::{Stream, reseal};
use ckf_testkit::rng::Rng;
use ckf_testkit::scenario::*;

const DC: u64 = 7;
const BUCKETS: u32 = 1024;

fn identity(incarnation: u64) -> ProducerIdentity {
    ProducerIdentity {
        pool: pool_id(DC),
        incarnation: Incarnation::new(incarnation),
        layout: LayoutGeneration::FIRST,
        format: format(BUCKETS),
    }
}

fn terms(lease: u64, epoch: u64) -> LeaseTerms {
    LeaseTerms {
        lease: LeaseId::new(lease).unwrap(),
        consumer: ConsumerId::new(1),
        lane: Lane::new(2).unwrap(),
        epoch: Epoch::new(epoch),
    }
}

fn words(seed: u64) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    (0..BUCKETS).map(|_| if rng.chance(0.3) { 0 } else { rng.next_u64() }).collect()
}

/// A session of lane 2 that has subscribed with epoch 1.
fn subscribed() -> Session {
    let mut session = session(1, 2, format(BUCKETS), quick_session());
    assign(&mut session, DC, 0);
    assert!(session.poll_transmit().is_some());
    session
}

fn install(session: &mut Session, stream: &Stream) {
    for frame in stream.snapshot() {
        let fate = session.handle_frame(&frame, at(1));
        assert!(!matches!(fate, Handled::Ignored(_) | Handled::Retired(_)), "{fate:?}");
    }
    assert_eq!(session.state(), SessionState::Ready);
}

/// A ready lane and its stream, at batch 10.
fn ready() -> (Session, Stream) {
    let mut session = subscribed();
    let stream = Stream::new(terms(5, 1), identity(1), 10, words(1), 100);
    install(&mut session, &stream);
    while session.poll_event().is_some() {}
    (session, stream)
}

/// Hands a frame to a ready lane that must retire it without touching a word.
fn must_retire(frame: &[u8], what: &str) -> Failure {
    let (mut session, _) = ready();
    let (before, stores) = (session.store().words().to_vec(), session.store().stores());
    let fate = session.handle_frame(frame, at(2));
    let Handled::Retired(failure) = fate else { panic!("{what}: {fate:?}") };
    assert_eq!(session.store().words(), before, "{what}");
    assert_eq!(session.store().stores(), stores, "{what}");
    assert!(!session.store().is_ready(), "{what}");
    assert_eq!(session.state(), SessionState::BackingOff, "{what}");
    assert_eq!(
        session.poll_event(),
        Some(SessionEvent::Retired { failure, was_ready: true }),
        "{what}"
    );
    failure
}

#[test]
fn f33_skipping_batches_retire_the_lane_before_any_store() {
    let (_, stream) = ready();
    let gap = |found| Failure::Gap {
        installed: Sequence::new(10),
        parts: 0,
        found: Sequence::new(found),
    };
    for skip in [1, 2, 7, 1_000_000] {
        let mut ahead = stream.clone();
        ahead.sequence = Sequence::new(10 + skip);
        let found = 11 + skip;
        assert_eq!(must_retire(&ahead.delta(&[(3, 1)]), "delta ahead"), gap(found));
        assert_eq!(must_retire(&ahead.heartbeat(false), "heartbeat ahead"), gap(found));
        assert_eq!(must_retire(&ahead.heartbeat(true), "drain marker ahead"), gap(found));
        assert_eq!(must_retire(&ahead.end(), "end ahead"), gap(found));
    }
}

#[test]
fn f33_a_second_part_without_the_first_is_a_gap() {
    let (_, mut stream) = ready();
    let mut frame = stream.delta(&[(3, 1), (4, 2)]);
    frame[24 + 20] = 1; // delta.part
    reseal(&mut frame);
    assert!(matches!(must_retire(&frame, "part 1 first"), Failure::Gap { .. }));
}

#[test]
fn f33_malformed_deltas_retire_the_lane_before_any_store() {
    let (_, stream) = ready();
    let good = stream.clone().delta(&[(3, 0xAAAA), (500, 0xBBBB)]);
    let malformed = |bytes: &[u8], what: &str| match must_retire(bytes, what) {
        Failure::Malformed(error) => error.fault,
        other => panic!("{what}: {other:?}"),
    };

    // (3, X), (1024, Y): the second gap leads outside.
    let mut wide = Stream::new(terms(5, 1), identity(1), 10, words(1), 100);
    wide.words.resize(2048, 0);
    let outside = wide.delta(&[(3, 0xAAAA), (1024, 0xBBBB)]);
    assert!(matches!(malformed(&outside, "bucket 1024"), Fault::Bucket { bucket: 1024, .. }));

    // Every length but the right one, with right checksums.
    for length in 24..good.len() {
        let mut short = good[..length].to_vec();
        reseal(&mut short);
        malformed(&short, &format!("{length} bytes"));
    }
    let mut long = good.clone();
    long.push(0);
    reseal(&mut long);
    assert!(matches!(malformed(&long, "one more byte"), Fault::Trailing { count: 1 }));
    // And with the checksums of the whole frame, as a cut on the way would leave it.
    for length in 24..good.len() {
        malformed(&good[..length], &format!("cut to {length} bytes"));
    }
}

/// Every value of every byte, and every value of the first bytes with one later byte left out:
/// among these are (b, X), (b, Z), buckets outside, and wrong counts, masks, parts and flags.
#[test]
fn f33_every_other_byte_under_right_checksums_is_refused_before_any_store() {
    let (session, mut stream) = ready();
    let good = stream.delta(&[(1000, 0xAAAA), (1001, 0xBBBB)]);
    let (mut order, mut outside) = (0, 0);
    let mut refused = |mut frame: Vec<u8>, what: (usize, u8, usize)| {
        reseal(&mut frame);
        // Without the flag "last" it is the first part of a larger batch, and as such right.
        if frame == good || what == (24 + 22, 0, 0) {
            return;
        }
        let mut session = session.clone();
        let stores = session.store().stores();
        match session.handle_frame(&frame, at(2)) {
            Handled::Retired(Failure::Malformed(error)) => match error.fault {
                Fault::Order { bucket } => order += u32::from(bucket == 1000),
                Fault::Bucket { .. } => outside += 1,
                _ => {}
            },
            Handled::Retired(Failure::Gap { .. } | Failure::DigestMismatch)
            | Handled::Ignored(Ignored::Duplicate) => {}
            other => panic!("{what:?}: {other:?}"),
        }
        assert_eq!(session.store().stores(), stores, "{what:?}");
    };
    for index in 24..good.len() {
        for value in 0..=255 {
            let mut frame = good.clone();
            frame[index] = value;
            refused(frame.clone(), (index, value, 0));
            for left_out in 50..good.len() {
                if (48..50).contains(&index) {
                    let mut frame = frame.clone();
                    frame.remove(left_out);
                    refused(frame, (index, value, left_out));
                }
            }
        }
    }
    assert!(order > 0 && outside > 0, "{order} {outside}");
}

#[test]
fn f33_every_flipped_bit_of_every_kind_leaves_the_words_alone() {
    let (session, stream) = ready();
    let frames = [
        stream.clone().delta(&[(3, 0xAAAA), (500, 0xBBBB)]),
        stream.heartbeat(false),
        stream.end(),
        stream.begin(),
        stream.chunks()[0].clone(),
        stream.retire(RetireReason::Lagged),
    ];
    for frame in frames {
        for bit in 0..frame.len() * 8 {
            let mut session = session.clone();
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let stores = session.store().stores();
            let fate = session.handle_frame(&flipped, at(2));
            assert_eq!(session.store().stores(), stores);
            let body = bit >= 24 * 8;
            match fate {
                // The header is intact and names the lease.
                Handled::Retired(Failure::Malformed(_)) => assert!(body, "{bit}"),
                Handled::Ignored(Ignored::Unreadable) => assert!(!body, "{bit}"),
                other => panic!("bit {bit}: {other:?}"),
            }
        }
    }
}

#[test]
fn f33_wrong_digests_retire_the_lane_before_any_store() {
    let (_, stream) = ready();
    // A batch of a table that differs in one bit of one bucket.
    for bucket in [0, 4, 1023] {
        for bit in 0..64 {
            let mut other = stream.clone();
            other.words[bucket] ^= 1 << bit;
            let wrong = other.delta(&[(3, !stream.words[3])]);
            assert_eq!(must_retire(&wrong, "digest"), Failure::DigestMismatch, "{bucket} {bit}");
        }
    }
    // The same sequence, other content: heartbeat, drain marker, forked last batch.
    let mut other = stream.clone();
    other.words[9] ^= 1 << 40;
    assert_eq!(must_retire(&other.heartbeat(false), "heartbeat"), Failure::DigestMismatch);
    assert_eq!(must_retire(&other.heartbeat(true), "drain marker"), Failure::DigestMismatch);
    other.sequence = Sequence::new(9);
    assert_eq!(must_retire(&other.delta(&[(1, 2)]), "forked batch"), Failure::DigestMismatch);
}

#[test]
fn f33_what_was_applied_before_is_ignored_when_it_comes_again() {
    let (mut session, mut stream) = ready();
    let mut past = stream.snapshot();
    for i in 0..5 {
        past.push(stream.delta(&[(i, u64::from(i) + 77), (i + 100, 5)]));
        let fate = session.handle_frame(past.last().unwrap(), at(2));
        assert_eq!(fate, Handled::Applied(Sequence::new(11 + u64::from(i))));
    }
    let stores = session.store().stores();
    let count = past.len() as u64;
    for frame in past.iter().chain(past.iter().rev()) {
        assert_eq!(session.handle_frame(frame, at(3)), Handled::Ignored(Ignored::Duplicate));
    }
    assert_eq!(session.store().stores(), stores);
    assert_eq!(session.store().words(), stream.words);
    assert_eq!(session.stats().ignored.duplicate, 2 * count);
    let _ = session.handle_frame(&stream.delta(&[(1000, 1)]), at(3));
    assert_eq!(session.store().words(), stream.words);
}

#[test]
fn f34_a_former_holder_is_ignored_whatever_it_says() {
    // Lease 5 to incarnation A at 12; it ends; lease 6 to incarnation B.
    let mut session = subscribed();
    let a = Stream::new(terms(5, 1), identity(1), 12, words(1), 100);
    install(&mut session, &a);
    session.handle_disconnected(at(2));
    let (due, waiting) = session.poll_timeout().unwrap();
    assert_eq!(waiting, Waiting::BackOff);
    session.handle_timeout(due);
    assert!(session.poll_transmit().is_some());
    let mut b = Stream::new(terms(6, 2), identity(2), 0, words(2), 64);
    install(&mut session, &b);
    let _ = session.handle_frame(&b.delta(&[(7, 7)]), at(3));

    let mut ignored = session.stats().ignored.total();
    for round in 0..2 {
        // At A's own numbers, and at numbers that would fit B's stream.
        for sequence in [12, 1, 2] {
            let mut a = a.clone();
            a.sequence = Sequence::new(sequence);
            if sequence != 12 {
                a.words = b.words.clone();
            }
            let mut frames = a.snapshot();
            frames.push(a.heartbeat(false));
            frames.push(a.heartbeat(true));
            frames.push(a.retire(RetireReason::Replaced));
            frames.push(a.delta(&[(9, 9), (10, 10)]));
            for frame in frames {
                let (stores, position) = (session.store().stores(), session.position());
                let fate = session.handle_frame(&frame, at(4));
                assert!(matches!(fate, Handled::Ignored(_)), "{fate:?}");
                assert_eq!(session.store().stores(), stores);
                assert_eq!(session.position(), position);
                assert_eq!(session.stats().ignored.total(), ignored + 1);
                ignored += 1;
            }
        }
        assert_eq!(session.store().words(), b.words);
        let fate =
            session.handle_frame(&b.delta(&[(round, 3), (900, 4 + u64::from(round))]), at(5));
        assert_eq!(fate, Handled::Applied(Sequence::new(2 + u64::from(round))));
    }
    assert_eq!(session.state(), SessionState::Ready);
}

#[test]
fn f34_an_offer_with_any_foreign_field_is_no_lease() {
    let stream = Stream::new(terms(5, 1), identity(1), 10, words(1), 100);
    type Change = (&'static str, fn(&mut Stream));
    let not_ours: [Change; 3] = [
        ("consumer", |s| s.terms.consumer = ConsumerId::new(2)),
        ("lane", |s| s.terms.lane = Lane::new(3).unwrap()),
        ("epoch", |s| s.terms.epoch = Epoch::new(0)),
    ];
    for (field, change) in not_ours {
        let (mut session, mut forged) = (subscribed(), stream.clone());
        change(&mut forged);
        for frame in forged.snapshot() {
            assert!(matches!(session.handle_frame(&frame, at(1)), Handled::Ignored(_)), "{field}");
        }
        assert_eq!(session.state(), SessionState::Subscribing, "{field}");
        assert_eq!(session.store().stores(), 0);
        // The answer to what was asked is still welcome.
        install(&mut session, &stream);
    }
    let wrong: [Change; 8] = [
        ("data center", |s| s.identity.pool.dc = DcId::new(8)),
        ("cache semantics", |s| s.identity.pool.domain.cache_semantics.digest[15] ^= 1),
        ("routing scope", |s| s.identity.pool.domain.routing_scope.digest[0] ^= 1),
        ("cache semantics", |s| {
            s.identity.pool.domain.cache_semantics.source = IdentitySource::DefaultDerived;
        }),
        ("routing scope", |s| {
            s.identity.pool.domain.routing_scope.source = IdentitySource::DefaultDerived;
        }),
        ("seed", |s| s.identity.format = Format::any_count(u64::from(BUCKETS), 12).unwrap()),
        ("bucket count", |s| {
            s.identity.format = Format::any_count(u64::from(BUCKETS) + 1, 42).unwrap()
        }),
        ("format", |s| {
            s.identity.format = Format::power_of_two(u64::from(BUCKETS), 42).unwrap();
        }),
    ];
    for (field, change) in wrong {
        let (mut session, mut forged) = (subscribed(), stream.clone());
        change(&mut forged);
        let fate = session.handle_frame(&forged.begin(), at(1));
        assert_eq!(fate, Handled::Retired(Failure::IdentityMismatch { field }));
        assert_eq!(session.store().stores(), 0);
        for frame in forged.snapshot() {
            assert!(matches!(session.handle_frame(&frame, at(1)), Handled::Ignored(_)), "{field}");
        }
    }
}

#[test]
fn another_opening_of_the_same_lease_names_what_differs() {
    type Change = (&'static str, fn(&mut Stream));
    let others: [Change; 6] = [
        ("data center", |s| s.identity.pool.dc = DcId::new(8)),
        ("seed", |s| s.identity.format = Format::any_count(u64::from(BUCKETS), 12).unwrap()),
        ("incarnation", |s| s.identity.incarnation = Incarnation::new(2)),
        ("layout generation", |s| s.identity.layout = LayoutGeneration::new(2).unwrap()),
        ("opening", |s| s.terms.epoch = Epoch::new(2)),
        ("opening", |s| s.sequence = Sequence::new(11)),
    ];
    let stream = ready().1;
    for (field, change) in others {
        let mut other = stream.clone();
        change(&mut other);
        let failure = must_retire(&other.begin(), field);
        assert_eq!(failure, Failure::IdentityMismatch { field });
        assert!(failure.to_string().contains(field), "{failure}");
    }
}

#[test]
fn f34_a_refusal_of_another_subscription_is_ignored() {
    let refusal = Reject {
        pool: pool_id(DC),
        consumer: ConsumerId::new(1),
        lane: Lane::new(2).unwrap(),
        epoch: Epoch::new(1),
        reason: RejectReason::Fenced,
    };
    let foreign = [
        Reject { pool: pool_id(8), ..refusal },
        Reject { consumer: ConsumerId::new(3), ..refusal },
        Reject { lane: Lane::new(1).unwrap(), ..refusal },
        Reject { epoch: Epoch::new(2), ..refusal },
    ];
    let mut session = subscribed();
    for reject in foreign {
        let fate = session.handle_frame(&reject.to_frame().to_bytes(), at(1));
        assert_eq!(fate, Handled::Ignored(Ignored::ForeignTerms));
    }
    let theirs = Format::any_count(99, 1).unwrap();
    let mismatch = Reject { reason: RejectReason::FormatMismatch { theirs }, ..refusal };
    let fate = session.handle_frame(&mismatch.to_frame().to_bytes(), at(1));
    assert_eq!(fate, Handled::Rejected(mismatch.reason));
    let event = SessionEvent::Rejected { reason: mismatch.reason };
    assert_eq!(session.poll_event(), Some(event));
    // Told once: the next refusal is of a subscription that is over.
    let fate = session.handle_frame(&mismatch.to_frame().to_bytes(), at(1));
    assert_eq!(fate, Handled::Ignored(Ignored::ForeignTerms));
}
