//! Keys of the meta protocol in base64 (flag `b`): memcached keeps the decoded bytes.
//!
//! Its decoder skips what it does not know and takes odd padding. What is not plain RFC 4648 is refused here, and whoever asked must take it for any
//! key at all.

use super::MAX_KEY;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes that `token` stands for, of 1 to 186, written to the front of `to`. `None` if it is not plain base64.
pub fn decode<'t>(token: &[u8], to: &'t mut [u8; MAX_KEY]) -> Option<&'t [u8]> {
    if token.is_empty() || token.len() > MAX_KEY || !token.len().is_multiple_of(4) {
        return None;
    }
    let padding = token.iter().rev().take_while(|&&byte| byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut len = 0;
    for four in token[..token.len() - padding].chunks(4) {
        let mut bits = 0_u32;
        for &byte in four {
            let digit = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(digit);
        }
        bits <<= 6 * (4 - four.len()) as u32;
        let bytes = bits.to_be_bytes();
        let count = four.len() - 1;
        // Bits that padding leaves over must be 0.
        if bytes[1 + count..].iter().any(|&byte| byte != 0) {
            return None;
        }
        to[len..len + count].copy_from_slice(&bytes[1..1 + count]);
        len += count;
    }
    Some(&to[..len])
}

/// `bytes` in base64, appended to `to`.
pub fn encode(bytes: &[u8], to: &mut Vec<u8>) {
    for three in bytes.chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let more = digit <= three.len();
            to.push(if more { ALPHABET[(bits >> (18 - 6 * digit) & 63) as usize] } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for len in 1..=186 {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 37 + len) as u8).collect();
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            assert_eq!(decode(&text, &mut [0; MAX_KEY]), Some(&bytes[..]));
        }
    }

    #[test]
    fn only_the_plain_form() {
        let mut to = [0; MAX_KEY];
        assert_eq!(decode(b"Zm9v", &mut to), Some(&b"foo"[..]));
        assert_eq!(decode(b"Zg==", &mut to), Some(&b"f"[..]));
        for token in ["", "Zm9", "Z!m9v", "Z===", "Zh==", "Zm==Zm9v", "====", "Zm9\n"] {
            assert_eq!(decode(token.as_bytes(), &mut to), None, "{token:?}");
        }
    }
}
