//! Golden files: the bytes of each message, frozen.
//!
//! After a deliberate change of the format: `cargo test -p ckf-protocol --test golden -- --ignored`
//! writes them anew, `docs/wire/check.py --write` the listing in `docs/WIRE.md`.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use ckf_core::BucketImage;
use ckf_protocol::{
    Kind, Limits, Message, Reject, RejectReason, RetireReason, Unsubscribe, VersionRange, decode,
};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"))
}

fn file(name: &str) -> Vec<u8> {
    let path = folder().join(name).with_extension("bin");
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
#[ignore = "writes the golden files"]
fn write_golden_files() {
    fs::create_dir_all(folder()).unwrap();
    for (name, frame) in common::golden() {
        fs::write(folder().join(name).with_extension("bin"), frame.to_bytes()).unwrap();
    }
}

#[test]
fn encoding_gives_the_golden_files() {
    for (name, frame) in common::golden() {
        assert_eq!(frame.to_bytes(), file(&name), "{name}");
        assert_eq!(frame.len(), file(&name).len(), "{name}");
    }
}

#[test]
fn every_golden_file_is_known_and_every_kind_has_one() {
    let known: BTreeSet<_> = common::golden().into_iter().map(|(name, _)| name).collect();
    let found: BTreeSet<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "bin"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(found, known);
    let kinds: BTreeSet<_> = common::golden().iter().map(|(_, frame)| frame.kind()).collect();
    assert_eq!(kinds, Kind::ALL.into_iter().collect());
}

#[test]
fn decoding_then_encoding_gives_the_same_bytes() {
    for (name, frame) in common::golden() {
        let bytes = file(&name);
        let message = decode(&bytes, &Limits::default()).unwrap();
        assert_eq!(message.kind(), frame.kind(), "{name}");
        assert_eq!(message.lease(), frame.lease(), "{name}");
        assert_eq!(message.to_frame(), frame, "{name}");
    }
}

#[test]
fn golden_files_say_what_was_meant() {
    let limits = Limits::default();
    let read = |name: &str| file(name);
    assert_eq!(decode(&read("subscribe"), &limits), Ok(Message::Subscribe(common::subscribe())));
    assert_eq!(
        decode(&read("unsubscribe"), &limits),
        Ok(Message::Unsubscribe(Unsubscribe { lease: common::lease() }))
    );
    let theirs = VersionRange::new(2, 3).unwrap();
    for (name, reason) in [
        ("unknown_pool", RejectReason::UnknownPool),
        ("format_mismatch", RejectReason::FormatMismatch { theirs: common::other_format() }),
        ("too_many_subscribers", RejectReason::TooManySubscribers),
        ("stale_epoch", RejectReason::StaleEpoch),
        ("fenced", RejectReason::Fenced),
        ("version_unsupported", RejectReason::VersionUnsupported { theirs }),
    ] {
        let bytes = read(&format!("reject_{name}"));
        let reject = Reject::of(&common::subscribe(), reason);
        assert_eq!(decode(&bytes, &limits), Ok(Message::Reject(reject)), "{name}");
    }
    assert_eq!(
        decode(&read("snapshot_begin"), &limits),
        Ok(Message::SnapshotBegin(common::snapshot_begin()))
    );
    let bytes = read("snapshot_chunk");
    let Ok(Message::SnapshotChunk { chunk, .. }) = decode(&bytes, &limits) else { panic!() };
    assert_eq!((chunk.first(), chunk.len()), (16_384, common::WORDS.len()));
    assert!(chunk.words().eq(common::WORDS));
    let bytes = read("snapshot_end");
    let Ok(Message::SnapshotEnd { end, .. }) = decode(&bytes, &limits) else { panic!() };
    assert_eq!((end.sequence.get(), end.digest.get()), (1001, 0xE0E1_E2E3_E4E5_E6E7));
    for (name, drains) in [("heartbeat", false), ("heartbeat_drain", true)] {
        let bytes = read(name);
        let Ok(Message::Heartbeat { heartbeat, .. }) = decode(&bytes, &limits) else { panic!() };
        assert_eq!(heartbeat.sequence.get(), 1001);
        assert_eq!(heartbeat.digest.get(), 0xE0E1_E2E3_E4E5_E6E7);
        assert_eq!(heartbeat.drain, drains);
    }
    for (name, reason) in [
        ("retire_lagged", RetireReason::Lagged),
        ("retire_unsubscribed", RetireReason::Unsubscribed),
    ] {
        let bytes = read(name);
        let Ok(Message::Retire { retire, .. }) = decode(&bytes, &limits) else { panic!() };
        assert_eq!(retire.reason, reason);
    }
}

#[test]
fn golden_deltas_make_the_changes_that_were_meant() {
    let limits = Limits::default();
    let (whole, first, second) = (file("delta"), file("delta_part_0"), file("delta_part_1"));
    for (frames, sequence) in [(vec![whole], 1002), (vec![first, second], 1003)] {
        let mut changes = common::changes().into_iter();
        let mut digest = ckf_core::TableDigest::EMPTY;
        for (index, bytes) in frames.iter().enumerate() {
            let Ok(Message::Delta { delta, .. }) = decode(bytes, &limits) else { panic!() };
            assert_eq!(delta.sequence().get(), sequence);
            assert_eq!(usize::from(delta.part()), index);
            assert_eq!(delta.last(), index + 1 == frames.len());
            for patch in delta.patches() {
                let (bucket, before, after) = changes.next().unwrap();
                assert_eq!(patch.bucket, bucket);
                assert_eq!(patch.apply(before), after);
                assert_eq!(patch.apply(after), after, "absolute, hence idempotent");
                digest = digest.replaced(bucket, before, after);
            }
            assert_eq!(delta.digest(), digest, "after each part");
        }
        assert_eq!(changes.next(), None::<(u32, BucketImage, BucketImage)>);
    }
}
