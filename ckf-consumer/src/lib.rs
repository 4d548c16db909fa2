//! See the README.

mod ids;
mod lane;
mod mask;
mod row;
mod sync;
mod table;

pub use lane::LaneWriter;
pub use mask::{LaneIter, LaneMask};
pub use row::Line;
