use std::collections::BTreeMap;

use ckf_core::{BlockHash, Format, Full, Table, TableDigest};

use super::Choices;

/// Insertions and removals on a small filter against a multiset: nothing accepted is ever missed,
/// a refusal changes nothing, and the digest follows every change.
pub fn filter_ops(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let format = format(&mut choices);
    let mut table = Table::new(format).expect("a small table");
    let mut held: BTreeMap<BlockHash, u32> = BTreeMap::new();
    let mut digest = TableDigest::EMPTY;
    while !choices.is_empty() {
        let remove = choices.byte().is_multiple_of(3);
        let hash = BlockHash::new(u64::from(choices.byte()));
        let address = format.address(hash);
        if remove {
            // Only what was accepted may be removed.
            let Some(copies) = held.get_mut(&hash).filter(|copies| **copies > 0) else { continue };
            *copies -= 1;
            assert!(table.remove(&address, |change| digest = digest.changed(&change)));
        } else {
            let before = table.clone();
            match table.insert(&address, |change| digest = digest.changed(&change)) {
                Ok(_) => *held.entry(hash).or_default() += 1,
                Err(Full) => assert_eq!(table, before),
            }
        }
        assert_eq!(table.stored(), held.values().map(|&copies| u64::from(copies)).sum::<u64>());
    }
    assert_eq!(digest, TableDigest::of_words(table.words()));
    for (&hash, &copies) in &held {
        assert!(table.copies(&format.address(hash)) >= copies, "{hash} is missed");
    }
    for (&hash, &copies) in &held {
        for _ in 0..copies {
            assert!(table.remove(&format.address(hash), |_| ()));
        }
    }
    assert!(table.words().iter().all(|&word| word == 0));
}

fn format(choices: &mut Choices<'_>) -> Format {
    let seed = u64::from(choices.byte());
    let buckets = 2 + choices.below(30) as u64;
    let format = if choices.byte().is_multiple_of(2) {
        Format::any_count(buckets, seed)
    } else {
        Format::power_of_two(buckets.next_power_of_two(), seed)
    };
    format.expect("a legal size")
}
