//! One command line of the text protocols, byte by byte: what is kept of it is a word, a key and four numbers, however long it is.
//!
//! ```text
//! set  key  flags  time  length  noreply         mg  key  flag...         get  key...
//! 0    1    2      3     4       last            0   1    2..             0    1..
//! ```
//!
//! As memcached does it: tokens are parted by spaces alone; the line's text ends at the first NUL; a CR before the LF is no part of it.

use super::event::{Answer, Command, Event, Family, Lost};
use super::number::{Number, Range, Reader};
use super::stream::Delay;
use super::verb::{self, Verb};
use super::{MAX_KEY, base64};

/// The longest line that memcached surely takes, in bytes without its LF; `get` and `gets` may be longer.
pub const LONGEST: usize = 2048;

/// `ms` with more tokens than this is refused before its length is looked at.
const META_TOKENS: u32 = 19;

/// What follows a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next one.
    Line,
    /// So many bytes: a value and its CR LF.
    Value(u64),
    /// Nothing: memcached closes.
    Close,
    /// It cannot be known.
    Lost(Lost),
}

/// A line, as far as it has come.
#[derive(Debug, Clone)]
pub struct Line {
    /// Bytes, CR included.
    len: usize,
    /// A CR that may be the line's end.
    held: bool,
    /// A NUL has come.
    cut: bool,
    /// Which token is being read, or was read last.
    token: u32,
    /// Bytes of it; 0 between tokens.
    token_len: usize,
    /// The token's first bytes: the word of token 0, "noreply", the letter of a flag.
    head: [u8; HEAD],
    /// The verb, from the end of token 0 on.
    verb: Option<Verb>,
    key: [u8; MAX_KEY],
    /// Bytes of token 1 (`gat`: of the token), also of those that are not kept.
    key_len: usize,
    /// Of tokens 2 (flags; the length of `ms`), 3 (time), 4 (length), 5 (`cas`).
    numbers: [Reader; 4],
    /// The last token so far is `noreply`.
    noreply: bool,
    /// The meta flags so far.
    quiet: bool,
    encoded: bool,
    key_back: bool,
    changes: bool,
    /// The line's first bytes.
    start: [u8; 5],
}

/// Whether a line that begins so may be longer than others.
pub(super) fn may_be_long(start: &[u8]) -> bool {
    start.starts_with(b"get ") || start.starts_with(b"gets ")
}

const HEAD: usize = verb::LONGEST + 1;

impl Default for Line {
    fn default() -> Self {
        Line {
            len: 0,
            held: false,
            cut: false,
            token: 0,
            token_len: 0,
            head: [0; HEAD],
            verb: None,
            key: [0; MAX_KEY],
            key_len: 0,
            numbers: [Reader::default(); 4],
            noreply: false,
            quiet: false,
            encoded: false,
            key_back: false,
            changes: false,
            start: [0; 5],
        }
    }
}

impl Line {
    /// Whether nothing of it has come.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The next byte; what follows if it was the last. Keys of `get` and `gat` are told as they end.
    pub fn push(&mut self, byte: u8, emit: &mut impl FnMut(Event<'_>)) -> Option<Next> {
        if byte == b'\n' {
            // A line of CR alone keeps it; it is no command either way.
            return Some(self.finish(emit));
        }
        if let Some(place) = self.start.get_mut(self.len) {
            *place = byte;
        }
        self.len += 1;
        if self.len > LONGEST && !may_be_long(&self.start) {
            return Some(Next::Lost(Lost::LongLine));
        }
        if self.held {
            self.held = false;
            self.text(b'\r', emit);
        }
        if byte == b'\r' {
            self.held = true;
        } else {
            self.text(byte, emit);
        }
        None
    }

    fn text(&mut self, byte: u8, emit: &mut impl FnMut(Event<'_>)) {
        self.cut |= byte == 0;
        if self.cut {
            return;
        }
        if byte == b' ' {
            self.end_token(emit);
            return;
        }
        if self.token_len == 0 {
            self.noreply = false;
            let many = self.verb.is_some_and(Verb::gets);
            if self.token == 1 || many {
                self.key_len = 0;
            }
        }
        if let Some(place) = self.head.get_mut(self.token_len) {
            *place = byte;
        }
        self.token_len += 1;
        if self.token == 1 || self.verb.is_some_and(Verb::gets) {
            if let Some(place) = self.key.get_mut(self.key_len) {
                *place = byte;
            }
            self.key_len += 1;
        }
        if let 2..=5 = self.token {
            self.numbers[self.token as usize - 2].push(byte);
        }
    }

    /// The token's bytes, if it is short.
    fn head(&self) -> &[u8] {
        self.head.get(..self.token_len).unwrap_or(&[])
    }

    fn end_token(&mut self, emit: &mut impl FnMut(Event<'_>)) {
        if self.token_len == 0 {
            return;
        }
        self.noreply = self.token > 0 && self.head() == b"noreply";
        match self.verb {
            None => self.verb = Some(Verb::of(self.head())),
            Some(Verb::Get | Verb::Gets) => self.key().into_iter().for_each(|key| emit(Event::Reads(key))),
            Some(Verb::Gat | Verb::Gats) if self.token >= 2 => {
                self.key().into_iter().for_each(|key| emit(Event::Mutates(key)));
            }
            Some(verb) if verb.is_meta() && self.token >= if verb == Verb::Ms { 3 } else { 2 } => {
                // A flag counts by its first letter.
                self.quiet |= self.head[0] == b'q';
                self.encoded |= self.head[0] == b'b';
                self.key_back |= self.head[0] == b'k';
                self.changes |= matches!(self.head[0], b'T' | b'N' | b'R');
            }
            Some(_) => {}
        }
        self.token = self.token.saturating_add(1);
        self.token_len = 0;
    }

    /// The key, if memcached takes one of this length.
    fn key(&self) -> Option<&[u8]> {
        self.key.get(..self.key_len).filter(|key| !key.is_empty())
    }

    /// Of a whole line: when it flushes, if that is later.
    pub(super) fn delay(&self) -> Option<Delay> {
        let flushes = self.verb == Some(Verb::FlushAll) && self.token >= 2;
        if flushes { self.key.get(..self.key_len).map_or(Some(Delay::Unknown), Delay::of) } else { None }
    }

    fn finish(&mut self, emit: &mut impl FnMut(Event<'_>)) -> Next {
        self.end_token(emit);
        // From here on `token` is the number of tokens.
        let verb = self.verb.unwrap_or(Verb::Asks);
        self.effect(verb, emit);
        let next = match verb {
            Verb::Quit => Next::Close,
            _ if self.reply_may_break(verb) => Next::Lost(Lost::Reply),
            _ if verb.stores() => self.value(verb),
            _ => Next::Line,
        };
        if let Next::Lost(_) = next {
            return next;
        }
        let answer = match verb.tokens() {
            _ if verb == Verb::Quit => Answer::Never,
            Some(right) if self.noreply && right.contains(&self.token) => Answer::Never,
            None if self.noreply && matches!(verb, Verb::Unknown | Verb::Tunes | Verb::Watch) => {
                Answer::Maybe
            }
            None if self.quiet => verb.quiet_answer(),
            _ => Answer::Always,
        };
        let family = match verb {
            Verb::Mn => Family::MetaNoOp,
            Verb::Watch => Family::Watch,
            _ if verb.is_meta() => Family::Meta,
            _ => Family::Classic,
        };
        emit(Event::Command(Command { answer, family }));
        next
    }

    /// What the line does but for the keys that are told already.
    fn effect(&self, verb: Verb, emit: &mut impl FnMut(Event<'_>)) {
        if matches!(verb, Verb::FlushAll | Verb::Unknown) {
            return emit(Event::All);
        }
        let changes = verb.changes_key() || (verb == Verb::Mg && self.changes);
        if verb.gets() || self.token < 2 || (!changes && verb != Verb::Mg) {
            return;
        }
        let Some(key) = self.key() else { return };
        let mut decoded = [0; MAX_KEY];
        let key = if self.encoded { base64::decode(key, &mut decoded) } else { Some(key) };
        match key {
            Some(key) if changes => emit(Event::Mutates(key)),
            Some(key) => emit(Event::Reads(key)),
            None if changes => emit(Event::All),
            None => {}
        }
    }

    /// Whether the reply may hold a key with a line break. memcached encodes keys in replies, but not those that have come by the binary protocol.
    fn reply_may_break(&self, verb: Verb) -> bool {
        if verb == Verb::Stats {
            return self.token > 2;
        }
        if verb == Verb::Tunes {
            return self.key() == Some(&b"mgdump"[..]);
        }
        let back = verb == Verb::Me || (verb == Verb::Mg && self.key_back);
        let decode = |key| base64::decode(key, &mut [0; MAX_KEY]).is_none_or(|key| key.contains(&b'\n'));
        back && self.encoded && self.key().is_some_and(decode)
    }

    /// Whether a value follows. A refused line is followed by none, whatever its length says.
    fn value(&self, verb: Verb) -> Next {
        let number = |at: usize, range| self.numbers[at - 2].finish(range);
        let numbers = match verb {
            Verb::Ms if self.token > META_TOKENS => return Next::Lost(Lost::ManyTokens),
            Verb::Ms if self.token < 3 => return Next::Line,
            Verb::Ms => [number(2, Range::Length), Number::Is(0), Number::Is(0), Number::Is(0)],
            _ if !verb.tokens().is_some_and(|right| right.contains(&self.token)) => return Next::Line,
            _ => {
                let unique = if verb == Verb::Cas { number(5, Range::Unique) } else { Number::Is(0) };
                [number(4, Range::Length), number(2, Range::Flags), number(3, Range::Time), unique]
            }
        };
        if self.key().is_none() || numbers.contains(&Number::Refused) {
            return Next::Line;
        }
        match numbers {
            [Number::Is(len), Number::Is(_), Number::Is(_), Number::Is(_)] => Next::Value(len as u64 + 2),
            _ => Next::Lost(Lost::OddNumber),
        }
    }
}
