//! Inference engines' KV-cache events, from bytes to [`EngineEvent`]s, and recordings of them.
//!
//! vLLM, SGLang and TensorRT-LLM publish batches of events as msgpack, in a positional form (older
//! releases) or as maps (newer ones). [`Batch::decode`] takes either, event by event, of any release,
//! and skips what it does not know: tags, map keys, extra elements. Extra keys of an unknown kind make
//! their block private, with all that follow it. What it knows but finds with a wrong type is an error:
//! the batch then counts as lost, and the stream recovers. Only fields on which nothing depends (session,
//! window, tokens ahead) are left out instead.
//!
//! ```
//! use ckf_producer::source::EngineEvent;
//! use ckf_testkit::kv_events::Batch;
//!
//! // [0.0, [["AllBlocksCleared"]], 3]
//! let bytes = [&[0x93, 0xCB, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x91, 0xB0][..], b"AllBlocksCleared", &[3]];
//! let batch = Batch::decode(&bytes.concat())?;
//! assert_eq!(batch.rank, Some(3));
//! assert_eq!(batch.into_engine_events(), [EngineEvent::Cleared]);
//! # Ok::<(), ckf_testkit::kv_events::DecodeError>(())
//! ```
//!
//! Memory taken is in proportion to the bytes given, whatever they claim; nesting takes no stack.
//!
//! [`EngineEvent`]: ckf_producer::source::EngineEvent

mod batch;
mod capture;
mod convert;
mod event;
mod msgpack;

pub use batch::Batch;
pub use capture::{Capture, CaptureError, Channel, Record};
pub use event::{Event, ExtraKey, Hash, Removed, Stored, TokenIds};
pub use msgpack::{DecodeError, Problem, Reader, Token};
