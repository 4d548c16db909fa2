//! Messages and frames that several tests share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use ckf_core::{BucketImage, Format, TableDigest};
use ckf_protocol::{
    ConsumerId, DcId, DecodeError, DeltaWriter, Epoch, Fault, Frame, Heartbeat, IdentityHalf,
    IdentitySource, Incarnation, IndexerDomainId, Kind, Lane, LayoutGeneration, LeaseId,
    LeaseTerms, Limits, PoolId, ProducerExpectation, ProducerIdentity, Reject, RejectReason,
    Retire, RetireReason, Sequence, SnapshotBegin, SnapshotEnd, Subscribe, Unsubscribe,
    VersionRange, decode, encode_chunk,
};

/// The lease of all sample frames.
pub fn lease() -> LeaseId {
    LeaseId::new(0x1122_3344_5566_7788).unwrap()
}

pub fn pool() -> PoolId {
    PoolId {
        domain: IndexerDomainId {
            cache_semantics: IdentityHalf {
                digest: *b"cache semantics!",
                source: IdentitySource::Explicit,
            },
            routing_scope: IdentityHalf {
                digest: *b"routing scope...",
                source: IdentitySource::DefaultDerived,
            },
        },
        dc: DcId::new(0xD0D1_D2D3_D4D5_D6D7),
    }
}

pub fn format() -> Format {
    Format::any_count(2_777_778, 42).unwrap()
}

pub fn other_format() -> Format {
    Format::power_of_two(1 << 20, Format::DYNAMO_SEED).unwrap()
}

pub fn subscribe() -> Subscribe {
    Subscribe {
        consumer: ConsumerId::new(0xC0C1_C2C3_C4C5_C6C7),
        lane: Lane::new(3).unwrap(),
        epoch: Epoch::new(5),
        expected: ProducerExpectation { pool: pool(), format: format() },
        versions: VersionRange::SUPPORTED,
    }
}

pub fn snapshot_begin() -> SnapshotBegin {
    SnapshotBegin {
        terms: LeaseTerms {
            lease: lease(),
            consumer: ConsumerId::new(0xC0C1_C2C3_C4C5_C6C7),
            lane: Lane::new(63).unwrap(),
            epoch: Epoch::new(u64::MAX),
        },
        identity: ProducerIdentity {
            pool: pool(),
            incarnation: Incarnation::new(0xA0A1_A2A3_A4A5_A6A7),
            layout: LayoutGeneration::new(2).unwrap(),
            format: other_format(),
        },
        sequence: Sequence::new(1000),
        chunk_buckets: 16_384,
    }
}

/// Words with every number of slots taken, and each slot the only one once.
pub const WORDS: [u64; 9] = [
    0,
    0x0000_0000_0000_0001,
    0x0000_0000_ABCD_0000,
    0x0000_8000_0000_0000,
    0xFFFF_0000_0000_0000,
    0x0000_0000_0002_0001,
    0x0004_0000_0000_0001,
    0x0004_0003_0000_0001,
    0x0004_0003_0002_0001,
];

pub type Change = (u32, BucketImage, BucketImage);

/// A batch with gaps of every length and with slots filled, changed and emptied.
pub fn changes() -> Vec<Change> {
    [
        (0, 0, 0x0001),
        (1, 0x1111, 0x2222),
        (256, 0x4444_3333_2222_1111, 0),
        (70_000, 0x4444_3333_2222_1111, 0x4444_0000_2222_1111),
        (20_000_000, 0, 0x0004_0003_0002_0001),
        (Format::MAX_BUCKETS - 1, 0x0000_FFFF_0000_0000, 0xFFFF_FFFF_0000_0000),
    ]
    .map(|(bucket, before, after)| (bucket, BucketImage::new(before), BucketImage::new(after)))
    .to_vec()
}

/// The frames of a batch.
pub fn delta(sequence: u64, changes: &[Change], limits: &Limits) -> Vec<Frame> {
    let mut writer = DeltaWriter::new(Sequence::new(sequence), TableDigest::EMPTY, limits);
    for &(bucket, before, after) in changes {
        writer.push(bucket, before, after).unwrap();
    }
    writer.finish().unwrap().parts.iter().map(|part| part.frame(lease())).collect()
}

/// Every golden file: its name without `.bin`, and the frame that it must hold.
pub fn golden() -> Vec<(String, Frame)> {
    let limits = Limits::default();
    let parts = Limits::new(256, 4, 26).unwrap();
    let digest = TableDigest::new(0xE0E1_E2E3_E4E5_E6E7);
    let sequence = Sequence::new(1001);
    let heartbeat = |drain| Heartbeat { sequence, digest, drain }.to_body().frame(lease());
    let retire = |reason| Retire { reason }.to_body().frame(lease());
    let reject = |reason| Reject::of(&subscribe(), reason).to_frame();
    let theirs = VersionRange::new(2, 3).unwrap();
    let mut frames = vec![
        ("subscribe", subscribe().to_frame()),
        ("unsubscribe", Unsubscribe { lease: lease() }.to_frame()),
        ("reject_unknown_pool", reject(RejectReason::UnknownPool)),
        ("reject_format_mismatch", reject(RejectReason::FormatMismatch { theirs: other_format() })),
        ("reject_too_many_subscribers", reject(RejectReason::TooManySubscribers)),
        ("reject_stale_epoch", reject(RejectReason::StaleEpoch)),
        ("reject_fenced", reject(RejectReason::Fenced)),
        ("reject_version_unsupported", reject(RejectReason::VersionUnsupported { theirs })),
        ("snapshot_begin", snapshot_begin().to_frame()),
        ("snapshot_chunk", encode_chunk(16_384, WORDS, &limits).unwrap().frame(lease())),
        ("snapshot_end", SnapshotEnd { sequence, digest }.to_body().frame(lease())),
        ("delta", delta(1002, &changes(), &limits).remove(0)),
        ("heartbeat", heartbeat(false)),
        ("heartbeat_drain", heartbeat(true)),
        ("retire_lagged", retire(RetireReason::Lagged)),
        ("retire_unsubscribed", retire(RetireReason::Unsubscribed)),
    ];
    let [first, second] = delta(1003, &changes(), &parts).try_into().unwrap();
    frames.extend([("delta_part_0", first), ("delta_part_1", second)]);
    frames.into_iter().map(|(name, frame)| (name.to_owned(), frame)).collect()
}

/// A frame with any body, checksums right.
pub fn raw(kind: Kind, lease: Option<LeaseId>, body: &[u8]) -> Vec<u8> {
    raw_frame(1, kind.code(), lease.map_or(0, LeaseId::get), body)
}

/// A frame with anything in it, checksums right.
pub fn raw_frame(version: u8, kind: u8, lease: u64, body: &[u8]) -> Vec<u8> {
    let mut frame = b"CK".to_vec();
    frame.extend([version, kind]);
    frame.extend((body.len() as u32).to_le_bytes());
    frame.extend(lease.to_le_bytes());
    frame.extend(crc(body).to_le_bytes());
    frame.extend(crc(&frame).to_le_bytes());
    frame.extend(body);
    frame
}

/// Makes the checksums and the length of a damaged frame right again.
pub fn repaired(frame: &[u8]) -> Vec<u8> {
    let lease = u64::from_le_bytes(frame[8..16].try_into().unwrap());
    raw_frame(frame[2], frame[3], lease, &frame[24..])
}

fn crc(bytes: &[u8]) -> u32 {
    crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(bytes)
}

/// Why a frame is refused: field, offset, fault.
pub fn refusal(frame: &[u8], limits: &Limits) -> (&'static str, u32, Fault) {
    let DecodeError { field, offset, fault, .. } = decode(frame, limits).unwrap_err();
    (field, offset, fault)
}
