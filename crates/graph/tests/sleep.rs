//! Workers that sleep are woken by whatever has something for them. Their naps are too long to wait for in these tests.

#![allow(clippy::unwrap_used)] // a test may

mod support;

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::*;
use tidemill_burst::{Burst, Memory, Packet, Pool};
use tidemill_graph::*;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus, Spreading, Wake, spread};

/// A device with a descriptor: every byte of a pipe is a packet of the flow that it names.
struct Device {
    wire: PipeReader,
    counters: PortCounters,
    sent: Sent,
    /// Does not say that it has a descriptor.
    mute: bool,
}

fn device(mute: bool) -> (PipeWriter, Sent, Box<dyn Port>) {
    let (wire, writer) = std::io::pipe().unwrap();
    let sent = Sent::default();
    let port = Device { wire, counters: PortCounters::default(), sent: sent.clone(), mute };
    (writer, sent, Box::new(port))
}

fn frame(flow: u8) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, flow, 10, 9, 9, 9]);
    frame.extend([4, flow, 0, 53, 0, 12, 0, 0, 0, 0, 0, flow]);
    frame
}

impl Port for Device {
    fn name(&self) -> &str {
        "device"
    }
    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut polled = [PollFd::new(&self.wire, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&now)).unwrap() == 0 {
            return Ok(RxStatus::Idle { next_due_ns: None });
        }
        let mut flow = [0];
        if self.wire.read(&mut flow).unwrap() == 0 {
            return Ok(RxStatus::Ended);
        }
        let packet: Packet = pool.packet(&frame(flow[0])).unwrap();
        self.counters.rx.count(packet.len());
        burst.push(packet).unwrap();
        Ok(RxStatus::Received)
    }
    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            self.counters.tx.count(packet.len());
            self.sent.lock().unwrap().push(packet.data()[45].into());
            pool.free(packet);
        }
        Ok(())
    }
    fn counters(&self) -> PortCounters {
        self.counters
    }
    fn wake(&mut self, _: &Waker) -> Wake<'_> {
        if self.mute { Wake::Poll } else { Wake::Readable(self.wire.as_fd()) }
    }
}

/// Sleeps at once; sleeps are endless for a test, and so are naps unless given.
fn idle(nap: Duration) -> Idle {
    Idle { poll: Some(Duration::ZERO), nap, sleep: Duration::from_secs(3600) }
}

const LONG: Duration = Duration::from_secs(3600);

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(120), "nobody woke the worker: {what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Runs an engine while `outside` works, then ends it by `stop`.
fn run(
    graph: Graph,
    ports: Vec<Vec<Box<dyn Port>>>,
    placement: Placement,
    outside: impl FnOnce(&Handle),
) -> Outcome {
    let mut options = options(256, vec![]);
    options.clock = Clock::wall();
    let engine = Engine::placed(graph, ports, placement, &Domain::new(), options).unwrap();
    let handle = engine.handle();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| engine.run(|_| ()));
        outside(&handle);
        // So that they sleep when they are told.
        std::thread::sleep(Duration::from_millis(5));
        handle.stop();
        run.join().unwrap()
    })
}

fn echo() -> Graph {
    let mut g = GraphBuilder::new(["a"]);
    g.node("pass", ["back"], |_| Box::new(Multiply(0)));
    g.input("a", "pass").edge("pass", "back", "port:a");
    g.build().unwrap()
}

#[test]
fn a_descriptor_wakes_its_worker() {
    let memory = Memory::new(256, 2048).unwrap();
    let (mut wire, sent, port) = device(false);
    let placement = Placement { idle: idle(LONG), ..Placement::simple(1, &memory) };
    let outcome = run(echo(), vec![vec![port]], placement, |_| {
        for n in 0..50 {
            wire.write_all(&[n]).unwrap();
            until("a packet", || sent.lock().unwrap().len() == usize::from(n) + 1);
            if n % 10 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
    assert!(outcome.snapshot.ledger().balances());
    assert!(outcome.snapshot.slept_ns > 0);
}

#[test]
fn a_port_without_one_is_looked_at_now_and_then() {
    let memory = Memory::new(256, 2048).unwrap();
    let (mut wire, sent, port) = device(true);
    let placement = Placement { idle: idle(Duration::from_millis(1)), ..Placement::simple(1, &memory) };
    let outcome = run(echo(), vec![vec![port]], placement, |handle| {
        until("a nap", || handle.snapshot().slept_ns > 0);
        wire.write_all(&[7]).unwrap();
        until("a packet", || *sent.lock().unwrap() == [7]);
    });
    assert!(outcome.snapshot.slept_ns > 0);
}

#[test]
fn workers_of_a_spread_device_wake_each_other() {
    let memory = Memory::new(512, 2048).unwrap();
    let (mut wire, sent, port) = device(false);
    let placement = Placement { idle: idle(LONG), ..Placement::simple(2, &memory) };
    let queues = spread(port, 2, Spreading { patience: Duration::from_millis(1), ..Spreading::default() });
    let outcome = run(echo(), vec![queues], placement, |handle| {
        for n in 0..40 {
            wire.write_all(&[n]).unwrap();
            // There by one worker's ring, back by the other's.
            until("a packet", || sent.lock().unwrap().len() == usize::from(n) + 1);
        }
        until("counters", || handle.per_worker().iter().all(|worker| worker.ports[0].rx.packets > 5));
    });
    let mut sent = sent.lock().unwrap().clone();
    sent.sort_unstable();
    assert_eq!(sent, (0..40).collect::<Vec<_>>());
    assert!(outcome.snapshot.ledger().balances());
}

#[test]
fn workers_of_a_chain_wake_each_other() {
    let memory = Memory::new(3 * 256, 2048).unwrap();
    let (mut wire, sent, port) = device(false);
    let mut g = GraphBuilder::new(["a"]);
    g.node("one", ["on"], |_| Box::new(Multiply(0))).node("two", ["on"], |_| Box::new(Multiply(0)));
    g.input("a", "one").edge("one", "on", "two").edge("two", "on", "port:a");
    let stages = vec![vec!["one".to_owned()], vec!["two".to_owned()]];
    let placement = Placement { stages, idle: idle(LONG), ..Placement::simple(3, &memory) };
    let outcome = run(g.build().unwrap(), vec![vec![port]], placement, |_| {
        for n in 0..40 {
            wire.write_all(&[n]).unwrap();
            until("a packet", || sent.lock().unwrap().len() == usize::from(n) + 1);
        }
    });
    assert_eq!(*sent.lock().unwrap(), (0..40).collect::<Vec<_>>());
    assert_eq!((outcome.snapshot.passed, outcome.snapshot.taken), (40 * 3, 40 * 3));
}

/// Emits a packet for each that waits outside, like notices of the control side.
struct Notices {
    waiting: Arc<std::sync::atomic::AtomicU64>,
    waker: Arc<std::sync::OnceLock<Waker>>,
}

impl Node for Notices {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
    fn tick(&mut self, cx: &mut Context<'_>) {
        let waiting = self.waiting.swap(0, std::sync::atomic::Ordering::AcqRel);
        for n in 0..waiting {
            let packet = cx.pool.packet(&frame(n as u8)).unwrap();
            cx.emit(0, packet);
        }
    }
    fn wake_with(&mut self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }
}

#[test]
fn nodes_and_the_control_side_wake_workers() {
    let memory = Memory::new(256, 2048).unwrap();
    let (_wire, sent, port) = device(false);
    let (waiting, waker) =
        (Arc::new(std::sync::atomic::AtomicU64::new(0)), Arc::new(std::sync::OnceLock::new()));
    let (theirs, whom) = (Arc::clone(&waiting), Arc::clone(&waker));
    let mut g = GraphBuilder::new(["a"]);
    g.node("notices", ["on"], move |_| Box::new(Notices { waiting: theirs.clone(), waker: whom.clone() }));
    g.input("a", "notices").edge("notices", "on", "port:a");
    let placement = Placement { idle: idle(LONG), ..Placement::simple(1, &memory) };
    run(g.build().unwrap(), vec![vec![port]], placement, |handle| {
        for round in 1..=20 {
            waiting.store(1, std::sync::atomic::Ordering::Release);
            waker.get().into_iter().for_each(Waker::wake);
            until("a notice", || sent.lock().unwrap().len() == round);
        }
        let capture = handle.capture("port:a:tx", 8).unwrap();
        // The order is taken up though nothing moves, so the next packet is in it.
        std::thread::sleep(Duration::from_millis(2));
        waiting.store(1, std::sync::atomic::Ordering::Release);
        waker.get().into_iter().for_each(Waker::wake);
        until("a notice", || sent.lock().unwrap().len() == 21);
        drop(capture);
    });
}

/// A device whose worker's idle turns are counted.
struct Watched {
    device: Box<dyn Port>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// Looks in vain since the last packet.
    vain: u64,
    packet: Option<Instant>,
    /// The first sleep after a packet: behind so many looks in vain, and so long after it.
    sleep: Option<(u64, Duration)>,
}

impl Port for Watched {
    fn name(&self) -> &str {
        self.device.name()
    }
    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let status = self.device.rx(now_ns, pool, burst)?;
        let mut seen = self.seen.lock().unwrap();
        if status == RxStatus::Received {
            (seen.vain, seen.packet) = (0, Some(Instant::now()));
        } else {
            seen.vain += 1;
        }
        Ok(status)
    }
    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.device.tx(now_ns, pool, burst)
    }
    fn counters(&self) -> PortCounters {
        self.device.counters()
    }
    fn wake(&mut self, waker: &Waker) -> Wake<'_> {
        let mut seen = self.seen.lock().unwrap();
        if let Some(packet) = seen.packet.take() {
            seen.sleep = Some((seen.vain, packet.elapsed()));
        }
        drop(seen);
        self.device.wake(waker)
    }
}

#[test]
fn a_worker_polls_in_vain_for_as_long_as_it_is_told_to() {
    let some = Duration::from_millis(20);
    for poll in [Some(Duration::ZERO), Some(some), Some(LONG), None] {
        let memory = Memory::new(256, 2048).unwrap();
        let (mut wire, sent, device) = device(false);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let port: Box<dyn Port> = Box::new(Watched { device, seen: Arc::clone(&seen) });
        let idle = Idle { poll, ..idle(LONG) };
        let placement = Placement { idle, ..Placement::simple(1, &memory) };
        let sleeps = poll.is_some_and(|poll| poll <= some);
        let outcome = run(echo(), vec![vec![port]], placement, |_| {
            wire.write_all(&[1]).unwrap();
            until("a packet", || *sent.lock().unwrap() == [1]);
            match sleeps {
                true => until("its sleep", || seen.lock().unwrap().sleep.is_some()),
                false => until("looks in vain", || seen.lock().unwrap().vain > 5000),
            }
        });
        let seen = seen.lock().unwrap();
        assert_eq!((outcome.snapshot.slept_ns > 0, seen.sleep.is_some()), (sleeps, sleeps), "{poll:?}");
        match (poll, seen.sleep) {
            // It says that it will sleep, and looks once more.
            (Some(poll), Some((vain, _))) if poll.is_zero() => assert_eq!(vain, 2),
            // However long it was kept from its work: one look begins the time, one ends it. Its clock may be some thousandths off.
            (Some(poll), Some((vain, after))) => {
                assert!(vain >= 3 && after >= poll * 19 / 20, "{vain} looks, {after:?}");
            }
            _ => {}
        }
    }
}
