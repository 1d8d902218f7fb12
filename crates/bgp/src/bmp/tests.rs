use super::*;
use crate::message::KEEPALIVE;
use crate::testing::{Voice, nlri, prefix};
use crate::update::{Nlri, put_announcement};
use crate::{AsPath, Attributes};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidemill_feed::AnyPrefix;
use tidemill_feed::bgp::Family;

const PEER: (IpAddr, u32, Ipv4Addr) =
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 64_496, Ipv4Addr::new(10, 0, 0, 1));

const OWN: Own = Own { asn: 65_000, id: Ipv4Addr::new(10, 0, 0, 200) };

/// A station and its table.
struct Lab {
    station: Station,
    rib: Rib,
    told: BTreeMap<AnyPrefix, IpAddr>,
}

impl Lab {
    fn new(view: View) -> Self {
        Lab { station: Station::new(view, 1000, OWN), rib: Rib::default(), told: BTreeMap::new() }
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<(), BmpError> {
        let mut changes = Vec::new();
        let result = self.station.receive(bytes, &mut self.rib, &mut changes);
        while self.rib.sweep(2, &mut changes) {}
        for change in changes {
            match change.next_hop {
                Some(hop) => drop(self.told.insert(change.prefix, hop)),
                None => drop(self.told.remove(&change.prefix)),
            }
        }
        self.rib.check();
        assert_eq!(self.told, self.rib.best().collect());
        result
    }
}

/// Addresses, ports, both OPENs.
fn up_body(sent: &Open, received: &Open) -> Vec<u8> {
    let mut body = vec![0; 20];
    sent.put(&mut body);
    received.put(&mut body);
    body
}

fn message(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, kind, PEER, flags, body);
    bytes
}

fn plain(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![3];
    bytes.extend_from_slice(&((COMMON_BYTES + body.len()) as u32).to_be_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(body);
    bytes
}

fn stream() -> Vec<u8> {
    let voice = Voice::new(1, 0, false);
    let ours = Open { asn: 65_000, ..voice.open.clone() };
    let mut bytes = plain(4, &[&[0, 2, 0, 4][..], b"edge", &[0, 1, 0, 2], b"x\n"].concat());
    bytes.extend(message(3, 0, &up_body(&ours, &voice.open)));
    bytes.extend(message(0, 0, &voice.announce(&["192.0.2.0/24"], 1)));
    // Several UPDATEs in one message, and what is none.
    let mut several = voice.announce(&["198.51.100.0/24", "2001:db8::/32"], 2);
    message::put(&mut several, KEEPALIVE, &[]);
    several.extend(voice.withdraw(&["192.0.2.0/24"]));
    bytes.extend(message(0, 0, &several));
    bytes.extend(message(0, 0, &voice.end_of_rib()));
    bytes.extend(message(1, 0, &[0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 9, 0, 7, 0, 8, 0, 0, 0, 0, 0, 0, 1, 0]));
    bytes
}

#[test]
fn a_routers_peers_and_their_routes_are_followed() {
    let mut lab = Lab::new(View::PrePolicy);
    lab.hear(&stream()).unwrap();
    assert_eq!(lab.station.name(), "edge");
    let names: Vec<String> = lab.told.keys().map(AnyPrefix::to_string).collect();
    assert_eq!(names, ["198.51.100.0/24", "2001:db8::/32"]);
    let peer = lab.station.peers().next().unwrap();
    assert_eq!((peer.up, peer.address, peer.asn, peer.synchronized), (true, PEER.0, 64_496, [true; 2]));
    assert_eq!(peer.statistics, BTreeMap::from([(0, 9), (7, 256)]));
    assert_eq!(lab.station.stats().updates, 6);
    lab.hear(&message(2, 0, &[2, 0, 0])).unwrap();
    assert!(lab.told.is_empty() && !lab.station.peers().next().unwrap().up);
    // Again, and the router goes.
    lab.hear(&stream()).unwrap();
    assert_eq!(lab.told.len(), 2);
    let mut changes = Vec::new();
    lab.station.lost(&mut lab.rib);
    while lab.rib.sweep(1, &mut changes) {}
    assert_eq!((changes.len(), lab.rib.len()), (2, 0));
}

#[test]
fn one_view_is_taken() {
    let voice = Voice::new(1, 0, false);
    let update = voice.announce(&["192.0.2.0/24"], 1);
    let loc_rib = {
        let mut bytes = message(0, 0, &update);
        bytes[COMMON_BYTES] = LOC_RIB;
        bytes
    };
    let vrf = {
        let mut bytes = message(0, 0, &update);
        bytes[COMMON_BYTES + 9] = 1;
        bytes
    };
    let all = [
        message(0, 0, &update),
        message(0, POST_POLICY, &update),
        loc_rib,
        message(0, RIB_OUT, &update),
        message(0, RIB_OUT | POST_POLICY, &update),
        vrf,
    ];
    for (view, taken) in [(View::PrePolicy, 0), (View::PostPolicy, 1), (View::LocRib, 2)] {
        for (number, bytes) in all.iter().enumerate() {
            let mut lab = Lab::new(view);
            lab.hear(bytes).unwrap();
            assert_eq!(lab.told.len(), usize::from(number == taken), "{view:?} {number}");
            assert_eq!(lab.station.stats().ignored, u64::from(number != taken));
        }
    }
}

/// A prefix that we announce, as its router has it from us, or by a way that leads through us.
#[test]
fn what_has_come_through_us_is_not_used() {
    let mut lab = Lab::new(View::PrePolicy);
    let voice = Voice::new(1, 0, false);
    let anycast = ["198.51.100.0/24", "2001:db8::/32"];
    lab.hear(&message(0, 0, &voice.announce(&anycast, 2))).unwrap();
    assert_eq!(lab.told.len(), 2);
    let mut looped = voice.clone();
    looped.open.asn = OWN.asn;
    lab.hear(&message(0, 0, &looped.announce(&anycast[..1], 1))).unwrap();
    assert_eq!(
        lab.told.keys().map(AnyPrefix::to_string).collect::<Vec<_>>(),
        anycast[1..],
        "what was there is no more"
    );
    assert_eq!(lab.station.stats().loops, 1);
    // A router of our own AS: the path that it has from us is empty.
    let mut bytes = Vec::new();
    put(&mut bytes, 0, (IpAddr::V4(OWN.id), OWN.asn, OWN.id), 0, &voice.announce(&["203.0.113.0/24"], 0));
    lab.hear(&bytes).unwrap();
    assert_eq!((lab.told.len(), lab.station.stats().loops), (1, 2));
    // The same prefix from somebody else is a path as any.
    lab.hear(&message(0, 0, &voice.announce(&["203.0.113.0/24"], 1))).unwrap();
    assert_eq!(lab.told.len(), 2);
}

#[test]
fn martians_are_no_routes() {
    let mut lab = Lab::new(View::PrePolicy);
    let nets = ["127.0.0.0/8", "192.0.2.0/24", "fe80::/64", "::/0"];
    lab.hear(&message(0, 0, &Voice::new(1, 0, false).announce(&nets, 1))).unwrap();
    let told: Vec<String> = lab.told.keys().map(AnyPrefix::to_string).collect();
    assert_eq!((told, lab.station.stats().martians), (vec!["192.0.2.0/24".into(), "::/0".into()], 2));
}

#[test]
fn path_identifiers_are_read_where_both_speak_them() {
    let mut voice = Voice::new(1, 0, false);
    voice.open.capabilities.add_path = [2, 0];
    voice.reading.add_path = [true, false];
    let mut ours = Open { asn: 65_000, ..voice.open.clone() };
    ours.capabilities.add_path = [1, 1];
    let mut lab = Lab::new(View::PrePolicy);
    lab.hear(&message(3, 0, &up_body(&ours, &voice.open))).unwrap();
    lab.hear(&message(0, 0, &voice.announce(&["192.0.2.0/24", "2001:db8::/32"], 1))).unwrap();
    assert_eq!(lab.told.len(), 2);
    assert!(lab.rib.get(prefix("192.0.2.0/24")).is_some());
    assert_eq!(nlri("192.0.2.0/24").path, 0);
}

#[test]
fn paths_too_many_to_one_prefix_are_left_out() {
    let mut voice = Voice::new(1, 0, false);
    voice.open.capabilities.add_path = [2, 0];
    voice.reading.add_path = [true, false];
    let mut ours = Open { asn: 65_000, ..voice.open.clone() };
    ours.capabilities.add_path = [1, 0];
    let mut lab = Lab::new(View::PrePolicy);
    lab.hear(&message(3, 0, &up_body(&ours, &voice.open))).unwrap();
    let most = crate::rib::PATHS_PER_PREFIX as u32;
    let list: Vec<Nlri> = (1..most + 7).map(|path| Nlri { path, ..nlri("192.0.2.0/24") }).collect();
    let attributes = Attributes::new(PEER.0, AsPath::sequence(&[64_496]));
    let mut update = Vec::new();
    put_announcement(&mut update, &attributes, &list, Family::V4, &voice.reading);
    lab.hear(&message(0, 0, &update)).unwrap();
    assert_eq!((lab.station.stats().too_many_paths, lab.told.len()), (6, 1));
}

/// Peers that come and go are forgotten when there is no room for others, which get their numbers; so are those of a lost connection.
#[test]
fn peers_that_are_down_make_room() {
    let mut lab = Lab::new(View::PrePolicy);
    let voice = Voice::new(1, 0, false);
    let of = |n: usize, kind: u8, body: &[u8]| {
        let address = Ipv4Addr::from(0x0b00_0000 + n as u32);
        let mut bytes = Vec::new();
        put(&mut bytes, kind, (IpAddr::V4(address), 64_496, address), 0, body);
        bytes
    };
    let route = |n: usize| {
        let net = format!("10.{}.{}.0/24", n / 256, n % 256);
        of(n, 0, &voice.announce(&[net.as_str()], 1))
    };
    let names = |lab: &Lab| lab.told.keys().map(AnyPrefix::to_string).collect::<Vec<_>>();
    // All but the first end again.
    let come = |n: usize| [route(n), if n == 0 { Vec::new() } else { of(n, 2, &[2, 0, 0]) }].concat();
    lab.hear(&(0..PEERS_MAX).flat_map(come).collect::<Vec<u8>>()).unwrap();
    assert_eq!((lab.station.peers().count(), names(&lab)), (PEERS_MAX, vec!["10.0.0.0/24".to_owned()]));
    lab.hear(&route(PEERS_MAX)).unwrap();
    assert_eq!(names(&lab), ["10.0.0.0/24", "10.16.0.0/24"]);
    let numbers: Vec<PeerId> = lab.station.peers().map(|peer| peer.number).collect();
    assert!(numbers.len() == 2 && numbers.iter().all(|number| *number < PEERS_MAX as u32), "{numbers:?}");
    // It connects anew, and all of its peers are others.
    lab.station.lost(&mut lab.rib);
    lab.hear(&(5000..5000 + PEERS_MAX).flat_map(route).collect::<Vec<u8>>()).unwrap();
    assert_eq!((lab.told.len(), lab.station.peers().count()), (PEERS_MAX, PEERS_MAX));
    assert!(lab.station.peers().all(|peer| peer.number < PEERS_MAX as u32));
    assert_eq!(lab.hear(&route(1)), Err(BmpError::Peers), "all of these are up");
}

#[test]
fn what_is_no_bmp_ends_the_connection() {
    let error = |bytes: &[u8]| Lab::new(View::PrePolicy).hear(bytes).unwrap_err().to_string();
    assert_eq!(
        error(b"GET / HTTP/1.1"),
        "version 71 is not BMP's 3: is it a BMP exporter that connects here?"
    );
    assert_eq!(error(&[3, 0, 0, 0, 5, 0]), "a message of 5 bytes: the stream is corrupt");
    assert_eq!(error(&[3, 0xff, 0, 0, 0, 0]), "a message of 4278190080 bytes: the stream is corrupt");
    assert_eq!(
        error(&plain(0, &[0; 41])),
        "message type 0: the time at byte 34 of the body reaches beyond its end"
    );
    assert_eq!(error(&plain(5, &[0, 0, 0, 3, b'b', b'y', b'e'])), "the router has ended the session: bye");
    let mut lab = Lab::new(View::PrePolicy);
    let voice = Voice::new(1, 0, false);
    let nets: Vec<String> = (0..1001).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect();
    let nets: Vec<&str> = nets.iter().map(String::as_str).collect();
    let result = lab.hear(&message(0, 0, &voice.announce(&nets, 1)));
    assert_eq!(result, Err(BmpError::Prefixes(1000)));
    // A malformed UPDATE is the peer's and its router's affair.
    let mut lab = Lab::new(View::PrePolicy);
    let mut update = Vec::new();
    message::put(&mut update, message::UPDATE, &[0, 9, 0, 0]);
    update.extend(voice.announce(&["192.0.2.0/24"], 1));
    lab.hear(&message(0, 0, &update)).unwrap();
    assert_eq!((lab.station.stats().malformed, lab.told.len()), (1, 1));
}

#[test]
fn where_bytes_are_cut_does_not_matter() {
    let bytes = stream();
    let mut whole = Lab::new(View::PrePolicy);
    whole.hear(&bytes).unwrap();
    let mut rng = StdRng::seed_from_u64(3);
    for longest in [1, 5, 60] {
        let mut lab = Lab::new(View::PrePolicy);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (part, others) = rest.split_at(rng.random_range(1..=longest).min(rest.len()));
            lab.hear(part).unwrap();
            rest = others;
        }
        assert_eq!((&lab.told, lab.station.stats()), (&whole.told, whole.station.stats()));
    }
}

#[test]
fn any_bytes_are_heard_or_end_it() {
    let mut rng = StdRng::seed_from_u64(4);
    let good = stream();
    let mut ended = 0;
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..rng.random_range(1..5) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        let mut lab = Lab::new(View::PrePolicy);
        if lab.hear(&bytes).is_err() {
            ended += 1;
            lab.station.lost(&mut lab.rib);
            while lab.rib.sweep(100, &mut Vec::new()) {}
            assert!(lab.rib.is_empty());
        }
    }
    assert!(ended > 100, "{ended}");
}
