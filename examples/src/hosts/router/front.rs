//! The front of the router: OpenAI-compatible completions, and the reasons on request.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use ckf_core::BlockHash;
use ckf_core::sequence::Scope;
use ckf_protocol::Lane;
use serde_json::json;

use super::choose::{View, order, prefer};
use super::forward::{Candidate, forward};
use super::prompt::{self, Asked};
use super::refusal::Refusal;
use super::{PoolRouter, Router};
use crate::hosts::bodies::Body;
use crate::hosts::lock;

/// Bytes of a request at most.
const MAX_BODY: usize = 4 << 20;
/// Blocks of a request's prompts that are looked up at most.
const MAX_BLOCKS: usize = 1 << 16;

/// The routes.
pub fn routes(router: Arc<Router>) -> axum::Router {
    axum::Router::new()
        .route("/v1/completions", post(complete))
        .route("/v1/route", post(route))
        .method_not_allowed_fallback(|| async { Refusal::Method })
        .fallback(|| async { Refusal::NoPage })
        .with_state(router)
}

/// A request, and the pool that it is for.
struct Incoming {
    pool: Arc<PoolRouter>,
    prompts: Vec<Vec<u32>>,
    headers: HeaderMap,
    body: Body,
}

/// Where a request goes, and why.
struct Plan {
    candidates: Vec<Candidate>,
    views: Vec<View>,
    blocks: usize,
}

async fn read(router: &Router, request: Request) -> Result<Incoming, Refusal> {
    let incoming = async {
        if request.headers().contains_key(CONTENT_ENCODING) {
            return Err(Refusal::Body(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let headers = request.headers().clone();
        let body = router.bodies.read(request, MAX_BODY).await.map_err(Refusal::body)?;
        let Asked { prompts, model } = prompt::read(&body.bytes)?;
        let pool = router.pool(model.as_deref())?.clone();
        Ok(Incoming { pool, prompts, headers, body })
    };
    incoming.await.inspect_err(|refusal| {
        // Those that there was no room for are counted where the room is.
        if refusal.is_bad_request() {
            router.counters.bad.up();
        }
    })
}

impl PoolRouter {
    /// Prompts of one request go to one engine together, so their depths count together.
    fn plan(&self, prompts: &[Vec<u32>]) -> Plan {
        let query = lock(&self.query).clone();
        let mut depths = vec![Some(0); self.dcs.len()];
        let (mut blocks, mut conversation) = (0, 0);
        for (number, prompt) in prompts.iter().enumerate() {
            let hashes = Scope::default().block_hashes(prompt, self.block_size);
            let hashes: Vec<BlockHash> = hashes.take(MAX_BLOCKS - blocks).collect();
            blocks += hashes.len();
            let matches = query.as_ref().map(|query| query.find_prefix(&hashes));
            for (lane, sum) in depths.iter_mut().enumerate() {
                let depth =
                    Lane::new(lane as u8).ok().and_then(|lane| matches.as_ref()?.depth(lane));
                *sum = sum.zip(depth).map(|(sum, depth)| sum + depth as usize);
            }
            if number == 0 {
                // The second block tells conversations apart where the first one is a common preamble.
                conversation = hashes.get(1).or(hashes.first()).map_or(0, |hash| hash.get());
            }
        }
        let view = |(dc, depth): (&super::Dc, Option<usize>)| View {
            depth,
            in_flight: dc.in_flight(),
            endpoints: dc.endpoints.len(),
            cost: dc.spec.cost,
            kv: dc.serving.read().kv,
            serving: dc.serving.read().ready != Some(false),
        };
        let views: Vec<View> = self.dcs.iter().zip(depths).map(view).collect();
        let candidates = order(&views, blocks).into_iter().flat_map(|dc| {
            let urls = self.dcs[dc].endpoints.iter().map(|endpoint| endpoint.url.as_str());
            prefer(urls, conversation).into_iter().map(move |endpoint| (dc, endpoint))
        });
        Plan { candidates: candidates.collect(), views, blocks }
    }
}

async fn complete(
    State(router): State<Arc<Router>>,
    request: Request,
) -> Result<Response, Refusal> {
    let Incoming { pool, prompts, headers, body } = read(&router, request).await?;
    let plan = pool.plan(&prompts);
    let counters = &pool.counters;
    if plan.views.iter().any(|view| view.depth.is_some()) {
        counters.by_depth.up();
    } else {
        counters.by_load.up();
    }
    let depth = plan.candidates.first().and_then(|&(dc, _)| plan.views[dc].depth).unwrap_or(0);
    let class = (usize::BITS - depth.leading_zeros()) as usize;
    counters.depths[class.min(counters.depths.len() - 1)].up();
    // Takes its room until an answer has begun: then nobody needs it again.
    forward(pool, plan.candidates, headers, body.bytes.clone()).await
}

/// Only says where and why.
async fn route(State(router): State<Arc<Router>>, request: Request) -> Result<Response, Refusal> {
    let Incoming { pool, prompts, .. } = read(&router, request).await?;
    let plan = pool.plan(&prompts);
    let depths: BTreeMap<u64, Option<usize>> =
        pool.dcs.iter().zip(&plan.views).map(|(dc, view)| (dc.spec.id, view.depth)).collect();
    let first = plan.candidates.first().map(|&(dc, endpoint)| {
        let dc = &pool.dcs[dc];
        json!({ "dc": dc.spec.id, "name": dc.spec.name, "endpoint": dc.endpoints[endpoint].url })
    });
    let why =
        if depths.values().any(Option::is_some) { "depth, load and cost" } else { "load and cost" };
    let answer = json!({ "pool": pool.name, "to": first, "why": why, "blocks": plan.blocks, "depths": depths });
    Ok(Json(answer).into_response())
}
