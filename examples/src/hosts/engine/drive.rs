//! A client that sends a trace through a router, and a judge of the router's picture.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::hosts::HostResult;
use crate::hosts::http::{HttpClient, client, post_whole};
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
    #[arg(long, default_value_t = 400)]
    pub requests: usize,
    /// Requests under way at one time.
    #[arg(long, default_value_t = 4)]
    pub concurrency: usize,
    /// Tokens of one block.
    #[arg(long, default_value_t = 16)]
    pub block_size: usize,
    /// How long a request is tried before it counts as failed, in seconds.
    #[arg(long, default_value_t = 30)]
    pub patience: u64,
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
        let places = Arc::new(Semaphore::new(self.concurrency.max(1)));
        let mut tasks = JoinSet::new();
        for prompt in prompts(&self.trace, self.skip, self.requests, self.block_size)? {
            let place = places.clone().acquire_owned().await?;
            let (client, url) = (client.clone(), format!("{}/v1/completions", self.router));
            let patience = Duration::from_secs(self.patience);
            tasks.spawn(async move {
                let answer = ask(&client, &url, &prompt, patience).await;
                drop(place);
                answer
            });
        }
        let mut summary = Summary::default();
        while let Some(answer) = tasks.join_next().await {
            let (retries, usage) = answer?;
            summary.requests += 1;
            summary.retries += retries;
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
}

/// One request, tried until it is answered to the last piece.
async fn ask(
    client: &HttpClient,
    url: &str,
    prompt: &[u32],
    patience: Duration,
) -> (u64, Option<Value>) {
    let body =
        Bytes::from(json!({ "prompt": prompt, "max_tokens": 4, "stream": true }).to_string());
    let started = Instant::now();
    let mut retries = 0;
    loop {
        if let Ok(answer) = post_whole(client, url, body.clone(), ANSWER, MAX_ANSWER).await
            && let Some(usage) = usage(&answer)
        {
            return (retries, Some(usage));
        }
        if started.elapsed() > patience {
            return (retries, None);
        }
        retries += 1;
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

/// The prompts of a trace. Its blocks have no tokens of their own: they are made up from the
/// blocks' sequence hashes, so that equal prefixes, and only those, have equal tokens.
///
/// # Errors
/// A trace that cannot be read.
pub fn prompts(
    trace: &Path,
    skip: usize,
    requests: usize,
    block_size: usize,
) -> HostResult<Vec<Vec<u32>>> {
    let tokens = |hash: ckf_core::BlockHash| {
        (0..block_size as u64)
            .map(move |i| xxh3_64_with_seed(&hash.get().to_le_bytes(), i) as u32 >> 8)
    };
    let prompt = |request: Result<crate::trace::Request, _>| {
        Ok(request?.blocks.into_iter().flat_map(tokens).collect())
    };
    Trace::open(trace, 0)?.skip(skip).take(requests).map(prompt).collect()
}

/// Compares a router's depths with what the engines of each data center hold.
#[derive(Clone, Debug, clap::Args)]
pub struct Verify {
    #[command(flatten)]
    drive: Drive,
    /// An engine, as `DC=http://HOST:PORT`.
    #[arg(long = "engine", value_parser = engine_of)]
    engines: Vec<(u64, String)>,
    /// How long the two may differ, in seconds.
    #[arg(long, default_value_t = 20)]
    within: u64,
}

fn engine_of(text: &str) -> Result<(u64, String), String> {
    let (dc, url) = text.split_once('=').ok_or("not DC=URL")?;
    Ok((dc.parse().map_err(|_| "not a number")?, url.to_owned()))
}

impl Verify {
    /// Returns the number of depths compared once all are equal.
    ///
    /// # Errors
    /// The first difference that stayed.
    pub async fn run(&self) -> HostResult<usize> {
        let client = client(Duration::from_secs(1));
        let drive = &self.drive;
        let prompts = prompts(&drive.trace, drive.skip, drive.requests, drive.block_size)?;
        let until = Instant::now() + Duration::from_secs(self.within);
        loop {
            match self.compare(&client, &prompts).await {
                Ok(compared) => return Ok(compared),
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn compare(&self, client: &HttpClient, prompts: &[Vec<u32>]) -> HostResult<usize> {
        let mut compared = 0;
        for prompt in prompts {
            let body = Bytes::from(json!({ "prompt": prompt }).to_string());
            let mut held: BTreeMap<u64, Vec<bool>> = BTreeMap::new();
            for (dc, url) in &self.engines {
                let answer = fetch(client, &format!("{url}/debug/blocks"), body.clone()).await?;
                let more: Vec<bool> = serde_json::from_value(answer["held"].clone())?;
                let union = held.entry(*dc).or_insert_with(|| vec![false; more.len()]);
                union.iter_mut().zip(more).for_each(|(union, more)| *union |= more);
            }
            let url = format!("{}/v1/route", self.drive.router);
            let route = fetch(client, &url, body).await?;
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
}

async fn fetch(client: &HttpClient, url: &str, body: Bytes) -> HostResult<Value> {
    Ok(serde_json::from_slice(&post_whole(client, url, body, ANSWER, MAX_ANSWER).await?)?)
}
