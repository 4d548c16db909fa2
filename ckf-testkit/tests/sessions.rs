//! One producer and a few lanes on perfect links: the plain path, and who hears what.

use ckf_consumer::{Handled, SessionEvent, SessionState};
use ckf_core::BlockHash;
use ckf_producer::{Member, SubscriberId};
use ckf_protocol::Sequence;
use ckf_testkit::scenario::*;

const LINK: SubscriberId = SubscriberId::new(1);

#[test]
fn a_lane_follows_its_pool_from_the_snapshot_on() {
    let format = format(300);
    let mut producer = producer(7, 1, format, small_publish(32));
    let mut session = session(1, 0, format, quick_session());
    let member = Member::new(1, 0);
    producer.store(member, &hashes(0..400));
    producer.publish(at(0)).unwrap();
    assign(&mut session, 7, 0);

    let fates = exchange(&mut producer, LINK, &mut session, 1);
    assert_eq!(fates.first(), Some(&Handled::Installing));
    assert_eq!(fates.last(), Some(&Handled::Ready(Sequence::new(1))));
    assert_eq!(fates.len(), 12, "begin, ten chunks, end");
    assert!(converged(&producer, &session));

    for i in 0..50 {
        producer.store(member, &hashes(1000 + i * 4..1004 + i * 4));
        producer.remove(member, &hashes([i]));
        producer.publish(at(2 + i)).unwrap();
        let fates = exchange(&mut producer, LINK, &mut session, 2 + i);
        assert_eq!(fates, [Handled::Applied(Sequence::new(2 + i))]);
        assert!(converged(&producer, &session));
    }
    producer.drain(at(100)).unwrap();
    exchange(&mut producer, LINK, &mut session, 100);
    let events: Vec<_> = std::iter::from_fn(|| session.poll_event()).collect();
    let sequence = Sequence::new(51);
    assert!(
        matches!(events[..], [SessionEvent::Ready { .. }, SessionEvent::Drained { sequence: s }] if s == sequence)
    );
    assert_eq!(session.state(), SessionState::Ready);
    assert_eq!(session.stats().failures.total(), 0);
    assert!(producer.pool().table().contains(BlockHash::new(1000)));
}
