//! A line, its words with their places, and values.

use super::{LAST_PORT, PortNames};
use crate::text::TextError;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use tidemill_wire::MacAddr;

/// A line.
pub(super) struct Source<'a> {
    text: &'a str,
    line: usize,
    ports: &'a PortNames,
}

/// A word with its value, if it has one, and their places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) name: &'a str,
    pub(super) at: usize,
    pub(super) value: Option<&'a str>,
    pub(super) value_at: usize,
}

fn separates(byte: u8) -> bool {
    byte == b',' || byte.is_ascii_whitespace()
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str, line: usize, ports: &'a PortNames) -> Self {
        Source { text, line, ports }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// Its number, from 1.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// An error at a byte of the line.
    pub(super) fn error(&self, at: usize, what: impl Into<String>) -> TextError {
        TextError::Line { line: self.line, column: at + 1, what: what.into() }
    }

    /// Refuses a word where one of its kind came before.
    pub(super) fn once<T>(&self, word: &Word<'_>, before: Option<T>) -> Result<(), TextError> {
        match before {
            None => Ok(()),
            Some(_) => Err(self.error(word.at, format!("{}: the line says this already", word.name))),
        }
    }

    /// Where a word begins, which stands at the beginning or behind a separator.
    pub(super) fn find_word(&self, word: &str) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let begins =
            |&(at, _): &(usize, &str)| at.checked_sub(1).is_none_or(|before| separates(bytes[before]));
        self.text.match_indices(word).find(begins).map(|(at, _)| at)
    }

    /// The words between two places: `name` or `name=value`, separated by commas and blanks.
    pub(super) fn words(&self, from: usize, to: usize) -> impl Iterator<Item = Word<'a>> + use<'a> {
        let (text, mut at) = (&self.text[..to], from);
        std::iter::from_fn(move || {
            let bytes = text.as_bytes();
            while bytes.get(at).copied().is_some_and(separates) {
                at += 1;
            }
            let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
            let len = rest.bytes().position(separates).unwrap_or(rest.len());
            let (word, start) = (&rest[..len], at);
            at += len;
            Some(match word.split_once('=') {
                Some((name, value)) => {
                    Word { name, at: start, value: Some(value), value_at: start + name.len() + 1 }
                }
                None => Word { name: word, at: start, value: None, value_at: start + len },
            })
        })
    }

    /// A number up to `most`, decimal or after `0x`.
    pub(super) fn number(&self, text: &str, at: usize, most: u64, what: &str) -> Result<u64, TextError> {
        let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let digits = hex.unwrap_or(text);
        // `from_str_radix` would take a sign.
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u64::from_str_radix(digits, if hex.is_some() { 16 } else { 10 }).ok();
        value
            .filter(|&value| plain && value <= most)
            .ok_or_else(|| self.error(at, format!("{what}: {text:?}: give a number from 0 to {most}")))
    }

    /// A value, and behind a slash its mask.
    pub(super) fn masked(
        &self,
        text: &str,
        at: usize,
        most: u64,
        what: &str,
    ) -> Result<(u128, u128), TextError> {
        let Some((value, mask)) = text.split_once('/') else {
            return Ok((self.number(text, at, most, what)?.into(), most.into()));
        };
        let mask_at = at + value.len() + 1;
        let pair =
            (self.number(value, at, most, what)?.into(), self.number(mask, mask_at, most, what)?.into());
        self.inside(pair, at, what)
    }

    fn inside(&self, (value, mask): (u128, u128), at: usize, what: &str) -> Result<(u128, u128), TextError> {
        if value & !mask != 0 {
            let outside = format!("{what}: the value has bits outside its mask {mask:#x}");
            return Err(self.error(at, outside));
        }
        Ok((value, mask))
    }

    /// A MAC address with its mask.
    pub(super) fn mac(&self, text: &str, at: usize, what: &str) -> Result<(u128, u128), TextError> {
        let parse = |text: &str, at: usize| {
            let mac = MacAddr::from_str(text).map_err(|_| {
                self.error(at, format!("{what}: {text:?}: give an address such as 02:00:00:00:00:01"))
            })?;
            Ok(mac.0.iter().fold(0_u128, |value, byte| value << 8 | u128::from(*byte)))
        };
        match text.split_once('/') {
            None => Ok((parse(text, at)?, (1 << 48) - 1)),
            Some((value, mask)) => {
                let pair = (parse(value, at)?, parse(mask, at + value.len() + 1)?);
                self.inside(pair, at, what)
            }
        }
    }

    /// An IPv4 address with its mask or prefix length. Bits behind it are cut off, as `ovs-ofctl` does.
    pub(super) fn ipv4(&self, text: &str, at: usize, what: &str) -> Result<(u128, u128), TextError> {
        let example = "give an address such as 192.0.2.0/24";
        self.address(text, at, what, 32, example, |text| {
            text.parse::<Ipv4Addr>().ok().map(|address| u32::from(address).into())
        })
    }

    /// An IPv6 address with its mask or prefix length.
    pub(super) fn ipv6(&self, text: &str, at: usize, what: &str) -> Result<(u128, u128), TextError> {
        let example = "give an address such as 2001:db8::/32";
        self.address(text, at, what, 128, example, |text| text.parse::<Ipv6Addr>().ok().map(u128::from))
    }

    fn address(
        &self,
        text: &str,
        at: usize,
        what: &str,
        bits: u32,
        example: &str,
        parse: impl Fn(&str) -> Option<u128>,
    ) -> Result<(u128, u128), TextError> {
        let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
        let wrong = |at: usize, text: &str| self.error(at, format!("{what}: {text:?}: {example}"));
        let value_bits = parse(value).ok_or_else(|| wrong(at, value))?;
        let all = u128::MAX >> (128 - bits);
        let mask_at = at + value.len() + 1;
        let mask = match mask {
            None => all,
            Some(mask) => match parse(mask) {
                Some(mask) => mask,
                None => {
                    let length = self.number(mask, mask_at, bits.into(), what)? as u32;
                    all & !all.checked_shr(length).unwrap_or(0)
                }
            },
        };
        Ok((value_bits & mask, mask))
    }

    /// A port of ours, by number or name.
    pub(super) fn port(&self, text: &str, at: usize) -> Result<u16, TextError> {
        if let Some(number) = self.ports.number(text) {
            return Ok(number);
        }
        let number = text.parse::<u16>().ok().filter(|number| (1..=LAST_PORT).contains(number));
        number.filter(|_| text.bytes().all(|byte| byte.is_ascii_digit())).ok_or_else(|| {
            let known = self.ports.0.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { String::new() } else { format!(" ({known})") };
            self.error(at, format!("port {text:?}: give a port's number from 1 on, or its name{known}"))
        })
    }
}
