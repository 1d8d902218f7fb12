//! The live page: what the service shows of itself to a browser, at `/`. Plain files, part of the program; nothing is fetched from elsewhere,
//! and the browser is told to see to that.
//!
//! The files hold nothing secret and are given to everybody; what they show comes from the verbs, by `Authorization: Bearer TOKEN` where the
//! listener asks for that.

use axum::response::{IntoResponse, Response};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

/// What the page may do: run our scripts, look as our style says, ask us. No frames, no forms that go anywhere.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page.
#[derive(Clone, Copy)]
pub(crate) struct Asset {
    pub(crate) path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! asset {
    ($path:literal, $content_type:ident, $file:literal) => {
        Asset { path: $path, content_type: $content_type, text: include_str!(concat!("page/", $file)) }
    };
}

/// All of them.
pub(crate) const ASSETS: [Asset; 8] = [
    asset!("/", HTML, "index.html"),
    asset!("/page/style.css", STYLE, "style.css"),
    asset!("/page/main.js", SCRIPT, "main.js"),
    asset!("/page/ask.js", SCRIPT, "ask.js"),
    asset!("/page/graph.js", SCRIPT, "graph.js"),
    asset!("/page/drops.js", SCRIPT, "drops.js"),
    asset!("/page/show.js", SCRIPT, "show.js"),
    asset!("/page/icon.svg", PICTURE, "icon.svg"),
];

impl Asset {
    /// The file as an answer.
    pub(crate) fn answer(self) -> Response {
        let headers = [
            (CONTENT_TYPE, self.content_type),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            // Another version of the program has other files.
            (CACHE_CONTROL, "no-cache"),
        ];
        (headers, self.text).into_response()
    }
}

/// Whether a path is one of the page's files.
pub(crate) fn is_asset(path: &str) -> bool {
    ASSETS.iter().any(|asset| asset.path == path)
}
