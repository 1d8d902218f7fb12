//! One reply, or one value of it, whole in a slice: borrowed from it, nothing allocated.
//!
//! ```text
//!  next(b"VALUE k 5 3\r\nabc\r\nEND\r\n") -> Value { key: k, flags: 5, value: abc, unique: None }, 18 bytes; then Line(END), 5
//!  next(b"VA 3 f5 t-1\r\nabc\r\n")        -> Meta { code: VA, flags: f5 t-1, value: abc }, 18 bytes
//! ```
//!
//! Binary replies: [`super::binary::Reply`].

use super::number::{Number, Range};

/// What the first bytes of a slice are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// Not whole: at least so many bytes are needed, from the slice's beginning.
    Need(usize),
    /// One value of a `get`'s reply, of so many bytes.
    Value(Value<'a>, usize),
    /// A reply of the meta protocol, of so many bytes.
    Meta(Meta<'a>, usize),
    /// Any other line, without its CR LF, and its bytes with them.
    Line(&'a [u8], usize),
    /// None that memcached would send.
    Bad,
}

/// One value of a `get`'s reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    /// The key that was asked for.
    pub key: &'a [u8],
    /// The client's.
    pub flags: u32,
    /// The value.
    pub value: &'a [u8],
    /// `gets`: its version.
    pub unique: Option<u64>,
}

/// A reply of the meta protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta<'a> {
    /// `VA HD EN NF NS EX`.
    pub code: [u8; 2],
    /// What is behind the code, and behind the length of `VA`: tokens, letter first.
    flags: &'a [u8],
    /// `VA`: the value.
    pub value: Option<&'a [u8]>,
}

impl<'a> Meta<'a> {
    /// The flags: letter first.
    pub fn flags(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.flags.split(|&byte| byte == b' ').filter(|token| !token.is_empty())
    }

    /// What stands behind a flag's letter, if the flag is there.
    pub fn flag(&self, letter: u8) -> Option<&'a [u8]> {
        self.flags().find_map(|token| token.strip_prefix(&[letter]))
    }

    /// A flag's number: `t` (seconds left, -1: for ever), `f`, `c`, `s`.
    pub fn number(&self, letter: u8) -> Option<i64> {
        let text = std::str::from_utf8(self.flag(letter)?).ok()?;
        text.parse().ok()
    }
}

/// Reads what is at the front of `bytes`.
pub fn next(bytes: &[u8]) -> Item<'_> {
    let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return Item::Need(bytes.len() + 1) };
    let line = &bytes[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let len = end + 1;
    let mut tokens = line.split(|&byte| byte == b' ');
    let length = |token: Option<&[u8]>| match token.map(|token| Number::read(token, Range::Length)) {
        Some(Number::Is(length)) => Some(length as usize),
        _ => None,
    };
    let value = |of: usize| match bytes.get(len..len + of + 2) {
        None => Err(Item::Need(len + of + 2)),
        Some(value) => value.strip_suffix(b"\r\n").ok_or(Item::Bad),
    };
    let mut read = || -> Result<Item<'_>, Item<'_>> {
        match tokens.next().unwrap_or_default() {
            b"VALUE" => {
                let key = tokens.next().ok_or(Item::Bad)?;
                let flags = number(tokens.next()).and_then(|flags| flags.try_into().ok()).ok_or(Item::Bad)?;
                let of = length(tokens.next()).ok_or(Item::Bad)?;
                let unique = tokens.next().map(|token| number(Some(token)).ok_or(Item::Bad)).transpose()?;
                Ok(Item::Value(Value { key, flags, value: value(of)?, unique }, len + of + 2))
            }
            b"VA" => {
                let token = tokens.next();
                let of = length(token).ok_or(Item::Bad)?;
                let flags = line.get(3 + token.map_or(0, <[u8]>::len)..).unwrap_or_default();
                Ok(Item::Meta(Meta { code: *b"VA", flags, value: Some(value(of)?) }, len + of + 2))
            }
            &[a, b] if [*b"HD", *b"EN", *b"NF", *b"NS", *b"EX"].contains(&[a, b]) => {
                Ok(Item::Meta(Meta { code: [a, b], flags: &line[2..], value: None }, len))
            }
            _ => Ok(Item::Line(line, len)),
        }
    };
    read().unwrap_or_else(|other| other)
}

fn number(token: Option<&[u8]>) -> Option<u64> {
    std::str::from_utf8(token?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lines_and_meta() {
        let bytes = b"VALUE k 5 3\r\na\nc\r\nEND\r\n";
        let value = Value { key: b"k", flags: 5, value: b"a\nc", unique: None };
        assert_eq!(next(bytes), Item::Value(value, 18));
        assert_eq!(next(&bytes[18..]), Item::Line(b"END", 5));
        assert_eq!(next(&bytes[..4]), Item::Need(5));
        assert_eq!(next(&bytes[..15]), Item::Need(18));
        assert_eq!(next(b"VALUE k 5 1\r\nabc\r\n"), Item::Bad);
        assert_eq!(next(b"VALUE k x 1\r\na\r\n"), Item::Bad);
        let gets = b"VALUE k 4294967295 0 18446744073709551615\r\n\r\n";
        let value = Value { key: b"k", flags: u32::MAX, value: b"", unique: Some(u64::MAX) };
        assert_eq!(next(gets), Item::Value(value, gets.len()));
        let Item::Meta(meta, 18) = next(b"VA 3 f5 t-1\r\nabc\r\n") else { panic!() };
        assert_eq!(
            (meta.code, meta.value, meta.number(b't'), meta.number(b'f')),
            (*b"VA", Some(&b"abc"[..]), Some(-1), Some(5))
        );
        assert_eq!((meta.flag(b'W'), meta.number(b'c')), (None, None));
        let Item::Meta(meta, 9) = next(b"HD W c12\n") else { panic!() };
        assert_eq!((meta.flag(b'W'), meta.number(b'c'), meta.value), (Some(&b""[..]), Some(12), None));
        assert_eq!(next(b"SERVER_ERROR x\r\n"), Item::Line(b"SERVER_ERROR x", 16));
    }
}
