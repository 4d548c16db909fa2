//! Test helpers of the ckf crates: oracles, a seeded faulty network, scenarios, fuzz bodies.
//! Never published; may panic on broken expectations, as tests do.

#![forbid(unsafe_code)]

pub mod forge;
pub mod fuzz;
pub mod kv_events;
pub mod memory;
pub mod net;
pub mod oracle;
pub mod rng;
pub mod scenario;
pub mod sim;
pub mod world;
