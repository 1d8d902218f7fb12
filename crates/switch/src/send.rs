//! What becomes of one packet: the actions of its way, in order.
//!
//! An output waits until the next one, or the next edit, needs the packet as well: only then a copy is made. So a packet that is sent once is never
//! copied, and the last output gets the packet itself.

use crate::counters::{Counter, Counters};
use crate::edit;
use crate::macs::{Learnt, Macs};
use crate::vlan::Vlans;
use tidemill_burst::{DropReason, Packet};
use tidemill_classify::live::{Snapshot, WorkerCounters};
use tidemill_classify::pipeline::{Action, Bucket, End, Output, Way};
use tidemill_classify::{Field, Key, Rank, RuleId};
use tidemill_graph::{Context, Verdict};
use tidemill_wire::vlan::Tci;
use tidemill_wire::{EtherType, MacAddr};

/// What a switch has beside its rules.
pub(crate) struct Bridge<'a> {
    pub(crate) macs: &'a Macs,
    pub(crate) vlans: &'a Vlans,
    pub(crate) ports: usize,
}

/// The rule and the port of a way that is one output to one port, and nothing else: of most packets of most switches.
#[inline(always)]
pub(crate) fn straight(snapshot: &Snapshot, way: &Way, ports: usize) -> Option<(RuleId, usize)> {
    let mut rules = way.rules();
    let (Some(id), None, End::Done) = (rules.next(), rules.next(), way.end()) else { return None };
    let [Action::Output(Output::Port(number))] = &snapshot.entry(id)?.instructions.actions[..] else {
        return None;
    };
    let port = usize::from(*number).wrapping_sub(1);
    (port < ports).then_some((id, port))
}

/// One packet's turn.
pub(crate) struct Turn<'a, 'c> {
    pub(crate) cx: &'a mut Context<'c>,
    pub(crate) bridge: &'a Bridge<'a>,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) counters: &'a mut Counters,
    /// Of the rules.
    pub(crate) hits: &'a mut WorkerCounters,
    /// As it came in.
    pub(crate) key: &'a Key,
    pub(crate) in_port: usize,
    pub(crate) now_s: u32,
}

/// Where a packet stands.
#[derive(Default)]
struct Standing {
    /// The output that waits.
    pending: Option<usize>,
    /// Whether a copy has left.
    sent: bool,
    /// Why it is dropped, if nothing of it leaves.
    why: Option<DropReason>,
    /// Nothing more is done.
    stop: bool,
}

impl Standing {
    fn note(&mut self, why: DropReason) {
        self.why = Some(why);
    }

    fn stop(&mut self, why: DropReason) {
        (self.why, self.stop) = (Some(why), true);
    }
}

/// The address at a place.
fn mac(frame: &[u8], at: usize) -> (u64, MacAddr) {
    let mut octets = [0; 6];
    if let Some(bytes) = frame.get(at..at + 6) {
        octets.copy_from_slice(bytes);
    }
    let [a, b, c, d, e, f] = octets;
    (u64::from_be_bytes([0, 0, a, b, c, d, e, f]), MacAddr(octets))
}

/// Addresses that no bridge forwards: 01:80:c2:00:00:00 to 0f (IEEE 802.1D, 7.12.6).
pub(crate) fn reserved(mac: u64) -> bool {
    mac & !0xf == 0x0180_c200_0000
}

impl Turn<'_, '_> {
    /// Does what the way says, and tells what becomes of the packet itself.
    pub(crate) fn take(&mut self, packet: &mut Packet, way: &Way) -> Verdict {
        let mut standing = Standing::default();
        let snapshot = self.snapshot;
        let bytes = packet.len() as u64;
        let mut rules = way.rules().peekable();
        while let Some(id) = rules.next() {
            // What a rule stops meets no later one.
            self.hits.add(Rank::new(0, id), bytes);
            let Some(entry) = snapshot.entry(id) else { continue };
            let last = rules.peek().is_none() && way.end() == End::Done;
            self.actions(&entry.instructions.actions, packet, last, &mut standing);
            if standing.stop {
                break;
            }
        }
        // What leaves is not dropped, whether a copy or the packet itself: what it could not do any more is counted, not dropped.
        let leaves = standing.pending.is_some() || standing.sent;
        if leaves && (standing.stop || way.end() != End::Done) {
            self.counters.one(Counter::CutShort);
        }
        if let Some(port) = standing.pending {
            return Verdict::Next(port as u8);
        }
        if standing.sent {
            return Verdict::Consume;
        }
        Verdict::Drop(standing.why.unwrap_or(match way.end() {
            End::Done => DropReason::RuleDrop,
            End::Miss => DropReason::NoRule,
            End::Stacked => DropReason::VlanStacked,
            End::Deep => DropReason::RulesTooDeep,
        }))
    }

    fn actions(&mut self, actions: &[Action], packet: &mut Packet, last: bool, standing: &mut Standing) {
        for (at, action) in actions.iter().enumerate() {
            self.action(action, packet, last && at + 1 == actions.len(), standing);
            if standing.stop {
                return;
            }
        }
    }

    fn action(&mut self, action: &Action, packet: &mut Packet, last: bool, standing: &mut Standing) {
        match *action {
            Action::Output(output) => self.output(output, packet, last, standing),
            Action::Set { field: Field::Metadata, .. } => {}
            Action::Set { field, value, mask } => {
                self.before_edit(packet, standing);
                if let Err(why) = edit::set(packet, field, value, mask) {
                    standing.stop(why);
                }
            }
            Action::PushVlan(tpid) => {
                self.before_edit(packet, standing);
                if !edit::push(packet, tpid, Tci(0)) {
                    standing.stop(DropReason::NoHeadroom);
                }
            }
            Action::PopVlan => {
                self.before_edit(packet, standing);
                edit::pop(packet);
            }
            Action::DecTtl => {
                self.before_edit(packet, standing);
                if let Err(why) = edit::dec_ttl(packet) {
                    standing.stop(why);
                }
            }
            Action::Meter(number) => {
                // Of a meter that has just gone the rule goes, too.
                let meter = self.snapshot.shared().meters.get(&number);
                if meter.is_some_and(|meter| !meter.passes(self.cx.now_ns, packet.len())) {
                    standing.stop(DropReason::Metered);
                }
            }
            Action::Group(number) => {
                let Some(group) = self.snapshot.shared().groups.get(&number) else {
                    standing.note(DropReason::OutputNowhere);
                    return;
                };
                let buckets = group.chosen(self.key);
                if buckets.is_empty() {
                    standing.note(DropReason::OutputNowhere);
                }
                self.buckets(buckets, packet, last, standing);
            }
        }
    }

    /// Gives each bucket a copy; the last one the packet itself, if nothing else needs it.
    fn buckets(&mut self, buckets: &[Bucket], packet: &mut Packet, last: bool, standing: &mut Standing) {
        for (at, bucket) in buckets.iter().enumerate() {
            let changes = bucket.actions.iter().any(|action| !matches!(action, Action::Output(_)));
            // Only the last bucket may give the packet itself another tag: the others' outputs want it as it is.
            let last = last && at + 1 == buckets.len();
            if !changes || last {
                self.actions(&bucket.actions, packet, last, standing);
                // What a bucket stops at concerns its copy.
                standing.stop = false;
                continue;
            }
            let Some(mut copy) = self.copy(packet, standing) else { continue };
            let mut of_copy = Standing::default();
            self.actions(&bucket.actions, &mut copy, true, &mut of_copy);
            standing.sent |= of_copy.sent || of_copy.pending.is_some();
            match of_copy.pending {
                Some(port) => self.emit(port, copy),
                None => {
                    standing.why = of_copy.why.or(standing.why);
                    self.cx.pool.free(copy);
                }
            }
        }
    }

    fn output(&mut self, output: Output, packet: &mut Packet, last: bool, standing: &mut Standing) {
        match output {
            Output::Port(number) => {
                let port = usize::from(number).wrapping_sub(1);
                if port < self.bridge.ports && port != self.in_port {
                    self.by(port, packet, standing);
                } else {
                    standing.note(DropReason::OutputNowhere);
                }
            }
            Output::InPort => self.by(self.in_port, packet, standing),
            Output::All => {
                let in_port = self.in_port;
                if self.bridge.ports < 2 {
                    standing.note(DropReason::OutputNowhere);
                }
                for port in (0..self.bridge.ports).filter(|&port| port != in_port) {
                    self.by(port, packet, standing);
                }
            }
            Output::Normal => self.normal(packet, last, standing),
            Output::Flood => match self.vlan(packet) {
                Some(vlan) => self.flood(vlan, packet, last, standing),
                None => standing.note(DropReason::VlanRefused),
            },
        }
    }

    /// The VLAN of a packet as it is now. A tag that only has a priority is none: with another behind it, what VLAN is meant is open, and where
    /// it came off the other would count.
    fn vlan(&self, packet: &Packet) -> Option<u16> {
        let tag = edit::tag(packet.data()).map(|(_, tci)| tci.id());
        if tag == Some(0) && edit::stacked(packet.data()) {
            return None;
        }
        self.bridge.vlans.of(self.in_port, tag)
    }

    /// As a learning bridge does.
    fn normal(&mut self, packet: &mut Packet, last: bool, standing: &mut Standing) {
        let Some(vlan) = self.vlan(packet) else { return standing.note(DropReason::VlanRefused) };
        let ((source, source_mac), (destination, destination_mac)) =
            (mac(packet.data(), 6), mac(packet.data(), 0));
        if source_mac.is_multicast() {
            return standing.note(DropReason::EthernetBadSource);
        }
        let counter = match self.bridge.macs.learn(vlan, source, self.in_port as u16, self.now_s) {
            Learnt::Known => None,
            Learnt::New => Some(Counter::StationsNew),
            Learnt::Moved => Some(Counter::StationsMoved),
            Learnt::Replaced => Some(Counter::StationsReplaced),
        };
        if let Some(counter) = counter {
            self.counters.one(counter);
        }
        if reserved(destination) {
            return standing.note(DropReason::BridgeReserved);
        }
        let known = (!destination_mac.is_multicast())
            .then(|| self.bridge.macs.find(vlan, destination, self.now_s))
            .flatten()
            .map(usize::from);
        match known.and_then(|port| Some((port, self.bridge.vlans.sends(port, vlan)?))) {
            Some((port, _)) if port == self.in_port => standing.note(DropReason::BridgeSamePort),
            Some(target) => self.send(vlan, &mut std::iter::once(target), packet, last, standing),
            None => self.flood(vlan, packet, last, standing),
        }
    }

    fn flood(&mut self, vlan: u16, packet: &mut Packet, last: bool, standing: &mut Standing) {
        self.counters.one(Counter::Flooded);
        let (bridge, in_port) = (self.bridge, self.in_port);
        let mut targets = (0..bridge.ports)
            .filter(move |&port| port != in_port)
            .filter_map(move |port| Some((port, bridge.vlans.sends(port, vlan)?)));
        self.send(vlan, &mut targets, packet, last, standing);
    }

    /// Sends a packet of a VLAN by ports that show it with a tag or without.
    fn send(
        &mut self,
        vlan: u16,
        targets: &mut dyn Iterator<Item = (usize, bool)>,
        packet: &mut Packet,
        last: bool,
        standing: &mut Standing,
    ) {
        let now = edit::tag(packet.data()).map(|(_, tci)| tci.id());
        // Without its outer tag it would be of the VLAN of the one behind it.
        let stacked = edit::stacked(packet.data());
        let as_it_is = |tagged: bool| if tagged { now == Some(vlan) } else { now.is_none() };
        // One other form, at most: with the tag where it has none, or without where it has one, or with another number.
        let mut others = [0_u64; 4];
        let (mut any, mut nothing) = (false, DropReason::OutputNowhere);
        for (port, tagged) in targets {
            if stacked && !tagged {
                nothing = DropReason::VlanRefused;
                continue;
            }
            any = true;
            if as_it_is(tagged) {
                self.by(port, packet, standing);
            } else {
                others[port / 64 % 4] |= 1 << (port % 64);
            }
        }
        if !any {
            return standing.note(nothing);
        }
        if others == [0; 4] {
            return;
        }
        let wanted = (0..self.bridge.ports).filter(|&port| others[port / 64 % 4] >> (port % 64) & 1 != 0);
        if last && standing.pending.is_none() {
            // Nothing needs it as it is: one form goes in place. Both are wanted where the tag was only a priority: then the one with a tag, which
            // keeps the priority and loses it in the copies only.
            let tagged_at = |port: usize| self.bridge.vlans.sends(port, vlan).unwrap_or(false);
            let in_place = wanted.clone().any(tagged_at);
            for port in wanted {
                let tagged = tagged_at(port);
                if in_place == tagged {
                    if standing.pending.is_none() && !retag(packet, vlan, tagged) {
                        return standing.note(DropReason::NoHeadroom);
                    }
                    self.by(port, packet, standing);
                } else {
                    self.by_other_form(port, vlan, tagged, packet, standing);
                }
            }
            return;
        }
        for port in wanted {
            let tagged = self.bridge.vlans.sends(port, vlan).unwrap_or(false);
            self.by_other_form(port, vlan, tagged, packet, standing);
        }
    }

    fn by_other_form(
        &mut self,
        port: usize,
        vlan: u16,
        tagged: bool,
        packet: &Packet,
        standing: &mut Standing,
    ) {
        let Some(mut copy) = self.copy(packet, standing) else { return };
        if retag(&mut copy, vlan, tagged) {
            standing.sent = true;
            self.emit(port, copy);
        } else {
            standing.note(DropReason::NoHeadroom);
            self.cx.pool.free(copy);
        }
    }

    /// Sends the packet as it is.
    fn by(&mut self, port: usize, packet: &Packet, standing: &mut Standing) {
        if let Some(before) = standing.pending.replace(port) {
            self.send_copy(before, packet, standing);
        }
    }

    /// The packet is about to change: what waits to be sent gets a copy of it as it is.
    fn before_edit(&mut self, packet: &mut Packet, standing: &mut Standing) {
        if let Some(before) = standing.pending.take() {
            self.send_copy(before, packet, standing);
        }
        packet.clear_checked();
    }

    fn send_copy(&mut self, port: usize, packet: &Packet, standing: &mut Standing) {
        if let Some(copy) = self.copy(packet, standing) {
            standing.sent = true;
            self.emit(port, copy);
        }
    }

    fn copy(&mut self, packet: &Packet, standing: &mut Standing) -> Option<Packet> {
        let Some(mut copy) = self.cx.pool.packet(packet.data()) else {
            self.counters.one(Counter::CopiesLost);
            standing.note(DropReason::NoFrames);
            return None;
        };
        copy.copy_notes(packet);
        if let Some(merged) = packet.merged() {
            copy.set_merged(merged);
        }
        Some(copy)
    }

    fn emit(&mut self, port: usize, copy: Packet) {
        self.counters.one(Counter::Copies);
        self.cx.emit(port as u8, copy);
    }
}

/// Gives a packet the form that a port wants; false if there is no room for a tag.
fn retag(packet: &mut Packet, vlan: u16, tagged: bool) -> bool {
    packet.clear_checked();
    match (tagged, edit::tag(packet.data())) {
        (false, _) => {
            edit::pop(packet);
            true
        }
        (true, Some(_)) => edit::set(packet, Field::Vlan, vlan.into(), 0x0fff).is_ok(),
        (true, None) => edit::push(packet, EtherType::VLAN, Tci(vlan)),
    }
}
