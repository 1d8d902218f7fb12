use super::*;
use crate::message::{KEEPALIVE, NOTIFICATION, put};
use crate::testing::{Voice, messages, prefix};
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
    lab.with(|speaker, now, out| speaker.set_peers(now, peers, out));
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

#[test]
fn peers_come_go_and_change() {
    let mut lab = Lab::new();
    let (one, two) = (Voice::new(1, 0, false), Voice::new(2, 0, false));
    let first = lab.establish(&one, BOTH);
    let second = lab.establish(&two, &["203.0.113.0/24"]);
    let kept = PeerConfig::new("two", address(2), 64_496);
    let three = PeerConfig::new("three", address(3), 64_496);
    lab.with(|speaker, now, out| speaker.set_peers(now, vec![three, kept.clone()], out));
    assert_eq!(lab.told(), ["203.0.113.0/24"]);
    assert_eq!((lab.notice(first), lab.notice(second)), (Some(vec![6, 3]), None));
    assert_eq!(lab.peer("two").paths, [1, 0]);
    // The same peer with another setting begins anew.
    let changed = vec![PeerConfig { local_pref: 50, ..kept }];
    lab.with(|speaker, now, out| speaker.set_peers(now, changed.clone(), out));
    assert_eq!((lab.told.len(), lab.notice(second)), (0, Some(vec![6, 6])));
    lab.with(|speaker, now, out| speaker.set_peers(now, changed, out));
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
