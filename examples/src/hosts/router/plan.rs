//! What a router is to do, from its options: nothing in it contradicts or ignores anything else.

use std::collections::{BTreeMap, BTreeSet};

use super::spec::DcSpec;
use crate::hosts::options::{Protocol, Shared};
use crate::hosts::source::spec::DEFAULT_POOL;
use crate::hosts::{Context, HostResult};

/// How a relay is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Our frames over gRPC, with certificates on both sides.
    Grpc,
    /// Dynamo's contract over gRPC, with certificates on both sides or in plain text.
    Dynamo,
    /// Our frames through a NATS server.
    Nats,
}

/// Options that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Our protocol without TLS.
    #[error("http:// would be plain text; only --protocol dynamo has that")]
    PlainText,
    /// TLS without certificates.
    #[error("--ca, --cert and --key are needed")]
    NoCertificates,
    /// An option that nothing would heed.
    #[error("{option}: {why}")]
    Unused {
        /// Which.
        option: &'static str,
        /// Why nothing would.
        why: &'static str,
    },
    /// A data center has two lanes in one pool.
    #[error("a data center twice in one pool")]
    SameDc,
    /// An endpoint would be counted as two.
    #[error("an endpoint twice in one pool")]
    SameEndpoint,
}

impl DcSpec {
    /// How its relay is reached.
    ///
    /// # Errors
    /// [`PlanError`]: protocol, scheme and certificates do not fit together.
    pub fn way(&self, protocol: Protocol, certificates: bool) -> Result<Way, PlanError> {
        let (scheme, _) = self.relay.split_once(':').unwrap_or_default();
        match (scheme, protocol) {
            ("https" | "tls", _) if !certificates => Err(PlanError::NoCertificates),
            ("tls" | "nats", _) => Ok(Way::Nats),
            (_, Protocol::Dynamo) => Ok(Way::Dynamo),
            ("https", Protocol::Ckf) => Ok(Way::Grpc),
            (_, Protocol::Ckf) => Err(PlanError::PlainText),
        }
    }
}

/// The data centers of each pool, from the texts of `--dc`; `pool` is that of those that name none.
///
/// # Errors
/// A text that is no data center; [`PlanError`].
pub fn pools(
    dcs: &[String],
    pool: Option<&str>,
    shared: &Shared,
) -> HostResult<BTreeMap<String, Vec<DcSpec>>> {
    // Read here, and not by clap, which would repeat secrets that do not belong there.
    let specs: Vec<DcSpec> =
        dcs.iter().map(|text| text.parse()).collect::<Result<_, _>>().context("--dc")?;
    for spec in &specs {
        spec.way(shared.protocol, shared.tls.is_some()).context(&spec.relay)?;
    }
    heeded(&specs, pool, shared)?;
    let mut pools: BTreeMap<String, Vec<DcSpec>> = BTreeMap::new();
    for spec in specs {
        let name = spec.pool.as_deref().or(pool).unwrap_or(DEFAULT_POOL);
        pools.entry(name.to_owned()).or_default().push(spec);
    }
    for (name, specs) in &pools {
        let (mut ids, mut urls) = (BTreeSet::new(), BTreeSet::new());
        if !specs.iter().all(|spec| ids.insert(spec.id)) {
            return Err(PlanError::SameDc).context(format_args!("pool {name}"));
        }
        if !specs.iter().flat_map(|spec| &spec.endpoints).all(|url| urls.insert(url)) {
            return Err(PlanError::SameEndpoint).context(format_args!("pool {name}"));
        }
    }
    Ok(pools)
}

/// Whether each option that was given means something beside the others.
fn heeded(specs: &[DcSpec], pool: Option<&str>, shared: &Shared) -> Result<(), PlanError> {
    let any = |schemes: &[&str]| {
        specs.iter().any(|spec| schemes.iter().any(|scheme| spec.relay.starts_with(scheme)))
    };
    let catalog = shared.protocol == Protocol::Dynamo && !any(&["nats:", "tls:"]);
    let said = "the relay's catalog says it";
    for (given, heeded, option, why) in [
        (shared.tls.is_some(), any(&["https:", "tls:"]), "--ca", "no relay by https:// or tls://"),
        (
            shared.nats_token_file.is_some(),
            any(&["nats:", "tls:"]),
            "--nats-token-file",
            "no relay by nats:// or tls://",
        ),
        (
            pool.is_some(),
            specs.iter().any(|spec| spec.pool.is_none()),
            "--pool",
            "every --dc names its own",
        ),
        (
            shared.keepalive_ms.is_some(),
            any(&["https:", "http:"]),
            "--keepalive-ms",
            "no relay by https:// or http://; connections to NATS servers have pings of their own",
        ),
        (shared.blocks.is_some(), !catalog, "--blocks", said),
        (shared.seed.is_some(), !catalog, "--seed", said),
    ] {
        if given && !heeded {
            return Err(PlanError::Unused { option, why });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        shared: Shared,
        #[arg(long)]
        dc: Vec<String>,
        #[arg(long)]
        pool: Option<String>,
    }

    /// What becomes of these options; `RELAY` and `DC` stand for what they need in any case.
    fn plan(line: &str) -> Result<BTreeMap<String, Vec<DcSpec>>, String> {
        let line = format!("router --admin 127.0.0.1:1 {line}");
        let line = line.replace("TLS", "--ca a --cert b --key c");
        let line = Line::try_parse_from(line.split_whitespace()).expect("known options");
        pools(&line.dc, line.pool.as_deref(), &line.shared).map_err(|error| error.to_string())
    }

    fn dc(id: u64, relay: &str, more: &str) -> String {
        format!(" --dc id={id},relay={relay},endpoint=http://e{id}:1{more}")
    }

    #[test]
    fn what_fits_together() {
        for line in [
            format!("TLS{}", dc(1, "https://h:1", "")),
            format!("TLS{}{}", dc(1, "https://h:1", ""), dc(2, "nats://h:1", "")),
            format!("TLS --nats-token-file t{}", dc(1, "tls://h:1", "")),
            dc(1, "nats://h:1", ""),
            format!("--protocol dynamo{}", dc(1, "http://h:1", "")),
            format!("--protocol dynamo TLS{}{}", dc(1, "https://h:1", ""), dc(2, "http://h", "")),
            format!("--protocol dynamo --blocks 9{}", dc(1, "nats://h:1", "")),
        ] {
            assert!(plan(&line).is_ok(), "{line}: {:?}", plan(&line));
        }
        let two = format!("--pool b{}{}", dc(1, "nats://h", ",pool=a"), dc(1, "nats://h", ""));
        assert_eq!(plan(&two).unwrap().keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        for (line, why) in [
            (format!("TLS{}", dc(1, "http://h:1", "")), "plain text"),
            (dc(1, "http://h:1", ""), "plain text"),
            (format!("TLS{}{}", dc(1, "https://h", ""), dc(2, "http://h", "")), "plain text"),
            (dc(1, "https://h:1", ""), "--ca, --cert and --key are needed"),
            (dc(1, "tls://h:1", ""), "--ca, --cert and --key are needed"),
            (format!("--protocol dynamo{}", dc(1, "https://h", "")), "are needed"),
            (format!("--protocol dynamo TLS{}", dc(1, "http://h", "")), "--ca: no relay"),
            (format!("TLS{}", dc(1, "nats://h:1", "")), "--ca: no relay"),
            (format!("TLS --nats-token-file t{}", dc(1, "https://h", "")), "--nats-token-file"),
            (format!("--protocol dynamo --blocks 9{}", dc(1, "http://h", "")), "catalog"),
            (format!("--protocol dynamo --seed 9{}", dc(1, "http://h", "")), "catalog"),
            (format!("--pool b{}", dc(1, "nats://h", ",pool=a")), "--pool: every"),
            (format!("{}{}", dc(1, "nats://h", ""), dc(1, "nats://i", "")), "data center twice"),
            (dc(1, "nats://h", ",endpoint=http://e1:1/"), "endpoint twice"),
            (dc(1, "nats://h", "").repeat(2), "twice"),
            (" --dc id=1".to_owned(), "no `relay`"),
        ] {
            let said = plan(&line).expect_err(&line);
            assert!(said.contains(why), "{line}: {said}");
        }
    }
}
