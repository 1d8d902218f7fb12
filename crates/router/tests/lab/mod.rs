//! A running router, stopped at every burst boundary: what a test does happens there, and time is what it says.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of this module

use crate::common::{HOST, frame, udp};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_graph::{Clock, Engine, Handle, Limits, Options, Outcome};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_router::show::Wanted;
use tidemill_router::{PortInfo, RouterConfig, RouterControl, Routes, graph};
use tidemill_wire::arp::{self, Operation};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::ndisc::{self, Message, NdOption};
use tidemill_wire::{EtherType, MacAddr, Protocol, Summary, ipv4, ipv6};

#[derive(Clone, Default)]
struct Wire {
    input: Arc<Mutex<VecDeque<Vec<u8>>>>,
    output: Arc<Mutex<Vec<Vec<u8>>>>,
}

struct LabPort {
    name: String,
    wire: Wire,
    counters: PortCounters,
}

impl Port for LabPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let mut input = self.wire.input.lock().unwrap();
        let before = burst.len();
        while burst.room() > 0 {
            let Some(bytes) = input.pop_front() else { break };
            let Some(packet) = pool.packet(&bytes) else {
                input.push_front(bytes);
                break;
            };
            self.counters.rx.count(bytes.len());
            assert!(burst.push(packet).is_ok());
        }
        Ok(if burst.len() > before { RxStatus::Received } else { RxStatus::Idle { next_due_ns: None } })
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let mut output = self.wire.output.lock().unwrap();
        for packet in burst.drain() {
            self.counters.tx.count(packet.len());
            output.push(packet.data().to_vec());
            pool.free(packet);
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

pub const SECOND_NS: u64 = 1_000_000_000;
const FRAMES: usize = 4096;

/// A router on ports `lan`, `wan` and `dmz`, with one worker.
pub struct Lab {
    pub control: RouterControl,
    wires: [Wire; 3],
    clock: Arc<AtomicU64>,
    go: Option<SyncSender<()>>,
    free: Arc<AtomicBool>,
    done: Receiver<()>,
    handle: Handle,
    engine: Option<JoinHandle<Outcome>>,
}

impl Lab {
    pub fn new(config: &str) -> Self {
        Self::with(config, ["lan", "wan", "dmz"].map(PortInfo::new), Routes::default(), Routes::default())
    }

    pub fn with(config: &str, ports: [PortInfo; 3], v4: Routes<u32>, v6: Routes<u128>) -> Self {
        let config: RouterConfig = toml::from_str(config).unwrap();
        let domain = Domain::new();
        let control = RouterControl::new(&config, &ports, v4, v6, &domain).unwrap();
        let wires: [Wire; 3] = Default::default();
        let queues = ports.iter().zip(&wires).map(|(port, wire)| {
            let port =
                LabPort { name: port.name.clone(), wire: wire.clone(), counters: PortCounters::default() };
            vec![Box::new(port) as Box<dyn Port>]
        });
        let clock = Arc::new(AtomicU64::new(100 * SECOND_NS));
        let options = Options {
            clock: Clock::Manual(clock.clone()),
            frames_per_worker: FRAMES,
            pin: false,
            limits: Limits::default(),
            traces: Vec::new(),
            describe: |_| String::new(),
        };
        let memory = Memory::new(FRAMES, 2048).unwrap();
        let built = graph(&control).build().unwrap();
        let engine = Engine::new(built, 1, queues.collect(), &memory, &domain, options).unwrap();
        let handle = engine.handle();
        let free = Arc::new(AtomicBool::new(false));
        let running = free.clone();
        let (go, gone) = sync_channel(0);
        let (ready, done) = sync_channel(1);
        let engine = std::thread::spawn(move || {
            engine.run(move |_| {
                if !running.load(Ordering::Acquire) {
                    let _ = ready.send(());
                    let _ = gone.recv();
                }
            })
        });
        done.recv().unwrap();
        Lab { control, wires, clock, go: Some(go), free, done, handle, engine: Some(engine) }
    }

    pub fn now_ns(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Makes it another time, without anything happening.
    pub fn set_time(&self, now_ns: u64) {
        self.clock.store(now_ns, Ordering::Relaxed);
    }

    /// One turn of the worker.
    pub fn turn(&mut self) {
        self.go.as_ref().unwrap().send(()).unwrap();
        self.done.recv().unwrap();
    }

    /// Lets the worker run while `work` is at it.
    pub fn meanwhile(&mut self, work: impl FnOnce(&mut Self)) {
        self.free.store(true, Ordering::Release);
        self.go.as_ref().unwrap().send(()).unwrap();
        work(self);
        self.free.store(false, Ordering::Release);
        self.done.recv().unwrap();
    }

    /// Frames that have not been received yet.
    pub fn waiting(&self, port: usize) -> usize {
        self.wires[port].input.lock().unwrap().len()
    }

    /// Turns and polls until all is said.
    pub fn settle(&mut self) {
        for _ in 0..8 {
            self.turn();
            self.control.poll(self.now_ns()).unwrap();
            self.control.collect();
        }
    }

    /// Lets time pass, a tenth of a second at a time.
    pub fn wait(&mut self, seconds: f64) {
        for _ in 0..(seconds * 10.0) as u32 {
            self.clock.fetch_add(SECOND_NS / 10, Ordering::Relaxed);
            self.turn();
            self.control.poll(self.now_ns()).unwrap();
        }
        self.settle();
    }

    /// A frame comes in.
    pub fn receive(&mut self, port: usize, frame: Vec<u8>) {
        self.wires[port].input.lock().unwrap().push_back(frame);
    }

    /// A frame comes in, and all that follows from it happens.
    pub fn play(&mut self, port: usize, frame: Vec<u8>) {
        self.receive(port, frame);
        self.settle();
    }

    /// Frames sent since the last call.
    pub fn sent(&mut self, port: usize) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.wires[port].output.lock().unwrap())
    }

    /// The same as one line each.
    pub fn lines(&mut self, port: usize) -> Vec<String> {
        self.sent(port).iter().map(|frame| Summary(frame).to_string()).collect()
    }

    /// Where packets of a VRF to an address go: source of the route, where it leads, state.
    pub fn route(&mut self, vrf: &str, address: &str) -> String {
        let wanted = Wanted::Address(address.parse().unwrap());
        let (list, _) = self.control.routes(Some(vrf), wanted, 0, 9);
        let Some(route) = list.first() else { return "none".into() };
        let hops: Vec<_> = route.hops.iter().map(|hop| format!("{} {}", hop.interface, hop.state)).collect();
        format!("{} {} {}", route.source.name(), route.prefix, hops.join(", "))
    }

    /// Reasons with their counts so far.
    pub fn drops(&mut self) -> String {
        // A worker shows its counters before it sleeps, when it has found nothing for a while.
        (0..80).for_each(|_| self.turn());
        let ledger = self.handle.snapshot().ledger();
        let texts: Vec<_> = ledger.dropped.iter().map(|(reason, n)| format!("{reason}={n}")).collect();
        texts.join(" ")
    }

    /// Ends the run: the books balance, and every frame is home.
    pub fn end(mut self) -> Outcome {
        self.handle.stop();
        self.go = None;
        let outcome = self.engine.take().unwrap().join().unwrap();
        let ledger = outcome.snapshot.ledger();
        assert!(ledger.balances(), "{ledger:?}");
        let pool = outcome.snapshot.pool;
        assert_eq!((pool.free, pool.unnamed), (pool.frames, 0), "frames are home, and none came unnamed");
        outcome
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.handle.stop();
        self.go = None;
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }
}

/// MAC address of some station.
pub fn mac(n: u8) -> MacAddr {
    MacAddr([0x02, 0xbb, 0, 0, 0, n])
}

/// MAC address of our port.
pub fn port_mac(n: u8) -> MacAddr {
    MacAddr([0x02, 0x49, 0, 0, 0, n])
}

/// Puts a VLAN tag into a frame.
pub fn tag(frame: &[u8], id: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &id.to_be_bytes(), &frame[12..]].concat()
}

/// A UDP packet from port to port, of either family, to our port `n`.
pub fn datagram(n: u8, src: &str, dst: &str, ports: (u16, u16)) -> Vec<u8> {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    let (ethertype, mut ip, pseudo) = match (src, dst) {
        (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => {
            let mut header = vec![0; 20];
            ipv4::Repr::new(src, dst, Protocol::UDP, 12).emit(&mut header).unwrap();
            (EtherType::IPV4, header, Pseudo::V4 { src, dst })
        }
        (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => {
            let mut header = vec![0; 40];
            ipv6::Repr::new(src, dst, Protocol::UDP, 12).emit(&mut header).unwrap();
            (EtherType::IPV6, header, Pseudo::V6 { src, dst })
        }
        _ => panic!("two families"),
    };
    let mut payload = udp(pseudo, b"data");
    payload[..4].copy_from_slice(&[ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
    payload[6..8].fill(0);
    let check = pseudo.checksum(Protocol::UDP, &payload);
    payload[6..8].copy_from_slice(&check.to_be_bytes());
    ip.extend_from_slice(&payload);
    frame(port_mac(n), ethertype, &ip)
}

/// `who` says that it has the address: an ARP reply, or an advertisement, to our port `n` with its address `ours`.
pub fn answer(n: u8, who: (MacAddr, &str), ours: &str) -> Vec<u8> {
    match (who.1.parse().unwrap(), ours.parse().unwrap()) {
        (std::net::IpAddr::V4(sender_ip), std::net::IpAddr::V4(target_ip)) => {
            let repr = arp::Repr {
                operation: Operation::Reply,
                sender_mac: who.0,
                sender_ip,
                target_mac: port_mac(n),
                target_ip,
            };
            let mut bytes = vec![0; 28];
            repr.emit(&mut bytes).unwrap();
            frame(port_mac(n), EtherType::ARP, &bytes)
        }
        (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => {
            let mut option = [0; 8];
            NdOption::TargetLinkLayer(who.0).emit(&mut option).unwrap();
            let message =
                Message::NeighborAdvert { target: src, router: false, solicited: true, replace: true };
            let repr = ndisc::Repr { message, options: &option };
            let mut bytes = vec![0; 40 + repr.buffer_len()];
            let mut header = ipv6::Repr::new(src, dst, Protocol::ICMPV6, repr.buffer_len());
            header.hop_limit = 255;
            header.emit(&mut bytes[..40]).unwrap();
            repr.emit(&mut bytes[40..], &Pseudo::V6 { src, dst }).unwrap();
            frame(port_mac(n), EtherType::IPV6, &bytes)
        }
        _ => panic!("two families"),
    }
}

/// A gratuitous ARP request.
pub fn announcement(who: (MacAddr, &str)) -> Vec<u8> {
    let ip = who.1.parse().unwrap();
    let repr = arp::Repr {
        operation: Operation::Request,
        sender_mac: who.0,
        sender_ip: ip,
        target_mac: MacAddr::ZERO,
        target_ip: ip,
    };
    let mut bytes = vec![0; 28];
    repr.emit(&mut bytes).unwrap();
    frame(MacAddr::BROADCAST, EtherType::ARP, &bytes)
}

/// The station behind most packets, on `lan`: fixed, so that it need not be asked for.
pub fn fixed_host() -> String {
    format!(
        "[[neighbors.fixed]]\ninterface='lan'\naddress='10.1.0.9'\nmac='{HOST}'\n\
         [[neighbors.fixed]]\ninterface='lan'\naddress='fd01::9'\nmac='{HOST}'\n"
    )
}

/// `lan`, `wan`, VLAN 7 of `wan`, and `dmz`.
pub const LINKS: &str = "[[interface]]\nport='lan'\nresolve=true\naddresses=['10.1.0.1/24','fd01::1/64']\n\
    [[interface]]\nport='wan'\nresolve=true\naddresses=['10.2.0.1/24','fd02::1/64']\n\
    [[interface]]\nport='wan'\nvlan=7\nresolve=true\naddresses=['10.7.0.1/24','fd07::1/64']\n\
    [[interface]]\nport='dmz'\nresolve=true\naddresses=['10.3.0.1/24','fd03::1/64']\n";

pub const LAN: usize = 0;
pub const WAN: usize = 1;
pub const DMZ: usize = 2;
