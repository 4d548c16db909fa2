use std::sync::Arc;

use ckf_producer::{Command, Member};

use super::Choices;
use crate::scenario::hashes;
use crate::world::{Action, Bounds, World};

/// A producer and up to three consumers, with as many mishaps as the bytes hold: what
/// `tests/model.rs` promises of short ways must hold along a long one.
pub fn end_to_end(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let bounds = Bounds {
        consumers: 1 + choices.below(3),
        mishaps: u8::MAX,
        crashes: 20,
        chunk: 1 + choices.below(4) as u32,
        images: 1 + choices.below(4) as u32,
        outbox: 4 + choices.below(12) as u32,
    };
    let script: Arc<[Command]> = (0..choices.below(24)).map(|_| command(&mut choices)).collect();
    let mut world = World::new(&bounds, script);
    let mut actions: Vec<Action> = Vec::new();
    while !choices.is_empty() {
        actions.clear();
        world.actions(&mut actions);
        let Some(&action) = actions.get(choices.below(actions.len())) else { break };
        world.step(action);
        assert!(!world.foreign_effect, "a foreign lease changed a word: {action:?}");
        assert!(world.ready_lanes_are_exact(), "a ready lane is wrong after {action:?}");
        assert!(world.readiness_agrees(), "queries see a lane that is not ready after {action:?}");
    }
    assert!(world.recovers(), "a fair network does not help");
}

fn command(choices: &mut Choices<'_>) -> Command {
    let kind = choices.byte();
    let member = Member::new(u64::from(kind >> 6), 0);
    let first = u64::from(choices.byte() % 16);
    let hashes = hashes(first..first + u64::from(kind >> 3) % 8);
    match kind % 8 {
        0..4 => Command::Store { member, hashes },
        4 | 5 => Command::Remove { member, hashes },
        6 => Command::ReplaceMember { member, hashes },
        _ => Command::ClearMember { member },
    }
}
