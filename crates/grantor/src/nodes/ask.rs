//! `ask`: packets whose flows ask for permission, or for its renewal, wait here for what the policy says.
//!
//! ```text
//!  outer packet --> question --> Judge ...... answer --> inner packet: on to its destination, or policy-refused, policy-failed
//!       '--> kept: slots ---------------------------'--> decision: the Gatekeeper's box --once per turn--> one datagram
//! ```
//! - As many packets wait as `grantor.policy.queue` says; what finds no room is dropped as `ask-queue-full`. A packet waits `wait_ms` at most ([`Judge`]): then it is
//!   dropped as `policy-failed`, and nothing is said, for nobody has judged its flow (`unjudged`). The fail-safe is for those at whom the policy failed.
//! - **A renewal loses nothing by a failure**: its flow has a grant, and the Gatekeeper has let the packet pass. Where the policy does not answer, or there is no room to ask, the
//!   packet goes on, nothing is said, and the grant holds until it expires (`unrenewed`). An eighth of the room is for renewals, so that strangers cannot take it all, and
//!   another one for those who ask again after a while ([`Question::leaves`]).
//! - Questions of one signature are merged where they are answered: in the engine, which sees what other turns have asked too.
//! - A decision by a policy that has been replaced, or revoked, since the question was put is not sent: the flow asks again. Its packet is treated as it was
//!   decided.
//! - Answers are carried out between two bursts, [`SETTLED`] at most in one turn; decisions are sent when all are.
//! - Worker 0 also sends what the control side wants said: revocations, before what is decided under the version that they begin.
//!
//! Outputs: `ip4`, `ip6` (the inputs: inner packets are checked like any other), `lookup4`, `lookup6`.

use crate::answer::{self, Answer};
use crate::control::{GrantorControl, Orders, Record};
use crate::judge::Judge;
use crate::question::Question;
use crate::section::Settings;
use crate::tally::{Board, Counter, Counters};
use crate::tunnel;
use crate::voice::{Outbox, Peer};
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_decision::{Decision, Verdict as Said};
use tidemill_graph::{Context, Node, Verdict, Waker};
use tidemill_lookup::publish::View;

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 4] = ["ip4", "ip6", "lookup4", "lookup6"];

const LOOKUPS: [u8; 2] = [2, 3];

/// Answers that are carried out in one turn.
const SETTLED: usize = 128;
/// Messages of the control side that are sent in one turn.
const ORDERS: usize = 64;

/// A packet that waits, and what is known of it.
struct Slot {
    packet: Option<Packet>,
    question: Question,
    peer: Peer,
    /// The policy's version when it was asked.
    version: u32,
}

/// The node.
pub struct Ask {
    settings: View<Settings>,
    judge: Option<Judge>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Those that have a question under way and get their packet next.
    expected: VecDeque<u32>,
    ready: VecDeque<(u32, Answer)>,
    outbox: Outbox,
    counters: Counters,
    board: Board,
    /// What has been asked and answered, for whoever wants to look.
    records: Arc<ArrayQueue<Record>>,
    orders: Option<Arc<Orders>>,
    bell: Arc<OnceLock<Waker>>,
    /// Whether the judge has been asked since it was listened to.
    asked: bool,
}

/// Makes the workers' nodes, by their numbers.
pub(crate) fn factory(control: &GrantorControl) -> impl Fn(usize) -> Ask + Send + Sync + 'static {
    let (settings, boards, seats) = (control.settings.view(), control.boards(1), control.seats.clone());
    let (voice, met, records) = (control.voice.clone(), control.met.clone(), control.records.clone());
    let (orders, room) = (control.orders.clone(), control.room());
    move |worker| {
        let (judge, bell) = seats.take(worker);
        Ask {
            settings: settings.clone(),
            judge,
            slots: (0..room).map(|_| None).collect(),
            free: (0..room as u32).rev().collect(),
            expected: VecDeque::with_capacity(room),
            ready: VecDeque::with_capacity(room),
            outbox: Outbox::new(voice.clone(), met.clone(), LOOKUPS),
            counters: Counters::default(),
            board: boards.get(worker).cloned().unwrap_or_default(),
            records: records.clone(),
            orders: (worker == 0).then(|| orders.clone()),
            bell,
            asked: false,
        }
    }
}

/// What is made of an answer: no failure takes anything from a flow that has a grant.
fn spared(question: &Question, answer: Answer) -> Answer {
    if question.is_renewal() && answer.failure.is_some() {
        return Answer { decision: answer::Decision::None, forward: true, ..answer };
    }
    answer
}

/// What a Gatekeeper is told.
fn said(question: &Question, decision: &answer::Decision) -> Option<Decision> {
    let verdict = match *decision {
        answer::Decision::None => return None,
        answer::Decision::Declined { expire_s } => Said::Declined { expire_s },
        answer::Decision::Granted { rate_kib_s, expire_s, renew_ms, step_ms, direct } => {
            Said::Granted { rate_kib_s, expire_s, renew_ms, step_ms, direct }
        }
        answer::Decision::Program { expire_s, program, cookie } => Said::Bpf { expire_s, program, cookie },
    };
    Some(Decision { flow: question.flow, verdict })
}

impl Ask {
    fn take(&mut self, cx: &mut Context<'_>, packet: &mut Packet) -> Verdict {
        let Ask { settings, judge, slots, free, expected, counters, .. } = self;
        let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
        // `decapsulate` lets only such packets through.
        let Some(tunnel) = tunnel::look(ip).filter(|tunnel| tunnel.whole) else {
            counters.one(Counter::Malformed);
            return Verdict::Drop(DropReason::TunnelMalformed);
        };
        let question = tunnel::question(tunnel.inner(ip), tunnel.dscp);
        if let Err(reason) = tunnel.cut(packet) {
            let congested = reason == DropReason::TunnelCongestion;
            counters.one(if congested { Counter::Congested } else { Counter::Malformed });
            return Verdict::Drop(reason);
        }
        let renewal = question.is_renewal();
        let spare = question.leaves(slots.len());
        let ticket = free.last().copied().filter(|_| free.len() > spare);
        let (Some(judge), Some(ticket)) = (judge, ticket) else {
            if renewal {
                counters.one(Counter::Unrenewed);
                return Verdict::Next(u8::from(tunnel.ours.is_ipv6()));
            }
            counters.one(Counter::QueueFull);
            return Verdict::Drop(DropReason::AskQueueFull);
        };
        let peer = Peer { gatekeeper: tunnel.gatekeeper, ours: tunnel.ours, interface: packet.port };
        let slot = Slot { packet: None, question, peer, version: self.outbox.version(cx.now_ns) };
        self.asked = true;
        match judge.ask_sparing(cx.now_ns, ticket, &question, spare) {
            Some(answer) => {
                let answer = spared(&question, answer);
                let settings = settings.get(cx.reader);
                let sent = (&mut self.outbox, &mut *counters);
                tell(cx, settings, sent, &self.records, &slot, &answer);
                verdict(counters, &slot, &answer)
            }
            None => {
                free.pop();
                if let Some(place) = slots.get_mut(ticket as usize) {
                    *place = Some(slot);
                }
                expected.push_back(ticket);
                Verdict::Keep
            }
        }
    }

    /// Carries out an answer.
    fn settle(&mut self, cx: &mut Context<'_>, ticket: u32, answer: &Answer) {
        let Some(mut slot) = self.slots.get_mut(ticket as usize).and_then(Option::take) else { return };
        self.free.push(ticket);
        let Some(packet) = slot.packet.take() else { return };
        let answer = spared(&slot.question, *answer);
        let settings = self.settings.get(cx.reader);
        tell(cx, settings, (&mut self.outbox, &mut self.counters), &self.records, &slot, &answer);
        match verdict(&mut self.counters, &slot, &answer) {
            Verdict::Drop(reason) => cx.discard(reason, packet),
            Verdict::Next(output) => cx.release(output, packet),
            Verdict::Consume | Verdict::Keep => cx.consume(packet),
        }
    }
}

/// Puts a decision into its Gatekeeper's box.
fn tell(
    cx: &mut Context<'_>,
    settings: &Settings,
    (outbox, counters): (&mut Outbox, &mut Counters),
    records: &ArrayQueue<Record>,
    slot: &Slot,
    answer: &Answer,
) {
    records.force_push(Record {
        now_ns: cx.now_ns,
        gatekeeper: slot.peer.gatekeeper,
        question: slot.question,
        answer: *answer,
    });
    match said(&slot.question, &answer.decision) {
        None => counters.one(Counter::Undecided),
        Some(decision) => outbox.decide(cx, settings, counters, slot.peer, decision, slot.version),
    }
}

/// What becomes of the packet.
fn verdict(counters: &mut Counters, slot: &Slot, answer: &Answer) -> Verdict {
    let on = Verdict::Next(u8::from(slot.peer.ours.is_ipv6()));
    if let Some(failure) = answer.failure {
        if slot.question.is_renewal() {
            counters.one(Counter::Unrenewed);
            return on;
        }
        counters.one(if failure.is_unjudged() { Counter::Unjudged } else { Counter::FailSafe });
    }
    if answer.forward {
        counters.one(Counter::Forwarded);
        return on;
    }
    counters.one(Counter::PolicyDropped);
    Verdict::Drop(if answer.failure.is_some() { DropReason::PolicyFailed } else { DropReason::PolicyRefused })
}

impl Node for Ask {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            *verdict = self.take(cx, packet);
        }
    }

    fn keep(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let ticket = self.expected.pop_front();
        match ticket.and_then(|ticket| self.slots.get_mut(ticket as usize)) {
            Some(Some(slot)) => slot.packet = Some(packet),
            // Nobody waits for it: rather dropped by name than lost.
            _ => cx.discard(DropReason::AskQueueFull, packet),
        }
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.outbox.version(cx.now_ns); // we have started
        if let Some(judge) = &mut self.judge
            && (std::mem::take(&mut self.asked) || judge.waiting() > 0)
        {
            judge.answers(cx.now_ns, |ticket, answer| self.ready.push_back((ticket, answer)));
        }
        // Before what is decided under the version that a revocation begins: Gatekeepers hear of it first.
        if let Some(orders) = &self.orders {
            let settings = self.settings.get(cx.reader);
            for _ in 0..ORDERS {
                let Some((peer, message)) = orders.queue.pop() else { break };
                self.outbox.put(cx, settings, &mut self.counters, peer, message);
            }
        }
        for _ in 0..SETTLED {
            let Some((ticket, answer)) = self.ready.pop_front() else { break };
            self.settle(cx, ticket, &answer);
        }
        if !self.ready.is_empty() {
            // What was answered together is said together: in the turn that carries out the last of it.
            cx.wake_at(cx.now_ns);
        } else {
            let settings = self.settings.get(cx.reader);
            self.outbox.flush(cx, settings, &mut self.counters);
            self.judge.as_ref().and_then(Judge::due_ns).into_iter().for_each(|due_ns| cx.wake_at(due_ns));
        }
        self.counters.set(Counter::Waiting, (self.slots.len() - self.free.len()) as u64);
        self.board.show(&self.counters);
    }

    fn wake_with(&mut self, waker: &Waker) {
        let _ = self.bell.set(waker.clone());
        if let Some(orders) = &self.orders {
            let _ = orders.waker.set(waker.clone());
        }
    }

    fn surrender(&mut self, pool: &mut Pool) {
        self.slots
            .iter_mut()
            .filter_map(Option::take)
            .filter_map(|slot| slot.packet)
            .for_each(|packet| pool.free(packet));
        self.board.show(&self.counters);
    }
}
