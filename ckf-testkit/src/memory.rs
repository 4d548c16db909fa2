//! A lane's words in a plain vector: the shipped session without the shared table.

use std::hash::{Hash, Hasher};

use ckf_consumer::LaneStore;
use ckf_core::{BucketImage, BucketIndex, Format};
use ckf_protocol::{DcId, Instant, Sequence};

/// What a query would see of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLane {
    format: Format,
    words: Vec<u64>,
    ready: bool,
    tenant: Option<DcId>,
    sequence: Sequence,
    stores: u64,
}

impl MemoryLane {
    /// An empty lane. Its words start as garbage, as those of a former tenant would be.
    pub fn new(format: Format) -> Self {
        let words = vec![0xDEAD_BEEF_0BAD_F00D; format.bucket_count() as usize];
        Self { format, words, ready: false, tenant: None, sequence: Sequence::ZERO, stores: 0 }
    }

    /// All words, bucket 0 first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Whether queries may use the lane.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whose words these are.
    pub fn tenant(&self) -> Option<DcId> {
        self.tenant
    }

    /// The sequence last noted.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Words stored so far.
    pub fn stores(&self) -> u64 {
        self.stores
    }
}

impl Hash for MemoryLane {
    /// Leaves the count of stores out: it says nothing about the future.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.format, &self.words, self.ready, self.tenant, self.sequence).hash(state);
    }
}

impl LaneStore for MemoryLane {
    fn format(&self) -> &Format {
        &self.format
    }

    fn begin_install(&mut self, dc: DcId) {
        self.ready = false;
        self.tenant = Some(dc);
    }

    fn store_run(&mut self, first: BucketIndex, images: impl Iterator<Item = BucketImage>) {
        for (word, image) in self.words[first.to_usize()..].iter_mut().zip(images) {
            *word = image.get();
            self.stores += 1;
        }
    }

    fn publish_ready(&mut self, sequence: Sequence, _now: Instant) {
        self.ready = true;
        self.sequence = sequence;
    }

    fn word(&self, bucket: BucketIndex) -> BucketImage {
        BucketImage::new(self.words[bucket.to_usize()])
    }

    fn store(&mut self, bucket: BucketIndex, image: BucketImage) {
        self.words[bucket.to_usize()] = image.get();
        self.stores += 1;
    }

    fn note(&mut self, sequence: Sequence, _now: Instant) {
        self.sequence = sequence;
    }

    fn retire(&mut self) {
        self.ready = false;
    }
}
