//! The data centers that a router knows: `id=1,relay=https://HOST:PORT,endpoint=http://HOST:PORT,cost=2`,
//! and `pool=NAME` where a router serves several pools.

use std::str::FromStr;

use crate::hosts::identity::parse_dc;
use crate::hosts::values::{self, PairError, Pairs};

/// One data center of one pool: one lane.
#[derive(Clone, Debug, PartialEq)]
pub struct DcSpec {
    /// Its number.
    pub id: u64,
    /// What the operator calls it: its number or its name.
    pub name: String,
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
    type Err = PairError;

    fn from_str(text: &str) -> Result<Self, PairError> {
        let pairs = Pairs::parse(text, ',', &["id", "pool", "relay", "endpoint", "cost"])?;
        let url = |text| values::url(text, &["http"]);
        let spec = Self {
            id: pairs.need("id", parse_dc)?,
            name: pairs.need("id", values::name)?,
            pool: pairs.one("pool", values::name)?,
            relay: pairs
                .need("relay", |text| values::url(text, &["https", "http", "nats", "tls"]))?,
            endpoints: pairs.all("endpoint", url)?,
            cost: pairs.one("cost", values::weight)?.unwrap_or(0.0),
        };
        if spec.endpoints.is_empty() {
            return Err(PairError::Missing { key: "endpoint" });
        }
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
        let spec: DcSpec = "id=us-east-1,relay=nats://h,endpoint=http://a".parse().unwrap();
        assert_eq!((spec.id, &spec.name[..], spec.cost), (0x455b_fcc6_324f_64a0, "us-east-1", 0.0));
    }

    #[test]
    fn nonsense_is_refused() {
        let good = "id=1,relay=https://h:1,endpoint=http://a:1";
        assert!(good.parse::<DcSpec>().is_ok());
        for more in [
            ",",
            ",x",
            ",colour=red",
            ",id=1",
            ",id=2",
            ",relay=https://h:1",
            ",pool=",
            ",pool=a,pool=a",
            ",pool= a",
            ",cost=",
            ",cost=1,cost=1",
            ",cost=nan",
            ",cost=inf",
            ",cost=-inf",
            ",cost=1e400",
            ",cost=-1e300",
            ",cost=-1",
            ",cost=1e10",
            ",cost=1 ",
            ",endpoint=",
            ",endpoint=b:1",
            ",endpoint=https://b:1",
            ",endpoint=http://b:1/v1",
            ",endpoint=http://me:secret@b:1",
        ] {
            let error = format!("{good}{more}").parse::<DcSpec>().expect_err(more);
            assert!(!error.to_string().contains("secret@"), "{error}");
        }
        for bad in [
            "",
            "id=1",
            "id=1,relay=https://h:1",
            "relay=https://h:1,endpoint=http://a:1",
            "id=,relay=https://h:1,endpoint=http://a:1",
            "id=-1,relay=https://h:1,endpoint=http://a:1",
            "id=18446744073709551616,relay=https://h:1,endpoint=http://a:1",
            "id=1,relay=h:1,endpoint=http://a:1",
            "id=1,relay=ftp://h:1,endpoint=http://a:1",
            "id=1,relay=https://h:1/x,endpoint=http://a:1",
            "id=1,relay=https://h:1?x,endpoint=http://a:1",
            "id=1,relay=https://h:0,endpoint=http://a:1",
            "id=1,relay=https://me@h:1,endpoint=http://a:1",
        ] {
            assert!(bad.parse::<DcSpec>().is_err(), "{bad}");
        }
    }
}
