//! A connection that cannot be followed: what it does now is not known, but a `flush_all` for later is found in it all the same, for it changes things when the
//! connection may be long gone.
//!
//! ```text
//! ...flush_all 10 CR...                              found anywhere in the bytes, however they are cut
//! ...80 08 0000 04 ...(19)... 0000000a...            binary; 18: quiet
//! ```
//! What only looks like one (in a value) is taken for one: that costs hits.

use tidemill_kv::codec::binary::{HEADER, opcode};
use tidemill_kv::codec::stream::Delay;

const WORD: &[u8] = b"flush_all";
/// A header and its extras.
const TAIL: usize = HEADER + 4;

/// What has come of a flush, if one is coming.
#[derive(Debug, Clone)]
pub(crate) struct Blind {
    /// Bytes of the word.
    word: usize,
    token: [u8; 16],
    /// Bytes of the token behind it, also of those that are not kept.
    token_len: usize,
    tail: [u8; TAIL],
}

impl Blind {
    pub(crate) fn new() -> Self {
        Blind { word: 0, token: [0; 16], token_len: 0, tail: [0; TAIL] }
    }

    /// The next bytes; `found` is given each flush for later.
    pub(crate) fn push(&mut self, bytes: &[u8], mut found: impl FnMut(Delay)) {
        for &byte in bytes {
            self.text(byte).into_iter().for_each(&mut found);
            self.tail.rotate_left(1);
            self.tail[TAIL - 1] = byte;
            if let [0x80, opcode::FLUSH | opcode::FLUSHQ, 0, 0, 4, .., a, b, c, d] = self.tail {
                let seconds = u32::from_be_bytes([a, b, c, d]);
                (seconds > 0).then_some(Delay::Seconds(seconds)).into_iter().for_each(&mut found);
            }
        }
    }

    fn text(&mut self, byte: u8) -> Option<Delay> {
        if self.word < WORD.len() {
            // No part of the word is its beginning but the first letter.
            self.word = if byte == WORD[self.word] { self.word + 1 } else { usize::from(byte == WORD[0]) };
            self.token_len = 0;
            return None;
        }
        match byte {
            b' ' if self.token_len == 0 => None,
            b' ' | b'\r' | b'\n' | 0 => {
                self.word = 0;
                let token = self.token.get(..self.token_len);
                token.map_or(Some(Delay::Unknown), Delay::of)
            }
            byte => {
                if let Some(place) = self.token.get_mut(self.token_len) {
                    *place = byte;
                }
                self.token_len += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(bytes: &[u8]) -> Vec<Delay> {
        let (mut whole, mut cut) = (Vec::new(), Vec::new());
        Blind::new().push(bytes, |delay| whole.push(delay));
        let mut blind = Blind::new();
        bytes.iter().for_each(|byte| blind.push(&[*byte], |delay| cut.push(delay)));
        assert_eq!(whole, cut);
        whole
    }

    #[test]
    fn flushes_are_found_wherever_they_are() {
        use Delay::*;
        assert_eq!(found(b"set k 0 0 +5\r\nflush_all 10 noreply\r\nget k\r\nflush_all\r\n"), [Seconds(10)]);
        assert_eq!(found(b"fflush_all  7\n flush_all 0\r\nflush_all noreply\r\n"), [Seconds(7)]);
        assert_eq!(found(b"flush_all +5\r\nflush_all 00000000000000000005\r\n"), [Unknown, Unknown]);
        let mut binary = [&b"\x80\x08\0\0\x04"[..], &[0; 19], &[0, 0, 1, 0]].concat();
        assert_eq!(found(&[b"value", &binary[..]].concat()), [Seconds(256)]);
        binary[1] = 0x18;
        assert_eq!(found(&binary), [Seconds(256)]);
        binary[1] = 0x01;
        assert_eq!(found(&binary), []);
    }
}
