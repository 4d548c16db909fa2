//! Many subscribers of one producer: slow ones, stuck ones, many at once, and what they cost.

use ckf_consumer::{Failure, Handled, SessionState};
use ckf_core::Format;
use ckf_producer::{
    Due, GrowError, IgnoredRequest, LeaseEnd, Member, Producer, ProducerEvent, Request, SealError,
    SubscriberId,
};
use ckf_protocol::{
    ConsumerId, DcId, Epoch, Kind, Lane, Millis, ProducerExpectation, RejectReason, RetireReason,
    Sequence, Subscribe, Unsubscribe, VersionRange,
};
use ckf_testkit::rng::Rng;
use ckf_testkit::scenario::*;

const DC: u64 = 7;
const MEMBER: Member = Member::new(1, 0);

fn link(id: u64) -> SubscriberId {
    SubscriberId::new(id)
}

/// A session of consumer `id` on link `id`, ready.
fn reader(producer: &mut Producer, id: u64, now: u64) -> Session {
    let mut session = session(id, 0, producer.pool().format(), quick_session());
    assign(&mut session, DC, now);
    exchange(producer, link(id), &mut session, now);
    assert!(converged(producer, &session));
    session
}

fn ends(producer: &mut Producer) -> Vec<(SubscriberId, LeaseEnd)> {
    producer
        .events()
        .filter_map(|event| match event {
            ProducerEvent::Ended { subscriber, end, .. } => Some((subscriber, end)),
            _ => None,
        })
        .collect()
}

fn subscribe(consumer: u64, epoch: u64, format: Format) -> Subscribe {
    Subscribe {
        consumer: ConsumerId::new(consumer),
        lane: Lane::new(0).unwrap(),
        epoch: Epoch::new(epoch),
        expected: ProducerExpectation { pool: pool_id(DC), format },
        versions: VersionRange::SUPPORTED,
    }
}

#[test]
fn f22_slow_and_stuck_subscribers_harm_nobody() {
    let format = format(4000);
    let config = small_publish(64).with_outbox(4, 1 << 16).unwrap();
    let mut producer = producer(DC, 1, format, config);
    producer.store(MEMBER, &hashes(0..2000));
    producer.publish(at(0)).unwrap();
    let mut paused = reader(&mut producer, 1, 1);
    let mut normal = reader(&mut producer, 2, 1);
    // The third takes five chunks of 63 and stops.
    let mut stuck = session(3, 0, format, quick_session());
    assign(&mut stuck, DC, 1);
    let _ = producer.handle_frame(link(3), &stuck.poll_transmit().unwrap(), at(1));
    for _ in 0..6 {
        let frame = producer.poll_frame(link(3), at(1)).unwrap();
        let _ = stuck.handle_frame(&frame.to_bytes(), at(1));
    }
    assert_eq!(stuck.state(), SessionState::Installing);
    assert_eq!(ends(&mut producer), []);

    let mut rng = Rng::new(5);
    let mut most = (0, 0);
    for i in 0..10_000u64 {
        let now = 2 + i;
        producer.store(MEMBER, &hashes([10_000 + i]));
        producer.remove(MEMBER, &hashes([rng.below(10_000 + i)]));
        producer.publish(at(now)).unwrap();
        let fates = exchange(&mut producer, link(2), &mut normal, now);
        assert!(matches!(fates[..], [Handled::Applied(_)]));
        if let Some((due, _)) = producer.poll_timeout().filter(|(due, _)| *due <= at(now)) {
            producer.handle_timeout(due);
        }
        let stats = producer.stats();
        most = (most.0.max(stats.outbox_messages_most), most.1.max(stats.outbox_bytes_most));
    }
    assert!(most.0 <= 4 && most.1 <= 1 << 16, "{most:?}");
    assert!(converged(&producer, &normal));
    assert_eq!(normal.stats().resyncs, 0);
    let lagged = LeaseEnd::Retired(RetireReason::Lagged);
    assert_eq!(ends(&mut producer), [(link(1), lagged), (link(3), lagged)]);
    assert_eq!(producer.stats().ended.lagged, 2);
    assert_eq!(producer.stats().subscribers, 1);

    // The first resumes: it reads that it was cut off, waits, and comes back by a snapshot.
    exchange(&mut producer, link(1), &mut paused, 10_002);
    assert_eq!(paused.state(), SessionState::BackingOff);
    let (due, _) = paused.poll_timeout().unwrap();
    paused.handle_timeout(due);
    exchange(&mut producer, link(1), &mut paused, due.as_millis());
    assert!(converged(&producer, &paused));
    assert_eq!((paused.stats().snapshots, paused.stats().resyncs), (2, 1));
    assert_eq!(stuck.state(), SessionState::Installing, "never ready");
}

#[test]
fn f22_a_stuck_snapshot_frees_its_slot_by_a_deadline() {
    let format = format(1000);
    let config = small_publish(64)
        .with_max_subscribers(1)
        .unwrap()
        .with_snapshot_progress(Millis::new(300))
        .unwrap();
    let mut producer = producer(DC, 1, format, config);
    let request = subscribe(1, 1, format).to_frame().to_bytes();
    assert!(matches!(producer.handle_frame(link(1), &request, at(10)), Request::Granted(_)));
    for step in 0..5 {
        assert!(producer.poll_frame(link(1), at(10 + 100 * step)).is_some());
    }
    // Each chunk taken moves the deadline; the begin does not count.
    assert_eq!(producer.poll_timeout(), Some((at(710), Due::SnapshotProgress)));
    let other = subscribe(2, 1, format).to_frame().to_bytes();
    let full = Request::Rejected(RejectReason::TooManySubscribers);
    assert_eq!(producer.handle_frame(link(2), &other, at(709)), full);
    producer.handle_timeout(at(709));
    assert!(producer.lease(link(1)).is_some());
    producer.handle_timeout(at(710));
    assert_eq!(producer.lease(link(1)), None);
    assert_eq!(producer.stats().ended.deadline, 1);
    assert_eq!(producer.poll_frame(link(1), at(711)).map(|f| f.kind()), Some(Kind::Retire));
    assert_eq!(producer.poll_frame(link(1), at(711)), None);
    assert!(matches!(producer.handle_frame(link(2), &other, at(711)), Request::Granted(_)));
}

#[test]
fn sixty_four_at_once_share_one_encoding_and_one_chunk_at_a_time() {
    let format = format(10_000);
    let mut producer = producer(DC, 1, format, small_publish(128));
    producer.store(MEMBER, &hashes(0..24_000));
    producer.publish(at(0)).unwrap();
    let mut sessions: Vec<_> = (0..64).map(|id| session(id, 0, format, quick_session())).collect();
    for (id, session) in (0..).zip(&mut sessions) {
        assign(session, DC, 0);
        let frame = session.poll_transmit().unwrap();
        assert!(matches!(producer.handle_frame(link(id), &frame, at(1)), Request::Granted(_)));
    }
    assert_eq!(producer.stats().snapshots_running, 64);
    let mut round = 0;
    while producer.with_frames().next().is_some() {
        round += 1;
        // Commands go on meanwhile, one batch every tenth round.
        if round % 10 == 0 {
            producer.store(MEMBER, &hashes([50_000 + round]));
            producer.publish(at(round)).unwrap();
        }
        for (id, session) in (0..).zip(&mut sessions) {
            if let Some(frame) = producer.poll_frame(link(id), at(round)) {
                let _ = session.handle_frame(&frame.to_bytes(), at(round));
            }
        }
        let stats = producer.stats();
        assert!(stats.outbox_messages_most <= 1, "nothing of the snapshot is queued");
    }
    for session in &sessions {
        assert!(converged(&producer, session));
    }
    let stats = producer.stats();
    let chunks = 10_000u64.div_ceil(128);
    assert_eq!((stats.chunks_encoded, stats.chunks_shared), (chunks, 63 * chunks));
    assert!(stats.batches_encoded >= 7, "{}", stats.batches_encoded);
}

#[test]
fn a_chunk_is_shared_only_within_one_sequence() {
    let format = format(256);
    let mut producer = producer(DC, 1, format, small_publish(64));
    producer.store(MEMBER, &hashes(0..600));
    producer.publish(at(0)).unwrap();
    let mut sessions: Vec<_> = (0..3).map(|id| session(id, 0, format, quick_session())).collect();
    for (id, session) in (0..).zip(&mut sessions) {
        assign(session, DC, 0);
        let frame = session.poll_transmit().unwrap();
        let _ = producer.handle_frame(link(id), &frame, at(0));
        // A batch between any two readers of the same chunk.
        producer.remove(MEMBER, &hashes(id * 100..id * 100 + 50));
        producer.publish(at(0)).unwrap();
        for _ in 0..4 {
            if let Some(frame) = producer.poll_frame(link(id), at(0)) {
                let _ = session.handle_frame(&frame.to_bytes(), at(0));
            }
        }
    }
    assert_eq!(producer.stats().snapshots_running, 3);
    for (id, session) in (0..).zip(&mut sessions) {
        exchange(&mut producer, link(id), session, 0);
        assert!(converged(&producer, session));
        assert_eq!(session.stats().failures.total(), 0, "no stale chunk");
    }
}

#[test]
fn without_a_subscriber_nothing_is_encoded_but_numbers_go_on() {
    let format = format(100);
    let mut producer = producer(DC, 1, format, small_publish(64));
    for i in 0..20 {
        producer.store(MEMBER, &hashes([i]));
        assert_eq!(producer.publish(at(i)).unwrap().map(|s| s.get()), Some(i + 1));
        assert_eq!(producer.publish(at(i)), Ok(None));
    }
    assert_eq!(producer.stats().batches_encoded, 0);
    assert_eq!(producer.poll_timeout(), None);
    assert_eq!(producer.with_frames().count(), 0);
    let session = reader(&mut producer, 1, 50);
    assert_eq!(session.position().map(|(_, sequence)| sequence.get()), Some(20));
}

#[test]
fn a_newer_epoch_replaces_and_an_older_one_is_refused() {
    let format = format(100);
    let mut producer = producer(DC, 1, format, small_publish(64));
    let bytes = |epoch| subscribe(1, epoch, format).to_frame().to_bytes();
    let Request::Granted(first) = producer.handle_frame(link(1), &bytes(5), at(0)) else {
        panic!()
    };
    let duplicate = Request::Ignored(IgnoredRequest::Duplicate);
    assert_eq!(producer.handle_frame(link(1), &bytes(5), at(0)), duplicate);
    assert_eq!(producer.lease(link(1)), Some(first), "a repeated request changes nothing");
    let stale = Request::Rejected(RejectReason::StaleEpoch);
    assert_eq!(producer.handle_frame(link(1), &bytes(4), at(0)), stale);
    assert_eq!(producer.lease(link(1)), Some(first));
    // Newer, from another link: the consumer has reconnected.
    let Request::Granted(second) = producer.handle_frame(link(2), &bytes(6), at(0)) else {
        panic!()
    };
    assert_ne!(first.lease, second.lease);
    assert_eq!(producer.lease(link(1)), None);
    assert_eq!(ends(&mut producer), [(link(1), LeaseEnd::Retired(RetireReason::Replaced))]);
    // The first lease can be given back no more, the second one only on its own link.
    for (id, lease) in [(1, first.lease), (2, first.lease), (1, second.lease)] {
        let frame = Unsubscribe { lease }.to_frame().to_bytes();
        let fate = producer.handle_frame(link(id), &frame, at(0));
        assert_eq!(fate, Request::Ignored(IgnoredRequest::UnknownLease));
    }
    let frame = Unsubscribe { lease: second.lease }.to_frame().to_bytes();
    let fate = producer.handle_frame(link(2), &frame, at(0));
    assert_eq!(fate, Request::Released(second.lease));
    assert_eq!(producer.stats().subscribers, 0);
}

#[test]
fn refusals_say_why() {
    let ours = format(100);
    let mut producer = producer(DC, 1, ours, small_publish(64));
    let good = subscribe(1, 1, ours);
    let other = Format::any_count(100, 43).unwrap();
    let versions = VersionRange::new(2, 9).unwrap();
    let foreign = ProducerExpectation { pool: pool_id(8), format: ours };
    let cases = [
        (Subscribe { expected: foreign, ..good }, RejectReason::UnknownPool),
        (subscribe(1, 1, other), RejectReason::FormatMismatch { theirs: ours }),
        (
            Subscribe { versions, ..good },
            RejectReason::VersionUnsupported { theirs: VersionRange::SUPPORTED },
        ),
    ];
    for (request, reason) in cases {
        let bytes = request.to_frame().to_bytes();
        assert_eq!(producer.handle_frame(link(1), &bytes, at(0)), Request::Rejected(reason));
        let frame = producer.poll_frame(link(1), at(0)).map(|frame| frame.kind());
        assert_eq!(frame, Some(Kind::Reject));
    }
    assert_eq!(producer.stats().rejected.total(), 3);
    producer.shutdown(at(1));
    let bytes = good.to_frame().to_bytes();
    let fate = producer.handle_frame(link(1), &bytes, at(1));
    assert_eq!(fate, Request::Rejected(RejectReason::UnknownPool));
}

#[test]
fn letters_to_links_that_never_read_are_bounded() {
    let format = format(100);
    let mut producer = producer(DC, 1, format, small_publish(64));
    let bad = subscribe(1, 1, Format::any_count(99, 1).unwrap()).to_frame().to_bytes();
    for id in 0..1000 {
        for _ in 0..10 {
            let _ = producer.handle_frame(link(id), &bad, at(0));
        }
    }
    let waiting: u64 = producer.with_frames().count() as u64;
    assert!(waiting <= 64, "{waiting}");
    assert_eq!(producer.stats().letters_dropped, 10_000 - 64 * 4);
    let mut session = reader(&mut producer, 5000, 1);
    producer.store(MEMBER, &hashes([1]));
    producer.publish(at(2)).unwrap();
    exchange(&mut producer, link(5000), &mut session, 2);
    assert!(converged(&producer, &session));
}

/// Also those beyond the links whose refusals are kept, and whatever other links leave unread.
#[test]
fn every_subscriber_hears_that_its_lease_is_over() {
    let ours = format(100);
    let bad = subscribe(9999, 1, format(99)).to_frame().to_bytes();
    let ways: [fn(&mut Producer); 3] = [
        |producer| _ = producer.grow(format(200)).unwrap(),
        |producer| producer.shutdown(at(1)),
        |producer| producer.handle_timeout(at(1_000_000)),
    ];
    for end_all in ways {
        let mut producer = producer(DC, 1, ours, small_publish(64));
        for id in 0..256 {
            let request = subscribe(id, 1, ours).to_frame().to_bytes();
            assert!(matches!(
                producer.handle_frame(link(id), &request, at(0)),
                Request::Granted(_)
            ));
            let _ = producer.poll_frame(link(id), at(0));
        }
        // Leases are no reason to leave a refusal unsaid.
        let _ = producer.handle_frame(link(999), &bad, at(0));
        let frame = producer.poll_frame(link(999), at(0));
        assert_eq!(frame.map(|frame| frame.kind()), Some(Kind::Reject));
        for id in 1000..1100 {
            let _ = producer.handle_frame(link(id), &bad, at(0));
        }
        end_all(&mut producer);
        for id in 0..256 {
            let frame = producer.poll_frame(link(id), at(1));
            assert_eq!(frame.map(|frame| frame.kind()), Some(Kind::Retire), "link {id}");
            assert_eq!(producer.poll_frame(link(id), at(1)), None);
        }
        // Links that nobody reads stay bounded, however often they get and lose a lease.
        let readers = producer.with_frames().count();
        assert!(readers <= 64, "{readers}");
    }
}

/// Links that take leases away from each other and read nothing.
#[test]
fn leases_that_end_unread_are_bounded() {
    let format = format(100);
    let mut producer = producer(DC, 1, format, small_publish(64).with_max_subscribers(8).unwrap());
    for id in 0..1000 {
        let request = subscribe(id % 4, 1 + id, format).to_frame().to_bytes();
        assert!(matches!(producer.handle_frame(link(id), &request, at(0)), Request::Granted(_)));
    }
    let waiting = producer.with_frames().count();
    assert!(waiting <= 64 + 2 * 8, "{waiting}");
    assert_eq!(producer.stats().subscribers, 4);
    assert!(producer.stats().letters_dropped > 900);
}

#[test]
fn a_grown_table_sends_every_subscriber_for_a_fresh_snapshot() {
    let old = format(100);
    let mut producer = producer(DC, 1, old, small_publish(64));
    producer.store(MEMBER, &hashes(0..100));
    producer.publish(at(0)).unwrap();
    let mut sessions: Vec<_> = (0..3).map(|id| reader(&mut producer, id, 1)).collect();
    let new = format(200);
    producer.grow(new).unwrap();
    for (id, session) in (0..).zip(&mut sessions) {
        let fates = exchange(&mut producer, link(id), session, 2);
        let failure = Failure::ByProducer(RetireReason::LayoutChanged);
        assert_eq!(fates, [Handled::Retired(failure)]);
        let (due, _) = session.poll_timeout().unwrap();
        session.handle_timeout(due);
        let reason = RejectReason::FormatMismatch { theirs: new };
        let fates = exchange(&mut producer, link(id), session, due.as_millis());
        assert_eq!(fates, [Handled::Rejected(reason)]);
    }
    let session = reader(&mut producer, 9, 500);
    assert_eq!(session.position().map(|(identity, _)| identity.layout.get()), Some(2));
}

/// A manifest that is ahead of the growth, and one that is behind it: neither reader is served with
/// words of another format than its own, and each is served as soon as the formats agree.
#[test]
fn a_manifest_of_another_format_is_refused_until_the_pool_has_grown_to_it() {
    let (old, new) = (format(100), format(200));
    let mut producer = producer(DC, 1, old, small_publish(64));
    producer.store(MEMBER, &hashes(0..100));
    producer.publish(at(0)).unwrap();
    let mut ahead = session(1, 0, new, quick_session());
    assign(&mut ahead, DC, 0);
    let fates = exchange(&mut producer, link(1), &mut ahead, 0);
    assert_eq!(fates, [Handled::Rejected(RejectReason::FormatMismatch { theirs: old })]);
    assert_eq!(producer.lease(link(1)), None);

    producer.store(MEMBER, &hashes(100..120));
    producer.grow(new).unwrap();
    let (due, _) = ahead.poll_timeout().expect("a back-off");
    ahead.handle_timeout(due);
    exchange(&mut producer, link(1), &mut ahead, due.as_millis());
    assert!(converged(&producer, &ahead), "pending changes are part of the new layout");

    let mut behind = session(2, 0, old, quick_session());
    assign(&mut behind, DC, 0);
    let fates = exchange(&mut producer, link(2), &mut behind, due.as_millis());
    assert_eq!(fates, [Handled::Rejected(RejectReason::FormatMismatch { theirs: new })]);
    assert_ne!(behind.state(), SessionState::Ready);
    // Growth back is another layout: who was served has to start anew, who was refused is served.
    producer.grow(old).unwrap();
    let fates = exchange(&mut producer, link(1), &mut ahead, due.as_millis());
    assert_eq!(fates, [Handled::Retired(Failure::ByProducer(RetireReason::LayoutChanged))]);
    let (due, _) = behind.poll_timeout().expect("a back-off");
    behind.handle_timeout(due);
    exchange(&mut producer, link(2), &mut behind, due.as_millis());
    assert!(converged(&producer, &behind));
    assert_eq!(behind.position().map(|(identity, _)| identity.layout.get()), Some(3));
}

/// The last batch numbers are used, snapshots and deltas alike; after them nothing wraps: the stream
/// ends, for readers too, and neither a batch nor a layout comes of what is still pending.
#[test]
fn publication_numbers_are_used_up_to_the_last_and_never_wrap() {
    let mut producer = producer(DC, 1, format(100), small_publish(64));
    producer.pool_mut().wind_to(Sequence::new(u64::MAX - 3));
    producer.store(MEMBER, &hashes(0..50));
    assert_eq!(producer.publish(at(0)).unwrap(), Some(Sequence::new(u64::MAX - 2)));
    let mut session = reader(&mut producer, 1, 1);
    for (step, left) in (0u64..2).zip([1, 0]) {
        producer.store(MEMBER, &hashes(100 + step..101 + step));
        let last = Sequence::new(u64::MAX - left);
        assert_eq!(producer.publish(at(2 + step)).unwrap(), Some(last));
        exchange(&mut producer, link(1), &mut session, 2 + step);
        assert!(converged(&producer, &session));
        assert_eq!(session.position().map(|(_, sequence)| sequence), Some(last));
    }
    assert_eq!(producer.publish(at(5)).unwrap(), None, "nothing to say needs no number");
    producer.store(MEMBER, &hashes(150..151));
    producer.remove(MEMBER, &hashes(150..151));
    assert_eq!(producer.publish(at(5)).unwrap(), None, "nor does what went back");
    assert_eq!(producer.pool().stats().dirty_buckets, 0);

    producer.store(MEMBER, &hashes(200..210));
    let (stats, digest) = (producer.pool().stats(), producer.pool().digest());
    assert_eq!(producer.publish(at(6)), Err(SealError::SequenceExhausted));
    assert_eq!(producer.grow(format(200)), Err(GrowError::NumbersExhausted));
    assert_eq!((producer.pool().stats(), producer.pool().digest()), (stats, digest));
    assert_eq!(producer.pool().sequence(), Sequence::new(u64::MAX));
    assert_eq!(producer.check(), Ok(()));
    let fates = exchange(&mut producer, link(1), &mut session, 7);
    assert_eq!(fates, [Handled::Retired(Failure::ByProducer(RetireReason::Fenced))]);
    assert_ne!(session.state(), SessionState::Ready);

    // Nor is what was published last granted to anyone again.
    let (due, _) = session.poll_timeout().expect("it backs off");
    session.handle_timeout(due);
    let fates = exchange(&mut producer, link(1), &mut session, due.as_millis());
    assert_eq!(fates, [Handled::Rejected(RejectReason::Fenced)]);
    assert_ne!(session.state(), SessionState::Ready);
}

/// Two leases wait to be given back: one that the lane held, one of an answer that came too late.
#[test]
fn every_lease_that_is_not_wanted_is_given_back() {
    let mut former = producer(DC, 1, format(100), small_publish(64));
    let mut late = producer(DC + 1, 1, format(100), small_publish(64));
    let mut session = session(1, 0, format(100), quick_session());
    assign(&mut session, DC + 1, 0);
    while let Some(frame) = session.poll_transmit() {
        let _fate = late.handle_frame(link(1), &frame, at(0));
    }
    let answer = late.poll_frame(link(1), at(0)).expect("a begin").to_bytes();

    session.assign(DcId::new(DC), Epoch::new(50), at(0)).unwrap();
    exchange(&mut former, link(1), &mut session, 0);
    assert_eq!(session.state(), SessionState::Ready);
    session.unassign(at(1));
    assert!(matches!(session.handle_frame(&answer, at(1)), Handled::Ignored(_)));
    while let Some(frame) = session.poll_transmit() {
        for producer in [&mut former, &mut late] {
            let _fate = producer.handle_frame(link(1), &frame, at(1));
        }
    }
    assert_eq!((former.lease(link(1)), late.lease(link(1))), (None, None));

    // The same one again and again is one.
    for _ in 0..100 {
        let _fate = session.handle_frame(&answer, at(2));
    }
    assert_eq!(std::iter::from_fn(|| session.poll_transmit()).count(), 1);
}
