//! A file that lists sources, one a line, and may change while the relay runs: where a deployment's
//! discovery writes to.

use std::collections::BTreeSet;
use std::path::Path;

use super::spec::SourceSpec;

/// Sources in one file at most.
const MAX_SOURCES: usize = 4096;
/// Size of the file at most.
const MAX_BYTES: u64 = 1 << 20;

/// What the file says. Blank lines and lines that start with `#` mean nothing.
///
/// # Errors
/// A file that cannot be read or is too long; a line that is no source: then the whole file does
/// not count, since a half-written one must not remove anybody.
pub fn read(path: &Path) -> Result<BTreeSet<SourceSpec>, String> {
    let error = |error: std::io::Error| format!("{}: {error}", path.display());
    if std::fs::metadata(path).map_err(error)?.len() > MAX_BYTES {
        return Err(format!("{}: longer than {MAX_BYTES} bytes", path.display()));
    }
    parse(&std::fs::read_to_string(path).map_err(error)?)
}

fn parse(text: &str) -> Result<BTreeSet<SourceSpec>, String> {
    let mut specs = BTreeSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let spec: SourceSpec = line.parse().map_err(|why| format!("line {number}: {why}"))?;
        let same = |other: &SourceSpec| other.member == spec.member && other.pool == spec.pool;
        if specs.iter().any(same) {
            return Err(format!(
                "line {number}: a second source of {} in `{}`",
                spec.member, spec.pool
            ));
        }
        specs.insert(spec);
        if specs.len() > MAX_SOURCES {
            return Err(format!("more than {MAX_SOURCES} sources"));
        }
    }
    Ok(specs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_written_file_counts_for_nothing() {
        let good = "# engines\nzmq://a:1?worker=1\n\nzmq://b:2?worker=2\n";
        assert_eq!(parse(good).unwrap().len(), 2);
        assert!(parse("zmq://a:1?worker=1\nzmq://b:2?wor").unwrap_err().starts_with("line 2"));
        assert!(parse("zmq://a:1\nzmq://b:2").unwrap_err().contains("second source"));
    }
}
