//! The control API: a running service answers its operator over HTTP/1.1 and JSON on a Unix socket and, to who has a token, on TCP.
//!
//! A service registers verbs in a [`Registry`] and hands it to a [`Server`]; [`Client`] is the other end, for the command
//! line. What goes over the wire is in [`schema`], used by both sides.
//!
//! ```no_run
//! use tidemill_control::{ApiError, Registry, Request, Server};
//!
//! let mut registry = Registry::new("tidemill", "0.1.0");
//! registry.get("/v1/greeting", "A greeting", |_: &Request| Ok("good day"));
//! registry.delete("/v1/greeting", "Refuses", |_: &Request| -> Result<(), ApiError> {
//!     Err(ApiError::conflict("the greeting is in use: be patient"))
//! });
//! let server = Server::start(registry, "/run/tidemill/tidemill.sock".as_ref())?;
//! drop(server); // Stops answering and removes the socket.
//! # Ok::<(), tidemill_control::ServerError>(())
//! ```

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod client;
mod connections;
mod events;
mod foreign;
mod lease;
mod metrics;
mod openapi;
mod page;
mod patience;
mod registry;
pub mod schema;
mod serve;
mod server;
mod socket;
mod strangers;
mod stream;
mod tcp;
mod tokens;

pub use client::{Client, ClientError, PATIENCE};
pub use events::Events;
pub use metrics::{Family, METRICS};
pub use registry::{Answer, ApiError, Registry, Request};
pub use server::{Server, ServerError};
pub use stream::{Gone, Sink, Stream};
pub use tcp::{Bound, Tcp, Tls, TlsError};
pub use tokens::{Tokens, TokensError};

/// Where a service answers unless its configuration says otherwise, and where clients ask.
pub const DEFAULT_SOCKET: &str = "/run/tidemill/tidemill.sock";

/// The environment variable that names the socket for clients.
pub const SOCKET_VARIABLE: &str = "TIDEMILL_SOCKET";
