//! Golden transactions: bytes to memcached, what they do, bytes from memcached. Support for tests: of the codec here, of any other parser of these
//! streams, of memcached itself. The files under `tests/golden/` say what their form is.

use crate::codec::event::{Answer, Command, Family, Lost, Owned};

/// One transaction: the whole of a connection.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// What it shows.
    pub name: &'static str,
    /// What the client sends.
    pub request: Vec<u8>,
    /// What that does, by [`crate::codec::stream::Requests`].
    pub events: Vec<Owned>,
    /// What memcached 1.6.18 sends: bytes, and what may be anything. Empty: it sends one thing or another.
    pub reply: Vec<Piece>,
}

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// This.
    Is(Vec<u8>),
    /// A version: digits in text, 8 bytes in binary.
    Any,
}

/// Of the text protocols.
pub fn text() -> Vec<Transaction> {
    read(include_str!("../tests/golden/text.txt"))
}

/// Of the binary protocol.
pub fn binary() -> Vec<Transaction> {
    read(include_str!("../tests/golden/binary.txt"))
}

impl Transaction {
    /// Whether memcached's bytes are what they should be.
    pub fn is_answered_by(&self, mut bytes: &[u8]) -> bool {
        let binary = self.request.first() == Some(&crate::codec::binary::REQUEST);
        for piece in &self.reply {
            let len = match piece {
                Piece::Is(expected) if bytes.starts_with(expected) => expected.len(),
                Piece::Is(_) => return false,
                Piece::Any if binary => 8,
                Piece::Any => bytes.iter().take_while(|byte| byte.is_ascii_digit()).count(),
            };
            let Some(rest) = bytes.get(len..) else { return false };
            bytes = rest;
        }
        bytes.is_empty() || self.reply.is_empty()
    }

    /// A reply as memcached may send it: 42 for each version.
    pub fn reply(&self) -> Vec<u8> {
        let binary = self.request.first() == Some(&crate::codec::binary::REQUEST);
        let version: &[u8] = if binary { &[0, 0, 0, 0, 0, 0, 0, 42] } else { b"42" };
        let bytes = self.reply.iter().map(|piece| match piece {
            Piece::Is(bytes) => bytes,
            Piece::Any => version,
        });
        bytes.collect::<Vec<_>>().concat()
    }
}

/// Reads a file of transactions. What is wrong in it is a fault of this crate.
///
/// # Panics
/// If a line is of no known kind.
fn read(text: &'static str) -> Vec<Transaction> {
    let mut all: Vec<Transaction> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let last = all.last_mut();
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (kind, last) {
            (">", Some(last)) => last.request.extend(bytes(rest)),
            ("<", Some(last)) => {
                for (at, part) in rest.split(r"\?").enumerate() {
                    if at > 0 {
                        last.reply.push(Piece::Any);
                    }
                    last.reply.push(Piece::Is(bytes(part)));
                }
            }
            ("=", Some(last)) => last.events.push(event(rest)),
            _ => all.push(Transaction {
                name: line,
                request: Vec::new(),
                events: Vec::new(),
                reply: Vec::new(),
            }),
        }
    }
    all
}

fn event(text: &str) -> Owned {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["reads", key] => Owned::Reads(bytes(key)),
        ["mutates", key] => Owned::Mutates(bytes(key)),
        ["all"] => Owned::All,
        ["lost", why] => Owned::Lost(match why {
            "odd-number" => Lost::OddNumber,
            "many-tokens" => Lost::ManyTokens,
            "reply" => Lost::Reply,
            "long-line" => Lost::LongLine,
            "binary" => Lost::Binary,
            _ => panic!("{text}"),
        }),
        ["command", answer, ref family @ ..] => {
            let answer = match answer {
                "always" => Answer::Always,
                "never" => Answer::Never,
                "maybe" => Answer::Maybe,
                "found" => Answer::Found,
                "failed" => Answer::Failed,
                _ => panic!("{text}"),
            };
            let family = match family {
                ["classic"] => Family::Classic,
                ["meta"] => Family::Meta,
                ["mn"] => Family::MetaNoOp,
                ["watch"] => Family::Watch,
                ["binary", opcode, opaque] => Family::Binary {
                    opcode: u8::from_str_radix(opcode.trim_start_matches("0x"), 16)
                        .unwrap_or_else(|_| panic!("{text}")),
                    opaque: opaque.parse().unwrap_or_else(|_| panic!("{text}")),
                },
                _ => panic!("{text}"),
            };
            Owned::Command(Command { answer, family })
        }
        _ => panic!("{text}"),
    }
}

/// Bytes with their escapes resolved.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            bytes.extend(c.to_string().bytes());
            continue;
        }
        match rest.next() {
            Some('r') => bytes.push(b'\r'),
            Some('n') => bytes.push(b'\n'),
            Some('t') => bytes.push(b'\t'),
            Some('0') => bytes.push(0),
            Some('\\') => bytes.push(b'\\'),
            Some('x') => {
                let digits: String = rest.by_ref().take(2).collect();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap_or_else(|_| panic!("{text}")));
            }
            Some('{') => {
                let inner: String = rest.by_ref().take_while(|&c| c != '}').collect();
                let (count, byte) = inner.split_once(':').unwrap_or_else(|| panic!("{text}"));
                let count: usize = count.parse().unwrap_or_else(|_| panic!("{text}"));
                bytes.extend(byte.repeat(count).bytes());
            }
            _ => panic!("{text}"),
        }
    }
    bytes
}
