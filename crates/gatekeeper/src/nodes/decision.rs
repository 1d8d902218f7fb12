//! `decision`: what Grantors have decided, among the packets to ourselves. UDP to port 45232 is taken; the rest goes on to `local`.
//!
//! Decisions come from a Grantor's port 41120, by an interface that is not in front, in the one format that is configured. They are given to the
//! flows of all workers that have the gate, and the packet is consumed. A decision counts from those Grantors only that the policy of the flow's destination names now; others are
//! counted as refused. Whatever else comes to that port is dropped: nobody else listens there, and an ICMP error would tell a stranger what is here.
//!
//! ```text
//!                       counter                      drop reason
//!  from elsewhere       decisions-refused            decision-refused     by the front, not from that port, not a Grantor of the policy, format not taken
//!  wrong version        decisions-wrong-version      decision-refused     of either format where the other is taken
//!  unknown key          decisions-unknown-key        decision-refused
//!  too many             decisions-unchecked          decision-unchecked
//!  wrong tag            decisions-forged             decision-forged
//!  wrong time           decisions-stale              decision-stale
//!  seen before          decisions-replayed           decision-replayed
//!  no sense in it       decisions-malformed          decision-malformed   UDP's length, its checksum (interoperable only), lengths, reserved bytes, types
//! ```
//!
//! **A flood of forged datagrams** costs little and stops nobody. Before any tag is computed the sender's address must be a Grantor's and the key's number
//! one of ours. Then a datagram with the epoch that the Grantor is known to have is checked if its burst has had fewer than [`KNOWN_BYTES`] of such; who
//! cannot see its datagrams has to guess that, among 86,400 for every day on which it may have started. Of those with another epoch [`STRANGERS`] are checked in
//! a burst. So a burst of 256 costs 4 tags (0.14 to 0.92 us each) against who is off the path, and what 64 KiB take, 40 us, against who is on it (AMD EPYC,
//! 2 cores of a virtual machine, November 2026). A Grantor that has started again while such a flood lasts is known once one of its datagrams is among
//! the four: by chance.
//!
//! Outputs: `local`; `lookup4`, `lookup6` for [probes](probe) that we send.

mod probe;
#[cfg(test)]
mod tests;

use crate::config::DecisionFormat;
use crate::control::GatekeeperControl;
use crate::counters::{Board, Counter, Counters};
use crate::decision::authenticated::{Header, Message, Refusal};
use crate::decision::interoperable::{self, Decisions};
use crate::decision::keys::{Direction, Ends};
use crate::decision::{Decision, GATEKEEPER_PORT, GRANTOR_PORT};
use crate::mail::{By, Letter, Post, Revocation};
use crate::policy::Views;
use crate::settings::Settings;
use crate::trust::{Trust, Unheard};
use probe::Prober;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::datagram::{Datagram, ends};
use tidemill_lookup::publish::View;
use tidemill_wire::flow::Addresses;

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 3] = ["local", "lookup4", "lookup6"];

const LOCAL: u8 = 0;
const LOOKUP4: u8 = 1;
const LOOKUP6: u8 = 2;

/// Datagrams of a burst whose tag is checked though their sender, or its start, is new to us.
const STRANGERS: usize = 4;
/// An answer may be so many rounds of probes late and still be counted: one of ours has asked for it.
const LATE_ROUNDS: u64 = 16;
/// Bytes of a burst whose tags are checked, of senders that we know.
const KNOWN_BYTES: usize = 64 << 10;

/// The node.
pub struct DecisionNode {
    settings: View<Settings>,
    trust: View<Trust>,
    names: Names,
    desk: Desk,
    /// The round of probes that is under way; 0: none has been.
    round: Arc<AtomicU64>,
    /// Worker 0 sends the probes.
    prober: Option<Prober>,
    board: Board,
}

/// Who decides about what.
#[derive(Clone)]
struct Names {
    policies4: Views<u32>,
    policies6: Views<u128>,
}

/// Where decisions are counted and handed on.
struct Desk {
    post4: Post<u32>,
    post6: Post<u128>,
    counters: Counters,
    /// What is left of the burst's allowance.
    strangers: usize,
    known_bytes: usize,
    /// Whether workers have something to hear.
    told: bool,
}

/// Makes the workers' nodes, by their numbers.
pub(crate) fn factory(control: &GatekeeperControl) -> impl Fn(usize) -> DecisionNode + Send + Sync + 'static {
    let (settings, trust) = (control.settings.view(), control.trust.view());
    let names = Names { policies4: control.v4.policies.views(), policies6: control.v6.policies.views() };
    let (post4, post6) = (control.v4.post.clone(), control.v6.post.clone());
    let (round, boards) = (control.round.clone(), control.decisions.clone());
    move |worker| DecisionNode {
        settings: settings.clone(),
        trust: trust.clone(),
        names: names.clone(),
        desk: Desk {
            post4: post4.clone(),
            post6: post6.clone(),
            counters: Counters::default(),
            strangers: 0,
            known_bytes: 0,
            told: false,
        },
        round: round.clone(),
        prober: (worker == 0).then(|| Prober::new(round.clone())),
        board: boards.get(worker).cloned().unwrap_or_default(),
    }
}

impl Names {
    /// The number of this Grantor, if it is one of those that the policy of the flow's destination names.
    fn decides(&self, cx: &Context<'_>, grantor: IpAddr, flow: &Addresses) -> Option<u16> {
        match (*flow, grantor) {
            (Addresses::V4 { dst, .. }, IpAddr::V4(grantor)) => {
                // What a number means, after the number.
                let number = self.policies4.0.get(cx.reader).lookup(dst).0;
                fence(Ordering::Acquire);
                self.policies4.1.get(cx.reader).decides(number, grantor.into())
            }
            (Addresses::V6 { dst, .. }, IpAddr::V6(grantor)) => {
                let number = self.policies6.0.get(cx.reader).lookup(dst).0;
                fence(Ordering::Acquire);
                self.policies6.1.get(cx.reader).decides(number, grantor.into())
            }
            _ => None,
        }
    }

    /// The number of this Grantor among those of its family.
    fn number(&self, cx: &Context<'_>, grantor: IpAddr) -> Option<u16> {
        let at = match grantor {
            IpAddr::V4(grantor) => {
                let grantors = &self.policies4.1.get(cx.reader).grantors;
                grantors.iter().position(|known| *known == u32::from(grantor))
            }
            IpAddr::V6(grantor) => {
                let grantors = &self.policies6.1.get(cx.reader).grantors;
                grantors.iter().position(|known| *known == u128::from(grantor))
            }
        };
        at.and_then(|at| u16::try_from(at).ok())
    }
}

impl Desk {
    fn refuse(&mut self, counter: Counter, reason: DropReason) -> Verdict {
        self.counters.one(counter);
        Verdict::Drop(reason)
    }

    /// Whether the tag may be checked, within the burst's allowance.
    fn may_check(&mut self, is_known: bool, bytes: usize) -> bool {
        let allowance = if is_known { &mut self.known_bytes } else { &mut self.strangers };
        let left = allowance.checked_sub(if is_known { bytes } else { 1 });
        *allowance = left.unwrap_or(*allowance);
        left.is_some()
    }

    /// What becomes of a packet of which so much counted.
    fn end(&mut self, taken: u64, refused: u64, whole: bool) -> Verdict {
        self.counters.add(Counter::DecisionsRefused, refused);
        if !whole {
            return self.refuse(Counter::DecisionsMalformed, DropReason::DecisionMalformed);
        }
        if taken == 0 && refused > 0 {
            return Verdict::Drop(DropReason::DecisionRefused);
        }
        Verdict::Consume
    }

    fn revoked(&mut self, lost: u64) {
        self.counters.one(Counter::Revocations);
        self.counters.add(Counter::MailLost, lost);
        self.told = true;
    }

    /// Hands a decision to the workers. Where there is only one, its flow is made if it is not there: there was no room for it, or it
    /// was forgotten meanwhile.
    fn tell(&mut self, decision: &Decision, grantor: u16, by: Option<By>) {
        self.counters.one(Counter::Decisions);
        self.told = true;
        let (verdict, grantor) = (decision.verdict, Some(grantor));
        let lost = match decision.flow {
            Addresses::V4 { src: source, dst: destination } => {
                let make = self.post4.is_alone();
                self.post4.send(&Letter { source, destination, verdict, make, grantor, by })
            }
            Addresses::V6 { src: source, dst: destination } => {
                let make = self.post6.is_alone();
                self.post6.send(&Letter { source, destination, verdict, make, grantor, by })
            }
        };
        self.counters.add(Counter::MailLost, lost);
    }
}

impl DecisionNode {
    fn take(&mut self, cx: &Context<'_>, packet: &Packet) -> Verdict {
        let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
        let Some([(_, from), (_, GATEKEEPER_PORT)]) = ends(ip) else { return Verdict::Next(LOCAL) };
        let settings = self.settings.get(cx.reader);
        let elsewhere = settings.is_front(packet.port) || from != GRANTOR_PORT;
        if elsewhere || settings.decisions == DecisionFormat::None {
            return self.desk.refuse(Counter::DecisionsRefused, DropReason::DecisionRefused);
        }
        // Its own length says more than there is, or less than its header.
        let Some(datagram) = Datagram::read(ip) else {
            return self.desk.refuse(Counter::DecisionsMalformed, DropReason::DecisionMalformed);
        };
        if settings.decisions == DecisionFormat::Authenticated {
            self.authenticated(cx, &datagram)
        } else {
            self.interoperable(cx, &datagram)
        }
    }

    fn authenticated(&mut self, cx: &Context<'_>, datagram: &Datagram<'_>) -> Verdict {
        let DecisionNode { trust, names, desk, round, .. } = self;
        let trust = trust.get(cx.reader);
        let ends = Ends { source: datagram.source(), destination: datagram.destination() };
        let header = match Header::read(datagram.payload, Direction::ToGatekeeper) {
            Ok(header) => header,
            Err(Refusal::Version(_)) => {
                return desk.refuse(Counter::DecisionsWrongVersion, DropReason::DecisionRefused);
            }
            Err(_) => return desk.refuse(Counter::DecisionsMalformed, DropReason::DecisionMalformed),
        };
        let (Some(keys), Some(peer)) = (&trust.keys, trust.peer(ends.source.0)) else {
            return desk.refuse(Counter::DecisionsRefused, DropReason::DecisionRefused);
        };
        let Some(window) = keys.place(&header).and_then(|place| peer.windows.get(place)) else {
            peer.pulse.ignore(Unheard::UnknownKey);
            return desk.refuse(Counter::DecisionsUnknownKey, DropReason::DecisionRefused);
        };
        if !desk.may_check(window.knows(header.stamp), datagram.payload.len()) {
            return desk.refuse(Counter::DecisionsUnchecked, DropReason::DecisionUnchecked);
        }
        let opened = match keys.open(&header, datagram.payload, &ends, (cx.now_ns, trust.tolerance_ns)) {
            Ok(opened) => opened,
            Err(Refusal::Stale { behind_ns }) => {
                peer.pulse.stale(behind_ns);
                return desk.refuse(Counter::DecisionsStale, DropReason::DecisionStale);
            }
            Err(_) => {
                peer.pulse.ignore(Unheard::Forged);
                return desk.refuse(Counter::DecisionsForged, DropReason::DecisionForged);
            }
        };
        if !window.take(header.stamp) {
            if !window.knows(header.stamp) {
                peer.pulse.ignore(Unheard::Earlier);
            }
            return desk.refuse(Counter::DecisionsReplayed, DropReason::DecisionReplayed);
        }
        peer.pulse.taken();
        peer.heard(header.policy_version);
        let (mut taken, mut refused, mut whole) = (0, 0, true);
        for message in opened {
            let counts = match message {
                Ok(Message::Decision(decision)) => match names.decides(cx, peer.address, &decision.flow) {
                    Some(grantor) => {
                        desk.tell(&decision, grantor, Some(By { grantor, version: header.policy_version }));
                        true
                    }
                    None => false,
                },
                Ok(Message::Revoke { to, below }) => match names.number(cx, peer.address) {
                    Some(grantor) => {
                        let below = By { grantor, version: below };
                        match (peer.address, to.v4(), to.v6()) {
                            (IpAddr::V4(_), Some(ends), None) => {
                                let to = (to.bits() > 0).then_some(ends);
                                let lost = desk.post4.revoke(&Revocation { below, to });
                                desk.revoked(lost);
                                true
                            }
                            (IpAddr::V6(_), None, Some(ends)) => {
                                let to = (to.bits() > 0).then_some(ends);
                                let lost = desk.post6.revoke(&Revocation { below, to });
                                desk.revoked(lost);
                                true
                            }
                            // A Grantor decides for its own family only.
                            _ => false,
                        }
                    }
                    None => false,
                },
                Ok(Message::Answer { nonce }) => {
                    // Others are to an earlier run of ours, whose clock may have been later, or to who probes under our address.
                    let behind = round.load(Ordering::Relaxed).checked_sub(nonce);
                    let is_ours = nonce > 0 && behind.is_some_and(|rounds| rounds < LATE_ROUNDS);
                    if is_ours {
                        desk.counters.one(Counter::ProbesAnswered);
                        peer.pulse.answered.fetch_max(nonce, Ordering::Relaxed);
                    }
                    is_ours
                }
                // We are asked nothing.
                Ok(Message::Probe { .. }) => false,
                Err(_) => {
                    whole = false;
                    continue;
                }
            };
            if counts {
                taken += 1;
            } else {
                refused += 1;
            }
        }
        desk.end(taken, refused, whole)
    }

    fn interoperable(&mut self, cx: &Context<'_>, datagram: &Datagram<'_>) -> Verdict {
        let DecisionNode { names, desk, .. } = self;
        if datagram.payload.first().is_some_and(|version| *version != interoperable::VERSION) {
            return desk.refuse(Counter::DecisionsWrongVersion, DropReason::DecisionRefused);
        }
        if !datagram.is_sound() {
            return desk.refuse(Counter::DecisionsMalformed, DropReason::DecisionMalformed);
        }
        let (mut taken, mut refused, mut whole) = (0, 0, true);
        for decision in Decisions::new(datagram.payload) {
            match decision {
                Ok(decision) => match names.decides(cx, datagram.source().0, &decision.flow) {
                    Some(grantor) => {
                        desk.tell(&decision, grantor, None);
                        taken += 1;
                    }
                    None => refused += 1,
                },
                Err(_) => whole = false,
            }
        }
        desk.end(taken, refused, whole)
    }
}

impl Node for DecisionNode {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        (self.desk.strangers, self.desk.known_bytes) = (STRANGERS, KNOWN_BYTES);
        let answered = self.desk.counters.get(Counter::ProbesAnswered);
        for (packet, verdict) in burst.iter().zip(verdicts) {
            *verdict = self.take(cx, packet);
        }
        let answered = self.desk.counters.get(Counter::ProbesAnswered) != answered;
        if let (Some(prober), true) = (&mut self.prober, answered) {
            prober.heard();
        }
        if std::mem::take(&mut self.desk.told) {
            self.desk.post4.wake();
            self.desk.post6.wake();
        }
        // Few packets come here: their numbers are shown at once.
        self.board.show(&self.desk.counters);
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        let Some(prober) = &mut self.prober else { return };
        let before = self.desk.counters.get(Counter::Probes);
        let reader = cx.reader;
        let (settings, trust) = (self.settings.get(reader), self.trust.get(reader));
        prober.tick(cx, settings, trust, &mut self.desk.counters);
        if self.desk.counters.get(Counter::Probes) != before {
            self.board.show(&self.desk.counters);
        }
    }

    fn surrender(&mut self, _pool: &mut Pool) {
        self.board.show(&self.desk.counters);
    }
}
