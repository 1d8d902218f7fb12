//! Ports in memory, and a cache in an engine between two of them.

use super::SECOND;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_graph::{Clock, Engine, Limits, Options, Snapshot};
use tidemill_kvcache::{KvcacheControl, KvcacheSection, graph};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{PcapPort, Playback, Port, PortCounters, PortError, RxStatus};

/// The frames of a capture.
pub fn capture(path: &Path) -> Vec<Vec<u8>> {
    let mut port = PcapPort::open("capture", Some(&Playback::once(path)), None, 1).unwrap().remove(0);
    let mut pool = Memory::new(512, 32768).unwrap().pool(512).unwrap();
    let (mut burst, mut frames) = (Burst::new(), Vec::new());
    loop {
        let status = port.rx(0, &mut pool, &mut burst).unwrap();
        for packet in burst.drain() {
            frames.push(packet.data().to_vec());
            pool.free(packet);
        }
        if status == RxStatus::Ended {
            return frames;
        }
    }
}

/// Frames in bursts, one after the other; `None`: the other side's turn.
pub type Script = Vec<Vec<Vec<u8>>>;

struct MemPort {
    name: &'static str,
    input: VecDeque<Vec<Vec<u8>>>,
    output: Arc<Mutex<Vec<Vec<u8>>>>,
    counters: PortCounters,
    turn: u64,
}

impl Port for MemPort {
    fn name(&self) -> &str {
        self.name
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let Some(frames) = self.input.pop_front() else { return Ok(RxStatus::Ended) };
        self.turn += 1;
        let idle = frames.is_empty();
        for frame in frames {
            let mut packet = pool.packet(&frame).unwrap();
            packet.set_timestamp_ns(1_000_000 * SECOND + self.turn * 1_000_000);
            self.counters.rx.count(frame.len());
            assert!(burst.push(packet).is_ok());
        }
        Ok(if idle { RxStatus::Idle { next_due_ns: None } } else { RxStatus::Received })
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let mut output = self.output.lock().unwrap();
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

/// What came of a run.
pub struct Run {
    pub snapshot: Snapshot,
    /// What left towards clients and towards servers.
    pub sent: [Vec<Vec<u8>>; 2],
    pub control: KvcacheControl,
}

/// Runs a cache between `clients` and `servers` until all is through: what comes in by each, burst by burst, in turn. The books balance, and all frames are
/// home.
pub fn run(section: &KvcacheSection, scripts: [Script; 2]) -> Run {
    let domain = Domain::new();
    let names = ["clients".to_string(), "servers".to_string()];
    let control = KvcacheControl::with_secret(section, &names, 1, 99).unwrap();
    let outputs = [Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new()))];
    let mut ports: Vec<Vec<Box<dyn Port>>> = Vec::new();
    for (side, script) in scripts.into_iter().enumerate() {
        ports.push(vec![Box::new(MemPort {
            name: ["clients", "servers"][side],
            input: script.into(),
            output: outputs[side].clone(),
            counters: PortCounters::default(),
            turn: 0,
        })]);
    }
    let memory = Memory::new(1024, 32768).unwrap();
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 1024,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let built = graph(&control).build().unwrap();
    let outcome = Engine::new(built, 1, ports, &memory, &domain, options).unwrap().run(|_| {});
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    let pool = outcome.snapshot.pool;
    assert_eq!((pool.free, pool.unnamed), (pool.frames, 0), "frames are home, and none came unnamed");
    let sent = outputs.map(|output| output.lock().unwrap().clone());
    Run { snapshot: outcome.snapshot, sent, control }
}
