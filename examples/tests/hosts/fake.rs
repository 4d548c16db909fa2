//! Endpoints and clients that do, byte by byte, what a test says; and a router in between whose lanes
//! are never ready.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::{Process, ROUTER, Watch, args, certificates, http, local, ports, tls};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(10);

/// The head of an answer that comes in chunks.
pub(crate) const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// One chunk.
pub(crate) fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

/// A connection, and what was read from it and not yet taken.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    pub(crate) async fn to(port: u16) -> Self {
        Self::over(TcpStream::connect(local(port)).await.unwrap())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Everything up to and with this text.
    pub(crate) async fn hear(&mut self, end: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let found = self.read.windows(end.len()).position(|part| part == end.as_bytes());
            if let Some(at) = found {
                let rest = self.read.split_off(at + end.len());
                let heard = std::mem::replace(&mut self.read, rest);
                return String::from_utf8(heard).unwrap();
            }
            let len = timeout(PATIENCE, self.stream.read(&mut buffer)).await;
            let len = len.unwrap_or_else(|_| panic!("no {end:?} after {:?}", self.so_far()));
            let len = len.unwrap_or(0);
            assert!(len > 0, "the end before {end:?}, after {:?}", self.so_far());
            self.read.extend(&buffer[..len]);
        }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Everything until the other side closes.
    pub(crate) async fn rest(&mut self) -> String {
        // A reset is an end as well.
        let _ = timeout(PATIENCE, self.stream.read_to_end(&mut self.read)).await.expect("an end");
        std::mem::take(&mut self.read).into_iter().map(char::from).collect()
    }
}

/// A request as an endpoint sees it, and the connection to answer on.
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) wire: Wire,
}

impl Asked {
    /// Answers at once, in full.
    pub(crate) async fn answer(mut self, status: &str, body: &str) {
        let len = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {len}\r\nconnection: close\r\n");
        self.wire.say(&format!("{head}\r\n{body}")).await;
    }
}

/// An endpoint whose requests are answered by the test.
pub(crate) struct Endpoint {
    pub(crate) port: u16,
    asked: mpsc::UnboundedReceiver<Asked>,
}

impl Endpoint {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = seen.clone();
                tokio::spawn(async move {
                    let mut wire = Wire::over(stream);
                    let head = wire.hear("\r\n\r\n").await;
                    let len = header(&head, "content-length").map_or(0, |len| len.parse().unwrap());
                    while wire.read.len() < len {
                        let more = wire.stream.read_buf(&mut wire.read).await.unwrap();
                        assert!(more > 0, "a body cut short");
                    }
                    let body = String::from_utf8(std::mem::take(&mut wire.read)).unwrap();
                    let _ = seen.send(Asked { head, body, wire });
                });
            }
        });
        Self { port, asked }
    }

    /// The next request.
    pub(crate) async fn asked(&mut self) -> Asked {
        timeout(PATIENCE, self.asked.recv()).await.expect("a request").unwrap()
    }

    /// Whether it was asked, so far, for nothing more.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.asked.try_recv().is_err()
    }
}

/// A header's value.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// The bytes of a request.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let len = body.len();
    format!("{method} {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {len}\r\n{headers}\r\n{body}")
}

/// A router without relays.
pub(crate) struct Front {
    pub(crate) process: Process,
    pub(crate) port: u16,
    pub(crate) admin: u16,
    pub(crate) watch: Watch,
    _folder: tempfile::TempDir,
}

impl Front {
    /// With these data centers, as `id=1,endpoint=...`; their relays are never there.
    pub(crate) async fn start(dcs: &[String], more: &str) -> Self {
        let ([port, admin, nobody], folder) = (ports(), certificates());
        let mut line = args(&format!("--listen {} --admin {} {more}", local(port), local(admin)));
        if !more.contains("--patience-ms") {
            line.extend(args("--patience-ms 1000"));
        }
        line.extend(tls(folder.path(), "router"));
        for dc in dcs {
            line.extend(["--dc".to_owned(), format!("{dc},relay=https://{}", local(nobody))]);
        }
        let process = Process::start("router", ROUTER, &line);
        let watch = Watch::new();
        watch.up(admin, "/healthz").await;
        Self { process, port, admin, watch, _folder: folder }
    }

    /// Sends a completion request with this body.
    pub(crate) async fn ask(&self, body: &str) -> Wire {
        let mut wire = Wire::to(self.port).await;
        wire.say(&request("POST", "/v1/completions", "connection: close\r\n", body)).await;
        wire
    }

    /// What became of requests so far.
    pub(crate) async fn requests(&self, what: &str) -> u64 {
        let what = format!("what=\"{what}\"");
        self.watch.metric(self.admin, "ckf_requests_total", &[&what]).await as u64
    }

    /// Waits until no request is under way.
    pub(crate) async fn until_idle(&self) {
        for _ in 0..200 {
            if self.watch.metric(self.admin, "ckf_requests_under_way", &[]).await == 0.0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("requests stay under way");
    }
}

/// `id=ID,endpoint=http://...` for one endpoint.
pub(crate) fn dc(id: u64, port: u16) -> String {
    format!("id={id},endpoint={}", http(port, ""))
}

/// The status and the JSON body of an answer in full.
pub(crate) fn parsed(answer: &str) -> (u16, Value) {
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or_default())
}
