//! The translator against a model that keeps every block's whole token path.

use std::collections::{BTreeMap, BTreeSet};

use core::num::NonZeroU32;

use ckf_core::sequence::Scope;
use ckf_core::{BlockHash, EngineBlockId};
use ckf_producer::source::{
    BlockChange, BlockChanges, EngineEvent, Front, RemovedBlocks, StoredBlocks, Tokens, Translator,
    TranslatorConfig,
};
use proptest::prelude::*;

use crate::support::SEEDS;

const SIZE: usize = 2;

#[derive(Clone, Debug)]
enum Op {
    /// Extends a held block, or starts a sequence, by blocks with these labels. The ids are taken
    /// from the path, as chained hashes are, plus a number that tells copies of content apart.
    Store {
        parent: usize,
        labels: Vec<u8>,
        variant: u8,
        salt: bool,
    },
    Remove {
        which: usize,
    },
    Clear,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let store = (any::<usize>(), prop::collection::vec(0u8..3, 1..4), 0u8..2, any::<bool>())
        .prop_map(|(parent, labels, variant, salt)| Op::Store { parent, labels, variant, salt });
    let remove = any::<usize>().prop_map(|which| Op::Remove { which });
    let op = prop_oneof![8 => store, 6 => remove, 1 => Just(Op::Clear)];
    prop::collection::vec(op, 0..80)
}

/// What a block is: salted or not, and the labels from the root. Its id adds the variant.
type Path = (bool, Vec<u8>);

fn hash_of(path: &Path) -> BlockHash {
    let tokens: Vec<u32> =
        path.1.iter().flat_map(|label| [u32::from(*label), u32::from(*label) + 50]).collect();
    let scope = Scope::new(None, path.0.then_some("tenant"));
    scope.block_hashes(&tokens, SIZE).last().expect("paths are not empty")
}

fn id_of(path: &Path, variant: u8) -> EngineBlockId {
    let mut id = 1 + u64::from(path.0);
    for label in &path.1 {
        id = id * 5 + 1 + u64::from(*label);
    }
    EngineBlockId::new(id * 2 + u64::from(variant))
}

proptest! {
    #[test]
    fn the_set_is_that_of_the_token_paths(ops in ops(), copies in any::<bool>()) {
        let config = TranslatorConfig::new(NonZeroU32::new(SIZE as u32).unwrap(), SEEDS);
        let mut translator = Translator::new(config.with_copies(copies));
        // Held ids, with what they are and how often they were announced.
        let mut held: BTreeMap<EngineBlockId, (Path, u8, u32)> = BTreeMap::new();
        let mut set: BTreeSet<BlockHash> = BTreeSet::new();
        for op in ops {
            let event = match op {
                Op::Store { parent, labels, variant, salt } => {
                    let from = held.iter().nth(parent % (held.len() + 1));
                    let (parent, base) = match from {
                        Some((id, (path, _, _))) if path.1.len() < 9 => (Some(*id), path.clone()),
                        _ => (None, (salt, Vec::new())),
                    };
                    let mut path = base;
                    let mut ids = Vec::new();
                    let mut tokens = Vec::new();
                    for label in labels {
                        path.1.push(label);
                        tokens.extend([u32::from(label), u32::from(label) + 50]);
                        let id = id_of(&path, variant);
                        ids.push(id);
                        let entry = held.entry(id).or_insert((path.clone(), variant, 0));
                        entry.2 += 1;
                    }
                    // A salt is stated at the root only.
                    let namespace = (parent.is_none() && path.0).then(|| "tenant".to_string());
                    EngineEvent::Stored(StoredBlocks {
                        ids,
                        parent,
                        tokens: Tokens::Plain(tokens),
                        block_size: SIZE as u32,
                        namespace,
                        ..StoredBlocks::default()
                    })
                }
                Op::Remove { which } => {
                    let Some(id) = held.keys().nth(which % held.len().max(1)).copied() else {
                        continue;
                    };
                    let entry = held.get_mut(&id).unwrap();
                    entry.2 -= 1;
                    if entry.2 == 0 || !copies {
                        held.remove(&id);
                    }
                    EngineEvent::Removed(RemovedBlocks { ids: vec![id], ..Default::default() })
                }
                Op::Clear => {
                    held.clear();
                    EngineEvent::Cleared
                }
            };
            let mut changes = BlockChanges::default();
            prop_assert_eq!(translator.apply(vec![event], &mut changes), 0, "no orphans");
            for change in changes {
                match change {
                    BlockChange::Store(hashes) => {
                        for hash in hashes {
                            prop_assert!(set.insert(hash), "stored twice");
                        }
                    }
                    BlockChange::Remove(hashes) => {
                        for hash in hashes {
                            prop_assert!(set.remove(&hash), "removed what is not held");
                        }
                    }
                    BlockChange::Clear => set.clear(),
                }
            }
            let expected: BTreeSet<BlockHash> =
                held.values().map(|(path, _, _)| hash_of(path)).collect();
            prop_assert_eq!(&set, &expected);
            prop_assert_eq!(translator.blocks(), (held.len(), expected.len()));
        }
    }
}
