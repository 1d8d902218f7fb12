//! Calls everything on any bytes: nothing may panic.

use std::hint::black_box;
use tidemill_wire::checksum::{self, Pseudo};
use tidemill_wire::*;

/// Every view and accessor, checked or not, over every suffix that a header could start at.
pub(crate) fn touch(bytes: &[u8]) {
    black_box(Summary(bytes).to_string());
    black_box(IpSummary(bytes).to_string());
    black_box(verify_checksums(bytes).map_err(|fault| fault.to_string()).is_ok());
    if let Ok(l2) = vlan::L2::parse(bytes) {
        black_box((l2.ethertype, l2.vlan_ids().count(), l2.depth()));
        assert!(l2.l3_offset <= bytes.len());
        black_box(
            flow_key(bytes, l2.l3_offset).map(|key| (key.to_string(), key.reversed().reversed() == key)),
        );
        views(&bytes[l2.l3_offset..]);
    }
    assert_eq!(flow_key(bytes, bytes.len() + 1), None);
    black_box(flow_key(bytes, 0));
    views(bytes);
    spoil(bytes);
}

fn views(bytes: &[u8]) {
    black_box(ipip::decapsulate(bytes).map(|inner| inner.map(|inner| inner.packet.len())).is_ok());
    black_box(checksum::checksum(bytes));
    if let Ok(walk) = ipv6_ext::walk(bytes) {
        assert!(walk.upper_offset <= bytes.len() && walk.next_header_offset < walk.upper_offset);
    }
    // Checked: whatever is accepted must be read without a panic, and payloads lie inside.
    for checked in [true, false] {
        macro_rules! each {
            ($($view:path => $read:expr;)*) => {$(
                let view = if checked { <$view>::new_checked(bytes).ok() } else { Some(<$view>::new_unchecked(bytes)) };
                if let Some(view) = view { $read(&view); black_box(view.into_inner()); }
            )*};
        }
        each! {
            ethernet::Packet::<&[u8]> => read_ethernet;
            vlan::Packet::<&[u8]> => read_vlan;
            arp::Packet::<&[u8]> => read_arp;
            ipv4::Packet::<&[u8]> => read_v4;
            ipv6::Packet::<&[u8]> => read_v6;
            ipv6_ext::Packet::<&[u8]> => read_ext;
            ipv6_ext::FragmentPacket::<&[u8]> => read_fragment;
            icmpv4::Packet::<&[u8]> => read_icmpv4;
            icmpv6::Packet::<&[u8]> => read_icmpv6;
            ndisc::Packet::<&[u8]> => read_nd;
            udp::Packet::<&[u8]> => read_udp;
            tcp::Packet::<&[u8]> => read_tcp;
        }
    }
}

const PSEUDO: Pseudo = Pseudo::V4 { src: std::net::Ipv4Addr::LOCALHOST, dst: std::net::Ipv4Addr::BROADCAST };

fn read_ethernet(p: &ethernet::Packet<&[u8]>) {
    black_box((p.dst().to_string(), p.src().is_unicast(), p.ethertype().to_string(), p.payload().len()));
    black_box(ethernet::Repr::parse(p).is_ok());
}

fn read_vlan(p: &vlan::Packet<&[u8]>) {
    black_box((p.tci().id(), p.tci().pcp(), p.tci().dei(), p.ethertype(), p.payload().len()));
    black_box(vlan::Repr::parse(p).is_ok());
}

fn read_arp(p: &arp::Packet<&[u8]>) {
    black_box((p.operation(), p.sender_mac(), p.sender_ip(), p.target_mac(), p.target_ip()));
    black_box(arp::Repr::parse(p).map(|repr| repr.reply(MacAddr::ZERO)).is_ok());
}

fn read_v4(p: &ipv4::Packet<&[u8]>) {
    black_box((p.version(), p.header_len(), p.dscp(), p.ecn(), p.total_len(), p.ident(), p.dont_fragment()));
    black_box((p.more_fragments(), p.fragment_offset(), p.is_fragment(), p.ttl(), p.protocol().to_string()));
    black_box((p.checksum(), p.checksum_ok(), p.src(), p.dst(), p.option_bytes().len(), p.payload().len()));
    black_box(p.options().count());
    black_box(ipv4::Repr::parse(p).is_ok());
}

fn read_v6(p: &ipv6::Packet<&[u8]>) {
    black_box((
        p.version(),
        p.dscp(),
        p.ecn(),
        p.flow_label(),
        p.payload_len(),
        p.next_header(),
        p.hop_limit(),
    ));
    black_box((p.src(), p.dst(), p.payload().len(), ipv6::Repr::parse(p).is_ok()));
}

fn read_ext(p: &ipv6_ext::Packet<&[u8]>) {
    black_box((p.next_header(), p.header_len(), p.body().len(), p.options().count(), p.routing_type()));
    black_box((p.segments_left(), p.payload().len(), ipv6_ext::Repr::parse(p).is_ok()));
}

fn read_fragment(p: &ipv6_ext::FragmentPacket<&[u8]>) {
    black_box((p.next_header(), p.offset(), p.more(), p.ident(), p.payload().len()));
    black_box(ipv6_ext::FragmentRepr::parse(p).is_ok());
}

fn read_icmpv4(p: &icmpv4::Packet<&[u8]>) {
    black_box((p.kind(), p.code(), p.checksum(), p.checksum_ok(), p.rest(), p.is_error(), p.payload().len()));
    black_box(icmpv4::Repr::parse(p).is_ok());
}

fn read_icmpv6(p: &icmpv6::Packet<&[u8]>) {
    black_box((
        p.kind(),
        p.code(),
        p.checksum(),
        p.checksum_ok(&PSEUDO),
        p.rest(),
        p.is_error(),
        p.payload().len(),
    ));
    black_box(icmpv6::Repr::parse(p).is_ok());
}

fn read_nd(p: &ndisc::Packet<&[u8]>) {
    black_box((
        p.kind(),
        p.target(),
        p.redirect_dst(),
        p.option_bytes().len(),
        p.options().count(),
        p.message(),
    ));
    black_box(ndisc::Repr::parse(p).is_ok());
}

fn read_udp(p: &udp::Packet<&[u8]>) {
    black_box((p.src_port(), p.dst_port(), p.len(), p.is_empty(), p.checksum(), p.checksum_ok(&PSEUDO)));
    black_box((p.payload().len(), udp::Repr::parse(p).is_ok()));
}

fn read_tcp(p: &tcp::Packet<&[u8]>) {
    black_box((
        p.src_port(),
        p.dst_port(),
        p.seq(),
        p.ack(),
        p.header_len(),
        p.flags().to_string(),
        p.window(),
    ));
    black_box((
        p.checksum(),
        p.checksum_ok(&PSEUDO),
        p.urgent(),
        p.option_bytes().len(),
        p.options().count(),
    ));
    black_box((p.payload().len(), tcp::Repr::parse(p).is_ok()));
}

/// Setters may leave length fields that lie; what reads afterwards must still not panic.
fn spoil(bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    let buf = &mut copy[..];
    let mut p = ipv4::Packet::new_unchecked(&mut buf[..]);
    p.set_version_and_header_len(60);
    p.set_total_len(u16::MAX);
    p.fill_checksum();
    black_box((p.payload_mut().len(), p.options().count(), p.option_bytes().len()));
    p.set_total_len(0);
    black_box((p.payload_mut().len(), p.payload().len()));
    black_box((ipv4::decrement_ttl(buf), ipv6::decrement_hop_limit(buf)));
    let mut p = ipv6::Packet::new_unchecked(&mut buf[..]);
    p.set_payload_len(u16::MAX);
    black_box((p.payload_mut().len(), p.payload().len()));
    let mut p = udp::Packet::new_unchecked(&mut buf[..]);
    p.set_len(u16::MAX);
    p.fill_checksum(&PSEUDO);
    black_box((p.payload_mut().len(), p.checksum_ok(&PSEUDO)));
    p.set_len(3);
    p.fill_checksum(&PSEUDO);
    black_box((p.payload_mut().len(), p.is_empty()));
    let mut p = tcp::Packet::new_unchecked(&mut buf[..]);
    p.set_header_len_and_flags(60, tcp::Flags::SYN);
    p.fill_checksum(&PSEUDO);
    black_box((p.payload_mut().len(), p.options().count()));
    let mut p = icmpv4::Packet::new_unchecked(&mut buf[..]);
    p.set_rest([1; 4]);
    p.fill_checksum();
    let mut p = ethernet::Packet::new_unchecked(&mut buf[..]);
    p.set_ethertype(EtherType::VLAN);
    black_box(p.payload_mut().len());
    black_box(Summary(&copy).to_string());
}
