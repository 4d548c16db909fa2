//! The router: one process per region.
//!
//! ```text
//! relays -> link (gRPC, NATS) -> lane (one task per lane) -> table -> front (HTTP) -> engines
//! ```
//!
//! - [`spec`], [`plan`]: the data centers it knows, and how their relays are reached;
//! - [`link`]: how frames come from a relay;
//! - [`lane`], [`rhythm`]: the task that keeps one lane fed;
//! - [`choose`]: where a request goes;
//! - [`front`]: the OpenAI-compatible front;
//! - [`prompt`], [`refusal`]: what it reads, and what it says when that makes no sense;
//! - [`forward`], [`headers`]: sending a request on, and failing over;
//! - [`status`]: the page for people, and metrics.

pub mod choose;
pub mod forward;
pub mod front;
pub mod headers;
pub mod lane;
pub mod link;
pub mod plan;
pub mod prompt;
pub mod refusal;
pub mod rhythm;
pub mod spec;
pub mod status;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ckf_consumer::QueryHandle;

use super::bodies::Bodies;
use super::clock::Clock;
use super::dynamo::reason::Refusals;
use super::dynamo::watch::ServingBoard;
use super::http::HttpClient;
use super::listen::AcceptCounters;
use super::metrics::Counter;
use super::nats::NatsCounters;
use super::stop::Stop;
use super::tls::TlsCounters;
use lane::LaneBoard;
use refusal::Refusal;
use spec::DcSpec;

/// One endpoint of a data center, with what is known about it.
#[derive(Debug)]
pub struct Endpoint {
    /// Where prompts go.
    pub url: String,
    /// Requests under way.
    pub in_flight: AtomicU64,
    /// Until when it is tried last, in milliseconds of the router's clock.
    pub shunned_until: AtomicU64,
    /// Times that it failed since it last began an answer, as far as that made a difference.
    pub failures: AtomicU64,
}

impl Endpoint {
    /// A fresh one.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            in_flight: AtomicU64::default(),
            shunned_until: AtomicU64::default(),
            failures: AtomicU64::default(),
        }
    }
}

/// One data center, in the order of lanes.
#[derive(Debug)]
pub struct Dc {
    /// What the operator said about it.
    pub spec: DcSpec,
    /// Its endpoints.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// What its lane is doing.
    pub board: Arc<LaneBoard>,
    /// What its relay says beside the filter; nothing, where the protocol has no words for it.
    pub serving: Arc<ServingBoard>,
    /// What its relay refused, where the protocol has reasons for that.
    pub refusals: Option<Arc<Refusals>>,
    /// Requests that it answered.
    pub answered: Counter,
}

impl Dc {
    /// Requests under way at all endpoints.
    pub fn in_flight(&self) -> u64 {
        self.endpoints.iter().map(|endpoint| endpoint.in_flight.load(Ordering::Relaxed)).sum()
    }
}

/// What became of requests.
#[derive(Debug, Default)]
pub struct RequestCounters {
    /// Sent on by depth.
    pub by_depth: Counter,
    /// Sent on by load alone: no lane was ready.
    pub by_load: Counter,
    /// Endpoints that refused, broke off or were silent before the first piece of an answer.
    pub failovers: Counter,
    /// Answered by nobody.
    pub failed: Counter,
    /// Answers that broke off after they had begun.
    pub broken: Counter,
    /// Clients that went away before the end of their answer.
    pub abandoned: Counter,
    /// Answers of which only the endpoint's close tells the end, be it one or not.
    pub unframed: Counter,
    /// Depths found for the data center that was chosen: 0, 1, 2-3, 4-7, and so on.
    pub depths: [Counter; 16],
}

/// One pool: all that a request to it needs.
#[derive(Debug)]
pub struct PoolRouter {
    /// Its name.
    pub name: String,
    /// The lanes, once it is known what they have in common; others when that changes.
    pub query: Arc<Mutex<Option<QueryHandle>>>,
    /// The data centers, in the order of lanes.
    pub dcs: Vec<Dc>,
    /// Tokens of one block.
    pub block_size: usize,
    /// What happened.
    pub counters: RequestCounters,
    /// For endpoints.
    pub client: HttpClient,
    /// How long an endpoint may take to begin an answer, or to go on with it.
    pub patience: std::time::Duration,
    /// The router's time.
    pub clock: Clock,
}

/// Connections of the whole process.
#[derive(Debug, Default)]
pub struct RouterCounters {
    /// Of clients.
    pub front: Arc<AcceptCounters>,
    /// Of operators.
    pub admin: Arc<AcceptCounters>,
    /// To NATS servers.
    pub nats: Arc<NatsCounters>,
    /// Looks at the certificates' files.
    pub tls: Arc<TlsCounters>,
    /// Requests that were not understood, too large, or for no pool here.
    pub bad: Counter,
}

/// The whole router.
#[derive(Debug)]
pub struct Router {
    /// Its pools, at least one.
    pub pools: Vec<Arc<PoolRouter>>,
    /// What the operator calls the model.
    pub model: String,
    /// Room for the bodies of requests.
    pub bodies: Bodies,
    /// Whether it is to end.
    pub stop: Stop,
    /// What happened.
    pub counters: RouterCounters,
}

impl Router {
    /// The pool for requests that name this model: the pool's name, or, where there is only one, also
    /// what `--model` says, or nothing.
    ///
    /// # Errors
    /// Another name; none where there are several pools.
    pub fn pool(&self, model: Option<&str>) -> Result<&Arc<PoolRouter>, Refusal> {
        let names = || {
            let names = self.pools.iter().map(|pool| format!("`{}`", pool.name));
            let model = (self.pools.len() == 1).then(|| format!("`{}`", self.model));
            names.chain(model).collect::<Vec<_>>().join(", ")
        };
        match (&self.pools[..], model) {
            ([only], None) => Ok(only),
            ([only], Some(name)) if name == self.model => Ok(only),
            (_, None) => Err(Refusal::NoModel(names())),
            (pools, Some(name)) => pools
                .iter()
                .find(|pool| pool.name == name)
                .ok_or_else(|| Refusal::UnknownModel(names())),
        }
    }
}
