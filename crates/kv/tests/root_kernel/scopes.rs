//! Clients with the same addresses and ports by two links, or in two VRFs: two connections, and not one.

use crate::lab::{Lab, ready};
use crate::net::{Host, cable, run};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tidemill_bpf::Pins;
use tidemill_kv::kernel::Look;

/// A client's port in all of these.
const FROM: u16 = 40_000;

/// A connection from an address of a host's card to a server there.
fn connect(host: &Host, card: &'static str, from: &str, to: &str) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, netdevice::name_to_index, socket};
    let [from, to]: [IpAddr; 2] = [from, to].map(|text| text.parse().unwrap());
    let stream = host.spawn(move || {
        let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, SocketType::STREAM, None).unwrap();
        let at = |address: IpAddr, port: u16| {
            let mut at = SocketAddr::new(address, port);
            if let SocketAddr::V6(at) = &mut at {
                at.set_scope_id(name_to_index(&socket, card).unwrap());
            }
            at
        };
        bind(&socket, &at(from, FROM)).unwrap();
        connect(&socket, &at(to, 11211)).unwrap();
        TcpStream::from(socket)
    });
    let stream = stream.join().unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    stream
}

fn value(key: &str, value: &str) -> String {
    format!("VALUE {key} 0 1\r\n{value}\r\nEND\r\n")
}

/// What two clients write is told apart, shown to be executed where nobody answers, and never stale.
fn told_apart(lab: &mut Lab, mut clients: [TcpStream; 2]) {
    let look = Look::open(Path::new(Pins::ROOT), "kv").unwrap();
    assert_eq!(lab.cache.count("tcp-opened"), 3, "the lab's own, and two");
    let read = lab.cache.count("tcp-read");
    for (at, client) in clients.iter_mut().enumerate() {
        client.write_all(format!("set k{at} 0 0 1 noreply\r\n{at}\r\n").as_bytes()).unwrap();
    }
    lab.wait("that both are read", |lab| lab.cache.count("tcp-read") - read == 2);
    for at in 0..2 {
        lab.until_hit(&format!("k{at}"), &value(&format!("k{at}"), &at.to_string()));
    }
    for (at, client) in clients.iter_mut().enumerate() {
        let new = (b'a' + at as u8) as char;
        client.write_all(format!("set k0 0 0 1\r\n{new}\r\n").as_bytes()).unwrap();
        let mut said = [0; 16];
        lab.wait("an answer", |_| client.read(&mut said).is_ok());
        assert!(said.starts_with(b"STORED"));
        assert_eq!(lab.udp("get k0\r\n"), value("k0", &new.to_string()));
        lab.until_hit("k0", &value("k0", &new.to_string()));
    }
    assert_eq!((lab.cache.blind(), look.holding().unwrap()), (0, Vec::new()));
    assert_eq!(["tcp-out-of-order", "tcp-busy"].map(|name| lab.cache.count(name)), [0, 0]);
    // One ends, and the other one goes on.
    let [one, mut two] = clients;
    drop(one);
    lab.rounds(Duration::from_millis(1500));
    two.write_all(b"set k1 0 0 1 noreply\r\nz\r\n").unwrap();
    lab.wait("the last", |lab| lab.udp("get k1\r\n") == value("k1", "z"));
    lab.until_hit("k1", &value("k1", "z"));
    assert_eq!(lab.cache.blind(), 0);
}

#[test]
fn root_kernel_clients_of_the_same_link_local_address() {
    if !ready("scopes::root_kernel_clients_of_the_same_link_local_address") {
        return;
    }
    let mut hosts = None;
    let mut lab = Lab::prepared(&["server", "left", "right"], "4", || {
        cable("left", "east");
        cable("north", "right");
        let [east, north] = ["east", "north"].map(|card| {
            let host = Host::new(card, &[]);
            host.run(&format!("sysctl -qw net.ipv6.conf.{card}.disable_ipv6=0"));
            host.run(&format!("ip addr add fe80::2/64 dev {card} nodad"));
            host
        });
        for card in ["left", "right"] {
            run(&format!("sysctl -qw net.ipv6.conf.{card}.disable_ipv6=0"));
            run(&format!("ip addr add fe80::9/64 dev {card} nodad"));
        }
        hosts = Some((east, north));
    });
    let (east, north) = hosts.unwrap();
    let clients =
        [connect(&east, "east", "fe80::2", "fe80::9"), connect(&north, "north", "fe80::2", "fe80::9")];
    told_apart(&mut lab, clients);
}

#[test]
fn root_kernel_clients_of_the_same_address_in_two_vrfs() {
    const TEST: &str = "scopes::root_kernel_clients_of_the_same_address_in_two_vrfs";
    if !ready(TEST) {
        return;
    }
    if !Command::new("ip").args("link add red type vrf table 10".split(' ')).status().unwrap().success() {
        return println!("skipped: {TEST} (this kernel has no VRFs)");
    }
    run("ip link set red up");
    run("sysctl -qw net.ipv4.tcp_l3mdev_accept=1");
    let mut hosts = None;
    let mut lab = Lab::prepared(&["server", "left", "right"], "4", || {
        cable("left", "east");
        cable("north", "right");
        hosts = Some(["east", "north"].map(|card| Host::new(card, &["10.7.0.2/24"])));
        run("ip link set right master red");
        for card in ["left", "right"] {
            run(&format!("ip addr add 10.7.0.1/24 dev {card}"));
        }
    });
    let [east, north] = hosts.unwrap();
    let clients =
        [connect(&east, "east", "10.7.0.2", "10.7.0.1"), connect(&north, "north", "10.7.0.2", "10.7.0.1")];
    told_apart(&mut lab, clients);
}
