//! Headers as text.

use super::line::{Address, Line};
use super::{LONGEST_LINE, TextError, lines};
use crate::key::Key;
use std::io::BufRead;

/// Headers of a trace at most: what is read may have no end.
const MOST_HEADERS: usize = 1 << 24;

/// A packet's header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Addresses, ports, protocol.
    pub key: Key,
    /// The number of the first rule that matches, from 0, if the line says so: `Some(None)` is no match.
    pub first_match: Option<Option<u32>>,
}

/// Reads a header trace.
///
/// # Errors
/// See [`TextError`]: the first line that is wrong.
pub fn read_headers(reader: impl BufRead) -> Result<Vec<Header>, TextError> {
    read_headers_of(usize::MAX, reader)
}

/// Reads a header trace of a set of so many rules: one that names another rule is another set's.
///
/// # Errors
/// See [`TextError`]: the first line that is wrong.
pub fn read_headers_of(rules: usize, reader: impl BufRead) -> Result<Vec<Header>, TextError> {
    let mut headers = Vec::new();
    lines(reader, LONGEST_LINE, |line| {
        if headers.len() == MOST_HEADERS {
            return Err(line.error(0, format!("there can be {MOST_HEADERS} headers: leave the others out")));
        }
        headers.push(header(line, rules)?);
        Ok(())
    })?;
    Ok(headers)
}

fn header(mut line: Line<'_>, rules: usize) -> Result<Header, TextError> {
    let source = line.address(true, "source")?;
    line.space();
    let second = line.place();
    let destination = line.address(true, "destination")?;
    let mut number = |most, what| {
        line.space();
        line.number(most, what)
    };
    let source_port = number(0xffff, "source port")? as u16;
    let destination_port = number(0xffff, "destination port")? as u16;
    let protocol = number(0xff, "protocol")? as u8;
    let key = match (source, destination) {
        (Address::V4(source), Address::V4(destination)) => {
            Key::ipv4(source, destination, source_port, destination_port, protocol)
        }
        (Address::V6(source), Address::V6(destination)) => {
            Key::ipv6(source, destination, source_port, destination_port, protocol)
        }
        _ => return Err(line.error(second, "destination: give one of the source's family")),
    };
    line.space();
    let at = line.place();
    let first_match = if line.at_end() { None } else { Some(first_match(&mut line)?) };
    if let Some(Some(rule)) = first_match.filter(|rule| rule.is_some_and(|rule| rule as usize >= rules)) {
        let what = format!("first match: rule {rule}, and the set has {rules}: give the trace of this set");
        return Err(line.error(at, what));
    }
    line.end("a header")?;
    Ok(Header { key, first_match })
}

/// -1 is no match; so is DPDK's 4294967295.
fn first_match(line: &mut Line<'_>) -> Result<Option<u32>, TextError> {
    if line.take(b'-') {
        let start = line.place();
        return match line.number(u64::MAX, "first match")? {
            1 => Ok(None),
            _ => Err(line.error(start, "first match: give a rule's number from 0 on, or -1 for none")),
        };
    }
    let number = line.number(u32::MAX.into(), "first match")? as u32;
    Ok((number != u32::MAX).then_some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_what_their_lines_say() {
        let text = "3231124299\t255664495\t0\t65535\t6\t565\n0x10200101 2.1.0.0 100 7 6 -1\n::1 ::2 3 4 5\n1 2 3 4 5 4294967295\n";
        let headers = read_headers(text.as_bytes()).unwrap();
        assert_eq!(headers[0].key, Key::ipv4(3_231_124_299, 255_664_495, 0, 65_535, 6));
        assert_eq!(headers[1].key, Key::ipv4(0x1020_0101, 0x0201_0000, 100, 7, 6));
        assert_eq!(headers[2].key, Key::ipv6(1, 2, 3, 4, 5));
        let expected = [Some(Some(565)), Some(None), None, Some(None)];
        assert_eq!(headers.iter().map(|header| header.first_match).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let wrong = [
            ("1 ::1 2 3 4", "line 1, column 3: destination: give one of the source's family"),
            ("1 2 3 4 256", "line 1, column 9: protocol: give a number from 0 to 255"),
            (
                "1 2 3 4 5 -2",
                "line 1, column 12: first match: give a rule's number from 0 on, or -1 for none",
            ),
            ("1 2 3 4 5 6 7", "line 1, column 13: nothing may follow a header"),
            ("4294967296 2 3 4 5", "line 1, column 1: source: give a number from 0 to 4294967295"),
        ];
        for (text, expected) in wrong {
            assert_eq!(read_headers(text.as_bytes()).unwrap_err().to_string(), expected, "{text}");
        }
        let text = "1 2 3 4 5 2\n1 2 3 4 5 3\n";
        let error = read_headers_of(3, text.as_bytes()).unwrap_err().to_string();
        let expected =
            "line 2, column 11: first match: rule 3, and the set has 3: give the trace of this set";
        assert_eq!(error, expected);
        assert_eq!(read_headers_of(4, text.as_bytes()).unwrap().len(), 2);
    }
}
