//! Access lists to load, of Cisco's and ClassBench's form: any bytes are read or refused with a message of one line and a place in the file. What is read becomes rules,
//! by which packets are judged as the lines' matches say, one after the other.
//!
//! Input: the first line is the list's name; the rest is the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_classify::Key;
use tidemill_nf::filter::text::{RuleError, read_acl, read_rules};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((name, text)) = text.split_once('\n') else { return };
    let lines = text.split('\n').count() as u32;
    let holds = |error: &RuleError| {
        assert!(error.line >= 1 && error.line <= lines && error.column >= 1, "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    };
    match read_acl(text, name) {
        Err(error) => holds(&error),
        Ok(list) => {
            assert!(list.is_sorted_by_key(|line| line.line));
            for line in &list {
                assert!(line.line >= 1 && line.line <= lines && !line.matches.is_empty());
                assert!(!line.text.contains(|c: char| c.is_control()));
                // Each is about some packet, and that one is IPv4's.
                for one in &line.matches {
                    let key = one.first_key();
                    assert!(one.matches(&key) && !one.matches(&Key::ipv6(1, 2, 3, 4, 6)), "{line:?}");
                }
            }
        }
    }
    let file =
        read_rules("load \"x\" format cisco acl x in\nload \"x\" format classbench block\n").expect("rules");
    for load in &file.loads {
        match load.rules(text) {
            Err(error) => holds(&error),
            Ok(rules) => assert!(rules.iter().all(|rule| rule.quick && rule.matches.is_some())),
        }
    }
});
