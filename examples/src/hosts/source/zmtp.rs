//! ZMTP 3.0, the protocol of ZeroMQ over TCP: what SUB and DEALER need to connect, and what PUB and
//! ROUTER need to be connected to.
//!
//! Libraries reserve memory for whatever length a peer announces. Here nothing is reserved before it
//! has come, and a message that announces more than it may have ends the connection.
//! Specification: <https://rfc.zeromq.org/spec/23/>; no authentication (mechanism NULL).

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes of one message at most, all frames together.
pub const MAX_MESSAGE: usize = 16 << 20;
/// Frames of one message at most: publishers use three, replay sockets four.
const MAX_FRAMES: usize = 8;
/// Bytes of one message from who connects to us at most: subscriptions and questions are short.
const MAX_REQUEST: usize = 4096;
/// Bytes of one command at most.
const MAX_COMMAND: usize = 4096;
/// Bytes of a greeting.
const GREETING: usize = 64;
/// Silence after which the operating system asks whether the peer is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// More frames of the message follow.
const MORE: u8 = 1;
/// The length has eight bytes instead of one.
const LONG: u8 = 2;
/// Not a message, but the protocol's own talk.
const COMMAND: u8 = 4;

/// Why a connection is of no use, or no longer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ZmtpError {
    /// It broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer speaks something else.
    #[error("not ZMTP 3 without authentication: {0}")]
    Protocol(&'static str),
    /// A message of more than the limit was announced.
    #[error("a message of {announced} bytes or more")]
    TooLarge {
        /// Its bytes so far, and those announced.
        announced: u64,
    },
}

/// What this side is to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Hears all that a PUB socket publishes.
    Sub,
    /// Asks a ROUTER socket.
    Dealer,
    /// Publishes to SUB sockets.
    Pub,
    /// Answers DEALER sockets.
    Router,
}

impl Role {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Sub => b"SUB",
            Self::Dealer => b"DEALER",
            Self::Pub => b"PUB",
            Self::Router => b"ROUTER",
        }
    }
}

/// One connection. Holds twice the largest message at most.
#[derive(Debug)]
pub struct Connection<S = TcpStream> {
    stream: S,
    /// Bytes of one message at most.
    max_message: usize,
    /// Received, not yet taken apart.
    buffer: BytesMut,
    /// Frames of the message that is not complete yet.
    frames: Vec<Bytes>,
    /// Answers to pings that are not sent yet.
    pongs: BytesMut,
}

impl Connection {
    /// Connects to `host:port` and shakes hands. The caller limits the time.
    ///
    /// # Errors
    /// [`ZmtpError`]
    pub async fn open(endpoint: &str, role: Role) -> Result<Self, ZmtpError> {
        let stream = TcpStream::connect(endpoint).await?;
        stream.set_nodelay(true)?;
        // A subscriber says nothing: without this it would never learn that a machine is gone.
        let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE / 2);
        SockRef::from(&stream).set_tcp_keepalive(&keep_alive)?;
        let mut connection = Self::greet(stream, role, MAX_MESSAGE).await?;
        if role == Role::Sub {
            connection.send(&[b"\x01"]).await?;
        }
        Ok(connection)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Shakes hands with who has connected. The caller limits the time.
    ///
    /// # Errors
    /// [`ZmtpError`]
    pub async fn accept(stream: S, role: Role) -> Result<Self, ZmtpError> {
        Self::greet(stream, role, MAX_REQUEST).await
    }

    async fn greet(mut stream: S, role: Role, max_message: usize) -> Result<Self, ZmtpError> {
        let name = role.name();
        let mut hello = greeting().to_vec();
        let ready = [b"\x05READY\x0bSocket-Type\0\0\0", &[name.len() as u8][..], name].concat();
        put_frame(&mut hello, COMMAND, &ready);
        stream.write_all(&hello).await?;
        let mut theirs = [0; GREETING];
        stream.read_exact(&mut theirs).await?;
        check_greeting(&theirs)?;
        let (buffer, pongs) = (BytesMut::new(), BytesMut::new());
        let mut connection = Self { stream, max_message, buffer, frames: Vec::new(), pongs };
        loop {
            match connection.take_frame()? {
                Some((flags, body)) if flags & COMMAND != 0 && body.starts_with(b"\x05READY") => {
                    return Ok(connection);
                }
                Some(_) => return Err(ZmtpError::Protocol("no READY")),
                None => connection.fill().await?,
            }
        }
    }

    /// Sends one message. Must not be given up half way.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn send(&mut self, frames: &[&[u8]]) -> Result<(), ZmtpError> {
        let mut bytes = Vec::new();
        for (left, frame) in (0..frames.len()).rev().zip(frames) {
            put_frame(&mut bytes, if left > 0 { MORE } else { 0 }, frame);
        }
        Ok(self.stream.write_all(&bytes).await?)
    }

    /// The next message. May be given up and called again: nothing is lost.
    ///
    /// # Errors
    /// [`ZmtpError`]; the connection is then of no more use.
    pub async fn receive(&mut self) -> Result<Vec<Bytes>, ZmtpError> {
        loop {
            match self.take_frame()? {
                Some((flags, body)) if flags & COMMAND != 0 => self.command(&body),
                Some((flags, body)) => {
                    self.frames.push(body);
                    if flags & MORE == 0 {
                        return Ok(std::mem::take(&mut self.frames));
                    }
                }
                None => self.fill().await?,
            }
        }
    }

    /// More bytes into the buffer. May be given up: what did not happen lost nothing.
    async fn fill(&mut self) -> Result<(), ZmtpError> {
        while !self.pongs.is_empty() {
            self.stream.write_buf(&mut self.pongs).await?;
        }
        self.buffer.reserve(4096);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            _ => Ok(()),
        }
    }

    /// A whole frame from the buffer, if it is there. Lengths are judged as soon as they are read.
    fn take_frame(&mut self) -> Result<Option<(u8, Bytes)>, ZmtpError> {
        let Some((&flags, rest)) = self.buffer.split_first() else { return Ok(None) };
        let (head, len) = match (flags & LONG != 0, rest) {
            (false, [len, ..]) => (2, u64::from(*len)),
            (true, [a, b, c, d, e, f, g, h, ..]) => {
                (9, u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]))
            }
            _ => return Ok(None),
        };
        if flags & !(MORE | LONG | COMMAND) != 0 {
            return Err(ZmtpError::Protocol("reserved flags"));
        }
        let is_command = flags & COMMAND != 0;
        let held: usize = if is_command { 0 } else { self.frames.iter().map(Bytes::len).sum() };
        let limit = if is_command { MAX_COMMAND } else { self.max_message };
        let announced = len.saturating_add(held as u64);
        if announced > limit as u64 {
            return Err(ZmtpError::TooLarge { announced });
        }
        if !is_command && self.frames.len() == MAX_FRAMES {
            return Err(ZmtpError::Protocol("too many frames"));
        }
        let len = len as usize;
        if self.buffer.len() < head + len {
            return Ok(None);
        }
        self.buffer.advance(head);
        Ok(Some((flags, self.buffer.split_to(len).freeze())))
    }

    /// Answers a PING; what else peers say may be passed over.
    fn command(&mut self, body: &[u8]) {
        if let Some([_, _, context @ ..]) = body.strip_prefix(b"\x04PING") {
            let mut pong = Vec::new();
            put_frame(&mut pong, COMMAND, &[b"\x04PONG", context].concat());
            self.pongs.extend_from_slice(&pong);
        }
    }
}

fn greeting() -> [u8; GREETING] {
    let mut greeting = [0; GREETING];
    greeting[0] = 0xFF;
    greeting[9] = 0x7F;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

fn check_greeting(theirs: &[u8; GREETING]) -> Result<(), ZmtpError> {
    if theirs[0] != 0xFF || theirs[9] & 1 == 0 {
        return Err(ZmtpError::Protocol("no signature"));
    }
    if theirs[10] < 3 {
        return Err(ZmtpError::Protocol("older than version 3"));
    }
    if theirs[12..32] != greeting()[12..32] {
        return Err(ZmtpError::Protocol("another mechanism"));
    }
    Ok(())
}

fn put_frame(to: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(len) => to.extend([flags, len]),
        Err(_) => {
            to.push(flags | LONG);
            to.extend((body.len() as u64).to_be_bytes());
        }
    }
    to.extend(body);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// A peer that says hello and then these bytes, in two pieces, and what is received.
    async fn peer(role: Role, bytes: Vec<u8>) -> (Connection, tokio::task::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let peer = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = greeting().to_vec();
            put_frame(&mut hello, COMMAND, b"\x05READY\x0bSocket-Type\0\0\0\x03PUB");
            stream.write_all(&hello).await.unwrap();
            let (first, second) = bytes.split_at(bytes.len() / 2);
            stream.write_all(first).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            stream.write_all(second).await.unwrap();
            let mut heard = vec![0; 1000];
            tokio::time::sleep(Duration::from_millis(100)).await;
            let len = stream.read(&mut heard).await.unwrap();
            heard.truncate(len);
            heard
        });
        (Connection::open(&endpoint, role).await.unwrap(), peer)
    }

    #[tokio::test]
    async fn messages_of_several_frames_and_pings_between_them() {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, MORE, b"topic");
        put_frame(&mut bytes, COMMAND, b"\x04PING\0\x01ctx");
        put_frame(&mut bytes, 0, &[7; 300]);
        put_frame(&mut bytes, 0, b"");
        let (mut connection, peer) = peer(Role::Sub, bytes).await;
        assert_eq!(connection.receive().await.unwrap(), [&b"topic"[..], &[7; 300]]);
        assert_eq!(connection.receive().await.unwrap(), [&b""[..]]);
        let heard = peer.await.unwrap();
        let said = &heard[GREETING..];
        assert!(said.ends_with(b"\x04\x08\x04PONGctx"), "{said:?}");
        assert!(said.windows(3).any(|bytes| bytes == [0, 1, 1]), "subscribed: {said:?}");
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_before_it_comes() {
        let announce = |flags: u8, len: u64| [&[flags | LONG][..], &len.to_be_bytes()].concat();
        let mut creeping = Vec::new();
        put_frame(&mut creeping, MORE, &[0; 100]);
        creeping.extend(announce(0, MAX_MESSAGE as u64 - 99));
        let mut many = Vec::new();
        (0..=MAX_FRAMES).for_each(|_| put_frame(&mut many, MORE, b""));
        for bytes in [
            announce(0, u64::MAX),
            announce(MORE, 8 << 30),
            announce(COMMAND, MAX_COMMAND as u64 + 1),
            creeping,
            many,
            vec![0x80, 0],
        ] {
            let (mut connection, _peer) = peer(Role::Dealer, bytes.clone()).await;
            let error = connection.receive().await.unwrap_err();
            assert!(!matches!(error, ZmtpError::Io(_)), "{error} for {bytes:?}");
            assert!(connection.buffer.capacity() < 1 << 16);
        }
    }

    #[test]
    fn other_protocols_are_recognised() {
        assert!(check_greeting(&greeting()).is_ok());
        for (at, value) in [(0, b'H'), (9, 0), (10, 2), (12, b'C')] {
            let mut theirs = greeting();
            theirs[at] = value;
            assert!(check_greeting(&theirs).is_err(), "{at}");
        }
    }
}
