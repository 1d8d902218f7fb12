//! Names that rules may use instead of numbers.

/// Protocols.
const PROTOCOLS: [(&str, u8); 13] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("udp", 17),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("ospf", 89),
    ("vrrp", 112),
    ("sctp", 132),
];

/// Services, as `/etc/services` has them.
const SERVICES: [(&str, u16); 36] = [
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("www", 80),
    ("kerberos", 88),
    ("pop3", 110),
    ("sunrpc", 111),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("imap", 143),
    ("snmp", 161),
    ("snmptrap", 162),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("microsoft-ds", 445),
    ("submissions", 465),
    ("isakmp", 500),
    ("syslog", 514),
    ("submission", 587),
    ("ldaps", 636),
    ("imaps", 993),
    ("pop3s", 995),
    ("openvpn", 1194),
    ("mysql", 3306),
    ("ms-wbt-server", 3389),
    ("ipsec-nat-t", 4500),
];

/// Types of ICMP, in pf's words.
const ICMP: [(&str, u8); 11] = [
    ("echorep", 0),
    ("unreach", 3),
    ("squench", 4),
    ("redir", 5),
    ("echoreq", 8),
    ("routeradv", 9),
    ("routersol", 10),
    ("timex", 11),
    ("paramprob", 12),
    ("timereq", 13),
    ("timerep", 14),
];

/// Types of ICMPv6, in pf's words.
const ICMP6: [(&str, u8); 11] = [
    ("unreach", 1),
    ("toobig", 2),
    ("timex", 3),
    ("paramprob", 4),
    ("echoreq", 128),
    ("echorep", 129),
    ("routersol", 133),
    ("routeradv", 134),
    ("neighbrsol", 135),
    ("neighbradv", 136),
    ("redir", 137),
];

fn find<T: Copy>(list: &[(&str, T)], name: &str) -> Option<T> {
    list.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

pub(super) fn protocol(name: &str) -> Option<u8> {
    find(&PROTOCOLS, name)
}

pub(super) fn service(name: &str) -> Option<u16> {
    find(&SERVICES, name)
}

pub(super) fn icmp(name: &str, is_v6: bool) -> Option<u8> {
    find(if is_v6 { &ICMP6 } else { &ICMP }, name)
}

/// The number of a protocol's name, or of a number.
pub fn protocol_number(name: &str) -> Option<u8> {
    protocol(name).or_else(|| name.parse().ok())
}

/// The name of a protocol, or its number.
pub fn protocol_name(number: u8) -> String {
    let known = PROTOCOLS.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}
