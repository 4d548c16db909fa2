//! Identity digests, by the rules of Dynamo's relay contract, so that both worlds name a pool alike.

use std::collections::BTreeMap;

use ckf_protocol::{DcId, IdentityHalf, IdentitySource, IndexerDomainId, PoolId};

use super::values::{self, ValueError};

/// Version of the hash rules of [`ckf_core::sequence`].
const HASH_FORMAT: u16 = 1;

/// What decides whether two pools may be compared, as an operator states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolNames {
    /// The model, and whatever else makes its caches comparable.
    pub model: String,
    /// Tokens of one block.
    pub block_size: u32,
    /// The pool's name: isolates pools of one model from each other.
    pub pool: String,
}

impl PoolNames {
    /// The indexer domain, stated explicitly.
    pub fn domain(&self) -> IndexerDomainId {
        let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        IndexerDomainId {
            cache_semantics: cache_semantics(&one("model", &self.model), self.block_size),
            routing_scope: routing_scope(&one("pool", &self.pool)),
        }
    }

    /// The pool in one data center.
    pub fn pool_id(&self, dc: u64) -> PoolId {
        PoolId { domain: self.domain(), dc: DcId::new(dc) }
    }
}

/// The explicit identity of what makes caches comparable.
pub fn cache_semantics(map: &BTreeMap<String, String>, block_size: u32) -> IdentityHalf {
    let mut material = explicit("dynamo/indexer-cache-semantics/explicit/v1", map);
    material.extend(block_size.to_le_bytes());
    material.extend(HASH_FORMAT.to_le_bytes());
    half(&material)
}

/// The explicit identity of what may share routing.
pub fn routing_scope(map: &BTreeMap<String, String>) -> IdentityHalf {
    half(&explicit("dynamo/indexer-routing-scope/explicit/v1", map))
}

/// The number of a data center that has a name.
pub fn dc_id(name: &str) -> u64 {
    let mut material = b"dynamo/indexer-dc/v1".to_vec();
    framed(&mut material, name);
    let digest = *blake3::hash(&material).as_bytes();
    u64::from_le_bytes(digest[..8].try_into().expect("8 of 32 bytes"))
}

/// A data center given as a number, `0x` allowed, or else by name. What begins with a digit or a sign
/// is meant as a number: one out of range is no name.
///
/// # Errors
/// No number, or no name.
pub fn parse_dc(text: &str) -> Result<u64, ValueError> {
    let any = ValueError::Range { least: 0, most: u64::MAX };
    if let Some(hex) = text.strip_prefix("0x") {
        let digits = !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        return if digits {
            u64::from_str_radix(hex, 16).map_err(|_| any)
        } else {
            Err(ValueError::Number)
        };
    }
    if text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
        return values::number(text, 0..=u64::MAX);
    }
    Ok(dc_id(&values::name(text)?))
}

fn framed(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u32).to_le_bytes());
    to.extend(text.as_bytes());
}

fn explicit(tag: &str, map: &BTreeMap<String, String>) -> Vec<u8> {
    let mut material = Vec::new();
    framed(&mut material, tag);
    material.extend((map.len() as u32).to_le_bytes());
    for (key, value) in map {
        framed(&mut material, key);
        framed(&mut material, value);
    }
    material
}

fn half(material: &[u8]) -> IdentityHalf {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(material).as_bytes()[..16]);
    IdentityHalf { digest, source: IdentitySource::Explicit }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of release 1.6.1, published beside the contract.
    #[test]
    fn digests_equal_the_published_ones() {
        let map = [("mapping", "tp2"), ("weights", "revision-a")];
        let map = map.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let digest = u128::from_be_bytes(cache_semantics(&map, 16).digest);
        assert_eq!(digest, 0x41a7_e718_7ef8_60b3_b231_cb13_c76b_edd2);
    }

    #[test]
    fn data_centers_by_name_and_number() {
        assert_eq!(
            dc_id("eu-west-2").to_be_bytes(),
            [0x48, 0xaa, 0x25, 0xca, 0x74, 0x6d, 0xc9, 0xd1]
        );
        assert_eq!(parse_dc("us-east-1"), Ok(0x455b_fcc6_324f_64a0));
        assert_eq!((parse_dc("17"), parse_dc("0x11")), (Ok(17), Ok(17)));
        assert_eq!(parse_dc("0xFFFFFFFFFFFFFFFF"), Ok(u64::MAX));
        for bad in [
            "",
            " ",
            "-1",
            "+1",
            "1.5",
            ".5",
            "1e3",
            "1st",
            "0x",
            "0x+1",
            "0xg",
            "0x10000000000000000",
            "18446744073709551616",
            "dc\n",
            "dc ",
            &"d".repeat(257),
        ] {
            assert!(parse_dc(bad).is_err(), "{bad:?}");
        }
    }
}
