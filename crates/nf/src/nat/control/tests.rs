use super::*;
use std::collections::HashSet;
use tidemill_ip::Interface;

fn interfaces(names: &[&str]) -> Interfaces {
    let list: Vec<Interface> =
        names.iter().enumerate().map(|(n, name)| Interface::of_port(n as u16, name)).collect();
    Interfaces::new(list, names.len())
}

fn section(more: &str) -> NatSection {
    let base = "inside = [\"lan\"]\noutside = [\"wan\"]\npool = [\"192.0.2.1\", \"2001:db8::/126\"]\nmappings = 100\nsessions = 100\n";
    let limits = if more.contains("host_mappings") { "" } else { "host_mappings = 50\nhost_sessions = 50\n" };
    toml::from_str(&format!("{base}{limits}{more}")).unwrap()
}

fn control(more: &str) -> NatControl {
    NatControl::with_secret(&section(more), &interfaces(&["lan", "wan"]), 1, &Domain::new(), 7).unwrap()
}

#[test]
fn ports_say_whose_they_are_in_both_families() {
    let control = control(
        "[deterministic]\ninside = [\"10.0.0.0/27\", \"fd00::/57\"]\nports_per_host = 2016\nhost_length6 = 64\n",
    );
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(control.roles(ip("10.0.0.3"), None), [Role::Ports(ip("192.0.2.1"), 7072, 9087)]);
    assert_eq!(control.roles(ip("192.0.2.1"), Some(7072)).last(), Some(&Role::Host(ip("10.0.0.3"))));
    assert_eq!(control.roles(ip("10.0.0.32"), None), [Role::Portless]);
    let host = ip("fd00:0:0:21::abcd");
    assert_eq!(control.roles(host, None), [Role::Ports(ip("2001:db8::1"), 3040, 5055)]);
    let network = Role::Network(ip("fd00:0:0:21::"), 64);
    assert_eq!(control.roles(ip("2001:db8::1"), Some(5055)).last(), Some(&network));
    assert_eq!(control.remarks(&interfaces(&["lan", "wan"])), Vec::<String>::new());
}

#[test]
fn what_will_not_work_as_it_seems_is_remarked() {
    let remarks = control("host_mappings = 100\nhost_sessions = 100\n").remarks(&interfaces(&["lan", "wan"]));
    assert!(remarks[0].starts_with("nat.host_mappings: 100 is not below nat.mappings = 100"), "{remarks:?}");
    assert!(remarks[1].starts_with("nat.host_sessions: 100 is not below nat.sessions"), "{remarks:?}");
    let remarks = control("[deterministic]\ninside = \"10.0.0.0/27\"\nports_per_host = 2016\n")
        .remarks(&interfaces(&["lan", "wan"]));
    assert!(remarks[0].starts_with("nat.deterministic.inside: IPv6 ports of the pool"), "{remarks:?}");
}

/// A NAT of IPv6 alone may be meant, or not.
#[test]
fn what_leaves_untranslated_is_remarked() {
    let remarks = |pool: &str, lan: &[(&str, &str)]| {
        let mut list = vec![Interface::of_port(0, "lan"), Interface::of_port(1, "wan")];
        for (own, link) in lan {
            match own.parse::<IpAddr>().unwrap() {
                IpAddr::V4(own) => list[0].v4.push((own, link.parse().unwrap())),
                IpAddr::V6(own) => list[0].v6.push((own, link.parse().unwrap())),
            }
        }
        // Those of outside are of no matter.
        list[1].v4.push(("198.51.100.1".parse().unwrap(), "198.51.100.0/24".parse().unwrap()));
        list[1].v6.push(("2001:db8:1::1".parse().unwrap(), "2001:db8:1::/64".parse().unwrap()));
        let interfaces = Interfaces::new(list, 2);
        let text = format!("inside = [\"lan\"]\noutside = [\"wan\"]\npool = [{pool}]\n");
        let section: NatSection = toml::from_str(&text).unwrap();
        NatControl::check(&section, &interfaces, &Domain::new()).unwrap().remarks(&interfaces)
    };
    let (four, six) = (("10.0.0.1", "10.0.0.0/24"), ("fd00::1", "fd00::/64"));
    let said = "nat.pool: has no IPv4 address, and interface \"lan\", which is inside, has one: IPv4 leaves untranslated";
    assert_eq!(remarks("\"2001:db8::1\"", &[four, six]), [said]);
    // That IPv6 is routed beside a NAT of IPv4 is the usual thing.
    assert_eq!(remarks("\"192.0.2.1\"", &[four, six]), Vec::<String>::new());
    assert_eq!(remarks("\"192.0.2.1\"", &[four]), Vec::<String>::new());
    assert_eq!(remarks("\"2001:db8::1\"", &[six]), Vec::<String>::new());
    assert_eq!(remarks("\"192.0.2.1\", \"2001:db8::1\"", &[four, six]), Vec::<String>::new());
}

#[test]
fn what_is_only_looked_at_is_judged_as_it_is_written() {
    let check = |more: &str| {
        let base = "inside = [\"lan\"]\noutside = [\"wan\"]\npool = [\"192.0.2.1\"]\n";
        let section: NatSection = toml::from_str(&format!("{base}{more}")).unwrap();
        NatControl::check(&section, &interfaces(&["lan", "wan"]), &Domain::new())
    };
    let remarks = |more: &str| check(more).unwrap().remarks(&interfaces(&["lan", "wan"]));
    assert_eq!(remarks(""), Vec::<String>::new(), "the defaults");
    let said = remarks("mappings = 5000\nhost_mappings = 5000\n");
    assert!(said[0].starts_with("nat.host_mappings: 5000 is not below nat.mappings = 5000"), "{said:?}");
    // More static mappings than a small table has room for.
    let fixed: String = (0..5000)
        .map(|n| {
            let (external, internal) = (format!("192.0.2.1:{}", 2000 + n), format!("10.0.0.9:{}", 1 + n));
            format!("[[static]]\nprotocol = \"tcp\"\nexternal = \"{external}\"\ninternal = \"{internal}\"\n")
        })
        .collect();
    let control = check(&format!("mappings = 20000\n{fixed}")).unwrap();
    let half = control.v4.as_ref().unwrap();
    let seats = half.seats.lock().unwrap();
    assert_eq!(seats[0].as_ref().unwrap().nat.state().mappings(), 5000);
    assert_eq!(control.remarks(&interfaces(&["lan", "wan"])), Vec::<String>::new());
    let refused = check(&format!("mappings = 4999\n{fixed}")).err().unwrap().to_string();
    assert_eq!(refused, "nat.mappings: 4999: there are 5000 static mappings: give more");
}

#[test]
fn a_new_section_is_checked_against_the_interfaces_that_there_will_be() {
    let mut control = control("");
    let mut wanted = section("");
    wanted.inside.push("lan.20".into());
    let error = control.prepare(&wanted, &interfaces(&["lan", "wan"])).unwrap_err();
    assert!(error.to_string().contains("there is no interface \"lan.20\""), "{error}");
    let prepared = control.prepare(&wanted, &interfaces(&["lan", "wan", "lan.20"])).unwrap();
    assert!(!control.rules().is_inside(2), "nothing has changed yet");
    control.commit(prepared);
    assert!(control.rules().is_inside(2));
    assert_eq!(control.section().inside, ["lan", "lan.20"]);
}

/// Everything that `bytes` of a NAT's sessions become here.
fn taken(more: &str, bytes: &[u8], workers: usize) -> (NatControl, Taken) {
    let mut control =
        NatControl::with_secret(&section(more), &interfaces(&["lan", "wan"]), workers, &Domain::new(), 99)
            .unwrap();
    let taken = control.import(5_000, bytes).unwrap();
    (control, taken)
}

const STATIC: &str =
    "[[static]]\nprotocol = \"tcp\"\nexternal = \"192.0.2.1:80\"\ninternal = \"10.0.0.80:8080\"\n";

/// Sends packets through the only worker: some of each sort.
fn filled(more: &str) -> NatControl {
    use crate::nat::state::Piece;
    let control = control(more);
    let times = control.rules().times;
    let end = |address: &str, port: u16| Endpoint {
        address: address.parse::<std::net::Ipv4Addr>().unwrap().into(),
        port,
    };
    if let Some(half) = &control.v4 {
        let mut seats = half.seats.lock().unwrap();
        let state = seats[0].as_mut().unwrap().nat.state_mut();
        let (server, public, caller) = (end("10.0.0.80", 8080), end("192.0.2.1", 80), end("198.51.100.7", 7));
        for host in 1..=9 {
            let (inside, remote) = (end(&format!("10.0.0.{host}"), 4000), end("198.51.100.1", 443));
            state.leave(1_000, &times, inside, remote, Piece::Udp).unwrap();
            state.leave(1_000, &times, inside, Endpoint { port: 0, ..remote }, Piece::Request).unwrap();
            let looks = state.leave(1_000, &times, inside, remote, Piece::Tcp(2)).unwrap();
            state.enter(1_000, &times, looks, remote, Piece::Tcp(0x12)).unwrap();
        }
        state.enter(1_000, &times, public, caller, Piece::Tcp(2)).unwrap();
        state.leave(1_000, &times, server, caller, Piece::Tcp(0x12)).unwrap();
        state.enter(1_000, &times, public, caller, Piece::Tcp(0x10)).unwrap();
        state.enter(1_000, &times, public, Endpoint { port: 8, ..caller }, Piece::Tcp(2)).unwrap();
    }
    if let Some(half) = &control.v6 {
        let mut seats = half.seats.lock().unwrap();
        let state = seats[0].as_mut().unwrap().nat.state_mut();
        for host in 1..=9 {
            let inside = Endpoint { address: 0xfd00 << 112 | host, port: 4000 };
            let remote = Endpoint { address: 0x2001_0db8 << 96 | 7, port: 53 };
            state.leave(1_000, &times, inside, remote, Piece::Udp).unwrap();
        }
    }
    control
}

#[test]
fn sessions_go_on_elsewhere() {
    let before = filled(STATIC);
    let image = before.exporter().export(2_000);
    // Its clock is another one, and so is its secret.
    let (after, all) = taken(STATIC, &image, 1);
    assert_eq!(all, Taken { sessions: 27 + 2 + 9, left_out: 0 });
    let lines = |control: &NatControl, now_ms| {
        let wanted = Wanted { limit: 1000, ..Wanted::default() };
        let mut lines = control.sessions(&wanted, now_ms).0;
        lines.sort_by_key(|line| format!("{line:?}"));
        lines
    };
    assert_eq!(lines(&after, 5_000), lines(&before, 2_000));
    // And again, the very same.
    assert_eq!(after.exporter().export(5_000), image);
    // What is over by then is not taken.
    let (_, later) = taken(STATIC, &before.exporter().export(1_000 + 60_000), 1);
    assert_eq!(later.sessions, 18 + 2 + 9, "queries");
    // With more workers each has its own, or nobody.
    let (of_three, some) = taken(STATIC, &image, 3);
    assert_eq!((lines(&of_three, 5_000).len(), some.sessions + some.left_out), (some.sessions, 38));
    assert!(some.sessions >= 2, "the static one is whoever's its host is");
}

#[test]
fn what_was_taken_over_is_as_if_it_had_been_made_here() {
    use crate::nat::state::Piece;
    let (control, _) = taken(STATIC, &filled(STATIC).exporter().export(2_000), 1);
    let times = control.rules().times;
    let mut seats = control.v4.as_ref().unwrap().seats.lock().unwrap();
    let state = seats[0].as_mut().unwrap().nat.state_mut();
    let end = |last: u32, port| Endpoint { address: 0x0a00_0000 + last, port };
    let remote = Endpoint { address: u32::from_be_bytes([198, 51, 100, 1]), port: 443 };
    assert_eq!(state.host_counts(0x0a00_0001), (3, 3));
    // A connection that was open is open for two hours, and its end is seen.
    let looks = state.leave(3_600_000, &times, end(1, 4000), remote, Piece::Tcp(0x10)).unwrap();
    assert_eq!(state.enter(7_000_000, &times, looks, remote, Piece::Tcp(0x10)), Ok(end(1, 4000)));
    // No port is given twice.
    let other = state.leave(5_000, &times, end(50, looks.port), remote, Piece::Tcp(2)).unwrap();
    assert_ne!(other, looks);
    // All ends as it began: nothing is counted that is not there.
    state.reclaim(20_000_000, usize::MAX);
    assert_eq!((state.sessions(), state.mappings(), state.host_counts(0x0a00_0001)), (0, 1, (0, 0)));
    assert!(state.is_host(0x0a00_0050) && !state.is_host(0x0a00_0001));
}

#[test]
fn what_comes_while_sessions_are_read_spoils_nothing() {
    // The longest life that there is, begun after the reader's clock was looked at.
    let longest = format!("udp_s = 31536000\n{STATIC}");
    let image = filled(&longest).exporter().export(500);
    assert_eq!(taken(&longest, &image, 1).1, Taken { sessions: 27 + 2 + 9, left_out: 0 });
}

#[test]
fn what_does_not_fit_stays_out() {
    let image = filled(STATIC).exporter().export(2_000);
    // The static port is another host's now.
    let moved = STATIC.replace("10.0.0.80", "10.0.0.81");
    assert_eq!(taken(&moved, &image, 1).1.left_out, 2);
    // Ports by computation: a port must be its host's.
    let block = "[deterministic]\ninside = \"10.0.0.0/27\"\nports_per_host = 2016\n";
    // Of IPv6 all; of IPv4 those of host 1, whose block port 4000 is in, and of another one by chance.
    let some = taken(block, &image, 1).1.sessions;
    assert!((9 + 3..9 + 8).contains(&some), "{some}");
    // Somebody else's file, and none.
    let mut control = control("");
    assert!(
        control.import(1, b"TIDEMILL").unwrap_err().to_string().starts_with("nat.handover: table image ends")
    );
    assert_eq!(control.import(1, &control.exporter().export(1)).unwrap(), Taken { sessions: 0, left_out: 0 });
    // Packets flow already.
    drop(take(&control.v4.as_ref().unwrap().seats, 0));
    assert!(matches!(control.import(1, &image), Err(NatError::Begun)));
}

/// Who is let in by a static mapping is let in by the configuration, and by nothing that was handed over.
#[test]
fn a_static_mapping_that_is_gone_lets_nobody_in() {
    use crate::nat::ip::About;
    use crate::nat::state::{Piece, Refused};
    let end = |address: [u8; 4], port| Endpoint { address: u32::from_be_bytes(address), port };
    let image = filled(STATIC).exporter().export(2_000);
    for filtering in ["endpoint-independent", "address-dependent"] {
        let (control, all) = taken(&format!("filtering = \"{filtering}\"\n"), &image, 1);
        assert_eq!(all, Taken { sessions: 27 + 9, left_out: 2 });
        let times = control.rules().times;
        let mut seats = control.v4.as_ref().unwrap().seats.lock().unwrap();
        let state = seats[0].as_mut().unwrap().nat.state_mut();
        // Neither who had a connection, nor who was never there.
        for caller in [end([198, 51, 100, 7], 7), end([198, 51, 100, 7], 9), end([198, 51, 100, 8], 7)] {
            let entered = state.enter(5_000, &times, end([192, 0, 2, 1], 80), caller, Piece::Tcp(2));
            assert_eq!(entered, Err(Refused::Unmapped));
        }
    }
    // What was dynamic goes on where it is static now, and is that from then on: of a port, and of a whole address.
    let (inside, outside) = (end([10, 0, 0, 80], 8080), end([192, 0, 2, 1], 8080));
    let session = |is_static| Saved {
        about: About { proto: Proto::Udp, inside, outside },
        remote: end([198, 51, 100, 7], 53),
        left_ms: 60_000,
        tcp: 0,
        from_outside: false,
        answered: false,
        is_static,
        packets: (1, 0),
    };
    let image = |is_static| Sessions { v4: vec![session(is_static)], v6: Vec::new() }.encode();
    let port = STATIC.replace("tcp", "udp").replace("192.0.2.1:80", "192.0.2.1:8080");
    let whole = "[[static]]\nexternal = \"192.0.2.1\"\ninternal = \"10.0.0.80\"\n";
    for more in [&port[..], whole] {
        for was_static in [false, true] {
            let (control, all) = taken(more, &image(was_static), 1);
            assert_eq!(all, Taken { sessions: 1, left_out: 0 }, "{more}");
            assert_eq!(control.exporter().export(5_000), image(true), "{more}");
        }
    }
    assert_eq!(taken("", &image(false), 1).1, Taken { sessions: 1, left_out: 0 });
    let (control, all) = taken("", &image(true), 1);
    assert_eq!(all, Taken { sessions: 0, left_out: 1 });
    let seats = control.v4.as_ref().unwrap().seats.lock().unwrap();
    let state = seats[0].as_ref().unwrap().nat.state();
    assert_eq!((state.mappings(), state.is_host(inside.address)), (0, false));
}

#[test]
fn sessions_are_read_while_somebody_has_the_control_side() {
    let before = std::sync::Mutex::new(filled(STATIC));
    let exporter = before.lock().unwrap().exporter();
    let held = before.lock().unwrap();
    let image = std::thread::scope(|scope| scope.spawn(|| exporter.export(2_000)).join()).unwrap();
    assert_eq!(image, held.exporter().export(2_000));
    assert_eq!(taken(STATIC, &image, 1).1.sessions, 27 + 2 + 9);
}

const MILLION: u32 = 1_000_000;

/// Endpoint number `n` inside: hosts have sixteen each.
fn inside<A>(host: fn(u32) -> A, n: u32) -> Endpoint<A> {
    Endpoint { address: host(n / 16), port: 1024 + (u64::from(n) * 7919 % 60_000) as u16 }
}

/// Each of a million endpoints has a mapping and a session of its own, here and where they are handed over to.
fn a_million<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize>(
    half_of: impl Fn(&NatControl) -> &Half<A, E, S, T>,
    pool: &str,
    host: fn(u32) -> A,
) {
    use crate::nat::state::Piece;
    let section: NatSection = toml::from_str(&format!(
        "inside = [\"lan\"]\noutside = [\"wan\"]\npool = [\"{pool}\"]\nfiltering = \"endpoint-independent\"\n\
        mappings = 1048576\nsessions = 1048576\nhost_mappings = 16\nhost_sessions = 16\n"
    ))
    .unwrap();
    let make = |secret| {
        let interfaces = interfaces(&["lan", "wan"]);
        NatControl::with_secret(&section, &interfaces, 1, &Domain::new(), secret).unwrap()
    };
    let before = make(7);
    let times = before.rules().times;
    let remote = Endpoint { address: host(0x00ff_ffff), port: 53 };
    let mut looks = Vec::new();
    {
        let mut seats = half_of(&before).seats.lock().unwrap();
        let state = seats[0].as_mut().unwrap().nat.state_mut();
        for n in 0..MILLION {
            looks.push(state.leave(1_000, &times, inside(host, n), remote, Piece::Udp).unwrap());
        }
    }
    assert_eq!(looks.iter().collect::<HashSet<_>>().len(), MILLION as usize, "no two look alike");
    let answer_all = |control: &NatControl, now_ms: u64| {
        let mut seats = half_of(control).seats.lock().unwrap();
        let state = seats[0].as_mut().unwrap().nat.state_mut();
        for (n, looks) in (0..MILLION).zip(&looks) {
            assert_eq!(state.enter(now_ms, &times, *looks, remote, Piece::Udp), Ok(inside(host, n)));
        }
        assert_eq!((state.mappings(), state.sessions()), (MILLION as usize, MILLION as usize));
    };
    answer_all(&before, 2_000);
    let image = before.exporter().export(2_000);
    drop(before);
    let mut after = make(99);
    let taken = after.import(5_000, &image).unwrap();
    assert_eq!(taken, Taken { sessions: MILLION as usize, left_out: 0 });
    answer_all(&after, 6_000);
}

/// `cargo test -p tidemill-nf --release --lib -- --ignored a_million`
#[test]
#[ignore = "much memory, and a while without --release"]
fn a_million_entries_of_each_family_are_each_their_own_here_and_elsewhere() {
    a_million::<u32, 1, 2, 4>(
        |control| control.v4.as_ref().unwrap(),
        "192.0.2.0-192.0.2.31",
        |n| 0x0a00_0001 + n,
    );
    a_million::<u128, 3, 5, 5>(
        |control| control.v6.as_ref().unwrap(),
        "2001:db8::/123",
        |n| 0xfd00 << 112 | u128::from(n) << 64 | 1,
    );
}
