//! What detection of assets says and is asked: hosts, with what was observed of each.

pub use super::Counters;
use serde::{Deserialize, Serialize};

/// The paths of the verbs.
pub mod path {
    /// GET with [`AssetsQuery`](super::AssetsQuery): [`Assets`](super::Assets).
    pub const ASSETS: &str = "/v1/assets";
    /// GET: [`Counters`](super::Counters).
    pub const COUNTERS: &str = "/v1/assets/counters";
}

answers! {
    /// A page of hosts, in the order of their addresses; those without one are last.
    pub struct Assets {
        /// They.
        pub assets: Vec<Asset>,
        /// What to give as `after` for the next page, if there is one.
        pub next: Option<String>,
    }

    /// A host.
    pub struct Asset {
        /// Its address; none of one that still asks for one (DHCP).
        pub address: Option<String>,
        /// Its hardware address, where ARP, neighbor discovery or DHCP have said it.
        pub mac: Option<String>,
        /// When it was seen first, seconds since the Unix epoch.
        pub first_s: f64,
        /// And last.
        pub last_s: f64,
        /// What its TCP segments look like, seen last first.
        pub systems: Vec<System>,
        /// Its services.
        pub services: Vec<Service>,
        /// Its names, by mDNS.
        pub names: Vec<String>,
        /// Services that it announces by mDNS.
        pub announced: Vec<Announced>,
        /// What it has said to a DHCP server.
        pub dhcp: Option<Dhcp>,
    }

    /// An operating system, by how it begins or answers TCP connections.
    pub struct System {
        /// What a fingerprint says; none if none fits.
        pub name: Option<String>,
        /// `syn` or `syn-ack`, TTL, window, and options in their order.
        pub signature: String,
        /// Routers between it and us, by its TTL.
        pub hops: u8,
        /// When that was seen last, seconds since the Unix epoch.
        pub last_s: f64,
    }

    /// A service.
    pub struct Service {
        /// `tcp` or `udp`.
        pub transport: String,
        /// Where.
        pub port: u16,
        /// What it speaks, as `ssh`, or `unknown`.
        pub protocol: String,
        /// What it says of itself.
        pub banner: Option<String>,
        /// When it was seen first, seconds since the Unix epoch.
        pub first_s: f64,
        /// And last.
        pub last_s: f64,
    }

    /// A service that is announced.
    pub struct Announced {
        /// As `Printer._ipp._tcp`, or its kind alone.
        pub name: String,
        /// Where, if that was said.
        pub port: Option<u16>,
    }

    /// A DHCP client's own words.
    pub struct Dhcp {
        /// What it calls itself.
        pub host_name: Option<String>,
        /// Its vendor class.
        pub vendor: Option<String>,
        /// Options that it asks for, in its order.
        pub parameters: Vec<u8>,
    }
}

requests! {
    /// Which hosts.
    pub struct AssetsQuery {
        /// Only this one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub address: Option<String>,
        /// At most so many in this page.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
        /// Where to go on: what the last page said.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub after: Option<String>,
    }
}
