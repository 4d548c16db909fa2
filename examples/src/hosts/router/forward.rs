//! Sending a request on, and failing over while nothing has reached the client yet.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{Endpoint, PoolRouter};
use crate::hosts::http::post;

/// How long an endpoint that failed is tried last, in milliseconds.
const SHUN: u64 = 2000;

/// One endpoint of one data center, by index.
pub type Candidate = (usize, usize);

/// Tries the candidates in order until one begins an answer, and passes that on piece by piece.
pub async fn forward(router: Arc<PoolRouter>, candidates: Vec<Candidate>, body: Bytes) -> Response {
    let nobody = candidates.is_empty();
    for (dc, endpoint) in shunned_last(&router, candidates) {
        let endpoint = router.dcs[dc].endpoints[endpoint].clone();
        let under_way = UnderWay::new(endpoint.clone());
        match begin(&router, &endpoint, body.clone()).await {
            Some(begun) => {
                router.dcs[dc].answered.up();
                let id = HeaderValue::from(router.dcs[dc].spec.id);
                let mut response = begun.into_response(router, under_way);
                response.headers_mut().insert("x-ckf-dc", id);
                return response;
            }
            None => {
                router.counters.failovers.up();
                let until = router.clock.now().as_millis() + SHUN;
                endpoint.shunned_until.store(until, Ordering::Relaxed);
            }
        }
    }
    router.counters.failed.up();
    if nobody {
        return (StatusCode::SERVICE_UNAVAILABLE, "no data center serves this now\n")
            .into_response();
    }
    (StatusCode::BAD_GATEWAY, "no endpoint answers\n").into_response()
}

/// Endpoints that failed a moment ago are the last resort, not gone.
fn shunned_last(router: &PoolRouter, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let now = router.clock.now().as_millis();
    candidates.sort_by_key(|&(dc, endpoint)| {
        router.dcs[dc].endpoints[endpoint].shunned_until.load(Ordering::Relaxed) > now
    });
    candidates
}

/// An answer whose first piece is there.
struct Begun {
    status: StatusCode,
    kind: Option<HeaderValue>,
    first: Bytes,
    rest: Incoming,
}

/// `None` when the endpoint refuses, fails, or is silent: before the first piece, all of that is
/// still curable.
async fn begin(router: &PoolRouter, endpoint: &Endpoint, body: Bytes) -> Option<Begun> {
    let url = format!("{}/v1/completions", endpoint.url);
    let answer = post(&router.client, &url, body, router.patience).await.ok()?;
    let (head, mut rest) = answer.into_parts();
    if head.status.is_server_error() || head.status == StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let kind = head.headers.get(header::CONTENT_TYPE).cloned();
    let first = piece(&mut rest, router).await?.unwrap_or_default();
    Some(Begun { status: head.status, kind, first, rest })
}

/// The next piece; `Some(None)` at the end, `None` when the answer breaks off or pauses too long.
async fn piece(body: &mut Incoming, router: &PoolRouter) -> Option<Option<Bytes>> {
    loop {
        match tokio::time::timeout(router.patience, body.frame()).await.ok()? {
            None => return Some(None),
            Some(frame) => {
                if let Ok(data) = frame.ok()?.into_data() {
                    return Some(Some(data));
                }
            }
        }
    }
}

impl Begun {
    fn into_response(self, router: Arc<PoolRouter>, under_way: UnderWay) -> Response {
        let state = (Some(self.first), self.rest, router, under_way);
        let pieces = stream::unfold(state, |(first, mut rest, router, under_way)| async move {
            let data = match first {
                Some(first) => first,
                None => match piece(&mut rest, &router).await {
                    Some(data) => data?,
                    None => {
                        router.counters.broken.up();
                        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
                        // The connection is cut, so that the client does not take it for an end.
                        return Some((Err(broken), (None, rest, router, under_way)));
                    }
                },
            };
            Some((Ok(data), (None, rest, router, under_way)))
        });
        let mut response = (self.status, Body::from_stream(pieces)).into_response();
        if let Some(kind) = self.kind {
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        response
    }
}

/// Counts a request on an endpoint for as long as it lives.
struct UnderWay(Arc<Endpoint>);

impl UnderWay {
    fn new(endpoint: Arc<Endpoint>) -> Self {
        endpoint.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(endpoint)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
