//! Real packets go by what a BGP peer says: BIRD beside the router tells it the ways to two networks at the right host, and what is not to get there.

use crate::dut::Dut;
use crate::lab::{Family, Lab, Plan};
use crate::net::wait_until;
use crate::{Kernel, Needs, turn};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ROUTER: &str = "[bgp]\nasn = 65000\nid = \"10.1.0.1\"\nlisten = [\"127.0.0.1:1790\"]\nflowspec = true\n\
    [[bgp.peer]]\nname = \"bird\"\naddress = \"127.0.0.2\"\nasn = 64496\nflowspec = \"validated\"\n";

/// Routes by the right host; flow specifications that drop UDP to port 53: a rate of no byte.
const BIRD: &str = "router id 127.0.0.2;\nprotocol device {}\nflow4 table f4;\nflow6 table f6;\n\
    protocol static four { ipv4; route 203.0.113.0/24 unreachable; }\n\
    protocol static six { ipv6; route 2001:db8:113::/48 unreachable; }\n\
    protocol static flows4 { flow4 { table f4; };\n\
    route flow4 { dst 203.0.113.0/24; proto = 17; dport = 53; } { bgp_ext_community.add((generic, 0x80060000, 0x0)); };\n}\n\
    protocol static flows6 { flow6 { table f6; };\n\
    route flow6 { dst 2001:db8:113::/48; next header = 17; dport = 53; } { bgp_ext_community.add((generic, 0x80060000, 0x0)); };\n}\n\
    protocol bgp ours {\nlocal 127.0.0.2 as 64496; neighbor 127.0.0.1 port 1790 as 65000; multihop;\n\
    connect delay time 1; connect retry time 1; error wait time 1, 2;\n\
    ipv4 { import none; export all; next hop self; next hop address 10.2.0.2; };\n\
    ipv6 { import none; export all; next hop self; next hop address fd00:2::2; };\n\
    flow4 { table f4; import none; export all; };\nflow6 { table f6; import none; export all; };\n}\n";

/// BIRD in the router's namespace, by the loopback interface there.
struct Bird {
    child: Child,
    folder: tempfile::TempDir,
}

impl Bird {
    fn start(lab: &Lab) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("bird.conf"), BIRD).unwrap();
        let mut command = Command::new("bird");
        command.args(["-f", "-c", "bird.conf", "-s", "bird.ctl"]).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Bird { child: lab.router.ns.enter(|| command.spawn()).unwrap(), folder }
    }

    fn disable(&self, lab: &Lab, protocol: &str) {
        let socket = self.folder.path().join("bird.ctl");
        lab.router.ns.run(&format!("birdc -s {} disable {protocol}", socket.display()));
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a datagram gets from one to the other.
fn arrives(from: &UdpSocket, to: &UdpSocket) -> bool {
    to.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    from.send_to(b"hello", to.local_addr().unwrap()).unwrap();
    to.recv(&mut [0; 16]).is_ok()
}

#[test]
fn root_a_bgp_peer_says_where_packets_go_and_which_do_not() {
    let test = "root_a_bgp_peer_says_where_packets_go_and_which_do_not";
    let Some(turn) = turn(test, Needs::Little, Kernel::Cannot) else { return };
    assert_eq!(turn.dut, Dut::Tidemill);
    let lab = Plan::two_hosts().config(ROUTER).build(turn.dut);
    let ends: [(Family, IpAddr); 2] = [(Family::V4, "203.0.113.7"), (Family::V6, "2001:db8:113::7")]
        .map(|(f, to)| (f, to.parse().unwrap()));
    for (_, to) in ends {
        lab.right().add_address(&to.to_string(), "lo");
    }
    let reached = || ends.map(|(_, to)| lab.left().attempt(&format!("ping -n -c 1 -W 1 {to}")).0);
    assert_eq!(reached(), [false; 2], "nobody has told a way");

    let bird = Bird::start(&lab);
    let limit = Duration::from_secs(30);
    wait_until("both networks are reached", limit, || reached() == [true; 2]);
    // From a port of the left host's to ports 53 and 54.
    let sockets = ends.map(|(family, to)| {
        let at = |port| lab.right().udp(SocketAddr::new(to, port));
        (lab.left().udp(SocketAddr::new(lab.address("left", family), 0)), at(53), at(54))
    });
    let forbidden = || sockets.each_ref().map(|(from, to, _)| arrives(from, to));
    wait_until("what is not to get there does not", limit, || forbidden() == [false; 2]);
    for (from, _, other) in &sockets {
        assert!(arrives(from, other), "only port 53 is meant: {:?}", lab.router.drops());
    }
    wait_until("it is said why", limit, || lab.router.drops().get("flowspec-drop") >= Some(&2));

    bird.disable(&lab, "flows4");
    bird.disable(&lab, "flows6");
    wait_until("both are withdrawn", limit, || forbidden() == [true; 2]);
    bird.disable(&lab, "ours");
    wait_until("the ways end with the session", limit, || reached() == [false; 2]);
    lab.finish();
}
