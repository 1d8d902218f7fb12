//! What the shipped programs do to packets, held to a model: rates over time, renewals, which packets are of which kind, both families, fragments.

mod common;

use common::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidemill_flowprog::cookie::{Brought, Granted, State, TcpServices, TwoLimits};
use tidemill_flowprog::shipped::{self, SHIPPED};
use tidemill_flowprog::{Context, Cookie, Engine, Program, Ruling};

const SECOND_NS: u64 = 1_000_000_000;

/// Both ways to run a program.
fn both(number: u8) -> [Program; 2] {
    let load = || SHIPPED[usize::from(number)].load().unwrap_or_else(|error| panic!("{error}"));
    [load(), load().interpreted()]
}

fn begun(program: &Program, now_ns: u64, brought: &Brought) -> Cookie {
    let mut cookie = brought.cookie;
    let context = Context::decision(now_ns, u64::MAX, brought.len);
    assert!(program.init(&context, &mut cookie), "{} takes its cookie", program.name());
    cookie
}

/// What a model says of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Declined,
    Primary,
    Secondary,
}

/// A bucket with a second's worth, in bytes and parts of 10^9 of one.
struct Bucket {
    bytes_s: u128,
    there: u128,
    at_ns: u64,
}

impl Bucket {
    fn new(kib_s: u32, now_ns: u64) -> Self {
        let bytes_s = u128::from(kib_s) * 1024;
        Bucket { bytes_s, there: bytes_s * u128::from(SECOND_NS), at_ns: now_ns }
    }

    fn fill(&mut self, now_ns: u64) {
        let full = self.bytes_s * u128::from(SECOND_NS);
        self.there = full.min(self.there + u128::from(now_ns - self.at_ns) * self.bytes_s);
        self.at_ns = now_ns;
    }

    /// Whether it has so much; `None`: too close to say, as the program counts in other units.
    fn has(&self, bytes: usize) -> Option<bool> {
        let wanted = bytes as u128 * u128::from(SECOND_NS);
        // Up to what the costs of a thousand packets are rounded up by.
        let close = (self.bytes_s * 2000).max(wanted / 1000);
        if self.there.abs_diff(wanted) <= close { None } else { Some(self.there > wanted) }
    }

    fn take(&mut self, bytes: usize) {
        self.there = self.there.saturating_sub(bytes as u128 * u128::from(SECOND_NS));
    }
}

#[test]
fn they_are_five_and_run_by_machine_code() {
    let names = SHIPPED.map(|shipped| shipped.name);
    assert_eq!(names, ["granted", "declined", "grantedv2", "web", "tcp-services"]);
    for number in 0..5 {
        let [fast, slow] = both(number);
        assert_eq!(slow.engine(), Engine::Interpreter);
        if cfg!(all(target_arch = "x86_64", unix)) {
            assert_eq!(fast.engine(), Engine::Jit);
        }
    }
}

#[test]
fn declined_declines() {
    for program in both(shipped::DECLINED) {
        let mut cookie = begun(&program, 5, &Brought::new(&[]).unwrap());
        let packet = v4(6, 0, 0, &tcp(443, ACK, 0));
        assert_eq!(program.packet(&Context::packet(5, 9, &packet), &mut cookie), Ruling::Declined);
        assert_eq!(cookie, Cookie::default());
    }
}

#[test]
fn a_cookie_that_is_too_short_is_not_taken() {
    for (number, least) in
        [(shipped::GRANTED, 12), (shipped::GRANTEDV2, 16), (shipped::WEB, 16), (shipped::TCP_SERVICES, 44)]
    {
        for program in both(number) {
            for len in (0..=64).step_by(4) {
                let brought = Brought::new(&vec![1; len]).unwrap();
                let mut cookie = brought.cookie;
                let taken = program.init(&Context::decision(0, 0, len), &mut cookie);
                assert_eq!(taken, len >= least, "{} {len}", program.name());
                assert!(taken || cookie == brought.cookie);
            }
        }
    }
    assert_eq!(Brought::new(&[0; 65]), None);
}

#[test]
fn cookies_come_back() {
    let granted = Granted { rate_kib_s: 1, renew_ms: 0x0203_0405, step_ms: u32::MAX };
    assert_eq!(granted.brought().bytes(), [1, 0, 0, 0, 5, 4, 3, 2, 255, 255, 255, 255]);
    assert_eq!(Granted::read(&granted.brought()), Some(granted));
    let limits = TwoLimits { primary_kib_s: 7, secondary_kib_s: 8, renew_ms: 9, step_ms: 10, direct: true };
    assert_eq!(limits.brought().len, 20);
    assert_eq!(limits.brought().bytes()[16..], [1, 0, 0, 0]);
    assert_eq!(TwoLimits::read(&limits.brought()), Some(limits));
    let ports = [(80, 80), (8000, 8999), (0, 0), (1, 65535), (0x0102, 0x0304), (22, 22)];
    let services = TcpServices { limits, ports };
    assert_eq!(services.brought().bytes()[56..60], [2, 1, 4, 3]);
    assert_eq!(TcpServices::read(&services.brought()), Some(services));
    for short in [0, 4, 8] {
        let brought = Brought::new(&granted.brought().bytes()[..short]).unwrap();
        assert_eq!(
            (Granted::read(&brought), TwoLimits::read(&brought), TcpServices::read(&brought)),
            (None, None, None)
        );
    }
    // And what is made of them.
    let [program, _] = both(shipped::TCP_SERVICES);
    let cookie = begun(&program, 4_000_000_000, &services.brought());
    let state = State::read(&cookie, 4_000_000_000);
    assert_eq!(State::ports(&cookie), ports);
    assert_eq!((state.primary.bytes_s, state.primary.bucket), (7 * 1024 - 1, 7 * 1024 - 1), "rounded down");
    assert_eq!(state.secondary.bytes_s, 8 * 1024);
    assert_eq!((state.renew_ns, state.step_ms, state.direct), (4_009_000_000, 10, true));
}

#[test]
fn a_second_passes_at_once_and_then_the_rate() {
    // 4 KiB/s and packets of 1024 bytes: four at once, then one every 250 ms.
    for program in both(shipped::GRANTED) {
        let brought = Granted { rate_kib_s: 4, renew_ms: 3_600_000, step_ms: 0 }.brought();
        let mut cookie = begun(&program, 0, &brought);
        let packet = v4(17, 0, 0, &udp(53, 1024 - 28));
        let mut at = |ns: u64| program.packet(&Context::packet(ns, u64::MAX, &packet), &mut cookie);
        let granted = Ruling::Granted { direct: false };
        assert_eq!([0; 5].map(&mut at), [granted, granted, granted, granted, Ruling::OverRate]);
        assert_eq!(at(249_999_999), Ruling::OverRate);
        assert_eq!(at(250_000_000), granted);
        assert_eq!(at(499_999_999), Ruling::OverRate);
        // Idle for long, it is full again, and no fuller.
        assert_eq!([90_000_000_000; 5].map(&mut at), [granted, granted, granted, granted, Ruling::OverRate]);
    }
}

#[test]
fn what_is_longer_than_a_second_never_passes_and_nothing_does_at_rate_zero() {
    for program in both(shipped::GRANTED) {
        let brought = |rate_kib_s| Granted { rate_kib_s, renew_ms: 0, step_ms: 0 }.brought();
        let mut cookie = begun(&program, 0, &brought(1));
        for (len, ruling) in [(1025, Ruling::OverRate), (1024, Ruling::Renew)] {
            let packet = v6(17, None, &udp(53, len - 48));
            assert_eq!(program.packet(&Context::packet(SECOND_NS, 0, &packet), &mut cookie), ruling);
        }
        let mut cookie = begun(&program, 0, &brought(0));
        let packet = v4(17, 0, 0, &[]);
        assert_eq!(
            program.packet(&Context::packet(9 * SECOND_NS, 0, &packet), &mut cookie),
            Ruling::OverRate
        );
        // The fastest that can be said: a byte still costs something.
        let mut cookie = begun(&program, 0, &brought(u32::MAX));
        let before = cookie;
        assert_eq!(program.packet(&Context::packet(0, 0, &packet), &mut cookie), Ruling::Renew);
        assert_ne!(cookie, before);
    }
}

#[test]
fn renewals_come_when_they_are_due() {
    for program in both(shipped::GRANTEDV2) {
        let limits = TwoLimits {
            primary_kib_s: 1000,
            secondary_kib_s: 1,
            renew_ms: 5000,
            step_ms: 2000,
            direct: true,
        };
        let mut cookie = begun(&program, SECOND_NS, &limits.brought());
        let packet = v4(6, 0, 0, &tcp(1, ACK, 0));
        let mut at =
            |ms: u64| program.packet(&Context::packet(ms * 1_000_000, u64::MAX, &packet), &mut cookie);
        let granted = Ruling::Granted { direct: true };
        assert_eq!([1000, 5999, 6000, 6001].map(&mut at), [granted, granted, Ruling::Renew, granted]);
        // A flow that was silent asks once.
        assert_eq!(
            [13_500, 13_501, 15_499, 15_500].map(&mut at),
            [Ruling::Renew, granted, granted, Ruling::Renew]
        );
    }
    // What is over the rate asks for nothing.
    for program in both(shipped::GRANTED) {
        let brought = Granted { rate_kib_s: 1, renew_ms: 0, step_ms: 60_000 }.brought();
        let mut cookie = begun(&program, 0, &brought);
        let mut send = |ms: u64, len: usize| {
            let packet = v4(17, 0, 0, &vec![0; len - 20]);
            program.packet(&Context::packet(ms * 1_000_000, u64::MAX, &packet), &mut cookie)
        };
        assert_eq!(send(0, 2000), Ruling::OverRate);
        assert_eq!(send(0, 1000), Ruling::Renew);
        assert_eq!(send(1, 1000), Ruling::OverRate);
        assert_eq!(send(59_999, 100), Ruling::Granted { direct: false });
        assert_eq!(send(60_000, 100), Ruling::Renew);
    }
}

/// A packet, and what each of `grantedv2`, `web`, `tcp-services` (ports 22 and 8000 to 8999) makes of it.
fn kinds() -> Vec<(&'static str, Vec<u8>, [Kind; 3])> {
    use Kind::{Declined, Primary, Secondary};
    let web = [Primary, Primary, Declined];
    let service = [Primary, Declined, Primary];
    let neither = [Primary, Declined, Declined];
    let other = [Secondary, Declined, Declined];
    let mut all = vec![
        ("443", v4(6, 0, 0, &tcp(443, ACK, 10)), web),
        ("80 with options", v4(6, 3, 0x4000, &tcp(80, ACK, 10)), web),
        ("443, IPv6", v6(6, None, &tcp(443, ACK, 10)), web),
        ("80, atomic fragment", v6(6, Some(0), &tcp(80, ACK, 10)), web),
        ("SYN and ACK", v4(6, 0, 0, &tcp(443, SYN | ACK, 0)), web),
        ("SYN", v4(6, 0, 0, &tcp(443, SYN, 0)), [Primary, Secondary, Declined]),
        ("SYN and more", v6(6, None, &tcp(80, SYN | 0xc0, 0)), [Primary, Secondary, Declined]),
        ("22", v4(6, 0, 0, &tcp(22, ACK, 0)), service),
        ("8000", v6(6, None, &tcp(8000, ACK, 0)), service),
        ("8999", v4(6, 0, 0, &tcp(8999, ACK, 0)), service),
        ("SYN to 8500", v4(6, 0, 0, &tcp(8500, SYN, 0)), [Primary, Declined, Secondary]),
        ("7999", v4(6, 0, 0, &tcp(7999, ACK, 0)), neither),
        ("9000", v6(6, None, &tcp(9000, ACK, 0)), neither),
        ("444", v4(6, 0, 0, &tcp(444, ACK, 0)), neither),
        ("port 0", v4(6, 0, 0, &tcp(0, ACK, 0)), neither),
        ("81", v4(6, 0, 0, &tcp(81, SYN, 0)), neither),
        ("0x5001", v4(6, 0, 0, &tcp(0x5000, ACK, 0)), neither),
        ("UDP", v4(17, 0, 0, &udp(443, 9)), neither),
        ("UDP, IPv6", v6(17, None, &udp(443, 9)), neither),
        ("flags are missing", v4(6, 0, 0, &tcp(443, ACK, 0)[..13]), neither),
        ("nothing but the header", v4(6, 0, 0, &[]), neither),
        ("a first fragment", v4(6, 0, 0x2000, &tcp(443, ACK, 4)), [Secondary, Secondary, Declined]),
        ("a first fragment to 22", v6(6, Some(1), &tcp(22, ACK, 4)), [Secondary, Declined, Secondary]),
        ("a first fragment to 21", v6(6, Some(1), &tcp(21, ACK, 4)), other),
        ("a later fragment", v4(6, 0, 0x2001, &[0; 40]), [Secondary; 3]),
        ("the last fragment", v4(6, 0, 9, &[0; 3]), [Secondary; 3]),
        ("a later fragment, IPv6", v6(6, Some(8), &[0; 3]), [Secondary; 3]),
        ("a later fragment of UDP", v4(17, 0, 9, &[0; 30]), other),
        ("a later fragment of ICMP", v4(1, 0, 9, &[3; 30]), other),
        ("GRE", v4(47, 0, 0, &[0; 30]), other),
        ("ESP, IPv6", v6(50, None, &[0; 30]), other),
        ("ICMPv6 in IPv4", v4(58, 0, 0, &icmp(1)), other),
        ("ICMP in IPv6", v6(1, None, &icmp(8)), other),
        ("ICMP cut short", v4(1, 0, 0, &icmp(8)[..7]), other),
        ("headers cut short", v4(6, 4, 0, &[])[..28].to_vec(), other),
        ("no packet", vec![], other),
        ("another version", vec![0x75; 60], other),
    ];
    for kind in 0..=255 {
        let needed = |is: bool| [Secondary, if is { Secondary } else { Declined }, Declined];
        all.push(("ICMP", v4(1, 0, 0, &icmp(kind)), needed([0, 3, 8, 11, 12].contains(&kind))));
        all.push(("ICMPv6", v6(58, None, &icmp(kind)), needed([1, 2, 3, 4, 128, 129].contains(&kind))));
    }
    all
}

fn services(limits: TwoLimits) -> TcpServices {
    TcpServices { limits, ports: [(22, 22), (0, 0), (9, 3), (8000, 8500), (8501, 8999), (0, 0)] }
}

fn judges(limits: TwoLimits) -> [(u8, Brought); 3] {
    let services = services(limits).brought();
    [
        (shipped::GRANTEDV2, limits.brought()),
        (shipped::WEB, limits.brought()),
        (shipped::TCP_SERVICES, services),
    ]
}

#[test]
fn each_packet_is_of_its_kind() {
    // What is of the secondary kind does not pass where the secondary limit is 0, and passes where it is not.
    for (secondary_kib_s, passes) in [(0, false), (1000, true)] {
        let limits =
            TwoLimits { primary_kib_s: 1000, secondary_kib_s, renew_ms: 9000, step_ms: 1000, direct: false };
        for (place, (number, brought)) in judges(limits).into_iter().enumerate() {
            for program in both(number) {
                for (what, packet, kinds) in kinds() {
                    let mut cookie = begun(&program, 0, &brought);
                    let wanted = match kinds[place] {
                        Kind::Declined => Ruling::Declined,
                        Kind::Secondary if !passes => Ruling::OverRate,
                        _ => Ruling::Granted { direct: false },
                    };
                    let ruling = program.packet(&Context::packet(7, 0, &packet), &mut cookie);
                    assert_eq!(ruling, wanted, "{} {what}", program.name());
                }
            }
        }
    }
}

#[test]
fn limits_hold_over_time() {
    let all = kinds();
    let mut rng = StdRng::seed_from_u64(11);
    for round in 0..40 {
        let limits = TwoLimits {
            primary_kib_s: rng.random_range(1..40),
            secondary_kib_s: rng.random_range(1..10),
            renew_ms: rng.random_range(0..60_000),
            step_ms: rng.random_range(0..20_000),
            direct: rng.random(),
        };
        let (place, (number, brought)) = (round % 3, judges(limits)[round % 3]);
        let programs = both(number);
        let mut now = rng.random_range(0..1 << 50);
        let mut cookies = programs.each_ref().map(|program| begun(program, now, &brought));
        let (mut primary, mut secondary) =
            (Bucket::new(limits.primary_kib_s, now), Bucket::new(limits.secondary_kib_s, now));
        let mut renew = now + u64::from(limits.renew_ms) * 1_000_000;
        let (mut passed, mut over, mut close) = (0, 0, 0);
        for _ in 0..1000 {
            now += rng.random_range(0..50_000_000);
            let (what, packet, kinds) = &all[rng.random_range(0..37)];
            let (packet, kind) = (&packet[..], kinds[place]);
            let context = Context::packet(now, u64::MAX, packet);
            let before = cookies;
            let rulings = [0, 1].map(|which| programs[which].packet(&context, &mut cookies[which]));
            assert_eq!(rulings[0], rulings[1]);
            assert_eq!(cookies[0], cookies[1]);
            primary.fill(now);
            secondary.fill(now);
            let fits = match kind {
                Kind::Declined => Some(false),
                Kind::Primary => primary.has(packet.len()),
                Kind::Secondary => match (primary.has(packet.len()), secondary.has(packet.len())) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (a, b) => a.zip(b).map(|_| true),
                },
            };
            let went = !matches!(rulings[0], Ruling::Declined | Ruling::OverRate);
            close += usize::from(fits.is_none());
            assert_eq!(went, fits.unwrap_or(went), "round {round}, {}: {what} {kind:?}", programs[0].name());
            if went {
                passed += 1;
                primary.take(packet.len());
                if kind == Kind::Secondary {
                    secondary.take(packet.len());
                }
                let due = now >= renew;
                let wanted = if due { Ruling::Renew } else { Ruling::Granted { direct: limits.direct } };
                assert_eq!(rulings[0], wanted);
                if due {
                    renew = now + u64::from(limits.step_ms) * 1_000_000;
                }
            } else {
                over += usize::from(rulings[0] == Ruling::OverRate);
                assert_eq!(cookies, before, "what is dropped changes nothing");
            }
        }
        assert!(
            passed > 50 && close < 200,
            "round {round}: {passed} passed, {over} over, {close} too close to say"
        );
    }
}

#[test]
fn anything_else_is_a_fault() {
    for (value, ruling) in [
        (0, Ruling::Declined),
        (1, Ruling::Granted { direct: false }),
        (2, Ruling::Renew),
        (3, Ruling::Request { dscp: 3 }),
        (63, Ruling::Request { dscp: 63 }),
        (64, Ruling::OverRate),
        (65, Ruling::Fault),
        (257, Ruling::Granted { direct: true }),
        (256, Ruling::Fault),
        (258, Ruling::Fault),
        (u64::MAX, Ruling::Fault),
        (1 << 32, Ruling::Fault),
    ] {
        assert_eq!(Ruling::of(value), ruling);
        let code = [&constant(0, value)[..], &[exit()]].concat().concat();
        let program = Program::from_code(&code, &code, "says").unwrap();
        let mut cookie = Cookie::default();
        for program in [program, Program::from_code(&code, &code, "says").unwrap().interpreted()] {
            assert_eq!(program.packet(&Context::packet(0, 0, &[]), &mut cookie), ruling);
            assert_eq!(program.init(&Context::decision(0, 0, 0), &mut cookie), value == 0);
        }
    }
}
