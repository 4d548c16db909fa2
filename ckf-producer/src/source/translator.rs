//! From an engine's block ids to the block hashes that readers rebuild from tokens.

use alloc::vec::Vec;
use core::hint::black_box;
use core::num::NonZeroU32;

use ckf_core::sequence::{Scope, roll};
use ckf_core::{BlockHash, EngineBlockId};

use super::copies::{Copies, one_less};
use super::engine::{Adapter, EngineEvent, Medium, RemovedBlocks, StoredBlocks};
use super::filter::{PlaceFilter, PlaceStats};
use super::front::{BlockChanges, Front};
use super::map::{Hashed, Map};
use crate::HashSeeds;

/// Blocks whose memory is asked for at a time.
const GROUP: usize = 64;

/// What a host knows about an engine's events.
///
/// ```
/// use core::num::NonZeroU32;
/// use ckf_core::EngineBlockId;
/// use ckf_producer::HashSeeds;
/// use ckf_producer::source::TranslatorConfig;
///
/// // Drawn by the host: engines' ids may be chosen by somebody who means harm.
/// let seeds = HashSeeds::new([11, 12, 13, 14]);
/// let block_size = NonZeroU32::new(16).ok_or("not 0")?;
/// // Old SGLang names the hash of an empty page as the parent of first blocks.
/// let root = EngineBlockId::from_signed(5740354900026072187);
/// let config = TranslatorConfig::new(block_size, seeds)
///     .with_root(Some(root))
///     .with_max_blocks(500_000);
/// assert_eq!(config.max_blocks(), 500_000);
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranslatorConfig {
    block_size: NonZeroU32,
    primary: Medium,
    root: Option<EngineBlockId>,
    max_blocks: usize,
    copies: bool,
    seeds: HashSeeds,
}

impl TranslatorConfig {
    /// Blocks of `block_size` tokens in the accelerator's memory, at most 2^24 of them, repeated
    /// announcements counting once. `seeds` are those of its maps; the pool's will do.
    pub const fn new(block_size: NonZeroU32, seeds: HashSeeds) -> Self {
        Self {
            block_size,
            primary: Medium::Device,
            root: None,
            max_blocks: 1 << 24,
            copies: false,
            seeds,
        }
    }

    /// The one medium whose blocks count.
    #[must_use]
    pub const fn with_primary(mut self, medium: Medium) -> Self {
        self.primary = medium;
        self
    }

    /// An id that events name as the parent of blocks that have none.
    #[must_use]
    pub const fn with_root(mut self, root: Option<EngineBlockId>) -> Self {
        self.root = root;
        self
    }

    /// How many blocks are remembered at most, about 80 bytes each.
    #[must_use]
    pub const fn with_max_blocks(mut self, blocks: usize) -> Self {
        self.max_blocks = blocks;
        self
    }

    /// Counts announcements of a block as copies, of which only the last removal ends it: for
    /// engines that keep several physical copies and report each (report F06). Wrong for engines
    /// that announce blocks again without a new copy.
    #[must_use]
    pub const fn with_copies(mut self, copies: bool) -> Self {
        self.copies = copies;
        self
    }

    /// How many blocks are remembered at most.
    pub const fn max_blocks(&self) -> usize {
        self.max_blocks
    }
}

/// Counters of a translator, in blocks as events name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TranslatorStats {
    /// Left out because of the place they lie in.
    pub places: PlaceStats,
    /// Not placed because a predecessor is unknown.
    pub orphans: u64,
    /// Held, but with content that readers cannot rebuild: of another size, without tokens of
    /// their own, under a numbered adapter, private, or behind such a block.
    pub opaque: u64,
    /// Announced under the id of a block with other content that is still held.
    pub ambiguous: u64,
    /// Not remembered because the limit was reached or memory refused.
    pub refused: u64,
    /// Announced although held already.
    pub repeated: u64,
    /// Removed although unknown.
    pub unknown_removals: u64,
}

/// What is remembered of one engine block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The pool holds `hash`, and children build on it.
    Exact { hash: BlockHash, scope: Scope, copies: NonZeroU32 },
    /// The pool holds `hash`, but the id stands for other content too: which one a child builds on
    /// is anyone's guess.
    Ambiguous { hash: BlockHash, copies: NonZeroU32 },
    /// Nobody can rebuild it: the pool does not hold it, nor anything behind it.
    Opaque { copies: NonZeroU32 },
}

impl Known {
    fn hash(self) -> Option<BlockHash> {
        match self {
            Self::Exact { hash, .. } | Self::Ambiguous { hash, .. } => Some(hash),
            Self::Opaque { .. } => None,
        }
    }

    fn copies(&mut self) -> &mut NonZeroU32 {
        match self {
            Self::Exact { copies, .. }
            | Self::Ambiguous { copies, .. }
            | Self::Opaque { copies } => copies,
        }
    }
}

/// What a store builds on.
#[derive(Clone, Copy)]
enum Base {
    Chain(Option<BlockHash>, Scope),
    Opaque,
}

/// Translates an engine's events into changes in block hashes.
///
/// A block's hash is rolled from its tokens and its predecessor's hash, which is looked up by the
/// parent id; adapter and namespace are inherited along parents, because engines state them on
/// first blocks only. Engine ids serve for these links and for removals, and never reach the pool.
///
/// - A store whose parent was never seen is *orphaned*: counted in blocks, and the stream recovers.
/// - Announcing a held block again changes nothing, removing an unknown one neither.
/// - Two ids of equal content are two holders of one hash, which goes with the last of them.
/// - One id for two contents, as page-local hashes bring about, keeps the first one.
/// - Blocks whose content nobody can rebuild are remembered, so that what follows them is known to
///   be out of reach too, instead of orphaned.
///
/// Cost: two map operations and one hash of the tokens per block; now and then some thousand entries move.
///
/// An engine id cannot slip into a pool, the types see to that (report F01):
///
/// ```compile_fail,E0308
/// # use ckf_core::EngineBlockId;
/// # use ckf_producer::{Member, Pool};
/// fn store(pool: &mut Pool, engine_ids: &[EngineBlockId]) {
///     pool.store(Member::new(1, 0), engine_ids);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Translator {
    config: TranslatorConfig,
    filter: PlaceFilter,
    known: Map<EngineBlockId, Known>,
    /// How many ids, or copies, stand for each hash that the pool holds.
    holders: Copies,
    /// Whether blocks were refused since the last clear, so that orphans are no surprise.
    overfull: bool,
    stats: TranslatorStats,
}

impl Translator {
    /// A translator that knows no block yet.
    pub fn new(config: TranslatorConfig) -> Self {
        Self {
            config,
            filter: PlaceFilter::new(config.primary),
            known: Map::new(config.seeds),
            holders: Copies::new(config.seeds),
            overfull: false,
            stats: TranslatorStats::default(),
        }
    }

    /// Counters, from the start.
    pub fn stats(&self) -> TranslatorStats {
        TranslatorStats { places: self.filter.stats(), ..self.stats }
    }

    /// Engine blocks known, and distinct hashes that they stand for.
    pub fn blocks(&self) -> (usize, usize) {
        (self.known.len(), self.holders.len())
    }

    /// The hash that stands for an engine block in the pool, if any does.
    pub fn hash_of(&self, id: EngineBlockId) -> Option<BlockHash> {
        self.known.get(self.known.hashed(id))?.hash()
    }

    /// Returns how many blocks were orphaned.
    fn store(&mut self, stored: &StoredBlocks, changes: &mut BlockChanges) -> u64 {
        let blocks = stored.ids.len();
        if !self.filter.admits(&stored.place, blocks) {
            return 0;
        }
        let Some(base) = self.base(stored) else {
            if stored.ids.iter().all(|id| self.known.contains(self.known.hashed(*id))) {
                stored.ids.iter().for_each(|id| self.repeat(self.known.hashed(*id)));
                return 0;
            }
            if self.overfull {
                self.stats.refused += blocks as u64;
                return 0;
            }
            self.stats.orphans += blocks as u64;
            return blocks as u64;
        };
        let base = if self.is_rebuildable(stored) { base } else { Base::Opaque };
        let (mut parent, scope) = match base {
            Base::Chain(parent, scope) => (parent, scope),
            Base::Opaque => {
                stored.ids.iter().for_each(|id| self.remember_opaque(self.known.hashed(*id)));
                return 0;
            }
        };
        let block_size = self.config.block_size.get() as usize;
        let mut next = |index| {
            let window = stored.tokens.window(index, block_size)?;
            if stored.private_from.is_some_and(|from| index >= from) {
                return None;
            }
            let media = stored.media.get(index).map_or(&[][..], Vec::as_slice);
            parent = Some(roll(parent, scope.local_hash_with_media(window, media)));
            parent
        };
        let mut group = Vec::with_capacity(stored.ids.len().min(GROUP));
        for (number, ids) in stored.ids.chunks(GROUP).enumerate() {
            group.extend(ids.iter().zip((number * GROUP..).map(&mut next)).map(|(id, hash)| {
                let holders = hash.map(|hash| (hash, self.holders.hashed(hash)));
                (self.known.hashed(*id), holders)
            }));
            // Looking all of them up has their memory near when they are applied: these look-ups do
            // not depend on each other, so the processor waits for all of them at once.
            let near = group.iter().map(|(id, hash)| {
                let held = hash.is_some_and(|(_, holders)| self.holders.contains(holders));
                u32::from(self.known.contains(*id)) + u32::from(held)
            });
            black_box(near.sum::<u32>());
            for (id, hash) in group.drain(..) {
                match hash {
                    Some(hash) => self.remember(id, hash, scope, changes),
                    None => self.remember_opaque(id),
                }
            }
        }
        0
    }

    /// What the first block builds on; `None` when that is unknown.
    fn base(&self, stored: &StoredBlocks) -> Option<Base> {
        let stated = || match &stored.adapter {
            Adapter::Named(name) => Scope::new(Some(name), stored.namespace.as_deref()),
            _ => Scope::new(None, stored.namespace.as_deref()),
        };
        let Some(parent) = stored.parent.filter(|parent| self.config.root != Some(*parent)) else {
            return Some(Base::Chain(None, stated()));
        };
        let Known::Exact { hash, scope, .. } = *self.known.get(self.known.hashed(parent))? else {
            return Some(Base::Opaque);
        };
        // A namespace is stated with its adapter; an adapter alone may have left out a namespace
        // that the parent knows, and a sequence never changes either.
        let scope = if stored.namespace.is_some() { stated() } else { scope };
        Some(Base::Chain(Some(hash), scope))
    }

    /// Whether readers can compute the hashes of these blocks, up to the first private or short one:
    /// a window of the pool's block size per id, under an adapter that has a name.
    fn is_rebuildable(&self, stored: &StoredBlocks) -> bool {
        let block_size = self.config.block_size.get();
        stored.block_size == block_size
            && stored.tokens.fit(stored.ids.len(), block_size as usize)
            && (stored.media.is_empty() || stored.media.len() == stored.ids.len())
            && !matches!(stored.adapter, Adapter::Numbered(_))
    }

    fn remember(
        &mut self,
        id: Hashed<EngineBlockId>,
        (hash, holders): (BlockHash, Hashed<BlockHash>),
        scope: Scope,
        to: &mut BlockChanges,
    ) {
        let fresh = Known::Exact { hash, scope, copies: NonZeroU32::MIN };
        if !self.holders.reserve(holders) || !(self.has_room(id) || self.known.contains(id)) {
            self.stats.refused += 1;
            self.overfull = true;
            return;
        }
        let mut more = NonZeroU32::MIN;
        match self.known.insert(id, fresh) {
            None => {}
            Some(opaque @ Known::Opaque { .. }) => {
                // Copies that came without content, if copies count, are copies of this block.
                if self.config.copies {
                    more = opaque.copies().saturating_add(1);
                }
                *opaque = Known::Exact { hash, scope, copies: more };
            }
            Some(known) => {
                if let Known::Exact { hash: held, copies, .. } = *known
                    && held != hash
                {
                    *known = Known::Ambiguous { hash: held, copies };
                }
                if known.hash() != Some(hash) {
                    self.stats.ambiguous += 1;
                    return;
                }
                if !self.config.copies {
                    self.stats.repeated += 1;
                    return;
                }
                let copies = known.copies();
                *copies = copies.saturating_add(1);
            }
        }
        if self.holders.add(holders, more) {
            to.store(hash);
        }
    }

    /// A block that is known is announced again, and nobody can tell whether with the same content:
    /// another copy, where copies count.
    fn repeat(&mut self, id: Hashed<EngineBlockId>) {
        match self.known.get_mut(id).filter(|_| self.config.copies) {
            Some(Known::Exact { hash, copies, .. }) => {
                *copies = copies.saturating_add(1);
                self.holders.add(self.holders.hashed(*hash), NonZeroU32::MIN);
            }
            Some(Known::Opaque { copies }) => *copies = copies.saturating_add(1),
            _ => self.stats.repeated += 1,
        }
    }

    /// Whether another block can be remembered: no limit is reached, no memory refused.
    fn has_room(&mut self, id: Hashed<EngineBlockId>) -> bool {
        self.known.len() < self.config.max_blocks && self.known.reserve(id)
    }

    /// Remembers that nothing is known of a block but its id.
    fn remember_opaque(&mut self, id: Hashed<EngineBlockId>) {
        if self.known.contains(id) {
            // Offloaded copies come without content; what an earlier store said still holds.
            self.repeat(id);
        } else if !self.has_room(id) {
            self.stats.refused += 1;
            self.overfull = true;
        } else {
            self.stats.opaque += 1;
            self.known.insert(id, Known::Opaque { copies: NonZeroU32::MIN });
        }
    }

    fn remove(&mut self, removed: &RemovedBlocks, changes: &mut BlockChanges) {
        if !self.filter.admits(&removed.place, removed.ids.len()) {
            return;
        }
        let mut group = Vec::with_capacity(removed.ids.len().min(GROUP));
        for ids in removed.ids.chunks(GROUP) {
            group.extend(ids.iter().map(|id| self.known.hashed(*id)));
            // As for stores; the second round needs what the first one finds.
            let near = group.iter().map(|id| {
                let hash = self.known.get(*id).and_then(|known| known.hash());
                u32::from(hash.is_some_and(|hash| self.holders.contains(self.holders.hashed(hash))))
            });
            black_box(near.sum::<u32>());
            group.drain(..).for_each(|id| self.forget(id, changes));
        }
    }

    fn forget(&mut self, id: Hashed<EngineBlockId>, changes: &mut BlockChanges) {
        let Some(known) = self.known.update(id, |known| one_less(known.copies())) else {
            self.stats.unknown_removals += 1;
            return;
        };
        if let Some(hash) = known.hash()
            && self.holders.subtract(self.holders.hashed(hash))
        {
            changes.remove(hash);
        }
    }
}

impl Front for Translator {
    type Event = Vec<EngineEvent>;

    fn apply(&mut self, event: Self::Event, changes: &mut BlockChanges) -> u64 {
        // What a clear undoes need not be done, and could only produce orphans.
        let from = event.iter().rposition(|event| *event == EngineEvent::Cleared).unwrap_or(0);
        let mut orphans = 0;
        for event in &event[from..] {
            match event {
                EngineEvent::Stored(stored) => orphans += self.store(stored, changes),
                EngineEvent::Removed(removed) => self.remove(removed, changes),
                EngineEvent::Cleared => {
                    self.reset();
                    changes.clear();
                }
            }
        }
        orphans
    }

    fn reset(&mut self) {
        self.known.clear();
        self.holders.clear();
        self.overfull = false;
    }
}
