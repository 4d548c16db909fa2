//! The peers' side of the lookup comparison.

use std::sync::Arc;

use dynamo_kv_router::protocols::compute_seq_hash_for_block;
use dynamo_kv_router::{RouterEvent, SyncIndexer};

use crate::dynamo::{self, FILTER_LANES, Filter, Tree};
use crate::kvindex::{ChainIdx, content_hashes};
use crate::lookups::{Cost, Row, Side, WRITE_BLOCKS, WRITES, Writer, nth_write};
use crate::workload::{MAX_LANES, Query, Workload, fresh_chain};

pub struct Peers {
    /// Absent where there are more lanes than it is made for.
    filter: Option<(Arc<Filter>, Cost)>,
    chain: (Arc<ChainIdx>, Cost),
    tree: (Arc<Tree>, Cost),
}

impl Side for Peers {
    fn build(workload: &dyn Workload) -> Self {
        let filter = (workload.lanes() <= FILTER_LANES).then(|| {
            let ((filter, installs), mut cost) = Cost::of(|| Filter::build(workload));
            cost.own = Some(filter.own_bytes());
            cost.load = Some(filter.load(workload.blocks_per_lane()));
            cost.installs = installs;
            (Arc::new(filter), cost)
        });
        let (chain, mut chain_cost) = Cost::of(|| ChainIdx::build(workload));
        chain_cost.own = Some(chain.own_bytes());
        let (tree, tree_cost) = Cost::of(|| Tree::build(workload));
        Self { filter, chain: (Arc::new(chain), chain_cost), tree: (Arc::new(tree), tree_cost) }
    }

    fn rows(&self, queries: &[Query]) -> Vec<Row> {
        let local = || dynamo::local_hashes(queries);
        let content = || content_hashes(queries);
        let mut rows = Vec::new();
        if let Some((filter, cost)) = &self.filter {
            let (checked, check) = (local(), Arc::clone(filter));
            rows.push(
                filter_row(filter, queries)
                    .checked(move |number| check.depths(&checked[number]))
                    .costing(cost),
            );
        }
        let (chain, cost) = &self.chain;
        let (checked, check) = (content(), Arc::clone(chain));
        rows.push(
            chain_row(chain, queries)
                .checked(move |number| check.score(&checked[number]))
                .costing(cost),
        );
        let (tree, cost) = &self.tree;
        let (checked, check) = (local(), Arc::clone(tree));
        rows.push(
            tree_row(tree, queries)
                .checked(move |number| check.depths(&checked[number]))
                .costing(cost),
        );
        let hash = |query: &Vec<_>| compute_seq_hash_for_block(query);
        rows.push(Row::single("dynamo.hashing", local(), hash));
        let calls = Arc::clone(chain);
        rows.push(Row::single("kvindex.find_matches", content(), move |query| {
            calls.index.find_matches(query, false)
        }));
        rows
    }

    fn written(self, workload: &dyn Workload, queries: &[Query]) -> Vec<(Row, Writer)> {
        let mut pairs: Vec<(Row, Writer)> = Vec::new();
        if let Some((mut filter, _)) = self.filter {
            let own = Arc::get_mut(&mut filter).expect("no row is left");
            let (mut lane, mut state) = own.take_first_lane(workload);
            let batches: Vec<_> =
                events().filter_map(|event| state.apply_event(event).into_publication()).collect();
            let write = move || batches.iter().map(|batch| lane.apply(batch)).count();
            pairs.push((filter_row(&filter, queries), Box::new(write)));
        }
        let writes: Vec<_> = (0..WRITES)
            .map(|write| {
                let (number, store) = nth_write(write);
                (fresh_chain(number, WRITE_BLOCKS), store)
            })
            .collect();
        let chain = self.chain.0;
        pairs.push((chain_row(&chain, queries), Box::new(move || chain.write(0, &writes))));
        let tree = self.tree.0;
        let index = Arc::clone(&tree.index);
        let events: Vec<_> = events().collect();
        let write = move || dynamo::run_worker(&index, events);
        pairs.push((tree_row(&tree, queries), Box::new(write)));
        pairs
    }
}

fn filter_row(filter: &Arc<Filter>, queries: &[Query]) -> Row {
    let filter = Arc::clone(filter);
    Row::single("dynamo.filter", dynamo::local_hashes(queries), move |query| filter.find(query))
}

fn chain_row(chain: &Arc<ChainIdx>, queries: &[Query]) -> Row {
    let (name, chain) = ("kvindex.chain", Arc::clone(chain));
    if chain.lanes <= 16 {
        Row::single(name, content_hashes(queries), move |query| chain.score::<16>(query))
    } else {
        Row::single(name, content_hashes(queries), move |query| chain.score::<MAX_LANES>(query))
    }
}

fn tree_row(tree: &Arc<Tree>, queries: &[Query]) -> Row {
    let index = Arc::clone(&tree.index);
    Row::single("dynamo.tree", dynamo::local_hashes(queries), move |query| {
        index.find_matches(query, false)
    })
}

/// What a worker of Dynamo's would report while the writer runs.
fn events() -> impl Iterator<Item = RouterEvent> {
    (0..WRITES).map(|write| {
        let (number, store) = nth_write(write);
        let chain = fresh_chain(number, WRITE_BLOCKS);
        if store {
            dynamo::store_event(0, &chain, 0, WRITE_BLOCKS)
        } else {
            dynamo::remove_event(0, &chain.sequence)
        }
    })
}
