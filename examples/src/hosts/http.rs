//! A small HTTP/1 server and client with limits on everything that a peer decides.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::server::conn::http1;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_stream::StreamExt;

use super::listen::{AcceptCounters, Patience, accept_plain};
use super::stop::Stop;

/// Longest time for the headers of a request, from the previous one's end.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// How long a connection is kept for re-use: less than the five seconds after which common servers of
/// engines close theirs, so that no request is sent into a close.
const IDLE: Duration = Duration::from_secs(4);
/// Longest time for a client to take what it is sent.
const STALL: Duration = Duration::from_secs(30);
/// Bytes of all headers together.
const HEADER_BYTES: usize = 16 << 10;
/// Number of headers.
const HEADERS: usize = 64;

/// Serves `router` until the process ends, to at most `places` connections at a time.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    places: usize,
    counters: Arc<AcceptCounters>,
) {
    serve_until(listener, router, places, counters, Stop::never(), Duration::ZERO).await;
}

/// Serves `router` until it is to stop: then takes no more connections and requests, and returns when
/// all requests under way are answered, or after `drain`. Tells how many connections are left then.
pub async fn serve_until(
    listener: TcpListener,
    router: Router,
    places: usize,
    counters: Arc<AcceptCounters>,
    stop: Stop,
    drain: Duration,
) -> usize {
    // An answer may take as long as it takes, and its client is silent meanwhile.
    let patience = Patience { silence: None, stall: STALL };
    let mut connections = accept_plain(listener, places, patience, counters.clone());
    let (served, open) = (GracefulShutdown::new(), Arc::new(()));
    let start = |connection| {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIME)
            .max_buf_size(HEADER_BYTES)
            .max_headers(HEADERS)
            .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router.clone()));
        let (connection, counters) = (served.watch(connection), counters.clone());
        let place = open.clone();
        tokio::spawn(async move {
            let _place = place;
            match connection.await {
                Err(error) if error.is_timeout() => counters.slow_headers.up(),
                Err(error) if error.is_parse() => counters.bad_requests.up(),
                _ => {}
            }
        });
    };
    loop {
        tokio::select! {
            connection = connections.next() => match connection {
                Some(Ok(connection)) => start(connection),
                Some(Err(_)) => {}
                None => break,
            },
            () = stop.told() => break,
        }
    }
    // Those that were accepted already may have sent their requests.
    connections.close();
    while let Some(Ok(connection)) = connections.next().await {
        start(connection);
    }
    match tokio::time::timeout(drain, served.shutdown()).await {
        Ok(()) => 0,
        Err(_) => Arc::strong_count(&open) - 1,
    }
}

/// A client that keeps connections for re-use.
pub type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// A client whose connection attempts take at most `connect`.
pub fn client(connect: Duration) -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(connect));
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector)
}

/// Sends a JSON body and gives the head of the answer as soon as it is there.
///
/// # Errors
/// No connection, or no head within `head`.
pub async fn post(
    client: &HttpClient,
    url: &str,
    headers: HeaderMap,
    body: Bytes,
    head: Duration,
) -> io::Result<hyper::Response<hyper::body::Incoming>> {
    let mut request = hyper::Request::post(url).body(Full::new(body)).map_err(io::Error::other)?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    match tokio::time::timeout(head, client.request(request)).await {
        Ok(answer) => answer.map_err(io::Error::other),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Whether an error of [`post`] is that there was no connection.
pub fn never_sent(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<legacy::Error>());
    error.is_some_and(legacy::Error::is_connect)
}

/// Whether an error of [`post_whole`] is that a connection broke: the request was under way.
pub fn is_broken(error: &io::Error) -> bool {
    let broken = |error: &(dyn std::error::Error + 'static)| {
        error.is::<legacy::Error>() || error.is::<hyper::Error>()
    };
    let inner = error.get_ref();
    let either = inner.is_some_and(|error| broken(error) || error.source().is_some_and(broken));
    either && !never_sent(error)
}

/// [`post`], then the whole answer, at most `limit` bytes. Only answers of success count.
///
/// # Errors
/// As [`post`]; another status; a body that is too long, breaks off, or pauses longer than `head`.
pub async fn post_whole(
    client: &HttpClient,
    url: &str,
    body: Bytes,
    head: Duration,
    limit: usize,
) -> io::Result<Bytes> {
    let answer = post(client, url, HeaderMap::new(), body, head).await?;
    if !answer.status().is_success() {
        return Err(io::Error::other(format!("status {}", answer.status())));
    }
    let body = Limited::new(Body::new(answer.into_body()), limit).collect();
    match tokio::time::timeout(head, body).await {
        Ok(body) => Ok(body.map_err(io::Error::other)?.to_bytes()),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// A GET for tests and demonstrations: the whole answer as text.
///
/// # Errors
/// No connection, no answer within five seconds, or another status than success.
pub async fn get(client: &HttpClient, url: &str) -> io::Result<String> {
    let request = hyper::Request::get(url).body(Full::default()).map_err(io::Error::other)?;
    let answer = tokio::time::timeout(Duration::from_secs(5), async {
        let answer = client.request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), 64 << 20).collect().await;
        Ok::<_, io::Error>((status, body.map_err(io::Error::other)?.to_bytes()))
    });
    let (status, body) = answer.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let text = String::from_utf8_lossy(&body).into_owned();
    if status.is_success() { Ok(text) } else { Err(io::Error::other(format!("{status}: {text}"))) }
}
