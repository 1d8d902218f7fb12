//! One request, whole in a slice: typed, borrowed from it, nothing allocated.
//!
//! ```text
//!  parse(b"set k 5 0 3\r\nabc\r\nget")  ->  Request(Store { key: k, flags: 5, value: abc, .. }), 18 bytes
//!  parse(b"set k 5 0 3\r\nab")          ->  Need(18)
//!  parse(b"set k five 0 3\r\nabc\r\n")  ->  Bad { what: Number, at: 6, skip: Some(16) }: memcached goes on behind the line
//! ```
//!
//! Its own code, not that of [`super::stream`]: [`Parsed::events`] says what a stream should have said, and tests compare the two.

use super::event::{Answer, Command, Event, Family, Lost};
use super::number::{Number, Range};
use super::verb::Verb;
use super::{MAX_KEY, base64, binary, line};

/// What the first bytes of a slice are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Not whole: at least so many bytes are needed, from the slice's beginning.
    Need(usize),
    /// A request, of so many bytes.
    Request(Request<'a>, usize),
    /// Something that memcached answers by an error, or closes the connection for.
    Bad(Bad<'a>),
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad<'a> {
    /// What.
    pub what: What,
    /// The byte at which it is seen.
    pub at: usize,
    /// The next command begins behind so many bytes. `None`: that cannot be known.
    pub skip: Option<usize>,
    /// The line, if it is one.
    line: Option<Tokens<'a>>,
    lost: Option<Lost>,
}

/// Kinds of what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// No command of the text protocols. It is taken for one that may do anything.
    Unknown,
    /// Too few or too many tokens.
    Tokens,
    /// A key of more than 250 bytes.
    Key,
    /// A number that is none, or not a plain one.
    Number,
    /// A line of more than 2,048 bytes.
    LongLine,
    /// The reply may hold a key with a line break: right, but the replies cannot be followed.
    Reply,
    /// The value's last two bytes are not CR LF.
    Chunk,
    /// A binary request that breaks the protocol.
    Binary,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// `get gets gat gats`
    Get {
        /// Which.
        verb: Verb,
        /// `gat` and `gats`: the new time, if it is a plain number.
        exptime: Option<i64>,
        /// The keys; those of more than 250 bytes too, for which memcached refuses the whole.
        keys: Tokens<'a>,
        /// The whole line.
        line: Tokens<'a>,
    },
    /// `set add replace append prepend cas`
    Store {
        /// Which.
        verb: Verb,
        /// 1 to 250 bytes.
        key: &'a [u8],
        /// The client's, kept with the value.
        flags: u32,
        /// See [`crate::table::store::Expiry::of`].
        exptime: i64,
        /// `cas`: the version that must still be stored.
        unique: u64,
        /// The value, without its CR LF.
        value: &'a [u8],
        /// Nothing is answered.
        noreply: bool,
        /// The whole line.
        line: Tokens<'a>,
    },
    /// `ms`, with a value, or `mg md ma me mn`.
    Meta {
        /// Which.
        verb: Verb,
        /// As it stands in the line: encoded if a flag says so. Empty for `mn`.
        key: &'a [u8],
        /// One token each, letter first.
        flags: Tokens<'a>,
        /// `ms`: the value, without its CR LF.
        value: &'a [u8],
        /// The whole line.
        line: Tokens<'a>,
    },
    /// `incr decr touch delete flush_all verbosity`, and all that neither reads a value nor stores one: the tokens behind the word say what.
    Other {
        /// Which.
        verb: Verb,
        /// The first token behind the word, if it is a key; else empty.
        key: &'a [u8],
        /// All tokens, the word first.
        line: Tokens<'a>,
    },
    /// Binary.
    Binary(binary::Request<'a>),
}

/// The tokens of a line: what lies between spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens<'a>(&'a [u8]);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|&byte| byte != b' ')?;
        let rest = &self.0[start..];
        let len = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        self.0 = &rest[len..];
        Some(&rest[..len])
    }
}

impl<'a> Tokens<'a> {
    /// The token at this place, from 0; empty if there is none.
    pub fn at(mut self, place: usize) -> &'a [u8] {
        self.nth(place).unwrap_or_default()
    }
}

/// Reads the first request of `bytes`. On a connection the first byte says for all the rest whether it is binary; in a datagram too.
pub fn parse(bytes: &[u8], is_binary: bool) -> Parsed<'_> {
    if is_binary { parse_binary(bytes) } else { parse_text(bytes) }
}

fn parse_binary(bytes: &[u8]) -> Parsed<'_> {
    let Some(header) = bytes.first_chunk() else { return Parsed::Need(binary::HEADER) };
    let header = binary::Header::read(header);
    let bad = |lost| Parsed::Bad(Bad { what: What::Binary, at: 0, skip: None, line: None, lost: Some(lost) });
    let (class, command) = match binary::class(&header) {
        Ok(known) => known,
        Err(lost) => return bad(lost),
    };
    let len = binary::HEADER + header.body as usize;
    match binary::parts(&header, bytes) {
        None => Parsed::Need(len),
        Some((extras, key, value)) => Parsed::Request(
            Request::Binary(binary::Request { header, class, command, extras, key, value }),
            len,
        ),
    }
}

fn parse_text(bytes: &[u8]) -> Parsed<'_> {
    let end = bytes.iter().position(|&byte| byte == b'\n');
    let seen = end.unwrap_or(bytes.len());
    if seen > line::LONGEST && !line::may_be_long(bytes) {
        let bad = Bad {
            what: What::LongLine,
            at: line::LONGEST,
            skip: None,
            line: None,
            lost: Some(Lost::LongLine),
        };
        return Parsed::Bad(bad);
    }
    let Some(end) = end else { return Parsed::Need(bytes.len() + 1) };
    let text = &bytes[..end];
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let text = &text[..text.iter().position(|&byte| byte == 0).unwrap_or(text.len())];
    parse_line(Tokens(text), end + 1, bytes)
}

/// Where a token of the line in `bytes` stands.
fn place(bytes: &[u8], token: &[u8]) -> usize {
    (token.as_ptr() as usize).saturating_sub(bytes.as_ptr() as usize)
}

fn parse_line<'a>(line: Tokens<'a>, len: usize, bytes: &'a [u8]) -> Parsed<'a> {
    let mut rest = line;
    let verb = rest.next().map_or(Verb::Asks, Verb::of);
    let bad = |what, token: &[u8], lost: Option<Lost>| {
        let skip = if lost.is_none() { Some(len) } else { None };
        Parsed::Bad(Bad { what, at: place(bytes, token), skip, line: Some(line), lost })
    };
    let count = line.count();
    let key = line.at(1);
    if verb.gets() {
        let mut keys = rest;
        let exptime = if verb.gets_and_touches() { keys.next() } else { None };
        let exptime = exptime.and_then(|token| match Number::read(token, Range::Time) {
            Number::Is(time) => Some(time),
            _ => None,
        });
        return if count < 2 {
            bad(What::Tokens, &bytes[..0], None)
        } else if let Some(long) = { keys }.find(|key| key.len() > MAX_KEY) {
            bad(What::Key, long, None)
        } else {
            Parsed::Request(Request::Get { verb, exptime, keys, line }, len)
        };
    }
    if verb.is_meta() && verb != Verb::Mn && count < 2 {
        return bad(What::Tokens, &bytes[..0], None);
    }
    if reply_may_break(verb, line) {
        return bad(What::Reply, key, Some(Lost::Reply));
    }
    if !verb.stores() {
        let keyed = verb.changes_key() || verb.is_meta();
        let right = verb.tokens().is_none_or(|right| right.contains(&(count as u32)));
        return if verb == Verb::Unknown {
            bad(What::Unknown, &bytes[..0], None)
        } else if !right || count == 0 {
            bad(What::Tokens, &bytes[..0], None)
        } else if keyed && key.len() > MAX_KEY {
            bad(What::Key, key, None)
        } else if verb.is_meta() {
            let mut flags = rest;
            let key = if verb == Verb::Mn { &[] } else { flags.next().unwrap_or_default() };
            Parsed::Request(Request::Meta { verb, key, flags, value: &[], line }, len)
        } else {
            Parsed::Request(Request::Other { verb, key: if keyed { key } else { &[] }, line }, len)
        };
    }
    // A value follows if the line is right.
    let fields: &[(usize, Range)] = match verb {
        Verb::Ms => &[(2, Range::Length)],
        Verb::Cas => &[(4, Range::Length), (2, Range::Flags), (3, Range::Time), (5, Range::Unique)],
        _ => &[(4, Range::Length), (2, Range::Flags), (3, Range::Time)],
    };
    if verb == Verb::Ms && count > 19 {
        return bad(What::Tokens, &bytes[..0], Some(Lost::ManyTokens));
    }
    let right = verb.tokens().map_or(count >= 3, |right| right.contains(&(count as u32)));
    if !right {
        return bad(What::Tokens, &bytes[..0], None);
    }
    if key.len() > MAX_KEY {
        return bad(What::Key, key, None);
    }
    let mut numbers = [0; 4];
    let mut odd = None;
    for (&(at, range), place) in fields.iter().zip(&mut numbers) {
        let token = line.at(at);
        match Number::read(token, range) {
            Number::Is(number) => *place = number,
            Number::Refused => return bad(What::Number, token, None),
            Number::Odd => odd = Some(token),
        }
    }
    if let Some(token) = odd {
        return bad(What::Number, token, Some(Lost::OddNumber));
    }
    let [value_len, flags, exptime, unique] = numbers;
    let whole = len + value_len as usize + 2;
    let Some(value) = bytes.get(len..whole) else { return Parsed::Need(whole) };
    let Some(value) = value.strip_suffix(b"\r\n") else {
        return Parsed::Bad(Bad {
            what: What::Chunk,
            at: whole - 2,
            skip: Some(whole),
            line: Some(line),
            lost: None,
        });
    };
    let request = if verb == Verb::Ms {
        let mut flags = rest;
        flags.nth(1);
        Request::Meta { verb, key, flags, value, line }
    } else {
        let noreply = line.last() == Some(b"noreply");
        Request::Store {
            verb,
            key,
            flags: flags as u32,
            exptime,
            unique: unique as u64,
            value,
            noreply,
            line,
        }
    };
    Parsed::Request(request, whole)
}

impl<'a> Parsed<'a> {
    /// What a stream says of it. Nothing while it is not whole.
    pub fn events(&self, emit: &mut impl FnMut(Event<'_>)) {
        match self {
            Parsed::Need(_) => {}
            Parsed::Request(request, _) => request.events(emit),
            Parsed::Bad(bad) => {
                if let Some(line) = bad.line {
                    effects(line, emit);
                }
                match (bad.lost, bad.line) {
                    (Some(lost), _) => emit(Event::Lost(lost)),
                    (None, Some(line)) => emit(Event::Command(command(line))),
                    (None, None) => {}
                }
            }
        }
    }
}

impl Request<'_> {
    /// What a stream says of it.
    pub fn events(&self, emit: &mut impl FnMut(Event<'_>)) {
        let line = match self {
            Request::Binary(request) => return request.events(emit),
            Request::Get { line, .. }
            | Request::Store { line, .. }
            | Request::Meta { line, .. }
            | Request::Other { line, .. } => *line,
        };
        effects(line, emit);
        emit(Event::Command(command(line)));
    }
}

/// What a line may do: of a wrong one too, so that nothing depends on memcached refusing it.
fn effects(mut line: Tokens<'_>, emit: &mut impl FnMut(Event<'_>)) {
    let all = line;
    let Some(word) = line.next() else { return };
    let verb = Verb::of(word);
    let taken = |key: &&[u8]| key.len() <= MAX_KEY;
    match verb {
        Verb::FlushAll | Verb::Unknown => emit(Event::All),
        Verb::Get | Verb::Gets => line.filter(taken).for_each(|key| emit(Event::Reads(key))),
        Verb::Gat | Verb::Gats => line.skip(1).filter(taken).for_each(|key| emit(Event::Mutates(key))),
        Verb::Mg | Verb::Ms | Verb::Md | Verb::Ma => {
            let mut flags = all.skip(if verb == Verb::Ms { 3 } else { 2 });
            let flag = |letters: &[u8]| flags.clone().any(|flag| letters.contains(&flag[0]));
            let (encoded, changes) = (flag(b"b"), verb != Verb::Mg || flag(b"TNR"));
            flags.by_ref().for_each(drop);
            let Some(key) = line.next().filter(taken) else { return };
            let mut decoded = [0; MAX_KEY];
            match if encoded { base64::decode(key, &mut decoded) } else { Some(key) } {
                Some(key) if changes => emit(Event::Mutates(key)),
                Some(key) => emit(Event::Reads(key)),
                None if changes => emit(Event::All),
                None => {}
            }
        }
        _ if verb.changes_key() => line.take(1).filter(taken).for_each(|key| emit(Event::Mutates(key))),
        _ => {}
    }
}

/// Whether its reply may hold a key with a line break.
fn reply_may_break(verb: Verb, line: Tokens<'_>) -> bool {
    let flag = |letter| { line }.skip(2).any(|flag| flag[0] == letter);
    let key = line.at(1);
    match verb {
        Verb::Stats => line.count() > 2,
        Verb::Tunes => key == b"mgdump",
        Verb::Me | Verb::Mg if flag(b'b') && key.len() <= MAX_KEY => {
            let mut to = [0; MAX_KEY];
            let breaks = base64::decode(key, &mut to).is_none_or(|key| key.contains(&b'\n'));
            breaks && (verb == Verb::Me || flag(b'k'))
        }
        _ => false,
    }
}

/// How a line is answered.
fn command(line: Tokens<'_>) -> Command {
    let verb = { line }.next().map_or(Verb::Asks, Verb::of);
    let noreply = line.last() == Some(b"noreply") && line.count() > 1;
    let count = line.count() as u32;
    let quiet = |at: usize| line.skip(at).any(|flag| flag[0] == b'q');
    let answer = match verb {
        Verb::Quit => Answer::Never,
        Verb::Mg | Verb::Md | Verb::Ma | Verb::Me | Verb::Mn if quiet(2) => verb.quiet_answer(),
        Verb::Ms if quiet(3) => verb.quiet_answer(),
        Verb::Unknown | Verb::Tunes | Verb::Watch if noreply => Answer::Maybe,
        _ if noreply && verb.tokens().is_some_and(|right| right.contains(&count)) => Answer::Never,
        _ => Answer::Always,
    };
    let family = match verb {
        Verb::Mn => Family::MetaNoOp,
        Verb::Watch => Family::Watch,
        Verb::Mg | Verb::Ms | Verb::Md | Verb::Ma | Verb::Me => Family::Meta,
        _ => Family::Classic,
    };
    Command { answer, family }
}
