//! What a lane makes of single messages at the edges of its rules: each row of the table "What a reader
//! makes of a frame" in docs/WIRE.md, deadlines, counters and the order of stores.

use std::cell::RefCell;
use std::rc::Rc;

use ckf_consumer::{
    Failure, Handled, Ignored, LaneSession, LaneStore, SessionConfig, SessionEvent, SessionState,
    SessionTimes, Waiting,
};
use ckf_core::{BucketImage, BucketIndex, Format};
use ckf_protocol::{
    ConsumerId, DcId, DeltaWriter, Epoch, Fault, Incarnation, Instant, Lane, LayoutGeneration,
    LeaseId, LeaseTerms, Limits, Millis, ProducerExpectation, ProducerIdentity, Sequence,
    SnapshotEnd, Subscribe, Unsubscribe, VersionRange,
};
use ckf_testkit::forge::Stream;
use ckf_testkit::scenario::*;

const DC: u64 = 7;
const BUCKETS: u32 = 100;
const CHUNK: u32 = 40;

/// Times that cannot be mistaken for each other.
fn config() -> SessionConfig {
    let times = SessionTimes {
        subscribe: Millis::new(1_000),
        snapshot_progress: Millis::new(20_000),
        silence: Millis::new(300_000),
        backoff_min: Millis::new(10),
        backoff_max: Millis::new(80),
    };
    SessionConfig::new(times, Limits::default()).expect("legal times")
}

fn terms(epoch: u64) -> LeaseTerms {
    LeaseTerms {
        lease: LeaseId::new(4 + epoch).expect("not 0"),
        consumer: ConsumerId::new(1),
        lane: Lane::new(2).expect("below 64"),
        epoch: Epoch::new(epoch),
    }
}

fn stream(epoch: u64) -> Stream {
    let identity = ProducerIdentity {
        pool: pool_id(DC),
        incarnation: Incarnation::new(1),
        layout: LayoutGeneration::FIRST,
        format: format(BUCKETS),
    };
    let words = (0..u64::from(BUCKETS)).map(|bucket| bucket * 0x0001_0000_0001).collect();
    Stream::new(terms(epoch), identity, 10, words, CHUNK)
}

fn subscribed() -> Session {
    let mut session = session(1, 2, format(BUCKETS), config());
    assign(&mut session, DC, 0);
    assert!(session.poll_transmit().is_some());
    session
}

/// A session that has heard the first `frames` of the snapshot.
fn installing(frames: usize) -> (Session, Stream) {
    let (mut session, stream) = (subscribed(), stream(1));
    for frame in &stream.snapshot()[..frames] {
        let fate = session.handle_frame(frame, at(1));
        assert!(!matches!(fate, Handled::Ignored(_) | Handled::Retired(_)), "{fate:?}");
    }
    (session, stream)
}

/// Begin, three chunks, end.
fn ready() -> (Session, Stream) {
    installing(5)
}

/// What was there, parts of the next batch included, and what came: without the parts, nobody could
/// tell that one of them is missing.
fn gap_after(installed: u64, parts: u32, found: u64) -> Handled {
    let (installed, found) = (Sequence::new(installed), Sequence::new(found));
    Handled::Retired(Failure::Gap { installed, parts, found })
}

fn gap(found: u64) -> Handled {
    gap_after(10, 0, found)
}

fn snapshot_gap(expected: u32, found: u32) -> Handled {
    Handled::Retired(Failure::SnapshotGap { expected, found })
}

const AGAIN: Handled = Handled::Ignored(Ignored::Duplicate);
const DIVERGED: Handled = Handled::Retired(Failure::DigestMismatch);

fn end(of: &Stream, sequence: u64, digest: ckf_core::TableDigest) -> Vec<u8> {
    let sequence = Sequence::new(sequence);
    SnapshotEnd { sequence, digest }.to_body().frame(of.terms.lease).to_bytes()
}

/// The next batch in parts of one patch each.
fn parts(of: &mut Stream, changes: &[(u32, u64)]) -> Vec<Vec<u8>> {
    let limits = Limits::new(1 << 20, 1, 1 << 10).expect("legal");
    let before = of.clone();
    let _ = of.delta(changes);
    let mut writer = DeltaWriter::new(of.sequence, before.digest(), &limits);
    for &(bucket, word) in changes {
        let was = BucketImage::new(before.words[bucket as usize]);
        writer.push(bucket, was, BucketImage::new(word)).expect("ascending");
    }
    let batch = writer.finish().expect("not batch 0");
    batch.parts.iter().map(|part| part.frame(of.terms.lease).to_bytes()).collect()
}

#[test]
fn an_end_counts_only_where_the_table_is_whole_and_equal() {
    let (session, stream) = installing(4);
    let fate =
        |sequence, digest| session.clone().handle_frame(&end(&stream, sequence, digest), at(2));
    assert_eq!(fate(10, stream.digest()), Handled::Ready(Sequence::new(10)));
    assert_eq!([fate(11, stream.digest()), fate(9, stream.digest())], [gap(11), gap(9)]);
    let mut other = stream.clone();
    other.words[99] ^= 1;
    assert_eq!(fate(10, other.digest()), DIVERGED);
    // A part of the next batch is there already.
    let mut partly = session.clone();
    let first = &parts(&mut stream.clone(), &[(1, 5), (2, 6)])[0];
    assert_eq!(partly.handle_frame(first, at(2)), Handled::Applied(Sequence::new(10)));
    assert_eq!(partly.handle_frame(&stream.end(), at(2)), gap_after(10, 1, 10));
    // Chunks are missing.
    let (mut early, _) = installing(3);
    assert_eq!(early.handle_frame(&stream.end(), at(2)), snapshot_gap(80, 100));
    // And again, when the lane is ready.
    let (mut session, _) = ready();
    assert_eq!(session.handle_frame(&stream.end(), at(2)), AGAIN);
    assert_eq!(session.handle_frame(&end(&stream, 9, other.digest()), at(2)), AGAIN);
    assert_eq!(session.handle_frame(&end(&stream, 11, stream.digest()), at(2)), gap(11));
}

#[test]
fn chunks_count_only_with_the_bounds_that_were_announced() {
    let (session, stream) = installing(3);
    let before = session.store().words();
    let chunk = |first: u32, count: usize| {
        let words = stream.words[first as usize..].iter().copied().take(count);
        let body = ckf_protocol::encode_chunk(first, words.collect::<Vec<_>>(), &Limits::default());
        let frame = body.expect("inside").frame(stream.terms.lease).to_bytes();
        let mut session = session.clone();
        let fate = session.handle_frame(&frame, at(2));
        assert!(fate == Handled::Chunk || session.store().words() == before, "{fate:?}");
        fate
    };
    assert_eq!(chunk(80, 20), Handled::Chunk);
    assert_eq!([chunk(0, 40), chunk(40, 40)], [AGAIN, AGAIN]);
    // Other bounds than those announced.
    for (first, count) in [(80, 19), (80, 1), (0, 39), (40, 60), (10, 40), (41, 40), (81, 19)] {
        assert_eq!(chunk(first, count), snapshot_gap(80, first), "{first} {count}");
    }
    assert_eq!(installing(2).0.handle_frame(&stream.chunks()[2], at(2)), snapshot_gap(40, 80));
}

/// A reader whose limits are below what its producer writes hears of the limit, not of the gap that
/// a frame left aside would make.
#[test]
fn a_frame_above_the_limits_retires_the_lane_and_names_the_limit() {
    let limits = Limits::new(256, 1, 26).expect("legal");
    let narrow = SessionConfig::new(*config().times(), limits).expect("legal times");
    let mut session = session(1, 2, format(BUCKETS), narrow);
    assign(&mut session, DC, 0);
    let mut foreign = stream(1);
    foreign.words.fill(u64::MAX);
    let frames = foreign.snapshot();
    assert_eq!(session.handle_frame(&frames[0], at(1)), Handled::Installing);

    foreign.terms.lease = LeaseId::new(99).expect("not 0");
    let fate = session.handle_frame(&foreign.chunks()[0], at(1));
    assert_eq!(fate, Handled::Ignored(Ignored::ForeignLease), "whatever its length");

    let fate = session.handle_frame(&frames[1], at(1));
    let Handled::Retired(Failure::Malformed(error)) = fate else { panic!("{fate:?}") };
    let value = frames[1].len() as u64 - 24;
    assert_eq!(
        (error.field, error.fault),
        ("header.body_length", Fault::Limit { value, limit: 232 })
    );
}

#[test]
fn parts_come_one_after_the_other_and_may_come_again() {
    let (mut session, mut stream) = ready();
    let _ = session.handle_frame(&stream.delta(&[(3, 1)]), at(2));
    let parts = parts(&mut stream, &[(1, 5), (2, 6), (50, 7)]);
    let (done, part) = (Handled::Applied(Sequence::new(12)), Handled::Applied(Sequence::new(11)));
    assert_eq!(session.clone().handle_frame(&parts[1], at(2)), gap_after(11, 0, 12));
    let mut one = session.clone();
    assert_eq!(one.handle_frame(&parts[0], at(2)), part);
    assert_eq!(one.clone().handle_frame(&parts[2], at(2)), gap_after(11, 1, 12));
    assert_eq!(one.handle_frame(&stream.heartbeat(false), at(2)), gap_after(11, 1, 12));
    for (index, expected) in [(0, part), (0, AGAIN), (1, part), (0, AGAIN), (1, AGAIN), (2, done)] {
        assert_eq!(session.handle_frame(&parts[index], at(2)), expected, "{index}");
        assert_eq!(session.is_between_batches(), expected == done);
    }
    // Of the batch that is complete, only the last part tells the whole.
    for part in &parts {
        assert_eq!(session.handle_frame(part, at(2)), AGAIN);
    }
    assert_eq!(session.store().words(), stream.words);
    // The next batch begins with part 0.
    let next = Handled::Applied(Sequence::new(13));
    assert_eq!(session.handle_frame(&stream.delta(&[(9, 9)]), at(2)), next);
}

#[test]
fn while_a_snapshot_arrives_positions_count_and_digests_do_not() {
    let (mut session, stream) = installing(2);
    let (mut ours, mut theirs) = (stream.clone(), stream.clone());
    let (frame, fork) = (ours.delta(&[(3, 1), (70, 2)]), theirs.delta(&[(3, 1), (71, 2)]));
    let before = session.store().words()[40..].to_vec();
    assert_eq!(session.handle_frame(&frame, at(2)), Handled::Applied(Sequence::new(11)));
    // What no chunk has brought yet is left out.
    assert_eq!(session.store().words()[..40], ours.words[..40]);
    assert_eq!(session.store().words()[40..], before);
    assert_eq!(
        [session.handle_frame(&fork, at(2)), session.handle_frame(&frame, at(2))],
        [AGAIN; 2]
    );
    let alive = Handled::Alive(Sequence::new(11));
    for heartbeat in [ours.heartbeat(false), theirs.heartbeat(true)] {
        assert_eq!(session.handle_frame(&heartbeat, at(2)), alive);
    }
    for frame in &ours.chunks()[1..] {
        assert_eq!(session.handle_frame(frame, at(2)), Handled::Chunk);
    }
    assert_eq!(session.handle_frame(&ours.end(), at(2)), Handled::Ready(Sequence::new(11)));
    assert_eq!(session.store().words(), ours.words);
    let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).collect();
    assert!(matches!(events[..], [SessionEvent::Ready { .. }]), "not drained before: {events:?}");
}

#[test]
fn an_offer_of_an_epoch_that_was_not_asked_for_is_given_back() {
    for epoch in [0, 2, u64::MAX - 4] {
        let (mut session, other) = (subscribed(), stream(epoch));
        let fate = session.handle_frame(&other.begin(), at(1));
        assert_eq!(fate, Handled::Ignored(Ignored::ForeignTerms), "{epoch}");
        assert_eq!(session.state(), SessionState::Subscribing);
        let expected = Unsubscribe { lease: other.terms.lease }.to_frame().to_bytes();
        assert_eq!(session.poll_transmit(), Some(expected), "{epoch}");
    }
}

#[test]
fn what_only_a_consumer_says_changes_nothing() {
    let (mut session, stream) = ready();
    let LeaseTerms { lease, consumer, lane, epoch } = stream.terms;
    let expected = ProducerExpectation { pool: pool_id(DC), format: format(BUCKETS) };
    let versions = VersionRange::SUPPORTED;
    let subscribe = Subscribe { consumer, lane, epoch, expected, versions }.to_frame().to_bytes();
    let unsubscribe = Unsubscribe { lease }.to_frame().to_bytes();
    for frame in [subscribe, unsubscribe] {
        let fate = session.handle_frame(&frame, at(1));
        assert_eq!(fate, Handled::Ignored(Ignored::WrongDirection));
    }
    assert_eq!(session.stats().ignored.wrong_direction, 2);
    session.unassign(at(2));
    let fate = session.handle_frame(&stream.heartbeat(false), at(2));
    assert_eq!(fate, Handled::Ignored(Ignored::Unassigned));
}

#[test]
fn each_wait_has_its_own_deadline_from_its_own_moment() {
    let mut session = subscribed();
    let stream = stream(1);
    let due = |session: &Session| {
        let (due, waiting) = session.poll_timeout().expect("it waits");
        (due.as_millis(), waiting)
    };
    assert_eq!(due(&session), (1_000, Waiting::Subscribe));
    for (frame, now) in stream.snapshot()[..4].iter().zip([100, 200, 300, 400]) {
        let _ = session.handle_frame(frame, at(now));
        assert_eq!(due(&session), (now + 20_000, Waiting::SnapshotProgress));
    }
    let _ = session.handle_frame(&stream.end(), at(500));
    assert_eq!(due(&session), (300_500, Waiting::Silence));
    // Time that goes back is ignored, by every call.
    session.handle_timeout(at(3));
    session.handle_disconnected(at(3));
    let (end, waiting) = due(&session);
    assert!(waiting == Waiting::BackOff && (505..=510).contains(&end), "{end}");
    // A lost connection that is told again is no other failure.
    session.handle_disconnected(at(504));
    assert_eq!((due(&session), session.stats().failures.total()), ((end, waiting), 1));
    session.unassign(at(700));
    session.assign(DcId::new(DC), Epoch::new(9), at(4)).expect("newer");
    assert_eq!(due(&session), (1_700, Waiting::Subscribe));
}

#[test]
fn counters_count_what_they_say() {
    let (mut session, mut stream) = ready();
    let mut bytes: usize = stream.snapshot().iter().map(Vec::len).sum();
    let delta = stream.delta(&[(3, 1), (4, 2), (70, 3)]);
    for frame in [delta.clone(), delta, stream.heartbeat(true)] {
        bytes += frame.len();
        let _ = session.handle_frame(&frame, at(2));
    }
    let stats = *session.stats();
    assert_eq!((stats.snapshots, stats.chunks, stats.deltas, stats.patches), (1, 3, 1, 3));
    assert_eq!((stats.heartbeats, stats.bytes), (1, bytes as u64));
    assert_eq!((stats.subscribes, stats.resyncs), (1, 0));
    for lost in 1..3 {
        session.handle_disconnected(at(3));
        let (due, _) = session.poll_timeout().expect("a back-off");
        session.handle_timeout(due);
        assert_eq!((session.stats().subscribes, session.stats().resyncs), (1 + lost, lost));
    }
    let mut sum = stats;
    sum += *session.stats();
    assert_eq!((sum.subscribes, sum.bytes, sum.failures.total()), (4, 2 * bytes as u64, 2));
}

#[test]
fn of_events_that_nobody_fetches_the_oldest_give_way() {
    let mut session = subscribed();
    session.handle_timeout(at(1_000));
    for epoch in 3..=Session::MAX_EVENTS as u64 + 4 {
        session.assign(DcId::new(DC), Epoch::new(epoch), at(1_000)).expect("newer");
    }
    session.handle_disconnected(at(1_000));
    let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).collect();
    assert_eq!((events.len(), session.stats().events_dropped), (Session::MAX_EVENTS, 4));
    let last = SessionEvent::Retired { failure: Failure::Disconnected, was_ready: false };
    assert_eq!(events.last(), Some(&last));
    let first = Failure::SubscribeDeadline;
    assert!(
        !events
            .iter()
            .any(|e| matches!(e, SessionEvent::Retired { failure, .. } if *failure == first))
    );
}

/// A lane that writes down what is done to it.
#[derive(Debug)]
struct Recorded {
    format: Format,
    words: Vec<u64>,
    stores: Rc<RefCell<Vec<u32>>>,
}

impl LaneStore for Recorded {
    fn format(&self) -> &Format {
        &self.format
    }
    fn begin_install(&mut self, _: DcId) {}
    fn store_run(&mut self, first: BucketIndex, images: impl Iterator<Item = BucketImage>) {
        for (word, image) in self.words[first.to_usize()..].iter_mut().zip(images) {
            *word = image.get();
        }
    }
    fn publish_ready(&mut self, _: Sequence, _: Instant) {}
    fn word(&self, bucket: BucketIndex) -> BucketImage {
        BucketImage::new(self.words[bucket.to_usize()])
    }
    fn store(&mut self, bucket: BucketIndex, image: BucketImage) {
        self.stores.borrow_mut().push(bucket.get());
        self.words[bucket.to_usize()] = image.get();
    }
    fn note(&mut self, _: Sequence, _: Instant) {}
    fn retire(&mut self) {}
}

#[test]
fn buckets_that_gain_are_stored_before_those_that_lose_and_each_once() {
    let stores = Rc::new(RefCell::new(Vec::new()));
    let (format, words) = (format(BUCKETS), vec![0; BUCKETS as usize]);
    let store = Recorded { format, words, stores: Rc::clone(&stores) };
    let (consumer, lane) = (ConsumerId::new(1), terms(1).lane);
    let mut session = LaneSession::new(store, config(), consumer, lane, domain(), 1);
    session.assign(DcId::new(DC), Epoch::new(1), at(0)).expect("first");
    let mut stream = stream(1);
    for frame in stream.snapshot() {
        let _ = session.handle_frame(&frame, at(0));
    }
    assert_eq!(session.state(), SessionState::Ready);
    // 3, 40 and 90 lose a fingerprint, 4, 41 and 99 gain one.
    let word = |bucket: usize| stream.words[bucket];
    let changes = [
        (3, word(3) & 0xFFFF),
        (4, word(4) | 5 << 48),
        (40, 0),
        (41, word(41) | 5 << 48),
        (90, word(90) & 0xFFFF),
        (99, word(99) | 5 << 16),
    ];
    let frame = stream.delta(&changes);
    assert_eq!(session.handle_frame(&frame, at(1)), Handled::Applied(Sequence::new(11)));
    assert_eq!(*stores.borrow(), [4, 41, 99, 3, 40, 90]);
    assert_eq!(session.store().words, stream.words);
}
