//! Who asks with somebody else's hand: a page of another site that has the browser of who reads it send requests here. On TCP it lacks the token; on the
//! Unix socket (seen through `ssh -L 8080:/run/tidemill/tidemill.sock`, say) there is none that it would lack. Two things give it away:
//!
//! - What a browser says of itself: `Origin` with a name that is not the one asked, or `Sec-Fetch-Site` of another site (pictures, scripts and links of
//!   other pages send no `Origin`).
//! - The name that was asked: a page of `http://evil.example:8080` whose name leads here since a moment (DNS rebinding) is of one origin with us,
//!   as its browser sees it, but cannot make that name one of ours.

use crate::page;
use crate::registry::ApiError;
use crate::serve::refuse;
use axum::Router;
use axum::middleware::{Next, from_fn};
use hyper::StatusCode;
use hyper::header::{HOST, HeaderMap, ORIGIN};

/// Names that lead to the socket: that of our own clients, and those of a forwarded port.
const NAMES: [&str; 4] = ["tidemill", "localhost", "127.0.0.1", "[::1]"];

/// Why a request is refused that a page of another site has sent.
pub(crate) fn elsewhere(path: &str, headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    // Whoever follows a link to the live page may come from anywhere: its files are the same for all.
    if let Some(site) = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or("?"))
        && !["same-origin", "none"].contains(&site)
        && !page::is_asset(path)
    {
        return Some(format!(
            "{path}: a page of another site asks ({site}): only this service's own page may"
        ));
    }
    let (origin, host) = (text(ORIGIN)?, text(HOST).unwrap_or_default());
    let same = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
    (!same).then(|| format!("a page of {origin} asks here, at {host}: only this service's own page may"))
}

/// Whether a name with or without a port is one of the socket's.
fn is_ours(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    NAMES.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

/// What is served on the Unix socket: who asks has to call it by one of its names, if by any.
pub(crate) fn by_name(app: Router) -> Router {
    app.layer(from_fn(async |request: axum::extract::Request, next: Next| {
        let host = request.headers().get(HOST).map(|host| host.to_str().unwrap_or("?"));
        match host.filter(|host| !is_ours(host)) {
            None => next.run(request).await,
            Some(host) => {
                let what = format!(
                    "Host: {host}: on this socket nobody is called so: ask for http://tidemill, or localhost"
                );
                refuse(&ApiError::new(StatusCode::FORBIDDEN, what))
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_has_few_names() {
        for ours in ["tidemill", "localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]", "[::1]:80"] {
            assert!(is_ours(ours), "{ours}");
        }
        for other in
            ["evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "::1", "[::1]:x"]
        {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_told_apart() {
        let refused = |path: &str, sent: &[(&'static str, &str)]| {
            let headers = sent
                .iter()
                .map(|(name, value)| (hyper::header::HeaderName::from_static(name), value.parse().unwrap()));
            elsewhere(path, &headers.collect()).is_some()
        };
        assert!(!refused("/v1/stop", &[]));
        assert!(!refused("/v1/stop", &[("origin", "https://a:1"), ("host", "A:1")]));
        assert!(refused("/v1/stop", &[("origin", "https://a:1"), ("host", "a:2")]));
        assert!(refused("/v1/stop", &[("origin", "null"), ("host", "a:2")]));
        assert!(refused("/v1/stop", &[("origin", "https://a:1")]), "who browses says whom he asks");
        for (site, is) in
            [("none", false), ("same-origin", false), ("same-site", true), ("cross-site", true), ("x", true)]
        {
            assert_eq!(
                refused("/v1/capture", &[("sec-fetch-site", site), ("host", "localhost:8080")]),
                is,
                "{site}"
            );
            assert!(!refused("/", &[("sec-fetch-site", site), ("host", "localhost:8080")]), "{site}");
        }
    }
}
