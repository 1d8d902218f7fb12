//! Our table behind the same trait: the flow table of [`tidemill_flow`], with the same life of an entry as the paper's. (The
//! mitigator's own decisions, [`crate::mitigator`], know questions, protocols and rates besides.)

use super::{RuleTable, Seen, Status, Tuple4};
use tidemill_flow::flowtable::{FlowTable, Outcome};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;

/// Any secret will do: nobody attacks a yardstick.
const SECRET: u128 = 0x7469_6465;
/// The state's bit of a rule; the end of its time is above.
const FILTERED: u64 = 1;

/// The table.
#[derive(Debug)]
pub struct Ours {
    flows: FlowTable<2>,
    hash: Keyed<2>,
    expiry_s: u32,
}

impl Ours {
    /// An empty one of at least `slots` slots. A rule holds for `expiry_s`.
    ///
    /// # Errors
    /// More slots than the flow table can number, or no memory.
    pub fn new(slots: usize, expiry_s: u32) -> Result<Self, SizeError> {
        let hash = Keyed::new(SECRET);
        Ok(Ours { flows: FlowTable::new(slots, hash)?, hash, expiry_s })
    }

    fn key(&self, tuple: &Tuple4) -> (u64, Key<2>) {
        let ports = u64::from(tuple.source_port) << 16 | u64::from(tuple.destination_port);
        let key = Key([u64::from(tuple.source) << 32 | u64::from(tuple.destination), ports]);
        (self.hash.hash(&key), key)
    }
}

/// Whether an entry is a rule that holds.
fn status(state: u64, now_s: u32) -> Status {
    let holds = state & FILTERED != 0 && u64::from(now_s) < state >> 1;
    if holds { Status::Filtered } else { Status::Suspected }
}

impl RuleTable for Ours {
    fn slots(&self) -> usize {
        self.flows.slots()
    }

    fn packet(&mut self, tuple: &Tuple4, now_s: u32) -> Seen {
        let (hash, key) = self.key(tuple);
        let may_go = |_: &Key<2>, _: u32, state: u64| status(state, now_s) == Status::Suspected;
        match self.flows.find_or_replace(now_s, hash, &key, may_go) {
            Outcome::Found(slot) if status(self.flows.state(slot), now_s) == Status::Filtered => {
                Seen::Filtered
            }
            Outcome::Found(slot) => {
                // Also what was a rule is a suspicion now.
                self.flows.set_state(slot, 0);
                Seen::Suspected
            }
            Outcome::New(_) => Seen::Suspected,
            Outcome::Full => Seen::NoRoom,
        }
    }

    fn confirm(&mut self, tuple: &Tuple4, now_s: u32) -> bool {
        let (hash, key) = self.key(tuple);
        let Some(slot) = self.flows.find(hash, &key) else { return false };
        let suspected = self.flows.state(slot) & FILTERED == 0;
        if suspected {
            let end = u64::from(now_s) + u64::from(self.expiry_s);
            self.flows.set_state(slot, end << 1 | FILTERED);
        }
        suspected
    }
}
