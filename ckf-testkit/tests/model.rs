//! Exhaustive exploration of the shipped machines with `stateright`: everything that a bounded
//! number of mishaps can do to one producer and its readers.
//!
//! The numbers of states are asserted: a change of behaviour shows as a change of a number, and
//! then has to be looked at before the number is changed.

use ckf_testkit::world::{Action, Bounds, World, script};
use stateright::{Checker, Model, Property};

struct System {
    bounds: Bounds,
    commands: usize,
}

impl Model for System {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.bounds, script(self.commands))]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.step(action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "a ready lane equals the producer at its sequence",
                |_, world: &World| world.ready_lanes_are_exact(),
            ),
            Property::always("no foreign lease changes a word", |_, world: &World| {
                !world.foreign_effect
            }),
            Property::always("queries see ready lanes only", |_, world: &World| {
                world.readiness_agrees()
            }),
            Property::always("a fair network leads to convergence", |_, world: &World| {
                world.recovers()
            }),
            Property::sometimes("all lanes converge after every command", |_, world: &World| {
                world.is_through() && world.converged()
            }),
            Property::sometimes("a subscriber lags", |_, world: &World| {
                world.producer.stats().ended.lagged > 0
            }),
            Property::sometimes("a lane resynchronises", |_, world: &World| {
                world.readers.iter().any(|reader| reader.session.stats().resyncs > 0)
            }),
        ]
    }
}

/// Explores everything within the bounds and returns the number of distinct states.
fn explore(commands: usize, bounds: Bounds) -> usize {
    let started = std::time::Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = System { bounds, commands }.checker().threads(threads).spawn_bfs().join();
    checker.assert_properties();
    println!(
        "{commands} commands, {bounds:?}: {} states, {} steps, depth {}, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        started.elapsed().as_secs_f32()
    );
    checker.unique_state_count()
}

/// Snapshots in two chunks, batches in parts of two patches.
const IN_PARTS: Bounds =
    Bounds { consumers: 1, mishaps: 2, crashes: 1, chunk: 2, images: 2, outbox: 6 };
/// Whole snapshots and batches in one message each.
const WHOLE: Bounds =
    Bounds { consumers: 2, mishaps: 1, crashes: 1, chunk: 4, images: 4, outbox: 2 };

#[test]
fn one_reader_five_commands_one_mishap() {
    assert_eq!(explore(5, Bounds { mishaps: 1, ..IN_PARTS }), 251_844);
}

#[test]
fn two_readers_two_commands_one_mishap() {
    assert_eq!(explore(2, WHOLE), 310_593);
}

#[test]
#[ignore = "a minute in release mode; ci/model.sh runs it"]
fn one_reader_three_commands_two_mishaps() {
    assert_eq!(explore(3, IN_PARTS), 934_644);
}

#[test]
#[ignore = "a minute in release mode; ci/model.sh runs it"]
fn two_readers_three_commands_one_mishap() {
    assert_eq!(explore(3, WHOLE), 1_846_666);
}

#[test]
#[ignore = "minutes in release mode; ci/model.sh --deep runs it"]
fn deep_one_reader_five_commands_two_mishaps() {
    assert_eq!(explore(5, Bounds { consumers: 1, mishaps: 2, ..WHOLE }), 6_159_984);
}
