//! Health, metrics and diagnosis of a relay over plain HTTP, for its own data center only.

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use super::feed::FeedCounters;
use super::pool::{PoolHandle, PoolReport};
use super::sources::Watched;
use crate::hosts::clock::Clock;
use crate::hosts::dynamo::reason::ReasonCounters;
use crate::hosts::listen::AcceptCounters;
use crate::hosts::lock;
use crate::hosts::metrics::{Counter, Labels, Page};
use crate::hosts::nats::NatsCounters;
use crate::hosts::tls::TlsCounters;

/// What the pages are made of.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The pools.
    pub pools: Arc<Vec<PoolHandle>>,
    /// The sources.
    pub watched: Watched,
    /// What happened.
    pub counters: Arc<RelayCounters>,
    /// The relay's time.
    pub clock: Clock,
}

/// Counters of the whole process.
#[derive(Debug, Default)]
pub struct RelayCounters {
    /// Connections of subscribers.
    pub accepts: Arc<AcceptCounters>,
    /// Connections of operators.
    pub admin: Arc<AcceptCounters>,
    /// Requests of subscribers.
    pub feed: Arc<FeedCounters>,
    /// Reasons given to subscribers of Dynamo's contract.
    pub dynamo: Arc<ReasonCounters>,
    /// Looks at the certificates' files.
    pub tls: Arc<TlsCounters>,
    /// Connections to a NATS server.
    pub nats: Arc<NatsCounters>,
    /// Looks at the sources file that found it absent, half-written or wrong.
    pub sources_file_errors: Arc<Counter>,
}

impl Admin {
    /// The pages; the diagnostic one only on demand, since it tells about every member.
    pub fn router(self, diagnosis: bool) -> Router {
        let mut router = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics));
        if diagnosis {
            router = router.route("/debug/pools", get(diagnose));
        }
        router.with_state(self)
    }

    async fn reports(&self) -> Vec<(String, PoolReport)> {
        let mut reports = Vec::new();
        for pool in self.pools.iter() {
            if let Some(report) = pool.report().await {
                reports.push((pool.plan.name.clone(), report));
            }
        }
        reports
    }
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    let reports = admin.reports().await;
    let all = reports.len() == admin.pools.len();
    if all && reports.iter().all(|(_, report)| report.readiness.ready.is_some()) {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "sources have not told enough\n")
    }
}

async fn metrics(State(admin): State<Admin>) -> String {
    let mut page = Page::default();
    let reports = admin.reports().await;
    for (name, report) in &reports {
        pool_metrics(&mut page, name, report);
    }
    let counters = &admin.counters;
    counters.accepts.report(&mut page, "feed");
    counters.admin.report(&mut page, "admin");
    let feed = [
        ("opened", counters.feed.opened.get()),
        ("refused", counters.feed.refused.get()),
        ("unready", counters.feed.unready.get()),
    ];
    page.counters("ckf_feed_requests_total", &[], "result", &feed);
    counters.dynamo.report(&mut page, "ckf_dynamo_refused_total", &[]);
    counters.tls.report(&mut page);
    counters.nats.report(&mut page);
    page.counter("ckf_sources_file_errors_total", &[], counters.sources_file_errors.get());
    source_metrics(&mut page, &admin);
    page.into_text()
}

fn source_metrics(page: &mut Page, admin: &Admin) {
    let now = admin.clock.now().as_millis();
    for (spec, counters) in lock(&admin.watched).iter() {
        let source: Labels<'_> = &[("pool", &spec.pool), ("member", &spec.member)];
        let figures = [
            ("connects", counters.connects.get()),
            ("disconnects", counters.disconnects.get()),
            ("batches", counters.batches.get()),
            ("bytes", counters.bytes.get()),
            ("garbage", counters.garbage.get()),
            ("oversized", counters.oversized.get()),
            ("unknown_events", counters.unknown_events.get()),
            ("foreign_rank", counters.foreign_rank.get()),
            ("restarts", counters.restarts.get()),
            ("given_up", counters.given_up.get()),
            ("replays", counters.replays.get()),
            ("failed_replays", counters.failed_replays.get()),
        ];
        page.counters("ckf_source_total", source, "what", &figures);
        let silent = now.saturating_sub(counters.heard_at.get()) as f64 / 1000.0;
        page.gauge("ckf_source_silent_seconds", source, silent);
    }
}

fn pool_metrics(page: &mut Page, name: &str, report: &PoolReport) {
    let PoolReport { pool: stats, publish, .. } = report;
    let pool: Labels<'_> = &[("pool", &name)];
    page.gauge("ckf_pool_sequence", pool, report.sequence);
    page.gauge("ckf_pool_members", pool, stats.members);
    page.gauge("ckf_pool_blocks", pool, stats.distinct_blocks);
    page.gauge("ckf_pool_occupancy_per_mille", pool, stats.occupancy_per_mille);
    page.gauge("ckf_pool_omitted", pool, stats.omitted);
    page.gauge("ckf_pool_bytes", pool, stats.bytes.total());
    page.gauge("ckf_pool_ready", pool, u8::from(report.readiness.ready.is_some()));
    page.gauge("ckf_subscribers", pool, publish.subscribers);
    page.counter("ckf_pool_refused_insertions_total", pool, stats.refused_insertions);
    page.counter("ckf_pool_errors_total", pool, report.errors);
    page.counter("ckf_batches_encoded_total", pool, publish.batches_encoded);
    page.counter("ckf_chunks_encoded_total", pool, publish.chunks_encoded);
    let ended = [
        ("lagged", publish.ended.lagged),
        ("replaced", publish.ended.replaced),
        ("deadline", publish.ended.deadline),
        ("disconnected", publish.ended.disconnected),
        ("unsubscribed", publish.ended.unsubscribed),
        ("shutdown", publish.ended.shutdown),
        ("fenced", publish.ended.fenced),
        ("layout_changed", publish.ended.layout_changed),
    ];
    page.counters("ckf_leases_ended_total", pool, "why", &ended);
    let leases = [
        ("granted", publish.granted),
        ("rejected", publish.rejected.total()),
        ("ignored", publish.ignored.total()),
    ];
    page.counters("ckf_leases_total", pool, "what", &leases);
    event_metrics(page, name, report);
}

/// What became of the events of a pool's sources.
fn event_metrics(page: &mut Page, name: &str, report: &PoolReport) {
    let pool: Labels<'_> = &[("pool", &name)];
    let sources = &report.sources;
    let events = [
        ("applied", sources.applied),
        ("duplicate", sources.duplicates),
        ("old_generation", sources.old_generation),
        ("late_answer", sources.late_answers),
        ("orphan_block", sources.orphan_blocks),
    ];
    page.counters("ckf_source_events_total", pool, "what", &events);
    let recoveries = [
        ("started", sources.recoveries),
        ("failed", sources.failures),
        ("started_over", sources.started_over),
        ("request", sources.requests),
        ("replacement", sources.replacements),
    ];
    page.counters("ckf_source_recoveries_total", pool, "what", &recoveries);
    for (member, _, _, stats) in &report.members {
        let left_out = [
            ("other_medium", stats.places.other_medium),
            ("unknown_medium", stats.places.unknown_medium),
            ("other_group", stats.places.other_group),
            ("elsewhere", stats.places.elsewhere),
            ("opaque", stats.opaque),
            ("orphan", stats.orphans),
            ("refused", stats.refused),
        ];
        let labels: Labels<'_> = &[("pool", &name), ("member", member)];
        page.counters("ckf_blocks_left_out_total", labels, "why", &left_out);
    }
}

async fn diagnose(State(admin): State<Admin>) -> String {
    let mut text = String::new();
    for (name, report) in admin.reports().await {
        let _ = writeln!(
            text,
            "pool {name}\nidentity {:?}\nsequence {} digest {:?}\n{:#?}\n{:#?}\n{:?}",
            report.identity,
            report.sequence,
            report.digest,
            report.pool,
            report.publish,
            report.readiness
        );
        for (member, blocks, state, _) in &report.members {
            let _ = writeln!(text, "member {member}: {blocks} blocks, {state:?}");
        }
    }
    text
}
