//! The multi-DC replay.
fn main() {}
