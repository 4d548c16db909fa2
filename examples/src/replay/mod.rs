//! The multi-DC replay.

pub mod args;
pub mod cache;
pub mod dc;
pub mod figures;
pub mod fleet;
pub mod histogram;
pub mod oracle;
pub mod policy;
pub mod report;
pub mod svg;
pub mod timeline;
pub mod worker;
