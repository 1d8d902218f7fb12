//! `tidemill filter`: the rules of a running filter, its connections and tables, and changes of them.

use super::grid::{Grid, or_dash, span};
use super::{Live, failed, print_line};
use crate::usage;
use anyhow::Result;
use clap::Subcommand;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use tidemill_control::schema::Done;
use tidemill_control::schema::filter::{
    Log, Rules, SetChange, Sets, SetsQuery, State, States, StatesQuery, TopQuery, path,
};

/// Connections asked for at once.
const PAGE: u32 = 10_000;
/// Addresses given at once to be put in; and to be taken out: these are in the call's address, which may not be long.
const BATCH: (usize, usize) = (4096, 256);

/// Bytes of a file of addresses at most, as of one that a table's rule names.
const MOST_SET_BYTES: u64 = 256 << 20;

/// The verbs of `tidemill filter`.
#[derive(Subcommand)]
pub(crate) enum FilterVerb {
    /// Rules, each with the packets that it has decided and the connections that it has let in
    #[command(after_help = "Examples:\n  tidemill filter rules\n  tidemill filter rules --json")]
    Rules,
    /// Connections that are known
    #[command(
        after_help = "Examples:\n  tidemill filter states\n  tidemill filter states --protocol tcp --limit 20\n  \
        tidemill filter states --address 10.0.0.5 --json"
    )]
    States {
        /// Only those with this address, at any end
        #[arg(long, value_name = "ADDR")]
        address: Option<IpAddr>,
        /// Only those of this protocol: tcp, udp, icmp, icmp6, or a number
        #[arg(long, value_name = "NAME")]
        protocol: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// The connections with the most packets
    #[command(after_help = "Example:\n  tidemill filter top --limit 50")]
    Top {
        /// So many
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Tables of addresses; with a name its addresses, too
    #[command(after_help = "Examples:\n  tidemill filter sets\n  tidemill filter sets bad")]
    Sets {
        /// The table
        #[arg(value_name = "TABLE")]
        name: Option<String>,
    },
    /// Read the file of rules and the files of its tables again: all of it is taken over, or nothing
    #[command(after_help = "Example:\n  tidemill filter load")]
    Load,
    /// Put addresses into a table; if it has a file or a list, until that is read again
    #[command(
        after_help = "Examples:\n  tidemill filter add-to-set bad 192.0.2.1 198.51.100.0/24\n  tidemill filter add-to-set bad --file more.txt"
    )]
    AddToSet {
        #[command(flatten)]
        change: Change,
    },
    /// Take addresses out of a table; what its file or list says is there again when that is read again
    #[command(after_help = "Example:\n  tidemill filter delete-from-set bad 192.0.2.1")]
    DeleteFromSet {
        #[command(flatten)]
        change: Change,
    },
    /// The last packets that rules with `log` have decided
    #[command(after_help = "Example:\n  tidemill filter log --json")]
    Log,
    /// All that the filter counts
    #[command(after_help = "Example:\n  tidemill filter counters --json")]
    Counters,
}

/// Addresses of a table.
#[derive(clap::Args)]
pub(crate) struct Change {
    /// The table
    #[arg(value_name = "TABLE")]
    name: String,
    /// Addresses and prefixes
    #[arg(value_name = "ADDR", required_unless_present = "file")]
    addresses: Vec<String>,
    /// A file of them, one to a line
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(super) fn run(live: &Live, verb: &FilterVerb) -> Result<bool> {
    match verb {
        FilterVerb::Rules => rules(live),
        FilterVerb::States { address, protocol, limit } => states(live, *address, protocol.clone(), *limit),
        FilterVerb::Top { limit } => {
            let top: States =
                live.client()?.get(path::TOP, &TopQuery { limit: Some(*limit) }).map_err(failed)?;
            show_states(live, &top.states, "no connection is known")
        }
        FilterVerb::Sets { name } => sets(live, name.clone()),
        FilterVerb::Load => {
            let done: Done = live.client()?.post(path::RULES, &()).map_err(failed)?;
            live.done(&done)
        }
        FilterVerb::AddToSet { change } => change_set(live, change, true),
        FilterVerb::DeleteFromSet { change } => change_set(live, change, false),
        FilterVerb::Log => log(live),
        FilterVerb::Counters => live.counters(path::COUNTERS),
    }
}

fn rules(live: &Live) -> Result<bool> {
    let rules: Rules = live.client()?.get(path::RULES, &()).map_err(failed)?;
    if live.json {
        rules.rules.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&[">", ">line", ">packets", ">bytes", ">connections", "rule"]);
    for rule in rules.rules {
        grid.row([
            rule.number.to_string(),
            rule.line.to_string(),
            rule.packets.to_string(),
            rule.bytes.to_string(),
            rule.states.to_string(),
            rule.rule,
        ]);
    }
    grid.print("there are no rules: everything passes");
    Ok(true)
}

fn states(live: &Live, address: Option<IpAddr>, protocol: Option<String>, limit: u32) -> Result<bool> {
    let client = live.client()?;
    let mut query = StatesQuery {
        address: address.map(|address| address.to_string()),
        protocol,
        ..StatesQuery::default()
    };
    let (mut left, mut shown) = (limit, Vec::new());
    while left > 0 {
        query.limit = Some(left.min(PAGE));
        let mut page: States = client.get(path::STATES, &query).map_err(failed)?;
        page.states.truncate(left as usize);
        left -= page.states.len() as u32;
        if live.json {
            page.states.iter().try_for_each(print_line)?;
        } else {
            shown.extend(page.states);
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    if live.json { Ok(true) } else { show_states(live, &shown, "there are no such connections") }
}

fn show_states(live: &Live, states: &[State], none: &str) -> Result<bool> {
    if live.json {
        states.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&[
        "protocol", "from", "to", "state", ">ends in", ">from", ">to", ">in by", ">out by", ">worker",
    ]);
    let rule = |rule: Option<u32>| or_dash(rule.map(|rule| rule.to_string()).as_deref());
    for state in states {
        grid.row([
            state.protocol.clone(),
            state.from.clone(),
            state.to.clone(),
            state.state.clone(),
            span(state.expires_s),
            state.packets_from.to_string(),
            state.packets_to.to_string(),
            rule(state.rule_in),
            rule(state.rule_out),
            state.worker.to_string(),
        ]);
    }
    grid.print(none);
    Ok(true)
}

fn sets(live: &Live, name: Option<String>) -> Result<bool> {
    let named = name.is_some();
    let sets: Sets = live.client()?.get(path::SETS, &SetsQuery { name }).map_err(failed)?;
    if live.json {
        print_line(&sets)?;
        return Ok(true);
    }
    if named {
        sets.addresses.iter().for_each(|address| println!("{address}"));
        return Ok(true);
    }
    let mut grid = Grid::new(&["table", ">IPv4", ">IPv6", "files"]);
    for set in sets.sets {
        let files = or_dash(Some(&set.files.join(", ")));
        grid.row([set.name, set.ipv4.to_string(), set.ipv6.to_string(), files]);
    }
    grid.print("there are no tables");
    Ok(true)
}

fn change_set(live: &Live, change: &Change, more: bool) -> Result<bool> {
    let mut addresses = change.addresses.clone();
    if let Some(file) = &change.file {
        addresses.extend(read(file)?);
    }
    let client = live.client()?;
    for batch in addresses.chunks(if more { BATCH.0 } else { BATCH.1 }) {
        let query = SetChange { name: change.name.clone(), addresses: batch.join(" ") };
        let done: Done = match more {
            true => client.post(path::SETS, &query),
            false => client.delete(path::SETS, &query),
        }
        .map_err(failed)?;
        live.done(&done)?;
    }
    Ok(true)
}

fn read(file: &Path) -> Result<Vec<String>> {
    let name = file.display().to_string();
    let text = crate::files::text(file, MOST_SET_BYTES, "give a file of addresses and networks")?;
    let mut networks = Vec::new();
    tidemill_nf::filter::text::read_set(&text, &mut networks)
        .map_err(|error| usage(format!("{name}: {error}")))?;
    Ok(networks.iter().map(ToString::to_string).collect())
}

fn log(live: &Live) -> Result<bool> {
    let log: Log = live.client()?.get(path::LOG, &()).map_err(failed)?;
    if live.json {
        log.lines.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid =
        Grid::new(&[">time", "action", "way", "interface", ">rule", "protocol", "from", "to", ">bytes"]);
    for line in log.lines {
        grid.row([
            format!("{:.3}", line.time_s),
            line.action,
            line.direction,
            line.interface,
            line.rule.to_string(),
            line.protocol,
            line.from,
            line.to,
            line.bytes.to_string(),
        ]);
    }
    grid.print("nothing was logged");
    Ok(true)
}
