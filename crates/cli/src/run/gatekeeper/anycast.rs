//! Prefixes that a Gatekeeper announces as long as a Grantor of theirs answers (`bgp.announce.while_grantors`): who sends to them goes by another Gatekeeper
//! meanwhile.

use tidemill_feed::AnyPrefix;
use tidemill_gatekeeper::{GatekeeperControl, PolicyLine};

/// The policies, and whether a Grantor of each answers; `None` of one that has no Grantors.
pub(super) struct Standing(Vec<(AnyPrefix, Option<bool>)>);

impl Standing {
    pub(super) fn of(gate: &GatekeeperControl) -> Self {
        let one = |policy: PolicyLine| {
            let answers = policy.grantors.iter().any(|grantor| !gate.is_down(*grantor));
            Some((read(&policy.prefix)?, (!policy.grantors.is_empty()).then_some(answers)))
        };
        Standing(gate.policies().into_iter().filter_map(one).collect())
    }

    /// Whether a prefix is to be announced: a Grantor answers of the policies for it and for parts of it, or they have none.
    pub(super) fn announces(&self, prefix: AnyPrefix) -> bool {
        let inside = self.0.iter().filter(|(policy, _)| covers(prefix, *policy));
        let whole = self.0.iter().any(|(policy, _)| *policy == prefix);
        // What no policy inside is about, the longest one around it is.
        let around = self.0.iter().filter(|(policy, _)| !whole && covers(*policy, prefix));
        let around = around.max_by_key(|(policy, _)| length(*policy));
        let mut answers = inside.chain(around).filter_map(|(_, answers)| *answers).peekable();
        answers.peek().is_none() || answers.any(|answers| answers)
    }
}

fn read(text: &str) -> Option<AnyPrefix> {
    match text.contains(':') {
        true => text.parse().ok().map(AnyPrefix::V6),
        false => text.parse().ok().map(AnyPrefix::V4),
    }
}

fn covers(one: AnyPrefix, other: AnyPrefix) -> bool {
    match (one, other) {
        (AnyPrefix::V4(one), AnyPrefix::V4(other)) => one.covers(other),
        (AnyPrefix::V6(one), AnyPrefix::V6(other)) => one.covers(other),
        _ => false,
    }
}

fn length(prefix: AnyPrefix) -> u8 {
    match prefix {
        AnyPrefix::V4(prefix) => prefix.len(),
        AnyPrefix::V6(prefix) => prefix.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy's prefix, and whether its Grantors answer, if it asks any.
    type Policy = (&'static str, Option<bool>);

    #[test]
    fn a_prefix_stands_with_the_grantors_of_its_policies() {
        let (up, down, without) = (Some(true), Some(false), None);
        let standing = |list: &[Policy]| {
            Standing(list.iter().map(|(text, answers)| (read(text).unwrap(), *answers)).collect())
        };
        let cases: &[(&[Policy], bool)] = &[
            (&[], true),
            (&[("10.0.0.0/24", up)], true),
            (&[("10.0.0.0/24", down)], false),
            (&[("10.0.0.0/24", without)], true),
            // The one around it counts where it has none of its own, and of several the longest.
            (&[("0.0.0.0/0", down)], false),
            (&[("0.0.0.0/0", down), ("10.0.0.0/8", up)], true),
            (&[("0.0.0.0/0", up), ("10.0.0.0/24", down)], false),
            (&[("0.0.0.0/0", down), ("10.0.0.0/24", without)], true),
            // A part that still works keeps the whole.
            (&[("10.0.0.0/25", down), ("10.0.0.128/25", up)], true),
            (&[("10.0.0.0/25", down), ("0.0.0.0/0", up)], true),
            (&[("10.0.0.0/25", down), ("10.0.0.128/25", down)], false),
            (&[("10.0.1.0/24", down), ("::/0", down)], true),
        ];
        for (list, expected) in cases {
            let prefix = read("10.0.0.0/24").unwrap();
            assert_eq!(standing(list).announces(prefix), *expected, "{list:?}");
        }
        assert!(!standing(&[("2001:db8::/32", down)]).announces(read("2001:db8:1::/48").unwrap()));
    }
}
