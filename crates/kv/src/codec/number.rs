//! A number in a command line, as far as one outside of memcached can be sure of it.
//!
//! memcached reads numbers with `strtol` and its kin: leading white space, a `+`, white space behind and numbers beyond 32 bits count in ways that
//! differ between its versions. Where a number decides whether a value follows, a wrong guess would lose the stream: such a number is [`Number::Odd`].
//!
//! ```text
//! 7  007  -1 (a time)    Is        7x  x  -  5-    Refused        +7  7<TAB>x  -7 (a length)  99999999999    Odd
//! ```

/// What a token says as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// This.
    Is(i64),
    /// None, and memcached says so.
    Refused,
    /// One that memcached may take or not.
    Odd,
}

/// Which numbers are plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// 32 bits without a sign: flags.
    Flags,
    /// 32 bits, the sign allowed: a time.
    Time,
    /// 0 to 2^31 - 3: bytes of a value.
    Length,
    /// Below 10^18: the number of a version (`cas`), an amount.
    Unique,
}

/// Reads a number byte by byte.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reader {
    value: i64,
    digits: u32,
    negative: bool,
    refused: bool,
    odd: bool,
}

impl Reader {
    /// The next byte of the token.
    pub fn push(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' => {
                self.value = self.value.saturating_mul(10).saturating_add(i64::from(byte - b'0'));
                self.digits = self.digits.saturating_add(1);
            }
            b'-' if self.digits == 0 && !self.negative => self.negative = true,
            b'+' | b'\t' | b'\r' | 0x0b | 0x0c => self.odd = true,
            _ => self.refused = true,
        }
    }

    /// The token is at its end.
    pub fn finish(&self, range: Range) -> Number {
        let most = match range {
            Range::Flags => i64::from(u32::MAX),
            Range::Time => i64::from(i32::MAX),
            Range::Length => i64::from(i32::MAX) - 2,
            Range::Unique => 999_999_999_999_999_999,
        };
        if self.odd {
            Number::Odd
        } else if self.refused || self.digits == 0 {
            Number::Refused
        } else if self.value > most || self.digits > 18 || (self.negative && range != Range::Time) {
            Number::Odd
        } else {
            Number::Is(if self.negative { -self.value } else { self.value })
        }
    }
}

impl Number {
    /// What a token says.
    pub fn read(token: &[u8], range: Range) -> Self {
        let mut reader = Reader::default();
        token.iter().for_each(|&byte| reader.push(byte));
        reader.finish(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_refused_odd() {
        use Number::*;
        for (token, range, number) in [
            ("7", Range::Length, Is(7)),
            ("007", Range::Length, Is(7)),
            ("2147483645", Range::Length, Is(2_147_483_645)),
            ("2147483646", Range::Length, Odd),
            ("4294967303", Range::Length, Odd),
            ("99999999999999999999999999999999999999999", Range::Length, Odd),
            ("-7", Range::Length, Odd),
            ("-1", Range::Time, Is(-1)),
            ("2147483648", Range::Time, Odd),
            ("4294967295", Range::Flags, Is(4_294_967_295)),
            ("4294967296", Range::Flags, Odd),
            ("7x", Range::Length, Refused),
            ("x7", Range::Length, Refused),
            ("-", Range::Time, Refused),
            ("--1", Range::Time, Refused),
            ("5-", Range::Time, Refused),
            ("+7", Range::Length, Odd),
            ("7\tx", Range::Length, Odd),
            ("7\r", Range::Length, Odd),
            ("", Range::Length, Refused),
        ] {
            assert_eq!(Number::read(token.as_bytes(), range), number, "{token:?} as {range:?}");
        }
    }
}
