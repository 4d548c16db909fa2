//! Sending a request on, and failing over while nothing has reached the client yet.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::http::response::Parts;

use super::headers::{end_to_end, for_endpoint};
use super::refusal::Refusal;
use super::{Endpoint, PoolRouter};
use crate::hosts::http::{never_sent, post};

/// How long an endpoint that failed is tried last, in milliseconds: twice as long each time that it
/// fails again after that, up to a minute.
const SHUN: u64 = 2000;
/// Endpoints that may fail at one request after they took it: a request that breaks engines must not
/// go through all of them.
const MOST_BROKEN: usize = 3;

/// One endpoint of one data center, by index.
pub type Candidate = (usize, usize);

/// Tries the candidates in order until one begins an answer, and passes that on piece by piece.
///
/// # Errors
/// Nobody begins one.
pub async fn forward(
    router: Arc<PoolRouter>,
    candidates: Vec<Candidate>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let headers = for_endpoint(headers);
    let (mut refusal, mut broken) = (Refusal::NobodyServes, 0);
    for (dc, endpoint) in shunned_last(&router, candidates) {
        let endpoint = router.dcs[dc].endpoints[endpoint].clone();
        let mut under_way = UnderWay::new(router.clone(), endpoint);
        match under_way.begin(headers.clone(), body.clone()).await {
            Ok((mut head, first, rest)) => {
                under_way.endpoint.failures.store(0, Ordering::Relaxed);
                router.dcs[dc].answered.up();
                if is_unframed(&head, &rest) {
                    router.counters.unframed.up();
                    // Chunks with a clean end would promise more than anybody knows.
                    head.version = Version::HTTP_10;
                }
                return Ok(answer(head, first, rest, under_way, router.dcs[dc].spec.id));
            }
            Err(failed) => {
                under_way.failed();
                router.counters.failovers.up();
                refusal = match failed {
                    Failed::Busy if refusal != Refusal::NobodyAnswers => Refusal::AllBusy,
                    _ => Refusal::NobodyAnswers,
                };
                broken += usize::from(failed == Failed::Broken);
                if broken == MOST_BROKEN {
                    break;
                }
            }
        }
    }
    router.counters.failed.up();
    Err(refusal)
}

/// Whether the end of an answer is the end of its connection, as in HTTP/1.0: whoever reads it cannot
/// tell a whole answer from half of one.
fn is_unframed(head: &Parts, rest: &Incoming) -> bool {
    let framed = [CONTENT_LENGTH, TRANSFER_ENCODING];
    !rest.is_end_stream() && !framed.iter().any(|name| head.headers.contains_key(name))
}

/// Endpoints that failed a moment ago are the last resort, not gone.
fn shunned_last(router: &PoolRouter, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let now = router.clock.now().as_millis();
    candidates.sort_by_key(|&(dc, endpoint)| {
        router.dcs[dc].endpoints[endpoint].shunned_until.load(Ordering::Relaxed) > now
    });
    candidates
}

/// The answer for the client: what the endpoint sends, as it comes.
fn answer(head: Parts, first: Bytes, rest: Incoming, mut under_way: UnderWay, dc: u64) -> Response {
    // Nobody asks for the pieces of an answer that has none.
    under_way.over = first.is_empty() && rest.is_end_stream();
    let pieces = stream::unfold(Some((Some(first), rest, under_way)), |state| async move {
        let (first, mut rest, mut under_way) = state?;
        let next = match first {
            Some(first) => Some(Some(first)),
            None => under_way.piece(&mut rest).await,
        };
        match next {
            Some(Some(data)) => {
                // Where the length was told, nobody asks for more after the last piece.
                under_way.over |= rest.is_end_stream();
                Some((Ok(data), Some((None, rest, under_way))))
            }
            Some(None) => {
                under_way.over = true;
                None
            }
            None => {
                under_way.router.counters.broken.up();
                under_way.failed();
                // The connection is cut, so that the client does not take it for an end.
                Some((Err(io::Error::from(io::ErrorKind::BrokenPipe)), None))
            }
        }
    });
    let mut response = Response::from_parts(head, Body::from_stream(pieces));
    end_to_end(response.headers_mut());
    response.headers_mut().insert("x-ckf-dc", HeaderValue::from(dc));
    response
}

/// Why an endpoint is given up before its answer has begun.
#[derive(Clone, Copy, PartialEq)]
enum Failed {
    /// It has too much to do.
    Busy,
    /// It takes no connection.
    Refused,
    /// It took the request, and failed, broke off, or was silent.
    Broken,
}

/// A request on an endpoint, counted for as long as it lives.
struct UnderWay {
    router: Arc<PoolRouter>,
    endpoint: Arc<Endpoint>,
    /// Answered or given up by the endpoint; else, when it is dropped, the client has gone away.
    over: bool,
}

impl UnderWay {
    fn new(router: Arc<PoolRouter>, endpoint: Arc<Endpoint>) -> Self {
        endpoint.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { router, endpoint, over: false }
    }

    /// Waits for the first piece of an answer: before that, all failures are still curable.
    async fn begin(
        &self,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Parts, Bytes, Incoming), Failed> {
        let url = format!("{}/v1/completions", self.endpoint.url);
        let answer = post(&self.router.client, &url, headers, body, self.router.patience).await;
        let (head, mut rest) = answer
            .map_err(|error| if never_sent(&error) { Failed::Refused } else { Failed::Broken })?
            .into_parts();
        match head.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Err(Failed::Busy),
            // Nobody asked for another protocol.
            StatusCode::SWITCHING_PROTOCOLS => Err(Failed::Broken),
            status if status.is_server_error() => Err(Failed::Broken),
            _ => {
                let first = self.piece(&mut rest).await.ok_or(Failed::Broken)?;
                Ok((head, first.unwrap_or_default(), rest))
            }
        }
    }

    /// The next piece; `Some(None)` at the end, `None` when the answer breaks off or pauses too long.
    async fn piece(&self, body: &mut Incoming) -> Option<Option<Bytes>> {
        loop {
            match tokio::time::timeout(self.router.patience, body.frame()).await.ok()? {
                None => return Some(None),
                Some(frame) => {
                    if let Ok(data) = frame.ok()?.into_data() {
                        return Some(Some(data));
                    }
                }
            }
        }
    }

    /// The endpoint is to blame, and tried last for a while.
    fn failed(&mut self) {
        self.over = true;
        let Endpoint { shunned_until, failures, .. } = &*self.endpoint;
        let now = self.router.clock.now().as_millis();
        // Requests that were under way together fail together, and count once.
        if shunned_until.load(Ordering::Relaxed) <= now {
            let before = failures.fetch_add(1, Ordering::Relaxed);
            shunned_until.store(now + (SHUN << before.min(5)), Ordering::Relaxed);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.endpoint.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.over {
            self.router.counters.abandoned.up();
        }
    }
}
