//! Files of addresses for sets: one to a line.
//!
//! ```text
//! # a comment; `;` begins one, too
//! 192.0.2.1
//! 198.51.100.0/24     3        a number behind it, the score of a blocklist, is passed over
//! 2001:db8::/32
//! ```

use super::lex::short;
use super::{Network, RuleError};
use crate::plain::is_plain;

/// Reads an address or a prefix.
///
/// # Errors
/// What is wrong with it.
pub fn read_network(text: &str) -> Result<Network, String> {
    if text.contains(':') {
        return text.parse().map(Network::V6).map_err(|error| one_line(&error));
    }
    text.parse().map(Network::V4).map_err(|error| one_line(&error))
}

fn one_line(error: &tidemill_lpm::prefix::PrefixError) -> String {
    error.to_string().replace(|c: char| !is_plain(c), "?")
}

/// Reads a whole file, and adds what it has.
///
/// # Errors
/// The first thing that is wrong, with line and column.
pub fn read_set(text: &str, networks: &mut Vec<Network>) -> Result<(), RuleError> {
    for (line, number) in text.lines().zip(1_u32..) {
        let plain = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = plain.split_ascii_whitespace();
        let Some(word) = words.next() else { continue };
        let column = |word: &str| (word.as_ptr() as usize - line.as_ptr() as usize) as u32 + 1;
        let network = read_network(word);
        networks.push(network.map_err(|what| RuleError::new(number, column(word), what))?);
        for more in words {
            if !more.bytes().all(|byte| byte.is_ascii_digit()) {
                let what = format!("`{}` follows the address: give each a line of its own", short(more));
                return Err(RuleError::new(number, column(more), what));
            }
        }
    }
    Ok(())
}
