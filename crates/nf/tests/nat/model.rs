//! NAT beside a model that is obviously right: lists that are walked from end to end. Random packets, both ways, and random time.
//!
//! What the model cannot know, a new mapping's outside endpoint, it takes from the NAT, and holds it to the rules: an address of the pool,
//! the host's own where it has one, a port of the right half that nobody has. Everything else must be as the model says.

use crate::packets::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use tidemill_burst::DropReason;
use tidemill_nf::nat::config::{Filtering, Pooling};
use tidemill_nf::nat::{Endpoint, Fate, Proto, Way};

#[derive(Debug, Clone)]
struct Session<A> {
    remote: Endpoint<A>,
    until_ms: u64,
    /// Seen from inside and from outside: SYN, FIN; and a reset.
    syn: [bool; 2],
    fin: [bool; 2],
    reset: bool,
    picked_up: bool,
    /// Opened from outside by one of whom only SYNs have come.
    unproven: bool,
    begun_outside: bool,
    /// Begun outside, and the handshake has gone both ways.
    answered: bool,
    packets: u32,
    /// Which of all that ever were it is.
    number: u64,
}

impl<A> Session<A> {
    /// Whether it keeps its mapping, and opens the filter.
    fn keeps(&self) -> bool {
        !self.begun_outside || self.answered
    }
}

#[derive(Debug, Clone)]
struct Mapping<A> {
    proto: Proto,
    inside: Endpoint<A>,
    outside: Endpoint<A>,
    is_static: bool,
    sessions: Vec<Session<A>>,
}

impl<A> Mapping<A> {
    fn is_kept(&self) -> bool {
        self.sessions.iter().any(Session::keeps)
    }
}

#[derive(Debug, Clone, Copy)]
enum Packet {
    Tcp(u8),
    Udp,
    Request,
    Reply,
}

impl Packet {
    fn proto(self) -> Proto {
        match self {
            Packet::Tcp(_) => Proto::Tcp,
            Packet::Udp => Proto::Udp,
            Packet::Request | Packet::Reply => Proto::Icmp,
        }
    }
}

struct Model<A> {
    mappings: Vec<Mapping<A>>,
    filtering: Filtering,
    pooling: Pooling,
    ports: (u16, u16),
    host_mappings: usize,
    host_sessions: usize,
    source_sessions: usize,
    room: (usize, usize),
    /// Connections from outside by number, in the order in which they have come.
    waiting: VecDeque<u64>,
    begun: u64,
    refresh: bool,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected<A> {
    /// It passes, with this other end.
    Passes(Endpoint<A>),
    /// It passes by a new mapping.
    New,
    Dropped(DropReason),
}

/// What an address outside is counted by.
fn source<A: Into<u128>>(address: A) -> u128 {
    let bits: u128 = address.into();
    if bits > u32::MAX.into() { bits >> 64 } else { bits }
}

impl<A: Copy + Eq + std::fmt::Debug + Into<u128>> Model<A> {
    fn forget(&mut self, now_ms: u64) {
        for mapping in &mut self.mappings {
            mapping.sessions.retain(|session| session.until_ms > now_ms);
        }
        self.tidy(None);
    }

    /// Mappings without a session go; but not this one yet.
    fn tidy(&mut self, but: Option<(Proto, Endpoint<A>)>) {
        self.mappings.retain(|m| m.is_static || !m.sessions.is_empty() || but == Some((m.proto, m.outside)));
    }

    fn sessions(&self) -> usize {
        self.mappings.iter().map(|mapping| mapping.sessions.len()).sum()
    }

    fn all(&self) -> impl Iterator<Item = (&Mapping<A>, &Session<A>)> {
        self.mappings
            .iter()
            .flat_map(|mapping| mapping.sessions.iter().map(move |session| (mapping, session)))
    }

    /// The oldest connection that waits for an answer goes, if it still does.
    fn give_way(&mut self, but: Option<(Proto, Endpoint<A>)>) -> bool {
        let Some(oldest) = self.waiting.pop_front() else { return false };
        for mapping in &mut self.mappings {
            mapping.sessions.retain(|session| session.number != oldest || session.answered);
        }
        self.tidy(but);
        true
    }

    /// A connection waits behind all others; the oldest goes if there is no room for it.
    fn wait(&mut self, number: u64, mapping: (Proto, Endpoint<A>)) {
        if self.waiting.len() >= self.room.1.div_ceil(8) {
            self.give_way(Some(mapping));
        }
        self.waiting.push_back(number);
    }

    fn make_room(&mut self, but: Option<(Proto, Endpoint<A>)>) -> bool {
        for _ in 0..16 {
            if self.sessions() < self.room.1 || !self.give_way(but) {
                break;
            }
        }
        self.sessions() < self.room.1
    }

    /// Whether the host may begin another session; and whether it may keep another mapping, if it has to.
    fn may_begin(&self, host: A, keeps_more: bool) -> Result<(), DropReason> {
        let begun = self.all().filter(|(m, session)| m.inside.address == host && !session.begun_outside);
        if begun.count() >= self.host_sessions {
            return Err(DropReason::NatHostSessions);
        }
        if keeps_more && self.kept_of(host) >= self.host_mappings {
            return Err(DropReason::NatHostLimit);
        }
        Ok(())
    }

    fn kept_of(&self, host: A) -> usize {
        self.mappings.iter().filter(|m| m.inside.address == host && !m.is_static && m.is_kept()).count()
    }

    /// Whether one more connection from outside may be answered.
    fn may_answer(&self, mapping: (Proto, Endpoint<A>), address: A) -> Result<(), DropReason> {
        let answered = || self.all().filter(|(_, session)| session.answered);
        let room = self.room.1.div_ceil(4);
        let of_mapping = answered().filter(|(m, _)| (m.proto, m.outside) == mapping).count();
        if answered().count() >= room || of_mapping >= (3 * room).div_ceil(4) {
            return Err(DropReason::NatTableFull);
        }
        let of_source = answered().filter(|(_, session)| source(session.remote.address) == source(address));
        if of_source.count() >= self.source_sessions {
            return Err(DropReason::NatSourceLimit);
        }
        Ok(())
    }

    /// `is_kept`: who is outside keeps it, too, whatever those inside say.
    fn note(
        session: &mut Session<A>,
        now_ms: u64,
        packet: Packet,
        out: bool,
        inbound_refresh: bool,
        is_kept: bool,
        may_answer: Result<(), DropReason>,
    ) -> Result<(), DropReason> {
        let whole = session.clone();
        let times = times();
        let side = usize::from(!out);
        let over = session.reset || session.fin == [true; 2];
        let keeps = is_kept || out || session.packets == 0 || (session.syn[0] && !over);
        let before = session.until_ms;
        match packet {
            Packet::Tcp(flags) if !keeps && over && flags & (SYN | ACK | RST) != SYN => {}
            Packet::Tcp(flags) if flags & RST != 0 => {
                session.reset = true;
                session.until_ms = if keeps { now_ms + times.transitory_ms } else { before };
            }
            Packet::Tcp(flags) => {
                if over && flags & (SYN | ACK) == SYN {
                    (session.syn, session.fin, session.picked_up) = ([false; 2], [false; 2], false);
                    session.unproven = false;
                }
                session.reset = false;
                let fresh = session.syn == [false; 2] && session.fin == [false; 2];
                if fresh && !session.picked_up && flags & SYN == 0 {
                    session.picked_up = true;
                }
                // A caller's handshake ends with a segment that acknowledges and is no SYN.
                if !out && flags & (SYN | ACK) == ACK {
                    session.unproven = false;
                } else if !out && flags & SYN != 0 {
                    session.unproven |= fresh && !session.picked_up;
                }
                session.syn[side] |= flags & SYN != 0 || session.picked_up;
                session.fin[side] |= flags & FIN != 0;
                let is_over = session.fin == [true; 2];
                if session.begun_outside
                    && !session.answered
                    && session.syn[0]
                    && !is_over
                    && !session.unproven
                {
                    if let Err(reason) = may_answer {
                        *session = whole;
                        return Err(reason);
                    }
                    session.answered = true;
                }
                let open = session.syn == [true; 2] && session.fin != [true; 2] && !session.unproven;
                let time_ms = if open { times.established_ms } else { times.transitory_ms };
                session.until_ms = if keeps { now_ms + time_ms } else { before };
            }
            Packet::Udp if out || inbound_refresh || session.packets == 0 => {
                session.until_ms = now_ms + times.udp_ms;
            }
            Packet::Request => session.until_ms = now_ms + times.icmp_ms,
            Packet::Udp | Packet::Reply => {}
        }
        session.packets += 1;
        Ok(())
    }

    /// One whose first packet this is.
    fn begin(
        &mut self,
        now_ms: u64,
        remote: Endpoint<A>,
        packet: Packet,
        begun_outside: bool,
        is_static: bool,
        out: bool,
    ) -> Session<A> {
        self.begun += 1;
        let (syn, fin, number) = ([false; 2], [false; 2], self.begun);
        let (reset, picked_up, unproven, answered) = (false, false, false, false);
        let mut session = Session {
            remote,
            until_ms: 0,
            syn,
            fin,
            reset,
            picked_up,
            unproven,
            begun_outside,
            answered,
            packets: 0,
            number,
        };
        let noted = Self::note(&mut session, now_ms, packet, out, self.refresh, is_static, Ok(()));
        assert!(noted.is_ok() && !session.answered);
        session
    }

    fn leave(
        &mut self,
        now_ms: u64,
        inside: Endpoint<A>,
        remote: Endpoint<A>,
        packet: Packet,
    ) -> Expected<A> {
        let may_begin = match packet {
            Packet::Tcp(flags) => flags & (RST | FIN) == 0 && flags & (SYN | ACK) != SYN | ACK,
            Packet::Udp | Packet::Request => true,
            Packet::Reply => false,
        };
        let proto = packet.proto();
        let Some(at) = self.mappings.iter().position(|m| (m.proto, m.inside) == (proto, inside)) else {
            if !may_begin {
                return Expected::Dropped(DropReason::NatUnasked);
            }
            return match self.may_map(proto, inside) {
                Ok(()) => Expected::New,
                Err(reason) => Expected::Dropped(reason),
            };
        };
        let Mapping { outside, is_static, .. } = self.mappings[at];
        let mapping = (proto, outside);
        let is_kept = self.mappings[at].is_kept();
        let may_answer = self.may_answer(mapping, remote.address);
        let refresh = self.refresh;
        if let Some(session) = self.mappings[at].sessions.iter_mut().find(|session| session.remote == remote)
        {
            if let Err(reason) = Self::note(session, now_ms, packet, true, refresh, false, may_answer) {
                return Expected::Dropped(reason);
            }
            // What is reset from inside waits again, behind all others.
            let is_reset = matches!(packet, Packet::Tcp(flags) if flags & RST != 0);
            if session.answered && (is_reset || session.fin == [true; 2]) {
                self.wait_again(mapping, remote);
            }
            return Expected::Passes(outside);
        }
        // What a static mapping sends is as what comes to it: noted where there is room, and passes anyway.
        if is_static && proto == Proto::Udp {
            self.note_datagram(now_ms, mapping, remote, packet, true);
            return Expected::Passes(outside);
        }
        if !may_begin {
            return Expected::Dropped(DropReason::NatUnasked);
        }
        let may_begin = self.may_begin(inside.address, !is_static && !is_kept).and_then(|()| {
            if self.make_room(Some(mapping)) { Ok(()) } else { Err(DropReason::NatTableFull) }
        });
        match may_begin {
            Ok(()) => {
                let session = self.begin(now_ms, remote, packet, false, is_static, true);
                self.mapping(mapping).sessions.push(session);
                Expected::Passes(outside)
            }
            Err(reason) => {
                self.tidy(None);
                Expected::Dropped(reason)
            }
        }
    }

    /// One that was answered waits again, behind all others.
    fn wait_again(&mut self, mapping: (Proto, Endpoint<A>), remote: Endpoint<A>) {
        self.begun += 1;
        let number = self.begun;
        self.wait(number, mapping);
        let sessions = &mut self.mapping(mapping).sessions;
        let session = sessions.iter_mut().find(|session| session.remote == remote).unwrap();
        (session.answered, session.number) = (false, number);
    }

    /// A datagram to a static mapping, or from it (`out`), is noted where there is room.
    fn note_datagram(
        &mut self,
        now_ms: u64,
        mapping: (Proto, Endpoint<A>),
        remote: Endpoint<A>,
        packet: Packet,
        out: bool,
    ) {
        let noted = self.all().filter(|(m, session)| m.proto != Proto::Tcp && session.begun_outside);
        if noted.count() < self.room.1.div_ceil(8) && self.sessions() < self.room.1 {
            let session = self.begin(now_ms, remote, packet, true, true, out);
            self.mapping(mapping).sessions.push(session);
        }
    }

    fn mapping(&mut self, (proto, outside): (Proto, Endpoint<A>)) -> &mut Mapping<A> {
        let at = self.mappings.iter().position(|m| (m.proto, m.outside) == (proto, outside));
        &mut self.mappings[at.unwrap()]
    }

    /// Whether there is all that a new mapping needs.
    fn may_map(&mut self, proto: Proto, inside: Endpoint<A>) -> Result<(), DropReason> {
        if self.kept_of(inside.address) >= self.host_mappings {
            return Err(DropReason::NatHostLimit);
        }
        for _ in 0..16 {
            let is_anybodys = self.mappings.iter().any(|m| !m.is_static && !m.is_kept());
            if !is_anybodys || self.mappings.len() < self.room.0 || !self.give_way(None) {
                break;
            }
        }
        if self.mappings.len() >= self.room.0 {
            return Err(DropReason::NatTableFull);
        }
        if self.is_exhausted(proto, inside) {
            return Err(DropReason::NatPortsExhausted);
        }
        self.may_begin(inside.address, true)?;
        if self.make_room(None) { Ok(()) } else { Err(DropReason::NatTableFull) }
    }

    /// Whether no port is left for it: of its half first, and where that has none, above 1024.
    fn is_exhausted(&self, proto: Proto, inside: Endpoint<A>) -> bool {
        if proto == Proto::Icmp {
            return false;
        }
        let (first, last) = self.ports;
        let high = (first.max(1024)..=last).len();
        let low = if first > 1023 { 0 } else { (first..=last.min(1023)).len() };
        // A static mapping's address is its host's, too.
        let of_host = self.mappings.iter().find(|m| m.inside.address == inside.address);
        let taken = |address: Option<A>, is_low: bool| {
            let of = |m: &&Mapping<A>| {
                m.proto == proto
                    && (m.outside.port < 1024) == is_low
                    && (first..=last).contains(&m.outside.port)
                    && address.is_none_or(|address| m.outside.address == address)
            };
            self.mappings.iter().filter(of).count()
        };
        let (address, pool) = match of_host {
            Some(mapping) if self.pooling == Pooling::Paired => (Some(mapping.outside.address), 1),
            _ => (None, 2),
        };
        let full = |is_low: bool, size: usize| taken(address, is_low) >= size * pool;
        if inside.port < 1024 { full(true, low) && full(false, high) } else { full(false, high) }
    }

    /// A mapping that the NAT has made.
    fn learn(
        &mut self,
        now_ms: u64,
        inside: Endpoint<A>,
        outside: Endpoint<A>,
        remote: Endpoint<A>,
        packet: Packet,
    ) {
        let proto = packet.proto();
        assert!(
            !self.mappings.iter().any(|m| (m.proto, m.outside) == (proto, outside)),
            "{outside:?} is taken"
        );
        if proto != Proto::Icmp {
            assert!((self.ports.0..=self.ports.1).contains(&outside.port), "{outside:?}");
            assert!(inside.port < 1024 || outside.port >= 1024, "{inside:?} became {outside:?}");
        }
        if self.pooling == Pooling::Paired
            && let Some(other) = self.mappings.iter().find(|m| m.inside.address == inside.address)
        {
            assert_eq!(other.outside.address, outside.address, "{inside:?}");
        }
        let session = self.begin(now_ms, remote, packet, false, false, true);
        self.mappings.push(Mapping { proto, inside, outside, is_static: false, sessions: vec![session] });
    }

    fn enter(
        &mut self,
        now_ms: u64,
        outside: Endpoint<A>,
        remote: Endpoint<A>,
        packet: Packet,
    ) -> Expected<A> {
        let proto = packet.proto();
        let mapping = (proto, outside);
        let Some(at) = self.mappings.iter().position(|m| (m.proto, m.outside) == mapping) else {
            return Expected::Dropped(DropReason::NatUnmapped);
        };
        if matches!(packet, Packet::Request) {
            return Expected::Dropped(DropReason::NatUnmapped);
        }
        let may_answer = self.may_answer(mapping, remote.address);
        let refresh = self.refresh;
        let about = &mut self.mappings[at];
        let (inside, is_static) = (about.inside, about.is_static);
        if let Some(session) = about.sessions.iter_mut().find(|session| session.remote == remote) {
            if let Err(reason) = Self::note(session, now_ms, packet, false, refresh, is_static, may_answer) {
                return Expected::Dropped(reason);
            }
            // Both have hung up.
            if session.answered && session.fin == [true; 2] {
                self.wait_again(mapping, remote);
            }
            return Expected::Passes(inside);
        }
        if !is_static && !about.is_kept() {
            return Expected::Dropped(DropReason::NatUnmapped);
        }
        let allowed = is_static
            || match self.filtering {
                Filtering::EndpointIndependent => true,
                Filtering::AddressDependent => {
                    let opens =
                        |session: &Session<A>| session.keeps() && session.remote.address == remote.address;
                    about.sessions.iter().any(opens)
                }
                Filtering::AddressAndPortDependent => false,
            };
        if !allowed {
            return Expected::Dropped(DropReason::NatFiltered);
        }
        match packet {
            Packet::Tcp(flags) if flags & (SYN | ACK | RST | FIN) != SYN => {
                return Expected::Dropped(DropReason::NatUnasked);
            }
            Packet::Tcp(_) => {
                if !self.make_room(Some(mapping)) {
                    self.tidy(None);
                    return Expected::Dropped(DropReason::NatTableFull);
                }
                let session = self.begin(now_ms, remote, packet, true, is_static, false);
                self.wait(session.number, mapping);
                self.mapping(mapping).sessions.push(session);
            }
            // Noted where there is room; it passes anyway.
            Packet::Udp if is_static => self.note_datagram(now_ms, mapping, remote, packet, false),
            Packet::Udp | Packet::Reply | Packet::Request => {}
        }
        Expected::Passes(inside)
    }
}

fn packet_of<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    from: Endpoint<A>,
    to: Endpoint<A>,
    packet: Packet,
    ident: u16,
) -> Vec<u8> {
    match packet {
        Packet::Tcp(flags) => tcp(from, to, flags),
        Packet::Udp => udp(from, to, b"data"),
        Packet::Request => echo(from.address, to.address, ident, false),
        Packet::Reply => echo(from.address, to.address, ident, true),
    }
}

/// So many steps with this seed; which rules hold follows from it.
fn run<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(seed: u64, steps: u32) -> [u32; 4] {
    let mut random = StdRng::seed_from_u64(seed);
    let filterings =
        [Filtering::EndpointIndependent, Filtering::AddressDependent, Filtering::AddressAndPortDependent];
    let mut plan = plan::<A, E, S, T>(2);
    plan.filtering = filterings[(seed % 3) as usize];
    plan.pooling = if (seed / 3).is_multiple_of(2) { Pooling::Paired } else { Pooling::Arbitrary };
    plan.ports = if (seed / 6).is_multiple_of(2) { 1020..=1031 } else { 1..=u16::MAX };
    plan.host_mappings = random.random_range(3..20);
    (plan.host_sessions, plan.source_sessions) = (random.random_range(5..40), random.random_range(1..8));
    (plan.mappings, plan.sessions) = (random.random_range(8..40), random.random_range(10..60));
    let server = (Proto::Tcp, end(A::inside(1), 80), end(A::pool(1), 8080));
    let resolver = (Proto::Udp, end(A::inside(2), 53), end(A::pool(2), 5353));
    plan.fixed = vec![server, resolver];
    let refresh = random.random_bool(0.5);
    let statics = plan.fixed.iter().map(|(proto, inside, outside)| Mapping {
        proto: *proto,
        inside: *inside,
        outside: *outside,
        is_static: true,
        sessions: Vec::new(),
    });
    let mut model = Model {
        mappings: statics.collect(),
        filtering: plan.filtering,
        pooling: plan.pooling,
        ports: (*plan.ports.start(), *plan.ports.end()),
        host_mappings: plan.host_mappings as usize,
        host_sessions: plan.host_sessions as usize,
        source_sessions: plan.source_sessions as usize,
        room: (plan.mappings, plan.sessions),
        waiting: VecDeque::new(),
        begun: 0,
        refresh,
    };
    let mut lab = Lab::new(plan);
    lab.times.inbound_refresh = refresh;
    let mut seen = [0; 4];
    for step in 0..steps {
        let wait = [0, 0, 0, 1, 1000, 30_000, 60_000, 100_000, 240_000, 300_000, 7_440_000];
        lab.ms += wait[random.random_range(0..wait.len())] * u64::from(random.random_bool(0.05));
        model.forget(lab.ms);
        let packet = match random.random_range(0..10) {
            0..5 => {
                let flags = [SYN, SYN, SYN | ACK, ACK, ACK, ACK, FIN | ACK, RST, FIN, SYN | FIN];
                Packet::Tcp(flags[random.random_range(0..flags.len())])
            }
            5..8 => Packet::Udp,
            8 => Packet::Request,
            _ => Packet::Reply,
        };
        let is_icmp = packet.proto() == Proto::Icmp;
        let ports = [53, 80, 1023, 1024, 1025, 4000];
        let inside = end(A::inside(random.random_range(1..5)), ports[random.random_range(0..6)]);
        let port = if is_icmp { 0 } else { random.random_range(50..53) };
        let remote = end(A::remote(random.random_range(1..4)), port);
        let (expected, fate, other) = if random.random_bool(0.5) {
            let expected = model.leave(lab.ms, inside, remote, packet);
            let sent = packet_of::<A, E, S, T>(inside, remote, packet, inside.port);
            let (fate, got) = lab.send(Way::Leaving, &sent);
            (expected, fate, ends::<A, E, S, T>(&got).0)
        } else {
            // Mostly to what is mapped.
            let outside = match model.mappings.is_empty() || random.random_bool(0.2) {
                true => end(A::pool(random.random_range(1..3)), random.random_range(1000..1040)),
                false => model.mappings[random.random_range(0..model.mappings.len())].outside,
            };
            let expected = model.enter(lab.ms, outside, remote, packet);
            let sent = packet_of::<A, E, S, T>(remote, outside, packet, outside.port);
            let (fate, got) = lab.send(Way::ToPool, &sent);
            (expected, fate, ends::<A, E, S, T>(&got).1)
        };
        let said =
            format!("seed {seed}, step {step} at {}: {packet:?} inside {inside:?} remote {remote:?}", lab.ms);
        match (expected, fate) {
            (Expected::Passes(end), Fate::Translated) => {
                assert_eq!(other, end, "{said}");
                seen[0] += 1;
            }
            (Expected::New, Fate::Translated) => {
                model.learn(lab.ms, inside, other, remote, packet);
                seen[1] += 1;
            }
            (Expected::Dropped(reason), Fate::Drop(why) | Fate::Tell(why)) => {
                assert_eq!(reason, why, "{said}");
                let full = [
                    DropReason::NatTableFull,
                    DropReason::NatPortsExhausted,
                    DropReason::NatHostLimit,
                    DropReason::NatHostSessions,
                    DropReason::NatSourceLimit,
                ];
                seen[2 + usize::from(full.contains(&why))] += 1;
            }
            (expected, fate) => panic!("{said}: expected {expected:?}, got {fate:?}"),
        }
        assert_eq!(lab.nat.state().mappings(), model.mappings.len(), "{said}");
        assert_eq!(lab.nat.state().sessions(), model.sessions(), "{said}");
    }
    seen
}

#[test]
fn random_packets_and_time_as_the_model_has_it() {
    let mut seen = [0; 4];
    for seed in 0..24 {
        let (v4, v6) = (run::<u32, 1, 2, 4>(seed, 4000), run::<u128, 3, 5, 5>(seed + 1000, 1500));
        (0..4).for_each(|i| seen[i] += v4[i] + v6[i]);
    }
    // Passed, new, refused, nowhere to put: of all enough to mean something.
    assert!(seen.iter().all(|count| *count > 1000), "{seen:?}");
}

/// `cargo test --release -p tidemill-nf --test nat -- --ignored long`
#[test]
#[ignore = "a minute and more: with --release, before changes of the state machine are merged"]
fn long_random_walks() {
    for seed in 0..2000 {
        run::<u32, 1, 2, 4>(seed, 20_000);
        run::<u128, 3, 5, 5>(seed, 5000);
    }
}
