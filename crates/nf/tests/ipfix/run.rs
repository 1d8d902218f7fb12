//! A run over a graph, to a real socket: what the collector gets and what was left out is what came in.

use crate::collector::{Collector, OCTETS, PACKETS};
use crate::meter::frame;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::net::UdpSocket;
use std::time::Duration;
use tidemill_burst::{Memory, Packet};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::ipfix::{Counter, IpfixControl, IpfixSection, splice};
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort};

struct End;

impl Node for End {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], verdicts: &mut [Verdict]) {
        verdicts.fill(Verdict::Consume);
    }
}

/// Runs these frames, each with its time, over so many workers.
fn run(queues: Vec<Vec<(u64, Vec<u8>)>>, flows: usize) -> (Collector, IpfixControl) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let section = IpfixSection { collector: address, flows, ..IpfixSection::default() };
    let workers = queues.len();
    let mut control = IpfixControl::new(&section, workers, true).unwrap();
    let mut graph = GraphBuilder::new(["lan"]);
    graph.node("end", [] as [&str; 0], |_| Box::new(End)).input("lan", "end");
    splice(&mut graph, &control);
    let port = |queue: Vec<(u64, Vec<u8>)>| {
        let bursts = queue.into_iter().map(|(ms, bytes)| vec![Frame::at(ms * 1_000_000, bytes)]);
        Box::new(MemoryPort::new("lan", bursts)) as Box<dyn Port>
    };
    let queues = vec![queues.into_iter().map(port).collect()];
    let (domain, memory) = (Domain::new(), Memory::new(2048 * workers, 2048).unwrap());
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 2048,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let engine = Engine::new(graph.build().unwrap(), workers, queues, &memory, &domain, options).unwrap();
    let mut last_ms = 0;
    let mut collector = Collector::default();
    let mut buffer = vec![0; 65_536];
    // What has come is taken at once: a socket has room for so many only.
    socket.set_nonblocking(true).unwrap();
    let outcome = engine.run(|now_ns| {
        last_ms = now_ns / 1_000_000;
        control.poll(last_ms);
        while let Ok(count) = socket.recv(&mut buffer) {
            collector.take(&buffer[..count]);
        }
    });
    socket.set_nonblocking(false).unwrap();
    assert!(outcome.errors.is_empty() && outcome.snapshot.ledger().balances());
    control.end(last_ms);
    while collector.messages < control.counters().get(Counter::Messages) as usize {
        let count = socket.recv(&mut buffer).unwrap();
        collector.take(&buffer[..count]);
    }
    (collector, control)
}

#[test]
fn what_is_told_is_what_came() {
    let mut random = StdRng::seed_from_u64(4);
    for (workers, flows) in [(1, 4000), (2, 4000), (1, 62)] {
        let (mut bytes, mut queues) = (0, vec![Vec::new(); workers]);
        // So few that all messages of the end have room in a socket.
        for n in 0..700_u64 {
            let (frame, _, length) = frame(&mut random, 6);
            bytes += length;
            queues[n as usize % workers].push((1_000_000 + n * 90, frame));
        }
        queues[0].push((1_100_000, vec![0; 60]));
        let (collector, control) = run(queues, flows);
        let counters = control.counters();
        let get = |counter| counters.get(counter);
        assert_eq!((get(Counter::Packets), get(Counter::NotIp), get(Counter::Malformed)), (701, 1, 0));
        assert_eq!(collector.sum(PACKETS) + get(Counter::FlowsFull), 700);
        assert_eq!(collector.sum(OCTETS) + get(Counter::FlowsFullBytes), bytes);
        assert_eq!(get(Counter::FlowsFull) > 0, flows == 62);
        assert_eq!(
            (get(Counter::RecordPackets), get(Counter::Records)),
            (collector.sum(PACKETS), collector.flows.len() as u64)
        );
        // Every minute templates come again.
        assert_eq!(
            (collector.told, get(Counter::Flows), get(Counter::Unsent)),
            (2, 0, 0),
            "{workers} workers"
        );
    }
}
