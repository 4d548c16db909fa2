//! The hosts as processes, over sockets on loopback.

#![cfg(feature = "hosts")]

mod answers;
mod certificates;
mod demo;
mod drain;
mod dynamo;
mod engines;
mod fake;
mod faults;
mod interop;
mod limits;
mod listing;
mod nats;
mod nonsense;
mod openai;
mod player;
mod pools;
mod publisher;
mod reasons;
mod replays;
mod site;
mod sources;
mod status;
mod support;
mod values;
