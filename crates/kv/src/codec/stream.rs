//! The requests of a TCP connection, or of one datagram, in pieces of any sizes.
//!
//! ```text
//!            LF                      length + 2 bytes are there
//!  Line ----------> value follows? ------------------------------> Line          first byte 0x80: Header -> Key -> Skip -> Header
//!   | `quit`                  | nobody can know
//!   v                         v
//!  Closed                    Lost
//! ```
//!
//! Values are counted, not kept; a key that lies over the border of two pieces is kept, so all of the state is less than 800 bytes. No memory is
//! allocated. Cost: some nanoseconds for each byte of a line or header, nothing for each byte of a value.
//!
//! This is the reference for other parsers, in a kernel too. Where memcached (1.6.18, measured) surely refuses a line, what it does next is followed;
//! where one outside cannot be sure, the stream is [`Event::Lost`]. Effects are told even of commands that will be refused: a void entry costs a hit.

use super::MAX_KEY;
use super::binary::{self, Class, Header};
use super::event::{Event, Lost};
use super::line::{Line, Next};
use super::number::Number;

/// Where a stream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At the start of a command.
    Between,
    /// In a line, or in a binary request's header, extras or key.
    InCommand,
    /// In a value: so many bytes are yet to come, the CR LF of the text protocols included.
    InValue(u64),
    /// Behind a `quit`.
    Closed,
    /// Behind [`Event::Lost`].
    Lost,
}

/// When a `flush_all` is for later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// So many seconds from its execution, or, above 30 days, at this time (seconds since 1970).
    Seconds(u32),
    /// memcached may take the number or not, and as what.
    Unknown,
}

/// Delays that are kept until they are asked for; of more, the last stands for any.
const DELAYS: usize = 4;

/// A stream of requests.
#[derive(Debug, Clone)]
pub struct Requests {
    state: State,
    binary: bool,
    line: Line,
    request: Frame,
    delays: [Option<Delay>; DELAYS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing has come: the first byte decides which protocol it is.
    First,
    /// In a line or in a binary request up to its key.
    Command,
    /// In a value.
    Value(u64),
    Closed,
    Lost,
}

impl Default for Requests {
    fn default() -> Self {
        let (line, request) = (Line::default(), Frame::default());
        Requests { state: State::First, binary: false, line, request, delays: [None; DELAYS] }
    }
}

impl Requests {
    /// At the beginning of a connection, or of a datagram.
    pub fn new() -> Self {
        Requests::default()
    }

    /// The next bytes. The events do not depend on how the stream is cut into pieces.
    pub fn push(&mut self, mut bytes: &[u8], emit: &mut impl FnMut(Event<'_>)) {
        while let Some(&first) = bytes.first() {
            match self.state {
                State::First => {
                    self.binary = first == binary::REQUEST;
                    self.state = State::Command;
                }
                State::Command if self.binary => {
                    let taken = self.request.take(bytes);
                    bytes = &bytes[taken..];
                    match self.request.next(emit) {
                        None => {}
                        Some(next) => {
                            self.later(self.request.delay());
                            self.go_on(next, emit);
                        }
                    }
                }
                State::Command => {
                    bytes = &bytes[1..];
                    if let Some(next) = self.line.push(first, emit) {
                        self.later(self.line.delay());
                        self.line = Line::default();
                        self.go_on(next, emit);
                    }
                }
                State::Value(left) => {
                    let here = left.min(bytes.len() as u64);
                    bytes = &bytes[here as usize..];
                    self.state = if here == left { State::Command } else { State::Value(left - here) };
                }
                State::Closed | State::Lost => return,
            }
        }
    }

    fn go_on(&mut self, next: Next, emit: &mut impl FnMut(Event<'_>)) {
        self.request = Frame::default();
        self.state = match next {
            Next::Line | Next::Value(0) => State::Command,
            Next::Value(len) => State::Value(len),
            Next::Close => State::Closed,
            Next::Lost(lost) => {
                emit(Event::Lost(lost));
                State::Lost
            }
        };
    }

    fn later(&mut self, delay: Option<Delay>) {
        if delay.is_none() {
            return;
        }
        match self.delays.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = delay,
            None => self.delays[DELAYS - 1] = Some(Delay::Unknown),
        }
    }

    /// The delays of the flushes for later that have come since this was called last. Each was told as [`Event::All`] as well: that is about now.
    pub fn take_delays(&mut self) -> impl Iterator<Item = Delay> + use<> {
        std::mem::take(&mut self.delays).into_iter().flatten()
    }

    /// Where the stream stands. A datagram that does not end between commands: memcached forgets a line that is not whole; for the rest of a value it
    /// takes the next datagram of any client, frame header and all.
    pub fn place(&self) -> Place {
        match self.state {
            State::First => Place::Between,
            State::Command if self.line.is_empty() && self.request.filled == 0 => Place::Between,
            State::Command => Place::InCommand,
            State::Value(left) => Place::InValue(left),
            State::Closed => Place::Closed,
            State::Lost => Place::Lost,
        }
    }

    /// Whether the connection speaks binary; `None` while nothing has come.
    pub fn is_binary(&self) -> Option<bool> {
        (self.state != State::First).then_some(self.binary)
    }
}

/// A binary request from header to key.
#[derive(Debug, Clone)]
struct Frame {
    /// Header, then key.
    header: [u8; binary::HEADER],
    key: [u8; MAX_KEY],
    /// Bytes of header, extras and key that have come.
    filled: usize,
    /// The first four bytes of extras.
    extras: [u8; 4],
}

impl Default for Frame {
    fn default() -> Self {
        Frame { header: [0; binary::HEADER], key: [0; MAX_KEY], filled: 0, extras: [0; 4] }
    }
}

impl Frame {
    /// Takes what belongs to one of its parts; how many bytes these were.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let part = match self.filled.checked_sub(binary::HEADER) {
            None => &mut self.header[self.filled..],
            Some(behind) => {
                let header = Header::read(&self.header);
                let extras = usize::from(header.extras);
                if behind < extras {
                    let skipped = bytes.len().min(extras - behind);
                    for (place, byte) in self.extras.iter_mut().skip(behind).zip(&bytes[..skipped]) {
                        *place = *byte;
                    }
                    self.filled += skipped;
                    return skipped;
                }
                // `next` has refused longer keys.
                &mut self.key[behind - extras..usize::from(header.key)]
            }
        };
        let taken = part.len().min(bytes.len());
        part[..taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        taken
    }

    /// Of a whole header with its extras: when it flushes, if that is later.
    fn delay(&self) -> Option<Delay> {
        let header = Header::read(&self.header);
        let flushes = matches!(header.opcode, binary::opcode::FLUSH | binary::opcode::FLUSHQ);
        let seconds = u32::from_be_bytes(self.extras);
        (flushes && header.extras > 0 && seconds > 0).then_some(match header.extras {
            4 => Delay::Seconds(seconds),
            _ => Delay::Unknown,
        })
    }

    /// What follows, if header, extras and key are there or the header is refused.
    fn next(&self, emit: &mut impl FnMut(Event<'_>)) -> Option<Next> {
        if self.filled < binary::HEADER {
            // A wrong first byte is seen when the header is whole, as memcached does.
            return None;
        }
        let header = Header::read(&self.header);
        let (class, command) = match binary::class(&header) {
            Ok(known) => known,
            Err(lost) => return Some(Next::Lost(lost)),
        };
        let value = header.value()?;
        if self.filled < binary::HEADER + usize::from(header.extras) + usize::from(header.key) {
            return None;
        }
        binary::emit_class(class, &self.key[..header.key.into()], emit);
        emit(Event::Command(command));
        Some(if class == Class::Quits { Next::Close } else { Next::Value(value.into()) })
    }
}

/// All events of a datagram's bytes behind its frame header, and where it ends. memcached executes every whole command of a datagram.
pub fn datagram(bytes: &[u8], emit: &mut impl FnMut(Event<'_>)) -> Place {
    let mut requests = Requests::new();
    requests.push(bytes, emit);
    requests.place()
}

/// Why a stream was lost, in words.
impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Lost::OddNumber => "a number that may be taken or not decides whether a value follows",
            Lost::ManyTokens => "ms with more than 19 tokens",
            Lost::Reply => "a reply that may hold a key with a line break",
            Lost::LongLine => "a line of more than 2048 bytes",
            Lost::Binary => "a binary request that breaks the protocol",
        })
    }
}

impl Delay {
    /// Of `flush_all`'s argument.
    pub fn of(token: &[u8]) -> Option<Self> {
        match Number::read(token, super::number::Range::Time) {
            Number::Is(seconds) => u32::try_from(seconds).ok().filter(|&s| s > 0).map(Delay::Seconds),
            // Refused by memcached as well.
            Number::Refused => None,
            Number::Odd => Some(Delay::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::replies::Replies;
    use std::mem::size_of;

    fn delays(bytes: &[u8]) -> Vec<Delay> {
        // However it is cut.
        let mut cut = Requests::new();
        bytes.iter().for_each(|byte| cut.push(&[*byte], &mut |_| ()));
        let mut whole = Requests::new();
        whole.push(bytes, &mut |_| ());
        let delays: Vec<Delay> = whole.take_delays().collect();
        assert_eq!(cut.take_delays().collect::<Vec<_>>(), delays);
        assert_eq!(whole.take_delays().count(), 0);
        delays
    }

    #[test]
    fn flushes_for_later() {
        use Delay::*;
        assert_eq!(delays(b"flush_all\r\nflush_all 0\r\nflush_all -5 noreply\r\nflush_all noreply\r\n"), []);
        assert_eq!(
            delays(b"flush_all 10\r\nget k\r\nflush_all  300 noreply\r\n"),
            [Seconds(10), Seconds(300)]
        );
        assert_eq!(delays(b"flush_all +10\r\nset flush_all 5 0 1\r\nx\r\n"), [Unknown]);
        assert_eq!(delays(&b"flush_all 1\r\n".repeat(5)), [Seconds(1), Seconds(1), Seconds(1), Unknown]);
        let binary = |opcode, extras: &[u8]| {
            let mut bytes = Vec::new();
            let (extras_len, body) = (extras.len() as u8, extras.len() as u32);
            Header { magic: binary::REQUEST, opcode, extras: extras_len, body, ..Header::default() }
                .write(&mut bytes);
            [bytes, extras.to_vec()].concat()
        };
        assert_eq!(delays(&binary(8, &[])), []);
        assert_eq!(delays(&binary(8, &[0; 4])), []);
        assert_eq!(
            delays(&[binary(8, &[0, 0, 1, 2]), binary(0x18, &[0, 0, 0, 9])].concat()),
            [Seconds(258), Seconds(9)]
        );
    }

    #[test]
    fn the_state_is_bounded() {
        assert!(size_of::<Requests>() < 800, "{}", size_of::<Requests>());
        assert!(size_of::<Replies>() < 150, "{}", size_of::<Replies>());
    }
}
