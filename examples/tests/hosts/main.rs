//! The hosts as processes, over sockets on loopback.

#![cfg(feature = "hosts")]

mod demo;
mod dynamo;
mod sources;
mod support;
