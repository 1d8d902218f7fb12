use super::*;
use tidemill_ip::Interface;

fn interfaces() -> Interfaces {
    let mut list: Vec<Interface> = ["lan", "wan", "dmz"]
        .iter()
        .enumerate()
        .map(|(n, name)| Interface::of_port(n as u16, name))
        .collect();
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

#[test]
fn every_mistake_is_named_with_its_key() {
    for (more, what) in [
        ("udp_s = 119", "nat.udp_s: 119: give 120 (RFC 4787, REQ-5) to 31536000"),
        ("tcp_established_s = 60", "nat.tcp_established_s: 60: give 7440"),
        ("tcp_transitory_s = 60", "nat.tcp_transitory_s: 60: give 240"),
        ("icmp_s = 10", "nat.icmp_s: 10: give 60"),
        ("fragment_s = 0", "nat.fragment_s: 0: give 1 to 60"),
        ("fragments = 100000", "nat.fragments: 100000: give at most 65536"),
        ("mappings = 0", "nat.mappings: 0: give 1 to 2^28"),
        ("sessions = 0", "nat.sessions: 0: give 1 to 2^30"),
        ("host_mappings = 0", "nat.host_mappings: 0: a host could have no session"),
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
        ("10.0.0.0/7", 2016, "", "nat.deterministic.inside: "),
        ("10.0.0.0/27", 7, "", "nat.deterministic.ports_per_host: 7: give an even number"),
        ("10.0.0.0/32", 100, "ports = \"1000-1050\"\n", "nat.deterministic.ports_per_host: 100: 1 hosts"),
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
