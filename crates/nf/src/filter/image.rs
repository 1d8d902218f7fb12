//! Connections as bytes, so that a restart or another box goes on with them.
//!
//! It is a [table image](tidemill_lookup::image) of the kind `filter-states`: versioned, checksummed as a whole, and validated beyond the checksum, so that
//! no bytes whatsoever make a connection that cannot be.
//!
//! ```text
//! interfaces   their names, a line each; a connection says by number which it uses
//! states4      80 bytes each, rising      states6    104 bytes each, rising
//! tables       those that commands have filled, as text (`image/tables.rs`); left out where there is none
//!
//! the key: both ends, protocol, VRF                                2 words (IPv6: 5)
//! what is left of its life, and what else is known of it           8 words, as in the table (`connection.rs`) without its place among those that wait
//! ```
//!
//! Clocks are not in it: what is left of a life is. Nor are rules: whoever takes connections over asks his own, as he would of their first packets. What
//! nobody has answered is not in it either: it may come again. Nor is it said whether a connection was picked up or taken over, as far as whoever takes it over has to open its
//! windows anyway.

mod tables;

use crate::filter::connection::{Connection, Kind, NO_RULE, Words};
use crate::filter::half::NONE;
use crate::filter::net::Net;
use crate::filter::sets::AddressSet;
use crate::filter::tcp::Tcp;
use std::sync::Arc;
use tidemill_flow::flowtable::FlowReader;
use tidemill_flow::key::Key;
use tidemill_lookup::image::{Image, ImageBuilder, ImageError};

/// The kind of these images.
pub const KIND: &str = "filter-states";
const VERSION: u32 = 1;
const INTERFACES: &str = "interfaces";
const SECTION4: &str = "states4";
const SECTION6: &str = "states6";
const TABLES: &str = "tables";
/// Words of a connection that are kept: all but the last.
const KEPT: usize = size_of::<Words>() / 8 - 1;
/// The longest life that a configuration can give, milliseconds.
const LONGEST_MS: u64 = 30 * 86_400_000;

/// A connection, to be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved<const W: usize> {
    pub(crate) key: Key<W>,
    /// Until when is how long yet; rules are nobody's.
    pub(crate) connection: Connection,
}

/// What a filter has, to be taken over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connections {
    /// Names of interfaces.
    pub interfaces: Vec<String>,
    /// IPv4's, rising.
    pub v4: Vec<Saved<2>>,
    /// IPv6's.
    pub v6: Vec<Saved<5>>,
    /// Tables of which the rule file says nothing: name, addresses.
    pub tables: Vec<(String, Arc<AddressSet>)>,
}

/// What was taken over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Connections that go on.
    pub connections: usize,
    /// Tables that have in them what they had.
    pub tables: usize,
    /// Connections that the rules do not allow, whose interfaces are not there, or that are more than there is room for; tables that are not there, or of which the rule file says what is in them.
    pub left_out: usize,
}

impl Connections {
    /// As bytes. What is there twice (it was read while packets flowed) is written once.
    pub fn encode(mut self) -> Vec<u8> {
        tidy(&mut self.v4);
        tidy(&mut self.v6);
        let image = ImageBuilder::new(KIND, VERSION, 32)
            .section(INTERFACES, self.interfaces.join("\n").into_bytes())
            .section(SECTION4, write(&self.v4))
            .section(SECTION6, write(&self.v6));
        match self.tables.is_empty() {
            true => image.finish(),
            false => image.section(TABLES, tables::write(&self.tables)).finish(),
        }
    }

    /// From bytes.
    ///
    /// # Errors
    /// Where they are no such image, or say what cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        let image = Image::parse(bytes)?;
        image.expect(KIND, VERSION)?;
        let names = std::str::from_utf8(image.section(INTERFACES)?)
            .map_err(|error| image.content(INTERFACES, error.valid_up_to(), "this is no UTF-8"))?;
        let interfaces: Vec<String> = names.lines().map(str::to_owned).collect();
        let (v4, v6) = (
            read::<u32, 2>(&image, SECTION4, interfaces.len())?,
            read::<u128, 5>(&image, SECTION6, interfaces.len())?,
        );
        let tables = match image.sections().any(|name| name == TABLES) {
            true => image.section(TABLES)?,
            false => &[],
        };
        let tables = tables::read(tables).map_err(|(at, what)| image.content(TABLES, at, what))?;
        Ok(Connections { interfaces, v4, v6, tables })
    }
}

fn tidy<const W: usize>(list: &mut Vec<Saved<W>>) {
    list.sort_by_key(|saved| saved.key);
    list.dedup_by_key(|saved| saved.key);
}

fn write<const W: usize>(list: &[Saved<W>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(list.len() * record(W));
    for Saved { key, connection } in list {
        for word in key.0.iter().chain(connection.pack().iter().take(KEPT)) {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
    }
    bytes
}

const fn record(words: usize) -> usize {
    (words + KEPT) * 8
}

fn read<A: Net<W>, const W: usize>(
    image: &Image<'_>,
    section: &'static str,
    interfaces: usize,
) -> Result<Vec<Saved<W>>, ImageError> {
    let bytes = image.section(section)?;
    let size = record(W);
    if !bytes.len().is_multiple_of(size) {
        let what = format!("{} bytes are no whole number of connections of {size} bytes", bytes.len());
        return Err(image.content(section, 0, what));
    }
    let mut list: Vec<Saved<W>> = Vec::with_capacity(bytes.len() / size);
    for (n, bytes) in bytes.chunks_exact(size).enumerate() {
        let wrong = |what: &str| image.content(section, n * size, format!("connection {n}: {what}"));
        let saved = one(bytes);
        check::<A, W>(&saved, interfaces).map_err(wrong)?;
        if bytes != write(&[saved]) {
            return Err(wrong("flags that there are not"));
        }
        if list.last().is_some_and(|before| before.key >= saved.key) {
            return Err(wrong("is not behind the one before"));
        }
        list.push(saved);
    }
    Ok(list)
}

fn one<const W: usize>(bytes: &[u8]) -> Saved<W> {
    let mut words =
        bytes.chunks_exact(8).map(|eight| eight.first_chunk().map_or(0, |eight| u64::from_ne_bytes(*eight)));
    let key = Key(std::array::from_fn(|_| words.next().unwrap_or(0)));
    let mut packed: Words = [NONE.into(); KEPT + 1];
    packed.iter_mut().take(KEPT).for_each(|word| *word = words.next().unwrap_or(0));
    Saved { key, connection: Connection::unpack(&packed) }
}

/// Whether it can be, of so many interfaces.
fn check<A: Net<W>, const W: usize>(saved: &Saved<W>, interfaces: usize) -> Result<(), &'static str> {
    let Saved { key, connection } = saved;
    let ends = A::of_key(key);
    if A::key(&ends) != *key {
        return Err("a key that there is not");
    }
    if !(1..=LONGEST_MS).contains(&connection.until_ms) {
        return Err("a life that is over, or longer than a month");
    }
    if connection.version != 0 || connection.rules != [NO_RULE; 2] {
        return Err("rules that nobody has");
    }
    let tcp = &connection.tcp;
    let is_answered = match Kind::of(ends.protocol) {
        Kind::Tcp => tcp.is_sound() && (tcp.is_established() || tcp.is_over()),
        _ => connection.answered && *tcp == Tcp::default(),
    };
    if !is_answered || connection.waits() || connection.kept == [false; 2] {
        return Err("a state that cannot be");
    }
    match connection.interfaces.iter().all(|number| usize::from(*number) < interfaces) {
        true => Ok(()),
        false => Err("an interface without a name"),
    }
}

/// A connection as it is to be taken over; `None` of one that is over, or that waits for an answer. A worker may be writing it meanwhile: what its words do not say together
/// is left out.
fn save<A: Net<W>, const W: usize>(
    now_ms: u64,
    interfaces: usize,
    key: &Key<W>,
    words: &Words,
) -> Option<Saved<W>> {
    let mut connection = Connection::unpack(words);
    // A packet that came after `now_ms` may have given it a little more than there can be.
    connection.until_ms = connection.until_ms.saturating_sub(now_ms).min(LONGEST_MS);
    connection.version = 0;
    connection.rules = [NO_RULE; 2];
    connection.tcp = connection.tcp.to_keep();
    let saved = Saved { key: *key, connection };
    check::<A, W>(&saved, interfaces).is_ok().then_some(saved)
}

/// Reads all connections beside the workers, and beside the control side: a large table takes a while.
pub struct Exporter {
    pub(crate) interfaces: Vec<String>,
    pub(crate) v4: Vec<FlowReader<2, Words>>,
    pub(crate) v6: Vec<FlowReader<5, Words>>,
    pub(crate) tables: Vec<(String, Arc<AddressSet>)>,
}

impl Exporter {
    /// All connections that live and were answered, and tables, as an [image](crate::filter::image) that another filter, or this one when it starts again, goes on with.
    pub fn export(&self, now_ms: u64) -> Vec<u8> {
        let (interfaces, tables) = (self.interfaces.clone(), self.tables.clone());
        let (v4, v6) = (
            saved::<u32, 2>(&self.v4, now_ms, interfaces.len()),
            saved::<u128, 5>(&self.v6, now_ms, interfaces.len()),
        );
        Connections { interfaces, v4, v6, tables }.encode()
    }
}

fn saved<A: Net<W>, const W: usize>(
    readers: &[FlowReader<W, Words>],
    now_ms: u64,
    interfaces: usize,
) -> Vec<Saved<W>> {
    let mut list = Vec::new();
    for reader in readers {
        // What an insertion moves may be missed by one round, hardly by two.
        for _ in 0..2 {
            let mut bucket = 0;
            loop {
                bucket = reader.scan(bucket, 64, |key, flow| {
                    list.extend(save::<A, W>(now_ms, interfaces, key, &flow.state));
                });
                if bucket == 0 {
                    break;
                }
            }
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::control::Half;
    use crate::filter::tcp::{Segment, flag};
    use crate::filter::text::read_network;
    use crate::filter::{Fate, FilterControl, FilterError, FilterSection, Ways};
    use std::net::Ipv4Addr;
    use tidemill_ip::{Interface, Interfaces};
    use tidemill_lookup::qsbr::Domain;
    use tidemill_wire::{Protocol, ipv4};

    /// Number of an address, and port.
    type End = (u32, u16);

    const RULES: &str = "block all\npass in on lan\npass out on wan\n";
    const OUTWARD: Ways = Ways { from: 0, to: 1 };
    const INWARD: Ways = Ways { from: 1, to: 0 };

    fn control(workers: usize, names: [&str; 2], rules: &str, secret: u128) -> FilterControl {
        sized(100, workers, names, rules, secret)
    }

    /// One with room for so many connections.
    fn sized(states: usize, workers: usize, names: [&str; 2], rules: &str, secret: u128) -> FilterControl {
        in_vrf(0, states, workers, names, rules, secret)
    }

    /// The same with both interfaces in a VRF.
    fn in_vrf(
        vrf: u16,
        states: usize,
        workers: usize,
        names: [&str; 2],
        rules: &str,
        secret: u128,
    ) -> FilterControl {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules");
        std::fs::write(&path, rules).unwrap();
        let mut list = vec![Interface::of_port(0, names[0]), Interface::of_port(1, names[1])];
        list.iter_mut().for_each(|interface| interface.vrf = vrf);
        let section = FilterSection { rules: Some(path), states, half_open: 50, ..FilterSection::default() };
        FilterControl::with_secret(&section, &Interfaces::new(list, 2), workers, &Domain::new(), secret)
            .unwrap()
    }

    fn udp(from: (u8, u16), to: (u8, u16)) -> Vec<u8> {
        datagram4((from.0.into(), from.1), (to.0.into(), to.1))
    }

    /// From a host by its number and a port to another one.
    fn datagram4(from: (u32, u16), to: (u32, u16)) -> Vec<u8> {
        let mut bytes = vec![0; 28];
        let [source, destination] = [from.0, to.0].map(|host| Ipv4Addr::from(0x0a00_0000 + host));
        ipv4::Repr::new(source, destination, Protocol::UDP, 8).emit(&mut bytes).unwrap();
        ports(&mut bytes[20..], from.1, to.1);
        bytes
    }

    /// The same of IPv6, where each host has a link of its own.
    fn datagram6(from: (u32, u16), to: (u32, u16)) -> Vec<u8> {
        let mut bytes = vec![0; 48];
        bytes[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 8, 17, 64]);
        for (at, host) in [(8, from.0), (24, to.0)] {
            bytes[at..at + 4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
            bytes[at + 4..at + 8].copy_from_slice(&host.to_be_bytes());
            bytes[at + 15] = 1;
        }
        ports(&mut bytes[40..], from.1, to.1);
        bytes
    }

    fn ports(udp: &mut [u8], from: u16, to: u16) {
        udp[..2].copy_from_slice(&from.to_be_bytes());
        udp[2..4].copy_from_slice(&to.to_be_bytes());
        udp[5] = 8;
    }

    /// What becomes of a packet at the worker that it belongs to.
    fn judge(control: &FilterControl, now_ms: u64, ways: Ways, ip: &[u8]) -> Fate {
        let (seats, rules) = (control.v4.seats(), control.rules());
        let mut seats = seats.lock().unwrap();
        let first = &mut seats[0].as_mut().unwrap().filter;
        first.read(rules, std::iter::once((ways, ip)));
        let worker = first.owner(0, ip);
        seats[worker].as_mut().unwrap().filter.judge_one(now_ms, rules, ways, ip)
    }

    #[test]
    fn another_filter_goes_on_with_what_was_answered_and_is_allowed() {
        let before = control(2, ["lan", "wan"], RULES, 5);
        let (asks, answers, other) = (udp((1, 7), (9, 53)), udp((9, 53), (1, 7)), udp((9, 53), (1, 8)));
        assert_eq!(judge(&before, 1000, OUTWARD, &asks), Fate::Passes);
        assert_eq!(judge(&before, 1000, INWARD, &answers), Fate::Passes);
        // Nobody has answered this one.
        assert_eq!(judge(&before, 1000, OUTWARD, &udp((1, 8), (9, 53))), Fate::Passes);
        let image = before.exporter().export(2000);
        assert_eq!(Connections::decode(&image).unwrap().encode(), image);
        for workers in [1, 3] {
            // Another clock, other numbers of interfaces, another secret.
            let mut after = control(workers, ["wan", "lan"], RULES, 9);
            assert!(judge(&after, 70_000, OUTWARD, &answers) != Fate::Passes);
            assert_eq!(after.import(70_000, &image).unwrap(), Taken { connections: 1, ..Taken::default() });
            assert_eq!(judge(&after, 70_000, OUTWARD, &answers), Fate::Passes);
            assert!(judge(&after, 70_000, OUTWARD, &other) != Fate::Passes);
            // What is there is not taken twice, and it ends: 120 seconds after the last packet.
            assert_eq!(after.import(70_000, &image).unwrap(), Taken { left_out: 1, ..Taken::default() });
            assert!(judge(&after, 190_000, OUTWARD, &answers) != Fate::Passes);
        }
        for (names, rules) in [(["lan", "wan"], "block all\n"), (["lan", "dmz"], "pass all\n")] {
            let mut after = control(1, names, rules, 9);
            assert_eq!(after.import(70_000, &image).unwrap(), Taken { left_out: 1, ..Taken::default() });
        }
        let mut begun = control(1, ["lan", "wan"], RULES, 9);
        begun.v4.seats().lock().unwrap()[0] = None;
        assert!(matches!(begun.import(70_000, &image), Err(FilterError::Begun)));
    }

    /// That who has many begins no more where room gets scarce is no reason to lose those.
    #[test]
    fn who_has_most_of_the_room_has_it_elsewhere() {
        let before = control(1, ["lan", "wan"], RULES, 5);
        for (host, ports) in [(2, 1024..1102), (1, 1024..1032)] {
            for port in ports {
                assert_eq!(
                    judge(&before, 1000, OUTWARD, &udp((host, port), (9, 53))),
                    Fate::Passes,
                    "{port}"
                );
                assert_eq!(judge(&before, 1000, INWARD, &udp((9, 53), (host, port))), Fate::Passes, "{port}");
            }
        }
        let mut after = control(1, ["lan", "wan"], RULES, 9);
        let taken = after.import(70_000, &before.exporter().export(2000)).unwrap();
        assert_eq!((taken.connections, taken.left_out), (86, 0));
    }

    /// Who was banned is so there, too, if the rule file there says nothing of the table either.
    #[test]
    fn tables_that_commands_have_filled_go_on() {
        let rules =
            "table <bans> persist\ntable <list> { 192.0.2.1 }\nblock in quick from <bans>\npass all\n";
        let mut before = control(1, ["lan", "wan"], rules, 5);
        let bans = ["10.0.0.1", "198.51.100.0/24", "2001:db8::/32"].map(|text| read_network(text).unwrap());
        for name in ["bans", "list"] {
            assert_eq!(before.add_to_set(name, &bans).unwrap(), 3);
        }
        let image = before.exporter().export(2000);
        assert_eq!(Connections::decode(&image).unwrap().encode(), image);
        let mut after = control(1, ["lan", "wan"], rules, 9);
        let banned = |port| udp((1, port), (9, 53));
        assert_eq!(judge(&after, 1000, OUTWARD, &banned(7)), Fate::Passes);
        let taken = Taken { tables: 1, ..Taken::default() };
        assert_eq!(after.import(70_000, &image).unwrap(), taken);
        assert_eq!(after.set("bans"), before.set("bans"));
        assert_eq!(after.set("list").unwrap().len(), 1, "its list says what is in it");
        assert_ne!(judge(&after, 70_000, OUTWARD, &banned(8)), Fate::Passes);
        for other in ["table <bans> { }\npass all\n", "table <bans> const\npass all\n", "pass all\n"] {
            let mut after = control(1, ["lan", "wan"], other, 9);
            let taken = Taken { left_out: 1, ..Taken::default() };
            assert_eq!(after.import(70_000, &image).unwrap(), taken, "{other}");
            assert!(after.set("bans").is_none_or(AddressSet::is_empty), "{other}");
        }
    }

    /// A million addresses are not to be copied with each handover, least of all with the control side locked.
    #[test]
    fn tables_are_handed_over_without_a_copy_and_as_they_were() {
        let rules = "table <bans> persist\nblock in quick from <bans>\npass all\n";
        let mut before = control(1, ["lan", "wan"], rules, 5);
        let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|text| [read_network(text).unwrap()]);
        before.add_to_set("bans", &first).unwrap();
        let exporter = before.exporter();
        let [(_, table)] = &exporter.tables[..] else { panic!("one table") };
        assert!(std::ptr::eq(before.set("bans").unwrap(), &**table));
        let image = exporter.export(2000);
        assert_eq!(before.add_to_set("bans", &second).unwrap(), 1);
        assert_eq!(before.delete_from_set("bans", &first).unwrap(), 1);
        assert_eq!(exporter.export(2000), image, "what comes meanwhile is the next one's");
        let later = Connections::decode(&before.exporter().export(2000)).unwrap();
        let [(_, table)] = &later.tables[..] else { panic!("one table") };
        assert_eq!(**table, AddressSet::of(&second));
        // Nobody reads it: it changes where it is.
        drop(exporter);
        let place = std::ptr::from_ref(before.set("bans").unwrap());
        before.add_to_set("bans", &first).unwrap();
        assert!(std::ptr::eq(before.set("bans").unwrap(), place));
    }

    /// VRFs are numbered as a configuration lists them, and one that comes before moves them all.
    #[test]
    fn a_connection_goes_on_in_the_vrf_that_its_interfaces_are_in() {
        let before = in_vrf(1, 100, 2, ["lan", "wan"], RULES, 5);
        let (asks, answers) = (udp((1, 7), (9, 53)), udp((9, 53), (1, 7)));
        assert_eq!(judge(&before, 1000, OUTWARD, &asks), Fate::Passes);
        assert_eq!(judge(&before, 1000, INWARD, &answers), Fate::Passes);
        let image = before.exporter().export(2000);
        for workers in [1, 2] {
            let mut after = in_vrf(2, 100, workers, ["lan", "wan"], RULES, 9);
            assert_eq!(after.import(70_000, &image).unwrap(), Taken { connections: 1, ..Taken::default() });
            assert_eq!(judge(&after, 70_000, INWARD, &answers), Fate::Passes);
        }
    }

    /// A million connections are let in and answered, and go on elsewhere, where only what is known passes.
    fn a_million<A: Net<W>, const W: usize>(
        half_of: impl Fn(&FilterControl) -> &Half<A, W>,
        datagram: fn(End, End) -> Vec<u8>,
    ) {
        const MILLION: u32 = 1_000_000;
        let server = (0x00ff_ffff, 53);
        let judge_all = |control: &FilterControl, now_ms: u64, is_first: bool| {
            let (seats, rules) = (half_of(control).seats(), control.rules());
            let mut seats = seats.lock().unwrap();
            let filter = &mut seats[0].as_mut().unwrap().filter;
            for n in 0..MILLION {
                let client = (n / 16, 1024 + (n % 16) as u16);
                if is_first {
                    let asks = datagram(client, server);
                    assert_eq!(filter.judge_one(now_ms, rules, OUTWARD, &asks), Fate::Passes, "{n}");
                }
                let answers = datagram(server, client);
                assert_eq!(filter.judge_one(now_ms, rules, INWARD, &answers), Fate::Passes, "{n}");
            }
            assert_eq!(filter.states().len(), MILLION as usize);
            let other = datagram(server, (0, 7));
            assert_ne!(filter.judge_one(now_ms, rules, INWARD, &other), Fate::Passes);
        };
        let before = sized(1 << 20, 1, ["lan", "wan"], RULES, 5);
        judge_all(&before, 1000, true);
        let image = before.exporter().export(2000);
        drop(before);
        let mut after = sized(1 << 20, 1, ["lan", "wan"], RULES, 9);
        let taken = after.import(70_000, &image).unwrap();
        assert_eq!(taken, Taken { connections: MILLION as usize, ..Taken::default() });
        judge_all(&after, 71_000, false);
    }

    /// `cargo test -p tidemill-nf --release --lib -- --ignored a_million`
    #[test]
    #[ignore = "much memory, and a while without --release"]
    fn a_million_connections_of_each_family_are_known_here_and_elsewhere() {
        a_million(|control| &control.v4, datagram4);
        a_million(|control| &control.v6, datagram6);
    }

    fn saved_tcp(port: u16) -> Saved<2> {
        let opens = Segment { seq: 100, window: 1000, flags: flag::SYN, ..Segment::default() };
        let mut tcp = Tcp::begun(&opens);
        for (side, seq, ack, flags) in [(1, 500, 101, flag::SYN | flag::ACK), (0, 101, 501, flag::ACK)] {
            tcp.step(side, &Segment { seq, ack, flags, window: 1000, ..Segment::default() }).unwrap();
        }
        let ends = crate::filter::Ends { low: (1, port), high: (2, 80), protocol: 6, vrf: 0 };
        let connection = Connection {
            until_ms: 86_400_000,
            origin_low: true,
            kept: [true; 2],
            turned: [false; 2],
            answered: true,
            version: 0,
            interfaces: [0, 1],
            rules: [NO_RULE; 2],
            packets: [2, 1],
            tcp,
            half: NONE,
        };
        Saved { key: <u32 as Net<2>>::key(&ends), connection }
    }

    /// Who takes over opens its windows anyway, and a version that does not know of that would refuse the whole image.
    #[test]
    fn that_it_was_taken_over_before_is_not_handed_on() {
        let interfaces = vec!["lan".to_owned(), "wan".to_owned()];
        let v4 = vec![saved_tcp(4000)];
        let image = Connections { interfaces, v4, ..Connections::default() }.encode();
        let mut control = control(1, ["lan", "wan"], RULES, 5);
        assert_eq!(control.import(1000, &image).unwrap(), Taken { connections: 1, ..Taken::default() });
        let again = Connections::decode(&control.exporter().export(2000)).unwrap();
        let [saved] = again.v4[..] else { panic!("{again:?}") };
        assert_eq!(saved.connection.tcp, saved_tcp(4000).connection.tcp.resumed().to_keep());
    }

    /// A packet has come behind the moment by which lives are counted.
    #[test]
    fn the_longest_life_that_has_just_begun_anew_is_kept() {
        let Saved { key, mut connection } = saved_tcp(4000);
        connection.until_ms = 1000 + 7 + LONGEST_MS;
        let saved = save::<u32, 2>(1000, 2, &key, &connection.pack()).unwrap();
        assert_eq!(saved.connection.until_ms, LONGEST_MS);
        assert_eq!(save::<u32, 2>(connection.until_ms, 2, &key, &connection.pack()), None);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        let as_written = |v4: &[Saved<2>]| {
            let sections = ImageBuilder::new(KIND, VERSION, 32).section(INTERFACES, b"lan\nwan".to_vec());
            let sections = sections.section(SECTION4, write(v4)).section(SECTION6, Vec::new());
            Connections::decode(&sections.finish())
        };
        let good = saved_tcp(4000);
        assert_eq!(as_written(&[good, saved_tcp(4001)]).unwrap().v4, [good, saved_tcp(4001)]);
        let with = |change: &dyn Fn(&mut Connection)| {
            let mut saved = good;
            change(&mut saved.connection);
            saved
        };
        let fresh = Tcp::begun(&Segment { seq: 1, window: 1, flags: flag::SYN, ..Segment::default() });
        for (wrong, what) in [
            (vec![good, good], "connection 1: is not behind the one before"),
            (vec![with(&|one| one.until_ms = 0)], "connection 0: a life"),
            (vec![with(&|one| one.until_ms = LONGEST_MS + 1)], "connection 0: a life"),
            (vec![with(&|one| one.kept = [false; 2])], "connection 0: a state"),
            (vec![with(&|one| one.tcp = fresh)], "connection 0: a state"),
            (vec![with(&|one| one.tcp = one.tcp.resumed())], "connection 0: a state"),
            (vec![with(&|one| one.interfaces = [0, 2])], "connection 0: an interface"),
            (vec![with(&|one| one.version = 7)], "connection 0: rules"),
            (vec![Saved { key: Key([good.key.0[0], good.key.0[1] | 0x100]), ..good }], "connection 0: a key"),
            (
                vec![Saved { key: Key([good.key.0[0], good.key.0[1] ^ 6 ^ 17]), ..good }],
                "connection 0: a state",
            ),
        ] {
            let said = as_written(&wrong).unwrap_err().to_string();
            assert!(said.contains(what) && said.contains("section \"states4\""), "{said}");
        }
        let interfaces = vec!["lan".into(), "wan".into()];
        let bytes = Connections { interfaces, v4: vec![good], ..Connections::default() }.encode();
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x10;
            assert!(Connections::decode(&wrong).is_err(), "byte {at}");
            assert!(Connections::decode(&bytes[..at]).is_err());
        }
    }
}
