//! Bodies of the fuzz targets, one function each; `fuzz/fuzz_targets` only wraps them, and
//! `tests/corpus.rs` replays the committed corpus through them. All take any bytes and panic when
//! a promise is broken.

mod decode;
mod end_to_end;
mod filter_ops;
mod kv_events;
mod producer_ops;
mod session_ops;
mod source_ops;

pub use decode::decode;
pub use end_to_end::end_to_end;
pub use filter_ops::filter_ops;
pub use kv_events::kv_events;
pub use producer_ops::producer_ops;
pub use session_ops::session_ops;
pub use source_ops::source_ops;

/// A target: its name, as in `fuzz/corpus`, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 7] = [
    ("decode", decode),
    ("end_to_end", end_to_end),
    ("filter_ops", filter_ops),
    ("kv_events", kv_events),
    ("producer_ops", producer_ops),
    ("session_ops", session_ops),
    ("source_ops", source_ops),
];

/// Choices read from the fuzzer's bytes; zeros once they are used up.
#[derive(Clone, Copy, Debug)]
struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    /// A number in `0..bound`, from one byte; 0 for a bound of 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// At most `len` bytes as they are.
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }
}
