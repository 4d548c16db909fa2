use core::num::NonZeroU32;

use ckf_producer::HashSeeds;
use ckf_producer::source::{
    BlockChanges, ChainedIds, CopyCounter, Front, Medium, SourceEvent, Translator, TranslatorConfig,
};

use crate::kv_events::{Batch, Capture, Reader};

/// Any bytes as engines' messages, as recordings of them and as bare msgpack; what can be read goes on
/// into every front. Nothing panics, and no message makes more of itself than its bytes could hold.
pub fn kv_events(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let mut at = 0;
    while reader.token().is_ok() {
        assert!(reader.at() > at && reader.at() <= bytes.len());
        at = reader.at();
    }
    assert_eq!(reader.at(), at, "an error leaves the reader where it stood");
    let mut skipper = Reader::new(bytes);
    if skipper.skip().is_ok() {
        assert!(skipper.at() <= at, "what can be skipped can be read");
    }
    message(bytes);
    if let Ok(capture) = Capture::new(bytes) {
        for record in capture.map_while(Result::ok) {
            let _ = record.requested();
            if let Some((_, payload)) = record.batch() {
                message(payload);
            }
        }
    }
}

fn message(bytes: &[u8]) {
    let batch = match Batch::decode(bytes) {
        Ok(batch) => batch,
        Err(error) => {
            assert!(error.at <= bytes.len());
            return;
        }
    };
    let events = batch.into_engine_events();
    assert!(events.bytes() <= 64 * bytes.len() as u64, "{} of {}", events.bytes(), bytes.len());
    let seeds = HashSeeds::new([1, 2, 3, 4]);
    let config = TranslatorConfig::new(NonZeroU32::new(4).expect("not 0"), seeds);
    let mut translators = [
        Translator::new(config),
        Translator::new(config.with_copies(true)),
        Translator::new(config.with_max_blocks(2)),
    ];
    for translator in &mut translators {
        // Twice: the second time nearly everything is known.
        for _ in 0..2 {
            translator.apply(events.clone(), &mut BlockChanges::default());
            let (known, hashes) = translator.blocks();
            assert!(hashes <= known && known <= bytes.len());
        }
        translator.reset();
        assert_eq!(translator.blocks(), (0, 0));
    }
    let mut counter = CopyCounter::new(ChainedIds::new(Medium::Device), 3, seeds);
    counter.apply(events, &mut BlockChanges::default());
    assert!(counter.blocks() <= 3);
}
