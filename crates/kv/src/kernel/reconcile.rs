//! What the daemon does with what the programs leave to it: connections that have ended or that they do not know, mutations over UDP that nobody answers.

use super::cache::{Cache, system};
use super::layout::{Conn, RING, Tuple, UdpKey, UdpPending, conn, state};
use super::look::ends;
use super::state::State;
use super::{KvError, machine};
use std::collections::HashSet;

impl Cache {
    /// What has passed while there were no programs is not known: nothing that was kept counts, and connections from before `begun` are strangers.
    pub(super) fn bridge(&mut self, begun: u64) -> Result<(), KvError> {
        let action = "cannot forget connections";
        let mut table = self.object.table::<Tuple, Conn>("kv_conns").map_err(system(action))?;
        for tuple in table.keys().map_err(system(action))? {
            let Some(value) = table.get(&tuple).map_err(system(action))? else { continue };
            if opened_ns(&value) >= begun {
                continue;
            }
            let mut value: Conn = [0; conn::WORDS];
            self.state.set(state::BROKEN, 1);
            if table.take(&tuple, &mut value).map_err(system(action))? {
                end(&self.state, &value);
            }
            self.state.set(state::BROKEN, 0);
        }
        self.state.unsettle();
        self.state.void();
        Ok(())
    }

    /// Whether there are connections that the programs do not know.
    pub(super) fn has_strangers(&mut self) -> Result<bool, KvError> {
        let kernel = machine::connections(self.options.port);
        let own = self.server.as_ref().and_then(|server| server.own);
        let table =
            self.object.table::<Tuple, Conn>("kv_conns").map_err(system("cannot compare connections"))?;
        let known: HashSet<Tuple> =
            table.keys().map_err(system("cannot compare connections"))?.into_iter().collect();
        Ok(kernel.open.difference(&known).any(|tuple| Some(*tuple) != own))
    }

    /// Compares connections with the kernel's: those that are gone release what they had; those that are not known are blind.
    pub(super) fn reconcile(&mut self, now: u64) -> Result<(), KvError> {
        let action = "cannot compare connections";
        let kernel = machine::connections(self.options.port);
        self.look_for_others(&kernel.listening);
        let own = self.server.as_ref().and_then(|server| server.own);
        let settle = self.options.settle.as_nanos() as u64;
        let mut table = self.object.table::<Tuple, Conn>("kv_conns").map_err(system(action))?;
        let known: HashSet<Tuple> = table.keys().map_err(system(action))?.into_iter().collect();
        let mut crowded = false;
        for tuple in kernel.open.difference(&known).filter(|tuple| Some(**tuple) != own) {
            let mut unseen: Conn = [0; conn::WORDS];
            unseen[conn::BLIND] = 1;
            self.state.set(state::BROKEN, 1);
            self.state.add(state::BLIND, 1);
            self.state.void();
            match table.insert_new(tuple, &unseen) {
                Ok(true) => {}
                Ok(false) => self.state.add(state::BLIND, u64::MAX),
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::TOOBIG.raw_os_error()) => {
                    self.state.add(state::BLIND, u64::MAX);
                    self.state.unsettle();
                    crowded = true;
                }
                Err(error) => return Err(system(action)(error)),
            }
            self.state.set(state::BROKEN, 0);
        }
        if crowded != self.crowded {
            self.crowded = crowded;
            let what =
                if crowded { "have no room in the table: nothing is served" } else { "have room again" };
            self.notes.push(format!("connections {what} (--connections {})", self.options.connections));
        }
        let mut dead: HashSet<Tuple> = known.difference(&kernel.alive).copied().collect();
        // Where another one begins with the same ends, what the one before had is over; till that is said, its SYN-ACKs are dropped.
        for tuple in known.intersection(&kernel.alive).filter(|tuple| !kernel.open.contains(*tuple)) {
            if table.get(tuple).map_err(system(action))?.is_some_and(|value| has_left(&value)) {
                dead.insert(*tuple);
            }
        }
        self.gone.retain(|tuple, _| dead.contains(tuple));
        let mut due = Vec::new();
        for tuple in &dead {
            let Some(value) = table.get(tuple).map_err(system(action))? else { continue };
            // Not the time of one before it with the same ends.
            let gone = self.gone.entry(*tuple).or_insert((now, opened_ns(&value)));
            if gone.1 != opened_ns(&value) {
                *gone = (now, opened_ns(&value));
            }
            if now.saturating_sub(gone.0) >= settle {
                due.push((*tuple, has_left(&value)));
            }
        }
        // What a reset connection had brought memcached still executes, however much it is; it closes the connection then.
        if self.server.is_some() && due.iter().any(|(_, has_left)| *has_left) {
            let listed = self.at_rest();
            due.retain(|(tuple, has_left)| {
                !has_left || listed.as_ref().is_some_and(|listed| !listed.contains_key(&ends(tuple).0))
            });
        }
        let mut table = self.object.table::<Tuple, Conn>("kv_conns").map_err(system(action))?;
        for (tuple, _) in &due {
            let Some((_, looked_at)) = self.gone.remove(tuple) else { continue };
            let mut value: Conn = [0; conn::WORDS];
            self.state.set(state::BROKEN, 1);
            if table.take(tuple, &mut value).map_err(system(action))? {
                if opened_ns(&value) != looked_at {
                    self.state.unsettle();
                }
                end(&self.state, &value);
            }
            self.state.set(state::BROKEN, 0);
        }
        Ok(())
    }

    /// Whether somebody else has come to the port, over TCP or UDP: a socket that is bound to one address takes what is sent there from one that is bound to
    /// all.
    fn look_for_others(&mut self, listening: &[u64]) {
        let port = self.options.port;
        let Some(server) = &mut self.server else { return };
        let mut new = machine::bound(port);
        new.extend_from_slice(listening);
        new.retain(|inode| !server.known.contains(inode));
        let is_shared = !new.is_empty() && !machine::holds(server.pid, &new);
        if is_shared == self.is_shared {
            return;
        }
        self.is_shared = is_shared;
        self.state.unsettle();
        self.state.void();
        let what = if is_shared { "has sockets on port" } else { "is gone from port" };
        let then = if is_shared { "nothing is served until it ends" } else { "values are served again" };
        self.notes.push(format!("another process than memcached {what} {port}: {then}"));
    }

    /// Mutations over UDP that were not answered in time: lost on their way, or quiet for another reason.
    pub(super) fn sweep_udp(&mut self, now: u64) -> Result<(), KvError> {
        let action = "cannot look at outstanding mutations";
        let settle = self.options.settle.as_nanos() as u64;
        let mut table = self.object.table::<UdpKey, UdpPending>("kv_udp").map_err(system(action))?;
        let (mut entries, mut cursor) = (Vec::new(), tidemill_bpf::Cursor::default());
        loop {
            let (next, done) = table.read_some(cursor, &mut entries).map_err(system(action))?;
            cursor = next;
            if done {
                break;
            }
        }
        for (key, [at, _]) in entries {
            if now.saturating_sub(at) < settle {
                continue;
            }
            let mut value = UdpPending::default();
            self.state.set(state::BROKEN, 1);
            if table.take(&key, &mut value).map_err(system(action))? {
                // It may be another one by now: its slot is not admitted before its time either way.
                self.state.release_unsettled(value[1] as u32);
            }
            self.state.set(state::BROKEN, 0);
        }
        Ok(())
    }
}

/// When a connection was opened: tells it from others with the same ends.
pub(super) fn opened_ns(value: &Conn) -> u64 {
    u64::from(value[conn::OPENED]) | u64::from(value[conn::OPENED + 1]) << 32
}

/// Whether a connection has something that is to be taken back when it is gone.
fn has_left(value: &Conn) -> bool {
    value[conn::HEAD] != value[conn::TAIL]
        || value[conn::OVERFLOW_IN] != value[conn::OVERFLOW_OUT]
        || value[conn::BEYOND_IN] != value[conn::BEYOND_OUT]
        || value[conn::BLIND] != 0
        || value[conn::DEAF] != 0
}

/// What a connection that is gone still had.
fn end(state: &State, value: &Conn) {
    let (head, mut tail) = (value[conn::HEAD], value[conn::TAIL]);
    while tail != head {
        state.release(value[conn::RING + 2 * (tail as usize % RING)]);
        tail = tail.wrapping_add(1);
    }
    let held = value[conn::OVERFLOW_IN].wrapping_sub(value[conn::OVERFLOW_OUT]) + value[conn::DEAF];
    state.add(state::HOLD, u64::from(held).wrapping_neg());
    if value[conn::BLIND] != 0 {
        state.void();
        state.add(state::BLIND, u64::MAX);
    }
}
