//! Time and bounds: retries, deadlines, full queues, hosts that do not poll.

use ckf_producer::source::{
    Direct, Doubt, FullState, Handled, RequestKind, SourceNotice, SourceStream, StreamState,
    WakeReason,
};

use crate::support::*;

#[test]
fn questions_are_repeated_with_back_off_then_given_up() {
    let mut world = World::direct(patient().with_max_history(0));
    world.event(1, 0, store([1, 2]));
    world.event(1, 5, store([5]));
    let mut asked = vec![(world.now, world.request())];
    let (_, reason) = world.stream.poll_timeout().unwrap();
    assert_eq!(reason, WakeReason::Retry);
    while world.stream.state() != StreamState::Failed {
        world.assert_owns([1, 2]);
        world.sleep();
        asked.extend(world.stream.poll_request().map(|request| (world.now, request)));
    }
    let waits: Vec<u64> = asked.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    for (wait, span) in waits.iter().zip([100, 200, 400, 800, 1000, 1000]) {
        assert!((span / 2..=span).contains(wait), "{waits:?}");
    }
    assert!(waits.len() >= 10 && waits.iter().all(|wait| *wait <= 1000), "{waits:?}");
    assert!(asked.iter().all(|(_, request)| request.id == asked[0].1.id));
    assert_eq!(world.now, 10_000);
    // What nobody can vouch for is not shown.
    world.assert_owns([]);
    assert!(world.notices().contains(&SourceNotice::RecoveryFailed));
    assert_eq!(world.stream.poll_timeout(), None);
    assert_eq!(world.stream.queued(), (0, 0));

    // The next sign of life starts over.
    world.event(1, 6, store([6]));
    let request = world.request();
    assert_eq!(request.kind, RequestKind::FullState);
    assert_eq!(world.full_state(asked[0].1.id, 1, 6, store([1])), Handled::Late);
    world.full_state(request.id, 1, 6, store([1, 6]));
    world.assert_owns([1, 6]);
    assert_eq!(world.stream.state(), StreamState::Live);
}

#[test]
fn history_is_asked_as_often_as_configured_then_the_full_state() {
    for attempts in 1..4 {
        let mut world = World::direct(patient().with_history_attempts(attempts).unwrap());
        world.event(1, 0, store([0]));
        world.event(1, 2, store([2]));
        for attempt in 1..=attempts {
            let request = world.request();
            assert_eq!((request.kind, request.attempt), (history(1, 1), attempt));
            world.sleep();
        }
        assert_eq!(world.request().kind, RequestKind::FullState);
    }
}

#[test]
fn spurious_calls_and_a_clock_that_goes_back_do_nothing() {
    let mut world = World::direct(patient());
    world.stream.handle_timeout(at(5_000_000));
    world.now = 5_000_000;
    world.event(1, 0, store([1]));
    world.event(1, 3, store([3]));
    let request = world.request();
    let before = world.stream.poll_timeout();
    for millis in [0, 1, 5_000_000] {
        world.stream.handle_timeout(at(millis));
        assert_eq!(world.stream.poll_request(), None);
        assert_eq!(world.stream.poll_timeout(), before);
    }
    // Handed in with an old time; the retry still counts from the latest.
    world.now = 3;
    world.event(1, 4, store([4]));
    assert_eq!(world.stream.poll_timeout(), before);
    assert_eq!(request.attempt, 1);
    // A question that is asked after the clock went back.
    world.stream.handle_timeout(at(0));
    world.history_end(request.id);
    assert_eq!(world.request().kind, RequestKind::FullState);
    assert!(world.stream.poll_timeout().unwrap().0 > at(5_000_000));
}

#[test]
fn progress_renews_patience() {
    let mut world = World::direct(patient());
    world.event(1, 0, store([0]));
    world.heartbeat(1, 1000);
    for number in 1..=1000 {
        world.now += 5_000;
        world.event(1, number, store([number]));
        world.stream.handle_timeout(at(world.now));
        assert_ne!(world.stream.state(), StreamState::Failed);
    }
    assert_eq!(world.stream.state(), StreamState::Live);
    assert_eq!(world.stream.stats().full_states, 0);
}

#[test]
fn too_many_waiting_events_make_it_a_full_state() {
    for (events, bytes) in [(8, u64::MAX), (u32::MAX, 1000)] {
        let mut world = World::direct(patient().with_queue(events, bytes).unwrap());
        world.event(1, 0, store([0]));
        for number in 2..=50 {
            world.event(1, number, store([number]));
            let (held, held_bytes) = world.stream.queued();
            assert!(held as u64 <= u64::from(events) && held_bytes <= bytes);
        }
        assert_eq!(world.stream.state(), StreamState::Recovering { doubt: Some(Doubt::Overflow) });
        let kinds: Vec<RequestKind> =
            std::iter::from_fn(|| world.stream.poll_request()).map(|r| r.kind).collect();
        assert_eq!(kinds, [RequestKind::FullState]);
        // The newest events stayed, so a state that is a little behind still meets them.
        assert!(world.stream.queued().0 >= 3);
        let stats = world.stream.stats();
        assert_eq!(stats.overflowed + world.stream.queued().0 as u64, 49);
        world.sleep();
        let request = world.request();
        world.full_state(request.id, 1, 48, store(0..=48));
        world.assert_owns(0..=50);
        assert_eq!(world.stream.state(), StreamState::Live);
    }
}

#[test]
fn a_full_state_that_does_not_meet_the_queue_is_followed_by_another_question() {
    let mut world = World::direct(patient().with_queue(4, 1 << 20).unwrap().with_max_history(10));
    world.event(1, 0, store([0]));
    for number in 2..=50 {
        world.event(1, number, store([number]));
    }
    let request = world.request();
    // Far behind: another full state, but not at once, so that two that never meet do not spin.
    world.full_state(request.id, 1, 20, store(0..=20));
    let second = world.request();
    assert_eq!(second.kind, RequestKind::FullState);
    world.full_state(second.id, 1, 20, store(0..=20));
    let third = world.request();
    world.full_state(third.id, 1, 20, store(0..=20));
    assert_eq!(world.stream.poll_request(), None);
    world.sleep();
    let fourth = world.request();
    // Close enough for history.
    world.full_state(fourth.id, 1, 40, store(0..=40));
    let history_request = world.request();
    assert_eq!(history_request.kind, history(41, 46));
    for number in 41..=50 {
        world.event(1, number, store([number]));
    }
    world.assert_owns(0..=50);
    assert_eq!(world.stream.state(), StreamState::Live);
    assert_eq!(world.stream.stats().recoveries, 1);
}

#[test]
fn an_event_too_large_for_the_queue_is_recovered() {
    let mut world = World::direct(patient().with_queue(100, 1000).unwrap());
    world.event(1, 0, store([0]));
    world.event(1, 2, store(0..100_000));
    assert_eq!(world.stream.queued(), (0, 0));
    let request = world.stream.poll_request().unwrap();
    assert_eq!(request.kind, RequestKind::FullState);
    // A state from before that event does not make one forget that there was one.
    world.full_state(request.id, 1, 1, store(0..2));
    assert_ne!(world.stream.state(), StreamState::Live);
    let request = world.request();
    assert_eq!(request.kind, history(2, 2));
    world.event(1, 2, store(0..1000));
    world.assert_owns(0..1000);
    assert_eq!(world.stream.state(), StreamState::Live);
}

#[test]
fn commands_that_nobody_polls_stay_bounded_and_nothing_is_lost() {
    let limit = 10_000;
    let config = patient().with_max_command_bytes(limit).unwrap();
    let mut stream = SourceStream::new(MEMBER, config, Direct);
    for number in 0..10_000 {
        stream.handle_event(generation(1), id(number), store([number]), at(0));
    }
    assert!(stream.stats().backlogs > 0);
    let mut world = World { stream, pool: new_pool(), now: 0 };
    world.drain();
    world.assert_owns([]);
    let request = world.request();
    assert_eq!(request.kind, RequestKind::FullState);
    world.full_state(request.id, 1, 9_999, store(0..10_000));
    world.assert_owns(0..10_000);
}

/// A host that passes questions and answers on at once but takes no commands: it is asked for full states
/// at the pace of the longest back-off, not as fast as events come.
#[test]
fn full_states_for_commands_that_nobody_polls_are_asked_at_the_pace_of_the_longest_back_off() {
    let config = patient().with_max_command_bytes(100).unwrap();
    let longest = config.longest_back_off().get();
    let mut stream = SourceStream::new(MEMBER, config, Direct);
    let (millis, mut asked) = (10 * longest, 0);
    for now in 0..millis {
        stream.handle_event(generation(1), id(now), store([now]), at(now));
        stream.handle_timeout(at(now));
        while let Some(request) = stream.poll_request() {
            asked += 1;
            let state =
                FullState { generation: generation(1), as_of: Some(id(now)), content: store(0..3) };
            stream.handle_full_state(request.id, state, at(now));
        }
    }
    assert!((5..=12).contains(&asked), "{asked} full states in ten longest back-offs");
}

#[test]
fn notices_that_nobody_polls_stay_bounded() {
    let mut world = World::direct(patient().with_max_notices(3));
    for life in 0..100 {
        world.event(life, 0, store([life]));
    }
    assert_eq!(world.notices().len(), 3);
    assert_eq!(world.stream.stats().dropped_notices, 97);
}

#[test]
fn a_suspect_member_is_replaced_by_its_full_state() {
    let mut world = World::direct(patient());
    world.event(1, 0, store([1, 2, 3]));
    // The pool lost a command, say: what it holds is not what the stream said.
    world.pool.remove(MEMBER, &hashes([2]));
    world.stream.handle_suspect(at(0));
    assert_eq!(world.stream.state(), StreamState::Recovering { doubt: Some(Doubt::Host) });
    world.event(1, 1, store([4]));
    let request = world.request();
    world.full_state(request.id, 1, 0, store([1, 2, 3]));
    world.assert_owns([1, 2, 3, 4]);
}

#[test]
fn answers_that_never_meet_are_asked_for_at_the_pace_of_the_back_off() {
    // A source whose dump is stuck at 5 and whose history is empty, asked as fast as it answers.
    let mut world = World::direct(patient());
    world.heartbeat(1, 10);
    let mut asked = 0;
    while world.stream.state() != StreamState::Failed {
        match world.stream.poll_request() {
            Some(request) if request.kind == RequestKind::FullState => {
                asked += 1;
                world.full_state(request.id, 1, 5, store([5]));
            }
            Some(request) => {
                asked += 1;
                world.history_end(request.id);
            }
            None => world.sleep(),
        }
    }
    assert!(asked < 30, "{asked} questions in ten seconds");
}

#[test]
fn a_first_event_does_not_clear_the_doubt_of_the_host() {
    let mut world = World::direct(patient());
    world.stream.handle_announced(generation(1), at(0));
    let request = world.request();
    world.full_state(request.id, 1, None::<u64>, vec![]);
    assert_eq!(world.stream.state(), StreamState::Live);
    // Whatever it was, the pool holds a block that it should not.
    world.pool.store(MEMBER, &hashes([99]));
    world.stream.handle_suspect(at(0));
    assert_eq!(world.event(1, 0, store([1])), Handled::Queued);
    let request = world.request();
    world.full_state(request.id, 1, None::<u64>, vec![]);
    world.assert_owns([1]);
}

/// An event of a number that never was, far ahead of all, between live ones: the source answers every
/// question at once, and each answer is newer than the one before.
#[test]
fn an_event_from_far_ahead_is_neither_asked_for_without_end_nor_for_ever() {
    for far in [1 << 63, u64::MAX, 1 << 40] {
        for is_heartbeat in [false, true] {
            let mut world = World::direct(patient());
            world.event(1, 0, store([0]));
            if is_heartbeat {
                world.heartbeat(1, far);
            } else {
                world.event(1, far, store([7777]));
            }
            let (mut asked, mut last) = (0, 0);
            while world.stream.state() != StreamState::Live {
                assert!(world.now < 20_000, "it never recovers");
                last += 1;
                world.event(1, last, store([last]));
                for _ in 0..100 {
                    let Some(request) = world.stream.poll_request() else { break };
                    assert_eq!(request.kind, RequestKind::FullState);
                    asked += 1;
                    // Always a little behind what waits.
                    last += 1;
                    world.event(1, last, store([last]));
                    world.full_state(request.id, 1, last - 1, store(0..last));
                }
                world.now += 50;
                world.stream.handle_timeout(at(world.now));
                world.drain();
            }
            assert!(asked < 40, "{asked} full states");
            assert_eq!(world.stream.stats().failures, 1);
            last += 1;
            assert_eq!(world.event(1, last, store([last])), Handled::Applied);
            world.assert_owns(0..=last);
        }
    }
}

/// F21: a number was used up for an event that the source never managed to store. Neither its history
/// nor its state has it: that costs one recovery, not all that follow.
#[test]
fn f21_a_number_that_was_used_up_for_nothing_does_not_fail_every_recovery() {
    let answer = |world: &mut World<Direct>, end| loop {
        match world.stream.poll_request() {
            _ if world.stream.state() == end => return,
            Some(request) if request.kind == RequestKind::FullState => {
                world.full_state(request.id, 1, 9, store([9]));
            }
            Some(request) => {
                world.history_end(request.id);
            }
            None => world.sleep(),
        }
    };
    // Whatever the sign of life after the failure is.
    for suspect in [false, true] {
        let mut world = World::direct(patient());
        world.event(1, 9, store([9]));
        let request = world.request();
        world.full_state(request.id, 1, 9, store([9]));
        world.heartbeat(1, 10);
        answer(&mut world, StreamState::Failed);
        if suspect {
            world.stream.handle_suspect(at(world.now));
        } else {
            world.heartbeat(1, 9);
        }
        answer(&mut world, StreamState::Live);
        world.assert_owns([9]);
        assert_eq!(world.stream.stats().failures, 1);
        // What is really missing comes to light with the next sign of life.
        world.heartbeat(1, 10);
        assert_eq!(world.stream.state(), StreamState::Recovering { doubt: None });
    }
}

#[test]
fn a_question_to_the_old_life_is_not_asked_of_the_new_one() {
    let mut world = World::direct(patient());
    world.event(1, 0, store([0]));
    world.event(1, 2, store([2]));
    world.event(2, 0, store([7]));
    assert_eq!((world.stream.poll_request(), world.stream.state()), (None, StreamState::Live));
    world.assert_owns([7]);
}

/// A gap of the old life does not make the new one wait.
#[test]
fn an_event_far_ahead_in_an_old_life_costs_the_new_one_no_patience() {
    let mut world = World::direct(patient());
    world.event(1, 0, store([0]));
    world.heartbeat(1, 1 << 40);
    assert_eq!(world.request().kind, RequestKind::FullState);
    world.event(2, 5, store([5]));
    let request = world.request();
    world.full_state(request.id, 2, 2, store([2]));
    let request = world.request();
    assert_eq!(request.kind, history(3, 4));
    world.history_end(request.id);
    // At once, as the full state was progress.
    assert_eq!((world.request().kind, world.now), (RequestKind::FullState, 0));
}

/// A heartbeat from before the first event, come late, does not make what is missing known.
#[test]
fn that_nothing_was_published_is_not_believed_once_something_was() {
    let mut world = World::direct(patient());
    world.event(1, 5, store([5]));
    world.heartbeat(1, None);
    let doubt = Some(Doubt::FirstContact);
    assert_eq!(world.stream.state(), StreamState::Recovering { doubt });
}

/// A source that breaks off in the middle of its history says that it has no more.
#[test]
fn history_that_ends_as_unavailable_is_not_asked_on() {
    let mut world = World::direct(patient());
    world.event(1, 0, store([0]));
    world.heartbeat(1, 9);
    let request = world.request();
    world.event(1, 1, store([1]));
    world.unavailable(request.id);
    assert_eq!(world.request().kind, RequestKind::FullState);
}

/// A pool that refuses what the member's full state holds makes the host suspicious of it at once.
#[test]
fn suspicions_of_every_answer_are_asked_about_at_the_pace_of_the_longest_back_off() {
    let mut world = World::direct(patient());
    world.event(1, 0, store([1]));
    let (mut asked, mut number) = (Vec::new(), 0);
    while world.now < 10_000 {
        world.stream.handle_suspect(at(world.now));
        while let Some(request) = world.stream.poll_request() {
            asked.push(world.now);
            assert!(asked.len() < 20, "{asked:?}");
            world.full_state(request.id, 1, number, store([1]));
            world.stream.handle_suspect(at(world.now));
        }
        world.now += 100;
        number += 1;
        world.event(1, number, store([1]));
        world.stream.handle_timeout(at(world.now));
    }
    assert_eq!(asked[0], 0, "the first one is asked about at once");
    assert!(asked.windows(2).all(|pair| (1000..=1100).contains(&(pair[1] - pair[0]))), "{asked:?}");
    assert_eq!(world.stream.stats().failures, 0, "waiting is no failure");
    // Trust is back.
    let request = loop {
        world.sleep();
        if let Some(request) = world.stream.poll_request() {
            break request;
        }
    };
    world.full_state(request.id, 1, number, store([1, 2]));
    world.assert_owns([1, 2]);
    assert_eq!(world.stream.state(), StreamState::Live);
    // A new life has nothing to do with it.
    world.stream.handle_suspect(at(world.now));
    world.event(2, 7, store([7]));
    assert_eq!(world.request().generation, generation(2));
}

/// Where all deadlines are pushed together, none of them comes: a question is asked, and answered.
#[test]
fn at_the_end_of_time_nothing_is_due() {
    let mut world = World::direct(patient().with_max_history(0));
    world.now = u64::MAX;
    world.event(1, 0, store([0]));
    world.event(1, 2, store([2]));
    let request = world.request();
    for _ in 0..5 {
        assert_eq!(world.stream.poll_timeout(), None);
        world.stream.handle_timeout(at(u64::MAX));
        assert_eq!(world.stream.poll_request(), None);
        assert!(matches!(world.stream.state(), StreamState::Recovering { .. }));
    }
    world.full_state(request.id, 1, 2, store([0, 1, 2]));
    world.assert_owns([0, 1, 2]);
    assert_eq!(world.stream.state(), StreamState::Live);
}
