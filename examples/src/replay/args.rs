//! The command line of the replay.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::policy::Policy;
use crate::link::Faults;

/// Replays requests over several data centers: every request goes where the filters say that the
/// longest prefix is, and an exact oracle checks each answer.
#[derive(Debug, Clone, Parser)]
#[command(name = "replay", version, allow_negative_numbers = true)]
pub struct Args {
    /// Trace to replay (JSON lines: Mooncake, Bailian or agentic; plain, .gz or .zst); without it,
    /// seeded chats and documents.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Data centers.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub dcs: u32,
    /// Workers in each.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub workers: u32,
    /// Blocks that a worker's cache holds.
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub blocks_per_worker: u32,
    /// Commands that a producer takes between two batches.
    #[arg(long, value_name = "COMMANDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub publish_every: u64,
    /// Probability that a message is lost, in either direction.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub loss: f64,
    /// Probability that a message arrives twice.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub duplicate: f64,
    /// Probability that a message arrives late, after later ones.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub reorder: f64,
    /// Requests between two restarts of, in turn, a worker, a producer and the consumer; 0: never.
    #[arg(long, value_name = "REQUESTS", default_value_t = 0)]
    pub restart_every: u64,
    /// Fixes everything random: generated traffic, start offsets, faults, restarts.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Stop after this many requests [default: the whole trace; 20 000 without one].
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// How a request finds its DC; `all` compares hit rates and reports the figures of `prefix`.
    #[arg(long, value_enum, default_value = "all")]
    pub policy: PolicyChoice,
    /// Write the figures to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write an HTML report with plots to this file.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// One policy or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PolicyChoice {
    /// The longest prefix; ties and misses by load.
    Prefix,
    /// The least loaded DC.
    Load,
    /// One DC after the other.
    RoundRobin,
    /// The three side by side.
    All,
}

/// Most blocks that all caches may hold together; the filters are sized for as many.
const MAX_BLOCKS: u64 = 1 << 28;

impl Args {
    /// Checks what no single option can: combinations, and that the results can be written.
    pub fn check(&self) -> Result<(), String> {
        let dc = u64::from(self.workers) * u64::from(self.blocks_per_worker);
        let all = u64::from(self.dcs) * dc;
        if all > MAX_BLOCKS {
            return Err(format!(
                "--dcs x --workers x --blocks-per-worker is {all} blocks, more than {MAX_BLOCKS}"
            ));
        }
        for (option, path) in [("--json", &self.json), ("--report", &self.report)] {
            let Some(path) = path else { continue };
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => ".".as_ref(),
            };
            if path.is_dir() || !folder.is_dir() {
                return Err(format!("{option} {}: cannot be written", path.display()));
            }
        }
        let files = [&self.trace, &self.json, &self.report];
        for (i, file) in files.into_iter().enumerate() {
            if file.is_some() && files[..i].contains(&file) {
                return Err("--trace, --json and --report must name different files".to_owned());
            }
        }
        Ok(())
    }

    /// The policies to run; the first gives the figures.
    pub fn policies(&self) -> Vec<Policy> {
        match self.policy {
            PolicyChoice::Prefix => vec![Policy::Prefix],
            PolicyChoice::Load => vec![Policy::Load],
            PolicyChoice::RoundRobin => vec![Policy::RoundRobin],
            PolicyChoice::All => Policy::ALL.to_vec(),
        }
    }

    /// The faults of every link.
    pub fn faults(&self) -> Faults {
        Faults { loss: self.loss, duplicate: self.duplicate, reorder: self.reorder }
    }
}

fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        Ok(_) => Err("not a probability within 0 and 1".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        let args = Args::try_parse_from(std::iter::once("replay").chain(line.split_whitespace()))
            .map_err(|error| error.to_string())?;
        args.check().map(|()| args)
    }

    #[test]
    fn defaults_are_sensible() {
        let args = parse("").expect("the defaults");
        assert_eq!((args.dcs, args.publish_every, args.restart_every), (4, 1, 0));
        assert_eq!(args.policies(), Policy::ALL);
        assert_eq!(args.faults(), Faults::default());
    }

    #[test]
    fn each_policy_can_be_chosen_by_its_name() {
        for policy in Policy::ALL {
            let args = parse(&format!("--policy {}", policy.name())).expect("a policy");
            assert_eq!(args.policies(), [policy]);
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_option_named() {
        let cases = [
            "--dcs 0",
            "--dcs 65",
            "--dcs -1",
            "--dcs four",
            "--workers 0",
            "--workers 5000",
            "--blocks-per-worker 0",
            "--blocks-per-worker 1e9",
            "--publish-every 0",
            "--loss 1.1",
            "--loss -0.1",
            "--loss NaN",
            "--loss inf",
            "--duplicate 2",
            "--reorder x",
            "--restart-every -5",
            "--seed 1.5",
            "--seed 18446744073709551616",
            "--limit 0",
            "--policy best",
            "--trace",
            "--json",
            "--json /",
            "--report missing-folder/r.html",
            "--nonsense",
            "--json a --report a",
            "--trace a --json a",
            "--dcs 64 --workers 4096 --blocks-per-worker 16777216",
        ];
        for case in cases {
            let error = parse(case).expect_err(case);
            let option = case.split_whitespace().next().expect("an option");
            assert!(error.contains(option), "{case}: {error}");
        }
    }
}
