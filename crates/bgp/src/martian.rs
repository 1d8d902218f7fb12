//! Prefixes that nobody routes, whoever tells them: packets to them are dropped as martians.

use tidemill_feed::AnyPrefix;
use tidemill_lpm::{Address, Prefix};
use tidemill_wire::martian::{v4, v6};

/// Whether a prefix is one of these, or lies within one. What covers them, as a default route does, is good.
pub(crate) fn is_martian(prefix: AnyPrefix) -> bool {
    match prefix {
        AnyPrefix::V4(prefix) => is_within(prefix, &v4::ALL),
        AnyPrefix::V6(prefix) => is_within(prefix, &v6::ALL),
    }
}

fn is_within<A: Address>(prefix: Prefix<A>, list: &[(A, u8)]) -> bool {
    let covers = |(first, len): &(A, u8)| Prefix::new(*first, *len).is_some_and(|all| all.covers(prefix));
    list.iter().any(covers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prefix;

    #[test]
    fn martians_are_these_prefixes_and_what_lies_within() {
        for text in [
            "0.0.0.0/8",
            "0.1.0.0/16",
            "127.0.0.0/8",
            "127.0.0.1/32",
            "169.254.0.0/16",
            "169.254.7.0/24",
            "224.0.0.0/4",
            "239.1.0.0/16",
            "240.0.0.0/4",
            "255.255.255.255/32",
            "::/128",
            "::1/128",
            "fe80::/10",
            "fe80::/64",
            "ff00::/8",
            "ff02::1/128",
            "::ffff:0:0/96",
            "::ffff:10.0.0.0/104",
        ] {
            assert!(is_martian(prefix(text)), "{text}");
        }
        for text in [
            "0.0.0.0/0",
            "1.0.0.0/8",
            "126.0.0.0/7",
            "128.0.0.0/1",
            "169.255.0.0/16",
            "223.255.255.0/24",
            "224.0.0.0/3",
            "::/0",
            "::/96",
            "64:ff9b::/96",
            "fe00::/9",
            "fec0::/10",
            "2001:db8::/32",
        ] {
            assert!(!is_martian(prefix(text)), "{text}");
        }
    }
}
