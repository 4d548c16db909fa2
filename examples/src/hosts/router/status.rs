//! What the router shows: a page for people, figures for Prometheus.

use std::fmt::{Display, Write};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::get;
use ckf_consumer::{SessionState, SessionStats};
use ckf_protocol::Instant;

use super::lane::LaneReport;
use super::{Dc, PoolRouter, Router};
use crate::hosts::metrics::{Counter, Page};

/// The pages, for the router's own network only.
pub fn routes(router: Arc<Router>) -> axum::Router {
    axum::Router::new()
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(router)
}

fn is_ready(report: &LaneReport) -> bool {
    report.state == Some(SessionState::Ready)
}

/// Ready once each pool has a ready lane; before that, requests still go out, by load.
async fn ready(State(router): State<Arc<Router>>) -> (StatusCode, String) {
    let (mut text, mut status) = (String::new(), StatusCode::OK);
    for pool in &router.pools {
        let ready = pool.dcs.iter().filter(|dc| is_ready(&dc.board.read())).count();
        if ready == 0 {
            status = StatusCode::SERVICE_UNAVAILABLE;
        }
        let _ = writeln!(text, "pool {}: {ready} of {} lanes ready", pool.name, pool.dcs.len());
    }
    (status, text)
}

/// The page reloads itself; it has no script and takes nothing from the request.
async fn status(State(router): State<Arc<Router>>) -> Html<String> {
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>\
         <title>ckf router</title><style>{STYLE}</style><h1>ckf router</h1>"
    );
    for pool in &router.pools {
        show_pool(&mut page, pool);
    }
    page.push_str("</html>");
    Html(page)
}

fn show_pool(page: &mut String, pool: &PoolRouter) {
    let _ = write!(
        page,
        "<h2>Pool {}</h2><table><tr><th>lane<th>data center<th>state<th>sequence<th>last heard\
         <th>resyncs<th>deltas<th>under way<th>answered<th>last failure",
        escape(&pool.name)
    );
    let now = pool.clock.now();
    for (lane, dc) in pool.dcs.iter().enumerate() {
        show_lane(page, lane, dc, now);
    }
    let counters = &pool.counters;
    let _ = write!(
        page,
        "</table><p>Requests: by depth {} &middot; by load {} &middot; failovers {} &middot; \
         failed {} &middot; broken {}</p>\
         <table><tr><th>depth where sent<th>requests<th>",
        counters.by_depth.get(),
        counters.by_load.get(),
        counters.failovers.get(),
        counters.failed.get(),
        counters.broken.get(),
    );
    let depths: Vec<u64> = counters.depths.iter().map(Counter::get).collect();
    let most = depths.iter().copied().max().unwrap_or(0).max(1);
    for (class, &count) in depths.iter().enumerate() {
        let (from, to) = if class == 0 { (0, 0) } else { (1 << (class - 1), (1u64 << class) - 1) };
        let label = if from == to { from.to_string() } else { format!("{from}-{to}") };
        let width = u128::from(count) * 300 / u128::from(most);
        let _ = write!(
            page,
            "<tr><td>{label}<td>{count}<td><div class=bar style=\"width:{width}px\"></div>"
        );
    }
    page.push_str("</table>");
}

fn show_lane(page: &mut String, lane: usize, dc: &Dc, now: Instant) {
    let report = dc.board.read();
    let age = report.heard.map_or("never".to_owned(), |heard| {
        format!("{:.1} s", now.saturating_since(heard).get() as f64 / 1000.0)
    });
    let sequence = report.position.map_or("-".to_owned(), |(_, sequence)| sequence.to_string());
    let failure = report.last_failure.map_or("-".to_owned(), |failure| format!("{failure:?}"));
    let state = report.state.map_or("-".to_owned(), |state| format!("{state:?}"));
    let class = if is_ready(&report) { "good" } else { "bad" };
    let _ = write!(
        page,
        "<tr><td>{lane}<td>{}<td class={class}>{state}<td>{sequence}<td>{age}<td>{}<td>{}<td>{}<td>{}<td>{}",
        dc.spec.id,
        report.stats.resyncs,
        report.stats.deltas,
        dc.in_flight(),
        dc.answered.get(),
        escape(&failure),
    );
}

const STYLE: &str = "body{font:15px sans-serif;margin:2em}table{border-collapse:collapse}\
    td,th{padding:.3em .8em;border-bottom:1px solid #ccc;text-align:left}\
    .good{color:#070}.bad{color:#a00}.bar{background:#48c;height:.9em}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

async fn metrics(State(router): State<Arc<Router>>) -> String {
    let mut page = Page::default();
    let pools = || router.pools.iter().flat_map(|pool| pool.dcs.iter().map(move |dc| (pool, dc)));
    let lanes: Vec<_> = pools().map(|(pool, dc)| (pool, dc, dc.board.read())).collect();
    for (pool, dc, report) in &lanes {
        let lane: [(&str, &dyn Display); 2] = [("pool", &pool.name), ("dc", &dc.spec.id)];
        page.gauge("ckf_lane_ready", &lane, u8::from(is_ready(report)));
    }
    for (pool, dc, report) in &lanes {
        let lane: [(&str, &dyn Display); 2] = [("pool", &pool.name), ("dc", &dc.spec.id)];
        if let Some((_, sequence)) = report.position {
            page.gauge("ckf_lane_sequence", &lane, sequence);
        }
    }
    for (pool, dc, report) in &lanes {
        let lane: [(&str, &dyn Display); 2] = [("pool", &pool.name), ("dc", &dc.spec.id)];
        if let Some(heard) = report.heard {
            let silent = pool.clock.now().saturating_since(heard).get() as f64 / 1000.0;
            page.gauge("ckf_lane_silent_seconds", &lane, silent);
        }
    }
    for (pool, dc) in pools() {
        let lane: [(&str, &dyn Display); 2] = [("pool", &pool.name), ("dc", &dc.spec.id)];
        if let Some(serving) = dc.serving.read().ready {
            page.gauge("ckf_dc_serving", &lane, u8::from(serving));
        }
    }
    for (pool, dc) in pools() {
        if let Some((used, total)) = dc.serving.read().kv {
            for (what, blocks) in [("used", used), ("total", total)] {
                let labels: [(&str, &dyn Display); 3] =
                    [("pool", &pool.name), ("dc", &dc.spec.id), ("what", &what)];
                page.gauge("ckf_dc_kv_blocks", &labels, blocks);
            }
        }
    }
    for (name, key, read) in LANE_COUNTERS {
        for (pool, dc, report) in &lanes {
            for (what, value) in read(&report.stats) {
                let labels: [(&str, &dyn Display); 3] =
                    [("pool", &pool.name), ("dc", &dc.spec.id), (key, &what)];
                page.counter(name, &labels, value);
            }
        }
    }
    for (pool, dc) in pools() {
        let lane: [(&str, &dyn Display); 2] = [("pool", &pool.name), ("dc", &dc.spec.id)];
        page.counter("ckf_answers_total", &lane, dc.answered.get());
    }
    for pool in &router.pools {
        let counters = &pool.counters;
        let requests = [
            ("by_depth", &counters.by_depth),
            ("by_load", &counters.by_load),
            ("failover", &counters.failovers),
            ("failed", &counters.failed),
            ("broken", &counters.broken),
        ];
        for (what, counter) in requests {
            let labels: [(&str, &dyn Display); 2] = [("pool", &pool.name), ("what", &what)];
            page.counter("ckf_requests_total", &labels, counter.get());
        }
    }
    page.counter("ckf_bad_requests_total", &[], router.counters.bad.get());
    router.counters.front.report(&mut page, "front");
    router.counters.admin.report(&mut page, "admin");
    router.counters.nats.report(&mut page);
    page.into_text()
}

type LaneCounter = (&'static str, &'static str, fn(&SessionStats) -> Vec<(&'static str, u64)>);

/// Names, what tells the samples of one name apart, and their values.
const LANE_COUNTERS: [LaneCounter; 2] = [
    ("ckf_lane_total", "what", |stats| {
        vec![
            ("subscribe", stats.subscribes),
            ("resync", stats.resyncs),
            ("snapshot", stats.snapshots),
            ("delta", stats.deltas),
            ("heartbeat", stats.heartbeats),
            ("byte", stats.bytes),
            ("ignored", stats.ignored.total()),
        ]
    }),
    ("ckf_lane_retired_total", "why", |stats| {
        let failures = stats.failures;
        vec![
            ("gap", failures.gap + failures.snapshot_gap),
            ("malformed", failures.malformed),
            ("identity", failures.identity),
            ("digest", failures.digest),
            ("by_producer", failures.by_producer),
            ("rejected", failures.rejected),
            ("deadline", failures.subscribe_deadline + failures.snapshot_deadline),
            ("silence", failures.silence),
            ("disconnected", failures.disconnected),
        ]
    }),
];
