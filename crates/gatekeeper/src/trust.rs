//! What authenticated decisions are held against: the keys, and what is known of each Grantor. Published; what changes while packets flow is atomic.
//!
//! ```text
//!  control                                              nodes `decision`
//!  keys, Grantors of the policies --Trust, published--> header -> Grantor -> budget -> tag -> time -> window
//!  health of each Grantor <--------- Pulse: the last round that it answered, how far its clock is off ---+
//!         |                          Rounds: the one under way, begun by worker 0, which sends the probes
//!         +--> policies: who is left out
//! ```

use crate::config::{GatekeeperSection, ProbesConfig};
use crate::decision::authenticated::Known;
use crate::decision::health::{Change, Health, Rule};
use crate::decision::keys::{Fingerprint, Keyring};
use crate::decision::replay::Window;
use crate::error::GateError;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a Grantor lets us know between its decisions.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// The latest round whose probe it has answered.
    pub(crate) answered: AtomicU64,
    /// By how much the last datagram whose time is off is behind our clock, in nanoseconds, if nothing has counted since; 0: there is none.
    pub(crate) behind_ns: AtomicI64,
    /// How many of these have come since something counted.
    stale: AtomicU32,
    /// Why something under its address did not count since the last round: an [`Unheard`], or 0.
    unheard: AtomicU8,
    /// How many datagrams of an earlier start have come since something counted.
    earlier: AtomicU32,
}

/// So many of an earlier start, or with a time that is off, with none between them that counts, are said where no probes are sent.
pub(crate) const IN_A_ROW: u32 = 16;
/// The same of the same Grantor is not said again sooner, whatever comes between: somebody may repeat what it once sent, while what it sends counts.
const QUIET: Duration = Duration::from_secs(10);

/// One more, but for a flood that is longer than any number.
fn count(counter: &AtomicU32) {
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_add(1));
}

impl Pulse {
    /// Something of its counts, so its clock is right.
    pub(crate) fn taken(&self) {
        if self.behind_ns.load(Ordering::Relaxed) != 0 {
            self.behind_ns.store(0, Ordering::Relaxed);
        }
        for counter in [&self.stale, &self.earlier] {
            if counter.load(Ordering::Relaxed) != 0 {
                counter.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Something of its has a time that is off: its clock is wrong, or it was held up, or somebody repeats it.
    pub(crate) fn stale(&self, behind_ns: i64) {
        self.behind_ns.store(behind_ns, Ordering::Relaxed);
        count(&self.stale);
    }

    /// Something under its address did not count.
    pub(crate) fn ignore(&self, why: Unheard) {
        if why == Unheard::Earlier {
            count(&self.earlier);
        }
        // A flood writes once a round.
        if self.unheard.load(Ordering::Relaxed) != why as u8 {
            self.unheard.store(why as u8, Ordering::Relaxed);
        }
    }

    /// What did not count since it was asked last.
    fn take_unheard(&self) -> Option<Unheard> {
        let why = self.unheard.swap(0, Ordering::Relaxed);
        [Unheard::UnknownKey, Unheard::Forged, Unheard::Earlier].into_iter().find(|of| *of as u8 == why)
    }
}

/// Why something under a Grantor's address does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unheard {
    /// It is under a key that we do not have.
    UnknownKey = 1,
    /// Its tag is wrong.
    Forged,
    /// It is of an earlier start than the one that we know.
    Earlier,
}

/// A Grantor, as nodes see it.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// By the key's place in the ring.
    pub(crate) windows: Vec<Arc<Window>>,
    /// The highest version of its policy, of all that was taken.
    version: Arc<AtomicU32>,
    pub(crate) pulse: Arc<Pulse>,
}

impl Peer {
    /// Something that it has decided by this version, or said under it, was taken.
    pub(crate) fn heard(&self, version: u32) {
        if self.version.load(Ordering::Relaxed) < version {
            self.version.fetch_max(version, Ordering::Relaxed);
        }
    }

    /// What its probes tell it: a start of its with an earlier clock is to go on behind that.
    pub(crate) fn known(&self) -> Known {
        let stamp = self.windows.iter().map(|window| window.newest()).max().unwrap_or_default();
        Known { stamp, version: self.version.load(Ordering::Relaxed) }
    }
}

/// See the [module](self).
#[derive(Debug, Clone, Default)]
pub(crate) struct Trust {
    /// None: no decision can be authenticated.
    pub(crate) keys: Option<Keyring>,
    pub(crate) tolerance_ns: u64,
    /// In order of their addresses.
    pub(crate) peers: Vec<Peer>,
    /// The last ones that have left: what was taken of theirs stays taken if they come back.
    gone: Vec<Peer>,
    /// The last keyrings before this one, without their secrets, with those who were known under them: what was taken under a key stays taken if it is put back.
    replaced: Vec<(Vec<Fingerprint>, Vec<Peer>)>,
}

/// Grantors that have left and are remembered: so many, with 8 KiB for each key.
const MOST_GONE: usize = 64;
/// And keyrings: nobody changes keys so often within `clock_s`, behind which the time of what was sent refuses it.
const MOST_REPLACED: usize = 8;

impl Trust {
    /// The Grantor with this address.
    pub(crate) fn peer(&self, address: IpAddr) -> Option<&Peer> {
        self.peers.binary_search_by_key(&address, |peer| peer.address).ok().and_then(|at| self.peers.get(at))
    }

    /// With other keys and Grantors; what has been seen of those that stay, or come back, under keys that do, stays seen. `addresses` are in order.
    fn next(&self, keys: Option<Keyring>, tolerance_ns: u64, addresses: &[IpAddr]) -> Trust {
        let [now, then]: [Vec<Fingerprint>; 2] =
            [&keys, &self.keys].map(|keys| keys.iter().flat_map(Keyring::fingerprints).collect());
        let peer = |address: &IpAddr| {
            let gone = || self.gone.iter().find(|peer| peer.address == *address);
            let before = self.peer(*address).or_else(gone);
            let window = |key: &Fingerprint| {
                let under = |ring: &[Fingerprint], peer: &Peer| {
                    peer.windows.get(ring.iter().position(|known| known == key)?).cloned()
                };
                let stayed = before.and_then(|peer| under(&then, peer));
                let put_back = |(ring, peers): &(Vec<Fingerprint>, Vec<Peer>)| {
                    under(ring, peers.iter().find(|peer| peer.address == *address)?)
                };
                stayed.or_else(|| self.replaced.iter().rev().find_map(put_back)).unwrap_or_default()
            };
            Peer {
                address: *address,
                windows: now.iter().map(window).collect(),
                version: before.map(|peer| peer.version.clone()).unwrap_or_default(),
                // What its clock was said to be before it left is no news.
                pulse: self.peer(*address).map(|peer| peer.pulse.clone()).unwrap_or_default(),
            }
        };
        let left = self.gone.iter().chain(&self.peers).map(|peer| peer.address);
        let left = left.filter(|address| addresses.binary_search(address).is_err());
        let mut gone: Vec<Peer> = left.map(|address| peer(&address)).collect();
        gone.drain(..gone.len().saturating_sub(MOST_GONE));
        let peers = addresses.iter().map(peer).collect();
        let mut replaced = self.replaced.clone();
        if self.keys.is_some() && self.keys != keys {
            replaced.push((then, self.peers.iter().chain(&self.gone).cloned().collect()));
        }
        replaced.drain(..replaced.len().saturating_sub(MOST_REPLACED));
        Trust { peers, gone, replaced, keys, tolerance_ns }
    }

    /// What holds for these keys and Grantors, if that is anything else.
    pub(crate) fn changed(
        &self,
        keys: Option<Keyring>,
        tolerance_ns: u64,
        addresses: &[IpAddr],
    ) -> Option<Trust> {
        // Without keys nobody is trusted, and nothing is kept for anybody.
        let addresses = if keys.is_some() { addresses } else { &[] };
        let same = self.keys == keys
            && self.tolerance_ns == tolerance_ns
            && self.peers.iter().map(|peer| &peer.address).eq(addresses);
        (!same).then(|| self.next(keys, tolerance_ns, addresses))
    }
}

/// The keys of a configuration.
///
/// # Errors
/// What is wrong with them; no secret is in it.
pub(crate) fn keys(section: &GatekeeperSection) -> Result<Option<Keyring>, GateError> {
    Keyring::configured(section.key_file.as_deref(), &section.keys)
        .map_err(|(key, what)| GateError::config(key, what))
}

/// What an operator should know of Grantors, as one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// It does not answer any more; its flows go to the others of their policies.
    Down(IpAddr),
    /// It answers again, and has its flows back.
    Up(IpAddr),
    /// None answers: requests go to all as if they did.
    AllDown,
    /// It does not answer, and its clock differs from ours by more than is allowed.
    Clock {
        /// Whose.
        grantor: IpAddr,
        /// How far it is behind, in nanoseconds; negative: ahead.
        behind_ns: i64,
    },
    /// It does not answer, and what comes under its address does not count.
    Unheard {
        /// Whose.
        grantor: IpAddr,
        /// The last reason.
        why: Unheard,
    },
    /// Its address is ours now: what is sent to it comes back.
    Ours(IpAddr),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Down(grantor) => {
                write!(f, "grantor {grantor} does not answer: its flows go to the others of their policies")
            }
            Notice::Up(grantor) => write!(f, "grantor {grantor} answers again: it has its flows back"),
            Notice::AllDown => {
                f.write_str("no grantor answers: requests go to all of them as if they did, what was granted holds until it expires")
            }
            Notice::Ours(grantor) => {
                write!(f, "grantor {grantor} has an address that is ours now: nobody decides for its policies: give it another")
            }
            Notice::Unheard { grantor, why: Unheard::UnknownKey } => {
                write!(f, "what comes from grantor {grantor} does not count: it has a key that is not ours: give both the same keys")
            }
            Notice::Unheard { grantor, why: Unheard::Forged } => write!(
                f,
                "what comes from grantor {grantor} does not count: its tag is wrong: its secret is another one, or somebody else sends under its address: give \
                 both the same keys"
            ),
            Notice::Unheard { grantor, why: Unheard::Earlier } => write!(
                f,
                "what comes from grantor {grantor} does not count: it is of an earlier start: its clock has gone back and our probes, which tell it of the later one, are \
                 off or do not reach it, or somebody repeats what it once sent: its log says which probes it refuses"
            ),
            Notice::Clock { grantor, behind_ns } => {
                let (side, ns) = if *behind_ns < 0 { ("ahead of", behind_ns.unsigned_abs()) } else { ("behind", *behind_ns as u64) };
                let s = ns as f64 / 1e9;
                write!(
                    f,
                    "the clock of grantor {grantor} is {s:.1} s {side} ours, or its decisions were held up, or somebody repeats them: they do not count; set both clocks right and start again what had the wrong one; where they were held up raise \
                     gatekeeper.clock_s"
                )
            }
        }
    }
}

/// Of whom something has been said, when, and whether it is so still.
#[derive(Debug, Default)]
struct Said(BTreeMap<IpAddr, (Instant, bool)>);

impl Said {
    /// It is so; whether it is time to say it: once as long as it is so, and not again within [`QUIET`].
    fn begins(&mut self, address: IpAddr, now: Instant) -> bool {
        let last = self.0.get(&address);
        let begins = last.is_none_or(|(at, lasts)| !lasts && now.saturating_duration_since(*at) >= QUIET);
        if begins {
            self.0.insert(address, (now, true));
        }
        begins
    }

    /// It is so no more.
    fn ends(&mut self, address: IpAddr) {
        if let Some((_, lasts)) = self.0.get_mut(&address) {
            *lasts = false;
        }
    }
}

/// The control side's view of which Grantors are there.
///
/// Whoever answers is heard, so what does not count under its address is nothing to complain of: it is repeated, late or another's. Counted it is.
#[derive(Debug, Default)]
pub(crate) struct Doctor {
    health: BTreeMap<IpAddr, Health>,
    /// Who is down, or not probed, and was said to have a wrong clock.
    wrong_clocks: Said,
    /// Who is down, or not probed, and was said to send what does not count.
    unheard: Said,
    all_down: bool,
    /// The round that was judged last.
    round: u64,
}

impl Doctor {
    /// Whether a Grantor is left out.
    pub(crate) fn is_down(&self, address: IpAddr) -> bool {
        self.health.get(&address).is_some_and(|health| !health.is_up())
    }

    /// Looks at what nodes have heard; returns whether anybody went down or came up. `round` is the one under way.
    pub(crate) fn look(
        &mut self,
        trust: &Trust,
        probes: &ProbesConfig,
        round: u64,
        notices: &mut Vec<Notice>,
    ) -> bool {
        self.look_at(Instant::now(), trust, probes, round, notices)
    }

    fn look_at(
        &mut self,
        now: Instant,
        trust: &Trust,
        probes: &ProbesConfig,
        round: u64,
        notices: &mut Vec<Notice>,
    ) -> bool {
        let before = self.health.len();
        self.health.retain(|address, _| trust.peer(*address).is_some());
        for said in [&mut self.wrong_clocks, &mut self.unheard] {
            said.0.retain(|address, _| trust.peer(*address).is_some());
        }
        let mut any = before != self.health.len();
        if probes.interval_ms == 0 {
            // Nobody is asked, so nobody is held for gone.
            any |= self.health.values().any(|health| !health.is_up());
            self.health.clear();
            for peer in &trust.peers {
                let [stale, earlier] =
                    [&peer.pulse.stale, &peer.pulse.earlier].map(|count| count.load(Ordering::Relaxed));
                let behind_ns = peer.pulse.behind_ns.load(Ordering::Relaxed);
                if stale < IN_A_ROW || behind_ns == 0 {
                    self.wrong_clocks.ends(peer.address);
                } else if self.wrong_clocks.begins(peer.address, now) {
                    notices.push(Notice::Clock { grantor: peer.address, behind_ns });
                }
                if earlier < IN_A_ROW {
                    self.unheard.ends(peer.address);
                } else if self.unheard.begins(peer.address, now) {
                    notices.push(Notice::Unheard { grantor: peer.address, why: Unheard::Earlier });
                }
            }
        } else if round != self.round {
            self.round = round;
            let rule = Rule { fall: probes.fall, rise: probes.rise };
            for peer in &trust.peers {
                let health = self.health.entry(peer.address).or_default();
                health.answer(peer.pulse.answered.load(Ordering::Relaxed));
                let change = health.begin(rule, round);
                any |= change.is_some();
                match change {
                    Some(Change::Down) => notices.push(Notice::Down(peer.address)),
                    Some(Change::Up) => notices.push(Notice::Up(peer.address)),
                    None => {}
                }
                let (unheard, behind_ns) =
                    (peer.pulse.take_unheard(), peer.pulse.behind_ns.load(Ordering::Relaxed));
                if health.is_up() {
                    self.wrong_clocks.ends(peer.address);
                    self.unheard.ends(peer.address);
                    continue;
                }
                if behind_ns != 0 && self.wrong_clocks.begins(peer.address, now) {
                    notices.push(Notice::Clock { grantor: peer.address, behind_ns });
                }
                if let Some(why) = unheard
                    && self.unheard.begins(peer.address, now)
                {
                    notices.push(Notice::Unheard { grantor: peer.address, why });
                }
            }
        }
        let all_down = !trust.peers.is_empty() && trust.peers.iter().all(|peer| self.is_down(peer.address));
        if all_down && !self.all_down {
            notices.push(Notice::AllDown);
        }
        self.all_down = all_down;
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::replay::Stamp;

    const STAMP: Stamp = Stamp { epoch_s: 5, sequence: 6 };

    fn ring(ids: &[u16]) -> Option<Keyring> {
        let line = |id: &u16| format!("{id} {}\n", format!("{id:02x}").repeat(32));
        Keyring::parse(&ids.iter().map(line).collect::<String>()).ok()
    }

    fn addresses(last: &[u8]) -> Vec<IpAddr> {
        last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()
    }

    /// What was taken stays taken, through changes of keys and of other Grantors.
    #[test]
    fn windows_outlive_changes() {
        let [one, two] = addresses(&[1, 2])[..] else { unreachable!() };
        let trust = Trust::default().changed(ring(&[1, 2]), 9, &[one]).unwrap();
        assert!(trust.changed(ring(&[1, 2]), 9, &[one]).is_none());
        assert!(trust.peer(one).unwrap().windows[1].take(STAMP));
        let trust = trust.changed(ring(&[2, 3]), 9, &[one, two]).unwrap();
        let window = |trust: &Trust, address, key: usize| trust.peer(address).unwrap().windows[key].clone();
        assert!(!window(&trust, one, 0).take(STAMP), "key 2 is the first now");
        assert!(window(&trust, one, 1).take(STAMP) && window(&trust, two, 0).take(STAMP));
        // The same number with another secret is another key.
        let other = Keyring::parse(&format!("2 {}", "f".repeat(64))).ok();
        let trust = trust.changed(other, 9, &[one, two]).unwrap();
        assert!(window(&trust, one, 0).take(STAMP));
        assert!(trust.changed(None, 9, &[one, two]).unwrap().peers.is_empty());
    }

    /// Who leaves the policies and comes back is no new Grantor: nothing that it has said counts a second time.
    #[test]
    fn windows_wait_for_who_comes_back() {
        let [one, two] = addresses(&[1, 2])[..] else { unreachable!() };
        let trust = Trust::default().changed(ring(&[1]), 9, &[one, two]).unwrap();
        assert!(trust.peer(one).unwrap().windows[0].take(STAMP));
        trust.peer(one).unwrap().heard(7);
        trust.peers.iter().for_each(|peer| peer.pulse.behind_ns.store(5, Ordering::Relaxed));
        let trust = trust.changed(ring(&[1]), 9, &[two]).unwrap();
        assert!(trust.peer(one).is_none());
        let trust = trust.changed(ring(&[2, 1]), 9, &[two]).unwrap();
        let trust = trust.changed(ring(&[2, 1]), 9, &[one, two]).unwrap();
        let windows = &trust.peer(one).unwrap().windows;
        assert_eq!(trust.peer(one).unwrap().known(), Known { stamp: STAMP, version: 7 });
        assert_eq!(trust.peer(two).unwrap().known(), Known::default());
        assert!(!windows[1].take(STAMP) && windows[0].take(STAMP) && trust.gone.is_empty());
        // But what its clock was is not said again when it comes back, perhaps mended.
        let behind_ns = [one, two].map(|of| trust.peer(of).unwrap().pulse.behind_ns.load(Ordering::Relaxed));
        assert_eq!(behind_ns, [0, 5]);
        // The last ones.
        let crowd: Vec<u8> = (100..=100 + MOST_GONE as u8).collect();
        let trust = trust.changed(ring(&[2, 1]), 9, &addresses(&crowd)).unwrap();
        let trust = trust.changed(ring(&[2, 1]), 9, &[two]).unwrap();
        assert_eq!(trust.gone.len(), MOST_GONE);
        let last = addresses(&crowd);
        assert_eq!(trust.gone.last().map(|peer| peer.address), last.last().copied());
    }

    /// A rotation that is undone, keys that are taken away altogether: what was taken does not count a second time.
    #[test]
    fn windows_wait_for_keys_that_are_put_back() {
        let [one] = addresses(&[1])[..] else { unreachable!() };
        let taken = |trust: &Trust, key: usize| !trust.peer(one).unwrap().windows[key].take(STAMP);
        let trust = Trust::default().changed(ring(&[1]), 9, &[one]).unwrap();
        assert!(!taken(&trust, 0));
        let trust = trust.changed(ring(&[2, 1]), 9, &[one]).unwrap();
        let trust = trust.changed(ring(&[2]), 9, &[one]).unwrap();
        assert!(!taken(&trust, 0));
        let trust = trust.changed(None, 9, &[one]).unwrap();
        let trust = trust.changed(ring(&[3, 1, 2]), 9, &[one]).unwrap();
        assert_eq!([0, 1, 2].map(|key| taken(&trust, key)), [false, true, true]);
        // A Grantor that was away when the key was, too.
        let trust = trust.changed(ring(&[2]), 9, &[]).unwrap();
        let trust = trust.changed(ring(&[1]), 9, &[one]).unwrap();
        assert!(taken(&trust, 0));
        // With another secret it is another key.
        let other = Keyring::parse(&format!("2 {}", "f".repeat(64))).ok();
        assert!(!taken(&trust.changed(other, 9, &[one]).unwrap(), 0));
        // The last ones.
        let trust = (10..30).fold(trust, |trust, id| trust.changed(ring(&[id]), 9, &[one]).unwrap());
        assert_eq!(trust.replaced.len(), MOST_REPLACED);
        // Of their secrets nothing is left but fingerprints.
        let last = (21..29).map(|id| ring(&[id]).unwrap().fingerprints().collect::<Vec<_>>());
        assert!(trust.replaced.iter().map(|(ring, _)| ring.clone()).eq(last));
        assert!(!taken(&trust.changed(ring(&[1]), 9, &[one]).unwrap(), 0));
    }

    /// The highest of all keys' stamps, and of all versions.
    #[test]
    fn what_is_known_only_rises() {
        let [one] = addresses(&[1])[..] else { unreachable!() };
        let trust = Trust::default().changed(ring(&[1, 2]), 9, &[one]).unwrap();
        let peer = trust.peer(one).unwrap();
        assert_eq!(peer.known(), Known::default());
        assert!(peer.windows[1].take(STAMP) && peer.windows[0].take(Stamp { epoch_s: 4, sequence: 9 }));
        peer.heard(8);
        peer.heard(7);
        assert_eq!(peer.known(), Known { stamp: STAMP, version: 8 });
    }

    #[test]
    fn grantors_fall_and_rise_and_clocks_are_told_once() {
        let addresses = addresses(&[1, 2]);
        let trust = Trust::default().changed(ring(&[1]), 9, &addresses).unwrap();
        let (mut doctor, mut notices) = (Doctor::default(), Vec::new());
        let probes = ProbesConfig { interval_ms: 10, fall: 2, rise: 1 };
        let answers = |round, peers: &[usize]| {
            peers.iter().for_each(|at| trust.peers[*at].pulse.answered.store(round, Ordering::Relaxed));
        };
        // Round 1 begins; nothing is judged yet.
        assert!(!doctor.look(&trust, &probes, 1, &mut notices));
        answers(1, &[0]);
        assert!(!doctor.look(&trust, &probes, 1, &mut notices), "the same round");
        assert!(!doctor.look(&trust, &probes, 2, &mut notices));
        answers(2, &[0]);
        assert!(doctor.look(&trust, &probes, 3, &mut notices));
        assert_eq!(notices, [Notice::Down(addresses[1])]);
        assert!(doctor.is_down(addresses[1]) && !doctor.is_down(addresses[0]));
        notices.clear();
        // Now neither.
        doctor.look(&trust, &probes, 4, &mut notices);
        assert!(doctor.look(&trust, &probes, 5, &mut notices));
        assert_eq!(notices, [Notice::Down(addresses[0]), Notice::AllDown]);
        notices.clear();
        answers(5, &[0, 1]);
        assert!(doctor.look(&trust, &probes, 6, &mut notices));
        assert_eq!(notices, [Notice::Up(addresses[0]), Notice::Up(addresses[1])]);
        notices.clear();
        // Who answers has a clock that is right: what is stale was repeated by somebody.
        answers(6, &[0, 1]);
        trust.peers[0].pulse.stale(-1_500_000_000);
        assert!(!doctor.look(&trust, &probes, 7, &mut notices));
        assert!(!doctor.look(&trust, &probes, 8, &mut notices));
        assert_eq!(notices, []);
        assert!(doctor.look(&trust, &probes, 9, &mut notices));
        doctor.look(&trust, &probes, 10, &mut notices);
        let clock = Notice::Clock { grantor: addresses[0], behind_ns: -1_500_000_000 };
        let down = [0, 1].map(|at: usize| Notice::Down(addresses[at]));
        assert_eq!(notices, [down[0], clock, down[1], Notice::AllDown]);
        assert!(notices[1].to_string().contains("10.0.0.1 is 1.5 s ahead of ours"), "{}", notices[1]);
        notices.clear();
        // Not probed any more.
        assert!(doctor.is_down(addresses[0]));
        assert!(doctor.look(&trust, &ProbesConfig { interval_ms: 0, ..probes }, 9, &mut notices));
        assert!(!doctor.is_down(addresses[0]));
    }

    /// Between what counts somebody repeats what a Grantor once sent, or its clock goes wrong again and again.
    #[test]
    fn a_wrong_clock_is_said_once_in_ten_seconds() {
        let addresses = addresses(&[1]);
        let trust = Trust::default().changed(ring(&[1]), 9, &addresses).unwrap();
        let pulse = &trust.peers[0].pulse;
        let (begun, clock) = (Instant::now(), Notice::Clock { grantor: addresses[0], behind_ns: 20 });
        let said = |probes: &ProbesConfig, answers: bool| {
            let (mut doctor, mut notices) = (Doctor::default(), Vec::new());
            for at in 0..250_u64 {
                let now = begun + Duration::from_millis(100 * at);
                // Down for five rounds of ten, unless it always answers.
                if answers || at % 10 < 5 {
                    pulse.taken();
                    pulse.answered.store(at + 1, Ordering::Relaxed);
                }
                doctor.look_at(now, &trust, probes, at + 1, &mut notices);
                (0..IN_A_ROW).for_each(|_| pulse.stale(20));
                // Not each look is of another round.
                doctor.look_at(now, &trust, probes, at + 1, &mut notices);
            }
            notices.into_iter().filter(|notice| *notice == clock).count()
        };
        let probes = ProbesConfig { interval_ms: 100, fall: 2, rise: 1 };
        assert_eq!(said(&probes, true), 0, "it answers each round");
        assert_eq!(said(&probes, false), 3, "25 seconds");
        let off = ProbesConfig { interval_ms: 0, ..probes };
        assert_eq!(said(&off, true), 3, "16 in a row between two that count");
        pulse.taken();
        assert_eq!((pulse.stale.load(Ordering::Relaxed), pulse.behind_ns.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn keys_come_from_one_place() {
        let section = |text: &str| toml::from_str::<GatekeeperSection>(text).unwrap();
        let one = format!("keys = [\"1 {}\"]\n", "ab".repeat(32));
        assert_eq!(keys(&section("")).unwrap(), None);
        assert_eq!(keys(&section(&one)).unwrap().unwrap().ids().collect::<Vec<_>>(), [1]);
        for (text, wanted) in [
            (one.clone() + "key_file = \"k\"", "gatekeeper.keys: there is a key_file as well"),
            ("key_file = \"/nowhere/k\"".into(), "gatekeeper.key_file: /nowhere/k: "),
            ("keys = [\"1 abab\"]".into(), "gatekeeper.keys: line 1: no secret"),
            (
                format!("keys = [\"1 {}\\n2 {}\"]", "ab".repeat(32), "cd".repeat(32)),
                "gatekeeper.keys: a key with more",
            ),
        ] {
            let error = keys(&section(&text)).unwrap_err().to_string();
            assert!(error.starts_with(wanted) && !error.contains("abab"), "{error}");
        }
        assert!(!format!("{:?}", section(&one)).contains("abab"));
        let no_list = one.replace(['[', ']'], "");
        let error = toml::from_str::<GatekeeperSection>(&no_list).unwrap_err();
        assert!(error.message().starts_with("keys: one string: give a list"), "{}", error.message());
    }
}
