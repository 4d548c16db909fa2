//! The result as tables, for people.

use serde_json::{Map, Value};

/// Prints what was measured; the JSON holds more.
pub fn print(out: &Map<String, Value>) {
    for (name, part) in out {
        match name.as_str() {
            "ratios" => ratios(part),
            "producer" => producer(part),
            _ if part.get("workload").is_some() => lookups(name, part),
            _ => println!("\n{name}\n{part:#}"),
        }
    }
}

fn lookups(name: &str, part: &Value) {
    println!("\n{name}: {}", part["workload"]);
    println!(
        "{:<22}{:>10}{:>10}{:>10}{:>10}{:>12}{:>8}{:>8}{:>8}",
        "ns per request", "p50", "p90", "p99", "p99.9", "memory MB", "over", "under", "wrong"
    );
    for (row, found) in entries(part).filter(|(_, found)| found.get("p50_ns").is_some()) {
        let count = |key: &str| found[key].as_u64().map_or("-".into(), |count| count.to_string());
        let memory =
            found["mem_bytes"].as_f64().map_or("-".into(), |bytes| format!("{:.0}", bytes / 1e6));
        println!(
            "{row:<22}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{memory:>12}{:>8}{:>8}{:>8}",
            number(found, "p50_ns"),
            number(found, "p90_ns"),
            number(found, "p99_ns"),
            number(found, "p999_ns"),
            count("over"),
            count("under"),
            count("wrong_best"),
        );
    }
    for (row, found) in entries(&part["busy"]) {
        println!(
            "{row:<22}{:>10.0} idle{:>10.0} while written at {:.0} writes/s: x {:.2}",
            number(&found["idle"], "p50_ns"),
            number(&found["busy"], "p50_ns"),
            number(found, "writes_per_s"),
            number(found, "p50_ratio"),
        );
    }
}

fn producer(part: &Value) {
    println!("\nproducer: M blocks/s");
    for (side, found) in entries(part).filter(|(_, found)| found.is_object()) {
        for (scenario, found) in entries(found).filter(|(_, found)| found.is_object()) {
            for (phase, found) in [
                (scenario.as_str(), found),
                ("store", &found["store"]),
                ("remove", &found["remove"]),
            ]
            .into_iter()
            .filter(|(_, found)| found.get("blocks_per_s").is_some())
            {
                println!(
                    "{side:<8}{scenario:<16}{phase:<8}{:>9.2}   command us: p50 {:>8.1}  p99.9 {:>8.1}  worst {:>10.1}",
                    number(found, "blocks_per_s") / 1e6,
                    number(found, "p50_ns") / 1e3,
                    number(found, "p999_ns") / 1e3,
                    number(found, "worst_ns") / 1e3,
                );
            }
            if let Some(bytes) = found.get("bytes_per_edge") {
                println!("{side:<8}{scenario:<16}bytes per edge {bytes}");
            }
        }
    }
}

fn ratios(part: &Value) {
    println!("\ntargets");
    for row in part.as_array().into_iter().flatten() {
        let verdict = match row["met"].as_bool() {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "not measured in this run",
        };
        let value = row["value"].as_f64().map_or("-".into(), |value| format!("{value:.3}"));
        println!(
            "{:<66}{value:>10}  {} {:.3}  {verdict}",
            row["name"].as_str().unwrap_or_default(),
            row["relation"].as_str().unwrap_or_default(),
            number(row, "target"),
        );
    }
}

fn entries(part: &Value) -> impl Iterator<Item = (&String, &Value)> {
    part.as_object().into_iter().flatten()
}

fn number(part: &Value, key: &str) -> f64 {
    part[key].as_f64().unwrap_or(f64::NAN)
}
