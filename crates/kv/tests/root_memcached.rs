//! The golden transactions and the splitters against the memcached that is installed. No rights are needed, but the package is.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_kv::codec::event::{Answer, Event, Owned};
use tidemill_kv::codec::outstanding::Outstanding;
use tidemill_kv::codec::replies::Replies;
use tidemill_kv::codec::stream::Requests;
use tidemill_kv::golden;

/// A memcached of our own, on ports that the kernel has found free; it ends with this.
struct Memcached {
    child: Child,
    port: u16,
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `None`, said, if there is none here.
fn memcached(test: &str, threads: &str) -> Option<Memcached> {
    let version = match Command::new("memcached").arg("-V").output() {
        Err(_) => {
            println!("skipped: {test} (no memcached)");
            return None;
        }
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    };
    if version != "memcached 1.6.18" {
        println!("skipped: {test} (the transactions are those of memcached 1.6.18, here is {version})");
        return None;
    }
    for _ in 0..20 {
        // Both of TCP and UDP: another process may take the port in between, then memcached ends.
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let mut command = Command::new("memcached");
        command.args([
            "-u",
            "nobody",
            "-l",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            &port,
            "-t",
            threads,
            "-m",
            "64",
            "-o",
            "no_lru_maintainer",
        ]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let port: u16 = port.parse().unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            let up = TcpStream::connect(("127.0.0.1", port)).is_ok();
            let ended = child.try_wait().unwrap().is_some();
            match (up, ended) {
                (_, true) => break,
                (true, false) => return Some(Memcached { child, port }),
                (false, false) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    panic!("memcached does not start");
}

impl Memcached {
    /// All that memcached sends on a connection that sends these pieces and then ends its side.
    fn talk<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut reader = stream.try_clone().unwrap();
        // Replies are read while requests are sent, so that neither side waits for the other.
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut buffer = [0; 65536];
            // A reset is an end too: memcached has closed with bytes unread.
            while let Ok(len) = reader.read(&mut buffer) {
                if len == 0 {
                    break;
                }
                all.extend_from_slice(&buffer[..len]);
            }
            all
        });
        let mut writer = &stream;
        for piece in pieces {
            if writer.write_all(piece).is_err() {
                break;
            }
        }
        let _ = stream.shutdown(std::net::Shutdown::Write);
        reading.join().unwrap()
    }

    /// Values, flags and versions of the keys of the transactions.
    fn stored(&self) -> Vec<u8> {
        let long = "k".repeat(250);
        self.talk([format!("gets a b c e foo m my n new new2 t zz {long}\r\n").as_bytes()])
    }
}

/// memcached says byte for byte what the transactions say.
#[test]
fn real_memcached_answers_as_the_transactions_say() {
    for transactions in [golden::text(), golden::binary()] {
        let Some(memcached) = memcached("real_memcached_answers_as_the_transactions_say", "2") else {
            return;
        };
        for transaction in transactions {
            let reply = memcached.talk([&transaction.request[..]]);
            let shown = || format!("{}:\n{}", transaction.name, reply.escape_ascii());
            assert!(transaction.is_answered_by(&reply), "{}", shown());
        }
    }
}

/// Each command of a transaction by itself on one connection: when its reply is complete, that has released exactly the commands that the model says,
/// before the next one is sent, and one without effects has changed nothing. This is what shows that nothing answers that should be silent, and that a
/// reply is not called complete too early.
#[test]
fn real_memcached_answers_each_command_as_its_event_says() {
    for transactions in [golden::text(), golden::binary()] {
        let Some(memcached) = memcached("real_memcached_answers_each_command_as_its_event_says", "2") else {
            return;
        };
        for transaction in transactions {
            step_by_step(&memcached, &transaction);
        }
    }
}

fn step_by_step(memcached: &Memcached, transaction: &golden::Transaction) {
    let mut stream = TcpStream::connect(("127.0.0.1", memcached.port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut requests, mut replies, mut outstanding) =
        (Requests::new(), Replies::new(), Outstanding::new(100));
    let mut rest = &transaction.request[..];
    // What is silent may be executed later than another connection looks.
    let mut settled = true;
    while !rest.is_empty() {
        // The bytes up to the end of a command: its event comes with its last byte, but for a value.
        let (mut command, mut len) = (None, 0);
        let (mut lost, mut changes) = (false, false);
        while len < rest.len() && command.is_none() && !lost {
            requests.push(&rest[len..=len], &mut |event: Event<'_>| match event.to_owned() {
                Owned::Command(seen) => command = Some(seen),
                Owned::Lost(_) => lost = true,
                Owned::Mutates(_) | Owned::All => changes = true,
                Owned::Reads(_) => {}
            });
            len += 1;
        }
        if let tidemill_kv::codec::stream::Place::InValue(left) = requests.place() {
            let left = (left as usize).min(rest.len() - len);
            requests.push(&rest[len..len + left], &mut |event: Event<'_>| {
                panic!("{}: {event:?} in a value", transaction.name)
            });
            len += left;
        }
        let before = memcached.stored();
        let sent = &rest[..len];
        stream.write_all(sent).unwrap();
        rest = &rest[len..];
        if lost || requests.place() == tidemill_kv::codec::stream::Place::Closed {
            return;
        }
        let Some(command) = command else { return };
        outstanding.command(command, ()).unwrap();
        // What is silent for sure, or may be, is followed by what is not.
        let mut released = 0;
        while command.answer == Answer::Always && released == 0 {
            let mut buffer = [0; 4096];
            let len = stream
                .read(&mut buffer)
                .unwrap_or_else(|error| panic!("{}: {error} for {command:?}", transaction.name));
            assert_ne!(len, 0, "{}: closed", transaction.name);
            replies.push(&buffer[..len], |reply| {
                outstanding
                    .reply(reply, |()| released += 1)
                    .unwrap_or_else(|lost| panic!("{}: {reply:?}: {lost}", transaction.name));
            });
        }
        if command.answer == Answer::Always {
            assert!(!replies.is_within(), "{}: more than one reply to {command:?}", transaction.name);
            let same = changes || !settled || memcached.stored() == before;
            assert!(same, "{}: {} has changed something", transaction.name, sent.escape_ascii());
        }
        settled = command.answer == Answer::Always;
    }
}

/// A stream cut at every byte is answered as the whole is, by memcached too.
#[test]
fn real_memcached_takes_any_cut() {
    let Some(memcached) = memcached("real_memcached_takes_any_cut", "2") else { return };
    for name in [
        "set and get",
        "a refused line: the value is read as a line",
        "a value that does not end where it should",
        "mg",
        "md, ma, me, mn",
    ] {
        let all = golden::text();
        let transaction = all.iter().find(|transaction| transaction.name == name).unwrap();
        let reply = memcached.talk(transaction.request.chunks(1));
        assert!(transaction.is_answered_by(&reply), "{name}: {}", reply.escape_ascii());
    }
}

/// One datagram, many commands; which frames are taken; a reply per hit.
#[test]
fn real_memcached_over_udp() {
    use tidemill_kv::codec::udp::Frame;
    let Some(memcached) = memcached("real_memcached_over_udp", "1") else { return };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", memcached.port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let send = |frame: Frame, text: &[u8]| {
        let mut datagram = Vec::new();
        frame.write(&mut datagram);
        datagram.extend_from_slice(text);
        socket.send(&datagram).unwrap();
    };
    let receive = || {
        let mut buffer = [0; 2048];
        let len = socket.recv(&mut buffer).unwrap();
        let (frame, text) = Frame::read(&buffer[..len]).unwrap();
        (frame, text.to_vec())
    };
    send(Frame::whole(1), b"set u 0 0 1\r\nv\r\nget u nosuch u\r\n");
    assert_eq!(receive(), (Frame::whole(1), b"STORED\r\n".to_vec()));
    assert_eq!(receive(), (Frame::whole(1), b"VALUE u 0 1\r\nv\r\n".to_vec()));
    assert_eq!(receive(), (Frame::whole(1), b"VALUE u 0 1\r\nv\r\nEND\r\n".to_vec()));
    // Dropped: what comes next is the answer to the last.
    for (id, total) in [(2, 0), (3, 2)] {
        send(Frame { id, sequence: 0, total, reserved: 0 }, b"delete u\r\n");
    }
    // A line that is not whole is forgotten.
    send(Frame::whole(4), b"delete u");
    send(Frame { id: 5, sequence: 9, total: 1, reserved: 9 }, b"set u 0 0 1 noreply\r\nw\r\nget u\r\n");
    assert_eq!(receive(), (Frame::whole(5), b"VALUE u 0 1\r\nw\r\nEND\r\n".to_vec()));
    // The first key is not there: an empty datagram comes first, numbered 0 of 0.
    send(Frame::whole(6), b"get nosuch u\r\n");
    assert_eq!(receive(), (Frame { id: 6, sequence: 0, total: 0, reserved: 0 }, Vec::new()));
    assert_eq!(receive(), (Frame::whole(6), b"VALUE u 0 1\r\nw\r\nEND\r\n".to_vec()));
    // The rest of a value is whatever comes next, without a frame header.
    send(Frame::whole(7), b"set u 0 0 10\r\nab");
    socket.send(b"cdefghij\r\n").unwrap();
    assert_eq!(receive(), (Frame::whole(7), b"STORED\r\n".to_vec()));
    send(Frame::whole(8), b"get u\r\n");
    assert_eq!(receive(), (Frame::whole(8), b"VALUE u 0 10\r\nabcdefghij\r\nEND\r\n".to_vec()));
}

/// Why [`tidemill_kv::codec::event::Lost::Reply`] is: a key that came by the binary protocol goes out as it is.
#[test]
fn real_memcached_sends_line_breaks_in_keys() {
    use tidemill_kv::codec::binary::{Header, REQUEST, opcode, write};
    let Some(memcached) = memcached("real_memcached_sends_line_breaks_in_keys", "2") else { return };
    let mut set = Vec::new();
    let header = Header { magic: REQUEST, opcode: opcode::SET, ..Header::default() };
    write(header, &[0; 8], b"a\nSTORED\r\n", b"v", &mut set);
    assert_eq!(memcached.talk([&set[..]]).len(), 24);
    let mut get = Vec::new();
    tidemill_kv::codec::write::meta(tidemill_kv::codec::verb::Verb::Mg, b"a\nSTORED\r\n", "k", b"", &mut get);
    assert_eq!(memcached.talk([&get[..]]), b"HD ka\nSTORED\r\n\r\n");
    let mut lost = false;
    Requests::new()
        .push(&get, &mut |event| lost |= event == Event::Lost(tidemill_kv::codec::event::Lost::Reply));
    assert!(lost);
}

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

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A command of the text protocols: right, or wrong in a way that decides where the next one begins.
fn odd_line(rng: &mut Rng) -> Vec<u8> {
    let key =
        |rng: &mut Rng| rng.one(&["a", "b", "n", "zz", "YQ==", "Yg==", "Cg==", "YQ=", "YR=="]).to_owned();
    let number = |rng: &mut Rng| {
        rng.one(&[
            "0",
            "1",
            "3",
            "11",
            "-",
            "-1",
            "--1",
            "+3",
            "3x",
            "x",
            "03",
            "3-",
            "\t3",
            "4294967299",
            "99999999999",
            "noreply",
        ])
    };
    let plain =
        |rng: &mut Rng| if rng.below(4) == 0 { number(rng) } else { rng.one(&["0", "3", "11", "100"]) };
    let flags = |rng: &mut Rng| {
        let one = |rng: &mut Rng| {
            rng.one(&[
                "b",
                "k",
                "q",
                "v",
                "t",
                "c",
                "f",
                "s",
                "T0",
                "T30",
                "N0",
                "N30",
                "R30",
                "I",
                "O1",
                "F3",
                "D2",
                "MS",
                "MA",
                "MI",
                "MD",
                "E9",
                "C1",
                "J5",
                "x",
                "-",
                "noreply",
                "\x01",
                "T",
                "Tx",
                "T-1",
                "T99999999999",
                "F",
                "Fx",
                "F4294967296",
                "C",
                "Cx",
                "E",
                "Ex",
                "M",
                "MZ",
                "MSx",
                "Ix",
                "N",
                "Nx",
                "Rx",
                "Dx",
                "D18446744073709551616",
                "Jx",
                "O",
                "O23456789012345678901234567890123",
                "bb",
                "S3",
                "qq",
            ])
        };
        (0..rng.below(5) * rng.below(2)).fold(String::new(), |flags, _| flags + " " + one(rng))
    };
    let store = |rng: &mut Rng| rng.one(&["set", "add", "replace", "append", "prepend"]);
    let text = match rng.below(14) {
        0..=3 => {
            let (store, key, flags, time, length) =
                (store(rng), key(rng), plain(rng), plain(rng), plain(rng));
            format!(
                "{store} {key} {flags} {time} {length}{}",
                rng.one(&["", "", " noreply", " x", " x noreply"])
            )
        }
        4 => format!(
            "cas {} {} {} {} {}{}",
            key(rng),
            plain(rng),
            plain(rng),
            plain(rng),
            number(rng),
            rng.one(&["", " noreply"])
        ),
        5 => format!(
            "{} {} {}{}",
            rng.one(&["incr", "decr", "touch"]),
            key(rng),
            number(rng),
            rng.one(&["", " noreply", " x", " x noreply"])
        ),
        6 => format!(
            "delete {}{}",
            key(rng),
            rng.one(&["", " noreply", " 0", " 0 noreply", " 5", " 5 noreply", " x y z noreply"])
        ),
        7 => format!("{} {} {} {}", rng.one(&["gat", "gats"]), number(rng), key(rng), key(rng)),
        8 => format!("{} {}{}", rng.one(&["ms", "ms", "mg", "md", "ma", "me"]), key(rng), flags(rng)),
        9 => format!("ms {} {}{}", key(rng), plain(rng), flags(rng)),
        10 => format!("{} {}{}", rng.one(&["mg", "md", "ma"]), key(rng), flags(rng)),
        11 => rng
            .one(&[
                "flush_all",
                "flush_all 0",
                "flush_all -1",
                "flush_all noreply",
                "flush_all x",
                "flush_all 0 0 0",
                "mn",
                "mn q",
                "version",
                "verbosity 0 noreply",
                "verbosity",
                "verbosity noreply",
                "stats reset",
                "quit x",
                "lru tune noreply",
                "get a b",
                "gets n",
                "bget a",
                "get",
                "gat",
                "ms",
                "ms a",
                "set",
                "set a",
                "touch a",
                "foo",
                "shutdown x",
                "watch x",
                "lru x",
                "slabs x",
                "cache_memlimit x",
                "extstore x",
                "lru_crawler x",
                "misbehave",
                "debugtime x",
                "GET a",
                "refresh_certs",
                "mx",
                "m",
            ])
            .to_owned(),
        12 => format!("get {}", vec!["a"; rng.below(40)].join(" ")),
        _ => format!("{} {}{}", rng.one(&["delete", "incr", "set"]), key(rng), " 0".repeat(rng.below(30))),
    };
    let mut bytes = text.into_bytes();
    if rng.below(30) == 0 {
        let at = rng.below(bytes.len() + 1);
        bytes.insert(at, rng.one(b"\0\r\t \x80"));
    }
    bytes.extend_from_slice(rng.one(&[&b"\r\n"[..], b"\r\n", b"\r\n", b"\n", b"\r\r\n"]));
    bytes.extend_from_slice(rng.one(&[
        &b""[..],
        b"",
        b"abc\r\n",
        b"\r\n",
        b"delete n\r\n\r\n",
        b"delete a\r\nx",
    ]));
    bytes
}

/// A binary request: right, or wrong in one of its lengths.
fn odd_request(rng: &mut Rng) -> Vec<u8> {
    let opcode = if rng.below(8) == 0 { rng.next() as u8 } else { rng.below(0x26) as u8 };
    // 0x07 and 0x17 end it; a flush for later is not what is asked for here.
    let usual = match opcode {
        1..=3 | 0x11..=0x13 => 8,
        5 | 6 | 0x15 | 0x16 => 20,
        0x1c..=0x1e | 0x23 | 0x24 => 4,
        _ => 0,
    };
    let extras = if rng.below(8) == 0 { rng.one(&[0, 4, 8, 20, 21]) } else { usual };
    let key = if rng.below(8) == 0 {
        rng.one(&[&b""[..], b"zz"])
    } else {
        rng.one(&[&b"a"[..], b"b", b"n", b"reset"])
    };
    let key = if matches!(opcode, 7 | 8 | 10 | 11 | 0x17 | 0x18 | 0x1b | 0x20) && rng.below(6) > 0 {
        b""
    } else {
        key
    };
    let stores = matches!(opcode, 1..=3 | 0x0e | 0x0f | 0x11..=0x13 | 0x19 | 0x1a);
    let value = if stores == (rng.below(8) > 0) { &b"5"[..] } else { b"" };
    let value = if rng.below(20) == 0 { &b"\x80\x04\0\x01"[..] } else { value };
    let body = extras + key.len() + value.len();
    let body = if rng.below(25) == 0 { body.saturating_sub(1) } else { body };
    let mut bytes = vec![0x80, opcode, 0, key.len() as u8, extras as u8, 0, 0, 0, 0, 0, 0, body as u8];
    bytes.extend([0, 0, 0, opcode, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([&vec![0; extras], key, value].concat());
    bytes
}

/// What is stored under the keys of these streams: value, flags, version and end.
fn details(memcached: &Memcached) -> Vec<(&'static [u8], Vec<u8>)> {
    let ask = |key: &str| memcached.talk([format!("mg {key} v f c t\r\n").as_bytes()]);
    [&b"a"[..], b"b", b"n", b"zz"].map(|key| (key, ask(std::str::from_utf8(key).unwrap()))).into()
}

/// Whatever a stream says, right or wrong: what has changed behind it was told, and its replies are taken for those of its commands.
fn tells_all(memcached: &Memcached, stream: &[u8]) -> Result<(), String> {
    let (mut told, mut is_all, mut is_lost) = (Vec::new(), false, false);
    let (mut outstanding, mut wrong) = (Outstanding::new(1000), None);
    Requests::new().push(stream, &mut |event| match event {
        Event::Mutates(key) => told.push(key.to_vec()),
        Event::All => is_all = true,
        Event::Lost(_) => is_lost = true,
        Event::Command(command) => outstanding.command(command, ()).unwrap(),
        Event::Reads(_) => {}
    });
    memcached
        .talk([&b"set a 0 0 1\r\n1\r\nset b 0 0 1\r\n2\r\nset n 0 0 1\r\n3\r\nset zz 0 0 1\r\n4\r\n"[..]]);
    let before = details(memcached);
    let replies = memcached.talk([stream]);
    if !is_lost && !is_all {
        for ((key, before), (_, after)) in before.iter().zip(details(memcached)) {
            if *before != after && !told.iter().any(|told| told == key) {
                return Err(format!(
                    "{} was {}, is {}",
                    key.escape_ascii(),
                    before.escape_ascii(),
                    after.escape_ascii()
                ));
            }
        }
    }
    if !is_lost {
        Replies::new().push(&replies, |reply| {
            if let Err(lost) = outstanding.reply(reply, |()| ()) {
                wrong = Some(format!("{reply:?}: {lost}: {}", replies.escape_ascii()));
            }
        });
    }
    wrong.map_or(Ok(()), Err)
}

fn streams(test: &str, count: usize, seed: u64) {
    let Some(memcached) = memcached(test, "2") else { return };
    let mut rng = Rng(seed);
    for number in 0..count {
        let is_binary = rng.below(3) == 0;
        let mut commands: Vec<Vec<u8>> = (0..=rng.below(5))
            .map(|_| if is_binary { odd_request(&mut rng) } else { odd_line(&mut rng) })
            .collect();
        let Err(what) = tells_all(&memcached, &commands.concat()) else { continue };
        // As few commands as still do it.
        let mut at = 0;
        while at < commands.len() {
            let mut fewer = commands.clone();
            fewer.remove(at);
            if !fewer.is_empty() && tells_all(&memcached, &fewer.concat()).is_err() {
                commands = fewer;
            } else {
                at += 1;
            }
        }
        panic!("stream {number} of seed {seed}: {what}\nleast: {}", commands.concat().escape_ascii());
    }
}

#[test]
fn real_memcached_changes_nothing_that_is_not_told() {
    streams("real_memcached_changes_nothing_that_is_not_told", 1500, 1);
}

#[test]
#[ignore = "minutes: cargo test -p tidemill-kv --test root_memcached -- --ignored"]
fn real_memcached_changes_nothing_that_is_not_told_for_long() {
    streams("real_memcached_changes_nothing_that_is_not_told_for_long", 100_000, 2);
}
