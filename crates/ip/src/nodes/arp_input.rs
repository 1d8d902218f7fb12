//! `arp-input`: answers ARP requests for our addresses, and learns from what neighbors say (RFC 826, RFC 5227).
//!
//! * Not about IPv4 on Ethernet, or from a sender that cannot be one station: `arp-invalid`. So is a message whose
//!   sender has our own address or MAC address: it is our own that came back, or somebody else's mistake; we do not give
//!   way. And one whose sender has the link's network or broadcast address, which would draw what is sent there.
//! * On an interface that asks nobody, and operations other than request and reply: `arp-ignored`.
//! * A request for an address of ours turns around in place, VLAN tags and all, and leaves by its port; where the kernel
//!   owns the addresses, the kernel answers. Probes (sender 0.0.0.0) are answered too, and nothing is learnt from them.
//! * Everything else is consumed. What it tells of the sender goes to the control side, if it was meant for us: requests
//!   for our addresses, replies to us, and announcements, where sender and target are the same.
//!
//! Outputs: one per port, by name.

use crate::interface::{Interface, Owner, Settings};
use crate::martian::is_host_v4;
use crate::neighbor::{Event, How, Key, Link};
use crate::nodes::short;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_lookup::publish::View;
use tidemill_wire::arp::{self, Operation};
use tidemill_wire::{MacAddr, ethernet};

/// The node.
pub struct ArpInput {
    settings: View<Settings>,
    link: Arc<Link>,
}

impl ArpInput {
    /// A node for one worker.
    pub fn new(settings: View<Settings>, link: Arc<Link>) -> Self {
        ArpInput { settings, link }
    }
}

impl Node for ArpInput {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let settings = self.settings.get(cx.reader);
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            let interface = settings.interfaces.get(packet.port).filter(|interface| interface.resolves);
            *verdict = match interface {
                Some(interface) => self.hear(interface, packet),
                None => Verdict::Drop(DropReason::ArpIgnored),
            };
        }
    }
}

impl ArpInput {
    fn hear(&self, interface: &Interface, packet: &mut Packet) -> Verdict {
        let message = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
        if message.len() < arp::HEADER_LEN {
            return short(packet, DropReason::ArpInvalid);
        }
        let Some(message) =
            arp::Packet::new_checked(message).ok().and_then(|view| arp::Repr::parse(&view).ok())
        else {
            return Verdict::Drop(DropReason::ArpInvalid);
        };
        let arp::Repr { operation, sender_mac, sender_ip, target_mac, target_ip } = message;
        let probe = sender_ip == Ipv4Addr::UNSPECIFIED && operation == Operation::Request;
        let possible = is_host_v4(u32::from(sender_ip)) || probe;
        let taken = interface.has(sender_ip.into()) || sender_mac == interface.mac;
        if !possible || taken || !sender_mac.is_unicast() || interface.is_whole_link(sender_ip) {
            return Verdict::Drop(DropReason::ArpInvalid);
        }
        let ours = interface.has(target_ip.into());
        let how = match operation {
            Operation::Other(_) => return Verdict::Drop(DropReason::ArpIgnored),
            Operation::Request if ours => Some(How::Request),
            _ if sender_ip == target_ip => Some(How::Gratuitous),
            // Without an address of our own we ask from 0.0.0.0, and are answered so.
            Operation::Reply if ours || target_mac == interface.mac => {
                Some(How::Reply { solicited: true, overrides: true })
            }
            _ => None,
        };
        if let Some(how) = how.filter(|_| !probe) {
            let key = Key { interface: packet.port, address: sender_ip.into() };
            self.link.tell(Event::Heard { key, mac: Some(sender_mac), how });
        }
        if ours && operation == Operation::Request && interface.owner == Owner::Us {
            return answer(interface, packet, &message.reply(interface.mac));
        }
        Verdict::Consume
    }
}

fn answer(interface: &Interface, packet: &mut Packet, reply: &arp::Repr) -> Verdict {
    let l3 = usize::from(packet.l3);
    let Some((link, message)) = packet.data_mut().split_at_mut_checked(l3) else {
        return Verdict::Drop(DropReason::ArpInvalid);
    };
    if reply.emit(message).is_err() || !turn(link, reply.target_mac, interface.mac) {
        return Verdict::Drop(DropReason::ArpInvalid);
    }
    packet.set_own();
    Verdict::Next(interface.port as u8)
}

/// Addresses the Ethernet header anew; what follows the addresses, VLAN tags included, stays. False if it is none.
pub(super) fn turn(link: &mut [u8], to: MacAddr, from: MacAddr) -> bool {
    let whole = link.len() >= ethernet::HEADER_LEN;
    if whole {
        let mut link = ethernet::Packet::new_unchecked(link);
        link.set_dst(to);
        link.set_src(from);
    }
    whole
}
