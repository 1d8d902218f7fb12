//! What frames tell: each is looked at once, in place; what was reported lately is not reported again. Pure: time is handed in.

use crate::assets::banner::{self, Banner};
use crate::assets::dhcp;
use crate::assets::mdns::{self, Said};
use crate::assets::observation::{Dhcp, Fact, Host, Observation};
use crate::assets::seen::Seen;
use crate::assets::signature::Signature;
use crate::assets::text::Text;
use crate::filter::text::Network;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_ip::martian::{is_host_v4, is_host_v6};
use tidemill_wire::tcp::Flags;
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, MacAddr, Protocol, arp, ipv4, ipv6, ipv6_ext, ndisc, tcp, udp};

/// What of one mDNS message is reported at most.
const MOST_SAID: usize = 16;

/// A worker's look at packets. See the [module](self).
#[derive(Debug)]
pub struct Watch {
    seen: Seen,
    hash: Keyed<4>,
    /// Whose addresses are of interest; all if there are none.
    networks: Arc<[Network]>,
    refresh_s: u32,
    malformed: u64,
}

/// An IP packet, as far as all protocols have it.
struct Ip<'a> {
    source: IpAddr,
    ttl: u8,
    dont_fragment: bool,
    protocol: Protocol,
    /// Behind the IP header, to the packet's end; of a later fragment nothing.
    body: &'a [u8],
}

/// Reports, unless it was done lately.
struct Reporter<'a, R> {
    seen: &'a mut Seen,
    hash: &'a Keyed<4>,
    networks: &'a [Network],
    now_s: u32,
    refresh_s: u32,
    report: R,
}

fn halves(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let bits = u128::from(bits);
    [(bits >> 64) as u64, bits as u64]
}

fn mac_word(mac: MacAddr) -> u64 {
    mac.0.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

impl<R: FnMut(Observation) -> bool> Reporter<'_, R> {
    fn chain(&self, start: u64, bytes: &[u8]) -> u64 {
        bytes.chunks(24).fold(start, |hash, chunk| {
            let mut words = [hash, 0, 0, 0];
            for (at, byte) in chunk.iter().enumerate() {
                words[1 + at / 8] |= u64::from(*byte) << (at % 8 * 8);
            }
            self.hash.hash(&Key(words))
        })
    }

    fn hash_of(&self, host: Host, fact: &Fact) -> u64 {
        let (family, [high, low]) = match host {
            Host::Ip(address) => (0, halves(address)),
            Host::Mac(mac) => (1, [0, mac_word(mac)]),
        };
        let of = |kind: u64, detail: u64| self.hash.hash(&Key([kind << 1 | family, high, low, detail]));
        match fact {
            Fact::Present => of(0, 0),
            Fact::Link(mac) => of(1, mac_word(*mac)),
            Fact::System(signature) => {
                let Signature { answer, v6, ttl, dont_fragment, window, mss, scale, options } = signature;
                let flags = u64::from(*answer) | u64::from(*v6) << 1 | u64::from(*dont_fragment) << 2;
                let scale = scale.map_or(0x1ff, u64::from);
                let mss = mss.map_or(0x1_ffff, u64::from);
                let detail =
                    flags | u64::from(*ttl) << 3 | u64::from(*window) << 11 | scale << 27 | mss << 36;
                self.chain(of(2, detail), options.kinds())
            }
            Fact::Answers(port) => of(3, u64::from(*port)),
            Fact::Says(udp, port, Banner { protocol, text }) => {
                let detail = u64::from(*udp) | u64::from(*port) << 1 | (*protocol as u64) << 17;
                self.chain(of(4, detail), text.bytes())
            }
            Fact::Dhcp(Dhcp { client, host_name, vendor, parameters }) => {
                let start = of(5, mac_word(*client));
                [host_name, vendor, parameters]
                    .iter()
                    .fold(start, |hash, text| self.chain(hash ^ text.bytes().len() as u64, text.bytes()))
            }
            Fact::Granted(mac) => of(6, mac_word(*mac)),
            Fact::Name(text) => self.chain(of(7, 0), text.bytes()),
            Fact::Announces(text, port) => self.chain(of(8, port.map_or(1 << 16, u64::from)), text.bytes()),
        }
    }

    /// Whether hosts of this address are of interest, and can be hosts at all.
    fn wants(&self, address: IpAddr) -> bool {
        let is_host = match address {
            IpAddr::V4(v4) => is_host_v4(v4.into()),
            IpAddr::V6(v6) => is_host_v6(v6.into()),
        };
        let is_in = |network: &Network| match (network, address) {
            (Network::V4(prefix), IpAddr::V4(v4)) => prefix.contains(u32::from(v4)),
            (Network::V6(prefix), IpAddr::V6(v6)) => prefix.contains(u128::from(v6)),
            _ => false,
        };
        is_host && (self.networks.is_empty() || self.networks.iter().any(is_in))
    }

    fn say(&mut self, host: Host, fact: Fact) {
        if let Host::Ip(address) = host
            && !self.wants(address)
        {
            return;
        }
        let hash = self.hash_of(host, &fact);
        if !self.seen.has(hash, self.now_s) && (self.report)(Observation { host, fact }) {
            self.seen.note(hash, self.now_s, self.now_s.saturating_add(self.refresh_s));
        }
    }

    fn ip(&mut self, address: IpAddr, fact: Fact) {
        self.say(Host::Ip(address), fact);
    }

    /// Whether it was reported that somebody answers there.
    fn answers(&self, address: IpAddr, port: u16) -> bool {
        self.seen.has(self.hash_of(Host::Ip(address), &Fact::Answers(port)), self.now_s)
    }
}

impl Watch {
    /// One that remembers about `entries` reports for `refresh_s` seconds each. The secret keeps others from choosing what it forgets.
    pub fn new(entries: usize, refresh_s: u32, networks: Arc<[Network]>, secret: u128) -> Self {
        Watch { seen: Seen::new(entries), hash: Keyed::new(secret), networks, refresh_s, malformed: 0 }
    }

    /// Messages of DHCP and mDNS that could not be read.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Looks at an Ethernet frame that came at `now_s`, seconds since the Unix epoch. `report` takes what is new; what it has no room for (`false`) is
    /// offered again with the next such packet.
    pub fn look(&mut self, now_s: u32, frame: &[u8], report: impl FnMut(Observation) -> bool) {
        let Ok(l2) = L2::parse(frame) else { return };
        let body = frame.get(l2.l3_offset..).unwrap_or_default();
        let Watch { seen, hash, networks, refresh_s, malformed } = self;
        let mut to = Reporter { seen, hash, networks, now_s, refresh_s: *refresh_s, report };
        let ip = match l2.ethertype {
            EtherType::ARP => return arp(&mut to, body),
            EtherType::IPV4 => v4(body),
            EtherType::IPV6 => v6(body),
            _ => None,
        };
        let Some(ip) = ip else { return };
        to.ip(ip.source, Fact::Present);
        match ip.protocol {
            Protocol::TCP => stream(&mut to, &ip),
            Protocol::UDP => *malformed += u64::from(!datagram(&mut to, &ip)),
            Protocol::ICMPV6 => neighbor(&mut to, &ip),
            _ => {}
        }
    }
}

fn v4(packet: &[u8]) -> Option<Ip<'_>> {
    ipv4::check_header(packet).ok()?;
    let end = usize::from(ipv4::total_len(packet)).min(packet.len());
    let is_first = ipv4::fragment_offset(packet) == 0;
    Some(Ip {
        source: Ipv4Addr::from(ipv4::src_u32(packet)).into(),
        ttl: ipv4::ttl(packet),
        dont_fragment: ipv4::dont_fragment(packet),
        protocol: ipv4::protocol(packet),
        body: packet.get(ipv4::header_len(packet)..end).filter(|_| is_first).unwrap_or_default(),
    })
}

fn v6(packet: &[u8]) -> Option<Ip<'_>> {
    ipv6::check_header(packet).ok()?;
    let walk = ipv6_ext::walk(packet).ok()?;
    let end = (ipv6::HEADER_LEN + usize::from(ipv6::payload_len(packet))).min(packet.len());
    let is_first = walk.fragment.is_none_or(|fragment| fragment.offset == 0);
    Some(Ip {
        source: Ipv6Addr::from(ipv6::src_u128(packet)).into(),
        ttl: ipv6::hop_limit(packet),
        dont_fragment: false,
        protocol: walk.upper,
        body: packet.get(walk.upper_offset..end).filter(|_| is_first).unwrap_or_default(),
    })
}

fn arp<R: FnMut(Observation) -> bool>(to: &mut Reporter<'_, R>, body: &[u8]) {
    let Ok(arp) = arp::Packet::new_checked(body) else { return };
    if arp.sender_mac().is_unicast() {
        to.ip(arp.sender_ip().into(), Fact::Link(arp.sender_mac()));
    }
}

fn neighbor<R: FnMut(Observation) -> bool>(to: &mut Reporter<'_, R>, ip: &Ip<'_>) {
    // What has come through a router is not of this link (RFC 4861, section 7.1).
    if ip.ttl != ndisc::HOP_LIMIT {
        return;
    }
    let Ok(message) = ndisc::Packet::new_checked(ip.body) else { return };
    let target = match message.message() {
        ndisc::Message::NeighborAdvert { target, .. } => Some(target),
        _ => None,
    };
    for option in message.options().map_while(Result::ok) {
        match (option, target) {
            (ndisc::NdOption::SourceLinkLayer(mac), _) if mac.is_unicast() => {
                to.ip(ip.source, Fact::Link(mac))
            }
            (ndisc::NdOption::TargetLinkLayer(mac), Some(target)) if mac.is_unicast() => {
                to.ip(target.into(), Fact::Link(mac));
            }
            _ => {}
        }
    }
}

fn stream<R: FnMut(Observation) -> bool>(to: &mut Reporter<'_, R>, ip: &Ip<'_>) {
    let Ok(segment) = tcp::Packet::new_checked(ip.body) else { return };
    let (flags, port) = (segment.flags(), segment.src_port());
    if flags.contains(Flags::SYN) {
        let is_v6 = ip.source.is_ipv6();
        let Some(signature) = Signature::read(is_v6, ip.ttl, ip.dont_fragment, ip.body) else { return };
        to.ip(ip.source, Fact::System(signature));
        if signature.answer {
            to.ip(ip.source, Fact::Answers(port));
        }
        return;
    }
    let Some(banner) = banner::of_stream(port, segment.payload()) else { return };
    // Both sides send these: the server is who was seen to answer, or has the port of servers.
    let is_servers = || port == 22 || port == 5900 || to.answers(ip.source, port);
    if !banner.protocol.is_mutual() || is_servers() {
        to.ip(ip.source, Fact::Says(false, port, banner));
    }
}

/// Returns whether what was expected to be something was that.
fn datagram<R: FnMut(Observation) -> bool>(to: &mut Reporter<'_, R>, ip: &Ip<'_>) -> bool {
    let Ok(datagram) = udp::Packet::new_checked(ip.body) else { return true };
    let (from, port, payload) = (datagram.src_port(), datagram.dst_port(), datagram.payload());
    match (from, port) {
        (dhcp::CLIENT_PORT, dhcp::SERVER_PORT)
        | (dhcp::SERVER_PORT, dhcp::CLIENT_PORT | dhcp::SERVER_PORT) => {
            let Ok(message) = dhcp::read(payload) else { return false };
            dynamic_address(to, &message);
            true
        }
        (mdns::PORT, mdns::PORT) => {
            let mut said = [None; MOST_SAID];
            let mut places = said.iter_mut();
            let read = mdns::read(payload, |one| {
                if let Some(place) = places.next() {
                    *place = Some(one);
                }
            });
            for one in said.into_iter().flatten() {
                match one {
                    Said::Name(address, name) if !name.is_empty() => to.ip(address, Fact::Name(name)),
                    Said::Name(..) => {}
                    Said::Service(name, port) => to.ip(ip.source, Fact::Announces(name, port)),
                }
            }
            read.is_ok()
        }
        _ => {
            if let Some(banner) = banner::of_datagram(from, payload) {
                to.ip(ip.source, Fact::Says(true, from, banner));
            }
            true
        }
    }
}

fn dynamic_address<R: FnMut(Observation) -> bool>(to: &mut Reporter<'_, R>, message: &dhcp::Message) {
    let client = message.client;
    if !client.is_unicast() || client == MacAddr::ZERO {
        return;
    }
    match (message.kind, message.address) {
        (dhcp::Kind::Client, address) => {
            let host = address.map_or(Host::Mac(client), |address| Host::Ip(address.into()));
            let dhcp::Message { host_name, vendor, parameters, .. } = *message;
            // What says nothing of itself is not worth a place.
            if [host_name, vendor, parameters].iter().any(|text: &Text| !text.is_empty()) {
                to.say(host, Fact::Dhcp(Dhcp { client, host_name, vendor, parameters }));
            }
        }
        (dhcp::Kind::Granted, Some(address)) => to.ip(address.into(), Fact::Granted(client)),
        _ => {}
    }
}
