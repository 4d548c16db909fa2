//! The hosts as processes, over sockets on loopback.

#![cfg(feature = "hosts")]

mod sources;
mod support;
