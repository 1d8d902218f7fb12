//! The nodes in a graph, between two ports: what waits in them, and for whom. The router around them is made of what they need of one.

use crate::packets::*;
use std::sync::{Arc, Mutex};
use tidemill_burst::{Burst, DropReason, Memory, Packet, Pool};
use tidemill_graph::*;
use tidemill_ip::{Adjacency, Interface, Interfaces, NextHops};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::nat::{Host, NatControl, NatSection, splice};
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_wire::{EtherType, MacAddr};

const LAN: u16 = 0;
const WAN: u16 = 1;
const AHEAD: usize = 14;

type Sent = Arc<Mutex<Vec<Vec<u8>>>>;

/// Gives these IP packets, a few at a time, a millisecond apart; keeps what is sent.
struct Script {
    name: &'static str,
    packets: Vec<Vec<u8>>,
    counters: PortCounters,
    sent: Sent,
}

impl Port for Script {
    fn name(&self) -> &str {
        self.name
    }
    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        for _ in 0..4 {
            let at = self.counters.rx.packets;
            let Some(ip) = self.packets.get(at as usize) else { return Ok(RxStatus::Ended) };
            let frame = [&[0; AHEAD][..], ip].concat();
            let Some(mut packet) = pool.packet(&frame) else { break };
            packet.set_timestamp_ns(1_000_000_000_000 + at * 1_000_000);
            self.counters.rx.count(frame.len());
            burst.push(packet).unwrap();
        }
        Ok(RxStatus::Received)
    }
    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            self.counters.tx.count(packet.len());
            self.sent.lock().unwrap().push(packet.data()[AHEAD..].to_vec());
            pool.free(packet);
        }
        Ok(())
    }
    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// A step of the router that the nodes stand in.
struct Step(fn(&mut Packet) -> u8);

impl Node for Step {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            *verdict = Verdict::Next((self.0)(packet));
        }
    }
}

fn is_inside(packet: &Packet) -> bool {
    packet.data()[AHEAD + 16] == 10
}

/// Sends these from inside and from outside at once; what has left outside and inside, and what was dropped for a reason.
fn run(more: &str, lan: Vec<Vec<u8>>, wan: Vec<Vec<u8>>) -> ([Vec<Vec<u8>>; 2], impl Fn(DropReason) -> u64) {
    let names = ["lan", "wan"];
    let mut list: Vec<Interface> =
        names.iter().zip(0..).map(|(name, n)| Interface::of_port(n, name)).collect();
    list[usize::from(WAN)].mtu = 1400;
    let hops =
        [LAN, WAN].map(|n| Adjacency::forward(n, &list[usize::from(n)], MacAddr([2; 6]), EtherType::IPV4));
    let domain = Domain::new();
    let hops = Publisher::new(&domain, NextHops::new(hops.to_vec()));
    let section: NatSection =
        toml::from_str(&format!("inside = [\"lan\"]\noutside = [\"wan\"]\npool = [\"192.0.2.1\"]\n{more}"))
            .unwrap();
    let control = NatControl::with_secret(&section, &Interfaces::new(list, 2), 1, &domain, 3).unwrap();

    let mut graph = GraphBuilder::new(names);
    graph.node("ip4-input", ["lookup"], |_| {
        Box::new(Step(|packet| {
            packet.l3 = AHEAD as u8;
            0
        }))
    });
    graph.node("icmp4-error", ["lookup"], |_| Box::new(Step(|_| 0)));
    graph.node("ip4-lookup", ["forward"], |_| {
        Box::new(Step(|packet| {
            packet.label = if is_inside(packet) { LAN } else { WAN }.into();
            0
        }))
    });
    graph.node("ip4-forward", ["lan", "wan"], |_| Box::new(Step(|packet| u8::from(!is_inside(packet)))));
    graph.input("lan", "ip4-input").input("wan", "ip4-input").edge("ip4-input", "lookup", "ip4-lookup");
    graph.edge("ip4-lookup", "forward", "ip4-forward");
    graph.edge("ip4-forward", "lan", "port:lan").edge("ip4-forward", "wan", "port:wan");
    let (view4, view6) = (hops.view(), hops.view());
    splice(
        &mut graph,
        &control,
        Host { hops4: Box::new(move |_| view4.clone()), hops6: Box::new(move |_| view6.clone()) },
    );
    let sent: [Sent; 2] = [Sent::default(), Sent::default()];
    let ports = names.iter().zip([lan, wan]).zip(&sent).map(|((name, packets), sent)| {
        let counters = PortCounters::default();
        let script: Box<dyn Port> = Box::new(Script { name, packets, counters, sent: sent.clone() });
        vec![script]
    });
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 4096,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |data| format!("{} bytes", data.len()),
    };
    let memory = Memory::new(4096, 2048).unwrap();
    let engine = Engine::new(graph.build().unwrap(), 1, ports.collect(), &memory, &domain, options);
    let outcome = engine.unwrap().run(|_| ());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!((outcome.snapshot.pool.unnamed, outcome.snapshot.pool.free), (0, 4096));
    let [to_lan, to_wan] = sent.map(|sent| std::mem::take(&mut *sent.lock().unwrap()));
    ([to_wan, to_lan], move |reason| ledger.dropped_for(reason))
}

/// Those of one datagram.
fn of_ident(packets: &[Vec<u8>], ident: u16) -> Vec<Vec<u8>> {
    packets.iter().filter(|ip| ip[4..6] == ident.to_be_bytes() && ip[6..8] != [0, 0]).cloned().collect()
}

#[test]
fn rfc4787_req14_reversed_fragments_pass_in_a_flood_of_lone_ones() {
    let (inside, remote, pool) =
        (end(u32::inside(1), 4000), end(u32::remote(1), 53), end(u32::pool(1), 4000));
    let whole = udp(inside, remote, b"whole");
    let datagram = |from, to, ident| {
        let mut pieces = fragments::<u32, 1, 2, 4>(&udp(from, to, &[ident as u8; 1000]), 200, ident);
        pieces.reverse();
        pieces
    };
    // From inside: ordinary packets, then datagrams that come the wrong way round.
    let mut lan = vec![whole; 3000];
    for ident in 1..=9 {
        lan.splice(2000 + 100 * usize::from(ident).., datagram(inside, remote, ident));
        lan.resize(3000, udp(inside, remote, b"whole"));
    }
    // From outside: one host's lone fragments, all of one datagram and each of its own; between them answers the wrong way round.
    let noise = udp(end(u32::remote(2), 1), end(u32::pool(1), 2), &[0; 4008]);
    let lone = fragments::<u32, 1, 2, 4>(&noise, 8, 7);
    let mut wan: Vec<Vec<u8>> = lone[1..400].to_vec();
    for n in 0..3000_u16 {
        let mut one = fragments::<u32, 1, 2, 4>(&noise, 8, 100 + n).swap_remove(1 + usize::from(n % 300));
        // Also from many addresses, every third.
        if n % 3 == 0 {
            one[12..16].copy_from_slice(&u32::remote((n % 200) as u8 + 20).to_be_bytes());
            one[10..12].fill(0);
            let check = tidemill_wire::checksum::checksum(&one[..20]);
            one[10..12].copy_from_slice(&check.to_be_bytes());
        }
        wan.push(one);
    }
    for ident in 1..=9 {
        let at = 1000 + 200 * usize::from(ident);
        for (n, piece) in datagram(remote, pool, 20_000 + ident).into_iter().enumerate() {
            wan.insert(at + 4 * n, piece);
        }
    }
    let ([to_wan, to_lan], dropped) = run("", lan, wan);
    for ident in 1..=9 {
        let pieces = of_ident(&to_wan, ident);
        assert_eq!(pieces.len(), 6, "datagram {ident} from inside");
        assert_eq!(ends::<u32, 1, 2, 4>(&joined::<u32, 1, 2, 4>(&pieces)), (pool, remote));
        let pieces = of_ident(&to_lan, 20_000 + ident);
        assert_eq!(pieces.len(), 6, "answer {ident}");
        assert_eq!(ends::<u32, 1, 2, 4>(&joined::<u32, 1, 2, 4>(&pieces)), (remote, inside));
    }
    assert_eq!(dropped(DropReason::NatFragmentRefused), 0, "nobody is refused for others were there first");
    assert!(dropped(DropReason::NatFragmentTimeout) > 3000);
}

#[test]
fn rfc4787_req13_what_will_not_go_on_stays_as_its_sender_knows_it() {
    let (inside, remote) = (end(u32::inside(1), 4000), end(u32::remote(1), 53));
    let changed = |change: fn(&mut [u8])| {
        let mut packet = udp(inside, remote, &[1; 1372 + 8]);
        change(&mut packet);
        packet[10..12].fill(0);
        let check = tidemill_wire::checksum::checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        packet
    };
    // Longer than the link is wide: with DF it will not go on, without it it will, in fragments; nor will what is at its last hop.
    let lan = vec![changed(|ip| ip[6] = 0x40), changed(|_| ()), changed(|ip| ip[8] = 1)];
    let ([to_wan, _], _) = run("", lan.clone(), Vec::new());
    assert_eq!((to_wan.len(), to_wan.contains(&lan[0]), to_wan.contains(&lan[2])), (3, true, true));
    let others = to_wan.iter().filter(|ip| **ip != lan[0] && **ip != lan[2]);
    let from: Vec<u32> = others.map(|ip| ends::<u32, 1, 2, 4>(ip).0.address).collect();
    assert_eq!(from, [u32::pool(1)]);
}

#[test]
fn without_room_early_fragments_are_refused_and_no_others() {
    let (inside, remote) = (end(u32::inside(1), 4000), end(u32::remote(1), 53));
    let pieces = fragments::<u32, 1, 2, 4>(&udp(inside, remote, &[7; 1000]), 400, 9);
    // So far apart that they do not come in one burst.
    let between = vec![udp(inside, remote, b"whole"); 600];
    let lan = [&pieces[1..2], &between, &pieces[..1], &pieces[2..]].concat();
    let ([to_wan, _], dropped) = run("fragments = 0\n", lan, Vec::new());
    assert_eq!((of_ident(&to_wan, 9).len(), dropped(DropReason::NatFragmentRefused)), (2, 1));
}

#[test]
fn a_datagram_from_outside_with_the_pools_source_does_not_come_in() {
    let (alice, server, public) =
        (end(u32::inside(1), 4000), end(u32::inside(9), 53), end(u32::pool(1), 5353));
    let fixed = "[[static]]\nprotocol = \"udp\"\nexternal = \"192.0.2.1:5353\"\ninternal = \"10.0.0.9:53\"\n";
    // The server says something to its own mapping, and so does Alice: that comes in.
    let lan = vec![udp(server, public, b"me"), udp(alice, public, b"hello")];
    let wan = vec![udp(public, public, b"round"), udp(end(u32::remote(1), 7), public, b"question")];
    let ([_, to_lan], dropped) = run(fixed, lan, wan);
    assert_eq!(dropped(DropReason::MartianSource), 1);
    let mut from: Vec<u32> = to_lan
        .iter()
        .map(|ip| {
            let (from, to) = ends::<u32, 1, 2, 4>(ip);
            assert_eq!(to, server);
            from.address
        })
        .collect();
    from.sort_unstable();
    assert_eq!(from, [u32::pool(1), u32::pool(1), u32::remote(1)]);
}
