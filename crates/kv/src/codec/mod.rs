//! memcached's three protocols: requests and replies, whole in a slice or as a stream in pieces.
//!
//! ```text
//!  TCP  -> stream::Requests ----> Reads(key) Mutates(key) All | Command | Lost
//!          stream::Requests ---------> outstanding::Outstanding <--- replies::Replies <- TCP      what has surely been executed
//!  UDP  -> udp::Frame -> request::parse -> Request (typed, borrowed)      reply::parse <- udp::Frame <- UDP
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`request`] | one request, whole in a slice: typed, borrowed; what a tier that answers reads |
//! | [`reply`] | one reply, whole in a slice |
//! | [`stream`] | requests in pieces: what they do, not what they say |
//! | [`replies`] | replies in pieces: when one is complete |
//! | [`outstanding`] | whose reply it is |
//! | [`event`] | what a command does |
//! | [`binary`], [`udp`] | the binary header and its classes; the frame header of UDP |
//! | [`verb`], [`line`](mod@line), [`number`], [`base64`] | the text protocols' words, lines, numbers and encoded keys |
//! | [`write`] | requests and replies to be sent |
//!
//! The reference is memcached 1.6.18: `tests/real_memcached.rs` asks it. Not followed: ASCII authentication (`-Y`), where the first lines are read in
//! another way, and TLS.

pub mod base64;
pub mod binary;
pub mod event;
pub mod line;
pub mod number;
pub mod outstanding;
pub mod replies;
pub mod reply;
pub mod request;
pub mod stream;
pub mod udp;
pub mod verb;
pub mod write;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 250;
