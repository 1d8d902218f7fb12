//! Redis' protocol (RESP2 and RESP3): requests and replies in pieces, as they come by TCP, and whole replies item by item.
//!
//! ```text
//!  TCP -> request::Requests --> one request: its words, or that there are more than are kept
//!  TCP <- reply::Replies    <-- one reply is complete, or one push that answers nothing
//!         item::Items       <-- what a whole reply says; item::{head, bulk, line} write one
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`request`] | arrays of bulk strings, and inline commands |
//! | [`reply`] | where replies end |
//! | [`item`] | what they say |
//!
//! The reference is Redis 7.0. What it may read in another way than is read here is [`Step::Broken`](request::Step::Broken): numbers of other forms, quotes in inline commands.

pub mod item;
pub mod reply;
pub mod request;

/// A number of the protocol's headers: `0`, or digits that do not begin with one, a minus in front allowed. Redis takes no other.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let plain = match digits {
        b"0" => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !plain {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::integer;

    #[test]
    fn numbers_have_one_form() {
        for (text, number) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("-1", Some(-1)),
            ("-10", Some(-10)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("00", None),
            ("07", None),
            ("+7", None),
            (" 7", None),
            ("7 ", None),
            ("7x", None),
            ("--7", None),
        ] {
            assert_eq!(integer(text.as_bytes()), number, "{text:?}");
        }
    }
}
