//! Counters in the text form that Prometheus reads.

use std::collections::BTreeSet;
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

/// One answer to a scrape.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    known: BTreeSet<&'static str>,
}

impl Page {
    /// A figure that only rises while the process lives. `labels` are pairs.
    pub fn counter(&mut self, name: &'static str, labels: &[(&str, &dyn Display)], value: u64) {
        self.sample(name, "counter", labels, &value);
    }

    /// A figure of the moment.
    pub fn gauge(
        &mut self,
        name: &'static str,
        labels: &[(&str, &dyn Display)],
        value: impl Display,
    ) {
        self.sample(name, "gauge", labels, &value);
    }

    fn sample(
        &mut self,
        name: &'static str,
        kind: &str,
        labels: &[(&str, &dyn Display)],
        value: &dyn Display,
    ) {
        if self.known.insert(name) {
            let _ = writeln!(self.text, "# TYPE {name} {kind}");
        }
        self.text.push_str(name);
        for (i, (key, value)) in labels.iter().enumerate() {
            let value =
                value.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{}{key}=\"{value}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_stated_once_and_labels_are_escaped() {
        let mut page = Page::default();
        page.counter("a_total", &[("x", &1), ("y", &"q\"\\")], 7);
        page.counter("a_total", &[], 8);
        page.gauge("b", &[], 0.5);
        assert_eq!(
            page.into_text(),
            "# TYPE a_total counter\na_total{x=\"1\",y=\"q\\\"\\\\\"} 7\na_total 8\n# TYPE b gauge\nb 0.5\n"
        );
    }
}
