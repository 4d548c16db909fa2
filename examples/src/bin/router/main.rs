//! One process per region: an OpenAI-compatible front that sends each prompt to the data center
//! that holds most of it.
//!
//! ```text
//! router --listen 127.0.0.1:8000 --admin 127.0.0.1:8001 \
//!        --ca ca.pem --cert router.pem --key router.key \
//!        --dc id=1,relay=https://127.0.0.1:7000,endpoint=http://127.0.0.1:9000
//! ```

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ckf_consumer::{Consumer, ConsumerConfig, SessionConfig, SessionTimes};
use ckf_core::{Format, Sizing};
use ckf_examples::hosts::clock::Clock;
use ckf_examples::hosts::dynamo::client::DynamoLink;
use ckf_examples::hosts::identity::PoolNames;
use ckf_examples::hosts::nats::bind::NatsLink;
use ckf_examples::hosts::router::lane::{self, LaneBoard};
use ckf_examples::hosts::router::link::{Link, channel};
use ckf_examples::hosts::router::spec::DcSpec;
use ckf_examples::hosts::router::{Dc, Endpoint, RequestCounters, Router, front, status};
use ckf_examples::hosts::source::spec::DEFAULT_POOL;
use ckf_examples::hosts::tls::TlsFiles;
use ckf_examples::hosts::{HostResult, draw, http, nats};
use ckf_examples::log;
use ckf_protocol::{ConsumerId, DcId, IndexerDomainId, Limits, Manifest, Millis};
use clap::Parser;
use tokio::net::TcpListener;

/// Sends each prompt to the data center that holds most of it.
#[derive(Debug, Parser)]
struct Args {
    /// Where prompts come in.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Where /status, /metrics, /healthz and /readyz are.
    #[arg(long, value_name = "ADDR")]
    admin: SocketAddr,
    /// What the relays speak. With Dynamo's contract, domain and format come from the first relay.
    #[arg(long, value_enum, default_value_t = Protocol::Ckf)]
    protocol: Protocol,
    #[command(flatten)]
    tls: Option<TlsFiles>,
    /// A data center: id=N,relay=URL,endpoint=URL[,endpoint=URL...][,cost=BLOCKS]
    #[arg(long = "dc", required = true, value_name = "SPEC")]
    dcs: Vec<DcSpec>,
    /// Name of the pool, the same in all data centers.
    #[arg(long, default_value = DEFAULT_POOL)]
    pool: String,
    /// What makes caches comparable, as the relays name it.
    #[arg(long, default_value = "sim")]
    model: String,
    /// Tokens of one block.
    #[arg(long, default_value = "16")]
    block_size: NonZeroU32,
    /// Blocks that the pools are made for, as the relays have it.
    #[arg(long, default_value_t = 1_000_000)]
    blocks: u64,
    /// Seed of the filters, as the relays have it.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Silence after which a lane is retired, in milliseconds; several heartbeats of the relays.
    #[arg(long, default_value_t = 10_000)]
    silence_ms: u64,
    /// How often silent relays are pinged, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    keepalive_ms: u64,
    /// How long an endpoint may take to begin an answer, or pause in it, in milliseconds.
    #[arg(long, default_value_t = 30_000)]
    patience_ms: u64,
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
    let mut links = Vec::new();
    for dc in &args.dcs {
        links.push(link(&args, &dc.relay).await?);
    }
    let (domain, format) = agreed(&args, &links[0]).await?;
    let manifest = args
        .dcs
        .iter()
        .fold(Manifest::builder(domain, format), |manifest, dc| manifest.dc(DcId::new(dc.id)))
        .build()?;
    log!("joins {}", manifest.provenance());
    let times = SessionTimes { silence: Millis::new(args.silence_ms), ..SessionTimes::default() };
    let config =
        ConsumerConfig::default().with_session(SessionConfig::new(times, Limits::default())?);
    let (query, sessions) = Consumer::new(&manifest, config, ConsumerId::new(draw()))?;

    let mut dcs = Vec::new();
    for ((spec, session), link) in args.dcs.iter().zip(sessions).zip(links) {
        let board = Arc::new(LaneBoard::default());
        tokio::spawn(lane::run(session, DcId::new(spec.id), link, clock, board.clone()));
        dcs.push(Dc {
            endpoints: spec.endpoints.iter().map(|url| Arc::new(Endpoint::new(url))).collect(),
            spec: spec.clone(),
            board,
            answered: Default::default(),
        });
    }
    let router = Arc::new(Router {
        query,
        dcs,
        block_size: args.block_size.get() as usize,
        counters: RequestCounters::default(),
        client: http::client(Duration::from_secs(1)),
        patience: Duration::from_millis(args.patience_ms),
        clock,
    });
    let admin = TcpListener::bind(args.admin).await?;
    tokio::spawn(http::serve(admin, status::routes(router.clone()), 32));
    let listener = TcpListener::bind(args.listen).await?;
    log!("router listens on {}", args.listen);
    http::serve(listener, front::routes(router), 1024).await;
    Ok(())
}

async fn link(args: &Args, relay: &str) -> HostResult<Link> {
    if relay.starts_with("nats://") || relay.starts_with("tls://") {
        return Ok(Link::Nats(NatsLink::new(nats::connect(relay, args.tls.as_ref()).await?)));
    }
    let keep_alive = Duration::from_millis(args.keepalive_ms);
    match args.protocol {
        Protocol::Ckf => {
            let tls = args.tls.as_ref().ok_or("--ca, --cert and --key are needed")?;
            Link::grpc(relay, tls, keep_alive)
        }
        Protocol::Dynamo => {
            let tls = args.tls.as_ref().filter(|_| relay.starts_with("https://"));
            let name = format!("ckf-router-{:08x}", draw() as u32);
            Ok(Link::Dynamo(DynamoLink::new(channel(relay, tls, keep_alive)?, name)))
        }
    }
}

/// What all relays must have in common: from flags, or, where the relays name it, from the first.
async fn agreed(args: &Args, first: &Link) -> HostResult<(IndexerDomainId, Format)> {
    let Link::Dynamo(relay) = first else {
        let names = PoolNames {
            model: args.model.clone(),
            block_size: args.block_size.get(),
            pool: args.pool.clone(),
        };
        let format = Sizing::for_blocks(args.blocks, 600)?.format(args.seed)?;
        return Ok((names.domain(), format));
    };
    loop {
        match relay.discover(&args.model, args.block_size.get()).await {
            Ok(found) => return Ok(found),
            Err(error) => log!("{}: {error}", args.dcs[0].relay),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
