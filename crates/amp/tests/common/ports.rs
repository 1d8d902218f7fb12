//! A mitigator in an engine between two ports in memory.

use tidemill_amp::{MitigatorControl, MitigatorSection, graph};
use tidemill_burst::{DropReason, Memory};
use tidemill_graph::{Clock, Engine, Limits, Options, Snapshot};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort, Sent};

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
pub type Worker = [Vec<Vec<Frame>>; 2];

/// Runs a mitigator between `outside` and `inside` until all is through. The books balance, and all frames are home.
pub fn run(section: &MitigatorSection, workers: Vec<Worker>) -> Run {
    let (domain, count) = (Domain::new(), workers.len());
    let names = ["outside".to_string(), "inside".to_string()];
    let control = MitigatorControl::with_secret(section, &names, count, &domain, 99).unwrap();
    let outputs = [Sent::default(), Sent::default()];
    let mut ports: Vec<Vec<Box<dyn Port>>> = vec![Vec::new(), Vec::new()];
    for sides in workers {
        for (side, bursts) in sides.into_iter().enumerate() {
            let port = MemoryPort::new(&names[side], bursts).sending_to(&outputs[side]);
            ports[side].push(Box::new(port));
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
    let sent = outputs.map(|output| output.frames());
    Run { snapshot: outcome.snapshot, sent, control }
}
