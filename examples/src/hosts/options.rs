//! Options that the relay and the router have in common.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ckf_core::{Format, Sizing};

use super::identity::PoolNames;
use super::nats::NatsAccess;
use super::tls::TlsFiles;
use super::values::{self, ValueError};
use super::{Context, HostResult, dynamo, files};

/// Bytes of a token file at most.
const MAX_TOKEN: u64 = 4096;
/// Tokens of one block at most.
const MAX_BLOCK_SIZE: u64 = 1 << 16;
/// Blocks of a pool whose size nobody names.
const BLOCKS: u64 = 1_000_000;
/// Seed of filters where nobody names one.
const SEED: u64 = 42;
/// How often peers are pinged where nobody says.
const KEEPALIVE_MS: u64 = 10_000;
/// How full a filter is when a pool holds what it is made for, per mille.
const LOAD: u16 = 600;

/// What relays and routers say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// Frames of these crates, over gRPC with mutual TLS.
    Ckf,
    /// Dynamo's relay contract, which has no TLS of its own.
    Dynamo,
}

/// See the module.
#[derive(Clone, Debug, clap::Args)]
pub struct Shared {
    /// Where /metrics, /healthz, /readyz and the other pages for operators are.
    #[arg(long, value_name = "ADDR")]
    pub admin: SocketAddr,
    /// What relays and routers say to each other.
    #[arg(long, value_enum, default_value_t = Protocol::Ckf)]
    pub protocol: Protocol,
    /// Certificates, by file.
    #[command(flatten)]
    pub tls: Option<TlsFiles>,
    /// A file with the token that the NATS server asks for.
    #[arg(long, value_name = "FILE")]
    pub nats_token_file: Option<PathBuf>,
    /// What makes caches comparable; relays and routers must name the same.
    #[arg(long, default_value = "sim", value_parser = values::name)]
    pub model: String,
    /// Tokens of one block.
    #[arg(long, default_value = "16", value_parser = block_size)]
    pub block_size: NonZeroU32,
    /// Blocks that a pool is made for; relays and routers must name the same [default: 1000000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: Option<u64>,
    /// Seed of the filters; relays and routers must name the same [default: 42].
    #[arg(long)]
    pub seed: Option<u64>,
    /// How often silent peers are pinged, in milliseconds [default: 10000].
    #[arg(long, value_parser = millis())]
    pub keepalive_ms: Option<u64>,
}

/// A span in milliseconds: at least one, at most a day.
pub fn millis() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=86_400_000)
}

/// Tokens of one block: at least one, at most 65,536.
///
/// # Errors
/// [`ValueError`].
pub fn block_size(text: &str) -> Result<NonZeroU32, ValueError> {
    let range = ValueError::Range { least: 1, most: MAX_BLOCK_SIZE };
    NonZeroU32::new(values::number(text, 1..=MAX_BLOCK_SIZE)?).ok_or(range)
}

impl Shared {
    /// The filter's shape, as the protocol wants it.
    ///
    /// # Errors
    /// More blocks than a filter takes, or none; a seed where there is no choice.
    pub fn format(&self) -> HostResult<Format> {
        let blocks = self.blocks.unwrap_or(BLOCKS);
        Ok(match self.protocol {
            Protocol::Ckf => Sizing::for_blocks(blocks, LOAD)
                .context(format_args!("--blocks {blocks}"))?
                .format(self.seed.unwrap_or(SEED)),
            Protocol::Dynamo if self.seed.is_some() => {
                return Err("--seed: Dynamo's filters have one seed for all".into());
            }
            Protocol::Dynamo => {
                dynamo::format_for(blocks).context(format_args!("--blocks {blocks}"))?
            }
        })
    }

    /// The identity of the pool with this name.
    pub fn names(&self, pool: &str) -> PoolNames {
        let (model, block_size) = (self.model.clone(), self.block_size.get());
        PoolNames { model, block_size, pool: pool.to_owned() }
    }

    /// The certificates, where there is no way without.
    ///
    /// # Errors
    /// They were not named.
    pub fn certificates(&self) -> HostResult<&TlsFiles> {
        Ok(self.tls.as_ref().ok_or("--ca, --cert and --key are needed")?)
    }

    /// What a NATS server may ask for.
    ///
    /// # Errors
    /// The token's file cannot be read, or holds something else.
    pub fn nats_access(&self) -> HostResult<NatsAccess> {
        let token = self.nats_token_file.as_deref();
        let token = token.map(|path| files::read_text(path, MAX_TOKEN)).transpose()?;
        let token = token.map(|token| token.trim().to_owned());
        if token.as_ref().is_some_and(|token| token.is_empty() || token.contains(char::is_control))
        {
            return Err("--nats-token-file: not one line with a token".into());
        }
        Ok(NatsAccess { tls: self.tls.clone(), token })
    }

    /// How often silent peers are pinged.
    pub fn keep_alive(&self) -> Duration {
        Duration::from_millis(self.keepalive_ms.unwrap_or(KEEPALIVE_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_tokens() {
        for (good, size) in [("1", 1), ("16", 16), ("65536", 65_536)] {
            assert_eq!(block_size(good).map(NonZeroU32::get), Ok(size));
        }
        for bad in ["", "0", "-1", "65537", "4294967295", "4294967296", "x", "16.0"] {
            assert!(block_size(bad).is_err(), "{bad}");
        }
    }
}
