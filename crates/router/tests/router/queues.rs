//! Queues in front of ports: what leaves by a port with `[[queue]]` goes through it, class by class, and nothing else does.

use crate::lab::*;
use tidemill_ip::queue::ClassStats;
use tidemill_router::{PortInfo, RouterConfig, RouterControl, Routes};
use tidemill_wire::ipv4;

/// 100 kbps: a datagram of 84 bytes on the wire takes 6.7 ms.
fn config(more: &str) -> String {
    format!(
        "{more}{LINKS}{}[[neighbors.fixed]]\ninterface='wan'\naddress='10.2.0.9'\nmac='{}'\n\
         [[route]]\nprefix='20.0.0.0/8'\nvia='10.2.0.9'\n\
         [[queue]]\nport='wan'\nrate='100 kbps'\ngranted_packets=300\nrequest_packets=20\nseed=1\n",
        fixed_host(),
        mac(9)
    )
}

/// A datagram to `wan` with a code point; one that asks says that there is a packet in it.
fn marked(dscp: u8, port: u16) -> Vec<u8> {
    let mut frame = datagram(0, "10.1.0.9", "20.0.0.1", (port, 53));
    frame[15] = dscp << 2;
    if dscp >= 3 {
        frame[23] = 4;
    }
    ipv4::fill_checksum(&mut frame[14..34]);
    frame
}

fn codes(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.iter().map(|frame| frame[15] >> 2).collect()
}

fn classes(lab: &Lab) -> [ClassStats; 3] {
    let queues = lab.control.queues();
    assert_eq!(queues.iter().map(|queue| &*queue.port).collect::<Vec<_>>(), ["wan"]);
    let stats = &queues[0].stats;
    [stats.operational, stats.requests.total(), stats.granted]
}

#[test]
fn what_leaves_by_the_port_has_its_class() {
    let mut lab = Lab::new(&config(""));
    // More than the burst of 3,076 bytes; then time passes.
    for n in 0..100 {
        lab.receive(LAN, marked(1, n));
    }
    for dscp in [41, 10, 50] {
        lab.receive(LAN, marked(dscp, 7));
    }
    // And one that does not leave there.
    lab.receive(LAN, datagram(0, "10.1.0.9", "10.1.0.9", (1, 2)));
    lab.turn();
    let first = lab.sent(WAN);
    // The burst, begun by a packet that found something of it, and the requests' own.
    assert_eq!(first.len(), 37 + 3);
    assert_eq!(codes(&first)[37..], [50, 41, 10], "the highest first");
    // A question for a neighbor is operational, and does not wait for the 63 before it.
    lab.receive(LAN, datagram(0, "10.1.0.9", "10.2.0.77", (1, 2)));
    lab.settle();
    let sent = lab.sent(WAN);
    assert!(sent.iter().any(|frame| frame[12..14] == [8, 6]), "{} frames", sent.len());
    lab.wait(1.0);
    // The question is asked again meanwhile.
    let rest: Vec<_> = lab.sent(WAN).into_iter().filter(|frame| frame[12..14] == [8, 0]).collect();
    assert_eq!(codes(&rest), [1; 63], "the rest, in its time");
    assert_eq!(lab.sent(LAN).len(), 1);
    let [operational, requests, granted] = classes(&lab);
    assert!([operational, requests, granted].iter().all(ClassStats::balances));
    assert_eq!((granted.arrived, granted.sent, requests.sent), (100, 100, 3));
    assert!(operational.sent >= 1 && granted.longest_ns >= 100_000_000);
    lab.end();
}

#[test]
fn floods_are_dropped_by_name_and_what_waits_in_the_end_is_held() {
    let mut lab = Lab::new(&config(""));
    for n in 0..400 {
        lab.receive(LAN, marked(1, n));
        lab.receive(LAN, marked(3 + (n % 61) as u8, n));
    }
    lab.settle();
    let drops = lab.drops();
    for reason in ["red-drop", "request-queue-full", "request-evicted"] {
        assert!(drops.contains(reason), "{drops}");
    }
    // Counters are shown every 10 ms, in which one packet leaves.
    lab.set_time(lab.now_ns() + 10_000_000);
    lab.turn();
    let [_, requests, granted] = classes(&lab);
    assert!(requests.waiting >= 19 && granted.waiting >= 200, "{requests:?} {granted:?}");
    let waiting = requests.waiting + granted.waiting;
    assert_eq!(lab.end().snapshot.ledger().held, waiting);
}

#[test]
fn a_queue_stays_as_it_is_while_the_router_runs() {
    let mut lab = Lab::new(&config(""));
    let now_ns = lab.now_ns();
    let reload = |lab: &mut Lab, text: &str| {
        let config: RouterConfig = toml::from_str(text).unwrap();
        lab.control.reload(now_ns, &config).map_err(|error| error.to_string())
    };
    let other = config("").replace("100 kbps", "200 kbps");
    let error = reload(&mut lab, &other).unwrap_err();
    assert_eq!(error, "queue: cannot change while the router runs: put it back, or restart the router");
    reload(&mut lab, &config("[router]\nttl=9\n")).unwrap();
    lab.end();
}

#[test]
fn the_graph_has_queues_where_they_are_wanted() {
    for (more, before) in [("", "queue:wan"), ("[router]\ncoalesce_tcp=true\n", "tcp-segment:queue:wan")] {
        let config: RouterConfig = toml::from_str(&config(more)).unwrap();
        let ports = ["lan", "wan", "dmz"].map(PortInfo::new);
        let domain = tidemill_lookup::qsbr::Domain::new();
        let control =
            RouterControl::new(&config, &ports, Routes::default(), Routes::default(), &domain).unwrap();
        let graph = tidemill_router::graph(&control).build().unwrap();
        assert!(graph.node_names.iter().any(|name| name == before), "{:?}", graph.node_names);
        let queues: Vec<_> = graph.node_names.iter().filter(|name| name.starts_with("queue:")).collect();
        assert_eq!(queues, ["queue:wan"]);
    }
}
