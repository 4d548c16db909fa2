//! Fan-out over a NATS server: one lease of the producer feeds any number of routers.
//!
//! A frame's body knows nothing of its lease, so the same body serves everybody: the relay publishes
//! the frames of a lease of its own ([`bridge`]), and each router writes its own lease into the
//! headers that it receives ([`bind`]). Who joins late asks for a snapshot, and all who wait share
//! the next one. The producer makes one snapshot per round and nothing per router.
//!
//! NATS drops messages for slow readers and across reconnections. A lane notices the gap, or the
//! digest, and joins again.

pub mod bind;
pub mod bridge;

use async_nats::{Client, ConnectOptions};
use ckf_protocol::PoolId;

use super::HostResult;
use super::tls::TlsFiles;

/// Connects to a server, `nats://` or, with certificates from files, `tls://`. Connects again by
/// itself, also when the server is not there yet.
///
/// # Errors
/// An address or files that make no sense.
pub async fn connect(url: &str, tls: Option<&TlsFiles>) -> HostResult<Client> {
    let mut options = ConnectOptions::new().retry_on_initial_connect();
    if let Some(tls) = tls.filter(|_| url.starts_with("tls://")) {
        options = options
            .require_tls(true)
            .add_root_certificates(tls.ca.clone())
            .add_client_certificate(tls.cert.clone(), tls.key.clone());
    }
    Ok(options.connect(url).await?)
}

/// The subject of a pool's frames.
pub fn feed_subject(pool: &PoolId) -> String {
    subject("feed", pool)
}

/// The subject of requests for a snapshot.
pub fn join_subject(pool: &PoolId) -> String {
    subject("join", pool)
}

fn subject(what: &str, pool: &PoolId) -> String {
    let semantics = u128::from_be_bytes(pool.domain.cache_semantics.digest);
    let scope = u128::from_be_bytes(pool.domain.routing_scope.digest);
    format!("ckf.{what}.{semantics:032x}.{scope:032x}.{}", pool.dc)
}
