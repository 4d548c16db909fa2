//! The words that operators hand in, read once, at the start: names, numbers, addresses, lists of
//! `key=value`. What makes no sense is refused here, so that the rest need not doubt.
//!
//! Errors do not repeat the text, which may be a secret in the wrong place.

use std::ops::RangeInclusive;

/// Bytes of a name at most.
const MAX_NAME: usize = 256;
/// Bytes of a host's name at most, as DNS has it.
const MAX_HOST: usize = 253;

/// What is wrong with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// Nothing there.
    #[error("empty")]
    Empty,
    /// Too much there.
    #[error("longer than {most} bytes")]
    Long {
        /// Bytes at most.
        most: usize,
    },
    /// A control character, or a space at an end.
    #[error("a control character, or a space at an end")]
    Character,
    /// Something else than digits.
    #[error("not a number")]
    Number,
    /// A number that is too small or too large.
    #[error("not between {least} and {most}")]
    Range {
        /// The least that is taken.
        least: u64,
        /// The most that is taken.
        most: u64,
    },
    /// No address at all.
    #[error("not a URL")]
    Url,
    /// An address of another kind.
    #[error("must begin with {}://", .schemes.join(":// or "))]
    Scheme {
        /// Those that are taken.
        schemes: &'static [&'static str],
    },
    /// An address without a host, or with one that cannot exist.
    #[error("no valid host")]
    Host,
    /// A port that is absent or cannot exist.
    #[error("no port between 1 and 65535")]
    Port,
    /// A secret in an address.
    #[error("a URL with a user name or password: secrets belong in files")]
    Secret,
    /// More than a host and a port.
    #[error("a URL with a path, query or fragment, which would be ignored")]
    Tail,
}

/// What is wrong with a list of `key=value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// An entry without `=`.
    #[error("not key=value")]
    NoPair,
    /// A key that means nothing here.
    #[error("an unknown key; known are {}", .known.join(", "))]
    Unknown {
        /// Those that mean something.
        known: &'static [&'static str],
    },
    /// A key that counts once is there twice.
    #[error("`{key}` twice")]
    Twice {
        /// Which.
        key: &'static str,
    },
    /// A key that must be there is not.
    #[error("no `{key}`")]
    Missing {
        /// Which.
        key: &'static str,
    },
    /// A value makes no sense.
    #[error("`{key}`: {why}")]
    Value {
        /// Whose.
        key: &'static str,
        /// What is wrong.
        why: ValueError,
    },
}

/// A name: 1 to 256 bytes without control characters or spaces at the ends.
///
/// # Errors
/// [`ValueError`].
pub fn name(text: &str) -> Result<String, ValueError> {
    if text.is_empty() {
        return Err(ValueError::Empty);
    }
    if text.len() > MAX_NAME {
        return Err(ValueError::Long { most: MAX_NAME });
    }
    if text.trim() != text || text.chars().any(char::is_control) {
        return Err(ValueError::Character);
    }
    Ok(text.to_owned())
}

/// A number in decimal digits, without sign, in `range`.
///
/// # Errors
/// [`ValueError`].
pub fn number<T: TryFrom<u64>>(text: &str, range: RangeInclusive<u64>) -> Result<T, ValueError> {
    if text.is_empty() {
        return Err(ValueError::Empty);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ValueError::Number);
    }
    let bounds = ValueError::Range { least: *range.start(), most: *range.end() };
    let number = text.parse().ok().filter(|number| range.contains(number)).ok_or(bounds)?;
    T::try_from(number).map_err(|_| bounds)
}

/// A weight: a finite number from 0 to a billion, with a fraction if need be.
///
/// # Errors
/// [`ValueError`].
pub fn weight(text: &str) -> Result<f64, ValueError> {
    const MOST: u64 = 1_000_000_000;
    let weight: f64 = text.parse().map_err(|_| ValueError::Number)?;
    if !(0.0..=MOST as f64).contains(&weight) {
        return Err(ValueError::Range { least: 0, most: MOST });
    }
    Ok(weight)
}

/// An address `scheme://host[:port]`, without the `/` that may follow.
///
/// # Errors
/// [`ValueError`]: another scheme, no host, and anything else that would be ignored or be a secret.
pub fn url(text: &str, schemes: &'static [&'static str]) -> Result<String, ValueError> {
    if text.is_empty() {
        return Err(ValueError::Empty);
    }
    let (scheme, rest) = text.split_once("://").ok_or(ValueError::Scheme { schemes })?;
    if rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        return Err(ValueError::Secret);
    }
    if !schemes.contains(&scheme) {
        return Err(ValueError::Scheme { schemes });
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        return Err(ValueError::Tail);
    }
    let after_address = authority.rfind(']').unwrap_or(0);
    match authority[after_address..].rfind(':') {
        Some(_) => drop(host_and_port(authority)?),
        None => host(authority)?,
    }
    let url = format!("{scheme}://{authority}");
    // What the clients that connect will make of it.
    url.parse::<hyper::Uri>().map_err(|_| ValueError::Url)?;
    Ok(url)
}

/// The parts of `host:port`; an IPv6 address stands in brackets, and stays in them.
///
/// # Errors
/// [`ValueError`].
pub fn host_and_port(text: &str) -> Result<(&str, u16), ValueError> {
    let (name, port) = text.rsplit_once(':').ok_or(ValueError::Port)?;
    host(name)?;
    Ok((name, number(port, 1..=65535).map_err(|_| ValueError::Port)?))
}

/// Whether this can be a host: a name as in DNS, an IPv4 address, or an IPv6 address in brackets.
fn host(text: &str) -> Result<(), ValueError> {
    let within = |open, close| text.strip_prefix(open).and_then(|text| text.strip_suffix(close));
    let valid = match within('[', ']') {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let label = |label: &str| {
                let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
                (1..=63).contains(&label.len())
                    && label.bytes().all(inner)
                    && !label.starts_with('-')
                    && !label.ends_with('-')
            };
            let last = text.rsplit('.').next().unwrap_or(text);
            // A name that ends in a number is an address, or else nothing.
            let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
            text.len() <= MAX_HOST
                && text.split('.').all(label)
                && (!is_number || text.parse::<std::net::Ipv4Addr>().is_ok())
        }
    };
    if valid { Ok(()) } else { Err(ValueError::Host) }
}

/// A list of `key=value`.
#[derive(Clone, Debug)]
pub struct Pairs<'a>(Vec<(&'static str, &'a str)>);

impl<'a> Pairs<'a> {
    /// Reads a list in which only these keys occur. Empty text is an empty list.
    ///
    /// # Errors
    /// [`PairError`].
    pub fn parse(
        text: &'a str,
        separator: char,
        known: &'static [&'static str],
    ) -> Result<Self, PairError> {
        let entries = text.split(separator).filter(|_| !text.is_empty());
        let pair = |entry: &'a str| {
            let (key, value) = entry.split_once('=').ok_or(PairError::NoPair)?;
            let key = known.iter().find(|&&known| known == key);
            Ok((*key.ok_or(PairError::Unknown { known })?, value))
        };
        Ok(Self(entries.map(pair).collect::<Result<_, _>>()?))
    }

    /// The values of a key that may be there any number of times.
    ///
    /// # Errors
    /// A value that `read` refuses.
    pub fn all<T>(
        &self,
        key: &'static str,
        read: impl Fn(&'a str) -> Result<T, ValueError>,
    ) -> Result<Vec<T>, PairError> {
        let values = self.0.iter().filter(|(found, _)| *found == key);
        values.map(|(_, value)| read(value).map_err(|why| PairError::Value { key, why })).collect()
    }

    /// The value of a key that may be absent.
    ///
    /// # Errors
    /// It is there twice, or `read` refuses it.
    pub fn one<T>(
        &self,
        key: &'static str,
        read: impl Fn(&'a str) -> Result<T, ValueError>,
    ) -> Result<Option<T>, PairError> {
        let mut values = self.all(key, read)?;
        if values.len() > 1 { Err(PairError::Twice { key }) } else { Ok(values.pop()) }
    }

    /// The value of a key that must be there.
    ///
    /// # Errors
    /// It is absent, there twice, or `read` refuses it.
    pub fn need<T>(
        &self,
        key: &'static str,
        read: impl Fn(&'a str) -> Result<T, ValueError>,
    ) -> Result<T, PairError> {
        self.one(key, read)?.ok_or(PairError::Missing { key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &[&str] = &["http", "https"];

    #[test]
    fn names() {
        for good in ["a", "meta-llama/Llama-3.1-8B", "<b>&\"'", "zwölf", "a b", &"x".repeat(256)] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for (bad, why) in [
            ("", ValueError::Empty),
            (" ", ValueError::Character),
            ("a ", ValueError::Character),
            ("\u{2003}a", ValueError::Character),
            ("a\nb", ValueError::Character),
            ("a\0", ValueError::Character),
            ("\u{85}a", ValueError::Character),
            (&"x".repeat(257), ValueError::Long { most: 256 }),
        ] {
            assert_eq!(name(bad), Err(why), "{bad:?}");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(number("0", 0..=u64::MAX), Ok(0));
        assert_eq!(number("18446744073709551615", 0..=u64::MAX), Ok(u64::MAX));
        assert_eq!(number::<u32>("0007", 1..=7), Ok(7));
        for bad in ["+1", "-1", " 1", "1 ", "1.0", "1e3", "0x1", "１", "1_000", "nan"] {
            assert_eq!(number::<u64>(bad, 0..=u64::MAX), Err(ValueError::Number), "{bad:?}");
        }
        assert_eq!(number::<u64>("", 0..=9), Err(ValueError::Empty));
        for bad in ["0", "10", "18446744073709551616", &"9".repeat(1000)] {
            let range = Err(ValueError::Range { least: 1, most: 9 });
            assert_eq!(number::<u64>(bad, 1..=9), range, "{bad}");
        }
        assert!(number::<u8>("256", 0..=1000).is_err(), "larger than the type");
    }

    #[test]
    fn weights() {
        for (good, value) in [("0", 0.0), ("2.5", 2.5), ("1e9", 1e9), (".5", 0.5)] {
            assert_eq!(weight(good), Ok(value));
        }
        for bad in ["-1", "-1e300", "-0.0001", "1.1e9", "1e400", "inf", "-inf", "nan", "NaN"] {
            assert!(matches!(weight(bad), Err(ValueError::Range { .. })), "{bad}");
        }
        for bad in ["", " 1", "1 ", "1,5", "one", "0x1"] {
            assert_eq!(weight(bad), Err(ValueError::Number), "{bad}");
        }
    }

    #[test]
    fn urls() {
        for (good, same) in [
            ("http://h", "http://h"),
            ("http://h/", "http://h"),
            ("https://a-b.c_d.example:65535", "https://a-b.c_d.example:65535"),
            ("http://10.0.0.1:80", "http://10.0.0.1:80"),
            ("https://[::1]", "https://[::1]"),
            ("https://[2001:db8::1]:1/", "https://[2001:db8::1]:1"),
        ] {
            assert_eq!(url(good, WEB).as_deref(), Ok(same));
        }
        let long = format!("http://{}", "a.".repeat(126) + "ab");
        for (bad, why) in [
            ("", ValueError::Empty),
            ("h:1", ValueError::Scheme { schemes: WEB }),
            ("http:/h:1", ValueError::Scheme { schemes: WEB }),
            ("http:h:1", ValueError::Scheme { schemes: WEB }),
            ("//h:1", ValueError::Scheme { schemes: WEB }),
            ("ftp://h:1", ValueError::Scheme { schemes: WEB }),
            ("HTTP://h:1", ValueError::Scheme { schemes: WEB }),
            (" http://h:1", ValueError::Scheme { schemes: WEB }),
            ("http://", ValueError::Host),
            ("http:///", ValueError::Host),
            ("http://:1", ValueError::Host),
            ("http:// h", ValueError::Host),
            ("http://h ", ValueError::Host),
            ("http://h\n", ValueError::Host),
            ("http://h..i", ValueError::Host),
            ("http://.", ValueError::Host),
            ("http://-h", ValueError::Host),
            ("http://h%20i", ValueError::Host),
            ("http://<h>", ValueError::Host),
            ("http://münchen", ValueError::Host),
            ("http://1.2.3", ValueError::Host),
            ("http://1.2.3.256", ValueError::Host),
            ("http://::1", ValueError::Host),
            ("http://[::1", ValueError::Host),
            ("http://[::1]x", ValueError::Host),
            ("http://[h]:1", ValueError::Host),
            ("http://a:b:1", ValueError::Host),
            (&long, ValueError::Host),
            ("http://h:", ValueError::Port),
            ("http://h:0", ValueError::Port),
            ("http://h:65536", ValueError::Port),
            ("http://h:+1", ValueError::Port),
            ("http://h:http", ValueError::Port),
            ("http://h/v1", ValueError::Tail),
            ("http://h//", ValueError::Tail),
            ("http://h/?", ValueError::Tail),
            ("http://h?a=b", ValueError::Tail),
            ("http://h#a", ValueError::Tail),
            ("http://me@h", ValueError::Secret),
            ("http://me:secret@h/v1", ValueError::Secret),
            ("ftp://token@h", ValueError::Secret),
            ("http://@h", ValueError::Secret),
        ] {
            assert_eq!(url(bad, WEB), Err(why), "{bad}");
        }
        let said = url("nats://user:password@h", &["nats"]).unwrap_err().to_string();
        assert!(said.contains("files") && !said.contains("password@"), "{said}");
    }

    #[test]
    fn pairs() {
        const KEYS: &[&str] = &["a", "b"];
        let pairs = Pairs::parse("a=1,b=x=y,a=2", ',', KEYS).unwrap();
        assert_eq!(pairs.all("a", |text| number::<u8>(text, 0..=9)), Ok(vec![1, 2]));
        assert_eq!(pairs.one("a", name), Err(PairError::Twice { key: "a" }));
        assert_eq!(pairs.need("b", name).as_deref(), Ok("x=y"));
        let empty = Pairs::parse("", ',', KEYS).unwrap();
        assert_eq!(empty.one("b", name), Ok(None));
        assert_eq!(empty.need("b", name), Err(PairError::Missing { key: "b" }));
        for (bad, why) in [
            ("a", PairError::NoPair),
            (",", PairError::NoPair),
            ("a=1,", PairError::NoPair),
            ("c=1", PairError::Unknown { known: KEYS }),
            ("A=1", PairError::Unknown { known: KEYS }),
            ("=1", PairError::Unknown { known: KEYS }),
            (" a=1", PairError::Unknown { known: KEYS }),
        ] {
            assert_eq!(Pairs::parse(bad, ',', KEYS).map(|_| ()), Err(why), "{bad:?}");
        }
        let wrong = Pairs::parse("a=", ',', KEYS).unwrap().one("a", name);
        assert_eq!(wrong, Err(PairError::Value { key: "a", why: ValueError::Empty }));
    }
}
