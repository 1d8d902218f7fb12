//! The same bytes to both memcacheds, replies compared byte for byte. Only the numbers for `cas` may differ, and how datagrams are
//! numbered.

use super::client::{Tcp, Udp};
use super::lab::{Lab, Server};
use super::wire::{self, Ask, Speech};
use std::time::Duration;

/// Sockets to one of the two.
pub(crate) struct Side {
    pub(crate) udp: Udp,
    pub(crate) udp6: Udp,
    pub(crate) text: Tcp,
    pub(crate) binary: Tcp,
}

impl Side {
    fn new(lab: &Lab, server: &Server) -> Self {
        let (udp, udp6) = (lab.udp(server), lab.udp6(server));
        Side { udp, udp6, text: lab.tcp(server), binary: lab.tcp6(server) }
    }

    /// Over TCP, up to the end of what is said to it.
    pub(crate) fn tcp(&mut self, bytes: &[u8]) -> Vec<u8> {
        let binary = bytes[0] == 0x80;
        let tcp = if binary { &mut self.binary } else { &mut self.text };
        tcp.send(bytes);
        tcp.until_noop(binary)
    }
}

/// The two.
pub(crate) struct Pair<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) cached: Side,
    pub(crate) plain: Side,
    /// How many replies were compared.
    pub(crate) compared: usize,
}

/// Which way a question goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Udp,
    Udp6,
    /// Text over IPv4, binary over IPv6.
    Tcp,
}

pub(crate) const WAYS: [Way; 3] = [Way::Udp, Way::Udp6, Way::Tcp];

fn text(bytes: &[u8]) -> String {
    let shown: String = bytes.iter().take(300).flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
    format!("{} bytes: {shown}", bytes.len())
}

/// Without the numbers for `cas` of binary replies.
pub(crate) fn plain_binary(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while bytes.len() >= at + 24 && bytes[at] == 0x81 {
        bytes[at + 16..at + 24].fill(0);
        let body = u32::from_be_bytes([bytes[at + 8], bytes[at + 9], bytes[at + 10], bytes[at + 11]]);
        at += 24 + body as usize;
    }
    bytes
}

impl<'a> Pair<'a> {
    pub(crate) fn new(lab: &'a Lab) -> Self {
        let (cached, plain) = (Side::new(lab, &lab.cached), Side::new(lab, &lab.plain));
        Pair { lab, cached, plain, compared: 0 }
    }

    fn same(&mut self, what: &str, bytes: &[u8], cached: Vec<u8>, plain: Vec<u8>) -> Vec<u8> {
        let (cached, plain) = (plain_binary(cached), plain_binary(plain));
        assert!(
            cached == plain,
            "{what}: to {}\nwith the cache {}\nwithout it     {}",
            text(bytes),
            text(&cached),
            text(&plain)
        );
        self.compared += 1;
        plain
    }

    /// Over TCP to both, on connections that stay; all that is said to it.
    pub(crate) fn tcp(&mut self, bytes: &[u8], what: &str) -> Vec<u8> {
        let (cached, plain) = (self.cached.tcp(bytes), self.plain.tcp(bytes));
        self.same(what, bytes, cached, plain)
    }

    /// A question to both; it may be asked again.
    pub(crate) fn ask(&mut self, way: Way, bytes: &[u8], what: &str) -> Vec<u8> {
        let mut answers = [&mut self.cached, &mut self.plain].map(|side| match way {
            Way::Udp => side.udp.ask(bytes),
            Way::Udp6 => side.udp6.ask(bytes),
            Way::Tcp => Some(side.tcp(bytes)),
        });
        let [cached, plain] =
            answers.each_mut().map(|answer| answer.take().unwrap_or_else(|| b"(nothing)".to_vec()));
        self.same(&format!("{what}, {way:?}"), bytes, cached, plain)
    }

    /// A command over UDP that has to have a reply, once.
    pub(crate) fn udp_once(&mut self, bytes: &[u8], what: &str) -> Vec<u8> {
        let [cached, plain] = [&mut self.cached, &mut self.plain].map(|side| {
            side.udp.wait = Duration::from_secs(5);
            let request = side.udp.send(bytes);
            side.udp.receive(request).unwrap_or_else(|| panic!("{what}: no reply to {}", text(bytes)))
        });
        self.same(what, bytes, cached, plain)
    }

    /// All datagrams that come to a request, if any, with what their headers say of their number.
    pub(crate) fn datagrams(&mut self, bytes: &[u8], what: &str) -> usize {
        let [mut cached, mut plain] =
            [&mut self.cached, &mut self.plain].map(|side| side.udp.all(bytes, Duration::from_millis(100)));
        // Whoever has stood still has time for as many as the other has given.
        let most = cached.len().max(plain.len());
        self.cached.udp.rest(&mut cached, most);
        self.plain.udp.rest(&mut plain, most);
        // Between datagrams of one request there is no order on the way.
        cached.sort();
        plain.sort();
        let count = plain.len();
        self.same(what, bytes, cached.concat(), plain.concat());
        count
    }

    /// Every way to read keys without a change, over UDP and TCP, IPv4 and IPv6.
    pub(crate) fn reads(&mut self, key: &[u8], what: &str) {
        for way in WAYS {
            self.ask(way, &wire::request(Speech::Ascii, &Ask::Get, key, false, 0), what);
            self.ask(way, &wire::request(Speech::Binary, &Ask::Get, key, false, 0xdead_beef), what);
            self.ask(way, &wire::packet(0x0c, b"", key, b"", 0x0102_0304, 0), what);
            for flags in ["v", "v f", "f v", "s v f", "k v O4711", "f s k", "v q f", ""] {
                let line = [b"mg ", key, b" ", flags.as_bytes(), b"\r\n"].concat();
                // Quiet: a miss has no answer.
                let is_quiet = flags.contains('q') && way != Way::Tcp;
                if !is_quiet {
                    self.ask(way, &line, what);
                }
            }
        }
    }

    /// A value for both, over TCP; the key is as good as cached afterwards on the side that has a cache.
    pub(crate) fn given(&mut self, key: &[u8], flags: u32, expiry: i64, data: &[u8]) {
        let head = format!(" {flags} {expiry} {}\r\n", data.len());
        let said = self.tcp(&[b"set ", key, head.as_bytes(), data, b"\r\n"].concat(), "set");
        assert_eq!(said, b"STORED\r\n");
        self.lab.warm(key);
    }
}
