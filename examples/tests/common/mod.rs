//! What several test files need.

use std::path::{Path, PathBuf};

/// The folder of recorded traces, if this machine has it; says so if not, and fails where
/// `CKF_REQUIRE_SHARED=1` asks for it.
pub(crate) fn traces() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared =
        std::env::var_os("CKF_SHARED").map_or_else(|| root.join("../../shared"), PathBuf::from);
    let traces = shared.join("data/traces");
    if traces.is_dir() {
        return Some(traces);
    }
    let required = std::env::var("CKF_REQUIRE_SHARED").is_ok_and(|value| value == "1");
    assert!(!required, "no recorded traces at {}", traces.display());
    println!("skipped: no recorded traces at {}", traces.display());
    None
}
