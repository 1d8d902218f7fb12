//! What the table is set up with, what it says, and what it shows.

use crate::neighbor::Key;
use tidemill_wire::MacAddr;

pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// How long things last and how often they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// How long an answer proves that a neighbor is there, on average (RFC 4861: 30 s).
    pub reachable_ns: u64,
    /// How long after it changed or was learnt from others an address is probed.
    pub delay_ns: u64,
    /// Time between two questions about one neighbor (1 s); at least 1 ms.
    pub retransmit_ns: u64,
    /// Questions to everybody before an address fails (3).
    pub solicits: u8,
    /// Questions to a known neighbor before it is lost (3).
    pub probes: u8,
    /// How long an address that failed is not asked for again, unless it is held.
    pub failed_hold_ns: u64,
    /// The longest time between two questions about a neighbor that is held and does not answer.
    pub backoff_ns: u64,
    /// After a neighbor's MAC address has changed, another change is not believed for so long.
    pub lock_ns: u64,
}

impl Default for Timers {
    fn default() -> Self {
        Timers {
            reachable_ns: 30 * SECOND_NS,
            delay_ns: SECOND_NS,
            retransmit_ns: SECOND_NS,
            solicits: 3,
            probes: 3,
            failed_hold_ns: SECOND_NS,
            backoff_ns: 10 * SECOND_NS,
            lock_ns: SECOND_NS,
        }
    }
}

/// How many neighbors are kept. Each is at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// That answered, are held, or are static.
    pub entries: usize,
    /// That answered, on one interface.
    pub per_interface: usize,
    /// Besides those: that have not answered, or only ever asked.
    pub incomplete: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { entries: 65_536, per_interface: 32_768, incomplete: 4096 }
    }
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Ask for it.
    Solicit {
        /// Who.
        key: Key,
        /// Probe this station; `None` asks everybody (broadcast, solicited-node multicast).
        to: Option<MacAddr>,
    },
    /// The neighbor has this MAC address.
    Resolved {
        /// Who.
        key: Key,
        /// Its MAC address.
        mac: MacAddr,
        /// The address is new or changed; false if it was said before and somebody has asked again.
        fresh: bool,
    },
    /// The neighbor has no MAC address (any more). May come for one that never had.
    Lost {
        /// Who.
        key: Key,
        /// Why.
        why: Loss,
    },
}

/// Why a neighbor has no MAC address (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// It does not answer.
    Silent,
    /// There were too many: it made room.
    GaveWay,
    /// Its interface is down.
    Down,
    /// It was taken out, or is not on the link.
    Removed,
}

/// Where an entry is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Asked for, not yet answered.
    Incomplete,
    /// Has answered lately.
    Reachable,
    /// Its address is known, and used, but not proven.
    Stale,
    /// Its address is known, and used, and it is being asked whether it is still there.
    Probe,
    /// Did not answer.
    Failed,
    /// Configured: never asked for, never lost.
    Static,
}

impl State {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            State::Incomplete => "incomplete",
            State::Reachable => "reachable",
            State::Stale => "stale",
            State::Probe => "probe",
            State::Failed => "failed",
            State::Static => "static",
        }
    }

    /// Whether the MAC address is known.
    pub fn is_known(self) -> bool {
        matches!(self, State::Reachable | State::Stale | State::Probe | State::Static)
    }
}

/// Who told us of a neighbor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// ARP or neighbor discovery.
    Learnt,
    /// The kernel's table.
    Kernel,
    /// The configuration.
    Static,
}

impl Origin {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Learnt => "learnt",
            Origin::Kernel => "kernel",
            Origin::Static => "static",
        }
    }
}

/// One neighbor, to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbor {
    /// Who.
    pub key: Key,
    /// Where it is in its life.
    pub state: State,
    /// Its MAC address, where it is known.
    pub mac: Option<MacAddr>,
    /// Whether a route needs it.
    pub held: bool,
    /// Who told us.
    pub origin: Origin,
    /// How long it has been in this state, at the time last handed in.
    pub age_ns: u64,
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Questions asked.
    pub solicits: u64,
    /// Neighbors that got an address, changes included.
    pub resolved: u64,
    /// Neighbors that did not answer.
    pub silent: u64,
    /// Entries that made room for others.
    pub gave_way: u64,
    /// MAC addresses that changed.
    pub moved: u64,
    /// Changes not believed because another had just been (two stations with one address, or a forgery).
    pub flapping: u64,
    /// Other MAC addresses said of static entries, or without the override flag.
    pub contradicted: u64,
    /// Answers about addresses that nobody asked for.
    pub unasked: u64,
    /// Addresses that are not on the link.
    pub off_link: u64,
    /// Claims to a MAC address that no station can have.
    pub invalid: u64,
}
