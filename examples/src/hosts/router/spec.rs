//! The data centers that a router knows: `id=1,relay=https://HOST:PORT,endpoint=http://HOST:PORT,cost=2`,
//! and `pool=NAME` where a router serves several pools.

use std::str::FromStr;

use crate::hosts::identity::parse_dc;
use crate::hosts::options::check_url;

/// One data center of one pool: one lane.
#[derive(Clone, Debug, PartialEq)]
pub struct DcSpec {
    /// Its number.
    pub id: u64,
    /// The pool's name, where it is not the router's default.
    pub pool: Option<String>,
    /// Its relay: `https://` for gRPC, `nats://` for a NATS server.
    pub relay: String,
    /// Where its engines answer prompts.
    pub endpoints: Vec<String>,
    /// What sending a request there costs, in blocks of prefill.
    pub cost: f64,
}

impl FromStr for DcSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut id = None;
        let mut spec =
            Self { id: 0, pool: None, relay: String::new(), endpoints: Vec::new(), cost: 0.0 };
        for option in text.split(',') {
            let (key, value) = option.split_once('=').ok_or("a data center is key=value,...")?;
            match key {
                "id" if !value.is_empty() => id = Some(parse_dc(value)),
                "pool" if !value.is_empty() => spec.pool = Some(value.to_owned()),
                "relay" => spec.relay = value.to_owned(),
                "endpoint" => spec.endpoints.push(value.trim_end_matches('/').to_owned()),
                "cost" => {
                    spec.cost = value
                        .parse()
                        .ok()
                        .filter(|cost: &f64| cost.is_finite())
                        .ok_or("bad cost")?;
                }
                _ => return Err(format!("unknown or empty option `{key}`")),
            }
        }
        spec.id = id.ok_or("a data center needs `id`")?;
        if spec.relay.is_empty() || spec.endpoints.is_empty() {
            return Err("a data center needs `relay` and `endpoint`".to_owned());
        }
        check_url(&spec.relay, &["https", "http", "nats", "tls"])?;
        spec.endpoints.iter().try_for_each(|url| check_url(url, &["http"]))?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_endpoints_and_a_cost() {
        let text =
            "id=7,relay=https://h:1,endpoint=http://a:1,endpoint=http://b:2/,cost=2.5,pool=chat";
        let spec: DcSpec = text.parse().unwrap();
        assert_eq!((spec.id, spec.cost, spec.pool.as_deref()), (7, 2.5, Some("chat")));
        assert_eq!(spec.endpoints, ["http://a:1", "http://b:2"]);
        for bad in [
            "",
            "id=1",
            "id=1,relay=https://h:1",
            "id=1,relay=h:1,endpoint=http://a:1",
            "id=1,relay=https://h:1,endpoint=https://a:1",
            "id=1,relay=https://h:1,endpoint=http://a:1,cost=nan",
            "id=,relay=https://h:1,endpoint=http://a:1",
            "relay=https://h:1,endpoint=http://a:1",
            "colour=red",
        ] {
            assert!(bad.parse::<DcSpec>().is_err(), "{bad}");
        }
    }
}
