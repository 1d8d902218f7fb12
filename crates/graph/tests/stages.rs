//! Workers in a row do what one worker does, lose nothing, and end in good order.

#![allow(clippy::unwrap_used)] // a test may

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::*;
use tidemill_burst::{DropReason, Memory, Packet, Pool};
use tidemill_graph::trace::TraceRequest;
use tidemill_graph::*;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Port;

/// A number from numbers; the same every time.
fn mix(seed: u64, n: u64) -> u64 {
    let mut x =
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n.wrapping_add(1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 29
}

/// By the packet's number: drops, consumes, keeps until the next tick, copies, or sends on to one of three outputs.
struct Dice {
    salt: u64,
    /// One node keeps packets, so that none is kept when the last tick is over.
    keeps: bool,
    kept: Vec<Packet>,
}

impl Node for Dice {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            let dice = mix(self.salt, number(packet));
            *verdict = match dice % 32 {
                0 => Verdict::Drop(DropReason::NoRoute),
                1 => Verdict::Consume,
                2 if self.keeps => Verdict::Keep,
                3 => {
                    let copy = packet.duplicate(cx.pool).unwrap();
                    cx.emit(((dice >> 8) % 3) as u8, copy);
                    Verdict::Next(0)
                }
                _ => Verdict::Next(((dice >> 8) % 3) as u8),
            };
        }
    }
    fn keep(&mut self, _: &mut Context<'_>, packet: Packet) {
        self.kept.push(packet);
    }
    fn tick(&mut self, cx: &mut Context<'_>) {
        self.kept.drain(..).for_each(|packet| cx.release((mix(9, number(&packet)) % 3) as u8, packet));
    }
    fn surrender(&mut self, pool: &mut Pool) {
        self.kept.drain(..).for_each(|packet| pool.free(packet));
    }
}

const NODES: u64 = 6;

/// Six nodes, whose outputs lead to later ones or out.
fn dice_graph(seed: u64) -> Graph {
    let mut g = GraphBuilder::new(["a", "b"]);
    for n in 0..NODES {
        let salt = mix(seed, n);
        g.node(&format!("n{n}"), ["x", "y", "z"], move |_| {
            Box::new(Dice { salt, keeps: n == 2, kept: Vec::with_capacity(4096) })
        });
    }
    g.input("a", "n0");
    for n in 0..NODES {
        for (o, output) in ["x", "y", "z"].into_iter().enumerate() {
            // The first output leads to the next node, so that all can be reached.
            let to = n + 1 + if o == 0 { 0 } else { mix(seed, 100 * n + o as u64) % (NODES - n) };
            let to = if to >= NODES { "port:b".to_owned() } else { format!("n{to}") };
            g.edge(&format!("n{n}"), output, &to);
        }
    }
    g.build().unwrap()
}

/// Ports `a` and `b` with a queue for each chain, and what each queue of `b` has sent.
fn ports(chains: usize, total: u64) -> (Vec<Vec<Box<dyn Port>>>, Vec<Sent>) {
    let a = (0..chains).map(|_| script("a", total).0).collect();
    let (b, sent) = (0..chains).map(|_| script("b", 0)).unzip();
    (vec![a, b], sent)
}

fn placement(chains: usize, stages: &[&[&str]], ring: usize, memory: &Arc<Memory>) -> Placement {
    let stages: Vec<Vec<String>> =
        stages.iter().map(|nodes| nodes.iter().map(|node| (*node).to_owned()).collect()).collect();
    let workers = chains * (stages.len() + 1);
    Placement { stages, ring, ..Placement::simple(workers, memory) }
}

const FRAMES: usize = 8192;

#[test]
fn a_pipeline_does_what_one_worker_does() {
    for seed in 0..12 {
        let cuts: [&[&[&str]]; 4] =
            [&[], &[&["n3"]], &[&["n1", "n2"], &["n4"]], &[&["n2"], &["n1", "n5"], &["n4"]]];
        let mut want: Option<(Ledger, Vec<u64>)> = None;
        for (chains, stages) in
            [(1, cuts[0]), (1, cuts[1 + seed as usize % 3]), (2, cuts[1 + seed as usize % 2])]
        {
            let ring = [1, 7, 64, 300][mix(seed, 7) as usize % 4];
            let workers = chains * (stages.len() + 1);
            let memory = Memory::new(FRAMES * workers, 2048).unwrap();
            let (queues, sent) = ports(chains, 4000);
            let engine = Engine::placed(
                dice_graph(seed),
                queues,
                placement(chains, stages, ring, &memory),
                &Domain::new(),
                options(FRAMES, vec![]),
            );
            let outcome = engine.unwrap().run(|_| ());
            let (snapshot, mut ledger) = (&outcome.snapshot, outcome.snapshot.ledger());
            let place = format!("seed {seed}, {chains} chains, {stages:?}, ring {ring}: {ledger:?}");
            assert!(ledger.balances() && outcome.errors.is_empty(), "{place}");
            assert_eq!((snapshot.pool.free, snapshot.pool.unnamed), (FRAMES * workers, 0), "{place}");
            assert_eq!(snapshot.passed, snapshot.taken, "{place}");
            assert!(stages.is_empty() || snapshot.passed > 500, "{place}");
            (ledger.seconds, ledger.mpps) = (0.0, 0.0);
            for sent in sent {
                let mut sent = sent.lock().unwrap().clone();
                sent.sort_unstable();
                match &want {
                    None => want = Some((ledger.clone(), sent)),
                    Some((_, one)) => assert_eq!(sent, *one, "{place}"),
                }
            }
            let (one, _) = want.as_ref().unwrap();
            assert_eq!(
                (ledger.received, ledger.out),
                (one.received * chains as u64, one.out * chains as u64)
            );
            assert_eq!(
                (ledger.made, ledger.consumed),
                (one.made * chains as u64, one.consumed * chains as u64)
            );
            let drops = ledger.dropped_for(DropReason::NoRoute);
            assert_eq!((ledger.held, drops), (0, ledger.dropped_total()), "no other reason: {place}");
            assert_eq!(drops, one.dropped_for(DropReason::NoRoute) * chains as u64, "{place}");
        }
    }
}

/// Sends everything on.
struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

/// `first` and `second` in a row, from `a` to `b`.
fn row(second: impl Fn(usize) -> Box<dyn Node> + Send + Sync + 'static) -> Graph {
    let mut g = GraphBuilder::new(["a", "b"]);
    g.node("first", ["on"], |_| Box::new(Pass)).node("second", ["on"], second);
    g.input("a", "first").edge("first", "on", "second").edge("second", "on", "port:b");
    g.build().unwrap()
}

#[test]
fn packets_stay_in_order_through_any_ring() {
    for ring in [1, 2, 255, 256, 257, 4096] {
        let memory = Memory::new(2 * 2048, 2048).unwrap();
        let (queues, sent) = ports(1, 10_000);
        let stages: &[&[&str]] = &[&["second"]];
        let engine = Engine::placed(
            row(|_| Box::new(Pass)),
            queues,
            placement(1, stages, ring, &memory),
            &Domain::new(),
            options(2048, vec![]),
        );
        let outcome = engine.unwrap().run(|_| ());
        assert_eq!(outcome.snapshot.ledger().out, 10_000, "ring {ring}: it holds back, and drops nothing");
        assert_eq!(*sent[0].lock().unwrap(), (0..10_000).collect::<Vec<_>>(), "ring {ring}");
    }
}

#[test]
fn what_a_full_ring_cannot_take_has_a_name() {
    let memory = Memory::new(2 * 16384, 2048).unwrap();
    let (queues, _) = ports(1, 600);
    let mut g = GraphBuilder::new(["a", "b"]);
    g.node("multiply", ["on"], |_| Box::new(Multiply(14))).node("second", ["on"], |_| Box::new(Pass));
    g.input("a", "multiply").edge("multiply", "on", "second").edge("second", "on", "port:b");
    let engine = Engine::placed(
        g.build().unwrap(),
        queues,
        // Nothing passes but one packet at a time, while 256 become 3840.
        placement(1, &[&["second"]], 1, &memory),
        &Domain::new(),
        options(16384, vec![]),
    );
    let outcome = engine.unwrap().run(|_| ());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!((ledger.made, ledger.held), (600 * 14, 0));
    assert_eq!(ledger.out + ledger.dropped_for(DropReason::StageFull), 600 * 15, "{ledger:?}");
    assert_eq!((outcome.snapshot.pool.unnamed, outcome.snapshot.pool.free), (0, 2 * 16384));
}

#[test]
fn the_books_balance_at_every_moment_and_after_a_stop_at_any() {
    for round in 0..20 {
        let (chains, stages): (usize, &[&[&str]]) =
            if round % 2 == 0 { (1, &[&["n1"], &["n3"]]) } else { (2, &[&["n2"]]) };
        let workers = chains * (stages.len() + 1);
        let memory = Memory::new(FRAMES * workers, 2048).unwrap();
        let (queues, _) = ports(chains, u64::MAX);
        let mut options = options(FRAMES, vec![]);
        options.clock = Clock::wall();
        let engine = Engine::placed(
            dice_graph(round),
            queues,
            placement(chains, stages, 50, &memory),
            &Domain::new(),
            options,
        )
        .unwrap();
        let handle = engine.handle();
        let outcome = std::thread::scope(|scope| {
            let run = scope.spawn(|| engine.run(|_| ()));
            for _ in 0..round {
                std::thread::sleep(Duration::from_millis(1));
                let ledger = handle.snapshot().ledger();
                assert!(ledger.balances(), "{ledger:?}");
                for worker in handle.per_worker() {
                    assert!(worker.ledger().balances(), "{worker:?}");
                }
            }
            handle.stop();
            run.join().unwrap()
        });
        let (snapshot, ledger) = (&outcome.snapshot, outcome.snapshot.ledger());
        assert!(ledger.balances(), "{ledger:?}");
        assert_eq!((snapshot.passed, snapshot.ended), (snapshot.taken, workers));
        assert_eq!((snapshot.pool.free, snapshot.pool.unnamed), (FRAMES * workers, 0), "{ledger:?}");
    }
}

/// Panics at a packet.
struct Mine(u64);

impl Node for Mine {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        assert!(burst.iter().all(|packet| number(packet) != self.0), "a mine");
    }
}

#[test]
fn a_panic_of_one_worker_ends_all() {
    for (stages, total) in
        [(&[&["second"][..]][..], u64::MAX), (&[&["second"]], 700), (&[&["first"], &["second"]], u64::MAX)]
    {
        let memory = Memory::new(3 * 2048, 2048).unwrap();
        let (queues, _) = ports(1, total);
        let engine = Engine::placed(
            row(|_| Box::new(Mine(600))),
            queues,
            placement(1, stages, 16, &memory),
            &Domain::new(),
            options(2048, vec![]),
        )
        .unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| engine.run(|_| ()))).err().expect("it is passed on");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"a mine"));
    }
}

#[test]
fn a_trace_follows_its_packet_to_the_next_worker() {
    let memory = Memory::new(2 * 2048, 2048).unwrap();
    let (queues, _) = ports(1, 1000);
    let trace = TraceRequest { at: "first".into(), packets: 2 };
    let engine = Engine::placed(
        row(|_| Box::new(Pass)),
        queues,
        placement(1, &[&["second"]], 64, &memory),
        &Domain::new(),
        options(2048, vec![trace]),
    );
    let outcome = engine.unwrap().run(|_| ());
    let path = |id| -> Vec<(usize, String, String)> {
        let mut path: Vec<_> = outcome.traces.iter().filter(|entry| entry.id == id).cloned().collect();
        path.sort_by_key(|entry| entry.worker);
        path.into_iter().map(|entry| (entry.worker, entry.at, entry.verdict)).collect()
    };
    let step = |worker, at: &str, verdict: &str| (worker, at.to_owned(), verdict.to_owned());
    let ids: std::collections::BTreeSet<_> = outcome.traces.iter().map(|entry| entry.id).collect();
    assert_eq!(ids.len(), 2, "{:?}", outcome.traces);
    for id in ids {
        assert_eq!(
            path(id),
            [step(0, "first", "next on"), step(1, "second", "next on"), step(1, "port:b", "sent")]
        );
    }
}

#[test]
fn a_node_is_at_the_stages_where_packets_reach_it() {
    let graph = row(|_| Box::new(Pass));
    let at = |stages: &[&str], node: &str| {
        let stages: Vec<Vec<String>> = stages.iter().map(|node| vec![(*node).to_owned()]).collect();
        stages_of(&graph, &stages, node)
    };
    assert_eq!(at(&[], "second").unwrap(), [true]);
    assert_eq!(at(&["second"], "first").unwrap(), [true, false]);
    assert_eq!(at(&["second"], "second").unwrap(), [false, true]);
    assert_eq!(at(&["first"], "second").unwrap(), [false, true]);
    assert_eq!(at(&["first", "second"], "second").unwrap(), [false, false, true]);
    assert_eq!(at(&["first"], "third").unwrap(), [false, false]);
    assert!(at(&["third"], "first").is_err());
}

#[test]
fn stages_that_make_no_sense_are_refused() {
    let refused = |stages: &[&[&str]], workers: usize| {
        let memory = Memory::new(64, 2048).unwrap();
        let placement =
            Placement { memory: vec![memory.clone(); workers], ..placement(1, stages, 8, &memory) };
        let (queues, _) = ports(1, 1);
        Engine::placed(row(|_| Box::new(Pass)), queues, placement, &Domain::new(), options(8, vec![]))
            .err()
            .unwrap()
            .to_string()
    };
    assert_eq!(refused(&[&["second"]], 3), "3 workers for 2 stages: give a multiple of 2");
    assert_eq!(refused(&[&["secnd"]], 2), "stages: there is no node \"secnd\"; there are first, second");
    assert_eq!(refused(&[&[]], 2), "stages: one has no node: name those at which it begins");
    assert_eq!(
        refused(&[&["first"], &["first"]], 3),
        "stages: a node is named twice: only one can begin there"
    );
}

/// Writes down which CPUs the kernel lets its thread use.
struct Witness(Arc<Mutex<String>>);

/// As the kernel lists them, for the calling thread: `0-1,3`.
fn cpus_allowed() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap().trim().to_owned()
}

impl Node for Witness {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {
        *self.0.lock().unwrap() = cpus_allowed();
    }
}

#[test]
fn a_worker_is_on_its_cpu_or_says_that_it_is_not_and_works() {
    let (all, ours) = (cpus_allowed(), *allowed_cpus().last().unwrap());
    // One that the system has a name for and no machine has, and one beyond all names.
    for (cpu, is_bound) in [(ours, true), (1023, false), (1 << 20, false)] {
        let memory = Memory::new(FRAMES, 2048).unwrap();
        let ((a, _), (b, _)) = (script("a", 700), script("b", 0));
        let placement = Placement { cpus: vec![cpu], ..Placement::simple(1, &memory) };
        let seen = Arc::new(Mutex::new(String::new()));
        let witness = Arc::clone(&seen);
        let mut graph = GraphBuilder::new(["a", "b"]);
        graph.node("witness", ["on"], move |_| Box::new(Witness(Arc::clone(&witness))));
        graph.input("a", "witness").edge("witness", "on", "port:b");
        let (graph, domain, options) = (graph.build().unwrap(), Domain::new(), options(FRAMES, vec![]));
        let engine = Engine::placed(graph, vec![vec![a], vec![b]], placement, &domain, options).unwrap();
        let handle = engine.handle();
        assert!(handle.unbound(0).is_none(), "it has not begun");
        let ledger = engine.run(|_| ()).snapshot.ledger();
        assert!(ledger.balances() && ledger.received == 700, "{ledger:?}");
        assert_eq!(*seen.lock().unwrap(), if is_bound { cpu.to_string() } else { all.clone() });
        let said = format!("worker 0 is not bound to CPU {cpu}: Invalid argument (os error 22)");
        let unbound = handle.unbound(0).map(|unbound| unbound.to_string());
        assert_eq!(unbound, (!is_bound).then_some(said));
        assert_eq!(handle.seats()[0].cpu, Some(cpu));
        assert!(handle.unbound(1).is_none(), "there is no such worker");
    }
}
