//! Dynamo's producers feed our lanes and ours feed Dynamo's consumer, bucket image by bucket image.
//!
//! Both consumers hold the same four lanes of the power-of-two format: Dynamo's producer feeds the
//! first two, ours the others. Random commands, batches and new leases follow; every few batches each
//! lane of ours must equal its producer's table word for word, and both consumers must give the same
//! depths. Dynamo's consumer shows its table only through its answers.

mod lane;
mod record;
mod world;

use std::fmt;

use crate::measure::Rng;
use world::{CHAIN_BLOCKS, CHAINS, MEMBERS, World};

/// Commands to one lane before a batch, at most.
const BURST: usize = 8;
/// Batches of each lane between two comparisons.
const COMPARE_EVERY: usize = 4;
/// Batches of each lane between two new leases.
const LEASE_EVERY: usize = 50;
/// Requests of one comparison.
const QUERIES: usize = 40;

/// What was done and compared. Nothing differed, or there is none.
#[derive(Debug, Default)]
pub struct Report {
    pub commands: usize,
    pub removed_blocks: usize,
    pub batches: usize,
    pub images: usize,
    pub leases: usize,
    pub tables_equal: usize,
    pub depths_equal: usize,
    /// Of the equal depths, those above 0.
    pub found: usize,
    /// A lane that has a later block of the request, but not all before it: an eviction in the middle,
    /// or a false positive. The walk stops there; Dynamo's search may pass.
    pub holed: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commands, removed_blocks, batches, images, leases, .. } = self;
        writeln!(f, "{commands} commands, {removed_blocks} blocks removed by them")?;
        writeln!(f, "{batches} batches of {images} bucket images, {leases} leases")?;
        writeln!(f, "{} tables compared, all equal", self.tables_equal)?;
        write!(
            f,
            "{} depths compared, all equal, {} of them above 0; {} with a hole not compared",
            self.depths_equal, self.found, self.holed
        )
    }
}

/// Runs `batches` batches of each lane. What happened to one lane of either side is given as well, for
/// `examples/tests/hosts/interop.rs` to repeat without Dynamo.
///
/// # Errors
/// The first difference, in words.
pub fn run(seed: u64, batches: usize) -> Result<(Report, String), String> {
    let mut rng = Rng::new(seed);
    let mut report = Report::default();
    let mut world = World::new();
    for number in 0..batches {
        for lane in 0..world.lanes() {
            let place = |what: String| format!("seed {seed}, batch {number}, lane {lane}: {what}");
            if number % LEASE_EVERY == lane {
                world.lease(lane).map_err(place)?;
                report.leases += 1;
            }
            for _ in 0..=rng.below(BURST) {
                report.removed_blocks += command(&mut world, lane, &mut rng);
                report.commands += 1;
            }
            let images = world.publish(lane).map_err(place)?;
            report.batches += usize::from(images > 0);
            report.images += images;
        }
        if number % COMPARE_EVERY == COMPARE_EVERY - 1 {
            let place = |what: String| format!("seed {seed}, after batch {number}: {what}");
            world.compare_tables().map_err(place)?;
            report.tables_equal += world.lanes();
            for _ in 0..QUERIES {
                let (chain, len) = (rng.below(CHAINS), 1 + rng.below(CHAIN_BLOCKS));
                world.compare_depths(chain, len, &mut report).map_err(place)?;
            }
        }
    }
    Ok((report, world.record.into_text()))
}

/// One random command; returns the blocks that it removes.
fn command(world: &mut World, lane: usize, rng: &mut Rng) -> usize {
    let (member, chain) = (rng.below(MEMBERS), rng.below(CHAINS));
    let held: Vec<usize> =
        (0..CHAIN_BLOCKS).filter(|&at| world.holds(lane, member, chain, at)).collect();
    match rng.below(200) {
        0 => world.clear_member(lane, member),
        1..=110 => {
            // After the first block that is missing all before it are there.
            let from = held.iter().zip(0..).take_while(|&(&at, expected)| at == expected).count();
            let to = CHAIN_BLOCKS.min(from + 1 + rng.below(16));
            world.store(lane, member, chain, from..to);
            0
        }
        // What was used longest ago goes first, ends of chains before their beginnings.
        111..=190 => {
            let keep = rng.below(held.len() + 1);
            world.remove(lane, member, chain, &held[keep..])
        }
        // Anything, in any order.
        _ => {
            let mut any = held;
            rng.shuffle(&mut any);
            any.truncate(rng.below(4));
            world.remove(lane, member, chain, &any)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_and_consumers_of_both_sides_agree() {
        for seed in 1..=4 {
            let (report, _) = run(seed, 300).unwrap();
            assert!(report.batches > 900 && report.removed_blocks > 5000, "{report}");
            assert!(report.found > 1000 && report.leases >= 20, "{report}");
            assert!(report.holed * 4 < report.depths_equal, "{report}");
        }
    }
}
