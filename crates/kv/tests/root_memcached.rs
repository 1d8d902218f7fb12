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
