//! What is encoded decodes to the same, for any values.

mod common;

use ckf_core::{BucketImage, Format, TableDigest};
use ckf_protocol::{
    ConsumerId, DcId, DeltaWriter, EncodeError, Epoch, Fault, Frame, Header, Heartbeat,
    IdentityHalf, IdentitySource, Incarnation, IndexerDomainId, Lane, LayoutGeneration, LeaseId,
    LeaseTerms, Limits, Message, PoolId, ProducerExpectation, ProducerIdentity, Reject,
    RejectReason, Retire, RetireReason, Sequence, SnapshotBegin, SnapshotEnd, Subscribe,
    Unsubscribe, VersionRange, decode, encode_chunk, peek_header,
};
use proptest::prelude::*;

/// Numbers with the ends of all ranges among them (report F03).
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(100), Just(1 << 63), Just(u64::MAX), any::<u64>()]
}

fn half() -> impl Strategy<Value = IdentityHalf> {
    (any::<[u8; 16]>(), any::<bool>()).prop_map(|(digest, explicit)| IdentityHalf {
        digest,
        source: if explicit { IdentitySource::Explicit } else { IdentitySource::DefaultDerived },
    })
}

fn pool() -> impl Strategy<Value = PoolId> {
    (half(), half(), number()).prop_map(|(cache_semantics, routing_scope, dc)| PoolId {
        domain: IndexerDomainId { cache_semantics, routing_scope },
        dc: DcId::new(dc),
    })
}

fn format() -> impl Strategy<Value = Format> {
    prop_oneof![
        (2u64..=1 << 30, number())
            .prop_map(|(count, seed)| Format::any_count(count, seed).unwrap()),
        (1u32..=30, number())
            .prop_map(|(bits, seed)| Format::power_of_two(1 << bits, seed).unwrap()),
    ]
}

fn versions() -> impl Strategy<Value = VersionRange> {
    (1..=u8::MAX, 1..=u8::MAX).prop_map(|(a, b)| VersionRange::new(a.min(b), a.max(b)).unwrap())
}

prop_compose! {
    fn subscribe()(consumer in number(), lane in 0u8..64, epoch in number(), pool in pool(), format in format(), versions in versions()) -> Subscribe {
        Subscribe {
            consumer: ConsumerId::new(consumer),
            lane: Lane::new(lane).unwrap(),
            epoch: Epoch::new(epoch),
            expected: ProducerExpectation { pool, format },
            versions,
        }
    }
}

fn reason() -> impl Strategy<Value = RejectReason> {
    prop_oneof![
        Just(RejectReason::UnknownPool),
        format().prop_map(|theirs| RejectReason::FormatMismatch { theirs }),
        Just(RejectReason::TooManySubscribers),
        Just(RejectReason::StaleEpoch),
        Just(RejectReason::Fenced),
        versions().prop_map(|theirs| RejectReason::VersionUnsupported { theirs }),
    ]
}

fn lease() -> impl Strategy<Value = LeaseId> {
    number().prop_filter_map("0 is no lease", LeaseId::new)
}

/// Slots that are often empty.
fn word() -> impl Strategy<Value = u64> {
    let slot = || prop_oneof![Just(0u16), Just(1), Just(u16::MAX), any::<u16>()];
    [slot(), slot(), slot(), slot()].prop_map(|slots| {
        slots.into_iter().rev().fold(0, |word, slot| word << 16 | u64::from(slot))
    })
}

/// Ascending buckets of a table, images before and after, some of them equal.
fn changes() -> impl Strategy<Value = Vec<common::Change>> {
    let gap = prop_oneof![1u32..4, 1u32..300, 1u32..70_000, 1u32..2_000_000];
    proptest::collection::vec((gap, word(), word(), 0u8..4), 0..200).prop_map(|changes| {
        let mut next = 0;
        let image = BucketImage::new;
        let mut all = Vec::new();
        for (gap, before, after, equal) in changes {
            all.push((next, image(before), image(if equal == 0 { before } else { after })));
            next += gap;
        }
        all
    })
}

fn says(frame: &Frame, message: Message<'_>) {
    let bytes = frame.to_bytes();
    assert_eq!(decode(&bytes, &Limits::default()), Ok(message));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn f03_every_number_survives_in_subscriptions(subscribe in subscribe(), reason in reason(), lease in lease()) {
        says(&subscribe.to_frame(), Message::Subscribe(subscribe));
        let reject = Reject::of(&subscribe, reason);
        says(&reject.to_frame(), Message::Reject(reject));
        let unsubscribe = Unsubscribe { lease };
        says(&unsubscribe.to_frame(), Message::Unsubscribe(unsubscribe));
    }

    #[test]
    fn f03_every_number_survives_in_streams(
        subscribe in subscribe(),
        lease in lease(),
        incarnation in number(),
        layout in 1..=u64::MAX,
        sequence in number(),
        digest in number(),
        chunk_buckets in 1..=u32::MAX,
        drain: bool,
        retired in prop::sample::select(RetireReason::ALL.to_vec()),
    ) {
        let Subscribe { consumer, lane, epoch, expected, .. } = subscribe;
        let (sequence, digest) = (Sequence::new(sequence), TableDigest::new(digest));
        let begin = SnapshotBegin {
            terms: LeaseTerms { lease, consumer, lane, epoch },
            identity: ProducerIdentity {
                pool: expected.pool,
                incarnation: Incarnation::new(incarnation),
                layout: LayoutGeneration::new(layout).unwrap(),
                format: expected.format,
            },
            sequence,
            chunk_buckets,
        };
        prop_assert_eq!(begin.identity.mismatch(&expected), None);
        says(&begin.to_frame(), Message::SnapshotBegin(begin));
        let end = SnapshotEnd { sequence, digest };
        says(&end.to_body().frame(lease), Message::SnapshotEnd { lease, end });
        let heartbeat = Heartbeat { sequence, digest, drain };
        says(&heartbeat.to_body().frame(lease), Message::Heartbeat { lease, heartbeat });
        let retire = Retire { reason: retired };
        says(&retire.to_body().frame(lease), Message::Retire { lease, retire });
    }

    #[test]
    fn f30_other_formats_never_look_equal(one in subscribe(), format in format()) {
        let mut other = one;
        other.expected.format = format;
        prop_assume!(one != other);
        prop_assert_ne!(one.to_frame().to_bytes(), other.to_frame().to_bytes());
    }

    #[test]
    fn chunks_hold_their_words(first in 0u32..1000, words in proptest::collection::vec(word(), 1..300), lease in lease()) {
        let limits = Limits::default().with_bucket_count(first + words.len() as u32);
        let body = encode_chunk(first, words.iter().copied(), &limits).unwrap();
        let bytes = body.frame(lease).to_bytes();
        prop_assert_eq!(bytes.len(), body.frame_len());
        let Ok(Message::SnapshotChunk { lease: found, chunk }) = decode(&bytes, &limits) else { panic!() };
        prop_assert_eq!((found, chunk.first(), chunk.len()), (lease, first, words.len()));
        prop_assert_eq!(chunk.words().len(), words.len());
        prop_assert!(chunk.words().eq(words.iter().copied()));
        prop_assert!(chunk.images().map(|(bucket, _)| bucket).eq(first..first + words.len() as u32));
    }

    #[test]
    fn batches_hold_their_changes_however_they_are_split(
        changes in changes(),
        max_frame in 256u32..3000,
        max_patches in 1u32..100,
        base in number(),
        sequence in 1..=u64::MAX,
    ) {
        let limits = Limits::new(max_frame, max_patches, 1).unwrap();
        let (sequence, base) = (Sequence::new(sequence), TableDigest::new(base));
        let mut writer = DeltaWriter::new(sequence, base, &limits);
        for &(bucket, before, after) in &changes {
            writer.push(bucket, before, after).unwrap();
        }
        let batch = writer.finish().unwrap();
        let mut expected = changes.iter().filter(|(_, before, after)| before != after);
        let mut digest = base;
        for (index, part) in batch.parts.iter().enumerate() {
            let bytes = part.frame(common::lease()).to_bytes();
            prop_assert!(bytes.len() <= max_frame as usize);
            let Ok(Message::Delta { delta, .. }) = decode(&bytes, &limits) else { panic!() };
            prop_assert!(delta.len() <= max_patches as usize);
            prop_assert_eq!(delta.len(), delta.patches().count());
            prop_assert_eq!(delta.patches().last().unwrap().bucket, delta.last_bucket());
            prop_assert_eq!(delta.sequence(), sequence);
            prop_assert_eq!(usize::from(delta.part()), index);
            prop_assert_eq!(delta.last(), index + 1 == batch.parts.len());
            for patch in delta.patches() {
                let &(bucket, before, after) = expected.next().unwrap();
                prop_assert_eq!(patch.bucket, bucket);
                prop_assert_eq!(patch.apply(before), after);
                let named = (0..4).filter(|slot| patch.mask >> slot & 1 == 1);
                let changed = (0..4).filter(|&slot| before.slot(slot) != after.slot(slot));
                prop_assert!(named.eq(changed), "only slots that differ");
                digest = digest.replaced(bucket, before, after);
            }
            prop_assert_eq!(delta.digest(), digest);
        }
        prop_assert_eq!(expected.next(), None);
        prop_assert_eq!(batch.digest, digest);
    }
}

#[test]
fn f33_a_writer_refuses_what_a_reader_would() {
    let limits = Limits::default().with_bucket_count(1024);
    let (empty, image) = (BucketImage::EMPTY, BucketImage::new(7));
    let mut writer = DeltaWriter::new(Sequence::new(11), TableDigest::EMPTY, &limits);
    writer.push(3, empty, image).unwrap();
    for bucket in [3, 2, 0] {
        assert_eq!(writer.push(bucket, empty, image), Err(EncodeError::Order { bucket }));
    }
    let outside = EncodeError::Bucket { bucket: 1024, count: 1024 };
    assert_eq!(writer.push(1024, empty, image), Err(outside));
    // What was refused left no trace.
    writer.push(4, image, image).unwrap();
    let batch = writer.finish().unwrap();
    let bytes = batch.parts[0].frame(common::lease()).to_bytes();
    let Ok(Message::Delta { delta, .. }) = decode(&bytes, &limits) else { panic!() };
    assert_eq!(delta.patches().map(|patch| patch.bucket).collect::<Vec<_>>(), [3]);
    assert_eq!(batch.digest, TableDigest::EMPTY.replaced(3, empty, image));
}

#[test]
fn f33_a_batch_has_a_number_and_a_chunk_has_buckets() {
    let limits = Limits::new(4096, 10, 100).unwrap();
    let writer = DeltaWriter::new(Sequence::ZERO, TableDigest::EMPTY, &limits);
    assert_eq!(writer.finish(), Err(EncodeError::Sequence));
    let empty = DeltaWriter::new(Sequence::new(1), TableDigest::EMPTY, &limits).finish().unwrap();
    assert!(empty.parts.is_empty());
    for len in [0, 101] {
        let refused = Err(EncodeError::ChunkLen { len, limit: 100 });
        assert_eq!(encode_chunk(0, vec![0; len], &limits), refused);
    }
}

#[test]
fn what_is_as_large_as_the_limits_allow_is_written_and_read() {
    let limits = Limits::new(256, 3, 20).unwrap();
    let chunk = encode_chunk(0, [7; 20], &limits).unwrap().frame(common::lease()).to_bytes();
    assert!(decode(&chunk, &limits).is_ok());
    let mut writer = DeltaWriter::new(Sequence::new(1), TableDigest::EMPTY, &limits);
    for bucket in 0..3 {
        writer.push(bucket, BucketImage::EMPTY, BucketImage::new(7)).unwrap();
    }
    let batch = writer.finish().unwrap();
    assert_eq!(batch.parts.len(), 1);
    assert!(decode(&batch.parts[0].frame(common::lease()).to_bytes(), &limits).is_ok());
    let longest = common::raw_frame(1, 20, 1, &[0; 232]);
    assert_eq!(longest.len(), 256);
    assert!(peek_header(&longest, &limits).is_ok());
}

#[test]
fn the_bucket_that_would_begin_a_part_without_a_number_is_refused() {
    let limits = Limits::new(256, 1, 1).unwrap();
    let mut writer = DeltaWriter::new(Sequence::new(1), TableDigest::EMPTY, &limits);
    let image = BucketImage::new(1);
    for bucket in 0..65_536 {
        writer.push(bucket, BucketImage::EMPTY, image).unwrap();
    }
    let refused = writer.push(65_536, BucketImage::EMPTY, image);
    assert_eq!(refused, Err(EncodeError::TooManyParts));
    // What was accepted is a batch.
    let full = writer.finish().unwrap();
    assert_eq!(full.parts.len(), 65_536);
}

#[test]
fn one_body_serves_all_subscribers() {
    let body = SnapshotEnd { sequence: Sequence::new(9), digest: TableDigest::EMPTY }.to_body();
    let leases: Vec<LeaseId> = (1..100).filter_map(LeaseId::new).collect();
    let frames: Vec<Frame> = leases.iter().map(|&lease| body.frame(lease)).collect();
    for (frame, &lease) in frames.iter().zip(&leases) {
        assert_eq!(frame.lease(), Some(lease));
        assert!(std::ptr::eq(frame.body(), frames[0].body()), "the same bytes, not a copy");
        let bytes = frame.to_bytes();
        assert_eq!(decode(&bytes, &Limits::default()).unwrap().lease(), Some(lease));
        assert_eq!(bytes, [frame.header(), frame.body()].concat());
    }
}

/// What was sent under one lease can be passed on under another, also where version or kind are
/// unknown; what has no lease gets none.
#[test]
fn a_frame_is_passed_on_under_another_lease() {
    let (limits, other) = (Limits::default(), LeaseId::new(99).unwrap());
    let unknown = common::raw_frame(7, 77, common::lease().get(), b"later");
    let golden = common::golden().into_iter().map(|(_, frame)| frame.to_bytes());
    let (mut moved, mut refused) = (0, 0);
    for frame in golden.chain([unknown]) {
        let header = peek_header(&frame, &limits).unwrap();
        match header.with_lease(other) {
            Ok(bytes) => {
                let body = &frame[Header::LEN..];
                let passed_on = [&bytes[..], body].concat();
                let expected =
                    common::raw_frame(header.version(), header.kind_code(), other.get(), body);
                assert_eq!(passed_on, expected);
                assert_eq!(decode(&passed_on, &limits).is_ok(), decode(&frame, &limits).is_ok());
                moved += 1;
            }
            Err(error) => {
                assert_eq!((error.field, error.offset), ("header.lease", 8));
                assert_eq!((error.fault, header.lease()), (Fault::Lease, None));
                refused += 1;
            }
        }
    }
    assert!(moved > 5 && refused > 2, "{moved} {refused}");
}
