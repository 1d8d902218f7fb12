//! Rules as text.

use super::line::{Address, Line};
use super::{LONGEST_LINE, TextError, lines};
use crate::key::{Field, IPV4, IPV6, ones};
use crate::rule::{MOST_RULES, Match, Rule, Side};
use std::io::BufRead;

/// A rule of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextRule {
    /// What it says about addresses, ports and protocol.
    pub five_tuple: Match,
    /// Value and mask of the TCP flags, both 0 where the line has none.
    pub flags: (u16, u16),
}

impl TextRule {
    /// All that the line says.
    pub fn matches(&self) -> Match {
        self.five_tuple.masked(Field::TcpFlags, self.flags.0.into(), self.flags.1.into())
    }
}

/// Matches with priorities by which the first of the list wins.
pub fn in_order(matches: impl IntoIterator<Item = Match>) -> Vec<Rule> {
    let rule = |(matches, priority)| Rule { matches, priority };
    matches.into_iter().zip((0..=u64::from(u32::MAX)).rev()).map(rule).collect()
}

/// Reads a rule set.
///
/// # Errors
/// See [`TextError`]: the first line that is wrong.
pub fn read_rules(reader: impl BufRead) -> Result<Vec<TextRule>, TextError> {
    let mut rules = Vec::new();
    lines(reader, LONGEST_LINE, |line| {
        if rules.len() == MOST_RULES {
            return Err(line.error(0, format!("there can be {MOST_RULES} rules: leave the others out")));
        }
        rules.push(rule(line)?);
        Ok(())
    })?;
    Ok(rules)
}

fn rule(mut line: Line<'_>) -> Result<TextRule, TextError> {
    line.expect(b'@', "a rule begins with it")?;
    let (source, source_length) = prefix(&mut line, "source")?;
    line.space();
    let second = line.place();
    let (destination, destination_length) = prefix(&mut line, "destination")?;
    let matches = match (source, destination) {
        (Address::V4(source), Address::V4(destination)) => Match::any()
            .exact(Field::EtherType, IPV4.into())
            .prefix(Field::Ipv4Source, source.into(), source_length)
            .prefix(Field::Ipv4Destination, destination.into(), destination_length),
        (Address::V6(source), Address::V6(destination)) => Match::any()
            .exact(Field::EtherType, IPV6.into())
            .prefix(Field::Ipv6Source, source, source_length)
            .prefix(Field::Ipv6Destination, destination, destination_length),
        _ => return Err(line.error(second, "destination: give one of the source's family")),
    };
    let matches = ports(&mut line, matches, Side::Source, "source ports")?;
    let matches = ports(&mut line, matches, Side::Destination, "destination ports")?;
    line.space();
    let (protocol, mask) = line.masked(0xff, "protocol")?;
    let five_tuple = matches.masked(Field::Protocol, protocol.into(), mask.into());
    line.space();
    let flags = if line.at_end() { (0, 0) } else { line.masked(0xffff, "flags")? };
    line.end("a rule")?;
    Ok(TextRule { five_tuple, flags: (flags.0 as u16, flags.1 as u16) })
}

fn prefix(line: &mut Line<'_>, what: &str) -> Result<(Address, u32), TextError> {
    let start = line.place();
    let address = line.address(false, what)?;
    line.expect(b'/', "a prefix is an address and a length")?;
    let (value, bits) = match address {
        Address::V4(value) => (u128::from(value), 32),
        Address::V6(value) => (value, 128),
    };
    let length = line.number(bits.into(), "prefix length")? as u32;
    if value & ones(bits - length) != 0 {
        return Err(line.error(start, format!("{what}: has bits behind its length {length}: clear them")));
    }
    Ok((address, length))
}

fn ports(line: &mut Line<'_>, matches: Match, side: Side, what: &str) -> Result<Match, TextError> {
    line.space();
    let start = line.place();
    let first = line.number(0xffff, what)? as u16;
    line.expect(b':', "a range is `first : last`")?;
    let last = line.number(0xffff, what)? as u16;
    if first > last {
        return Err(line.error(start, format!("{what}: {first} : {last} ends before it begins")));
    }
    Ok(if (first, last) == (0, u16::MAX) { matches } else { matches.port_range(side, first..=last) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    const GOOD: &str = "@15.0.0.0/8 0.0.0.0/0 0 : 65535 1024:2047 0x06/0xFF 0x1000/0x1000\t";

    fn error(text: &str) -> String {
        match read_rules(text.as_bytes()) {
            Err(error) => error.to_string(),
            Ok(rules) => format!("{rules:?}"),
        }
    }

    #[test]
    fn a_rule_says_what_its_line_says() {
        let text = format!("# a set\n\n{GOOD}\n@2001:db8::/32 ::/0 7 : 7 0 : 65535 0/0");
        let rules = read_rules(text.as_bytes()).unwrap();
        assert_eq!(rules.len(), 2);
        let key = Key::ipv4(0x0f01_0203, 9, 80, 1024, 6);
        assert!(rules[0].five_tuple.matches(&key) && !rules[0].matches().matches(&key));
        assert!(rules[0].matches().matches(&key.with(Field::TcpFlags, 0x1200)));
        for other in [
            Key::ipv4(0x1001_0203, 9, 80, 1024, 6),
            Key::ipv4(0x0f01_0203, 9, 80, 1023, 6),
            Key::ipv4(0x0f01_0203, 9, 80, 2048, 6),
            Key::ipv4(0x0f01_0203, 9, 80, 1024, 17),
            key.with(Field::EtherType, IPV6.into()),
        ] {
            assert!(!rules[0].five_tuple.matches(&other), "{other:?}");
        }
        assert!(rules[1].matches().matches(&Key::ipv6(0x2001_0db8 << 96 | 5, 1, 7, 9, 200)));
        let ranks = in_order(rules.iter().map(TextRule::matches));
        assert!(ranks[0].priority > ranks[1].priority);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let wrong = [
            ("15.0.0.0/8", "line 1, column 1: `@` is missing here (a rule begins with it)"),
            ("@15.0.0/8", "line 1, column 2: source: give an address such as 192.0.2.1 or 2001:db8::1"),
            ("@15.0.0.1/8", "line 1, column 2: source: has bits behind its length 8: clear them"),
            ("@15.0.0.0/33", "line 1, column 11: prefix length: give a number from 0 to 32"),
            ("@15.0.0.0/8 ::/0", "line 1, column 13: destination: give one of the source's family"),
            ("\n@1.0.0.0/8 0.0.0.0/0 5 : 4", "line 2, column 22: source ports: 5 : 4 ends before it begins"),
            (
                "@1.0.0.0/8 0.0.0.0/0 5 4",
                "line 1, column 24: `:` is missing here (a range is `first : last`)",
            ),
            ("@1.0.0.0/8 0.0.0.0/0 +5 : 6", "line 1, column 22: source ports: give a number from 0 to 65535"),
            (
                "@1.0.0.0/8 0.0.0.0/0 5 : 6 0 : 1 6/1",
                "line 1, column 34: protocol: 0x6 has bits outside its mask 0x1",
            ),
            ("@1.0.0.0/8 0.0.0.0/0 5 : 6 0 : 1 6/255 0/0 x", "line 1, column 44: nothing may follow a rule"),
            ("@1.0.0.0/8 0.0.0.0/0 5 : 6 0 : 1", "line 1, column 33: protocol: give a number from 0 to 255"),
        ];
        for (text, expected) in wrong {
            assert_eq!(error(text), expected, "{text}");
        }
        let long = "x".repeat(5000);
        assert!(error(&long).contains("column 4096"), "{}", error(&long));
    }
}
