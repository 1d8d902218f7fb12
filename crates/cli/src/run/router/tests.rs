//! Flow specifications that redirect, in a whole router: into a VRF, by way of an address; and what becomes of packets that wait meanwhile. And who is told first of a reload.

use super::{Commit, Config, Interfaces, Opening, Registry, Router, Runs, Scope, Table, Told};
use crate::run::setup::places;
use crate::run::spliced::Prepare;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tidemill_bgp::flowspec::read_all;
use tidemill_bgp::{Actions, FlowSpec, Redirect, RouteTarget};
use tidemill_burst::Memory;
use tidemill_feed::bgp::{Cursor, Family};
use tidemill_graph::{Clock, Engine, GraphBuilder, Limits, Options};
use tidemill_ip::NextHops;
use tidemill_lookup::numa::Topology;
use tidemill_lookup::publish::View;
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::flowspec::{FlowspecControl, Look, Places};
use tidemill_nf::nat::{self, NatControl, NatSection};
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort, Sent};
use tidemill_router::{PortInfo, RouterConfig, RouterControl, Routes};
use tidemill_wire::{Protocol, ipv4, ipv6};

/// `dmz` is in a VRF of its own, where a scrubber is. It has not answered yet, but for IPv6.
const TEXT: &str = "[[interface]]\nport='lan'\nresolve=true\naddresses=['10.1.0.1/24','fd01::1/64']\n\
    [[interface]]\nport='wan'\nresolve=true\naddresses=['10.2.0.1/24','fd02::1/64']\n\
    [[interface]]\nport='dmz'\nresolve=true\nvrf='scrub'\naddresses=['10.3.0.1/24','fd03::1/64']\n\
    [[route]]\nprefix='20.0.0.0/8'\nvia='10.2.0.9'\n\
    [[route]]\nprefix='2001:db8::/32'\nvia='fd02::9'\n\
    [[route]]\nprefix='0.0.0.0/0'\nvia='10.3.0.9'\nvrf='scrub'\n\
    [[route]]\nprefix='::/0'\nvia='fd03::9'\nvrf='scrub'\n\
    [[route]]\nprefix='20.7.0.0/16'\nvia='10.3.0.8'\nvrf='scrub'\n\
    [[route]]\nprefix='20.8.0.0/16'\nkind='unreachable'\nvrf='scrub'\n\
    [[route]]\nprefix='20.9.0.0/16'\nkind='blackhole'\nvrf='scrub'\n\
    [[neighbors.fixed]]\ninterface='wan'\naddress='10.2.0.9'\nmac='02:bb:00:00:00:09'\n\
    [[neighbors.fixed]]\ninterface='wan'\naddress='fd02::9'\nmac='02:bb:00:00:00:09'\n\
    [[neighbors.fixed]]\ninterface='dmz'\naddress='fd03::9'\nmac='02:bb:00:00:00:03'\n";

const SCRUB: RouteTarget = RouteTarget::As(65_000, 100);
const START_NS: u64 = 100_000_000_000;
const LAN: usize = 0;
const WAN: usize = 1;
const DMZ: usize = 2;

/// Frames of each port, and the millisecond at which they come.
type Frames = [Vec<(u64, Vec<u8>)>; 3];

struct Ran {
    sent: [Vec<Vec<u8>>; 3],
    drops: String,
}

impl Ran {
    /// How many frames went to the station of this number.
    fn to(&self, port: usize, station: u8) -> usize {
        self.sent[port].iter().filter(|frame| frame[..6] == [2, 0xbb, 0, 0, 0, station]).count()
    }
}

/// Runs a router with flow specifications. `first` happens before the first of these frames, `then` between frames.
fn run(
    frames: Frames,
    first: impl FnOnce(&mut RouterControl, &mut FlowspecControl) + Send,
    then: impl FnMut(u64, &mut FlowspecControl) + Send,
) -> Ran {
    run_with(|_, _, _| (), frames, first, then)
}

/// The same with something that is put into the router's graph before. `first` happens before the first of these frames, `then` between frames.
fn run_with<T>(
    beside: impl FnOnce(&mut GraphBuilder, &RouterControl, &Domain) -> T,
    mut frames: Frames,
    first: impl FnOnce(&mut RouterControl, &mut FlowspecControl) + Send,
    mut then: impl FnMut(u64, &mut FlowspecControl) + Send,
) -> Ran {
    let (domain, names) = (Domain::new(), ["lan", "wan", "dmz"]);
    let config: RouterConfig = toml::from_str(TEXT).unwrap();
    let ports = names.map(PortInfo::new);
    let mut control =
        RouterControl::new(&config, &ports, Routes::default(), Routes::default(), &domain).unwrap();
    let mut flows = FlowspecControl::new(1, &domain);
    let mut graph = tidemill_router::graph(&control);
    let _beside = beside(&mut graph, &control, &domain);
    tidemill_nf::flowspec::splice(&mut graph, &flows, super::flowspec_host(&control));
    // Something that begins the time, and means nothing.
    frames[DMZ].insert(0, (1, answer(DMZ, 200)));
    let mut first = Some(first);
    let sent = [Sent::default(), Sent::default(), Sent::default()];
    // One frame a round, in the order of their times: ports in memory do not wait for each other.
    let mut events: Vec<(u64, usize, Vec<u8>)> = Vec::new();
    for (port, frames) in frames.into_iter().enumerate() {
        events.extend(frames.into_iter().map(|(ms, bytes)| (ms, port, bytes)));
    }
    events.sort();
    let queues = names.iter().zip(&sent).enumerate().map(|(port, (name, sent))| {
        let bursts = events.iter().map(|(ms, at, bytes)| match *at == port {
            true => vec![Frame::at(START_NS + ms * 1_000_000, bytes.clone())],
            false => Vec::new(),
        });
        vec![Box::new(MemoryPort::new(name, bursts).sending_to(sent)) as Box<dyn Port>]
    });
    let memory = Memory::new(1024, 2048).unwrap();
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 1024,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let engine = Engine::new(graph.build().unwrap(), 1, queues.collect(), &memory, &domain, options).unwrap();
    let outcome = engine.run(|now_ns| {
        if now_ns >= START_NS {
            if let Some(first) = first.take() {
                first(&mut control, &mut flows);
            }
            control.poll(now_ns).unwrap();
            then((now_ns - START_NS) / 1_000_000, &mut flows);
        }
        control.collect();
        flows.collect();
    });
    assert!(outcome.errors.is_empty());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    let drops: Vec<String> =
        ledger.dropped.iter().map(|(reason, count)| format!("{reason}={count}")).collect();
    Ran { sent: sent.each_ref().map(Sent::frames), drops: drops.join(" ") }
}

/// A frame to our port of this number, from the station of that one.
fn frame(port: usize, station: u8, kind: [u8; 2], rest: &[u8]) -> Vec<u8> {
    let ours = [2, 0x49, 0, 0, 0, port as u8];
    [&ours[..], &[2, 0xbb, 0, 0, 0, station], &kind, rest].concat()
}

const UDP: [u8; 12] = [0, 7, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4];

/// A UDP packet that comes in by a port.
fn datagram(port: usize, source: &str, destination: &str) -> Vec<u8> {
    let (kind, header) = match (source.parse().unwrap(), destination.parse().unwrap()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0; ipv4::HEADER_LEN];
            ipv4::Repr::new(source, destination, Protocol::UDP, UDP.len()).emit(&mut header).unwrap();
            ([8, 0], header)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = vec![0; ipv6::HEADER_LEN];
            ipv6::Repr::new(source, destination, Protocol::UDP, UDP.len()).emit(&mut header).unwrap();
            ([0x86, 0xdd], header)
        }
        _ => panic!("two families"),
    };
    frame(port, 1, kind, &[&header[..], &UDP].concat())
}

/// A station says by ARP that it has an address whose last byte is its number.
fn answer(port: usize, station: u8) -> Vec<u8> {
    let net = port as u8 + 1;
    let ours = [2, 0x49, 0, 0, 0, port as u8, 10, net, 0, 1];
    let theirs = [2, 0xbb, 0, 0, 0, station, 10, net, 0, station];
    frame(port, station, [8, 6], &[&[0, 1, 8, 0, 6, 4, 0, 2][..], &theirs, &ours].concat())
}

/// All packets to an address.
fn to(address: &str) -> FlowSpec {
    let (family, component) = match address.parse().unwrap() {
        IpAddr::V4(four) => (Family::V4, [&[1, 32][..], &four.octets()].concat()),
        IpAddr::V6(six) => (Family::V6, [&[1, 128, 0][..], &six.octets()].concat()),
    };
    let bytes = [&[component.len() as u8][..], &component].concat();
    read_all(Cursor::new(&bytes), family).unwrap().0.remove(0)
}

fn redirect(spec: FlowSpec, redirect: Redirect) -> (FlowSpec, Actions) {
    (spec, Actions { redirect: Some(redirect), ..Actions::default() })
}

/// To the VRF with the scrubber.
fn scrubbed(control: &RouterControl, flows: &mut FlowspecControl, addresses: &[&str]) {
    let vrfs = [(SCRUB, control.vrf("scrub").unwrap())].into();
    flows.set_places(Places { vrfs, ..Places::default() });
    assert!(flows.set(addresses.iter().map(|address| redirect(to(address), Redirect::Vrf(SCRUB)))));
}

/// The first packet waits for the scrubber, and does not go by its own route when that has answered.
#[test]
fn a_vrf_routes_what_is_redirected_to_it() {
    let lan = [
        (10, "10.1.0.7", "20.0.0.1"),
        (11, "10.1.0.7", "20.0.0.2"),
        (30, "10.1.0.7", "20.0.0.1"),
        (31, "fd01::7", "2001:db8::1"),
        (32, "fd01::7", "2001:db8::2"),
        (33, "10.1.0.7", "20.0.0.1"),
    ];
    let lan = lan.map(|(ms, source, destination)| (ms, datagram(LAN, source, destination))).to_vec();
    // It is station 9 of that link.
    let dmz = vec![(20, answer(DMZ, 9)), (40, answer(DMZ, 9))];
    let ran = run(
        [lan, Vec::new(), dmz],
        |control, flows| scrubbed(control, flows, &["20.0.0.1", "2001:db8::1"]),
        |_, _| (),
    );
    assert_eq!((ran.to(DMZ, 9), ran.to(DMZ, 3)), (3, 1), "redirected, IPv4 and IPv6");
    assert_eq!(ran.to(WAN, 9), 2, "routed");
    assert_eq!((ran.sent[LAN].len(), ran.drops), (0, String::new()));
}

/// A fragment that waits in NAT for the first of its packet is looked up when that has come: not by its own route.
#[test]
fn what_nat_keeps_does_not_forget_where_it_is_redirected_to() {
    let nat = |graph: &mut GraphBuilder, control: &RouterControl, domain: &Domain| {
        let section = "inside = ['lan']\noutside = ['wan']\npool = ['198.51.100.1']";
        let section: NatSection = toml::from_str(section).unwrap();
        let nat = NatControl::with_secret(&section, &control.settings().interfaces, 1, domain, 3).unwrap();
        let (hops4, hops6) = crate::run::spliced::hops(control);
        nat::splice(graph, &nat, nat::Host { hops4, hops6 });
        nat
    };
    let piece = |offset: u16, bytes: &[u8], more_fragments| {
        let (source, destination) = ("10.1.0.7".parse().unwrap(), "20.0.0.1".parse().unwrap());
        let whole = ipv4::Repr::new(source, destination, Protocol::UDP, bytes.len());
        let piece =
            ipv4::Repr { ident: 5, dont_fragment: false, more_fragments, fragment_offset: offset, ..whole };
        let mut header = vec![0; ipv4::HEADER_LEN];
        piece.emit(&mut header).unwrap();
        frame(LAN, 1, [8, 0], &[&header[..], bytes].concat())
    };
    let lan = vec![(30, piece(8, &UDP[8..], false)), (31, piece(0, &UDP[..8], true))];
    let wan = vec![(20, answer(WAN, 7)), (22, answer(WAN, 7)), (40, answer(WAN, 7))];
    let address: IpAddr = "10.2.0.7".parse().unwrap();
    let ran = run_with(
        nat,
        [lan, wan, Vec::new()],
        |control, flows| {
            let addresses = control.steer_to(START_NS, &BTreeSet::from([address])).0;
            flows.set_places(Places { addresses, ..Places::default() });
            assert!(flows.set([redirect(to("20.0.0.1"), Redirect::Address(address))]));
        },
        |_, _| (),
    );
    let mut sent = ran.sent[WAN].iter().filter(|frame| frame[12..14] == [8, 0]);
    assert_eq!((sent.clone().count(), ran.drops.as_str()), (2, ""));
    assert!(sent.clone().all(|frame| frame[..6] == [2, 0xbb, 0, 0, 0, 7]), "by the redirect");
    assert!(sent.all(|frame| frame[26..30] == [198, 51, 100, 1]), "translated");
}

#[test]
fn what_a_redirect_has_no_way_for_is_dropped_by_name() {
    let all = ["20.7.0.1", "20.8.0.1", "20.9.0.1", "10.3.0.1"];
    let lan = all.iter().zip(10..).map(|(to, ms)| (ms, datagram(LAN, "10.1.0.7", to))).collect();
    let dmz = vec![
        (20, answer(DMZ, 9)),
        (22, answer(DMZ, 9)),
        (30, answer(DMZ, 8)),
        (40, answer(DMZ, 8)),
        (50, answer(DMZ, 8)),
    ];
    let mut counted = Vec::new();
    let ran = run(
        [lan, Vec::new(), dmz],
        |control, flows| scrubbed(control, flows, &all),
        |ms, flows| {
            if ms >= 22 && counted.is_empty() {
                let once = |address: &str| matches!(flows.look(&to(address)), Look::Applied(counts) if counts.packets == 1);
                counted = all.map(once).to_vec();
                // Withdrawn while the first packet waits for its neighbor.
                flows.set([]);
            }
        },
    );
    assert_eq!(counted, [true; 4]);
    // Unreachable there; our own address there; and the one that waited: it has passed by all that stands before its own route.
    assert_eq!(ran.drops, "blackhole=1 flowspec-redirect=3");
    assert_eq!((ran.sent[LAN].len(), ran.to(WAN, 9), ran.to(DMZ, 8)), (0, 0, 0), "and nobody is told");
}

#[test]
fn an_address_gets_what_is_redirected_to_it() {
    let packet = |port| datagram(port, "10.1.0.7", "20.0.0.3");
    let lan = vec![(10, packet(LAN)), (30, packet(LAN)), (50, packet(LAN))];
    let wan = vec![(20, answer(WAN, 7)), (22, answer(WAN, 7)), (40, packet(WAN))];
    let dmz = vec![(44, answer(DMZ, 9)), (46, answer(DMZ, 9)), (60, answer(DMZ, 9))];
    let address: IpAddr = "10.2.0.7".parse().unwrap();
    let rule = || [redirect(to("20.0.0.3"), Redirect::Address(address))];
    let ran = run(
        [lan, wan, dmz],
        |control, flows| {
            let wanted = BTreeSet::from([address, "192.0.2.1".parse().unwrap()]);
            let addresses = control.steer_to(START_NS, &wanted).0;
            assert_eq!(addresses, BTreeSet::from([address]), "nobody knows a way to the other");
            flows.set_places(Places { addresses, ..Places::default() });
            assert!(flows.set(rule()));
        },
        |ms, flows| {
            if ms >= 44 {
                // `lan` is spared from now on.
                let (addresses, spared) = ([address].into(), vec![true]);
                flows.set_places(Places { addresses, spared, ..Places::default() });
                flows.set(rule());
            }
        },
    );
    let asks = |frame: &Vec<u8>| frame[12..14] == [8, 6] && frame.get(38..42) == Some(&[10, 2, 0, 7][..]);
    assert!(ran.sent[WAN].iter().any(asks), "it is asked for, though no packet is its");
    assert_eq!(ran.drops, "neighbor-unresolved=1", "the first packet");
    assert_eq!(ran.to(WAN, 7), 1, "the second");
    assert_eq!(ran.to(WAN, 9), 2, "what comes back by the same link, and what comes by one that is spared");
}

/// A part that writes down when it is told of a configuration: at which generation of the router's next hops.
struct Noting {
    refuses: AtomicBool,
    hops: View<NextHops>,
    told: Mutex<Vec<(&'static str, u64)>>,
}

impl Noting {
    fn write_down(&self, whom: &'static str) {
        self.told.lock().unwrap().push((whom, self.hops.generation()));
    }
}

impl Runs for Noting {
    fn splice(&self, _graph: &mut GraphBuilder, _router: &RouterControl) {}
    fn follow(&self, _router: &RouterControl) {}
    fn poll(&self) {}
    fn read<'a>(&'a self, _config: &'a Config, _name: &'a str) -> Result<Prepare<'a>> {
        Ok(Box::new(move |_: &Interfaces| -> Result<Commit<'a>> {
            if self.refuses.load(Ordering::Relaxed) {
                bail!("refused");
            }
            Ok(Box::new(move || self.write_down("part")))
        }))
    }
    fn remarks(&self, _router: &RouterControl) -> Vec<String> {
        Vec::new()
    }
    fn note(&self, _line: &str) {}
    fn verbs(self: Arc<Self>, _router: &Arc<Router>, _registry: &mut Registry) {}
    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }
    fn beside<'scope>(&'scope self, _scope: &'scope Scope<'scope, '_>, _done: &'scope AtomicBool) {}
    fn end(&self) {}
    fn progress(&self) -> String {
        String::new()
    }
    fn tell(&self, _told: &mut Told) {}
}

/// What a reload adds is let in when a role beside, NAT and the filter know of it; and where one of them refuses it, nobody has changed.
#[test]
fn the_router_is_the_last_that_a_reload_tells() {
    let text = "version = 1\nrole = \"router\"\n[[port]]\nname = \"a\"\nkind = \"null\"\n[[port]]\nname = \"b\"\nkind = \"null\"\n";
    let more =
        format!("{text}[[route]]\nprefix = \"20.0.0.0/8\"\nport = \"b\"\nmac = \"02:00:00:00:00:09\"\n");
    let [config, new] = [text, more.as_str()].map(|text| Config::parse(text, "test").unwrap());
    let (places, domain) = (places(&config, &Topology::default(), "test").unwrap(), Domain::new());
    let opening = Opening {
        config: &config,
        text,
        name: "test",
        base: Path::new(""),
        places: &places,
        domain: &domain,
        record: false,
        trouble: Arc::default(),
    };
    let (mut router, _ports, _) = super::make(&opening).unwrap();
    let hops = router.with_control(|control| control.ways4()(0).1);
    let part =
        Arc::new(Noting { refuses: AtomicBool::new(true), hops: hops.clone(), told: Mutex::default() });
    Arc::get_mut(&mut router).unwrap().parts.push(part.clone());
    let reload = |commits: Result<()>| {
        router.reload_with(
            ("test", &config, &new, &more),
            |_| Ok(()),
            |()| {
                part.write_down("role");
                commits
            },
        )
    };
    let told = || std::mem::take(&mut *part.told.lock().unwrap());
    let before = hops.generation();
    assert!(reload(Ok(())).is_err());
    assert_eq!((told(), hops.generation()), (vec![], before));
    part.refuses.store(false, Ordering::Relaxed);
    assert!(reload(Err(anyhow::anyhow!("has no room"))).is_err());
    assert_eq!((told(), hops.generation()), (vec![("role", before)], before));
    assert!(reload(Ok(())).unwrap().is_empty());
    assert_eq!(told(), [("role", before), ("part", before)]);
    assert!(hops.generation() > before);
}
