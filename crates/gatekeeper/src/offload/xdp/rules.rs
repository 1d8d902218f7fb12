//! One family's rules in the program's map.

use crate::family::Paired;
use crate::offload::{Pick, Picks};
use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use tidemill_bpf::{Cursor, Object, Pod};
use tidemill_flow::key::Key;

/// `struct rule` of bpf/gate.bpf.c: end, stamp, shard; packets kept away.
type Rule = [u64; 4];

/// How often the dead are removed, and hits are read.
const ROUND_NS: u64 = 1_000_000_000;
/// Flows that are taken up in one turn.
const MOST: usize = 4096;

/// The times of a turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// The workers' clock.
    pub(super) now_ns: u64,
    /// The kernel's: no later than it is.
    pub(super) kernel_ns: u64,
}

impl Times {
    /// A time of the workers' clock in the kernel's: no later than that is.
    fn kernel(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.now_ns.saturating_sub(self.kernel_ns))
    }
}

/// A rule that there is.
#[derive(Debug, Clone, Copy)]
struct There<const W: usize> {
    flow: Key<W>,
    /// How many packets that it has dropped have been told of.
    told: u64,
    by_policy: bool,
}

/// See the [module](self). `K` is a flow as the program has it.
pub(super) struct Rules<A, K, const W: usize> {
    map: &'static str,
    key: fn(&Key<W>) -> K,
    picks: Picks<A, W>,
    there: HashMap<K, There<W>>,
    /// How many there are of flows that were declined, and of flows that a policy drops.
    counts: [u32; 2],
    /// How many of each kind there may be.
    most: u32,
    cursor: Cursor,
    round_ns: u64,
    refused: u64,
}

impl<A: Paired<W>, K: Pod + Default + Eq + Hash, const W: usize> Rules<A, K, W> {
    /// `room` is that of the map.
    pub(super) fn new(map: &'static str, room: u32, key: fn(&Key<W>) -> K, picks: Picks<A, W>) -> Self {
        let (there, cursor) = (HashMap::new(), Cursor::default());
        // A flood of one kind leaves room for the other.
        let most = room - room / 4;
        Rules { map, key, picks, there, counts: [0; 2], most, cursor, round_ns: 0, refused: 0 }
    }

    pub(super) fn count(&self) -> u64 {
        self.there.len() as u64
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes up what the workers have told, and removes some of what is dead. Returns whether there was anything to take up.
    pub(super) fn turn(&mut self, object: &mut Object, times: Times) -> io::Result<bool> {
        let any = self.take_up(object, times)?;
        self.sweep(object, times)?;
        self.picks.tick(times.now_ns);
        Ok(any)
    }

    fn take_up(&mut self, object: &mut Object, times: Times) -> io::Result<bool> {
        let picks: Vec<Pick<W>> = std::iter::from_fn(|| self.picks.take()).take(MOST).collect();
        if picks.is_empty() {
            return Ok(false);
        }
        let mut table = object.table::<K, Rule>(self.map)?;
        for Pick { flow, until_ns, shard, stamp, by_policy } in picks {
            let until = times.kernel(until_ns);
            if until <= times.kernel_ns {
                continue;
            }
            let key = (self.key)(&flow);
            let before = self.there.get(&key).copied();
            let is_one_more = before.is_none_or(|before| before.by_policy != by_policy);
            if is_one_more && self.counts[usize::from(by_policy)] >= self.most {
                self.refused += 1;
                continue;
            }
            // What a rule of before has kept away goes with it.
            if let Some(There { told, .. }) = before {
                let packets = table.get(&key)?.map_or(0, |rule| rule[3]);
                self.picks.kept_away(&flow, packets.saturating_sub(told));
            }
            match table.insert(&key, &[until, stamp, shard.into(), 0]) {
                Ok(()) => {
                    if let Some(before) = self.there.insert(key, There { flow, told: 0, by_policy }) {
                        self.counts[usize::from(before.by_policy)] -= 1;
                    }
                    self.counts[usize::from(by_policy)] += 1;
                }
                Err(error) if is_full(&error) => self.refused += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Goes through some thousands of rules, round after round.
    fn sweep(&mut self, object: &mut Object, times: Times) -> io::Result<()> {
        if self.cursor == Cursor::default() {
            if self.there.is_empty() || times.now_ns.saturating_sub(self.round_ns) < ROUND_NS {
                return Ok(());
            }
            self.round_ns = times.now_ns;
        }
        let mut table = object.table::<K, Rule>(self.map)?;
        let (mut page, mut dead) = (Vec::new(), Vec::new());
        let (cursor, _) = table.read_some(self.cursor, &mut page)?;
        self.cursor = cursor;
        for (key, [until, stamp, shard, packets]) in page {
            if let Some(There { flow, told, .. }) = self.there.get_mut(&key) {
                let more = packets.saturating_sub(*told);
                *told = packets;
                self.picks.kept_away(flow, more);
            }
            if until <= times.kernel_ns || !self.picks.holds(shard as u32, stamp) {
                if let Some(There { by_policy, .. }) = self.there.remove(&key) {
                    self.counts[usize::from(by_policy)] -= 1;
                }
                dead.push(key);
            }
        }
        table.remove_many(&dead);
        Ok(())
    }
}

/// Whether the map, or memory, has no room.
fn is_full(error: &io::Error) -> bool {
    // E2BIG, ENOMEM.
    matches!(error.raw_os_error(), Some(7 | 12))
}
