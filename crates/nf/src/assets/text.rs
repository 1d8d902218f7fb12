//! Short texts out of packets: copied, cut to a bound, shown without anything that a terminal might obey.

use crate::plain::is_plain;
use std::fmt;

/// Up to [`Text::ROOM`] bytes, as they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text {
    len: u8,
    bytes: [u8; Text::ROOM],
}

impl Text {
    /// Bytes that are kept; what is longer is cut.
    pub const ROOM: usize = 63;
    /// None.
    pub const EMPTY: Text = Text { len: 0, bytes: [0; Text::ROOM] };

    /// The first bytes of these.
    pub fn new(bytes: &[u8]) -> Self {
        let mut text = Text::EMPTY;
        text.push(bytes);
        text
    }

    /// Adds as many of these as there is room for.
    pub fn push(&mut self, more: &[u8]) {
        let from = usize::from(self.len);
        let count = more.len().min(Text::ROOM - from);
        self.bytes[from..from + count].copy_from_slice(&more[..count]);
        self.len += count as u8;
    }

    /// They.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// UTF-8 as it is; control characters and what is no UTF-8 as `\x1b`, what else would do something to others as `\u{202e}`.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    _ if is_plain(c) => write!(f, "{c}")?,
                    _ if c.is_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                    _ => write!(f, "{}", c.escape_unicode())?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn texts_are_cut_and_harmless() {
        assert_eq!(Text::new(&[b'a'; 200]).bytes(), [b'a'; Text::ROOM]);
        let mut text = Text::new("Büro\x1b[2J".as_bytes());
        text.push(&[0xff]);
        assert_eq!(text.to_string(), "Büro\\x1b[2J\\xff");
        assert!(Text::EMPTY.is_empty() && !text.is_empty());
        let turned = Text::new("a\u{202e}b\u{2028}c\u{200b}\u{feff}\u{2713}".as_bytes());
        assert_eq!(turned.to_string(), "a\\u{202e}b\\u{2028}c\\u{200b}\\u{feff}\u{2713}");
    }
}
