//! Tables as text: a name to a line, and behind it the table's addresses, each on a line that begins with a blank.

use crate::filter::sets::AddressSet;
use crate::filter::text::{Network, read_network};
use std::sync::Arc;

/// A table's name, and what is in it.
pub(super) type Named = (String, Arc<AddressSet>);

pub(super) fn write(tables: &[Named]) -> Vec<u8> {
    let mut text = String::new();
    for (name, addresses) in tables {
        text.push_str(name);
        text.push('\n');
        let v4 = addresses.v4.iter().map(|prefix| Network::V4(*prefix));
        let v6 = addresses.v6.iter().map(|prefix| Network::V6(*prefix));
        for network in v4.chain(v6) {
            text.push(' ');
            text.push_str(&network.to_string());
            text.push('\n');
        }
    }
    text.into_bytes()
}

/// The tables; what is wrong, and from which byte on.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Named>, (usize, String)> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| (error.valid_up_to(), "this is no UTF-8".to_owned()))?;
    let (mut tables, mut at): (Vec<Named>, usize) = (Vec::new(), 0);
    for line in text.split_inclusive('\n') {
        let plain = line.strip_suffix('\n').unwrap_or(line);
        match (plain.strip_prefix(' '), tables.last_mut()) {
            (None, _) => tables.push((plain.to_owned(), Arc::default())),
            (Some(_), None) => return Err((at, "an address of no table".to_owned())),
            (Some(word), Some((_, addresses))) => {
                if !Arc::make_mut(addresses).add(read_network(word).map_err(|what| (at, what))?) {
                    return Err((at, "an address that is there already".to_owned()));
                }
            }
        }
        at += line.len();
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_as_they_were_written() {
        let set = |texts: &[&str]| {
            let networks: Vec<Network> = texts.iter().map(|text| read_network(text).unwrap()).collect();
            Arc::new(AddressSet::of(&networks))
        };
        let tables = [
            ("bans".to_owned(), set(&["192.0.2.1", "10.0.0.0/8", "2001:db8::/32", "::ffff:192.0.2.1"])),
            ("none".to_owned(), set(&[])),
            ("six".to_owned(), set(&["2001:db8::1"])),
        ];
        let bytes = write(&tables);
        assert!(bytes.starts_with(b"bans\n 10.0.0.0/8\n 192.0.2.1\n "));
        assert_eq!(read(&bytes).unwrap(), tables);
        assert!(read(b"").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_place() {
        for (bytes, place, what) in [
            (&b" 192.0.2.1\n"[..], 0, "an address of no table"),
            (b"t\n 192.0.2.1\n 192.0.2.300\n", 13, "\"192.0.2.300\" is not an IPv4 address"),
            (b"t\n 192.0.2.1\n 192.0.2.1\n", 13, "an address that is there already"),
            (b"t\n\xff", 2, "this is no UTF-8"),
        ] {
            let (at, said) = read(bytes).unwrap_err();
            assert!(at == place && said.starts_with(what), "{at}: {said}");
        }
    }
}
