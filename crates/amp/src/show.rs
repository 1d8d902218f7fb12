//! What an operator asks for: rules, the heaviest of them, why a packet would pass.

use crate::allow::{AllowEntry, IpPrefix};
use crate::flows::Status;
use crate::offload::Hits;
use crate::tuple::Tuple;
use std::net::IpAddr;

/// Which rules to list.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Of this status only. Default: all that hold.
    pub status: Option<Status>,
    /// With an address in this prefix only, amplifier or victim.
    pub address: Option<IpPrefix>,
    /// Where to go on: [`RulesPage::next`] of the page before.
    pub cursor: Option<u64>,
    /// Rules on a page at most; 0 is 1000.
    pub limit: usize,
}

/// One flow that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The worker whose table it is in; of several, one that knows the most of it.
    pub worker: usize,
    /// The flow.
    pub tuple: Tuple,
    /// What is known of it.
    pub status: Status,
    /// Seconds from now until that ends by itself; of a suspected flow if no packet comes meanwhile.
    pub left_s: u32,
    /// Seconds since it became filtered; none of others, nor of a rule that a process before has made.
    pub since_s: Option<u32>,
    /// What it has kept away, the offload's part included.
    pub hits: Hits,
}

/// Some rules, in no order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesPage {
    /// The rules.
    pub rules: Vec<Rule>,
    /// The cursor of the next page; none if this was the last.
    pub next: Option<u64>,
}

/// What [`TopLine`]s are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TopBy {
    /// Each rule by itself.
    Rule,
    /// The address that answers come from.
    Amplifier,
    /// The address that they go to.
    Victim,
    /// The port that they come from.
    Protocol,
}

impl TopBy {
    /// From its name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "rule" => Some(TopBy::Rule),
            "amplifier" => Some(TopBy::Amplifier),
            "victim" => Some(TopBy::Victim),
            "protocol" => Some(TopBy::Protocol),
            _ => None,
        }
    }
}

/// What a line of [`Look::top`](crate::Look::top) is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopKey {
    /// A rule.
    Rule(Tuple),
    /// An address; none where the tuple mode leaves it out.
    Address(Option<IpAddr>),
    /// A UDP port; none where the tuple mode leaves it out.
    Port(Option<u16>),
}

impl std::fmt::Display for TopKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TopKey::Rule(tuple) => tuple.fmt(f),
            TopKey::Address(Some(address)) => address.fmt(f),
            TopKey::Port(Some(port)) => match crate::config::protocol_name(*port) {
                Some(name) => f.write_str(name),
                None => port.fmt(f),
            },
            TopKey::Address(None) | TopKey::Port(None) => f.write_str("any"),
        }
    }
}

/// What was kept away of one kind, by the rules that there are now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopLine {
    /// What it is about.
    pub key: TopKey,
    /// Kept away.
    pub hits: Hits,
    /// Rules.
    pub rules: u64,
}

/// Why a packet passes, or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// It is not UDP with ports.
    NotUdp,
    /// Its source port is no protocol's.
    NotAProtocol {
        /// The port.
        port: u16,
    },
    /// The allow-list says so; what else is known of the flow does not matter.
    Allowed {
        /// The first entry that does.
        entry: AllowEntry,
        /// The entry as words.
        text: String,
    },
    /// Nothing is known of the flow: it would become suspected.
    Unknown,
    /// The flow is suspected: an ICMP message of the victim's would have it filtered.
    Suspected {
        /// Seconds since its last packet.
        age_s: u32,
    },
    /// Somebody inside asked.
    Solicited {
        /// Seconds until that is forgotten.
        left_s: u32,
    },
    /// The victim has said that nobody listens.
    Filtered {
        /// Seconds since then; none of a rule that a process before has made.
        since_s: Option<u32>,
        /// Seconds until it ends.
        left_s: u32,
        /// What it has kept away, or would have.
        hits: Hits,
        /// Nothing is kept away.
        dry_run: bool,
    },
}

/// What would happen to a packet of a flow, outside to inside, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The flow as rules see it; none if rules do not see it.
    pub rule: Option<Tuple>,
    /// Whether it would be dropped.
    pub drops: bool,
    /// Whether it would be if this were no dry run.
    pub would_drop: bool,
    /// Why.
    pub because: Because,
    /// Workers that know of the flow: the one that the packet comes to decides.
    pub workers: Vec<usize>,
    /// Those of them that have a rule of it. Another one lets its packets pass until the victim's next message about it.
    pub filters: Vec<usize>,
}

impl std::fmt::Display for Because {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Because::NotUdp => write!(f, "not UDP with ports: never looked at"),
            Because::NotAProtocol { port } => {
                write!(f, "source port {port} is not in mitigator.protocols: never looked at")
            }
            Because::Allowed { text, .. } => write!(f, "on the allow-list: {text}"),
            Because::Unknown => {
                write!(
                    f,
                    "nothing is known of the flow: its first packet makes it suspected, if the table has room (else it counts as `untracked`, and passes)"
                )
            }
            Because::Suspected { age_s } => {
                write!(
                    f,
                    "suspected: nobody was seen to ask; last packet {age_s} s ago; filtered as soon as the victim says that nobody listens"
                )
            }
            Because::Solicited { left_s } => {
                write!(f, "solicited: somebody inside asked; remembered for {left_s} s more")
            }
            Because::Filtered { since_s, left_s, hits, dry_run } => {
                f.write_str("filtered: the victim said that nobody listens, ")?;
                match since_s {
                    Some(since_s) => write!(f, "{since_s} s ago")?,
                    None => f.write_str("to a process before this one")?,
                }
                let away = if *dry_run { "a dry run: would have kept away" } else { "kept away" };
                write!(f, "; for {left_s} s more; {away} {} packets, {} bytes", hits.packets, hits.bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Because, Hits};

    #[test]
    fn a_dry_run_says_that_nothing_is_kept_away() {
        let said = |dry_run| {
            let hits = Hits { packets: 2, bytes: 90 };
            Because::Filtered { since_s: Some(3), left_s: 60, hits, dry_run }.to_string()
        };
        assert!(
            said(false).ends_with("3 s ago; for 60 s more; kept away 2 packets, 90 bytes"),
            "{}",
            said(false)
        );
        assert!(
            said(true).ends_with("; a dry run: would have kept away 2 packets, 90 bytes"),
            "{}",
            said(true)
        );
    }
}
