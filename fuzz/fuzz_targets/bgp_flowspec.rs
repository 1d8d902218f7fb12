//! Flow specifications as they stand in an attribute: any bytes are read or refused; what was read is written and read again, and stands in one order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cmp::Ordering;
use tidemill_bgp::FlowSpec;
use tidemill_bgp::flowspec::read_all;
use tidemill_feed::bgp::{Cursor, Family};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let family = if choice & 1 == 0 { Family::V4 } else { Family::V6 };
    let Ok((mut list, _)) = read_all(Cursor::new(data), family) else { return };
    let mut bytes = Vec::new();
    list.iter().for_each(|spec| spec.put(&mut bytes));
    assert!(bytes.len() <= data.len());
    assert_eq!(read_all(Cursor::new(&bytes), family).ok(), Some((list.clone(), 0)));
    for spec in &list {
        assert!(!spec.to_string().is_empty() && spec.operators() > 0);
    }
    // Sorting panics, or does not sort, where the order is none.
    list.truncate(40);
    list.sort_by(FlowSpec::precedence);
    for (n, one) in list.iter().enumerate() {
        for other in &list[n..] {
            assert_ne!(one.precedence(other), Ordering::Greater, "{one}; {other}");
            assert_eq!(one.precedence(other) == Ordering::Equal, one == other, "{one}; {other}");
        }
    }
});
