//! What a source is called: `zmq://HOST:PORT?worker=1&rank=0&replay=5558&pool=main`.

use std::fmt;
use std::str::FromStr;

use ckf_producer::Member;

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
    type Err = String;

    /// Options: `worker` (default 0), `rank` (default 0), `pool` (default `default`), and `replay`,
    /// a port on the same host or `host:port`.
    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("zmq://").ok_or("a source starts with zmq://")?;
        let (events, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, _) = split_port(events)?;
        let mut spec = Self {
            pool: DEFAULT_POOL.to_owned(),
            member: Member::new(0, 0),
            events: events.to_owned(),
            replay: None,
        };
        let (mut worker, mut rank) = (0u64, 0u32);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').ok_or("an option is key=value")?;
            let bad = || format!("bad value of `{key}`: {value}");
            match key {
                "worker" => worker = value.parse().map_err(|_| bad())?,
                "rank" => rank = value.parse().map_err(|_| bad())?,
                "pool" if !value.is_empty() => spec.pool = value.to_owned(),
                "replay" if value.parse::<u16>().is_ok() => {
                    spec.replay = Some(format!("{host}:{value}"));
                }
                "replay" => {
                    split_port(value)?;
                    spec.replay = Some(value.to_owned());
                }
                _ => return Err(format!("unknown option `{key}`")),
            }
        }
        spec.member = Member::new(worker, rank);
        Ok(spec)
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

fn split_port(endpoint: &str) -> Result<(&str, u16), String> {
    endpoint
        .rsplit_once(':')
        .filter(|(host, _)| !host.is_empty())
        .and_then(|(host, port)| Some((host, port.parse().ok()?)))
        .ok_or_else(|| format!("not host:port: {endpoint}"))
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
        ] {
            assert!(bad.parse::<SourceSpec>().is_err(), "{bad}");
        }
    }
}
