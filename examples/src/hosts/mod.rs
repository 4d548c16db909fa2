//! Real hosts of the ckf machines: sockets, TLS, clocks and processes around code that has none.
//!
//! | program | runs | modules |
//! |---|---|---|
//! | `relay` | once per data center: engines' events in, subscribers out | [`source`], [`relay`], [`nats`] |
//! | `router` | once per region: relays in, an OpenAI-compatible front out | [`router`], [`nats`] |
//! | `engine-sim` | in place of an engine, to try it all on one machine | [`engine`] |
//! | any | Dynamo's relay contract in place of ours | [`dynamo`] |
//!
//! Shared by them: [`bodies`], [`options`], [`values`], [`files`], [`clock`], [`identity`], [`http`], [`listen`],
//! [`log`], [`tls`], [`metrics`], [`stop`].
//!
//! Every listener bounds connections, streams, header and body sizes, and the time that a peer may
//! take. Secrets come from files only.
//! `examples/HOSTS.md` says how the programs are run.

pub mod bodies;
pub mod certs;
pub mod clock;
pub mod dynamo;
pub mod engine;
pub mod files;
pub mod http;
pub mod identity;
pub mod listen;
pub mod log;
pub mod metrics;
pub mod nats;
pub mod options;
pub mod proto;
pub mod relay;
pub mod router;
pub mod source;
pub mod stop;
pub mod tls;
pub mod values;

use std::fmt::Display;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::log;

/// What a host's fallible steps return: hosts report errors to people, not to code.
pub type HostResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Says what was tried, in front of why it failed.
pub trait Context<T> {
    /// The same result; an error begins with `what`.
    ///
    /// # Errors
    /// That of the result.
    fn context(self, what: impl Display) -> HostResult<T>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> HostResult<T> {
        self.map_err(|error| format!("{what}: {error}").into())
    }
}

/// Ends a program: an error goes to people as one line, and makes the exit code 1.
pub fn exit(result: HostResult<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The lock of something that is left consistent even by a thread that panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that no other process start is likely to draw: incarnations, consumer ids, seeds.
pub fn draw() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds these from the operating system, differently each time.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
