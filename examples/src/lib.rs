//! Host code shared by the programs of this package.
//!
//! The library crates have no clock, randomness, thread or socket; everything a host has to bring
//! is here, in pieces short enough to copy.

pub mod args;
pub mod cache;
pub mod figures;
pub mod fleet;
pub mod generate;
pub mod histogram;
#[cfg(feature = "hosts")]
pub mod hosts;
pub mod link;
pub mod oracle;
pub mod policy;
pub mod report;
pub mod rng;
pub mod svg;
pub mod timeline;
pub mod trace;
