//! Frames by hand: a producer's stream played from a list of words, and frames whose checksums are
//! right although their content is not.

use ckf_core::{BucketImage, TableDigest};
use ckf_protocol::{
    DeltaWriter, Heartbeat, LeaseTerms, Limits, ProducerIdentity, Retire, RetireReason, Sequence,
    SnapshotBegin, SnapshotEnd, encode_chunk,
};

/// CRC-32C (Castagnoli), bit by bit: short, and independent of the one under test.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 }
        })
    })
}

/// Makes the length and both checksums of a frame fit its bytes again. Leaves bytes alone that are
/// too short for a header.
pub fn reseal(frame: &mut [u8]) {
    if frame.len() < 24 {
        return;
    }
    let (header, body) = frame.split_at_mut(24);
    header[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
    header[16..20].copy_from_slice(&crc32c(body).to_le_bytes());
    let crc = crc32c(&header[..20]);
    header[20..24].copy_from_slice(&crc.to_le_bytes());
}

/// A producer's stream on one lease, written by hand.
#[derive(Clone, Debug)]
pub struct Stream {
    /// What the lease binds.
    pub terms: LeaseTerms,
    /// Who claims to speak.
    pub identity: ProducerIdentity,
    /// The last batch.
    pub sequence: Sequence,
    /// Words as of that batch.
    pub words: Vec<u64>,
    limits: Limits,
    chunk_buckets: u32,
}

impl Stream {
    /// A stream that stands at `sequence` with these words.
    pub fn new(
        terms: LeaseTerms,
        identity: ProducerIdentity,
        sequence: u64,
        words: Vec<u64>,
        chunk_buckets: u32,
    ) -> Self {
        let limits = Limits::default();
        Self { terms, identity, sequence: Sequence::new(sequence), words, limits, chunk_buckets }
    }

    /// Digest of the words.
    pub fn digest(&self) -> TableDigest {
        TableDigest::of_words(&self.words)
    }

    /// Opens the snapshot.
    pub fn begin(&self) -> Vec<u8> {
        let Self { terms, identity, sequence, chunk_buckets, .. } = *self;
        SnapshotBegin { terms, identity, sequence, chunk_buckets }.to_frame().to_bytes()
    }

    /// All chunks of the words.
    pub fn chunks(&self) -> Vec<Vec<u8>> {
        let size = self.chunk_buckets as usize;
        let chunks = (0u32..).zip(self.words.chunks(size)).map(|(i, words)| {
            let first = i * self.chunk_buckets;
            let body = encode_chunk(first, words.iter().copied(), &self.limits);
            body.expect("within the limits").frame(self.terms.lease).to_bytes()
        });
        chunks.collect()
    }

    /// Closes the snapshot.
    pub fn end(&self) -> Vec<u8> {
        let (sequence, digest) = (self.sequence, self.digest());
        SnapshotEnd { sequence, digest }.to_body().frame(self.terms.lease).to_bytes()
    }

    /// The whole snapshot.
    pub fn snapshot(&self) -> Vec<Vec<u8>> {
        let mut frames = vec![self.begin()];
        frames.extend(self.chunks());
        frames.push(self.end());
        frames
    }

    /// The next batch, which sets these words, buckets ascending.
    pub fn delta(&mut self, changes: &[(u32, u64)]) -> Vec<u8> {
        self.sequence = self.sequence.checked_next().expect("short streams");
        let mut writer = DeltaWriter::new(self.sequence, self.digest(), &self.limits);
        for &(bucket, word) in changes {
            let before = BucketImage::new(self.words[bucket as usize]);
            writer.push(bucket, before, BucketImage::new(word)).expect("ascending, in range");
            self.words[bucket as usize] = word;
        }
        let batch = writer.finish().expect("not batch 0");
        batch.parts[0].frame(self.terms.lease).to_bytes()
    }

    /// A heartbeat or drain marker.
    pub fn heartbeat(&self, drain: bool) -> Vec<u8> {
        let (sequence, digest) = (self.sequence, self.digest());
        Heartbeat { sequence, digest, drain }.to_body().frame(self.terms.lease).to_bytes()
    }

    /// The end of the lease.
    pub fn retire(&self, reason: RetireReason) -> Vec<u8> {
        Retire { reason }.to_body().frame(self.terms.lease).to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;
    use ckf_protocol::{ConsumerId, Epoch, Incarnation, Lane, LayoutGeneration, LeaseId, decode};

    #[test]
    fn crc32c_has_its_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn a_resealed_frame_passes_the_checksums() {
        let format = scenario::format(8);
        let terms = LeaseTerms {
            lease: LeaseId::new(5).unwrap(),
            consumer: ConsumerId::new(1),
            lane: Lane::new(0).unwrap(),
            epoch: Epoch::new(1),
        };
        let identity = ProducerIdentity {
            pool: scenario::pool_id(1),
            incarnation: Incarnation::new(1),
            layout: LayoutGeneration::FIRST,
            format,
        };
        let stream = Stream::new(terms, identity, 3, vec![0; 8], 8);
        let good = stream.heartbeat(false);
        let mut frame = good.clone();
        frame[24] ^= 1;
        let limits = Limits::default();
        assert!(decode(&frame, &limits).is_err());
        reseal(&mut frame);
        assert!(decode(&frame, &limits).is_ok());
        frame[24] ^= 1;
        reseal(&mut frame);
        assert_eq!(frame, good);
    }
}
