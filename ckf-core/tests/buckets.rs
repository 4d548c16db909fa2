//! A table in buckets of the caller's own.

use ckf_core::{BlockHash, BucketImage, BucketIndex, Buckets, Format, Full, SlotIndex, Table};

/// Each image with the blocks behind its fingerprints.
#[derive(Clone)]
struct Named(Vec<(BucketImage, [Option<BlockHash>; 4])>);

impl Buckets for Named {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn image(&self, bucket: BucketIndex) -> BucketImage {
        self.0[bucket.to_usize()].0
    }

    fn set_image(&mut self, bucket: BucketIndex, image: BucketImage) {
        self.0[bucket.to_usize()].0 = image;
    }

    fn follow(&mut self, from: SlotIndex, to: SlotIndex) {
        let name = self.0[from.bucket().to_usize()].1[from.within()];
        self.0[to.bucket().to_usize()].1[to.within()] = name;
    }
}

/// Filled until it refuses, through many relocations: what is kept about a fingerprint lies where
/// the fingerprint lies, and the words are those of a table without it.
#[test]
fn what_is_kept_beside_a_fingerprint_follows_it() {
    for format in [Format::any_count(300, 1), Format::power_of_two(256, 1)] {
        let format = format.unwrap();
        let empty = vec![(BucketImage::EMPTY, [None; 4]); format.bucket_count() as usize];
        let (mut named, mut plain) =
            (Table::in_buckets(format, Named(empty)), Table::new(format).unwrap());
        let mut moved = 0;
        for block in (0..).map(BlockHash::new) {
            let (address, mut last) = (format.address(block), None);
            let inserted = named.insert(&address, |change| last = Some(change.slot()));
            assert_eq!(inserted, plain.insert(&address, |_| ()));
            match inserted {
                Ok(moves) => moved += moves,
                Err(Full) => break,
            }
            let slot = last.expect("the new fingerprint's change comes last");
            named.buckets_mut().0[slot.bucket().to_usize()].1[slot.within()] = Some(block);
        }
        assert!(moved > 100, "{moved}");
        assert_eq!(named.stored(), plain.stored());
        for bucket in format.buckets() {
            assert_eq!(named.image(bucket), plain.image(bucket));
            let (image, names) = named.buckets().0[bucket.to_usize()];
            for (fingerprint, name) in image.slots().zip(names) {
                let Some(fingerprint) = fingerprint else { continue };
                let address = format.address(name.expect("each has a name"));
                assert_eq!(address.fingerprint, fingerprint);
                assert!(address.first == bucket || address.second == bucket);
            }
        }
        let again = Table::in_buckets(format, named.into_buckets());
        assert_eq!(again.stored(), plain.stored());
    }
}

#[test]
#[should_panic(expected = "as many as the format says")]
fn buckets_of_another_number_are_refused() {
    let _ = Table::in_buckets(Format::any_count(3, 1).unwrap(), vec![0; 4]);
}
