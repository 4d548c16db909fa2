//! Accepting connections within limits: number, certificate, time of the handshake, and the time that
//! a peer may keep a connection without doing its part.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::metrics::{Counter, Page};
use super::tls::Renewed;

/// Longest time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long a peer may do nothing before its connection is cut.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Without sending anything; `None` where that is normal.
    pub silence: Option<Duration>,
    /// Without taking what there is to send.
    pub stall: Duration,
}

/// What became of connections.
#[derive(Debug, Default)]
pub struct AcceptCounters {
    /// Taken on.
    pub accepted: Counter,
    /// Closed at once: too many were open.
    pub refused: Counter,
    /// Closed for want of a valid certificate, or after garbage.
    pub bad_handshakes: Counter,
    /// Closed because the handshake took too long.
    pub slow_handshakes: Counter,
    /// Cut: the peer sent nothing for too long.
    pub silent: Counter,
    /// Cut: the peer did not take what was sent.
    pub stalled: Counter,
    /// Closed without a complete request header in time; idle HTTP connections end so as well.
    pub slow_headers: Counter,
    /// Closed: no HTTP, or headers beyond the limits.
    pub bad_requests: Counter,
}

impl AcceptCounters {
    /// Adds them to a scrape.
    pub fn report(&self, page: &mut Page, listener: &str) {
        let results = [
            ("accepted", self.accepted.get()),
            ("refused", self.refused.get()),
            ("bad_handshake", self.bad_handshakes.get()),
            ("slow_handshake", self.slow_handshakes.get()),
            ("silent", self.silent.get()),
            ("stalled", self.stalled.get()),
            ("slow_header", self.slow_headers.get()),
            ("bad_request", self.bad_requests.get()),
        ];
        page.counters("ckf_connections_total", &[("listener", &listener)], "result", &results);
    }
}

/// A connection that gives its place back when it closes, and that errs when the peer does nothing.
#[derive(Debug)]
pub struct Guarded<S> {
    stream: S,
    silence: Option<Deadline>,
    stall: Deadline,
    counters: Arc<AcceptCounters>,
    _place: OwnedSemaphorePermit,
}

/// Accepts at most `places` connections at a time, as they are.
pub fn accept_plain(
    listener: TcpListener,
    places: usize,
    patience: Patience,
    counters: Arc<AcceptCounters>,
) -> ReceiverStream<io::Result<Guarded<TcpStream>>> {
    accept(listener, places, patience, counters, |stream| async { Ok(Ok(stream)) })
}

/// Accepts at most `places` connections at a time and lets those through that complete a TLS
/// handshake.
pub fn accept_tls(
    listener: TcpListener,
    tls: Arc<Renewed<Arc<ServerConfig>>>,
    places: usize,
    patience: Patience,
    counters: Arc<AcceptCounters>,
) -> ReceiverStream<io::Result<Guarded<TlsStream<TcpStream>>>> {
    accept(listener, places, patience, counters, move |stream| {
        tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(tls.get()).accept(stream))
    })
}

/// Handshakes run beside each other: a silent peer holds up nobody else.
fn accept<S, F>(
    listener: TcpListener,
    places: usize,
    patience: Patience,
    counters: Arc<AcceptCounters>,
    handshake: impl Fn(TcpStream) -> F + Send + 'static,
) -> ReceiverStream<io::Result<Guarded<S>>>
where
    S: Send + 'static,
    F: Future<Output = Result<io::Result<S>, Elapsed>> + Send + 'static,
{
    let (ready, accepted) = mpsc::channel(16);
    let places = Arc::new(Semaphore::new(places));
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                // Nobody wants more: the port is free at once, not with the next connection.
                () = ready.closed() => return,
            };
            let Ok((stream, _)) = accepted else {
                // Out of file descriptors, most likely: wait for some to come back.
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            let Ok(place) = places.clone().try_acquire_owned() else {
                counters.refused.up();
                continue;
            };
            let _ = stream.set_nodelay(true);
            let (handshake, ready, counters) = (handshake(stream), ready.clone(), counters.clone());
            tokio::spawn(async move {
                match handshake.await {
                    Ok(Ok(stream)) => {
                        counters.accepted.up();
                        let guarded = Guarded {
                            stream,
                            silence: patience.silence.map(Deadline::new),
                            stall: Deadline::new(patience.stall),
                            counters,
                            _place: place,
                        };
                        let _ = ready.send(Ok(guarded)).await;
                    }
                    Ok(Err(_)) => counters.bad_handshakes.up(),
                    Err(_) => counters.slow_handshakes.up(),
                }
            });
        }
    });
    ReceiverStream::new(accepted)
}

/// Runs from when something begins to wait until it no longer does.
#[derive(Debug)]
struct Deadline {
    span: Duration,
    timer: Pin<Box<Sleep>>,
    running: bool,
}

impl Deadline {
    fn new(span: Duration) -> Self {
        Self { span, timer: Box::pin(sleep(span)), running: false }
    }

    /// Passes on what was polled, or the error that it has been pending for too long.
    fn watch<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        missed: &Counter,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.running = false;
            return polled;
        }
        if !self.running {
            self.running = true;
            self.timer.as_mut().reset(Instant::now() + self.span);
        }
        std::task::ready!(self.timer.as_mut().poll(cx));
        missed.up();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S> Connected for Guarded<S> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        match &mut this.silence {
            Some(deadline) => deadline.watch(polled, &this.counters.silent, cx),
            None => polled,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.stall.watch(polled, &this.counters.stalled, cx)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        this.stall.watch(polled, &this.counters.stalled, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
