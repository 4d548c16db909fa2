//! Host code shared by the programs of this package.
//!
//! The library crates have no clock, randomness, thread or socket; everything a host has to bring
//! is here, in pieces short enough to copy.

pub mod generate;
#[cfg(feature = "hosts")]
pub mod hosts;
pub mod link;
pub mod replay;
pub mod rng;
pub mod setup;
pub mod trace;

/// Compiles and runs the README's quick start.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
