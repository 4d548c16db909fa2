//! Command line.

use std::path::PathBuf;

pub const USAGE: &str = "\
usage: peers [options]
  --blocks-per-lane N   blocks in the fullest lane of the synthetic families  [1000000]
  --lanes N             lanes of the synthetic families, 1 to 64              [16]
  --queries N           requests per round                                    [20000]
  --query-blocks N      families and queries of N blocks, instead of 128 and 8 to 127
  --rounds N            rounds over all requests, per index                   [3]
  --only PART           lookups | producer | filter | wire | load             [all]
  --only interop        no measurement: each side's producer feeds the other's consumer;
                        ends with 1 at the first difference
  --batches N           batches per lane of `interop`                         [2000]
  --seed N              of the commands of `interop`                          [1]
  --record FILE         where what `interop` did to a lane of either side is written to
  --traces DIR          folder of the recorded traces                         [../shared/data/traces]
  --ask                 wait for a line on the standard input before each measurement
  --json                print JSON instead of tables";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Lookups,
    Producer,
    Filter,
    Wire,
    Load,
    Interop,
}

impl Part {
    fn parse(name: &str) -> Result<Self, String> {
        Ok(match name {
            "lookups" => Self::Lookups,
            "producer" => Self::Producer,
            "filter" => Self::Filter,
            "wire" => Self::Wire,
            "load" => Self::Load,
            "interop" => Self::Interop,
            _ => return Err(format!("--only: unknown part `{name}`")),
        })
    }
}

pub struct Args {
    pub blocks_per_lane: usize,
    pub lanes: usize,
    pub queries: usize,
    pub query_blocks: Option<usize>,
    pub rounds: usize,
    pub only: Option<Part>,
    pub traces: Option<PathBuf>,
    pub json: bool,
    /// Internal: run one cell of the load test, this side at this rate.
    pub cell: Option<String>,
    pub rate: f64,
    /// Batches per lane, and seed of the commands, of the comparison of both sides' streams.
    pub batches: usize,
    pub seed: u64,
    pub record: Option<PathBuf>,
}

impl Args {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self {
            blocks_per_lane: 1_000_000,
            lanes: 16,
            queries: 20_000,
            query_blocks: None,
            rounds: 3,
            only: None,
            traces: None,
            json: false,
            cell: None,
            rate: 0.0,
            batches: 2000,
            seed: 1,
            record: None,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--blocks-per-lane" => args.blocks_per_lane = number(&word, &value()?)?,
                "--lanes" => args.lanes = number(&word, &value()?)?,
                "--queries" => args.queries = number(&word, &value()?)?,
                "--query-blocks" => args.query_blocks = Some(number(&word, &value()?)?),
                "--rounds" => args.rounds = number(&word, &value()?)?,
                "--only" => args.only = Some(Part::parse(&value()?)?),
                "--batches" => args.batches = number(&word, &value()?)?,
                "--record" => args.record = Some(value()?.into()),
                "--seed" => args.seed = number(&word, &value()?)? as u64,
                "--traces" => args.traces = Some(value()?.into()),
                "--ask" => crate::measure::ask_before_measuring(),
                "--json" => args.json = true,
                "--cell" => args.cell = Some(value()?),
                "--rate" => args.rate = value()?.parse().map_err(|_| "--rate: no number")?,
                _ => return Err(format!("unknown option `{word}`")),
            }
        }
        if args.lanes > crate::workload::MAX_LANES {
            return Err("--lanes: at most 64".into());
        }
        if args.query_blocks.is_some_and(|blocks| blocks > 10_000) {
            return Err("--query-blocks: at most 10000".into());
        }
        Ok(args)
    }

    pub fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    /// The recorded traces: as told, or beside the checkout.
    pub fn trace_folder(&self) -> PathBuf {
        let shared = || {
            std::env::var_os("CKF_SHARED").map_or_else(
                || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
                PathBuf::from,
            )
        };
        self.traces.clone().unwrap_or_else(|| shared().join("data/traces"))
    }

    /// The trace of the load test.
    pub fn conversation(&self) -> PathBuf {
        self.trace_folder().join("mooncake_fast25_conversation.jsonl")
    }
}

fn number(option: &str, text: &str) -> Result<usize, String> {
    let value: usize =
        text.replace('_', "").parse().map_err(|_| format!("{option}: `{text}` is no number"))?;
    if value == 0 { Err(format!("{option}: must be at least 1")) } else { Ok(value) }
}
