//! The one file that knows the crates of this repository. Everything else calls these functions.

use std::rc::Rc;

use crate::lookups::{Row, Writer};
use crate::producer::Subject;
use crate::workload::{Chain, Query, Workload};

/// Rows `ours.jump`, `ours.walk`, `ours.batch8`, `ours.local` over tables filled with the workload.
pub fn lookup_rows(_workload: &dyn Workload, _queries: &Rc<[Query]>) -> Vec<Row> {
    Vec::new()
}

/// A jump row and a writer that applies the next delta to lane 0 of the same table.
pub fn lookup_with_writer(
    _workload: &dyn Workload,
    _queries: &Rc<[Query]>,
) -> Option<(Row, Writer)> {
    None
}

/// Whether [`Producer`] can be measured yet.
pub const PRODUCER: bool = false;

/// The producer of one pool.
pub enum Producer {}

impl Subject for Producer {
    type Command = ();

    fn new(_bucket_count: usize, _cadence: usize) -> Self {
        unreachable!("not measured")
    }

    fn store(_member: usize, _chain: &Chain, _from: usize, _to: usize) {}

    fn remove(_member: usize, _hashes: &[u64]) {}

    fn apply(&mut self, (): ()) -> usize {
        match *self {}
    }

    fn filter_bytes(&self) -> usize {
        match *self {}
    }

    fn own_bytes(&self) -> usize {
        match *self {}
    }

    fn edges(&self) -> usize {
        match *self {}
    }
}
