//! What follows from `[filter]`, checked: every error names its key and says what to do.

use crate::filter::config::FilterSection;
use crate::filter::error::FilterError;
use crate::filter::states::States;

/// How long things are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// TCP connections that are being opened.
    pub tcp_opening_ms: u64,
    /// That are open.
    pub tcp_established_ms: u64,
    /// That one side has closed.
    pub tcp_closing_ms: u64,
    /// That are over.
    pub tcp_closed_ms: u64,
    /// UDP that nobody has answered.
    pub udp_first_ms: u64,
    /// UDP.
    pub udp_ms: u64,
    /// ICMP echoes.
    pub icmp_ms: u64,
    /// Other protocols.
    pub other_ms: u64,
    /// Fragments.
    pub fragment_ms: u64,
}

/// What cannot change while packets flow; of each worker and family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Connections.
    pub states: usize,
    /// Those that one source has begun.
    pub states_per_source: u32,
    /// Half-open ones.
    pub half_open: usize,
    /// Half-open ones of one source.
    pub half_open_per_source: u32,
    /// Those of other protocols than TCP that nobody has answered.
    pub unanswered: usize,
    /// Such of one source.
    pub unanswered_per_source: u32,
    /// Fragments that wait.
    pub fragments: usize,
}

const DAY_S: u32 = 86_400;

fn config(key: &'static str, what: impl Into<String>) -> FilterError {
    FilterError::Config { key, what: what.into() }
}

/// Checks a section.
///
/// # Errors
/// Which key is wrong, and what to do.
pub fn check(section: &FilterSection) -> Result<(Plan, Times), FilterError> {
    if section.rules.as_ref().is_none_or(|path| path.as_os_str().is_empty()) {
        return Err(config("rules", "is missing: name the file of rules"));
    }
    let seconds = |key: &'static str, value: u32, most: u32| match value {
        0 => Err(config(key, format!("0 seconds: give 1 to {most}"))),
        value if value > most => Err(config(key, format!("{value} seconds: give 1 to {most}"))),
        value => Ok(u64::from(value) * 1000),
    };
    let times = Times {
        tcp_opening_ms: seconds("tcp_opening_s", section.tcp_opening_s, 600)?,
        tcp_established_ms: seconds("tcp_established_s", section.tcp_established_s, 30 * DAY_S)?,
        tcp_closing_ms: seconds("tcp_closing_s", section.tcp_closing_s, DAY_S)?,
        tcp_closed_ms: seconds("tcp_closed_s", section.tcp_closed_s, DAY_S)?,
        udp_first_ms: seconds("udp_first_s", section.udp_first_s, DAY_S)?,
        udp_ms: seconds("udp_s", section.udp_s, DAY_S)?,
        icmp_ms: seconds("icmp_s", section.icmp_s, DAY_S)?,
        other_ms: seconds("other_s", section.other_s, DAY_S)?,
        fragment_ms: seconds("fragment_s", section.fragment_s, 60)?,
    };
    if !(1..=3600).contains(&section.handover_s) {
        return Err(config("handover_s", format!("{}: give 1 to 3600", section.handover_s)));
    }
    if section.states == 0 {
        return Err(config("states", "0: give room for one connection at least"));
    }
    if section.half_open == 0 || section.half_open > section.states {
        return Err(config(
            "half_open",
            format!(
                "{}: half-open connections are connections, too: give 1 to {} (filter.states)",
                section.half_open, section.states
            ),
        ));
    }
    if section.unanswered == 0 {
        return Err(config("unanswered", "0: nobody could begin anything but TCP: give 1 at least"));
    }
    for (key, what, most) in [
        ("states_per_source", "begin anything", section.states_per_source),
        ("half_open_per_source", "open a TCP connection", section.half_open_per_source),
        ("unanswered_per_source", "begin anything but TCP", section.unanswered_per_source),
    ] {
        if most == 0 {
            return Err(config(key, format!("0: nobody could {what}: give 1 at least")));
        }
    }
    let plan = Plan {
        states: section.states,
        states_per_source: section.states_per_source,
        half_open: section.half_open,
        half_open_per_source: section.half_open_per_source,
        unanswered: section.unanswered.min(section.states.div_ceil(2)),
        unanswered_per_source: section.unanswered_per_source,
        fragments: section.fragments,
    };
    Ok((plan, times))
}

/// Bytes that the tables of one worker take when they are full: of `states`, of `half_open`, of `unanswered`.
pub fn table_bytes(section: &FilterSection) -> [f64; 3] {
    type V4 = States<u32, 2>;
    type V6 = States<u128, 5>;
    let unanswered = section.unanswered.min(section.states.div_ceil(2));
    let waiting = V4::BYTES_PER_WAITING + V6::BYTES_PER_WAITING;
    [
        section.states as f64 * (V4::BYTES_PER_STATE + V6::BYTES_PER_STATE),
        section.half_open.min(section.states) as f64 * waiting,
        unanswered as f64 * waiting,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// But for buckets that are not whole.
    #[test]
    fn tables_take_what_is_said() {
        let section = FilterSection {
            rules: Some("filter.rules".into()),
            states: 20_000,
            half_open: 5000,
            unanswered: 7000,
            ..FilterSection::default()
        };
        let (plan, _) = check(&section).unwrap();
        let v4 = States::<u32, 2>::new(&plan, 7).unwrap().bytes();
        let bytes = (v4 + States::<u128, 5>::new(&plan, 7).unwrap().bytes()) as f64;
        let said: f64 = table_bytes(&section).iter().sum();
        assert!((bytes / said - 1.0).abs() < 0.01, "{bytes} bytes, said: {said}");
    }

    fn said(change: impl Fn(&mut FilterSection)) -> String {
        let mut section = FilterSection { rules: Some("filter.rules".into()), ..FilterSection::default() };
        change(&mut section);
        check(&section).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn every_mistake_is_named_with_its_key() {
        assert_eq!(said(|_| {}), "");
        for (change, says) in [
            (
                &(|section: &mut FilterSection| section.rules = None) as &dyn Fn(&mut FilterSection),
                "filter.rules: is missing",
            ),
            (&|section| section.states = 0, "filter.states: 0"),
            (&|section| section.half_open = 0, "filter.half_open: 0"),
            (&|section| section.half_open = section.states + 1, "filter.half_open: 262145"),
            (&|section| section.half_open_per_source = 0, "filter.half_open_per_source: 0"),
            (&|section| section.unanswered = 0, "filter.unanswered: 0: nobody"),
            (&|section| section.unanswered_per_source = 0, "filter.unanswered_per_source: 0"),
            (&|section| section.states_per_source = 0, "filter.states_per_source: 0: nobody"),
            (&|section| section.handover_s = 0, "filter.handover_s: 0: give 1 to 3600"),
            (&|section| section.tcp_opening_s = 0, "filter.tcp_opening_s: 0 seconds: give 1 to 600"),
            (&|section| section.fragment_s = 61, "filter.fragment_s: 61 seconds: give 1 to 60"),
            (&|section| section.udp_s = u32::MAX, "filter.udp_s: 4294967295 seconds"),
        ] {
            let said = said(change);
            assert!(said.starts_with(says), "{said}");
        }
    }
}
