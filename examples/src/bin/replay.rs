//! `replay`: the multi-DC replay. `replay --help` tells the options.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use ckf_examples::generate::{DEFAULT_REQUESTS, Generator};
use ckf_examples::replay::args::Args;
use ckf_examples::replay::report::Report;
use ckf_examples::replay::{Error, Replay};
use ckf_examples::trace::{Request, Trace, TraceError};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

/// Exit code for what the user can put right: options, files, lines of a trace. Also clap's.
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let input = match args.check().map_err(Error::from).and_then(|()| Ok(Input::open(&args)?)) {
        Ok(input) => input,
        Err(error) => return fail(&error, BAD_INPUT),
    };
    match run(&args, input) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<TraceError>() => fail(&error, BAD_INPUT),
        Err(error) => fail(&error, 1),
    }
}

fn fail(error: &Error, code: u8) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(code)
}

fn run(args: &Args, mut input: Input) -> Result<(), Error> {
    let mut replay = Replay::new(args)?;
    // Draws nothing unless standard error is a terminal.
    let bar = ProgressBar::new(1).with_style(ProgressStyle::with_template(
        "{msg} {wide_bar} {percent:>3} %  {elapsed} of {duration}",
    )?);
    bar.set_message("replaying");
    let mut requests = 0;
    while let Some(request) = input.next(requests) {
        replay.request(&request?)?;
        requests += 1;
        let (done, of) = input.progress(requests);
        bar.set_length(of);
        bar.set_position(done);
    }
    bar.set_message("draining");
    let converged = replay.drain();
    bar.finish_and_clear();

    let figures = replay.figures(converged);
    print(&format!(
        "{}, {} DCs of {} workers with {} blocks each\n\n{figures}",
        input.name, args.dcs, args.workers, args.blocks_per_worker
    ))?;
    if let Some(path) = &args.json {
        write(path, &(serde_json::to_string_pretty(&figures)? + "\n"))?;
    }
    if let Some(path) = &args.report {
        let options: Vec<_> = std::env::args().skip(1).collect();
        let report = Report {
            command: &format!("replay {}", options.join(" ")),
            policies: &args.policies(),
            figures: &figures,
            windows: replay.windows(),
            lookups: replay.lookups(),
        };
        write(path, &report.html())?;
    }
    if converged { Ok(()) } else { Err("not every lane came to equal its producer".into()) }
}

/// Prints to standard output; a reader that has gone, as in `replay | head`, is no failure.
fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Where requests come from, and how many.
struct Input {
    name: String,
    source: Source,
    limit: Option<u64>,
}

enum Source {
    Trace(Box<Trace>),
    Generator(Box<Generator>),
}

impl Input {
    fn open(args: &Args) -> Result<Self, TraceError> {
        Ok(match &args.trace {
            Some(path) => Self {
                name: path.display().to_string(),
                source: Source::Trace(Box::new(Trace::open(path, args.seed)?)),
                limit: args.limit,
            },
            None => Self {
                name: format!("generated traffic (seed {})", args.seed),
                source: Source::Generator(Box::new(Generator::new(args.seed))),
                limit: Some(args.limit.unwrap_or(DEFAULT_REQUESTS)),
            },
        })
    }

    /// The next request after so many.
    fn next(&mut self, requests: u64) -> Option<Result<Request, TraceError>> {
        if self.limit.is_some_and(|limit| requests >= limit) {
            return None;
        }
        match &mut self.source {
            Source::Trace(trace) => trace.next(),
            Source::Generator(generator) => generator.next().map(Ok),
        }
    }

    /// How much is done, of how much: requests where their number is known, else bytes.
    fn progress(&self, requests: u64) -> (u64, u64) {
        match (&self.source, self.limit) {
            (Source::Trace(trace), None) => trace.bytes_read(),
            (_, limit) => (requests, limit.unwrap_or(requests)),
        }
    }
}
