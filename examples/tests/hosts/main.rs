//! The hosts as processes, over sockets on loopback.

#![cfg(feature = "hosts")]

mod demo;
mod sources;
mod support;
