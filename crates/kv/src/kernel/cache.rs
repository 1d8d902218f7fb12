//! The programs on their interfaces, and the daemon's work in rounds ([`Cache::round`]).

use super::ask::{Asker, Counted};
use super::budget::Told;
use super::layout::{
    COUNTS, Conn, EGRESS, LAYOUT, LEASE_NS, MAX_KEY, MAX_VALUE, OPENED, READ, SCOPE, SHORT, SOURCE, Scope,
    Tuple, WAYS, entry, state, why,
};
use super::look::detach;
use super::places::{Missing, Place, index, pin_name};
use super::prove::Unanswered;
use super::reconcile::Gone;
use super::server::{Server, find, is_held, own};
use super::sizes::{fits, holds, is_broken, network_port, room, sets};
use super::state::{State, now_ns};
use super::unseen::Balance;
use super::values::{Hot, Token, Values};
use super::{KvError, Options};
use super::{allow::Who, machine};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tidemill_bpf::maps::{MapData, RingBuf};
use tidemill_bpf::{BpfError, Object, Pins};

const MS: u64 = 1_000_000;
/// How often connections are compared with the kernel's, and how often memcached is asked whether it works.
const RECONCILE_NS: u64 = 500 * MS;
const BEAT_NS: u64 = 100 * MS;
/// How long an answer may take before nothing is believed for a while.
const SLOW_NS: u64 = 500 * MS;
/// The program's clock may be as late as this: that of the kernel's last tick, where the processor that ticks may be away for some.
const TICK_NS: u64 = 100 * MS;
/// Hits are halved once in so many looks at connections: a minute.
const AGE: usize = 120;
/// Keys asked for at once.
const BATCH: usize = 64;
/// How long to wait where there is nothing to do, in the same two cases: a question costs memcached's processor more than what it asks for where it
/// is asked alone, and each round takes some of what may be its processor.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// After so long a value that had a second left is gone; memcached's clock counts seconds, and now and then two at once.
const SURELY_NS: u64 = 3000 * MS;
/// Values of which it is not known whether they end, at once.
const PERHAPS: usize = 4096;

/// What the daemon has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Daemon {
    /// Keys that memcached was asked for.
    pub asked: u64,
    /// Values that were admitted.
    pub admitted: u64,
    /// Times that memcached went.
    pub deaths: u64,
    /// Connections that memcached has taken, and that came by ways that are not seen.
    pub unseen: u64,
}

/// A cache in front of one memcached. It leaves its interfaces when this is dropped, unless [`Cache::leave`] is called.
pub struct Cache {
    pub(super) options: Options,
    pub(super) places: Vec<Place>,
    pub(super) missing: Vec<Missing>,
    /// An interface is there, and our programs are not on it: nothing is served.
    pub(super) uncovered: bool,
    /// Who may be answered; and what of it, and of our addresses, has found no room.
    pub(super) allowed: Who,
    pub(super) left_out: usize,
    /// What interfaces' addresses are known by, where that is not plain; and whether there are VRFs.
    pub(super) scopes: BTreeMap<u32, Scope>,
    pub(super) has_domains: bool,
    /// It was said whom is answered: what changes is news.
    pub(super) is_told_whom: bool,
    pub(super) server: Option<Server>,
    events: RingBuf<MapData>,
    pub(super) state: State,
    values: Values,
    pub(super) object: Object,
    pins: Option<Pins>,
    pub(super) daemon: Daemon,
    /// Whether memcached is still to be asked for a `flush_all` that waits: nothing is served before that.
    pub(super) unasked: bool,
    /// Connections that cannot be followed found no room in the table: nothing is served until they do.
    pub(super) crowded: bool,
    /// Another process has sockets on the port: who gets a datagram is not known.
    pub(super) is_shared: bool,
    /// Values that have no end or just a second left, and what they were seen under and when: which of the two shows later.
    perhaps_for_ever: HashMap<Vec<u8>, (u64, u64, u64)>,
    /// Keys that the programs have told as missed, and whether that is in vain.
    pub(super) told: Told,
    pub(super) gone: HashMap<Tuple, Gone>,
    /// Connections with mutations that no answer has shown to be executed.
    pub(super) unanswered: Unanswered,
    pub(super) reconciled_ns: u64,
    /// When the kernel's connections were looked through last.
    pub(super) walked_ns: u64,
    /// Connections that the programs saw opened, and memcached's count, at the last beat.
    counted: (u64, Counted),
    /// They have changed since the last look.
    pub(super) has_moved: bool,
    beaten_ns: u64,
    refreshed_ns: u64,
    /// Hot keys that are still to be asked for.
    refreshing: VecDeque<Vec<u8>>,
    /// Up to which entry all have aged.
    aged: usize,
    pub(super) notes: Vec<String>,
    /// Connections that the programs saw, against those that memcached took.
    balance: Balance,
    /// Connections of ours that came by a way that is not seen.
    own_unseen: u64,
    /// When one was last spoken of.
    unseen_told_ns: u64,
    /// Interfaces that are known to be there.
    interfaces: Vec<String>,
}

/// How often at most connections that were not seen are spoken of.
const UNSEEN_NS: u64 = 60_000 * MS;

/// How long connections that end are waited for when the programs are attached.
const LINGER: usize = 10;
const LINGER_STEP: Duration = Duration::from_millis(20);

impl Cache {
    /// Loads the programs, puts them on their interfaces, and finds memcached. What a process before has left is taken over. Values are
    /// served from the first [`Cache::round`] on.
    ///
    /// # Errors
    /// One line each: no memcached there, UDP is not on, rights are missing, the kernel is too old, another program is there.
    pub fn attach(options: &Options) -> Result<Self, KvError> {
        let mut places = Vec::new();
        for name in &options.interfaces {
            match index(name)? {
                // By its number: an interface may have two names.
                Some(index) if places.iter().any(|(_, other)| *other == index) => {}
                Some(index) => places.push((name.clone(), index)),
                None => {
                    return Err(KvError::Refused(format!("no interface {name:?} here: see ip link")));
                }
            }
        }
        if options.name.rsplit_once('-').is_some_and(|(_, end)| end.bytes().all(|byte| byte.is_ascii_digit()))
        {
            return Err(KvError::Refused(format!(
                "--name {:?}: one that ends in - and digits would be taken for an interface's: choose another",
                options.name
            )));
        }
        holds(options)?;
        let server = find(options)?;
        let mut is_next = fits(options)?;
        let is_broken = is_broken(options);
        if is_broken {
            detach(&options.pin_root, &options.name)?;
            is_next = false;
        }
        let pins = Pins::new(&options.pin_root, &options.name, LAYOUT)?;
        let mut cache = match Self::load(options, pins) {
            Ok(cache) => cache,
            Err(error) => {
                if !is_next {
                    // What cannot be removed now can be later, by `detach`.
                    let _ = Pins::remove(&options.pin_root, &options.name);
                }
                return Err(error);
            }
        };
        if is_broken {
            let text = "the process before was killed while it counted: its cache begins anew";
            cache.notes.push(text.to_owned());
        }
        match cache.begin(places, server) {
            Ok(()) => Ok(cache),
            Err(error) => {
                // What was taken over is the next one's to take over.
                if is_next {
                    cache.leave();
                }
                Err(error)
            }
        }
    }

    /// Programs and maps in the kernel, nowhere yet.
    fn load(options: &Options, pins: Pins) -> Result<Self, KvError> {
        let sets = sets(options.memory);
        let room = room(options);
        let slots = room[1].1 as usize;
        let mut object = Object::load(&SOURCE, &room, Some(&pins))?;
        object.load_egress(&SOURCE, EGRESS)?;
        object.load_egress(&SOURCE, READ)?;
        let map = object.mapped("kv_state", state::WORDS)?;
        let slot_words = object.mapped("kv_slots", 2 * slots)?;
        let value_words = object.mapped("kv_values", sets as usize * WAYS * entry::WORDS)?;
        let tag_words = object.mapped("kv_tags", sets as usize)?;
        let events = object.events("kv_events").map_err(system("cannot read the programs' events"))?;
        let state = State { map, slots: slot_words, slot_mask: slots as u64 - 1 };
        Ok(Cache {
            options: options.clone(),
            places: Vec::new(),
            missing: Vec::new(),
            uncovered: false,
            allowed: Who::new(),
            left_out: 0,
            scopes: BTreeMap::new(),
            has_domains: false,
            is_told_whom: false,
            server: None,
            events,
            state,
            values: Values::new(value_words, tag_words, sets),
            object,
            pins: Some(pins),
            daemon: Daemon::default(),
            told: Told::default(),
            unasked: true,
            crowded: false,
            is_shared: false,
            perhaps_for_ever: HashMap::new(),
            gone: HashMap::new(),
            unanswered: Unanswered::default(),
            reconciled_ns: 0,
            walked_ns: 0,
            counted: (0, Counted::default()),
            has_moved: true,
            beaten_ns: 0,
            refreshed_ns: now_ns(),
            refreshing: VecDeque::new(),
            aged: 0,
            notes: Vec::new(),
            balance: Balance::default(),
            own_unseen: 0,
            unseen_told_ns: 0,
            interfaces: machine::interfaces(),
        })
    }

    /// Puts the programs on their interfaces, in front of this memcached.
    fn begin(&mut self, places: Vec<(String, u32)>, server: (Server, u64)) -> Result<(), KvError> {
        self.configure();
        self.scope(&places)?;
        let (begun, mut is_gap) = (now_ns(), false);
        for (interface, index) in places {
            is_gap |= self.place(&interface, index, PATIENCE)?;
        }
        is_gap |= self.take_off_others()?;
        if is_gap {
            self.bridge(begun)?;
        }
        self.adopt(server);
        if self.options.reset_connections {
            machine::reset(self.options.port)
                .map_err(system("cannot reset connections (ss -K, package iproute2)"))?;
        }
        // Our own connection is older than the programs: one that they see from the start takes its place, or lo would be blind.
        self.lost();
        self.localize()?;
        // Connections that are just ending, such as ours and that of the process before, would be blind for as long as `settle`.
        for _ in 0..LINGER {
            if !self.has_strangers()? {
                break;
            }
            std::thread::sleep(LINGER_STEP);
        }
        self.reconcile(now_ns())
    }

    /// Tells the programs what they are to do; they only watch yet.
    fn configure(&mut self) {
        let state = &self.state;
        if state.get(state::SEED) == 0 {
            state.set(state::SEED, self.options.seed | 1);
            state.set(state::EPOCH, 1);
        }
        self.serve(false);
        state.set(state::SETTLE, self.options.settle.as_nanos() as u64);
        state.set(state::RATE, self.options.rate);
        // Half of a word counts them.
        state.set(state::RATE_TOTAL, self.options.rate_total.min(u64::from(u32::MAX / 2)));
        state.set(state::MASKS, state.slot_mask | (sets(self.options.memory) - 1) << 32);
        state.set(state::PORT, network_port(&self.options) | super::budget::EVENTS[0] << 32);
        self.tell();
    }

    pub(super) fn serve(&self, on: bool) {
        let word = self.state.get(state::PORT);
        self.state.set(state::PORT, if on { word | 1 << 16 } else { word & !(1 << 16) });
    }

    /// Says to whoever looks what this process has done, and why nothing is served.
    fn tell(&self) {
        let bits = [
            (self.server.is_none(), why::NO_SERVER),
            (self.server.is_some() && self.unasked, why::UNASKED),
            (self.crowded, why::CROWDED),
            (self.is_shared, why::SHARED),
            (self.uncovered, why::UNCOVERED),
        ];
        let bits = bits.iter().filter(|(is_so, _)| *is_so).fold(0, |all, (_, bit)| all | bit);
        let Daemon { asked, admitted, deaths, unseen } = self.daemon;
        let words = [
            (state::ASKED, asked),
            (state::ADMITTED, admitted),
            (state::DEATHS, deaths),
            (state::UNSEEN, unseen),
            (state::WHY, bits),
            (state::BEAT, now_ns()),
        ];
        words.iter().for_each(|(word, value)| self.state.set(*word, *value));
    }

    /// A memcached that was found: the same as before, or another one, of which nothing is known.
    fn adopt(&mut self, server: (Server, u64)) {
        let (server, identity) = server;
        if self.state.get(state::SERVER) != identity {
            self.state.set(state::SERVER, identity);
            self.state.void();
        }
        self.state.unsettle();
        self.server = Some(server);
        self.balance = Balance::default();
        self.has_moved = true;
        self.unasked = true;
        // It is asked, and its addresses are told, at once.
        (self.beaten_ns, self.reconciled_ns) = (0, 0);
    }

    /// Asks memcached for a `flush_all` that is still to come: somebody may have asked for it whom the programs have not seen, or not
    /// followed. False: there was no answer.
    fn flushes(&mut self) -> bool {
        // Before the question. The time first: whoever has raised it has said before that what he saw is under way.
        let (waits, is_settled) = (self.state.get(state::FLUSH_UNTIL), self.state.is_settled());
        let asker = self.server.as_mut().and_then(|server| server.asker.as_mut());
        let Some(Ok((seconds, counted))) = asker.map(Asker::flush_in) else {
            self.lost();
            return false;
        };
        self.weigh(counted);
        if let Some(server) = self.server.as_mut().filter(|server| !server.is_asked) {
            if !server.asker.as_ref().is_some_and(|asker| is_held(asker, server.pid)) {
                if !std::mem::replace(&mut server.is_told, true) {
                    self.notes.push(format!(
                        "what answers at {} is not process {}, which has port {}: nothing is served",
                        self.options.memcached, server.pid, self.options.port
                    ));
                }
                self.lost();
                return false;
            }
            (server.is_asked, server.is_told) = (true, false);
        }
        // None waits any more: it had its effect, another one has taken its place, or it went with the memcached before.
        if seconds == Some(0) && is_settled && waits > now_ns() && self.state.clear(state::FLUSH_UNTIL, waits)
        {
            self.state.void();
        }
        if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
            let settle = self.state.get(state::SETTLE);
            let until = seconds.saturating_add(2).saturating_mul(1000 * MS).saturating_add(settle);
            let until = now_ns().saturating_add(until);
            // What was admitted before it was known of goes with it.
            if until > self.state.get(state::FLUSH_UNTIL) {
                self.state.raise(state::FLUSH_UNTIL, until.saturating_add(1000 * MS));
                self.state.void();
            }
        }
        true
    }

    /// Whether memcached has taken connections that the programs have not seen. They may be over by now, before anybody has found them: what they
    /// have written is void, and what they may still have executed is waited for.
    fn weigh(&mut self, counted: Counted) {
        // Counted behind memcached's answer: what it has taken was opened before.
        let opened = self.object.sum("kv_counts", OPENED).unwrap_or_default();
        // What is not told may have changed.
        let is_told = counted.taken.is_some() && counted.open.is_some();
        self.has_moved |=
            !is_told || std::mem::replace(&mut self.counted, (opened, counted)) != (opened, counted);
        let Some(taken) = counted.taken else { return };
        let missing = self.balance.weigh(opened.wrapping_add(self.own_unseen), taken, now_ns());
        if missing == 0 {
            return;
        }
        self.state.unsettle();
        self.state.void();
        self.daemon.unseen += missing;
        let now = now_ns();
        if self.unseen_told_ns == 0 || now.saturating_sub(self.unseen_told_ns) >= UNSEEN_NS {
            self.unseen_told_ns = now;
            self.notes.push(format!(
                "memcached has taken {missing} connection(s) that were not seen: what is kept is void; attach to the interface that they come by ({} are not attached)",
                self.others().join(", ")
            ));
        }
    }

    /// Interfaces that the programs are not on.
    fn others(&self) -> Vec<String> {
        let named = |name: &String| !self.options.interfaces.contains(name);
        machine::interfaces().into_iter().filter(named).collect()
    }

    /// Interfaces that have come since the last look, and are not attached.
    fn look_for_interfaces(&mut self) {
        let (now, known) = (machine::interfaces(), &self.interfaces);
        let new = |name: &&String| !known.contains(name) && !self.options.interfaces.contains(name);
        let new: Vec<&str> = now.iter().filter(new).map(String::as_str).collect();
        if !new.is_empty() {
            let text = format!("{} has come: what reaches memcached by it is not seen", new.join(", "));
            self.notes.push(text);
        }
        self.interfaces = now;
    }

    /// One round: the lease, memcached's death, connections, missed keys. Says whether there was anything to do; if not, [`Cache::rest`].
    ///
    /// # Errors
    /// A map cannot be read or written: the cache serves nothing any more then.
    pub fn round(&mut self) -> Result<bool, KvError> {
        let now = now_ns();
        self.watch(now);
        self.come_back(now)?;
        if now.saturating_sub(self.reconciled_ns) >= RECONCILE_NS {
            self.reconciled_ns = now;
            self.still_there();
            self.look_for_interfaces();
            self.reconcile(now)?;
            self.begin_proof(now)?;
            self.sweep_udp(now)?;
            self.localize()?;
            self.budget();
            // Each entry once in so many looks.
            self.age(AGE);
        }
        self.prove()?;
        self.refresh(now);
        let alive =
            self.server.is_some() && !self.unasked && !self.crowded && !self.is_shared && !self.uncovered;
        self.tell();
        self.serve(alive);
        if alive {
            self.state.set(state::LEASE, now_ns() + LEASE_NS);
        }
        let worked = self.admit();
        // That it is in vain to be told of keys shows before the next look; that it is not any more does not.
        if self.told.round() {
            self.tell_budget();
        }
        Ok(worked)
    }

    /// Waits until there may be something to do: 1 ms, 50 where hardly a key that is missed can be cached, and not beyond memcached's death.
    pub fn rest(&self) {
        let pause = PAUSES[usize::from(self.told.is_vain && !self.is_proving())];
        let Some(server) = &self.server else { return std::thread::sleep(pause) };
        let mut fds = [PollFd::new(&server.watch, PollFlags::IN)];
        // A signal ends it early, which is as good.
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) }));
    }

    /// Whether memcached is still the one that it was.
    fn watch(&mut self, now: u64) {
        let died = self.server.as_ref().is_some_and(|server| {
            let mut fds = [PollFd::new(&server.watch, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
        });
        if died {
            self.serve(false);
            self.state.void();
            self.state.set(state::SERVER, 0);
            self.server = None;
            self.is_shared = false;
            self.state.set(state::INVALID, 0);
            self.daemon.deaths += 1;
            self.notes.push("memcached has ended: nothing is served until there is another one".to_owned());
        }
        if self.server.is_none()
            && now.saturating_sub(self.beaten_ns) >= BEAT_NS
            && let Ok((server, identity)) = find(&self.options)
        {
            self.notes.push(format!("memcached is process {} now", server.pid));
            self.notes.extend(server.unseen());
            self.notes.extend(server.untested());
            self.adopt((server, identity));
        }
        if now.saturating_sub(self.beaten_ns) < BEAT_NS {
            return;
        }
        self.beaten_ns = now;
        // Whether it answers, and what is still to come: it may have been asked for by ways that the programs do not see or follow. A flush takes
        // effect a second after it was asked for at the earliest, and `settle` is longer than a beat: what a connection that is not followed has
        // asked for is known when it is forgotten. Without an answer nothing is served.
        if self.server.is_some() {
            self.unasked = !self.flushes();
            if !self.unasked && now_ns().saturating_sub(now) > SLOW_NS {
                self.lost();
            }
        }
    }

    /// memcached did not answer, or late: no mutation is taken for executed by now. Another connection.
    pub(super) fn lost(&mut self) {
        self.state.unsettle();
        self.unasked = true;
        if let Some(server) = &mut self.server {
            server.asker = None;
            server.own = None;
            server.is_asked = false;
            if let Ok(asker) = Asker::connect(self.options.memcached) {
                server.own = own(&asker);
                server.asker = Some(asker);
                // Its SYN-ACK was seen or not by now.
                let table = self.object.table::<Tuple, Conn>("kv_conns");
                let is_seen = table.is_ok_and(|table| {
                    // In whichever scope: the kernel alone knows by which way it goes.
                    let scopes =
                        self.scopes.iter().flat_map(|(index, [link, domain])| [*index, *link, *domain]);
                    let scopes = scopes.chain(self.places.iter().map(|place| place.index)).chain([0]);
                    let keys = server.own.into_iter().flat_map(|own| {
                        scopes.clone().map(move |scope| {
                            let mut key = own;
                            key[SCOPE] = scope;
                            key
                        })
                    });
                    keys.into_iter().any(|key| table.get(&key).is_ok_and(|value| value.is_some()))
                });
                self.own_unseen += u64::from(!is_seen);
            }
        }
    }

    /// Asks for missed keys, and admits what may be.
    fn admit(&mut self) -> bool {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while keys.len() < BATCH
            && let Some(event) = self.events.next()
        {
            let length = event.first().copied().map_or(0, usize::from);
            if (1..=MAX_KEY).contains(&length)
                && let Some(key) = event.get(8..8 + length)
            {
                keys.push(key.to_vec());
            }
        }
        if keys.is_empty() {
            return false;
        }
        self.told.keys += keys.len() as u64;
        if self.unasked || self.is_shared {
            return true;
        }
        let Some(asker) = self.server.as_mut().and_then(|server| server.asker.as_mut()) else { return true };
        let asked: Vec<_> = keys.iter().filter_map(|key| Some((key, self.state.token(key)?))).collect();
        let wanted: Vec<&[u8]> = asked.iter().map(|(key, _)| key.as_slice()).collect();
        self.daemon.asked += wanted.len() as u64;
        let (begun, softly) = (now_ns(), self.state.get(state::INVALID) != 0);
        let answers = if softly { asker.ask_softly(&wanted) } else { asker.ask(&wanted) };
        if answers.is_err() || now_ns().saturating_sub(begun) > SLOW_NS {
            self.lost();
            return true;
        }
        for ((key, token), answer) in asked.iter().zip(answers.into_iter().flatten()) {
            let Some(answer) = answer else { continue };
            let expires_ns = match answer.remaining_s {
                None if softly && !self.is_for_ever(key, token) => continue,
                None => u64::MAX,
                // memcached counts whole seconds, and now and then two at once: it may be over by so much earlier than it says.
                Some(seconds) if seconds > 2 => token.asked_ns + (seconds - 2) * 1000 * MS - TICK_NS,
                Some(_) => continue,
            };
            if answer.value.len() > self.options.value_max.min(MAX_VALUE)
                || self.state.is_void(token.hash, token.word, token.epoch)
            {
                continue;
            }
            let is_void = |hash, word, epoch| self.state.is_void(hash, word, epoch);
            self.state.keeps(token.epoch);
            if self.values.store(key, &answer, token, expires_ns, is_void) {
                self.daemon.admitted += 1;
                self.told.admitted += 1;
            }
        }
        true
    }

    /// Of a value that has no end or just a second left: whether it was seen so long ago, and nobody has changed it, that it must have none.
    fn is_for_ever(&mut self, key: &[u8], token: &Token) -> bool {
        let now = now_ns();
        if self.perhaps_for_ever.len() >= PERHAPS && !self.perhaps_for_ever.contains_key(key) {
            // Those that have had their time and were not asked for again go; else this one waits.
            self.perhaps_for_ever.retain(|_, (_, _, at)| now.saturating_sub(*at) < 3 * SURELY_NS);
            if self.perhaps_for_ever.len() >= PERHAPS {
                return false;
            }
        }
        let seen = self.perhaps_for_ever.entry(key.to_vec()).or_insert((token.word, token.epoch, now));
        if (seen.0, seen.1) != (token.word, token.epoch) {
            *seen = (token.word, token.epoch, now);
        }
        token.asked_ns.saturating_sub(seen.2) >= SURELY_NS
    }

    /// Asks for the hottest keys, so that memcached does not take them for unused: so many at once that the rest of the work goes on.
    fn refresh(&mut self, now: u64) {
        let every = self.options.refresh_every.as_nanos() as u64;
        if self.options.refresh == 0 {
            return;
        }
        if self.refreshing.is_empty() {
            if now.saturating_sub(self.refreshed_ns) < every {
                return;
            }
            self.refreshed_ns = now;
            self.refreshing =
                self.hot(self.options.refresh as usize).into_iter().map(|hot| hot.key).collect();
        }
        let Some(asker) = self.server.as_mut().and_then(|server| server.asker.as_mut()) else { return };
        let keys: Vec<Vec<u8>> = self.refreshing.drain(..BATCH.min(self.refreshing.len())).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let softly = self.state.get(state::INVALID) != 0;
        let answers = if softly { asker.ask_softly(&keys) } else { asker.ask(&keys) };
        if answers.is_err() {
            self.lost();
        }
    }

    /// The most wanted keys that are served.
    pub fn hot(&self, limit: usize) -> Vec<Hot> {
        let now = now_ns();
        let is_true = |hash, word, epoch, end| end > now && !self.state.is_void(hash, word, epoch);
        self.values.hot(limit, is_true).1
    }

    /// Halves the hits of one of `parts` of what is kept: with 1 of all.
    pub fn age(&mut self, parts: usize) {
        self.aged = self.values.age(self.aged, parts);
    }

    /// Makes everything void.
    pub fn flush(&self) {
        self.state.void();
    }

    /// Mutations seen and outstanding under a key's slot.
    pub fn slot(&self, key: &[u8]) -> (u64, u64) {
        self.state.slot(key)
    }

    /// The number of connections that cannot be followed.
    pub fn blind(&self) -> u64 {
        self.state.get(state::BLIND)
    }

    /// What is counted, by name.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let [_, _, short] = self.object.sums("kv_told", 0).unwrap_or_default();
        let sum = |at: usize| {
            let more = if SHORT.contains(&at) { short } else { 0 };
            self.object.sum("kv_counts", at as u32).unwrap_or_default() + more
        };
        COUNTS.iter().enumerate().map(|(at, (name, _))| (*name, sum(at))).collect()
    }

    /// One of them.
    pub fn count(&self, name: &str) -> u64 {
        self.counts().into_iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| count)
    }

    /// What this process has done.
    pub fn daemon(&self) -> Daemon {
        self.daemon
    }

    /// The program, for tests that run it on frames.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// What there is to say at the start: where the programs are, whom they answer, and what they cannot see.
    pub fn describe(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        self.is_told_whom = true;
        lines.extend(self.places.iter().map(|place| place.describe(self.options.mode)));
        lines.extend(self.whom());
        let (sets, bytes) = (sets(self.options.memory), (entry::WORDS * 8 * WAYS) as u64);
        lines.push(format!(
            "room for {} values in {} MiB of {} (sets of {WAYS}, a power of two)",
            sets * WAYS as u64,
            (sets * bytes) >> 20,
            self.options.memory >> 20
        ));
        let others = self.others();
        if !others.is_empty() {
            lines.push(format!(
                "what reaches memcached by {} is not seen: attach there too, or let nothing write that way",
                others.join(", ")
            ));
        }
        if let Some(server) = &self.server {
            lines.extend(server.unseen());
            lines.push(format!("memcached is process {}, port {}", server.pid, self.options.port));
            lines.extend(server.untested());
        }
        match self.blind() {
            0 => {}
            1 => lines.push("1 connection was there before: nothing is served until it ends".to_owned()),
            many => {
                lines.push(format!("{many} connections were there before: nothing is served until they end"))
            }
        }
        lines
    }

    /// What has happened since this was asked last.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Ends this process's part, and leaves programs and maps: they go on watching, and the next process takes them over.
    pub fn leave(mut self) {
        self.serve(false);
        std::mem::take(&mut self.places).into_iter().for_each(Place::leave);
        if let Some(pins) = self.pins.take() {
            pins.leave();
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.serve(false);
        let Some(pins) = self.pins.take() else { return };
        let (root, name) = (self.options.pin_root.clone(), self.options.name.clone());
        let mut names = vec![name];
        for place in self.places.drain(..) {
            names.push(pin_name(&self.options.name, place.index));
        }
        drop(pins);
        for name in names {
            // What cannot be removed now can be later, by `detach`.
            let _ = Pins::remove(&root, &name);
        }
    }
}

/// Any socket: interfaces are asked for by one.
pub(super) fn interface_socket() -> Result<OwnedFd, KvError> {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(|error| system("cannot look at interfaces")(error.into()))
}

pub(super) fn system(action: &'static str) -> impl Fn(std::io::Error) -> KvError {
    move |source| KvError::Bpf(BpfError::System { action, source })
}
