//! Stop 9: queries. In come the block hashes of a request; out goes, by lane, how many of them
//! from the start are there. Next stop: [`matches`](crate::Matches).

use ckf_core::BlockHash;

use crate::matches::Matches;
use crate::sync::Arc;
use crate::table::Table;
use crate::LaneMask;

/// Asks all ready lanes at once. Cheap to clone; any number of threads may ask at the same time.
#[derive(Clone, Debug)]
pub struct QueryHandle {
    table: Arc<Table>,
}

impl QueryHandle {
    pub(crate) fn new(table: Arc<Table>) -> Self {
        Self { table }
    }

    /// For every ready lane, how many blocks from the start of `prefix` it probably holds without
    /// a gap.
    pub fn find_prefix(&self, prefix: &[BlockHash]) -> Matches {
        let captured = self.table.capture();
        let mut matches = Matches::new(prefix.len());
        for lane in LaneMask::from_bits(captured.ready) {
            matches.set(lane, self.table.dc(lane.get()), prefix.len());
        }
        let mut alive = captured.ready;
        for (position, &hash) in prefix.iter().enumerate() {
            let found = self.scan(hash, alive);
            for lane in LaneMask::from_bits(alive & !found) {
                matches.set_depth(lane, position);
            }
            alive = found;
            if alive == 0 {
                break;
            }
        }
        matches.keep(LaneMask::from_bits(self.table.confirm(captured)));
        matches
    }

    /// The ready lanes that probably hold the block.
    pub fn contains(&self, hash: BlockHash) -> LaneMask {
        let captured = self.table.capture();
        let found = self.scan(hash, captured.ready);
        LaneMask::from_bits(found & self.table.confirm(captured))
    }

    /// Of `lanes`, those whose words hold the block.
    fn scan(&self, hash: BlockHash, lanes: u64) -> u64 {
        let address = self.table.format().address(hash);
        let rows = self.table.rows();
        let held = LaneMask::from_bits(lanes).iter().filter(|lane| {
            [address.first, address.second].into_iter().any(|bucket| {
                let word = rows.load(bucket.get(), lane.get());
                ckf_core::BucketImage::new(word).contains(address.fingerprint)
            })
        });
        held.fold(0, |mask, lane| mask | 1 << lane.get())
    }
}
