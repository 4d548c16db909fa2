//! Every search against the naive answer on the same words: all widths, backends and modes.

mod common;

use ckf_consumer::{Backend, LaneMask, Matches};
use ckf_core::{BlockHash, Format, LocalHash, Table, sequence};
use ckf_protocol::Lane;
use common::{Known, backends};
use proptest::prelude::*;

fn hash(number: u64) -> BlockHash {
    BlockHash::new(number.wrapping_mul(0xD134_2543_DE82_EF95))
}

fn prefix(len: usize) -> Vec<BlockHash> {
    (0..len as u64).map(hash).collect()
}

/// The words of a lane that holds these blocks.
fn words(format: Format, blocks: impl IntoIterator<Item = BlockHash>) -> Vec<u64> {
    let mut table = Table::new(format).expect("small");
    for block in blocks {
        table.insert(&format.address(block), |_| ()).expect("sized for this");
    }
    table.words().to_vec()
}

fn format_for(blocks: usize) -> Format {
    ckf_core::Sizing::for_blocks(blocks as u64, 900).expect("legal").format(3)
}

/// What a lane holds of a prefix.
#[derive(Clone, Debug)]
enum Holding {
    /// So much of it, without holes.
    Depth(f64),
    /// So much, with each position missing at so many in a thousand.
    Holes(f64, u32),
}

impl Holding {
    fn of(&self, prefix: &[BlockHash], seed: u64) -> Vec<BlockHash> {
        let (share, holes) = match *self {
            Self::Depth(share) => (share, 0),
            Self::Holes(share, holes) => (share, holes),
        };
        let held = &prefix[..(prefix.len() as f64 * share) as usize];
        let kept = |number: u64| hash(number ^ seed << 32).get() >> 40 & 1023 >= u64::from(holes);
        (0..).zip(held).filter(|&(number, _)| kept(number)).map(|(_, &hash)| hash).collect()
    }
}

fn holding() -> impl Strategy<Value = Holding> {
    prop_oneof![
        Just(Holding::Depth(0.0)),
        Just(Holding::Depth(1.0)),
        (0.0..1.0).prop_map(Holding::Depth),
        ((0.0..1.0), prop_oneof![1..20u32, 20..900u32]).prop_map(|(s, h)| Holding::Holes(s, h)),
    ]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0..=20usize,
        8 => 20..200usize,
        2 => 200..2_000usize,
        1 => 2_000..=10_000usize,
    ]
}

fn check_all(lanes: &[Holding], len: usize) {
    let prefix = prefix(len);
    let format = format_for(len);
    let words: Vec<_> =
        (0..).zip(lanes).map(|(seed, holding)| words(format, holding.of(&prefix, seed))).collect();
    for backend in backends() {
        Known::new(format, words.clone(), backend).check(&prefix);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn all_searches_keep_their_promises(
        lanes in prop_oneof![
            3 => prop::collection::vec(holding(), 1..=17),
            1 => prop::collection::vec(holding(), 18..=64),
        ],
        len in length(),
    ) {
        check_all(&lanes, len);
    }

    /// Words that no producer would write: any bits, in tables so small that most looks hit.
    #[test]
    fn arbitrary_words_are_searched_as_they_are(
        lanes in 1..=20usize,
        buckets in 2..40u64,
        few in any::<bool>(),
        len in 0..300usize,
        seed in any::<u64>(),
    ) {
        let format = Format::any_count(buckets, 9).unwrap();
        let prefix = prefix(len);
        let slot = |number: u64| -> u64 {
            let at = hash(number ^ seed).get() >> 20;
            let wanted = format.address(hash(at % 300)).fingerprint.get();
            if few && at.is_multiple_of(3) { 0 } else { u64::from(wanted) }
        };
        let word = |number: u64| (0..4).fold(0, |word, i| word << 16 | slot(number * 4 + i));
        let lane = |lane: u64| (0..buckets).map(|bucket| word(lane << 20 | bucket)).collect();
        let words: Vec<Vec<u64>> = (0..lanes as u64).map(lane).collect();
        for backend in backends() {
            Known::new(format, words.clone(), backend).check(&prefix);
        }
    }

    /// Their widths share one code.
    #[test]
    fn power_of_two_formats_are_searched_too(
        lanes in prop_oneof![
            3 => prop::collection::vec(holding(), 1..=17),
            1 => prop::collection::vec(holding(), 18..=64),
        ],
        len in 0..600usize,
    ) {
        let format = Format::power_of_two(256, 5).unwrap();
        let prefix = prefix(len);
        let words: Vec<_> = (0..)
            .zip(&lanes)
            .map(|(seed, holding)| words(format, holding.of(&prefix, seed)))
            .collect();
        for backend in backends() {
            Known::new(format, words.clone(), backend).check(&prefix);
        }
    }

    #[test]
    fn a_batch_keeps_the_promises_of_its_requests(
        lanes in prop::collection::vec(holding(), 1..=20),
        lens in prop::collection::vec(0..300usize, 0..20),
    ) {
        let whole = prefix(300);
        let format = format_for(300);
        let words = (0..).zip(&lanes).map(|(seed, holding)| words(format, holding.of(&whole, seed)));
        let words: Vec<_> = words.collect();
        let prefixes: Vec<_> = lens.iter().map(|&len| &whole[300 - len..]).collect();
        for backend in backends() {
            let known = Known::new(format, words.clone(), backend);
            let mut answers = Vec::new();
            known.query.find_prefix_batch(&prefixes, &mut answers);
            let single: Vec<_> =
                prefixes.iter().map(|prefix| known.query.find_prefix(prefix)).collect();
            prop_assert_eq!(&answers, &single);
            for window in [1, 4] {
                known.jump(window).find_prefix_batch(&prefixes, &mut answers);
                prop_assert_eq!(answers.len(), prefixes.len());
                for (answer, prefix) in answers.iter().zip(&prefixes) {
                    prop_assert_eq!((answer.asked(), answer.ready()), (prefix.len(), known.ready()));
                    for (lane, _, depth) in answer.iter() {
                        known.check_jump(lane.to_usize(), prefix, window, depth);
                    }
                }
            }
        }
    }

    /// As after a system prompt that all hold: alone, beside others, and from local hashes.
    #[test]
    fn lanes_that_share_their_depths_keep_the_promises(
        groups in prop::collection::vec((0.0..1.0f64, 0..6usize, 1..24usize), 1..7),
        len in prop_oneof![1..30usize, 30..300usize, 1_000..2_000usize],
    ) {
        let locals: Vec<_> = (0..len as u64).map(|i| LocalHash::new(hash(i).get())).collect();
        let whole: Vec<_> = sequence::roll_all(None, locals.iter().copied()).collect();
        // Some of a group hold a little more than the rest of it.
        let depth = |share: f64, more: usize| ((len as f64 * share) as usize + more).min(len);
        let group = |&(share, more, count): &(f64, usize, usize)| {
            (0..count).map(move |lane| depth(share, if lane % 3 == 0 { more } else { 0 }))
        };
        let format = format_for(len);
        let depths = groups.iter().flat_map(group).take(64);
        let words: Vec<_> =
            depths.map(|depth| words(format, whole[..depth].iter().copied())).collect();
        let starts = [0, len / 7, len / 3, len / 2, len - 1, len];
        let prefixes: Vec<_> = starts.iter().cycle().take(16).map(|&at| &whole[at..]).collect();
        for backend in backends() {
            let known = Known::new(format, words.clone(), backend);
            known.check(&whole);
            let mut answers = Vec::new();
            known.jump(1).find_prefix_batch(&prefixes, &mut answers);
            for (answer, prefix) in answers.iter().zip(&prefixes) {
                for (lane, _, depth) in answer.iter() {
                    known.check_jump(lane.to_usize(), prefix, 1, depth);
                }
            }
            for (lane, _, depth) in known.jump(1).find_prefix_local(&locals).iter() {
                let lane = lane.to_usize();
                let exact = known.depth(lane, &whole);
                prop_assert!(depth >= exact);
                prop_assert!(depth == exact || !known.is_without_holes(lane, &whole));
            }
        }
    }

    /// Windows that begin in an earlier run of rolled blocks, lanes that hold the last block, holes.
    #[test]
    fn a_jump_from_local_hashes_keeps_its_promises(
        lanes in prop::collection::vec(holding(), 1..=20),
        len in prop_oneof![0..30usize, 100..150usize, 240..270usize, 0..1_000usize],
        window in prop_oneof![1..12u32, 100..300u32, Just(u32::MAX)],
    ) {
        let locals: Vec<_> = (0..len as u64).map(|i| LocalHash::new(hash(i).get())).collect();
        let prefix: Vec<_> = sequence::roll_all(None, locals.iter().copied()).collect();
        let format = format_for(len);
        let words = (0..).zip(&lanes).map(|(seed, holding)| words(format, holding.of(&prefix, seed)));
        let words: Vec<_> = words.collect();
        for backend in backends() {
            let known = Known::new(format, words.clone(), backend);
            for (lane, _, depth) in known.jump(window).find_prefix_local(&locals).iter() {
                known.check_jump(lane.to_usize(), &prefix, window, depth);
            }
        }
    }

    #[test]
    fn local_hashes_are_rolled_to_the_same_answer(
        lanes in prop::collection::vec((0.0..1.2f64).prop_map(|share| share.min(1.0)), 1..=40),
        len in prop_oneof![0..30usize, 100..140usize, 240..270usize, 0..1_000usize],
    ) {
        let locals: Vec<_> = (0..len as u64).map(|i| LocalHash::new(hash(i).get())).collect();
        let prefix: Vec<_> = sequence::roll_all(None, locals.iter().copied()).collect();
        let format = format_for(len);
        let words = lanes.iter().map(|&share| words(format, Holding::Depth(share).of(&prefix, 0)));
        let words: Vec<_> = words.collect();
        for backend in backends() {
            let known = Known::new(format, words.clone(), backend);
            let walk = known.query.find_prefix(&prefix);
            prop_assert_eq!(known.query.find_prefix_local(&locals), walk);
            for window in [1, 4] {
                let jump = known.jump(window).find_prefix_local(&locals);
                for (lane, _, depth) in jump.iter() {
                    if known.is_without_holes(lane.to_usize(), &prefix) {
                        prop_assert_eq!(Some(depth), walk.depth(lane));
                    }
                    prop_assert!(Some(depth) >= walk.depth(lane));
                }
            }
        }
    }
}

#[test]
fn every_length_up_to_the_edges_of_the_search() {
    let lanes: Vec<_> = [0.0, 0.3, 0.77, 1.0].map(Holding::Depth).to_vec();
    for len in (0..=140).chain([255, 256, 257, 1023, 1024, 1025, 10_000]) {
        check_all(&lanes, len);
    }
}

#[test]
fn every_width_and_every_depth() {
    let len = 70;
    for lanes in [1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64] {
        let depth = |lane: usize| Holding::Depth(lane as f64 / (lanes - 1).max(1) as f64);
        check_all(&(0..lanes).map(depth).collect::<Vec<_>>(), len);
    }
}

fn lane(number: u8) -> Lane {
    Lane::new(number).expect("below 64")
}

/// Lanes A to D of the report, and E, which is not ready.
fn f39_lanes(blocks: &[BlockHash]) -> Known {
    let format = Format::any_count(100_000, 8).unwrap();
    let a = blocks.iter().enumerate().filter(|&(i, _)| i != 2).map(|(_, &hash)| hash);
    let lanes = vec![
        words(format, a),
        words(format, blocks[..40].to_vec()),
        words(format, blocks[1..].to_vec()),
        words(format, []),
        words(format, blocks.to_vec()),
    ];
    let mut known = Known::new(format, lanes, Backend::best());
    known.writers[4].retire();
    known
}

fn depths(matches: &Matches) -> Vec<Option<u32>> {
    (0..5).map(|number| matches.depth(lane(number))).collect()
}

#[test]
fn f39_a_hole_ends_a_walk_and_a_lane_that_is_not_ready_is_absent() {
    let blocks = prefix(64);
    let known = f39_lanes(&blocks);
    let exact = [Some(2), Some(40), Some(0), Some(0), None];
    let walk = known.query.find_prefix_walk(&blocks);
    assert_eq!(depths(&walk), exact);
    assert_eq!(walk.ready(), LaneMask::first(4));
    assert_eq!(walk.best(), LaneMask::single(lane(1)));
    // A window that reaches the hole finds it; a shorter one may not.
    assert_eq!(depths(&known.jump(64).find_prefix(&blocks)), exact);
    assert_eq!(depths(&known.jump(1).find_prefix(&blocks))[1..], exact[1..]);
}

#[test]
fn f39_lengths_zero_and_one_and_repeats() {
    let blocks = prefix(64);
    let known = f39_lanes(&blocks);
    for handle in [known.query.clone(), known.jump(1), known.jump(3)] {
        let ready = |depth| vec![Some(depth), Some(depth), Some(0), Some(0), None];
        let empty = handle.find_prefix(&[]);
        assert_eq!(depths(&empty), [Some(0), Some(0), Some(0), Some(0), None]);
        assert_eq!(empty.best_depth(), Some(0));
        assert_eq!(depths(&handle.find_prefix(&blocks[..1])), ready(1));
        assert_eq!(depths(&handle.find_prefix(&[blocks[0]; 3])), ready(3));
    }
}

#[test]
fn f39_ten_thousand_mixes_with_holes_equal_the_walk_or_keep_the_window() {
    let blocks = prefix(64);
    let format = Format::any_count(2_000, 8).unwrap();
    for mix in 0..625u64 {
        let lanes = (0..16).map(|lane| {
            let pattern = hash(mix << 8 | lane).get() | hash(mix << 8 | lane | 1 << 60).get();
            let held = blocks.iter().enumerate().filter(|&(i, _)| pattern >> i & 1 != 0);
            words(format, held.map(|(_, &hash)| hash))
        });
        Known::new(format, lanes.collect(), Backend::best()).check(&blocks);
    }
}

#[test]
fn f28_a_block_whose_buckets_are_one_is_found_and_lost_like_any_other() {
    let format = Format::any_count(37, 9).unwrap();
    let twin = (0..100_000)
        .map(BlockHash::new)
        .find(|&hash| format.address(hash).first == format.address(hash).second)
        .expect("about one in 37");
    let mut known = Known::new(format, vec![words(format, [twin]); 3], Backend::best());
    for handle in [known.query.clone(), known.jump(2)] {
        assert_eq!(handle.contains(twin), LaneMask::first(3));
        // Position by position, not slot by slot: two looks at one bucket are one block.
        assert_eq!(handle.find_prefix(&[twin]).best_depth(), Some(1));
        assert_eq!(handle.find_prefix(&[twin, hash(5)]).best_depth(), Some(1));
    }
    let bucket = format.address(twin).first;
    known.writers[1].store(bucket, ckf_core::BucketImage::EMPTY);
    assert_eq!(known.query.contains(twin).bits(), 0b101);
    assert_eq!(known.query.find_prefix(&[twin]).depth(lane(1)), Some(0));
}
