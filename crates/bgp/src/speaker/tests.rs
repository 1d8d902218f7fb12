use super::*;
use crate::message::{KEEPALIVE, NOTIFICATION, put};
use crate::testing::{Voice, messages, nlri, prefix};
use crate::update::{Nlri, put_announcement, put_withdrawal};
use crate::{AsPath, Attributes};
use tidemill_feed::AnyPrefix;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 200));

fn address(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

/// Peers 1 and 2, of AS 64496.
fn speaker() -> Speaker {
    let peers = vec![PeerConfig::new("one", address(1), 64_496), PeerConfig::new("two", address(2), 64_496)];
    let id = Ipv4Addr::new(10, 0, 0, 200);
    Speaker::new(SpeakerConfig { asn: 65_000, id, hold_s: 90, peers, exports: Vec::new() })
}

/// A speaker, what it has told, and the clock.
struct Lab {
    speaker: Speaker,
    told: BTreeMap<AnyPrefix, IpAddr>,
    now: u64,
}

impl Lab {
    fn new() -> Self {
        Lab { speaker: speaker(), told: BTreeMap::new(), now: 0 }
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut Speaker, u64, &mut Vec<Change>) -> T) -> T {
        let mut changes = Vec::new();
        let result = work(&mut self.speaker, self.now, &mut changes);
        while self.speaker.rib_mut().sweep(2, &mut changes) {}
        for change in changes {
            match change.next_hop {
                Some(hop) => drop(self.told.insert(change.prefix, hop)),
                None => drop(self.told.remove(&change.prefix)),
            }
        }
        self.speaker.rib().check();
        assert_eq!(self.told, self.speaker.rib().best().collect());
        result
    }

    fn connect(&mut self, voice: &Voice) -> ConnectionId {
        let remote = IpAddr::from(voice.open.id);
        self.with(|speaker, now, out| speaker.connected(now, remote, LOCAL, false, out)).unwrap()
    }

    fn say(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.with(|speaker, now, out| speaker.receive(now, id, bytes, out));
    }

    /// A session, with these prefixes.
    fn establish(&mut self, voice: &Voice, prefixes: &[&str]) -> ConnectionId {
        let id = self.connect(voice);
        self.say(id, &voice.hello());
        self.say(id, &voice.announce(prefixes, 1));
        id
    }

    fn lose(&mut self, id: ConnectionId) {
        self.with(|speaker, now, out| speaker.closed(now, id, out));
    }

    fn pass(&mut self, seconds: u64) {
        self.now += seconds * SECOND;
        self.with(|speaker, now, out| speaker.tick(now, out));
    }

    fn peer(&self, name: &str) -> ShownPeer {
        self.speaker.peers().find(|peer| peer.name == name).unwrap()
    }

    fn told(&self) -> Vec<String> {
        self.told.keys().map(AnyPrefix::to_string).collect()
    }

    /// The last NOTIFICATION that went to a connection.
    fn notice(&mut self, id: ConnectionId) -> Option<Vec<u8>> {
        let output = self.speaker.session(id)?.output().clone();
        messages(&output).into_iter().rev().find(|(kind, _)| *kind == NOTIFICATION).map(|(_, body)| body)
    }
}

const BOTH: &[&str] = &["192.0.2.0/24", "2001:db8::/32"];

#[test]
fn the_better_of_two_peers_counts_until_it_goes() {
    let mut lab = Lab::new();
    let (one, two) = (Voice::new(1, 0, false), Voice::new(2, 0, false));
    let first = lab.establish(&one, BOTH);
    lab.establish(&two, BOTH);
    assert_eq!(lab.told[&prefix("192.0.2.0/24")], address(1), "the lower identifier");
    lab.say(first, &one.announce(BOTH, 2));
    assert_eq!(lab.told[&prefix("192.0.2.0/24")], address(2), "the shorter path");
    lab.say(first, &one.announce(BOTH, 1));
    lab.lose(first);
    assert_eq!(lab.told[&prefix("192.0.2.0/24")], address(2));
    assert_eq!(lab.peer("one").paths, [0, 0]);
    assert_eq!(lab.peer("one").ended.as_deref(), Some("connection lost"));
    assert_eq!((lab.peer("two").paths, lab.peer("two").state), ([1, 1], Some(State::Established)));
}

#[test]
fn strangers_are_refused_and_one_session_is_enough() {
    let mut lab = Lab::new();
    let refused = lab.with(|speaker, now, out| speaker.connected(now, address(9), LOCAL, false, out));
    assert_eq!(refused, Err(Refusal::Unknown(address(9))));
    let one = Voice::new(1, 0, false);
    lab.establish(&one, BOTH);
    let again = lab.with(|speaker, now, out| speaker.connected(now, address(1), LOCAL, false, out));
    assert_eq!(again, Err(Refusal::Busy("one".into())));
    // IPv4 in IPv6, as a socket for both gives it.
    let mapped = IpAddr::V6(Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped());
    assert!(lab.with(|speaker, now, out| speaker.connected(now, mapped, LOCAL, false, out)).is_ok());
}

#[test]
fn a_graceful_restart_keeps_routes_until_they_are_told_again() {
    let mut lab = Lab::new();
    let one = Voice::new(1, 60, true);
    let id = lab.establish(&one, &["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32"]);
    lab.lose(id);
    assert_eq!(lab.told.len(), 3);
    assert_eq!(lab.peer("one").stale, [true, true]);
    lab.pass(59);
    assert_eq!(lab.told.len(), 3);
    let id = lab.establish(&one, &["192.0.2.0/24"]);
    lab.pass(10);
    assert_eq!(lab.told.len(), 3, "back, but not all is told");
    lab.say(id, &one.end_of_rib());
    assert_eq!(lab.told(), ["192.0.2.0/24"]);
    assert_eq!((lab.peer("one").stale, lab.peer("one").synchronized), ([false; 2], [true; 2]));
}

/// Each family ends its own restart: by its end-of-RIB, or, where that never comes, when its time is over.
#[test]
fn families_end_their_restarts_one_by_one() {
    let mut lab = Lab::new();
    let one = Voice::new(1, 60, true);
    let id = lab.establish(&one, &["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32", "2001:db9::/32"]);
    lab.lose(id);
    let id = lab.establish(&one, &["192.0.2.0/24", "2001:db8::/32"]);
    let mut end = Vec::new();
    crate::update::put_end_of_rib(&mut end, tidemill_feed::bgp::Family::V4);
    lab.say(id, &end);
    assert_eq!(lab.told(), ["192.0.2.0/24", "2001:db8::/32", "2001:db9::/32"]);
    assert_eq!((lab.peer("one").stale, lab.peer("one").synchronized), ([false, true], [true, false]));
    // IPv6 never says so. What was told since the restart stays.
    let stays = |lab: &mut Lab, seconds: u64| {
        for _ in 0..seconds / 60 {
            lab.pass(60);
            let mut keepalive = Vec::new();
            put(&mut keepalive, KEEPALIVE, &[]);
            lab.say(id, &keepalive);
        }
        lab.told().len()
    };
    assert_eq!(stays(&mut lab, 300), 3);
    assert_eq!(stays(&mut lab, 60), 2, "STALE_NS");
    assert_eq!(lab.told(), ["192.0.2.0/24", "2001:db8::/32"]);
    assert_eq!((lab.peer("one").stale, lab.peer("one").state), ([false; 2], Some(State::Established)));
    // An end-of-RIB that comes after all ends nothing, and what is told of the other family is as it was.
    lab.say(id, &one.end_of_rib());
    assert_eq!((lab.told().len(), lab.peer("one").synchronized), (2, [true; 2]));
}

#[test]
fn a_restart_that_takes_too_long_costs_the_routes() {
    let mut lab = Lab::new();
    let one = Voice::new(1, 60, true);
    let id = lab.establish(&one, BOTH);
    lab.lose(id);
    lab.pass(60);
    assert_eq!(lab.told(), Vec::<String>::new());
    // Nor does it help to come back, and say nothing.
    let id = lab.establish(&one, BOTH);
    lab.lose(id);
    let id = lab.connect(&one);
    lab.say(id, &one.hello());
    for _ in 0..5 {
        lab.pass(70);
        let mut keepalive = Vec::new();
        put(&mut keepalive, KEEPALIVE, &[]);
        lab.say(id, &keepalive);
    }
    assert_eq!(lab.told.len(), 2);
    lab.pass(10);
    assert_eq!((lab.told.len(), lab.peer("one").state), (0, Some(State::Established)));
}

#[test]
fn a_peer_that_has_lost_its_routes_says_so() {
    let mut lab = Lab::new();
    let id = lab.establish(&Voice::new(1, 60, true), BOTH);
    lab.lose(id);
    let forgot = Voice::new(1, 60, false);
    let id = lab.connect(&forgot);
    assert_eq!(lab.told.len(), 2);
    lab.say(id, &forgot.hello());
    assert_eq!(lab.told.len(), 0, "its forwarding state was not kept");
}

#[test]
fn a_graceful_peer_may_come_back_before_it_is_missed() {
    let mut lab = Lab::new();
    let one = Voice::new(1, 60, true);
    lab.establish(&one, BOTH);
    let id = lab.establish(&one, &["192.0.2.0/24"]);
    assert_eq!(lab.told.len(), 2, "RFC 4724, 5");
    lab.say(id, &one.end_of_rib());
    assert_eq!(lab.told(), ["192.0.2.0/24"]);
    assert_eq!(lab.peer("one").established, 2);
}

#[test]
fn a_notification_ends_grace() {
    let mut lab = Lab::new();
    let one = Voice::new(1, 60, true);
    let id = lab.establish(&one, BOTH);
    let mut bye = Vec::new();
    crate::message::put_notice(&mut bye, &Notice::new(notice::CEASE, notice::SHUTDOWN));
    lab.say(id, &bye);
    assert_eq!(lab.told.len(), 0);
    assert_eq!(lab.peer("one").ended.as_deref(), Some("received: administrative shutdown (6/2)"));
    // Who restarts too often within its time gains nothing.
    let id = lab.establish(&one, BOTH);
    lab.lose(id);
    lab.pass(50);
    let id = lab.connect(&one);
    lab.say(id, &one.hello()[..40]);
    lab.lose(id);
    lab.pass(10);
    assert_eq!(lab.told.len(), 0);
}

#[test]
fn too_many_prefixes_end_the_session_for_a_while() {
    let mut lab = Lab::new();
    let peers = vec![PeerConfig { max_prefixes: 2, ..PeerConfig::new("one", address(1), 64_496) }];
    lab.with(|speaker, now, _| speaker.set_peers(now, peers));
    let one = Voice::new(1, 60, true);
    let id = lab.establish(&one, BOTH);
    assert_eq!(lab.told.len(), 2);
    lab.say(id, &one.announce(&["198.51.100.0/24"], 1));
    assert_eq!(lab.notice(id), Some(vec![6, 1, 0, 1, 1, 0, 0, 0, 2]));
    assert_eq!(lab.told.len(), 0);
    lab.lose(id);
    let again = lab.with(|speaker, now, out| speaker.connected(now, address(1), LOCAL, false, out));
    assert_eq!(again, Err(Refusal::LeftAlone("one".into(), 300)));
    lab.pass(300);
    lab.establish(&one, BOTH);
}

/// By add-path: what is beyond the bound is left out, counted and said once, and the session stays.
#[test]
fn paths_too_many_to_one_prefix_are_left_out() {
    let mut lab = Lab::new();
    let peers = vec![PeerConfig { add_path: true, ..PeerConfig::new("one", address(1), 64_496) }];
    lab.with(|speaker, now, _| speaker.set_peers(now, peers));
    let mut one = Voice::new(1, 0, false);
    one.open.capabilities.add_path = [2, 0];
    one.reading.add_path = [true, false];
    let id = lab.establish(&one, &[]);
    let list = |numbers: std::ops::Range<u32>| -> Vec<Nlri> {
        numbers.map(|path| Nlri { path, ..nlri("192.0.2.0/24") }).collect()
    };
    let attributes = Attributes::new(address(1), AsPath::sequence(&[64_496]));
    let paths = |numbers| {
        let mut bytes = Vec::new();
        put_announcement(&mut bytes, &attributes, &list(numbers), Family::V4, &one.reading);
        bytes
    };
    let most = PATHS_PER_PREFIX as u32;
    lab.say(id, &paths(1..most + 7));
    let shown = lab.peer("one");
    assert_eq!((shown.state, shown.too_many_paths), (Some(State::Established), 6));
    assert_eq!((shown.paths, lab.notice(id)), ([PATHS_PER_PREFIX, 0], None));
    lab.say(id, &paths(1..most + 7));
    assert_eq!(lab.peer("one").too_many_paths, 12);
    let notes = lab.speaker.take_notes().concat();
    assert_eq!(notes.matches("more than 64 paths to 192.0.2.0/24").count(), 1, "{notes}");
    // One that goes makes room, and other prefixes are as ever.
    let mut gone = Vec::new();
    put_withdrawal(&mut gone, &list(1..2), Family::V4, &one.reading);
    lab.say(id, &gone);
    lab.say(id, &paths(most + 1..most + 2));
    lab.say(id, &one.announce(&["198.51.100.0/24"], 1));
    let shown = lab.peer("one");
    assert_eq!((shown.paths, shown.too_many_paths, lab.told.len()), ([PATHS_PER_PREFIX + 1, 0], 12, 2));
}

#[test]
fn of_two_connections_the_higher_identifier_makes_one() {
    for (ours_wins, id) in [(true, 1), (false, 250)] {
        let mut lab = Lab::new();
        lab.speaker.peers[0].config.address = address(id);
        let voice = Voice::new(id, 0, false);
        let theirs = lab.connect(&voice);
        let ours =
            lab.with(|speaker, now, out| speaker.connected(now, address(id), LOCAL, true, out)).unwrap();
        let mut open = Vec::new();
        voice.open.put(&mut open);
        lab.say(theirs, &open);
        let (winner, loser) = if ours_wins { (ours, theirs) } else { (theirs, ours) };
        assert_eq!(lab.notice(loser), Some(vec![6, 7]));
        lab.lose(loser);
        match ours_wins {
            true => lab.say(winner, &voice.hello()),
            false => {
                let mut keepalive = Vec::new();
                put(&mut keepalive, KEEPALIVE, &[]);
                lab.say(winner, &keepalive);
            }
        }
        assert_eq!(lab.peer("one").state, Some(State::Established), "{id}");
    }
}

#[test]
fn routes_that_have_come_through_us_are_not_used() {
    let mut lab = Lab::new();
    let one = Voice::new(1, 0, false);
    let id = lab.establish(&one, BOTH);
    let mut looped = one.clone();
    looped.open.asn = 65_000;
    lab.say(id, &looped.announce(&["192.0.2.0/24"], 1));
    assert_eq!((lab.told(), lab.peer("one").loops), (vec!["2001:db8::/32".to_string()], 1));
}

/// RFC 4271, 6.3: a peer of another AS has put that in front, but for a route server (RFC 7947, 2.2.2.1).
#[test]
fn paths_begin_with_the_peers_as() {
    let mut lab = Lab::new();
    let one = Voice::new(1, 0, false);
    let mut other = one.clone();
    other.open.asn = 64_511;
    let id = lab.establish(&one, BOTH);
    lab.say(id, &one.announce(&BOTH[..1], 0));
    assert_eq!((lab.told(), lab.peer("one").wrong_first_as), (vec![BOTH[1].to_owned()], 1), "no AS at all");
    lab.say(id, &other.announce(&BOTH[1..], 2));
    assert_eq!((lab.told.len(), lab.peer("one").wrong_first_as), (0, 2));
    assert_eq!((lab.peer("one").state, lab.peer("one").loops), (Some(State::Established), 0));
    let server = PeerConfig { first_as: false, ..PeerConfig::new("one", address(1), 64_496) };
    let own = PeerConfig::new("two", address(2), 65_000);
    lab.with(|speaker, now, _| speaker.set_peers(now, vec![server, own]));
    lab.lose(id);
    let id = lab.establish(&one, &[]);
    lab.say(id, &other.announce(BOTH, 2));
    assert_eq!((lab.told.len(), lab.peer("one").wrong_first_as), (2, 0), "a route server");
    // A route of our own AS has none in its path.
    let mut two = Voice::new(2, 0, false);
    (two.open.asn, two.open.capabilities.wide_as) = (65_000, Some(65_000));
    let id = lab.establish(&two, &[]);
    let plain = Attributes::new(address(2), AsPath::default());
    let attributes = Attributes { local_pref: Some(100), ..plain };
    let (mut bytes, route) = (Vec::new(), [nlri("198.51.100.0/24")]);
    crate::update::put_announcement(&mut bytes, &attributes, &route, Family::V4, &two.reading);
    lab.say(id, &bytes);
    assert_eq!((lab.told.len(), lab.peer("two").wrong_first_as), (3, 0));
}

#[test]
fn martians_are_no_routes() {
    let mut lab = Lab::new();
    let one = Voice::new(1, 0, false);
    lab.establish(&one, &["0.0.0.0/0", "127.0.0.0/8", "10.0.0.0/8", "224.1.0.0/16", "::/0", "::1/128"]);
    assert_eq!(lab.told(), ["0.0.0.0/0", "10.0.0.0/8", "::/0"]);
    let shown = lab.peer("one");
    assert_eq!((shown.martians, shown.paths, shown.stats.treated_as_withdraw), (3, [2, 1], 0));
}

#[test]
fn peers_come_go_and_change() {
    let mut lab = Lab::new();
    let (one, two) = (Voice::new(1, 0, false), Voice::new(2, 0, false));
    let first = lab.establish(&one, BOTH);
    let second = lab.establish(&two, &["203.0.113.0/24"]);
    drop(lab.speaker.take_notes());
    let kept = PeerConfig::new("two", address(2), 64_496);
    let three = PeerConfig::new("three", address(3), 64_496);
    lab.with(|speaker, now, _| speaker.set_peers(now, vec![three, kept.clone()]));
    assert_eq!(lab.told(), ["203.0.113.0/24"]);
    assert_eq!((lab.notice(first), lab.notice(second)), (Some(vec![6, 3]), None));
    assert_eq!(lab.peer("two").paths, [1, 0]);
    // The same peer with another setting begins anew.
    let changed = vec![PeerConfig { local_pref: 50, ..kept }];
    lab.with(|speaker, now, _| speaker.set_peers(now, changed.clone()));
    assert_eq!((lab.told.len(), lab.notice(second)), (0, Some(vec![6, 6])));
    assert_eq!(
        lab.speaker.take_notes(),
        [
            "peer one (10.0.0.1): sent: peer de-configured (6/3)",
            "peer two (10.0.0.2): sent: other configuration change (6/6)",
        ]
    );
    lab.with(|speaker, now, _| speaker.set_peers(now, changed));
    lab.lose(first);
    lab.lose(second);
    lab.establish(&two, BOTH);
    let lost = lab.with(|speaker, now, out| speaker.reset(now, "two", out));
    assert!(lost && lab.told.is_empty());
    assert!(!lab.with(|speaker, now, out| speaker.reset(now, "one", out)));
}

/// Peers that come, go, restart and speak at random: what is told is what the paths that are there make of it (which
/// [`Lab::with`] checks), and in the end nothing is left.
#[test]
fn random_flaps_leave_nothing_behind() {
    use rand::{RngExt, SeedableRng};
    let mut rng = rand::rngs::StdRng::seed_from_u64(8);
    for _ in 0..30 {
        let mut lab = Lab::new();
        let mut open: [Option<ConnectionId>; 2] = [None; 2];
        let all = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24", "2001:db8::/32", "2001:db8:1::/48"];
        for _ in 0..120 {
            let peer = rng.random_range(0..2usize);
            let voice = Voice::new(peer as u8 + 1, [0, 20, 90][rng.random_range(0..3)], rng.random());
            match (open[peer], rng.random_range(0..8)) {
                (None, _) => open[peer] = Some(lab.establish(&voice, &[])),
                (Some(id), 0) => {
                    lab.lose(id);
                    open[peer] = None;
                }
                (Some(id), 1) => lab.say(id, &voice.end_of_rib()),
                (Some(id), 2) => lab.say(id, &voice.withdraw(&[all[rng.random_range(0..all.len())]])),
                (Some(id), 3) => {
                    lab.pass(rng.random_range(1..60));
                    let mut keepalive = Vec::new();
                    put(&mut keepalive, KEEPALIVE, &[]);
                    lab.say(id, &keepalive);
                }
                (Some(id), _) => {
                    let length = rng.random_range(1..4);
                    lab.say(id, &voice.announce(&[all[rng.random_range(0..all.len())]], length));
                }
            }
            // Time may have ended some.
            for slot in &mut open {
                let over = |id: ConnectionId| {
                    lab.speaker.connections.get(&id).is_none_or(|c| c.session.state() == State::Closed)
                };
                *slot = slot.filter(|id| !over(*id));
            }
        }
        lab.pass(1000);
        lab.pass(1000);
        assert_eq!((lab.told.len(), lab.speaker.rib().attributes()), (0, 0));
    }
}

/// Three peers say ever other things about 500 prefixes, are lost and come back, while the sweep lags behind: in the end what is told
/// is what the last word of each makes of it. (`held 16` does the same with a million.)
#[test]
fn many_updates_and_flaps_lose_nothing() {
    use rand::{RngExt, SeedableRng};
    let mut rng = rand::rngs::StdRng::seed_from_u64(16);
    let peers = (1..=3).map(|n| PeerConfig::new(&format!("peer {n}"), address(n), 64_496)).collect();
    let mut speaker = speaker();
    speaker.set_peers(0, peers);
    let voices: Vec<Voice> = (1..=3).map(|n| Voice::new(n, 0, false)).collect();
    let names: Vec<String> = (0..250)
        .flat_map(|n| [format!("10.{}.{}.0/24", n / 16, n % 16), format!("2001:db8:{n:x}::/48")])
        .collect();
    let (mut told, mut out) = (BTreeMap::new(), Vec::new());
    // By peer and prefix: how long the path is.
    let mut model: Vec<BTreeMap<usize, usize>> = vec![BTreeMap::new(); 3];
    let mut sessions: Vec<Option<ConnectionId>> = vec![None; 3];
    let mut updates = 0;
    while updates < 20_000 {
        let peer = rng.random_range(0..3);
        let id = *sessions[peer].get_or_insert_with(|| {
            let id = speaker.connected(0, address(peer as u8 + 1), LOCAL, false, &mut out).unwrap();
            speaker.receive(0, id, &voices[peer].hello(), &mut out);
            id
        });
        if rng.random_range(0..40) == 0 {
            speaker.closed(0, id, &mut out);
            (sessions[peer], model[peer]) = (None, BTreeMap::new());
        }
        for _ in 0..if sessions[peer].is_some() { 20 } else { 0 } {
            let number = rng.random_range(0..names.len());
            let name = [names[number].as_str()];
            let length = rng.random_range(0..4);
            let bytes = match length {
                0 => voices[peer].withdraw(&name),
                _ => voices[peer].announce(&name, length),
            };
            if length == 0 {
                model[peer].remove(&number);
            } else {
                model[peer].insert(number, length);
            }
            // Cut anywhere.
            let (first, second) = bytes.split_at(rng.random_range(0..bytes.len()));
            speaker.receive(0, id, first, &mut out);
            speaker.receive(0, id, second, &mut out);
            updates += 1;
        }
        speaker.rib_mut().sweep(50, &mut out);
        for change in out.drain(..) {
            match change.next_hop {
                Some(hop) => drop(told.insert(change.prefix, hop)),
                None => drop(told.remove(&change.prefix)),
            }
        }
    }
    while speaker.rib_mut().sweep(50, &mut out) {}
    for change in out {
        match change.next_hop {
            Some(hop) => drop(told.insert(change.prefix, hop)),
            None => drop(told.remove(&change.prefix)),
        }
    }
    speaker.rib().check();
    // The shortest path, and of these the lowest identifier.
    let best = |number: usize| {
        let of = |peer: usize| Some((*model[peer].get(&number)?, peer));
        (0..3).filter_map(of).min().map(|(_, peer)| peer as u8 + 1)
    };
    let expected: BTreeMap<AnyPrefix, IpAddr> = (0..names.len())
        .filter_map(|number| {
            let (prefix, peer) = (prefix(&names[number]), best(number)?);
            let hop = match prefix {
                AnyPrefix::V4(_) => address(peer),
                AnyPrefix::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(peer)]),
            };
            Some((prefix, hop))
        })
        .collect();
    assert!(expected.len() > 300, "{}", expected.len());
    assert_eq!(told, expected);
}

/// 192.0.2.0/25, and 203.0.113.0/24.
const FLOWS: &[u8] = &[6, 1, 25, 192, 0, 2, 0, 5, 1, 24, 203, 0, 113];

fn flows(lab: &Lab) -> Vec<(String, String, Result<(), Invalid>, bool)> {
    let text = |flow: ShownFlow| (flow.name, flow.spec.to_string(), flow.verdict, flow.best);
    lab.speaker.flows().into_iter().map(text).collect()
}

/// RFC 8955, 6: whoever has told the best route may say what becomes of packets there, nobody else; routes that change change that.
#[test]
fn flow_specifications_are_for_who_has_the_best_route() {
    let mut lab = Lab::new();
    let taken = |name: &str, n: u8, flows| PeerConfig { flows, ..PeerConfig::new(name, address(n), 64_496) };
    let peers = vec![taken("one", 1, FlowTrust::Validated), taken("two", 2, FlowTrust::Validated)];
    lab.with(|speaker, now, _| speaker.set_peers(now, peers));
    let (one, two) = (Voice::new(1, 0, false), Voice::new(2, 0, false));
    let first = lab.establish(&one, &["192.0.2.0/24"]);
    let second = lab.establish(&two, &["192.0.2.0/24"]);
    lab.say(second, &two.flows(FLOWS, 0.0, 1));
    let low = "destination 192.0.2.0/25".to_owned();
    let high = "destination 203.0.113.0/24".to_owned();
    let of = |name: &str, spec: &String, verdict: Result<(), Invalid>, best: bool| {
        (name.to_owned(), spec.clone(), verdict, best)
    };
    let refused = vec![
        of("two", &low, Err(Invalid::Originator), false),
        of("two", &high, Err(Invalid::NoRoute), false),
    ];
    assert_eq!(flows(&lab), refused);
    lab.say(first, &one.flows(&FLOWS[..7], 1000.0, 1));
    assert_eq!(flows(&lab)[0], of("one", &low, Ok(()), true));
    assert_eq!((lab.peer("one").flows, lab.peer("two").flows), (1, 2));
    // The other one has the better route now.
    lab.say(first, &one.announce(&["192.0.2.0/24"], 3));
    let list = flows(&lab);
    assert_eq!(list[0], of("one", &low, Err(Invalid::Originator), false));
    assert_eq!(list[1], of("two", &low, Ok(()), true));
    // It comes by another AS than the route.
    lab.say(second, &two.flows(&FLOWS[..7], 0.0, 0));
    assert_eq!(flows(&lab)[1], of("two", &low, Err(Invalid::Neighbor), false));
    lab.say(second, &two.flows(&FLOWS[..7], 0.0, 1));
    // With the session all of it goes, and without a route nothing is valid.
    let revision = lab.speaker.flow_revision();
    lab.say(second, &two.withdraw(&["192.0.2.0/24"]));
    assert_eq!(flows(&lab)[0], of("one", &low, Ok(()), true));
    assert_eq!(lab.speaker.flow_revision(), revision);
    lab.say(second, &two.withdraw_flows(&FLOWS[7..]));
    assert_eq!(flows(&lab).len(), 2);
    lab.lose(second);
    lab.lose(first);
    assert_eq!((flows(&lab), lab.peer("two").flows), (vec![], 0));
}

/// RFC 4724, of flow specifications: they apply while their peer restarts, and until it has given them again, each family by itself.
#[test]
fn flow_specifications_outlive_a_graceful_restart() {
    let mut lab = Lab::new();
    let peer = PeerConfig { flows: FlowTrust::Validated, ..PeerConfig::new("one", address(1), 64_496) };
    lab.with(|speaker, now, _| speaker.set_peers(now, vec![peer]));
    let one = Voice::new(1, 60, true);
    let prefixes = ["192.0.2.0/24", "203.0.113.0/24"];
    let id = lab.establish(&one, &prefixes);
    lab.say(id, &one.flows(FLOWS, 0.0, 1));
    let valid = |lab: &Lab| flows(lab).iter().filter(|(.., best)| *best).count();
    assert_eq!(valid(&lab), 2);
    let revision = lab.speaker.flow_revision();
    lab.lose(id);
    lab.pass(59);
    assert_eq!((valid(&lab), lab.peer("one").stale), (2, [true; 2]));
    assert_eq!(lab.speaker.flow_revision(), revision, "nothing has changed for who applies them");
    let id = lab.establish(&one, &prefixes);
    lab.say(id, &one.flows(&FLOWS[..7], 0.0, 1));
    // That the routes have all been told is no word on flow specifications.
    lab.say(id, &one.end_of_rib());
    assert_eq!(valid(&lab), 2);
    lab.say(id, &one.end_of_flows());
    assert_eq!((valid(&lab), lab.peer("one").flows), (1, 1));
    // It comes back, and never says that these were all.
    lab.lose(id);
    let id = lab.establish(&one, &prefixes);
    for minute in 1..=6 {
        assert_eq!(lab.peer("one").flows, 1, "{minute}");
        lab.pass(60);
        let mut keepalive = Vec::new();
        put(&mut keepalive, KEEPALIVE, &[]);
        lab.say(id, &keepalive);
    }
    assert_eq!((lab.peer("one").flows, lab.peer("one").state), (0, Some(State::Established)), "STALE_NS");
    // It does not come back.
    lab.say(id, &one.flows(&FLOWS[..7], 0.0, 1));
    lab.lose(id);
    lab.pass(59);
    assert_eq!(lab.peer("one").flows, 1);
    lab.pass(1);
    assert_eq!((lab.peer("one").flows, flows(&lab)), (0, vec![]));
    // It comes back and has kept nothing.
    let id = lab.establish(&one, &prefixes);
    lab.say(id, &one.flows(&FLOWS[..7], 0.0, 1));
    lab.lose(id);
    assert_eq!(lab.peer("one").flows, 1);
    let id = lab.establish(&Voice::new(1, 60, false), &prefixes);
    assert_eq!(flows(&lab), vec![]);
    lab.lose(id);
    // It says goodbye.
    let id = lab.establish(&one, &prefixes);
    lab.say(id, &one.flows(FLOWS, 0.0, 1));
    let mut bye = Vec::new();
    crate::message::put_notice(&mut bye, &Notice::new(notice::CEASE, notice::SHUTDOWN));
    lab.say(id, &bye);
    assert_eq!(flows(&lab), vec![]);
}

#[test]
fn a_part_that_another_as_has_told_makes_a_flow_specification_invalid() {
    let mut lab = Lab::new();
    let mut other = Voice::new(2, 0, false);
    (other.open.asn, other.open.capabilities.wide_as) = (64_497, Some(64_497));
    let peers = vec![
        PeerConfig { flows: FlowTrust::Validated, ..PeerConfig::new("one", address(1), 64_496) },
        PeerConfig::new("two", address(2), 64_497),
    ];
    lab.with(|speaker, now, _| speaker.set_peers(now, peers));
    let one = Voice::new(1, 0, false);
    let first = lab.establish(&one, &["192.0.2.0/24", "192.0.2.0/26"]);
    lab.say(first, &one.flows(&FLOWS[..7], 0.0, 1));
    assert_eq!(flows(&lab)[0].2, Ok(()), "what is more specific is its own");
    let second = lab.establish(&other, &["192.0.2.64/26"]);
    assert_eq!(flows(&lab)[0].2, Err(Invalid::MoreSpecific(prefix("192.0.2.64/26"))));
    lab.say(second, &other.flows(FLOWS, 0.0, 1));
    assert_eq!(lab.peer("two").flows, 0, "it was not asked for any");
    lab.lose(second);
    assert_eq!(flows(&lab)[0].2, Ok(()));
}

/// Who is trusted needs no routes; with too many it is left alone.
#[test]
fn a_trusted_peer_gives_what_it_likes_but_not_how_much() {
    let mut lab = Lab::new();
    let peer =
        PeerConfig { flows: FlowTrust::Trusted, max_flows: 2, ..PeerConfig::new("one", address(1), 64_496) };
    lab.with(|speaker, now, _| speaker.set_peers(now, vec![peer]));
    let one = Voice::new(1, 0, false);
    let id = lab.establish(&one, &[]);
    lab.say(id, &one.flows(FLOWS, 0.0, 1));
    assert!(flows(&lab).iter().all(|(_, _, verdict, best)| *verdict == Ok(()) && *best));
    lab.say(id, &one.flows(&[3, 3, 0x81, 17], 0.0, 1));
    assert_eq!(lab.notice(id), Some(vec![6, 1, 0, 1, 133, 0, 0, 0, 2]));
    assert_eq!(flows(&lab), vec![]);
}

/// What a peer gave before its restart is no part of what it gives now (RFC 4724, 4.2): it makes room, and what is kept is never more than the limit.
#[test]
fn what_was_before_a_restart_makes_room() {
    let mut lab = Lab::new();
    let (flows, max_flows) = (FlowTrust::Trusted, 2);
    let peer = PeerConfig { flows, max_flows, max_prefixes: 2, ..PeerConfig::new("one", address(1), 64_496) };
    lab.with(|speaker, now, _| speaker.set_peers(now, vec![peer]));
    let one = Voice::new(1, 60, true);
    let id = lab.establish(&one, BOTH);
    lab.say(id, &one.flows(FLOWS, 0.0, 1));
    lab.lose(id);
    let shown = |lab: &Lab| (lab.peer("one").paths, lab.peer("one").flows);
    assert_eq!(shown(&lab), ([1, 1], 2));
    let id = lab.establish(&one, &["192.0.2.0/24"]);
    assert_eq!(shown(&lab), ([1, 1], 2), "told again");
    lab.say(id, &one.announce(&["198.51.100.0/24"], 1));
    lab.say(id, &one.flows(&[3, 3, 0x81, 17], 0.0, 1));
    assert_eq!((shown(&lab), lab.notice(id)), (([2, 0], 1), None));
    lab.say(id, &one.flows(&FLOWS[..7], 0.0, 1));
    assert_eq!((shown(&lab), lab.notice(id)), (([2, 0], 2), None));
    lab.say(id, &one.flows(&FLOWS[7..], 0.0, 1));
    assert_eq!(lab.notice(id), Some(vec![6, 1, 0, 1, 133, 0, 0, 0, 2]));
}
