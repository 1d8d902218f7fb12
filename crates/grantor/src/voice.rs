//! What is said to Gatekeepers: datagrams of decisions, answers to probes, revocations. One [`Voice`] for all workers, one [`Outbox`] for each node that
//! speaks.
//!
//! ```text
//!  answers --decide--> [ Gatekeeper 1: up to 42 messages ] --flush, once per turn--> datagrams of 1,232 bytes at most, from the address that it sent to
//!                      [ Gatekeeper 2: ...               ]
//! ```
//! - A Gatekeeper gets what was decided in one turn in one datagram; more only if it does not fit. Of several decisions on one flow the last one goes.
//! - **No path has to cut one**: Gatekeepers take no fragments, and what is too long for a link would be lost again and again, for we are not told.
//! - **The policy's version** rises with every reload and revocation, and begins with the second of the start: so it also rises over restarts, unless more than
//!   one change came for every second that the Grantor ran, or its clock went back. What a Gatekeeper knows beyond it, of stamps or versions, its probes say, and we go on behind that
//!   ([`Voice::hear`]): the answer to the first probe already counts.
//! - **A datagram has the version that its decisions were made by**. What still waits when the version rises is not sent: under the new one it would outlive its revocation.
//! - In the second of the start nothing is sent (`tidemill_decision::replay::Stamps`): who asks then asks again.

use crate::section::Settings;
use crate::tally::{Counter, Counters};
use crossbeam_queue::ArrayQueue;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use tidemill_decision::authenticated::{Header, Known, Message, Writer};
use tidemill_decision::interoperable;
use tidemill_decision::keys::{Direction, Ends};
use tidemill_decision::replay::{Beyond, Stamps, behind};
use tidemill_decision::{Decision, GATEKEEPER_PORT, GRANTOR_PORT};
use tidemill_graph::Context;
use tidemill_ip::datagram::datagram;

/// Messages for one Gatekeeper that wait at most: as many grants of IPv4 as go into a datagram.
const MOST: usize = 42;
/// Gatekeepers that a node has messages for at a time.
const BOXES: usize = 32;
/// The longest payload: with UDP and IPv6 the 1,280 bytes that every link takes (RFC 8200, 5).
const PAYLOAD: usize = 1232;

/// So many seconds ahead of our clock, which is the Gatekeeper's, no start of ours has been: ten years. Behind such numbers there may be room, but not for the next start.
const FUTURE_S: u64 = 10 * 365 * 86_400;

/// A Gatekeeper, and how it knows us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Peer {
    pub(crate) gatekeeper: IpAddr,
    /// Our address that it sends to.
    pub(crate) ours: IpAddr,
    /// The interface that it was heard by: what we answer is routed in its VRF.
    pub(crate) interface: u16,
}

impl Peer {
    /// Of what we say to it.
    fn ends(&self) -> Ends {
        Ends { source: (self.ours, GRANTOR_PORT), destination: (self.gatekeeper, GATEKEEPER_PORT) }
    }
}

/// What all workers share of what we say.
#[derive(Debug, Default)]
pub(crate) struct Voice {
    /// Our stamps and the policy's version.
    start: OnceLock<(Stamps, AtomicU32)>,
}

impl Voice {
    /// The first who asks says when we started.
    fn start(&self, now_ns: u64) -> &(Stamps, AtomicU32) {
        self.start.get_or_init(|| (Stamps::new(now_ns), AtomicU32::new((now_ns / 1_000_000_000) as u32)))
    }

    /// Our numbers.
    pub(crate) fn begin(&self, now_ns: u64) -> (&Stamps, u32) {
        let (stamps, version) = self.start(now_ns);
        (stamps, version.load(Ordering::Acquire))
    }

    /// The version of the policy.
    pub(crate) fn version(&self, now_ns: u64) -> u32 {
        self.begin(now_ns).1
    }

    /// Begins the next version.
    pub(crate) fn raise(&self, now_ns: u64) {
        // Before the first packet: the start is now.
        let (_, version) = self.start(now_ns);
        // The last one stays.
        let _ = version.fetch_update(Ordering::AcqRel, Ordering::Acquire, |version| version.checked_add(1));
    }

    /// A Gatekeeper says what it knows of us. If that is more than we have given, a start of ours with a later clock has: then all workers go on behind it, in a later epoch and
    /// by a later version, for it would refuse what is not. Returns the version below which that start can have decided, if so.
    ///
    /// # Errors
    /// [`Beyond`]: there is nothing behind it, or it is of a time that is far ahead.
    pub(crate) fn hear(&self, now_ns: u64, known: &Known) -> Result<Option<u32>, Beyond> {
        let (stamps, version) = self.start(now_ns);
        if u64::from(known.stamp.epoch_s.max(known.version)) > now_ns / 1_000_000_000 + FUTURE_S {
            return Err(Beyond);
        }
        let raised = stamps.raise(known.stamp)?;
        if !raised && known.version <= version.load(Ordering::Acquire) {
            return Ok(None);
        }
        let below = behind(known.version)?;
        version.fetch_max(below, Ordering::AcqRel);
        Ok(Some(below))
    }
}

struct Letterbox {
    peer: Peer,
    used_ns: u64,
    messages: Vec<Message>,
}

/// What waits to be sent, by Gatekeeper. Nothing is allocated while packets flow.
pub(crate) struct Outbox {
    voice: Arc<Voice>,
    boxes: Vec<Letterbox>,
    spare: Vec<Vec<Message>>,
    /// Where Gatekeepers that were not known here are named.
    met: Arc<ArrayQueue<Peer>>,
    /// The policy's version by which all decisions in the boxes were made.
    by: u32,
    /// The node's outputs to the lookups of IPv4 and IPv6.
    outputs: [u8; 2],
}

impl Outbox {
    pub(crate) fn new(voice: Arc<Voice>, met: Arc<ArrayQueue<Peer>>, outputs: [u8; 2]) -> Self {
        let spare = (0..BOXES).map(|_| Vec::with_capacity(MOST)).collect();
        Outbox { voice, boxes: Vec::with_capacity(BOXES), spare, met, by: 0, outputs }
    }

    pub(crate) fn version(&self, now_ns: u64) -> u32 {
        self.voice.version(now_ns)
    }

    /// Puts a decision, made by this version of the policy, into a Gatekeeper's box; not if there is another version by now.
    pub(crate) fn decide(
        &mut self,
        cx: &mut Context<'_>,
        settings: &Settings,
        counters: &mut Counters,
        peer: Peer,
        decision: Decision,
        version: u32,
    ) {
        self.renew(cx.now_ns, counters);
        if version != self.by {
            counters.one(Counter::DecisionsOutdated);
            return;
        }
        self.put(cx, settings, counters, peer, Message::Decision(decision));
    }

    /// Forgets decisions in the boxes that were made by a version that is over.
    fn renew(&mut self, now_ns: u64, counters: &mut Counters) {
        let version = self.voice.version(now_ns);
        if self.by == version {
            return;
        }
        self.by = version;
        for Letterbox { messages, .. } in &mut self.boxes {
            let before = messages.len();
            messages.retain(|message| !matches!(message, Message::Decision(_)));
            counters.add(Counter::DecisionsOutdated, (before - messages.len()) as u64);
        }
    }

    /// Puts a message into a Gatekeeper's box; one that is full is sent first. Decisions go by [`decide`](Self::decide).
    pub(crate) fn put(
        &mut self,
        cx: &mut Context<'_>,
        settings: &Settings,
        counters: &mut Counters,
        peer: Peer,
        message: Message,
    ) {
        let at = match self.boxes.iter().position(|letters| letters.peer == peer) {
            Some(at) => at,
            None => self.open(cx, settings, counters, peer),
        };
        let Some(letters) = self.boxes.get_mut(at) else { return };
        letters.used_ns = cx.now_ns;
        if let Message::Decision(decision) = &message {
            let same = |other: &&mut Message| matches!(other, Message::Decision(other) if other.flow == decision.flow);
            if let Some(before) = letters.messages.iter_mut().find(same) {
                *before = message;
                counters.one(Counter::DecisionsMerged);
                return;
            }
        }
        if letters.messages.len() >= MOST {
            send(cx, settings, (&self.voice, self.by), counters, letters, self.outputs);
        }
        letters.messages.push(message);
    }

    /// A box for a Gatekeeper that has none, in the place of the one that was silent longest if there are no more.
    #[cold]
    fn open(
        &mut self,
        cx: &mut Context<'_>,
        settings: &Settings,
        counters: &mut Counters,
        peer: Peer,
    ) -> usize {
        // Who hears of it has room for more than there are, or hears of it the next time.
        let _ = self.met.push(peer);
        if let Some(messages) = self.spare.pop() {
            self.boxes.push(Letterbox { peer, used_ns: cx.now_ns, messages });
            return self.boxes.len() - 1;
        }
        let oldest = self.boxes.iter().enumerate().min_by_key(|(_, letters)| letters.used_ns);
        let at = oldest.map_or(0, |(at, _)| at);
        if let Some(letters) = self.boxes.get_mut(at) {
            send(cx, settings, (&self.voice, self.by), counters, letters, self.outputs);
            letters.peer = peer;
        }
        at
    }

    /// Sends all that waits.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>, settings: &Settings, counters: &mut Counters) {
        self.renew(cx.now_ns, counters);
        for letters in &mut self.boxes {
            send(cx, settings, (&self.voice, self.by), counters, letters, self.outputs);
        }
    }
}

/// Sends what is in a box, whose decisions were made by this version, and empties it.
fn send(
    cx: &mut Context<'_>,
    settings: &Settings,
    voice: (&Voice, u32),
    counters: &mut Counters,
    letters: &mut Letterbox,
    outputs: [u8; 2],
) {
    let mut left = letters.messages.as_slice();
    let (mut buffer, ends) = ([0; PAYLOAD], letters.peer.ends());
    while !left.is_empty() {
        let Some((taken, payload)) = write(settings, voice, cx.now_ns, &letters.peer, left, &mut buffer)
        else {
            counters.add(Counter::DecisionsUnsent, left.len() as u64);
            break;
        };
        let (said, rest) = left.split_at(taken);
        left = rest;
        match datagram(cx, ends.source, ends.destination, letters.peer.interface, payload) {
            Some(packet) => {
                counters.one(Counter::Datagrams);
                for message in said {
                    counters.one(match message {
                        Message::Decision(_) => Counter::Decisions,
                        Message::Revoke { .. } => Counter::Revocations,
                        Message::Probe { .. } | Message::Answer { .. } => Counter::Probes,
                    });
                }
                cx.emit(outputs[usize::from(letters.peer.ours.is_ipv6())], packet);
            }
            None => counters.add(Counter::DecisionsUnsent, said.len() as u64),
        }
    }
    letters.messages.clear();
}

/// A payload with as many of the messages as fit, and how many these are; none if nothing can be said now.
fn write<'a>(
    settings: &Settings,
    (voice, policy_version): (&Voice, u32),
    now_ns: u64,
    peer: &Peer,
    messages: &[Message],
    buffer: &'a mut [u8; PAYLOAD],
) -> Option<(usize, &'a [u8])> {
    let (stamps, _) = voice.begin(now_ns);
    let Some(keys) = &settings.keys else {
        let mut taken = 0;
        let mut writer = interoperable::Writer::new(buffer).ok()?;
        for message in messages {
            // The format has nothing else.
            if let Message::Decision(decision) = message
                && writer.push(decision).is_err()
            {
                break;
            }
            taken += 1;
        }
        let len = writer.len();
        return (taken > 0).then_some((taken, buffer.get(..len)?));
    };
    let stamp = stamps.next(now_ns)?;
    let mut writer = Writer::new(buffer).ok()?;
    let taken = messages.iter().take_while(|message| writer.push(message).is_ok()).count();
    let direction = Direction::ToGatekeeper;
    let header = Header { direction, key: 0, stamp, policy_version, time_ns: now_ns };
    (taken > 0).then(|| (taken, writer.seal(keys, &header, &peer.ends())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_decision::replay::{LAST, Stamp};

    const START: u64 = 1_000_500_000_000;

    fn known(epoch_s: u32, sequence: u32, version: u32) -> Known {
        Known { stamp: Stamp { epoch_s, sequence }, version }
    }

    fn next(voice: &Voice) -> (u32, u32, u32) {
        let (stamps, version) = voice.begin(START);
        let stamp = stamps.next(START + 1_000_000_000).unwrap();
        (stamp.epoch_s, stamp.sequence, version)
    }

    #[test]
    fn what_a_gatekeeper_knows_of_a_later_start_is_gone_on_from() {
        let voice = Voice::default();
        assert_eq!(voice.hear(START, &Known::default()), Ok(None));
        assert_eq!(next(&voice), (1000, 0, 1000));
        voice.raise(START);
        // What is known of ourselves, or of an earlier start.
        for known in [known(1000, 0, 1001), known(900, 77, 950)] {
            assert_eq!(voice.hear(START, &known), Ok(None));
        }
        // 8 s and 3 years ahead; the same again; another Gatekeeper knows less.
        assert_eq!(voice.hear(START, &known(1008, 40, 1010)), Ok(Some(1011)));
        assert_eq!(next(&voice), (1009, 0, 1011));
        for years in [94_609_000, 94_609_001] {
            assert_eq!(voice.hear(START, &known(years, 40, years + 2)), Ok(Some(years + 3)));
            assert_eq!(voice.hear(START, &known(years, 40, years + 2)), Ok(None));
            assert_eq!(voice.hear(START, &known(1008, 40, 1010)), Ok(None));
            assert_eq!(next(&voice), (years + 1, 0, years + 3));
        }
        voice.raise(START);
        assert_eq!(next(&voice), (94_609_002, 1, 94_609_005));
    }

    /// One of the two alone: a start in the same second, and a Gatekeeper that knows later versions than the one whose epoch was gone on from.
    #[test]
    fn stamps_and_versions_are_raised_each_where_it_has_to_be() {
        let voice = Voice::default();
        assert_eq!(next(&voice), (1000, 0, 1000));
        assert_eq!(voice.hear(START, &known(1000, 5, 1000)), Ok(Some(1001)));
        assert_eq!(next(&voice), (1001, 0, 1001));
        assert_eq!(voice.hear(START, &known(1000, 9, 1004)), Ok(Some(1005)));
        assert_eq!(next(&voice), (1001, 1, 1005));
        assert_eq!(voice.hear(START, &known(1002, 0, 1001)), Ok(Some(1002)));
        assert_eq!(next(&voice), (1003, 0, 1005), "never back");
    }

    #[test]
    fn what_is_ten_years_ahead_is_not_gone_on_from() {
        let voice = Voice::default();
        assert_eq!(next(&voice), (1000, 0, 1000));
        let last = 1000 + FUTURE_S as u32;
        for known in [known(last + 1, 0, 7), known(7, 0, last + 1), known(LAST, 0, LAST)] {
            assert_eq!(voice.hear(START, &known), Err(Beyond));
        }
        assert_eq!(next(&voice), (1000, 1, 1000));
        assert_eq!(voice.hear(START, &known(last, 0, last)), Ok(Some(last + 1)));
        assert_eq!(next(&voice), (last + 1, 0, last + 1));
    }

    #[test]
    fn nothing_goes_round_at_the_end_of_all_numbers() {
        let voice = Voice::default();
        assert_eq!(next(&voice), (1000, 0, 1000));
        // In the year 2106.
        let late_ns = u64::from(LAST) * 1_000_000_000;
        for known in [known(u32::MAX, 0, 7), known(LAST + 1, 0, 7), known(7, 0, u32::MAX)] {
            assert_eq!(voice.hear(late_ns, &known), Err(Beyond));
        }
        assert_eq!(next(&voice), (1000, 1, 1000));
        assert_eq!(voice.hear(late_ns, &known(LAST, u32::MAX, LAST)), Ok(Some(LAST + 1)));
        assert_eq!(next(&voice), (LAST + 1, 0, LAST + 1));
        (0..0x1_0010).for_each(|_| voice.raise(START));
        assert_eq!(voice.version(START), u32::MAX);
    }
}
