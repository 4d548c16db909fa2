//! The front of the router: OpenAI-compatible completions, and the reasons on request.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use ckf_core::BlockHash;
use ckf_core::sequence::Scope;
use ckf_protocol::Lane;
use serde::Deserialize;
use serde_json::json;

use super::choose::{View, order, prefer};
use super::forward::{Candidate, forward};
use super::{PoolRouter, Router};
use crate::hosts::http::read_body;

/// Bytes of a request at most.
const MAX_BODY: usize = 4 << 20;
/// Blocks of a prompt that are looked up at most.
const MAX_BLOCKS: usize = 1 << 16;

/// The routes.
pub fn routes(router: Arc<Router>) -> axum::Router {
    axum::Router::new()
        .route("/v1/completions", post(complete))
        .route("/v1/route", post(route))
        .with_state(router)
}

/// Of a request, what routing needs; the rest is for the engine.
#[derive(Deserialize)]
struct Prompt {
    prompt: Vec<u32>,
    model: Option<String>,
}

/// Where a request goes, and why.
struct Plan {
    candidates: Vec<Candidate>,
    views: Vec<View>,
    blocks: usize,
}

/// A request, and the pool that it is for.
struct Asked {
    pool: Arc<PoolRouter>,
    prompt: Vec<u32>,
    body: Bytes,
}

/// Why a request is refused, in the form that clients of OpenAI's interface read.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": { "message": self.1 } }))).into_response()
    }
}

async fn read(router: &Router, request: Request) -> Result<Asked, Refusal> {
    let asked = async {
        let body = read_body(request, MAX_BODY).await;
        let body = body.map_err(|status| Refusal(status, format!("body: {status}")))?;
        let Prompt { prompt, model } = serde_json::from_slice(&body).map_err(|error| {
            let message = format!("a JSON object with a `prompt` of token ids, please: {error}");
            Refusal(StatusCode::BAD_REQUEST, message)
        })?;
        let pool = router.pool(model.as_deref()).cloned().ok_or_else(|| {
            let names: Vec<_> = router.pools.iter().map(|pool| pool.name.as_str()).collect();
            let message = format!("`model` must be one of: {}", names.join(", "));
            Refusal(StatusCode::NOT_FOUND, message)
        })?;
        Ok(Asked { pool, prompt, body })
    };
    asked.await.inspect_err(|_| router.counters.bad.up())
}

impl PoolRouter {
    fn plan(&self, prompt: &[u32]) -> Plan {
        let blocks: Vec<BlockHash> =
            Scope::default().block_hashes(prompt, self.block_size).take(MAX_BLOCKS).collect();
        let matches = self.query.find_prefix(&blocks);
        let view = |(lane, dc): (usize, &super::Dc)| View {
            depth: Lane::new(lane as u8)
                .ok()
                .and_then(|lane| matches.depth(lane))
                .map(|depth| depth as usize),
            in_flight: dc.in_flight(),
            endpoints: dc.endpoints.len(),
            cost: dc.spec.cost,
            serving: dc.serving.read().ready != Some(false),
        };
        let views: Vec<View> = self.dcs.iter().enumerate().map(view).collect();
        // The second block tells conversations apart where the first one is a common preamble.
        let conversation = blocks.get(1).or(blocks.first()).map_or(0, |hash| hash.get());
        let candidates = order(&views, blocks.len()).into_iter().flat_map(|dc| {
            let urls = self.dcs[dc].endpoints.iter().map(|endpoint| endpoint.url.as_str());
            prefer(urls, conversation).into_iter().map(move |endpoint| (dc, endpoint))
        });
        Plan { candidates: candidates.collect(), views, blocks: blocks.len() }
    }
}

async fn complete(
    State(router): State<Arc<Router>>,
    request: Request,
) -> Result<Response, Refusal> {
    let Asked { pool, prompt, body } = read(&router, request).await?;
    let plan = pool.plan(&prompt);
    let counters = &pool.counters;
    if plan.views.iter().any(|view| view.depth.is_some()) {
        counters.by_depth.up();
    } else {
        counters.by_load.up();
    }
    let depth = plan.candidates.first().and_then(|&(dc, _)| plan.views[dc].depth).unwrap_or(0);
    let class = (usize::BITS - depth.leading_zeros()) as usize;
    counters.depths[class.min(counters.depths.len() - 1)].up();
    Ok(forward(pool, plan.candidates, body).await)
}

/// Only says where and why.
async fn route(State(router): State<Arc<Router>>, request: Request) -> Result<Response, Refusal> {
    let Asked { pool, prompt, .. } = read(&router, request).await?;
    let plan = pool.plan(&prompt);
    let depths: BTreeMap<u64, Option<usize>> =
        pool.dcs.iter().zip(&plan.views).map(|(dc, view)| (dc.spec.id, view.depth)).collect();
    let first = plan.candidates.first().map(|&(dc, endpoint)| {
        let dc = &pool.dcs[dc];
        json!({ "dc": dc.spec.id, "endpoint": dc.endpoints[endpoint].url })
    });
    let why =
        if depths.values().any(Option::is_some) { "depth, load and cost" } else { "load and cost" };
    let answer = json!({ "pool": pool.name, "to": first, "why": why, "blocks": plan.blocks, "depths": depths });
    Ok(Json(answer).into_response())
}
