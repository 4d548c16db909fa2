//! Several pools in one relay and one router.

use serde_json::{Value, json};

use crate::faults::tamperer;
use crate::site::{Engine, Site, prompt};
use crate::support::{Process, RELAY, ROUTER, args, http, local, tls};

/// A relay of two pools with one engine each, and a router with a lane for each of them.
struct TwoPools {
    site: Site,
    chat: Engine,
    code: Engine,
}

impl TwoPools {
    fn new() -> Self {
        Self { site: Site::new(0), chat: Engine::new(), code: Engine::new() }
    }

    fn relay(&self) -> Process {
        let mut line = args(&format!(
            "--dc-id 1 --listen {} --admin {} --heartbeat-ms 300 --keepalive-ms 600 \
             --ready-ms 60000 --pool chat --pool code",
            local(self.site.feed),
            local(self.site.relay_admin)
        ));
        line.extend(tls(self.site.folder.path(), "relay"));
        for (pool, engine) in [("chat", self.chat), ("code", self.code)] {
            let (events, replay) = engine.sockets();
            let url = format!("zmq://{}?worker=1&replay={replay}&pool={pool}", local(events));
            line.extend(["--source".to_owned(), url]);
        }
        Process::start("relay", RELAY, &line)
    }

    /// The lane of `code` may have a relay of its own.
    fn router(&self, code_feed: u16) -> Process {
        let mut line = args(&format!(
            "--listen {} --admin {} --silence-ms 1500 --patience-ms 1000",
            local(self.site.front),
            local(self.site.router_admin)
        ));
        let lanes = [("chat", self.chat, self.site.feed), ("code", self.code, code_feed)];
        for (pool, engine, feed) in lanes {
            let (feed, engine) = (local(feed), http(engine.http, ""));
            let dc = format!("id=1,pool={pool},relay=https://{feed},endpoint={engine}");
            line.extend(["--dc".to_owned(), dc]);
        }
        line.extend(tls(self.site.folder.path(), "router"));
        Process::start("router", ROUTER, &line)
    }

    async fn until_ready(&self, pool: &str) {
        let label = format!("pool=\"{pool}\"");
        let watch = &self.site.watch;
        watch.until(self.site.router_admin, "ckf_lane_ready", &[&label], 1.0).await;
    }

    async fn lane(&self, pool: &str, what: &str) -> f64 {
        let labels = [&format!("pool=\"{pool}\"")[..], &format!("\"{what}\"")];
        self.site.watch.metric(self.site.router_admin, "ckf_lane_total", &labels).await
    }

    async fn complete(&self, pool: &str, prompt: &[u32]) -> Option<Value> {
        let body = json!({ "model": pool, "prompt": prompt, "max_tokens": 1 });
        self.site.watch.post(self.site.front, "/v1/completions", &body).await
    }

    async fn until_depths(&self, prompt: &[u32], chat: u64, code: u64) {
        for (pool, depth) in [("chat", chat), ("code", code)] {
            let mut found = Value::Null;
            for _ in 0..300 {
                let body = json!({ "model": pool, "prompt": prompt });
                let answer = self.site.watch.post(self.site.front, "/v1/route", &body).await;
                found = answer.unwrap_or_default()["depths"]["1"].clone();
                if found == depth {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            assert_eq!(found, depth, "{pool}");
        }
    }
}

/// Each pool has its own members, identity and lane; requests say which one they mean.
#[tokio::test]
async fn pools_share_a_relay_and_nothing_else() {
    let two = TwoPools::new();
    let _chat = two.chat.start().await;
    let _relay = two.relay();
    let _router = two.router(two.site.feed);
    // The engine of one pool is missing: the other pool does not wait for it.
    two.until_ready("chat").await;
    // The relay may have been slower to start than the router.
    let resyncs = two.lane("chat", "resync").await;
    assert!(two.site.watch.get(two.site.relay_admin, "/readyz").await.is_none());
    assert!(two.site.watch.get(two.site.router_admin, "/readyz").await.is_none());
    let unready = "ckf_feed_requests_total";
    two.site.watch.until(two.site.relay_admin, unready, &["unready"], 1.0).await;
    assert!(two.complete("chat", &prompt(1, 4)).await.is_some());

    let code = two.code.start().await;
    two.until_ready("code").await;
    two.site.watch.up(two.site.relay_admin, "/readyz").await;
    two.site.watch.up(two.site.router_admin, "/readyz").await;
    two.until_depths(&prompt(1, 4), 4, 0).await;
    assert!(two.complete("code", &prompt(1, 4)[..32]).await.is_some());
    two.until_depths(&prompt(1, 4), 4, 2).await;
    assert!(two.complete("nobody's", &prompt(1, 4)).await.is_none(), "no such pool");

    // One engine starts over with nothing: only its pool forgets.
    code.kill();
    let _code = two.code.start().await;
    two.until_depths(&prompt(1, 4), 4, 0).await;
    assert_eq!(two.lane("chat", "resync").await, resyncs);
    assert_eq!(two.lane("chat", "snapshot").await, 1.0);
}

/// A frame that is damaged on the way to one pool's lane retires that lane only.
#[tokio::test]
async fn a_fault_in_one_pool_leaves_the_other_ready() {
    let two = TwoPools::new();
    let _engines = [two.chat.start().await, two.code.start().await];
    let _relay = two.relay();
    two.site.watch.up(two.site.relay_admin, "/readyz").await;
    let through = tamperer(&two.site).await;
    let _router = two.router(through);
    let retired = "ckf_lane_retired_total";
    let code = ["pool=\"code\"", "malformed"];
    two.site.watch.until(two.site.router_admin, retired, &code, 1.0).await;
    two.until_ready("chat").await;
    two.until_ready("code").await;
    assert!(two.complete("code", &prompt(2, 3)).await.is_some());
    two.until_depths(&prompt(2, 3), 0, 3).await;
    assert_eq!(two.lane("chat", "resync").await, 0.0);
    assert_eq!(two.lane("chat", "snapshot").await, 1.0);
}
