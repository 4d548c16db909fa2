//! The hosts as processes, over sockets on loopback.

#![cfg(feature = "hosts")]

mod demo;
mod dynamo;
mod faults;
mod limits;
mod listing;
mod nats;
mod nonsense;
mod pools;
mod site;
mod sources;
mod support;
