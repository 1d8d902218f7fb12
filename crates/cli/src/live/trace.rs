//! `tidemill trace`: the path of single packets through the graph.

use super::{Live, failed, print_line};
use anyhow::Result;
use clap::Subcommand;
use std::collections::HashMap;
use tidemill_control::schema::{Done, TraceAdd, TraceEntry, Traces, path};

/// The verbs of `tidemill trace`.
#[derive(Subcommand)]
pub(crate) enum TraceVerb {
    /// Trace the next packets that reach a node, or port:NAME; what was traced before is forgotten
    #[command(after_help = "Examples:\n  tidemill trace add ip4-input 3\n  tidemill trace add port:left")]
    Add {
        /// A node of `tidemill show graph`, or port:NAME
        #[arg(value_name = "NODE")]
        at: String,
        /// How many packets
        #[arg(value_name = "N", default_value_t = 8)]
        packets: u32,
    },
    /// Show what has been traced
    #[command(after_help = "Example:\n  tidemill trace show")]
    Show,
}

pub(super) fn run(live: &Live, verb: &TraceVerb) -> Result<bool> {
    let client = live.client()?;
    match verb {
        TraceVerb::Add { at, packets } => {
            let add = TraceAdd { at: at.clone(), packets: *packets };
            let done: Done = client.post(path::TRACE, &add).map_err(failed)?;
            live.done(&done)
        }
        TraceVerb::Show => {
            let traces: Traces = client.get(path::TRACE, &()).map_err(failed)?;
            if live.json {
                traces.entries.iter().try_for_each(print_line)?;
            } else {
                print(&traces.entries);
            }
            if traces.lost > 0 {
                eprintln!("tidemill: {} more entries had no room: trace fewer packets", traces.lost);
            }
            Ok(true)
        }
    }
}

/// Packet by packet, in the order of their beginnings.
fn print(entries: &[TraceEntry]) {
    let Some(start) = entries.iter().map(|entry| entry.time_ns).min() else {
        eprintln!("tidemill: nothing has been traced: tidemill trace add NODE");
        return;
    };
    let mut packets: Vec<Vec<&TraceEntry>> = Vec::new();
    let mut places = HashMap::new();
    for entry in entries {
        let place = *places.entry((entry.worker, entry.packet)).or_insert(packets.len());
        match packets.get_mut(place) {
            Some(packet) => packet.push(entry),
            None => packets.push(vec![entry]),
        }
    }
    packets.sort_by_key(|packet| packet.first().map_or(0, |entry| entry.time_ns));
    let longest = |text: fn(&TraceEntry) -> &str| {
        entries.iter().map(|entry| text(entry).chars().count()).max().unwrap_or(0)
    };
    let (at, verdict) = (longest(|entry| &entry.at), longest(|entry| &entry.verdict));
    for packet in packets {
        let Some(first) = packet.first() else { continue };
        let seconds = (first.time_ns - start) as f64 / 1e9;
        println!("packet {} of worker {}, +{seconds:.6} s", first.packet, first.worker);
        for entry in packet {
            let note = entry.note.as_deref().map(|note| format!("  [{note}]")).unwrap_or_default();
            println!("  {:<at$} -> {:<verdict$}  {}{note}", entry.at, entry.verdict, entry.summary);
        }
    }
}
