//! Tags on both sides: the front is one VLAN of its port, the back another. This kernel knows no VLANs, so client and Grantor are made by hand, of packet sockets.

use crate::lab::Answer;
use crate::net::{Netns, cable, wait_until};
use crate::raw::{Frame, Raw};
use crate::strangers::udp;
use crate::turn;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;
use tidemill_control::Client;
use tidemill_control::schema::gate::{self, Counters};
use tidemill_wire::verify_checksums;

const FRONT: [u8; 6] = [2, 0, 0, 0, 7, 1];
const BACK: [u8; 6] = [2, 0, 0, 0, 8, 1];
const CLIENT: [u8; 6] = [2, 0, 0, 0, 7, 2];
const GRANTOR: [u8; 6] = [2, 0, 0, 0, 8, 2];

/// The frame with a tag.
fn tagged(vlan: u16, frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &vlan.to_be_bytes(), &frame[12..]].concat()
}

/// What an outer header has to say besides its code point, here where the packet has left by a port: no node behind the tunnel has changed it.
fn outer_is_as_the_wire_wants_it(ip: &[u8], v6: bool) {
    let net = [0xfd, 0, 0, 8];
    let host = |last: u8| [&net[..], &[0; 11], &[last]].concat();
    if v6 {
        // Hop limit 255, the whole of it, no congestion, from us to the Grantor.
        let len = u16::from_be_bytes([ip[4], ip[5]]);
        assert_eq!((ip[7], usize::from(len), ip[1] >> 4 & 3), (255, ip.len() - 40, 0));
        assert_eq!(ip[8..40], [host(1), host(2)].concat());
        assert_ne!([ip[1] & 15, ip[2], ip[3]], [0; 3], "a flow label");
        return;
    }
    // No options, the whole of it; identification 0, "don't fragment", offset 0, TTL 64; from us to the Grantor.
    let len = u16::from_be_bytes([ip[2], ip[3]]);
    assert_eq!((ip[0], ip[1] & 3, usize::from(len)), (0x45, 0, ip.len()));
    assert_eq!(ip[4..9], [0, 0, 0x40, 0, 64]);
    assert_eq!(ip[12..20], [10, 8, 0, 1, 10, 8, 0, 2]);
}

/// The outer code point of the next packet that comes to the Grantor in an outer one, and the tag that it comes with.
fn comes(grantor: &Raw, v6: bool) -> Option<(Option<u16>, u8, Vec<u8>)> {
    let frames = std::iter::from_fn(|| grantor.receive(Duration::from_secs(2)));
    frames.take(50).find_map(|Frame { vlan, bytes }| {
        let ip = bytes.get(14..)?;
        let outer = match (v6, &bytes[12..14]) {
            (false, [8, 0]) if ip[9] == 4 => (ip[1] >> 2, 20),
            (true, [0x86, 0xdd]) if ip[6] == 41 => ((ip[0] << 4 | ip[1] >> 4) >> 2, 40),
            _ => return None,
        };
        verify_checksums(&bytes).unwrap();
        assert_eq!(bytes[..12], [GRANTOR, BACK].concat());
        outer_is_as_the_wire_wants_it(ip, v6);
        Some((vlan, outer.0, ip[outer.1..].to_vec()))
    })
}

#[test]
fn both_sides_can_be_vlans() {
    let Some(_turn) = turn("both_sides_can_be_vlans") else { return };
    let [front, middle, back] = ["front", "middle", "back"].map(Netns::new);
    cable(&middle, "tm-wan", &front, "eth0", 1500);
    cable(&middle, "tm-lan", &back, "eth0", 1500);
    for (ns, interface, mac) in [
        (&middle, "tm-wan", FRONT),
        (&middle, "tm-lan", BACK),
        (&front, "eth0", CLIENT),
        (&back, "eth0", GRANTOR),
    ] {
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        ns.run(&format!("ip link set {interface} address {mac}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let config = "version = 1\nrole = \"gatekeeper\"\n[control]\nsocket = \"gate.sock\"\n\
        [[port]]\nname = \"wan\"\nkind = \"af_packet\"\ninterface = \"tm-wan\"\n\
        [[port]]\nname = \"lan\"\nkind = \"af_packet\"\ninterface = \"tm-lan\"\n\
        [[interface]]\nport = \"wan\"\nvlan = 7\naddresses = [\"10.7.0.1/24\", \"fd00:7::1/64\"]\n\
        [[interface]]\nport = \"lan\"\nvlan = 8\naddresses = [\"10.8.0.1/24\", \"fd00:8::1/64\"]\n\
        [[neighbors.fixed]]\ninterface = \"lan.8\"\naddress = \"10.8.0.2\"\nmac = \"02:00:00:00:08:02\"\n\
        [[neighbors.fixed]]\ninterface = \"lan.8\"\naddress = \"fd00:8::2\"\nmac = \"02:00:00:00:08:02\"\n\
        [gatekeeper]\nfront = [\"wan.7\"]\ndecisions = \"interoperable\"\n\
        [[gatekeeper.policy]]\nprefix = \"10.9.0.0/24\"\naction = \"grantor\"\ngrantors = [\"10.8.0.2\"]\n\
        [[gatekeeper.policy]]\nprefix = \"fd00:9::/64\"\naction = \"grantor\"\ngrantors = [\"fd00:8::2\"]\n";
    std::fs::write(folder.path().join("gate.toml"), config).unwrap();
    let file = |name: &str| File::create(folder.path().join(name)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(["run", "gate.toml", "--json"]).current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("log"));
    let mut child = middle.enter(|| command.spawn()).unwrap();
    let control = Client::new(&folder.path().join("gate.sock")).unwrap();
    let counters = || control.get::<Counters>(gate::path::COUNTERS, &()).map(|all| all.counters);
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    wait_until("the gatekeeper answers", Duration::from_secs(60), || {
        assert!(child.try_wait().unwrap().is_none(), "{}", log());
        counters().is_ok()
    });
    let (client, grantor) = (Raw::open(&front, "eth0"), Raw::open(&back, "eth0"));
    for v6 in [false, true] {
        let ends = if v6 { ["fd00:7::2", "fd00:9::2"] } else { ["10.7.0.2", "10.9.0.2"] };
        let plain = udp([CLIENT, FRONT], ends, [9, 9], 0, b"hello");
        let packet = tagged(7, &plain);
        // With the other side's tag it is nobody's.
        client.send(&tagged(8, &plain));
        client.send(&packet);
        let (vlan, dscp, mut inner) = comes(&grantor, v6).unwrap_or_else(|| panic!("{}", log()));
        assert_eq!((vlan, dscp), (Some(8), 41));
        // One hop further, as after any router; else as it was sent.
        let mut sent = plain[14..].to_vec();
        let hops = if v6 { 7 } else { 8 };
        assert_eq!(inner[hops], sent[hops] - 1);
        for ip in [&mut inner, &mut sent] {
            ip[hops] = 0;
            if !v6 {
                ip[10..12].fill(0);
            }
        }
        assert_eq!(inner, sent);
        // The answer comes with a tag, too.
        let answer = Answer::Granted { rate_kib_s: 100, expire_s: 60, renew_ms: 50_000, step_ms: 1000 };
        let ends = if v6 { ["fd00:8::2", "fd00:8::1"] } else { ["10.8.0.2", "10.8.0.1"] };
        let decision = udp([GRANTOR, BACK], ends, [41120, 45232], 0, &answer.bytes(&sent));
        grantor.send(&tagged(8, &decision));
        let applied = u64::from(v6) + 1;
        wait_until("the decision is applied", Duration::from_secs(10), || {
            counters().unwrap()["decisions-applied"] == applied
        });
        client.send(&packet);
        let (vlan, dscp, _) = comes(&grantor, v6).unwrap();
        assert_eq!((vlan, dscp), (Some(8), 1));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success(), "{}", log());
    let said = std::fs::read_to_string(folder.path().join("out")).unwrap();
    let said: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert!(said["dropped"]["vlan-unknown"].as_u64() >= Some(2), "{said}");
    assert_eq!((&said["gate"]["requests"], &said["gate"]["granted"]), (&2.into(), &2.into()), "{said}");
}
