//! A line that is read from left to right.

use super::TextError;
use std::net::{Ipv4Addr, Ipv6Addr};

/// An address of either family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    V4(u32),
    V6(u128),
}

/// What is left of a line.
pub(crate) struct Line<'a> {
    text: &'a [u8],
    at: usize,
    number: usize,
}

impl<'a> Line<'a> {
    pub(super) fn new(text: &'a [u8], number: usize) -> Self {
        let end = text.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |last| last + 1);
        let mut line = Line { text: &text[..end], at: 0, number };
        line.space();
        line
    }

    /// All of it, and its number.
    pub(crate) fn whole(&self) -> (&'a [u8], usize) {
        (self.text, self.number)
    }

    /// Empty or a comment.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.text.get(self.at), None | Some(b'#'))
    }

    pub(super) fn at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Where the next thing begins.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// An error at a place.
    pub(super) fn error(&self, at: usize, what: impl Into<String>) -> TextError {
        TextError::Line { line: self.number, column: at + 1, what: what.into() }
    }

    pub(super) fn space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    /// The next byte must be this one; what is between it and its neighbours does not count.
    pub(super) fn expect(&mut self, byte: u8, what: &str) -> Result<(), TextError> {
        self.space();
        if self.text.get(self.at) != Some(&byte) {
            return Err(self.error(self.at, format!("`{}` is missing here ({what})", char::from(byte))));
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    /// Passes over the next byte if it is this one.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let taken = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(taken);
        taken
    }

    /// Bytes up to white space or one of `ends`.
    fn word(&mut self, ends: &[u8]) -> &'a [u8] {
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|byte| byte.is_ascii_whitespace() || ends.contains(byte));
        let word = &rest[..end.unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    /// A number up to `most`, decimal or after `0x`.
    pub(super) fn number(&mut self, most: u64, what: &str) -> Result<u64, TextError> {
        let start = self.at;
        let word = self.word(b":/");
        let text = std::str::from_utf8(word).unwrap_or_default();
        let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let digits = hex.unwrap_or(text);
        // `from_str_radix` would take a sign.
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u64::from_str_radix(digits, if hex.is_some() { 16 } else { 10 }).ok();
        value
            .filter(|&value| plain && value <= most)
            .ok_or_else(|| self.error(start, format!("{what}: give a number from 0 to {most}")))
    }

    /// An address, which may be a number where `numbers` says so.
    pub(super) fn address(&mut self, numbers: bool, what: &str) -> Result<Address, TextError> {
        let start = self.at;
        let word = self.word(b"/");
        let text = std::str::from_utf8(word).unwrap_or_default();
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Address::V4(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Address::V6(address.into()));
        }
        if numbers && !text.contains(['.', ':']) {
            self.at = start;
            return Ok(Address::V4(self.number(u32::MAX.into(), what)? as u32));
        }
        Err(self.error(start, format!("{what}: give an address such as 192.0.2.1 or 2001:db8::1")))
    }

    /// A value and its mask; the value has no bit that the mask has not.
    pub(super) fn masked(&mut self, most: u64, what: &str) -> Result<(u64, u64), TextError> {
        let start = self.at;
        let value = self.number(most, what)?;
        self.expect(b'/', what)?;
        let mask = self.number(most, what)?;
        if value & !mask != 0 {
            return Err(self.error(start, format!("{what}: {value:#x} has bits outside its mask {mask:#x}")));
        }
        Ok((value, mask))
    }

    /// Nothing more may follow.
    pub(super) fn end(&mut self, what: &str) -> Result<(), TextError> {
        self.space();
        if self.at_end() { Ok(()) } else { Err(self.error(self.at, format!("nothing may follow {what}"))) }
    }
}
