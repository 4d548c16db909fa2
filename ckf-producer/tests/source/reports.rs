//! Field reports, each with its whole kind.

use ckf_producer::source::{
    BlockChange, CopyCounter, Direct, Doubt, EventId, FullState, Handled, PoolSources,
    PoolSourcesConfig, ReadyRule, RequestKind, SourceConfig, SourceNotice, StreamState,
};
use ckf_producer::{Member, WorkerId};
use ckf_protocol::Millis;

use crate::support::*;

#[test]
fn f04_repeated_hashes_in_one_command_count_once() {
    let mut world = World::direct(SourceConfig::new(1).with_max_history(0));
    world.event(1, 0, store([7, 9, 7]));
    world.assert_owns([7, 9]);
    assert_eq!(world.pool.owners(h(7)), 1);
    world.event(1, 1, remove([7]));
    world.assert_owns([9]);
    world.event(1, 2, remove([9, 9]));
    world.assert_owns([]);

    // A full state that repeats itself.
    world.event(1, 3, store([1]));
    world.event(1, 9, store([6]));
    let request = world.request();
    world.full_state(request.id, 1, 8, store([4, 4, 5]));
    world.assert_owns([4, 5, 6]);
}

#[test]
fn f06_without_a_copy_counter_the_first_removal_ends_a_block() {
    let mut world = World::direct(SourceConfig::new(1));
    let query = hashes(1..=7);
    world.event(1, 0, store(1..=7));
    world.event(1, 1, store([3]));
    assert_eq!((world.pool.owners(h(3)), depth(&world.pool, &query)), (1, 7));
    world.event(1, 2, remove([3]));
    assert_eq!((world.pool.owners(h(3)), depth(&world.pool, &query)), (0, 2));
    world.event(1, 3, remove([3]));
    assert_eq!((world.pool.owners(h(3)), depth(&world.pool, &query)), (0, 2));
}

#[test]
fn f06_with_a_copy_counter_the_last_removal_ends_a_block() {
    let mut world = World::new(SourceConfig::new(1), CopyCounter::new(Direct, 1000, SEEDS));
    let query = hashes(1..=7);
    world.event(1, 0, store(1..=7));
    world.event(1, 1, store([3]));
    world.event(1, 2, remove([3]));
    assert_eq!((world.pool.owners(h(3)), depth(&world.pool, &query)), (1, 7));
    world.event(1, 3, remove([3]));
    assert_eq!((world.pool.owners(h(3)), depth(&world.pool, &query)), (0, 2));
    world.event(1, 4, remove([3]));
    assert_eq!(world.pool.owners(h(3)), 0, "never below 0");
    // Counts do not outlive a clear, a full state or a generation.
    world.event(1, 5, store([3, 3, 3]));
    world.event(1, 6, vec![BlockChange::Clear, BlockChange::Store(hashes([3]))]);
    world.event(1, 7, remove([3]));
    world.assert_owns([]);
    world.event(1, 8, store([5, 5]));
    world.event(2, 0, store([5]));
    world.event(2, 1, remove([5]));
    world.assert_owns([]);
}

#[test]
fn f08_replay_that_overlaps_live_events_is_applied_once() {
    let mut world = World::direct(SourceConfig::new(1));
    for number in 0..10 {
        world.event(1, number, store([number]));
    }
    let mut live = Vec::new();
    for number in 11..=13 {
        live.push(world.event(1, number, store([number])));
        live.push(world.event(1, number, store([number])));
    }
    use Handled::{Applied, Duplicate, Queued};
    assert_eq!(live, [Queued, Duplicate, Queued, Duplicate, Queued, Duplicate]);
    let request = world.request();
    assert_eq!(request.kind, history(10, 10));
    let replay: Vec<Handled> = (8..=12).map(|n| world.event(1, n, store([n]))).collect();
    assert_eq!(replay, [Duplicate, Duplicate, Applied, Duplicate, Duplicate]);
    world.history_end(request.id);
    world.assert_owns(0..=13);
    let stats = world.stream.stats();
    assert_eq!((stats.applied, stats.duplicates, stats.recoveries), (14, 7, 1));
    assert_eq!(world.stream.state(), StreamState::Live);

    // Stores that come twice as two events count once in the pool.
    let other = Member::new(2, 0);
    for number in 14..=15 {
        world.event(1, number, store([100]));
        assert_eq!(world.pool.owners(h(100)), 1);
    }
    world.pool.store(other, &[h(100)]);
    assert_eq!(world.pool.owners(h(100)), 2);
    world.event(1, 16, remove([100]));
    world.event(1, 17, remove([100]));
    assert_eq!(world.pool.owners(h(100)), 1);
    world.pool.seal().unwrap().expect("something changed");
    world.pool.remove(other, &[h(100)]);
    let batch = world.pool.seal().unwrap().expect("something changed");
    assert_eq!(batch.changes().count(), 1, "one bucket");
    drop(batch);
    assert!(!world.pool.table().contains(h(100)));
}

#[test]
fn f10_ranks_of_a_worker_are_members_of_their_own() {
    let config = PoolSourcesConfig::new(
        SourceConfig::new(1),
        ReadyRule::new(100, Millis::from_secs(1)).unwrap(),
    );
    let mut sources = PoolSources::new(config, Direct, at(0));
    let mut pool = new_pool();
    let rank = |rank| Member::new(7, rank);
    // Overlapping numbers 1..5; rank 5 was never announced.
    for number in 0..=5 {
        let mut event = |member, bits| {
            let change = if number == 3 { store([bits]) } else { store([]) };
            sources.handle_event(member, generation(1), id(number), change, at(0))
        };
        assert_eq!(event(rank(0), 10), Ok(Handled::Applied));
        assert_eq!(event(rank(1), 10), Ok(Handled::Applied));
        assert_eq!(event(rank(5), 40), Ok(Handled::Applied));
    }
    assert_eq!((sources.stats().recoveries, sources.stats().duplicates), (0, 0));
    let mut drain = |sources: &mut PoolSources<Direct>| {
        while let Some(command) = sources.poll_command() {
            assert_eq!(pool.apply(&command).error, None);
        }
        (pool.owners(h(10)), pool.owners(h(40)))
    };
    assert_eq!(drain(&mut sources), (2, 1));
    sources.handle_event(rank(0), generation(1), id(6), vec![BlockChange::Clear], at(0)).unwrap();
    assert_eq!(drain(&mut sources), (1, 1));
    assert_eq!(sources.remove_worker(WorkerId::new(7), at(0)), 3);
    assert_eq!(drain(&mut sources), (0, 0));
    assert_eq!(sources.members().count(), 0);
}

#[test]
fn f15a_an_engine_restarted_in_place_holds_only_what_it_stored_since() {
    let mut world = World::direct(SourceConfig::new(1));
    for number in 0..=41 {
        world.event(1, number, store([number]));
    }
    assert_eq!(world.event(2, 0, store([1000])), Handled::Applied);
    world.assert_owns([1000]);
    assert_eq!(world.stream.poll_request(), None, "nothing is missing");
    assert_eq!(world.stream.stats().replacements, 1);
}

#[test]
fn f15b_a_member_that_left_and_came_back_starts_anew() {
    let rule = ReadyRule::new(100, Millis::from_secs(1)).unwrap();
    let config = PoolSourcesConfig::new(SourceConfig::new(1), rule);
    // The same generation, as of a host that cannot tell, or a new one.
    for next in [1, 2] {
        let mut sources = PoolSources::new(config, Direct, at(0));
        let mut pool = new_pool();
        for number in 0..=500 {
            let event = store([number]);
            sources.handle_event(MEMBER, generation(1), id(number), event, at(0)).unwrap();
        }
        assert!(sources.remove(MEMBER, at(1)));
        assert!(!sources.remove(MEMBER, at(1)));
        // Still on the way when the member left: it brings nobody back.
        let late = sources.handle_event(MEMBER, generation(1), id(501), store([501]), at(2));
        assert_eq!(late, Ok(Handled::OldGeneration));
        sources.announce(MEMBER, generation(next), at(3)).unwrap();
        let first = sources.handle_event(MEMBER, generation(next), id(0), store([9999]), at(3));
        assert_eq!(first, Ok(Handled::Applied));
        while let Some(command) = sources.poll_command() {
            pool.apply(&command);
        }
        assert_eq!(pool.owned_blocks(MEMBER), 1);
        assert!(pool.owns(MEMBER, h(9999)));
        assert_eq!(sources.poll_request(), None, "no gap");
    }
}

/// Also when it was expected back in between, and was not heard of.
#[test]
fn f19_late_data_does_not_bring_back_a_member_that_was_expected_and_left_again() {
    let rule = ReadyRule::new(100, Millis::from_secs(1)).unwrap();
    let config = PoolSourcesConfig::new(SourceConfig::new(1), rule);
    let mut sources = PoolSources::new(config, Direct, at(0));
    let event = |sources: &mut PoolSources<Direct>, life, number| {
        sources.handle_event(MEMBER, generation(life), id(number), store([number]), at(1))
    };
    assert_eq!(event(&mut sources, 3, 0), Ok(Handled::Applied));
    for _ in 0..2 {
        assert!(sources.remove(MEMBER, at(1)));
        assert_eq!(event(&mut sources, 3, 1), Ok(Handled::OldGeneration));
        sources.expect(MEMBER, at(1)).unwrap();
    }
    assert!(sources.remove(MEMBER, at(1)));
    assert_eq!(event(&mut sources, 3, 1), Ok(Handled::OldGeneration));
    assert_eq!((sources.members().count(), sources.stats().old_generation), (0, 3));
    // While it is expected, any generation will do.
    sources.expect(MEMBER, at(1)).unwrap();
    assert_eq!(event(&mut sources, 3, 0), Ok(Handled::Applied));
    // A new life is nothing late.
    assert!(sources.remove(MEMBER, at(1)));
    assert_eq!(event(&mut sources, 4, 0), Ok(Handled::Applied));
    assert_eq!(sources.stats().applied, 3, "of streams that are gone, too");
}

#[test]
fn f15c_a_new_connection_is_not_a_new_generation() {
    let mut world = World::direct(SourceConfig::new(1));
    for number in 0..=41 {
        world.event(1, number, store([number]));
    }
    // Whatever happened between source and host: the numbering goes on.
    assert_eq!(world.event(1, 42, store([42])), Handled::Applied);
    world.assert_owns(0..=42);
    // A number that goes back is a repetition, never a reset, whatever it says.
    for number in [0, 1, 17, 42] {
        let event = vec![BlockChange::Clear, BlockChange::Store(hashes([7777]))];
        assert_eq!(world.event(1, number, event), Handled::Duplicate);
    }
    world.assert_owns(0..=42);
    assert_eq!(world.stream.stats().replacements, 0);
}

#[test]
fn f17_the_position_of_a_full_state_is_taken_from_the_state() {
    let mut world = World::direct(SourceConfig::new(1).with_max_history(0));
    for number in 0..=100 {
        world.event(1, number, store([number]));
    }
    for number in 105..=108 {
        world.event(1, number, store([number]));
    }
    let request = world.request();
    assert_eq!(request.kind, RequestKind::FullState);
    assert_eq!(world.full_state(request.id, 1, 107, store(90..=107)), Handled::Applied);
    world.assert_owns(90..=108);
    assert_eq!(world.stream.applied(), Some(id(108)));
    let stats = world.stream.stats();
    assert_eq!((stats.recoveries, stats.covered, stats.requests), (1, 3, 1));
    assert_eq!(world.event(1, 109, store([109])), Handled::Applied);
    assert_eq!(world.stream.stats().recoveries, 1);
}

#[test]
fn f17_a_full_state_never_moves_the_stream_back() {
    let mut world = World::direct(SourceConfig::new(1).with_max_history(0));
    for number in 0..=100 {
        world.event(1, number, store([number]));
    }
    world.event(1, 105, store([105]));
    let request = world.request();
    // Made-up positions, older than what is applied.
    for made_up in [Some(0), Some(99), None] {
        assert_eq!(world.full_state(request.id, 1, made_up, store([1])), Handled::Unusable);
    }
    world.assert_owns(0..=100);
    assert_eq!(world.stream.stats().unusable_states, 3);
    assert_eq!(world.stream.poll_request(), None, "asked again when it is time, not at once");
    world.sleep();
    let again = world.request();
    assert_eq!((again.id, again.attempt), (request.id, 2));
    assert_eq!(world.full_state(again.id, 1, 106, store([1])), Handled::Applied);
    world.assert_owns([1]);
}

#[test]
fn f19_answers_of_a_superseded_generation_are_dropped_and_counted() {
    let mut world = World::direct(SourceConfig::new(1).with_max_history(0));
    world.event(4, 70, store([1]));
    let old = world.request();
    assert_eq!(old.generation, generation(4));
    // The source is replaced.
    assert_eq!(world.event(5, 0, store([26])), Handled::Applied);
    world.assert_owns([26]);
    assert_eq!(world.full_state(old.id, 4, 77, store([1, 2, 3])), Handled::OldGeneration);
    assert_eq!(world.event(4, 78, store([4])), Handled::OldGeneration);
    assert_eq!(world.heartbeat(4, 80), Handled::OldGeneration);
    world.assert_owns([26]);
    assert_eq!(world.stream.applied(), Some(id(0)));
    let stats = world.stream.stats();
    assert_eq!((stats.old_generation, stats.late_answers), (3, 1));

    // The same answer, marked with the new generation, belongs to no open question either.
    assert_eq!(world.full_state(old.id, 5, 77, store([1])), Handled::Late);
    assert_eq!(world.history_end(old.id), Handled::Late);
    assert_eq!(world.unavailable(old.id), Handled::Late);
    world.assert_owns([26]);
    assert_eq!(world.stream.poll_request(), None);
}

/// An answer that tells of a new life comes for the old question: the new life is asked at once, for
/// nothing else may ever arrive of it.
#[test]
fn f19_an_answer_of_a_newer_generation_has_that_one_asked() {
    let mut world = World::direct(SourceConfig::new(1));
    world.event(4, 70, store([1]));
    let old = world.request();
    assert_eq!(world.full_state(old.id, 5, 3, store([2])), Handled::Late);
    let new = world.request();
    assert_eq!((new.generation, new.kind), (generation(5), RequestKind::FullState));
    assert_eq!(world.full_state(new.id, 5, 3, store([2])), Handled::Applied);
    world.assert_owns([2]);
}

#[test]
fn f19_the_second_answer_to_a_question_is_late() {
    let mut world = World::direct(SourceConfig::new(1).with_max_history(0));
    world.event(1, 7, store([7]));
    let first = world.request();
    world.sleep();
    let again = world.request();
    assert_eq!(first.id, again.id, "a slow source may answer either");
    assert_eq!(world.full_state(first.id, 1, 7, store([7, 8])), Handled::Applied);
    assert_eq!(world.full_state(again.id, 1, 7, store([9])), Handled::Late);
    world.assert_owns([7, 8]);
}

#[test]
fn f21_a_heartbeat_exposes_a_lost_tail() {
    let mut world = World::direct(SourceConfig::new(1));
    for number in 0..10 {
        world.event(1, number, store([number]));
    }
    // Event 10 is lost and nothing follows.
    assert_eq!(world.heartbeat(1, 9), Handled::Noted);
    assert_eq!(world.stream.poll_request(), None);
    world.heartbeat(1, 10);
    let request = world.request();
    assert_eq!(request.kind, history(10, 10));
    assert_eq!(world.event(1, 10, store([10])), Handled::Applied);
    world.history_end(request.id);
    world.assert_owns(0..=10);
    assert_eq!(world.stream.state(), StreamState::Live);
}

#[test]
fn f21_what_history_cannot_give_is_never_skipped() {
    // The answer is empty; it begins after the gap; it says "unavailable"; it never comes.
    for case in 0..4 {
        let mut world = World::direct(SourceConfig::new(1));
        for number in 0..10 {
            world.event(1, number, store([number]));
        }
        world.event(1, 12, store([12]));
        let request = world.request();
        assert_eq!(request.kind, history(10, 11));
        let full = match case {
            0 => {
                world.history_end(request.id);
                world.request()
            }
            1 => {
                world.event(1, 11, store([11]));
                world.event(1, 12, store([12]));
                world.history_end(request.id);
                world.request()
            }
            2 => {
                world.unavailable(request.id);
                world.request()
            }
            _ => loop {
                world.sleep();
                let next = world.request();
                if next.id != request.id {
                    break next;
                }
            },
        };
        assert_eq!(full.kind, RequestKind::FullState, "case {case}");
        assert_eq!(world.stream.applied(), Some(id(9)), "nothing is skipped");
        world.full_state(full.id, 1, 11, store(5..=11));
        world.assert_owns(5..=12);
        assert_eq!(world.stream.state(), StreamState::Live);
        assert_eq!(world.stream.stats().recoveries, 1);
    }
}

#[test]
fn f21_history_that_ends_early_is_asked_on() {
    let mut world = World::direct(SourceConfig::new(1));
    world.event(1, 0, store([0]));
    world.heartbeat(1, 9);
    let mut next = 1;
    while world.stream.state() != StreamState::Live {
        let request = world.request();
        assert_eq!(request.kind, history(next, 9));
        for number in next..next + 3 {
            world.event(1, number, store([number]));
        }
        next += 3;
        world.history_end(request.id);
        // Said twice: the next question is another one.
        assert_eq!(world.history_end(request.id), Handled::Late);
    }
    world.assert_owns(0..=9);
}

#[test]
fn a_clear_makes_the_state_known_whatever_was_missed() {
    // Engines whose numbering starts anywhere begin with a clear.
    let config = SourceConfig::new(1).with_first_event(None);
    let mut world = World::direct(config);
    let start = 1_764_000_100_000_000_000;
    world.event(1, start + 5, store([5]));
    assert_eq!(world.request().kind, RequestKind::FullState);
    world.event(1, start + 7, store([7]));
    let event =
        vec![BlockChange::Store(hashes([60])), BlockChange::Clear, BlockChange::Store(hashes([6]))];
    assert_eq!(world.event(1, start + 6, event), Handled::Applied);
    world.assert_owns([6, 7]);
    assert_eq!(world.stream.state(), StreamState::Live);
    assert_eq!(world.stream.poll_timeout(), None);
    // Also in a gap, and what comes late from before it is a repetition.
    world.event(1, start + 20, vec![BlockChange::Clear]);
    assert_eq!(world.event(1, start + 19, store([19])), Handled::Duplicate);
    world.assert_owns([]);
}

#[test]
fn first_contact_in_the_middle_asks_the_full_state_and_holds_events_back() {
    let mut world = World::direct(SourceConfig::new(1));
    assert_eq!(world.stream.state(), StreamState::Idle);
    world.event(1, 3, store([3]));
    world.event(1, 4, remove([1]));
    let request = world.request();
    assert_eq!(request.kind, RequestKind::FullState);
    world.assert_owns([]);
    world.full_state(request.id, 1, 3, store([1, 3]));
    world.assert_owns([3]);
    assert_eq!(
        world.notices(),
        [
            SourceNotice::RecoveryStarted { doubt: Some(Doubt::FirstContact) },
            SourceNotice::Recovered { through: Some(id(4)) },
        ]
    );
}

#[test]
fn an_announced_source_is_asked_at_once_and_may_have_nothing() {
    let mut world = World::direct(SourceConfig::new(1));
    world.stream.handle_announced(generation(3), at(0));
    let request = world.request();
    assert_eq!(world.full_state(request.id, 3, None::<u64>, vec![]), Handled::Applied);
    assert_eq!(world.stream.state(), StreamState::Live);
    assert_eq!(world.event(3, 0, store([0])), Handled::Applied);
    world.assert_owns([0]);

    // A heartbeat can say so as well.
    let mut world = World::direct(SourceConfig::new(1));
    world.heartbeat(3, None);
    assert_eq!(world.stream.state(), StreamState::Live);

    // Where numbering starts anywhere, "nothing yet" leaves the next number unknown.
    let mut world = World::direct(SourceConfig::new(1).with_first_event(None));
    world.stream.handle_announced(generation(3), at(0));
    let request = world.request();
    assert_eq!(world.full_state(request.id, 3, None::<u64>, vec![]), Handled::Unusable);
}

#[test]
fn a_replacement_is_a_barrier() {
    let mut world = World::direct(SourceConfig::new(1));
    world.event(1, 0, store([1, 2]));
    // Seen in the middle of the new life: the old state goes at once, the new one is asked for.
    world.event(2, 5, store([5]));
    world.assert_owns([]);
    let request = world.request();
    assert_eq!((request.generation, request.kind), (generation(2), RequestKind::FullState));
    assert_eq!(
        world.notices(),
        [
            SourceNotice::Recovered { through: Some(id(0)) },
            SourceNotice::Replaced { generation: generation(2) },
            SourceNotice::RecoveryStarted { doubt: Some(Doubt::Replaced) },
        ]
    );
    let state = FullState {
        generation: generation(2),
        as_of: Some(EventId::new(5)),
        content: store([2, 5]),
    };
    world.stream.handle_full_state(request.id, state, at(0));
    world.drain();
    world.assert_owns([2, 5]);
}

#[test]
fn the_last_number_of_all_ends_the_numbering_without_wrapping() {
    let mut world = World::direct(SourceConfig::new(1).with_first_event(None));
    world.stream.handle_announced(generation(1), at(0));
    let request = world.request();
    world.full_state(request.id, 1, u64::MAX - 1, store([1]));
    assert_eq!(world.event(1, u64::MAX, store([2])), Handled::Applied);
    assert_eq!(world.event(1, 0, store([3])), Handled::Duplicate);
    world.heartbeat(1, u64::MAX);
    assert_eq!(world.stream.state(), StreamState::Live);
    world.assert_owns([1, 2]);
}

#[test]
fn numbers_before_the_first_one_are_repetitions() {
    let mut world = World::direct(SourceConfig::new(1).with_first_event(Some(id(1))));
    assert_eq!(world.event(1, 0, store([9])), Handled::Duplicate);
    assert_eq!(world.event(1, 1, store([1])), Handled::Applied);
    world.assert_owns([1]);
}

#[test]
fn the_largest_gap_asked_from_history_is_the_one_configured() {
    for (gap, asked) in [(1, history(1, 1)), (5, history(1, 5)), (6, RequestKind::FullState)] {
        let mut world = World::direct(SourceConfig::new(1).with_max_history(5));
        world.event(1, 0, store([0]));
        world.event(1, gap + 1, store([1]));
        assert_eq!(world.request().kind, asked);
    }
}
