//! From the wire's events to those that stage 1 takes.

use ckf_core::EngineBlockId;
use ckf_core::sequence::media_hash;
use ckf_producer::source::{
    Adapter, Attention, EngineEvent, Medium, Place, RemovedBlocks, StoredBlocks, Tokens,
};

use super::batch::Batch;
use super::event::{Event, ExtraKey, Hash, Removed, Stored, TokenIds};

/// What SGLang before 0.5.6 names as the parent of first pages: Python's hash of no tokens at all.
const NO_PAGE: EngineBlockId = EngineBlockId::new(5740354900026072187);

impl Batch {
    /// The events for a [`Translator`](ckf_producer::source::Translator) or
    /// [`ChainedIds`](ckf_producer::source::ChainedIds).
    pub fn into_engine_events(self) -> Vec<EngineEvent> {
        self.events
            .into_iter()
            .map(|event| match event {
                Event::Stored(stored) => EngineEvent::Stored(convert_stored(*stored)),
                Event::Removed(removed) => EngineEvent::Removed(convert_removed(removed)),
                Event::Cleared => EngineEvent::Cleared,
            })
            .collect()
    }
}

fn convert_stored(stored: Stored) -> StoredBlocks {
    let place = Place {
        medium: Medium::parse(stored.medium.as_deref()),
        group: stored.group_idx,
        attention: Attention::parse(stored.kv_cache_spec_kind.as_deref()),
        elsewhere: is_elsewhere(stored.locality.as_deref(), stored.ownership.as_deref()),
    };
    let mut blocks = StoredBlocks {
        ids: stored.block_hashes.iter().map(Hash::id).collect(),
        parent: stored.parent_block_hash.as_ref().map(Hash::id).filter(|id| *id != NO_PAGE),
        tokens: flatten(stored.token_ids),
        block_size: stored.block_size,
        place,
        ..StoredBlocks::default()
    };
    let per_block = stored.extra_keys.unwrap_or_default();
    for (index, keys) in per_block.into_iter().enumerate() {
        for (place, key) in keys.into_iter().flatten().enumerate() {
            let media = match key {
                // The adapter's name stands first. The same text after it means something else.
                ExtraKey::Text(text) if place == 0 && Some(&text) == stored.lora_name.as_ref() => {
                    None
                }
                // A salt enters the first block of a sequence and no other, after the media. Elsewhere
                // a bare text is a media identifier, as releases before 0.19 published them.
                ExtraKey::Text(salt) if index == 0 && blocks.parent.is_none() => {
                    blocks.namespace.replace(salt)
                }
                ExtraKey::Text(id) | ExtraKey::Media { id, .. } => Some(id),
                ExtraKey::Digest(_) | ExtraKey::Unknown => {
                    blocks.private_from.get_or_insert(index);
                    None
                }
            };
            if let Some(id) = media {
                blocks.media.resize(blocks.ids.len().max(index + 1), Vec::new());
                blocks.media[index].push(media_hash(&id));
            }
        }
    }
    blocks.namespace = stored.cache_salt.filter(|salt| !salt.is_empty()).or(blocks.namespace);
    blocks.adapter = match (stored.lora_name.filter(|name| !name.is_empty()), stored.lora_id) {
        (Some(name), _) => Adapter::Named(name),
        // Engines number adapters from 1.
        (None, None | Some(0)) => Adapter::Unstated,
        (None, Some(number)) => Adapter::Numbered(number),
    };
    blocks
}

fn convert_removed(removed: Removed) -> RemovedBlocks {
    RemovedBlocks {
        ids: removed.block_hashes.iter().map(Hash::id).collect(),
        place: Place {
            medium: Medium::parse(removed.medium.as_deref()),
            group: removed.group_idx,
            attention: Attention::Unstated,
            elsewhere: is_elsewhere(removed.locality.as_deref(), removed.ownership.as_deref()),
        },
    }
}

fn is_elsewhere(locality: Option<&str>, ownership: Option<&str>) -> bool {
    locality.is_some_and(|locality| locality != "LOCAL") || ownership.is_some()
}

fn flatten(tokens: TokenIds) -> Tokens {
    match tokens {
        TokenIds::Plain(tokens) => Tokens::Plain(tokens),
        TokenIds::Pairs(pairs) => {
            let last = pairs.last().map(|pair| pair[1]);
            Tokens::Overlapping(pairs.iter().map(|pair| pair[0]).chain(last).collect())
        }
    }
}
