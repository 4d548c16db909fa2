//! From engine ids to block hashes.

use ckf_core::sequence::Scope;
use ckf_core::{BlockHash, EngineBlockId};
use ckf_producer::source::{
    Adapter, Attention, Doubt, EngineEvent, Medium, Place, RemovedBlocks, SourceNotice,
    StoredBlocks, StreamState, Tokens,
};
use ckf_protocol::Millis;

use crate::engine::*;
use crate::support::*;

#[test]
fn f01_what_enters_the_filter_is_what_a_query_can_rebuild() {
    let mut engine = Engine::new(config());
    // Engine ids 0x1000 + i, unrelated to the query hashes; in several events, linked by parents.
    engine.store(stored(0x1001..=0x1014, None, 1..=20));
    engine.store(stored(0x1015..=0x1033, 0x1014, 21..=51));
    assert_eq!(engine.owned(), 51);
    let prompt = query(Scope::default(), 1..=83);
    assert_eq!(engine.depth(&prompt[..51]), 51);
    assert_eq!(engine.depth(&prompt), 51);
    let engine_ids: Vec<BlockHash> = hashes(0x1001..=0x1033);
    assert_eq!(engine.depth(&engine_ids), 0);
    let id = EngineBlockId::new(0x1033);
    assert_eq!(engine.world.stream.front().hash_of(id), Some(prompt[50]));
    engine.remove(removed([0x1033, 0x1001]));
    assert_eq!((engine.owned(), engine.depth(&prompt)), (49, 0));
}

#[test]
fn f04_a_repeated_id_in_one_store_keeps_the_first_and_clears_nothing() {
    let mut engine = Engine::new(config());
    engine.store(stored([50], None, [50]));
    // Page-local ids: two positions with equal tokens share an id.
    engine.store(stored([7, 9, 7], None, [7, 9, 7]));
    let prompt = query(Scope::default(), [7, 9, 7]);
    assert_eq!((engine.depth(&prompt), engine.owned()), (2, 3));
    assert_eq!(engine.stats().ambiguous, 1);
    // Which 7 a child means is anyone's guess, so it is not claimed, nor taken for an orphan.
    engine.store(stored([11], 7, [11]));
    assert_eq!(engine.owned(), 3);
    assert_eq!((engine.stats().opaque, engine.stats().orphans), (1, 0));
    engine.remove(removed([7]));
    assert_eq!((engine.depth(&prompt), engine.owned()), (0, 2));
    engine.remove(removed([9, 9]));
    assert_eq!(engine.owned(), 1);
    assert_eq!(engine.stats().unknown_removals, 1);
    assert_eq!(engine.depth(&query(Scope::default(), [50])), 1);
}

#[test]
fn f06_copies_of_an_engine_block_go_with_the_last_removal() {
    for (copies, depth_after_first) in [(false, 2), (true, 7)] {
        let mut engine = Engine::new(config().with_copies(copies));
        let prompt = query(Scope::default(), 1..=7);
        engine.store(stored(1..=7, None, 1..=7));
        engine.store(stored([3], 2, [3]));
        engine.remove(removed([3]));
        assert_eq!(engine.depth(&prompt), depth_after_first);
        engine.remove(removed([3]));
        assert_eq!(engine.depth(&prompt), 2);
        engine.remove(removed([3]));
        assert_eq!(engine.owned(), 6);
    }
}

/// A copy is one also where its parent went before, or where it comes without content.
#[test]
fn f06_a_copy_counts_whatever_else_its_announcement_says() {
    let bare = StoredBlocks { tokens: Tokens::default(), ..stored([3], 2, []) };
    for again in [stored([3], 99, [3]), bare] {
        for (copies, held) in [(false, false), (true, true)] {
            let mut engine = Engine::new(config().with_copies(copies));
            let block = query(Scope::default(), 1..=3)[2];
            engine.store(stored(1..=3, None, 1..=3));
            engine.store(again.clone());
            assert_eq!(engine.stats().repeated, u64::from(!copies));
            engine.remove(removed([3]));
            assert_eq!(engine.world.pool.owns(MEMBER, block), held);
            engine.remove(removed([3]));
            assert!(!engine.world.pool.owns(MEMBER, block));
            assert_eq!((engine.owned(), engine.stats().orphans), (2, 0));
        }
    }
}

/// So does a copy of a block that nobody can rebuild: what follows it is no orphan while one is left.
#[test]
fn f06_copies_of_blocks_that_nobody_can_rebuild_count_as_well() {
    let mut engine = Engine::new(config().with_copies(true));
    let private = || StoredBlocks { private_from: Some(0), ..stored([1], None, [1]) };
    engine.store(private());
    engine.store(private());
    engine.remove(removed([1]));
    engine.store(stored([2], 1, [2]));
    assert_eq!((engine.owned(), engine.stats().orphans), (0, 0));
    engine.remove(removed([1, 2]));
    assert_eq!(engine.world.stream.front().blocks(), (0, 0));
}

#[test]
fn two_ids_of_equal_content_hold_one_hash_together() {
    let mut engine = Engine::new(config());
    // Hashes that cover tokens beyond the block: different ids, equal tokens.
    engine.store(stored([1], None, [5]));
    engine.store(stored([2], None, [5]));
    let prompt = query(Scope::default(), [5]);
    assert_eq!(engine.owned(), 1);
    engine.remove(removed([1]));
    assert_eq!(engine.depth(&prompt), 1);
    engine.remove(removed([2]));
    assert_eq!(engine.depth(&prompt), 0);
}

#[test]
fn f14_only_the_primary_medium_counts() {
    let place = |name| Place { medium: Medium::parse(name), ..Place::default() };
    let store_in = |name, number: u32| {
        let blocks = stored([u64::from(number)], None, [number]);
        StoredBlocks { place: place(name), ..blocks }
    };
    let remove_in =
        |name, number: u32| RemovedBlocks { place: place(name), ..removed([u64::from(number)]) };
    let a = query(Scope::default(), [1]);
    let b = query(Scope::default(), [2]);

    let mut engine = Engine::new(config());
    engine.store(store_in(Some("GPU"), 1));
    engine.store(store_in(Some("CPU"), 1));
    engine.remove(remove_in(Some("CPU"), 1));
    assert_eq!(engine.depth(&a), 1);
    engine.remove(remove_in(Some("GPU"), 1));
    assert_eq!(engine.depth(&a), 0);
    // Offloaded: gone from the accelerator, stored on the host, in either order.
    engine.store(store_in(None, 1));
    engine.batch(vec![
        EngineEvent::Stored(store_in(Some("CPU_PINNED"), 1)),
        EngineEvent::Removed(remove_in(Some(""), 1)),
    ]);
    assert_eq!(engine.depth(&a), 0);
    engine.remove(remove_in(Some("DISK"), 1));

    // An unknown medium is never the accelerator, neither for stores nor for removals.
    engine.store(store_in(Some("CPU_TIER9"), 2));
    assert_eq!((engine.depth(&b), engine.owned()), (0, 0));
    engine.store(store_in(Some("gpu"), 2));
    engine.remove(remove_in(Some("CPU_TIER9"), 2));
    assert_eq!(engine.depth(&b), 1);
    let places = engine.stats().places;
    assert_eq!((places.unknown_medium, places.other_medium), (2, 4));
    assert_eq!(engine.stats().orphans, 0);

    // A pool of another tier counts that one instead.
    let mut engine = Engine::new(config().with_primary(Medium::Host));
    engine.store(store_in(Some("GPU"), 1));
    engine.store(store_in(Some("CPU"), 2));
    assert_eq!((engine.depth(&a), engine.depth(&b)), (0, 1));
}

#[test]
fn f14_media_of_all_engines_have_their_place() {
    use Medium::{Device, Disk, External, Host, Unknown};
    let expected: [(&str, Medium); 17] = [
        ("GPU", Device),
        ("", Device),
        ("device", Device),
        ("CPU", Host),
        ("cpu", Host),
        ("CPU_PINNED", Host),
        ("CPU_TIER1", Host),
        ("CPU_TIER2", Disk),
        ("DISK", Disk),
        ("NVME", Disk),
        ("STORAGE", Disk),
        ("FS", Disk),
        ("OBJ", External),
        ("EXTERNAL", External),
        ("REMOTE", External),
        ("GPU2", Unknown),
        (" GPU", Unknown),
    ];
    for (name, medium) in expected {
        assert_eq!(Medium::parse(Some(name)), medium, "{name:?}");
    }
    assert_eq!(Medium::parse(None), Device);
}

#[test]
fn groups_without_full_attention_are_left_out_also_when_removed() {
    let in_group = |group, attention| Place { group, attention, ..Place::default() };
    let mut engine = Engine::new(config());
    let prompt = query(Scope::default(), 1..=3);
    let store = |place| StoredBlocks { place, ..stored(1..=3, None, 1..=3) };
    let remove = |place| RemovedBlocks { place, ..removed([3]) };
    engine.store(store(in_group(Some(0), Attention::Partial)));
    engine.store(store(in_group(Some(1), Attention::Full)));
    assert_eq!(engine.depth(&prompt), 3);
    // Removals do not state a kind: what stores taught decides.
    engine.remove(remove(in_group(Some(0), Attention::Unstated)));
    assert_eq!(engine.depth(&prompt), 3);
    engine.remove(remove(in_group(Some(1), Attention::Unstated)));
    assert_eq!(engine.depth(&prompt), 2);

    // Releases that number groups without a kind: the first one counts.
    let mut engine = Engine::new(config());
    engine.store(store(in_group(Some(1), Attention::Unstated)));
    assert_eq!(engine.owned(), 0);
    engine.store(store(in_group(Some(0), Attention::Unstated)));
    assert_eq!(engine.depth(&prompt), 3);
    engine.remove(remove(in_group(Some(1), Attention::Unstated)));
    assert_eq!(engine.depth(&prompt), 3);
    engine.remove(remove(in_group(None, Attention::Unstated)));
    assert_eq!(engine.depth(&prompt), 2);
    assert_eq!(engine.stats().places.other_group, 4);

    // Copies elsewhere are not this member's.
    let elsewhere = Place { elsewhere: true, ..Place::default() };
    engine.store(store(elsewhere));
    assert_eq!(engine.depth(&prompt), 2);
    assert_eq!(engine.stats().places.elsewhere, 3);
}

#[test]
fn groups_that_nobody_heard_of_take_no_memory_without_end() {
    let mut engine = Engine::new(config());
    for group in 0..2000 {
        let place = Place { group: Some(group), attention: Attention::Partial, ..Place::default() };
        engine.store(StoredBlocks { place, ..stored([1], None, [1]) });
    }
    assert_eq!(engine.stats().places.other_group, 2000);
}

#[test]
fn adapter_and_namespace_are_inherited_along_parents() {
    let mut engine = Engine::new(config());
    let adapter = || Adapter::Named("sql-adapter".into());
    // Stated on the first block only, as vLLM does with salts; the adapter every time.
    engine.store(StoredBlocks {
        adapter: adapter(),
        namespace: Some("tenant-a".into()),
        ..stored([1, 2], None, [1, 2])
    });
    engine.store(StoredBlocks { adapter: adapter(), ..stored([3], 2, [3]) });
    engine.store(stored([4], 3, [4]));
    // The same tokens for everybody, and with an adapter alone.
    engine.store(stored([11, 12], None, [1, 2]));
    engine.store(StoredBlocks { adapter: adapter(), ..stored([21], None, [1]) });
    let depth = |adapter, namespace| engine.depth(&query(Scope::new(adapter, namespace), 1..=4));
    assert_eq!(depth(Some("sql-adapter"), Some("tenant-a")), 4);
    assert_eq!(depth(None, None), 2);
    assert_eq!(depth(Some("sql-adapter"), None), 1);
    assert_eq!(depth(None, Some("tenant-a")), 0);
    assert_eq!(engine.owned(), 7);
    assert_eq!(engine.stats().ambiguous, 0);
}

#[test]
fn an_adapter_that_only_the_engine_can_name_is_not_the_base_model() {
    let mut engine = Engine::new(config());
    engine.store(StoredBlocks { adapter: Adapter::Numbered(7), ..stored([1], None, [1]) });
    engine.store(StoredBlocks { adapter: Adapter::Numbered(7), ..stored([2], 1, [2]) });
    engine.store(stored([3], 2, [3]));
    assert_eq!(engine.owned(), 0);
    assert_eq!((engine.stats().opaque, engine.stats().orphans), (3, 0));
    assert_eq!(engine.world.stream.front().hash_of(EngineBlockId::new(1)), None);
    engine.remove(removed([1, 2, 3]));
    assert_eq!(engine.stats().unknown_removals, 0);
    assert_eq!(engine.world.stream.front().blocks(), (0, 0));
}

#[test]
fn orphans_are_counted_in_blocks_and_start_one_recovery() {
    let mut engine = Engine::new(config());
    engine.store(stored([1], None, [1]));
    engine.store(stored([11, 12, 13], 10, [11, 12, 13]));
    assert_eq!(engine.stats().orphans, 3);
    assert_eq!(engine.world.stream.stats().orphan_blocks, 3);
    assert!(engine.world.notices().contains(&SourceNotice::Orphans { blocks: 3 }));
    let doubt = Some(Doubt::Orphans);
    assert_eq!(engine.world.stream.state(), StreamState::Recovering { doubt });
    // What follows waits; the full state brings the missing parent.
    engine.store(stored([14], 13, [14]));
    let request = engine.world.request();
    let content = vec![
        EngineEvent::Stored(stored([1], None, [1])),
        EngineEvent::Stored(stored([10, 11, 12, 13], None, [10, 11, 12, 13])),
    ];
    engine.world.full_state(request.id, 1, 1, content);
    assert_eq!(engine.depth(&query(Scope::default(), 10..=14)), 5);
    assert_eq!(engine.world.stream.state(), StreamState::Live);
    assert_eq!(engine.world.notices().len(), 1, "only that it has recovered");

    // A source whose full states lack the parent is not asked over and over.
    for number in 0..100 {
        engine.store(stored([1000 + number], 999, [7]));
    }
    assert_eq!(engine.world.stream.state(), StreamState::Live);
    assert_eq!(engine.world.stream.stats().orphan_blocks, 103);
    engine.world.now += Millis::from_secs(30).get();
    engine.store(stored([2000], 999, [7]));
    assert_eq!(engine.world.stream.state(), StreamState::Recovering { doubt });
}

#[test]
fn announcing_again_and_removing_the_unknown_change_nothing() {
    let mut engine = Engine::new(config());
    let prompt = query(Scope::default(), 1..=4);
    engine.store(stored(1..=4, None, 1..=4));
    engine.world.pool.seal().unwrap();
    // From block 0 on, from the middle, and as a placeholder without content.
    engine.store(stored(1..=4, None, 1..=4));
    engine.store(stored(3..=4, 2, 3..=4));
    engine.store(StoredBlocks { ids: ids([2]), ..StoredBlocks::default() });
    engine.remove(removed([99]));
    assert_eq!(engine.depth(&prompt), 4);
    assert!(engine.world.pool.seal().unwrap().is_none(), "nothing to publish");
    assert_eq!((engine.stats().repeated, engine.stats().unknown_removals), (7, 1));
    engine.remove(removed(1..=4));
    assert_eq!(engine.owned(), 0);

    // Held blocks whose predecessor went are no orphans.
    engine.store(stored(1..=2, None, 1..=2));
    engine.remove(removed([1]));
    engine.store(stored([2], 1, [2]));
    assert_eq!((engine.owned(), engine.stats().orphans), (1, 0));
}

#[test]
fn blocks_that_readers_cannot_rebuild_are_known_but_not_claimed() {
    let whole = || stored([1, 2], None, [1, 2]);
    let cases = [
        // Another size than the pool's, fewer blocks than tokens, more blocks than tokens.
        StoredBlocks { block_size: 2, ..whole() },
        StoredBlocks { tokens: Tokens::Plain(tokens([1, 2, 3])), ..whole() },
        StoredBlocks { tokens: Tokens::Plain(tokens([1])), ..whole() },
        StoredBlocks { block_size: 0, tokens: Tokens::default(), ..whole() },
        StoredBlocks { media: vec![vec![1]], ..whole() },
        StoredBlocks { private_from: Some(0), ..whole() },
    ];
    for case in cases {
        let mut engine = Engine::new(config());
        engine.store(case.clone());
        engine.store(stored([3], 2, [3]));
        assert_eq!(engine.owned(), 0, "{case:?}");
        assert_eq!((engine.stats().opaque, engine.stats().orphans), (3, 0), "{case:?}");
        // Content that comes later counts from then on.
        engine.store(whole());
        assert_eq!(engine.owned(), 2);
        engine.remove(removed([1, 2, 3]));
        assert_eq!(engine.world.stream.front().blocks(), (0, 0));
    }
    let mut engine = Engine::new(config());
    engine.store(StoredBlocks { private_from: Some(1), ..stored(1..=3, None, 1..=3) });
    assert_eq!(engine.depth(&query(Scope::default(), 1..=3)), 1);
}

/// The last page of a sequence may be short: no reader asks for it, but the ones before it are whole.
#[test]
fn a_short_last_page_costs_none_of_those_before_it() {
    for over in 0..=2 {
        for left in 1..SIZE as usize {
            let mut tokens = tokens(1..=3);
            tokens.truncate(2 * SIZE as usize + left);
            let overlapping = [&tokens[..], &[999]].concat();
            for tokens in [Tokens::Plain(tokens), Tokens::Overlapping(overlapping)] {
                let ids = ids(1..=3 + over);
                let overlaps = matches!(tokens, Tokens::Overlapping(_));
                let mut engine = Engine::new(config());
                engine.store(StoredBlocks { ids, tokens, ..stored([], None, []) });
                // More pages than begin in the tokens: nobody knows where each of them stands.
                let held = if over == 0 { 2 } else { 0 };
                assert_eq!(engine.owned(), held);
                let opaque = 3 + over - held;
                assert_eq!((engine.stats().opaque, engine.stats().orphans), (opaque, 0));
                if !overlaps {
                    let prompt = query(Scope::default(), 1..=3);
                    assert_eq!(engine.depth(&prompt), held as usize);
                }
                engine.store(stored([9], 3, [9]));
                assert_eq!(engine.owned(), held, "what follows a short page is out of reach");
            }
        }
    }
}

#[test]
fn overlapping_windows_and_media_hash_as_readers_do() {
    let mut engine = Engine::new(config());
    let run: Vec<u32> = (0..9).collect();
    engine.store(StoredBlocks {
        tokens: Tokens::Overlapping(run.clone()),
        ..stored([1, 2], None, [])
    });
    let eagle: Vec<BlockHash> = ckf_core::sequence::roll_all(
        None,
        Scope::default().eagle_local_hashes(&run, SIZE as usize),
    )
    .collect();
    assert_eq!((eagle.len(), engine.depth(&eagle)), (2, 2));

    engine
        .store(StoredBlocks { media: vec![vec![], vec![42, 7]], ..stored([11, 12], None, [1, 2]) });
    let locals = [
        Scope::default().local_hash(&tokens([1])),
        Scope::default().local_hash_with_media(&tokens([2]), &[7, 42]),
    ];
    let prompt: Vec<BlockHash> = ckf_core::sequence::roll_all(None, locals).collect();
    assert_eq!(engine.depth(&prompt), 2);
}

#[test]
fn a_root_id_stands_for_no_parent() {
    let root = EngineBlockId::from_signed(5740354900026072187);
    let first = || StoredBlocks { parent: Some(root), ..stored([1], None, [1]) };
    let mut engine = Engine::new(config().with_root(Some(root)));
    engine.store(first());
    assert_eq!(engine.depth(&query(Scope::default(), [1])), 1);
    let mut engine = Engine::new(config());
    engine.store(first());
    assert_eq!((engine.owned(), engine.stats().orphans), (0, 1));
}

#[test]
fn a_full_translator_refuses_counts_and_starts_no_recovery() {
    let mut engine = Engine::new(config().with_max_blocks(3));
    engine.store(stored(1..=5, None, 1..=5));
    engine.store(stored([6], 5, [6]));
    assert_eq!((engine.owned(), engine.stats().refused, engine.stats().orphans), (3, 3, 0));
    assert_eq!(engine.world.stream.state(), StreamState::Live);
    assert_eq!(engine.world.stream.front().blocks(), (3, 3));
    // Known ones still work, and a clear makes room.
    engine.remove(removed([1]));
    engine.batch(vec![EngineEvent::Cleared, EngineEvent::Stored(stored(7..=9, None, 7..=9))]);
    assert_eq!(engine.depth(&query(Scope::default(), 7..=9)), 3);
    // So that an unknown parent is a surprise again.
    engine.store(stored([6], 5, [6]));
    assert_eq!((engine.stats().refused, engine.stats().orphans), (3, 1));
}

#[test]
fn a_clear_within_a_batch_undoes_only_what_stands_before_it() {
    let mut engine = Engine::new(config());
    engine.store(stored([1], None, [1]));
    engine.batch(vec![
        EngineEvent::Stored(stored([3], 2, [3])), // an orphan, but it does not matter any more
        EngineEvent::Cleared,
        EngineEvent::Stored(stored([1, 4], None, [4, 5])),
    ]);
    assert_eq!(engine.stats().orphans, 0);
    assert_eq!((engine.depth(&query(Scope::default(), [4, 5])), engine.owned()), (2, 2));
}

#[test]
fn ids_of_another_generation_mean_nothing() {
    let mut engine = Engine::new(config());
    engine.store(stored([1], None, [1]));
    // The new life uses the same id for other content.
    engine.world.event(2, 0, vec![EngineEvent::Stored(stored([1], None, [9]))]);
    assert_eq!(engine.depth(&query(Scope::default(), [9])), 1);
    assert_eq!((engine.owned(), engine.stats().ambiguous), (1, 0));
    engine.world.event(2, 1, vec![EngineEvent::Stored(stored([2], 1, [2]))]);
    assert_eq!(engine.depth(&query(Scope::default(), [9, 2])), 2);
}

#[test]
fn a_full_state_replaces_the_ids_as_well() {
    let mut engine = Engine::new(config());
    engine.store(stored([1, 2], None, [1, 2]));
    engine.world.stream.handle_suspect(at(0));
    let request = engine.world.request();
    let content = vec![EngineEvent::Stored(stored([3], None, [3]))];
    engine.world.full_state(request.id, 1, 0, content);
    assert_eq!(engine.world.stream.front().blocks(), (1, 1));
    // The engine may use the id of a block that is gone for another one.
    engine.store(stored([2], 3, [9]));
    assert_eq!((engine.depth(&query(Scope::default(), [3, 9])), engine.owned()), (2, 2));
    assert_eq!(engine.stats().ambiguous, 0);
}
