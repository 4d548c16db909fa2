//! What a translator remembers of blocks, groups and scopes that are announced more than once.

use ckf_core::sequence::Scope;
use ckf_producer::source::{Attention, Place, RemovedBlocks, StoredBlocks, StreamState, Tokens};

use crate::engine::*;
use crate::support::*;

/// Copies that came without content count for the block that a later announcement says they are.
#[test]
fn f06_copies_that_came_before_their_content_count_for_it() {
    for copies in [false, true] {
        let mut engine = Engine::new(config().with_copies(copies));
        let bare = StoredBlocks { tokens: Tokens::default(), ..stored([1], None, []) };
        engine.store(bare.clone());
        engine.store(bare);
        engine.store(stored([1], None, [1]));
        let block = query(Scope::default(), [1])[0];
        for left in [2, 1, 0] {
            assert!(engine.world.pool.owns(MEMBER, block) == (copies || left == 2), "{left}");
            engine.remove(removed([1]));
        }
        assert_eq!((engine.owned(), engine.world.stream.front().blocks()), (0, (0, 0)));
    }
}

#[test]
fn a_recovery_that_fails_leaves_nothing_remembered() {
    let mut engine = Engine::new(config());
    engine.store(stored([1, 2], None, [1, 2]));
    engine.world.stream.handle_suspect(at(0));
    while engine.world.stream.state() != StreamState::Failed {
        assert_eq!(engine.owned(), 2);
        engine.world.sleep();
    }
    assert_eq!((engine.owned(), engine.world.stream.front().blocks()), (0, (0, 0)));
}

/// Nothing is guessed of an event whose parent is unknown, unless all of its blocks are known.
#[test]
fn blocks_that_are_known_in_part_are_orphans_where_their_parent_is_unknown() {
    let mut engine = Engine::new(config());
    engine.store(stored([1], None, [1]));
    engine.store(stored([1, 50], 99, [1, 50]));
    assert_eq!((engine.owned(), engine.stats().orphans, engine.stats().repeated), (1, 2, 0));
}

/// What is known already takes no room.
#[test]
fn a_full_translator_goes_on_with_the_blocks_that_it_knows() {
    for copies in [false, true] {
        let mut engine = Engine::new(config().with_max_blocks(3).with_copies(copies));
        engine.store(stored(1..=3, None, 1..=3));
        engine.store(stored(1..=3, None, 1..=3));
        let repeated = if copies { 0 } else { 3 };
        assert_eq!((engine.stats().repeated, engine.stats().refused), (repeated, 0));
        engine.remove(removed(1..=3));
        assert_eq!(engine.owned(), if copies { 3 } else { 0 });
    }
}

/// A namespace that an event states counts, whatever the parent's is.
#[test]
fn a_namespace_that_is_stated_behind_a_parent_counts() {
    let mut engine = Engine::new(config());
    engine.store(stored([1], None, [1]));
    let salted = |salt: &str| Some(salt.to_string());
    engine.store(StoredBlocks { namespace: salted("tenant-a"), ..stored([2], 1, [2]) });
    let first = query(Scope::default(), [1])[0];
    let tokens = query(Scope::new(None, Some("tenant-a")), [2]);
    let local = ckf_core::LocalHash::new(tokens[0].get());
    assert!(engine.world.pool.owns(MEMBER, ckf_core::sequence::roll(Some(first), local)));
    assert_eq!(engine.owned(), 2);
}

#[test]
fn kinds_of_attention_have_the_names_that_vllm_gives_them() {
    let full = ["full_attention", "mla_attention", "sink_full_attention"];
    let partial = [
        "sliding_window",
        "sliding_window_mla",
        "mamba",
        "chunked_local_attention",
        "encoder_only_attention",
        "cross_attention",
        "later_attention",
    ];
    assert!(full.iter().all(|name| Attention::parse(Some(name)) == Attention::Full));
    assert!(partial.iter().all(|name| Attention::parse(Some(name)) == Attention::Partial));
    assert_eq!(Attention::parse(None), Attention::Unstated);
}

/// Also when so many others were stated that no more are remembered.
#[test]
fn the_kind_of_a_group_is_the_one_stated_last() {
    let mut engine = Engine::new(config());
    let place = |group, attention| Place { group: Some(group), attention, ..Place::default() };
    for group in 0..1000 {
        let place = place(group, Attention::Partial);
        engine.store(StoredBlocks { place, ..stored([1], None, [1]) });
    }
    engine.store(StoredBlocks { place: place(3, Attention::Full), ..stored([1], None, [1]) });
    assert_eq!(engine.owned(), 1);
    engine.remove(RemovedBlocks { place: place(3, Attention::Unstated), ..removed([1]) });
    assert_eq!(engine.owned(), 0);
}
