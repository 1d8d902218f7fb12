//! Access lists of Cisco routers' configurations: of a whole configuration the list of one name or number, strictly; all else is passed over.
//!
//! ```text
//! access-list 101 permit tcp any host 192.0.2.1 eq www        a line of list 101
//! ip access-list extended inACL                               a list, with its lines below it, each behind blanks
//!  10 deny ip 10.0.0.0 0.255.255.255 any log
//!  permit tcp any any established
//!
//! standard:  [ N ] permit|deny ENDS [ log ]
//! extended:  [ N ] permit|deny PROTOCOL ENDS [ PORTS ] ENDS [ PORTS | ICMP ] [ established ] [ log ]
//! ENDS:      any | host ADDRESS | ADDRESS WILDCARD            standard ones also ADDRESS alone
//! PORTS:     eq PORT ... | neq PORT | gt PORT | lt PORT | range PORT PORT
//! ```
//!
//! Bits that are set in a wildcard are not looked at, wherever they are. The first line that matches decides; what no line matches is denied.
//! Sources: Cisco's "Configuring IP Access Lists" and its command reference.

use super::RuleError;
use super::lex::short;
use crate::plain::is_plain;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use tidemill_classify::key::IPV4;
use tidemill_classify::{Field, Match, Side};

/// A line of an access list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclLine {
    /// Its number in the file, from 1.
    pub line: u32,
    /// As it is written.
    pub text: String,
    /// Whether its packets are permitted.
    pub permits: bool,
    /// Whether they are logged.
    pub log: bool,
    /// Whether it is about connections that are there: segments with ACK or RST.
    pub established: bool,
    /// What packets it is about: any of these.
    pub matches: Vec<Match>,
}

/// Protocols by Cisco's names; of `ip` all.
const PROTOCOLS: [(&str, Option<u8>); 13] = [
    ("ip", None),
    ("icmp", Some(1)),
    ("igmp", Some(2)),
    ("ipinip", Some(4)),
    ("tcp", Some(6)),
    ("udp", Some(17)),
    ("gre", Some(47)),
    ("esp", Some(50)),
    ("ahp", Some(51)),
    ("eigrp", Some(88)),
    ("ospf", Some(89)),
    ("pim", Some(103)),
    ("pcp", Some(108)),
];

/// Ports by Cisco's names, of TCP and UDP.
const PORTS: [(&str, u16); 55] = [
    ("bgp", 179),
    ("biff", 512),
    ("bootpc", 68),
    ("bootps", 67),
    ("chargen", 19),
    ("cmd", 514),
    ("daytime", 13),
    ("discard", 9),
    ("dnsix", 195),
    ("domain", 53),
    ("drip", 3949),
    ("echo", 7),
    ("exec", 512),
    ("finger", 79),
    ("ftp", 21),
    ("ftp-data", 20),
    ("gopher", 70),
    ("hostname", 101),
    ("ident", 113),
    ("irc", 194),
    ("isakmp", 500),
    ("klogin", 543),
    ("kshell", 544),
    ("login", 513),
    ("lpd", 515),
    ("mobile-ip", 434),
    ("nameserver", 42),
    ("netbios-dgm", 138),
    ("netbios-ns", 137),
    ("netbios-ss", 139),
    ("nntp", 119),
    ("non500-isakmp", 4500),
    ("ntp", 123),
    ("pim-auto-rp", 496),
    ("pop2", 109),
    ("pop3", 110),
    ("rip", 520),
    ("smtp", 25),
    ("snmp", 161),
    ("snmptrap", 162),
    ("sunrpc", 111),
    ("syslog", 514),
    ("tacacs", 49),
    ("tacacs-ds", 65),
    ("talk", 517),
    ("telnet", 23),
    ("tftp", 69),
    ("time", 37),
    ("uucp", 540),
    ("who", 513),
    ("whois", 43),
    ("www", 80),
    ("http", 80),
    ("https", 443),
    ("xdmcp", 177),
];

/// Messages of ICMP by Cisco's names: type, and code if there is one.
const MESSAGES: [(&str, u8, Option<u8>); 17] = [
    ("administratively-prohibited", 3, Some(13)),
    ("echo", 8, None),
    ("echo-reply", 0, None),
    ("host-unknown", 3, Some(7)),
    ("host-unreachable", 3, Some(1)),
    ("net-unreachable", 3, Some(0)),
    ("packet-too-big", 3, Some(4)),
    ("parameter-problem", 12, None),
    ("port-unreachable", 3, Some(3)),
    ("protocol-unreachable", 3, Some(2)),
    ("redirect", 5, None),
    ("source-quench", 4, None),
    ("time-exceeded", 11, None),
    ("timestamp-reply", 14, None),
    ("timestamp-request", 13, None),
    ("ttl-exceeded", 11, Some(0)),
    ("unreachable", 3, None),
];

/// What lines may have and these may not.
const REFUSED: [&str; 9] =
    ["tos", "precedence", "dscp", "time-range", "fragments", "option", "ttl", "reflect", "match-all"];

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ACK: u128 = 0x10;
const RST: u128 = 0x04;

/// Words of a line that are not read yet.
struct Words<'a> {
    line: &'a str,
    number: u32,
    rest: std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>,
}

impl<'a> Words<'a> {
    fn new(line: &'a str, number: u32) -> Self {
        Words { line, number, rest: line.split_ascii_whitespace().peekable() }
    }

    fn peek(&mut self) -> Option<&'a str> {
        self.rest.peek().copied()
    }

    /// Takes this word, if it is next.
    fn take(&mut self, word: &str) -> bool {
        self.rest.next_if(|next| *next == word).is_some()
    }

    /// An error at the next word, or at the end of the line.
    fn error(&mut self, what: impl Into<String>) -> RuleError {
        let column = match self.peek() {
            Some(word) => word.as_ptr() as usize - self.line.as_ptr() as usize,
            None => self.line.trim_end().len(),
        };
        RuleError::new(self.number, column as u32 + 1, what)
    }

    /// An error that the next word is none of what must be here.
    fn wrong(&mut self, what: &str) -> RuleError {
        let shown = self.peek().map_or("the end of the line".to_owned(), |word| format!("`{}`", short(word)));
        self.error(format!("{what} must be here, not {shown}"))
    }

    /// The next word as something.
    fn read<T>(&mut self, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, RuleError> {
        let value = self.peek().and_then(read).ok_or_else(|| self.wrong(what))?;
        self.rest.next();
        Ok(value)
    }
}

/// Reads the access list of this name or number, whether standard or extended.
///
/// # Errors
/// There is none, or one of its lines is wrong: with line and column.
pub fn read_acl(text: &str, name: &str) -> Result<Vec<AclLine>, RuleError> {
    let mut list: Vec<AclLine> = Vec::new();
    let (mut found, mut names) = (false, Vec::new());
    // Of the list whose lines follow: whether it is this one, and extended.
    let mut below: Option<(bool, bool)> = None;
    let mut last = 0_u32;
    for (line, number) in text.lines().zip(1_u32..) {
        let mut words = Words::new(line, number);
        if line.starts_with([' ', '\t']) {
            if let Some((true, extended)) = below {
                // A number before it says its place, which is where it is.
                if let Some(place) = words.peek().and_then(|word| word.parse().ok()) {
                    if place <= last {
                        return Err(
                            words.error(format!("line {place} of the list is not behind line {last}"))
                        );
                    }
                    last = place;
                    words.rest.next();
                }
                list.extend(entry(&mut words, extended)?);
            }
            continue;
        }
        below = None;
        match words.peek() {
            Some("access-list") => {
                words.rest.next();
                let Some(of) = words.rest.next() else { continue };
                names.push(of);
                if of == name {
                    found = true;
                    let extended = is_extended(of).ok_or_else(|| {
                        let at = of.as_ptr() as usize - line.as_ptr() as usize;
                        RuleError::new(number, at as u32 + 1, "standard lists are 1 to 99 and 1300 to 1999, extended ones 100 to 199 and 2000 to 2699")
                    })?;
                    list.extend(entry(&mut words, extended)?);
                }
            }
            Some("ip") => {
                words.rest.next();
                if !words.take("access-list") {
                    continue;
                }
                let sort = words.rest.next();
                let (Some(sort @ ("standard" | "extended")), Some(of)) = (sort, words.rest.next()) else {
                    continue;
                };
                names.push(of);
                if of == name && found {
                    return Err(RuleError::new(
                        number,
                        1,
                        format!("there is an access list {} above", short(name)),
                    ));
                }
                found |= of == name;
                below = Some((of == name, sort == "extended"));
            }
            _ => {}
        }
    }
    if found {
        return Ok(list);
    }
    names.sort_unstable();
    names.dedup();
    let there =
        if names.is_empty() { "there is none".to_owned() } else { format!("there are {}", names.join(", ")) };
    let there: String = there.chars().map(|c| if is_plain(c) { c } else { '?' }).take(200).collect();
    Err(RuleError::new(1, 1, format!("there is no access list {}: {there}", short(name))))
}

/// Whether the list of a number is an extended one.
fn is_extended(name: &str) -> Option<bool> {
    match name.parse::<u16>().ok()? {
        1..=99 | 1300..=1999 => Some(false),
        100..=199 | 2000..=2699 => Some(true),
        _ => None,
    }
}

/// One line behind its list's name; `None`: a remark.
fn entry(words: &mut Words<'_>, extended: bool) -> Result<Option<AclLine>, RuleError> {
    if words.take("remark") {
        return Ok(None);
    }
    let permits = words.read("`permit`, `deny` or `remark`", |word| match word {
        "permit" => Some(true),
        "deny" => Some(false),
        _ => None,
    })?;
    let base = Match::any().exact(Field::EtherType, IPV4.into());
    let mut entry = AclLine {
        line: words.number,
        text: plain(words.line),
        permits,
        log: false,
        established: false,
        matches: Vec::new(),
    };
    if extended {
        entry.matches = extended_matches(words, base, &mut entry.established)?;
    } else {
        let address = ends(words, false)?;
        entry.matches = vec![base.masked(Field::Ipv4Source, address.0, address.1)];
    }
    if words.take("log") || words.take("log-input") {
        entry.log = true;
    }
    match words.peek() {
        None => Ok(Some(entry)),
        Some(word) if REFUSED.contains(&word) => Err(words.error(format!("`{word}` is not supported here"))),
        Some(word) => Err(words.error(format!("`{}` has no place here", short(word)))),
    }
}

fn extended_matches(
    words: &mut Words<'_>,
    base: Match,
    established: &mut bool,
) -> Result<Vec<Match>, RuleError> {
    let protocol = words.read("a protocol (`ip`, `tcp`, `udp`, `icmp`, ... or a number)", |word| {
        let named = PROTOCOLS.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
        named.or_else(|| word.parse().ok().map(Some))
    })?;
    let base = protocol.map_or(base, |protocol| base.exact(Field::Protocol, protocol.into()));
    let has_ports = matches!(protocol, Some(TCP | UDP));
    let source = ends(words, true)?;
    let from = if has_ports { ports(words)? } else { Vec::new() };
    let destination = ends(words, true)?;
    let to = if has_ports { ports(words)? } else { Vec::new() };
    let base = base.masked(Field::Ipv4Source, source.0, source.1).masked(
        Field::Ipv4Destination,
        destination.0,
        destination.1,
    );
    if protocol == Some(ICMP) {
        return Ok(vec![message(words, base)?]);
    }
    let with = |matches: Vec<Match>, ranges: &[RangeInclusive<u16>], side: Side| -> Vec<Match> {
        match ranges.is_empty() {
            true => matches,
            false => matches
                .iter()
                .flat_map(|one| ranges.iter().map(move |range| one.port_range(side, range.clone())))
                .collect(),
        }
    };
    let matches = with(with(vec![base], &from, Side::Source), &to, Side::Destination);
    if protocol != Some(TCP) || !words.take("established") {
        return Ok(matches);
    }
    *established = true;
    let flags = |flag: u128| matches.iter().map(move |one| one.masked(Field::TcpFlags, flag, flag));
    Ok(flags(ACK).chain(flags(RST)).collect())
}

/// An end: the bits of an address that are looked at, and which these are.
fn ends(words: &mut Words<'_>, extended: bool) -> Result<(u128, u128), RuleError> {
    if words.take("any") {
        return Ok((0, 0));
    }
    let address = |word: &str| word.parse::<Ipv4Addr>().ok().map(u32::from);
    if words.take("host") {
        return Ok((words.read("an IPv4 address", address)?.into(), u32::MAX.into()));
    }
    let bits = words.read("`any`, `host` and an address, or an address and its wildcard", address)?;
    let is_last = words.peek().is_none_or(|word| word.starts_with("log"));
    let wildcard =
        if !extended && is_last { 0 } else { words.read("a wildcard, as in `0.0.0.255`,", address)? };
    Ok(((bits & !wildcard).into(), (!wildcard).into()))
}

fn port(word: &str) -> Option<u16> {
    PORTS.iter().find(|(name, _)| *name == word).map(|(_, port)| *port).or_else(|| word.parse().ok())
}

/// Ports of an end; none: all.
fn ports(words: &mut Words<'_>) -> Result<Vec<RangeInclusive<u16>>, RuleError> {
    const PORT: &str = "a port (a number, or a name that Cisco has)";
    let Some(how @ ("eq" | "neq" | "gt" | "lt" | "range")) = words.peek() else { return Ok(Vec::new()) };
    words.rest.next();
    let first = words.read(PORT, port)?;
    let none = |words: &mut Words<'_>| Err(words.error(format!("no port is `{how} {first}`")));
    Ok(match how {
        "eq" => {
            let mut list = vec![first..=first];
            while let Some(more) = words.peek().and_then(port) {
                words.rest.next();
                list.push(more..=more);
            }
            list
        }
        "neq" => {
            [first.checked_sub(1).map(|last| 0..=last), first.checked_add(1).map(|next| next..=u16::MAX)]
                .into_iter()
                .flatten()
                .collect()
        }
        "gt" => match first.checked_add(1) {
            Some(next) => vec![next..=u16::MAX],
            None => return none(words),
        },
        "lt" => match first.checked_sub(1) {
            Some(last) => vec![0..=last],
            None => return none(words),
        },
        _ => {
            let last = words.read(PORT, port)?;
            if last < first {
                return Err(words.error(format!("`range {first} {last}` ends before it begins")));
            }
            vec![first..=last]
        }
    })
}

/// A message of ICMP, if one is named.
fn message(words: &mut Words<'_>, base: Match) -> Result<Match, RuleError> {
    let Some(word) = words.peek() else { return Ok(base) };
    let (kind, code) = match MESSAGES.iter().find(|(name, ..)| *name == word) {
        Some((_, kind, code)) => (*kind, *code),
        None => match word.parse() {
            Ok(kind) => (kind, None),
            // Options follow, or what is none.
            Err(_) => return Ok(base),
        },
    };
    words.rest.next();
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    let code = match words.peek().and_then(|word| word.parse().ok()).filter(|_| is_number) {
        Some(code) => {
            words.rest.next();
            Some(code)
        }
        None => code,
    };
    let base = base.exact(Field::SourcePort, u128::from(kind));
    Ok(code.map_or(base, |code: u8| base.exact(Field::DestinationPort, code.into())))
}

fn plain(line: &str) -> String {
    let text: String = line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().map(|c| if is_plain(c) { c } else { '?' }).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_classify::Key;

    const TEXT: &str = "!\nhostname x\naccess-list 5 permit 192.0.2.1\naccess-list 5 deny 10.0.0.0 0.0.255.255 log\n\
        access-list 101 remark nothing\naccess-list 101 permit tcp any range 1 9 host 192.0.2.1 eq www 443\n\
        access-list 101 permit tcp 10.0.16.0 0.0.16.255 any established\naccess-list 101 deny udp any gt netbios-ss any neq 7\n\
        access-list 101 permit icmp any any echo\naccess-list 101 permit icmp any any 3 4 log-input\naccess-list 101 permit 47 any any\n\
        ip access-list extended in\n 10 permit ip any any\n 20 deny tcp any any lt 80\ninterface Vlan1\n ip access-group in in\n";

    fn list(name: &str) -> Vec<AclLine> {
        read_acl(TEXT, name).unwrap()
    }

    fn first(list: &[AclLine], key: &Key) -> Option<u32> {
        list.iter().find(|line| line.matches.iter().any(|one| one.matches(key))).map(|line| line.line)
    }

    #[test]
    fn lists_are_read_and_mean_what_they_say() {
        let standard = list("5");
        assert_eq!(
            standard.iter().map(|line| (line.permits, line.log)).collect::<Vec<_>>(),
            [(true, false), (false, true)]
        );
        let of = |source: u32| first(&standard, &Key::ipv4(source, 9, 1, 2, 17));
        assert_eq!([of(0xc000_0201), of(0x0a00_ffff), of(0x0a01_0000)], [Some(3), Some(4), None]);
        let all = list("101");
        let tcp = |from: u32, to: u32, ports: (u16, u16), flags: u128| {
            let key = Key::ipv4(from, to, ports.0, ports.1, 6).with(Field::TcpFlags, flags);
            first(&all, &key)
        };
        let server = 0xc000_0201;
        assert_eq!([80, 443, 81].map(|port| tcp(1, server, (9, port), 2)), [Some(6), Some(6), None]);
        assert_eq!(tcp(1, server, (10, 80), 2), None);
        // Bit 4 of the third byte is not looked at.
        for (from, flags, line) in [
            (0x0a00_1001, 0x10, Some(7)),
            (0x0a00_0001, 4, Some(7)),
            (0x0a00_2001, 0x10, None),
            (0x0a00_1001, 2, None),
        ] {
            assert_eq!(tcp(from, 1, (9, 9), flags), line, "{from:#x}");
        }
        let other = |ports: (u16, u16), protocol| first(&all, &Key::ipv4(1, 2, ports.0, ports.1, protocol));
        assert_eq!([(140, 8), (139, 8), (140, 7)].map(|ports| other(ports, 17)), [Some(8), None, None]);
        assert_eq!([(8, 0), (3, 4), (3, 3)].map(|ports| other(ports, 1)), [Some(9), Some(10), None]);
        assert_eq!(other((0, 0), 47), Some(11));
        assert!(all[4].log && all[1].established);
        assert_eq!(list("in").iter().map(|line| line.line).collect::<Vec<_>>(), [13, 14]);
        assert_eq!(list("in")[1].text, "20 deny tcp any any lt 80");
    }

    #[test]
    fn every_mistake_is_named_with_its_place() {
        let said =
            |text: &str| read_acl(text, "101").map_or_else(|error| error.to_string(), |_| "nothing".into());
        for (line, says) in [
            ("permit", "line 1, column 23: a protocol"),
            ("allow ip any any", "line 1, column 17: `permit`, `deny` or `remark` must be here, not `allow`"),
            ("permit tcp any any eq", "line 1, column 38: a port"),
            (
                "permit tcp any any eq nonsense",
                "line 1, column 39: a port (a number, or a name that Cisco has) must be here, not `nonsense`",
            ),
            ("permit tcp any any range 9 8", "line 1, column 45: `range 9 8` ends"),
            ("permit tcp any any gt 65535", "line 1, column 44: no port is `gt 65535`"),
            ("permit ip any 10.0.0.0", "line 1, column 39: a wildcard"),
            ("permit ip any host ten", "line 1, column 36: an IPv4 address must be here"),
            ("permit ip any any eq 80", "line 1, column 35: `eq` has no place here"),
            ("permit ip any any dscp ef", "line 1, column 35: `dscp` is not supported"),
            ("permit udp any any established", "line 1, column 36: `established` has no place"),
            ("permit 256 any any", "line 1, column 24: a protocol"),
        ] {
            let said = said(&format!("access-list 101 {line}\n"));
            assert!(said.starts_with(says), "{line}: {said}");
        }
        let none = read_acl(TEXT, "nobody").unwrap_err().to_string();
        assert_eq!(none, "line 1, column 1: there is no access list nobody: there are 101, 5, in");
        let order = read_acl("ip access-list standard a\n 20 permit any\n 10 deny any\n", "a").unwrap_err();
        assert_eq!(order.to_string(), "line 3, column 2: line 10 of the list is not behind line 20");
        assert!(
            read_acl("access-list 700 permit any\n", "700").unwrap_err().to_string().contains("1300 to 1999")
        );
        assert!(said("").contains("there is none"));
    }
}
