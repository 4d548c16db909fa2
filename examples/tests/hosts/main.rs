//! The hosts as processes, over sockets on loopback.

#![cfg(feature = "hosts")]

mod demo;
mod dynamo;
mod faults;
mod nats;
mod site;
mod sources;
mod support;
