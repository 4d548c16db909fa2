//! What the router shows: a page for people, figures for Prometheus.

use std::fmt::{Display, Write};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::get;
use ckf_consumer::SessionState;

use super::Router;
use super::lane::LaneReport;
use crate::hosts::metrics::Page;

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

/// Ready with the first lane; before that, requests still go out, by load.
async fn ready(State(router): State<Arc<Router>>) -> (StatusCode, String) {
    let ready = router.dcs.iter().filter(|dc| is_ready(&dc.board.read())).count();
    let status = if ready > 0 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{ready} of {} lanes ready\n", router.dcs.len()))
}

/// The page reloads itself; it has no script and takes nothing from the request.
async fn status(State(router): State<Arc<Router>>) -> Html<String> {
    let now = router.clock.now();
    let mut rows = String::new();
    for (lane, dc) in router.dcs.iter().enumerate() {
        let report = dc.board.read();
        let age = report.heard.map_or("never".to_owned(), |heard| {
            format!("{:.1} s", now.saturating_since(heard).get() as f64 / 1000.0)
        });
        let sequence = report.position.map_or("-".to_owned(), |(_, sequence)| sequence.to_string());
        let failure = report.last_failure.map_or("-".to_owned(), |failure| format!("{failure:?}"));
        let state = report.state.map_or("-".to_owned(), |state| format!("{state:?}"));
        let class = if is_ready(&report) { "good" } else { "bad" };
        let _ = write!(
            rows,
            "<tr><td>{lane}<td>{}<td class={class}>{state}<td>{sequence}<td>{age}<td>{}<td>{}<td>{}<td>{}<td>{}",
            dc.spec.id,
            report.stats.resyncs,
            report.stats.deltas,
            dc.in_flight(),
            dc.answered.get(),
            escape(&failure),
        );
    }
    let counters = &router.counters;
    let depths: Vec<u64> = counters.depths.iter().map(|counter| counter.get()).collect();
    let most = depths.iter().copied().max().unwrap_or(0).max(1);
    let mut bars = String::new();
    for (class, &count) in depths.iter().enumerate() {
        let (from, to) = if class == 0 { (0, 0) } else { (1 << (class - 1), (1u64 << class) - 1) };
        let label = if from == to { from.to_string() } else { format!("{from}-{to}") };
        let _ = write!(
            bars,
            "<tr><td>{label}<td>{count}<td><div class=bar style=\"width:{}px\"></div>",
            count * 300 / most
        );
    }
    Html(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>\
         <title>ckf router</title><style>{STYLE}</style><h1>ckf router</h1>\
         <table><tr><th>lane<th>data center<th>state<th>sequence<th>last heard<th>resyncs<th>deltas\
         <th>under way<th>answered<th>last failure{rows}</table>\
         <h2>Requests</h2><p>by depth {} &middot; by load {} &middot; failovers {} &middot; \
         failed {} &middot; broken {} &middot; bad {}</p>\
         <h2>Depth where sent</h2><table><tr><th>blocks<th>requests<th>{bars}</table></html>",
        counters.by_depth.get(),
        counters.by_load.get(),
        counters.failovers.get(),
        counters.failed.get(),
        counters.broken.get(),
        counters.bad.get(),
    ))
}

const STYLE: &str = "body{font:15px sans-serif;margin:2em}table{border-collapse:collapse}\
    td,th{padding:.3em .8em;border-bottom:1px solid #ccc;text-align:left}\
    .good{color:#070}.bad{color:#a00}.bar{background:#48c;height:.9em}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

async fn metrics(State(router): State<Arc<Router>>) -> String {
    let mut page = Page::default();
    let now = router.clock.now();
    let reports: Vec<_> = router.dcs.iter().map(|dc| (dc, dc.board.read())).collect();
    for (dc, report) in &reports {
        let dc: [(&str, &dyn Display); 1] = [("dc", &dc.spec.id)];
        page.gauge("ckf_lane_ready", &dc, u8::from(is_ready(report)));
        if let Some((_, sequence)) = report.position {
            page.gauge("ckf_lane_sequence", &dc, sequence);
        }
        if let Some(heard) = report.heard {
            page.gauge(
                "ckf_lane_silent_seconds",
                &dc,
                now.saturating_since(heard).get() as f64 / 1000.0,
            );
        }
    }
    for (dc, report) in &reports {
        let (stats, failures) = (report.stats, report.stats.failures);
        let mut many = |metric, key: &str, figures: &[(&str, u64)]| {
            for (what, value) in figures {
                page.counter(metric, &[("dc", &dc.spec.id), (key, what)], *value);
            }
        };
        many(
            "ckf_lane_total",
            "what",
            &[
                ("subscribe", stats.subscribes),
                ("resync", stats.resyncs),
                ("snapshot", stats.snapshots),
                ("delta", stats.deltas),
                ("heartbeat", stats.heartbeats),
                ("byte", stats.bytes),
                ("ignored", stats.ignored.total()),
            ],
        );
        many(
            "ckf_lane_retired_total",
            "why",
            &[
                ("gap", failures.gap + failures.snapshot_gap),
                ("malformed", failures.malformed),
                ("identity", failures.identity),
                ("digest", failures.digest),
                ("by_producer", failures.by_producer),
                ("rejected", failures.rejected),
                ("deadline", failures.subscribe_deadline + failures.snapshot_deadline),
                ("silence", failures.silence),
                ("disconnected", failures.disconnected),
            ],
        );
        many("ckf_answers_total", "result", &[("answered", dc.answered.get())]);
    }
    let counters = &router.counters;
    let requests = [
        ("by_depth", &counters.by_depth),
        ("by_load", &counters.by_load),
        ("failover", &counters.failovers),
        ("failed", &counters.failed),
        ("broken", &counters.broken),
        ("bad", &counters.bad),
    ];
    for (what, counter) in requests {
        page.counter("ckf_requests_total", &[("what", &what)], counter.get());
    }
    counters.front.report(&mut page, "front");
    counters.admin.report(&mut page, "admin");
    counters.nats.report(&mut page);
    page.into_text()
}
