//! The hosts.
pub mod proto;
