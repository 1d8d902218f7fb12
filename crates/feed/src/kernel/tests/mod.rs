//! The mirror with made-up messages: no socket, no root.

mod decoding;
mod mirror;
mod model;

use super::{KernelEvent, KernelPath};
use crate::table::AnyPrefix;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A message from its header and attributes, by hand.
#[derive(Clone)]
pub(super) struct Raw(pub(super) Vec<u8>);

impl Raw {
    pub(super) fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend(header);
        Raw(bytes).sealed()
    }

    fn sealed(mut self) -> Self {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend(attribute(kind, value));
        self.sealed()
    }

    pub(super) fn int(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    pub(super) fn ip(self, kind: u16, text: &str) -> Self {
        self.with(kind, &octets(text.parse().unwrap()))
    }
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub(super) const NEW: u16 = 24;
pub(super) const DEL: u16 = 25;
pub(super) const REPLACE: u16 = 0x100;
pub(super) const APPEND: u16 = 0x800;

/// A unicast route of the main table, without its path.
pub(super) fn route(kind: u16, flags: u16, prefix: &str, metric: u32) -> Raw {
    let (address, len) = prefix.split_once('/').unwrap();
    let family = if address.contains(':') { 10 } else { 2 };
    let header = [family, len.parse().unwrap(), 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    let route = Raw::new(kind, flags, &header).ip(1, address);
    if metric > 0 { route.int(6, metric) } else { route }
}

/// ... with one hop.
pub(super) fn hop(kind: u16, flags: u16, prefix: &str, metric: u32, gateway: &str, index: u32) -> Raw {
    route(kind, flags, prefix, metric).ip(5, gateway).int(4, index)
}

/// `RTA_MULTIPATH`.
pub(super) fn multipath(hops: &[(&str, u32, u8)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(gateway, index, weight) in hops {
        let inner = attribute(5, &octets(gateway.parse().unwrap()));
        bytes.extend(((8 + inner.len()) as u16).to_ne_bytes());
        bytes.extend([0, weight - 1]);
        bytes.extend(index.to_ne_bytes());
        bytes.extend(inner);
    }
    bytes
}

pub(super) fn link(kind: u16, family: u8, index: u32, admin: bool, carrier: bool) -> Raw {
    let mut header = vec![family, 0, 1, 0];
    header.extend(index.to_ne_bytes());
    header.extend((u32::from(admin) | u32::from(carrier) << 16).to_ne_bytes());
    header.extend([0; 4]);
    Raw::new(kind, 0, &header).with(3, b"eth\0").int(4, 1500).with(1, &[2, 0, 0, 0, 0, 1])
}

/// The sum of events; every event must be a change.
#[derive(Default, Debug, Clone, PartialEq)]
pub(super) struct Sum(pub(super) BTreeMap<AnyPrefix, Arc<KernelPath>>);

impl Sum {
    pub(super) fn take(&mut self, events: &[KernelEvent]) {
        for event in events {
            let KernelEvent::Route { prefix, path, .. } = event else { continue };
            let old = match path {
                Some(path) => self.0.insert(*prefix, path.clone()),
                None => self.0.remove(prefix),
            };
            assert_ne!(old, *path, "{prefix} is told again");
        }
    }
}
