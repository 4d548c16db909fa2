//! What a source is called: `zmq://HOST:PORT?worker=1&rank=0&replay=5558&pool=main`.

use std::fmt;
use std::str::FromStr;

use ckf_producer::Member;

use crate::hosts::values::{self, PairError, Pairs, ValueError};

/// One engine rank's event publisher, and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceSpec {
    /// Name of the pool that counts its blocks.
    pub pool: String,
    /// Whose blocks they are.
    pub member: Member,
    /// The publisher, as `host:port`.
    pub events: String,
    /// Its replay socket, as `host:port`.
    pub replay: Option<String>,
}

/// The pool of a source that names none.
pub const DEFAULT_POOL: &str = "default";

impl FromStr for SourceSpec {
    type Err = PairError;

    /// Options: `worker` (default 0), `rank` (default 0), `pool` (default `default`), and `replay`,
    /// a port on the same host or `host:port`.
    fn from_str(text: &str) -> Result<Self, PairError> {
        let url = |why| PairError::Value { key: "zmq://HOST:PORT", why };
        let rest = text.strip_prefix("zmq://");
        let rest = rest.ok_or(url(ValueError::Scheme { schemes: &["zmq"] }))?;
        let (events, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, _) = values::host_and_port(events).map_err(url)?;
        let replay = |text: &str| match text.contains(':') {
            true => values::host_and_port(text).map(|_| text.to_owned()),
            false => {
                let port: u16 = values::number(text, 1..=65535)?;
                Ok(format!("{host}:{port}"))
            }
        };
        let options = Pairs::parse(options, '&', &["worker", "rank", "pool", "replay"])?;
        let worker = options.one("worker", |text| values::number(text, 0..=u64::MAX))?;
        let rank = options.one("rank", |text| values::number(text, 0..=u64::from(u32::MAX)))?;
        Ok(Self {
            pool: options.one("pool", values::name)?.unwrap_or(DEFAULT_POOL.to_owned()),
            member: Member::new(worker.unwrap_or(0), rank.unwrap_or(0)),
            events: events.to_owned(),
            replay: options.one("replay", replay)?,
        })
    }
}

impl fmt::Display for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, member, events, replay } = self;
        let (worker, rank) = (member.worker.get(), member.rank.get());
        write!(f, "zmq://{events}?worker={worker}&rank={rank}&pool={pool}")?;
        replay.as_ref().map_or(Ok(()), |replay| write!(f, "&replay={replay}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_defaults() {
        let spec: SourceSpec =
            "zmq://127.0.0.1:5557?worker=3&rank=1&replay=5558&pool=chat".parse().unwrap();
        assert_eq!(spec.member, Member::new(3, 1));
        assert_eq!(spec.replay.as_deref(), Some("127.0.0.1:5558"));
        assert_eq!(spec.pool, "chat");
        let spec: SourceSpec = "zmq://[::1]:5557?replay=other:1".parse().unwrap();
        assert_eq!((spec.events.as_str(), spec.pool.as_str()), ("[::1]:5557", DEFAULT_POOL));
        assert_eq!(spec.replay.as_deref(), Some("other:1"));
        assert_eq!(spec.to_string().parse(), Ok(spec));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "tcp://h:1",
            "zmq://h",
            "zmq://h:x",
            "zmq://:1",
            "zmq://h:1?worker",
            "zmq://h:1?rank=-1",
            "zmq://h:1?colour=red",
            "zmq://h:1?replay=",
            "zmq://h:70000",
            "zmq://h:0",
            "zmq://me:secret@h:1",
            "zmq://h:1/path",
            "zmq://h:1#x",
            "zmq://h i:1",
            "zmq://h:1?&",
            "zmq://h:1?worker=1&worker=1",
            "zmq://h:1?rank=4294967296",
            "zmq://h:1?worker=18446744073709551616",
            "zmq://h:1?worker=+1",
            "zmq://h:1?pool=",
            "zmq://h:1?pool=a&pool=b",
            "zmq://h:1?replay=0",
            "zmq://h:1?replay=65536",
            "zmq://h:1?replay=me@h:1",
        ] {
            assert!(bad.parse::<SourceSpec>().is_err(), "{bad}");
        }
    }
}
