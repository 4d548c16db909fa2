//! Damaged frames: cut, flipped, lengthened, rewritten with right checksums. Always an error or an
//! equal value, never a panic.

mod common;

use ckf_protocol::{Limits, decode};
use proptest::prelude::*;

fn frames() -> Vec<(String, Vec<u8>)> {
    common::golden().into_iter().map(|(name, frame)| (name, frame.to_bytes())).collect()
}

#[test]
fn every_truncation_is_an_error() {
    for (name, bytes) in frames() {
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], &Limits::default()).is_err(), "{name} cut to {len}");
        }
    }
}

#[test]
fn every_truncation_with_right_checksums_is_an_error() {
    for (name, bytes) in frames() {
        for len in 24..bytes.len() {
            let cut = common::repaired(&bytes[..len]);
            assert!(decode(&cut, &Limits::default()).is_err(), "{name} cut to {len}");
        }
    }
}

#[test]
fn every_single_bit_flip_is_an_error() {
    for (name, bytes) in frames() {
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged, &Limits::default()).is_err(), "{name} bit {bit}");
        }
    }
}

/// What still decodes once the checksums are right is spelled in the one way there is.
fn canonical(bytes: &[u8]) {
    if let Ok(message) = decode(bytes, &Limits::default()) {
        assert_eq!(message.to_frame().to_bytes(), bytes);
    }
}

#[test]
fn every_bit_flip_with_right_checksums_is_an_error_or_another_canonical_message() {
    for (_, bytes) in frames() {
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            canonical(&common::repaired(&damaged));
        }
    }
}

#[test]
fn every_byte_value_with_right_checksums_is_an_error_or_another_canonical_message() {
    for (_, bytes) in frames() {
        for at in 0..bytes.len() {
            for value in 0..=u8::MAX {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                canonical(&common::repaired(&damaged));
            }
        }
    }
}

#[test]
fn bytes_after_a_frame_are_an_error() {
    for (name, bytes) in frames() {
        for tail in [&[0][..], &[0xFF; 9], &bytes] {
            let long = [&bytes, tail].concat();
            assert!(decode(&long, &Limits::default()).is_err(), "{name}");
            assert!(decode(&common::repaired(&long), &Limits::default()).is_err(), "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&bytes, &Limits::default()).is_err());
    }

    #[test]
    fn any_body_is_an_error_or_canonical(
        version in 0u8..3,
        kind in prop_oneof![0u8..4, 15u8..24, any::<u8>()],
        lease in prop_oneof![Just(0), any::<u64>()],
        body in proptest::collection::vec(prop_oneof![Just(0u8), 0u8..80, any::<u8>()], 0..150),
    ) {
        canonical(&common::raw_frame(version, kind, lease, &body));
    }

    #[test]
    fn rewritten_bodies_are_an_error_or_canonical(
        which: prop::sample::Index,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        grow in 0usize..4,
    ) {
        let frames = frames();
        let mut bytes = which.get(&frames).1.clone();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.resize(bytes.len() + grow, 0x21);
        canonical(&common::repaired(&bytes));
    }
}
