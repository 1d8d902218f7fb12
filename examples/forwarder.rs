//! The smallest whole router: a table, a capture in, a capture out. Read this first.
//!
//! `cargo run --release --example forwarder -- TABLE IN.pcap OUT.pcapng`

use std::path::Path;
use std::sync::Arc;
use tidemill_burst::{DropReason, Memory, Packet};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_lookup::publish::View;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::table::{Algorithm, Table};
use tidemill_lpm::{Fib, Label};
use tidemill_port::{Pace, PcapPort, Playback, Port};
use tidemill_wire::{EtherType, Summary, ipv4, vlan};

/// One step of a packet's way: sees a burst, gives every packet a verdict.
struct Route {
    fib: View<Arc<dyn Fib<u32>>>,
    keys: Vec<u32>,
    labels: Vec<Label>,
}

impl Node for Route {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        self.keys.clear();
        for (packet, verdict) in burst.iter_mut().zip(verdicts.iter_mut()) {
            // Outcomes are verdicts, not errors: a packet that is no good IPv4 is dropped under a name.
            let l2 = vlan::L2::parse(packet.data()).ok().filter(|l2| l2.ethertype == EtherType::IPV4);
            let header = l2.and_then(|l2| packet.data_mut().get_mut(l2.l3_offset..));
            let key = match header {
                Some(header) if ipv4::check(header).is_ok() && ipv4::checksum_ok(header) => {
                    match ipv4::ttl(header) {
                        0 | 1 => *verdict = Verdict::Drop(DropReason::TtlExpired),
                        _ => _ = ipv4::decrement_ttl(header),
                    }
                    ipv4::dst_u32(header)
                }
                _ => {
                    *verdict = Verdict::Drop(DropReason::EtherTypeUnknown);
                    0
                }
            };
            self.keys.push(key);
        }
        // One lookup for the whole burst, in whatever table is published now.
        self.labels.resize(self.keys.len(), Label::NONE);
        self.fib.get(cx.reader).lookup_batch(&self.keys, &mut self.labels);
        for ((packet, verdict), label) in burst.iter_mut().zip(verdicts).zip(&self.labels) {
            packet.label = label.0;
            match *label {
                Label::NONE if *verdict == Verdict::Next(0) => *verdict = Verdict::Drop(DropReason::NoRoute),
                Label(next_hop) => packet.data_mut()[2..6].copy_from_slice(&next_hop.to_be_bytes()),
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [table, input, output] = &args[..] else { return Err("usage: forwarder TABLE IN OUT".into()) };

    // The decision: routes become a table, and the table is published to the readers of a domain.
    let domain = Domain::new();
    let routes = tidemill_feed::load(Path::new(table), &Default::default())?;
    let table = Table::new(&domain, routes.v4, &Algorithm::Auto)?;

    // The packet: from one port through the node to another.
    let view = table.view();
    let mut graph = GraphBuilder::new(["in", "out"]);
    graph.node("route", ["out"], move |_worker| {
        Box::new(Route { fib: view.clone(), keys: Vec::with_capacity(256), labels: Vec::with_capacity(256) })
    });
    graph.input("in", "route").edge("route", "out", "port:out");

    let playback = Playback { input: input.into(), repeat: 1, pace: Pace::Flat, limit: None, preload: false };
    let boxed = |queues: Vec<PcapPort>| queues.into_iter().map(|p| Box::new(p) as Box<dyn Port>).collect();
    let ports = vec![
        boxed(PcapPort::open("in", Some(&playback), None, 1)?),
        boxed(PcapPort::open("out", None, Some(Path::new(output)), 1)?),
    ];

    // A worker: one thread with its own packet memory, its own nodes, its own queue of each port.
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 1024,
        pin: true,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |frame| Summary(frame).to_string(),
    };
    let memory = Memory::new(1024, 4096)?;
    let outcome = Engine::new(graph.build()?, 1, ports, &memory, &domain, options)?.run(|_now_ns| ());
    outcome.errors.iter().for_each(|error| eprintln!("{error}"));

    let books = outcome.snapshot.ledger(); // in + made = out + dropped + consumed + held
    println!("in {}, out {}, dropped {:?}", books.received, books.out, books.dropped);
    Ok(())
}
