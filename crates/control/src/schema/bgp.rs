//! What BGP sessions say and are asked.

pub use super::Done;
use serde::{Deserialize, Serialize};

/// The paths of the verbs.
pub mod path {
    /// GET: [`Peers`](super::Peers).
    pub const PEERS: &str = "/v1/bgp/peers";
    /// GET with [`RoutesQuery`](super::RoutesQuery): [`Routes`](super::Routes).
    pub const ROUTES: &str = "/v1/bgp/routes";
    /// GET: [`Flowspecs`](super::Flowspecs).
    pub const FLOWSPEC: &str = "/v1/bgp/flowspec";
    /// GET: [`Monitors`](super::Monitors).
    pub const BMP: &str = "/v1/bgp/bmp";
    /// POST of a [`Reset`](super::Reset): [`Done`](super::Done).
    pub const RESET: &str = "/v1/bgp/reset";
}

answers! {
    /// The peers.
    pub struct Peers {
        /// In the order of the configuration.
        pub peers: Vec<Peer>,
    }

    /// A peer.
    pub struct Peer {
        /// What it is called.
        pub name: String,
        /// Its address.
        pub address: String,
        /// Its AS.
        pub asn: u32,
        /// `idle` (no connection), `open-sent`, `open-confirm`, `established`.
        pub state: String,
        /// For how long its session has stood, or has not; none if it never did.
        pub since_s: Option<f64>,
        /// Its BGP identifier.
        pub id: Option<String>,
        /// The hold time agreed on.
        pub hold_s: Option<u64>,
        /// IPv4 paths from it.
        pub paths4: u64,
        /// IPv6 paths from it.
        pub paths6: u64,
        /// Flow specifications from it.
        pub flowspecs: u64,
        /// Prefixes announced to it.
        pub announced: u64,
        /// Whether it has said that it has told all, IPv4.
        pub synchronized4: bool,
        /// The same, IPv6.
        pub synchronized6: bool,
        /// Whether routes from before its restart are kept.
        pub stale: bool,
        /// How often a session was established.
        pub established: u64,
        /// Why its last session ended.
        pub ended: Option<String>,
        /// Messages received.
        pub received: u64,
        /// UPDATEs among them.
        pub updates: u64,
        /// Messages sent.
        pub sent: u64,
        /// UPDATEs whose routes were withdrawn because they were malformed.
        pub treated_as_withdraw: u64,
        /// Attributes left out because they were malformed.
        pub discarded: u64,
        /// Routes not used because they had come through us.
        pub loops: u64,
        /// Routes not used because their path does not begin with its AS.
        pub wrong_first_as: u64,
        /// Routes not used because nobody routes their prefixes: loopback, link-local, multicast and such.
        pub martians: u64,
        /// Paths left out because it had told as many to their prefixes as there may be (64).
        pub too_many_paths: u64,
    }

    /// A page of routes.
    pub struct Routes {
        /// Those of this page.
        pub routes: Vec<Route>,
        /// What to give as `after` for the next page, if there is one.
        pub next: Option<String>,
    }

    /// One path to a prefix.
    pub struct Route {
        /// The prefix.
        pub prefix: String,
        /// Whose path: the peer's name, or `ROUTER/ADDRESS` of a BMP router's peer.
        pub peer: String,
        /// Its identifier, where the peer tells several.
        pub path: u32,
        /// The next hop.
        pub next_hop: String,
        /// The ASes, the nearest first.
        pub as_path: String,
        /// `igp`, `egp` or `incomplete`.
        pub origin: String,
        /// MULTI_EXIT_DISC.
        pub med: Option<u32>,
        /// LOCAL_PREF.
        pub local_pref: Option<u32>,
        /// Communities: of both kinds the first 64.
        pub communities: Vec<String>,
        /// Large communities.
        pub large_communities: Vec<String>,
        /// Communities of both kinds that there are besides.
        pub more_communities: u64,
        /// From before the peer's restart.
        pub stale: bool,
        /// Whether a route leads to its next hop; if none does it is not used.
        pub reachable: bool,
        /// The one in use.
        pub best: bool,
    }

    /// Flow specifications of peers.
    pub struct Flowspecs {
        /// In the order in which they apply, IPv4 first.
        pub flowspecs: Vec<Flowspec>,
    }

    /// A flow specification of a peer.
    pub struct Flowspec {
        /// `ipv4` or `ipv6`.
        pub family: String,
        /// Which packets: `destination 192.0.2.0/24, protocol =17`.
        pub rule: String,
        /// What becomes of them: `drop`, `1000 bytes/s`, `DSCP 8`, `redirect to VRF 65000:100`, `redirect to 192.0.2.9`, `pass`.
        pub actions: String,
        /// Whose.
        pub peer: String,
        /// `applied`; `invalid` (not for the peer to give), `unused` (another peer's counts), `refused` (it cannot be applied), `pending`.
        pub state: String,
        /// Why it is not applied.
        pub why: Option<String>,
        /// Packets that it meant.
        pub packets: u64,
        /// Bytes of these, from the IP header on.
        pub bytes: u64,
        /// Packets that were dropped for it.
        pub dropped: u64,
        /// Bytes of these.
        pub dropped_bytes: u64,
    }

    /// The BMP routers.
    pub struct Monitors {
        /// In the order of the configuration.
        pub routers: Vec<Monitor>,
    }

    /// A BMP router.
    pub struct Monitor {
        /// What it is called.
        pub name: String,
        /// Its address.
        pub address: String,
        /// What it calls itself.
        pub system: String,
        /// Whether it is connected.
        pub connected: bool,
        /// Messages.
        pub messages: u64,
        /// UPDATEs whose routes were taken.
        pub updates: u64,
        /// Messages that are none of our business.
        pub ignored: u64,
        /// UPDATEs that could not be read.
        pub malformed: u64,
        /// Routes not used because they had come through us.
        pub loops: u64,
        /// Routes not used because nobody routes their prefixes.
        pub martians: u64,
        /// Paths left out because a peer had told as many to their prefixes as there may be (64).
        pub too_many_paths: u64,
        /// Its peers.
        pub peers: Vec<MonitoredPeer>,
    }

    /// A peer of a BMP router.
    pub struct MonitoredPeer {
        /// Its address.
        pub address: String,
        /// Its AS.
        pub asn: u32,
        /// Whether the router has a session with it.
        pub up: bool,
        /// IPv4 paths from it.
        pub paths4: u64,
        /// IPv6 paths from it.
        pub paths6: u64,
    }
}

requests! {
    /// Which routes.
    pub struct RoutesQuery {
        /// Only those of this peer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub peer: Option<String>,
        /// Only those to this prefix.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub prefix: Option<String>,
        /// What the last page said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub after: Option<String>,
        /// Paths, about: a page ends at a prefix, and earlier where paths are long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
    }

    /// Whose session is to begin anew.
    pub struct Reset {
        /// The peer's name.
        pub peer: String,
    }
}
