//! Counters in the text form that Prometheus reads.

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that any thread may raise.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn up(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A figure of the moment that any thread may set.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One answer to a scrape. Samples may be added in any order: those of one name are kept together.
#[derive(Debug, Default)]
pub struct Page {
    families: Vec<Family>,
}

/// All samples of one name.
#[derive(Debug)]
struct Family {
    name: &'static str,
    kind: &'static str,
    lines: String,
}

/// Pairs that tell the samples of one name apart.
pub type Labels<'a> = &'a [(&'a str, &'a dyn Display)];

impl Page {
    /// A figure that only rises while the process lives.
    pub fn counter(&mut self, name: &'static str, labels: Labels<'_>, value: u64) {
        self.sample(name, "counter", labels, &value);
    }

    /// Counters of one name that differ in one more label, `key`.
    pub fn counters(
        &mut self,
        name: &'static str,
        labels: Labels<'_>,
        key: &str,
        values: &[(&str, u64)],
    ) {
        for (what, value) in values {
            let labels = [labels, &[(key, what)]].concat();
            self.counter(name, &labels, *value);
        }
    }

    /// A figure of the moment.
    pub fn gauge(&mut self, name: &'static str, labels: Labels<'_>, value: impl Display) {
        self.sample(name, "gauge", labels, &value);
    }

    fn sample(
        &mut self,
        name: &'static str,
        kind: &'static str,
        labels: Labels<'_>,
        value: &dyn Display,
    ) {
        let at = self.families.iter().position(|family| family.name == name);
        let at = at.unwrap_or_else(|| {
            self.families.push(Family { name, kind, lines: String::new() });
            self.families.len() - 1
        });
        let lines = &mut self.families[at].lines;
        lines.push_str(name);
        for (i, (key, value)) in labels.iter().enumerate() {
            let value =
                value.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(lines, "{}{key}=\"{value}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(lines, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// The text.
    pub fn into_text(self) -> String {
        let mut text = String::new();
        for Family { name, kind, lines } in self.families {
            let _ = write!(text, "# TYPE {name} {kind}\n{lines}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_name_stand_together_and_labels_are_escaped() {
        let mut page = Page::default();
        page.counter("a_total", &[("x", &1), ("y", &"q\"\\")], 7);
        page.gauge("b", &[], 0.5);
        page.counter("a_total", &[], 8);
        page.counters("a_total", &[("x", &2)], "z", &[("s", 1), ("t", 2)]);
        assert_eq!(
            page.into_text(),
            "# TYPE a_total counter\na_total{x=\"1\",y=\"q\\\"\\\\\"} 7\na_total 8\n\
             a_total{x=\"2\",z=\"s\"} 1\na_total{x=\"2\",z=\"t\"} 2\n# TYPE b gauge\nb 0.5\n"
        );
    }
}
