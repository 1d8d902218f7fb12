//! A cache in an engine between two ports in memory.

use super::SECOND;
use tidemill_burst::Memory;
use tidemill_graph::{Clock, Engine, Limits, Options, Snapshot};
use tidemill_kvcache::{KvcacheControl, KvcacheSection, graph};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort, Sent};

/// Frames in bursts, one after the other; `None`: the other side's turn.
pub type Script = Vec<Vec<Vec<u8>>>;

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
    let outputs = [Sent::default(), Sent::default()];
    let mut ports: Vec<Vec<Box<dyn Port>>> = Vec::new();
    for (side, script) in scripts.into_iter().enumerate() {
        // A millisecond for each turn.
        let at = |turn: usize| 1_000_000 * SECOND + (turn as u64 + 1) * 1_000_000;
        let burst = |(turn, frames): (usize, Vec<Vec<u8>>)| {
            frames.into_iter().map(|bytes| Frame::at(at(turn), bytes)).collect()
        };
        let bursts = script.into_iter().enumerate().map(burst);
        ports.push(vec![Box::new(MemoryPort::new(&names[side], bursts).sending_to(&outputs[side]))]);
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
    let sent = outputs.map(|output| output.frames());
    Run { snapshot: outcome.snapshot, sent, control }
}
