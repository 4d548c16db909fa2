//! One process per data center: engines' KV events in, filter updates out.
//!
//! ```text
//! relay --dc-id 1 --listen 127.0.0.1:7000 --admin 127.0.0.1:7001 \
//!       --ca ca.pem --cert relay.pem --key relay.key \
//!       --source 'zmq://127.0.0.1:5557?worker=1&replay=5558'
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ckf_examples::hosts::clock::Clock;
use ckf_examples::hosts::dynamo::hub::HubLimits;
use ckf_examples::hosts::dynamo::serve::DynamoRelay;
use ckf_examples::hosts::identity::parse_dc;
use ckf_examples::hosts::nats::bridge::Bridge;
use ckf_examples::hosts::options::{Protocol, Shared, millis};
use ckf_examples::hosts::relay::PoolPlan;
use ckf_examples::hosts::relay::admin::{Admin, RelayCounters};
use ckf_examples::hosts::relay::feed::{self, FeedService, KeepAlive};
use ckf_examples::hosts::relay::pool::{PoolHandle, PoolInput};
use ckf_examples::hosts::relay::sources::Roster;
use ckf_examples::hosts::source::spec::{DEFAULT_POOL, SourceSpec};
use ckf_examples::hosts::stop::Stop;
use ckf_examples::hosts::tls::{Renewed, TlsFiles};
use ckf_examples::hosts::values;
use ckf_examples::hosts::{self, Context, HostResult, draw, http, nats};
use ckf_examples::log;
use ckf_protocol::{Incarnation, Millis};
use clap::Parser;
use tokio::net::TcpListener;
use tokio_rustls::rustls::ServerConfig;

/// Connections of operators at one time.
const ADMIN_PLACES: usize = 32;

/// Turns the KV events of one data center's engines into filter updates for routers elsewhere.
#[derive(Debug, Parser)]
struct Args {
    /// The data center: a number that never changes, or a name.
    #[arg(long, value_name = "ID", value_parser = parse_dc)]
    dc_id: u64,
    /// Where subscribers connect.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    #[command(flatten)]
    shared: Shared,
    /// A NATS server to publish to as well: nats://HOST:PORT, or tls:// with the certificates.
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// An engine: zmq://HOST:PORT?worker=N&rank=N&replay=PORT&pool=NAME
    #[arg(long = "source", value_name = "URL")]
    sources: Vec<String>,
    /// A file with more of them, one a line, that may change at any time.
    #[arg(long, value_name = "FILE")]
    sources_file: Option<PathBuf>,
    /// Names of the pools.
    #[arg(long = "pool", value_name = "NAME", default_value = DEFAULT_POOL, value_parser = values::name)]
    pools: Vec<String>,
    /// How often changes go out, in milliseconds.
    #[arg(long, default_value_t = 20, value_parser = millis())]
    batch_ms: u64,
    /// Silence after which subscribers hear a heartbeat, in milliseconds [default: 2000, Dynamo's
    /// 10000].
    #[arg(long, value_parser = millis())]
    heartbeat_ms: Option<u64>,
    /// Longest time for a subscriber of Dynamo's contract to take each part of its snapshot, in
    /// milliseconds [default: 60000].
    #[arg(long, value_parser = millis())]
    snapshot_progress_ms: Option<u64>,
    /// After how long a pool is ready although engines are missing, in milliseconds.
    #[arg(long, default_value_t = 5000, value_parser = millis())]
    ready_ms: u64,
    /// How long the blocks of an engine that was lost are believed in while nothing proves that it is
    /// still the same one, in milliseconds.
    #[arg(long, default_value_t = 30_000, value_parser = millis())]
    away_ms: u64,
    /// Adds /debug/pools to the admin address.
    #[arg(long)]
    diagnosis: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    hosts::exit(run(Args::parse()).await)
}

async fn run(args: Args) -> HostResult<()> {
    let (clock, stop) = (Clock::start(), Stop::on_signal()?);
    let shared = &args.shared;
    // What can be wrong with options shows before anything starts.
    let sources = fixed_sources(&args.sources)?;
    check(&args)?;
    let counters = Arc::new(RelayCounters::default());
    let tls = match shared.protocol {
        Protocol::Ckf => {
            let renewed = counters.tls.clone();
            Some(Renewed::new(shared.certificates()?, renewed, TlsFiles::server)?)
        }
        Protocol::Dynamo => None,
    };
    let admin_listener = TcpListener::bind(shared.admin).await.context("--admin")?;
    let listener = TcpListener::bind(args.listen).await.context("--listen")?;
    let pools = Arc::new(start_pools(&args, clock)?);
    let roster = Roster {
        pools: pools.clone(),
        clock,
        fixed: sources,
        file: args.sources_file.clone(),
        patience: Duration::from_millis(args.away_ms),
        watched: Arc::new(Mutex::new(BTreeMap::new())),
        file_errors: counters.sources_file_errors.clone(),
    };
    roster.start().await?;
    let admin = Admin {
        pools: pools.clone(),
        watched: roster.watched.clone(),
        counters: counters.clone(),
        clock,
    };
    let pages = admin.router(args.diagnosis);
    tokio::spawn(http::serve(admin_listener, pages, ADMIN_PLACES, counters.admin.clone()));
    tokio::spawn(roster.run());
    if let Some(url) = &args.nats {
        let client = nats::connect(url, &shared.nats_access()?, counters.nats.clone()).await?;
        for pool in pools.iter() {
            tokio::spawn(Bridge::keep(client.clone(), pool.clone(), counters.nats.clone()));
        }
    }

    log!("relay of data center {} listens on {}", args.dc_id, args.listen);
    tokio::select! {
        served = serve(listener, tls, &args, &pools, &counters, clock) => served?,
        () = stop.told() => {}
    }
    for pool in pools.iter() {
        let _ = pool.input.send(PoolInput::Shutdown).await;
    }
    // What the pools have said last is still on its way.
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(())
}

/// Refuses options that would have no effect.
fn check(args: &Args) -> HostResult<()> {
    let ckf = args.shared.protocol == Protocol::Ckf;
    let nats_tls = args.nats.as_ref().is_some_and(|url| url.starts_with("tls://"));
    let token = args.shared.nats_token_file.is_some();
    for (given, heeded, why) in [
        (args.shared.tls.is_some(), ckf || nats_tls, "--ca: Dynamo's contract has no TLS"),
        (token, args.nats.is_some(), "--nats-token-file: without --nats there is no use for it"),
        (
            args.snapshot_progress_ms.is_some(),
            !ckf,
            "--snapshot-progress-ms: only Dynamo's contract",
        ),
    ] {
        if given && !heeded {
            return Err(why.into());
        }
    }
    Ok(())
}

/// Serves subscribers in the protocol asked for; without certificates that is Dynamo's.
async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Renewed<Arc<ServerConfig>>>>,
    args: &Args,
    pools: &Arc<Vec<PoolHandle>>,
    counters: &RelayCounters,
    clock: Clock,
) -> HostResult<()> {
    let shared = &args.shared;
    let (accepts, keep_alive) = (counters.accepts.clone(), KeepAlive::every(shared.keep_alive()));
    match tls {
        Some(tls) => {
            let service = FeedService { pools: pools.clone(), counters: counters.feed.clone() };
            feed::serve(listener, tls, service, accepts, keep_alive).await
        }
        None => {
            let mut limits = HubLimits::default();
            if let Some(heartbeat) = args.heartbeat_ms {
                limits.heartbeat = Duration::from_millis(heartbeat);
            }
            if let Some(progress) = args.snapshot_progress_ms {
                limits.snapshot_progress = Millis::new(progress);
            }
            let (model, given) = (shared.model.clone(), counters.dynamo.clone());
            let relay = DynamoRelay::start(pools, draw(), model, limits, clock, given);
            relay.serve(listener, accepts, keep_alive).await
        }
    }
}

/// The sources of the flags. Read here, and not by clap, which would repeat secrets that do not belong
/// there.
fn fixed_sources(texts: &[String]) -> HostResult<BTreeSet<SourceSpec>> {
    let mut sources = BTreeSet::new();
    for text in texts {
        if !sources.insert(text.parse().context("--source")?) {
            return Err("--source: one given twice".into());
        }
    }
    Ok(sources)
}

fn start_pools(args: &Args, clock: Clock) -> HostResult<Vec<PoolHandle>> {
    let shared = &args.shared;
    let format = shared.format()?;
    let incarnation = Incarnation::new(draw());
    let names = BTreeSet::from_iter(&args.pools);
    if names.len() < args.pools.len() {
        return Err("--pool: a name given twice".into());
    }
    // Dynamo's subscribers hear heartbeats of their own; those here keep what is between alive.
    let ours = args.heartbeat_ms.filter(|_| shared.protocol == Protocol::Ckf);
    let heartbeat = Millis::new(ours.unwrap_or(2000));
    let start = |name: &String| {
        let plan = PoolPlan {
            name: name.clone(),
            id: shared.names(name).pool_id(args.dc_id),
            format,
            block_size: shared.block_size,
            batch: Millis::new(args.batch_ms),
            ready_limit: Millis::new(args.ready_ms),
            heartbeat,
            incarnation,
        };
        PoolHandle::start(plan, clock).context(format_args!("pool {name}"))
    };
    args.pools.iter().map(start).collect()
}
