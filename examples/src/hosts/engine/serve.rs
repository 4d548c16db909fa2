//! The OpenAI-compatible front of an engine, and a look into its cache.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::stream;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Engine;
use super::publisher::Publisher;
use crate::hosts::bodies::Bodies;
use crate::hosts::lock;

/// Bytes of a request at most.
const MAX_BODY: usize = 4 << 20;
/// Bytes of all requests under way.
const ALL_BODIES: usize = 64 << 20;
/// Tokens of an answer at most.
const MAX_TOKENS: u32 = 4096;

/// An engine in service.
#[derive(Clone, Debug)]
pub struct Service {
    state: Arc<Mutex<(Engine, Publisher)>>,
    name: String,
    block_size: usize,
    token_time: Duration,
    bodies: Bodies,
}

/// What a client asks. Prompts are token ids.
#[derive(Debug, Deserialize, Serialize)]
pub struct Completion {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// Tokens to make up.
    #[serde(default = "few")]
    pub max_tokens: u32,
    /// Whether tokens are sent one by one.
    #[serde(default)]
    pub stream: bool,
}

fn few() -> u32 {
    4
}

impl Service {
    /// Serves prompts with `engine` and publishes what happens to its blocks.
    pub fn new(engine: Engine, publisher: Publisher, name: String, token_time: Duration) -> Self {
        let block_size = engine.block_size;
        let state = Arc::new(Mutex::new((engine, publisher)));
        Self { state, name, block_size, token_time, bodies: Bodies::new(ALL_BODIES) }
    }

    /// The routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/v1/completions", post(complete))
            .route("/debug/blocks", post(blocks))
            .route("/debug/clear", post(clear))
            .route("/healthz", get(|| async { "ok\n" }))
            .with_state(self)
    }
}

async fn complete(
    State(service): State<Service>,
    request: Request,
) -> Result<Response, StatusCode> {
    let completion: Completion = service.bodies.read_json(request, MAX_BODY).await?;
    let tokens = completion.max_tokens.min(MAX_TOKENS);
    let served = {
        // Numbered and published under one lock: the order of events is that of the cache.
        let (engine, publisher) = &mut *lock(&service.state);
        let mut served = engine.serve(&completion.prompt);
        if let Some(payload) = served.payload.take() {
            publisher.publish(payload);
        }
        served
    };
    let usage = json!({
        "prompt_tokens": completion.prompt.len(),
        "completion_tokens": tokens,
        "total_tokens": completion.prompt.len() + tokens as usize,
        "prompt_tokens_details": { "cached_tokens": served.hits * service.block_size },
        "ckf": { "blocks": served.blocks, "hits": served.hits, "engine": service.name },
    });
    if !completion.stream {
        tokio::time::sleep(service.token_time * tokens).await;
        let choice = json!({ "index": 0, "text": " tok".repeat(tokens as usize), "finish_reason": "length" });
        return Ok(Json(
            json!({ "object": "text_completion", "choices": [choice], "usage": usage }),
        )
        .into_response());
    }
    let pieces = stream::unfold(0, move |piece| {
        let usage = usage.clone();
        let pause = service.token_time;
        async move {
            let text = match piece {
                piece if piece < tokens => {
                    tokio::time::sleep(pause).await;
                    json!({ "choices": [{ "index": 0, "text": " tok" }] }).to_string()
                }
                piece if piece == tokens => json!({ "choices": [], "usage": usage }).to_string(),
                piece if piece == tokens + 1 => "[DONE]".to_owned(),
                _ => return None,
            };
            Some((Ok::<_, Infallible>(format!("data: {text}\n\n")), piece + 1))
        }
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((kind, Body::from_stream(pieces)).into_response())
}

/// For each block of a prompt, whether the cache holds it: the truth to compare a router with.
async fn blocks(State(service): State<Service>, request: Request) -> Result<Response, StatusCode> {
    let completion: Completion = service.bodies.read_json(request, MAX_BODY).await?;
    let (engine, publisher) = &*lock(&service.state);
    let held = engine.holds(&completion.prompt);
    let answer =
        json!({ "held": held, "blocks": engine.held(), "published": publisher.published() });
    Ok(Json(answer).into_response())
}

async fn clear(State(service): State<Service>) -> &'static str {
    let (engine, publisher) = &mut *lock(&service.state);
    publisher.publish(engine.clear());
    "cleared\n"
}
