//! What fields mean: from the wire's events to those that stage 1 takes.

use ckf_core::BlockHash;
use ckf_core::sequence::{Scope, media_hash};
use ckf_producer::source::{Adapter, EngineEvent, RemovedBlocks, StoredBlocks};
use ckf_testkit::kv_events::{Batch, Event, ExtraKey, Hash, Removed, Stored, TokenIds};

use crate::payloads::translate;

fn only(event: Event) -> EngineEvent {
    let batch = Batch { timestamp: 0.0, rank: None, events: vec![event], unknown: 0 };
    let mut events = batch.into_engine_events();
    assert_eq!(events.len(), 1);
    events.remove(0)
}

fn stored(stored: Stored) -> StoredBlocks {
    let EngineEvent::Stored(blocks) = only(Event::Stored(Box::new(stored))) else { panic!() };
    blocks
}

fn removed(removed: Removed) -> RemovedBlocks {
    let EngineEvent::Removed(blocks) = only(Event::Removed(removed)) else { panic!() };
    blocks
}

fn text(text: &str) -> Option<String> {
    Some(text.into())
}

/// In the extra keys of a first block the adapter's name stands before the salt, and may be the same
/// text; between the two stand media, bare texts as well in old releases.
#[test]
fn texts_in_the_keys_of_a_first_block_are_told_apart_by_their_order() {
    let first = |keys: &[&str], adapter: &str| {
        let texts = keys.iter().map(|text| ExtraKey::Text((*text).into()));
        let stored = Stored {
            block_hashes: vec![Hash::Number(1)],
            token_ids: TokenIds::Plain((0..16).collect()),
            block_size: 16,
            lora_name: Some(adapter.into()),
            extra_keys: Some(vec![Some(texts.collect())]),
            ..Stored::default()
        };
        let events = vec![Event::Stored(Box::new(stored))];
        let batch = Batch { timestamp: 0.0, rank: None, events, unknown: 0 };
        translate(batch.into_engine_events()).1
    };
    let tokens: Vec<u32> = (0..16).collect();
    let read = |salt| -> Vec<BlockHash> {
        Scope::new(Some("acme"), salt).block_hashes(&tokens, 16).collect()
    };
    assert_eq!(first(&["acme"], "acme"), read(None));
    assert_eq!(first(&["acme", "acme"], "acme"), read(Some("acme")));
    assert_eq!(first(&["acme", "tenant-a"], "acme"), read(Some("tenant-a")));
    let scope = Scope::new(Some("acme"), Some("tenant-a"));
    let media = [media_hash("img-1"), media_hash("img-2")];
    let local = scope.local_hash_with_media(&tokens, &media);
    let keys = ["acme", "img-2", "img-1", "tenant-a"];
    assert_eq!(first(&keys, "acme"), [ckf_core::sequence::roll(None, local)]);
}

/// A bare text is a salt only in the first block of a sequence.
#[test]
fn bare_texts_behind_the_first_block_are_media() {
    let text = |text: &str| Some(vec![ExtraKey::Text(text.into())]);
    let stored = |parent, keys| {
        let stored = Stored {
            block_hashes: vec![Hash::Number(1), Hash::Number(2)],
            parent_block_hash: parent,
            extra_keys: Some(keys),
            ..Stored::default()
        };
        let events = vec![Event::Stored(Box::new(stored))];
        let batch = Batch { timestamp: 0.0, rank: None, events, unknown: 0 };
        let Some(EngineEvent::Stored(blocks)) = batch.into_engine_events().pop() else { panic!() };
        (blocks.namespace, blocks.media)
    };
    let (one, two) = (media_hash("one"), media_hash("two"));
    let salted = Some("one".to_owned());
    assert_eq!(stored(None, vec![text("one")]), (salted.clone(), vec![]));
    assert_eq!(stored(None, vec![text("one"), text("two")]), (salted, vec![vec![], vec![two]]));
    assert_eq!(stored(None, vec![None, text("two")]), (None, vec![vec![], vec![two]]));
    let behind = stored(Some(Hash::Number(9)), vec![text("one"), text("two")]);
    assert_eq!(behind, (None, vec![vec![one], vec![two]]));
}

/// Nothing but "LOCAL" is on the publisher's own machine, and nothing that somebody owns is its own.
#[test]
fn f14_stores_and_removals_elsewhere_are_marked_as_such() {
    let cases = [
        (None, None, false),
        (text("LOCAL"), None, false),
        (text("REMOTE"), None, true),
        (text("NEARBY"), None, true),
        (None, text("kvcr"), true),
        (text("LOCAL"), text("kvcr"), true),
    ];
    for (locality, ownership, elsewhere) in cases {
        let (at, of) = (locality.clone(), ownership.clone());
        let blocks = stored(Stored { locality: at, ownership: of, ..Stored::default() });
        assert_eq!(blocks.place.elsewhere, elsewhere);
        let group_idx = Some(4);
        let blocks = removed(Removed { locality, ownership, group_idx, ..Removed::default() });
        assert_eq!((blocks.place.elsewhere, blocks.place.group), (elsewhere, Some(4)));
    }
}

#[test]
fn adapters_and_salts_without_text_or_number_are_none() {
    let of = |lora_name, lora_id, cache_salt| {
        let blocks = stored(Stored { lora_name, lora_id, cache_salt, ..Stored::default() });
        (blocks.adapter, blocks.namespace)
    };
    assert_eq!(of(None, None, None), (Adapter::Unstated, None));
    assert_eq!(of(text(""), Some(0), text("")), (Adapter::Unstated, None));
    assert_eq!(of(text(""), Some(7), text("t")), (Adapter::Numbered(7), text("t")));
    assert_eq!(of(text("a"), Some(7), None), (Adapter::Named("a".into()), None));
}

/// A block behind a private one is private, too, so the first one counts; media stand where they are.
#[test]
fn private_blocks_and_media_are_told_by_their_index() {
    let media = ExtraKey::Media { id: "one".into(), offset: -3 };
    let digest = || Some(vec![ExtraKey::Digest(vec![1, 2])]);
    let keys = vec![None, Some(vec![media]), digest(), digest()];
    let blocks = stored(Stored {
        block_hashes: (0..5).map(Hash::Number).collect(),
        extra_keys: Some(keys),
        ..Stored::default()
    });
    let expected = [vec![], vec![media_hash("one")], vec![], vec![], vec![]];
    assert_eq!((blocks.private_from, &blocks.media[..]), (Some(2), &expected[..]));
}

#[test]
fn the_shortest_digest_is_a_number_of_64_bits() {
    // [0.0, [["BlockRemoved", [digest]]]]
    let batch = |digest: &[u8]| {
        let head = [0x92, 0xCB, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x92, 0xAC];
        let list = [0x91, 0xC4, digest.len() as u8];
        Batch::decode(&[&head[..], b"BlockRemoved", &list[..], digest].concat())
    };
    let batch_of_8 = batch(&[0, 0, 0, 0, 0, 0, 1, 2]).unwrap();
    let blocks = batch_of_8.into_engine_events();
    let number = removed(Removed { block_hashes: vec![Hash::Number(258)], ..Removed::default() });
    assert_eq!(blocks, [EngineEvent::Removed(number)]);
    assert!(batch(&[0; 7]).is_err());
}
