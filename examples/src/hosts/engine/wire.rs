//! Event batches as vLLM 0.33 encodes them: msgpack, events as maps.

use std::time::{SystemTime, UNIX_EPOCH};

use ckf_core::EngineBlockId;
use rmp::encode::{write_array_len, write_f64, write_map_len, write_nil, write_str, write_uint};

/// Writing to a vector cannot fail.
const ROOM: &str = "a vector takes all bytes";

/// One batch being written.
#[derive(Debug)]
pub struct BatchWriter {
    bytes: Vec<u8>,
}

impl BatchWriter {
    /// A batch of so many events.
    pub fn new(events: usize) -> Self {
        let mut bytes = Vec::new();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        write_array_len(&mut bytes, 3).expect(ROOM);
        write_f64(&mut bytes, now.as_secs_f64()).expect(ROOM);
        write_array_len(&mut bytes, events as u32).expect(ROOM);
        Self { bytes }
    }

    /// Consecutive blocks of one sequence came.
    pub fn stored(
        &mut self,
        ids: impl ExactSizeIterator<Item = EngineBlockId>,
        parent: Option<EngineBlockId>,
        tokens: &[u32],
        block_size: u32,
    ) {
        self.event("BlockStored", 8);
        self.hashes(ids);
        self.key("parent_block_hash");
        match parent {
            Some(id) => self.uint(id.get()),
            None => self.nil(),
        }
        self.key("token_ids");
        write_array_len(&mut self.bytes, tokens.len() as u32).expect(ROOM);
        for &token in tokens {
            self.uint(u64::from(token));
        }
        self.key("block_size");
        self.uint(u64::from(block_size));
        self.key("lora_id");
        self.nil();
        self.key("medium");
        self.key("GPU");
        self.key("lora_name");
        self.nil();
    }

    /// Blocks went.
    pub fn removed(&mut self, ids: impl ExactSizeIterator<Item = EngineBlockId>) {
        self.event("BlockRemoved", 3);
        self.hashes(ids);
        self.key("medium");
        self.key("GPU");
    }

    /// All blocks went.
    pub fn cleared(&mut self) {
        self.event("AllBlocksCleared", 1);
    }

    /// The payload.
    pub fn finish(mut self, rank: u32) -> Vec<u8> {
        self.uint(u64::from(rank));
        self.bytes
    }

    fn event(&mut self, tag: &str, fields: u32) {
        write_map_len(&mut self.bytes, fields).expect(ROOM);
        self.key("type");
        self.key(tag);
    }

    fn hashes(&mut self, ids: impl ExactSizeIterator<Item = EngineBlockId>) {
        self.key("block_hashes");
        write_array_len(&mut self.bytes, ids.len() as u32).expect(ROOM);
        for id in ids {
            self.uint(id.get());
        }
    }

    fn key(&mut self, text: &str) {
        write_str(&mut self.bytes, text).expect(ROOM);
    }

    fn uint(&mut self, value: u64) {
        write_uint(&mut self.bytes, value).expect(ROOM);
    }

    fn nil(&mut self) {
        write_nil(&mut self.bytes).expect(ROOM);
    }
}
