//! One process per region: an OpenAI-compatible front that sends each prompt to the data center
//! that holds most of it.
//!
//! ```text
//! router --listen 127.0.0.1:8000 --admin 127.0.0.1:8001 \
//!        --ca ca.pem --cert router.pem --key router.key \
//!        --dc id=1,relay=https://127.0.0.1:7000,endpoint=http://127.0.0.1:9000
//! ```

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ckf_consumer::{Consumer, ConsumerConfig, QueryHandle, SessionConfig, SessionTimes};
use ckf_core::Format;
use ckf_examples::hosts::bodies::Bodies;
use ckf_examples::hosts::clock::Clock;
use ckf_examples::hosts::dynamo::agree::agree;
use ckf_examples::hosts::dynamo::client::DynamoLink;
use ckf_examples::hosts::dynamo::watch::{self, ServingBoard};
use ckf_examples::hosts::nats::bind::NatsLink;
use ckf_examples::hosts::options::{Protocol, Shared, millis};
use ckf_examples::hosts::router::lane::{self, LaneBoard};
use ckf_examples::hosts::router::link::{Channels, Link};
use ckf_examples::hosts::router::plan::{self, Way};
use ckf_examples::hosts::router::rhythm::Rhythm;
use ckf_examples::hosts::router::spec::DcSpec;
use ckf_examples::hosts::router::{
    Dc, Endpoint, PoolRouter, RequestCounters, Router, RouterCounters, front, status,
};
use ckf_examples::hosts::stop::Stop;
use ckf_examples::hosts::{self, Context, HostResult, draw, http, lock, nats, values};
use ckf_examples::{log, log_about};
use ckf_protocol::{ConsumerId, DcId, IndexerDomainId, Limits, Manifest, Millis, PoolId};
use clap::Parser;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Connections of clients at one time.
const FRONT_PLACES: usize = 1024;
/// Connections of operators at one time.
const ADMIN_PLACES: usize = 32;
/// How often lanes are looked at whose relays may name something else.
const LOOK: Duration = Duration::from_secs(5);
/// How often Dynamo's relays say that they are there.
const DYNAMO_HEARTBEAT_MS: u64 = 10_000;

/// Sends each prompt to the data center that holds most of it.
#[derive(Debug, Parser)]
struct Args {
    /// Where prompts come in.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    #[command(flatten)]
    shared: Shared,
    /// A data center: id=N,relay=URL,endpoint=URL[,endpoint=URL...][,cost=BLOCKS][,pool=NAME]
    #[arg(long = "dc", required = true, value_name = "SPEC")]
    dcs: Vec<String>,
    /// Name of the pool of data centers that name none [default: default]. With several pools,
    /// requests say which by the name in `model`.
    #[arg(long, value_parser = values::name)]
    pool: Option<String>,
    /// Silence after which a lane is retired, in milliseconds; several heartbeats of the relays
    /// [default: 10000, Dynamo's 30000].
    #[arg(long, value_parser = millis())]
    silence_ms: Option<u64>,
    /// How long an endpoint may take to begin an answer, or pause in it, in milliseconds. An answer
    /// that is not streamed begins when all of it is there.
    #[arg(long, default_value_t = 30_000, value_parser = millis())]
    patience_ms: u64,
    /// Bytes of all requests' bodies that no endpoint has begun to answer yet, in MiB. A body has 4 at
    /// most; its tokens take up to twice as much again.
    #[arg(long, default_value_t = 256, value_parser = mebibytes())]
    bodies_mib: usize,
    /// How long answers under way may take to end once the router is told to, in milliseconds.
    #[arg(long, default_value_t = 30_000, value_parser = millis())]
    drain_ms: u64,
}

/// Room for at least one body.
fn mebibytes() -> impl clap::builder::TypedValueParser<Value = usize> {
    use clap::builder::TypedValueParser;
    clap::value_parser!(u32).range(4..=65_536).map(|mebibytes| mebibytes as usize)
}

#[tokio::main]
async fn main() -> ExitCode {
    hosts::exit(run(Args::parse()).await)
}

async fn run(args: Args) -> HostResult<()> {
    let stop = Stop::on_signal()?;
    // What can be wrong with options shows before anything starts.
    let plan = plan::pools(&args.dcs, args.pool.as_deref(), &args.shared)?;
    if args.shared.protocol == Protocol::Dynamo && silence(&args).get() < 2 * DYNAMO_HEARTBEAT_MS {
        log!("--silence-ms: Dynamo's relays may be silent for {DYNAMO_HEARTBEAT_MS} ms");
    }
    let admin = TcpListener::bind(args.shared.admin).await.context("--admin")?;
    let listener = TcpListener::bind(args.listen).await.context("--listen")?;
    let (clock, counters) = (Clock::start(), RouterCounters::default());
    let mut pools = Vec::new();
    for (name, specs) in &plan {
        let pool = tokio::select! {
            pool = pool(&args, name, specs, &counters, clock) => pool,
            () = stop.told() => return Ok(()),
        };
        pools.push(Arc::new(pool.context(format_args!("pool {name}"))?));
    }
    let model = args.shared.model.clone();
    let bodies = Bodies::new(args.bodies_mib << 20);
    let router = Arc::new(Router { pools, model, bodies, stop: stop.clone(), counters });
    let pages = status::routes(router.clone());
    log!("router listens on {}, pages on {}", listener.local_addr()?, admin.local_addr()?);
    tokio::spawn(http::serve(admin, pages, ADMIN_PLACES, router.counters.admin.clone()));
    let accepts = router.counters.front.clone();
    let (front, drain) = (front::routes(router), Duration::from_millis(args.drain_ms));
    match http::serve_until(listener, front, FRONT_PLACES, accepts, stop, drain).await {
        0 => Ok(()),
        cut => Err(format!("--drain-ms is over: {cut} connections are cut").into()),
    }
}

/// Silence after which a lane is retired: of Dynamo's relays three of their heartbeats.
fn silence(args: &Args) -> Millis {
    let usual = match args.shared.protocol {
        Protocol::Ckf => 10_000,
        Protocol::Dynamo => 3 * DYNAMO_HEARTBEAT_MS,
    };
    Millis::new(args.silence_ms.unwrap_or(usual))
}

/// One pool: a consumer with a lane for each data center that has it.
async fn pool(
    args: &Args,
    name: &str,
    specs: &[DcSpec],
    counters: &RouterCounters,
    clock: Clock,
) -> HostResult<PoolRouter> {
    let shared = &args.shared;
    let silence = silence(args);
    let times = SessionTimes { silence, ..SessionTimes::default() };
    let config = ConsumerConfig::default()
        .with_session(SessionConfig::new(times, Limits::default()).context("--silence-ms")?);
    let query = Arc::default();
    let mut dcs = Vec::new();
    let (name_of_it, lanes) = (name.to_owned(), Vec::new());
    let mut lanes =
        Lanes { name: name_of_it, config, clock, silence, query: Arc::clone(&query), lanes };
    for spec in specs {
        let link = link(shared, spec, counters).await.context(&spec.relay)?;
        let dc = dc(spec, &link);
        let named = (DcId::new(spec.id), spec.name.clone());
        lanes.lanes.push((named, link, dc.board.clone(), dc.serving.clone()));
        dcs.push(dc);
    }
    // What can be wrong with the data centers shows here, whatever the relays tell later.
    let by_flags = lanes.manifest(shared.names(name).domain(), shared.format()?)?;
    let dynamo: Vec<DynamoLink> = lanes.lanes.iter().filter_map(dynamo_link).collect();
    if dynamo.is_empty() {
        lanes.start(&by_flags)?.detach_all();
    } else {
        // Requests go out by load meanwhile.
        tokio::spawn(lanes.follow(dynamo, shared.model.clone(), shared.block_size.get()));
    }
    Ok(PoolRouter {
        name: name.to_owned(),
        query,
        dcs,
        block_size: shared.block_size.get() as usize,
        counters: RequestCounters::default(),
        client: http::client(Duration::from_secs(1)),
        patience: Duration::from_millis(args.patience_ms),
        clock,
    })
}

/// A lane before it starts: its data center by number and name, the way to its relay, and where it reports.
type Lane = ((DcId, String), Link, Arc<LaneBoard>, Arc<ServingBoard>);

/// All lanes of a pool, whatever they have in common.
struct Lanes {
    name: String,
    config: ConsumerConfig,
    clock: Clock,
    silence: Millis,
    query: Arc<Mutex<Option<QueryHandle>>>,
    lanes: Vec<Lane>,
}

impl Lanes {
    fn manifest(&self, domain: IndexerDomainId, format: Format) -> HostResult<Manifest> {
        self.lanes
            .iter()
            .fold(Manifest::builder(domain, format), |manifest, ((dc, _), ..)| manifest.dc(*dc))
            .build()
            .context("--dc")
    }

    /// Keeps lanes for what the relays' catalogs name. While one lane is ready, that is what counts;
    /// when none is, the relays may have gone over to something else.
    async fn follow(self, relays: Vec<DynamoLink>, model: String, block_size: u32) {
        let mut current = None;
        // Dropped when others take their place: that ends the tasks.
        let mut _tasks = JoinSet::new();
        loop {
            let named = agree(&relays, &model, block_size).await;
            if current != Some(named) {
                match self.manifest(named.0, named.1).and_then(|manifest| self.start(&manifest)) {
                    Ok(started) => (current, _tasks) = (Some(named), started),
                    Err(error) => {
                        log_about!(format_args!("pool {}", self.name), "no lanes: {error}")
                    }
                }
            }
            tokio::time::sleep(LOOK).await;
            while self.lanes.iter().any(|(_, _, board, _)| board.read().is_ready()) {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Starts the consumer and the tasks of its lanes.
    fn start(&self, manifest: &Manifest) -> HostResult<JoinSet<()>> {
        log!("pool {} joins {}", self.name, manifest.provenance());
        let consumer = ConsumerId::new(draw());
        let (query, sessions) = Consumer::new(manifest, self.config.clone(), consumer)?;
        let mut tasks = JoinSet::new();
        for (session, lane) in sessions.into_iter().zip(&self.lanes) {
            let (named, link, board, serving) = lane.clone();
            if let Link::Dynamo(link) = &link {
                let pool = PoolId { domain: manifest.domain(), dc: named.0 };
                tasks.spawn(watch::watch(link.clone(), pool, serving));
            }
            let rhythm = Rhythm::new(self.silence);
            tasks.spawn(lane::run(session, named, link, self.clock, board, rhythm));
        }
        *lock(&self.query) = Some(query);
        Ok(tasks)
    }
}

fn dynamo_link((_, link, ..): &Lane) -> Option<DynamoLink> {
    if let Link::Dynamo(link) = link { Some(link.clone()) } else { None }
}

fn dc(spec: &DcSpec, link: &Link) -> Dc {
    Dc {
        endpoints: spec.endpoints.iter().map(|url| Arc::new(Endpoint::new(url))).collect(),
        spec: spec.clone(),
        board: Arc::default(),
        serving: Arc::default(),
        refusals: if let Link::Dynamo(link) = link { Some(link.refusals()) } else { None },
        answered: Default::default(),
    }
}

async fn link(shared: &Shared, spec: &DcSpec, counters: &RouterCounters) -> HostResult<Link> {
    let (relay, keep_alive) = (&spec.relay, shared.keep_alive());
    match spec.way(shared.protocol, shared.tls.is_some())? {
        Way::Nats => {
            let access = shared.nats_access()?;
            let client = nats::connect(relay, &access, counters.nats.clone()).await?;
            Ok(Link::Nats(NatsLink::new(client, counters.nats.clone())))
        }
        Way::Grpc => Link::grpc(relay, shared.certificates()?, keep_alive, counters.tls.clone()),
        Way::Dynamo => {
            let tls = shared.tls.as_ref().filter(|_| relay.starts_with("https://"));
            let name = format!("ckf-router-{:08x}", draw() as u32);
            let channels = Channels::new(relay, tls, keep_alive, counters.tls.clone())?;
            Ok(Link::Dynamo(DynamoLink::new(channels, name)))
        }
    }
}
