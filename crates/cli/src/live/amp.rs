//! `tidemill amp`: what a running mitigator has learnt, and what it keeps away.

use super::grid::{Grid, span};
use super::{Live, failed, print_line};
use crate::usage;
use anyhow::Result;
use clap::{Subcommand, ValueEnum};
use std::net::{IpAddr, SocketAddr};
use tidemill_control::schema::amp::{ExplainQuery, Explained, Rules, RulesQuery, Top, TopQuery, path};

/// Rules asked for at once.
const PAGE: u32 = 10_000;

/// The verbs of `tidemill amp`.
#[derive(Subcommand)]
pub(crate) enum AmpVerb {
    /// Rules: tuples that are filtered, suspected or solicited
    #[command(
        after_help = "Examples:\n  tidemill amp rules\n  tidemill amp rules --status filtered --limit 20\n  \
        tidemill amp rules --address 192.0.2.1 --json"
    )]
    Rules {
        /// Only those in this state
        #[arg(long)]
        status: Option<Status>,
        /// Only those from or to this address
        #[arg(long, value_name = "ADDR")]
        address: Option<IpAddr>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Where the most is kept away: by rule, amplifier, victim or protocol
    #[command(after_help = "Examples:\n  tidemill amp top\n  tidemill amp top --by victim --limit 5 --json")]
    Top {
        /// What is summed up
        #[arg(long, default_value = "amplifier")]
        by: By,
        /// At most so many lines
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// What would happen to a UDP packet from outside, and why
    #[command(
        after_help = "A tuple is SOURCE:PORT>DESTINATION:PORT; IPv6 addresses are in brackets.\n\nExamples:\n  \
            tidemill amp explain '192.0.2.1:53>198.51.100.7:4000'\n  \
            tidemill amp explain '[2001:db8::1]:123>[2001:db8:1::7]:4000'"
    )]
    Explain {
        /// The packet's addresses and ports
        tuple: String,
    },
    /// Programs and rules that mitigators with `offload_pin` have left in the kernel: shows them, or removes one
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    #[command(
        after_help = "It asks the kernel, not a running mitigator. One that runs has its pins there, too: they cannot be removed before it has ended.\n\nExamples:\n  \
            tidemill amp pins\n  tidemill amp pins --remove transit"
    )]
    Pins {
        /// Remove the program and the rules of this name
        #[arg(long, value_name = "NAME")]
        remove: Option<String>,
    },
    /// All that the mitigator counts
    #[command(after_help = "Example:\n  tidemill amp counters --json")]
    Counters,
}

/// A rule's state.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Status {
    /// Seen, and nobody asked for it.
    Suspected,
    /// Kept away.
    Filtered,
    /// An answer that was asked for.
    Solicited,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Suspected => "suspected",
            Status::Filtered => "filtered",
            Status::Solicited => "solicited",
        }
    }
}

/// What a line of `top` stands for.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum By {
    /// A rule.
    Rule,
    /// A source address.
    Amplifier,
    /// A destination address.
    Victim,
    /// A protocol.
    Protocol,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Rule => "rule",
            By::Amplifier => "amplifier",
            By::Victim => "victim",
            By::Protocol => "protocol",
        }
    }
}

pub(super) fn run(live: &Live, verb: &AmpVerb) -> Result<bool> {
    match verb {
        AmpVerb::Rules { status, address, limit } => rules(live, *status, *address, *limit),
        AmpVerb::Top { by, limit } => top(live, *by, *limit),
        AmpVerb::Explain { tuple } => explain(live, tuple),
        #[cfg(all(feature = "xdp", target_os = "linux"))]
        AmpVerb::Pins { remove } => pins(live, remove.as_deref()),
        AmpVerb::Counters => live.counters(path::COUNTERS),
    }
}

fn rules(live: &Live, status: Option<Status>, address: Option<IpAddr>, limit: u32) -> Result<bool> {
    let client = live.client()?;
    let mut query = RulesQuery {
        status: status.map(|status| status.name().into()),
        address: address.map(|address| address.to_string()),
        ..RulesQuery::default()
    };
    let (mut left, mut shown) = (limit, Vec::new());
    while left > 0 {
        query.limit = Some(left.min(PAGE));
        let page: Rules = client.get(path::RULES, &query).map_err(failed)?;
        left -= (page.rules.len() as u32).min(left);
        if live.json {
            page.rules.iter().try_for_each(print_line)?;
        } else {
            shown.extend(page.rules);
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    if !live.json {
        let mut grid = Grid::new(&["status", "from", "to", ">ends in", ">packets", ">bytes", ">worker"]);
        for rule in shown {
            grid.row([
                rule.status.clone(),
                end(Some(&rule.source), rule.source_port),
                end(rule.destination.as_deref(), rule.destination_port),
                span(rule.expires_s.into()),
                rule.packets.to_string(),
                rule.bytes.to_string(),
                rule.worker.to_string(),
            ]);
        }
        grid.print("there are no such rules");
    }
    Ok(true)
}

/// An address with its port; what a rule does not look at is a star.
fn end(address: Option<&str>, port: Option<u16>) -> String {
    let address = match address {
        None => "*".to_owned(),
        Some(address) if address.contains(':') && port.is_some() => format!("[{address}]"),
        Some(address) => address.to_owned(),
    };
    match port {
        Some(port) => format!("{address}:{port}"),
        None => address,
    }
}

fn top(live: &Live, by: By, limit: u32) -> Result<bool> {
    let query = TopQuery { by: by.name().into(), limit: Some(limit) };
    let top: Top = live.client()?.get(path::TOP, &query).map_err(failed)?;
    if live.json {
        top.lines.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&[by.name(), ">packets", ">bytes", ">rules"]);
    for line in top.lines {
        grid.row([line.what, line.packets.to_string(), line.bytes.to_string(), line.rules.to_string()]);
    }
    if top.dry_run {
        println!("a dry run: nothing is kept away; this would have been");
    }
    grid.print(if top.dry_run { "nothing would have been kept away" } else { "nothing has been kept away" });
    Ok(true)
}

fn explain(live: &Live, tuple: &str) -> Result<bool> {
    let explained: Explained = live.client()?.get(path::EXPLAIN, &parse(tuple)?).map_err(failed)?;
    if live.json {
        print_line(&explained)?;
        return Ok(true);
    }
    let dry = if explained.would_drop && explained.verdict == "pass" { " (otherwise dropped)" } else { "" };
    println!("{}: {}{dry}", explained.verdict, explained.why);
    if let Some(source) = &explained.source {
        let from = end(Some(source), explained.source_port);
        println!("tuple: {from} > {}", end(explained.destination.as_deref(), explained.destination_port));
    }
    let without: Vec<String> = explained
        .workers
        .iter()
        .filter(|worker| !explained.filters.contains(worker))
        .map(ToString::to_string)
        .collect();
    if explained.would_drop && !without.is_empty() {
        println!(
            "not by worker {}: it learns the rule with the victim's next message about a packet that it let pass",
            without.join(", ")
        );
    }
    Ok(true)
}

/// Reads `SOURCE:PORT>DESTINATION:PORT`.
fn parse(tuple: &str) -> Result<ExplainQuery> {
    let wrong = |what: &str| {
        usage(format!(
            "{tuple}: {what}: give SOURCE:PORT>DESTINATION:PORT, as '192.0.2.1:53>198.51.100.7:4000' or \
             '[2001:db8::1]:53>[2001:db8::7]:4000'"
        ))
    };
    let (source, destination) = tuple.split_once('>').ok_or_else(|| wrong("there is no >"))?;
    let address = |text: &str| -> Result<SocketAddr> {
        text.trim().parse().map_err(|_| wrong(&format!("{:?} is no address with a port", text.trim())))
    };
    let (source, destination) = (address(source)?, address(destination)?);
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(wrong("one address is IPv4, the other IPv6"));
    }
    Ok(ExplainQuery {
        source: source.ip().to_string(),
        source_port: source.port(),
        destination: destination.ip().to_string(),
        destination_port: destination.port(),
    })
}

#[cfg(all(feature = "xdp", target_os = "linux"))]
fn pins(live: &Live, remove: Option<&str>) -> Result<bool> {
    use anyhow::Context;
    use rustix::net::{AddressFamily, SocketType};
    use std::path::Path;
    use tidemill_amp::offload::xdp::Pins;
    let root = Path::new(Pins::ROOT);
    if let Some(name) = remove {
        if !Pins::remove(root, name).map_err(anyhow::Error::from)? {
            return Err(usage(format!(
                "--remove {name}: there is nothing of that name in {}",
                root.display()
            )));
        }
        eprintln!("tidemill: removed {name}");
        return Ok(true);
    }
    let left = Pins::left(root).with_context(|| root.display().to_string())?;
    // A number means an interface in one network namespace: that of the process, if there is one; else it may be ours.
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let interface = |index: u32, process: Option<u32>| {
        let name = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
            .and_then(|socket| rustix::net::netdevice::index_to_name(socket, index));
        let is_ours = process.map(|process| namespace(&process.to_string()) == namespace("self"));
        match (name, is_ours) {
            (Ok(name), Some(true)) => name,
            (Ok(name), None) => format!("number {index} (here {name})"),
            _ => format!("number {index}"),
        }
    };
    if live.json {
        for pin in &left {
            let on = pin.attached.map(|(index, _)| interface(index, pin.process));
            let native = pin.attached.map(|(_, native)| native);
            let line = serde_json::json!({"name": pin.name, "interface": on, "native": native, "process": pin.process});
            print_line(&line)?;
        }
        return Ok(true);
    }
    let mut grid = Grid::new(&["name", "interface", "mode", ">process"]);
    for pin in left {
        let (on, mode) = match pin.attached {
            Some((index, native)) => {
                (interface(index, pin.process), if native { "native" } else { "generic" })
            }
            None => ("-".into(), "off"),
        };
        let process = pin.process.map_or_else(|| "-".into(), |process| process.to_string());
        grid.row([pin.name, on, mode.into(), process]);
    }
    grid.print("nothing is left in the kernel");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::{end, parse};

    #[test]
    fn tuples_are_read() {
        let query = parse("192.0.2.1:53 > 198.51.100.7:4000").unwrap();
        assert_eq!((query.source.as_str(), query.source_port), ("192.0.2.1", 53));
        assert_eq!((query.destination.as_str(), query.destination_port), ("198.51.100.7", 4000));
        let query = parse("[2001:DB8::1]:123>[2001:db8::7]:9").unwrap();
        assert_eq!((query.source.as_str(), query.destination.as_str()), ("2001:db8::1", "2001:db8::7"));
        for (tuple, why) in [
            ("192.0.2.1:53", "there is no >"),
            ("192.0.2.1>198.51.100.7:4000", "no address with a port"),
            ("192.0.2.1:99999>198.51.100.7:4000", "no address with a port"),
            ("192.0.2.1:53>[2001:db8::7]:9", "one address is IPv4"),
        ] {
            let error = parse(tuple).unwrap_err().to_string();
            assert!(error.contains(why), "{tuple}: {error}");
        }
    }

    #[test]
    fn what_a_rule_leaves_out_is_a_star() {
        assert_eq!(end(Some("192.0.2.1"), Some(53)), "192.0.2.1:53");
        assert_eq!(end(Some("2001:db8::1"), Some(53)), "[2001:db8::1]:53");
        assert_eq!(end(Some("2001:db8::1"), None), "2001:db8::1");
        assert_eq!(end(None, None), "*");
    }
}
