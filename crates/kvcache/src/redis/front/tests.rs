//! A front, its clients, and a Redis that is played.

use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener as Listener, TcpStream as Stream};
use std::thread::{sleep as wait, spawn};
use tokio::net::TcpSocket;

/// Many who ask without a pause would keep a flag set for ever.
#[test]
fn who_asks_later_does_not_keep_the_first_waiting() {
    let wish = Wish::default();
    assert_eq!(wish.open(), None);
    let first = wish.ask();
    let doing = wish.open().unwrap();
    let second = wish.ask();
    assert!(!wish.is_done(first) && !wish.is_done(second));
    wish.close(doing);
    assert!(wish.is_done(first) && !wish.is_done(second));
    wish.close(wish.open().unwrap());
    assert!(wish.is_done(second) && wish.open().is_none());
}

/// More than sockets hold for who does not read.
const FLOOD_BYTES: usize = 32 << 20;

/// A Redis that answers PING and FLOOD, and nothing else.
fn played() -> SocketAddr {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    spawn(move || {
        for redis in listener.incoming() {
            spawn(move || answer(redis.unwrap()));
        }
    });
    at
}

fn answer(mut redis: Stream) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = redis.read(&mut bytes) {
        let has = |word: &[u8]| bytes[..read].windows(word.len()).any(|part| part == word);
        let reply = match (has(b"PING"), has(b"FLOOD")) {
            (true, _) => b"+PONG\r\n".to_vec(),
            (_, true) => {
                let text = "x".repeat(FLOOD_BYTES);
                format!("${FLOOD_BYTES}\r\n{text}\r\n").into_bytes()
            }
            _ => Vec::new(),
        };
        if redis.write_all(&reply).is_err() {
            return;
        }
    }
}

const UNREAD: Duration = Duration::from_millis(1500);

/// A front before such a Redis, until it is dropped.
struct Lab {
    at: SocketAddr,
    watch: Watch,
    stop: Arc<AtomicBool>,
}

impl Lab {
    /// With room for four clients, two of an address.
    fn new() -> Self {
        let options = Options {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            redis: played(),
            login: None,
            connections: 4,
            per_address: 2,
            unread: UNREAD,
            memory: 1 << 20,
            value_max: 1024,
            lease: Duration::from_secs(1),
            hold: Duration::from_secs(60),
        };
        let front = Front::bind(options).unwrap();
        let (at, watch, stop) = (front.addresses()[0], front.watch(), Arc::new(AtomicBool::new(false)));
        let stops = stop.clone();
        spawn(move || front.run(&stops, |_| ()).unwrap());
        Lab { at, watch, stop }
    }

    /// A client of 127.0.0.`host`.
    fn client(&self, host: u8) -> Stream {
        let connect = async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
            socket.connect(self.at).await.unwrap().into_std().unwrap()
        };
        let client = Builder::new_current_thread().enable_io().build().unwrap().block_on(connect);
        client.set_nonblocking(false).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    fn until(&self, what: &str, mut is: impl FnMut(&Counters) -> bool) {
        let since = Instant::now();
        while !is(&self.watch.counters()) {
            assert!(since.elapsed() < Duration::from_secs(30), "{what}: {:?}", self.watch.counters());
            wait(TURN);
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Whether it gets an answer, of Redis.
fn has_answer(client: &mut Stream) -> bool {
    let mut reply = [0; 7];
    let asked = client.write_all(b"*1\r\n$4\r\nPING\r\n");
    asked.and_then(|()| client.read_exact(&mut reply)).is_ok() && reply == *b"+PONG\r\n"
}

#[test]
fn one_address_does_not_take_all_places() {
    let lab = Lab::new();
    let mut both = [lab.client(2), lab.client(2)];
    assert!(both.iter_mut().all(has_answer));
    assert!(!has_answer(&mut lab.client(2)), "it has as many as it may");
    let mut others = [lab.client(3), lab.client(4)];
    assert!(others.iter_mut().all(has_answer));
    lab.until("counted", |now| (now.get(Counter::Crowded), now.get(Counter::Refused)) == (1, 0));
    assert!(!has_answer(&mut lab.client(5)), "there is no place at all");
    lab.until("counted", |now| (now.get(Counter::Crowded), now.get(Counter::Refused)) == (1, 1));
    drop(both);
    lab.until("a place that is given back", |_| has_answer(&mut lab.client(2)));
}

/// Who takes a little now and then stays.
#[test]
fn who_does_not_read_is_ended() {
    let lab = Lab::new();
    let flood = b"*1\r\n$5\r\nFLOOD\r\n";
    let (mut slow, mut silent) = (lab.client(2), lab.client(3));
    slow.write_all(flood).unwrap();
    let mut bytes = vec![0; FLOOD_BYTES / 16];
    for piece in 0..16 {
        slow.read_exact(&mut bytes).unwrap_or_else(|error| panic!("piece {piece}: {error}"));
        wait(UNREAD / 8);
    }
    silent.write_all(flood).unwrap();
    lab.until("it is ended", |now| now.get(Counter::Unread) == 1 && now.get(Counter::Connections) == 1);
    let mut rest = vec![0; "$33554432\r\n".len() + 2];
    slow.read_exact(&mut rest).unwrap();
    assert!(has_answer(&mut slow), "it has all of it");
    let mut got = Vec::new();
    let ended = silent.read_to_end(&mut got);
    assert!(ended.is_err() || got.len() < FLOOD_BYTES, "{} bytes", got.len());
}

#[test]
fn an_address_is_one_of_ipv4_or_a_network_of_ipv6() {
    let of = |text: &str| source(text.parse().unwrap());
    assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
    assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
    assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
}
