//! Which headers pass from one side of the router to the other: those from end to end (RFC 9110,
//! section 7.6.1), such as `authorization` and `x-request-id`.

use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName,
    TRANSFER_ENCODING,
};

/// Headers of one connection, beside those that `connection` names. `proxy-authorization` is a secret
/// between the client and us.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Leaves the headers of an answer that concern its receiver.
pub fn end_to_end(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // Naming it must not hide where a message ends.
        .filter(|name| name != CONTENT_LENGTH)
        .collect();
    // Where a message says both, the encoding tells its end (RFC 9112, section 6.3).
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Leaves the headers of a request that concern an endpoint: not those of its connection, nor those
/// that are written anew for the body as it was read.
pub fn for_endpoint(mut headers: HeaderMap) -> HeaderMap {
    end_to_end(&mut headers);
    for name in [HOST, CONTENT_LENGTH, CONTENT_TYPE, EXPECT] {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that are left, in alphabetical order.
    fn left(headers: &[(&str, &str)], pass: impl Fn(HeaderMap) -> HeaderMap) -> Vec<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let map = pass(map);
        let mut names: Vec<_> = map.keys().map(|name| name.as_str().to_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_what_concerns_the_other_end_passes() {
        let all = [
            ("Authorization", "Bearer x"),
            ("X-Request-Id", "7"),
            ("Connection", "close, X-Private , "),
            ("connection", "x-other, content-length"),
            ("x-private", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("Proxy-Authorization", "Basic x"),
            ("TE", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("host", "h"),
            ("content-length", "3"),
            ("content-type", "text/plain"),
            ("expect", "100-continue"),
            ("accept", "*/*"),
        ];
        let request = ["accept", "authorization", "x-request-id"];
        assert_eq!(left(&all, for_endpoint), request);
        let answer = |mut headers: HeaderMap| {
            end_to_end(&mut headers);
            headers
        };
        let rest = ["accept", "authorization", "content-type", "expect", "host", "x-request-id"];
        assert_eq!(left(&all, answer), rest);
        // A length counts where no encoding says otherwise, and is not hidden by being named.
        assert_eq!(left(&[all[3], all[12]], answer), ["content-length"]);
    }
}
