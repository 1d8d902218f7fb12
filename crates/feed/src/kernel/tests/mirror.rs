use super::super::decode;
use super::super::mirror::{Step, Told};
use super::super::{Hop, KernelEvent, KernelPath, MAIN_TABLE, Mirror};
use super::{APPEND, DEL, NEW, REPLACE, Raw, Sum, hop, link, multipath, route};

struct Lab {
    mirror: Mirror,
    sum: Sum,
    events: Vec<KernelEvent>,
}

impl Lab {
    /// Links 1, 2 and 3 are up.
    fn new() -> Self {
        let mut lab = Lab { mirror: Mirror::new(&[MAIN_TABLE]), sum: Sum::default(), events: Vec::new() };
        for index in 1..4 {
            lab.tell(&[link(16, 0, index, true, true)]);
        }
        lab
    }

    fn tell(&mut self, messages: &[Raw]) {
        let datagram: Vec<u8> = messages.iter().flat_map(|message| message.0.clone()).collect();
        self.events.clear();
        self.mirror.apply(&datagram, &mut self.events);
        self.sum.take(&self.events);
    }

    fn path(&self, prefix: &str) -> Option<KernelPath> {
        let prefix = match prefix.contains(':') {
            true => prefix.parse().map(crate::AnyPrefix::V6).unwrap(),
            false => prefix.parse().map(crate::AnyPrefix::V4).unwrap(),
        };
        self.sum.0.get(&prefix).map(|path| (**path).clone())
    }

    fn gateways(&self, prefix: &str) -> String {
        match self.path(prefix) {
            Some(KernelPath::Via(hops)) => {
                let hops = hops.iter().map(|hop| match hop.gateway {
                    Some(gateway) => format!("{gateway}@{}*{}", hop.index, hop.weight),
                    None => format!("@{}", hop.index),
                });
                hops.collect::<Vec<_>>().join(" ")
            }
            Some(other) => format!("{other:?}"),
            None => "-".into(),
        }
    }
}

#[test]
fn the_best_of_several_metrics_is_told() {
    let mut lab = Lab::new();
    let p = "10.9.0.0/16";
    lab.tell(&[hop(NEW, 0, p, 20, "10.0.0.2", 1)]);
    lab.tell(&[hop(NEW, 0, p, 10, "10.0.0.3", 1)]);
    assert_eq!(lab.gateways(p), "10.0.0.3@1*1");
    lab.tell(&[hop(NEW, 0, p, 30, "10.0.0.4", 1)]);
    assert_eq!(lab.events, vec![]);
    lab.tell(&[hop(NEW, REPLACE, p, 10, "10.0.0.5", 2)]);
    assert_eq!(lab.gateways(p), "10.0.0.5@2*1");
    lab.tell(&[hop(DEL, 0, p, 10, "10.0.0.5", 2)]);
    assert_eq!(lab.gateways(p), "10.0.0.2@1*1");
    lab.tell(&[hop(DEL, 0, p, 20, "10.0.0.2", 1), hop(DEL, 0, p, 30, "10.0.0.4", 1)]);
    assert_eq!(lab.gateways(p), "-");
    assert!(!lab.mirror.take_wants_dump());
    // Gone that was never there: no harm. Another than ours: something was missed.
    lab.tell(&[hop(DEL, 0, p, 20, "10.0.0.2", 1)]);
    assert!(!lab.mirror.take_wants_dump());
    lab.tell(&[hop(NEW, 0, p, 10, "10.0.0.3", 1), hop(DEL, 0, p, 10, "10.0.0.9", 1)]);
    assert!(lab.mirror.take_wants_dump());
}

#[test]
fn ipv4_routes_of_one_metric_keep_the_kernels_order() {
    let mut lab = Lab::new();
    let p = "10.9.0.0/16";
    lab.tell(&[hop(NEW, 0, p, 0, "10.0.0.2", 1), hop(NEW, APPEND, p, 0, "10.0.0.3", 1)]);
    assert_eq!(lab.gateways(p), "10.0.0.2@1*1");
    lab.tell(&[hop(NEW, 0, p, 0, "10.0.0.4", 1)]);
    assert_eq!(lab.gateways(p), "10.0.0.4@1*1");
    // The first of them is the one that is replaced.
    lab.tell(&[hop(NEW, REPLACE, p, 0, "10.0.0.5", 1)]);
    lab.tell(&[hop(DEL, 0, p, 0, "10.0.0.5", 1)]);
    assert_eq!(lab.gateways(p), "10.0.0.2@1*1");
    // Two of one path, told apart by the protocol that brought them.
    let mut other = hop(NEW, APPEND, p, 0, "10.0.0.2", 1);
    other.0[16 + 5] = 12;
    lab.tell(&[other.clone(), hop(DEL, 0, p, 0, "10.0.0.2", 1), hop(DEL, 0, p, 0, "10.0.0.3", 1)]);
    assert_eq!(lab.gateways(p), "10.0.0.2@1*1");
}

#[test]
fn ipv6_sets_lose_and_gain_members() {
    let mut lab = Lab::new();
    let p = "fd09::/32";
    lab.tell(&[hop(NEW, 0, p, 7, "fd00::2", 1)]);
    // The kernel tells the whole set, the new member first.
    lab.tell(&[route(NEW, APPEND, p, 7).with(9, &multipath(&[("fd01::2", 2, 1), ("fd00::2", 1, 1)]))]);
    assert_eq!(lab.gateways(p), "fd00::2@1*1 fd01::2@2*1");
    lab.tell(&[route(NEW, APPEND, p, 7).int(4, 3)]);
    lab.tell(&[hop(DEL, 0, p, 7, "fd00::2", 1)]);
    assert_eq!(lab.gateways(p), "fd01::2@2*1");
    // A replaced set is gone as a whole.
    lab.tell(&[route(NEW, REPLACE, p, 7).with(9, &multipath(&[("fd00::3", 1, 2), ("fd01::3", 2, 1)]))]);
    assert_eq!(lab.gateways(p), "fd00::3@1*2 fd01::3@2*1");
    lab.tell(&[route(DEL, 0, p, 7).with(9, &multipath(&[("fd01::3", 2, 1), ("fd00::3", 1, 2)]))]);
    assert_eq!(lab.gateways(p), "@3");
    lab.tell(&[route(DEL, 0, p, 7).int(4, 3)]);
    assert_eq!(lab.gateways(p), "-");
    // Default routes of router advertisements stand side by side, though they have gateways and one metric.
    let advertised = |kind, gateway| {
        let mut message = hop(kind, 0, "::/0", 1024, gateway, 1);
        message.0[16 + 5] = 9;
        message
    };
    lab.tell(&[advertised(NEW, "fe80::1"), advertised(NEW, "fe80::2")]);
    assert_eq!(lab.gateways("::/0"), "fe80::1@1*1");
    lab.tell(&[advertised(DEL, "fe80::1")]);
    assert_eq!(lab.gateways("::/0"), "fe80::2@1*1");
}

#[test]
fn routes_of_a_dead_link_go_in_the_order_of_the_messages() {
    let mut lab = Lab::new();
    let both =
        || route(NEW, 0, "10.2.0.0/16", 0).with(9, &multipath(&[("10.0.0.2", 1, 1), ("10.1.0.2", 2, 1)]));
    let v6 = || route(NEW, 0, "fd02::/32", 1).with(9, &multipath(&[("fd00::2", 1, 1), ("fd01::2", 2, 1)]));
    lab.tell(&[hop(NEW, 0, "10.1.0.0/16", 0, "10.0.0.2", 1), both(), v6()]);
    // Down, up, and one route back, all in one datagram.
    let again = [
        link(16, 0, 1, false, false),
        link(16, 0, 1, true, true),
        hop(NEW, 0, "10.4.0.0/16", 0, "10.0.0.2", 1),
    ];
    lab.tell(&again);
    assert_eq!(lab.gateways("10.1.0.0/16"), "-", "the link's return does not bring it back");
    assert_eq!(lab.gateways("10.4.0.0/16"), "10.0.0.2@1*1");
    assert_eq!(lab.gateways("10.2.0.0/16"), "10.0.0.2@1*1 10.1.0.2@2*1");
    assert!(lab.mirror.take_wants_dump());
    // Without a carrier the routes stay in the kernel and are of no use.
    lab.tell(&[link(16, 0, 1, true, false)]);
    assert_eq!(lab.gateways("10.4.0.0/16"), "-");
    assert_eq!(lab.gateways("10.2.0.0/16"), "10.1.0.2@2*1");
    assert!(!lab.mirror.take_wants_dump());
    lab.tell(&[link(16, 0, 1, true, true)]);
    assert_eq!(lab.gateways("10.4.0.0/16"), "10.0.0.2@1*1");
    // A bridge speaks of its port: that is not the link's end.
    lab.tell(&[link(17, 7, 1, true, true)]);
    assert_eq!(lab.events, vec![]);
    lab.tell(&[link(17, 0, 1, false, false)]);
    assert_eq!(lab.gateways("10.2.0.0/16"), "-", "IPv4 drops the set with a link of it");
    assert_eq!(lab.gateways("fd02::/32"), "fd01::2@2*1");
    assert!(
        lab.events.iter().any(|event| matches!(event, KernelEvent::Link { index: 1, removed: true, .. }))
    );
}

fn object(kind: u16, id: u32, gateway: &str, index: u32) -> Raw {
    Raw::new(kind, 0, &[2, 0, 0, 0, 0, 0, 0, 0]).int(1, id).ip(6, gateway).int(5, index)
}

fn group(id: u32, members: &[(u32, u16)]) -> Raw {
    let mut value = Vec::new();
    for &(member, weight) in members {
        let [low, high] = (weight - 1).to_le_bytes();
        value.extend(member.to_ne_bytes());
        value.extend([low, high, 0, 0]);
    }
    Raw::new(104, 0, &[0; 8]).int(1, id).with(2, &value)
}

#[test]
fn nexthop_objects_are_resolved_and_go_with_their_link() {
    let mut lab = Lab::new();
    let p = "10.9.0.0/16";
    lab.tell(&[object(104, 1, "10.0.0.2", 1), object(104, 2, "10.1.0.2", 2), group(9, &[(1, 1), (2, 300)])]);
    lab.tell(&[route(NEW, 0, p, 0).int(30, 9), route(NEW, 0, "10.8.0.0/16", 0).int(30, 1)]);
    assert_eq!(lab.gateways(p), "10.0.0.2@1*1 10.1.0.2@2*300");
    lab.tell(&[object(104, 1, "10.0.0.7", 1)]);
    assert_eq!(lab.gateways(p), "10.0.0.7@1*1 10.1.0.2@2*300");
    assert_eq!(lab.gateways("10.8.0.0/16"), "10.0.0.7@1*1");
    assert!(!lab.mirror.take_wants_dump());
    lab.tell(&[link(16, 0, 1, true, false)]);
    assert_eq!(lab.gateways(p), "10.1.0.2@2*300");
    assert_eq!(lab.gateways("10.8.0.0/16"), "-");
    // The object is gone for good.
    lab.tell(&[link(16, 0, 1, true, true)]);
    assert_eq!(lab.gateways(p), "10.1.0.2@2*300");
    assert_eq!(lab.gateways("10.8.0.0/16"), "-");
    assert!(lab.mirror.take_wants_dump());
    lab.tell(&[Raw::new(105, 0, &[0; 8]).int(1, 2)]);
    assert_eq!(lab.gateways(p), "-", "the group is empty");
    // Not yet known: the route waits for it. A group in itself leads nowhere.
    lab.tell(&[
        route(NEW, 0, p, 0).int(30, 5),
        group(6, &[(6, 1)]),
        route(NEW, 0, "10.7.0.0/16", 0).int(30, 6),
    ]);
    assert_eq!((lab.gateways(p), lab.gateways("10.7.0.0/16")), ("-".into(), "-".into()));
    lab.tell(&[object(104, 5, "10.1.0.5", 2)]);
    assert_eq!(lab.gateways(p), "10.1.0.5@2*1");
}

#[test]
fn a_dump_that_is_older_than_a_change_is_found_out() {
    let mut lab = Lab::new();
    let dumped = |lab: &mut Lab, raw: Raw| {
        let frame = decode::frames(&raw.0).next().unwrap().unwrap();
        lab.events.clear();
        let told = lab.mirror.frame(&frame, true, &mut lab.events);
        lab.sum.take(&lab.events);
        told
    };
    let of = |gateway| hop(NEW, 2, "10.9.0.0/16", 0, gateway, 1);
    lab.tell(&[hop(NEW, 0, "10.9.0.0/16", 0, "10.0.0.2", 1)]);
    let first = lab.mirror.begin_dump(Step::RoutesV4);
    // The kernel reads the route, removes it, tells so, and tells what it read.
    lab.tell(&[hop(DEL, 0, "10.9.0.0/16", 0, "10.0.0.2", 1)]);
    assert_eq!(dumped(&mut lab, of("10.0.0.2")), Told::Dumped(true));
    assert_eq!(lab.gateways("10.9.0.0/16"), "10.0.0.2@1*1", "a ghost");
    // Another dump; a change that it agrees with is none against it.
    let second = lab.mirror.begin_dump(Step::RoutesV4);
    lab.tell(&[hop(NEW, 0, "10.8.0.0/16", 0, "10.0.0.2", 1)]);
    assert_eq!(dumped(&mut lab, hop(NEW, 2, "10.8.0.0/16", 0, "10.0.0.2", 1)), Told::Dumped(false));
    let mut events = Vec::new();
    // Were both dumps taken together, the ghost would stay.
    let mut since = [0; 6];
    since[Step::RoutesV4 as usize] = second;
    assert!(first < second);
    lab.mirror.end_dump(&since, &mut events);
    lab.sum.take(&events);
    assert_eq!(
        (lab.gateways("10.9.0.0/16"), lab.gateways("10.8.0.0/16")),
        ("-".into(), "10.0.0.2@1*1".into())
    );
}

#[test]
fn what_only_the_kernel_can_do_is_said_so() {
    let mut lab = Lab::new();
    let mut kinds = Vec::new();
    for kind in 0..=12u8 {
        let mut message = route(NEW, 0, &format!("10.{kind}.0.0/16"), 0);
        message.0[16 + 7] = kind;
        lab.tell(&[message.int(4, 1)]);
        kinds.push(lab.gateways(&format!("10.{kind}.0.0/16")));
    }
    let expected = [
        "-",
        "@1",
        "Local",
        "-",
        "-",
        "-",
        "Blackhole",
        "Unreachable",
        "Prohibit",
        "Unsupported",
        "-",
        "-",
        "-",
    ];
    assert_eq!(kinds, expected);
    // A tunnel on the hop; an IPv6 gateway; a route for one TOS, one from the cache, one of another table.
    lab.tell(&[hop(NEW, 0, "10.20.0.0/16", 0, "10.0.0.2", 1).with(22, &[]).with(21, &[1, 0])]);
    assert_eq!(lab.gateways("10.20.0.0/16"), "Unsupported");
    let mut gateway = vec![10, 0];
    gateway.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    lab.tell(&[route(NEW, 0, "10.21.0.0/16", 0).with(18, &gateway).int(4, 2)]);
    assert_eq!(lab.gateways("10.21.0.0/16"), "fe80::1@2*1");
    let mut tos = hop(NEW, 0, "10.22.0.0/16", 0, "10.0.0.2", 1);
    tos.0[16 + 3] = 8;
    let mut cached = hop(NEW, 0, "10.23.0.0/16", 0, "10.0.0.2", 1);
    cached.0[16 + 9] = 2;
    let other = hop(NEW, 0, "10.24.0.0/16", 0, "10.0.0.2", 1).int(15, 70_000);
    let before = lab.mirror.stats.ignored;
    lab.tell(&[tos, cached, other]);
    assert_eq!(lab.events, vec![]);
    assert_eq!(lab.mirror.stats.ignored, before + 2);
}

#[test]
fn a_bad_message_costs_itself_alone() {
    let mut lab = Lab::new();
    let (good, after) =
        (hop(NEW, 0, "10.1.0.0/16", 0, "10.0.0.2", 1), hop(NEW, 0, "10.2.0.0/16", 0, "10.0.0.2", 1));
    let mut long = hop(NEW, 0, "10.3.0.0/16", 0, "10.0.0.2", 1);
    long.0[16 + 1] = 33;
    let short = Raw::new(NEW, 0, &[2, 0, 0, 0]);
    let odd = route(NEW, 0, "10.4.0.0/16", 0).with(5, &[1, 2, 3]);
    let stray = route(NEW, 0, "10.5.0.0/16", 0).with(9, &[200, 0, 0, 0, 0, 0, 0, 0]);
    let unknown = hop(NEW, 0, "10.6.0.0/16", 0, "10.0.0.2", 1).with(999, &[1, 2, 3]);
    lab.tell(&[good, long, short, odd, stray, unknown, after]);
    let told: Vec<_> = lab.sum.0.keys().map(ToString::to_string).collect();
    assert_eq!(told, ["10.1.0.0/16", "10.2.0.0/16", "10.6.0.0/16"]);
    let stats = &lab.mirror.stats;
    assert_eq!((stats.undecodable, stats.messages), (4, 10));
    assert_eq!(stats.last_undecodable, Some((NEW, "a hop whose length does not fit")));
    // A header that lies ends its datagram.
    let mut lie = hop(NEW, 0, "10.7.0.0/16", 0, "10.0.0.2", 1);
    lie.0[0] = 255;
    lab.tell(&[lie, hop(NEW, 0, "10.8.0.0/16", 0, "10.0.0.2", 1)]);
    assert_eq!(lab.mirror.stats.undecodable, 5);
    lab.tell(&[Raw(vec![1, 2, 3])]);
    assert_eq!((lab.mirror.stats.undecodable, lab.events.len()), (6, 0));
}

#[test]
fn paths_without_routes_are_forgotten() {
    let mut lab = Lab::new();
    for n in 0..10_000u32 {
        let gateway = std::net::Ipv4Addr::from(0x0A00_0000 + n).to_string();
        lab.tell(&[hop(NEW, REPLACE, "10.9.0.0/16", 0, &gateway, 1)]);
        assert_eq!(lab.path("10.9.0.0/16"), {
            let hop = Hop { index: 1, gateway: Some(gateway.parse().unwrap()), weight: 1 };
            Some(KernelPath::Via(vec![hop]))
        });
    }
    assert!(lab.mirror.paths_held() < 3000, "{}", lab.mirror.paths_held());
}
