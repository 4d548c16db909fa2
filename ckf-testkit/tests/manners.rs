//! How a session behaves towards its producer and its host: what it gives back, when it comes again,
//! what it waits for and what it tells.

use ckf_consumer::{
    Consumer, ConsumerConfig, Failure, Handled, LaneSession, SessionEvent, SessionState, Waiting,
};
use ckf_protocol::{
    ConsumerId, DcId, Epoch, Incarnation, Lane, LayoutGeneration, LeaseId, LeaseTerms, Limits,
    Manifest, Message, ProducerIdentity, RetireReason, decode,
};
use ckf_testkit::forge::Stream;
use ckf_testkit::scenario::*;

const DC: u64 = 7;
const BUCKETS: u32 = 40;

/// The stream of lease `lease` for the subscription of `epoch`, in chunks of ten.
fn stream(lease: u64, epoch: u64) -> Stream {
    let terms = LeaseTerms {
        lease: LeaseId::new(lease).expect("not 0"),
        consumer: ConsumerId::new(1),
        lane: Lane::new(2).expect("below 64"),
        epoch: Epoch::new(epoch),
    };
    let identity = ProducerIdentity {
        pool: pool_id(DC),
        incarnation: Incarnation::new(1),
        layout: LayoutGeneration::FIRST,
        format: format(BUCKETS),
    };
    Stream::new(terms, identity, 10, (0..BUCKETS).map(u64::from).collect(), 10)
}

/// A session that has subscribed with epoch 1.
fn subscribed() -> Session {
    let mut session = session(1, 2, format(BUCKETS), quick_session());
    assign(&mut session, DC, 0);
    assert_eq!(sent(&mut session), (vec![], 1));
    session
}

/// A lane that is ready on lease 5.
fn ready() -> (Session, Stream) {
    let (mut session, stream) = (subscribed(), stream(5, 1));
    hand(&mut session, stream.snapshot(), 0);
    assert_eq!(session.state(), SessionState::Ready);
    (session, stream)
}

fn hand(session: &mut Session, frames: impl IntoIterator<Item = Vec<u8>>, now: u64) {
    for frame in frames {
        let _ = session.handle_frame(&frame, at(now));
    }
}

/// The leases that a session gives back, and how many subscriptions it sends.
fn sent(session: &mut Session) -> (Vec<u64>, usize) {
    let (mut leases, mut subscriptions) = (Vec::new(), 0);
    while let Some(frame) = session.poll_transmit() {
        match decode(&frame, &Limits::default()).expect("a session sends what decodes") {
            Message::Unsubscribe(unsubscribe) => leases.push(unsubscribe.lease.get()),
            Message::Subscribe(_) => subscriptions += 1,
            other => panic!("a session sent {other:?}"),
        }
    }
    (leases, subscriptions)
}

/// How long a session that backs off still waits after `now`.
fn pause(session: &Session, now: u64) -> u64 {
    let Some((due, Waiting::BackOff)) = session.poll_timeout() else { panic!("it backs off") };
    due.saturating_since(at(now)).get()
}

fn events<S: ckf_consumer::LaneStore>(session: &mut LaneSession<S>) -> Vec<SessionEvent> {
    std::iter::from_fn(|| session.poll_event()).collect()
}

#[test]
fn a_lease_that_is_left_is_given_back_once() {
    type Leave = (&'static str, fn(&mut Session, &mut Stream));
    let ways: [Leave; 7] = [
        ("unassigned", |session, _| session.unassign(at(1))),
        ("another pool", |session, _| {
            session.assign(DcId::new(8), Epoch::new(9), at(1)).expect("newer");
        }),
        ("gap", |session, stream| {
            stream.delta(&[(0, 77)]);
            hand(session, [stream.delta(&[(1, 77)])], 1);
        }),
        ("damage", |session, stream| {
            let mut frame = stream.delta(&[(0, 77)]);
            frame.pop();
            hand(session, [frame], 1);
        }),
        ("digest", |session, stream| {
            stream.words[3] ^= 1;
            hand(session, [stream.heartbeat(false)], 1);
        }),
        ("another stream", |session, stream| {
            stream.identity.incarnation = Incarnation::new(2);
            hand(session, [stream.begin()], 1);
        }),
        ("silence", |session, _| session.handle_timeout(at(6000))),
    ];
    for (way, leave) in ways {
        let (mut session, mut stream) = ready();
        leave(&mut session, &mut stream);
        assert_ne!(session.state(), SessionState::Ready, "{way}");
        // What the producer still says, and its offer once more, change nothing about that.
        hand(&mut session, [stream.begin(), stream.heartbeat(false), stream.begin()], 6000);
        assert_eq!(sent(&mut session).0, [5], "{way}");
        assert_eq!(sent(&mut session), (vec![], 0), "{way}");
    }
    // So is one whose snapshot is never completed.
    let (mut session, stream) = (subscribed(), stream(5, 1));
    hand(&mut session, [stream.begin(), stream.chunks()[0].clone()], 0);
    session.handle_timeout(at(500));
    assert_eq!(session.stats().failures.snapshot_deadline, 1);
    assert_eq!(sent(&mut session).0, [5]);
}

#[test]
fn a_lease_that_its_producer_ended_or_whose_link_is_gone_is_not_given_back() {
    let (mut session, stream) = ready();
    hand(&mut session, [stream.retire(RetireReason::Lagged)], 1);
    assert_eq!(sent(&mut session), (vec![], 0));
    let (mut session, _) = ready();
    session.handle_disconnected(at(1));
    assert_eq!(sent(&mut session), (vec![], 0));
    // Nor is one that was left just before.
    let (mut session, _) = ready();
    session.unassign(at(1));
    session.handle_disconnected(at(1));
    assert_eq!(sent(&mut session), (vec![], 0));
}

#[test]
fn a_lease_that_comes_too_late_or_is_of_another_pool_is_given_back() {
    let mut session = subscribed();
    session.handle_timeout(at(500));
    assert_eq!(session.stats().failures.subscribe_deadline, 1);
    hand(&mut session, stream(5, 1).snapshot(), 500);
    assert_eq!(sent(&mut session), (vec![5], 0));
    session.unassign(at(500));
    hand(&mut session, stream(6, 1).snapshot(), 500);
    assert_eq!(sent(&mut session), (vec![6], 0));

    let (mut session, mut foreign) = (subscribed(), stream(5, 1));
    foreign.identity.pool = pool_id(8);
    hand(&mut session, foreign.snapshot(), 0);
    assert_eq!(session.stats().failures.identity, 1);
    assert_eq!(sent(&mut session), (vec![5], 0));
}

#[test]
fn of_many_leases_to_give_back_the_last_four_are() {
    let mut session = subscribed();
    hand(&mut session, (10..30).map(|lease| stream(lease, 0).begin()), 0);
    assert_eq!(sent(&mut session).0, [26, 27, 28, 29]);
    assert_eq!(session.state(), SessionState::Subscribing);
}

/// From 10 to 80 ms: each pause is within the upper half of twice the one before.
#[test]
fn pauses_grow_with_failures_and_start_over_after_a_good_time_or_an_assignment() {
    let mut session = subscribed();
    let mut now = 0;
    for full in [10, 20, 40, 80, 80] {
        session.handle_disconnected(at(now));
        let pause = pause(&session, now);
        assert!((full / 2..=full).contains(&pause), "{pause} of {full}");
        now += pause;
        session.handle_timeout(at(now));
        assert_eq!(session.state(), SessionState::Subscribing);
    }
    // Ready for less than the longest pause: one more failure. For as long: the first one.
    for (good, full) in [(79, 80), (80, 10)] {
        let epoch = session.epoch().expect("assigned").get();
        hand(&mut session, stream(now, epoch).snapshot(), now);
        assert_eq!(session.state(), SessionState::Ready);
        now += good;
        session.handle_disconnected(at(now));
        let pause = pause(&session, now);
        assert!((full / 2..=full).contains(&pause), "{pause} of {full}");
        now += pause;
        session.handle_timeout(at(now));
    }
    for _ in 0..4 {
        session.handle_disconnected(at(now));
        now += pause(&session, now);
        session.handle_timeout(at(now));
    }
    session.assign(DcId::new(DC), Epoch::new(1000), at(now)).expect("newer");
    session.handle_disconnected(at(now));
    assert!(pause(&session, now) <= 10);
}

#[test]
fn lanes_of_one_seed_do_not_come_back_in_one_instant() {
    let domain = domain();
    let manifest = (0..16)
        .fold(Manifest::builder(domain, format(BUCKETS)), |builder, dc| builder.dc(DcId::new(dc)))
        .build()
        .expect("distinct");
    let pauses = |seed| {
        let config = ConsumerConfig::default().with_seed(seed);
        let (_query, sessions) =
            Consumer::new(&manifest, config, ConsumerId::new(1)).expect("memory");
        let pauses = sessions.into_iter().map(|mut session| {
            session.assign(DcId::new(1), Epoch::new(1), at(0)).expect("first");
            session.handle_disconnected(at(0));
            session.poll_timeout().expect("it backs off").0
        });
        pauses.collect::<Vec<_>>()
    };
    let distinct: std::collections::HashSet<_> = pauses(1).into_iter().collect();
    assert!(distinct.len() > 8, "{distinct:?}");
    assert_eq!(pauses(1), pauses(1));
    assert_ne!(pauses(1), pauses(2));
}

#[test]
fn the_silence_is_broken_by_what_is_new_and_by_nothing_else() {
    let (mut session, mut stream) = ready();
    let due = |session: &Session| session.poll_timeout().expect("silence").0.as_millis();
    let begin = stream.begin();
    let old = stream.delta(&[(0, 77)]);
    let foreign = on_another_lease(&stream);
    hand(&mut session, [old.clone()], 100);
    assert_eq!(due(&session), 6100);
    hand(&mut session, [stream.heartbeat(false)], 200);
    assert_eq!(due(&session), 6200);
    hand(&mut session, [old, begin, stream.chunks()[0].clone(), foreign], 300);
    assert_eq!(session.state(), SessionState::Ready);
    assert_eq!(due(&session), 6200);
    // A snapshot's deadline counts from its last chunk.
    let (mut session, stream) = (subscribed(), self::stream(5, 1));
    hand(&mut session, [stream.begin()], 0);
    hand(&mut session, [stream.chunks()[0].clone()], 400);
    hand(&mut session, [stream.chunks()[0].clone(), stream.heartbeat(false)], 450);
    assert_eq!(session.poll_timeout(), Some((at(900), Waiting::SnapshotProgress)));
}

/// A heartbeat of the same stream on another lease.
fn on_another_lease(stream: &Stream) -> Vec<u8> {
    let mut other = stream.clone();
    other.terms.lease = LeaseId::new(99).expect("not 0");
    other.heartbeat(false)
}

#[test]
fn only_a_drain_marker_that_agrees_is_told() {
    let (mut session, stream) = ready();
    let _ = events(&mut session);
    hand(&mut session, [stream.heartbeat(false)], 1);
    assert_eq!(events(&mut session), []);
    hand(&mut session, [stream.heartbeat(true)], 1);
    let sequence = stream.sequence;
    assert_eq!(events(&mut session), [SessionEvent::Drained { sequence }]);
}

#[test]
fn events_that_nobody_fetches_are_bounded_and_counted() {
    let (mut session, stream) = ready();
    hand(&mut session, (0..200).map(|_| stream.heartbeat(true)), 1);
    assert_eq!(events(&mut session).len(), Session::MAX_EVENTS);
    // The one that says "ready" is the first to give way.
    assert_eq!(session.stats().events_dropped, 201 - Session::MAX_EVENTS as u64);
}

#[test]
fn a_session_without_a_further_epoch_has_no_pool() {
    let mut session = session(1, 2, format(BUCKETS), quick_session());
    session.assign(DcId::new(DC), Epoch::new(u64::MAX), at(0)).expect("the last one");
    session.handle_disconnected(at(0));
    let (due, _) = session.poll_timeout().expect("it backs off");
    let _ = events(&mut session);
    session.handle_timeout(due);
    assert_eq!((session.state(), session.poll_timeout()), (SessionState::Unassigned, None));
    let failure = Failure::EpochsExhausted;
    assert_eq!(events(&mut session), [SessionEvent::Retired { failure, was_ready: false }]);
    assert!(session.assign(DcId::new(DC), Epoch::new(u64::MAX), due).is_err());
}

/// All parts of one batch, or none: what another part says of a batch that is half there.
#[test]
fn a_mark_in_the_middle_of_a_batch_says_nothing_new() {
    let (mut session, mut stream) = ready();
    let before = stream.clone();
    let mut frame = stream.delta(&[(0, 77)]);
    frame[24 + 22] = 0; // not the last part
    ckf_testkit::forge::reseal(&mut frame);
    let fate = session.handle_frame(&frame, at(1));
    assert_eq!(fate, Handled::Applied(before.sequence));
    assert!(!session.is_between_batches());
    for mark in [before.heartbeat(false), before.heartbeat(true), before.end()] {
        let fate = session.handle_frame(&mark, at(2));
        assert!(matches!(fate, Handled::Ignored(_)), "{fate:?}");
    }
    let fate = session.handle_frame(&stream.heartbeat(false), at(2));
    assert!(matches!(fate, Handled::Retired(Failure::Gap { .. })), "{fate:?}");
}

#[test]
fn freshness_tells_of_the_last_message_that_was_new() {
    let manifest = Manifest::builder(domain(), format(BUCKETS)).dc(DcId::new(DC)).build();
    let (query, mut sessions) =
        Consumer::new(&manifest.expect("one lane"), ConsumerConfig::default(), ConsumerId::new(1))
            .expect("memory");
    let (session, lane) = (&mut sessions[0], Lane::new(0).expect("below 64"));
    session.assign(DcId::new(DC), Epoch::new(1), at(0)).expect("first");
    let mut stream = stream(5, 1);
    stream.terms.lane = lane;
    for frame in stream.snapshot() {
        assert_eq!(query.freshness(lane), None);
        let _ = session.handle_frame(&frame, at(10));
    }
    let mut hear = |frame: &[u8], now| {
        let _ = session.handle_frame(frame, at(now));
        let fresh = query.freshness(lane).expect("ready");
        (fresh.dc.get(), fresh.sequence.get(), fresh.last_message.as_millis())
    };
    assert_eq!(hear(&stream.heartbeat(false), 20), (DC, 10, 20));
    let delta = stream.delta(&[(0, 77)]);
    assert_eq!(hear(&delta, 30), (DC, 11, 30));
    assert_eq!(hear(&delta, 40), (DC, 11, 30));
    assert_eq!(hear(&stream.heartbeat(true), 50), (DC, 11, 50));
}
