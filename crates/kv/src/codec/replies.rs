//! What memcached answers on a connection, in pieces of any sizes: it says when a reply is complete, and of what family.
//!
//! ```text
//!  VALUE k 0 3 | abc | VALUE ... | END          one reply        STORED    one         0x81 header body      one; STAT: until one without a key
//!  VA 3 f0     | abc                            one              HD        one
//!  STAT a b    | STAT ... | END                 one              MN        one
//! ```
//!
//! Replies in text describe themselves, so the commands need not be known. Bounded: less than 150 bytes, no allocation.

use super::binary::{self, Header, opcode};
use super::number::{Number, Range, Reader};

/// A reply that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Values and `END`, a line of the classic protocol, or lines of `stats` and their `END`.
    Classic,
    /// `VA HD EN NF NS EX ME`.
    Meta(Says),
    /// `MN`.
    MetaNoOp,
    /// `ERROR`, `CLIENT_ERROR ...`, `SERVER_ERROR ...`: of any text command.
    Error,
    /// Binary, of the request with these two.
    Binary {
        /// The request's.
        opcode: u8,
        /// The request's.
        opaque: u32,
    },
    /// The bytes are no reply: nothing more is known of this connection. The last one.
    Lost,
}

/// What a reply of the meta protocol says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// `HD`, `VA`: it is there, or it is done.
    Done,
    /// `NF NS EX`: it is not done.
    Failed,
    /// `EN`: it is not there.
    Missed,
    /// `ME`: what is known of it.
    About,
}

/// A stream of replies.
#[derive(Debug, Clone, Default)]
pub struct Replies {
    state: State,
    binary: bool,
    header: [u8; binary::HEADER],
    filled: usize,
    line: Line,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    First,
    Command,
    /// So many bytes of a value, and the reply that is complete then.
    Value(u64, Option<Reply>),
    Lost,
}

impl Replies {
    /// At the beginning of a connection, or of a datagram.
    pub fn new() -> Self {
        Replies::default()
    }

    /// The next bytes. What is told does not depend on how the stream is cut into pieces.
    pub fn push(&mut self, mut bytes: &[u8], mut complete: impl FnMut(Reply)) {
        while let Some(&first) = bytes.first() {
            match self.state {
                State::First => {
                    self.binary = first == binary::REPLY;
                    self.state = State::Command;
                }
                State::Command if self.binary => {
                    let taken = bytes.len().min(binary::HEADER - self.filled);
                    self.header[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
                    self.filled += taken;
                    bytes = &bytes[taken..];
                    if self.filled == binary::HEADER {
                        self.filled = 0;
                        self.go_on(binary_reply(&Header::read(&self.header)), &mut complete);
                    }
                }
                State::Command => {
                    bytes = &bytes[1..];
                    if first != b'\n' {
                        self.line.push(first);
                        continue;
                    }
                    let line = std::mem::take(&mut self.line);
                    self.go_on(line.finish(), &mut complete);
                }
                State::Value(left, reply) => {
                    let here = left.min(bytes.len() as u64);
                    bytes = &bytes[here as usize..];
                    self.go_on((left - here, reply), &mut complete);
                }
                State::Lost => return,
            }
        }
    }

    /// So many bytes of value are yet to come; then this is complete.
    fn go_on(&mut self, (left, reply): (u64, Option<Reply>), complete: &mut impl FnMut(Reply)) {
        self.state = match (left, reply) {
            (0, Some(Reply::Lost)) => State::Lost,
            (0, _) => State::Command,
            _ => State::Value(left, reply),
        };
        if left == 0 {
            reply.into_iter().for_each(complete);
        }
    }

    /// Whether a reply, or one of its values, has begun and is not complete. Values of which the `END` is yet to come do not count.
    pub fn is_within(&self) -> bool {
        self.filled > 0 || self.line.token > 0 || self.line.len > 0 || matches!(self.state, State::Value(..))
    }
}

fn binary_reply(header: &Header) -> (u64, Option<Reply>) {
    if header.magic != binary::REPLY || header.value().is_none() {
        return (0, Some(Reply::Lost));
    }
    let more = header.opcode == opcode::STAT && header.status == 0 && header.key > 0;
    let reply = Reply::Binary { opcode: header.opcode, opaque: header.opaque };
    (header.body.into(), (!more).then_some(reply))
}

/// A line: its first word and two numbers.
#[derive(Debug, Clone, Default)]
struct Line {
    token: u32,
    len: usize,
    word: [u8; 12],
    word_len: usize,
    /// Of tokens 1 and 3.
    numbers: [Reader; 2],
    held: bool,
}

impl Line {
    fn push(&mut self, byte: u8) {
        if self.held {
            self.held = false;
            self.text(b'\r');
        }
        if byte == b'\r' {
            self.held = true;
        } else {
            self.text(byte);
        }
    }

    fn text(&mut self, byte: u8) {
        if byte == b' ' {
            self.token = self.token.saturating_add(1);
            self.len = 0;
            return;
        }
        self.len += 1;
        match self.token {
            0 => {
                if let Some(place) = self.word.get_mut(self.word_len) {
                    *place = byte;
                }
                self.word_len += 1;
            }
            1 => self.numbers[0].push(byte),
            3 => self.numbers[1].push(byte),
            _ => {}
        }
    }

    /// What follows the line, and what is complete then.
    fn finish(&self) -> (u64, Option<Reply>) {
        let start = &self.word[..self.word_len.min(self.word.len())];
        let word = if self.word_len > start.len() { &[] } else { start };
        let value = |number: &Reader, reply| match number.finish(Range::Length) {
            Number::Is(len) => (len as u64 + 2, reply),
            _ => (0, Some(Reply::Lost)),
        };
        match word {
            b"VALUE" => value(&self.numbers[1], None),
            b"VA" => value(&self.numbers[0], Some(Reply::Meta(Says::Done))),
            b"HD" => (0, Some(Reply::Meta(Says::Done))),
            b"NF" | b"NS" | b"EX" => (0, Some(Reply::Meta(Says::Failed))),
            b"EN" => (0, Some(Reply::Meta(Says::Missed))),
            b"ME" => (0, Some(Reply::Meta(Says::About))),
            b"MN" => (0, Some(Reply::MetaNoOp)),
            b"STAT" | b"ITEM" | b"PREFIX" => (0, None),
            // What `lru_crawler metadump` says of a key.
            _ if start.starts_with(b"key=") => (0, None),
            b"ERROR" | b"ERROR:" | b"CLIENT_ERROR" | b"SERVER_ERROR" => (0, Some(Reply::Error)),
            _ => (0, Some(Reply::Classic)),
        }
    }
}
