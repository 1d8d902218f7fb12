use super::*;
use crate::message::{KEEPALIVE, NOTIFICATION, OPEN, ROUTE_REFRESH, UPDATE, put};
use crate::testing::{Voice, messages, nlri, prefix};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

fn config() -> SessionConfig {
    SessionConfig {
        local_as: 65_000,
        id: Ipv4Addr::new(10, 0, 0, 200),
        peer_as: 64_496,
        hold_s: 90,
        families: [true; 2],
        flows: false,
        add_path: false,
        local: IpAddr::from([10, 0, 0, 200]),
    }
}

fn export(text: &str) -> Export {
    Export {
        prefix: prefix(text),
        next_hop: text.contains(':').then(|| "2001:db8::200".parse().unwrap()),
        med: None,
        local_pref: 100,
        prepend: 0,
        communities: Vec::new(),
    }
}

fn established() -> (Session, Voice) {
    let voice = Voice::new(1, 0, false);
    let mut session = Session::new(config(), 0);
    let mut events = Vec::new();
    session.receive(0, &voice.hello(), &mut events);
    assert_eq!(events, [Event::Opened, Event::Established]);
    session.output().clear();
    (session, voice)
}

fn said(session: &mut Session) -> Vec<(u8, Vec<u8>)> {
    messages(&std::mem::take(session.output()))
}

/// Every byte of ours, by hand: RFC 4271, 4.2, with the capabilities' own RFCs.
#[test]
fn our_open_is_what_the_rfcs_say() {
    let mut session = Session::new(SessionConfig { add_path: true, ..config() }, 0);
    let expected: &[&[u8]] = &[
        &[0xff; 16],
        &[0, 67, 1, 4, 0xfd, 0xe8, 0, 90, 10, 0, 0, 200, 38, 2, 36],
        &[1, 4, 0, 1, 0, 1],
        &[1, 4, 0, 2, 0, 1],
        &[2, 0],
        &[6, 0],
        &[64, 2, 0, 0],
        &[65, 4, 0, 0, 0xfd, 0xe8],
        &[69, 8, 0, 1, 1, 1, 0, 2, 1, 1],
    ];
    assert_eq!(session.output().as_slice(), expected.concat());
}

#[test]
fn a_session_is_established_by_open_and_keepalive() {
    let voice = Voice::new(1, 0, false);
    let mut session = Session::new(config(), 0);
    session.set_exports(&[export("198.51.100.0/24"), export("2001:db8:1::/48")]);
    let mut events = Vec::new();
    let mut open = Vec::new();
    voice.open.put(&mut open);
    session.receive(0, &open, &mut events);
    assert_eq!((&events[..], session.state()), (&[Event::Opened][..], State::OpenConfirm));
    assert_eq!(said(&mut session).iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [OPEN, KEEPALIVE]);
    let mut keepalive = Vec::new();
    put(&mut keepalive, KEEPALIVE, &[]);
    session.receive(0, &keepalive, &mut events);
    assert_eq!((events.len(), session.state(), session.hold_s()), (2, State::Established, 90));
    let updates: Vec<Update> = said(&mut session)
        .iter()
        .map(|(kind, body)| {
            assert_eq!(*kind, UPDATE);
            Update::read(body, &voice.reading).unwrap()
        })
        .collect();
    let announced: Vec<_> = updates.iter().flat_map(|update| &update.announced).collect();
    assert_eq!(announced[0].1, [nlri("198.51.100.0/24")]);
    assert_eq!(announced[0].0.next_hop, IpAddr::from([10, 0, 0, 200]));
    assert_eq!(announced[0].0.as_path.to_string(), "65000");
    assert_eq!(announced[1].1, [nlri("2001:db8:1::/48")]);
    let ends: Vec<_> = updates.iter().filter_map(|update| update.end_of_rib).collect();
    assert_eq!(ends, FAMILIES, "and then that this was all");
}

#[test]
fn only_differences_are_announced_and_all_when_asked() {
    let (mut session, voice) = established();
    let read = |session: &mut Session| -> (Vec<Nlri>, Vec<Nlri>) {
        let updates: Vec<Update> =
            said(session).iter().map(|(_, body)| Update::read(body, &voice.reading).unwrap()).collect();
        let announced =
            updates.iter().flat_map(|update| &update.announced).flat_map(|(_, list)| list.clone());
        (announced.collect(), updates.iter().flat_map(|update| update.withdrawn.clone()).collect())
    };
    let (a, b, c) = (export("198.51.100.0/24"), export("203.0.113.0/24"), export("2001:db8:1::/48"));
    session.set_exports(&[a.clone(), b.clone()]);
    assert_eq!(read(&mut session), (vec![nlri("198.51.100.0/24"), nlri("203.0.113.0/24")], vec![]));
    session.set_exports(&[a.clone(), c.clone()]);
    assert_eq!(read(&mut session), (vec![nlri("2001:db8:1::/48")], vec![nlri("203.0.113.0/24")]));
    session.set_exports(&[Export { med: Some(5), ..a.clone() }, c]);
    assert_eq!(read(&mut session), (vec![nlri("198.51.100.0/24")], vec![]));
    let mut refresh = Vec::new();
    put(&mut refresh, ROUTE_REFRESH, &[0, 2, 0, 1]);
    session.receive(0, &refresh, &mut Vec::new());
    assert_eq!(read(&mut session), (vec![nlri("2001:db8:1::/48")], vec![]));
    // IPv6 without a next hop of its family cannot be announced here.
    session.set_exports(&[Export { next_hop: None, ..export("2001:db8:9::/48") }]);
    assert_eq!(read(&mut session).0, []);
    assert_eq!(session.told(), 0);
}

#[test]
fn internal_peers_get_local_pref_and_an_empty_path() {
    let own = SessionConfig { peer_as: 65_000, ..config() };
    let one = Export { communities: vec![7], ..export("198.51.100.0/24") };
    let internal = attributes_of(&one, &own).unwrap();
    assert_eq!(
        (internal.local_pref, internal.as_path.len(), &internal.communities[..]),
        (Some(100), 0, &[7][..])
    );
    let external = attributes_of(&Export { prepend: 2, ..one }, &config()).unwrap();
    assert_eq!((external.local_pref, external.as_path.to_string()), (None, "65000 65000 65000".into()));
}

#[test]
fn timers_keep_the_session_and_end_it() {
    let (mut session, _) = established();
    let mut events = Vec::new();
    assert_eq!(session.next_tick(), 30 * SECOND);
    session.tick(29 * SECOND, &mut events);
    assert_eq!(said(&mut session), []);
    session.tick(30 * SECOND, &mut events);
    assert_eq!(said(&mut session), [(KEEPALIVE, vec![])]);
    let mut keepalive = Vec::new();
    put(&mut keepalive, KEEPALIVE, &[]);
    session.receive(60 * SECOND, &keepalive, &mut events);
    session.tick(149 * SECOND, &mut events);
    assert_eq!(said(&mut session), [(KEEPALIVE, vec![])]);
    assert!(events.is_empty());
    session.tick(150 * SECOND, &mut events);
    assert_eq!(said(&mut session), [(NOTIFICATION, vec![4, 0])]);
    assert_eq!(events, [Event::Closed(End::Sent(Notice::new(4, 0)))]);
    assert_eq!(session.next_tick(), u64::MAX);
    // An OPEN that does not come.
    let mut session = Session::new(config(), 0);
    session.tick(240 * SECOND, &mut events);
    assert_eq!(session.state(), State::Closed);
    // No hold time: no timers.
    let mut voice = Voice::new(1, 0, false);
    voice.open.hold_s = 0;
    let mut session = Session::new(config(), 0);
    session.receive(0, &voice.hello(), &mut Vec::new());
    assert_eq!((session.next_tick(), session.hold_s()), (u64::MAX, 0));
}

#[test]
fn what_does_not_belong_ends_the_session_with_its_code() {
    let bytes = |kind: u8, body: &[u8]| {
        let mut bytes = Vec::new();
        put(&mut bytes, kind, body);
        bytes
    };
    let voice = Voice::new(1, 0, false);
    let mut open = Vec::new();
    voice.open.put(&mut open);
    let of = |before: &[u8], bytes: &[u8]| -> Vec<u8> {
        let mut session = Session::new(config(), 0);
        let mut events = Vec::new();
        session.receive(0, before, &mut events);
        session.output().clear();
        session.receive(0, bytes, &mut events);
        assert_eq!(session.state(), State::Closed);
        let [.., Event::Closed(End::Sent(_))] = &events[..] else { panic!("{events:?}") };
        let all = said(&mut session);
        let (kind, body) = all.last().unwrap();
        assert_eq!(*kind, NOTIFICATION);
        body.clone()
    };
    let changed = |change: &dyn Fn(&mut Voice)| {
        let mut voice = voice.clone();
        change(&mut voice);
        let mut open = Vec::new();
        voice.open.put(&mut open);
        of(&[], &open)
    };
    assert_eq!(of(&[], &bytes(KEEPALIVE, &[])), [5, 1, KEEPALIVE]);
    assert_eq!(of(&open, &bytes(UPDATE, &[0; 4])), [5, 2, UPDATE]);
    assert_eq!(of(&voice.hello(), &open), [5, 3, OPEN]);
    assert_eq!(of(&voice.hello(), &[0; 19]), [1, 1]);
    assert_eq!(of(&voice.hello(), &bytes(9, &[])), [1, 3, 9]);
    assert_eq!(of(&voice.hello(), &bytes(UPDATE, &[0, 9, 0, 0])), [3, 1]);
    assert_eq!(changed(&|voice| voice.open.capabilities.wide_as = Some(1)), [2, 2]);
    assert_eq!(changed(&|voice| voice.open.hold_s = 2), [2, 6]);
    let none = |voice: &mut Voice| {
        let capabilities = &mut voice.open.capabilities;
        (capabilities.families, capabilities.flows) = ([false; 2], [false; 2]);
    };
    // Without the capability it speaks IPv4: with us, that is enough.
    let mut four = voice.clone();
    none(&mut four);
    let mut session = Session::new(config(), 0);
    session.receive(0, &four.hello(), &mut Vec::new());
    assert_eq!(session.reading().families, [true, false]);
    // ... unless it is not what we speak.
    let mut session = Session::new(SessionConfig { families: [false, true], ..config() }, 0);
    session.output().clear();
    session.receive(0, &four.hello(), &mut Vec::new());
    assert_eq!(said(&mut session), [(NOTIFICATION, vec![2, 7, 1, 4, 0, 2, 0, 1])]);
    // Who only says where attacks are needs no family, and ours only where we hear it.
    let mut attacks = voice.clone();
    (attacks.open.capabilities.families, attacks.open.capabilities.flows) = ([false; 2], [true, false]);
    let mut session = Session::new(SessionConfig { flows: true, ..config() }, 0);
    session.receive(0, &attacks.hello(), &mut Vec::new());
    assert_eq!((session.reading().families, session.reading().flows), ([false; 2], [true, false]));
    // RFC 6286: the same identifier within an AS.
    let own = SessionConfig { local_as: 64_496, id: voice.open.id, ..config() };
    let mut session = Session::new(own, 0);
    session.output().clear();
    session.receive(0, &voice.hello(), &mut Vec::new());
    assert_eq!(said(&mut session), [(NOTIFICATION, vec![2, 3])]);
}

#[test]
fn a_notification_of_the_peer_is_the_end() {
    let (mut session, _) = established();
    let mut bytes = Vec::new();
    message::put_notice(&mut bytes, &Notice::with(6, 2, b"\x03bye".to_vec()));
    let mut events = Vec::new();
    session.receive(0, &bytes, &mut events);
    let [Event::Closed(end)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(end.to_string(), "received: administrative shutdown (6/2): \"bye\"");
    assert_eq!(said(&mut session), [], "no answer");
    session.receive(0, &bytes, &mut events);
    session.lost(&mut events);
    assert_eq!(events.len(), 1, "nothing after the end");
}

#[test]
fn where_bytes_are_cut_does_not_matter() {
    let voice = Voice::new(1, 0, false);
    let mut stream = voice.hello();
    for round in 0..20 {
        stream.extend(voice.announce(&["192.0.2.0/24", "2001:db8::/32", "10.0.0.0/8"], round % 4 + 1));
        stream.extend(voice.withdraw(&["192.0.2.0/24", "2001:db8::/32"]));
        put(&mut stream, KEEPALIVE, &[]);
    }
    stream.extend(voice.end_of_rib());
    // And what goes wrong at the end.
    stream.extend_from_slice(&[0xff; 16]);
    stream.extend_from_slice(&[0, 18, 4]);
    let run = |cuts: &mut dyn FnMut() -> usize| {
        let mut session = Session::new(config(), 0);
        session.set_exports(&[export("198.51.100.0/24")]);
        let mut events = Vec::new();
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let (part, others) = rest.split_at(cuts().min(rest.len()));
            session.receive(0, part, &mut events);
            rest = others;
        }
        (events, session.output().clone(), session.stats())
    };
    let whole = run(&mut || usize::MAX);
    assert_eq!(whole.0.last(), Some(&Event::Closed(End::Sent(Notice::with(1, 2, [0, 18])))));
    assert_eq!(whole.2.updates, 20 * 5 + 2);
    assert_eq!(run(&mut || 1), whole);
    let mut rng = StdRng::seed_from_u64(5);
    for longest in [2, 7, 30, 100, 1000] {
        for _ in 0..20 {
            assert_eq!(run(&mut || rng.random_range(1..=longest)), whole);
        }
    }
}

#[test]
fn any_bytes_end_or_wait() {
    let mut rng = StdRng::seed_from_u64(6);
    let voice = Voice::new(1, 120, true);
    let mut good = voice.hello();
    good.extend(voice.announce(&["192.0.2.0/24", "2001:db8::/32"], 2));
    good.extend(voice.end_of_rib());
    let mut closed = 0;
    for _ in 0..5000 {
        let mut bytes = good.clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        let mut session = Session::new(config(), 0);
        let mut events = Vec::new();
        session.receive(0, &bytes, &mut events);
        let over = matches!(events.last(), Some(Event::Closed(_)));
        assert_eq!(over, session.state() == State::Closed);
        let ends = said(&mut session).iter().filter(|(kind, _)| *kind == NOTIFICATION).count();
        assert_eq!(ends, usize::from(matches!(events.last(), Some(Event::Closed(End::Sent(_))))));
        closed += u32::from(over);
    }
    assert!(closed > 500, "{closed}");
}
