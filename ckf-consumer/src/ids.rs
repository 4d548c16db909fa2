//! The identities this crate uses, from `ckf-protocol`.

pub use ckf_protocol::{DcId, Instant, Lane, Sequence};
