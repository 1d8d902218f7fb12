//! The client's own words for memcached's three protocols: what is sent, and what a reply says. It shares nothing with the
//! library that is tested. One command at a time; keys and values are bytes.

/// How a command is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    Ascii,
    Binary,
    Meta,
}

pub(crate) const SPEECHES: [Speech; 3] = [Speech::Ascii, Speech::Binary, Speech::Meta];

/// How a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
}

pub(crate) const MODES: [Mode; 5] = [Mode::Set, Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend];

/// What is asked of memcached, about one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    Get,
    /// `gets`: with the number that `cas` wants. In binary every `get` is one.
    Gets,
    /// Reads, and changes the expiry.
    Gat(i64),
    /// The same, with the number that `cas` wants; in binary with the key.
    Gats(i64),
    /// Reads, and says who is to make a new one where little time is left (meta); else as `Get`.
    Recache,
    Touch(i64),
    Put {
        mode: Mode,
        data: Vec<u8>,
        flags: u32,
        expiry: i64,
    },
    Cas {
        token: u64,
        data: Vec<u8>,
        flags: u32,
        expiry: i64,
    },
    Incr(u64),
    Decr(u64),
    Delete,
    /// All keys; the delay in seconds.
    Flush(i64),
    /// Reads, and makes an empty value where there is none (meta).
    Vivify(i64),
    /// Makes it stale (meta).
    Stale,
    /// With a number that may be old: then what is stored is stale (meta).
    CasStale {
        token: u64,
        data: Vec<u8>,
        flags: u32,
    },
    /// Is answered, and nothing else.
    Noop,
}

/// What a reply says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Value {
        data: Vec<u8>,
        flags: u32,
        cas: Option<u64>,
    },
    /// No such key, for whatever was asked.
    Absent,
    /// It is done.
    Done,
    /// `add`, `replace`, `append`, `prepend`: not so.
    NotStored,
    /// `cas`: another value is there.
    Exists,
    Number(u64),
    /// Everything else, in words.
    Other(String),
}

fn base(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// The bytes of a request. `opaque` comes back with binary and quiet meta replies. `quiet` is `noreply`, a quiet opcode, or
/// meta's `q`.
pub(crate) fn request(speech: Speech, ask: &Ask, key: &[u8], quiet: bool, opaque: u32) -> Vec<u8> {
    match speech {
        Speech::Ascii => ascii(ask, key, quiet),
        Speech::Meta => meta(ask, key, quiet, opaque),
        Speech::Binary => binary(ask, key, quiet, opaque),
    }
}

/// A line from its words; `key` where the word is `@`.
fn line(text: &str, key: &[u8], noreply: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in text.split('@') {
        if !bytes.is_empty() {
            bytes.extend(key);
        }
        bytes.extend(part.as_bytes());
    }
    bytes.extend(if noreply { &b" noreply\r\n"[..] } else { b"\r\n" });
    bytes
}

fn ascii(ask: &Ask, key: &[u8], quiet: bool) -> Vec<u8> {
    let with_data = |text: String, data: &[u8]| [&line(&text, key, quiet), data, b"\r\n"].concat();
    match ask {
        Ask::Get | Ask::Recache => line("get @", key, false),
        Ask::Gets => line("gets @", key, false),
        Ask::Gat(expiry) => line(&format!("gat {expiry} @"), key, false),
        Ask::Gats(expiry) => line(&format!("gats {expiry} @"), key, false),
        Ask::Touch(expiry) => line(&format!("touch @ {expiry}"), key, quiet),
        Ask::Put { mode, data, flags, expiry } => {
            let verb = match mode {
                Mode::Set => "set",
                Mode::Add => "add",
                Mode::Replace => "replace",
                Mode::Append => "append",
                Mode::Prepend => "prepend",
            };
            with_data(format!("{verb} @ {flags} {expiry} {}", data.len()), data)
        }
        Ask::Cas { token, data, flags, expiry } => {
            with_data(format!("cas @ {flags} {expiry} {} {token}", data.len()), data)
        }
        Ask::Incr(delta) => line(&format!("incr @ {delta}"), key, quiet),
        Ask::Decr(delta) => line(&format!("decr @ {delta}"), key, quiet),
        Ask::Delete => line("delete @", key, quiet),
        Ask::Flush(0) => line("flush_all", b"", quiet),
        Ask::Flush(delay) => line(&format!("flush_all {delay}"), b"", quiet),
        Ask::Noop => line("mn", b"", false),
        // There is no such command in this protocol: by meta.
        Ask::Vivify(_) | Ask::Stale | Ask::CasStale { .. } => meta(ask, key, quiet, 0),
    }
}

fn meta(ask: &Ask, key: &[u8], quiet: bool, opaque: u32) -> Vec<u8> {
    let tail = if quiet { format!(" q O{opaque}") } else { format!(" O{opaque}") };
    let plain = |text: &str| line(&format!("{text}{tail}"), key, false);
    match ask {
        Ask::Get => plain("mg @ v f"),
        Ask::Gets => plain("mg @ v f c"),
        Ask::Gat(expiry) => plain(&format!("mg @ v f T{expiry}")),
        Ask::Gats(expiry) => plain(&format!("mg @ v f c T{expiry}")),
        Ask::Recache => plain("mg @ v f R2"),
        Ask::Touch(expiry) => plain(&format!("mg @ T{expiry}")),
        Ask::Put { mode, data, flags, expiry } => {
            let mode = match mode {
                Mode::Set => 'S',
                Mode::Add => 'E',
                Mode::Replace => 'R',
                Mode::Append => 'A',
                Mode::Prepend => 'P',
            };
            let head = plain(&format!("ms @ {} M{mode} F{flags} T{expiry}", data.len()));
            [&head[..], data, b"\r\n"].concat()
        }
        Ask::Cas { token, data, flags, expiry } => {
            let head = plain(&format!("ms @ {} C{token} F{flags} T{expiry}", data.len()));
            [&head[..], data, b"\r\n"].concat()
        }
        Ask::Incr(delta) => plain(&format!("ma @ v D{delta}")),
        Ask::Decr(delta) => plain(&format!("ma @ v MD D{delta}")),
        Ask::Delete => plain("md @"),
        Ask::Vivify(expiry) => plain(&format!("mg @ v f N{expiry}")),
        Ask::Stale => plain("md @ I"),
        Ask::CasStale { token, data, flags } => {
            let head = plain(&format!("ms @ {} C{token} I F{flags} T0", data.len()));
            [&head[..], data, b"\r\n"].concat()
        }
        // There is no such meta command.
        Ask::Flush(_) | Ask::Noop => ascii(ask, key, quiet),
    }
}

/// The longest key that is also taken in base64: written so it may have 250 bytes.
const ENCODED: usize = 180;

/// A meta request whose key is written in base64; none if there is no such form.
pub(crate) fn encoded(ask: &Ask, key: &[u8], quiet: bool, opaque: u32) -> Option<Vec<u8>> {
    if key.len() > ENCODED || matches!(ask, Ask::Flush(_) | Ask::Noop) {
        return None;
    }
    let plain = meta(ask, &base64(key), quiet, opaque);
    let end = plain.windows(2).position(|two| two == b"\r\n")?;
    Some([&plain[..end], b" b", &plain[end..]].concat())
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for three in bytes.chunks(3) {
        let word = (0..3).fold(0, |word, at| word << 8 | usize::from(three.get(at).copied().unwrap_or(0)));
        let letters = [18, 12, 6, 0].map(|shift| LETTERS[word >> shift & 63]);
        text.extend(&letters[..=three.len()]);
        text.resize(text.len().next_multiple_of(4), b'=');
    }
    text
}

/// An opcode, and its quiet form.
fn opcode(ask: &Ask) -> (u8, u8) {
    match ask {
        Ask::Get | Ask::Gets | Ask::Recache | Ask::Vivify(_) | Ask::Stale | Ask::CasStale { .. } => {
            (0x00, 0x09)
        }
        Ask::Noop => (0x0a, 0x0a),
        Ask::Gat(_) => (0x1d, 0x1e),
        Ask::Gats(_) => (0x23, 0x24),
        Ask::Touch(_) => (0x1c, 0x1c),
        Ask::Put { mode: Mode::Set, .. } | Ask::Cas { .. } => (0x01, 0x11),
        Ask::Put { mode: Mode::Add, .. } => (0x02, 0x12),
        Ask::Put { mode: Mode::Replace, .. } => (0x03, 0x13),
        Ask::Put { mode: Mode::Append, .. } => (0x0e, 0x19),
        Ask::Put { mode: Mode::Prepend, .. } => (0x0f, 0x1a),
        Ask::Incr(_) => (0x05, 0x15),
        Ask::Decr(_) => (0x06, 0x16),
        Ask::Delete => (0x04, 0x14),
        Ask::Flush(_) => (0x08, 0x18),
    }
}

fn binary(ask: &Ask, key: &[u8], quiet: bool, opaque: u32) -> Vec<u8> {
    let (loud, hushed) = opcode(ask);
    let (mut extras, mut data, mut token) = (Vec::new(), &[][..], 0);
    match ask {
        Ask::Get | Ask::Gets | Ask::Recache | Ask::Delete | Ask::Flush(0) | Ask::Noop => {}
        Ask::Vivify(_) | Ask::Stale | Ask::CasStale { .. } => panic!("{ask:?} is of the meta protocol only"),
        Ask::Gat(expiry) | Ask::Gats(expiry) | Ask::Touch(expiry) | Ask::Flush(expiry) => {
            extras.extend((*expiry as u32).to_be_bytes());
        }
        Ask::Put { mode: Mode::Append | Mode::Prepend, data: value, .. } => data = value,
        Ask::Put { data: value, flags, expiry, .. } => {
            extras.extend([flags.to_be_bytes(), (*expiry as u32).to_be_bytes()].concat());
            data = value;
        }
        Ask::Cas { token: wanted, data: value, flags, expiry } => {
            extras.extend([flags.to_be_bytes(), (*expiry as u32).to_be_bytes()].concat());
            (data, token) = (value, *wanted);
        }
        // An expiry of all ones: a counter that is not there is not made.
        Ask::Incr(delta) | Ask::Decr(delta) => {
            extras.extend(delta.to_be_bytes());
            extras.extend([0; 8]);
            extras.extend([255; 4]);
        }
    }
    let key = if matches!(ask, Ask::Flush(_) | Ask::Noop) { &[][..] } else { key };
    packet(if quiet { hushed } else { loud }, &extras, key, data, opaque, token)
}

/// A binary request.
pub(crate) fn packet(opcode: u8, extras: &[u8], key: &[u8], data: &[u8], opaque: u32, cas: u64) -> Vec<u8> {
    let body = extras.len() + key.len() + data.len();
    let mut bytes = vec![0x80, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0, 0, 0]);
    bytes.extend((body as u32).to_be_bytes());
    bytes.extend(opaque.to_be_bytes());
    bytes.extend(cas.to_be_bytes());
    bytes.extend([extras, key, data].concat());
    bytes
}

/// What was said, to what (of binary and meta: the opaque that came back), in how many bytes.
pub(crate) struct Heard {
    pub(crate) said: Said,
    pub(crate) opaque: Option<u32>,
    pub(crate) used: usize,
}

/// The reply that `bytes` begin with; none if there is more of it to come.
pub(crate) fn reply(speech: Speech, ask: &Ask, bytes: &[u8]) -> Option<Heard> {
    match speech {
        Speech::Binary => binary_reply(ask, bytes),
        _ => text_reply(ask, bytes),
    }
}

fn text_reply(ask: &Ask, bytes: &[u8]) -> Option<Heard> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let words: Vec<&str> = text.split(' ').collect();
    let plain = |said| Some(Heard { said, opaque: flag(&words, 'O'), used: end + 2 });
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    match words[0] {
        "VALUE" => {
            let (flags, length) = (number(2)? as u32, number(3)? as usize);
            let data = bytes.get(end + 2..end + 2 + length)?.to_vec();
            let tail = bytes.get(end + 2 + length..)?;
            // A reply to one key.
            let rest = b"\r\nEND\r\n";
            if tail.len() < rest.len() {
                return None;
            }
            if !tail.starts_with(rest) {
                let said = Said::Other(format!("no end after {text}"));
                return Some(Heard { said, opaque: None, used: bytes.len() });
            }
            let said = Said::Value { data, flags, cas: number(4) };
            Some(Heard { said, opaque: None, used: end + 2 + length + rest.len() })
        }
        "VA" => {
            let length = number(1)? as usize;
            let data = bytes.get(end + 2..end + 2 + length)?.to_vec();
            bytes.get(end + 2 + length..end + 4 + length)?;
            let said = match ask {
                Ask::Incr(_) | Ask::Decr(_) => {
                    match std::str::from_utf8(&data).ok().and_then(|text| text.parse().ok()) {
                        Some(number) => Said::Number(number),
                        None => Said::Other(text.clone()),
                    }
                }
                _ => {
                    Said::Value { data, flags: flag(&words, 'f').unwrap_or(0) as u32, cas: flag(&words, 'c') }
                }
            };
            Some(Heard { said, opaque: flag(&words, 'O'), used: end + 4 + length })
        }
        "END" | "EN" | "NOT_FOUND" | "NF" => plain(Said::Absent),
        "STORED" | "DELETED" | "TOUCHED" | "OK" | "HD" => plain(Said::Done),
        "MN" if *ask == Ask::Noop => plain(Said::Done),
        "NOT_STORED" | "NS" => plain(Said::NotStored),
        "EXISTS" | "EX" => plain(Said::Exists),
        word => match (ask, word.parse()) {
            (Ask::Incr(_) | Ask::Decr(_), Ok(number)) => plain(Said::Number(number)),
            _ => plain(Said::Other(text.clone())),
        },
    }
}

/// A returned meta flag's number.
fn flag<T: std::str::FromStr>(words: &[&str], name: char) -> Option<T> {
    words.iter().skip(1).find_map(|word| word.strip_prefix(name)?.parse().ok())
}

/// Whether a line is a meta reply with this opaque: `HD O2`, or with what memcached puts after it, as `Z` (stale, and somebody fetches it).
pub(crate) fn is_of(line: &[u8], opaque: u32) -> bool {
    let text = String::from_utf8_lossy(line);
    let words: Vec<&str> = text.split(' ').collect();
    words[0].len() == 2 && flag(&words, 'O') == Some(opaque)
}

#[test]
fn a_reply_is_known_by_its_opaque_wherever_that_stands() {
    assert!(is_of(b"HD O2", 2) && is_of(b"HD O2 Z", 2) && is_of(b"HD O2 W X", 2) && is_of(b"NF k O2 b", 2));
    assert!(!is_of(b"HD O1", 2) && !is_of(b"HD", 2) && !is_of(b"HD O22", 2) && !is_of(b"END", 2));
    assert!(!is_of(b"VALUE O2 5 3", 2));
}

fn binary_reply(ask: &Ask, bytes: &[u8]) -> Option<Heard> {
    let number = |at: usize, length: usize| {
        bytes.get(at..at + length).map(|part| part.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let (body, opaque, cas) = (number(8, 4)? as usize, number(12, 4)? as u32, number(16, 8)?);
    let used = 24 + body;
    bytes.get(..used)?;
    let (key, extras, status) = (number(2, 2)? as usize, bytes[4] as usize, number(6, 2)?);
    let said = if bytes[0] != 0x81 {
        Said::Other(format!("magic {:#x}", bytes[0]))
    } else {
        match (status, ask) {
            (0, Ask::Get | Ask::Gets | Ask::Recache | Ask::Gat(_) | Ask::Gats(_)) => {
                let data = bytes.get(24 + extras + key..used).unwrap_or_default().to_vec();
                Said::Value { data, flags: number(24, 4).unwrap_or(0) as u32, cas: Some(cas) }
            }
            (0, Ask::Incr(_) | Ask::Decr(_)) => Said::Number(number(24, 8).unwrap_or(0)),
            (0, _) => Said::Done,
            // What `add` finds there, and `replace` and the like do not.
            (1 | 2 | 5, Ask::Put { .. }) => Said::NotStored,
            (1, _) => Said::Absent,
            (2, _) => Said::Exists,
            (5, _) => Said::NotStored,
            (status, _) => Said::Other(format!(
                "status {status}: {}",
                String::from_utf8_lossy(bytes.get(24..used).unwrap_or_default())
            )),
        }
    };
    Some(Heard { said, opaque: Some(opaque), used })
}

/// A request in one datagram: memcached's 8-byte header before it.
pub(crate) fn datagram(request: u16, bytes: &[u8]) -> Vec<u8> {
    let mut frame = request.to_be_bytes().to_vec();
    frame.extend([0, 0, 0, 1, 0, 0]);
    frame.extend(bytes);
    frame
}

/// What the header of a reply's datagram says: request, which of how many.
pub(crate) fn header(frame: &[u8]) -> Option<(u16, u16, u16)> {
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    frame.get(..8)?;
    Some((word(0)?, word(2)?, word(4)?))
}

/// `text` with `\r\n` where it says so, for what no builder here makes.
pub(crate) fn raw(text: &str) -> Vec<u8> {
    base(text)
}

/// One value of a reply to several keys: key, data, flags.
pub(crate) type Named = (Vec<u8>, Vec<u8>, u32);

/// The ASCII reply to `get` of several keys, and its length; none if there is more of it to come.
pub(crate) fn values(bytes: &[u8]) -> Option<Result<(Vec<Named>, usize), String>> {
    let (mut at, mut values) = (0, Vec::new());
    loop {
        let rest = &bytes[at..];
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let words: Vec<&[u8]> = rest[..end].split(|byte| *byte == b' ').collect();
        let number = |at: usize| std::str::from_utf8(words.get(at)?).ok()?.parse::<usize>().ok();
        match (words[0], words.get(1), number(2), number(3)) {
            (b"END", None, ..) => return Some(Ok((values, at + end + 2))),
            (b"VALUE", Some(key), Some(flags), Some(length)) => {
                let data = rest.get(end + 2..end + 2 + length)?;
                if rest.get(end + 2 + length..end + 4 + length)? != b"\r\n" {
                    return Some(Err(format!("a value of {length} bytes does not end there")));
                }
                values.push((key.to_vec(), data.to_vec(), flags as u32));
                at += end + 4 + length;
            }
            _ => return Some(Err(String::from_utf8_lossy(&rest[..end]).into_owned())),
        }
    }
}
