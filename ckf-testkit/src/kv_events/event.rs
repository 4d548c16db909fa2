//! The events as they stand on the wire, all fields of all releases.

use ckf_core::EngineBlockId;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// "BlockStored".
    Stored(Box<Stored>),
    /// "BlockRemoved".
    Removed(Removed),
    /// "AllBlocksCleared".
    Cleared,
}

/// A block hash as engines publish it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hash {
    /// The 64 bits of a signed or unsigned number.
    Number(u64),
    /// A whole digest, at least 8 bytes.
    Digest(Vec<u8>),
}

impl Hash {
    /// The block id. Of a digest the last 8 bytes count, big-endian: what vLLM publishes as a
    /// number otherwise.
    pub fn id(&self) -> EngineBlockId {
        EngineBlockId::new(match self {
            Self::Number(bits) => *bits,
            Self::Digest(bytes) => {
                bytes.iter().rev().take(8).rev().fold(0, |id, byte| id << 8 | u64::from(*byte))
            }
        })
    }
}

/// Token ids of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenIds {
    /// One per token.
    Plain(Vec<u32>),
    /// EAGLE: each with the one that follows it.
    Pairs(Vec<[u32; 2]>),
}

impl Default for TokenIds {
    fn default() -> Self {
        Self::Plain(Vec::new())
    }
}

/// Something besides tokens that went into a block's hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtraKey {
    /// An adapter's name, a cache salt, or a media item's identifier: only the context tells.
    Text(String),
    /// A media item, and where it starts relative to the block.
    Media {
        /// Its identifier.
        id: String,
        /// Offset of its first token; below 0 when it starts before the block.
        offset: i64,
    },
    /// A digest of embeddings handed in instead of tokens.
    Digest(Vec<u8>),
    /// Of a kind that is not known here. No reader can rebuild a hash that it went into.
    Unknown,
}

/// "BlockStored".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// The blocks, in prefix order.
    pub block_hashes: Vec<Hash>,
    /// The block before the first one.
    pub parent_block_hash: Option<Hash>,
    /// The tokens of all blocks.
    pub token_ids: TokenIds,
    /// Tokens per block; 0 for placeholders without content.
    pub block_size: u32,
    /// The adapter's number in the engine.
    pub lora_id: Option<u64>,
    /// The storage tier.
    pub medium: Option<String>,
    /// The adapter's name.
    pub lora_name: Option<String>,
    /// Per block, what else went into its hash.
    pub extra_keys: Option<Vec<Option<Vec<ExtraKey>>>>,
    /// The KV-cache group.
    pub group_idx: Option<u32>,
    /// The group's kind of attention.
    pub kv_cache_spec_kind: Option<String>,
    /// The group's window.
    pub kv_cache_spec_sliding_window: Option<u64>,
    /// "LOCAL" or "REMOTE".
    pub locality: Option<String>,
    /// A secondary tier's name.
    pub ownership: Option<String>,
    /// For attribution only.
    pub session_id: Option<String>,
    /// Per block, tokens behind it that its hash also covers.
    pub lookahead_token_ids: Option<Vec<Vec<u32>>>,
    /// The cache salt.
    pub cache_salt: Option<String>,
}

/// "BlockRemoved".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Removed {
    /// The blocks.
    pub block_hashes: Vec<Hash>,
    /// The storage tier.
    pub medium: Option<String>,
    /// The KV-cache group.
    pub group_idx: Option<u32>,
    /// "LOCAL" or "REMOTE".
    pub locality: Option<String>,
    /// A secondary tier's name.
    pub ownership: Option<String>,
}
