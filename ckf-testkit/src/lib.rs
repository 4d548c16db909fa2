//! Test helpers of the ckf crates: oracles, a seeded faulty network, scenarios, fuzz bodies.
