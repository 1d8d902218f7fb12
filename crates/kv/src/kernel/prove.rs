//! Mutations over TCP of which no answer says that they are executed: what memcached has read of such a connection, and that it has nothing left to say.
//!
//! ```text
//! programs:  next, head, ... (a snapshot)          the same later
//! the kernel:      read up to `next`, nothing unsent, a acknowledged ........ nothing unsent, a acknowledged: memcached has said nothing meanwhile
//! time:      look    read_ns <----------- settle: a thread that could go on has done so -----------> executed: released
//! ```
//! What it has read and not executed waits for two things only: its thread, of which memcached itself says whether it has more to do for this connection (`stats conns`);
//! or a client that does not read its answers, and then something is unsent, or has been sent since. The argument in whole: crates/kv/KERNEL.md.
//!
//! Mutations that a connection's ring had no room for moved their slots for a time ([`FAR_NS`]), which is longer than all of this takes. Where it takes longer still,
//! nothing is admitted (`SURE`).
//!
//! At every look a table's entry is read for each connection, where a mutation has come by TCP since the last; where such are left, a few questions to the kernel. That
//! goes in steps of so many connections each ([`STEP`]), with a round of everything else in between.

use super::cache::{Cache, system};
use super::diag::{CLOSE_WAIT, Diag, ESTABLISHED, Socket};
use super::layout::{Conn, FAR_NS, FLUSH, READ, TCP_MUTATION, Tuple, conn, state};
use super::look::ends;
use super::reconcile::opened_ns;
use super::state::now_ns;
use super::{KvError, machine};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;

/// Connections of this kind.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    records: HashMap<Tuple, Record>,
    /// When the last look began that was made at all connections; 0: not by this process.
    looked_ns: u64,
    /// The one that is being made.
    look: Option<Steps>,
    /// Mutations that were counted by then.
    counted: u64,
    diag: Option<Diag>,
    is_told: bool,
}

/// A look at all connections.
#[derive(Debug)]
struct Steps {
    begun_ns: u64,
    /// Those that are still to be looked at.
    keys: Vec<Tuple>,
    executed: Vec<(Tuple, Mark)>,
}

/// What the programs had read of a connection at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Snapshot {
    /// Sequence numbers of the client: of its first byte, and of what is read next.
    first: u32,
    next: u32,
    /// So many mutations of the ring, of everything, and beyond the ring, are of commands that are whole by then.
    head: u32,
    overflow: u32,
    beyond: u32,
    /// The last one may not be: its value is not here yet.
    is_cut: bool,
}

/// A snapshot that memcached has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// By then it had.
    read_ns: u64,
    /// Mutations beyond the ring that are not in it are not older than this.
    since_ns: u64,
    snapshot: Snapshot,
}

#[derive(Debug)]
struct Record {
    opened_ns: u64,
    /// Mutations beyond the ring that may not be executed are not older; `None`: there are none.
    oldest_ns: Option<u64>,
    /// Mutations beyond the ring at the last look, and when they were fewer.
    beyond: u32,
    fewer_ns: u64,
    /// The socket, and what its client had acknowledged, at all marks.
    cookie: u64,
    acknowledged: u64,
    marks: VecDeque<Mark>,
}

/// At a look there is one more; with a longer `--settle` than half a minute the next ones wait until the first are used.
const MARKS: usize = 64;
/// Connections at a step.
const STEP: usize = 512;
/// Questions at a look, until memcached has read what was there at its start.
const QUESTIONS: usize = 4;
/// `K_GAT` of bpf/kv_commands.h.
const GAT: u32 = 8;

/// A connection with something left.
struct Left {
    tuple: Tuple,
    /// What memcached's socket is bound to.
    interface: u32,
    opened_ns: u64,
    beyond: u32,
    is_beyond: bool,
    snapshot: Option<Snapshot>,
}

impl Snapshot {
    /// `None`: a program is at work on it, a command that is answered waits, or it cannot be said which commands are whole. Where quiet meta commands have been, answers
    /// may not be counted, and it is not known by them which commands wait: memcached itself says that none does (`at_rest`), and that it has nothing left to say.
    fn of(value: &Conn) -> Option<Self> {
        let is_counted = value[conn::META_QUIET] == 0 && value[conn::MG_QUIET] == 0;
        if [conn::BUSY, conn::BLIND, conn::DEAF].iter().any(|at| value[*at] != 0)
            || is_counted && value[conn::ASKED] != value[conn::ANSWERED]
        {
            return None;
        }
        let is_gat = value[conn::COMMAND] >> 8 & 0xff == GAT;
        let is_cut = match value[conn::PHASE] >> 16 & 0xff {
            // Between two; in a binary header, extras or key.
            0 | 7..=9 => false,
            // In a line: its key is moved at its end, but for `gat`.
            1..=3 if !is_gat => false,
            // In a value: its key has been moved.
            4..=6 => true,
            _ => return None,
        };
        let whole = |at: usize| value[at].wrapping_sub(u32::from(is_cut));
        Some(Snapshot {
            first: value[conn::FIRST],
            next: value[conn::NEXT],
            head: whole(conn::HEAD),
            overflow: whole(conn::OVERFLOW_IN),
            beyond: whole(conn::BEYOND_IN),
            is_cut,
        })
    }

    /// Whether all of it is read, by what the kernel says of the socket, and how much it said before that had come.
    fn is_read(&self, received_before: u64, socket: &Socket) -> bool {
        let read = self.first.wrapping_add(received_before as u32).wrapping_sub(socket.unread);
        read.wrapping_sub(self.next).cast_signed() >= 0
    }
}

impl Record {
    fn new(left: &Left, before_ns: u64) -> Self {
        Record {
            opened_ns: left.opened_ns,
            oldest_ns: None,
            beyond: left.beyond,
            fewer_ns: before_ns,
            cookie: 0,
            acknowledged: 0,
            marks: VecDeque::new(),
        }
    }

    /// What a look says of mutations beyond the ring; the look before was at `before_ns`.
    fn look(&mut self, left: &Left, before_ns: u64) {
        if self.beyond != left.beyond {
            (self.beyond, self.fewer_ns) = (left.beyond, before_ns);
        }
        self.oldest_ns = left.is_beyond.then(|| self.oldest_ns.unwrap_or(before_ns));
    }

    /// The newest mark that is executed, by what the kernel says of the socket when it was asked at `asked_ns`. Whoever may have been slow at any time up to
    /// `not_before_ns` less `settle_ns` has no marks from before.
    fn weigh(&mut self, asked_ns: u64, socket: &Socket, settle_ns: u64, not_before_ns: u64) -> Option<Mark> {
        if (self.cookie, self.acknowledged) != (socket.cookie, socket.acknowledged) || socket.unsent != 0 {
            self.marks.clear();
        }
        (self.cookie, self.acknowledged) = (socket.cookie, socket.acknowledged);
        self.marks.retain(|mark| not_before_ns <= mark.read_ns.saturating_add(settle_ns));
        let is_old = |mark: &Mark| mark.read_ns.saturating_add(settle_ns) <= asked_ns;
        let newest = self.marks.iter().rposition(is_old)?;
        self.marks.drain(..=newest).next_back()
    }

    /// A snapshot that was taken after `looked_ns`, and was read by `read_ns`; nothing was unsent then.
    fn mark(&mut self, looked_ns: u64, read_ns: u64, snapshot: Snapshot) {
        if self.marks.len() < MARKS {
            let since_ns = if snapshot.is_cut { self.fewer_ns } else { looked_ns };
            self.marks.push_back(Mark { read_ns, since_ns, snapshot });
        }
    }

    /// The mark's mutations are released.
    fn released(&mut self, mark: &Mark) {
        self.oldest_ns = self.oldest_ns.map(|_| mark.since_ns);
    }
}

impl Cache {
    /// For how long the slots of mutations beyond a ring wait that have come just now.
    fn far_ns(&self) -> u64 {
        FAR_NS + 2 * self.state.get(state::SETTLE)
    }

    /// Whether there are connections that are still to be looked at.
    pub(super) fn is_proving(&self) -> bool {
        self.unanswered.look.is_some()
    }

    /// Begins a look at what memcached may not have executed, unless one is being made.
    pub(super) fn begin_proof(&mut self, now: u64) -> Result<(), KvError> {
        if self.unanswered.look.is_some() {
            return Ok(());
        }
        let action = "cannot look at connections";
        let count = |at: u32| self.object.sum("kv_counts", at).map_err(system(action));
        // Before the connections: the programs count a mutation behind all else that they do for it.
        let counted = count(TCP_MUTATION)?.wrapping_add(count(FLUSH)?);
        let same = std::mem::replace(&mut self.unanswered.counted, counted) == counted;
        if self.unanswered.looked_ns != 0 && same && self.unanswered.records.is_empty() {
            self.unanswered.looked_ns = now;
            self.state.set(state::SURE, now.saturating_add(self.far_ns()));
            return Ok(());
        }
        let table = self.object.table::<Tuple, Conn>("kv_conns").map_err(system(action))?;
        let keys = table.keys().map_err(system(action))?;
        let known: HashSet<&Tuple> = keys.iter().collect();
        self.unanswered.records.retain(|tuple, _| known.contains(tuple));
        self.unanswered.look = Some(Steps { begun_ns: now, keys, executed: Vec::new() });
        Ok(())
    }

    /// Goes on with it, by one step: releases what memcached has executed, and says at the end how long the slots of all that it may not have are sure to wait. Until
    /// then what was said by the look before holds: it counted on nothing that is younger than its own beginning.
    pub(super) fn prove(&mut self) -> Result<(), KvError> {
        let action = "cannot look at connections";
        let Some(mut look) = self.unanswered.look.take() else { return Ok(()) };
        let before_ns = self.unanswered.looked_ns;
        let step = look.keys.split_off(look.keys.len().saturating_sub(STEP));
        let left = self.left(&step).map_err(system(action))?;
        let there: HashMap<Tuple, u64> = left.iter().map(|left| (left.tuple, left.opened_ns)).collect();
        let Unanswered { records, .. } = &mut self.unanswered;
        for tuple in &step {
            if records.get(tuple).is_some_and(|record| there.get(tuple) != Some(&record.opened_ns)) {
                records.remove(tuple);
            }
        }
        for left in &left {
            let record = records.entry(left.tuple).or_insert_with(|| Record::new(left, before_ns));
            record.look(left, before_ns);
        }
        look.executed.extend(self.executed(look.begun_ns, &left));
        if look.keys.is_empty() {
            self.finish(look)
        } else {
            self.unanswered.look = Some(look);
            Ok(())
        }
    }

    /// All have been looked at.
    fn finish(&mut self, look: Steps) -> Result<(), KvError> {
        let action = "cannot look at connections";
        let (mut executed, looked_ns) = (look.executed, look.begun_ns);
        self.unanswered.looked_ns = looked_ns;
        // Time does not say how much there was to do before it: memcached does.
        if !executed.is_empty() {
            let rests = self.at_rest().unwrap_or_default();
            executed.retain(|(tuple, _)| rests.get(&ends(tuple).0) == Some(&true));
        }
        for (tuple, mark) in executed {
            let Some(record) = self.unanswered.records.get_mut(&tuple) else { continue };
            let frame = frame(&tuple, record.opened_ns, &mark.snapshot);
            // 0: it is gone, or its answers are just being read: there will be another mark.
            if self.object.run_egress(READ, &frame).map_err(system(action))? == 1 {
                record.released(&mark);
            }
        }
        let oldest = self.unanswered.records.values().filter_map(|record| record.oldest_ns);
        let oldest_ns = oldest.fold(looked_ns, u64::min);
        self.state.set(state::SURE, oldest_ns.saturating_add(self.far_ns()));
        Ok(())
    }

    /// Clients that memcached has connections of, and whether all that it has read of them is executed. `None`: it does not say.
    pub(super) fn at_rest(&mut self) -> Option<HashMap<SocketAddr, bool>> {
        let asker = self.server.as_mut().and_then(|server| server.asker.as_mut())?;
        let said = asker.at_rest();
        if said.is_err() {
            self.lost();
        }
        said.ok()
    }

    /// Those of these connections that have mutations that may not be executed.
    fn left(&mut self, step: &[Tuple]) -> io::Result<Vec<Left>> {
        let table = self.object.table::<Tuple, Conn>("kv_conns")?;
        let mut all = Vec::new();
        for tuple in step.iter().copied() {
            let Some(value) = table.get(&tuple)? else { continue };
            let is_beyond = value[conn::BEYOND_IN] != value[conn::BEYOND_OUT];
            if !is_beyond
                && value[conn::HEAD] == value[conn::TAIL]
                && value[conn::OVERFLOW_IN] == value[conn::OVERFLOW_OUT]
            {
                continue;
            }
            // A program may be at work on it while it is copied: what is the same three times is of one moment.
            let (two, three) = (table.get(&tuple)?, table.get(&tuple)?);
            let is_same = |other: &Option<Conn>| other.as_ref().is_some_and(|other| is_same(&value, other));
            let snapshot =
                if is_same(&two) && is_same(&three) { three.as_ref().and_then(Snapshot::of) } else { None };
            let beyond = value[conn::BEYOND_IN];
            let (interface, opened_ns) = (value[conn::INTERFACE], opened_ns(&value));
            all.push(Left { tuple, interface, opened_ns, beyond, is_beyond, snapshot });
        }
        Ok(all)
    }

    /// What memcached has executed of them, by what the kernel says; and marks for later.
    fn executed(&mut self, looked_ns: u64, left: &[Left]) -> Vec<(Tuple, Mark)> {
        let (settle_ns, not_before_ns) = (self.state.get(state::SETTLE), self.state.get(state::NOT_BEFORE));
        let Unanswered { records, diag, is_told, .. } = &mut self.unanswered;
        let server = self.server.as_ref().filter(|_| !self.unasked && !self.is_shared);
        if diag.is_none() {
            *diag = Diag::open().ok();
        }
        let (Some(server), Some(diag)) = (server, diag) else {
            records.values_mut().for_each(|record| record.marks.clear());
            return Vec::new();
        };
        // Looked for only where there is something to release.
        let mut held: Option<HashSet<u64>> = None;
        let mut executed = Vec::new();
        for left in left {
            let Some(record) = records.get_mut(&left.tuple) else { continue };
            let asked_ns = now_ns();
            let (socket, is_read) = match questions(diag, left, self.options.port) {
                Ok(Some(said)) => said,
                other => {
                    if let (Err(error), false) = (other, *is_told) {
                        *is_told = true;
                        self.notes.push(format!(
                            "the kernel does not say what memcached has read (sock_diag: {error}): who writes without answers keeps keys from being admitted"
                        ));
                    }
                    record.marks.clear();
                    continue;
                }
            };
            if let Some(mark) = record.weigh(asked_ns, &socket, settle_ns, not_before_ns) {
                let held = held.get_or_insert_with(|| machine::memcached_sockets(server.pid));
                if held.contains(&u64::from(socket.inode)) {
                    executed.push((left.tuple, mark));
                }
            }
            if let Some(snapshot) = left.snapshot
                && is_read
                && socket.unsent == 0
            {
                record.mark(looked_ns, now_ns(), snapshot);
            }
        }
        executed
    }
}

/// What the kernel says at last of a connection's socket, and whether its program has read what was there when the snapshot was taken. `None`: there is no such
/// socket here that is open.
fn questions(diag: &mut Diag, left: &Left, port: u16) -> io::Result<Option<(Socket, bool)>> {
    let Some(mut before) = diag.ask(&left.tuple, port, left.interface)? else { return Ok(None) };
    for _ in 0..QUESTIONS {
        let Some(socket) = diag.ask(&left.tuple, port, left.interface)? else { return Ok(None) };
        if socket.cookie != before.cookie || ![ESTABLISHED, CLOSE_WAIT].contains(&socket.state) {
            return Ok(None);
        }
        // What had come by the question before is read but for what is unread now.
        let is_read = left.snapshot.is_some_and(|snapshot| snapshot.is_read(before.received, &socket));
        if is_read || left.snapshot.is_none() {
            return Ok(Some((socket, is_read)));
        }
        before = socket;
    }
    Ok(Some((before, false)))
}

/// Whether two copies have the same in all that a snapshot is made of.
fn is_same(one: &Conn, other: &Conn) -> bool {
    const WORDS: [usize; 12] = [
        conn::BUSY,
        conn::BLIND,
        conn::DEAF,
        conn::ASKED,
        conn::META_QUIET,
        conn::MG_QUIET,
        conn::HEAD,
        conn::OVERFLOW_IN,
        conn::FIRST,
        conn::BEYOND_IN,
        conn::OPENED,
        conn::OPENED + 1,
    ];
    one[conn::REQUESTS] == other[conn::REQUESTS] && WORDS.iter().all(|at| one[*at] == other[*at])
}

/// `struct seen` of bpf/kv_replies.h, behind an Ethernet header.
fn frame(tuple: &Tuple, opened_ns: u64, snapshot: &Snapshot) -> Vec<u8> {
    let mut frame = vec![0; 14];
    tuple.iter().for_each(|word| frame.extend(word.to_ne_bytes()));
    frame.extend(opened_ns.to_ne_bytes());
    for word in [snapshot.head, snapshot.overflow, snapshot.beyond, 0] {
        frame.extend(word.to_ne_bytes());
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn left(beyond: u32, is_beyond: bool) -> Left {
        Left { tuple: Tuple::default(), interface: 0, opened_ns: 1, beyond, is_beyond, snapshot: None }
    }

    fn snapshot(next: u32) -> Snapshot {
        Snapshot { first: 100, next, head: next, overflow: 0, beyond: 0, is_cut: false }
    }

    fn socket(acknowledged: u64) -> Socket {
        Socket { state: 1, cookie: 9, inode: 3, unread: 0, unsent: 0, acknowledged, received: 50 }
    }

    #[test]
    fn a_mark_counts_once_it_has_had_its_time_and_nothing_was_said() {
        let mut record = Record::new(&left(0, false), 0);
        assert_eq!(record.weigh(10 * SECOND, &socket(7), SECOND, 0), None);
        for at in [10, 11, 12] {
            record.mark(at * SECOND, at * SECOND + 5, snapshot(at as u32));
        }
        assert_eq!(record.weigh(11 * SECOND + 4, &socket(7), SECOND, 0), None, "not yet");
        // The newest of those that are old enough, and those before go with it.
        let mark = record.weigh(12 * SECOND + 5, &socket(7), SECOND, 0);
        assert_eq!(mark.map(|mark| mark.snapshot.head), Some(11));
        assert_eq!(record.marks.len(), 1);
        // memcached has said something, or has something to say.
        assert_eq!(record.weigh(20 * SECOND, &socket(8), SECOND, 0), None);
        record.mark(20 * SECOND, 20 * SECOND, snapshot(1));
        assert_eq!(record.weigh(30 * SECOND, &Socket { unsent: 1, ..socket(8) }, SECOND, 0), None);
        record.mark(20 * SECOND, 20 * SECOND, snapshot(1));
        assert_eq!(record.weigh(30 * SECOND, &Socket { cookie: 8, ..socket(8) }, SECOND, 0), None, "another");
        // It was slow a moment after the mark.
        assert_eq!(record.weigh(30 * SECOND, &socket(8), SECOND, 0), None);
        record.mark(20 * SECOND, 20 * SECOND, snapshot(1));
        assert_eq!(record.weigh(30 * SECOND, &socket(8), SECOND, 21 * SECOND + 1), None);
        record.mark(20 * SECOND, 20 * SECOND, snapshot(1));
        assert!(record.weigh(30 * SECOND, &socket(8), SECOND, 21 * SECOND).is_some(), "before it");
        // Bounded.
        (0..1000).for_each(|at| record.mark(at, at, snapshot(1)));
        assert_eq!(record.marks.len(), MARKS);
    }

    #[test]
    fn what_may_not_be_executed_is_never_taken_for_younger_than_it_is() {
        let mut record = Record::new(&left(0, false), 5);
        record.look(&left(0, false), 5);
        assert_eq!(record.oldest_ns, None);
        record.look(&left(3, true), 6);
        record.look(&left(4, true), 7);
        assert_eq!(record.oldest_ns, Some(6));
        // A mark of all, after which more have come.
        record.mark(8, 9, snapshot(1));
        let mark = record.marks[0];
        record.released(&mark);
        assert_eq!(record.oldest_ns, Some(8));
        // One whose last is not whole: that is as old as the look before it was seen.
        record.look(&left(5, true), 10);
        record.look(&left(5, true), 11);
        record.mark(12, 13, Snapshot { is_cut: true, ..snapshot(1) });
        let mark = record.marks[1];
        record.released(&mark);
        assert_eq!(record.oldest_ns, Some(10));
        record.look(&left(5, false), 14);
        assert_eq!(record.oldest_ns, None);
    }

    #[test]
    fn a_snapshot_is_read_when_nothing_of_it_is_unread() {
        // 50 bytes have come from 100 on.
        assert!(snapshot(150).is_read(50, &socket(0)));
        assert!(!snapshot(151).is_read(50, &socket(0)), "one has not come");
        assert!(!snapshot(150).is_read(50, &Socket { unread: 1, ..socket(0) }));
        assert!(snapshot(140).is_read(50, &Socket { unread: 10, ..socket(0) }), "what is unread came later");
        // Numbers begin again after 2^32.
        let late = Snapshot { first: 0xffff_fff0, ..snapshot(4) };
        assert!(late.is_read(20, &socket(0)) && late.is_read(0x1_0000_0014, &socket(0)));
        assert!(!late.is_read(19, &socket(0)));
    }

    #[test]
    fn which_commands_are_whole() {
        let mut value: Conn = [0; conn::WORDS];
        (value[conn::HEAD], value[conn::BEYOND_IN], value[conn::OVERFLOW_IN]) = (128, 5, 0);
        let at = |value: &Conn, phase: u32, command: u32| {
            let mut value = *value;
            (value[conn::PHASE], value[conn::COMMAND]) = (phase << 16, command << 8);
            Snapshot::of(&value).map(|snapshot| (snapshot.head, snapshot.beyond, snapshot.overflow))
        };
        for phase in [0, 1, 2, 3, 7, 8, 9] {
            assert_eq!(at(&value, phase, 4), Some((128, 5, 0)), "{phase}");
        }
        for phase in [4, 5, 6] {
            assert_eq!(at(&value, phase, 4), Some((127, 4, u32::MAX)), "in a value: {phase}");
        }
        assert_eq!(at(&value, 1, GAT), None);
        assert_eq!(at(&value, 10, 0), None, "lost");
        for (word, what) in [(conn::BUSY, 1), (conn::BLIND, 2), (conn::DEAF, 1), (conn::ASKED, 1)] {
            let mut value = value;
            value[word] = what;
            assert_eq!(at(&value, 0, 0), None, "{word}");
        }
        // Answers that are not counted: memcached says that none is left.
        for quiet in [conn::META_QUIET, conn::MG_QUIET] {
            let mut value = value;
            (value[conn::ASKED], value[conn::ANSWERED], value[quiet]) = (7, 5, 3);
            assert_eq!(at(&value, 0, 0), Some((128, 5, 0)));
            assert_eq!(at(&value, 4, 0), Some((127, 4, u32::MAX)));
        }
        let mut other = value;
        // Answers go on meanwhile.
        other[conn::ANSWERED] = 3;
        assert!(is_same(&value, &other));
        other[conn::HEAD] = 130;
        assert!(!is_same(&value, &other));
    }
}
