//! Any frames by both sides of the role kvcache, beside a memcached that answers its questions: nothing panics; an answer is one to a whole get from the clients, to whoever has asked, its lengths and
//! checksums right, with a value that came from the servers' side; a question goes to memcached from the port of the cache's own; nothing of the clients' is taken.
//!
//! Input: records of flags, a length, and so many bytes. Flags: bits 0 and 1: a frame as it is, a datagram of a client's, one of memcached's, a segment of TCP (its flags, then the low bytes of
//! its numbers, then data); bit 2: by the other side; bit 3: not a single packet; bit 4: with a priority's tag; bit 5: cut off, at what the last byte says; bits 6 and 7: the time that passes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::Ipv4Addr;
use tidemill_kvcache::{Cache, Fate, KvcacheSection, Settings, Side};
use tidemill_wire::checksum::checksum;

const MS: u64 = 1_000_000;
const START: u64 = 1_000_000_000 * MS;
/// What passes before a frame, in milliseconds.
const PASSES: [u64; 4] = [1, 100, 1000, 4000];
const ROOM: usize = 1800;
const ASK_PORT: u16 = 61211;
const TAG: [u8; 4] = [0x81, 0, 0, 0];
type At = (Ipv4Addr, u16);
const CLIENT: At = (Ipv4Addr::new(10, 0, 0, 1), 4000);
const SERVED: At = (Ipv4Addr::new(10, 0, 0, 9), 11211);

fn packet(src: At, dst: At, protocol: u8, transport: &[u8], check_at: usize) -> Vec<u8> {
    let mut transport = transport.to_vec();
    let length = (transport.len() as u16).to_be_bytes();
    let pseudo = [&src.0.octets()[..], &dst.0.octets(), &[0, protocol], &length].concat();
    let sum = checksum(&[&pseudo[..], &transport].concat()).to_be_bytes();
    transport[check_at..check_at + 2].copy_from_slice(&sum);
    let length = (20 + transport.len() as u16).to_be_bytes();
    let head = [0x45, 0, length[0], length[1], 0, 7, 0x40, 0, 64, protocol, 0, 0];
    let mut ip = [&head[..], &src.0.octets(), &dst.0.octets()].concat();
    let sum = checksum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    let macs = [2, 0, 0, 0, 0, dst.0.octets()[3], 2, 0, 0, 0, 0, src.0.octets()[3], 8, 0];
    [&macs[..], &ip, &transport].concat()
}

fn datagram(src: At, dst: At, id: u16, text: &[u8]) -> Vec<u8> {
    let length = 16 + text.len() as u16;
    let mut udp = [src.1, dst.1, length, 0, id, 0, 1, 0].map(u16::to_be_bytes).concat();
    udp.extend_from_slice(text);
    packet(src, dst, 17, &udp, 6)
}

fn segment(src: At, dst: At, bytes: &[u8]) -> Vec<u8> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let mut tcp = [src.1, dst.1].map(u16::to_be_bytes).concat();
    tcp.extend((500 + u32::from(byte(1))).to_be_bytes());
    tcp.extend((900 + u32::from(byte(2))).to_be_bytes());
    tcp.extend([0x50, byte(0), 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend_from_slice(bytes.get(3..).unwrap_or_default());
    packet(src, dst, 6, &tcp, 16)
}

/// What a datagram says, of IPv4 and without options.
struct Read<'a> {
    macs: [&'a [u8]; 2],
    src: At,
    dst: At,
    id: u16,
    text: &'a [u8],
}

/// `is_made`: all about it has to be right.
fn read(frame: &[u8], is_made: bool) -> Read<'_> {
    let mut at = 14;
    while frame[at - 2..at] == [0x81, 0] || frame[at - 2..at] == [0x88, 0xa8] {
        at += 4;
    }
    let half = |from: usize| u16::from_be_bytes([frame[at + from], frame[at + from + 1]]);
    let address = |from: usize| Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|i| frame[at + from + i]));
    let end = at + 20 + usize::from(half(24));
    assert_eq!((&frame[at - 2..=at], frame[at + 9]), (&[8, 0, 0x45][..], 17));
    if is_made {
        assert_eq!((end, at + usize::from(half(2))), (frame.len(), frame.len()), "lengths");
        assert_eq!(checksum(&frame[at..at + 20]), 0, "of IPv4");
        let sums = [&frame[at + 12..at + 20], &[0, 17], &frame[at + 24..at + 26], &frame[at + 20..]];
        assert_eq!(checksum(&sums.concat()), 0, "of UDP");
    }
    let (macs, text) = ([&frame[..6], &frame[6..12]], &frame[at + 36..end]);
    Read { macs, src: (address(12), half(20)), dst: (address(16), half(22)), id: half(28), text }
}

struct World {
    cache: Cache,
    now: u64,
    /// All that came from the servers' side.
    came: Vec<Vec<u8>>,
}

impl World {
    fn through(&mut self, side: Side, frame: &[u8], is_one: bool) -> Fate {
        self.now += MS;
        if side == Side::Servers {
            self.came.push(frame.to_vec());
        }
        let fate = self.cache.frame(side, frame, is_one, ROOM, self.now);
        match fate {
            Fate::Pass | Fate::Drop(_) => {}
            Fate::Answer => {
                assert!(side == Side::Clients && is_one && self.cache.made().len() <= ROOM);
                let (asked, made) = (read(frame, false), read(self.cache.made(), true));
                assert_eq!((asked.src, asked.dst, asked.id), (made.dst, made.src, made.id));
                assert_eq!((asked.macs, asked.dst), ([made.macs[1], made.macs[0]], SERVED));
                let text = asked.text.strip_suffix(b"\n").unwrap();
                let mut words = text.strip_suffix(b"\r").unwrap_or(text).split(|byte| *byte == b' ');
                assert_eq!(words.next(), Some(&b"get"[..]));
                let key = words.find(|word| !word.is_empty()).unwrap();
                assert!(made.text.starts_with(&[b"VALUE ", key, b" "].concat()));
                let line = made.text.iter().position(|byte| *byte == b'\n').unwrap();
                let value = made.text[line + 1..].strip_suffix(b"\r\nEND\r\n").unwrap();
                let has =
                    |frame: &Vec<u8>| value.is_empty() || frame.windows(value.len()).any(|at| at == value);
                assert!(self.came.iter().any(has), "nobody has said {}", value.escape_ascii());
            }
            Fate::Ask => {
                let made = self.cache.made().to_vec();
                let asked = read(&made, true);
                assert_eq!((asked.dst, asked.src.1), (SERVED, ASK_PORT));
                self.told(&asked);
            }
            Fate::Consume => assert_eq!(side, Side::Servers),
        }
        fate
    }

    /// memcached, a thousand seconds old at the start, says what it was asked for.
    fn told(&mut self, question: &Read<'_>) {
        let age_s = 1000 + (self.now - START) / (1000 * MS);
        let said = match question.text.trim_ascii_end().rsplit(|byte| *byte == b' ').next() {
            Some(b"stats") => format!(
                "STAT pid 7\r\nSTAT uptime {age_s}\r\nSTAT time {}\r\nSTAT accepting_conns 1\r\nSTAT listen_disabled_num 0\r\n",
                5000 + age_s
            )
            .into_bytes(),
            Some(b"settings") => b"STAT maxbytes 5\r\nSTAT oldest 0\r\n".to_vec(),
            nonce => [b"HD t-1 ", nonce.unwrap_or_default(), b"\r\n"].concat(),
        };
        let frame = datagram(SERVED, question.src, question.id, &said);
        self.through(Side::Servers, &frame, true);
    }

    /// A get, and what memcached says where the cache does not.
    fn get(&mut self, key: &str) -> bool {
        let get = datagram(CLIENT, SERVED, 1, format!("get {key}\r\n").as_bytes());
        if self.through(Side::Clients, &get, true) == Fate::Answer {
            return true;
        }
        let value = datagram(SERVED, CLIENT, 1, format!("VALUE {key} 0 1\r\nx\r\nEND\r\n").as_bytes());
        self.through(Side::Servers, &value, true);
        false
    }
}

fuzz_target!(|data: &[u8]| {
    let mut section = KvcacheSection {
        addresses: vec!["10.0.0.9".to_owned()],
        allow: vec!["10.0.0.0/24".to_owned()],
        misses: 1,
        connections: 16,
        slots: 1024,
        ..KvcacheSection::default()
    };
    (section.l1.entries, section.l1.memory_mib) = (64, 1);
    let cache = Cache::new(Settings::new(&section).unwrap(), 5);
    let mut world = World { cache, now: START, came: Vec::new() };
    // What was under way when it began has been executed.
    world.get("k");
    world.now += 3000 * MS;
    assert!((0..8).any(|_| world.get("k")), "a key is kept");
    let mut rest = data;
    while let [flags, length, behind @ ..] = rest {
        let (bytes, next) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = next;
        let is_other = flags & 4 != 0;
        let (mut side, mut ends) = (Side::Clients, (CLIENT, SERVED));
        if (flags & 3 == 2) != is_other {
            (side, ends) = (Side::Servers, (SERVED, CLIENT));
        }
        let mut frame = match flags & 3 {
            0 => bytes.to_vec(),
            3 => segment(ends.0, ends.1, bytes),
            _ => datagram(ends.0, ends.1, 1, bytes),
        };
        if flags & 16 != 0 && frame.len() >= 12 {
            drop(frame.splice(12..12, TAG));
        }
        if flags & 32 != 0 {
            let cut = bytes.last().map_or(0, |last| usize::from(*last));
            frame.truncate(cut);
        }
        world.now += PASSES[usize::from(flags >> 6)] * MS;
        world.through(side, &frame, flags & 8 == 0);
    }
});
