//! What happened to one lane of either side, as text: one line each.
//!
//! `format BUCKETS SEED`, `chain HASH...` (the numbers of chains are their places), and then, with the
//! side's letter in front (`d`: Dynamo's producer, `o`: ours): `store MEMBER CHAIN FROM TO`, `remove MEMBER
//! CHAIN BLOCK...`, `clear MEMBER`, `batch BUCKET:WORD...`, and `depth CHAIN BLOCKS FOUND`: the depth that
//! Dynamo's consumer found then. Hashes and words are hexadecimal.

use std::fmt::Write;
use std::ops::Range;

use ckf_core::Format;

use crate::workload::Chain;

pub struct Record {
    /// Dynamo's lane, and ours.
    lanes: [usize; 2],
    text: String,
}

impl Record {
    pub fn new(lanes: [usize; 2], format: &Format, chains: &[Chain]) -> Self {
        let mut text = format!("format {} {:x}\n", format.bucket_count(), format.seed());
        for chain in chains {
            text.push_str("chain");
            chain.sequence.iter().for_each(|hash| put(&mut text, format_args!(" {hash:x}")));
            text.push('\n');
        }
        Self { lanes, text }
    }

    pub fn store(&mut self, lane: usize, member: usize, chain: usize, range: &Range<usize>) {
        let Range { start, end } = range;
        self.line(lane, format_args!("store {member} {chain} {start} {end}"));
    }

    pub fn remove(&mut self, lane: usize, member: usize, chain: usize, blocks: &[usize]) {
        let mut line = format!("remove {member} {chain}");
        blocks.iter().for_each(|block| put(&mut line, format_args!(" {block}")));
        self.line(lane, format_args!("{line}"));
    }

    pub fn clear(&mut self, lane: usize, member: usize) {
        self.line(lane, format_args!("clear {member}"));
    }

    pub fn batch(&mut self, lane: usize, images: &[(usize, u64)]) {
        let mut line = "batch".to_owned();
        for (bucket, word) in images {
            put(&mut line, format_args!(" {bucket}:{word:x}"));
        }
        self.line(lane, format_args!("{line}"));
    }

    pub fn depth(&mut self, lane: usize, chain: usize, blocks: usize, found: u32) {
        self.line(lane, format_args!("depth {chain} {blocks} {found}"));
    }

    pub fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, lane: usize, line: std::fmt::Arguments<'_>) {
        if let Some(side) = self.lanes.iter().position(|&recorded| recorded == lane) {
            put(&mut self.text, format_args!("{} {line}\n", ["d", "o"][side]));
        }
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes all");
}
