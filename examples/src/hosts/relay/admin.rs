//! Health, metrics and diagnosis of a relay over plain HTTP, for its own data center only.

use std::fmt::{Display, Write};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use super::feed::FeedCounters;
use super::pool::{PoolHandle, PoolReport};
use super::sources::{Watched, lock};
use crate::hosts::clock::Clock;
use crate::hosts::listen::AcceptCounters;
use crate::hosts::metrics::{Counter, Page};
use crate::hosts::nats::NatsCounters;
use crate::hosts::source::SourceCounters;

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
        ("opened", &counters.feed.opened),
        ("refused", &counters.feed.refused),
        ("unready", &counters.feed.unready),
    ];
    for (what, counter) in feed {
        page.counter("ckf_feed_requests_total", &[("result", &what)], counter.get());
    }
    counters.nats.report(&mut page);
    page.counter("ckf_sources_file_errors_total", &[], counters.sources_file_errors.get());
    source_metrics(&mut page, &admin);
    page.into_text()
}

fn source_metrics(page: &mut Page, admin: &Admin) {
    let watched = lock(&admin.watched).clone();
    let now = admin.clock.now().as_millis();
    type Read = fn(&SourceCounters) -> &Counter;
    let figures: [(&str, Read); 11] = [
        ("connects", |c| &c.connects),
        ("disconnects", |c| &c.disconnects),
        ("batches", |c| &c.batches),
        ("bytes", |c| &c.bytes),
        ("garbage", |c| &c.garbage),
        ("oversized", |c| &c.oversized),
        ("unknown_events", |c| &c.unknown_events),
        ("foreign_rank", |c| &c.foreign_rank),
        ("restarts", |c| &c.restarts),
        ("replays", |c| &c.replays),
        ("failed_replays", |c| &c.failed_replays),
    ];
    for (what, read) in figures {
        for (spec, counters) in &watched {
            let labels: [(&str, &dyn Display); 3] =
                [("pool", &spec.pool), ("member", &spec.member), ("what", &what)];
            page.counter("ckf_source_total", &labels, read(counters).get());
        }
    }
    for (spec, counters) in &watched {
        let silent = now.saturating_sub(counters.heard_at.get()) as f64 / 1000.0;
        let labels: [(&str, &dyn Display); 2] = [("pool", &spec.pool), ("member", &spec.member)];
        page.gauge("ckf_source_silent_seconds", &labels, silent);
    }
}

fn pool_metrics(page: &mut Page, name: &str, report: &PoolReport) {
    let pool: [(&str, &dyn Display); 1] = [("pool", &name)];
    page.gauge("ckf_pool_sequence", &pool, report.sequence);
    page.gauge("ckf_pool_members", &pool, report.pool.members);
    page.gauge("ckf_pool_blocks", &pool, report.pool.distinct_blocks);
    page.gauge("ckf_pool_occupancy_per_mille", &pool, report.pool.occupancy_per_mille);
    page.gauge("ckf_pool_omitted", &pool, report.pool.omitted);
    page.gauge("ckf_pool_bytes", &pool, report.pool.bytes.total());
    page.gauge("ckf_pool_ready", &pool, u8::from(report.readiness.ready.is_some()));
    page.gauge("ckf_subscribers", &pool, report.publish.subscribers);
    page.counter("ckf_batches_encoded_total", &pool, report.publish.batches_encoded);
    page.counter("ckf_chunks_encoded_total", &pool, report.publish.chunks_encoded);
    let mut many = |metric, key: &str, figures: &[(&str, u64)]| {
        for (what, value) in figures {
            page.counter(metric, &[("pool", &name), (key, what)], *value);
        }
    };
    let ended = report.publish.ended;
    many(
        "ckf_leases_ended_total",
        "why",
        &[
            ("lagged", ended.lagged),
            ("replaced", ended.replaced),
            ("deadline", ended.deadline),
            ("disconnected", ended.disconnected),
            ("unsubscribed", ended.unsubscribed),
            ("shutdown", ended.shutdown),
            ("fenced", ended.fenced),
            ("layout_changed", ended.layout_changed),
        ],
    );
    many(
        "ckf_leases_total",
        "what",
        &[
            ("granted", report.publish.granted),
            ("rejected", report.publish.rejected.total()),
            ("ignored", report.publish.ignored.total()),
        ],
    );
    let sources = report.sources;
    many(
        "ckf_source_events_total",
        "what",
        &[
            ("applied", sources.applied),
            ("duplicate", sources.duplicates),
            ("old_generation", sources.old_generation),
            ("late_answer", sources.late_answers),
            ("orphan_block", sources.orphan_blocks),
        ],
    );
    many(
        "ckf_source_recoveries_total",
        "what",
        &[
            ("started", sources.recoveries),
            ("failed", sources.failures),
            ("full_state", sources.full_states),
            ("request", sources.requests),
            ("replacement", sources.replacements),
        ],
    );
    let sum = |read: fn(&ckf_producer::source::TranslatorStats) -> u64| {
        report.members.iter().map(|(_, _, _, stats)| read(stats)).sum::<u64>()
    };
    many(
        "ckf_blocks_left_out_total",
        "why",
        &[
            ("other_medium", sum(|stats| stats.places.other_medium)),
            ("unknown_medium", sum(|stats| stats.places.unknown_medium)),
            ("other_group", sum(|stats| stats.places.other_group)),
            ("elsewhere", sum(|stats| stats.places.elsewhere)),
            ("opaque", sum(|stats| stats.opaque)),
            ("orphan", sum(|stats| stats.orphans)),
            ("refused", sum(|stats| stats.refused)),
        ],
    );
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
