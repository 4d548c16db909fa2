//! Single batches of every release, and awkward ones.

use ckf_core::sequence::Scope;
use ckf_core::{BlockHash, EngineBlockId};
use ckf_producer::source::{
    Adapter, BlockChange, BlockChanges, EngineEvent, Front, Translator, TranslatorConfig,
};
use ckf_testkit::kv_events::{
    Batch, DecodeError, Event, ExtraKey, Hash, Problem, Removed, Stored, TokenIds,
};
use ckf_testkit::rng::Rng;
use core::num::NonZeroU32;
use serde_json::Value;

use crate::shared;

/// All payloads: name, bytes, and what stands beside them.
fn payloads() -> Option<Vec<(String, Vec<u8>, Value)>> {
    let list = shared::json("kv_events/payloads.json")?;
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 38);
    let load = |entry: &Value| {
        let file = entry["file"].as_str().unwrap();
        let bytes = shared::read(&format!("kv_events/{file}"))?;
        let name = file.trim_start_matches("payloads/").trim_end_matches(".msgpack");
        Some((name.to_string(), bytes, entry.clone()))
    };
    list.iter().map(load).collect()
}

fn payload(wanted: &str) -> Option<Vec<u8>> {
    let found = payloads()?.into_iter().find(|(name, ..)| name == wanted);
    Some(found.unwrap_or_else(|| panic!("there is a payload {wanted}")).1)
}

fn hash(value: &Value) -> Hash {
    match value {
        Value::Number(number) => {
            Hash::Number(number.as_u64().unwrap_or_else(|| number.as_i64().unwrap() as u64))
        }
        object => {
            let digits = object["bytes_hex"].as_str().unwrap();
            let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
            Hash::Digest((0..digits.len()).step_by(2).map(byte).collect())
        }
    }
}

fn list<T>(value: &Value, item: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(item).collect()
}

fn small(value: &Value) -> u32 {
    value.as_u64().unwrap().try_into().unwrap()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(String::from)
}

fn extra_key(value: &Value) -> ExtraKey {
    match value {
        Value::String(text) => ExtraKey::Text(text.clone()),
        Value::Array(pair) => ExtraKey::Media {
            id: pair[0].as_str().unwrap().into(),
            offset: pair[1].as_i64().unwrap(),
        },
        other => match hash(other) {
            Hash::Digest(bytes) => ExtraKey::Digest(bytes),
            Hash::Number(_) => panic!("no such key"),
        },
    }
}

fn event(value: &Value) -> Event {
    let hashes = || list(&value["block_hashes"], hash);
    match value["kind"].as_str().unwrap() {
        "BlockStored" => {
            let tokens = &value["token_ids"];
            let token_ids = match tokens[0].is_array() {
                true => TokenIds::Pairs(list(tokens, |pair| [small(&pair[0]), small(&pair[1])])),
                false => TokenIds::Plain(list(tokens, small)),
            };
            let per_block = |keys: &Value| keys.as_array().map(|_| list(keys, extra_key));
            Event::Stored(Box::new(Stored {
                block_hashes: hashes(),
                parent_block_hash: Some(&value["parent_block_hash"])
                    .filter(|parent| !parent.is_null())
                    .map(hash),
                token_ids,
                block_size: small(&value["block_size"]),
                lora_id: value["lora_id"].as_u64(),
                medium: text(&value["medium"]),
                lora_name: text(&value["lora_name"]),
                extra_keys: value["extra_keys"]
                    .as_array()
                    .map(|_| list(&value["extra_keys"], per_block)),
                group_idx: value["group_idx"].as_u64().map(|group| group as u32),
                kv_cache_spec_kind: text(&value["kv_cache_spec_kind"]),
                kv_cache_spec_sliding_window: value["kv_cache_spec_sliding_window"].as_u64(),
                locality: text(&value["locality"]),
                ownership: text(&value["ownership"]),
                session_id: text(&value["session_id"]),
                lookahead_token_ids: value["lookahead_token_ids"]
                    .as_array()
                    .map(|_| list(&value["lookahead_token_ids"], |tokens| list(tokens, small))),
                cache_salt: text(&value["cache_salt"]),
            }))
        }
        "BlockRemoved" => Event::Removed(Removed {
            block_hashes: hashes(),
            medium: text(&value["medium"]),
            group_idx: value["group_idx"].as_u64().map(|group| group as u32),
            locality: text(&value["locality"]),
            ownership: text(&value["ownership"]),
        }),
        "AllBlocksCleared" => Event::Cleared,
        other => panic!("unknown kind {other}"),
    }
}

#[test]
fn every_release_decodes_to_what_stands_beside_it() {
    let Some(payloads) = payloads() else { return };
    let mut checked = 0;
    for (name, bytes, entry) in payloads {
        let expect = &entry["expect"];
        let Some(events) = expect["events"].as_array() else { continue };
        let batch = Batch::decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(batch.timestamp, expect["ts"].as_f64().unwrap(), "{name}");
        let rank = expect["data_parallel_rank"].as_u64().map(|rank| rank as u32);
        assert_eq!((batch.rank, batch.unknown), (rank, 0), "{name}");
        let expected: Vec<Event> = events.iter().map(event).collect();
        assert_eq!(batch.events, expected, "{name}");
        checked += 1;
    }
    assert_eq!(checked, 26);
}

#[test]
fn every_truncation_is_an_error_and_no_change_of_a_byte_a_panic() {
    let Some(payloads) = payloads() else { return };
    let mut rng = Rng::new(3);
    for (name, bytes, _) in payloads {
        let decodes = Batch::decode(&bytes).is_ok();
        for cut in 0..bytes.len() {
            assert!(Batch::decode(&bytes[..cut]).is_err(), "{name} cut at {cut}");
        }
        let mut longer = bytes.clone();
        longer.push(0xC0);
        assert!(Batch::decode(&longer).is_err(), "{name}");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] = rng.next_u64() as u8;
            if let Ok(batch) = Batch::decode(&changed) {
                assert!(decodes || changed != bytes, "{name}");
                translate(batch.into_engine_events());
            }
        }
    }
}

#[test]
fn unknown_keys_elements_and_tags_are_passed_over() {
    let Some(bytes) = payload("x_unknown_map_key") else { return };
    let batch = Batch::decode(&bytes).unwrap();
    let [Event::Stored(stored)] = &batch.events[..] else { panic!("{batch:?}") };
    assert_eq!(stored.block_hashes, [Hash::Number(13251476741712630557)]);
    assert_eq!(stored.block_size, 16);

    let batch = Batch::decode(&payload("x_extra_positional").unwrap()).unwrap();
    let [Event::Stored(stored)] = &batch.events[..] else { panic!("{batch:?}") };
    assert_eq!(stored.kv_cache_spec_kind.as_deref(), Some("full_attention"));
    assert_eq!((stored.group_idx, batch.rank), (Some(0), Some(0)));

    let batch = Batch::decode(&payload("x_batch_extra_element").unwrap()).unwrap();
    assert_eq!((batch.events, batch.rank), (vec![Event::Cleared], Some(0)));

    let batch = Batch::decode(&payload("x_unknown_tag").unwrap()).unwrap();
    assert_eq!((batch.events, batch.unknown), (vec![Event::Cleared], 1));
}

#[test]
fn keys_come_in_any_order_and_forms_may_be_mixed() {
    let removed = |medium: &str| {
        Event::Removed(Removed {
            block_hashes: vec![Hash::Number(13251476741712630557)],
            medium: Some(medium.into()),
            ..Removed::default()
        })
    };
    let Some(bytes) = payload("x_map_type_last") else { return };
    assert_eq!(Batch::decode(&bytes).unwrap().events, [removed("GPU")]);
    let batch = Batch::decode(&payload("x_mixed_forms").unwrap()).unwrap();
    assert_eq!(batch.events, [removed("GPU"), removed("GPU")]);
}

#[test]
fn hostile_payloads_are_errors_with_a_place() {
    let Some(truncated) = payload("x_truncated") else { return };
    let error = Batch::decode(&truncated).unwrap_err();
    assert_eq!(error.problem, Problem::Truncated);
    let overflow = Batch::decode(&payload("x_token_overflow").unwrap()).unwrap_err();
    assert_eq!(overflow.problem, Problem::Unexpected { field: "token_ids" });
    let huge = Batch::decode(&payload("x_huge_array_header").unwrap()).unwrap_err();
    assert_eq!(huge, DecodeError { at: 10, problem: Problem::Truncated });
    let deep = Batch::decode(&payload("x_nested_deep").unwrap()).unwrap_err();
    assert_eq!(deep.at, 0, "an array of one element is no batch");
}

/// Feeds events to a fresh translator; returns it, and the blocks that it stores.
pub(crate) fn translate(events: Vec<EngineEvent>) -> (Translator, Vec<BlockHash>) {
    let config = TranslatorConfig::new(NonZeroU32::new(16).unwrap(), shared::SEEDS);
    let mut translator = Translator::new(config);
    let mut changes = BlockChanges::default();
    translator.apply(events, &mut changes);
    let mut stored = Vec::new();
    for change in changes {
        if let BlockChange::Store(mut hashes) = change {
            stored.append(&mut hashes);
        }
    }
    (translator, stored)
}

#[test]
fn hashes_that_do_not_match_tokens_are_known_but_not_claimed() {
    let Some(bytes) = payload("x_length_mismatch") else { return };
    let batch = Batch::decode(&bytes).unwrap();
    let (translator, stored) = translate(batch.into_engine_events());
    assert_eq!((stored.len(), translator.stats().opaque, translator.stats().orphans), (0, 2, 0));

    // A sparse group is left out altogether; without its kind it cannot be told from the main one,
    // and is not claimed either.
    let mut batch = Batch::decode(&payload("x_skipped_blocks").unwrap()).unwrap();
    let (translator, stored) = translate(batch.clone().into_engine_events());
    assert_eq!((stored.len(), translator.stats().places.other_group), (0, 1));
    let Event::Stored(event) = &mut batch.events[0] else { panic!("{batch:?}") };
    event.kv_cache_spec_kind = None;
    event.group_idx = None;
    let (translator, stored) = translate(batch.into_engine_events());
    assert_eq!((stored.len(), translator.stats().opaque), (0, 1));
}

#[test]
fn digests_and_numbers_name_the_same_blocks() {
    let Some(numbers) = payload("vllm_0.10.2_array") else { return };
    let digests = payload("vllm_0.10.2_array_bytes_hash").unwrap();
    let events = |bytes: &[u8]| Batch::decode(bytes).unwrap().into_engine_events();
    assert_eq!(events(&numbers), events(&digests));
    assert_eq!(Hash::Digest((0..10).collect()).id(), EngineBlockId::new(0x0203040506070809));
    assert_eq!(Hash::Number(u64::MAX).id(), EngineBlockId::from_signed(-1));
}

#[test]
fn salts_adapters_and_media_reach_the_hashes() {
    let stored = |name: &str| -> Option<(Vec<BlockHash>, Vec<u32>)> {
        let batch = Batch::decode(&payload(name)?).unwrap();
        let Event::Stored(event) = &batch.events[0] else { panic!("{batch:?}") };
        let TokenIds::Plain(tokens) = event.token_ids.clone() else { panic!("{batch:?}") };
        let first = batch.clone().into_engine_events().swap_remove(0);
        Some((translate(vec![first]).1, tokens))
    };
    let read = |adapter, salt, tokens: &[u32]| -> Vec<BlockHash> {
        Scope::new(adapter, salt).block_hashes(tokens, 16).collect()
    };
    let Some((hashes, tokens)) = stored("vllm_0.33.0_map_lora_salt") else { return };
    assert_eq!(hashes, read(Some("sql-adapter"), Some("tenant-a"), &tokens));
    let (hashes, tokens) = stored("vllm_0.14.0_array_lora").unwrap();
    assert_eq!(hashes, read(Some("sql-adapter"), None, &tokens));
    for name in ["sglang_0.5.18_array_salt", "sglang_0.5.20_map"] {
        let (hashes, tokens) = stored(name).unwrap();
        assert_eq!(hashes, read(None, Some("tenant-a"), &tokens), "{name}");
    }
    // Salt on the first block, an image on the third.
    let (hashes, tokens) = stored("vllm_0.17.0_array_extra_keys").unwrap();
    let text = read(None, Some("tenant-a"), &tokens);
    assert_eq!(hashes[..2], text[..2]);
    let scope = Scope::new(None, Some("tenant-a"));
    let local = scope.local_hash_with_media(&tokens[32..48], &[0x9f86d081884c7d65]);
    assert_eq!(hashes[2], ckf_core::sequence::roll(Some(hashes[1]), local));
    // Plain text of the same tokens.
    let (hashes, tokens) = stored("vllm_0.9.0_array").unwrap();
    assert_eq!(hashes, read(None, None, &tokens));
    // An adapter without a name is not the base model.
    let (hashes, _) = stored("vllm_0.9.1_array").unwrap();
    assert_eq!(hashes, []);
    let batch = Batch::decode(&payload("vllm_0.9.1_array").unwrap()).unwrap();
    let EngineEvent::Stored(blocks) = &batch.into_engine_events()[0] else { panic!() };
    assert_eq!(blocks.adapter, Adapter::Numbered(7));
}

/// What an event is about cannot be guessed: without its hashes the batch counts as lost.
#[test]
fn events_without_hashes_are_errors_with_a_place() {
    for tag in ["BlockStored", "BlockRemoved"] {
        // [0.0, [["AllBlocksCleared"], [tag]], 0], and the second event as a map {"type": tag}.
        let mut bytes = vec![0x93, 0xCB, 0, 0, 0, 0, 0, 0, 0, 0, 0x92, 0x91, 0xB0];
        bytes.extend(b"AllBlocksCleared");
        let at = bytes.len();
        let tag = [&[0xA0 | tag.len() as u8], tag.as_bytes()].concat();
        for event in [[&[0x91], &tag[..]].concat(), [&[0x81, 0xA4], &b"type"[..], &tag].concat()] {
            let bytes = [&bytes, &event[..], &[0]].concat();
            let problem = Problem::Missing { field: "block_hashes" };
            assert_eq!(Batch::decode(&bytes), Err(DecodeError { at, problem }));
        }
    }
}

#[test]
fn first_pages_of_old_sglang_have_no_parent_although_they_name_one() {
    let Some(bytes) = payload("sglang_0.4.8_array") else { return };
    let batch = Batch::decode(&bytes).unwrap();
    let tokens = |event: &Event| match event {
        Event::Stored(stored) => match &stored.token_ids {
            TokenIds::Plain(tokens) => tokens.clone(),
            TokenIds::Pairs(_) => panic!("no pairs here"),
        },
        other => panic!("{other:?}"),
    };
    let prompt = [tokens(&batch.events[0]), tokens(&batch.events[1])].concat();
    // Without the removal and the clear that follow.
    let events = batch.into_engine_events().into_iter().take(2).collect();
    let (translator, stored) = translate(events);
    assert_eq!(stored, Scope::default().block_hashes(&prompt, 16).collect::<Vec<_>>());
    assert_eq!(translator.stats().orphans, 0);
}

/// A kind of extra key that a later release brings costs the blocks it went into, not the batch.
#[test]
fn extra_keys_of_unknown_kinds_make_their_blocks_private() {
    // nil, 5, true, a map, a pair of two texts, an array of three.
    let kinds: [&[u8]; 6] = [
        &[0xC0],
        &[5],
        &[0xC3],
        &[0x81, 0xA4, b't', b'y', b'p', b'e', 0xA1, b'x'],
        &[0x92, 0xA1, b'a', 0xA1, b'b'],
        &[0x93, 1, 2, 3],
    ];
    for kind in kinds {
        // [0.0, [["BlockStored", [1, 2, 3], nil, [0; 3], 1, nil, nil, nil, [nil, [kind], nil]]], 0]
        let mut bytes = vec![0x93, 0xCB, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x99, 0xAB];
        bytes.extend(b"BlockStored");
        bytes.extend([0x93, 1, 2, 3, 0xC0, 0x93, 0, 0, 0, 1, 0xC0, 0xC0, 0xC0, 0x93, 0xC0, 0x91]);
        bytes.extend(kind);
        bytes.extend([0xC0, 0]);
        let batch = Batch::decode(&bytes).unwrap();
        let Event::Stored(stored) = &batch.events[0] else { panic!("{batch:?}") };
        let keys = [None, Some(vec![ExtraKey::Unknown]), None];
        assert_eq!(stored.extra_keys.as_deref(), Some(&keys[..]));
        let EngineEvent::Stored(blocks) = &batch.into_engine_events()[0] else { panic!() };
        assert_eq!(blocks.private_from, Some(1));
        // What is cut off within one is no kind at all.
        let cut = bytes.len() - 3;
        assert!(Batch::decode(&bytes[..cut]).is_err());
    }
}

#[test]
fn eagle_pairs_become_overlapping_windows() {
    let Some(bytes) = payload("sglang_0.5.9_array_bigram") else { return };
    let batch = Batch::decode(&bytes).unwrap();
    let Event::Stored(event) = &batch.events[0] else { panic!("{batch:?}") };
    let TokenIds::Pairs(pairs) = event.token_ids.clone() else { panic!("{batch:?}") };
    let run: Vec<u32> = pairs.iter().map(|p| p[0]).chain([pairs[15][1]]).collect();
    let (_, stored) = translate(batch.into_engine_events());
    let local = Scope::default().eagle_local_hashes(&run, 16).next().unwrap();
    assert_eq!(stored, [ckf_core::sequence::roll(None, local)]);
}

#[test]
fn tiers_of_all_payloads_count_as_they_should() {
    let counted = |name: &str| -> Option<(usize, ckf_producer::source::PlaceStats)> {
        let batch = Batch::decode(&payload(name)?).unwrap();
        let (translator, stored) = translate(batch.into_engine_events());
        Some((stored.len(), translator.stats().places))
    };
    let Some((stored, places)) = counted("vllm_0.26.0_map_offload") else { return };
    assert_eq!((stored, places.other_medium), (0, 3));
    let (stored, places) = counted("vllm_0.27.0_map_storage").unwrap();
    assert_eq!((stored, places.other_medium), (0, 2));
    let (stored, places) = counted("vllm_0.29.0_map_ownership").unwrap();
    assert_eq!((stored, places.other_medium), (0, 2));
    let (stored, places) = counted("sglang_0.5.22_map_lora").unwrap();
    assert_eq!((stored, places.other_medium), (0, 2));
    let (stored, places) = counted("sglang_0.5.9_array_medium").unwrap();
    assert_eq!((stored, places.other_medium), (3, 2));
    // Groups: the main one counts, stated or first.
    let (stored, places) = counted("vllm_0.20.0_array_group").unwrap();
    assert_eq!((stored, places.other_group), (3, 4));
    let (stored, places) = counted("vllm_0.22.0_array_spec_kind").unwrap();
    assert_eq!((stored, places.other_group), (3, 4));
}
