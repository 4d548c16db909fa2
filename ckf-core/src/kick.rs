//! Plans where a fingerprint can go, without touching the table.
//!
//! A breadth-first search over the buckets that residents could move to finds a shortest chain of
//! moves, so that an insertion changes as few buckets as possible and a refusal changes none.
//! Deterministic: the same table and address always give the same plan.

use crate::{Address, BucketIndex, Buckets, Format};

/// Full buckets whose residents one search may think of moving; it looks at the other buckets of
/// all of them. At 95 % load some 15 % of the buckets still have room, so a search that looks at
/// so many fails only when the table is practically full.
const SEARCH_BUCKETS: usize = 512;

/// Buckets within which most searches end.
const SOON: usize = 32;

/// Longest chain of moves. With four slots a bucket, `SEARCH_BUCKETS` are spent within five levels
/// unless most residents have nowhere else to go, as in tables of a few buckets.
const MAX_MOVES: usize = 8;

/// A bucket that the search reached.
#[derive(Clone, Copy)]
struct Node {
    bucket: u32,
    /// The node whose resident would move here; for the one or two roots, itself.
    parent: u16,
    /// The slot of that resident in the parent's bucket.
    slot: u8,
    depth: u8,
}

/// One step of a [`Plan`]: the resident of `slot` in `from` moves to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) from: BucketIndex,
    pub(crate) slot: u8,
    pub(crate) to: BucketIndex,
}

/// How to insert one fingerprint: moves to make, in order, then the bucket that has room.
///
/// Valid for the table it was planned on, until that table changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    moves: [Move; MAX_MOVES],
    len: u8,
    target: BucketIndex,
}

impl Plan {
    /// Moves in the order in which they must be made: the last resident of the chain first.
    pub(crate) fn moves(&self) -> &[Move] {
        &self.moves[..usize::from(self.len)]
    }

    /// The candidate bucket that has room once the moves are made.
    pub(crate) fn target(&self) -> BucketIndex {
        self.target
    }
}

/// Finds a plan for an address whose candidate buckets are both full. Adds to `searched` the full
/// buckets whose residents it thought of moving: the unit of its work.
#[cold]
pub(crate) fn plan(
    format: &Format,
    buckets: &impl Buckets,
    address: &Address,
    searched: &mut u32,
) -> Option<Plan> {
    // Most searches end soon; making room for the largest would cost more than they do. What the
    // small one finds, the large one would find as well.
    search::<SOON>(format, buckets, address, searched)
        .or_else(|| search::<SEARCH_BUCKETS>(format, buckets, address, searched))
}

/// The search, over at most `MOST` buckets.
fn search<const MOST: usize>(
    format: &Format,
    buckets: &impl Buckets,
    address: &Address,
    searched: &mut u32,
) -> Option<Plan> {
    let root =
        |bucket: BucketIndex, at| Node { bucket: bucket.get(), parent: at, slot: 0, depth: 0 };
    let mut nodes = [root(address.first, 0); MOST];
    let mut len = 1;
    if address.second != address.first {
        nodes[1] = root(address.second, 1);
        len = 2;
    }
    let mut next = 0;
    while next < len {
        let node = nodes[next];
        let here = format.bucket(node.bucket)?;
        let image = buckets.image(here);
        *searched += 1;
        for (slot, resident) in (0u8..).zip(image.slots()) {
            let Some(resident) = resident else { continue };
            let there = format.alternate(here, resident);
            if on_chain(&nodes, next, there.get()) {
                continue;
            }
            let child =
                Node { bucket: there.get(), parent: next as u16, slot, depth: node.depth + 1 };
            if buckets.image(there).occupied() < 4 {
                return unwind(format, &nodes, child);
            }
            if len < MOST && usize::from(child.depth) < MAX_MOVES {
                nodes[len] = child;
                len += 1;
            }
        }
        next += 1;
    }
    None
}

/// Whether `bucket` already lies on the chain that leads to node `at`. It has been gone through then,
/// by a shorter chain, and nothing new can be found behind it: without this look, searches in tables of
/// a few buckets would go in circles until their bound.
fn on_chain(nodes: &[Node], mut at: usize, bucket: u32) -> bool {
    loop {
        let node = nodes[at];
        if node.bucket == bucket {
            return true;
        }
        if usize::from(node.parent) == at {
            return false;
        }
        at = usize::from(node.parent);
    }
}

/// Turns the chain that ends in `leaf`, a bucket with room, into a plan.
fn unwind(format: &Format, nodes: &[Node], leaf: Node) -> Option<Plan> {
    let mut to = format.bucket(leaf.bucket)?;
    let mut plan = Plan { moves: [Move { from: to, slot: 0, to }; MAX_MOVES], len: 0, target: to };
    let mut node = leaf;
    while node.depth > 0 {
        let parent = nodes[usize::from(node.parent)];
        let from = format.bucket(parent.bucket)?;
        plan.moves[usize::from(plan.len)] = Move { from, slot: node.slot, to };
        plan.len += 1;
        plan.target = from;
        to = from;
        node = parent;
    }
    Some(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockHash, Table};

    /// Where there are few ways, a search ends when it has tried them.
    #[test]
    fn f26_a_search_does_not_go_in_circles() {
        for seed in 0..50 {
            let format = Format::any_count(2, seed).unwrap();
            let mut table = Table::new(format).unwrap();
            let refused = (0..)
                .map(|i| format.address(BlockHash::new(i)))
                .find(|address| table.insert(address, |_| ()).is_err())
                .unwrap();
            let mut searched = 0;
            assert!(plan(&format, table.buckets(), &refused, &mut searched).is_none());
            assert!((1..=20).contains(&searched), "{searched}");
        }
    }
}
