//! Options that the relay and the router have in common.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ckf_core::{Format, Sizing};

use super::identity::PoolNames;
use super::nats::NatsAccess;
use super::tls::TlsFiles;
use super::{HostResult, dynamo, files};

/// Bytes of a token file at most.
const MAX_TOKEN: u64 = 4096;
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
    #[arg(long, default_value = "sim")]
    pub model: String,
    /// Tokens of one block.
    #[arg(long, default_value = "16")]
    pub block_size: NonZeroU32,
    /// Blocks that a pool is made for; relays and routers must name the same.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: u64,
    /// Seed of the filters; relays and routers must name the same.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// How often silent peers are pinged, in milliseconds.
    #[arg(long, default_value_t = 10_000, value_parser = millis())]
    pub keepalive_ms: u64,
}

/// A span in milliseconds: at least one, at most a day.
pub fn millis() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=86_400_000)
}

impl Shared {
    /// The filter's shape, as the protocol wants it.
    ///
    /// # Errors
    /// More blocks than a filter takes, or none.
    pub fn format(&self) -> HostResult<Format> {
        let format = match self.protocol {
            Protocol::Ckf => Sizing::for_blocks(self.blocks, LOAD)
                .map_err(|error| format!("--blocks {}: {error}", self.blocks))?
                .format(self.seed),
            Protocol::Dynamo => dynamo::format_for(self.blocks),
        };
        Ok(format.map_err(|error| format!("--blocks {}: {error}", self.blocks))?)
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
    /// The token's file cannot be read.
    pub fn nats_access(&self) -> HostResult<NatsAccess> {
        let token = self.nats_token_file.as_deref();
        let token = token.map(|path| files::read_text(path, MAX_TOKEN)).transpose()?;
        let token = token.map(|token| token.trim().to_owned());
        Ok(NatsAccess { tls: self.tls.clone(), token })
    }

    /// How often silent peers are pinged.
    pub fn keep_alive(&self) -> Duration {
        Duration::from_millis(self.keepalive_ms)
    }
}

/// Checks an address: one of these schemes, a host, and no secrets in it.
///
/// # Errors
/// What is wrong, in words.
pub fn check_url(url: &str, schemes: &[&str]) -> Result<(), String> {
    let uri: hyper::Uri = url.parse().map_err(|_| format!("no URL: {url}"))?;
    if !uri.scheme_str().is_some_and(|scheme| schemes.contains(&scheme)) {
        return Err(format!("{url}: must begin with {}://", schemes.join(":// or ")));
    }
    let authority = uri.authority().ok_or_else(|| format!("{url}: no host"))?;
    if authority.as_str().contains('@') {
        // Not repeated: logs are no place for it either.
        return Err("a URL with a user name or password: secrets belong in files".to_owned());
    }
    if authority.host().is_empty() {
        return Err(format!("{url}: no host"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme_a_host_and_no_secret() {
        assert!(check_url("http://h:1", &["http"]).is_ok());
        assert!(check_url("tls://[::1]:4222", &["nats", "tls"]).is_ok());
        for bad in ["", "h:1", "/path", "https://h:1", "http://", "http://:1", "http:// h"] {
            assert!(check_url(bad, &["http"]).is_err(), "{bad}");
        }
        for secret in ["nats://token@h:1", "nats://user:password@h:1"] {
            let error = check_url(secret, &["nats"]).unwrap_err();
            assert!(error.contains("files") && !error.contains("h:1"), "{error}");
        }
    }
}
