//! The streams of a pool: discovery, readiness, delegation.

use std::collections::BTreeSet;

use ckf_producer::source::{
    Direct, FullState, Handled, PoolSources, PoolSourcesConfig, ReadyReason, ReadyRule,
    RequestKind, SourceConfig, SourceNotice, SourceStream, SourcesError, SourcesNotice, WakeReason,
};
use ckf_producer::{Command, Member, Pool, WorkerId};
use ckf_protocol::Millis;
use proptest::prelude::*;

use crate::support::*;

fn sources(percent: u8, limit: u64, config: SourceConfig) -> PoolSources<Direct> {
    let rule = ReadyRule::new(percent, Millis::new(limit)).unwrap();
    PoolSources::new(PoolSourcesConfig::new(config, rule), Direct, at(0))
}

fn member(worker: u64) -> Member {
    Member::new(worker, 0)
}

#[test]
fn a_pool_is_ready_when_enough_members_recovered() {
    let mut sources = sources(75, 60_000, SourceConfig::new(1));
    for worker in 0..4 {
        sources.expect(member(worker), at(0)).unwrap();
        sources.expect(member(worker), at(0)).unwrap();
    }
    assert_eq!((sources.readiness().expected, sources.readiness().recovered), (4, 0));
    assert_eq!(sources.poll_timeout(), Some((at(60_000), WakeReason::ReadyLimit)));
    // Members that nobody expects do not count.
    sources.handle_event(member(9), generation(1), id(0), store([1]), at(1)).unwrap();
    for worker in 0..3 {
        assert_eq!(sources.readiness().ready, None);
        sources.announce(member(worker), generation(1), at(2)).unwrap();
        let request = sources.poll_request().unwrap();
        assert_eq!((request.member, request.kind), (member(worker), RequestKind::FullState));
        let state =
            FullState { generation: generation(1), as_of: Some(id(5)), content: store([worker]) };
        sources.handle_full_state(member(worker), request.id, state, at(3));
    }
    assert_eq!(sources.readiness().ready, Some(ReadyReason::Recovered));
    assert_eq!(sources.poll_notice(), Some(SourcesNotice::Ready));
    assert_eq!(sources.poll_timeout(), None);
    // It stays ready, also when members fall behind or go.
    sources.handle_heartbeat(member(0), generation(1), Some(id(100)), at(4)).unwrap();
    sources.remove(member(1), at(4));
    assert_eq!(sources.readiness().ready, Some(ReadyReason::Recovered));
    assert_eq!((sources.readiness().expected, sources.readiness().recovered), (3, 2));
}

/// Nobody waits for members that leave; of those that never were there, nothing has to go.
#[test]
fn a_pool_is_ready_when_those_it_waits_for_leave() {
    for whole_worker in [false, true] {
        let mut sources = sources(100, 60_000, SourceConfig::new(1));
        let leave = |sources: &mut PoolSources<Direct>, worker| {
            if whole_worker {
                sources.remove_worker(WorkerId::new(worker), at(2)) == 1
            } else {
                sources.remove(member(worker), at(2))
            }
        };
        (0..2).for_each(|worker| sources.expect(member(worker), at(0)).unwrap());
        sources.handle_heartbeat(member(0), generation(1), None, at(1)).unwrap();
        assert_eq!(sources.readiness().ready, None);
        assert!(!leave(&mut sources, 7));
        assert_eq!(sources.poll_command(), None);
        assert_eq!(sources.readiness().ready, None);
        assert!(leave(&mut sources, 1));
        assert_eq!(sources.readiness().ready, Some(ReadyReason::Recovered));
        assert!(sources.poll_command().is_some());
    }
}

#[test]
fn a_pool_is_ready_at_the_limit_in_any_case() {
    for expected in [0, 3] {
        let mut sources = sources(100, 1000, SourceConfig::new(1));
        for worker in 0..expected {
            sources.expect(member(worker), at(0)).unwrap();
        }
        sources.handle_timeout(at(999));
        assert_eq!(sources.readiness().ready, None);
        sources.handle_timeout(at(1000));
        assert_eq!(sources.readiness().ready, Some(ReadyReason::TimeLimit));
        assert_eq!(sources.poll_notice(), Some(SourcesNotice::Ready));
        assert_eq!(sources.poll_notice(), None);
    }
}

#[test]
fn members_that_are_gone_do_not_hold_readiness_up() {
    let mut sources = sources(100, 1000, SourceConfig::new(1));
    sources.expect(member(1), at(0)).unwrap();
    sources.expect(member(2), at(0)).unwrap();
    sources.handle_event(member(1), generation(1), id(0), store([1]), at(0)).unwrap();
    assert_eq!(sources.readiness().ready, None);
    sources.remove(member(2), at(1));
    assert_eq!(sources.readiness().ready, Some(ReadyReason::Recovered));
}

#[test]
fn the_number_of_members_is_bounded() {
    let rule = ReadyRule::new(100, Millis::new(1000)).unwrap();
    let config = PoolSourcesConfig::new(SourceConfig::new(1), rule).with_max_members(3).unwrap();
    let mut sources = PoolSources::new(config, Direct, at(0));
    let event = |sources: &mut PoolSources<Direct>, worker, life| {
        sources.handle_event(member(worker), generation(life), id(0), store([worker]), at(0))
    };
    for worker in 0..3 {
        assert_eq!(event(&mut sources, worker, 1), Ok(Handled::Applied));
    }
    let full = SourcesError::TooManyMembers { max_members: 3 };
    assert_eq!(event(&mut sources, 3, 1), Err(full));
    assert_eq!(sources.expect(member(3), at(0)), Err(full));
    assert_eq!(sources.announce(member(3), generation(1), at(0)), Err(full));
    assert_eq!(sources.expect(member(0), at(0)), Ok(()));
    // Members that come and go do not pile up, polled or not.
    for round in 0..1000 {
        sources.remove(member(0), at(0));
        if round % 2 == 0 {
            assert_eq!(event(&mut sources, 4, 2), Err(full), "its clear was not polled yet");
        }
        assert_eq!(sources.poll_command(), Some(Command::ClearMember { member: member(0) }));
        assert_eq!(event(&mut sources, 0, 2 + round), Ok(Handled::Applied));
    }
    assert_eq!(sources.refused(), 501);
    assert_eq!(sources.members().count(), 3);
}

#[test]
fn without_discovery_only_announced_members_are_heard() {
    let rule = ReadyRule::new(100, Millis::new(1000)).unwrap();
    let config = PoolSourcesConfig::new(SourceConfig::new(1), rule).with_discovery(false);
    let mut sources = PoolSources::new(config, Direct, at(0));
    let event = |sources: &mut PoolSources<Direct>| {
        sources.handle_event(MEMBER, generation(1), id(0), store([1]), at(0))
    };
    assert_eq!(event(&mut sources), Err(SourcesError::UnknownMember { member: MEMBER }));
    sources.announce(MEMBER, generation(1), at(0)).unwrap();
    assert_eq!(event(&mut sources), Ok(Handled::Applied));
}

#[test]
fn answers_for_members_that_are_gone_are_late() {
    let mut sources = sources(100, 1000, SourceConfig::new(1));
    sources.announce(MEMBER, generation(1), at(0)).unwrap();
    let request = sources.poll_request().unwrap();
    sources.remove(MEMBER, at(0));
    let state = FullState { generation: generation(1), as_of: Some(id(3)), content: store([1]) };
    assert_eq!(sources.handle_full_state(MEMBER, request.id, state, at(1)), Handled::Late);
    assert_eq!(sources.handle_history_end(MEMBER, request.id, at(1)), Handled::Late);
    assert_eq!(sources.handle_unavailable(MEMBER, request.id, at(1)), Handled::Late);
    assert_eq!(sources.handle_suspect(MEMBER, at(1)), Handled::Late);
    assert_eq!(sources.poll_command(), Some(Command::ClearMember { member: MEMBER }));
    assert_eq!(sources.poll_command(), None);
    assert_eq!(sources.poll_timeout(), Some((at(1000), WakeReason::ReadyLimit)));
}

#[test]
fn removals_come_before_what_a_returning_member_says() {
    let mut sources = sources(100, 1000, SourceConfig::new(1));
    let rank = |rank| Member::new(7, rank);
    for r in [0, 3] {
        sources.handle_event(rank(r), generation(1), id(0), store([1]), at(0)).unwrap();
    }
    sources.remove_worker(WorkerId::new(7), at(0));
    sources.handle_event(rank(0), generation(2), id(0), store([2]), at(0)).unwrap();
    let commands: Vec<Command> = std::iter::from_fn(|| sources.poll_command()).collect();
    assert_eq!(
        commands,
        [
            Command::RemoveWorker { worker: WorkerId::new(7) },
            Command::Store { member: rank(0), hashes: hashes([2]) },
        ]
    );
}

proptest! {
    /// Streams in a set say exactly what they would say alone.
    #[test]
    fn members_do_not_touch_each_other(
        ops in prop::collection::vec((0u64..4, 0u8..8, 0u64..12, 0u64..300), 0..200),
    ) {
        let config = SourceConfig::new(3)
            .with_max_history(4)
            .with_queue(4, 4000)
            .unwrap()
            .with_back_off(Millis::new(100), Millis::new(400))
            .unwrap()
            .with_deadline(Millis::new(1000))
            .unwrap();
        let mut set = sources(50, 500, config);
        let mut alone: Vec<SourceStream<Direct>> =
            (0..4).map(|worker| SourceStream::new(member(worker), config, Direct)).collect();
        let mut now = 0;
        for (worker, op, number, wait) in ops {
            let who = member(worker);
            let stream = &mut alone[worker as usize];
            let life = generation(number / 5);
            let request = ckf_producer::source::RequestId::new(number);
            match op {
                0..=3 => {
                    let got = set.handle_event(who, life, id(number), store([number]), at(now));
                    let want = stream.handle_event(life, id(number), store([number]), at(now));
                    prop_assert_eq!(got, Ok(want));
                }
                4 => {
                    let got = set.handle_heartbeat(who, life, Some(id(number)), at(now));
                    let want = stream.handle_heartbeat(life, Some(id(number)), at(now));
                    prop_assert_eq!(got, Ok(want));
                }
                5 if set.stream(who).is_some() => {
                    let got = set.handle_history_end(who, request, at(now));
                    prop_assert_eq!(got, stream.handle_history_end(request, at(now)));
                }
                6 if set.stream(who).is_some() => {
                    let state = FullState {
                        generation: life,
                        as_of: Some(id(number)),
                        content: store(0..number),
                    };
                    let got = set.handle_full_state(who, request, state.clone(), at(now));
                    prop_assert_eq!(got, stream.handle_full_state(request, state, at(now)));
                }
                7 => {
                    now += wait;
                    set.handle_timeout(at(now));
                    alone.iter_mut().for_each(|stream| stream.handle_timeout(at(now)));
                }
                _ => {}
            }
            let want = alone.iter().filter_map(|stream| stream.poll_timeout().map(|due| due.0)).min();
            let got = set.poll_timeout().filter(|due| due.1 != WakeReason::ReadyLimit);
            if set.readiness().ready.is_some() {
                prop_assert_eq!(got.map(|due| due.0), want);
            }
        }
        let commands: Vec<Command> = std::iter::from_fn(|| set.poll_command()).collect();
        let requests: Vec<_> = std::iter::from_fn(|| set.poll_request()).collect();
        let notices: Vec<_> = std::iter::from_fn(|| set.poll_notice()).collect();
        for stream in &mut alone {
            let who = stream.member();
            let want: Vec<Command> = std::iter::from_fn(|| stream.poll_command()).collect();
            let of_member = |command: &&Command| match command {
                Command::Store { member, .. }
                | Command::Remove { member, .. }
                | Command::ClearMember { member }
                | Command::ReplaceMember { member, .. } => *member == who,
                _ => false,
            };
            prop_assert_eq!(commands.iter().filter(of_member).cloned().collect::<Vec<_>>(), want);
            let got = requests.iter().find(|request| request.member == who).copied();
            prop_assert_eq!(got, stream.poll_request());
            let want: Vec<SourceNotice> = std::iter::from_fn(|| stream.poll_notice()).collect();
            let got: Vec<SourceNotice> = notices
                .iter()
                .filter_map(|notice| match notice {
                    SourcesNotice::Stream { member, notice } if *member == who => Some(*notice),
                    _ => None,
                })
                .collect();
            prop_assert_eq!(got, want);
        }
    }
}

#[test]
fn the_events_that_wait_in_all_streams_together_are_bounded() {
    let rule = ReadyRule::new(50, Millis::new(1000)).unwrap();
    let config = PoolSourcesConfig::new(SourceConfig::new(1), rule);
    assert!(config.with_max_queued(0, 1).is_err() && config.with_max_queued(1, 0).is_err());
    for (events, bytes) in [(20, u64::MAX), (usize::MAX, 4000)] {
        let config = config.with_max_queued(events, bytes).unwrap();
        let mut sources = PoolSources::new(config, Direct, at(0));
        let mut overflowed = 0;
        for number in 1..200 {
            let handled = sources.handle_event(
                member(number % 7),
                generation(1),
                id(number),
                store([1]),
                at(0),
            );
            overflowed += u64::from(handled == Ok(Handled::Overflowed));
            assert!(matches!(handled, Ok(Handled::Queued | Handled::Overflowed)));
            let (waiting, waiting_bytes) = sources.queued();
            assert!(waiting <= events && waiting_bytes <= bytes);
            let sum = sources.members().map(|member| sources.stream(member).unwrap().queued());
            assert_eq!(sum.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)), sources.queued());
        }
        assert!(overflowed > 100, "{overflowed}");
        let stats = sources.stats();
        assert_eq!(stats.shed, stats.overflowed);
        assert_eq!(stats.shed + sources.queued().0 as u64, 199);
        // What was given up is covered by the full state that the member asks for; the sum follows.
        let held = sources.queued();
        let requests: Vec<_> = std::iter::from_fn(|| sources.poll_request()).collect();
        for request in requests {
            assert_eq!(request.kind, RequestKind::FullState);
            let state =
                FullState { generation: generation(1), as_of: Some(id(185)), content: store([7]) };
            let handled = sources.handle_full_state(request.member, request.id, state, at(1));
            assert_eq!(handled, Handled::Applied);
        }
        assert!(sources.queued().0 < held.0);
        // Members that go, or give up, take theirs along.
        for worker in 0..7 {
            let own = sources.stream(member(worker)).unwrap().queued();
            assert!(own.0 > 0, "the case says something");
            let all = sources.queued();
            if worker < 3 {
                sources.remove(member(worker), at(2));
                assert_eq!(sources.queued(), (all.0 - own.0, all.1 - own.1));
            }
        }
        sources.handle_timeout(at(10_000_000));
        assert_eq!(sources.queued(), (0, 0));
    }
}

/// A host that polls nothing while all members have much to say: what waits keeps within the limit of
/// the pool, and full states make up for it.
#[test]
fn the_commands_that_wait_in_all_streams_together_are_bounded() {
    let rule = ReadyRule::new(50, Millis::new(1000)).unwrap();
    let config = PoolSourcesConfig::new(SourceConfig::new(1), rule);
    assert!(config.with_max_command_bytes(0).is_err());
    for limit in [1, 100, 5_000] {
        let config = config.with_max_command_bytes(limit).unwrap();
        let mut sources = PoolSources::new(config, Direct, at(0));
        let event = |sources: &mut PoolSources<Direct>, worker: u64, number: u64| {
            let block = store([worker << 32 | number]);
            sources.handle_event(member(worker), generation(1), id(number), block, at(0)).unwrap();
        };
        for number in 0..100 {
            for worker in 0..7 {
                event(&mut sources, worker, number);
                assert!(sources.command_bytes() <= limit);
            }
        }
        assert!(sources.stats().backlogs > 0);
        let mut pool = new_pool();
        let drain = |sources: &mut PoolSources<Direct>, pool: &mut Pool| {
            while let Some(command) = sources.poll_command() {
                assert_eq!(pool.apply(&command).error, None);
            }
            assert_eq!(sources.command_bytes(), 0);
        };
        drain(&mut sources, &mut pool);
        while let Some(request) = sources.poll_request() {
            assert_eq!(request.kind, RequestKind::FullState);
            let content = store((0..100).map(|number| request.member.worker.get() << 32 | number));
            let state = FullState { generation: generation(1), as_of: Some(id(99)), content };
            sources.handle_full_state(request.member, request.id, state, at(0));
        }
        drain(&mut sources, &mut pool);
        (0..7).for_each(|worker| assert_eq!(pool.owned_blocks(member(worker)), 100));
        // A full state takes the place of commands that wait.
        if limit > 100 {
            event(&mut sources, 1, 100);
            assert!(sources.command_bytes() > 0);
            sources.handle_suspect(member(1), at(1_000_000));
            let request = sources.poll_request().unwrap();
            let state =
                FullState { generation: generation(1), as_of: Some(id(100)), content: store([1]) };
            sources.handle_full_state(member(1), request.id, state, at(1_000_000));
            assert_eq!(sources.command_bytes(), 0);
        }
        // Members that go take theirs along.
        if limit > 100 {
            event(&mut sources, 0, 100);
            assert!(sources.command_bytes() > 0);
            sources.remove(member(0), at(0));
            assert_eq!(sources.command_bytes(), 0);
        }
    }
}

/// A host that takes out one command a turn hears of every member, however much another one says.
#[test]
fn a_member_with_much_to_say_does_not_silence_others() {
    let mut sources = sources(50, 1000, SourceConfig::new(1));
    let event = |sources: &mut PoolSources<Direct>, worker: u64, number: u64| {
        let handled =
            sources.handle_event(member(worker), generation(1), id(number), store([number]), at(0));
        assert_eq!(handled, Ok(Handled::Applied));
    };
    (0..5).for_each(|worker| event(&mut sources, worker, 0));
    let mut heard = BTreeSet::new();
    for number in 1..10 {
        event(&mut sources, 0, number);
        let command = sources.poll_command().unwrap();
        heard.insert(command.member().unwrap());
    }
    assert_eq!(heard.len(), 5, "{heard:?}");
}
