//! Why a trace could not be read, always with the place.

use std::io;

/// A trace that cannot be replayed. `Display` is `file:line: reason` where a line is to blame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be opened or is not a regular stream of bytes.
    #[error("{file}: {source}")]
    Open {
        /// The path as the user gave it.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// A line could not be read, decompressed or understood.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// The path as the user gave it.
        file: String,
        /// One-based number of the line in the decompressed text.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The file ended without a single request.
    #[error("{file}: holds no requests")]
    Empty {
        /// The path as the user gave it.
        file: String,
    },
}
