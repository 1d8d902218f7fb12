use super::*;
use crate::nat::NatControl;
use tidemill_ip::Interface;
use tidemill_lookup::qsbr::Domain;

fn interfaces() -> Interfaces {
    let mut list: Vec<Interface> = ["lan", "wan", "dmz"]
        .iter()
        .enumerate()
        .map(|(n, name)| Interface::of_port(n as u16, name))
        .collect();
    list[0].v4.push(("10.7.0.1".parse().unwrap(), "10.7.0.0/24".parse().unwrap()));
    list[1].v4.push(("192.0.2.1".parse().unwrap(), "192.0.2.0/24".parse().unwrap()));
    list[1].v6.push(("2001:db8::1".parse().unwrap(), "2001:db8::/64".parse().unwrap()));
    Interfaces::new(list, 3)
}

const BASE: &str = "inside = [\"lan\"]\noutside = [\"wan\"]\npool = [\"192.0.2.1\"]\n";

fn said(text: &str) -> String {
    let section: NatSection = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    match check(&section, &interfaces()) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

/// What a configuration is said to ask for is what its tables have: but for the pool's ports, and buckets that are not whole.
#[test]
fn tables_take_what_is_said() {
    use crate::nat::translate::{Nat4, Nat6};
    let share = crate::nat::state::Share { worker: 0, workers: 1 };
    let near = |bytes: usize, said: f64| {
        let bytes = (bytes - 3 * 8192) as f64;
        assert!((bytes / said - 1.0).abs() < 0.01, "{bytes} bytes, said: {said}");
    };
    for filtering in ["address-dependent", "endpoint-independent"] {
        let section = |pool: &str| -> NatSection {
            let text = format!(
                "inside = [\"lan\"]\noutside = [\"wan\"]\npool = [{pool}]\nmappings = 20000\nsessions = 50000\nfiltering = \"{filtering}\""
            );
            toml::from_str(&text).unwrap()
        };
        let (one, other) = (section("\"192.0.2.1\""), section("\"2001:db8::1\""));
        let v4 = check(&one, &interfaces()).unwrap().v4.unwrap();
        near(Nat4::new(v4, share, 7).unwrap().state().bytes(), table_bytes(&one).iter().sum());
        let v6 = check(&other, &interfaces()).unwrap().v6.unwrap();
        near(Nat6::new(v6, share, 7).unwrap().state().bytes(), table_bytes(&other).iter().sum());
        let both = table_bytes(&section("\"192.0.2.1\", \"2001:db8::1\""));
        for ((both, one), other) in both.iter().zip(table_bytes(&one)).zip(table_bytes(&other)) {
            assert!((both - one - other).abs() < 1.0);
        }
    }
}

#[test]
fn every_mistake_is_named_with_its_key() {
    for (more, what) in [
        ("udp_s = 119", "nat.udp_s: 119: give 120 (RFC 4787, REQ-5) to 31536000"),
        ("tcp_established_s = 60", "nat.tcp_established_s: 60: give 7440"),
        ("tcp_transitory_s = 60", "nat.tcp_transitory_s: 60: give 240"),
        ("icmp_s = 10", "nat.icmp_s: 10: give 60"),
        ("fragment_s = 0", "nat.fragment_s: 0: give 1 to 60"),
        ("handover_s = 0", "nat.handover_s: 0: give 1 to 3600"),
        ("fragments = 100000", "nat.fragments: 100000: give at most 65536"),
        ("mappings = 0", "nat.mappings: 0: give 1 to 2^28"),
        ("sessions = 0", "nat.sessions: 0: give 1 to 2^30"),
        ("host_mappings = 0", "nat.host_mappings: 0: a host could have no session"),
        ("host_sessions = 0", "nat.host_sessions: 0: a host could have no session"),
        ("source_sessions = 0", "nat.source_sessions: 0: nobody could be answered"),
        ("ports = \"0-9\"", "nat.ports: \"0-9\": give \"first-last\", of 1 to 65535"),
        ("ports = \"9-8\"", "nat.ports: \"9-8\""),
        ("ports = \"80\"", "nat.ports: \"80\""),
    ] {
        let said = said(&format!("{BASE}{more}"));
        assert!(said.starts_with(what), "{more}: {said}");
    }
    for (text, what) in [
        (
            "outside = [\"wan\"]\npool = [\"192.0.2.1\"]",
            "nat.inside: is empty: name at least one interface of \"lan\", \"wan\", \"dmz\"",
        ),
        (
            "inside = [\"lna\"]\noutside = [\"wan\"]\npool = [\"192.0.2.1\"]",
            "nat.inside[0]: there is no interface \"lna\"; there are \"lan\"",
        ),
        (
            "inside = [\"lan\"]\noutside = [\"wan\", \"lan\"]\npool = [\"192.0.2.1\"]",
            "nat.outside: interface \"lan\" is inside, too",
        ),
        (
            "inside = [\"lan\", \"dmz\", \"lan\"]\noutside = [\"wan\"]\npool = [\"192.0.2.1\"]",
            "nat.inside[2]: \"lan\" is there twice: leave one out",
        ),
        (
            "inside = [\"lan\"]\noutside = [\"wan\", \"wan\"]\npool = [\"192.0.2.1\"]",
            "nat.outside[1]: \"wan\" is there twice",
        ),
        ("inside = [\"lan\"]\noutside = [\"wan\"]", "nat.pool: is empty"),
    ] {
        assert!(said(text).starts_with(what), "{text}: {}", said(text));
    }
    for (pool, what) in [
        ("\"192.0.2\"", "nat.pool[0]: \"192.0.2\": give an address, a range"),
        ("\"192.0.2.1-2001:db8::1\"", "nat.pool[0]: "),
        ("\"192.0.2.9-192.0.2.1\"", "nat.pool[0]: \"192.0.2.9-192.0.2.1\": 192.0.2.9 is behind 192.0.2.1"),
        ("\"192.0.2.1\", \"192.0.2.0/30\"", "nat.pool: 192.0.2.1 is there twice"),
        ("\"2001:db8::/64\"", "nat.pool[0]: \"2001:db8::/64\": more than 4096 addresses"),
        ("\"127.0.0.1\"", "nat.pool[0]: \"127.0.0.1\": a loopback address cannot be"),
        ("\"224.0.0.1\"", "nat.pool[0]: \"224.0.0.1\": a multicast address"),
        ("\"fe80::1\"", "nat.pool[0]: \"fe80::1\": a link-local address"),
        ("\"169.254.1.1\"", "nat.pool[0]: \"169.254.1.1\": a link-local address"),
        ("\"::ffff:192.0.2.1\"", "nat.pool[0]: \"::ffff:192.0.2.1\": an IPv4-mapped address cannot be"),
    ] {
        let text = format!("inside = [\"lan\"]\noutside = [\"wan\"]\npool = [{pool}]");
        assert!(said(&text).starts_with(what), "{pool}: {}", said(&text));
    }
}

#[test]
fn static_mappings_that_cannot_be() {
    let one = |protocol: &str, external: &str, internal: &str| {
        let protocol =
            if protocol.is_empty() { String::new() } else { format!("protocol = \"{protocol}\"\n") };
        format!("[[static]]\n{protocol}external = \"{external}\"\ninternal = \"{internal}\"\n")
    };
    let web = one("tcp", "192.0.2.1:80", "10.0.0.5:8080");
    for (more, what) in [
        (
            one("tcp", "192.0.2.1", "10.0.0.5:80"),
            "nat.static[0].external: \"192.0.2.1\": give an address and a port",
        ),
        (one("tcp", "192.0.2.1:0", "10.0.0.5:80"), "nat.static[0].external: "),
        (
            one("", "192.0.2.1:80", "10.0.0.5"),
            "nat.static[0].external: \"192.0.2.1:80\": give an address; with a port also",
        ),
        (
            one("udp", "192.0.2.1:80", "[fd00::5]:80"),
            "nat.static[0].internal: fd00::5: external is of the other family",
        ),
        (one("tcp", "192.0.2.7:80", "10.0.0.5:80"), "nat.static[0].external: 192.0.2.7: is not in nat.pool"),
        (one("tcp", "192.0.2.1:80", "192.0.2.1:81"), "nat.static[0].internal: 192.0.2.1: is in nat.pool"),
        (
            one("tcp", "192.0.2.1:80", "0.0.0.0:80"),
            "nat.static[0].internal: 0.0.0.0: the unspecified address is no host's",
        ),
        (one("", "192.0.2.1", "224.0.0.1"), "nat.static[0].internal: 224.0.0.1: a multicast address is no"),
        (
            one("tcp", "192.0.2.1:80", "192.0.2.7:80"),
            "nat.static[0].internal: 192.0.2.7: is on the link of interface \"wan\", which is outside: give",
        ),
        (
            one("", "192.0.2.1", "10.7.0.1"),
            "nat.static[0].internal: 10.7.0.1: is interface \"lan\"'s own: give an inside host's",
        ),
        (
            format!("{web}{}", one("tcp", "192.0.2.1:80", "10.0.0.6:80")),
            "nat.static[1].external: is what another",
        ),
        (
            format!("{web}{}", one("tcp", "192.0.2.1:81", "10.0.0.5:8080")),
            "nat.static[1].internal: is what another",
        ),
        (format!("{web}{}", one("", "192.0.2.1", "10.0.0.9")), "nat.static[1].external: is what another"),
        (format!("{}{web}", one("", "192.0.2.1", "10.0.0.9")), "nat.static[1].external: is what another"),
        (format!("{0}{0}", one("", "192.0.2.1", "10.0.0.9")), "nat.static[1].external: is what another"),
    ] {
        let said = said(&format!("{BASE}{more}"));
        assert!(said.starts_with(what), "{more}: {said}");
    }
    let fine = format!("{BASE}{web}{}", one("udp", "192.0.2.1:80", "10.0.0.5:8080"));
    assert_eq!(said(&fine), "");
    assert_eq!(
        said(&format!("mappings = 1\n{fine}")),
        "nat.mappings: 1: there are 2 static mappings: give more"
    );
}

#[test]
fn deterministic_ports_have_to_suffice() {
    let with = |inside: &str, ports: u32, more: &str| {
        said(&format!("{BASE}{more}[deterministic]\ninside = \"{inside}\"\nports_per_host = {ports}\n"))
    };
    assert_eq!(with("10.0.0.0/27", 2016, ""), "");
    for (inside, ports, more, what) in [
        (
            "10.0.0.0/26",
            2016,
            "",
            "nat.deterministic.ports_per_host: 2016: 64 hosts of 10.0.0.0/26 need 2 addresses with 32 hosts each, and nat.pool has 1",
        ),
        ("10.0.0.0/33", 2016, "", "nat.deterministic.inside: \"10.0.0.0/33\""),
        ("ten", 2016, "", "nat.deterministic.inside: \"ten\""),
        ("10.0.0.0/7", 2016, "", "nat.deterministic.inside: "),
        ("10.0.0.0/27", 7, "", "nat.deterministic.ports_per_host: 7: give an even number"),
        ("10.0.0.0/32", 100, "ports = \"1000-1050\"\n", "nat.deterministic.ports_per_host: 100: 1 hosts"),
        ("10.0.0.0/32", 2, "ports = \"65535-65535\"\n", "nat.deterministic.ports_per_host: 2: 1 hosts"),
        (
            "10.0.0.0/32",
            100,
            "[[static]]\nexternal = \"192.0.2.1\"\ninternal = \"10.1.1.1\"\n",
            "nat.deterministic.inside: a whole address",
        ),
    ] {
        let said = with(inside, ports, more);
        assert!(said.starts_with(what), "{inside} {ports}: {said}");
    }
}

/// Each of these would have been good, and those outside would be nobody whom one could talk to.
#[test]
fn deterministic_hosts_are_inside() {
    let base = BASE.replace("\"192.0.2.1\"", "\"203.0.113.0/24\", \"2001:db8:1::/120\"");
    let with = |inside: &str| {
        let section =
            format!("[deterministic]\nhost_length6 = 64\ninside = \"{inside}\"\nports_per_host = 2\n");
        said(&format!("{base}{section}"))
    };
    for inside in ["10.7.0.0/24", "10.7.0.0/28", "100.64.0.0/12", "192.0.0.0/16", "2001:db8:2::/60"] {
        assert_eq!(with(inside), "", "a link outside may lie within");
    }
    for (inside, what) in [
        ("127.0.0.0/16", "127.0.0.0/16: a loopback address is no host's"),
        ("224.0.0.0/16", "224.0.0.0/16: a multicast address is no host's"),
        ("0.0.0.0/16", "0.0.0.0/16: the unspecified address is no host's"),
        ("0.1.0.0/16", "0.1.0.0/16: a reserved address is no host's"),
        ("250.0.0.0/16", "250.0.0.0/16: a reserved address is no host's"),
        ("fe80::/60", "fe80::/60: a link-local address is no host's"),
        ("169.254.0.0/16", "169.254.0.0/16: a link-local address is no host's"),
        ("ff02::/60", "ff02::/60: a multicast address is no host's"),
        ("::/60", "::/60: the unspecified address is no host's"),
        ("203.0.0.0/16", "203.0.0.0/16: has 203.0.113.0 of nat.pool, which is outside"),
        ("2001:db8:1::/60", "2001:db8:1::/60: has 2001:db8:1:: of nat.pool, which is outside"),
        ("192.0.2.0/24", "192.0.2.0 to 192.0.2.255 is on the link of interface \"wan\", which is outside"),
        (
            "2001:db8::/64",
            "2001:db8:: to 2001:db8::ffff:ffff:ffff:ffff is on the link of interface \"wan\", which is",
        ),
    ] {
        let said = with(inside);
        assert!(said.starts_with(&format!("nat.deterministic.inside: {what}")), "{inside}: {said}");
        assert!(said.ends_with(": give inside hosts' prefix"), "{said}");
    }
}

/// A part of a wide link outside may be behind a router inside, which a route says.
#[test]
fn deterministic_hosts_on_a_part_of_a_link_outside_are_remarked() {
    for (inside, on) in [
        ("192.0.2.8/30", "192.0.2.8 to 192.0.2.11 is on the link of interface \"wan\", which is outside"),
        (
            "2001:db8::40/122",
            "2001:db8::40 to 2001:db8::7f is on the link of interface \"wan\", which is outside",
        ),
        ("10.7.0.0/28", ""),
        ("100.64.0.0/28", ""),
    ] {
        let base = BASE.replace("\"192.0.2.1\"", "\"203.0.113.0/24\", \"2001:db8:1::/120\"");
        let computed = format!("inside = \"{inside}\"\nhost_length6 = 128\nports_per_host = 2\n");
        let section: NatSection = toml::from_str(&format!("{base}[deterministic]\n{computed}")).unwrap();
        let control = NatControl::check(&section, &interfaces(), &Domain::new()).unwrap();
        let remarks = control.remarks(&interfaces());
        let said = remarks.iter().find(|remark| remark.contains("which is outside"));
        let wanted = format!("nat.deterministic.inside: {on}: who is there is not answered: have a route");
        assert_eq!(said.is_some(), !on.is_empty(), "{inside}: {remarks:?}");
        assert!(said.is_none_or(|said| said.starts_with(&wanted)), "{said:?}");
    }
}

#[test]
fn deterministic_ports_of_both_families() {
    let base = BASE.replace("\"192.0.2.1\"", "\"192.0.2.1\", \"2001:db8:1::/126\"");
    let with = |rest: &str| toml::from_str::<NatSection>(&format!("{base}{rest}")).unwrap();
    let of = |rest: &str| check(&with(rest), &interfaces()).map(|checked| (checked.v4, checked.v6));
    let both = "[deterministic]\ninside = [\"10.0.0.0/27\", \"fd00::/121\"]\nports_per_host = 2016\n";
    let (v4, v6) = of(both).unwrap();
    let (v4, v6) = (v4.unwrap().deterministic.unwrap(), v6.unwrap().deterministic.unwrap());
    assert_eq!((v4.hosts, v4.own_bits, v6.hosts, v6.own_bits), (32, 0, 128, 0));
    let host = 0xfd00 << 112 | 100;
    let (at, ports) = v6.of_host(host).unwrap();
    assert_eq!((at, v6.host_of(at, *ports.start()), v6.host_of(at, *ports.end())), (3, Some(100), Some(100)));
    assert_eq!((v6.address_of(100), v6.of_host(0xfd00 << 112 | 128)), (host, None));
    // Of customers' networks.
    let links = "[deterministic]\ninside = \"fd00::/57\"\nports_per_host = 2016\nhost_length6 = 64\n";
    let rule = of(links).unwrap().1.unwrap().deterministic.unwrap();
    let (one, other) = (0xfd00 << 112 | 5 << 64 | 1, 0xfd00 << 112 | 5 << 64 | 0xffff << 40);
    assert_eq!((rule.hosts, rule.of_host(one)), (128, rule.of_host(other)));
    assert_eq!(
        (rule.block_of(other), rule.address_of(5)),
        (0xfd00 << 112 | 5 << 64, 0xfd00 << 112 | 5 << 64)
    );
    assert_ne!(rule.of_host(one), rule.of_host(one + (1 << 64)));
    // One family alone leaves the other one as it is.
    assert!(of(links).unwrap().0.unwrap().deterministic.is_none());
    for (rest, what) in [
        ("inside = []", "nat.deterministic.inside: is empty"),
        (
            "inside = [\"10.0.0.0/27\", \"10.1.0.0/27\"]",
            "nat.deterministic.inside: \"10.1.0.0/27\": is the second",
        ),
        ("inside = \"fd00::/64\"", "nat.deterministic.inside: fd00::/64: give a prefix of length 104 to 128"),
        ("host_length6 = 48\ninside = \"fd00::/40\"", "nat.deterministic.host_length6: 48: give 64 to 128"),
        (
            "host_length6 = 64\ninside = \"fd00::/120\"",
            "nat.deterministic.inside: fd00::/120: give a prefix of length 40",
        ),
        (
            "inside = \"fd00::/120\"",
            "nat.deterministic.ports_per_host: 2016: 256 hosts of fd00::/120 need 8 addresses",
        ),
    ] {
        let said =
            match check(&with(&format!("[deterministic]\nports_per_host = 2016\n{rest}\n")), &interfaces()) {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
        assert!(said.starts_with(what), "{rest}: {said}");
    }
    let no_pool = format!("{BASE}[deterministic]\ninside = \"fd00::/121\"\nports_per_host = 2016\n");
    assert!(said(&no_pool).starts_with("nat.deterministic.inside: \"fd00::/121\": nat.pool has no address"));
}

#[test]
fn a_static_port_is_in_nobody_elses_block() {
    let with = |external: &str, internal: &str| {
        said(&format!(
            "{BASE}[[static]]\nprotocol = \"tcp\"\nexternal = \"192.0.2.1:{external}\"\ninternal = \"{internal}:80\"\n\
             [deterministic]\ninside = \"10.0.0.0/27\"\nports_per_host = 2016\n"
        ))
    };
    assert_eq!(with("443", "10.0.0.5"), "", "below 1024 they are nobody's");
    assert_eq!(with("1025", "10.0.0.0"), "", "its own");
    let said = with("1025", "10.0.0.5");
    let what = "nat.deterministic.inside: 192.0.2.1, port 1025, which is static for 10.0.0.5, is among the ports of 10.0.0.0";
    assert!(said.starts_with(what), "{said}");
}

#[test]
fn who_cannot_come_from_outside() {
    let mut list: Vec<Interface> = ["lan", "wan", "dmz", "red"]
        .iter()
        .enumerate()
        .map(|(n, name)| Interface::of_port(n as u16, name))
        .collect();
    list[0].v4.push(("10.0.0.1".parse().unwrap(), "10.0.0.0/16".parse().unwrap()));
    list[0].v6.push(("fd00::1".parse().unwrap(), "fd00::/64".parse().unwrap()));
    // A link outside within one inside, as a route is within another.
    list[1].v4.push(("10.0.9.1".parse().unwrap(), "10.0.9.0/24".parse().unwrap()));
    list[2].v4.push(("203.0.113.1".parse().unwrap(), "203.0.113.0/24".parse().unwrap()));
    list[3].v4.push(("198.51.100.1".parse().unwrap(), "198.51.100.0/24".parse().unwrap()));
    list[3].vrf = 7;
    let text = "inside = [\"lan\"]\noutside = [\"wan\"]\npool = [\"192.0.2.0/27\", \"2001:db8::1\"]\n\
        [[static]]\nprotocol = \"udp\"\nexternal = \"192.0.2.1:53\"\ninternal = \"172.16.0.5:53\"\n\
        [deterministic]\ninside = [\"100.64.0.0/22\", \"fd01::/120\"]\nports_per_host = 252\n";
    let rules = check(&toml::from_str(text).unwrap(), &Interfaces::new(list, 4)).unwrap().rules;
    let near = |text: &str| match text.parse::<IpAddr>().unwrap() {
        IpAddr::V4(a) => is_near(&rules.near4, u32::from(a).into()),
        IpAddr::V6(a) => is_near(&rules.near6, a.into()),
    };
    for text in [
        "10.0.0.0",
        "10.0.8.255",
        "10.0.9.1",
        "10.0.10.0",
        "10.0.255.255",
        "203.0.113.1",
        "172.16.0.5",
        "100.64.0.0",
        "100.64.3.255",
        "fd00::ffff",
        "fd01::ff",
    ] {
        assert!(near(text), "{text}");
    }
    for text in [
        "9.255.255.255",
        "10.0.9.0",
        "10.0.9.2",
        "10.0.9.255",
        "10.1.0.0",
        "203.0.113.2",
        "198.51.100.1",
        "172.16.0.4",
        "172.16.0.6",
        "100.63.255.255",
        "100.64.4.0",
        "255.255.255.255",
        "fd00:0:0:1::1",
        "fd01::100",
        "::",
    ] {
        assert!(!near(text), "{text}");
    }
    assert!(!is_near(&[], 7));
}

#[test]
fn a_nat_is_of_one_vrf() {
    let of = |vrfs: [u16; 3]| {
        let names = ["lan", "red", "wan"].iter().zip(vrfs).enumerate();
        let list: Vec<Interface> =
            names.map(|(n, (name, vrf))| Interface { vrf, ..Interface::of_port(n as u16, name) }).collect();
        let text = "inside = [\"lan\", \"red\"]\noutside = [\"wan\"]\npool = [\"192.0.2.1\"]";
        match check(&toml::from_str(text).unwrap(), &Interfaces::new(list, 3)) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!((of([0, 0, 0]), of([2, 2, 2])), (String::new(), String::new()));
    assert!(of([1, 2, 1]).starts_with("nat.inside: interfaces \"lan\" and \"red\" are of two VRFs"));
    assert!(of([1, 1, 0]).starts_with("nat.outside: interfaces \"lan\" and \"wan\" are of two VRFs"));
}

#[test]
fn the_pool_is_none_of_the_kernels() {
    let mut list: Vec<Interface> =
        ["lan", "wan"].iter().enumerate().map(|(n, name)| Interface::of_port(n as u16, name)).collect();
    list[1].v4.push(("192.0.2.1".parse().unwrap(), "192.0.2.0/24".parse().unwrap()));
    list[1].owner = Owner::Kernel;
    let refused = check(&toml::from_str(BASE).unwrap(), &Interfaces::new(list, 2)).err().unwrap();
    assert!(
        refused.to_string().starts_with("nat.pool: 192.0.2.1 is the kernel's, of interface \"wan\""),
        "{refused}"
    );
}

#[test]
fn the_pool_knows_who_has_its_addresses_besides() {
    let text = "inside = [\"lan\"]\noutside = [\"wan\"]\npool = [\"192.0.2.1-192.0.2.2\", \"2001:db8::1\"]";
    let checked = check(&toml::from_str(text).unwrap(), &interfaces()).unwrap();
    assert_eq!(checked.rules.owners4, [Whose::Ours, Whose::Pool]);
    assert_eq!(checked.rules.owners6, [Whose::Ours]);
    assert!(checked.rules.is_inside(0) && checked.rules.is_outside(1) && !checked.rules.is_inside(2));
    assert!(!checked.rules.is_outside(2) && !checked.rules.is_inside(99));
}
