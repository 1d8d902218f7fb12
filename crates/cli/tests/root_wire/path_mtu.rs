//! Packets longer than the next link takes: path MTU discovery, and fragments.

use crate::basic::ping;
use crate::dut::Dut;
use crate::lab::{Family, Lab, Link, Plan};
use crate::net::wait_until;
use crate::{Kernel, Needs, traffic, turn};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Bytes of IP on the link to the right.
const MTU: usize = 1400;

fn lab(dut: Dut) -> Lab {
    let right = Link { mtu: MTU as u16, ..Link::new("right", 2) };
    Plan::new([Link::new("left", 1), right]).build(dut)
}

/// A UDP socket on the left that is connected to one on the right.
fn sockets(lab: &Lab, family: Family) -> (UdpSocket, UdpSocket) {
    let to = lab.address("right", family);
    let (near, far) = (lab.left().udp(traffic::any(to)), lab.right().udp(SocketAddr::new(to, 0)));
    near.connect(far.local_addr().unwrap()).unwrap();
    far.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    near.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    (near, far)
}

/// The next datagram, if one comes within a second.
fn arrival(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
    let mut buffer = vec![0; 65536];
    let (length, from) = socket.recv_from(&mut buffer).ok()?;
    buffer.truncate(length);
    Some((buffer, from))
}

fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// A sender that forbids fragments learns the path's MTU from the router, and then gets through.
fn discovery(dut: Dut, family: Family) {
    let lab = lab(dut);
    let (near, far) = sockets(&lab, family);
    match family {
        Family::V4 => set_ip_mtu_discover(&near, Ipv4PathMtuDiscovery::DO).unwrap(),
        Family::V6 => set_ipv6_mtu_discover(&near, Ipv6PathMtuDiscovery::DO).unwrap(),
    }
    let headers = family.pick(28, 48);
    let mtu = || family.pick(ip_mtu(&near), ipv6_mtu(&near)).unwrap() as usize;
    assert_eq!(mtu(), 1500);
    near.send(&payload(1500 - headers)).unwrap();
    wait_until("the sender has learned the path's MTU", Duration::from_secs(3), || mtu() == MTU);
    assert!(arrival(&far).is_none(), "a packet longer than the link takes arrived");
    // The ICMP error itself may be reported first.
    let _ = near.take_error();
    let too_long = near.send(&payload(MTU - headers + 1)).unwrap_err();
    assert_eq!(too_long.raw_os_error(), Some(libc::EMSGSIZE), "{too_long}");
    let fits = payload(MTU - headers);
    near.send(&fits).unwrap();
    assert_eq!(arrival(&far).map(|(data, _)| data), Some(fits));
    // Others see it too.
    let text = lab.left().run(&format!("tracepath -n -m 5 {}", lab.address("right", family)));
    assert!(text.contains(&format!("pmtu {MTU}")), "{text}");
    lab.finish();
}

#[test]
fn root_path_mtu_discovery_ipv4() {
    let Some(turn) = turn("root_path_mtu_discovery_ipv4", Needs::Little, Kernel::Can) else { return };
    discovery(turn.dut, Family::V4);
}

#[test]
fn root_path_mtu_discovery_ipv6() {
    let Some(turn) = turn("root_path_mtu_discovery_ipv6", Needs::Little, Kernel::Can) else { return };
    discovery(turn.dut, Family::V6);
}

/// Datagrams of 4,000 and 60,000 bytes arrive whole, there and back. In IPv4 the router itself cuts the sender's fragments
/// further; in IPv6 the sender learns to cut them smaller.
fn fragments(dut: Dut, family: Family) {
    let lab = lab(dut);
    let (near, far) = sockets(&lab, family);
    if family == Family::V4 {
        set_ip_mtu_discover(&near, Ipv4PathMtuDiscovery::DONT).unwrap();
    }
    for length in [4000, 60_000] {
        let sent = payload(length);
        let mut tries = 0;
        let (got, from) = loop {
            tries += 1;
            match near.send(&sent) {
                Err(error) if error.kind() != ErrorKind::ConnectionRefused => {
                    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE), "{error}");
                }
                _ => {}
            }
            if let Some(arrived) = arrival(&far) {
                break arrived;
            }
            assert!(tries < family.pick(1, 3), "{length} bytes did not arrive");
        };
        assert!(got == sent, "{length} bytes arrived changed");
        far.send_to(&sent, from).unwrap();
        let (got, _) = arrival(&near).unwrap_or_else(|| panic!("{length} bytes did not come back"));
        assert!(got == sent, "{length} bytes came back changed");
    }
    // One packet that the router has to cut in two; a sender of IPv6 is told to send shorter ones.
    match family {
        Family::V4 => drop(ping(lab.left(), lab.address("right", family), "-M dont -s 1450", 0)),
        Family::V6 => drop(ping(lab.left(), lab.address("right", family), "-s 1450", 1)),
    }
    lab.finish();
}

#[test]
fn root_fragments_ipv4() {
    let Some(turn) = turn("root_fragments_ipv4", Needs::Little, Kernel::Can) else { return };
    fragments(turn.dut, Family::V4);
}

#[test]
fn root_fragments_ipv6() {
    let Some(turn) = turn("root_fragments_ipv6", Needs::Little, Kernel::Can) else { return };
    fragments(turn.dut, Family::V6);
}
