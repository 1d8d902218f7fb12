//! What the daemon does with what the programs leave to it: connections that have ended or that they do not know, mutations over UDP that nobody answers.

use super::ask::UNNAMED;
use super::cache::{Cache, system};
use super::layout::{Conn, RING, SCOPE, Tuple, UdpKey, UdpPending, conn, state};
use super::look::ends;
use super::machine::{Connections, Tells};
use super::state::State;
use super::{KvError, machine};
use std::collections::{HashMap, HashSet};
use tidemill_bpf::maps::MapData;

/// So many connections are taken in at a look, and so many let go; the others are at the next ones.
const CHANGES: usize = 1024;

/// How often the kernel's connections are looked through where nothing has changed: that is all of its table, whatever port they are of, by the size that it has made
/// it by the machine's memory (4 ms for 262,144 places).
const WALK_NS: u64 = 5_000_000_000;

/// A connection that is gone, or that another one begins behind with the same ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gone {
    /// Which of those with these ends.
    opened_ns: u64,
    /// It was found so.
    since_ns: u64,
    /// Nothing has waited to be accepted since it was gone. `None`: it may still wait there, where no list of connections has it, and what it had brought is
    /// executed when memcached accepts it.
    taken_ns: Option<u64>,
}

type Table<'a> = tidemill_bpf::Table<&'a mut MapData, Tuple, Conn>;

/// Connections that the programs know: by their ends and what tells these from others that are the same ([`Tells::ends`]), under which key.
fn known(table: &Table<'_>, tells: Tells) -> std::io::Result<HashMap<Tuple, Tuple>> {
    let mut known = HashMap::new();
    for key in table.keys()? {
        let mut interface = 0;
        // What the socket is bound to is asked for only where it counts.
        if tells.ends(&key, u32::MAX)[SCOPE] != 0 {
            let Some(value) = table.get(&key)? else { continue };
            interface = value[conn::INTERFACE];
        }
        known.insert(key, tells.ends(&key, interface));
    }
    Ok(known)
}

/// Connections that the programs do not know, but for our own, where there is only one that may be that.
fn strangers(kernel: &Connections, known: &HashMap<Tuple, Tuple>, own: Option<Tuple>) -> Vec<Tuple> {
    let known: HashSet<&Tuple> = known.values().collect();
    let is_own = |ends: &Tuple| own.is_some_and(|own| own[..SCOPE] == ends[..SCOPE]);
    let several = kernel.open.iter().filter(|ends| is_own(ends)).count() > 1;
    let strange = |ends: &&Tuple| !known.contains(ends) && (several || !is_own(ends));
    kernel.open.iter().filter(strange).copied().collect()
}

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
        // Who was let go of here is a stranger from now on, and nobody's count says so.
        self.has_moved = true;
        Ok(())
    }

    /// Whether there are connections that the programs do not know.
    pub(super) fn has_strangers(&mut self) -> Result<bool, KvError> {
        let action = "cannot compare connections";
        let kernel = machine::connections(self.options.port, self.has_domains);
        let own = self.server.as_ref().and_then(|server| server.own);
        let table = self.object.table::<Tuple, Conn>("kv_conns").map_err(system(action))?;
        let known = known(&table, kernel.tells).map_err(system(action))?;
        Ok(!strangers(&kernel, &known, own).is_empty())
    }

    /// Whether connections may be other than at the last look: some were opened, taken or closed by memcached's count, or there is still something to do for some.
    /// One that ends unseen by memcached, which is about to see it, may be late.
    fn may_differ(&mut self, now: u64) -> bool {
        let has_moved = std::mem::replace(&mut self.has_moved, false);
        let is_idle = self.gone.is_empty() && !self.crowded && self.state.get(state::BLIND) == 0;
        if !has_moved && is_idle && now.saturating_sub(self.walked_ns) < WALK_NS {
            return false;
        }
        self.walked_ns = now;
        true
    }

    /// Compares connections with the kernel's: those that are gone release what they had; those that are not known are blind.
    pub(super) fn reconcile(&mut self, now: u64) -> Result<(), KvError> {
        let action = "cannot compare connections";
        if self.server.is_some() && !self.may_differ(now) {
            self.look_for_others(&machine::waiting(self.options.port));
            return Ok(());
        }
        let kernel = machine::connections(self.options.port, self.has_domains);
        self.look_for_others(&kernel.listening);
        let own = self.server.as_ref().and_then(|server| server.own);
        let settle = self.options.settle.as_nanos() as u64;
        let mut table = self.object.table::<Tuple, Conn>("kv_conns").map_err(system(action))?;
        let known = known(&table, kernel.tells).map_err(system(action))?;
        let mut crowded = false;
        // While some are blind nothing is served, whether the others are in the table yet or not: before one of these is let go there will be another look.
        for tuple in strangers(&kernel, &known, own).iter().take(CHANGES) {
            let mut unseen: Conn = [0; conn::WORDS];
            unseen[conn::BLIND] = 1;
            unseen[conn::INTERFACE] = tuple[SCOPE];
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
        let is_dead = |ends: &Tuple| !kernel.alive.contains(ends);
        // Where another one begins with the same ends, what the one before had is over; till that is said, its SYN-ACKs are dropped.
        let begins = |ends: &Tuple| kernel.alive.contains(ends) && !kernel.open.contains(ends);
        self.gone.retain(|key, _| known.get(key).is_some_and(|ends| is_dead(ends) || begins(ends)));
        // Asked for behind the connections, of which those are that have opened before this look began.
        let is_none_waiting = machine::unaccepted(self.options.port) == 0;
        let taken = |opened_ns: u64| (is_none_waiting && opened_ns < now).then_some(now);
        let mut new = 0;
        for (key, ends) in known.iter().filter(|(_, ends)| is_dead(ends) || begins(ends)) {
            if self.gone.contains_key(key) {
                continue;
            }
            let Some(value) = table.get(key).map_err(system(action))? else { continue };
            new += 1;
            if is_dead(ends) || has_left(&value) {
                let opened_ns = opened_ns(&value);
                self.gone.insert(*key, Gone { opened_ns, since_ns: now, taken_ns: taken(opened_ns) });
            }
            if new == CHANGES {
                break;
            }
        }
        let mut due = Vec::new();
        for (key, gone) in &mut self.gone {
            gone.taken_ns = gone.taken_ns.or_else(|| taken(gone.opened_ns));
            if now.saturating_sub(gone.since_ns) < settle || due.len() == CHANGES {
                continue;
            }
            let Some(value) = table.get(key).map_err(system(action))? else { continue };
            let (opened_ns, has_left) = (opened_ns(&value), has_left(&value));
            if gone.opened_ns != opened_ns {
                // Not the time of one before it with the same ends.
                *gone = Gone { opened_ns, since_ns: now, taken_ns: taken(opened_ns) };
            } else if !has_left || gone.taken_ns.is_some_and(|taken| now.saturating_sub(taken) >= settle) {
                due.push((*key, has_left));
            }
        }
        // What a reset connection had brought memcached still executes, however much it is; it closes the connection then. One that was reset before memcached looked
        // whose it is has no name there.
        if self.server.is_some() && due.iter().any(|(_, has_left)| *has_left) {
            let listed = self.at_rest();
            due.retain(|(tuple, has_left)| {
                !has_left
                    || listed.as_ref().is_some_and(|listed| {
                        !listed.contains_key(&ends(tuple).0) && !listed.contains_key(&UNNAMED)
                    })
            });
        }
        let mut table = self.object.table::<Tuple, Conn>("kv_conns").map_err(system(action))?;
        for (tuple, _) in &due {
            let Some(gone) = self.gone.remove(tuple) else { continue };
            let mut value: Conn = [0; conn::WORDS];
            self.state.set(state::BROKEN, 1);
            if table.take(tuple, &mut value).map_err(system(action))? {
                if opened_ns(&value) != gone.opened_ns {
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
