//! One process per data center: engines' KV events in, filter updates out.
//!
//! ```text
//! relay --dc-id 1 --listen 127.0.0.1:7000 --admin 127.0.0.1:7001 \
//!       --ca ca.pem --cert relay.pem --key relay.key \
//!       --source 'zmq://127.0.0.1:5557?worker=1&replay=5558'
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ckf_core::Sizing;
use ckf_examples::hosts::clock::Clock;
use ckf_examples::hosts::dynamo::serve::DynamoRelay;
use ckf_examples::hosts::identity::{PoolNames, parse_dc};
use ckf_examples::hosts::listen::AcceptCounters;
use ckf_examples::hosts::nats::bridge::Bridge;
use ckf_examples::hosts::relay::PoolPlan;
use ckf_examples::hosts::relay::admin::Admin;
use ckf_examples::hosts::relay::feed::{self, FeedCounters, FeedService, KeepAlive};
use ckf_examples::hosts::relay::pool::{PoolHandle, PoolInput};
use ckf_examples::hosts::relay::sources::Roster;
use ckf_examples::hosts::source::spec::{DEFAULT_POOL, SourceSpec};
use ckf_examples::hosts::tls::TlsFiles;
use ckf_examples::hosts::{HostResult, draw, dynamo, http, nats};
use ckf_examples::log;
use ckf_protocol::{Incarnation, Millis};
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Turns the KV events of one data center's engines into filter updates for routers elsewhere.
#[derive(Debug, Parser)]
struct Args {
    /// The data center: a number that never changes, or a name.
    #[arg(long, value_name = "ID")]
    dc_id: String,
    /// Where subscribers connect.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Where /healthz, /readyz and /metrics are.
    #[arg(long, value_name = "ADDR")]
    admin: SocketAddr,
    /// What subscribers speak. Dynamo's contract has no TLS of its own.
    #[arg(long, value_enum, default_value_t = Protocol::Ckf)]
    protocol: Protocol,
    #[command(flatten)]
    tls: Option<TlsFiles>,
    /// A NATS server to publish to as well: nats://HOST:PORT, or tls:// with the certificates.
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// An engine: zmq://HOST:PORT?worker=N&rank=N&replay=PORT&pool=NAME
    #[arg(long = "source", value_name = "URL")]
    sources: Vec<SourceSpec>,
    /// A file with more of them, one a line, that may change at any time.
    #[arg(long, value_name = "FILE")]
    sources_file: Option<PathBuf>,
    /// Names of the pools.
    #[arg(long = "pool", value_name = "NAME", default_value = DEFAULT_POOL)]
    pools: Vec<String>,
    /// What makes caches comparable; routers must name the same.
    #[arg(long, default_value = "sim")]
    model: String,
    /// Tokens of one block.
    #[arg(long, default_value = "16")]
    block_size: NonZeroU32,
    /// Blocks that a pool is made for.
    #[arg(long, default_value_t = 1_000_000)]
    blocks: u64,
    /// Seed of the filter; routers must name the same.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// How often changes go out, in milliseconds.
    #[arg(long, default_value_t = 20)]
    batch_ms: u64,
    /// Silence after which subscribers hear a heartbeat, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    heartbeat_ms: u64,
    /// After how long a pool is ready although engines are missing, in milliseconds.
    #[arg(long, default_value_t = 5000)]
    ready_ms: u64,
    /// How often silent subscribers are pinged, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    keepalive_ms: u64,
    /// Adds /debug/pools to the admin address.
    #[arg(long)]
    diagnosis: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Protocol {
    Ckf,
    Dynamo,
}

#[tokio::main]
async fn main() -> HostResult<()> {
    let args = Args::parse();
    let clock = Clock::start();
    let pools = Arc::new(start_pools(&args, clock)?);
    let mut roster = Roster {
        pools: pools.clone(),
        clock,
        fixed: BTreeSet::from_iter(args.sources.iter().cloned()),
        file: args.sources_file.clone(),
        watched: Arc::new(Mutex::new(BTreeMap::new())),
    };
    roster.start().await;

    let accepts = Arc::new(AcceptCounters::default());
    let counters = Arc::new(FeedCounters::default());
    let admin = Admin {
        pools: pools.clone(),
        watched: roster.watched.clone(),
        accepts: accepts.clone(),
        feed: counters.clone(),
        clock,
    };
    let admin_listener = TcpListener::bind(args.admin).await?;
    tokio::spawn(http::serve(admin_listener, admin.router(args.diagnosis), 32));
    tokio::spawn(roster.run());

    if let Some(url) = &args.nats {
        let client = nats::connect(url, args.tls.as_ref()).await?;
        for pool in pools.iter() {
            tokio::spawn(Bridge::new(client.clone(), pool.clone()).run());
        }
    }

    let keep_alive = KeepAlive {
        interval: Duration::from_millis(args.keepalive_ms),
        timeout: Duration::from_millis(args.keepalive_ms / 2),
    };
    let listener = TcpListener::bind(args.listen).await?;
    let server = async {
        match args.protocol {
            Protocol::Ckf => {
                let tls = args.tls.as_ref().ok_or("--ca, --cert and --key are needed")?.server()?;
                let service = FeedService { pools: pools.clone(), counters };
                feed::serve(listener, tls, service, accepts, keep_alive).await
            }
            Protocol::Dynamo => {
                let relay = DynamoRelay::start(&pools, draw(), args.model.clone(), clock);
                relay.serve(listener, accepts, keep_alive).await
            }
        }
    };
    log!("relay of data center {} listens on {}", args.dc_id, args.listen);

    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        served = server => served?,
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    for pool in pools.iter() {
        let _ = pool.input.send(PoolInput::Shutdown).await;
    }
    // What the pools have said last is still on its way.
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(())
}

fn start_pools(args: &Args, clock: Clock) -> HostResult<Vec<PoolHandle>> {
    let format = match args.protocol {
        Protocol::Ckf => Sizing::for_blocks(args.blocks, 600)?.format(args.seed)?,
        Protocol::Dynamo => dynamo::format_for(args.blocks)?,
    };
    let incarnation = Incarnation::new(draw());
    let plan = |name: &String| {
        let names = PoolNames {
            model: args.model.clone(),
            block_size: args.block_size.get(),
            pool: name.clone(),
        };
        PoolPlan {
            name: name.clone(),
            id: names.pool_id(parse_dc(&args.dc_id)),
            format,
            block_size: args.block_size,
            batch: Millis::new(args.batch_ms),
            ready_limit: Millis::new(args.ready_ms),
            heartbeat: Millis::new(args.heartbeat_ms),
            incarnation,
        }
    };
    args.pools.iter().map(|name| PoolHandle::start(plan(name), clock)).collect()
}
