//! Requests and replies to be sent, appended to memory of the caller's. Nothing is checked: a key with a space makes another command.
//!
//! Binary: [`super::binary::write`]; in datagrams: [`super::udp::Frame::write`] first.

use super::base64;
use super::verb::Verb;
use std::io::Write;

/// `get` or `gets` of these keys.
pub fn get(verb: Verb, keys: &[&[u8]], to: &mut Vec<u8>) {
    to.extend(verb.word().bytes());
    for key in keys {
        to.push(b' ');
        to.extend_from_slice(key);
    }
    to.extend(b"\r\n");
}

/// A command that stores a value.
#[derive(Debug, Clone, Copy)]
pub struct Store<'a> {
    /// `set add replace append prepend cas`
    pub verb: Verb,
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The client's, kept with the value.
    pub flags: u32,
    /// Seconds, or a time; see [`crate::table::store::Expiry::of`].
    pub exptime: i64,
    /// `cas`: the version that must still be stored. `None` with all others.
    pub unique: Option<u64>,
    /// The value.
    pub value: &'a [u8],
    /// Nothing is to be answered.
    pub noreply: bool,
}

impl Store<'_> {
    /// Appends it.
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.verb.word().bytes());
        to.push(b' ');
        to.extend_from_slice(self.key);
        line(to, format_args!(" {} {} {}", self.flags, self.exptime, self.value.len()));
        if let Some(unique) = self.unique {
            line(to, format_args!(" {unique}"));
        }
        to.extend_from_slice(if self.noreply { b" noreply\r\n" } else { b"\r\n" });
        to.extend_from_slice(self.value);
        to.extend(b"\r\n");
    }
}

/// A command of the meta protocol, with a value if it is `ms`. Flags as they stand in the line. A key that has a space or a control character is
/// encoded.
pub fn meta(verb: Verb, key: &[u8], flags: &str, value: &[u8], to: &mut Vec<u8>) {
    to.extend(verb.word().bytes());
    to.push(b' ');
    let encoded = key.iter().any(|&byte| byte <= b' ' || byte == 0x7f);
    if encoded {
        base64::encode(key, to)
    } else {
        to.extend_from_slice(key)
    }
    if verb == Verb::Ms {
        line(to, format_args!(" {}", value.len()));
    }
    if encoded {
        to.extend(b" b");
    }
    if !flags.is_empty() {
        to.push(b' ');
        to.extend(flags.bytes());
    }
    to.extend(b"\r\n");
    if verb == Verb::Ms {
        to.extend_from_slice(value);
        to.extend(b"\r\n");
    }
}

/// One value of a `get`'s reply; `END` is the caller's.
pub fn value(key: &[u8], flags: u32, value: &[u8], unique: Option<u64>, to: &mut Vec<u8>) {
    to.extend(b"VALUE ");
    to.extend_from_slice(key);
    line(to, format_args!(" {flags} {}", value.len()));
    if let Some(unique) = unique {
        line(to, format_args!(" {unique}"));
    }
    to.extend(b"\r\n");
    to.extend_from_slice(value);
    to.extend(b"\r\n");
}

fn line(to: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory cannot fail.
    let _ = to.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::reply::{self, Item};
    use crate::codec::request::{Parsed, Request, parse};

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        let (key, value) = (&b"k"[..], &b"a\r\nb"[..]);
        Store { verb: Verb::Cas, key, flags: 5, exptime: -1, unique: Some(7), value, noreply: true }
            .write(&mut bytes);
        let Parsed::Request(
            Request::Store { verb, key, flags, exptime, unique, value: stored, noreply, .. },
            len,
        ) = parse(&bytes, false)
        else {
            panic!("{bytes:?}")
        };
        assert_eq!(
            (verb, key, flags, exptime, unique, stored, noreply),
            (Verb::Cas, &b"k"[..], 5, -1, 7, &b"a\r\nb"[..], true)
        );
        assert_eq!(len, bytes.len());
        bytes.clear();
        get(Verb::Gets, &[b"a", b"b"], &mut bytes);
        let Parsed::Request(Request::Get { verb: Verb::Gets, keys, .. }, _) = parse(&bytes, false) else {
            panic!()
        };
        assert_eq!(keys.collect::<Vec<_>>(), [b"a", b"b"]);
        bytes.clear();
        meta(Verb::Ms, b"a b", "q T5", b"v", &mut bytes);
        assert_eq!(bytes, b"ms YSBi 1 b q T5\r\nv\r\n");
        let Parsed::Request(Request::Meta { key, flags, value: stored, .. }, _) = parse(&bytes, false) else {
            panic!()
        };
        assert_eq!((key, flags.count(), stored), (&b"YSBi"[..], 3, &b"v"[..]));
        bytes.clear();
        super::value(b"k", 3, b"xyz", Some(1), &mut bytes);
        let Item::Value(read, len) = reply::next(&bytes) else { panic!() };
        assert_eq!(
            (read.key, read.flags, read.value, read.unique, len),
            (&b"k"[..], 3, &b"xyz"[..], Some(1), bytes.len())
        );
    }
}
