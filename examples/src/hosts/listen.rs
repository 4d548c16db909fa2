//! Accepting connections within limits: number, time of the handshake, certificate.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::error::Elapsed;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::metrics::{Counter, Page};

/// Longest time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

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
}

impl AcceptCounters {
    /// Adds them to a scrape.
    pub fn report(&self, page: &mut Page, listener: &str) {
        let mut count = |what: &str, counter: &Counter| {
            let labels: [(&str, &dyn std::fmt::Display); 2] =
                [("listener", &listener), ("result", &what)];
            page.counter("ckf_connections_total", &labels, counter.get());
        };
        count("accepted", &self.accepted);
        count("refused", &self.refused);
        count("bad_handshake", &self.bad_handshakes);
        count("slow_handshake", &self.slow_handshakes);
    }
}

/// A connection that gives its place back when it closes.
#[derive(Debug)]
pub struct Guarded<S> {
    stream: S,
    _place: OwnedSemaphorePermit,
}

/// Accepts at most `places` connections at a time, as they are.
pub fn accept_plain(
    listener: TcpListener,
    places: usize,
    counters: Arc<AcceptCounters>,
) -> ReceiverStream<io::Result<Guarded<TcpStream>>> {
    accept(listener, places, counters, |stream| async { Ok(Ok(stream)) })
}

/// Accepts at most `places` connections at a time and lets those through that complete a TLS
/// handshake.
pub fn accept_tls(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    places: usize,
    counters: Arc<AcceptCounters>,
) -> ReceiverStream<io::Result<Guarded<TlsStream<TcpStream>>>> {
    let acceptor = TlsAcceptor::from(config);
    accept(listener, places, counters, move |stream| {
        let _ = stream.set_nodelay(true);
        tokio::time::timeout(HANDSHAKE, acceptor.accept(stream))
    })
}

/// Handshakes run beside each other: a silent peer holds up nobody else.
fn accept<S, F>(
    listener: TcpListener,
    places: usize,
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
        while !ready.is_closed() {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file descriptors, most likely: wait for some to come back.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let Ok(place) = places.clone().try_acquire_owned() else {
                counters.refused.up();
                continue;
            };
            let (handshake, ready, counters) = (handshake(stream), ready.clone(), counters.clone());
            tokio::spawn(async move {
                match handshake.await {
                    Ok(Ok(stream)) => {
                        counters.accepted.up();
                        let _ = ready.send(Ok(Guarded { stream, _place: place })).await;
                    }
                    Ok(Err(_)) => counters.bad_handshakes.up(),
                    Err(_) => counters.slow_handshakes.up(),
                }
            });
        }
    });
    ReceiverStream::new(accepted)
}

impl<S> Connected for Guarded<S> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
