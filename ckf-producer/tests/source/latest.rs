//! Sources that have no full state, only their latest events, and orphans, which cost nothing.

use std::collections::BTreeSet;

use ckf_producer::source::{
    BlockChange, BlockChanges, Doubt, EventId, Front, Handled, PoolSources, PoolSourcesConfig,
    ReadyReason, ReadyRule, RequestKind, SourceConfig, SourceEvent, StreamState,
};
use ckf_protocol::Millis;
use proptest::prelude::*;

use crate::support::*;

/// Changes, and how many blocks beside them have an unknown parent.
#[derive(Clone, Debug)]
struct Told(Vec<BlockChange>, u64);

impl SourceEvent for Told {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn clears(&self) -> bool {
        self.0.clears()
    }
}

#[derive(Clone, Debug)]
struct Teller;

impl Front for Teller {
    type Event = Told;

    fn apply(&mut self, event: Told, changes: &mut BlockChanges) -> u64 {
        event.0.into_iter().for_each(|change| changes.push(change));
        event.1
    }

    fn reset(&mut self) {}
}

fn plain(bits: impl IntoIterator<Item = u64>) -> Told {
    Told(store(bits), 0)
}

/// A member that holds blocks 0 to 9, told by events 0 to 9, and whose event 10 had an orphan: the
/// stream asks for the full state.
fn orphaned(config: SourceConfig) -> World<Teller> {
    let mut world = World::new(config, Teller);
    (0..10).for_each(|number| {
        world.event(1, number, plain([number]));
    });
    world.event(1, 10, Told(store([10]), 1));
    let doubt = Some(Doubt::Orphans);
    assert_eq!(world.stream.state(), StreamState::Recovering { doubt });
    world
}

fn live(world: &World<Teller>) {
    assert_eq!(world.stream.state(), StreamState::Live);
    let stats = world.stream.stats();
    assert_eq!((stats.started_over, stats.failures, stats.overflowed), (0, 0, 0));
}

#[test]
fn an_answer_that_vouches_for_nothing_leaves_a_member_without_a_gap_alone() {
    for events in [vec![], vec![(9, plain([9])), (10, plain([10]))], vec![(10, plain([10]))]] {
        let mut world = orphaned(SourceConfig::new(1));
        world.event(1, 11, plain([11]));
        let request = world.request();
        assert_eq!(world.latest(request.id, 1, events), Handled::Applied);
        live(&world);
        world.assert_owns(0..12);
        // What such a source could tell is applied: it is not asked for orphans again.
        world.now += 1_000_000;
        world.event(1, 12, Told(store([12]), 5));
        live(&world);
        assert_eq!((world.stream.stats().orphan_blocks, world.stream.poll_request()), (6, None));
        // Its next life may be another kind of source.
        world.event(2, 0, Told(store([1]), 1));
        assert_eq!(world.request().kind, RequestKind::FullState);
    }
}

/// Nobody knows where numbering starts, and there is nobody to ask: but nothing comes before number 0.
#[test]
fn of_a_source_that_keeps_nothing_events_from_number_0_on_are_held() {
    let mut world = World::direct(SourceConfig::new(1).with_first_event(None));
    for number in 0..3 {
        assert_eq!(world.event(1, number, store([number])), Handled::Queued);
    }
    let request = world.request();
    assert_eq!(world.latest(request.id, 1, []), Handled::Applied);
    assert_eq!(world.stream.state(), StreamState::Live);
    assert_eq!((world.stream.applied(), world.stream.queued()), (Some(EventId::new(2)), (0, 0)));
    world.event(1, 3, store([3]));
    world.assert_owns(0..4);
}

/// Asked about orphans, the source has forgotten what follows the last event applied: that loss comes
/// to light by its answer alone.
#[test]
fn latest_events_beyond_all_that_was_heard_of_bring_a_gap_to_light() {
    let mut world = orphaned(SourceConfig::new(1));
    let request = world.request();
    let events = [(13, plain([13])), (14, plain([14]))];
    assert_eq!(world.latest(request.id, 1, events), Handled::Applied);
    assert_eq!(world.request().kind, history(11, 14));
    world.assert_owns(0..11);
}

#[test]
fn orphans_whose_parents_nobody_tells_cost_nothing() {
    let config = SourceConfig::new(1).with_deadline(Millis::new(5000)).unwrap();
    // No answer at all.
    let mut world = orphaned(config);
    world.event(1, 11, plain([11]));
    let mut waits = 0;
    while world.stream.state() != StreamState::Live {
        world.sleep();
        waits += 1;
    }
    assert!(world.now >= 5000 && waits > 2);
    live(&world);
    world.assert_owns(0..12);
    // No answer now.
    let mut world = orphaned(config);
    world.event(1, 11, plain([11]));
    let request = world.request();
    world.unavailable(request.id);
    live(&world);
    world.assert_owns(0..12);
    assert_eq!(world.latest(request.id, 1, []), Handled::Late);
    // No room for what waits; each event has an orphan, and nothing rests between them.
    let narrow = config.with_queue(4, 1 << 20).unwrap().with_orphan_interval(Millis::new(0));
    let mut world = orphaned(narrow);
    for number in 11..100 {
        world.event(1, number, Told(store([number]), 1));
        assert!(world.stream.queued().0 <= 4);
    }
    let request = world.request();
    world.latest(request.id, 1, []);
    live(&world);
    world.assert_owns(0..100);
}

/// Orphans of a new life are asked about, however young the full state of the old one is.
#[test]
fn orphans_of_a_new_life_do_not_wait_for_the_old_one() {
    let mut world = orphaned(SourceConfig::new(1));
    let request = world.request();
    world.full_state(request.id, 1, 10, plain(0..11));
    world.event(1, 11, Told(store([11]), 1));
    assert_eq!((world.stream.state(), world.stream.poll_request()), (StreamState::Live, None));
    world.event(2, 0, Told(store([0]), 1));
    assert_eq!(world.request().generation, generation(2));
}

/// Nobody tells of the parents, and behind the orphans there is a gap: that is asked about once the
/// orphans are given up, with all the patience of a first question.
#[test]
fn a_gap_behind_orphans_costs_nothing_either() {
    let config = SourceConfig::new(1).with_deadline(Millis::new(5000)).unwrap();
    let mut world = orphaned(config);
    world.event(1, 13, plain([13]));
    let request = loop {
        match world.stream.poll_request() {
            Some(request) if request.kind != RequestKind::FullState => break request,
            _ => world.sleep(),
        }
    };
    assert_eq!((request.kind, request.attempt, world.now), (history(11, 12), 1, 5000));
    world.sleep();
    assert!(world.now < 6000, "it is asked again before it is given up");
    (11..13).for_each(|number| {
        world.event(1, number, plain([number]));
    });
    live(&world);
    world.assert_owns(0..14);
}

#[test]
fn orphans_give_up_nothing_for_the_limit_of_the_pool() {
    let rule = ReadyRule::new(100, Millis::new(1000)).unwrap();
    let config = PoolSourcesConfig::new(SourceConfig::new(1), rule);
    let config = config.with_max_queued(4, 1 << 20).unwrap();
    let (mut sources, mut pool) = (PoolSources::new(config, Teller, at(0)), new_pool());
    for number in 0..50 {
        let event = Told(store([number]), 1);
        sources.handle_event(MEMBER, generation(1), id(number), event, at(0)).unwrap();
        assert!(sources.queued().0 <= 4);
    }
    while let Some(command) = sources.poll_command() {
        pool.apply(&command);
    }
    assert_eq!((pool.owned_blocks(MEMBER), sources.stats().shed), (50, 0));
}

/// What goes on without the parents of orphans makes room, and no more is given up than is needed then.
#[test]
fn a_gap_behind_orphans_gives_up_no_more_than_the_limit_of_the_pool_asks_for() {
    let rule = ReadyRule::new(100, Millis::new(1000)).unwrap();
    let config = PoolSourcesConfig::new(SourceConfig::new(1), rule);
    let one = {
        let mut sources = PoolSources::new(config, Teller, at(0));
        sources.handle_event(MEMBER, generation(1), id(1), plain([1]), at(0)).unwrap();
        sources.queued().1
    };
    for (events, bytes) in [(3, 1 << 20), (1000, 3 * one)] {
        let config = config.with_max_queued(events, bytes).unwrap();
        let mut sources = PoolSources::new(config, Teller, at(0));
        let mut event = |number, orphans| {
            let event = Told(store([number]), orphans);
            sources.handle_event(MEMBER, generation(1), id(number), event, at(0)).unwrap()
        };
        event(0, 1);
        for number in [1, 2, 4] {
            assert_eq!(event(number, 0), Handled::Queued);
        }
        assert_eq!(event(5, 0), Handled::Queued, "1 and 2 do not wait any more");
        assert_eq!((sources.queued().0, sources.stats().shed), (2, 0));
        assert_eq!(sources.stream(MEMBER).unwrap().applied(), Some(id(2)));
        assert_eq!(sources.poll_request().unwrap().kind, history(3, 3));
    }
    // Nor less: the room that they make is not enough for this one.
    let mut sources =
        PoolSources::new(config.with_max_queued(1000, 3 * one).unwrap(), Teller, at(0));
    let mut event = |number, event| {
        sources.handle_event(MEMBER, generation(1), id(number), event, at(0)).unwrap()
    };
    event(0, Told(store([0]), 1));
    for number in [1, 3] {
        assert_eq!(event(number, plain([number])), Handled::Queued);
    }
    assert_eq!(event(4, plain(0..2 * one / 8)), Handled::Overflowed);
    assert!(sources.queued().1 <= 3 * one);
    assert_eq!(sources.poll_request().unwrap().kind, RequestKind::FullState);
}

#[test]
fn a_member_that_time_makes_live_counts_for_the_pool() {
    let rule = ReadyRule::new(100, Millis::new(1_000_000)).unwrap();
    let config = SourceConfig::new(1).with_deadline(Millis::new(5000)).unwrap();
    let config = PoolSourcesConfig::new(config, rule);
    let mut sources = PoolSources::new(config, Teller, at(0));
    sources.expect(MEMBER, at(0)).unwrap();
    let event = Told(store([0]), 1);
    sources.handle_event(MEMBER, generation(1), id(0), event, at(0)).unwrap();
    assert_eq!((sources.readiness().recovered, sources.readiness().ready), (0, None));
    // The parent of the orphan never comes, and its stream goes on without.
    sources.handle_timeout(at(5000));
    assert_eq!(sources.stream(MEMBER).unwrap().state(), StreamState::Live);
    let ready = Some(ReadyReason::Recovered);
    assert_eq!((sources.readiness().recovered, sources.readiness().ready), (1, ready));
    sources.remove(MEMBER, at(5001));
    assert_eq!((sources.readiness().expected, sources.readiness().recovered), (0, 0));
}

#[test]
fn a_graver_doubt_takes_the_place_of_orphans() {
    let mut world = orphaned(SourceConfig::new(1));
    world.stream.handle_suspect(at(0));
    let doubt = Some(Doubt::Host);
    assert_eq!(world.stream.state(), StreamState::Recovering { doubt });
    let request = world.request();
    world.latest(request.id, 1, [(10, plain([10]))]);
    world.assert_owns([10]);
    assert_eq!(world.stream.stats().started_over, 1);
    // A gap behind the orphans is a gap, once these are dealt with.
    let mut world = orphaned(SourceConfig::new(1));
    world.event(1, 13, plain([13]));
    let request = world.request();
    world.latest(request.id, 1, []);
    assert_eq!(world.request().kind, history(11, 12));
    world.assert_owns(0..11);
}

#[test]
fn of_a_source_met_late_what_its_latest_events_store_is_held() {
    for (waiting, told, held, applied) in [
        // The buffer begins at 50; block 51 went again, 7 had been there before.
        (
            None,
            vec![(50, store([50])), (51, store([51, 52])), (52, remove([51, 7]))],
            vec![50, 52],
            52,
        ),
        // Event 51 is gone, or nobody can read it: block 50 may have gone with it.
        (None, vec![(49, store([49])), (50, store([50])), (52, store([52]))], vec![52], 52),
        // From the beginning: all of it.
        (None, vec![(0, store([0])), (1, store([1]))], vec![0, 1], 1),
        // A clear says more than any beginning.
        (
            None,
            vec![(50, store([50])), (51, [vec![BlockChange::Clear], store([51])].concat())],
            vec![51],
            51,
        ),
        // What came meanwhile follows.
        (Some(52), vec![(50, store([50])), (51, store([51]))], vec![50, 51, 52], 52),
        (Some(51), vec![(50, store([50])), (51, store([51]))], vec![50, 51], 51),
        // Nothing to ask: what came counts.
        (Some(52), vec![], vec![52], 52),
    ] {
        let mut world = World::direct(SourceConfig::new(1));
        world.stream.handle_announced(generation(1), at(0));
        if let Some(number) = waiting {
            world.event(1, number, store([number]));
        }
        let request = world.request();
        assert_eq!(world.latest(request.id, 1, told.clone()), Handled::Applied, "{told:?}");
        world.assert_owns(held);
        assert_eq!(world.stream.applied(), Some(id(applied)), "{told:?}");
        assert_eq!(world.stream.state(), StreamState::Live);
        assert_eq!(world.stream.stats().started_over, 1);
    }
}

#[test]
fn nothing_published_yet_is_known_where_numbering_begins_somewhere_known() {
    let mut world = World::direct(SourceConfig::new(1));
    world.stream.handle_announced(generation(1), at(0));
    let request = world.request();
    assert_eq!(world.latest(request.id, 1, []), Handled::Applied);
    assert_eq!(world.stream.state(), StreamState::Live);
    world.event(1, 0, store([0]));
    world.assert_owns([0]);

    let mut world = World::direct(SourceConfig::new(1).with_first_event(None));
    world.stream.handle_announced(generation(1), at(0));
    let request = world.request();
    assert_eq!(world.latest(request.id, 1, []), Handled::Unusable);
    world.event(1, 7, store([7]));
    assert_eq!(world.latest(request.id, 1, []), Handled::Applied);
    world.assert_owns([7]);
}

/// A member with blocks 0 to 9 by events 0 to 9, in doubt because of a gap of each sort after them.
fn gapped() -> Vec<(Doubt, World<ckf_producer::source::Direct>)> {
    let begin = |config| {
        let mut world = World::direct(config);
        (0..10).for_each(|number| {
            world.event(1, number, store([number]));
        });
        world
    };
    let mut long = begin(SourceConfig::new(1).with_max_history(0));
    long.event(1, 14, store([14]));
    let mut none = begin(SourceConfig::new(1));
    none.event(1, 14, store([14]));
    let request = none.request();
    none.history_end(request.id);
    let mut silent = begin(SourceConfig::new(1));
    silent.event(1, 14, store([14]));
    while silent.stream.state() == (StreamState::Recovering { doubt: None }) {
        silent.sleep();
    }
    let mut overflow = begin(SourceConfig::new(1).with_queue(1, 1 << 20).unwrap());
    (12..15).for_each(|number| {
        overflow.event(1, number, store([number]));
    });
    vec![
        (Doubt::LongGap, long),
        (Doubt::NoHistory, none),
        (Doubt::NoHistory, silent),
        (Doubt::Overflow, overflow),
    ]
}

#[test]
fn latest_events_that_reach_back_continue_the_state_others_replace_it() {
    for first in [3, 10, 11, 14] {
        for (doubt, mut world) in gapped() {
            assert_eq!(world.stream.state(), StreamState::Recovering { doubt: Some(doubt) });
            let request = world.request();
            let told = (first..15).map(|number| (number, store([number])));
            assert_eq!(world.latest(request.id, 1, told), Handled::Applied);
            assert_eq!(world.stream.state(), StreamState::Live, "{doubt:?} from {first}");
            let reaches_back = first <= 10;
            world.assert_owns(if reaches_back { 0..15 } else { first..15 });
            assert_eq!(world.stream.stats().started_over, u64::from(!reaches_back));
        }
    }
    for (doubt, mut world) in gapped() {
        let request = world.request();
        assert_eq!(world.latest(request.id, 1, []), Handled::Applied);
        world.assert_owns([14]);
        assert_eq!(world.stream.stats().started_over, 1, "{doubt:?}");
    }
}

/// What they leave of a long gap is asked about at once, and an answer counts once.
#[test]
fn latest_events_that_end_before_another_long_gap_are_followed_by_another_question() {
    let mut world = World::direct(SourceConfig::new(1).with_max_history(2));
    world.event(1, 0, store([0]));
    world.event(1, 20, store([20]));
    let first = world.request();
    world.latest(first.id, 1, (0..10).map(|number| (number, store([number]))));
    world.assert_owns(0..10);
    let second = world.request();
    assert_eq!((second.kind, world.now), (RequestKind::FullState, 0));
    assert_ne!(first.id, second.id);
    assert_eq!(world.latest(first.id, 1, []), Handled::Late);
    world.latest(second.id, 1, (5..21).map(|number| (number, store([number]))));
    world.assert_owns(0..21);
    assert_eq!(world.stream.state(), StreamState::Live);
}

/// Wherever numbering begins: before its first event nothing can be missing.
#[test]
fn latest_events_that_reach_back_to_the_first_of_all_start_nothing_over() {
    for first in [0, 1, 1000] {
        let config = SourceConfig::new(1).with_first_event(Some(id(first))).with_max_history(0);
        for told in [first..first + 3, 0..0] {
            let mut world = World::direct(config);
            world.heartbeat(1, None);
            assert_eq!(world.stream.state(), StreamState::Live);
            world.event(1, first + 2, store([first + 2]));
            if told.is_empty() {
                world.event(1, first + 1, store([first + 1]));
                world.event(1, first, store([first]));
            }
            let request = world.request();
            let told = told.map(|number| (number, store([number])));
            assert_eq!(world.latest(request.id, 1, told), Handled::Applied);
            assert_eq!(world.stream.state(), StreamState::Live);
            assert_eq!(world.stream.applied(), Some(id(first + 2)));
            assert_eq!(world.stream.stats().started_over, 0, "from {first}");
            world.assert_owns(first..first + 3);
        }
    }
}

#[test]
fn latest_events_that_are_late_foreign_or_older_change_nothing() {
    let mut world = World::direct(SourceConfig::new(1));
    (0..10).for_each(|number| {
        world.event(3, number, store([number]));
    });
    world.stream.handle_suspect(at(0));
    let request = world.request();
    assert_eq!(world.latest(request.id, 2, [(9, store([99]))]), Handled::OldGeneration);
    assert_eq!(world.latest(request.id, 3, [(7, store([99]))]), Handled::Unusable);
    world.assert_owns(0..10);
    assert_eq!(world.latest(request.id, 3, [(9, store([99]))]), Handled::Applied);
    assert_eq!(world.latest(request.id, 3, [(9, store([98]))]), Handled::Late);
    world.assert_owns([99]);
}

fn changes() -> impl Strategy<Value = Vec<BlockChange>> {
    let blocks = || prop::collection::vec(0u64..12, 0..4).prop_map(hashes);
    let change = prop_oneof![
        10 => blocks().prop_map(BlockChange::Store),
        8 => blocks().prop_map(BlockChange::Remove),
        1 => Just(BlockChange::Clear),
    ];
    prop::collection::vec(change, 0..3)
}

fn apply(held: &mut BTreeSet<u64>, changes: &[BlockChange]) {
    for change in changes {
        match change {
            BlockChange::Store(hashes) => held.extend(hashes.iter().map(|hash| hash.get())),
            BlockChange::Remove(hashes) => held.retain(|bits| !hashes.contains(&h(*bits))),
            BlockChange::Clear => held.clear(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Whatever was heard, missed, kept and unreadable: what is shown is what the events after the
    /// last hole make of the state before, if they reach back to it, or else of nothing. So nothing
    /// is shown that the source does not hold.
    #[test]
    fn only_what_is_certain_is_shown(
        events in prop::collection::vec(changes(), 1..30),
        heard in 0usize..30,
        kept in 0usize..30,
        unreadable in prop::option::of(0usize..30),
        suspect in any::<bool>(),
    ) {
        let heard = heard.min(events.len() - 1);
        let mut world = World::direct(SourceConfig::new(1).with_max_history(0));
        for (number, event) in events.iter().take(heard).enumerate() {
            world.event(1, number as u64, event.clone());
        }
        let last = events.len() as u64 - 1;
        world.heartbeat(1, last);
        if suspect {
            world.stream.handle_suspect(at(0));
        }
        let Some(request) = world.stream.poll_request() else {
            panic!("event {heard} is missing")
        };
        let kept = kept.min(events.len() - 1);
        let unreadable = unreadable.filter(|number| (kept..events.len() - 1).contains(number));
        let told = (kept..events.len()).filter(|number| Some(*number) != unreadable);
        world.latest(request.id, 1, told.map(|number| (number as u64, events[number].clone())));
        let from = unreadable.map_or(kept, |number| number + 1);
        let state = |numbers: std::ops::Range<usize>| {
            let mut held = BTreeSet::new();
            events[numbers].iter().for_each(|event| apply(&mut held, event));
            held
        };
        // A stream that never heard of its member, or no longer trusts it, has nothing to continue.
        let continues = from <= heard && heard > 0 && !suspect;
        let certain = state(if continues { 0..events.len() } else { from..events.len() });
        prop_assert_eq!(world.stream.applied(), Some(EventId::new(last)));
        world.assert_owns(certain.iter().copied());
        prop_assert!(certain.is_subset(&state(0..events.len())));
    }
}
