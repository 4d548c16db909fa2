//! Ends of ranges, all at once: the last sequences, times and members there are, and the smallest
//! table.

use ckf_consumer::{Handled, SessionConfig, SessionState, SessionTimes};
use ckf_producer::{IgnoredRequest, Member, Request, SubscriberId, WorkerId};
use ckf_protocol::{ConsumerId, DcId, Epoch, Lane, ProducerExpectation, RejectReason, Subscribe};
use ckf_protocol::{Instant, Limits, Millis, VersionRange};
use ckf_testkit::scenario::*;

const LINK: SubscriberId = SubscriberId::new(u64::MAX);

/// Two buckets, eight blocks, members and blocks at the ends of their ranges.
#[test]
fn the_smallest_table_carries_the_largest_numbers() {
    let format = format(2);
    let mut producer = producer(u64::MAX, u64::MAX, format, small_publish(16));
    let mut session = session(u64::MAX, 63, format, quick_session());
    let ends =
        [Member::new(u64::MAX, u32::MAX), Member::new(u64::MAX, 0), Member::new(0, u32::MAX)];
    assign(&mut session, u64::MAX, 0);
    for (number, member) in (0..).zip(ends) {
        producer.store(member, &hashes([0, u64::MAX, 1 << 63, number]));
        producer.publish(at(0)).expect("numbers last");
        exchange(&mut producer, LINK, &mut session, 0);
        assert!(converged(&producer, &session));
    }
    // Far more than fits: the rest is omitted, and the reader follows all the same.
    producer.store(ends[0], &hashes(0..100));
    producer.publish(at(0)).expect("numbers last");
    exchange(&mut producer, LINK, &mut session, 0);
    assert!(converged(&producer, &session) && producer.pool().stats().omitted > 90);
    producer.remove_worker(WorkerId::new(u64::MAX));
    producer.clear_member(ends[2]);
    producer.store(ends[2], &[]);
    producer.replace_member(ends[2], &[]);
    producer.publish(at(0)).expect("numbers last");
    exchange(&mut producer, LINK, &mut session, 0);
    assert!(converged(&producer, &session));
    assert!(session.store().words().iter().all(|word| *word == 0));
    assert_eq!(producer.pool().stats().members, 0);
    assert_eq!(producer.check(), Ok(()));
}

/// Time that stands still, goes back or jumps: the lane lives. At the very end of time, where every
/// deadline is at once, nothing panics or spins.
#[test]
fn time_going_back_and_at_its_end() {
    let format = format(64);
    let mut producer = producer(7, 1, format, small_publish(16));
    let mut session = session(1, 0, format, quick_session());
    assign(&mut session, 7, 0);
    for (number, now) in (0..).zip([0, 4000, 5, 0, 4000, 4000, u64::MAX - 1, u64::MAX, 0]) {
        producer.store(Member::new(1, 0), &hashes([1000 + number]));
        producer.publish(at(now)).expect("numbers last");
        producer.handle_timeout(at(now));
        session.handle_timeout(at(now));
        exchange(&mut producer, LINK, &mut session, now);
        if number < 6 {
            assert!(converged(&producer, &session), "at {now}");
        }
    }
    assert_eq!(producer.check(), Ok(()));
}

/// Deadlines that a host asks about until none is due: at the end of time this ends at once, a lane
/// in use stays so, and nobody subscribes again and again.
#[test]
fn at_the_end_of_time_nothing_is_due() {
    let format = format(64);
    let mut producer = producer(7, 1, format, small_publish(16));
    let mut session = session(1, 0, format, quick_session());
    assign(&mut session, 7, 0);
    producer.store(Member::new(1, 0), &hashes(0..9));
    producer.publish(at(0)).expect("numbers last");
    exchange(&mut producer, LINK, &mut session, 0);
    let last = u64::MAX - 1;
    for now in [last, u64::MAX] {
        producer.handle_timeout(at(now));
        exchange(&mut producer, LINK, &mut session, now);
        for calls in 0.. {
            let of_session = session.poll_timeout().map(|(due, _)| due);
            let of_producer = producer.poll_timeout().map(|(due, _)| due);
            if of_session.into_iter().chain(of_producer).all(|due| due > at(now)) {
                break;
            }
            assert!(calls < 5, "it spins");
            session.handle_timeout(at(now));
            producer.handle_timeout(at(now));
        }
        exchange(&mut producer, LINK, &mut session, now);
        assert!(converged(&producer, &session), "at {now}");
    }
    assert_eq!((session.stats().subscribes, session.stats().failures.total()), (1, 0));
    let heartbeats = producer.stats().heartbeats;
    producer.handle_timeout(at(u64::MAX));
    exchange(&mut producer, LINK, &mut session, u64::MAX);
    assert_eq!(producer.stats().heartbeats, heartbeats);
}

/// A wait without an end is no deadline.
#[test]
fn a_silence_of_all_time_is_never_due() {
    let format = format(64);
    let times = SessionTimes { silence: Millis::new(u64::MAX), ..*quick_session().times() };
    let config = SessionConfig::new(times, Limits::default()).expect("legal times");
    let mut producer = producer(7, 1, format, small_publish(16));
    let mut session = session(1, 0, format, config);
    assign(&mut session, 7, 5);
    exchange(&mut producer, LINK, &mut session, 5);
    assert_eq!((session.state(), session.poll_timeout()), (SessionState::Ready, None));
}

/// A deadline that is exactly now has passed; a moment before it has not.
#[test]
fn deadlines_are_due_at_their_very_moment() {
    let format = format(64);
    let mut producer = producer(7, 1, format, small_publish(16));
    producer.store(Member::new(1, 0), &hashes(0..50));
    let mut session = session(1, 0, format, quick_session());
    assign(&mut session, 7, 0);
    exchange(&mut producer, LINK, &mut session, 0);
    let (due, _) = session.poll_timeout().expect("silence");
    let before = Instant::from_millis(due.as_millis() - 1);
    session.handle_timeout(before);
    assert_eq!(session.state(), SessionState::Ready);
    session.handle_timeout(due);
    assert_ne!(session.state(), SessionState::Ready);

    // A snapshot that nobody fetches, on the producer's side.
    let other = SubscriberId::new(3);
    let mut reader = ckf_testkit::scenario::session(2, 0, format, quick_session());
    assign(&mut reader, 7, 0);
    let subscribe = reader.poll_transmit().expect("it subscribes");
    assert!(matches!(producer.handle_frame(other, &subscribe, due), Request::Granted(_)));
    while let Some((next, _)) = producer.poll_timeout() {
        producer.handle_timeout(Instant::from_millis(next.as_millis() - 1));
        let ended = producer.stats().ended.total();
        producer.handle_timeout(next);
        assert!(producer.poll_timeout().is_none_or(|(later, _)| later > next), "it spins");
        if producer.stats().ended.total() > ended {
            assert_eq!(producer.lease(other), None);
            return;
        }
    }
    panic!("the slot is never freed");
}

/// Two links that claim to be the same consumer and lane: the newer epoch wins, an equal or older
/// one is refused and disturbs nobody.
#[test]
fn two_links_of_one_consumer() {
    let format = format(64);
    let mut producer = producer(7, 1, format, small_publish(16));
    let subscribe = |epoch| {
        let expected = ProducerExpectation { pool: pool_id(7), format };
        Subscribe {
            versions: VersionRange::SUPPORTED,
            consumer: ConsumerId::new(9),
            lane: Lane::new(0).expect("a lane"),
            epoch: Epoch::new(epoch),
            expected,
        }
        .to_frame()
        .to_bytes()
    };
    let links = [SubscriberId::new(1), SubscriberId::new(2)];
    assert!(matches!(producer.handle_frame(links[0], &subscribe(5), at(0)), Request::Granted(_)));
    let stale = Request::Rejected(RejectReason::StaleEpoch);
    // The very same subscription is taken for one that the network repeated.
    let repeated = Request::Ignored(IgnoredRequest::Duplicate);
    for (epoch, expected) in [(0, stale), (4, stale), (5, repeated)] {
        let fate = producer.handle_frame(links[1], &subscribe(epoch), at(0));
        assert_eq!(fate, expected, "epoch {epoch}");
        assert!(producer.lease(links[0]).is_some() && producer.lease(links[1]).is_none());
    }
    let fate = producer.handle_frame(links[1], &subscribe(u64::MAX), at(0));
    assert!(matches!(fate, Request::Granted(_)), "{fate:?}");
    assert!(producer.lease(links[0]).is_none(), "one lane has one lease");
    assert_eq!(producer.stats().ended.replaced, 1);
    let fate = producer.handle_frame(links[0], &subscribe(u64::MAX), at(0));
    assert_eq!(fate, repeated);
    assert!(producer.lease(links[1]).is_some());
}

/// A chunk of an older snapshot between those of a newer one is nobody's.
#[test]
fn chunks_of_two_snapshots_do_not_mix() {
    let format = format(64);
    let mut producer = producer(7, 1, format, small_publish(16));
    producer.store(Member::new(1, 0), &hashes(0..50));
    let mut session = session(1, 0, format, quick_session());
    assign(&mut session, 7, 0);
    let mut snapshots = Vec::new();
    for _ in 0..2 {
        let frame = session.poll_transmit().expect("it subscribes");
        let _ = producer.handle_frame(LINK, &frame, at(0));
        let frames: Vec<_> = std::iter::from_fn(|| producer.poll_frame(LINK, at(0))).collect();
        snapshots.push(frames.iter().map(|frame| frame.to_bytes()).collect::<Vec<_>>());
        producer.store(Member::new(1, 0), &hashes(50..60));
        producer.publish(at(0)).expect("numbers last");
        let epoch = session.epoch().expect("assigned").get() + 1;
        session.assign(DcId::new(7), Epoch::new(epoch), at(0)).expect("newer");
    }
    // The session has a third subscription by now: neither snapshot is for it.
    for frame in snapshots.iter().flatten() {
        assert!(matches!(session.handle_frame(frame, at(0)), Handled::Ignored(_)));
    }
    exchange(&mut producer, LINK, &mut session, 0);
    let words = session.store().words().to_vec();
    for frame in snapshots.iter().flatten() {
        assert!(matches!(session.handle_frame(frame, at(0)), Handled::Ignored(_)));
    }
    assert!(converged(&producer, &session) && session.store().words() == words);
}
