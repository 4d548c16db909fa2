//! Processes, ports and waiting.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use ckf_examples::hosts::certs;
use ckf_examples::hosts::http::{HttpClient, client, get, post_whole};
use serde_json::Value;

pub(crate) const RELAY: &str = env!("CARGO_BIN_EXE_relay");
pub(crate) const ROUTER: &str = env!("CARGO_BIN_EXE_router");
pub(crate) const ENGINE: &str = env!("CARGO_BIN_EXE_engine-sim");

/// A process that ends with the test, whatever happens.
pub(crate) struct Process {
    child: Child,
    pub(crate) name: String,
}

impl Process {
    pub(crate) fn start(name: &str, program: &str, args: &[String]) -> Self {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { child, name: name.to_owned() }
    }

    /// Starts a program whose log goes to a file, behind what is there.
    pub(crate) fn start_logged(name: &str, program: &str, args: &[String], log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).expect("a file for the log");
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { child, name: name.to_owned() }
    }

    /// Starts a program that prints a line when it has done its work, and waits for the line.
    pub(crate) fn start_and_hear(
        name: &str,
        program: &str,
        args: &[String],
    ) -> (Self, BufReader<std::process::ChildStdout>) {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        let out = BufReader::new(child.stdout.take().expect("piped"));
        (Self { child, name: name.to_owned() }, out)
    }

    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal by its name, as `kill -NAME` does.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill -{name} {}", self.name);
    }

    /// The most memory that it ever had at one time, in bytes.
    pub(crate) fn most_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
        let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib << 10
    }

    /// Its exit code, once it has ended; `None` when it does not in time.
    pub(crate) async fn ended(&mut self, within: Duration) -> Option<i32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return Some(status.code().unwrap_or(-1));
            }
            if started.elapsed() > within {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn wait(mut self) -> bool {
        self.child.wait().is_ok_and(|status| status.success())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    let _ = reader.read_line(&mut line);
    line.trim().to_owned()
}

/// Ports that are free now, and that no connection is given as its own end: those are above.
pub(crate) fn ports<const N: usize>() -> [u16; N] {
    let first = row(N);
    std::array::from_fn(|i| first + i as u16)
}

/// The first of so many free ports in a row. No two calls give the same ones.
pub(crate) fn row(len: usize) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Runs that follow each other closely start at different places.
    let start = 10_000 + (std::process::id() % 100) as u16 * 100;
    for _ in 0..1000 {
        let first = start + NEXT.fetch_add(len as u16, Ordering::Relaxed) % 10_000;
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if (first..first + len as u16).all(free) {
            return first;
        }
    }
    panic!("no {len} free ports in a row")
}

pub(crate) fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

pub(crate) fn http(port: u16, path: &str) -> String {
    format!("http://127.0.0.1:{port}{path}")
}

/// A folder with certificates.
pub(crate) fn certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    certs::write(folder.path()).expect("certificates");
    folder
}

/// `--ca`, `--cert` and `--key` for one side.
pub(crate) fn tls(folder: &Path, name: &str) -> Vec<String> {
    let path = |file: String| folder.join(file).display().to_string();
    [
        ("--ca", path("ca.pem".to_owned())),
        ("--cert", path(format!("{name}.pem"))),
        ("--key", path(format!("{name}.key"))),
    ]
    .into_iter()
    .flat_map(|(flag, file)| [flag.to_owned(), file])
    .collect()
}

pub(crate) fn args(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The shared data, or `None` where the test may be skipped.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("CKF_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    let path = root.join("data").join(path);
    if path.exists() {
        return Some(path);
    }
    let required = std::env::var_os("CKF_REQUIRE_SHARED").is_some_and(|value| value == "1");
    assert!(!required, "{} is missing", path.display());
    println!("skipped: {} is missing", path.display());
    None
}

/// A Python that has pyzmq and msgpack, or `None` where the test may be skipped.
pub(crate) fn python() -> Option<String> {
    let python = std::env::var("CKF_PYTHON").unwrap_or("python3".to_owned());
    let probe =
        Command::new(&python).args(["-c", "import zmq, msgpack"]).stderr(Stdio::null()).status();
    found("python3 with pyzmq and msgpack", probe.is_ok_and(|status| status.success()))
        .then_some(python)
}

/// Whether the NATS server is installed, or the test may be skipped.
pub(crate) fn nats_server() -> bool {
    let probe = Command::new("nats-server").arg("--version").stdout(Stdio::null()).status();
    found("nats-server", probe.is_ok())
}

fn found(what: &str, found: bool) -> bool {
    let required = std::env::var_os("CKF_REQUIRE_HOSTS").is_some_and(|value| value == "1");
    assert!(found || !required, "{what} is missing");
    if !found {
        println!("skipped: {what} is missing");
    }
    found
}

/// What a process shows over HTTP.
#[derive(Clone)]
pub(crate) struct Watch(HttpClient);

impl Watch {
    pub(crate) fn new() -> Self {
        Self(client(Duration::from_secs(1)))
    }

    pub(crate) async fn get(&self, port: u16, path: &str) -> Option<String> {
        get(&self.0, &http(port, path)).await.ok()
    }

    pub(crate) async fn post(&self, port: u16, path: &str, body: &Value) -> Option<Value> {
        let body = bytes::Bytes::from(body.to_string());
        let answer =
            post_whole(&self.0, &http(port, path), body, Duration::from_secs(10), 1 << 22).await;
        serde_json::from_slice(&answer.ok()?).ok()
    }

    /// The sum of the samples of a metric whose labels contain all of `labels`.
    pub(crate) async fn metric(&self, port: u16, name: &str, labels: &[&str]) -> f64 {
        let page = self.get(port, "/metrics").await.unwrap_or_default();
        page.lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    }

    /// Waits until a metric is at least `least`.
    pub(crate) async fn until(&self, port: u16, name: &str, labels: &[&str], least: f64) {
        let started = Instant::now();
        while self.metric(port, name, labels).await < least {
            if started.elapsed() > Duration::from_secs(20) {
                let page = self.get(port, "/metrics").await.unwrap_or_default();
                panic!("{name} {labels:?} stays below {least}:\n{page}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a page can be had.
    pub(crate) async fn up(&self, port: u16, path: &str) {
        let started = Instant::now();
        while self.get(port, path).await.is_none() {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{path} on {port} does not come up"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
