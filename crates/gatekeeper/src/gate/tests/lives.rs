//! Lives of flows with versions, revocations and programs, against plain words: a map of flows, each with the version that it was decided by and a
//! cookie of its own.

use super::full::Flood;
use super::*;
use crate::decision::Cookie as Brought;
use crate::flow::Shown;
use tidemill_flowprog::shipped::{GRANTED, SHIPPED, WEB};
use tidemill_flowprog::{Context, Cookie, Program, Ruling};

/// A flow, plainly.
struct Life {
    state: FlowState,
    version: Option<u32>,
    program: Option<(u8, Cookie)>,
    last_s: u64,
}

/// Flows are pairs of numbers here, of which addresses are made.
struct World<A: Paired<W>, const W: usize> {
    flood: Flood<A, W>,
    address: fn(u32) -> A,
    lives: HashMap<(u32, u32), Life>,
    programs: Vec<Program>,
    /// For destinations up to the first, from which version on decisions stand.
    below: Vec<((u32, u32), u32)>,
    ns: u64,
}

const GRACE: u64 = SECOND / 10;

/// A packet of the address's family: TCP to a port, of 60 bytes of IPv4 or 80 of IPv6. An acknowledgement: not a SYN.
fn packet<A: Gated>(source: A, destination: A, port: u16) -> Vec<u8> {
    let (source, destination) = (source.to_u128().to_be_bytes(), destination.to_u128().to_be_bytes());
    let (mut ip, tcp) = if A::BITS == 32 {
        let mut ip = vec![0; 60];
        (ip[0], ip[3], ip[8], ip[9]) = (0x45, 60, 64, 6);
        ip[12..16].copy_from_slice(&source[12..]);
        ip[16..20].copy_from_slice(&destination[12..]);
        (ip, 20)
    } else {
        let mut ip = vec![0; 80];
        (ip[0], ip[5], ip[6], ip[7]) = (0x60, 40, 6, 64);
        ip[8..24].copy_from_slice(&source);
        ip[24..40].copy_from_slice(&destination);
        (ip, 40)
    };
    ip[tcp + 2..tcp + 4].copy_from_slice(&port.to_be_bytes());
    (ip[tcp + 12], ip[tcp + 13]) = (0x50, 0x10);
    ip
}

impl<A: Paired<W>, const W: usize> World<A, W> {
    fn new(address: fn(u32) -> A) -> Self {
        World {
            flood: Flood::new(4096, address(1)),
            address,
            lives: HashMap::new(),
            programs: SHIPPED.iter().map(|shipped| shipped.load().unwrap()).collect(),
            below: Vec::new(),
            ns: 1000 * SECOND,
        }
    }

    fn stands(&self, destination: u32, version: u32) -> bool {
        let about = |&&((first, last), _): &&((u32, u32), u32)| first <= destination && destination <= last;
        self.below.iter().filter(about).all(|(_, below)| version >= *below)
    }

    /// What plain words say about a packet.
    fn expected(&mut self, flow: (u32, u32), ip: &[u8]) -> Act {
        let ns = self.ns;
        let revoked = self
            .lives
            .get(&flow)
            .and_then(|life| life.version)
            .is_some_and(|version| !self.stands(flow.1, version));
        let life = self.lives.entry(flow).or_insert(Life {
            state: FlowState::default(),
            version: None,
            program: None,
            last_s: 0,
        });
        life.last_s = ns / SECOND;
        let mut ask = false;
        if revoked {
            life.version = None;
            ask = life.state.revoke(ns, GRACE);
        }
        let over = life.state.over(ns);
        let Some((number, cookie)) = life.program.as_mut().filter(|_| !over) else {
            if over {
                (life.program, life.version) = (None, None);
                life.state = life.state.forgotten();
            }
            return life.state.packet(ns, ip.len() as u32);
        };
        let context = Context::packet(ns, life.state.expires_ns(ns), ip);
        match self.programs[usize::from(*number)].packet(&context, cookie) {
            Ruling::Granted { .. } | Ruling::Renew if ask => Act::Granted { dscp: 2, direct: false },
            Ruling::Granted { direct } => Act::Granted { dscp: 1, direct },
            Ruling::Renew => Act::Granted { dscp: 2, direct: false },
            Ruling::Request { dscp } => Act::Request { dscp },
            Ruling::OverRate => Act::OverRate,
            Ruling::Declined | Ruling::Fault => Act::Declined,
        }
    }

    fn decide(&mut self, flow: (u32, u32), verdict: &Verdict, version: Option<u32>) {
        let by = version.map(|version| By { grantor: 0, version });
        let addresses = ((self.address)(flow.0), (self.address)(flow.1));
        let applied = self.flood.apply(self.ns, addresses, verdict, by);
        let counts = version.is_none_or(|version| self.stands(flow.1, version));
        let full = self.lives.values().filter(|life| life.program.is_some()).count() == 64;
        let Some(life) = self.lives.get_mut(&flow) else {
            assert_eq!(applied, Applied::Unknown);
            return;
        };
        if !counts {
            assert_eq!(applied, Applied::Revoked, "{version:?}");
            return;
        }
        let Verdict::Bpf { expire_s, program, cookie } = *verdict else {
            assert_eq!(applied, Applied::Done);
            life.state.decide(self.ns, verdict);
            (life.version, life.program) = (version, None);
            return;
        };
        let mut own = Cookie(*cookie.padded());
        let expires_ns = self.ns + u64::from(expire_s) * SECOND;
        let context = Context::decision(self.ns, expires_ns, cookie.bytes().len());
        let takes = self.programs.get(usize::from(program)).map(|p| p.init(&context, &mut own));
        match takes {
            None => assert_eq!(applied, Applied::Unsupported),
            // Whoever has a place needs no other.
            Some(true) if full && life.program.is_none() => assert_eq!(applied, Applied::Full),
            Some(true) => {
                assert_eq!(applied, Applied::Done);
                life.state.install(self.ns, expire_s, Installed { number: program, cookie: 0 });
                (life.version, life.program) = (version, Some((program, own)));
            }
            Some(false) => {
                assert_eq!(applied, Applied::NotTaken);
                life.state.decide(self.ns, &Verdict::Declined { expire_s });
                (life.version, life.program) = (version, None);
            }
        }
    }

    fn revoke(&mut self, to: Option<(u32, u32)>, below: u32) {
        let addresses = to.map(|(first, last)| ((self.address)(first), (self.address)(last)));
        let revocation = Revocation { below: By { grantor: 0, version: below }, to: addresses };
        self.flood.gate.withdraw(self.ns, &revocation).unwrap();
        self.below.push((to.unwrap_or((0, u32::MAX)), below));
    }

    fn reclaim(&mut self, idle_s: u64) {
        let before = self.flood.gate.len();
        let gone = self.flood.reclaim(self.ns, idle_s * SECOND, 1 << 20);
        let (ns, below) = (self.ns, std::mem::take(&mut self.below));
        self.below = below;
        let dead: Vec<(u32, u32)> = self
            .lives
            .iter()
            .filter(|(flow, life)| {
                let silent = ns / SECOND - life.last_s > idle_s;
                let fallen = life.version.is_some_and(|version| !self.stands(flow.1, version));
                life.state.reclaimable(ns, idle_s * SECOND) || silent && fallen
            })
            .map(|(flow, _)| *flow)
            .collect();
        dead.iter().for_each(|flow| _ = self.lives.remove(flow));
        assert_eq!((gone, self.flood.gate.len()), (dead.len(), before - dead.len()));
    }
}

fn some_verdict(random: &mut StdRng) -> Verdict {
    if random.random_bool(0.5) {
        return verdict(random);
    }
    // Limits of 1 to 3 KiB/s; the last number is of no program.
    let rate = random.random_range(1_u32..4);
    let program = [GRANTED, 1, 2, WEB, 77][random.random_range(0..5)];
    let mut cookie = vec![];
    for word in [rate, 1, 10_000, 1000, 10_000, rate] {
        cookie.extend(word.to_le_bytes());
    }
    cookie.truncate(random.random_range(0..=6) * 4);
    Verdict::Bpf { expire_s: random.random_range(0..20), program, cookie: Brought::new(&cookie).unwrap() }
}

fn as_plain_words_say<A: Paired<W>, const W: usize>(address: fn(u32) -> A) {
    for (order, driver) in WAYS {
        let mut random = StdRng::seed_from_u64(5);
        let (mut world, mut version, mut acts) = (World::<A, W>::new(address), 1, HashMap::new());
        for round in 0..4000 {
            world.ns += random.random_range(0..SECOND / 5);
            let flows: Vec<(u32, u32)> = (0..random.random_range(1..40))
                .map(|_| (random.random_range(0..40), random.random_range(0..5)))
                .collect();
            let ips: Vec<Vec<u8>> = flows
                .iter()
                .map(|flow| {
                    let port = if random.random_bool(0.7) { 80 } else { 22 };
                    packet(address(flow.0), address(flow.1), port)
                })
                .collect();
            let seen: Vec<Seen<A>> = flows
                .iter()
                .zip(&ips)
                .map(|(flow, ip)| Seen {
                    source: address(flow.0),
                    destination: address(flow.1),
                    bytes: ip.len() as u32,
                })
                .collect();
            let before = world.flood.counters.get(Counter::FlowsRevoked);
            let fates = world.flood.judge_packets((order, driver), world.ns, &seen, &ips);
            *acts.entry("revoked").or_insert(0) += world.flood.counters.get(Counter::FlowsRevoked) - before;
            for ((flow, ip), fate) in flows.iter().zip(&ips).zip(&fates) {
                let act = world.expected(*flow, ip);
                assert_eq!(plain(*fate), Plain::from(act), "{order:?} {driver:?} {flow:?} in round {round}");
                *acts.entry(name(act)).or_insert(0) += 1;
            }
            for _ in 0..random.random_range(0..8) {
                let flow = (random.random_range(0..40), random.random_range(0..6));
                let by = match random.random_range(0..10) {
                    0 => None,
                    1 => Some((version - 1).max(1)),
                    _ => Some(version),
                };
                world.decide(flow, &some_verdict(&mut random), by);
            }
            if random.random_bool(0.01) && round > 20 {
                version += 1;
                // More at a time are widened to all destinations.
                let few = world.below.iter().filter(|(to, _)| to.1 != u32::MAX).count() < 16;
                let to = (few && random.random_bool(0.5)).then(|| {
                    let first = random.random_range(0..5);
                    (first, random.random_range(first..5))
                });
                world.revoke(to, version);
            }
            if random.random_bool(0.05) {
                world.reclaim(random.random_range(1..4));
            }
            let programs = world.lives.values().filter(|life| life.program.is_some()).count();
            assert_eq!(world.flood.gate.programs(), programs, "a place for each cookie, in round {round}");
        }
        for what in ["revoked", "declined", "rate", "granted", "renew", "request", "direct"] {
            assert!(acts.get(what).is_some_and(|n| *n > 50), "{what} of {acts:?}");
        }
        assert!(world.flood.counters.get(Counter::Programs) > 1000);
    }
}

#[test]
fn versions_revocations_and_programs_are_as_plain_words_say() {
    as_plain_words_say::<u32, 1>(|n| n);
    as_plain_words_say::<u128, 4>(|n| 0xfd00 << 112 | u128::from(n));
}

fn name(act: Act) -> &'static str {
    match act {
        Act::Request { .. } => "request",
        Act::Granted { direct: true, .. } => "direct",
        Act::Granted { dscp: 2, .. } => "renew",
        Act::Granted { .. } => "granted",
        Act::Declined => "declined",
        Act::OverRate => "rate",
    }
}

#[test]
fn what_was_granted_passes_while_it_is_asked_about_again() {
    let (mut gate, mut judge) = judge(100);
    let verdict =
        Verdict::Granted { rate_kib_s: 9000, expire_s: 99, renew_ms: 90_000, step_ms: 1000, direct: true };
    let by = |version| Some(By { grantor: 0, version });
    judge(&mut gate, SECOND, &[to(5), to(6)]);
    assert_eq!(apply(&mut gate, SECOND, (5, 7), &verdict, by(3)), Applied::Done);
    assert_eq!(apply(&mut gate, SECOND, (6, 7), &Verdict::Declined { expire_s: 99 }, by(3)), Applied::Done);
    let tag = |dscp| Tag { grantor: 0, dscp };
    assert_eq!(judge(&mut gate, SECOND, &[to(5), to(6)]), [Fate::Route, Fate::Declined]);
    gate.withdraw(SECOND, &Revocation { below: By { grantor: 0, version: 4 }, to: None }).unwrap();
    assert_eq!(
        apply(&mut gate, SECOND, (6, 7), &Verdict::Declined { expire_s: 99 }, by(3)),
        Applied::Revoked
    );
    // At once, without a gap: the grant asks and goes on as it was; the refusal is over.
    let fates = judge(&mut gate, SECOND, &[to(5), to(5), to(6)]);
    assert_eq!(fates[..2], [Fate::Granted(tag(2)), Fate::Route]);
    assert!(matches!(fates[2], Fate::Request(_)));
    // It passes in the grace, and asks again before that is over.
    let grace = judge(&mut gate, SECOND + SECOND / 20, &[to(5), to(5)]);
    assert_eq!(grace, [Fate::Granted(tag(2)), Fate::Route]);
    // No answer: it asks as a new one does. An answer by the new version: as before.
    let late = judge(&mut gate, SECOND + SECOND / 2, &[to(5)]);
    assert!(matches!(late[0], Fate::Request(_)), "{late:?}");
    assert_eq!(apply(&mut gate, 2 * SECOND, (5, 7), &verdict, by(4)), Applied::Done);
    assert_eq!(judge(&mut gate, 2 * SECOND, &[to(5)]), [Fate::Route]);
}

/// A program whose word means nothing: the packet is dropped as declined, and that is counted; the flow keeps its program.
#[test]
fn a_program_that_fails_declines_and_is_counted() {
    // r0 is so much; that is all.
    let says = |value: u8| [0xb7, 0, 0, 0, value, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    let fails = Program::from_code(&says(0), &says(65), "fails").unwrap();
    let mut gate: Gate<u32, 1> = Gate::new(&size(100), Catalog::of([fails])).unwrap();
    let domain = Domain::new();
    let reader = domain.register();
    let all = policy("0.0.0.0/0".parse().unwrap(), Action::Grantor, &[1]);
    let control = Policies::new(&domain, Action::Route, &[all], 0, Vec::new()).unwrap();
    let (fib, choices) = control.views();
    let choices = || choices.get(&reader);
    let judge = |gate: &mut Gate<u32, 1>, counters: &mut Counters| {
        let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
        let now = Now {
            ns: SECOND,
            rules,
            order: Order::OnePass,
            driver: Driver::Group,
            grace_ns: GRACE,
            ip: &|_| &TCP,
        };
        let seen = [to(5), to(6)];
        let mut fates = [Fate::Route; 2];
        gate.decide(&now, counters, &seen, &mut fates);
        fates.map(|fate| fate == Fate::Declined)
    };
    let mut counters = Counters::default();
    assert_eq!(judge(&mut gate, &mut counters), [false, false]);
    let cookie = Brought::new(&[]).unwrap();
    let verdict = Verdict::Bpf { expire_s: 5, program: 0, cookie };
    assert_eq!(apply(&mut gate, SECOND, (5, 7), &verdict, None), Applied::Done);
    for failed in 1..4 {
        assert_eq!(judge(&mut gate, &mut counters), [true, false]);
        let counts = [Counter::Programs, Counter::ProgramFaults, Counter::Declined];
        assert_eq!(counts.map(|count| counters.get(count)), [failed; 3]);
        assert_eq!(gate.programs(), 1);
    }
}

#[test]
fn a_program_is_shown_and_its_place_comes_back() {
    let (mut gate, mut judge) = judge(1000);
    let cookie = Brought::new(&[1_u32, 5, 1000, 1000].map(u32::to_le_bytes).concat()).unwrap();
    let verdict = Verdict::Bpf { expire_s: 5, program: GRANTED, cookie };
    for source in 0..65 {
        judge(&mut gate, SECOND, &[to(source)]);
        let applied = apply(&mut gate, SECOND, (source, 7), &verdict, None);
        assert_eq!(applied, if source < 64 { Applied::Done } else { Applied::Full }, "{source}");
    }
    // A renewal of one that has a place needs no other: by a Grantor, and by an operator.
    assert_eq!(apply(&mut gate, SECOND, (3, 7), &verdict, None), Applied::Done);
    assert_eq!(impose(&mut gate, SECOND, (3, 7), &verdict), Applied::Done);
    assert_eq!(impose(&mut gate, SECOND, (64, 7), &verdict), Applied::Full);
    // What the program does not take declines, and gives the place back for another.
    let wrong = Verdict::Bpf { expire_s: 5, program: GRANTED, cookie: Brought::new(&[]).unwrap() };
    assert_eq!(apply(&mut gate, SECOND, (63, 7), &wrong, None), Applied::NotTaken);
    assert_eq!(gate.programs(), 63);
    assert_eq!(apply(&mut gate, SECOND, (63, 7), &verdict, None), Applied::Done);
    assert_eq!(gate.programs(), 64);
    let mut reader = gate.reader();
    let shown = reader.get(&u32::key(3, 7)).unwrap().state.show(SECOND);
    assert!(
        matches!(shown, Shown::Program { number: GRANTED, left_ns } if left_ns > 4 * SECOND),
        "{shown:?}"
    );
    // Another decision, the flow's next packet after its time, reclaim: each gives the place back, once.
    assert_eq!(apply(&mut gate, SECOND, (0, 7), &Verdict::Declined { expire_s: 1 }, None), Applied::Done);
    assert_eq!(gate.programs(), 63);
    assert!(matches!(judge(&mut gate, 9 * SECOND, &[to(1)])[0], Fate::Request(_)));
    assert_eq!(gate.programs(), 62);
    reclaim(&mut gate, 60 * SECOND, SECOND, 1 << 20);
    assert_eq!((gate.programs(), gate.len()), (0, 0));
}
