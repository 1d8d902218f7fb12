//! The nodes in a graph: packets leave as they came, by where their port leads; detection and flow export stand in front of each other.

use crate::frames::*;
use tidemill_burst::{Memory, Packet};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::assets::{AssetsControl, AssetsSection, Counter, Host, splice};
use tidemill_nf::ipfix::{self, IpfixControl, IpfixSection};
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort};

struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

#[test]
fn packets_leave_as_they_came() {
    let (domain, section) =
        (Domain::new(), IpfixSection { collector: "127.0.0.1:9".into(), ..IpfixSection::default() });
    let mut control = AssetsControl::new(&AssetsSection::default(), 1).unwrap();
    let flows = IpfixControl::silent(&section, 1, true).unwrap();
    let mut graph = GraphBuilder::new(["a", "b", "c"]);
    graph.node("left", ["on"], |_| Box::new(Pass)).node("right", ["on"], |_| Box::new(Pass));
    graph.edge("left", "on", "port:b").edge("right", "on", "port:a");
    graph.input("a", "left").input("b", "right").input("c", "left");
    ipfix::splice(&mut graph, &flows);
    splice(&mut graph, &control);
    let graph = graph.build().unwrap();
    assert_eq!(graph.node_names, ["assets", "ipfix", "left", "right"]);

    let frames = |from: u8| -> Vec<Vec<u8>> {
        (0..300_u16)
            .map(|n| {
                let from = (ip(&format!("10.0.{from}.{}", n % 50 + 1)), 1000 + n);
                handshake(from, (ip("192.0.2.1"), 80), n % 2 == 0, 60)
            })
            .collect()
    };
    let (mut queues, mut sent) = (Vec::new(), Vec::new());
    for (from, name) in ["a", "b", "c"].into_iter().enumerate() {
        let bursts = frames(from as u8).into_iter().map(|bytes| vec![Frame::at(1_000_000_000, bytes)]);
        let port = MemoryPort::new(name, bursts);
        sent.push(port.sent());
        queues.push(vec![Box::new(port) as Box<dyn Port>]);
    }
    let memory = Memory::new(4096, 2048).unwrap();
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 4096,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let outcome = Engine::new(graph, 1, queues, &memory, &domain, options).unwrap().run(|_| {
        control.poll(1000);
    });
    control.poll(1000);
    assert!(outcome.errors.is_empty() && outcome.snapshot.ledger().balances());
    assert_eq!(sent[0].frames(), frames(1));
    let mut both = sent[1].frames();
    both.sort();
    let mut expected = [frames(0), frames(2)].concat();
    expected.sort();
    assert_eq!(both, expected);
    let counters = control.counters();
    assert_eq!((counters.get(Counter::Packets), counters.get(Counter::Lost)), (900, 0));
    assert_eq!(counters.get(Counter::Hosts), 150);
    assert_eq!(control.table().get(Host::Ip(ip("10.0.2.1"))).unwrap().services.len(), 6);
}
