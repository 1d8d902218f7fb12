//! What would become of a packet that there is only a key of: the actions of its way, as [`send`](crate::send) takes them.
//!
//! What depends on more than the key is left out: meters, TTLs, frames for copies.

use crate::macs::Macs;
use crate::send::reserved;
use crate::vlan::Vlans;
use tidemill_burst::DropReason;
use tidemill_classify::flows::{PortNames, show_action};
use tidemill_classify::key::VLAN_PRESENT;
use tidemill_classify::pipeline::{Action, End, Output, Shared};
use tidemill_classify::{Field, Key};
use tidemill_wire::EtherType;

/// The bits of a VLAN's number.
const NUMBER: u16 = 0xfff;

/// The headers that the bridge looks at, as the actions so far have made them.
#[derive(Debug, Clone)]
struct Headers {
    destination: u64,
    source: u64,
    /// The VLANs of its tags, the outer one last.
    tags: Vec<u16>,
    /// Whether there is another tag behind these, which no key has.
    hidden: bool,
}

impl Headers {
    fn of(key: &Key) -> Self {
        let tag = key.get(Field::Vlan) as u16;
        Headers {
            destination: key.get(Field::MacDestination) as u64,
            source: key.get(Field::MacSource) as u64,
            tags: (tag & VLAN_PRESENT != 0).then_some(tag & NUMBER).into_iter().collect(),
            hidden: EtherType(key.get(Field::EtherType) as u16).is_vlan(),
        }
    }

    fn change(&mut self, action: &Action) {
        let merge = |old: u64, value: u128, mask: u128| old & !(mask as u64) | (value & mask) as u64;
        match *action {
            Action::Set { field: Field::MacDestination, value, mask } => {
                self.destination = merge(self.destination, value, mask);
            }
            Action::Set { field: Field::MacSource, value, mask } => {
                self.source = merge(self.source, value, mask);
            }
            Action::Set { field: Field::Vlan, value, mask } => {
                let (value, mask) = (value as u16 & NUMBER, mask as u16 & NUMBER);
                match self.tags.last_mut() {
                    Some(tag) => *tag = *tag & !mask | value & mask,
                    // Bits of a number that nobody knows: it stays unknown.
                    None if self.hidden && mask != NUMBER => {}
                    None => self.tags.push(value & mask),
                }
            }
            Action::PushVlan(_) => self.tags.push(0),
            Action::PopVlan => {
                self.tags.pop();
            }
            _ => {}
        }
    }
}

/// A packet's way, told.
pub(crate) struct Would<'a> {
    ports: &'a PortNames,
    vlans: &'a Vlans,
    macs: &'a Macs,
    shared: &'a Shared,
    now_s: u32,
    /// As it came in.
    key: &'a Key,
    in_port: usize,
    /// What is done, in order.
    told: Vec<String>,
    sent: bool,
    /// Why it is dropped, if nothing of it leaves.
    why: Option<DropReason>,
    /// Whether that depends on a tag that the key does not have.
    unknown: bool,
}

/// Where an output leads.
type Leads = Result<String, DropReason>;

impl<'a> Would<'a> {
    pub(crate) fn new(
        (ports, vlans, macs, shared): (&'a PortNames, &'a Vlans, &'a Macs, &'a Shared),
        key: &'a Key,
        now_s: u32,
    ) -> Self {
        let in_port = (key.get(Field::InPort) as usize).wrapping_sub(1);
        let told = Vec::new();
        Would {
            ports,
            vlans,
            macs,
            shared,
            now_s,
            key,
            in_port,
            told,
            sent: false,
            why: None,
            unknown: false,
        }
    }

    /// What is done to the packet by these actions, and how its way ends.
    pub(crate) fn take<'b>(
        mut self,
        actions: impl Iterator<Item = &'b Action>,
        end: End,
    ) -> (Vec<String>, String) {
        let mut headers = Headers::of(self.key);
        actions.for_each(|action| self.action(action, &mut headers, ""));
        let (early, nothing) = match end {
            End::Done => (false, DropReason::RuleDrop),
            End::Miss => (true, DropReason::NoRule),
            End::Stacked => (true, DropReason::VlanStacked),
            End::Deep => (true, DropReason::RulesTooDeep),
        };
        let end = match (self.sent, self.unknown) {
            (true, _) if early => format!("sent; then cut-short: {}", nothing.name()),
            (true, _) => "sent".to_owned(),
            (false, true) => "not known: its VLAN is that of a tag behind the first".to_owned(),
            (false, false) => format!("dropped: {}", self.why.unwrap_or(nothing).name()),
        };
        (self.told, end)
    }

    fn action(&mut self, action: &Action, headers: &mut Headers, before: &str) {
        self.told.push(format!("{before}{}", show_action(action, self.ports)));
        match action {
            Action::Output(output) => {
                let (more, leads) = self.output(*output, headers);
                self.sent |= leads.is_ok() && !self.unknown;
                let leads = match leads {
                    Ok(place) => place,
                    Err(why) => {
                        self.why = Some(why);
                        format!("dropped: {}", why.name())
                    }
                };
                let line = [more, leads].into_iter().filter(|part| !part.is_empty());
                let line = line.collect::<Vec<_>>().join(": ");
                if !line.is_empty() {
                    self.told.push(format!("{before}{line}"));
                }
            }
            Action::Group(number) => {
                let buckets = self.shared.groups.get(number).map(|group| group.chosen(self.key));
                let buckets = buckets.unwrap_or_default();
                if buckets.is_empty() {
                    self.why = Some(DropReason::OutputNowhere);
                    self.told.push("no bucket: dropped: output-nowhere".into());
                }
                for bucket in buckets {
                    // What a bucket does, it does to its copy.
                    let mut copy = headers.clone();
                    bucket.actions.iter().for_each(|action| self.action(action, &mut copy, "bucket: "));
                }
            }
            _ => headers.change(action),
        }
    }

    /// What the bridge finds, and where the packet leaves; nothing where the action says it itself.
    fn output(&mut self, output: Output, headers: &Headers) -> (String, Leads) {
        let said = |leaves: bool| {
            (String::new(), if leaves { Ok(String::new()) } else { Err(DropReason::OutputNowhere) })
        };
        let count = self.ports.0.len();
        match output {
            Output::Port(number) => {
                let port = usize::from(number).wrapping_sub(1);
                said(port < count && port != self.in_port)
            }
            Output::InPort => said(self.in_port < count),
            Output::All => said((0..count).any(|port| port != self.in_port)),
            Output::Normal | Output::Flood => self.bridged(output == Output::Normal, headers),
        }
    }

    fn bridged(&mut self, normal: bool, headers: &Headers) -> (String, Leads) {
        if headers.tags.is_empty() && headers.hidden {
            self.unknown = true;
            return ("bridge: the VLAN is that of a tag behind the first".into(), Ok(String::new()));
        }
        let stacked = headers.tags.len() + usize::from(headers.hidden) > 1;
        let tag = headers.tags.last().copied();
        if tag == Some(0) && stacked {
            let what = "bridge: there is another tag behind one of number 0";
            return (what.into(), Err(DropReason::VlanRefused));
        }
        let Some(vlan) = self.vlans.of(self.in_port, tag) else {
            let what = "bridge: the port is not in its VLAN (or in_port is missing)";
            return (what.into(), Err(DropReason::VlanRefused));
        };
        let bridge = format!("bridge: VLAN {vlan}");
        if !normal {
            return (bridge, self.flooded(vlan, stacked));
        }
        let group = |mac: u64| mac >> 40 & 1 != 0;
        if group(headers.source) {
            return (bridge, Err(DropReason::EthernetBadSource));
        }
        if reserved(headers.destination) {
            return (bridge, Err(DropReason::BridgeReserved));
        }
        // The source has been learnt by then.
        let known = if headers.destination == headers.source {
            Some(self.in_port)
        } else {
            self.macs.find(vlan, headers.destination, self.now_s).map(usize::from)
        };
        let known =
            known.filter(|&port| !group(headers.destination) && self.vlans.sends(port, vlan).is_some());
        match known {
            Some(port) if port == self.in_port => (bridge, Err(DropReason::BridgeSamePort)),
            Some(port) if stacked && self.vlans.sends(port, vlan) == Some(false) => {
                (format!("{bridge}, where the second tag would be the first"), Err(DropReason::VlanRefused))
            }
            Some(port) => {
                let name = self.ports.0.get(port).map_or("?", String::as_str);
                (bridge, Ok(format!("the station is behind {name}")))
            }
            None => (format!("{bridge}, nobody knows the station"), self.flooded(vlan, stacked)),
        }
    }

    /// By which ports a packet of a VLAN goes. One with two tags does not leave without the first.
    fn flooded(&self, vlan: u16, stacked: bool) -> Leads {
        let (mut names, mut nothing) = (Vec::new(), DropReason::OutputNowhere);
        for (port, name) in self.ports.0.iter().enumerate().filter(|(port, _)| *port != self.in_port) {
            match self.vlans.sends(port, vlan) {
                Some(false) if stacked => nothing = DropReason::VlanRefused,
                Some(_) => names.push(name.as_str()),
                None => {}
            }
        }
        if names.is_empty() { Err(nothing) } else { Ok(format!("flooded by {}", names.join(", "))) }
    }
}
