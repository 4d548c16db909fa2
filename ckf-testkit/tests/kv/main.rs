//! Engines' events: every payload of the shared data decodes to what stands beside it, and the
//! recorded streams end in the state that stands beside them.

mod chains;
mod meaning;
mod payloads;
mod shared;
mod streams;
mod wire;
