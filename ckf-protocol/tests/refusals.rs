//! What is refused, one by one: the field, its place and the fault that the error names.

mod common;

use ckf_protocol::{
    EncodeError, Fault, Kind, LeaseId, Limits, Message, decode, encode_chunk, peek_header,
};
use common::{lease, raw, raw_frame, refusal};

/// Where bodies start in a frame.
const BODY: usize = 24;

fn limits() -> Limits {
    Limits::default()
}

/// A golden frame with some bytes at an offset replaced, checksums right.
fn with(name: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let frame = common::golden().into_iter().find(|(found, _)| found == name).unwrap().1;
    let mut frame = frame.to_bytes();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    common::repaired(&frame)
}

/// A delta of these heads and entries.
fn delta(count: u32, heads: &[u8], entries: &[u8]) -> Vec<u8> {
    let mut body = 7u64.to_le_bytes().to_vec();
    body.extend(0u64.to_le_bytes());
    body.extend(count.to_le_bytes());
    body.extend([0, 0, 1, 0]);
    body.extend(heads);
    body.extend(entries);
    raw(Kind::Delta, Some(lease()), &body)
}

/// A chunk of these masks and slots.
fn chunk(first: u32, count: u32, rest: &[u8]) -> Vec<u8> {
    let mut body = first.to_le_bytes().to_vec();
    body.extend(count.to_le_bytes());
    body.extend(rest);
    raw(Kind::SnapshotChunk, Some(lease()), &body)
}

#[test]
fn headers() {
    let good = raw(Kind::Unsubscribe, Some(lease()), &[]);
    assert!(decode(&good, &limits()).is_ok());
    let refused = |frame: &[u8]| refusal(frame, &limits());

    assert_eq!(refused(&[]), ("frame", 0, Fault::Truncated { needed: 24, left: 0 }));
    assert_eq!(refused(&good[..23]), ("frame", 0, Fault::Truncated { needed: 24, left: 23 }));
    let mut bad = good.clone();
    bad[0] = b'X';
    assert_eq!(refused(&bad), ("header.magic", 0, Fault::Value { value: 0x4B58 }));
    let mut bad = good.clone();
    bad[20] ^= 1;
    assert!(matches!(refused(&bad), ("header.header_crc", 20, Fault::Checksum { .. })));
    let mut bad = raw(Kind::Retire, Some(lease()), &[1]);
    bad[24] = 2;
    assert!(matches!(refused(&bad), ("header.body_crc", 16, Fault::Checksum { .. })));
    let long = [&good[..], &[0, 0]].concat();
    assert_eq!(refused(&long), ("body", 24, Fault::Trailing { count: 2 }));
    let short = &raw(Kind::Retire, Some(lease()), &[1])[..24];
    assert_eq!(refused(short), ("body", 24, Fault::Truncated { needed: 1, left: 0 }));

    let version = |version| refused(&raw_frame(version, 2, 1, &[]));
    assert_eq!(version(0), ("header.version", 2, Fault::Version { version: 0 }));
    assert_eq!(version(2), ("header.version", 2, Fault::Version { version: 2 }));
    for kind in (0..=u8::MAX).filter(|&code| Kind::from_code(code).is_none()) {
        let frame = raw_frame(1, kind, 1, &[]);
        assert_eq!(refused(&frame), ("header.kind", 3, Fault::Kind { kind }));
    }
}

#[test]
fn leases_present_or_absent_against_the_kind() {
    for (name, frame) in common::golden() {
        let bytes = frame.to_bytes();
        let other = if frame.kind().has_lease() { 0 } else { 1 };
        let bad = raw_frame(1, frame.kind().code(), other, &bytes[24..]);
        assert_eq!(refusal(&bad, &limits()), ("header.lease", 8, Fault::Lease), "{name}");
    }
}

#[test]
fn bodies_of_another_length() {
    for (name, frame) in common::golden() {
        let bytes = frame.to_bytes();
        if matches!(frame.kind(), Kind::Delta | Kind::SnapshotChunk) {
            continue;
        }
        let mut long = bytes.clone();
        long.push(0);
        let (_, offset, fault) = refusal(&common::repaired(&long), &limits());
        assert_eq!((offset as usize, fault), (bytes.len(), Fault::Trailing { count: 1 }), "{name}");
        if bytes.len() > 24 {
            let (field, _, fault) =
                refusal(&common::repaired(&bytes[..bytes.len() - 1]), &limits());
            assert_eq!(field, "body");
            assert!(matches!(fault, Fault::Truncated { .. }), "{name}");
        }
    }
}

#[test]
fn frames_above_the_limit() {
    let small = Limits::new(256, 10, 20).unwrap();
    let frame = raw(Kind::Retire, Some(lease()), &[1; 233]);
    let refused = ("header.body_length", 4, Fault::Limit { value: 233, limit: 232 });
    assert_eq!(refusal(&frame, &small), refused);
    // Told from the header alone, before anything is stored.
    assert_eq!(peek_header(&frame[..24], &small).unwrap_err().field, "header.body_length");
    let longest = raw_frame(1, 20, 1, &[]);
    let mut longest = longest[..24].to_vec();
    longest[4..8].fill(0xFF);
    assert!(peek_header(&longest, &limits()).is_err());
}

#[test]
fn values_without_a_meaning() {
    let cases: &[(&str, &str, usize, &[u8], u64)] = &[
        ("subscribe", "subscribe.lane", 16, &[64], 64),
        ("subscribe", "subscribe.min_version", 17, &[0], 0),
        ("subscribe", "subscribe.max_version", 17, &[3, 2], 2),
        ("subscribe", "subscribe.reserved", 19, &[1], 1),
        ("subscribe", "pool.cache_semantics_source", 20 + 40, &[0], 0),
        ("subscribe", "pool.routing_scope_source", 20 + 41, &[3], 3),
        ("subscribe", "pool.reserved", 20 + 42, &[0, 9], 9),
        ("subscribe", "format.bucket_count", 64 + 8, &[1, 0, 0, 0], 1),
        ("subscribe", "format.bucket_count", 64 + 8, &[1, 0, 0, 0x40], (1 << 30) + 1),
        ("subscribe", "format.version", 64 + 12, &[2, 0], 2),
        ("subscribe", "format.fingerprint_bits", 64 + 14, &[12], 12),
        ("subscribe", "format.slots", 64 + 15, &[8], 8),
        ("subscribe", "format.indexing", 64 + 16, &[0], 0),
        ("subscribe", "format.indexing", 64 + 16, &[3], 3),
        ("subscribe", "format.bucket_count", 64 + 16, &[2], 2_777_778),
        ("subscribe", "format.reserved", 64 + 17, &[0, 0, 1], 1),
        ("reject_fenced", "reject.lane", 16, &[255], 255),
        ("reject_fenced", "reject.reason", 17, &[0], 0),
        ("reject_fenced", "reject.reason", 17, &[7], 7),
        ("reject_fenced", "reject.min_version", 18, &[1], 1),
        ("reject_fenced", "reject.max_version", 19, &[1], 1),
        ("reject_version_unsupported", "reject.min_version", 18, &[0], 0),
        ("reject_version_unsupported", "reject.max_version", 19, &[1], 1),
        ("reject_format_mismatch", "format.indexing", 64 + 16, &[7], 7),
        ("snapshot_begin", "snapshot_begin.lane", 16, &[64], 64),
        ("snapshot_begin", "snapshot_begin.reserved", 17, &[0, 0, 4], 4),
        ("snapshot_begin", "snapshot_begin.layout", 92, &[0], 0),
        ("snapshot_begin", "snapshot_begin.chunk_buckets", 108, &[0, 0], 0),
        ("heartbeat", "heartbeat.flags", 16, &[2], 2),
        ("heartbeat_drain", "heartbeat.flags", 16, &[0x81], 0x81),
        ("retire_lagged", "retire.reason", 0, &[0], 0),
        ("retire_lagged", "retire.reason", 0, &[8], 8),
        ("delta", "delta.sequence", 0, &[0; 8], 0),
        ("delta", "delta.flags", 22, &[2, 0], 2),
        ("delta", "delta.flags", 22, &[1, 0x80], 0x8001),
        ("delta", "delta.count", 16, &[0; 4], 0),
        ("snapshot_chunk", "snapshot_chunk.count", 4, &[0; 4], 0),
    ];
    for &(name, field, at, bytes, value) in cases {
        let (found, offset, fault) = refusal(&with(name, BODY + at, bytes), &limits());
        assert_eq!((found, fault), (field, Fault::Value { value }), "{name} {at}");
        // The error's place is that of the field, which starts at or before the change.
        assert!((offset as usize) <= BODY + at + bytes.len(), "{name} {at}");
    }
}

#[test]
fn reasons_and_lengths_must_agree() {
    // A format where the reason has none, and none where it has one.
    let (field, ..) = refusal(&with("reject_format_mismatch", BODY + 17, &[1]), &limits());
    assert_eq!(field, "body");
    let (field, ..) = refusal(&with("reject_unknown_pool", BODY + 17, &[2]), &limits());
    assert_eq!(field, "body");
}

#[test]
fn f33_deltas_out_of_order_or_out_of_range() {
    let table = limits().with_bucket_count(1024);
    let values = [1, 0];
    let entries = |gaps: &[&[u8]]| -> Vec<u8> {
        gaps.iter().flat_map(|gap| gap.iter().chain(&values).copied()).collect()
    };
    let head = |gap: &[u8]| (gap.len() as u8) << 4 | 1;
    let frame = |gaps: &[&[u8]]| {
        let heads: Vec<u8> = gaps.iter().map(|gap| head(gap)).collect();
        delta(gaps.len() as u32, &heads, &entries(gaps))
    };
    assert!(decode(&frame(&[&[3], &[252, 3]]), &table).is_ok(), "buckets 3 and 1023");

    // (3, X), (1024, Y): outside the table.
    let outside = frame(&[&[3], &[253, 3]]);
    let fault = Fault::Bucket { bucket: 1024, count: 1024 };
    assert_eq!(refusal(&outside, &table), ("delta.gap", 24 + 24 + 2 + 3, fault));
    assert!(decode(&outside, &limits()).is_ok(), "inside a larger table");
    // (3, X), (3, Z): twice.
    let twice = frame(&[&[3], &[]]);
    let fault = Fault::Order { bucket: 3 };
    assert_eq!(refusal(&twice, &table), ("delta.gap", 24 + 24 + 2 + 3, fault));
    // Going back would take a sum that wraps: it is outside the table instead.
    let back = frame(&[&[3], &[0xFE, 0xFF, 0xFF, 0xFF]]);
    let fault = Fault::Bucket { bucket: 3 + 0xFFFF_FFFE, count: 1 << 30 };
    assert_eq!(refusal(&back, &limits()).2, fault);
    // Bucket 0 is written without a gap, but only as the first.
    assert!(decode(&frame(&[&[], &[1]]), &table).is_ok());
    assert_eq!(refusal(&frame(&[&[], &[]]), &table).2, Fault::Order { bucket: 0 });
    // A gap spelled with a leading zero.
    for gap in [&[0][..], &[3, 0], &[3, 1, 0], &[0, 0, 0, 0]] {
        assert_eq!(refusal(&frame(&[gap]), &table), ("delta.gap", 24 + 24 + 1, Fault::Overlong));
    }
}

#[test]
fn f33_deltas_of_wrong_shape() {
    // No slot named, a gap longer than any, reserved bits.
    for bad in [0x00, 0x10, 0x51, 0x61, 0x71, 0x81, 0xF1] {
        let frame = delta(1, &[bad], &[1, 1, 1, 1, 1, 1, 1, 1, 1]);
        let fault = Fault::Value { value: u64::from(bad) };
        assert_eq!(refusal(&frame, &limits()), ("delta.heads", 48, fault));
    }
    let truncated = |needed, left| Fault::Truncated { needed, left };
    let refused =
        |count, heads: &[u8], entries: &[u8]| refusal(&delta(count, heads, entries), &limits());
    assert_eq!(refused(3, &[0x11, 0x11], &[]), ("delta.heads", 48, truncated(3, 2)));
    assert_eq!(refused(1, &[0x1F], &[1; 8]), ("delta.entries", 49, truncated(9, 8)));
    let trailing = Fault::Trailing { count: 1 };
    assert_eq!(refused(1, &[0x1F], &[1; 10]), ("delta.entries", 49 + 9, trailing));
    // Counts that no frame can hold are refused before anything is made for them.
    let above = Fault::Limit { value: u64::from(u32::MAX), limit: 65_536 };
    assert_eq!(refused(u32::MAX, &[0x11], &[1; 3]), ("delta.count", 24 + 16, above));
    assert_eq!(refused(65_536, &[0x11], &[1; 3]), ("delta.heads", 48, truncated(65_536, 4)));
}

#[test]
fn chunks_of_wrong_shape() {
    let refused = |first, count, rest: &[u8]| refusal(&chunk(first, count, rest), &limits());
    assert!(decode(&chunk(0, 2, &[0x11, 1, 0, 2, 0]), &limits()).is_ok());

    let fault = Fault::Limit { value: 65_537, limit: 65_536 };
    assert_eq!(refused(0, 65_537, &[]), ("snapshot_chunk.count", 28, fault));
    let fault = Fault::Bucket { bucket: 1 << 30, count: 1 << 30 };
    assert_eq!(refused((1 << 30) - 1, 2, &[0]), ("snapshot_chunk.first", 24, fault));
    let fault = Fault::Bucket { bucket: u64::from(u32::MAX) + 1, count: 1 << 30 };
    assert_eq!(refused(u32::MAX, 2, &[0]), ("snapshot_chunk.first", 24, fault));
    let fault = Fault::Truncated { needed: 3, left: 2 };
    assert_eq!(refused(0, 5, &[0, 0]), ("snapshot_chunk.masks", 32, fault));
    let fault = Fault::Value { value: 8 };
    assert_eq!(refused(0, 3, &[0, 0x80, 1, 0]), ("snapshot_chunk.masks", 33, fault));
    let fault = Fault::Truncated { needed: 4, left: 3 };
    assert_eq!(refused(0, 2, &[0x11, 1, 0, 2]), ("snapshot_chunk.slots", 33, fault));
    let fault = Fault::Trailing { count: 1 };
    assert_eq!(refused(0, 2, &[0x11, 1, 0, 2, 0, 0]), ("snapshot_chunk.slots", 37, fault));
    let slots = [0x11, 1, 0, 0, 0];
    assert_eq!(refused(0, 2, &slots), ("snapshot_chunk.slots", 35, Fault::EmptySlot));
}

#[test]
fn f30_chunks_that_do_not_fit_the_table() {
    let table = limits().with_bucket_count(16);
    let sixteen = encode_chunk(0, [1; 16], &limits()).unwrap().frame(lease()).to_bytes();
    assert!(decode(&sixteen, &table).is_ok());
    let seventeen = encode_chunk(0, [1; 17], &limits()).unwrap().frame(lease()).to_bytes();
    let fault = Fault::Bucket { bucket: 16, count: 16 };
    assert_eq!(refusal(&seventeen, &table), ("snapshot_chunk.first", 24, fault));
    let refused = EncodeError::Bucket { bucket: 16, count: 16 };
    assert_eq!(encode_chunk(0, [1; 17], &table), Err(refused));
}

#[test]
fn f30_swapped_bytes_are_caught() {
    let frame = encode_chunk(0, [0x1234], &limits()).unwrap().frame(lease()).to_bytes();
    let mut swapped = frame.clone();
    let end = frame.len();
    swapped.swap(end - 1, end - 2);
    assert_ne!(swapped, frame);
    assert_eq!(refusal(&swapped, &limits()).0, "header.body_crc");
}

#[test]
fn f34_a_foreign_lease_shows_before_the_body() {
    let mut frame = raw(Kind::Delta, Some(lease()), &[0xFF; 40]);
    frame[30] ^= 1;
    let header = peek_header(&frame, &limits()).unwrap();
    assert_eq!(header.lease(), Some(lease()));
    assert_eq!(header.kind(), Ok(Kind::Delta));
    assert_eq!(header.frame_len(), frame.len());
    assert!(header.body(&frame).is_err());
}

#[test]
fn frames_of_a_later_version_can_be_told_and_skipped() {
    let later = raw_frame(2, 99, lease().get(), b"who knows");
    let stream = [&later[..], &raw(Kind::Unsubscribe, Some(lease()), &[])].concat();
    let header = peek_header(&stream, &limits()).unwrap();
    assert_eq!((header.version(), header.kind_code()), (2, 99));
    assert_eq!(header.lease(), Some(lease()));
    assert_eq!(header.kind().unwrap_err().fault, Fault::Version { version: 2 });
    assert!(header.body(&stream[..header.frame_len()]).is_ok());
    assert!(decode(&stream[header.frame_len()..], &limits()).is_ok());
}

#[test]
fn errors_tell_field_place_and_fault() {
    let error = decode(&raw(Kind::Retire, Some(lease()), &[9]), &limits()).unwrap_err();
    assert_eq!(error.to_string(), "retire.reason at byte 24: value 0x9 is not allowed");
}

/// An iterator that gives more, or fewer, than it says.
struct Liar(u64, usize);

impl Iterator for Liar {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.checked_sub(1)?;
        Some(self.0 + 1)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.1, Some(self.1))
    }
}

impl ExactSizeIterator for Liar {}

#[test]
fn a_chunk_holds_as_many_words_as_were_announced_whatever_comes() {
    let limits = Limits::default();
    for (gives, says, words) in
        [(9, 3, vec![9, 8, 7]), (2, 3, vec![2, 1, 0]), (5, 1, vec![5]), (0, 2, vec![0, 0])]
    {
        let body = encode_chunk(4, Liar(gives, says), &limits).unwrap();
        let bytes = body.frame(LeaseId::new(1).unwrap()).to_bytes();
        let Message::SnapshotChunk { chunk, .. } = decode(&bytes, &limits).unwrap() else {
            panic!("a chunk")
        };
        assert_eq!(chunk.words().collect::<Vec<_>>(), words);
    }
}
