//! The HTML report: one file, no script, nothing from the network.

use super::figures::{Figures, bytes, count, nanos, ratio};
use super::histogram::Histogram;
use super::policy::Policy;
use super::svg::{self, Bar, Line};
use super::timeline::Window;

/// All that the report shows.
pub struct Report<'a> {
    /// The command line, as typed.
    pub command: &'a str,
    /// Policies in the order of [`Window::hits`], the main one first.
    pub policies: &'a [Policy],
    /// The figures of the run.
    pub figures: &'a Figures,
    /// The course of the run.
    pub windows: &'a [Window],
    /// Times of all lookups.
    pub lookups: &'a Histogram,
}

impl Report<'_> {
    /// The whole page.
    pub fn html(&self) -> String {
        let figures = self.figures;
        let tiles = [
            ("requests", count(figures.requests)),
            ("hit rate", format!("{:.1} %", 100.0 * figures.hit_rate)),
            (
                "answers as the oracle's",
                format!("{:.3} %", 100.0 * ratio(figures.answers_equal, figures.answers)),
            ),
            ("lookup p50", nanos(figures.lookup_ns_p50)),
            ("wire", bytes(figures.wire_bytes_delta + figures.wire_bytes_snapshot)),
            ("converged", if figures.converged { "yes" } else { "no" }.to_owned()),
        ];
        let tiles: String = tiles
            .iter()
            .map(|(name, value)| {
                format!("<div><b>{}</b><span>{name}</span></div>", svg::escape(value))
            })
            .collect();
        let sections = [
            (
                "Depth by DC",
                "Leading blocks that each DC is said to hold, mean over the queries.",
                self.depth(),
            ),
            ("Hit rate by policy", "Blocks served from a cache / blocks queried.", self.hit_rate()),
            (
                "Wire bytes over time",
                "Sent by all producers since the start, in simulated time.",
                self.wire(),
            ),
            ("Lookup latency", "Time of one query over all lanes.", self.latency()),
        ];
        let sections: String = sections
            .iter()
            .map(|(title, note, chart)| {
                format!("<section><h2>{title}</h2><p>{note}</p>{chart}</section>")
            })
            .collect();
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">\
             <title>Multi-DC replay</title><style>{STYLE}</style></head><body>\
             <h1>Multi-DC replay</h1><code>{}</code><div class=\"tiles\">{tiles}</div>\
             <main>{sections}</main><h2>All figures</h2><pre>{}</pre></body></html>\n",
            svg::escape(self.command),
            svg::escape(&self.figures.to_string()),
        )
    }

    fn depth(&self) -> String {
        let dcs = self.windows.first().map_or(0, |window| window.depths.len());
        let line = |dc: usize| Line {
            name: format!("DC {dc}"),
            points: self.by_requests(|window| {
                let (answers, depth) = window.depths[dc];
                (answers > 0).then(|| ratio(depth, answers))
            }),
        };
        svg::lines("requests", "blocks", &(0..dcs).map(line).collect::<Vec<_>>())
    }

    fn hit_rate(&self) -> String {
        let line = |(i, policy): (usize, &Policy)| {
            let rate =
                self.figures.policies.get(policy.name()).map_or(0.0, |policy| policy.hit_rate);
            Line {
                name: format!("{} ({:.1} % of all)", policy.name(), 100.0 * rate),
                points: self.by_requests(|window| {
                    (window.blocks > 0).then(|| 100.0 * ratio(window.hits[i], window.blocks))
                }),
            }
        };
        let lines: Vec<_> = self.policies.iter().enumerate().map(line).collect();
        svg::lines("requests", "%", &lines)
    }

    fn wire(&self) -> String {
        let end = self.windows.last().map_or(0, |window| window.ends_at);
        let (unit, millis) = match end {
            0..300_000 => ("seconds", 1e3),
            300_000..18_000_000 => ("minutes", 60e3),
            _ => ("hours", 3_600e3),
        };
        let line = |(i, name): (usize, &str)| {
            let mut sum = 0;
            let points = self.windows.iter().map(|window| {
                sum += window.wire[i];
                (window.ends_at as f64 / millis, sum as f64 / 1_048_576.0)
            });
            Line { name: name.to_owned(), points: points.collect() }
        };
        let lines: Vec<_> = ["deltas", "snapshots"].into_iter().enumerate().map(line).collect();
        svg::lines(unit, "MiB", &lines)
    }

    fn latency(&self) -> String {
        let bins = self.lookups.bins();
        // About six labels, at the left ends of their bars.
        let every = bins.len().div_ceil(6).max(1);
        let bar = |(i, &(from, lookups)): (usize, &(u64, u64))| Bar {
            label: if i % every == 0 { nanos(from) } else { String::new() },
            hint: format!("from {}: {}", nanos(from), count(lookups)),
            value: lookups as f64,
        };
        svg::bars(
            "time of a lookup",
            "lookups",
            &bins.iter().enumerate().map(bar).collect::<Vec<_>>(),
        )
    }

    /// At most [`POINTS`] points at the ends of windows, by requests so far; where there is no value
    /// there is no point.
    fn by_requests(&self, value: impl Fn(&Window) -> Option<f64>) -> Vec<(f64, f64)> {
        let mut requests = 0;
        let merged = self.windows.chunks(self.windows.len().div_ceil(POINTS).max(1));
        let points = merged.filter_map(|windows| {
            let mut sum = windows[0].clone();
            windows[1..].iter().for_each(|window| sum.add(window));
            requests += sum.requests;
            Some((requests as f64, value(&sum)?))
        });
        points.collect()
    }
}

/// Points of a line at most: more would only show noise.
const POINTS: usize = 64;

const STYLE: &str = "\
:root{color-scheme:light dark;--page:#fafafa;--card:#fff;--ink:#1d232b;--soft:#66707c;--grid:#e3e6ea;--faint:#b9c0c8;\
--c0:#2468c8;--c1:#c7650a;--c2:#178a5c;--c3:#b83a78;--c4:#7352cc;--c5:#937200;--c6:#0c838c;--c7:#84506a}\
@media(prefers-color-scheme:dark){:root{--page:#12161b;--card:#1a2027;--ink:#e6eaef;--soft:#98a3af;--grid:#2d353e;--faint:#4d5763;\
--c0:#74aaff;--c1:#ffa758;--c2:#58cf9b;--c3:#f383b4;--c4:#b5a0ff;--c5:#dfbd4c;--c6:#5dced6;--c7:#d8a2bc}}\
body{margin:0 auto;max-width:1400px;padding:24px;background:var(--page);color:var(--ink);\
font:15px/1.45 system-ui,sans-serif}\
h1{margin:0 0 4px;font-size:24px}h2{margin:0;font-size:16px}\
code,pre{font:13px/1.5 ui-monospace,monospace;color:var(--soft);white-space:pre-wrap;overflow-wrap:anywhere}\
pre{background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:12px;color:var(--ink)}\
p{margin:2px 0 8px;color:var(--soft);font-size:13px}\
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0}\
.tiles div{flex:1 1 140px;background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:10px 14px}\
.tiles b{display:block;font-size:21px;font-weight:600}.tiles span{color:var(--soft);font-size:13px}\
main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:16px;margin-bottom:22px}\
section{background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:14px 16px;\
display:flex;flex-direction:column}\
svg{width:100%;height:auto;margin-top:auto}svg text{fill:var(--soft);font-size:11px}\
.grid{stroke:var(--grid)}.line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke:currentColor}\
.bar{fill:var(--c0)}\
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:13px;min-height:20px}\
.legend i{display:inline-block;width:14px;height:3px;border-radius:2px;background:currentColor;\
margin-right:6px;vertical-align:middle}\
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}\
.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}.rest{color:var(--faint)}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_stands_alone_and_shows_four_charts() {
        let mut lookups = Histogram::default();
        lookups.record(900);
        let windows = [Window {
            requests: 2,
            ends_at: 1_500,
            blocks: 10,
            hits: vec![4, 1],
            depths: vec![(2, 9), (0, 0)],
            wire: [100, 5_000],
        }];
        let report = Report {
            command: "replay --trace 'a<b'",
            policies: &[Policy::Prefix, Policy::Load],
            figures: &Figures::default(),
            windows: &windows,
            lookups: &lookups,
        };
        let html = report.html();
        assert_eq!(html.matches("<svg").count(), 4);
        assert!(html.contains("a&lt;b"));
        for outside in ["http:", "https:", "<script", "<link", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        for tag in ["svg", "section", "div", "main", "pre", "span", "text", "polyline"] {
            let (opened, closed) = (format!("<{tag}"), format!("</{tag}>"));
            assert_eq!(html.matches(&opened).count(), html.matches(&closed).count(), "{tag}");
        }
    }
}
