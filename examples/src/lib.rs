//! Host code shared by the programs of this package.
//!
//! The library crates have no clock, randomness, thread or socket; everything a host has to bring
//! is here, in pieces short enough to copy.

pub mod cache;
pub mod fleet;
pub mod generate;
pub mod histogram;
pub mod link;
pub mod oracle;
pub mod policy;
pub mod rng;
pub mod trace;
