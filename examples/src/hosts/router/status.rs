//! What the router shows: a page for people, figures for Prometheus.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use ckf_protocol::Instant;

use super::spec::DcSpec;
use super::{Dc, PoolRouter, Router};
use crate::hosts::metrics::{Counter, Labels, Page};

/// The pages, for the router's own network only.
pub fn routes(router: Arc<Router>) -> axum::Router {
    axum::Router::new()
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(router)
}

/// Ready once each pool has a ready lane; before that, requests still go out, by load.
async fn ready(State(router): State<Arc<Router>>) -> (StatusCode, String) {
    let (mut text, mut status) = (String::new(), StatusCode::OK);
    if router.stop.is_told() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned());
    }
    for pool in &router.pools {
        let ready = pool.dcs.iter().filter(|dc| dc.board.read().is_ready()).count();
        if ready == 0 {
            status = StatusCode::SERVICE_UNAVAILABLE;
        }
        let _ = writeln!(text, "pool {}: {ready} of {} lanes ready", pool.name, pool.dcs.len());
    }
    (status, text)
}

/// The page reloads itself; it has no script and takes nothing from the request.
async fn status(State(router): State<Arc<Router>>) -> impl IntoResponse {
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>\
         <title>ckf router</title><style>{STYLE}</style><h1>ckf router</h1>"
    );
    if router.stop.is_told() {
        page.push_str("<p class=bad>ends as soon as the answers under way are over");
    }
    for pool in &router.pools {
        show_pool(&mut page, pool);
    }
    page.push_str("</html>");
    // Whatever a name says, no script runs.
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    ([(header::CACHE_CONTROL, "no-store"), (header::CONTENT_SECURITY_POLICY, policy)], Html(page))
}

fn show_pool(page: &mut String, pool: &PoolRouter) {
    let _ = write!(
        page,
        "<h2>Pool {}</h2><table><tr><th>lane<th>data center<th>state<th>sequence<th>last heard\
         <th>resyncs<th>deltas<th>under way<th>answered<th>last failure<th>last error",
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
         failed {} &middot; broken {} &middot; abandoned {}</p>\
         <table><tr><th>depth where sent<th>requests<th>",
        counters.by_depth.get(),
        counters.by_load.get(),
        counters.failovers.get(),
        counters.failed.get(),
        counters.broken.get(),
        counters.abandoned.get(),
    );
    let depths: Vec<u64> = counters.depths.iter().map(Counter::get).collect();
    let most = depths.iter().copied().max().unwrap_or(0).max(1);
    let classes = depths.iter().rposition(|&count| count > 0).map_or(1, |last| last + 1);
    for (class, &count) in depths[..classes].iter().enumerate() {
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
    let class = if report.is_ready() { "good" } else { "bad" };
    let _ = write!(
        page,
        "<tr><td>{lane}<td>{}<td class={class}>{state}<td>{sequence}<td>{age}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
        escape(&dc.spec.name),
        report.stats.resyncs,
        report.stats.deltas,
        dc.in_flight(),
        dc.answered.get(),
        failure,
        escape(report.last_error.as_deref().unwrap_or("-")),
    );
}

const STYLE: &str = "body{font:15px sans-serif;margin:2em}table{border-collapse:collapse}\
    td,th{padding:.3em .8em;border-bottom:1px solid #ccc;text-align:left}\
    .good{color:#070}.bad{color:#a00}.bar{background:#48c;height:.9em}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

async fn metrics(State(router): State<Arc<Router>>) -> String {
    let mut page = Page::default();
    for pool in &router.pools {
        for dc in &pool.dcs {
            lane_metrics(&mut page, pool, dc);
        }
        let counters = &pool.counters;
        let requests = [
            ("by_depth", counters.by_depth.get()),
            ("by_load", counters.by_load.get()),
            ("failover", counters.failovers.get()),
            ("failed", counters.failed.get()),
            ("broken", counters.broken.get()),
            ("abandoned", counters.abandoned.get()),
            ("unframed", counters.unframed.get()),
        ];
        page.counters("ckf_requests_total", &[("pool", &pool.name)], "what", &requests);
    }
    page.counter("ckf_bad_requests_total", &[], router.counters.bad.get());
    router.bodies.report(&mut page);
    router.counters.front.report(&mut page, "front");
    router.counters.admin.report(&mut page, "admin");
    router.counters.nats.report(&mut page);
    router.counters.tls.report(&mut page);
    page.into_text()
}

fn lane_metrics(page: &mut Page, pool: &PoolRouter, dc: &Dc) {
    let report = dc.board.read();
    let DcSpec { id, name, relay, .. } = &dc.spec;
    let lane: Labels<'_> = &[("pool", &pool.name), ("dc", id), ("name", name), ("relay", relay)];
    page.gauge("ckf_lane_ready", lane, u8::from(report.is_ready()));
    if let Some((_, sequence)) = report.position {
        page.gauge("ckf_lane_sequence", lane, sequence);
    }
    if let Some(heard) = report.heard {
        let silent = pool.clock.now().saturating_since(heard).get() as f64 / 1000.0;
        page.gauge("ckf_lane_silent_seconds", lane, silent);
    }
    let serving = dc.serving.read();
    if let Some(ready) = serving.ready {
        page.gauge("ckf_dc_serving", lane, u8::from(ready));
    }
    if let Some((used, total)) = serving.kv {
        page.gauge("ckf_dc_kv_used_blocks", lane, used);
        page.gauge("ckf_dc_kv_total_blocks", lane, total);
    }
    page.gauge("ckf_requests_under_way", lane, dc.in_flight());
    if let Some(refusals) = &dc.refusals {
        refusals.counters.report(page, "ckf_dynamo_errors_total", lane);
    }
    page.counter("ckf_answers_total", lane, dc.answered.get());
    page.counter("ckf_lane_link_errors_total", lane, report.link_errors);
    let stats = report.stats;
    let frames = [
        ("subscribe", stats.subscribes),
        ("resync", stats.resyncs),
        ("snapshot", stats.snapshots),
        ("delta", stats.deltas),
        ("heartbeat", stats.heartbeats),
        ("byte", stats.bytes),
        ("ignored", stats.ignored.total()),
    ];
    page.counters("ckf_lane_total", lane, "what", &frames);
    let failures = stats.failures;
    let retired = [
        ("gap", failures.gap + failures.snapshot_gap),
        ("malformed", failures.malformed),
        ("identity", failures.identity),
        ("digest", failures.digest),
        ("by_producer", failures.by_producer),
        ("rejected", failures.rejected),
        ("deadline", failures.subscribe_deadline + failures.snapshot_deadline),
        ("silence", failures.silence),
        ("disconnected", failures.disconnected),
    ];
    page.counters("ckf_lane_retired_total", lane, "why", &retired);
}
