//! Suspect exact state: the check finds every kind of fault, the pool is fenced at once, readers are
//! sent away, and a new incarnation built from the sources serves them again.

use ckf_consumer::{Handled, SessionEvent, SessionState};
use ckf_core::BlockHash;
use ckf_producer::{
    Command, CommandError, Corruption, GrowError, HashSeeds, Member, Outcome, Pool, PoolConfig,
    PoolEvent, ProducerEvent, SealError, SubscriberId, Violation, WorkerId,
};
use ckf_protocol::{RejectReason, RetireReason};
use ckf_testkit::scenario::*;

const LINK: SubscriberId = SubscriberId::new(1);
const MEMBERS: [Member; 3] = [Member::new(1, 0), Member::new(1, 1), Member::new(7, 0)];

/// Blocks of one owner, of two and of three; nothing is omitted, everything is sealed.
fn commands() -> [Command; 3] {
    let store = |member, range| Command::Store { member, hashes: hashes(range) };
    [store(MEMBERS[0], 0..300), store(MEMBERS[1], 100..400), store(MEMBERS[2], 200..500)]
}

fn pool() -> Pool {
    let mut pool = Pool::new(PoolConfig::new(format(400), HashSeeds::new([1, 2, 3, 4]))).unwrap();
    commands().iter().for_each(|command| assert_eq!(pool.apply(command).error, None));
    assert!(pool.seal().unwrap().is_some());
    pool
}

fn violation_of(corruption: Corruption) -> Violation {
    match corruption {
        Corruption::StrayMark => Violation::MemberSet { member: MEMBERS[0] },
        Corruption::StrayOmission => Violation::Omissions,
        Corruption::EmptyMember => Violation::Refcounts,
        Corruption::DoubleOwner => Violation::Edges,
        Corruption::Digest
        | Corruption::UnlistedBucket
        | Corruption::TwiceListedBucket
        | Corruption::StrayListing => Violation::Published,
        _ => Violation::Filter,
    }
}

#[test]
fn the_check_finds_every_kind_of_fault() {
    let mut sound = pool();
    for _ in 0..3 {
        assert_eq!(sound.check(), Ok(()));
    }
    assert_eq!(sound.poll_event(), None);
    for corruption in Corruption::ALL {
        let mut pool = pool();
        pool.corrupt(corruption);
        assert_eq!(pool.check(), Err(violation_of(corruption)), "{corruption:?}");
        let violation = violation_of(corruption);
        assert_eq!(pool.check(), Err(violation), "the first reason stays");
    }
}

#[test]
fn a_fenced_pool_refuses_everything_and_says_so_once() {
    for corruption in Corruption::ALL {
        let mut pool = pool();
        pool.corrupt(corruption);
        let violation = pool.check().unwrap_err();
        let (words, stats) = (pool.words().collect::<Vec<_>>(), pool.stats());

        let error = CommandError::Fenced(violation);
        let refused = |failed| {
            let mut outcome = Outcome::default();
            (outcome.failed, outcome.error) = (failed, Some(error));
            outcome
        };
        let blocks = hashes([0, 100, 900]);
        let member = MEMBERS[0];
        assert_eq!(pool.store(member, &blocks), refused(3));
        assert_eq!(pool.store(Member::new(99, 0), &blocks), refused(3));
        // Also what takes the short way: one block that nobody owns.
        assert_eq!(pool.store(member, &hashes([900])), refused(1));
        assert_eq!(pool.remove(member, &blocks), refused(3));
        assert_eq!(pool.clear_member(member), refused(0));
        assert_eq!(pool.remove_worker(WorkerId::new(1)), refused(0));
        assert_eq!(pool.replace_member(member, &blocks), refused(3));
        assert_eq!(pool.flush(), refused(0));
        for command in commands() {
            assert_eq!(pool.apply(&command).error, Some(error));
        }
        assert_eq!(pool.seal().err(), Some(SealError::Fenced(violation)));
        assert_eq!(pool.grow(format(900)).err(), Some(GrowError::Fenced(violation)));
        assert_eq!(pool.check(), Err(violation));

        assert!(pool.words().eq(words));
        assert_eq!(pool.stats(), stats);
        assert_eq!(pool.poll_event(), Some(PoolEvent::Fenced { violation }));
        assert_eq!(pool.poll_event(), None);
    }
}

/// A command that stumbles over the fault fences as well: nothing built on it is published.
#[test]
fn a_command_that_meets_a_fault_fences_the_pool() {
    for corruption in [Corruption::LostFingerprint, Corruption::WrongTag] {
        let mut pool = pool();
        let block = pool.corrupt(corruption);
        let outcome = pool.remove(MEMBERS[0], &[block]);
        let Some(CommandError::Fenced(violation)) = outcome.error else {
            panic!("{corruption:?} passed: {outcome:?}")
        };
        assert_eq!(pool.seal().err(), Some(SealError::Fenced(violation)));
        assert_eq!(pool.poll_event(), Some(PoolEvent::Fenced { violation }));
        assert_eq!(pool.poll_event(), None);
    }
}

#[test]
fn readers_of_a_fenced_pool_are_sent_away_and_a_new_incarnation_serves_them() {
    for corruption in Corruption::ALL {
        let format = format(400);
        let mut producer = producer(7, 1, format, small_publish(32));
        for command in commands() {
            assert_eq!(producer.apply(&command).error, None);
        }
        producer.publish(at(0)).unwrap();
        let mut session = session(1, 0, format, quick_session());
        assign(&mut session, 7, 0);
        exchange(&mut producer, LINK, &mut session, 0);
        assert!(converged(&producer, &session));
        let words = session.store().words().to_vec();

        producer.pool_mut().corrupt(corruption);
        let violation = producer.check().unwrap_err();
        let fates = exchange(&mut producer, LINK, &mut session, 1);
        assert!(matches!(fates[..], [Handled::Retired(_)]), "{fates:?}");
        assert_ne!(session.state(), SessionState::Ready);
        assert_eq!(session.store().words(), words, "nothing of it was published");
        assert_eq!(producer.stats().ended.fenced, 1);
        let events: Vec<_> = std::iter::from_fn(|| producer.poll_event()).collect();
        let fenced = ProducerEvent::Pool(PoolEvent::Fenced { violation });
        assert_eq!(events.iter().filter(|event| **event == fenced).count(), 1, "{events:?}");
        assert!(producer.publish(at(2)).is_err());

        // It comes back, and is refused as long as the pool is the old one.
        let (due, _) = session.poll_timeout().expect("a back-off");
        session.handle_timeout(due);
        let fates = exchange(&mut producer, LINK, &mut session, due.as_millis());
        assert_eq!(fates, [Handled::Rejected(RejectReason::Fenced)]);

        // A new incarnation, rebuilt from the sources.
        let mut producer = ckf_testkit::scenario::producer(7, 2, format, small_publish(32));
        for command in commands() {
            assert_eq!(producer.apply(&command).error, None);
        }
        producer.publish(at(3)).unwrap();
        let (due, _) = session.poll_timeout().expect("a back-off");
        session.handle_timeout(due);
        exchange(&mut producer, LINK, &mut session, due.as_millis());
        assert!(converged(&producer, &session));
        let retired = |event: &SessionEvent| {
            matches!(event, SessionEvent::Retired { failure, .. }
                if *failure == ckf_consumer::Failure::ByProducer(RetireReason::Fenced))
        };
        assert_eq!(std::iter::from_fn(|| session.poll_event()).filter(retired).count(), 1);
        assert!(producer.pool().owns(MEMBERS[0], BlockHash::new(0)));
    }
}
