//! What actions do to a packet's bytes.
//!
//! Checksums are updated by what has changed (RFC 1624): IPv4's, and those of TCP, UDP and ICMPv6 over the addresses. A packet that does not have
//! what an action works on is left as it is; one whose IP header is broken, whose TCP or UDP header is cut off where a port is set, or whose checksum over the addresses cannot be found behind IPv6
//! headers that nobody can follow, is dropped. IP is found behind any number of tags: a rule may have put one in front of another. Of an IPv6 packet with a routing header the checksum is taken to be over the address that it has.

use tidemill_burst::{DropReason, Packet};
use tidemill_classify::Field;
use tidemill_classify::key::FRAGMENT_LATER;
use tidemill_classify::packet::{Layers, parse, unfollowed};
use tidemill_wire::checksum::{for_udp, update_u16};
use tidemill_wire::vlan::Tci;
use tidemill_wire::{EtherType, Protocol, ipv4, ipv6};

/// Where the ethertype of a frame is.
const ETHERTYPE: usize = 12;

/// Bytes in a tag.
const TAG: usize = 4;

fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |pair| u16::from(pair[0]) << 8 | u16::from(pair[1]))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// The tag of a frame, if it has one: what announces it, and its values.
pub(crate) fn tag(frame: &[u8]) -> Option<(EtherType, Tci)> {
    let tpid = EtherType(be16(frame, ETHERTYPE));
    (tpid.is_vlan() && frame.len() >= ETHERTYPE + 2 + TAG).then(|| (tpid, Tci(be16(frame, ETHERTYPE + 2))))
}

/// Whether there is another tag behind the outer one.
pub(crate) fn stacked(frame: &[u8]) -> bool {
    tag(frame).is_some() && EtherType(be16(frame, ETHERTYPE + TAG)).is_vlan()
}

/// Puts a tag in front; false if there is no room.
pub(crate) fn push(packet: &mut Packet, tpid: EtherType, tci: Tci) -> bool {
    if packet.len() < ETHERTYPE + 2 || !packet.grow_front(TAG) {
        return false;
    }
    let frame = packet.data_mut();
    frame.copy_within(TAG..TAG + ETHERTYPE, 0);
    put16(frame, ETHERTYPE, tpid.0);
    put16(frame, ETHERTYPE + 2, tci.0);
    true
}

/// Takes the outer tag off, if there is one.
pub(crate) fn pop(packet: &mut Packet) {
    if tag(packet.data()).is_some() {
        packet.data_mut().copy_within(0..ETHERTYPE, TAG);
        // It is longer than that: it has a tag.
        let _ = packet.cut_front(TAG);
    }
}

/// A checksum over what changes.
#[derive(Clone, Copy)]
struct Check {
    at: usize,
    udp: bool,
}

impl Check {
    fn update(self, frame: &mut [u8], old: u16, new: u16) {
        let before = be16(frame, self.at);
        let updated = update_u16(before, old, new);
        let updated = if self.udp { for_udp(before, updated) } else { updated };
        put16(frame, self.at, updated);
    }
}

/// Writes bits of a field of whole words.
fn write(frame: &mut [u8], at: usize, words: usize, value: u128, mask: u128, checks: &[Option<Check>]) {
    for i in 0..words {
        let shift = 16 * (words - 1 - i);
        let (value, mask) = ((value >> shift) as u16, (mask >> shift) as u16);
        let place = at + 2 * i;
        let old = be16(frame, place);
        let new = old & !mask | value & mask;
        if old != new {
            put16(frame, place, new);
            checks.iter().flatten().for_each(|check| check.update(frame, old, new));
        }
    }
}

/// What is known of a frame's headers, behind all its tags.
struct Known {
    layers: Layers,
    v6: bool,
    protocol: Protocol,
    /// Whether it is a fragment that has no transport header.
    later: bool,
    /// Whether what lies above IPv6 is not known.
    unfollowed: bool,
}

fn known(frame: &[u8]) -> Option<Known> {
    // A key is that of a frame with one tag at most: the others are skipped. Where they end, `parse` takes their bytes for MAC addresses.
    let mut skipped = 0;
    while EtherType(be16(frame, skipped + ETHERTYPE)).is_vlan()
        && EtherType(be16(frame, skipped + ETHERTYPE + TAG)).is_vlan()
    {
        skipped += TAG;
    }
    let (key, layers) = parse(frame.get(skipped..)?, 0)?;
    let behind = |at: Option<usize>| at.map(|at| at + skipped);
    let layers = Layers { network: behind(layers.network), transport: behind(layers.transport) };
    let v6 = key.get(Field::EtherType) == u128::from(EtherType::IPV6.0);
    let v4 = key.get(Field::EtherType) == u128::from(EtherType::IPV4.0);
    let protocol = Protocol(key.get(Field::Protocol) as u8);
    let later = key.get(Field::Fragment) & u128::from(FRAGMENT_LATER) != 0;
    (v4 || v6).then(|| Known { layers, v6, protocol, later, unfollowed: unfollowed(&key) })
}

impl Known {
    /// The checksum in the transport header that is over the addresses too.
    fn transport(&self, frame: &[u8]) -> Option<Check> {
        let at = self.layers.transport?;
        match self.protocol {
            Protocol::TCP => Some(Check { at: at + 16, udp: false }),
            // A zero says that there is none.
            Protocol::UDP if be16(frame, at + 6) != 0 => Some(Check { at: at + 6, udp: true }),
            Protocol::ICMPV6 if self.v6 => Some(Check { at: at + 2, udp: false }),
            _ => None,
        }
    }
}

/// Gives bits of a field other values; or why the packet is to be dropped: there is no room for the tag that this takes, or its headers cannot
/// be read.
pub(crate) fn set(packet: &mut Packet, field: Field, value: u128, mask: u128) -> Result<(), DropReason> {
    match field {
        Field::MacDestination => write(packet.data_mut(), 0, 3, value, mask, &[]),
        Field::MacSource => write(packet.data_mut(), 6, 3, value, mask, &[]),
        Field::Vlan => {
            let room = set_vlan(packet, value as u16, mask as u16);
            return room.then_some(()).ok_or(DropReason::NoHeadroom);
        }
        _ => return set_network(packet.data_mut(), field, value, mask),
    }
    Ok(())
}

/// Priority and number of the tag; a packet without one gets one. Drop eligibility stays.
fn set_vlan(packet: &mut Packet, value: u16, mask: u16) -> bool {
    let (value, mask) = (value & !0x1000, mask & !0x1000);
    match tag(packet.data()) {
        Some((_, Tci(old))) => {
            put16(packet.data_mut(), ETHERTYPE + 2, old & !mask | value & mask);
            true
        }
        None => push(packet, EtherType::VLAN, Tci(value & mask)),
    }
}

fn set_network(frame: &mut [u8], field: Field, value: u128, mask: u128) -> Result<(), DropReason> {
    let Some(known) = known(frame) else { return Ok(()) };
    let Some(network) = known.layers.network else { return Err(DropReason::IpHeaderBroken) };
    // Class and addresses are there, and what else they change is not known.
    if known.unfollowed && field != Field::Tos {
        return Err(DropReason::Ipv6HeadersUnfollowed);
    }
    let transport = known.transport(frame);
    let header = Some(Check { at: network + 10, udp: false });
    match (field, known.v6) {
        (Field::Ipv4Source, false) => write(frame, network + 12, 2, value, mask, &[header, transport]),
        (Field::Ipv4Destination, false) => write(frame, network + 16, 2, value, mask, &[header, transport]),
        (Field::Ipv6Source, true) => write(frame, network + 8, 8, value, mask, &[transport]),
        (Field::Ipv6Destination, true) => write(frame, network + 24, 8, value, mask, &[transport]),
        (Field::Tos, false) => write(frame, network, 1, value & 0xff, mask & 0xff, &[header]),
        (Field::Tos, true) => write(frame, network, 1, (value & 0xff) << 4, (mask & 0xff) << 4, &[]),
        (Field::SourcePort | Field::DestinationPort, _)
            if matches!(known.protocol, Protocol::TCP | Protocol::UDP) && !known.later =>
        {
            // Later tables are asked for the port that the rule sets: the packet cannot go on without it.
            let at = known.layers.transport.ok_or(DropReason::TransportHeaderCut)?;
            let place = if field == Field::SourcePort { at } else { at + 2 };
            write(frame, place, 1, value, mask, &[transport]);
        }
        _ => {}
    }
    Ok(())
}

/// Lowers TTL or hop limit; or why the packet is to be dropped: there is none left to lower, or it cannot be read.
pub(crate) fn dec_ttl(packet: &mut Packet) -> Result<(), DropReason> {
    let frame = packet.data_mut();
    let Some(Known { layers, v6, .. }) = known(frame) else { return Ok(()) };
    let header = layers.network.and_then(|at| frame.get_mut(at..)).ok_or(DropReason::IpHeaderBroken)?;
    let left = if v6 { ipv6::hop_limit(header) } else { ipv4::ttl(header) };
    if left <= 1 {
        return Err(DropReason::TtlExpired);
    }
    if v6 {
        ipv6::decrement_hop_limit(header);
    } else {
        ipv4::decrement_ttl(header);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_burst::Memory;

    #[test]
    fn a_tag_that_finds_no_room_is_told() {
        let memory = Memory::new(1, 2048).unwrap();
        let mut pool = memory.pool(1).unwrap();
        let mut packet = pool.packet(&[7; 60]).unwrap();
        let number = (Field::Vlan, 0x1005, 0x1fff);
        let set = |packet: &mut Packet| set(packet, number.0, number.1, number.2);
        assert_eq!(set(&mut packet), Ok(()), "with room it gets a tag");
        assert_eq!(tag(packet.data()), Some((EtherType::VLAN, Tci(5))));
        pop(&mut packet);
        let room = packet.headroom();
        assert!(packet.grow_front(room));
        packet.data_mut().fill(7);
        assert_eq!(set(&mut packet), Err(DropReason::NoHeadroom));
        assert!(packet.data().iter().all(|&byte| byte == 7), "it is left as it was");
        // One that has a tag needs no room.
        put16(packet.data_mut(), ETHERTYPE, EtherType::VLAN.0);
        assert_eq!(set(&mut packet), Ok(()));
        pool.free(packet);
    }
}
