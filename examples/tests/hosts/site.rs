//! A small site: engines, one relay, one router.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    ENGINE, Process, RELAY, ROUTER, Watch, args, certificates, http, local, ports, tls,
};

/// One engine's ports.
#[derive(Clone, Copy)]
pub(crate) struct Engine {
    pub(crate) http: u16,
    events: u16,
    replay: u16,
}

impl Engine {
    pub(crate) fn new() -> Self {
        let [http, events, replay] = ports();
        Self { http, events, replay }
    }

    /// Ports of its events and of its replay socket.
    pub(crate) fn sockets(self) -> (u16, u16) {
        (self.events, self.replay)
    }

    pub(crate) async fn start(self) -> Process {
        self.start_with(&format!("--replay {}", local(self.replay))).await
    }

    /// As engines are by default.
    pub(crate) async fn start_without_replay(self) -> Process {
        self.start_with("").await
    }

    async fn start_with(self, more: &str) -> Process {
        let line =
            format!("serve --listen {} --events {} {more}", local(self.http), local(self.events));
        let process = Process::start("engine", ENGINE, &args(&line));
        Watch::new().up(self.http, "/healthz").await;
        process
    }
}

/// Ports and certificates.
pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) engines: Vec<Engine>,
    pub(crate) feed: u16,
    pub(crate) relay_admin: u16,
    pub(crate) front: u16,
    pub(crate) router_admin: u16,
    pub(crate) watch: Watch,
}

impl Site {
    pub(crate) fn new(engines: usize) -> Self {
        let [feed, relay_admin, front, router_admin] = ports();
        Self {
            folder: certificates(),
            engines: (0..engines).map(|_| Engine::new()).collect(),
            feed,
            relay_admin,
            front,
            router_admin,
            watch: Watch::new(),
        }
    }

    /// The relay, once its sources have told enough.
    pub(crate) async fn relay(&self, more: &str) -> Process {
        let process = self.start_relay(more);
        self.watch.up(self.relay_admin, "/readyz").await;
        process
    }

    pub(crate) fn start_relay(&self, more: &str) -> Process {
        let heartbeat = if more.contains("--heartbeat") { "" } else { "--heartbeat-ms 300" };
        let mut line = args(&format!(
            "--dc-id 1 --listen {} --admin {} {heartbeat} --keepalive-ms 600 {more}",
            local(self.feed),
            local(self.relay_admin)
        ));
        line.extend(tls(self.folder.path(), "relay"));
        for (worker, engine) in self.engines.iter().enumerate() {
            let url =
                format!("zmq://{}?worker={worker}&replay={}", local(engine.events), engine.replay);
            line.extend(["--source".to_owned(), url]);
        }
        Process::start_logged("relay", RELAY, &line, &self.relay_log())
    }

    /// Where the relay's log goes.
    pub(crate) fn relay_log(&self) -> PathBuf {
        self.folder.path().join("relay.log")
    }

    /// The router, with the certificates of `folder`, reading from `relay`.
    pub(crate) fn router_of(&self, folder: &Path, relay: &str, more: &str) -> Process {
        Process::start("router", ROUTER, &self.router_line(folder, relay, more))
    }

    /// The same with the site's certificates, its log in a file.
    pub(crate) fn router_logged(&self, relay: &str, more: &str, log: &Path) -> Process {
        let line = self.router_line(self.folder.path(), relay, more);
        Process::start_logged("router", ROUTER, &line, log)
    }

    fn router_line(&self, folder: &Path, relay: &str, more: &str) -> Vec<String> {
        let endpoints: String = self
            .engines
            .iter()
            .map(|engine| format!(",endpoint={}", http(engine.http, "")))
            .collect();
        let silence = if more.contains("--silence-ms") { "" } else { "--silence-ms 1500" };
        let mut line = args(&format!(
            "--listen {} --admin {} {silence} --patience-ms 700 \
             --dc id=1,relay={relay}{endpoints} {more}",
            local(self.front),
            local(self.router_admin)
        ));
        // They would be of no use otherwise, and refused.
        if !relay.starts_with("nats:") {
            line.extend(tls(folder, "router"));
        }
        if relay.starts_with("https:") {
            line.extend(args("--keepalive-ms 1000"));
        }
        line
    }

    /// The router, once its lane is ready.
    pub(crate) async fn router(&self) -> Process {
        let relay = format!("https://{}", local(self.feed));
        let process = self.router_of(self.folder.path(), &relay, "");
        self.until_ready().await;
        process
    }

    pub(crate) async fn until_ready(&self) {
        self.watch.until(self.router_admin, "ckf_lane_ready", &[], 1.0).await;
    }

    pub(crate) async fn lane(&self, metric: &str, label: &str) -> f64 {
        self.watch.metric(self.router_admin, metric, &[&format!("\"{label}\"")]).await
    }

    /// Sends a prompt through the router; the engine's usage.
    pub(crate) async fn complete(&self, prompt: &[u32]) -> Option<Value> {
        let body = json!({ "prompt": prompt, "max_tokens": 1 });
        let answer = self.watch.post(self.front, "/v1/completions", &body).await?;
        Some(answer["usage"]["ckf"].clone())
    }

    /// Sends a prompt to an engine itself.
    pub(crate) async fn fill(&self, engine: Engine, seed: u32, blocks: u32) {
        let body = json!({ "prompt": prompt(seed, blocks), "max_tokens": 1 });
        self.watch.post(engine.http, "/v1/completions", &body).await.unwrap();
    }

    /// Waits until the router finds so many leading blocks of the prompt.
    pub(crate) async fn until_depth(&self, prompt: &[u32], depth: u64) {
        let started = Instant::now();
        loop {
            let answer =
                self.watch.post(self.front, "/v1/route", &json!({ "prompt": prompt })).await;
            let found = answer.as_ref().map(|answer| answer["depths"]["1"].clone());
            if found == Some(depth.into()) {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "{found:?} instead of {depth}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A prompt of so many blocks that no other seed shares.
pub(crate) fn prompt(seed: u32, blocks: u32) -> Vec<u32> {
    (0..blocks * 16).map(|token| seed * 100_000 + token).collect()
}
