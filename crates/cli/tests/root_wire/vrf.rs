//! Two VRFs with the same addresses: neither sees the other.

use crate::basic::ping;
use crate::lab::{Family, Link, Plan};
use crate::traffic::exchange;
use crate::{Kernel, Needs, turn};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

fn link(name: &'static str, net: u8, interface: &'static str) -> Link {
    Link { interface, ..Link::new(name, net) }
}

#[test]
fn root_vrfs_overlap() {
    let Some(turn) = turn("root_vrfs_overlap", Needs::Little, Kernel::Cannot) else { return };
    let (red, blue) = ("vrf = \"red\"", "vrf = \"blue\"");
    let lab = Plan::new([
        link("red-l", 1, red),
        link("red-r", 2, red),
        link("blue-l", 1, blue),
        link("blue-r", 2, blue),
        // Only one of the two has this network.
        link("red-x", 3, red),
    ])
    .build(turn.dut);
    for family in [Family::V4, Family::V6] {
        let server = SocketAddr::new(lab.address("red-r", family), 4000);
        assert_eq!(server.ip(), lab.address("blue-r", family));
        let listeners = ["red-r", "blue-r"].map(|host| lab.host(host).listen(server));
        for (i, from) in ["red-l", "blue-l"].into_iter().enumerate() {
            let mut near = lab.host(from).connect(server);
            let (mut far, _) = listeners[i].accept().unwrap();
            far.write_all(from.as_bytes()).unwrap();
            drop(far);
            let mut said = String::new();
            near.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            near.read_to_string(&mut said).unwrap();
            assert_eq!(said, from);
        }
        exchange(lab.host("red-l"), lab.host("red-r"), server.ip(), 1_000_000);
        exchange(lab.host("blue-l"), lab.host("blue-r"), server.ip(), 1_000_000);
        ping(lab.host("red-l"), lab.address("red-x", family), "", 0);
        let (leaked, text) =
            lab.host("blue-l").attempt(&format!("ping -n -c 2 -i 0.1 -W 1 {}", lab.address("red-x", family)));
        assert!(!leaked, "blue reaches red's network: {text}");
    }
    lab.finish();
}
