//! Access lists of real size: ClassBench's with the first matches that their traces state, and those of Stanford's backbone routers, each packet held to a reading
//! of the list line by line. `TIDEMILL_DATA` says where the data is.

#![allow(clippy::unwrap_used)] // a test may

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use tidemill_classify::Field;
use tidemill_classify::text::read_headers;
use tidemill_ip::{Interface, Interfaces};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::Random;
use tidemill_nf::filter::{Fate, Filter, FilterControl, FilterSection, Ways, settings};

fn data(test: &str) -> Option<PathBuf> {
    let data = std::env::var_os("TIDEMILL_DATA").map(|data| PathBuf::from(data).join("acl"));
    if data.is_none() {
        println!("skipped: {test} (TIDEMILL_DATA is not set)");
    }
    data
}

/// A filter with this rule file and another one beside it.
struct Lab {
    control: FilterControl,
    filter: Filter<u32, 2>,
}

impl Lab {
    fn new(rules: &str, name: &str, text: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("filter.rules"), rules).unwrap();
        std::fs::write(folder.path().join(name), text).unwrap();
        let interfaces = Interfaces::new(vec![Interface::of_port(0, "lan"), Interface::of_port(1, "wan")], 2);
        let path = Some(folder.path().join("filter.rules"));
        let section = FilterSection { rules: path, states: 1000, half_open: 100, ..FilterSection::default() };
        let control = FilterControl::new(&section, &interfaces, 1, &Domain::new()).unwrap();
        let (plan, _) = settings::check(&section).unwrap();
        let log = Arc::new(crossbeam_queue::ArrayQueue::new(1));
        Lab { filter: Filter::new(&plan, (0, 1), 5, log).unwrap(), control }
    }

    fn passes(&mut self, packet: &Packet) -> bool {
        let ways = Ways { from: 0, to: 1 };
        self.filter.judge_one(1000, self.control.rules(), ways, &packet.bytes()) == Fate::Passes
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Packet {
    source: u32,
    destination: u32,
    /// Of ICMP type and code.
    ports: (u16, u16),
    protocol: u8,
    flags: u8,
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let [from, to] = [self.ports.0, self.ports.1].map(u16::to_be_bytes);
        let body: Vec<u8> = match self.protocol {
            6 => [&from[..], &to, &[0; 8], &[0x50, self.flags, 0, 9], &[0; 4]].concat(),
            17 => [&from[..], &to, &[0, 8, 0, 0]].concat(),
            1 => vec![from[1], to[1], 0, 0, 0, 0, 0, 0],
            _ => vec![0; 8],
        };
        let mut ip = vec![0x45, 0, 0, 20 + body.len() as u8, 0, 0, 0, 0, 64, self.protocol, 0, 0];
        ip.extend(self.source.to_be_bytes());
        ip.extend(self.destination.to_be_bytes());
        tidemill_wire::ipv4::fill_checksum(&mut ip);
        [ip, body].concat()
    }
}

#[test]
fn classbenchs_first_matches_are_the_filters() {
    let Some(data) = data("classbenchs_first_matches_are_the_filters") else { return };
    let read = |name: &str| zstd::decode_all(&std::fs::read(data.join(name)).unwrap()[..]).unwrap();
    for (name, rules) in [
        ("wustl-acl1", 753),
        ("wustl-fw1", 270),
        ("wustl-ipc1", 1550),
        ("wustl-acl1_10K", 9603),
        ("wustl-fw1_10K", 9311),
        ("wustl-ipc1_10K", 9037),
    ] {
        let text = read(&format!("{name}.rules.zst"));
        let mut lab = Lab::new(
            "block all\nload \"set\" format classbench pass in\npass out all no state\n",
            "set",
            &text,
        );
        assert_eq!(lab.control.rule_list().count(), rules + 2, "{name}");
        let headers = read_headers(&read(&format!("{name}.trace.zst"))[..]).unwrap();
        let mut expected = vec![0; rules];
        let mut asked = 0;
        for header in headers.iter().step_by(headers.len() / 4000 + 1) {
            let field = |field| header.key.get(field);
            let ports = (field(Field::SourcePort) as u16, field(Field::DestinationPort) as u16);
            let packet = Packet {
                source: field(Field::Ipv4Source) as u32,
                destination: field(Field::Ipv4Destination) as u32,
                ports,
                protocol: field(Field::Protocol) as u8,
                flags: 2,
            };
            // What a filter drops unread, and what has no ports on a wire.
            if !matches!(packet.protocol, 6 | 17)
                || ports.0 == 0
                || ports.1 == 0
                || packet.source == packet.destination
            {
                continue;
            }
            let first = header.first_match.unwrap().unwrap();
            expected[first as usize] += 1;
            asked += 1;
            assert!(lab.passes(&packet), "{name}: {packet:?}");
        }
        let hits: Vec<u64> =
            lab.control.rule_list().skip(1).take(rules).map(|(_, hits)| hits.packets).collect();
        assert!(hits == expected && asked > 900, "{name}: {asked} headers");
    }
}

/// Whether a list permits a packet, read line by line and word by word, as its manual has it. `None`: a line of a form that this does not know.
fn permits(list: &[&str], packet: &Packet) -> Option<bool> {
    const NAMES: [(&str, u16); 19] = [
        ("www", 80),
        ("telnet", 23),
        ("smtp", 25),
        ("domain", 53),
        ("ftp", 21),
        ("ftp-data", 20),
        ("ident", 113),
        ("lpd", 515),
        ("cmd", 514),
        ("snmp", 161),
        ("tftp", 69),
        ("sunrpc", 111),
        ("time", 37),
        ("whois", 43),
        ("finger", 79),
        ("nntp", 119),
        ("netbios-ns", 137),
        ("netbios-dgm", 138),
        ("netbios-ss", 139),
    ];
    let number = |word: &str| {
        word.parse().ok().or_else(|| NAMES.iter().find(|(name, _)| *name == word).map(|(_, port)| *port))
    };
    for line in list {
        let mut words = line.split_whitespace();
        let permit = match words.next()? {
            "remark" => continue,
            "permit" => true,
            "deny" => false,
            _ => return None,
        };
        let mut words = words.collect::<Vec<_>>().into_iter().peekable();
        let standard =
            words.peek().is_some_and(|word| *word == "any" || word.contains('.') || *word == "host");
        let mut fits = true;
        if !standard {
            fits = match words.next()? {
                "ip" => true,
                "tcp" => packet.protocol == 6,
                "udp" => packet.protocol == 17,
                "icmp" => packet.protocol == 1,
                word => packet.protocol == word.parse::<u8>().ok()?,
            };
        }
        for (address, port) in [(packet.source, packet.ports.0), (packet.destination, packet.ports.1)] {
            match words.next() {
                None if standard => break,
                None => return None,
                Some("any") => {}
                Some("host") => fits &= words.next()?.parse() == Ok(Ipv4Addr::from(address)),
                Some(text) => {
                    let bits: u32 = text.parse::<Ipv4Addr>().ok()?.into();
                    let wildcard = match standard {
                        true => words.next().map_or(Some(0), |w| Some(w.parse::<Ipv4Addr>().ok()?.into()))?,
                        false => words.next()?.parse::<Ipv4Addr>().ok()?.into(),
                    };
                    fits &= (address ^ bits) & !wildcard == 0;
                }
            }
            match words.peek().copied() {
                Some("eq") => {
                    words.next();
                    fits &= port == number(words.next()?)?;
                }
                Some("gt") => {
                    words.next();
                    fits &= port > number(words.next()?)?;
                }
                Some("range") => {
                    words.next();
                    let (first, last) = (number(words.next()?)?, number(words.next()?)?);
                    fits &= (first..=last).contains(&port);
                }
                _ => {}
            }
        }
        match words.next() {
            None | Some("log") => {}
            Some("established") => fits &= packet.flags & 0x14 != 0,
            Some(_) => return None,
        }
        if fits {
            return Some(permit);
        }
    }
    Some(false)
}

/// Every list of every configuration: packets near the lines' addresses and ports.
#[test]
fn the_lists_of_real_routers_mean_what_a_reading_of_them_says() {
    let Some(data) = data("the_lists_of_real_routers_mean_what_a_reading_of_them_says") else { return };
    let folder = data.join("real/stanford-cisco");
    let (mut lists, mut lines, mut seen) = (0, 0, [0_u32; 2]);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let numbered = text.lines().filter_map(|line| line.strip_prefix("access-list ")?.split(' ').next());
        let named = text.lines().filter_map(|line| line.strip_prefix("ip access-list ")?.split(' ').nth(1));
        let names: BTreeSet<&str> = numbered.chain(named).collect();
        for name in names {
            let head = format!("access-list {name} ");
            let mut list: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(&head[..])).collect();
            let begins =
                |line: &&str| line.starts_with("ip access-list ") && line.ends_with(&format!(" {name}"));
            list.extend(
                text.lines()
                    .skip_while(|line| !begins(line))
                    .skip(1)
                    .take_while(|line| line.starts_with(' ')),
            );
            let rules = format!("load \"router\" format cisco acl \"{name}\" in\npass out all no state\n");
            let mut lab = Lab::new(&rules, "router", text.as_bytes());
            let numbers = |is: &dyn Fn(&str) -> Option<u32>| -> Vec<u32> {
                list.iter().flat_map(|line| line.split_whitespace()).filter_map(is).collect()
            };
            let addresses = numbers(&|word| Some(word.parse::<Ipv4Addr>().ok()?.into()));
            let ports = numbers(&|word| word.parse::<u16>().ok().map(u32::from));
            let mut random = Random::new(name.len() as u64 + lines as u64);
            let pick = |random: &mut Random, from: &[u32]| match from.len() as u64 {
                0 => random.bits() as u32,
                len => from[(random.bits() % len) as usize],
            };
            for _ in 0..400 {
                let spread = [0, 1, 0xff, 0x1000, 0xffff, 0x00ff_ffff][(random.bits() % 6) as usize];
                let address =
                    |random: &mut Random| pick(random, &addresses) ^ (random.bits() as u32 & spread);
                let (source, destination) = (address(&mut random), address(&mut random));
                let near = |random: &mut Random, port: u32| {
                    (port.wrapping_add((random.bits() % 3) as u32).wrapping_sub(1) as u16).max(1)
                };
                let port = |random: &mut Random| match random.bits() % 3 {
                    0 => [80, 25, 53, 21, 137, 139, 515][(random.bits() % 7) as usize],
                    1 => random.bits() as u16 | 1,
                    _ => {
                        let port = pick(random, &ports);
                        near(random, port)
                    }
                };
                let ports = (port(&mut random), port(&mut random));
                let protocol = [6, 6, 17, 1, 47][(random.bits() % 5) as usize];
                let packet = Packet {
                    source,
                    destination,
                    // An echo, which may be asked; of protocols without ports none.
                    ports: match protocol {
                        6 | 17 => ports,
                        1 => (8, 0),
                        _ => (0, 0),
                    },
                    protocol,
                    flags: if protocol == 6 { [2, 0x10, 0x12, 4][(random.bits() % 4) as usize] } else { 0 },
                };
                if source == destination {
                    continue;
                }
                let expected = permits(&list, &packet)
                    .unwrap_or_else(|| panic!("{}: list {name} has a line of another form", path.display()));
                assert_eq!(lab.passes(&packet), expected, "{}: list {name}: {packet:?}", path.display());
                seen[usize::from(expected)] += 1;
            }
            lists += 1;
            lines += list.iter().filter(|line| !line.trim_start().starts_with("remark")).count();
        }
    }
    println!("{lists} lists of {lines} lines; denied, permitted: {seen:?}");
    assert!(
        lists > 50 && lines > 1000 && seen.iter().all(|count| *count > 1000),
        "{lists}, {lines}, {seen:?}"
    );
}
