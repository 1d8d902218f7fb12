//! The policy table: what becomes of packets from the front, by destination.
//!
//! ```text
//! destination --LPM--> number --> Route | Drop | Grantors: buckets --> a Grantor's number --> its address
//! ```
//!
//! **A number** stands for an action with its Grantors. A flow notes the number that it was decided by ([`FlowState::note`](crate::FlowState::note)), so a number
//! must not come to mean anything else while a flow has it:
//!
//! ```text
//! used --no prefix leads there any more--> retired --no worker has a flow that notes it--> free --> used, with another meaning
//!   ^                                         |
//!   +------- the same action again -----------+
//! ```
//!
//! * A retired number still leads to the Grantors that it led to. Each worker counts its flows by their numbers; packets of these flows, and the sweep
//!   that reclaims, give them the number that their destination has now ([`crate::gate`]). A count is exact even where an insertion moves a flow past
//!   the sweep, which "the sweep has been through" is not.
//! * A worker says up to which retirement it has no flow left. It says so between two bursts and by what it sees published then: labels are
//!   published before the retirement, so none of its later bursts can find such a number.
//! * A number stays in use as long as any prefix leads there, and some of its flows may be of one that leads elsewhere now. By the paper's order, which asks a known flow for its
//!   number and not the table, that is found out by [`moves`](Choices::moves), which is published after the labels: a flow that has not been seen since is looked up again.
//! * A meaning is published before the labels that lead to it, and workers ask for meanings after they have looked labels up, so they never
//!   meet a number with the meaning that it had before.
//! * There are [`MOST_CHOICES`]. Where all are used or retired, a change is refused and says so; nothing has changed then, and some seconds later
//!   there is room. The other way, to decide all flows of the oldest anew, would let whoever changes policies often undo grants everywhere.
//!
//! **A Grantor's number** is never given to another one: packets in queues and decisions in mailboxes carry it, and a request may wait for as long
//! as a flood lasts. There are 65,536 for the life of a process.
//!
//! Flows are spread over Grantors by rendezvous over [`BUCKETS`]: a Grantor more or less moves only the flows that it gets or had. One that is
//! [down](Policies::set_down) is left out; a policy all of whose Grantors are down uses them all, as if none were: requests go on being sent, what was
//! granted holds until it expires, and the first Grantor that answers decides again.

use crate::addresses::AddressSet;
use crate::config::{Action, PolicyConfig};
use crate::error::GateError;
use crate::family::Gated;
use crate::offload::{JUDGED, PASSES};
use crate::ours::Ours;
use crate::tunnel::{Endpoint, Endpoints};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use tidemill_flow::hash::mix;
use tidemill_lookup::publish::{Publisher, View};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::rib::Change;
use tidemill_lpm::table::{Algorithm, Table};
use tidemill_lpm::{Fib, Label, Prefix, Rib};

/// Parts into which the flows of a policy are spread.
pub const BUCKETS: usize = 64;

/// Numbers that there are; number 0 is "no policy".
pub const MOST_CHOICES: usize = 1 << 13;

/// What is done with packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Routed.
    Route,
    /// Dropped.
    Drop,
    /// To one of the Grantors, whose buckets begin here.
    Grantors(u32),
}

/// The published half: choices by their number.
#[derive(Debug, Clone)]
pub struct Choices<A> {
    choices: Vec<Choice>,
    /// Numbers that no prefix leads to any more, and by which change that was: in order of these.
    retired: Vec<(u32, u64)>,
    /// Whether a number is among them.
    is_retired: Vec<bool>,
    /// Changes that have retired numbers.
    epoch: u64,
    /// Changes of what prefixes lead to.
    moves: u64,
    /// Grantors' numbers, twice [`BUCKETS`] for each choice that has any: among those that are up, and among all.
    buckets: Vec<u16>,
    /// Where buckets begin that no choice has.
    spare: Vec<u32>,
    /// Grantors' numbers, all that each choice names.
    named: Vec<Box<[u16]>>,
    /// Grantors' addresses by their number.
    pub grantors: Vec<A>,
    /// The same, to be asked for.
    addresses: AddressSet<A>,
    /// Whether they are left out now, by their number.
    down: Vec<bool>,
}

impl<A> Default for Choices<A> {
    fn default() -> Self {
        Choices {
            choices: Vec::new(),
            retired: Vec::new(),
            is_retired: Vec::new(),
            epoch: 0,
            moves: 0,
            buckets: Vec::new(),
            spare: Vec::new(),
            named: Vec::new(),
            grantors: Vec::new(),
            addresses: AddressSet::default(),
            down: Vec::new(),
        }
    }
}

impl<A: Copy> Choices<A> {
    /// What a number of the table means.
    #[inline(always)]
    pub fn get(&self, number: u32) -> Choice {
        self.choices.get(number as usize).copied().unwrap_or(Choice::Drop)
    }

    /// Whether no prefix leads to this number any more.
    #[inline(always)]
    pub fn is_retired(&self, number: u32) -> bool {
        !self.retired.is_empty() && self.is_retired.get(number as usize).copied().unwrap_or(false)
    }

    /// Whether any number is retired.
    #[inline(always)]
    pub fn any_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// How often prefixes have got other numbers since the start. It is published after these: a burst that begins when it has been seen finds them in the table.
    #[inline]
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Up to which change retired numbers are not in use, by somebody who knows which are.
    pub fn passed(&self, in_use: impl Fn(u32) -> bool) -> u64 {
        let first = self.retired.iter().find(|(number, _)| in_use(*number));
        first.map_or(self.epoch, |(_, epoch)| epoch - 1)
    }

    /// Whether the Grantor with number `grantor` is among those of a policy with this number.
    pub fn names(&self, number: u32, grantor: u16) -> bool {
        self.named.get(number as usize).is_some_and(|named| named.contains(&grantor))
    }

    /// Whether a policy with this number names all Grantors that the one with number `of` names. Not where these are more than [`BUCKETS`]: work is bounded.
    pub fn names_all(&self, number: u32, of: u32) -> bool {
        let named = self.named.get(of as usize);
        named.is_some_and(|named| {
            !named.is_empty() && named.len() <= BUCKETS && named.iter().all(|at| self.names(number, *at))
        })
    }

    /// Whether this is so of every Grantor that a policy with this number names.
    pub fn all_named(&self, number: u32, is_so: impl Fn(u16) -> bool) -> bool {
        self.named.get(number as usize).is_none_or(|named| named.iter().copied().all(is_so))
    }

    /// Whether a policy has named this Grantor since the start. One that none names any more may still be another Gatekeeper's.
    #[inline(always)]
    pub fn is_grantor(&self, address: A) -> bool
    where
        A: Gated,
    {
        self.addresses.has(address)
    }

    /// The number of a Grantor that is among those of a policy with this number, whether it is down or not.
    pub fn decides(&self, number: u32, grantor: A) -> Option<u16>
    where
        A: PartialEq,
    {
        let named = self.named.get(number as usize)?;
        named.iter().copied().find(|at| self.grantors.get(usize::from(*at)) == Some(&grantor))
    }

    /// The Grantor of a flow with this hash: its number.
    #[inline(always)]
    pub fn grantor(&self, buckets: u32, spread: u64) -> u16 {
        let at = buckets as usize + (spread >> (64 - BUCKETS.ilog2())) as usize;
        self.buckets.get(at).copied().unwrap_or_default()
    }

    /// The Grantor that it would be if all were up.
    #[inline]
    pub fn home(&self, buckets: u32, spread: u64) -> u16 {
        self.grantor(buckets + BUCKETS as u32, spread)
    }
}

impl<A: Gated> Choices<A> {
    /// Spreads the flows of the policies with this number over those of its Grantors that are up.
    fn spread(&mut self, number: usize) {
        let (Some(Choice::Grantors(first)), Some(named)) = (self.choices.get(number), self.named.get(number))
        else {
            return;
        };
        let is_up = |at: &&u16| !self.down.get(usize::from(**at)).copied().unwrap_or(false);
        let any = named.iter().any(|at| is_up(&at));
        let first = *first as usize;
        let Some(buckets) = self.buckets.get_mut(first..first + 2 * BUCKETS) else { return };
        let address = |at: u16| self.grantors.get(usize::from(at)).map_or(0, |grantor| grantor.fold());
        let (now, home) = buckets.split_at_mut(BUCKETS);
        for (buckets, all) in [(now, !any), (home, true)] {
            for (bucket, best) in (0..).zip(buckets) {
                let there = named.iter().filter(|at| all || is_up(at));
                let most = there.max_by_key(|at| mix(mix(address(**at)) ^ bucket));
                *best = most.copied().unwrap_or(0);
            }
        }
    }
}

/// A policy as it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy<A: Gated> {
    /// The destinations.
    pub prefix: Prefix<A>,
    /// What is done.
    pub action: Action,
    /// The Grantors, with action [`Action::Grantor`].
    pub grantors: Vec<A>,
}

/// The table, and what its numbers mean.
pub(crate) type Views<A> = (View<Arc<dyn Fib<A>>>, View<Choices<A>>);

/// One family's policies: the control side's half.
pub struct Policies<A: Gated> {
    table: Table<A>,
    choices: Publisher<Choices<A>>,
    endpoints: Publisher<Endpoints<A>>,
    /// Our end of the tunnels.
    source: A,
    /// What the numbers stand for; none: free.
    known: Vec<Known<A>>,
    /// The policies; the table has our own addresses besides.
    policies: Rib<A>,
    own: Vec<A>,
    /// Whether the table is to be taken for full.
    #[cfg(test)]
    pub(crate) is_full: bool,
}

/// The number of "routed": that of our own addresses, whatever the policies say.
const ROUTED: Label = Label(1);

type Known<A> = Option<(Action, Vec<A>)>;

/// Policies with their numbers, and what these will mean.
pub(crate) struct Plan<A> {
    known: Vec<Known<A>>,
    choices: Choices<A>,
    labels: Vec<Label>,
    /// Whether numbers have got a meaning that they did not have.
    any_new: bool,
}

impl<A: Gated> Policies<A> {
    /// The policies of a configuration; `default` is where there are none. Our `own` addresses are always reached.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub(crate) fn new(
        domain: &Domain,
        default: Action,
        policies: &[Policy<A>],
        source: A,
        own: Vec<A>,
    ) -> Result<Self, GateError> {
        let known = vec![Some((default, Vec::new())), Some((Action::Route, Vec::new()))];
        let choices = vec![choice_of(default), Choice::Route];
        let named = choices.iter().map(|_| Box::default()).collect();
        let choices = Choices { choices, named, ..Choices::default() };
        let mut all = Policies {
            table: Table::new(domain, Rib::new(), &Algorithm::Auto)?,
            endpoints: Publisher::new(domain, Vec::new()),
            choices: Publisher::new(domain, choices),
            source,
            known,
            policies: Rib::new(),
            own: Vec::new(),
            #[cfg(test)]
            is_full: false,
        };
        let plan = all.plan(policies)?;
        all.commit(plan, policies, &[])?;
        all.set_own(own)?;
        // No flow has a number yet.
        let choices = Choices { moves: 0, ..all.choices.current().clone() };
        all.choices.publish(choices);
        Ok(all)
    }

    /// Where Grantors are, and our end.
    pub(crate) fn endpoints(&self) -> View<Endpoints<A>> {
        self.endpoints.view()
    }

    /// Sends from another address.
    pub(crate) fn set_source(&mut self, source: A) {
        if self.source != source {
            self.source = source;
            self.endpoints.publish(self.ends(self.choices.current()));
        }
    }

    /// The tunnels to all Grantors. What is known of their ways stays known: a Grantor keeps its number.
    fn ends(&self, choices: &Choices<A>) -> Endpoints<A> {
        let known = self.endpoints.current();
        let end = |(at, grantor): (usize, &A)| match known.get(at) {
            Some(end) => end.from(self.source),
            None => Endpoint::new(self.source, *grantor),
        };
        choices.grantors.iter().enumerate().map(end).collect()
    }

    /// We have these addresses now, or, if there is no room for them, those of before. Returns those before.
    pub(crate) fn set_own(&mut self, own: Vec<A>) -> Result<Vec<A>, GateError> {
        let gone = self.own.iter().filter(|address| !own.contains(address));
        let new = own.iter().filter(|address| !self.own.contains(address));
        let changed: Vec<Prefix<A>> = gone.chain(new).filter_map(|address| host(*address)).collect();
        let before = std::mem::replace(&mut self.own, own);
        match self.bring_up_to_date(&changed) {
            Ok(()) => {
                self.retire(!changed.is_empty());
                Ok(before)
            }
            Err(error) => {
                self.own = before;
                Err(error)
            }
        }
    }

    /// What workers look into: the table, and what its numbers mean.
    pub(crate) fn views(&self) -> Views<A> {
        (self.table.view(), self.choices.view())
    }

    /// Has the table say of these prefixes what holds.
    fn bring_up_to_date(&mut self, prefixes: &[Prefix<A>]) -> Result<(), GateError> {
        let change = |prefix: &Prefix<A>| {
            let ours = host(prefix.first()) == Some(*prefix) && self.own.contains(&prefix.first());
            match self.policies.get(*prefix) {
                _ if ours => Change::Announce(*prefix, ROUTED),
                Some(number) => Change::Announce(*prefix, number),
                None => Change::Withdraw(*prefix),
            }
        };
        let changes: Vec<Change<A>> = prefixes.iter().map(change).collect();
        #[cfg(test)]
        if self.is_full && !changes.is_empty() {
            return Err(GateError::config("policy", "full, says the test"));
        }
        self.table.apply(&changes)?;
        Ok(())
    }

    /// Gives policies their numbers; nothing has changed yet.
    ///
    /// # Errors
    /// There are no more numbers.
    pub(crate) fn plan(&self, policies: &[Policy<A>]) -> Result<Plan<A>, GateError> {
        let (mut known, mut choices) = (self.known.clone(), self.choices.current().clone());
        let mut places: BTreeMap<A, usize> = choices.grantors.iter().copied().zip(0..).collect();
        let mut any_new = false;
        let labels: Result<_, _> = policies
            .iter()
            .map(|policy| number(&mut known, &mut choices, &mut places, &mut any_new, policy))
            .collect();
        let labels = labels?;
        if choices.addresses.len() != choices.grantors.len() {
            choices.addresses = AddressSet::new(choices.grantors.clone());
        }
        Ok(Plan { labels, known, choices, any_new })
    }

    /// The same for policies that are to be put in the place of all that there are. Until workers have seen that, both have their numbers.
    ///
    /// # Errors
    /// There are no more numbers: too many policies, or too many beside those of now.
    pub(crate) fn plan_instead(&self, policies: &[Policy<A>]) -> Result<Plan<A>, GateError> {
        self.plan(policies).map_err(|error| self.crowded(policies).unwrap_or(error))
    }

    /// Why there are no numbers for these policies in the place of all that there are, if it is not that numbers are retired and soon free.
    fn crowded(&self, policies: &[Policy<A>]) -> Option<GateError> {
        let routed: (u8, &[A]) = (Action::Route as u8, &[]);
        let now = self.choices.current();
        let used = (0..).zip(&self.known).skip(1).filter(|(number, _)| !now.is_retired(*number));
        let there: BTreeSet<(u8, &[A])> =
            used.filter_map(|(_, known)| known.as_ref().map(|known| (known.0 as u8, &known.1[..]))).collect();
        let wanted: BTreeSet<(u8, &[A])> =
            policies.iter().map(|policy| (policy.action as u8, &policy.grantors[..])).collect();
        // The default's, and "routed".
        let alone = 2 + wanted.iter().filter(|wanted| **wanted != routed).count();
        if alone > MOST_CHOICES {
            return Some(GateError::config("policy", too_many()));
        }
        let (now, new) = (1 + there.len(), wanted.difference(&there).count());
        (now + new > MOST_CHOICES).then(|| {
            let what = format!(
                "{new} different actions are new, and {now} are those of now, which flows still have for a while: of both together there can be {MOST_CHOICES}: reload \
                 without any of these first, and with the new ones some seconds later"
            );
            GateError::config("policy", what)
        })
    }

    /// Has planned policies hold, and those of `gone` no longer; or nothing of it.
    fn commit(&mut self, plan: Plan<A>, policies: &[Policy<A>], gone: &[Prefix<A>]) -> Result<(), GateError> {
        let before = (self.known[0] != plan.known[0]).then(|| self.known[0].clone());
        // First where Grantors are, then what numbers mean, then the numbers.
        if plan.any_new || before.is_some() {
            self.endpoints.publish(self.ends(&plan.choices));
            // Addresses of ours may have changed since that was planned.
            let choices = Choices { moves: self.choices.current().moves, ..plan.choices };
            self.choices.publish(choices);
            self.known = plan.known;
        }
        let mut changed = gone.to_vec();
        changed.extend(policies.iter().map(|policy| policy.prefix));
        let old: Vec<Option<Label>> = changed.iter().map(|prefix| self.policies.get(*prefix)).collect();
        for prefix in gone {
            self.policies.remove(*prefix);
        }
        for (policy, label) in policies.iter().zip(plan.labels) {
            self.policies.insert(policy.prefix, label);
        }
        if let Err(error) = self.bring_up_to_date(&changed) {
            // The table is as it was; so is what it was made of. New numbers, which nothing leads to, are retired.
            for (prefix, old) in changed.iter().zip(old) {
                match old {
                    Some(label) => self.policies.insert(*prefix, label),
                    None => self.policies.remove(*prefix),
                };
            }
            if let Some(default) = before {
                let mut choices = self.choices.current().clone();
                choices.choices[0] = choice_of(default.as_ref().map_or(Action::Drop, |(action, _)| *action));
                self.known[0] = default;
                self.choices.publish(choices);
            }
            self.retire(false);
            return Err(error);
        }
        self.retire(true);
        Ok(())
    }

    /// Has those numbers retired that no prefix leads to, and no others, and says whether any prefix has got another one. The table is up to date.
    fn retire(&mut self, any_moved: bool) {
        let mut is_used = vec![false; self.known.len()];
        // "No policy" and "routed" always are.
        is_used.iter_mut().take(2).for_each(|used| *used = true);
        for (_, label) in self.policies.iter() {
            if let Some(used) = is_used.get_mut(label.0 as usize) {
                *used = true;
            }
        }
        let now = self.choices.current();
        let is_idle = |number: usize| !is_used[number] && self.known[number].is_some();
        let was = |number: usize| now.is_retired(number as u32);
        let is_same = (0..self.known.len()).all(|number| is_idle(number) == was(number));
        if is_same && !any_moved {
            return;
        }
        let mut choices = now.clone();
        choices.moves += u64::from(any_moved);
        if !is_same {
            choices.epoch += 1;
            choices.retired.retain(|(number, _)| is_idle(*number as usize));
            let new = (0..self.known.len()).filter(|number| is_idle(*number) && !was(*number));
            choices.retired.extend(new.map(|number| (number as u32, choices.epoch)));
            choices.is_retired = (0..self.known.len()).map(is_idle).collect();
        }
        self.choices.publish(choices);
    }

    /// Frees the numbers that were retired by changes up to this one: no flow has them.
    pub(crate) fn free(&mut self, passed: u64) {
        let now = self.choices.current();
        let count = now.retired.partition_point(|(_, epoch)| *epoch <= passed);
        if count == 0 {
            return;
        }
        let mut choices = now.clone();
        for (number, _) in choices.retired.drain(..count) {
            let number = number as usize;
            self.known[number] = None;
            choices.is_retired[number] = false;
            choices.named[number] = Box::default();
            if let Choice::Grantors(first) = std::mem::replace(&mut choices.choices[number], Choice::Drop) {
                choices.spare.push(first);
            }
        }
        self.choices.publish(choices);
    }

    /// Sets policies while packets flow.
    pub(crate) fn set(&mut self, policies: &[Policy<A>]) -> Result<(), GateError> {
        let plan = self.plan(policies)?;
        self.commit(plan, policies, &[])
    }

    /// Takes a policy away; false if there is none of exactly this prefix.
    pub(crate) fn remove(&mut self, prefix: Prefix<A>) -> Result<bool, GateError> {
        let before = self.policies.remove(prefix);
        if let Err(error) = self.bring_up_to_date(&[prefix]) {
            // The table has it still.
            if let Some(label) = before {
                self.policies.insert(prefix, label);
            }
            return Err(error);
        }
        self.retire(before.is_some());
        Ok(before.is_some())
    }

    /// Puts these, which were planned, in the place of all that there are.
    pub(crate) fn replace(
        &mut self,
        mut plan: Plan<A>,
        default: Action,
        policies: &[Policy<A>],
    ) -> Result<(), GateError> {
        let mut stay: Vec<Prefix<A>> = policies.iter().map(|policy| policy.prefix).collect();
        stay.sort_unstable();
        let all = self.policies.iter().map(|(prefix, _)| prefix);
        let gone: Vec<Prefix<A>> = all.filter(|prefix| stay.binary_search(prefix).is_err()).collect();
        plan.known[0] = Some((default, Vec::new()));
        plan.choices.choices[0] = choice_of(default);
        self.commit(plan, policies, &gone)
    }

    /// Leaves out the Grantors that are down, and no others. Only their flows move; those that were up keep theirs. Returns whether there is another Grantor for any.
    pub(crate) fn set_down(&mut self, is_down: impl Fn(A) -> bool) -> bool {
        let now = self.choices.current();
        let down: Vec<bool> = now.grantors.iter().map(|grantor| is_down(*grantor)).collect();
        if now.down == down {
            return false;
        }
        let mut choices = now.clone();
        choices.down = down;
        (0..choices.choices.len()).for_each(|number| choices.spread(number));
        let any_moves = choices.buckets != now.buckets;
        self.choices.publish(choices);
        any_moves
    }

    /// The Grantors that policies name now, each once.
    pub(crate) fn grantors(&self) -> Vec<A> {
        let mut numbers: Vec<u32> = self.policies.iter().map(|(_, label)| label.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let named = numbers.iter().filter_map(|number| self.known.get(*number as usize)?.as_ref());
        let mut grantors: Vec<A> = named.flat_map(|(_, grantors)| grantors.iter().copied()).collect();
        grantors.sort_unstable();
        grantors.dedup();
        grantors
    }

    /// All policies, in order of their prefixes.
    pub(crate) fn list(&self) -> Vec<Policy<A>> {
        let of = |(prefix, label): (Prefix<A>, Label)| {
            let (action, grantors) = self.known.get(label.0 as usize)?.clone()?;
            Some(Policy { prefix, action, grantors })
        };
        self.policies.iter().filter_map(of).collect()
    }

    /// The policy that a destination falls under; none where the default counts.
    pub(crate) fn lookup(&self, destination: A) -> Option<Policy<A>> {
        let (prefix, label) = self.table.rib().lookup(destination)?;
        let (action, grantors) = self.known.get(label.0 as usize)?.clone()?;
        Some(Policy { prefix, action, grantors })
    }

    /// The number that a destination has.
    pub(crate) fn label(&self, destination: A) -> u32 {
        self.table.rib().lookup(destination).map_or(0, |(_, label)| label.0)
    }

    /// The number of the policy of exactly this prefix.
    #[cfg(test)]
    pub(crate) fn number(&self, prefix: Prefix<A>) -> Option<u32> {
        self.policies.get(prefix).map(|label| label.0)
    }

    /// Which destinations pass whoever sends to them, and what ([`PASSES`]). Not Grantors' addresses: what is sent there is looked into.
    pub(crate) fn passes(&self) -> Rib<A> {
        let choices = self.choices.current();
        let label = |number: u32| match choices.get(number) {
            Choice::Route => PASSES,
            Choice::Drop | Choice::Grantors(_) => JUDGED,
        };
        let mut passes = Rib::new();
        let mut set = |prefix: Option<Prefix<A>>, label: Label| {
            if let Some(prefix) = prefix {
                passes.insert(prefix, label);
            }
        };
        set(Prefix::new(A::MIN, 0), label(0));
        self.policies.iter().for_each(|(prefix, number)| set(Some(prefix), label(number.0)));
        self.own.iter().for_each(|address| set(host(*address), PASSES));
        choices.grantors.iter().for_each(|grantor| set(host(*grantor), JUDGED));
        passes
    }

    /// What the numbers mean now.
    pub(crate) fn choices(&self) -> &Choices<A> {
        self.choices.current()
    }

    /// Frees what no worker sees any more.
    pub(crate) fn collect(&mut self) {
        self.table.collect();
        self.choices.collect();
        self.endpoints.collect();
    }
}

/// The prefix of one address.
fn host<A: Gated>(address: A) -> Option<Prefix<A>> {
    Prefix::new(address, A::BITS)
}

fn choice_of(action: Action) -> Choice {
    match action {
        Action::Drop => Choice::Drop,
        Action::Route | Action::Grantor => Choice::Route,
    }
}

fn too_many() -> String {
    format!("more than {MOST_CHOICES} different actions: give prefixes the same Grantors")
}

/// The number of a policy's action and Grantors; if there is none, a free one gets that meaning. `places`: the Grantors' numbers.
fn number<A: Gated>(
    known: &mut Vec<Known<A>>,
    choices: &mut Choices<A>,
    places: &mut BTreeMap<A, usize>,
    any_new: &mut bool,
    policy: &Policy<A>,
) -> Result<Label, GateError> {
    let same = |known: &Known<A>| {
        known
            .as_ref()
            .is_some_and(|(action, grantors)| *action == policy.action && *grantors == policy.grantors)
    };
    // Number 0 is where there is no policy.
    if let Some(at) = known.iter().skip(1).position(same) {
        return Ok(Label(at as u32 + 1));
    }
    let number = known.iter().position(Option::is_none).unwrap_or(known.len());
    if number >= MOST_CHOICES {
        let retired = choices.retired.len();
        let what = match retired {
            0 => too_many(),
            _ => format!(
                "no room for another action: of {MOST_CHOICES} there are, {retired} are not in use any more but flows still have them: try again in some seconds, or give \
                 prefixes the same Grantors"
            ),
        };
        return Err(GateError::config("policy", what));
    }
    let mut named: Box<[u16]> = Box::default();
    let choice = match policy.action {
        Action::Grantor => {
            let mut numbers = Vec::with_capacity(policy.grantors.len());
            for &grantor in &policy.grantors {
                let at = *places.entry(grantor).or_insert_with(|| {
                    choices.grantors.push(grantor);
                    choices.grantors.len() - 1
                });
                let at = u16::try_from(at).map_err(|_| {
                    GateError::config("policy", "65,536 Grantors have had their numbers since the start, and none comes back: restart")
                })?;
                numbers.push(at);
            }
            named = numbers.into_boxed_slice();
            choices.down.resize(choices.grantors.len(), false);
            let first = choices.spare.pop().unwrap_or_else(|| {
                choices.buckets.resize(choices.buckets.len() + 2 * BUCKETS, 0);
                (choices.buckets.len() - 2 * BUCKETS) as u32
            });
            Choice::Grantors(first)
        }
        action => choice_of(action),
    };
    if number == known.len() {
        known.push(None);
        choices.choices.push(Choice::Drop);
        choices.named.push(Box::default());
    }
    (choices.choices[number], choices.named[number]) = (choice, named);
    choices.spread(number);
    known[number] = Some((policy.action, policy.grantors.clone()));
    *any_new = true;
    Ok(Label(number as u32))
}

/// Policies as they are written, by family.
pub(crate) struct Parsed {
    pub(crate) v4: Vec<Policy<u32>>,
    pub(crate) v6: Vec<Policy<u128>>,
}

/// Grantors of one family that there can be.
const MOST_GRANTORS: usize = 1 << 16;

/// Checks policies; `key` names one in messages. No Grantor is one of `ours`.
pub(crate) fn parse(
    policies: &[PolicyConfig],
    ours: &Ours,
    key: impl Fn(usize, &str) -> String,
) -> Result<Parsed, GateError> {
    let mut parsed = Parsed { v4: Vec::new(), v6: Vec::new() };
    let mut known = (HashSet::new(), HashSet::new());
    let mut grantors = (HashSet::new(), HashSet::new());
    for (i, policy) in policies.iter().enumerate() {
        let wrong = |field: &str, what: String| GateError::config(key(i, field), what);
        match (policy.action, policy.grantors.is_empty()) {
            (Action::Grantor, true) => {
                return Err(wrong("grantors", "with action \"grantor\" give at least one Grantor".into()));
            }
            (Action::Route | Action::Drop, false) => {
                return Err(wrong("grantors", "only with action \"grantor\"".into()));
            }
            _ => {}
        }
        let text = policy.prefix.as_str();
        if text.contains(':') {
            let prefix = text.parse().map_err(|error| wrong("prefix", format!("{text:?}: {error}")))?;
            let all = addresses::<std::net::Ipv6Addr>(&policy.grantors, "IPv6", ours, &mut grantors.1)
                .map_err(|what| wrong("grantors", what))?;
            let grantors = all.into_iter().map(u128::from).collect();
            let prefix = once(&mut known.1, prefix).map_err(|what| wrong("prefix", what))?;
            parsed.v6.push(Policy { prefix, action: policy.action, grantors });
        } else {
            let prefix = text.parse().map_err(|error| wrong("prefix", format!("{text:?}: {error}")))?;
            let all = addresses::<std::net::Ipv4Addr>(&policy.grantors, "IPv4", ours, &mut grantors.0)
                .map_err(|what| wrong("grantors", what))?;
            let grantors = all.into_iter().map(u32::from).collect();
            let prefix = once(&mut known.0, prefix).map_err(|what| wrong("prefix", what))?;
            parsed.v4.push(Policy { prefix, action: policy.action, grantors });
        }
    }
    Ok(parsed)
}

/// A policy's Grantors; `named` are those of all policies before it.
fn addresses<T>(texts: &[String], family: &str, ours: &Ours, named: &mut HashSet<T>) -> Result<Vec<T>, String>
where
    T: FromStr + Copy + Eq + std::hash::Hash + Into<IpAddr>,
{
    let (mut all, mut here) = (Vec::with_capacity(texts.len()), HashSet::new());
    for text in texts {
        let address: T = text.parse().map_err(|_| {
            format!("{text:?} is no {family} address: a Grantor has the family of those that it protects")
        })?;
        if !here.insert(address) {
            return Err(format!("{text} is there twice: leave one out"));
        }
        if let Some(unfit) = ours.unfit(address.into()) {
            return Err(format!("{text} is no address that a Grantor can have: {unfit}"));
        }
        named.insert(address);
        if named.len() > MOST_GRANTORS {
            return Err(format!(
                "{text} is one more than the 65,536 {family} Grantors that there can be: leave some out"
            ));
        }
        all.push(address);
    }
    Ok(all)
}

/// For a prefix that must not be there twice.
fn once<A: Gated>(known: &mut HashSet<Prefix<A>>, prefix: Prefix<A>) -> Result<Prefix<A>, String>
where
    Prefix<A>: std::fmt::Display + std::hash::Hash,
{
    if !known.insert(prefix) {
        return Err(format!("{prefix} is there twice: leave one out"));
    }
    Ok(prefix)
}

#[cfg(test)]
mod tests;
