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

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event};
use ckf_protocol::PoolId;

use super::metrics::{Counter, Page};
use super::tls::TlsFiles;
use super::values;
use super::{Context, HostResult};
use crate::log_about;

/// Messages of one subscription that wait to be read; more are dropped, and the lane joins again.
const WAITING: usize = 256;
/// How often a silent server is pinged. It is given up after two pings without an answer.
const PING: Duration = Duration::from_secs(10);

/// What it takes to be let in.
#[derive(Clone, Default)]
pub struct NatsAccess {
    /// For `tls://`.
    pub tls: Option<TlsFiles>,
    /// A secret that the server knows.
    pub token: Option<String>,
}

/// What became of connections to servers.
#[derive(Debug, Default)]
pub struct NatsCounters {
    /// Made.
    pub connected: Counter,
    /// Lost.
    pub disconnected: Counter,
    /// Times that messages were dropped because they were not read in time.
    pub slow: Counter,
    /// Refused by the server, or broken in another way.
    pub errors: Counter,
    /// Messages on a pool's feed that are no frames of a producer.
    pub garbage_frames: Counter,
    /// Messages on a pool's subject for requests that are none.
    pub garbage_requests: Counter,
}

impl NatsCounters {
    /// Adds them to a scrape.
    pub fn report(&self, page: &mut Page) {
        let counters = [
            ("connected", self.connected.get()),
            ("disconnected", self.disconnected.get()),
            ("slow", self.slow.get()),
            ("error", self.errors.get()),
        ];
        page.counters("ckf_nats_total", &[], "what", &counters);
        let garbage = [("feed", self.garbage_frames.get()), ("join", self.garbage_requests.get())];
        page.counters("ckf_nats_garbage_total", &[], "subject", &garbage);
    }

    fn note(&self, event: &Event) {
        match event {
            Event::Connected => self.connected.up(),
            Event::Disconnected => self.disconnected.up(),
            Event::SlowConsumer(_) => self.slow.up(),
            error => {
                self.errors.up();
                log_about!("NATS", "{error}");
            }
        }
    }
}

/// Connects to a server, `nats://` or, with certificates from files, `tls://`. Connects again by
/// itself, also when the server is not there yet.
///
/// # Errors
/// An address or files that make no sense.
pub async fn connect(
    url: &str,
    access: &NatsAccess,
    counters: Arc<NatsCounters>,
) -> HostResult<Client> {
    let url = &values::url(url, &["nats", "tls"])?;
    let mut options = match &access.token {
        Some(token) => ConnectOptions::with_token(token.clone()),
        None => ConnectOptions::new(),
    };
    options = options
        .retry_on_initial_connect()
        .subscription_capacity(WAITING)
        .ping_interval(PING)
        .event_callback(move |event| {
            let counters = counters.clone();
            async move { counters.note(&event) }
        });
    if url.starts_with("tls://") {
        let tls = access.tls.as_ref().ok_or("tls:// needs --ca, --cert and --key")?;
        tls.check_client()?;
        options = options
            .require_tls(true)
            .add_root_certificates(tls.ca.clone())
            .add_client_certificate(tls.cert.clone(), tls.key.clone());
    }
    options.connect(url).await.context(url)
}

/// Headers of an answer that says that a request was none, as services over NATS give them: a code as
/// in HTTP, and words.
pub const ERROR_CODE: &str = "Nats-Service-Error-Code";
/// See [`ERROR_CODE`].
pub const ERROR: &str = "Nats-Service-Error";

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
