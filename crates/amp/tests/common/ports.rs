//! Ports in memory, and a mitigator in an engine between two of them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tidemill_amp::{MitigatorControl, MitigatorSection, graph};
use tidemill_burst::{Burst, DropReason, Memory, Pool};
use tidemill_graph::{Clock, Engine, Limits, Options, Snapshot};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{PcapPort, Playback, Port, PortCounters, PortError, RxStatus};

/// A frame to receive: its bytes, and when.
#[derive(Debug, Clone)]
pub struct Input {
    pub bytes: Vec<u8>,
    pub time_ns: u64,
}

/// The frames of a capture.
pub fn capture(path: &Path) -> Vec<Input> {
    let mut port = PcapPort::open("capture", Some(&Playback::once(path)), None, 1).unwrap().remove(0);
    let mut pool = Memory::new(512, 32768).unwrap().pool(512).unwrap();
    let (mut burst, mut inputs) = (Burst::new(), Vec::new());
    loop {
        let status = port.rx(0, &mut pool, &mut burst).unwrap();
        for packet in burst.drain() {
            inputs.push(Input { bytes: packet.data().to_vec(), time_ns: packet.timestamp_ns() });
            pool.free(packet);
        }
        if status == RxStatus::Ended {
            return inputs;
        }
    }
}

/// Gives frames in bursts, and keeps what it is to send.
struct MemPort {
    name: &'static str,
    input: VecDeque<Vec<Input>>,
    output: Arc<Mutex<Vec<Vec<u8>>>>,
    counters: PortCounters,
}

impl Port for MemPort {
    fn name(&self) -> &str {
        self.name
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let Some(inputs) = self.input.pop_front() else { return Ok(RxStatus::Ended) };
        let idle = inputs.is_empty();
        for input in inputs {
            let mut packet = pool.packet(&input.bytes).unwrap();
            packet.set_timestamp_ns(input.time_ns);
            self.counters.rx.count(input.bytes.len());
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
    /// What left by `outside` and by `inside`.
    pub sent: [Vec<Vec<u8>>; 2],
    pub control: MitigatorControl,
}

impl Run {
    pub fn dropped(&self) -> u64 {
        self.snapshot.ledger().dropped.get(DropReason::Amplification.name()).copied().unwrap_or_default()
    }
}

/// For each worker what comes in by `outside` and by `inside`: burst by burst, in turn.
pub type Worker = [Vec<Vec<Input>>; 2];

/// Runs a mitigator between `outside` and `inside` until all is through. The books balance, and all frames are home.
pub fn run(section: &MitigatorSection, workers: Vec<Worker>) -> Run {
    let (domain, count) = (Domain::new(), workers.len());
    let names = ["outside".to_string(), "inside".to_string()];
    let control = MitigatorControl::with_secret(section, &names, count, &domain, 99).unwrap();
    let outputs = [Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new()))];
    let mut ports: Vec<Vec<Box<dyn Port>>> = vec![Vec::new(), Vec::new()];
    for sides in workers {
        for (side, bursts) in sides.into_iter().enumerate() {
            ports[side].push(Box::new(MemPort {
                name: ["outside", "inside"][side],
                input: bursts.into(),
                output: outputs[side].clone(),
                counters: PortCounters::default(),
            }));
        }
    }
    let memory = Memory::new(1024 * count, 32768).unwrap();
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 1024,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let built = graph(&control).build().unwrap();
    let outcome = Engine::new(built, count, ports, &memory, &domain, options).unwrap().run(|_| {});
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!(
        ledger.received,
        ledger.out + ledger.dropped.values().sum::<u64>(),
        "a bridge makes nothing and keeps nothing"
    );
    let pool = outcome.snapshot.pool;
    assert_eq!((pool.free, pool.unnamed), (pool.frames, 0), "frames are home, and none came unnamed");
    let sent = outputs.map(|output| output.lock().unwrap().clone());
    Run { snapshot: outcome.snapshot, sent, control }
}
