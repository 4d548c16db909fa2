//! A file that lists sources, one a line, and may change while the relay runs: where a deployment's
//! discovery writes to.

use std::collections::BTreeSet;
use std::path::Path;

use super::spec::SourceSpec;
use crate::hosts::files;

/// Sources in one file at most.
const MAX_SOURCES: usize = 4096;
/// Size of the file at most.
const MAX_BYTES: u64 = 1 << 20;

/// What the file says. Blank lines and lines that start with `#` mean nothing. A list of no sources
/// has a comment: an empty file is one that is being written.
///
/// # Errors
/// A file that cannot be read, is empty or too long; a line that is no source, or one cut short: then
/// the whole file does not count, since a half-written one must not remove anybody.
pub fn read(path: &Path) -> Result<BTreeSet<SourceSpec>, String> {
    parse(&files::read_text(path, MAX_BYTES)?).map_err(|why| format!("{}: {why}", path.display()))
}

fn parse(text: &str) -> Result<BTreeSet<SourceSpec>, String> {
    if !text.ends_with('\n') {
        return Err("the last line does not end".to_owned());
    }
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
        assert!(parse("zmq://a:1?worker=1\nzmq://b:2?wor\n").unwrap_err().starts_with("line 2"));
        assert!(parse("zmq://a:1\nzmq://b:2\n").unwrap_err().contains("second source"));
        assert_eq!(parse("# nobody\n").unwrap().len(), 0);
        for len in 0..good.len() {
            assert!(
                parse(&good[..len]).is_ok_and(|specs| specs.len() < 2)
                    == good[..len].ends_with('\n')
            );
        }
    }
}
