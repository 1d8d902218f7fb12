//! A switch in an engine between ports in memory.

#![allow(unreachable_pub)] // a module of tests

use tidemill_burst::Memory;
use tidemill_graph::{Clock, Engine, Limits, Options, Snapshot};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort, Sent};
use tidemill_switch::{SwitchControl, SwitchSection, graph};

pub const SECOND: u64 = 1_000_000_000;
pub const START: u64 = 1_700_000_000 * SECOND;

pub struct Run {
    pub snapshot: Snapshot,
    /// What left by each port.
    pub sent: Vec<Vec<Vec<u8>>>,
    pub control: SwitchControl,
}

impl Run {
    pub fn dropped(&self, reason: &str) -> u64 {
        self.snapshot.ledger().dropped.get(reason).copied().unwrap_or_default()
    }

    /// All reasons with their counts.
    pub fn drops(&self) -> Vec<(String, u64)> {
        let ledger = self.snapshot.ledger();
        ledger.dropped.iter().filter(|(_, n)| **n > 0).map(|(r, n)| (r.to_string(), *n)).collect()
    }
}

pub const PORTS: [&str; 3] = ["lan", "wan", "dmz"];

/// Runs a switch with these rules on one worker: for each port its bursts, in turn. The books balance, and all frames are home.
pub fn run(section: &str, rules: &str, inputs: [Vec<Vec<Frame>>; 3]) -> Run {
    run_with(2048, section, rules, inputs)
}

/// The same with so many frames.
pub fn run_with(frames: usize, section: &str, rules: &str, inputs: [Vec<Vec<Frame>>; 3]) -> Run {
    run_between(&PORTS, frames, section, rules, Vec::from(inputs))
}

/// The same between these ports.
pub fn run_between(
    names: &[&str],
    frames: usize,
    section: &str,
    rules: &str,
    inputs: Vec<Vec<Vec<Frame>>>,
) -> Run {
    let section: SwitchSection = toml::from_str(section).unwrap();
    let domain = Domain::new();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut control = SwitchControl::new(&section, &names, 1, &domain, 99).unwrap();
    assert!(!control.poll(START));
    if !rules.is_empty() {
        control.load(rules.as_bytes(), "test", true).unwrap_or_else(|error| panic!("{error}"));
    }
    let ports: Vec<MemoryPort> =
        names.iter().zip(inputs).map(|(name, bursts)| MemoryPort::new(name, bursts)).collect();
    let outputs: Vec<Sent> = ports.iter().map(MemoryPort::sent).collect();
    let ports = ports.into_iter().map(|port| vec![Box::new(port) as Box<dyn Port>]).collect();
    let memory = Memory::new(frames, 4096).unwrap();
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: frames,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let built = graph(&control).build().unwrap();
    let outcome = Engine::new(built, 1, ports, &memory, &domain, options).unwrap().run(|_| {});
    let snapshot = outcome.snapshot;
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    let ledger = snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!((snapshot.pool.free, snapshot.pool.unnamed), (snapshot.pool.frames, 0), "frames are home");
    let sent = outputs.iter().map(Sent::frames).collect();
    Run { snapshot, sent, control }
}
