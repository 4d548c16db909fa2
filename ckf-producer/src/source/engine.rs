//! Events as inference engines publish them, decoded: what a [`Translator`](super::Translator)
//! takes.

use alloc::string::String;
use alloc::vec::Vec;

use ckf_core::EngineBlockId;

use super::front::SourceEvent;

/// One event of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// Blocks are held from now on.
    Stored(StoredBlocks),
    /// Blocks are no longer held.
    Removed(RemovedBlocks),
    /// Nothing is held any more, in no place.
    Cleared,
}

/// Consecutive blocks of one sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredBlocks {
    /// The engine's names of the blocks, in sequence order.
    pub ids: Vec<EngineBlockId>,
    /// The block before the first one.
    pub parent: Option<EngineBlockId>,
    /// The tokens of all blocks.
    pub tokens: Tokens,
    /// Tokens of one block.
    pub block_size: u32,
    /// The adapter that computed them.
    pub adapter: Adapter,
    /// The cache salt, where the event states it.
    pub namespace: Option<String>,
    /// Per block, the [hashes](ckf_core::sequence::media_hash) of the media items in it. Empty when
    /// there are none at all.
    pub media: Vec<Vec<u64>>,
    /// Index of the first block that depends on something no reader can rebuild, such as
    /// embeddings handed in instead of tokens.
    pub private_from: Option<usize>,
    /// Where the blocks lie.
    pub place: Place,
}

/// Blocks that went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedBlocks {
    /// The engine's names of the blocks, in any order.
    pub ids: Vec<EngineBlockId>,
    /// Where they lay.
    pub place: Place,
}

/// Token ids of consecutive blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// Each block has its own tokens.
    Plain(Vec<u32>),
    /// Each block shares its last token with the next one, so there is one token more than the
    /// blocks are long. Pairs `[a, b], [b, c]` of EAGLE engines come down to this.
    Overlapping(Vec<u32>),
}

impl Default for Tokens {
    fn default() -> Self {
        Self::Plain(Vec::new())
    }
}

impl Tokens {
    /// The tokens of block `index`, if they are all there. `block_size` is not 0.
    pub(super) fn window(&self, index: usize, block_size: usize) -> Option<&[u32]> {
        let start = index.checked_mul(block_size)?;
        let (tokens, len) = match self {
            Self::Plain(tokens) => (tokens, block_size),
            Self::Overlapping(tokens) => (tokens, block_size + 1),
        };
        tokens.get(start..)?.get(..len)
    }

    /// Whether so many blocks can be those of the tokens, each at its place: one per whole block, or
    /// one more for a last block that is short. `block_size` is not 0.
    pub(super) fn fit(&self, blocks: usize, block_size: usize) -> bool {
        let len = match self {
            Self::Plain(tokens) => tokens.len(),
            Self::Overlapping(tokens) => tokens.len().saturating_sub(1),
        };
        blocks == len / block_size || blocks == len.div_ceil(block_size)
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Plain(tokens) | Self::Overlapping(tokens) => tokens.len(),
        }
    }
}

/// The adapter (LoRA) of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Adapter {
    /// None, or not stated.
    #[default]
    Unstated,
    /// This one.
    Named(String),
    /// One that only the engine can name: a number of its own. Such blocks are not rebuildable;
    /// a host that knows the name puts it here instead.
    Numbered(u64),
}

/// Where blocks lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The storage tier.
    pub medium: Medium,
    /// The KV-cache group, of models with several kinds of attention.
    pub group: Option<u32>,
    /// The group's kind of attention.
    pub attention: Attention,
    /// Not on the publisher's own machine, or in a tier that somebody else owns.
    pub elsewhere: bool,
}

/// A storage tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Medium {
    /// Memory of the accelerator. Also what engines mean that name no medium.
    #[default]
    Device,
    /// Memory of the host.
    Host,
    /// A disk of the host.
    Disk,
    /// A store that is shared over a network.
    External,
    /// A name that nobody knows. It is never taken for another medium.
    Unknown,
}

impl Medium {
    /// The medium that engines call by this name, in upper or lower case; absent and empty mean the
    /// accelerator.
    ///
    /// ```
    /// use ckf_producer::source::Medium;
    ///
    /// assert_eq!(Medium::parse(None), Medium::Device);
    /// assert_eq!(Medium::parse(Some("cpu")), Medium::Host);
    /// assert_eq!(Medium::parse(Some("CPU_TIER9")), Medium::Unknown);
    /// ```
    pub fn parse(name: Option<&str>) -> Self {
        let names: [(Self, &[&str]); 4] = [
            (Self::Device, &["", "GPU", "DEVICE"]),
            (Self::Host, &["CPU", "CPU_PINNED", "CPU_TIER1"]),
            (Self::Disk, &["DISK", "NVME", "STORAGE", "FS", "CPU_TIER2"]),
            (Self::External, &["EXTERNAL", "NETWORK", "REMOTE", "SHARED", "OBJ"]),
        ];
        let name = name.unwrap_or("");
        let known =
            |(_, names): &&(Self, &[&str])| names.iter().any(|n| n.eq_ignore_ascii_case(name));
        names.iter().find(known).map_or(Self::Unknown, |(medium, _)| *medium)
    }
}

/// The kind of attention of a KV-cache group: only full attention can reuse a prefix by its
/// leading blocks alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Attention {
    /// Not stated.
    #[default]
    Unstated,
    /// Every block sees all before it.
    Full,
    /// Anything else.
    Partial,
}

impl Attention {
    /// The kind that vLLM calls by this name.
    pub fn parse(name: Option<&str>) -> Self {
        match name {
            None => Self::Unstated,
            Some("full_attention" | "mla_attention" | "sink_full_attention") => Self::Full,
            Some(_) => Self::Partial,
        }
    }
}

impl SourceEvent for Vec<EngineEvent> {
    fn bytes(&self) -> u64 {
        let contents = |event: &EngineEvent| match event {
            EngineEvent::Stored(stored) => {
                let media: usize = stored.media.iter().map(|m| 24 + m.len() * 8).sum();
                let texts = stored.namespace.as_ref().map_or(0, String::len)
                    + if let Adapter::Named(name) = &stored.adapter { name.len() } else { 0 };
                stored.ids.len() * 8 + stored.tokens.len() * 4 + media + texts
            }
            EngineEvent::Removed(removed) => removed.ids.len() * 8,
            EngineEvent::Cleared => 0,
        };
        self.iter().map(|event| (size_of::<EngineEvent>() + contents(event)) as u64).sum()
    }

    fn clears(&self) -> bool {
        self.contains(&EngineEvent::Cleared)
    }
}
