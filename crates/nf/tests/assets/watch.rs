//! What frames tell, host by host.

use crate::frames::*;
use tidemill_nf::assets::banner::Protocol;
use tidemill_nf::assets::{Asset, Assets, AssetsSection, Host, Settings, Watch};
use tidemill_wire::MacAddr;

pub(crate) struct Lab {
    pub(crate) watch: Watch,
    pub(crate) table: Assets,
    pub(crate) settings: Settings,
    pub(crate) reports: u32,
}

impl Lab {
    pub(crate) fn new(section: &AssetsSection) -> Self {
        let settings = Settings::new(section).unwrap();
        Lab { watch: settings.watch(7), table: settings.table(), settings, reports: 0 }
    }

    pub(crate) fn look(&mut self, now_s: u32, frame: &[u8]) {
        let (table, reports) = (&mut self.table, &mut self.reports);
        self.watch.look(now_s, frame, |observation| {
            table.observe(u64::from(now_s) * 1000, observation);
            *reports += 1;
            true
        });
    }

    fn host(&self, address: &str) -> &Asset {
        self.table.get(Host::Ip(ip(address))).unwrap()
    }
}

fn lab() -> Lab {
    Lab::new(&AssetsSection::default())
}

#[test]
fn systems_and_services_are_seen() {
    let mut lab = lab();
    for (client, server) in [("10.0.0.5", "192.0.2.1"), ("2001:db8::5", "2001:db8:1::1")] {
        let (client, server) = ((ip(client), 40_000), (ip(server), 22));
        lab.look(100, &handshake(client, server, false, 61));
        lab.look(100, &handshake(server, client, true, 64));
        lab.look(101, &data(server, client, b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"));
        lab.look(101, &data(client, server, b"SSH-2.0-PuTTY_Release_0.79\r\n"));
    }
    for (client, server) in [("10.0.0.5", "192.0.2.1"), ("2001:db8::5", "2001:db8:1::1")] {
        let (client, server) = (lab.host(client), lab.host(server));
        assert_eq!((client.systems.len(), client.services.len()), (1, 0));
        let seen = &client.systems[0].signature;
        assert_eq!(lab.settings.fingerprints.system(seen), Some("Linux 5 or 6"), "{seen}");
        assert_eq!((seen.hops(), server.systems[0].signature.hops()), (3, 0));
        assert_eq!(lab.settings.fingerprints.system(&server.systems[0].signature), Some("Linux 5 or 6"));
        let service = &server.services[&(22, false)];
        assert_eq!(
            (service.protocol, service.text.to_string()),
            (Protocol::Ssh, "OpenSSH_9.2p1 Debian-2".into())
        );
        assert_eq!((server.first_ms, server.last_ms), (100_000, 101_000));
    }
    assert_eq!(
        lab.host("10.0.0.5").systems[0].signature.to_string(),
        "syn ip4 ttl 61 df window 64240 mss 1460 scale 7 options mss,sack,ts,nop,scale"
    );
    assert!(lab.table.is_consistent());
}

/// Both ends of SSH greet alike: a client's greeting makes no service, unless its port was seen to answer.
#[test]
fn greetings_of_both_sides_count_where_somebody_answers() {
    let mut lab = lab();
    let (client, server) = ((ip("10.0.0.5"), 40_000), (ip("192.0.2.1"), 2222));
    lab.look(1, &data(server, client, b"SSH-2.0-x\r\n"));
    assert!(lab.host("192.0.2.1").services.is_empty());
    lab.look(1, &handshake(server, client, true, 64));
    lab.look(1, &data(server, client, b"SSH-2.0-x\r\n"));
    assert_eq!(lab.host("192.0.2.1").services[&(2222, false)].protocol, Protocol::Ssh);
}

#[test]
fn names_and_links_are_seen() {
    let mut lab = lab();
    lab.look(1, &arp(MAC, [10, 0, 0, 5]));
    assert_eq!(lab.host("10.0.0.5").mac, Some(MacAddr(MAC)));
    // What a client says without an address is its address's when it gets one.
    let mac = [2, 0, 0, 0, 0, 9];
    lab.look(2, &dhcp(1, 1, mac, [0; 4], b"laptop"));
    let before = lab.table.get(Host::Mac(MacAddr(mac))).unwrap();
    assert_eq!(before.dhcp.unwrap().host_name.to_string(), "laptop");
    lab.look(3, &dhcp(2, 5, mac, [10, 0, 0, 9], b""));
    assert_eq!(lab.table.get(Host::Mac(MacAddr(mac))), None);
    let host = lab.host("10.0.0.9");
    assert_eq!((host.first_ms, host.mac), (2000, Some(MacAddr(mac))));
    let dhcp = host.dhcp.unwrap();
    assert_eq!((dhcp.vendor.to_string().as_str(), dhcp.parameters.bytes()), ("MSFT 5.0", &[1, 3, 6][..]));
    // mDNS: `printer.local` is 10.0.0.7, and prints.
    let mut message = vec![0, 0, 0x84, 0, 0, 0, 0, 2, 0, 0, 0, 0];
    message.extend(b"\x07printer\x05local\0\0\x01\x80\x01\0\0\0\x78\0\x04\x0a\0\0\x07");
    message.extend(b"\x04_ipp\x04_tcp\x05local\0\0\x0c\0\x01\0\0\0\x78\0\x02\xc0\x0c");
    lab.look(4, &udp((ip("10.0.0.7"), 5353), (ip("224.0.0.251"), 5353), &message));
    let host = lab.host("10.0.0.7");
    assert_eq!(
        (host.names[0].to_string().as_str(), host.announced[0].0.to_string().as_str()),
        ("printer", "_ipp._tcp")
    );
    assert_eq!(lab.watch.malformed(), 0);
    lab.look(4, &udp((ip("10.0.0.7"), 5353), (ip("224.0.0.251"), 5353), &message[..20]));
    assert_eq!(lab.watch.malformed(), 1);
    assert!(lab.table.is_consistent());
}

#[test]
fn only_hosts_of_the_networks_are_of_interest() {
    let mut lab =
        Lab::new(&AssetsSection { networks: vec!["10.0.0.0/8".into()], ..AssetsSection::default() });
    let ends = ((ip("10.0.0.5"), 40_000), (ip("192.0.2.1"), 80));
    lab.look(1, &handshake(ends.0, ends.1, false, 64));
    lab.look(1, &handshake(ends.1, ends.0, true, 64));
    lab.look(1, &udp((ip("0.0.0.0"), 1), (ip("10.0.0.1"), 1), b""));
    assert_eq!(lab.table.after(None).count(), 1);
}

/// Whatever packets say: nobody has these addresses.
#[test]
fn what_can_be_no_hosts_address_is_none() {
    let mut lab = lab();
    let mdns = |address: [u8; 4]| {
        let head = b"\0\0\x84\0\0\0\0\x01\0\0\0\0\x07printer\x05local\0\0\x01\x80\x01\0\0\0\x78\0\x04";
        [&head[..], &address].concat()
    };
    for address in [[0, 0, 0, 0], [0, 1, 2, 3], [127, 0, 0, 1], [224, 0, 0, 5], [240, 1, 1, 1], [255; 4]] {
        let from = (std::net::IpAddr::from(address), 5353);
        lab.look(1, &udp(from, (ip("10.0.0.1"), 9), b""));
        lab.look(1, &arp(MAC, address));
        lab.look(1, &dhcp(2, 5, MAC, address, b""));
        lab.look(1, &udp((ip("10.0.0.7"), 5353), (ip("224.0.0.251"), 5353), &mdns(address)));
    }
    for address in ["::", "::1", "::ffff:1.2.3.4", "ff02::1"] {
        lab.look(1, &udp((ip(address), 1), (ip("2001:db8::1"), 9), b""));
    }
    let hosts: Vec<Host> = lab.table.after(None).map(|asset| asset.host).collect();
    assert_eq!(hosts, [Host::Ip(ip("10.0.0.1")), Host::Ip(ip("10.0.0.7"))], "who grants, and who speaks");
    assert_eq!(lab.watch.malformed(), 0);
    // Those of a link are hosts on it.
    lab.look(1, &udp((ip("fe80::7"), 1), (ip("2001:db8::1"), 9), b""));
    lab.look(1, &udp((ip("169.254.0.7"), 1), (ip("10.0.0.1"), 9), b""));
    assert_eq!(lab.table.len(), 4);
}

/// What goes on is reported again before its host would be forgotten, and nothing more often.
#[test]
fn nothing_is_reported_twice_in_a_row() {
    let mut lab = Lab::new(&AssetsSection { idle_s: 40, ..AssetsSection::default() });
    let frame = handshake((ip("10.0.0.5"), 40_000), (ip("192.0.2.1"), 80), false, 64);
    for now_s in 1000..1040 {
        lab.look(now_s, &frame);
        lab.table.expire(u64::from(now_s) * 1000);
    }
    // Present and its system, every 10 seconds.
    assert_eq!((lab.reports, lab.table.len()), (8, 1));
}

/// What was refused is offered again.
#[test]
fn what_was_lost_comes_again() {
    let mut lab = lab();
    let frame = arp(MAC, [10, 0, 0, 5]);
    lab.watch.look(5, &frame, |_| false);
    lab.look(5, &frame);
    assert_eq!((lab.reports, lab.table.len()), (1, 1));
}

#[test]
fn a_list_without_a_name_is_no_list() {
    let section = AssetsSection { fingerprints: Some("".into()), ..AssetsSection::default() };
    let said = Settings::new(&section).unwrap_err().to_string();
    assert_eq!(said, "assets.fingerprints: is an empty name: name a file, or leave it out");
}
