//! `inspect FILE...`: prints the frames of wire files, one after the other without anything in
//! between. `quickstart FILE` makes one. `--all` prints every patch and bucket, not only the first.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ckf_protocol::{Header, Limits, Message, decode, peek_header};
use clap::Parser;

/// Prints wire files.
#[derive(Parser)]
struct Args {
    /// Print every patch and bucket.
    #[arg(long)]
    all: bool,
    /// Files of whole frames.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Patches or buckets of a frame printed without `--all`.
const FEW: usize = 4;

fn main() -> ExitCode {
    let args = Args::parse();
    let shown = if args.all { usize::MAX } else { FEW };
    for path in &args.files {
        if let Err(error) = inspect(path, shown) {
            eprintln!("error: {}: {error}", path.display());
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn inspect(path: &Path, shown: usize) -> Result<(), String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let limits = Limits::default();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let at_byte = |error: &dyn std::fmt::Display| format!("frame at byte {at}: {error}");
        let header = peek_header(rest, &limits).map_err(|error| at_byte(&error))?;
        let frame = &rest[..header.frame_len().min(rest.len())];
        let message = decode(frame, &limits).map_err(|error| at_byte(&error))?;
        print(at, &header, &message, shown);
        at += header.frame_len();
    }
    Ok(())
}

fn print(at: usize, header: &Header, message: &Message<'_>, shown: usize) {
    println!("{at:>8}  {:?}, {} bytes", message.kind(), header.frame_len());
    if let Some(lease) = header.lease() {
        println!("          {lease:?}");
    }
    match message {
        Message::Delta { delta, .. } => {
            println!("          {delta:?}");
            for patch in delta.patches().take(shown) {
                let (bucket, mask, image) = (patch.bucket, patch.mask, patch.image);
                println!("          bucket {bucket:>8} slots {mask:04b} {:016x}", image.get());
            }
            more(delta.patches().len(), shown);
        }
        Message::SnapshotChunk { chunk, .. } => {
            println!(
                "          buckets {} to {}",
                chunk.first(),
                u64::from(chunk.first()) + chunk.len() as u64 - 1
            );
            let occupied = || chunk.images().filter(|(_, image)| image.occupied() > 0);
            for (bucket, image) in occupied().take(shown) {
                println!("          bucket {bucket:>8} {:016x}", image.get());
            }
            more(occupied().count(), shown);
        }
        other => println!("          {other:?}"),
    }
}

fn more(all: usize, shown: usize) {
    if all > shown {
        println!("          and {} more", all - shown);
    }
}
