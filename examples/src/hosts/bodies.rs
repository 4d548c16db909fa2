//! Bodies of requests: how large one may be, how long it may take, and how large all of them together.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::EXPECT;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::metrics::{Counter, Page};

/// Longest time for a body to come.
const TIME: Duration = Duration::from_secs(10);
/// Times the limit that is read of a body that is not kept.
const DISCARD: u64 = 8;

/// Room for the bodies that are under way, which all connections share. Many clients that send slowly
/// would otherwise hold as much as they are.
#[derive(Clone, Debug)]
pub struct Bodies {
    room: Arc<Semaphore>,
    total: usize,
    refused: Arc<Counter>,
}

/// A body, and the room that it takes for as long as this lives.
#[derive(Debug)]
pub struct Body {
    /// What was sent.
    pub bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl Bodies {
    /// Room for so many bytes.
    pub fn new(total: usize) -> Self {
        Self { room: Arc::new(Semaphore::new(total)), total, refused: Arc::default() }
    }

    /// Adds what is under way, and what there was no room for, to a scrape.
    pub fn report(&self, page: &mut Page) {
        page.gauge("ckf_body_bytes", &[], self.total - self.room.available_permits());
        page.counter("ckf_bodies_refused_total", &[], self.refused.get());
    }

    /// Reads the body of a request: at most `limit` bytes, in bounded time. It takes room as it comes,
    /// not as it is announced.
    ///
    /// # Errors
    /// The status that tells the client what was wrong; 503 when there is no room.
    pub async fn read(&self, request: Request, limit: usize) -> Result<Body, StatusCode> {
        let read = tokio::time::timeout(TIME, self.take(request, limit)).await;
        let read = read.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT));
        if read.as_ref().err() == Some(&StatusCode::SERVICE_UNAVAILABLE) {
            self.refused.up();
        }
        read
    }

    /// [`read`](Self::read), and what it says in JSON.
    ///
    /// # Errors
    /// The status that tells the client what was wrong.
    pub async fn read_json<T: DeserializeOwned>(
        &self,
        request: Request,
        limit: usize,
    ) -> Result<T, StatusCode> {
        let body = self.read(request, limit).await?;
        serde_json::from_slice(&body.bytes).map_err(|_| StatusCode::BAD_REQUEST)
    }

    async fn take(&self, request: Request, limit: usize) -> Result<Body, StatusCode> {
        let asks_first = request.headers().contains_key(EXPECT);
        let announced = request.body().size_hint().lower();
        let mut body = request.into_body();
        let refusal = if announced > limit as u64 {
            // What announces too much is not kept at all.
            StatusCode::PAYLOAD_TOO_LARGE
        } else {
            match self.keep(&mut body, limit).await {
                Err(refusal) if refusal != StatusCode::BAD_REQUEST => refusal,
                kept => return kept,
            }
        };
        // Many clients hear nothing before they have sent all. Those that send far too much, or that
        // ask first, need not go on.
        let mut more = DISCARD * limit as u64;
        if asks_first || announced > more {
            more = 0;
        }
        while more > 0
            && let Some(Ok(frame)) = body.frame().await
        {
            more = more.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        Err(refusal)
    }

    async fn keep(&self, body: &mut axum::body::Body, limit: usize) -> Result<Body, StatusCode> {
        let take = |bytes: usize| {
            let bytes = u32::try_from(bytes).map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
            let room = self.room.clone().try_acquire_many_owned(bytes);
            room.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
        };
        let (mut bytes, mut room) = (BytesMut::new(), take(0)?);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else {
                continue;
            };
            if data.len() > limit - bytes.len() {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            room.merge(take(data.len())?);
            bytes.extend_from_slice(&data);
        }
        Ok(Body { bytes: bytes.freeze(), _room: room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    fn request(pieces: &[&'static [u8]]) -> Request {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok::<_, std::io::Error>(*piece)).collect();
        Request::new(axum::body::Body::from_stream(stream::iter(pieces)))
    }

    #[tokio::test]
    async fn bodies_take_room_while_they_live_and_no_more_than_there_is() {
        let bodies = Bodies::new(10);
        let first = bodies.read(request(&[b"abc", b"def"]), 8).await.unwrap();
        assert_eq!(first.bytes, &b"abcdef"[..]);
        let full = bodies.read(request(&[b"ab", b"cde"]), 8).await.unwrap_err();
        assert_eq!((full, bodies.refused.get()), (StatusCode::SERVICE_UNAVAILABLE, 1));
        // What was refused half way holds nothing.
        let second = bodies.read(request(&[b"abcd"]), 8).await.unwrap();
        drop((first, second));
        assert!(bodies.read(request(&[b"abcdefgh"]), 8).await.is_ok());
        let large = bodies.read(request(&[b"abcdefgh", b"i"]), 8).await.unwrap_err();
        assert_eq!((large, bodies.refused.get()), (StatusCode::PAYLOAD_TOO_LARGE, 1));
        assert_eq!(bodies.room.available_permits(), 10);
    }
}
