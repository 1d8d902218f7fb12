//! What is done below us, by something that sees packets before they become packets here, such as a program in the driver: packets of flows that are declined are dropped, and those that
//! nobody judges are forwarded.
//!
//! ```text
//!  worker: a packet of a declined flow, and not the first --pick: flow, end, stamp--> a bounded queue --> the offload's rule
//!  worker: another decision about such a flow ------------------------------------> shard += 1 ---.
//!  worker: a revocation; control side: flows get another Grantor -----------------> all += 1 -----+--> rules with another stamp are dead
//!                        control side: policies, interfaces change ----------------> all, ways += 1 --> and nothing is forwarded below, until the offload has taken up what holds now
//! ```
//!
//! User space decides alone; an offload repeats some of its refusals: those of flows that send much (`often.rs`), for each rule costs. It may know fewer than there are: what it lets through is
//! dropped here. It must never know more:
//!
//! * **Ends.** A rule has its end with it, which is its flow's, and is never later.
//! * **Stamps.** A rule holds as long as its stamp is `all + shard`: two of [`WORDS`] numbers that only grow, in memory that offload and workers share. A worker reads `all` before it looks at
//!   anything that is published, and `shard` when it has refused a packet. Whoever makes a refusal void does so first, and adds one then. If that is seen, what was void is seen as well, and there is no
//!   pick; if not, the pick has a stamp of before, and its rule is dead when it comes. So no rule comes back, no worker waits, and none makes a system call.
//! * **Nothing is missed.** A packet of a declined flow changes nothing of it: what the gate does with the next one that comes in is the same, however many were dropped below.
//! * **A policy that drops** makes rules of the same kind, for the flows that send much there: they hold until policies change. In either order of lookups: where flows are looked up first
//!   ([`Order::FlowFirst`](crate::config::Order::FlowFirst)) none keeps a policy of before past its next packet.
//!
//! **What is forwarded** is what the gate has no say in: all that comes from the back, and what is from the front to where the policy says route (or none is about, and the default does).
//! It is forwarded by the router's fast path, which leaves to user space all that is not plain. It goes by a [`Bypass`], which is about one state of policies and interfaces, and void as soon as one of them changes, by
//! `ways`; a Grantor that goes down or comes back is no part of it. Grantors' own addresses are no part of it: what is sent there from the front is looked into. What is granted is never forwarded below, directly
//! granted or not: its bucket, its renewals and its end are one worker's, packet by packet.
//!
//! A flow has a state in each worker that its packets reach, and a decision goes to all of them; a rule is about all of a flow's packets. Where packets of one flow reach several workers, those of
//! a worker that has not heard of a refusal, or had no room for the flow, are dropped below too; and where one has not heard of a grant (`mail-lost`), those of one that has.
//!
//! **Doors.** Only packets by a port all of whose interfaces are in front are dropped, and only those to its MAC address: what comes from the back is never judged. So it does not matter what VLAN tag a frame
//! has, nor whether a driver has taken it off before the offload sees the frame.

mod often;
#[cfg(all(feature = "xdp", target_os = "linux"))]
pub mod xdp;

use crate::family::Paired;
use crate::settings::Settings;
use crate::top::{Exchange, Heavy, hash, keys_of};
use crossbeam_queue::ArrayQueue;
use often::Often;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;
use tidemill_ip::Interfaces;
use tidemill_lpm::{Label, Rib};
use tidemill_wire::MacAddr;

// Where numbers are among the words; as in bpf/gate.bpf.c.
const ALL: usize = 0;
const DOORS: usize = 1;
const WAYS: usize = 300;
const SHARDS: usize = 512;
const SHARD_COUNT: usize = 4096;
/// Words that an offload and its users share.
pub const WORDS: usize = SHARDS + SHARD_COUNT;

/// How long what a policy drops is dropped below, until it is looked at again.
pub(crate) const POLICY_NS: u64 = 60_000_000_000;
/// Ports that can be doors: those with the lowest numbers.
pub const MOST_DOORS: usize = 256;
/// Beside a MAC address: there is a door.
const DOOR: u64 = 1 << 48;

/// Flows that wait to be taken up at most, of each family. Those that do not fit are told of again in the next window.
const PICKS: usize = 4096;

/// Memory that an offload reads while we write it: [`WORDS`] numbers, zero at first.
pub trait Words: Send + Sync {
    /// All of them.
    fn words(&self) -> &[AtomicU64];
}

/// What passes by the gate, for an offload that forwards it: one state of policies and interfaces.
pub struct Bypass {
    /// Whether an interface, by its number, is in front.
    pub is_front: Vec<bool>,
    /// What passes from there keeps its code point.
    pub keeps_dscp: bool,
    /// Where what comes from the front passes, by destination: there the label is [`PASSES`], elsewhere another. If they are asked for.
    pub passes: Option<(Rib<u32>, Rib<u128>)>,
}

/// The label of destinations that are not judged.
pub const PASSES: Label = Label(1);
/// That of all others.
pub(crate) const JUDGED: Label = Label(2);

/// What an offload has done so far, in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets forwarded there, by the router's fast path: the same holds of them.
    pub forwarded: u64,
    /// Their bytes, from the Ethernet header on.
    pub forwarded_bytes: u64,
    /// Packets that would have been forwarded there, by what judges nobody, and were left to us for another reason.
    pub left: u64,
    /// Packets dropped there: they never came in here, so they are in no other counter.
    pub dropped: u64,
    /// Their bytes, from the Ethernet header on.
    pub bytes: u64,
    /// Rules that it has now.
    pub rules: u64,
    /// Flows that it was told of and had no room for, in all or of their kind, each as often as it was told.
    pub refused: u64,
}

/// The part of so many packets that an offload has dealt with, of those and of so many that were left to us; none of no packets.
pub fn hit_rate(below: u64, above: u64) -> Option<f64> {
    let all = below.saturating_add(above);
    (all > 0).then(|| below as f64 / all as f64)
}

/// The words, by their meaning.
#[derive(Clone)]
pub(crate) struct Stamps(Arc<dyn Words>);

impl Stamps {
    pub(crate) fn new(words: Arc<dyn Words>) -> Self {
        Stamps(words)
    }

    fn read(&self, at: usize) -> u64 {
        self.0.words().get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn grow(&self, at: usize) {
        if let Some(word) = self.0.words().get(at) {
            word.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What a rule of this shard has to have.
    fn of(&self, shard: u32) -> u64 {
        // In this order: a sum that is that of a rule's stamp says that neither has changed since.
        let all = self.read(ALL);
        all.wrapping_add(self.read(shard as usize))
    }

    /// All rules are dead.
    pub(crate) fn lift_all(&self) {
        self.grow(ALL);
    }

    /// The same, and nothing is forwarded that goes by what held until now.
    pub(crate) fn change(&self) {
        self.grow(WAYS);
        self.lift_all();
    }

    /// What is forwarded has to have this number.
    pub(crate) fn ways(&self) -> u64 {
        self.read(WAYS)
    }

    /// These ports are doors, and no others.
    pub(crate) fn set_doors(&self, doors: &[u64]) {
        for (at, word) in self.0.words().iter().skip(DOORS).take(MOST_DOORS).enumerate() {
            word.store(doors.get(at).copied().unwrap_or(0), Ordering::Release);
        }
    }
}

/// The word of a flow's shard.
fn shard(hash: u64) -> u32 {
    (SHARDS + hash as usize % SHARD_COUNT) as u32
}

/// What says that a port with this MAC address is a door.
pub fn door(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    DOOR | u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// By ports: their MAC addresses where all of their interfaces are in front, else 0.
pub(crate) fn doors(interfaces: &Interfaces, settings: &Settings) -> Vec<u64> {
    let of = |port: u16| {
        let of_port = |(_, interface): &(usize, &tidemill_ip::Interface)| interface.port == port;
        let mut there = interfaces.iter().enumerate().filter(of_port);
        let all_in_front = there.all(|(number, _)| settings.is_front(number as u16));
        interfaces.get(port).filter(|_| all_in_front).map_or(0, |interface| door(interface.mac))
    };
    (0..interfaces.ports().min(MOST_DOORS)).map(|port| of(port as u16)).collect()
}

/// A flow that sends much, and that is declined or dropped by a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick<const W: usize> {
    /// The flow.
    pub flow: Key<W>,
    /// When the refusal ends, nanoseconds of the workers' clock.
    pub until_ns: u64,
    /// The word that its rule is to go by, beside the first.
    pub shard: u32,
    /// What the two have to add up to, or the rule is dead.
    pub stamp: u64,
    /// Whether a policy drops it, and nobody has decided about it.
    pub by_policy: bool,
}

/// A worker's half, for one family.
pub struct Hand<const W: usize> {
    stamps: Stamps,
    picks: Arc<ArrayQueue<Pick<W>>>,
    often: Often,
    /// The number for all, when this burst began.
    all: u64,
}

impl<const W: usize> Hand<W> {
    /// A burst begins: nothing that it is judged by has been looked at.
    #[inline]
    pub fn begin(&mut self) {
        self.all = self.stamps.read(ALL);
    }

    /// A packet of a flow was dropped, for it is declined until then.
    #[inline]
    pub fn refused(&mut self, now_ns: u64, flow: Key<W>, until_ns: u64) {
        self.tell(now_ns, flow, until_ns, false);
    }

    /// A packet of a flow was dropped, for a policy drops all that is sent there.
    #[inline]
    pub fn dropped(&mut self, now_ns: u64, flow: Key<W>) {
        self.tell(now_ns, flow, now_ns + POLICY_NS, true);
    }

    #[inline]
    fn tell(&mut self, now_ns: u64, flow: Key<W>, until_ns: u64, by_policy: bool) {
        let hash = hash(&flow);
        if self.often.tells(now_ns, hash) {
            let shard = shard(hash);
            let stamp = self.all.wrapping_add(self.stamps.read(shard as usize));
            // What finds no room is told of again.
            let _ = self.picks.push(Pick { flow, until_ns, shard, stamp, by_policy });
        }
    }

    /// A flow that was declined may be so no longer, or for another time.
    pub fn lift(&self, flow: &Key<W>) {
        self.stamps.grow(shard(hash(flow)) as usize);
    }

    /// The same of all flows.
    pub fn lift_all(&self) {
        self.stamps.lift_all();
    }
}

/// An offload's half, for one family: what the workers tell, and where the offload says what it has kept away.
pub struct Picks<A, const W: usize> {
    stamps: Stamps,
    queue: Arc<ArrayQueue<Pick<W>>>,
    heavy: Heavy<W>,
    family: std::marker::PhantomData<fn(A)>,
}

impl<A: Paired<W>, const W: usize> Picks<A, W> {
    /// Nothing is told yet. A gate makes its own: [`GatekeeperControl::refuse_below`](crate::GatekeeperControl::refuse_below).
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(words: Arc<dyn Words>) -> Result<Self, SizeError> {
        let stamps = Stamps::new(words);
        let queue = Arc::new(ArrayQueue::new(PICKS));
        let heavy = Heavy::new(RandomState::new().hash_one(W))?;
        Ok(Picks { stamps, queue, heavy, family: std::marker::PhantomData })
    }

    /// A worker's half.
    pub fn hand(&self, worker: usize) -> Hand<W> {
        let often = Often::new(RandomState::new().hash_one(worker));
        Hand { stamps: self.stamps.clone(), picks: self.queue.clone(), often, all: 0 }
    }

    /// Which ports are [`door`]s, and no others.
    pub fn set_doors(&self, doors: &[u64]) {
        self.stamps.set_doors(doors);
    }

    pub(crate) fn exchange(&self) -> Arc<Exchange<W>> {
        self.heavy.exchange()
    }

    /// The next flow to refuse below; dead ones are left out.
    pub fn take(&self) -> Option<Pick<W>> {
        loop {
            let pick = self.queue.pop()?;
            if self.holds(pick.shard, pick.stamp) {
                return Some(pick);
            }
        }
    }

    /// Whether a rule with this stamp holds.
    pub fn holds(&self, shard: u32, stamp: u64) -> bool {
        self.stamps.of(shard) == stamp
    }

    /// So many packets of a flow have been dropped below, besides those that were told of before.
    pub fn kept_away(&mut self, flow: &Key<W>, packets: u64) {
        let (source, destination) = A::of_key(flow);
        self.heavy.add(keys_of(source, destination), packets);
    }

    /// Between two looks: hands on what has been kept away.
    pub fn tick(&mut self, now_ns: u64) {
        self.heavy.tick(now_ns);
    }
}

#[cfg(test)]
impl Words for Vec<AtomicU64> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::Tops;
    use crate::top::{By, WINDOW_NS};
    use tidemill_ip::Interface;

    /// A port with a VLAN at the back is no door: a driver may take tags off unseen.
    #[test]
    fn doors_are_ports_that_are_all_in_front() {
        let port = |number, mac| Interface { mac: MacAddr(mac), ..Interface::of_port(number, "port") };
        let tagged = |number, vlan| Interface { vlan: Some(vlan), ..Interface::of_port(number, "tagged") };
        let list = vec![
            port(0, [2, 0, 0, 0, 0, 1]),
            port(1, [2, 0, 0, 0, 0, 2]),
            port(2, [2, 0, 0, 0, 0, 3]),
            tagged(0, 7),
            tagged(1, 7),
        ];
        let interfaces = Interfaces::new(list, 3);
        // The first port, with all that is on it.
        let mut settings =
            crate::settings::settings(&crate::GatekeeperSection::default(), &interfaces).unwrap();
        assert_eq!(doors(&interfaces, &settings), [DOOR | 0x0100_0000_0002, 0, 0]);
        settings.front = vec![true, true, false, true, false];
        assert_eq!(doors(&interfaces, &settings), [DOOR | 0x0100_0000_0002, 0, 0]);
        settings.front = vec![false, true, false, true, true];
        assert_eq!(doors(&interfaces, &settings), [0, DOOR | 0x0200_0000_0002, 0]);
    }

    #[test]
    fn a_stamp_holds_until_a_number_changes() {
        let words: Arc<dyn Words> = Arc::new((0..WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let picks = Picks::<u32, 1>::new(words).unwrap();
        let mut hand = picks.hand(0);
        let send = |hand: &mut Hand<1>, flow| {
            (0..often::PICK).for_each(|n| hand.refused(1 << 60 | u64::from(n), Key([flow]), 1 << 61));
        };
        hand.begin();
        send(&mut hand, 1);
        let pick = picks.take().unwrap();
        assert_eq!((pick.flow, pick.until_ns), (Key([1]), 1 << 61));
        assert!(picks.holds(pick.shard, pick.stamp) && picks.take().is_none());
        // Another shard's.
        let other = (2..).find(|n| shard(hash(&Key([*n]))) != pick.shard).unwrap();
        hand.lift(&Key([other]));
        assert!(picks.holds(pick.shard, pick.stamp));
        hand.lift(&pick.flow);
        assert!(!picks.holds(pick.shard, pick.stamp));
        // What was published after a burst began: what it refuses is not told of.
        hand.lift_all();
        send(&mut hand, other);
        assert_eq!(picks.take(), None);
        hand.begin();
        send(&mut hand, other + 1);
        assert!(picks.take().is_some_and(|pick| picks.holds(pick.shard, pick.stamp)));
    }

    #[test]
    fn hit_rates_are_parts_of_what_there_was() {
        assert_eq!(hit_rate(0, 0), None);
        assert_eq!([hit_rate(0, 5), hit_rate(3, 1), hit_rate(9, 0)], [Some(0.0), Some(0.75), Some(1.0)]);
        assert!(hit_rate(u64::MAX, 1).is_some());
    }

    /// What was kept away below is among the most that was dropped, packet by packet.
    #[test]
    fn what_is_kept_away_is_shown() {
        let words: Arc<dyn Words> = Arc::new(Vec::<AtomicU64>::new());
        let mut picks = Picks::<u32, 1>::new(words).unwrap();
        let mut tops = Tops::new().unwrap();
        tops.listen(0, picks.exchange()).unwrap();
        let start = 1_700_000_000_000_000_000;
        picks.tick(start);
        picks.kept_away(&u32::key(5, 7), 500);
        picks.kept_away(&u32::key(6, 7), 0);
        picks.kept_away(&u32::key(5, 7), 1);
        picks.tick(start + WINDOW_NS);
        assert!(tops.collect());
        let lines = tops.lines::<u32>(By::Flow, 9, start + WINDOW_NS);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!((lines[0].packets, lines[0].source), (501, Some(crate::Gated::address(5_u32))));
        assert_eq!(tops.lines::<u32>(By::Destination, 9, start + WINDOW_NS)[0].packets, 501);
    }
}
