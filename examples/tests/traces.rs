//! The readers against the figures that the traces' own description states: counted without
//! eviction, over every request of every recorded file.

mod common;

use std::collections::HashSet;
use std::path::Path;

use ckf_core::BlockHash;
use ckf_examples::trace::Trace;

#[derive(Debug, PartialEq)]
struct Counted {
    requests: u64,
    blocks: u64,
    distinct: usize,
    leading_hits: u64,
}

fn count(path: &Path) -> Counted {
    let (mut requests, mut blocks, mut leading_hits) = (0, 0, 0);
    let mut seen: HashSet<BlockHash> = HashSet::new();
    let mut last = 0;
    for request in Trace::open(path, 1).expect("a trace") {
        let request = request.expect("a good line");
        assert!(request.at >= last);
        last = request.at;
        requests += 1;
        blocks += request.blocks.len() as u64;
        let known = request.blocks.iter().take_while(|block| seen.contains(*block)).count();
        leading_hits += known as u64;
        seen.extend(&request.blocks[known..]);
    }
    Counted { requests, blocks, distinct: seen.len(), leading_hits }
}

#[test]
fn mooncake_files_give_the_stated_figures() {
    let Some(traces) = common::traces() else { return };
    let stated = [
        ("mooncake_fast25_conversation.jsonl", [12_031, 288_500, 182_790, 105_710]),
        ("mooncake_fast25_synthetic.jsonl", [3_993, 121_877, 43_924, 77_953]),
        ("mooncake_arxiv_head_1000.jsonl", [1_000, 19_686, 12_207, 7_479]),
    ];
    for (file, [requests, blocks, distinct, leading_hits]) in stated {
        let stated = Counted { requests, blocks, distinct: distinct as usize, leading_hits };
        assert_eq!(count(&traces.join(file)), stated, "{file}");
    }
}

#[test]
fn the_agentic_head_gives_the_stated_hit_rate() {
    let Some(traces) = common::traces() else { return };
    let counted = count(&traces.join("agentic_coding_head.jsonl"));
    assert_eq!(counted.requests, 808);
    let rate = counted.leading_hits as f64 / counted.blocks as f64;
    assert!((rate - 0.9513).abs() < 0.000_05, "{rate}");
}

#[test]
#[ignore = "reads 460 MB of decompressed text; run in release mode"]
fn the_whole_agentic_file_gives_the_stated_figures() {
    let Some(traces) = common::traces() else { return };
    let counted = count(&traces.join("agentic_coding_710.jsonl.zst"));
    assert_eq!(counted.requests, 49_334);
    assert_eq!((counted.blocks, counted.distinct), (94_310_647, 3_450_959));
    let rate = counted.leading_hits as f64 / counted.blocks as f64;
    assert!((rate - 0.9634).abs() < 0.000_05, "{rate}");
}
