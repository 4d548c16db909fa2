//! What is asked, when, and when no longer.

use ckf_producer::source::{
    Direct, FullState, Handled, PoolSources, PoolSourcesConfig, ReadyRule, RequestId, RequestKind,
    StreamState,
};
use ckf_protocol::Millis;

use crate::support::*;

/// Answers tell the time, too: what is asked because of them waits from then on. A second one is late.
#[test]
fn what_is_asked_because_of_an_answer_waits_from_then_on() {
    type Answer = fn(&mut World<Direct>, RequestId) -> Handled;
    let answers: [Answer; 2] = [World::history_end, World::unavailable];
    for (answer, counted) in answers.into_iter().zip([0, 1]) {
        let mut world = World::direct(patient());
        world.event(1, 0, store([0]));
        world.event(1, 2, store([2]));
        let request = world.request();
        world.now = 5000;
        assert_eq!(answer(&mut world, request.id), Handled::Noted);
        assert_eq!(world.request().kind, RequestKind::FullState);
        assert!(world.stream.poll_timeout().unwrap().0 > at(5000));
        assert_eq!(answer(&mut world, request.id), Handled::Late);
        // History that came in full is often over before its end is told.
        assert_eq!(world.stream.stats().late_answers, counted);
    }
}

/// A question that nobody took out is withdrawn when another one has to wait, and when all is given up.
#[test]
fn questions_that_are_over_are_not_handed_out() {
    let mut world = World::direct(patient());
    world.event(1, 0, store([0]));
    world.stream.handle_suspect(at(0));
    let request = world.request();
    world.full_state(request.id, 1, 0, store([0]));
    assert_eq!(world.history_end(request.id), Handled::Late);
    world.event(1, 2, store([2]));
    world.stream.handle_suspect(at(0));
    assert_eq!(world.stream.poll_request(), None);
    world.sleep();
    assert_eq!((world.now, world.request().kind), (1000, RequestKind::FullState));
    while world.stream.state() != StreamState::Failed {
        world.sleep();
    }
    assert_eq!(world.stream.poll_request(), None);
}

/// A suspicion that waits longer than the deadline is not given up before anybody is asked.
#[test]
fn the_deadline_of_a_suspicion_counts_from_when_it_is_asked_about() {
    let config = patient().with_back_off(Millis::new(100), Millis::new(30_000)).unwrap();
    let mut world = World::direct(config);
    world.event(1, 0, store([0]));
    world.stream.handle_suspect(at(0));
    let request = world.request();
    world.full_state(request.id, 1, 0, store([0]));
    world.stream.handle_suspect(at(0));
    world.sleep();
    assert_eq!((world.now, world.request().kind), (30_000, RequestKind::FullState));
    assert_eq!(world.stream.stats().failures, 0);
    while world.stream.state() != StreamState::Failed {
        world.sleep();
    }
    assert_eq!(world.now, 40_000);
}

/// A full state is progress when history can tell the rest of the gap, to the very last event.
#[test]
fn a_state_that_history_can_complete_is_progress() {
    for (as_of, kind, attempt) in [(19, history(20, 29), 1), (18, RequestKind::FullState, 2)] {
        let mut world = World::direct(patient().with_max_history(10));
        world.event(1, 0, store([0]));
        world.event(1, 30, store([30]));
        let request = world.request();
        assert_eq!(request.kind, RequestKind::FullState);
        world.full_state(request.id, 1, as_of, store(0..=as_of));
        let request = world.request();
        assert_eq!((request.kind, request.attempt), (kind, attempt));
    }
}

/// What a limit leaves no room for is asked about at once, and not a byte before.
#[test]
fn limits_are_exact_and_what_they_cost_is_asked_about_at_once() {
    let rule = ReadyRule::new(100, Millis::new(1000)).unwrap();
    let pool = |stream| PoolSourcesConfig::new(stream, rule);
    let commands_of = |config: PoolSourcesConfig| {
        let mut sources = PoolSources::new(config, Direct, at(0));
        sources.handle_event(MEMBER, generation(1), id(0), store(0..9), at(0)).unwrap();
        let asked = sources.poll_request().map(|request| request.kind);
        (sources.command_bytes(), sources.stats().backlogs, asked)
    };
    let (bytes, ..) = commands_of(pool(patient()));
    let full = Some(RequestKind::FullState);
    for (limit, outcome) in [(bytes, (bytes, 0, None)), (bytes - 1, (0, 1, full))] {
        let of_stream = patient().with_max_command_bytes(limit).unwrap();
        assert_eq!(commands_of(pool(of_stream)), outcome);
        let of_pool = pool(patient()).with_max_command_bytes(limit).unwrap();
        assert_eq!(commands_of(of_pool), outcome);
    }

    let waiting = |config: PoolSourcesConfig| {
        let mut sources = PoolSources::new(config, Direct, at(0));
        for number in [0, 2, 4] {
            let event = store([number]);
            sources.handle_event(MEMBER, generation(1), id(number), event, at(0)).unwrap();
            if number == 2 {
                assert_eq!(sources.poll_request().map(|asked| asked.kind), Some(history(1, 1)));
            }
        }
        let asked = sources.poll_request().map(|request| request.kind);
        (sources.queued(), asked)
    };
    let both @ (two, bytes) = waiting(pool(patient())).0;
    let queue = |(events, bytes): (usize, u64)| {
        let of_stream = pool(patient().with_queue(events as u32, bytes).unwrap());
        [of_stream, pool(patient()).with_max_queued(events, bytes).unwrap()]
    };
    for exact in [(two, 1 << 20), (1000, bytes)].into_iter().flat_map(queue) {
        assert_eq!(waiting(exact), (both, None));
    }
    for less in [(two - 1, 1 << 20), (1000, bytes - 1)].into_iter().flat_map(queue) {
        assert_eq!(waiting(less), ((1, bytes / 2), full));
    }
}

/// Answers that help nobody are counted.
#[test]
fn answers_that_are_of_no_use_are_counted() {
    let mut world = World::direct(patient().with_max_history(0));
    world.event(2, 0, store([0]));
    world.event(2, 1, store([1]));
    world.event(2, 5, store([5]));
    let request = world.request();
    assert_eq!(world.full_state(request.id, 1, 5, store([5])), Handled::OldGeneration);
    assert_eq!(world.stream.stats().late_answers, 1);
    world.stream.handle_suspect(at(0));
    assert_eq!(world.latest(request.id, 2, [(0, store([0]))]), Handled::Unusable);
    assert_eq!(world.stream.stats().unusable_states, 1);
    world.assert_owns([0, 1]);
    let state = FullState { generation: generation(2), as_of: None, content: store([]) };
    assert_eq!(world.stream.handle_full_state(request.id, state, at(0)), Handled::Unusable);
    assert_eq!(world.stream.stats().unusable_states, 2);
}
