//! `tidemill switch`: what a running switch knows, why a packet goes where; rules put in and taken out. And `tidemill show flows`.

use super::grid::{Grid, span};
use super::{Live, failed, print_line};
use anyhow::Result;
use clap::Subcommand;
use std::path::{Path, PathBuf};
use tidemill_control::schema::Done;
use tidemill_control::schema::switch::{
    Counters, CrossProduct, Flows, FlowsDelete, FlowsLoad, FlowsQuery, Groups, GroupsDelete, Stations,
    TraceQuery, Traced, path,
};

/// Bytes of rules that are given at once, at most: what a switch takes that has room for as many rules as it can have.
const MOST_TEXT_BYTES: u64 = (16 << 20) + 256 * 4_194_304;

/// The verbs of `tidemill switch`.
#[derive(Subcommand)]
pub(crate) enum SwitchVerb {
    /// Where a packet goes, and why: table by table
    #[command(after_help = "A packet is written as a match; what it does not name is zero.\n\nExamples:\n  \
            tidemill switch trace in_port=lan,tcp,nw_src=10.0.0.1,nw_dst=192.0.2.1,tp_dst=80\n  \
            tidemill switch trace in_port=lan,arp,dl_vlan=10 --json")]
    Trace {
        /// The packet
        packet: String,
    },
    /// Put rules, groups and meters in: all or none
    #[command(after_help = "Examples:\n  tidemill switch add 'priority=100,tcp,tp_dst=22 actions=drop'\n  \
            tidemill switch add --file new.flows\n  tidemill switch add --file all.flows --replace")]
    Add {
        /// A rule, a group or a meter, in the words of ovs-ofctl
        flow: Option<String>,
        /// A file of them
        #[arg(long, value_name = "FILE", conflicts_with = "flow")]
        file: Option<PathBuf>,
        /// Everything else goes; rules that are as they were keep their counters
        #[arg(long)]
        replace: bool,
    },
    /// Take rules out
    #[command(after_help = "Examples:\n  tidemill switch delete 'tcp,nw_src=10.0.0.0/8'\n  \
            tidemill switch delete --strict 'priority=100,tcp,tp_dst=22'\n  tidemill switch delete table=2")]
    Delete {
        /// A rule without actions: all rules within it go. Nothing (''): all of them
        filter: String,
        /// Just the rule of this priority and match
        #[arg(long)]
        strict: bool,
    },
    /// Take a group out, with the rules that lead to it
    #[command(after_help = "Example:\n  tidemill switch delete-group 7")]
    DeleteGroup {
        /// The group's number
        number: u32,
    },
    /// Take a meter out, with the rules that use it
    #[command(after_help = "Example:\n  tidemill switch delete-meter 1")]
    DeleteMeter {
        /// The meter's number
        number: u32,
    },
    /// Groups, and meters with what they let through
    #[command(after_help = "Example:\n  tidemill switch groups")]
    Groups,
    /// Stations that the bridge knows, or has it forget them
    #[command(after_help = "Examples:\n  tidemill switch stations\n  tidemill switch stations --forget")]
    Stations {
        /// Forget them all
        #[arg(long)]
        forget: bool,
    },
    /// All that the switch counts, which classifier each table of rules has, and the first table's cross-product
    #[command(after_help = "Example:\n  tidemill switch counters --json")]
    Counters,
}

pub(super) fn run(live: &Live, verb: &SwitchVerb) -> Result<bool> {
    match verb {
        SwitchVerb::Trace { packet } => trace(live, packet),
        SwitchVerb::Add { flow: None, file: None, .. } => {
            Err(crate::usage("switch add: give a rule, a group or a meter, or --file FILE"))
        }
        SwitchVerb::Add { flow, file, replace } => add(live, flow.as_deref(), file.as_deref(), *replace),
        SwitchVerb::Delete { filter, strict } => {
            let query = FlowsDelete { filter: Some(filter.clone()), strict: Some(*strict) };
            let done: Done = live.client()?.delete(path::FLOWS, &query).map_err(failed)?;
            live.done(&done)
        }
        SwitchVerb::DeleteGroup { number } => {
            delete_group(live, &GroupsDelete { group: Some(*number), meter: None })
        }
        SwitchVerb::DeleteMeter { number } => {
            delete_group(live, &GroupsDelete { group: None, meter: Some(*number) })
        }
        SwitchVerb::Groups => groups(live),
        SwitchVerb::Stations { forget: true } => {
            let done: Done = live.client()?.delete(path::STATIONS, &()).map_err(failed)?;
            live.done(&done)
        }
        SwitchVerb::Stations { forget: false } => stations(live),
        SwitchVerb::Counters => counters(live),
    }
}

fn delete_group(live: &Live, query: &GroupsDelete) -> Result<bool> {
    let done: Done = live.client()?.delete(path::GROUPS, query).map_err(failed)?;
    live.done(&done)
}

fn counters(live: &Live) -> Result<bool> {
    let all: Counters = live.client()?.get(path::COUNTERS, &()).map_err(failed)?;
    if live.json {
        print_line(&all)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&["counter", ">"]);
    for (name, count) in all.counters {
        grid.row([name, count.to_string()]);
    }
    grid.print("nothing is counted");
    let mut grid = Grid::new(&[">table", ">rules", "classifier"]);
    for table in all.tables {
        grid.row([table.table.to_string(), table.rules.to_string(), table.classifier]);
    }
    grid.print("no table has rules");
    if let Some(CrossProduct { rules, changed, worn, bytes }) = all.cross_product {
        let state = if worn { "worn: table 0 decides" } else { "of table 0" };
        let mut grid = Grid::new(&["cross-product", ">rules", ">changed since", ">KiB"]);
        let kib = bytes.div_ceil(1024);
        grid.row([state.to_owned(), rules.to_string(), changed.to_string(), kib.to_string()]);
        grid.print("no cross-product");
    }
    Ok(true)
}

fn add(live: &Live, flow: Option<&str>, file: Option<&Path>, replace: bool) -> Result<bool> {
    let text = match (flow, file) {
        (_, Some(file)) => crate::files::text(file, MOST_TEXT_BYTES, "give a file of rules")?,
        (flow, None) => flow.unwrap_or_default().to_owned(),
    };
    let done: Done = live.client()?.post(path::FLOWS, &FlowsLoad { text, replace }).map_err(failed)?;
    live.done(&done)
}

/// `tidemill show flows`.
pub(super) fn flows(live: &Live, filter: Option<&str>) -> Result<bool> {
    let query = FlowsQuery { filter: filter.map(str::to_owned) };
    let flows: Flows = live.client()?.get(path::FLOWS, &query).map_err(failed)?;
    if live.json {
        flows.flows.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&[">packets", ">bytes", ">for", "rule"]);
    for flow in flows.flows {
        grid.row([flow.packets.to_string(), flow.bytes.to_string(), span(flow.duration_s), flow.flow]);
    }
    grid.print("there are no such rules");
    Ok(true)
}

fn trace(live: &Live, packet: &str) -> Result<bool> {
    let query = TraceQuery { packet: packet.to_owned() };
    let traced: Traced = live.client()?.get(path::TRACE, &query).map_err(failed)?;
    if live.json {
        print_line(&traced)?;
        return Ok(true);
    }
    for step in &traced.steps {
        println!("table {}: {}", step.table, step.rule.as_deref().unwrap_or("no rule matches"));
        println!(
            "         by {}",
            if step.looked.is_empty() { "nothing of the packet" } else { &step.looked }
        );
    }
    traced.actions.iter().for_each(|action| println!("  {action}"));
    println!("{}", traced.end);
    println!("megaflow: {}", if traced.megaflow.is_empty() { "every packet" } else { &traced.megaflow });
    Ok(true)
}

fn groups(live: &Live) -> Result<bool> {
    let groups: Groups = live.client()?.get(path::GROUPS, &()).map_err(failed)?;
    if live.json {
        print_line(&groups)?;
        return Ok(true);
    }
    groups.groups.iter().for_each(|group| println!("{group}"));
    let mut grid = Grid::new(&[">passed", ">refused", "meter"]);
    for meter in groups.meters {
        grid.row([meter.passed.to_string(), meter.refused.to_string(), meter.meter]);
    }
    grid.print("there are no meters");
    Ok(true)
}

fn stations(live: &Live) -> Result<bool> {
    let stations: Stations = live.client()?.get(path::STATIONS, &()).map_err(failed)?;
    if live.json {
        stations.stations.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&[">vlan", "station", "port", ">seen"]);
    for station in stations.stations {
        grid.row([station.vlan.to_string(), station.mac, station.port, span(station.age_s.into())]);
    }
    grid.print("no station is known");
    Ok(true)
}
