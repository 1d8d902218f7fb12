//! What tests share: random attributes and prefixes, and messages by hand.

use crate::attributes::{self, Attributes, Origin, Reading};
use crate::message::{self, Capabilities, Graceful, Open};
use crate::path::{AsPath, Segment, SegmentKind};
use crate::update::{self, Nlri};
use rand::RngExt;
use rand::rngs::StdRng;
use std::net::{IpAddr, Ipv4Addr};
use tidemill_feed::AnyPrefix;
use tidemill_feed::bgp::Family;
use tidemill_lpm::Prefix;

pub(crate) fn prefix(text: &str) -> AnyPrefix {
    match text.contains(':') {
        true => AnyPrefix::V6(text.parse().unwrap()),
        false => AnyPrefix::V4(text.parse().unwrap()),
    }
}

pub(crate) fn nlri(text: &str) -> Nlri {
    Nlri { prefix: prefix(text), path: 0 }
}

pub(crate) fn any_nlri(rng: &mut StdRng, family: Family, add_path: bool) -> Nlri {
    let prefix = match family {
        Family::V4 => AnyPrefix::V4(Prefix::new(rng.random(), rng.random_range(0..=32)).unwrap()),
        Family::V6 => AnyPrefix::V6(Prefix::new(rng.random(), rng.random_range(0..=128)).unwrap()),
    };
    Nlri { prefix, path: if add_path { rng.random() } else { 0 } }
}

/// Attributes as a peer of another AS, or of ours, sends them.
pub(crate) fn any_attributes(rng: &mut StdRng, family: Family, wide: bool, internal: bool) -> Attributes {
    let mut asn = || {
        if wide && rng.random() { rng.random_range(65_536..=u32::MAX) } else { rng.random_range(1..23_456) }
    };
    let asns: Vec<u32> = (0..4).map(|_| asn()).collect();
    let length = rng.random_range(0..=4);
    let mut path = AsPath::sequence(&asns[..length]);
    if rng.random_range(0..5) == 0 {
        let set = Segment { kind: SegmentKind::Set, asns: asns[..2].into() };
        path = AsPath(path.0.iter().cloned().chain([set]).collect());
    }
    let next_hop = match family {
        Family::V4 => IpAddr::from([10, rng.random(), rng.random(), 1]),
        Family::V6 => IpAddr::from([0x2001, 0xdb8, rng.random(), 0, 0, 0, 0, 1]),
    };
    let some = |rng: &mut StdRng| rng.random::<bool>().then(|| rng.random_range(0..1000));
    Attributes {
        origin: [Origin::Igp, Origin::Egp, Origin::Incomplete][rng.random_range(0..3)],
        med: some(rng),
        local_pref: internal.then(|| rng.random_range(0..1000)),
        communities: (0..rng.random_range(0..100)).map(|_| rng.random()).collect(),
        large_communities: (0..rng.random_range(0..3)).map(|_| rng.random()).collect(),
        ..Attributes::new(next_hop, path)
    }
}

/// What a peer of AS 64496 says, as bytes.
#[derive(Clone)]
pub(crate) struct Voice {
    pub(crate) open: Open,
    pub(crate) reading: Reading,
}

impl Voice {
    /// It restarts gracefully, for `time_s` seconds, 0 for not at all; and has kept its routes, or not.
    pub(crate) fn new(id: u8, time_s: u16, kept: bool) -> Self {
        let families = vec![(Family::V4, kept), (Family::V6, kept)];
        let graceful = Graceful { restarted: false, time_s, flows: families.clone(), families };
        let capabilities = Capabilities {
            families: [true; 2],
            wide_as: Some(64_496),
            refresh: true,
            flows: [true; 2],
            graceful: (time_s > 0).then_some(graceful),
            ..Capabilities::default()
        };
        let open = Open { asn: 64_496, hold_s: 90, id: Ipv4Addr::new(10, 0, 0, id), capabilities };
        Voice { open, reading: Reading { wide: true, families: [true; 2], ..Reading::default() } }
    }

    /// OPEN and KEEPALIVE.
    pub(crate) fn hello(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.open.put(&mut bytes);
        message::put(&mut bytes, message::KEEPALIVE, &[]);
        bytes
    }

    /// Announces prefixes by a path of so many ASes.
    pub(crate) fn announce(&self, prefixes: &[&str], length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for prefix in prefixes {
            let nlri = nlri(prefix);
            let last = self.open.id.octets()[3];
            let next_hop = match nlri.family() {
                Family::V4 => IpAddr::from([10, 0, 0, last]),
                Family::V6 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)]),
            };
            let path = AsPath::sequence(&vec![self.open.asn; length]);
            let attributes = Attributes::new(next_hop, path);
            update::put_announcement(&mut bytes, &attributes, &[nlri], nlri.family(), &self.reading);
        }
        bytes
    }

    pub(crate) fn withdraw(&self, prefixes: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for prefix in prefixes {
            let nlri = nlri(prefix);
            update::put_withdrawal(&mut bytes, &[nlri], nlri.family(), &self.reading);
        }
        bytes
    }

    /// Gives IPv4 flow specifications, each with its length, with a rate of so many bytes a second, by a path of so many ASes.
    pub(crate) fn flows(&self, specs: &[u8], rate: f32, length: usize) -> Vec<u8> {
        let [a, b, c, d] = rate.to_be_bytes();
        let mut list = Vec::new();
        attributes::put_mp_reach(&mut list, &[&[0, 1, 133, 0, 0][..], specs].concat());
        let path = AsPath::sequence(&vec![self.open.asn; length]);
        attributes::put_all(&mut list, &Attributes::new(IpAddr::from([10, 0, 0, 1]), path), true);
        attributes::put_extended(&mut list, &[[0x80, 6, 0, 0, a, b, c, d]]);
        self.update(&list)
    }

    pub(crate) fn withdraw_flows(&self, specs: &[u8]) -> Vec<u8> {
        let mut list = Vec::new();
        attributes::put_mp_unreach(&mut list, &[&[0, 1, 133][..], specs].concat());
        self.update(&list)
    }

    /// An UPDATE of attributes alone.
    fn update(&self, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let body = [&[0, 0][..], &(attributes.len() as u16).to_be_bytes(), attributes].concat();
        message::put(&mut bytes, message::UPDATE, &body);
        bytes
    }

    pub(crate) fn end_of_rib(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        message::FAMILIES.into_iter().for_each(|family| update::put_end_of_rib(&mut bytes, family));
        bytes
    }

    /// The end of IPv4 flow specifications.
    pub(crate) fn end_of_flows(&self) -> Vec<u8> {
        self.withdraw_flows(&[])
    }
}

/// The messages in bytes: type and body.
pub(crate) fn messages(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut list = Vec::new();
    while let Some(frame) = message::frame(bytes, message::LONGEST_EXTENDED).unwrap() {
        list.push((frame.kind, frame.body.to_vec()));
        bytes = &bytes[frame.bytes()..];
    }
    assert!(bytes.is_empty(), "half a message");
    list
}
