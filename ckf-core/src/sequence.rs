//! The canonical rolling hash that turns a request's tokens into [`BlockHash`]es.
//!
//! Writers (translating engine events) and readers (looking a prompt up) call these same
//! functions, so the two sides cannot drift apart. The definition is Dynamo's canonical block
//! hashing: a window's [`LocalHash`] is XXH3-64 over its tokens as little-endian `u32`, seeded by
//! adapter and namespace; the first block's sequence hash is its local hash; each later one is
//! XXH3-64, seed 1337, over the predecessor's sequence hash and its own local hash.

use alloc::vec::Vec;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::{BlockHash, LocalHash};

/// Seed of the chain, and of local hashes without adapter and namespace.
pub const CHAIN_SEED: u64 = 1337;

/// The sequence hash of the block that follows `parent`; `None` for the first block.
///
/// Cost: one XXH3-64 of 16 bytes.
///
/// ```
/// use ckf_core::{LocalHash, sequence::roll};
///
/// let first = roll(None, LocalHash::new(0x7ee2cbedc694ab46));
/// let second = roll(Some(first), LocalHash::new(0xa8416cfd935bdb13));
/// assert_eq!(second.get(), 0x83fb702f20e2ad65);
/// ```
#[inline]
pub fn roll(parent: Option<BlockHash>, local: LocalHash) -> BlockHash {
    let Some(parent) = parent else { return BlockHash::new(local.get()) };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&parent.get().to_le_bytes());
    bytes[8..].copy_from_slice(&local.get().to_le_bytes());
    BlockHash::new(xxh3_64_with_seed(&bytes, CHAIN_SEED))
}

/// The sequence hashes of consecutive blocks, given their local hashes in order.
///
/// `parent` is the sequence hash of the block before the first one, if there is one.
pub fn roll_all(
    parent: Option<BlockHash>,
    locals: impl IntoIterator<Item = LocalHash>,
) -> impl Iterator<Item = BlockHash> {
    locals.into_iter().scan(parent, |last, local| {
        let hash = roll(*last, local);
        *last = Some(hash);
        Some(hash)
    })
}

/// The hash under which a media item enters a local hash: the first 16 digits of a 64-digit
/// hexadecimal identifier, XXH3-64 with seed 0 of any other.
///
/// ```
/// use ckf_core::sequence::media_hash;
///
/// let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
/// assert_eq!(media_hash(digest), 0x9f86d081884c7d65);
/// ```
pub fn media_hash(id: &str) -> u64 {
    if id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()) {
        // All of it is ASCII hexadecimal, so neither the slice nor the number can fail.
        if let Ok(prefix) = u64::from_str_radix(&id[..16], 16) {
            return prefix;
        }
    }
    xxh3_64_with_seed(id.as_bytes(), 0)
}

/// What besides the tokens goes into a local hash: the adapter (LoRA) and the cache namespace.
///
/// This is routing identity, not isolation against an adversary: the two parts are added.
///
/// ```
/// use ckf_core::sequence::Scope;
///
/// let tokens: Vec<u32> = (0..20).collect();
/// let hashes: Vec<_> = Scope::default().block_hashes(&tokens, 4).collect();
/// assert_eq!(hashes[4].get(), 0x514ae3a88068e30f);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    seed: u64,
}

impl Default for Scope {
    /// No adapter, no namespace.
    fn default() -> Self {
        Self { seed: CHAIN_SEED }
    }
}

impl Scope {
    /// The scope of an adapter and a namespace; empty text counts as absent.
    pub fn new(adapter: Option<&str>, namespace: Option<&str>) -> Self {
        let part = |text: Option<&str>, seed| {
            text.filter(|t| !t.is_empty()).map_or(0, |t| xxh3_64_with_seed(t.as_bytes(), seed))
        };
        Self { seed: CHAIN_SEED.wrapping_add(part(adapter, 0)).wrapping_add(part(namespace, 1)) }
    }

    /// The seed of the local hashes.
    pub const fn seed(self) -> u64 {
        self.seed
    }

    /// The local hash of one window of tokens.
    pub fn local_hash(self, tokens: &[u32]) -> LocalHash {
        self.local_hash_with_media(tokens, &[])
    }

    /// The local hash of a window that touches media: the media hashes, sorted ascending, follow
    /// the tokens as little-endian `u64`. [`media_hash`] makes them from identifiers.
    ///
    /// Cost: one XXH3-64 of 4 bytes a token and 8 a media hash; windows of up to 128 tokens take
    /// the short way.
    pub fn local_hash_with_media(self, tokens: &[u32], media: &[u64]) -> LocalHash {
        let mut buffer = [0u8; 512];
        if tokens.len() <= buffer.len() / 4 && media.is_empty() {
            let bytes = fill(&mut buffer, tokens);
            return LocalHash::new(xxh3_64_with_seed(bytes, self.seed));
        }
        let mut state = Xxh3::with_seed(self.seed);
        for group in tokens.chunks(buffer.len() / 4) {
            state.update(fill(&mut buffer, group));
        }
        let mut sorted = Vec::from(media);
        sorted.sort_unstable();
        for hash in sorted {
            state.update(&hash.to_le_bytes());
        }
        LocalHash::new(state.digest())
    }

    /// The local hashes of all full windows of `block_size` tokens; a short tail is dropped.
    /// A `block_size` of 0 has no windows.
    pub fn local_hashes(
        self,
        tokens: &[u32],
        block_size: usize,
    ) -> impl Iterator<Item = LocalHash> {
        let tokens = if block_size == 0 { &[] } else { tokens };
        tokens.chunks_exact(block_size.max(1)).map(move |window| self.local_hash(window))
    }

    /// The local hashes of EAGLE windows: `block_size + 1` tokens each, the last one shared with
    /// the next window.
    pub fn eagle_local_hashes(
        self,
        tokens: &[u32],
        block_size: usize,
    ) -> impl Iterator<Item = LocalHash> {
        let blocks = tokens.len().saturating_sub(1).checked_div(block_size).unwrap_or(0);
        (0..blocks).map(move |i| {
            let start = i * block_size;
            self.local_hash(&tokens[start..start + block_size + 1])
        })
    }

    /// The sequence hashes of all full blocks of a prompt.
    pub fn block_hashes(
        self,
        tokens: &[u32],
        block_size: usize,
    ) -> impl Iterator<Item = BlockHash> {
        roll_all(None, self.local_hashes(tokens, block_size))
    }
}

/// Writes the tokens as little-endian `u32` to the front of the buffer and returns that part.
fn fill<'a>(buffer: &'a mut [u8; 512], tokens: &[u32]) -> &'a [u8] {
    for (to, token) in buffer.chunks_exact_mut(4).zip(tokens) {
        to.copy_from_slice(&token.to_le_bytes());
    }
    &buffer[..tokens.len() * 4]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn short_and_long_windows_hash_the_same_bytes() {
        let scope = Scope::new(Some("adapter"), None);
        for len in [0, 1, 16, 127, 128, 129, 255, 256, 257, 1000] {
            let tokens: Vec<u32> = (0..len).map(|t| t * 7919).collect();
            let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
            let whole = xxh3_64_with_seed(&bytes, scope.seed());
            assert_eq!(scope.local_hash(&tokens).get(), whole, "{len}");
        }
    }

    #[test]
    fn media_hashes_count_in_any_order() {
        let hash = |media: &[u64]| Scope::default().local_hash_with_media(&[1, 2], media);
        assert_eq!(hash(&[5, 9]), hash(&[9, 5]));
        assert_ne!(hash(&[5, 9]), hash(&[5]));
        assert_eq!(media_hash("img-1"), xxh3_64_with_seed(b"img-1", 0));
        let not_hex = "g".repeat(64);
        assert_eq!(media_hash(&not_hex), xxh3_64_with_seed(not_hex.as_bytes(), 0));
    }

    #[test]
    fn an_empty_block_size_has_no_windows() {
        let scope = Scope::default();
        assert_eq!(scope.local_hashes(&[1, 2, 3], 0).collect::<Vec<_>>(), vec![]);
        assert_eq!(scope.eagle_local_hashes(&[1, 2, 3], 0).collect::<Vec<_>>(), vec![]);
        assert_eq!(scope.eagle_local_hashes(&[], 4).collect::<Vec<_>>(), vec![]);
    }
}
