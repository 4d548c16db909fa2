//! Field reports on the shipped consumer: producers, sessions, the shared table and what queries
//! answer meanwhile.

use ckf_consumer::{Consumer, ConsumerConfig, Handled, LaneSession, QueryHandle, SessionState};
use ckf_core::{BlockHash, Format};
use ckf_producer::{Member, Producer, SubscriberId};
use ckf_protocol::{
    ConsumerId, DcId, Epoch, Incarnation, Lane, LayoutGeneration, LeaseId, LeaseTerms, Manifest,
    ProducerIdentity, RetireReason, Sequence,
};
use ckf_testkit::forge::Stream;
use ckf_testkit::scenario::*;

const MEMBER: Member = Member::new(1, 0);
const CONSUMER: u64 = 1;

/// A consumer of data centers 100, 101, ... and its producers.
struct Region {
    format: Format,
    queries: QueryHandle,
    sessions: Vec<LaneSession>,
    producers: Vec<Producer>,
    now: u64,
}

fn link(lane: usize) -> SubscriberId {
    SubscriberId::new(lane as u64)
}

fn lane(number: usize) -> Lane {
    Lane::new(number as u8).expect("below 64")
}

impl Region {
    fn new(lanes: usize, format: Format) -> Self {
        let dcs = (100..).take(lanes).map(DcId::new);
        let manifest = dcs.fold(Manifest::builder(domain(), format), |builder, dc| builder.dc(dc));
        let config = ConsumerConfig::default().with_session(quick_session());
        let (queries, sessions) =
            Consumer::new(&manifest.build().expect("pools"), config, ConsumerId::new(CONSUMER))
                .expect("memory");
        let producers = (100..).take(lanes).map(|dc| producer(dc, 1, format, small_publish(32)));
        Self { format, queries, sessions, producers: producers.collect(), now: 0 }
    }

    fn assign(&mut self, at_lane: usize) {
        let epoch = self.sessions[at_lane].epoch().map_or(1, |epoch| epoch.get() + 1);
        let dc = DcId::new(100 + at_lane as u64);
        self.sessions[at_lane].assign(dc, Epoch::new(epoch), at(self.now)).expect("newer");
    }

    /// Publishes, and carries frames both ways until a lane rests.
    fn settle(&mut self, at_lane: usize) {
        let (session, producer) = (&mut self.sessions[at_lane], &mut self.producers[at_lane]);
        producer.publish(at(self.now)).expect("numbers last");
        loop {
            let mut idle = true;
            while let Some(frame) = session.poll_transmit() {
                let _ = producer.handle_frame(link(at_lane), &frame, at(self.now));
                idle = false;
            }
            while let Some(frame) = producer.poll_frame(link(at_lane), at(self.now)) {
                let _ = session.handle_frame(&frame.to_bytes(), at(self.now));
                idle = false;
            }
            if idle {
                return;
            }
        }
    }

    /// Lets a lane's back-off pass.
    fn wait(&mut self, at_lane: usize) {
        let (due, _) = self.sessions[at_lane].poll_timeout().expect("a back-off");
        self.now = self.now.max(due.as_millis());
        self.sessions[at_lane].handle_timeout(at(self.now));
    }

    fn depths(&self, prefix: &[BlockHash]) -> Vec<Option<u32>> {
        let matches = self.queries.find_prefix(prefix);
        (0..self.sessions.len()).map(|number| matches.depth(lane(number))).collect()
    }

    fn words(&self, at_lane: usize) -> Vec<u64> {
        let store = self.sessions[at_lane].store();
        self.format.buckets().map(|bucket| store.word(bucket).get()).collect()
    }
}

/// What a producer in lane 0's data center would say, written by hand.
fn stream(lease: u64, epoch: u64, incarnation: u64, sequence: u64, words: Vec<u64>) -> Stream {
    let terms = LeaseTerms {
        lease: LeaseId::new(lease).expect("not 0"),
        consumer: ConsumerId::new(CONSUMER),
        lane: lane(0),
        epoch: Epoch::new(epoch),
    };
    let identity = ProducerIdentity {
        pool: pool_id(100),
        incarnation: Incarnation::new(incarnation),
        layout: LayoutGeneration::FIRST,
        format: format(words.len() as u32),
    };
    Stream::new(terms, identity, sequence, words, 32)
}

/// Words of a filter that holds these blocks.
fn words_of(format: Format, blocks: &[BlockHash]) -> Vec<u64> {
    let mut table = ckf_core::Table::new(format).expect("small");
    for block in blocks {
        table.insert(&format.address(*block), |_| ()).expect("room");
    }
    table.words().to_vec()
}

/// Two lanes: the second one is ready and holds the prefix, the first one has subscribed.
fn two_lanes(prefix: &[BlockHash]) -> Region {
    let mut region = Region::new(2, format(128));
    region.producers[1].store(MEMBER, prefix);
    region.assign(1);
    region.settle(1);
    region.assign(0);
    assert!(region.sessions[0].poll_transmit().is_some());
    region
}

#[test]
fn f30_a_filter_of_another_format_never_reaches_the_table() {
    let prefix = hashes(0..40);
    let mut region = two_lanes(&prefix);
    let before = region.words(0);
    let formats = [
        Format::any_count(128, 43).expect("another seed"),
        Format::any_count(32, 42).expect("fewer buckets"),
        Format::any_count(127, 42).expect("one less"),
        Format::any_count(129, 42).expect("one more"),
        Format::power_of_two(128, 42).expect("another indexing"),
    ];
    for (number, format) in (0..).zip(formats) {
        let mut foreign = stream(50 + number, 1, 1, 3, words_of(format, &prefix));
        foreign.terms.epoch = region.sessions[0].epoch().expect("assigned");
        foreign.identity.format = format;
        for frame in foreign.snapshot() {
            let fate = region.sessions[0].handle_frame(&frame, at(region.now));
            assert!(matches!(fate, Handled::Ignored(_) | Handled::Retired(_)), "{fate:?}");
            assert_eq!(region.depths(&prefix), [None, Some(40)]);
        }
        assert_eq!(region.words(0), before, "{format:?}");
        while region.sessions[0].state() != SessionState::Subscribing {
            region.wait(0);
        }
        let _ = region.sessions[0].poll_transmit();
    }
    // The right one is taken.
    let mut own = stream(60, 1, 1, 3, words_of(region.format, &prefix[..7]));
    own.terms.epoch = region.sessions[0].epoch().expect("assigned");
    for frame in own.snapshot() {
        let _ = region.sessions[0].handle_frame(&frame, at(region.now));
    }
    assert_eq!(region.depths(&prefix), [Some(7), Some(40)]);
}

#[test]
fn f33_a_refused_update_costs_its_lane_and_no_other() {
    let prefix = hashes(0..40);
    let mut region = two_lanes(&prefix);
    let mut lease = 70;
    for fault in 0..4 {
        lease += 1;
        let epoch = region.sessions[0].epoch().expect("assigned").get();
        let mut own = stream(lease, epoch, 1, 10, words_of(region.format, &prefix[..9]));
        for frame in own.snapshot() {
            let _ = region.sessions[0].handle_frame(&frame, at(region.now));
        }
        assert_eq!(region.depths(&prefix), [Some(9), Some(40)]);
        let words = region.words(0);
        let frame = match fault {
            // 12 -> 13 after 10.
            0 => {
                own.sequence = Sequence::new(12);
                own.delta(&[(3, 1)])
            }
            // Made for other words than those that are there.
            1 => {
                own.words[90] ^= 1;
                own.delta(&[(3, 1)])
            }
            // A bit flips on the way.
            2 => {
                let mut frame = own.delta(&[(3, 1), (5, 2)]);
                *frame.last_mut().expect("bytes") ^= 1;
                frame
            }
            // The end is cut off.
            _ => {
                let frame = own.delta(&[(3, 1), (5, 2)]);
                frame[..frame.len() - 1].to_vec()
            }
        };
        let fate = region.sessions[0].handle_frame(&frame, at(region.now));
        assert!(matches!(fate, Handled::Retired(_)), "{fate:?}");
        assert_eq!(region.words(0), words, "no bucket of any lane changes");
        assert_eq!(region.depths(&prefix), [None, Some(40)]);
        // Nothing but a new lease and a snapshot brings it back.
        let fate = region.sessions[0].handle_frame(&own.heartbeat(false), at(region.now));
        assert!(matches!(fate, Handled::Ignored(_)), "{fate:?}");
        region.wait(0);
        assert!(region.sessions[0].poll_transmit().is_some());
    }
}

#[test]
fn f34_queries_never_see_what_a_former_holder_says() {
    let prefix = hashes(0..40);
    let mut region = two_lanes(&prefix);
    let mut former = stream(5, 1, 1, 12, words_of(region.format, &prefix));
    for frame in former.snapshot() {
        let _ = region.sessions[0].handle_frame(&frame, at(0));
    }
    assert_eq!(region.depths(&prefix), [Some(40), Some(40)]);
    region.assign(0);
    assert_eq!(region.depths(&prefix), [None, Some(40)], "revoked");
    let epoch = region.sessions[0].epoch().expect("assigned").get();
    let mut holder = stream(6, epoch, 2, 0, words_of(region.format, &prefix[..5]));
    let mut frames = holder.snapshot();
    let changed = holder.words[0] ^ 0x0001_0000_0000_0000;
    frames.push(holder.delta(&[(0, changed)]));
    // Before, between and after the frames of the new holder, whose numbers fit those of the old.
    for frame in frames {
        former.sequence = Sequence::new(0);
        let mut old = former.snapshot();
        let other = former.words[1] ^ 5;
        old.extend([former.delta(&[(1, other)]), former.heartbeat(true)]);
        old.push(former.retire(RetireReason::Shutdown));
        for frame in old {
            let fate = region.sessions[0].handle_frame(&frame, at(1));
            assert!(matches!(fate, Handled::Ignored(_)), "{fate:?}");
        }
        let fate = region.sessions[0].handle_frame(&frame, at(1));
        assert!(!matches!(fate, Handled::Ignored(_) | Handled::Retired(_)), "{fate:?}");
    }
    assert_eq!(region.words(0), holder.words);
    assert_eq!(region.queries.freshness(lane(0)).map(|f| f.sequence), Some(Sequence::new(1)));
}

#[test]
fn f37_what_was_removed_while_a_reader_was_away_is_not_found() {
    let prefix = hashes(0..40);
    let mut region = Region::new(1, format(128));
    region.producers[0].store(MEMBER, &prefix);
    region.producers[0].store(Member::new(2, 0), &prefix[..20]);
    region.assign(0);
    region.settle(0);
    assert_eq!(region.depths(&prefix), [Some(40)]);
    region.sessions[0].handle_disconnected(at(1));
    region.producers[0].handle_disconnected(link(0), at(1));
    for (number, block) in (0..).zip(&prefix) {
        // Block by block, each its own batch; the first twenty have another owner.
        region.producers[0].remove(MEMBER, &[*block]);
        region.producers[0].publish(at(2 + number)).expect("numbers last");
    }
    assert_eq!(region.depths(&prefix), [None]);
    region.wait(0);
    region.settle(0);
    assert_eq!(region.depths(&prefix), [Some(20)]);
    let found: Vec<_> = prefix.iter().map(|block| region.queries.contains(*block).len()).collect();
    assert_eq!(found.iter().sum::<u32>(), 20);
}

#[test]
fn f39_holes_in_the_lanes_of_real_producers() {
    let h = hashes((0..65).map(|number| number * 7919 + 1));
    let mut region = Region::new(5, format(256));
    let held: [Vec<BlockHash>; 4] =
        [[&h[1..3], &h[4..65]].concat(), h[1..41].to_vec(), h[2..65].to_vec(), Vec::new()];
    for (number, blocks) in held.iter().enumerate() {
        // Everything, then evictions: also in the middle.
        region.producers[number].store(MEMBER, &h[1..65]);
        region.assign(number);
        region.settle(number);
        region.producers[number].replace_member(MEMBER, blocks);
        region.settle(number);
    }
    assert_eq!(region.depths(&h[1..65]), [Some(2), Some(40), Some(0), Some(0), None]);
    assert_eq!(region.depths(&[]), [Some(0), Some(0), Some(0), Some(0), None]);
    assert_eq!(region.depths(&h[1..2]), [Some(1), Some(1), Some(0), Some(0), None]);
    assert_eq!(region.depths(&[h[1]; 3]), [Some(3), Some(3), Some(0), Some(0), None]);
    let best = region.queries.find_prefix(&h[1..65]);
    assert_eq!((best.best_depth(), best.best().iter().next()), (Some(40), Some(lane(1))));
}
