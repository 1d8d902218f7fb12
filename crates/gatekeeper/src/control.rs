//! The control side: owns the policies and the settings and publishes them, reads the workers' flows beside them, hands them decisions.

mod policies;

use crate::config::{Action, GatekeeperSection};
use crate::counters::{Board, Counter, Counters};
use crate::decision::Decision;
use crate::decision::keys::Keyring;
use crate::error::GateError;
use crate::family::Paired;
use crate::flow::{FlowState, Shown};
use crate::gate::{Applied, Gate, Rules, Size};
use crate::mail::{Letter, Post};
use crate::nodes::solicitor::{self, Notes, SolicitorBoard};
use crate::offload::{self, Bypass, Picks, Stamps, Tally, Words};
use crate::ours::Ours;
use crate::policy::{Choice, Choices, Parsed, Plan, Policies, parse};
use crate::programs::Catalog;
use crate::seat::Seat;
use crate::settings::{self, Settings};
use crate::show::{FlowLine, FlowsPage, TopLine, Tops, Wanted};
use crate::top::{By, Refused};
use crate::trust::{self, Doctor, Notice, Trust};
use crate::unplaced::Unplaced;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_decision::revocation::Revocations;
use tidemill_flow::flowtable::FlowReader;
use tidemill_flow::hash::mix;
use tidemill_flow::table::SizeError;
use tidemill_ip::Interfaces;
use tidemill_ip::queue::Budget;
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_wire::flow::Addresses;

/// The workers' halves, until their nodes are made.
pub(crate) struct Halves<T>(Mutex<Vec<Option<Box<T>>>>);

/// Those of their gates.
pub(crate) type Seats<A, const W: usize> = Halves<Seat<A, W>>;

impl<T> Halves<T> {
    fn new(halves: Vec<Option<Box<T>>>) -> Arc<Self> {
        Arc::new(Halves(Mutex::new(halves)))
    }

    pub(crate) fn take(&self, worker: usize) -> Option<Box<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(worker)?.take()
    }

    fn put(&self, worker: usize, seat: Option<Box<T>>) {
        if let Some(place) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(worker) {
            *place = seat;
        }
    }
}

/// One worker's flows and numbers, read from here.
struct WorkerView<A, const W: usize> {
    reader: FlowReader<W, FlowState>,
    board: Board,
    /// What is revoked, as it sees it.
    revoked: Arc<Mutex<Revocations<A>>>,
}

/// Buckets of flows that are looked at for one page: half a million flows, some milliseconds.
const PAGE_BUCKETS: usize = 1 << 14;
/// Buckets that are looked at before it is seen whether the page is full.
const STEP_BUCKETS: usize = 64;

/// A configuration that was checked, and what follows from it: to be taken over, before anything else is done with the control side that checked it.
pub struct Prepared {
    section: GatekeeperSection,
    settings: Settings,
    keys: Option<Keyring>,
    policies: Parsed,
    plans: (Plan<u32>, Plan<u128>),
    own: Own,
    ours: Ours,
    doors: Vec<u64>,
}

/// Our addresses.
type Own = (Vec<u32>, Vec<u128>);

/// One family's half.
pub(crate) struct Half<A: Paired<W>, const W: usize> {
    pub(crate) policies: Policies<A>,
    pub(crate) seats: Arc<Seats<A, W>>,
    pub(crate) post: Post<A>,
    workers: Vec<WorkerView<A, W>>,
    /// Up to which change of the policies each worker has no flow with a retired number.
    passed: Vec<Arc<AtomicU64>>,
    tops: Tops<W>,
}

/// The control side of a Gatekeeper. Workers hold views of what it publishes, and never wait for it.
pub struct GatekeeperControl {
    section: GatekeeperSection,
    pub(crate) settings: Publisher<Settings>,
    pub(crate) v4: Half<u32, 1>,
    pub(crate) v6: Half<u128, 4>,
    /// Of the nodes that take decisions.
    pub(crate) decisions: Vec<Board>,
    /// Of the nodes that hear of the ways to Grantors.
    pub(crate) paths: Vec<Board>,
    /// Whom they trust.
    pub(crate) trust: Publisher<Trust>,
    /// The round of probes that is under way.
    pub(crate) round: Arc<AtomicU64>,
    doctor: Doctor,
    notices: Vec<Notice>,
    /// What requests may use, all workers together.
    pub(crate) budget: Arc<Budget>,
    /// What the solicitors have counted.
    pub(crate) solicitors: Arc<SolicitorBoard>,
    /// What they keep beside their requests.
    pub(crate) notes: Arc<Halves<Notes>>,
    /// What was sent from here.
    counters: Counters,
    spread: u64,
    /// The addresses that no Grantor can have.
    ours: Ours,
    /// Ports all of whose interfaces are in front.
    doors: Vec<u64>,
    /// What an offload goes by, if there is one.
    below: Option<Stamps>,
}

impl GatekeeperControl {
    /// Checks a configuration against the interfaces, and makes the tables of so many workers of `domain`.
    ///
    /// # Errors
    /// Which key is wrong, and what to do; tables that are too large.
    pub fn new(
        section: &GatekeeperSection,
        interfaces: &Interfaces,
        workers: usize,
        domain: &Domain,
    ) -> Result<Self, GateError> {
        // Nobody can foresee it: an attacker picks the keys.
        let random = |n: u64| u128::from(RandomState::new().hash_one(n));
        Self::with_secret(section, interfaces, workers, domain, random(0) << 64 | random(1))
    }

    /// The same with a secret of the caller's, for runs that are to be repeated.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_secret(
        section: &GatekeeperSection,
        interfaces: &Interfaces,
        workers: usize,
        domain: &Domain,
        secret: u128,
    ) -> Result<Self, GateError> {
        let settings = settings::settings(section, interfaces)?;
        let keys = trust::keys(section)?;
        let bandwidth = settings::bits_per_s(section)?;
        let ours = Ours::of(interfaces);
        let policies = parse(&section.policy, &ours, |i, field| format!("policy[{i}].{field}"))?;
        sources_exist(&settings, !policies.v4.is_empty(), !policies.v6.is_empty())?;
        let default = settings::default_action(section);
        let spread = mix(section.spread);
        // Of one secret, as many as there are tables.
        let mut drawn = 0;
        let mut size = || {
            drawn += 1;
            let (low, high) = (secret as u64 ^ mix(drawn), (secret >> 64) as u64 ^ mix(!drawn));
            Size {
                flows: section.flows,
                program_flows: section.program_flows,
                secret: u128::from(mix(low)) << 64 | u128::from(mix(high)),
                spread,
            }
        };
        let too_large =
            |source| GateError::Flows { flows: section.flows, programs: section.program_flows, source };
        let catalog = Catalog::new(&section.program)?;
        let note = |worker: usize| {
            let secret = mix(secret as u64 ^ mix(!(worker as u64))) ^ (secret >> 64) as u64;
            Ok(Notes { refused: Refused::new(secret)?, unplaced: Unplaced::new(mix(secret)) })
        };
        let notes = (0..workers).map(note).collect::<Result<Vec<Notes>, _>>().map_err(too_large)?;
        let doors = offload::doors(interfaces, &settings);
        let (own4, own6) = settings::own(interfaces);
        let (policies4, policies6) = (
            Policies::new(domain, default, &policies.v4, settings.source4, own4)?,
            Policies::new(domain, default, &policies.v6, settings.source6, own6)?,
        );
        let mut control = GatekeeperControl {
            section: section.clone(),
            settings: Publisher::new(domain, settings),
            trust: Publisher::new(domain, Trust::default()),
            round: Arc::default(),
            doctor: Doctor::default(),
            notices: Vec::new(),
            v4: Half::new(policies4, &notes, &catalog, [Counter::Flows4, Counter::ProgramFlows4], &mut size)
                .map_err(too_large)?,
            v6: Half::new(policies6, &notes, &catalog, [Counter::Flows6, Counter::ProgramFlows6], &mut size)
                .map_err(too_large)?,
            decisions: (0..workers).map(|_| Board::default()).collect(),
            paths: (0..workers).map(|_| Board::default()).collect(),
            budget: solicitor::budget(bandwidth, f64::from(section.request_percent) / 100.0),
            solicitors: Arc::default(),
            notes: Halves::new(Vec::new()),
            counters: Counters::default(),
            spread,
            ours,
            doors,
            below: None,
        };
        for (worker, note) in notes.iter().enumerate() {
            let (four, six) = note.refused.exchanges();
            control.v4.tops.listen(worker, four).map_err(too_large)?;
            control.v6.tops.listen(worker, six).map_err(too_large)?;
        }
        control.notes = Halves::new(notes.into_iter().map(|note| Some(Box::new(note))).collect());
        control.trust_as_configured(keys);
        Ok(control)
    }

    /// Trusts these keys, and the Grantors of the policies.
    fn trust_as_configured(&mut self, keys: Option<Keyring>) {
        let grantors = self.grantors();
        let tolerance_ns = u64::from(self.section.clock_s) * 1_000_000_000;
        if let Some(trust) = self.trust.current().changed(keys, tolerance_ns, &grantors) {
            self.trust.publish(trust);
        }
    }

    /// What an operator should know, since the last time.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Whether a Grantor is left out, because it does not answer.
    pub fn is_down(&self, grantor: IpAddr) -> bool {
        self.doctor.is_down(grantor)
    }

    /// What is done where there is no policy.
    pub fn default_action(&self) -> Action {
        settings::default_action(&self.section)
    }

    /// What the configuration says without effect, or leaves out: a line each, key first.
    pub fn remarks(&self) -> Vec<String> {
        let settings = self.settings();
        let mut remarks = settings::remarks(&self.section, settings.decisions, settings.kernels.as_deref());
        let key = |i: usize, field: &str| format!("gatekeeper.policy[{i}].{field}");
        remarks.extend(self.ours.remarks(&self.section.policy, &settings.front, key));
        remarks
    }

    /// The configuration that holds.
    pub fn section(&self) -> &GatekeeperSection {
        &self.section
    }

    /// What the nodes go by.
    pub fn settings(&self) -> &Settings {
        self.settings.current()
    }

    /// Bits per second that requests may use.
    pub fn request_bits_per_s(&self) -> u64 {
        self.budget.bits_per_s()
    }

    /// What the solicitors have counted, by level.
    pub fn solicitors(&self) -> &SolicitorBoard {
        &self.solicitors
    }

    /// Takes over a new configuration, or nothing of it. Policies that were added while running go.
    ///
    /// # Errors
    /// Which key is wrong, or cannot change.
    pub fn reload(&mut self, section: &GatekeeperSection, interfaces: &Interfaces) -> Result<(), GateError> {
        let prepared = self.prepare(section, interfaces)?;
        self.commit(prepared)
    }

    /// Checks a new configuration against interfaces that there will be. Nothing has changed then.
    ///
    /// # Errors
    /// Which key is wrong, or cannot change.
    pub fn prepare(
        &self,
        section: &GatekeeperSection,
        interfaces: &Interfaces,
    ) -> Result<Prepared, GateError> {
        for (key, same) in section.fixed_keys(&self.section) {
            if !same {
                return Err(GateError::Restart(key.into()));
            }
        }
        let settings = settings::settings(section, interfaces)?;
        let keys = trust::keys(section)?;
        let ours = Ours::of(interfaces);
        let policies = parse(&section.policy, &ours, |i, field| format!("policy[{i}].{field}"))?;
        sources_exist(&settings, !policies.v4.is_empty(), !policies.v6.is_empty())?;
        let plans =
            (self.v4.policies.plan_instead(&policies.v4)?, self.v6.policies.plan_instead(&policies.v6)?);
        let own = settings::own(interfaces);
        let doors = offload::doors(interfaces, &settings);
        Ok(Prepared { section: section.clone(), settings, keys, policies, plans, own, ours, doors })
    }

    /// Takes over what was prepared. Policies that were added while running go.
    ///
    /// # Errors
    /// Only a policy table that outgrows its structure, or memory: then neither family's policies have changed, nor anything else.
    pub fn commit(&mut self, prepared: Prepared) -> Result<(), GateError> {
        let Prepared { section, settings, keys, policies, plans, own, ours, doors } = prepared;
        let before = self.set_own(own)?;
        if let Err(error) = self.replace(plans, settings::default_action(&section), &policies) {
            // The tables had room for these.
            let back = self.set_own(before);
            self.lift();
            return back.and(Err(error));
        }
        self.section = section;
        self.trust_as_configured(keys);
        self.wake();
        self.publish(settings, ours, doors);
        Ok(())
    }

    /// Has these policies in the place of all that there are, in both families or in none.
    fn replace(
        &mut self,
        plans: (Plan<u32>, Plan<u128>),
        default: Action,
        policies: &Parsed,
    ) -> Result<(), GateError> {
        let (before, old) = (self.v4.policies.list(), self.default_action());
        self.v4.policies.replace(plans.0, default, &policies.v4)?;
        if let Err(error) = self.v6.policies.replace(plans.1, default, &policies.v6) {
            // The table had room for these.
            let plan = self.v4.policies.plan(&before);
            let back = plan.and_then(|plan| self.v4.policies.replace(plan, old, &before));
            self.lift();
            return back.and(Err(error));
        }
        Ok(())
    }

    /// We have these addresses now, of both families or of none. Returns those before.
    fn set_own(&mut self, (own4, own6): Own) -> Result<Own, GateError> {
        let before4 = self.v4.policies.set_own(own4)?;
        match self.v6.policies.set_own(own6) {
            Ok(before6) => Ok((before4, before6)),
            Err(error) => {
                // The table had room for these.
                let back = self.v4.policies.set_own(before4);
                self.lift();
                back.and(Err(error))
            }
        }
    }

    /// The interfaces have changed: those in front have other numbers perhaps, and we have other addresses.
    ///
    /// # Errors
    /// The configuration does not fit them any more, or a table outgrows its structure, or memory; nothing has changed then.
    pub fn interfaces(&mut self, interfaces: &Interfaces) -> Result<(), GateError> {
        let settings = settings::settings(&self.section, interfaces)?;
        let doors = offload::doors(interfaces, &settings);
        self.set_own(settings::own(interfaces))?;
        self.publish(settings, Ours::of(interfaces), doors);
        Ok(())
    }

    fn publish(&mut self, settings: Settings, ours: Ours, doors: Vec<u64>) {
        self.v4.policies.set_source(settings.source4);
        self.v6.policies.set_source(settings.source6);
        self.meet_ourselves(ours);
        if settings != *self.settings.current() {
            self.settings.publish(settings);
        }
        self.doors = doors;
        if let Some(below) = &self.below {
            below.set_doors(&self.doors);
        }
        self.lift();
    }

    /// We have these addresses now; who is told of Grantors that have them too can mend it.
    fn meet_ourselves(&mut self, ours: Ours) {
        let new = |grantor: &IpAddr| ours.has(*grantor).is_some() && self.ours.has(*grantor).is_none();
        let met: Vec<IpAddr> = self.grantors().into_iter().filter(new).collect();
        self.notices.extend(met.into_iter().map(Notice::Ours));
        self.ours = ours;
    }

    /// All Grantors that policies name, IPv4 first.
    fn grantors(&self) -> Vec<IpAddr> {
        let v4 = self.v4.policies.grantors().into_iter().map(|grantor| IpAddr::V4(grantor.into()));
        let v6 = self.v6.policies.grantors().into_iter().map(|grantor| IpAddr::V6(grantor.into()));
        v4.chain(v6).collect()
    }

    /// What is refused below is judged here again, and what is forwarded below comes in here, after something was published that may undo it.
    fn lift(&self) {
        self.below.iter().for_each(Stamps::change);
    }

    /// Has workers that sleep see to it that their flows get other policies.
    fn wake(&self) {
        self.lift();
        self.v4.post.wake();
        self.v6.post.wake();
    }

    /// One round: collects what workers have to say, frees what none of them sees any more. Returns whether there was anything.
    pub fn poll(&mut self) -> bool {
        let round = self.round.load(Ordering::Relaxed);
        if self.doctor.look(self.trust.current(), &self.section.probes, round, &mut self.notices) {
            let doctor = &self.doctor;
            let four = self.v4.policies.set_down(|grantor| doctor.is_down(IpAddr::V4(grantor.into())));
            let six = self.v6.policies.set_down(|grantor| doctor.is_down(IpAddr::V6(grantor.into())));
            // Another Grantor may not stand by what was refused. What nobody judges has none.
            if four || six {
                self.below.iter().for_each(Stamps::lift_all);
            }
        }
        self.settings.collect();
        self.trust.collect();
        self.v4.free();
        self.v6.free();
        let four = self.v4.tops.collect();
        self.v6.tops.collect() || four
    }

    /// All numbers, of all workers together.
    pub fn counters(&self) -> Counters {
        let mut sum = self.counters.clone();
        self.v4.workers.iter().for_each(|worker| worker.board.add_to(&mut sum));
        self.v6.workers.iter().for_each(|worker| worker.board.add_to(&mut sum));
        self.decisions.iter().chain(&self.paths).for_each(|board| board.add_to(&mut sum));
        sum
    }

    /// An operator decides about a flow. Returns false if a worker's mailbox had no room: then it is to be said again.
    pub fn decide(&mut self, decision: &Decision) -> bool {
        let verdict = decision.verdict;
        let lost = match decision.flow {
            Addresses::V4 { src: source, dst: destination } => {
                let lost = self.v4.post.send(&Letter {
                    source,
                    destination,
                    verdict,
                    make: true,
                    grantor: None,
                    by: None,
                });
                self.v4.post.wake();
                lost
            }
            Addresses::V6 { src: source, dst: destination } => {
                let lost = self.v6.post.send(&Letter {
                    source,
                    destination,
                    verdict,
                    make: true,
                    grantor: None,
                    by: None,
                });
                self.v6.post.wake();
                lost
            }
        };
        self.counters.one(Counter::Decisions);
        self.counters.add(Counter::MailLost, lost);
        lost == 0
    }

    /// Gives flows decisions before packets flow: to one worker's table, as many as there is room for. Returns how many.
    pub fn decide_before_start(
        &mut self,
        worker: usize,
        now_ns: u64,
        decisions: impl IntoIterator<Item = Decision>,
    ) -> usize {
        let (mut v4, mut v6) = (self.v4.seats.take(worker), self.v6.seats.take(worker));
        let reader = self.settings.domain().register();
        let (views4, views6) = (self.v4.policies.views(), self.v6.policies.views());
        let (choices4, choices6) = (|| views4.1.get(&reader), || views6.1.get(&reader));
        let rules4 = Rules { policies: &**views4.0.get(&reader), choices: &choices4 };
        let rules6 = Rules { policies: &**views6.0.get(&reader), choices: &choices6 };
        let mut given = 0;
        for Decision { flow, verdict } in decisions {
            let known = match flow {
                Addresses::V4 { src, dst } => v4
                    .as_mut()
                    .map(|seat| seat.gate.impose(now_ns, rules4.of(dst), (src, dst), &verdict, None, None)),
                Addresses::V6 { src, dst } => v6
                    .as_mut()
                    .map(|seat| seat.gate.impose(now_ns, rules6.of(dst), (src, dst), &verdict, None, None)),
            };
            given += usize::from(known == Some(Applied::Done));
        }
        self.v4.seats.put(worker, v4);
        self.v6.seats.put(worker, v6);
        given
    }

    /// Has the workers tell which declined flows send much, for somebody who drops what these send before it comes in here, and who reads `words`: see
    /// [`crate::offload`]. To be called before the graph is made.
    ///
    /// # Errors
    /// There is no memory.
    pub fn refuse_below(
        &mut self,
        words: Arc<dyn Words>,
    ) -> Result<(Picks<u32, 1>, Picks<u128, 4>), GateError> {
        let stamps = Stamps::new(words.clone());
        stamps.set_doors(&self.doors);
        let (flows, programs) = (self.section.flows, self.section.program_flows);
        let too_large = |source| GateError::Flows { flows, programs, source };
        let picks4 = self.v4.tell_below(&words).map_err(too_large)?;
        let picks6 = self.v6.tell_below(&words).map_err(too_large)?;
        self.below = Some(stamps);
        Ok((picks4, picks6))
    }

    /// The number of what passes by the gate now, for somebody who forwards it below: see [`crate::offload`]. What has another number is void. None before
    /// [`refuse_below`](Self::refuse_below).
    pub fn ways(&self) -> Option<u64> {
        self.below.as_ref().map(Stamps::ways)
    }

    /// What passes by the gate now: as long as [`ways`](Self::ways) is the same, there is no other. With its destinations, or without.
    pub fn bypass(&self, with_destinations: bool) -> Bypass {
        let settings = self.settings();
        let (is_front, keeps_dscp) = (settings.front.clone(), settings.keep_dscp);
        let passes = || (self.v4.policies.passes(), self.v6.policies.passes());
        Bypass { is_front, keeps_dscp, passes: with_destinations.then(passes) }
    }

    /// What has been done below so far is this.
    pub fn done_below(&mut self, tally: &Tally) {
        self.counters.set(Counter::OffloadForwarded, tally.forwarded);
        self.counters.set(Counter::OffloadForwardedBytes, tally.forwarded_bytes);
        self.counters.set(Counter::OffloadLeft, tally.left);
        self.counters.set(Counter::OffloadDropped, tally.dropped);
        self.counters.set(Counter::OffloadDroppedBytes, tally.bytes);
        self.counters.set(Counter::OffloadRules, tally.rules);
        self.counters.set(Counter::OffloadRefused, tally.refused);
    }

    /// What the workers know of a flow: of each worker that knows it.
    pub fn flow(&mut self, flow: &Addresses, now_ns: u64) -> Vec<FlowLine> {
        match *flow {
            Addresses::V4 { src, dst } => self.v4.flow(self.spread, src, dst, now_ns),
            Addresses::V6 { src, dst } => self.v6.flow(self.spread, src, dst, now_ns),
        }
    }

    /// A page of flows. It is given out when it is full, and when so much has been looked at that more would hold up whoever waits for the control side: it may be
    /// empty though there are more.
    pub fn flows(&self, wanted: &Wanted, now_ns: u64) -> FlowsPage {
        let mut page = FlowsPage { flows: Vec::new(), next: None };
        let workers = self.v4.workers.len();
        let (mut table, mut bucket) =
            wanted.cursor.map_or((0, 0), |cursor| ((cursor >> 48) as usize, cursor as u32 as usize));
        let mut left = PAGE_BUCKETS;
        // Tables in order: IPv4 of all workers, then IPv6.
        while table < 2 * workers && left > 0 && page.flows.len() < wanted.limit() {
            let next = match table.checked_sub(workers) {
                None => self.v4.page(self.spread, (table, bucket), wanted, now_ns, &mut page.flows),
                Some(worker) => self.v6.page(self.spread, (worker, bucket), wanted, now_ns, &mut page.flows),
            };
            left = left.saturating_sub(STEP_BUCKETS);
            (table, bucket) = match next {
                0 => (table + 1, 0),
                next => (table, next),
            };
        }
        page.next = (table < 2 * workers).then_some((table as u64) << 48 | bucket as u64);
        page
    }

    /// Where the most was dropped in the last windows of all workers together: at most `n` lines, the most first.
    pub fn top(&mut self, by: By, n: usize, now_ns: u64) -> Vec<TopLine> {
        let mut lines = self.v4.tops.lines::<u32>(by, n, now_ns);
        lines.extend(self.v6.tops.lines::<u128>(by, n, now_ns));
        lines.sort_by_key(|line| std::cmp::Reverse(line.packets));
        lines.truncate(n);
        lines
    }

    /// Whether there has been a window of [`TOP_WINDOW_NS`] to say anything about. A worker without packets may let its first last longer.
    pub fn top_has_begun(&self) -> bool {
        self.v4.tops.any() || self.v6.tops.any()
    }
}

/// Requests need an address to come from.
fn sources_exist(settings: &Settings, v4: bool, v6: bool) -> Result<(), GateError> {
    for (wanted, there, family) in [(v4, settings.source4 != 0, "IPv4"), (v6, settings.source6 != 0, "IPv6")]
    {
        if wanted && !there {
            let what = format!(
                "there are {family} policies, and no {family} address to send from: give an interface at the back one, or name one here"
            );
            return Err(GateError::config("source", what));
        }
    }
    Ok(())
}

impl<A: Paired<W>, const W: usize> Half<A, W> {
    fn new(
        policies: Policies<A>,
        notes: &[Notes],
        catalog: &Catalog,
        [flows, programs]: [Counter; 2],
        size: &mut dyn FnMut() -> Size,
    ) -> Result<Self, SizeError> {
        let post = Post::new(notes.len());
        let (mut shown, mut seats, mut passed) = (Vec::new(), Vec::new(), Vec::new());
        let mut tops = Tops::new()?;
        for (worker, note) in notes.iter().enumerate() {
            let mut gate = Gate::new(&size(), catalog.clone())?;
            let board = Board::default();
            tops.listen(worker, gate.heavy().exchange())?;
            let (round, unplaced) = (Arc::<AtomicU64>::default(), note.unplaced.clone());
            passed.push(round.clone());
            let (reader, revoked) = (gate.reader(), gate.revocations());
            shown.push(WorkerView { reader, board: board.clone(), revoked });
            seats.push(post.of(worker).map(|mail| {
                let (counters, mail) = (Counters::default(), mail.clone());
                let shown_ns = 0;
                let passed = round;
                Box::new(Seat { gate, counters, mail, board, flows, programs, shown_ns, unplaced, passed })
            }));
        }
        Ok(Half { policies, seats: Halves::new(seats), post, workers: shown, passed, tops })
    }

    /// Has all workers tell of what they refuse.
    fn tell_below(&mut self, words: &Arc<dyn Words>) -> Result<Picks<A, W>, SizeError> {
        let picks = Picks::new(words.clone())?;
        for worker in 0..self.workers.len() {
            let mut seat = self.seats.take(worker);
            seat.iter_mut().for_each(|seat| seat.gate.set_hand(picks.hand(worker)));
            self.seats.put(worker, seat);
        }
        // In the name of the first worker: it is nobody's.
        self.tops.listen(0, picks.exchange())?;
        Ok(picks)
    }

    /// Frees what no worker sees any more, and numbers that no flow has.
    fn free(&mut self) {
        let passed = self.passed.iter().map(|passed| passed.load(Ordering::Acquire)).min();
        self.policies.free(passed.unwrap_or(u64::MAX));
        self.policies.collect();
    }

    fn grantor(&self, spread: u64, source: A, destination: A) -> Option<IpAddr> {
        let label = self.policies.label(destination);
        let choices = self.policies.choices();
        let Choice::Grantors(buckets) = choices.get(label) else { return None };
        let number = Gate::grantor(spread, choices, buckets, source, destination);
        choices.grantors.get(usize::from(number)).map(|grantor| grantor.address())
    }

    fn flow(&mut self, spread: u64, source: A, destination: A, now_ns: u64) -> Vec<FlowLine> {
        let key = A::key(source, destination);
        let Half { workers, policies, .. } = self;
        let choices = policies.choices();
        let known = workers.iter_mut().enumerate().filter_map(|(worker, view)| {
            let state = view.reader.get(&key)?.state;
            let revoked = view.revoked.lock().unwrap_or_else(PoisonError::into_inner);
            let shown = show::<A, W>(choices, &revoked, spread, (source, destination), &state, now_ns);
            Some(line::<A, W>(worker, source, destination, shown))
        });
        known.collect()
    }

    /// Adds flows of the next [`STEP_BUCKETS`] of a worker's table from a bucket on; returns the bucket to go on with, 0 if there is none.
    fn page(
        &self,
        spread: u64,
        (worker, bucket): (usize, usize),
        wanted: &Wanted,
        now_ns: u64,
        flows: &mut Vec<FlowLine>,
    ) -> usize {
        let Some(view) = self.workers.get(worker) else { return 0 };
        let choices = self.policies.choices();
        let revoked = view.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        view.reader.scan(bucket, STEP_BUCKETS, |key, flow| {
            let (source, destination) = A::of_key(key);
            let shown = show::<A, W>(choices, &revoked, spread, (source, destination), &flow.state, now_ns);
            let line = line::<A, W>(worker, source, destination, shown);
            if wanted.takes(&line) {
                flows.push(line);
            }
        })
    }
}

/// What is known of a flow: its state, or that the decision in it counts no more, which its next packet will find out.
fn show<A: Paired<W>, const W: usize>(
    choices: &Choices<A>,
    revoked: &Revocations<A>,
    spread: u64,
    flow: (A, A),
    state: &FlowState,
    now_ns: u64,
) -> Shown {
    let stands = || Gate::<A, W>::stands(spread, choices, revoked, state, flow, state.note().into());
    if state.over(now_ns) || stands() { state.show(now_ns) } else { Shown::Revoked }
}

fn line<A: Paired<W>, const W: usize>(worker: usize, source: A, destination: A, state: Shown) -> FlowLine {
    FlowLine { worker, source: source.address(), destination: destination.address(), state }
}

#[cfg(test)]
mod tests;
