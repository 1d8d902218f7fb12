//! Any frame at all, given to the program on what comes in (`BPF_PROG_TEST_RUN`): it passes untouched, or is dropped by one of the named
//! rules, or is answered, and then the frame was whole and the answer is the one that memcached would have sent. Needs root and memcached.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "root_fuzz/dropped.rs"]
mod dropped;
#[path = "root_kernel/lab.rs"]
mod lab;
#[path = "../../port/tests/common/net.rs"]
mod net;
#[path = "root_fuzz/streams.rs"]
mod streams;

use lab::{Lab, ready};
use std::collections::HashMap;
use std::time::Duration;

const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// One's complement sum of 16-bit words.
fn sum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let words = bytes
        .chunks(2)
        .map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn pseudo(ip: &[u8], protocol: u8, length: usize) -> Vec<u8> {
    let addresses = if ip[0] >> 4 == 4 { &ip[12..20] } else { &ip[8..40] };
    [addresses, &[0, protocol], &(length as u16).to_be_bytes()].concat()
}

/// Ethernet, tags, an IP header and what it carries, all lengths and sums right.
fn frame(tags: usize, v6: bool, protocol: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2];
    (0..tags).for_each(|tag| frame.extend([0x81, 0, 0, 7 + tag as u8]));
    let mut data = data.to_vec();
    let mut ip = if v6 {
        let mut ip = vec![0x60, 0, 0, 0];
        ip.extend((data.len() as u16).to_be_bytes());
        ip.extend([protocol, 64]);
        for host in [2, 1] {
            ip.extend([0xfd, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        frame.extend([0x86, 0xdd]);
        ip
    } else {
        let mut ip = vec![0x45, 0];
        ip.extend((20 + data.len() as u16).to_be_bytes());
        ip.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1]);
        let check = !sum(&[&ip]);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        frame.extend([8, 0]);
        ip
    };
    let at = match protocol {
        17 => 6,
        _ => 16,
    };
    if data.len() >= at + 2 {
        let check = !sum(&[&pseudo(&ip, protocol, data.len()), &data]);
        data[at..at + 2].copy_from_slice(&(if check == 0 { 0xffff } else { check }).to_be_bytes());
    }
    frame.append(&mut ip);
    frame.append(&mut data);
    frame
}

fn udp(id: u16, request: &[u8]) -> Vec<u8> {
    let mut data = vec![0x9c, 0x40, 0x2b, 0xcb];
    data.extend((16 + request.len() as u16).to_be_bytes());
    data.extend([0, 0]);
    data.extend(id.to_be_bytes());
    data.extend([0, 0, 0, 1, 0, 0]);
    data.extend(request);
    data
}

fn tcp(sequence: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let mut data = vec![0x9c, 0x41, 0x2b, 0xcb];
    data.extend(sequence.to_be_bytes());
    data.extend([0, 0, 0, 9, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    data.extend(bytes);
    data
}

/// The answer that memcached gives to a whole and right get of values that are here, if this frame is one: its bytes behind the UDP header.
fn wanted(frame: &[u8], values: &HashMap<Vec<u8>, String>) -> Option<Vec<u8>> {
    // To a group's address or from one it is memcached that answers.
    if (frame.first()? | frame.get(6)?) & 1 == 1 {
        return None;
    }
    let mut at = 12;
    let mut kind = frame.get(at..at + 2)?;
    for _ in 0..2 {
        if kind == [0x81, 0] || kind == [0x88, 0xa8] {
            at += 4;
            kind = frame.get(at..at + 2)?;
        }
    }
    let ip = frame.get(at + 2..)?;
    let (header, length) = match kind {
        [8, 0] => {
            let length = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
            let head = ip.get(..20)?;
            let is_ours = head[16..20] == [10, 9, 0, 1] && head[12..15] == [10, 9, 0];
            let is_whole = head[6] & 0x3f == 0 && head[7] == 0;
            if head[0] != 0x45 || head[9] != 17 || !is_ours || !is_whole || sum(&[head]) != 0xffff {
                return None;
            }
            (20, length)
        }
        [0x86, 0xdd] => {
            let head = ip.get(..40)?;
            let own = [0xfd, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
            if head[0] >> 4 != 6 || head[6] != 17 || head[24..40] != own || head[8..16] != own[..8] {
                return None;
            }
            (40, 40 + usize::from(u16::from_be_bytes([head[4], head[5]])))
        }
        _ => return None,
    };
    let data = ip.get(header..length)?;
    let udp = usize::from(u16::from_be_bytes([*data.get(4)?, *data.get(5)?]));
    let data = data.get(..udp)?;
    let check = [*data.get(6)?, *data.get(7)?];
    let pseudo = pseudo(ip, 17, udp);
    // A card may have left the rest to the next one: then the field has the pseudo header's sum.
    let is_right = sum(&[&pseudo, data]) == 0xffff || u16::from_be_bytes(check) == sum(&[&pseudo]);
    if data[2..4] != [0x2b, 0xcb] || !(is_right || check == [0, 0] && header == 20) {
        return None;
    }
    let payload = data.get(8..)?;
    if payload.get(2..8)? != [0, 0, 0, 1, 0, 0] {
        return None;
    }
    let keys = payload[8..].strip_prefix(b"get ")?.strip_suffix(b"\r\n")?;
    let mut answer = [&payload[..2], &[0, 0, 0, 1, 0, 0]].concat();
    for key in keys.split(|byte| *byte == b' ') {
        answer.extend(values.get(key)?.bytes());
    }
    answer.extend(b"END\r\n");
    // Longer ones pass: of IPv6 what some way may not take, of both what is no datagram of memcached's.
    let most = if header == 40 { 1280 - 48 } else { 1400 };
    (answer.len() <= most).then_some(answer)
}

/// What is behind the UDP header of an answer; all of it in front must be right, and the other way round than in the question.
fn answered(question: &[u8], answer: &[u8]) -> Vec<u8> {
    let l3 = (12..).step_by(4).find(|at| ![0x81, 0x88].contains(&question[*at])).unwrap() + 2;
    assert_eq!((&answer[..6], &answer[6..12]), (&question[6..12], &question[..6]));
    assert_eq!(answer[12..l3], question[12..l3], "tags and type");
    let (ours, theirs) = (&answer[l3..], &question[l3..]);
    let (header, length) = if ours[0] == 0x45 {
        assert_eq!(sum(&[&ours[..20]]), 0xffff);
        assert_eq!((&ours[12..16], &ours[16..20]), (&theirs[16..20], &theirs[12..16]));
        (20, usize::from(u16::from_be_bytes([ours[2], ours[3]])))
    } else {
        assert_eq!((&ours[8..24], &ours[24..40]), (&theirs[24..40], &theirs[8..24]));
        (40, 40 + usize::from(u16::from_be_bytes([ours[4], ours[5]])))
    };
    assert_eq!(ours.len(), length, "nothing is behind it");
    let (data, asked) = (&ours[header..], &theirs[header..]);
    assert_eq!((&data[..2], &data[2..4]), (&asked[2..4], &asked[..2]), "ports");
    assert_eq!(usize::from(u16::from_be_bytes([data[4], data[5]])), data.len());
    assert_ne!(data[6..8], [0, 0], "there is a checksum");
    assert_eq!(sum(&[&pseudo(ours, 17, data.len()), data]), 0xffff);
    data[8..].to_vec()
}

/// A frame of some kind, as it should be.
fn whole(rng: &mut Rng, keys: &[&str]) -> Vec<u8> {
    let (tags, v6, id) = ([0, 0, 0, 1, 2][rng.below(5)], rng.below(3) == 0, rng.next() as u16);
    let key = |rng: &mut Rng| rng.one(keys).to_owned();
    match rng.below(12) {
        0..=5 => {
            let keys: Vec<String> = (0..=rng.below(4) * rng.below(3)).map(|_| key(rng)).collect();
            frame(tags, v6, 17, &udp(id, format!("get {}\r\n", keys.join(" ")).as_bytes()))
        }
        6 => {
            let other = [
                "gets k\r\n",
                "get  k\r\n",
                "get k \r\n",
                "get k\n",
                "GET k\r\n",
                "mg k v\r\n",
                "version\r\n",
            ];
            frame(tags, v6, 17, &udp(id, rng.one(&other).as_bytes()))
        }
        7 => {
            let mut binary = vec![0x80, rng.below(36) as u8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
            binary.resize(24, 0);
            // Mostly another key: a mutation of this one is never answered here, and waits for the daemon's next look.
            binary.push(if rng.below(500) == 0 { b'k' } else { b'm' });
            frame(tags, v6, 17, &udp(id, &binary))
        }
        8 => frame(tags, v6, 17, &udp(id, b"set other 0 0 3 noreply\r\nabc\r\n")),
        9 => frame(tags, v6, 6, &tcp(rng.next() as u32, rng.next() as u8, b"set other 0 0 1\r\na\r\n")),
        10 => frame(tags, v6, [1, 58, 4, 50][rng.below(4)], &[8, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        _ => {
            let length = 14 + rng.below(200);
            (0..length).map(|_| rng.next() as u8).collect()
        }
    }
}

/// The same, no longer as it should be.
fn damaged(rng: &mut Rng, mut frame: Vec<u8>) -> Vec<u8> {
    for _ in 0..rng.below(4) {
        let at = rng.below(frame.len());
        match rng.below(7) {
            0 => frame[at] ^= 1 << rng.below(8),
            1 => frame[at] = rng.next() as u8,
            2 => frame.truncate(at.max(14)),
            3 => frame.extend((0..rng.below(64)).map(|_| 0)),
            4 => drop(frame.splice(at..at, [rng.next() as u8])),
            5 => drop(frame.remove(at)),
            // Lengths and fragment fields of IPv4, lengths of UDP.
            _ => {
                let at = [16, 20, 38][rng.below(3)].min(frame.len() - 2);
                frame[at..at + 2].copy_from_slice(&((rng.next() % 96) as u16).to_be_bytes());
            }
        }
        frame.resize(frame.len().max(14), 0);
    }
    frame
}

/// Asks for a value until it is here, by the program alone: what it misses it tells the daemon, who asks memcached.
fn admit(lab: &mut Lab, interface: u32, key: &str) {
    let get = frame(0, false, 17, &udp(1, format!("get {key}\r\n").as_bytes()));
    let started = std::time::Instant::now();
    while lab.cache.object().run_once(&get, interface).unwrap().0.action != TX {
        lab.cache.round().unwrap();
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{key} is not admitted: {:?}",
            lab.cache.counts()
        );
    }
}

fn fuzz(frames: usize, seed: u64) {
    // What a frame makes void is admitted again soon: none of these frames ever reaches memcached.
    let mut lab = Lab::with(|options| options.settle = Duration::from_micros(50));
    let long = "x".repeat(250);
    let keys = ["k", "bb", long.as_str(), "absent"];
    lab.tcp(
        &format!("set k 7 0 5\r\nhello\r\nset bb 0 0 7\r\nEND\r\nab\r\nset {long} 4294967295 0 0\r\n\r\n"),
        "STORED\r\nSTORED\r\nSTORED\r\n",
    );
    let values: HashMap<Vec<u8>, String> = [
        ("k", "VALUE k 7 5\r\nhello\r\n".to_owned()),
        ("bb", "VALUE bb 0 7\r\nEND\r\nab\r\n".to_owned()),
        (&long, format!("VALUE {long} 4294967295 0\r\n\r\n")),
    ]
    .map(|(key, value)| (key.as_bytes().to_vec(), value))
    .into();
    let here =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).unwrap();
    let interface = rustix::net::netdevice::name_to_index(here, "server").unwrap();
    let mut rng = Rng(seed);
    let (mut answers, mut dropped, mut passed) = (0, 0, 0);
    let named = |lab: &Lab, names: &[&str]| names.iter().map(|name| lab.cache.count(name)).sum::<u64>();
    let rules = ["udp-half", "tcp-out-of-order", "tcp-busy"];
    let (before, checks) = (named(&lab, &rules), lab.cache.count("bad-checksum"));
    let mut is_void = true;
    for number in 0..frames {
        if is_void {
            for key in &keys[..3] {
                admit(&mut lab, interface, key);
            }
            is_void = false;
        }
        let good = whole(&mut rng, &keys);
        let frame = damaged(&mut rng, good);
        let (verdict, made) = lab.cache.object().run_once(&frame, interface).unwrap();
        match verdict.action {
            PASS => {
                passed += 1;
                assert_eq!(made, frame, "frame {number}: untouched");
                // What a frame before has made void is to be here again.
                is_void |= wanted(&frame, &values).is_some();
            }
            DROP => dropped += 1,
            TX => {
                answers += 1;
                let wanted = wanted(&frame, &values);
                let answer = answered(&frame, &made);
                assert_eq!(Some(&answer), wanted.as_ref(), "frame {number}: {frame:02x?}");
            }
            action => panic!("frame {number}: action {action}: {frame:02x?}"),
        }
    }
    let (rules, checks) = (named(&lab, &rules) - before, lab.cache.count("bad-checksum") - checks);
    assert!(
        dropped >= rules && dropped <= rules + checks,
        "{dropped} dropped, by rules {rules}, sums {checks}"
    );
    println!("{frames} frames: {answers} answered, {passed} passed untouched, {dropped} dropped by name");
    assert!(answers > frames / 50 && passed > frames / 4, "all kinds come");
}

/// Requests of one datagram, in lines or binary: right, or wrong in a way that decides where the next one begins.
fn requests(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let is_binary = rng.below(3) == 0;
    for _ in 0..=rng.below(4) {
        if is_binary {
            let opcode = rng.below(0x2a) as u8;
            let usual = match opcode {
                1..=3 | 0x11..=0x13 => 8,
                5 | 6 | 0x15 | 0x16 => 20,
                0x1c..=0x1e | 0x23 | 0x24 => 4,
                _ => 0,
            };
            let extras = if rng.below(8) == 0 { [0, 4, 8, 20, 21][rng.below(5)] } else { usual };
            let key = rng.one(&["", "a", "b", "long key", "n"]);
            let value = rng.one(&["", "", "5", "value"]);
            let body = extras + key.len() + value.len();
            bytes.extend([
                if rng.below(50) == 0 { 0x81 } else { 0x80 },
                opcode,
                0,
                key.len() as u8,
                extras as u8,
            ]);
            bytes.extend([0, 0, 0, 0, 0, 0, if rng.below(30) == 0 { rng.next() as u8 } else { body as u8 }]);
            bytes.extend([0, 0, 0, opcode, 0, 0, 0, 0, 0, 0, 0, 0]);
            bytes.extend([&vec![0; extras], key.as_bytes(), value.as_bytes()].concat());
            continue;
        }
        let word = rng.one(&[
            "set",
            "set",
            "add",
            "append",
            "cas",
            "incr",
            "decr",
            "touch",
            "delete",
            "gat",
            "gats",
            "flush_all",
            "mg",
            "ms",
            "ms",
            "md",
            "ma",
            "me",
            "mn",
            "get",
            "gets",
            "bget",
            "version",
            "verbosity",
            "stats",
            "quit",
            "lru",
            "lru_crawler",
            "slabs",
            "cache_memlimit",
            "foo",
            "",
        ]);
        bytes.extend(word.bytes());
        let right = ["a", "0", "0", "3", "noreply"];
        let usual = match word {
            "ms" => &["a", "3"][..],
            "cas" => &["a", "0", "0", "3", "7", "noreply"][..5 + rng.below(2)],
            "set" | "add" | "append" => &right[..4 + rng.below(2)],
            "incr" | "decr" | "touch" => &["a", "3", "noreply"][..2 + rng.below(2)],
            "gat" | "gats" => &["3", "a", "b"],
            _ => &["a"],
        };
        let tokens = if rng.below(4) == 0 { rng.below(8) } else { usual.len() };
        for at in 0..tokens {
            let other = [
                "a",
                "b",
                "n",
                "0",
                "3",
                "-",
                "-1",
                "+3",
                "3x",
                "03",
                "4294967299",
                "99999999999999999999",
                "noreply",
                "b",
                "k",
                "q",
                "v",
                "I",
                "T0",
                "N0",
                "R0",
                "x",
                "YQ==",
                "Yg==",
                "",
                "cachedump",
                "detail",
                "\t3",
            ];
            let token = if at < usual.len() && rng.below(10) > 0 { usual[at] } else { rng.one(&other) };
            bytes.extend([b" ", token.as_bytes()].concat());
        }
        if rng.below(40) == 0 {
            let at = rng.below(bytes.len() + 1);
            bytes.insert(at, b"\0\r\t \x80"[rng.below(5)]);
        }
        bytes.extend(rng.one(&["\r\n", "\r\n", "\r\n", "\n", "\r\r\n"]).bytes());
        let stores = ["set", "add", "append", "cas", "ms"].contains(&word);
        let usual = if stores { "abc\r\n" } else { "" };
        bytes.extend(if rng.below(10) > 0 { usual } else { rng.one(&["", "abcd\r\n", "\r\n"]) }.bytes());
    }
    bytes
}

/// Another memcached, with one thread: the next datagram is the next that this reads.
struct Beside(std::process::Child, std::net::UdpSocket, u16);

impl Beside {
    fn start() -> Self {
        let arguments = "-u root -p 11213 -U 11213 -t 1 -l 127.0.0.1 -m 64 -o no_lru_maintainer";
        let mut command = std::process::Command::new("memcached");
        let child = command.args(arguments.split(' ')).stderr(std::process::Stdio::null()).spawn().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect("127.0.0.1:11213").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut beside = Beside(child, socket, 0);
        assert!((0..50).any(|_| beside.reads_on(b"version\r\n")), "it does not start");
        // From now on it answers, at its leisure where the machine is busy.
        beside.1.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        beside
    }

    /// Whether it answers what comes behind this datagram.
    fn reads_on(&mut self, bytes: &[u8]) -> bool {
        let mut send = |text: &[u8]| {
            self.2 = self.2.wrapping_add(1);
            let [a, b] = self.2.to_be_bytes();
            let _ = self.1.send(&[&[a, b, 0, 0, 0, 1, 0, 0], text].concat());
            [a, b]
        };
        send(bytes);
        let number = send(b"version\r\n");
        let mut room = [0; 65_536];
        loop {
            match self.1.recv(&mut room) {
                Ok(length) if room[..length].starts_with(&number) => {
                    return room[8..length].starts_with(b"VERSION ");
                }
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The programs read requests as [`tidemill_kv::codec`] does, which is compared with memcached by itself: whatever that says may change is void, and what cannot be
/// followed makes all void. A datagram is dropped only where it cannot be followed, or is not whole; behind one that passes memcached waits for nothing.
fn as_the_codec(datagrams: usize, seed: u64) {
    use tidemill_kv::codec::event::{Event, Owned};
    use tidemill_kv::codec::stream::{Place, datagram};
    let lab = Lab::new(&["server"]);
    let here =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).unwrap();
    let interface = rustix::net::netdevice::name_to_index(here, "server").unwrap();
    let mut beside = Beside::start();
    let mut rng = Rng(seed);
    let (mut followed, mut lost, mut dropped) = (0, 0, 0);
    for number in 0..datagrams {
        let mut bytes = requests(&mut rng);
        if rng.below(12) == 0 {
            bytes.truncate(1 + rng.below(bytes.len()));
        }
        let mut events = Vec::new();
        let place = datagram(&bytes, &mut |event: Event<'_>| events.push(event.to_owned()));
        let keys: Vec<&[u8]> = events
            .iter()
            .filter_map(|event| if let Owned::Mutates(key) = event { Some(key.as_slice()) } else { None })
            .collect();
        let is_lost = events.iter().any(|event| matches!(event, Owned::Lost(_)));
        let is_all = is_lost || events.contains(&Owned::All);
        let state = || {
            let all = lab.cache.count("void");
            (all, keys.iter().map(|key| lab.cache.slot(key).0).collect::<Vec<_>>())
        };
        let before = state();
        let (verdict, _) = lab
            .cache
            .object()
            .run_once(&frame(0, false, 17, &udp(number as u16, &bytes)), interface)
            .unwrap();
        let after = state();
        let what = || format!("datagram {number} of seed {seed}: {}: {events:?}", bytes.escape_ascii());
        let is_void = after.0 > before.0;
        if verdict.action == DROP {
            dropped += 1;
            assert!(is_void, "{}", what());
            assert!(
                matches!(place, Place::InValue(_) | Place::Lost | Place::Closed),
                "dropped, and not for the rest of a value: {}",
                what()
            );
        } else {
            // Half a line, and half a binary header and key, memcached forgets.
            assert!(!matches!(place, Place::InValue(_)), "half a command passes: {}", what());
        }
        assert!(verdict.action == DROP || beside.reads_on(&bytes), "memcached waits: {}", what());
        assert!(is_void || !is_all, "not all is void: {}", what());
        assert!(is_void || before.1.iter().zip(&after.1).all(|(before, after)| before < after), "{}", what());
        followed += usize::from(!is_lost && !keys.is_empty() && !is_void);
        lost += usize::from(is_lost);
    }
    println!("{datagrams} datagrams: {followed} followed, {lost} lost, {dropped} dropped");
    assert!(followed > datagrams / 20 && lost > datagrams / 20, "all kinds come");
}

#[test]
fn root_fuzz_requests_are_read_as_the_codec_does() {
    if ready("root_fuzz_requests_are_read_as_the_codec_does") {
        as_the_codec(10_000, 3);
    }
}

#[test]
#[ignore = "minutes"]
fn root_fuzz_a_million_requests_are_read_as_the_codec_does() {
    if ready("root_fuzz_a_million_requests_are_read_as_the_codec_does") {
        as_the_codec(1_000_000, 4);
    }
}

/// Forms in which memcached and the kernel take a mutation, though a sender would hardly choose them.
#[test]
fn root_fuzz_mutations_in_odd_frames_are_seen() {
    if !ready("root_fuzz_mutations_in_odd_frames_are_seen") {
        return;
    }
    let lab = Lab::new(&["server"]);
    let here =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).unwrap();
    let interface = rustix::net::netdevice::name_to_index(here, "server").unwrap();
    let seen = |what: &str, frame: &[u8]| {
        let before = (lab.cache.slot(b"k").0, lab.cache.count("void"));
        let (verdict, made) = lab.cache.object().run_once(frame, interface).unwrap();
        assert_eq!((verdict.action, made.as_slice()), (PASS, frame), "{what}");
        let after = (lab.cache.slot(b"k").0, lab.cache.count("void"));
        assert!(after.0 > before.0 || after.1 > before.1, "{what}");
    };
    // memcached looks at how many datagrams there are in all, not at which this is, nor at what is reserved.
    let request = b"get a\r\nset k 0 0 3\r\nnew\r\n";
    for (at, what) in [(11, "sequence 1"), (15, "something reserved")] {
        let mut data = udp(7, request);
        data[at] = 1;
        seen(what, &frame(0, false, 17, &data));
        seen(what, &frame(1, true, 17, &data));
    }
    // IPv6: a length of 0 is that of the packet.
    let mut data = udp(7, b"set k 0 0 3\r\nnew\r\n");
    data[4..6].fill(0);
    seen("no length", &frame(0, true, 17, &data));
    // To a group, behind an extension header.
    let mut options = vec![17, 0, 1, 4, 0, 0, 0, 0];
    options.extend(udp(7, b"set k 0 0 3\r\nnew\r\n"));
    let mut group = frame(0, true, 60, &options);
    group[38..54].copy_from_slice(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    seen("to all nodes", &group);
    // Who listens to which group is none.
    let mut report = frame(0, true, 0, &[58, 0, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0, 0, 0, 0, 0]);
    report[38..54].copy_from_slice(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16]);
    let before = lab.cache.count("void");
    lab.cache.object().run_once(&report, interface).unwrap();
    assert_eq!(lab.cache.count("void"), before);
}

#[test]
fn root_fuzz_any_frame() {
    if ready("root_fuzz_any_frame") {
        fuzz(6_000, 1);
    }
}

#[test]
#[ignore = "ten million frames: minutes"]
fn root_fuzz_ten_million_frames() {
    if ready("root_fuzz_ten_million_frames") {
        fuzz(10_000_000, 2);
    }
}
