//! What comes and goes: memcached, the daemon, connections from before; and who is answered at all.

use crate::contract::cache::{Cache, options};
use crate::contract::client::{Tcp, Udp};
use crate::contract::lab::{INTERFACES, Lab, Memcached, THREADS, turn};
use crate::contract::pair::Pair;
use crate::contract::wire::{self, Ask, Mode, Said, Speech};
use crate::net::wait_until;
use std::time::{Duration, Instant};

fn get(key: &[u8]) -> Vec<u8> {
    [b"get ", key, b"\r\n"].concat()
}

fn set(tcp: &mut Tcp, key: &[u8], data: &[u8]) {
    let put = Ask::Put { mode: Mode::Set, data: data.to_vec(), flags: 0, expiry: 0 };
    assert_eq!(tcp.ask(Speech::Ascii, &put, key), Said::Done);
}

fn truth(tcp: &mut Tcp, key: &[u8]) -> Said {
    tcp.ask(Speech::Ascii, &Ask::Get, key)
}

/// What memcached says over TCP, the cache says over UDP.
fn agrees(lab: &Lab, key: &[u8], what: &str) {
    let (mut tcp, mut udp) = (lab.tcp(&lab.cached), lab.udp(&lab.cached));
    for _ in 0..3 {
        let wanted = truth(&mut tcp, key);
        let bytes = udp.ask(&get(key)).unwrap_or_else(|| panic!("{what}: no answer"));
        assert_eq!(wire::reply(Speech::Ascii, &Ask::Get, &bytes).unwrap().said, wanted, "{what}");
    }
}

/// A hit is the cache's answer, over IPv4 and IPv6, and each is counted.
#[test]
fn hits_are_answered_and_counted() {
    let Some(_turn) = turn("hits_are_answered_and_counted") else { return };
    let lab = Lab::cached();
    let cache = lab.cache.as_ref().unwrap();
    let mut tcp = lab.tcp(&lab.cached);
    for key in [b"a", b"b", b"c"] {
        set(&mut tcp, key, b"value");
        lab.warm(key);
    }
    assert!(lab.is_hit(&mut lab.udp6(&lab.cached), b"a"), "{}", cache.describe());
    let (hits, keys) = (cache.count("get-hit"), cache.count("keys-hit"));
    let before = tcp.stat("cmd_get");
    let mut udp = lab.udp(&lab.cached);
    for _ in 0..100 {
        assert!(udp.ask(&get(b"a b c")).is_some());
    }
    assert_eq!(tcp.stat("cmd_get"), before, "memcached was asked: {}", cache.describe());
    assert_eq!((cache.count("get-hit") - hits, cache.count("keys-hit") - keys), (100, 300));
}

#[test]
fn a_memcached_that_is_killed_takes_its_values_along() {
    let Some(_turn) = turn("a_memcached_that_is_killed_takes_its_values_along") else { return };
    let mut lab = Lab::cached();
    for round in 0..6 {
        let mut tcp = lab.tcp(&lab.cached);
        set(&mut tcp, b"mortal", format!("life {round}").as_bytes());
        lab.warm(b"mortal");
        drop(tcp);
        let mut udp = lab.udp(&lab.cached);
        udp.wait = Duration::from_millis(50);
        lab.cached.memcached.kill();
        if round % 2 == 0 {
            // Nobody is there, and after a moment nobody answers: the daemon speaks between two of its rounds, and has done a whole one when it has spoken twice.
            (0..2).for_each(|_| drop(lab.cache.as_ref().unwrap().counts()));
            let request = udp.send(&get(b"mortal"));
            assert_eq!(udp.receive(request), None, "round {round}: an answer of the dead");
        }
        lab.cached.memcached = Memcached::start(&lab.cached.net, THREADS);
        let mut tcp = lab.tcp(&lab.cached);
        assert_eq!(truth(&mut tcp, b"mortal"), Said::Absent);
        udp.wait = Duration::from_millis(500);
        for _ in 0..20 {
            let bytes = udp.ask(&get(b"mortal")).unwrap();
            assert_eq!(bytes, b"END\r\n", "round {round}: a value from before");
        }
    }
    // And it goes on.
    set(&mut lab.tcp(&lab.cached), b"mortal", b"last");
    lab.warm(b"mortal");
}

/// Connections that were there before the cache: what they bring is seen, or nothing is served while they are there.
#[test]
fn connections_from_before_are_not_forgotten() {
    let Some(_turn) = turn("connections_from_before_are_not_forgotten") else { return };
    let mut lab = Lab::plain();
    let mut whole = lab.tcp(&lab.cached);
    let mut half = lab.tcp6(&lab.cached);
    set(&mut whole, b"old", b"before");
    // In the middle of a command, and of a value.
    half.send(b"set old 0 0 5\r\naf");
    lab.attach();
    for round in 0..50 {
        agrees(&lab, b"old", "before anything");
        if round == 25 {
            half.send(b"ter\r\n");
            assert_eq!(half.until_noop(false), b"STORED\r\n");
        }
        set(&mut whole, b"old", format!("round {round}").as_bytes());
        agrees(&lab, b"old", "after a write by a connection from before");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop((whole, half));
    lab.warm(b"old");
}

/// A daemon that hangs: nothing is served for long without it, and nothing stale when it goes on.
#[test]
fn a_daemon_that_hangs_is_missed() {
    let Some(_turn) = turn("a_daemon_that_hangs_is_missed") else { return };
    let lab = Lab::cached();
    let mut tcp = lab.tcp(&lab.cached);
    set(&mut tcp, b"hang", b"one");
    lab.warm(b"hang");
    let hangs = &lab.cache.as_ref().unwrap().hangs;
    hangs.store(true, std::sync::atomic::Ordering::Relaxed);
    set(&mut tcp, b"hang", b"two");
    agrees(&lab, b"hang", "while it hangs");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!lab.is_hit(&mut lab.udp(&lab.cached), b"hang"), "served by nobody's leave");
    set(&mut tcp, b"hang", b"three");
    hangs.store(false, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..50 {
        agrees(&lab, b"hang", "when it goes on");
    }
    lab.warm(b"hang");
}

/// A memcached that is killed while the daemon hangs: what it had is given no longer than the lease, whoever has its port by then.
#[test]
fn a_memcached_that_is_killed_while_the_daemon_hangs() {
    let Some(_turn) = turn("a_memcached_that_is_killed_while_the_daemon_hangs") else { return };
    let mut lab = Lab::cached();
    set(&mut lab.tcp(&lab.cached), b"late", b"one");
    lab.warm(b"late");
    lab.cache.as_ref().unwrap().hangs.store(true, std::sync::atomic::Ordering::Relaxed);
    lab.cached.memcached.kill();
    // A second, and what the programs' clock may be late.
    std::thread::sleep(Duration::from_millis(1200));
    lab.cached.memcached = Memcached::start(&lab.cached.net, THREADS);
    let mut udp = lab.udp(&lab.cached);
    for _ in 0..20 {
        assert_eq!(udp.ask(&get(b"late")).unwrap(), b"END\r\n", "an answer of the dead");
    }
    lab.cache.as_ref().unwrap().hangs.store(false, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..50 {
        agrees(&lab, b"late", "when it goes on");
    }
    set(&mut lab.tcp(&lab.cached), b"late", b"two");
    lab.warm(b"late");
}

/// A daemon that is replaced: writes in between, by connections from before and new ones, whole and half, are all seen.
#[test]
fn a_daemon_that_is_replaced_forgets_nothing() {
    let Some(_turn) = turn("a_daemon_that_is_replaced_forgets_nothing") else { return };
    let mut lab = Lab::cached();
    let mut long = lab.tcp(&lab.cached);
    for round in 0..5 {
        set(&mut long, b"heir", format!("round {round}").as_bytes());
        lab.warm(b"heir");
        let mut half = lab.tcp(&lab.cached);
        half.send(b"set heir 0 0 4\r\nha");
        lab.cache.take().unwrap().leave();
        agrees(&lab, b"heir", "without a daemon");
        match round % 3 {
            0 => set(&mut long, b"heir", b"between"),
            1 => half.send(b"lf\r\n"),
            _ => set(&mut lab.tcp(&lab.cached), b"heir", b"new one"),
        }
        if round % 3 == 1 {
            assert_eq!(half.until_noop(false), b"STORED\r\n");
        }
        agrees(&lab, b"heir", "written without a daemon");
        lab.attach();
        for _ in 0..20 {
            agrees(&lab, b"heir", "with the next daemon");
        }
        assert_eq!(
            lab.cache.as_ref().unwrap().count("blind-now"),
            0,
            "round {round}: a connection is not known any more"
        );
        // As long as half a command is there it may be executed, and the key is not kept.
        drop(half);
        lab.warm(b"heir");
        agrees(&lab, b"heir", "cached by the next daemon");
    }
}

/// One that leaves in order leaves nothing behind, and disturbs nobody.
#[test]
fn detached_it_is_gone() {
    let Some(_turn) = turn("detached_it_is_gone") else { return };
    let mut lab = Lab::cached();
    let mut tcp = lab.tcp(&lab.cached);
    set(&mut tcp, b"left", b"value");
    lab.warm(b"left");
    let name = options(&[]).name;
    lab.cache.take().unwrap().detach();
    let shown = lab.cached.net.run("ip link");
    assert!(!shown.contains("xdp"), "{shown}");
    let left: Vec<String> = std::fs::read_dir("/sys/fs/bpf/tidemill")
        .map(|entries| {
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    assert!(!left.iter().any(|entry| entry.starts_with(&name)), "{left:?}");
    set(&mut tcp, b"left", b"another");
    agrees(&lab, b"left", "afterwards");
    assert!(!lab.is_hit(&mut lab.udp(&lab.cached), b"left"));
    // And again.
    lab.attach();
    drop(tcp);
    lab.warm(b"left");
}

/// Many keys, so that places are fought for: a value is never another key's.
#[test]
fn many_keys_are_not_mixed_up() {
    let Some(_turn) = turn("many_keys_are_not_mixed_up") else { return };
    let mut lab = Lab::plain();
    let mut small = options(INTERFACES);
    small.memory = 2 << 20;
    lab.cache = Some(Cache::with(&lab.cached, &small));
    let (mut tcp, mut udp) = (lab.tcp(&lab.cached), lab.udp(&lab.cached));
    for number in 0..1000 {
        set(&mut tcp, format!("many:{number}").as_bytes(), format!("value {number}").as_bytes());
    }
    for round in 0..40 {
        for number in 0..1000 {
            // A few of them at a time: a key has to be missed twice before it is kept.
            let number = (round / 8 * 200 + number % 200) % 1000;
            let data = format!("value {number}");
            let bytes = udp.ask(&get(format!("many:{number}").as_bytes())).unwrap();
            let wanted = format!("VALUE many:{number} 0 {}\r\n{data}\r\nEND\r\n", data.len());
            assert_eq!(bytes, wanted.as_bytes(), "round {round}");
        }
    }
    assert!(lab.cache.as_ref().unwrap().count("get-hit") > 500, "{}", lab.cache.as_ref().unwrap().describe());
}

/// Asks so often that it would be a hit; whether any was.
fn ever_hits(lab: &Lab, udp: &mut Udp, key: &[u8]) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(800) {
        if lab.is_hit(udp, key) {
            return true;
        }
    }
    false
}

#[test]
fn strangers_are_memcacheds_own_business() {
    let Some(_turn) = turn("strangers_are_memcacheds_own_business") else { return };
    let lab = Lab::cached();
    let mut pair = Pair::new(&lab);
    pair.given(b"known", 0, 0, b"value");
    // A source that is on no subnet of the interface.
    lab.client.add_address("10.77.0.1/32", "cached");
    lab.cached.net.run("ip route add 10.77.0.1 dev eth0");
    let before = lab.cache.as_ref().unwrap().count("get-denied");
    let mut stranger = Udp::new(lab.client.udp(([10, 77, 0, 1], 0).into()), lab.cached.v4);
    assert!(!ever_hits(&lab, &mut stranger, b"known"), "a stranger is answered");
    assert_eq!(stranger.ask(&get(b"known")).unwrap(), b"VALUE known 0 5\r\nvalue\r\nEND\r\n");
    assert!(lab.cache.as_ref().unwrap().count("get-denied") > before);
    lab.warm(b"known");
}

#[test]
fn who_asks_too_much_is_passed_on() {
    let Some(_turn) = turn("who_asks_too_much_is_passed_on") else { return };
    let mut lab = Lab::plain();
    let mut slow = options(INTERFACES);
    slow.rate = 50;
    lab.cache = Some(Cache::with(&lab.cached, &slow));
    set(&mut lab.tcp(&lab.cached), b"limited", b"value");
    lab.warm(b"limited");
    let cache = lab.cache.as_ref().unwrap();
    let (hits, start) = (cache.count("get-hit"), Instant::now());
    let mut udp = lab.udp(&lab.cached);
    for _ in 0..1000 {
        assert_eq!(udp.ask(&get(b"limited")).unwrap(), b"VALUE limited 0 5\r\nvalue\r\nEND\r\n");
    }
    let most = 50 * (2 + start.elapsed().as_secs());
    let hits = cache.count("get-hit") - hits;
    assert!(
        hits <= most && cache.count("get-limited") >= 1000 - most,
        "{hits} answers: {}",
        cache.describe()
    );
    wait_until("it may ask again", Duration::from_secs(5), || lab.is_hit(&mut udp, b"limited"));
}
