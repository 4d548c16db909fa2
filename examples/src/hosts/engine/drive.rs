//! A client that sends a trace through a router, and a judge of the router's picture.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ckf_core::BlockHash;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::hosts::http::{HttpClient, client, is_broken, post_whole};
use crate::hosts::identity::parse_dc;
use crate::hosts::options::block_size;
use crate::hosts::values::{self, ValueError};
use crate::hosts::{Context, HostResult};
use crate::trace::Trace;

/// Longest wait for one answer before it is tried again.
const ANSWER: Duration = Duration::from_secs(10);
/// Pause before another try.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of one answer at most.
const MAX_ANSWER: usize = 1 << 20;

/// Which part of a trace to send where.
#[derive(Clone, Debug, clap::Args)]
pub struct Drive {
    /// The router, `http://HOST:PORT`.
    #[arg(long)]
    pub router: String,
    /// The trace.
    #[arg(long)]
    pub trace: std::path::PathBuf,
    /// First request.
    #[arg(long, default_value_t = 0)]
    pub skip: usize,
    /// How many requests.
    #[arg(long, default_value_t = 400, value_parser = count())]
    pub requests: u32,
    /// Requests under way at one time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub concurrency: u32,
    /// Tokens of one block.
    #[arg(long, default_value = "16", value_parser = block_size)]
    pub block_size: NonZeroU32,
    /// How long a request is tried before it counts as failed, in seconds.
    #[arg(long, default_value_t = 30, value_parser = seconds())]
    pub patience: u64,
}

/// So many of something: at least one.
pub fn count() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// A span in seconds: at most a day.
fn seconds() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(..=86_400)
}

/// What came of it.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Requests sent.
    pub requests: u64,
    /// Requests without an answer.
    pub failed: u64,
    /// Tries beyond the first.
    pub retries: u64,
    /// Tries that were under way when the router broke off: sent, and not answered to the end.
    pub cut: u64,
    /// Blocks of all prompts.
    pub blocks: u64,
    /// Of these, leading ones that the engine held.
    pub hits: u64,
    /// The same in per cent.
    pub hit_rate: f64,
    /// Answers by engine.
    pub engines: BTreeMap<String, u64>,
}

impl Drive {
    /// Sends the requests in the order of the trace.
    ///
    /// # Errors
    /// A trace that cannot be read.
    pub async fn run(&self) -> HostResult<Summary> {
        let client = client(Duration::from_secs(1));
        let router = url_of(&self.router).context("--router")?;
        let places = Arc::new(Semaphore::new(self.concurrency as usize));
        let mut tasks = JoinSet::new();
        for prompt in self.prompts()? {
            let place = places.clone().acquire_owned().await?;
            let (client, url) = (client.clone(), format!("{router}/v1/completions"));
            let patience = Duration::from_secs(self.patience);
            tasks.spawn(async move {
                let answer = ask(&client, &url, &prompt, patience).await;
                drop(place);
                answer
            });
        }
        let mut summary = Summary::default();
        while let Some(answer) = tasks.join_next().await {
            let (tries, usage) = answer?;
            summary.requests += 1;
            summary.retries += tries.retries;
            summary.cut += tries.cut;
            match usage {
                Some(usage) => {
                    summary.blocks += usage["blocks"].as_u64().unwrap_or(0);
                    summary.hits += usage["hits"].as_u64().unwrap_or(0);
                    let engine = usage["engine"].as_str().unwrap_or("?").to_owned();
                    *summary.engines.entry(engine).or_default() += 1;
                }
                None => summary.failed += 1,
            }
        }
        let rate = summary.hits as f64 / summary.blocks.max(1) as f64;
        summary.hit_rate = (rate * 1000.0).round() / 10.0;
        Ok(summary)
    }

    /// The prompts of the trace. Its blocks have no tokens of their own: they are made up from the
    /// blocks' sequence hashes, so that equal prefixes, and only those, have equal tokens.
    fn prompts(&self) -> HostResult<Vec<Vec<u32>>> {
        let size = u64::from(self.block_size.get());
        let tokens = |hash: BlockHash| {
            (0..size).map(move |i| xxh3_64_with_seed(&hash.get().to_le_bytes(), i) as u32 >> 8)
        };
        let prompt = |request: Result<crate::trace::Request, _>| {
            Ok(request?.blocks.into_iter().flat_map(tokens).collect())
        };
        let requests = Trace::open(&self.trace, 0)?.skip(self.skip);
        requests.take(self.requests as usize).map(prompt).collect()
    }
}

/// How one request went.
#[derive(Default)]
struct Tries {
    retries: u64,
    cut: u64,
}

/// One request, tried until it is answered to the last piece.
async fn ask(
    client: &HttpClient,
    url: &str,
    prompt: &[u32],
    patience: Duration,
) -> (Tries, Option<Value>) {
    let body =
        Bytes::from(json!({ "prompt": prompt, "max_tokens": 4, "stream": true }).to_string());
    let started = Instant::now();
    let mut tries = Tries::default();
    loop {
        match post_whole(client, url, body.clone(), ANSWER, MAX_ANSWER).await {
            Ok(answer) => match usage(&answer) {
                Some(usage) => return (tries, Some(usage)),
                None => tries.cut += 1,
            },
            Err(error) if is_broken(&error) => tries.cut += 1,
            Err(_) => {}
        }
        if started.elapsed() > patience {
            return (tries, None);
        }
        tries.retries += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// What the engine said at the end of a streamed answer that is complete.
fn usage(answer: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(answer).ok()?;
    let mut events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let usage = events.clone().filter_map(|event| serde_json::from_str::<Value>(event).ok());
    let usage =
        usage.map(|mut event| event["usage"]["ckf"].take()).rfind(|usage| !usage.is_null())?;
    (events.next_back() == Some("[DONE]")).then_some(usage)
}

/// Compares a router's depths with what the engines of each data center hold.
#[derive(Clone, Debug, clap::Args)]
pub struct Verify {
    #[command(flatten)]
    drive: Drive,
    /// An engine, as `DC=http://HOST:PORT`.
    #[arg(long = "engine", required = true)]
    engines: Vec<String>,
    /// How long the two may differ, in seconds.
    #[arg(long, default_value_t = 20, value_parser = seconds())]
    within: u64,
}

/// Where prompts go: addresses are read here, and not by clap, which would repeat secrets that do not
/// belong there.
fn url_of(text: &str) -> Result<String, ValueError> {
    values::url(text, &["http"])
}

fn engine_of(text: &str) -> Result<(u64, String), ValueError> {
    let (dc, url) = text.split_once('=').ok_or(ValueError::Url)?;
    Ok((parse_dc(dc)?, url_of(url)?))
}

impl Verify {
    /// Returns the number of depths compared once all are equal.
    ///
    /// # Errors
    /// The first difference that stayed.
    pub async fn run(&self) -> HostResult<usize> {
        let client = client(Duration::from_secs(1));
        let router = url_of(&self.drive.router).context("--router")?;
        let engines = self.engines.iter().map(|text| engine_of(text));
        let engines = engines.collect::<Result<Vec<_>, _>>().context("--engine")?;
        let prompts = self.drive.prompts()?;
        let until = Instant::now() + Duration::from_secs(self.within);
        loop {
            match compare(&client, &router, &engines, &prompts).await {
                Ok(compared) => return Ok(compared),
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

async fn compare(
    client: &HttpClient,
    router: &str,
    engines: &[(u64, String)],
    prompts: &[Vec<u32>],
) -> HostResult<usize> {
    let mut compared = 0;
    for prompt in prompts {
        let body = Bytes::from(json!({ "prompt": prompt }).to_string());
        let mut held: BTreeMap<u64, Vec<bool>> = BTreeMap::new();
        for (dc, url) in engines {
            let answer = fetch(client, &format!("{url}/debug/blocks"), body.clone()).await?;
            let more: Vec<bool> = serde_json::from_value(answer["held"].clone())?;
            let union = held.entry(*dc).or_insert_with(|| vec![false; more.len()]);
            union.iter_mut().zip(more).for_each(|(union, more)| *union |= more);
        }
        let route = fetch(client, &format!("{router}/v1/route"), body).await?;
        for (dc, held) in held {
            let exact = held.iter().take_while(|&&held| held).count() as u64;
            let told = route["depths"][dc.to_string()].as_u64();
            if told != Some(exact) {
                return Err(format!(
                    "data center {dc}: the router says {told:?}, the engines hold {exact}"
                )
                .into());
            }
            compared += 1;
        }
    }
    Ok(compared)
}

async fn fetch(client: &HttpClient, url: &str, body: Bytes) -> HostResult<Value> {
    Ok(serde_json::from_slice(&post_whole(client, url, body, ANSWER, MAX_ANSWER).await?)?)
}
