//! Stands in for an inference engine: `serve` publishes block events as vLLM does, `drive` sends a
//! trace through a router, `verify` compares the router's picture with the engines', `certs` makes
//! certificates to try it with.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ckf_examples::hosts::engine::Engine;
use ckf_examples::hosts::engine::drive::{Drive, Verify, count};
use ckf_examples::hosts::engine::publisher::Publisher;
use ckf_examples::hosts::engine::serve::Service;
use ckf_examples::hosts::options;
use ckf_examples::hosts::stop::Stop;
use ckf_examples::hosts::{self, Context, HostResult, certs, draw, http, values};
use ckf_examples::log;
use clap::{Parser, Subcommand};
use tokio::net::TcpListener;

/// How long answers under way may take to end once the engine is told to.
const DRAIN: Duration = Duration::from_secs(30);

/// An engine without a model, and a client to go with it.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Answers prompts and publishes block events.
    Serve(Serve),
    /// Sends a trace through a router and prints hit rates.
    Drive(Drive),
    /// Waits until a router's depths equal what the engines hold.
    Verify(Verify),
    /// Writes certificates for the loopback addresses.
    Certs {
        /// Where to.
        folder: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Serve {
    /// Where prompts come in.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Where events are published.
    #[arg(long, value_name = "ADDR")]
    events: SocketAddr,
    /// Where past events are asked for; without it, nobody can ask.
    #[arg(long, value_name = "ADDR")]
    replay: Option<SocketAddr>,
    /// Name in answers.
    #[arg(long, default_value = "engine", value_parser = values::name)]
    name: String,
    /// Topic of events.
    #[arg(long, default_value = "kv@engine@sim", value_parser = values::name)]
    topic: String,
    /// Blocks that the cache holds.
    #[arg(long, default_value_t = 6000, value_parser = count())]
    capacity: u32,
    /// Tokens of one block.
    #[arg(long, default_value = "16", value_parser = options::block_size)]
    block_size: NonZeroU32,
    /// Rank in event batches.
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// Milliseconds per token made up.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=60_000))]
    token_ms: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    hosts::exit(run(Args::parse()).await)
}

async fn run(args: Args) -> HostResult<()> {
    match args.what {
        What::Certs { folder } => certs::write(&folder),
        What::Drive(drive) => {
            let summary = drive.run().await?;
            println!("{}", serde_json::to_string(&summary)?);
            if summary.failed > 0 { Err("requests without an answer".into()) } else { Ok(()) }
        }
        What::Verify(verify) => {
            println!("{} depths equal", verify.run().await?);
            Ok(())
        }
        What::Serve(args) => {
            let stop = Stop::on_signal()?;
            let block_size = args.block_size.get() as usize;
            let engine = Engine::new(args.capacity as usize, block_size, args.rank, draw());
            let publisher = Publisher::bind(args.events, args.replay, args.topic).await?;
            let service =
                Service::new(engine, publisher, args.name, Duration::from_millis(args.token_ms));
            let listener = TcpListener::bind(args.listen).await.context("--listen")?;
            log!("engine listens on {}", listener.local_addr()?);
            let routes = service.router();
            match http::serve_until(listener, routes, 256, Arc::default(), stop, DRAIN).await {
                0 => Ok(()),
                cut => Err(format!("{cut} connections are cut").into()),
            }
        }
    }
}
