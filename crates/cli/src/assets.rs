//! `tidemill assets`: which hosts a capture shows, what runs on them, and what they are called. And hosts as text and JSON, for this and `show assets`.

use crate::live::{Grid, or_dash};
use crate::{json, tables, usage};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use tidemill_control::schema::assets::{Announced, Asset, Dhcp, Service, System};
use tidemill_nf::assets::banner::Protocol;
use tidemill_nf::assets::text::Text;
use tidemill_nf::assets::{self, AssetsSection, Fingerprints, Host, Settings};
use tidemill_port::capture::Reader;

/// A year: in a capture nobody is forgotten.
const IDLE_S: u32 = 31_536_000;

/// Options of `tidemill assets`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tidemill assets examples/router/capture.pcapng.zst\n  tidemill assets a.pcap b.pcap --network 10.0.0.0/8 --json"
)]
pub(crate) struct AssetsArgs {
    /// Captures, in the order of their times
    #[arg(required = true, value_name = "FILE")]
    captures: Vec<PathBuf>,
    /// Only hosts with addresses in this prefix; repeatable
    #[arg(long, value_name = "PREFIX")]
    network: Vec<String>,
    /// Hosts to remember at most; who has only sent packets gives way first
    #[arg(long, value_name = "N", default_value_t = 1 << 18)]
    hosts: usize,
    /// A list of fingerprints of operating systems instead of ours
    #[arg(long, value_name = "FILE")]
    fingerprints: Option<PathBuf>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// `tidemill assets`.
pub(crate) fn assets(args: &AssetsArgs) -> Result<bool> {
    let section = AssetsSection {
        networks: args.network.clone(),
        hosts: args.hosts,
        idle_s: IDLE_S,
        fingerprints: args.fingerprints.clone(),
    };
    let settings = Settings::new(&section).map_err(usage)?;
    args.captures.iter().try_for_each(|file| tables::check_input(file))?;
    // The same capture gives the same answer every time.
    let (mut watch, mut table) = (settings.watch(0), settings.table());
    let (mut packets, mut buffer) = (0_u64, Vec::new());
    for file in &args.captures {
        let mut reader = Reader::open(file)?;
        while let Some(record) = reader.next()? {
            packets += 1;
            let now_ms = record.timestamp_ns / 1_000_000;
            watch.look((now_ms / 1000) as u32, record.frame(&mut buffer), |observation| {
                table.observe(now_ms, observation);
                true
            });
        }
    }
    let list = table.after(None).map(|asset| described(asset, &settings.fingerprints));
    if args.json {
        for asset in list {
            print_line(&asset)?;
        }
    } else {
        print_list(&list.collect::<Vec<_>>(), "the captures show no hosts");
    }
    let done = table.done();
    let mut said = format!(
        "{packets} packets, {} hosts ({} of them known by more than packets)",
        table.len(),
        table.known()
    );
    for (count, what) in [
        (done.evicted_bare + done.evicted_known, "hosts gave way to others: give more --hosts"),
        (done.facts_full, "facts had no room at their hosts"),
        (watch.malformed(), "messages could not be read"),
    ] {
        if count > 0 {
            said += &format!("; {count} {what}");
        }
    }
    eprintln!("tidemill: {said}");
    Ok(true)
}

fn print_line(asset: &Asset) -> Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        v: u8,
        #[serde(flatten)]
        asset: &'a Asset,
    }
    Ok(json::print(&Line { v: json::VERSION, asset })?)
}

fn some(text: Text) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// A host as others see it, with who it is by the fingerprints.
pub(crate) fn described(asset: &assets::Asset, fingerprints: &Fingerprints) -> Asset {
    let mut systems: Vec<System> = asset
        .systems
        .iter()
        .map(|system| System {
            name: fingerprints.system(&system.signature).map(str::to_owned),
            signature: system.signature.to_string(),
            hops: system.signature.hops(),
            last_s: seconds(system.last_ms),
        })
        .collect();
    systems.sort_by(|a, b| b.last_s.total_cmp(&a.last_s));
    let service = |(&(port, udp), service): (&assets::table::Place, &assets::table::Service)| Service {
        transport: if udp { "udp" } else { "tcp" }.into(),
        port,
        protocol: service.protocol.name().into(),
        banner: some(service.text),
        first_s: seconds(service.first_ms),
        last_s: seconds(service.last_ms),
    };
    Asset {
        address: asset.address().map(|address| address.to_string()),
        mac: asset.mac.map(|mac| mac.to_string()),
        first_s: seconds(asset.first_ms),
        last_s: seconds(asset.last_ms),
        systems,
        services: asset.services.iter().map(service).collect(),
        names: asset.names.iter().map(Text::to_string).collect(),
        announced: asset
            .announced
            .iter()
            .map(|(name, port)| Announced { name: name.to_string(), port: *port })
            .collect(),
        dhcp: asset.dhcp.map(|dhcp| Dhcp {
            host_name: some(dhcp.host_name),
            vendor: some(dhcp.vendor),
            parameters: dhcp.parameters.bytes().to_vec(),
        }),
    }
}

/// What a page says to go on with: an address, or a MAC address.
pub(crate) fn cursor(host: Host) -> String {
    match host {
        Host::Ip(address) => address.to_string(),
        Host::Mac(mac) => mac.to_string(),
    }
}

/// The same, read.
pub(crate) fn read_cursor(text: &str) -> Option<Host> {
    text.parse().map(Host::Ip).ok().or_else(|| text.parse().map(Host::Mac).ok())
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    or_dash(Some(&parts.collect::<Vec<_>>().join("; ")))
}

/// Prints hosts, or `nothing` if there are none.
pub(crate) fn print_list(list: &[Asset], nothing: &str) {
    let mut grid = Grid::new(&["address", "mac", "name", "system", "services"]);
    for asset in list {
        let dhcp = asset.dhcp.iter().filter_map(|dhcp| dhcp.host_name.clone());
        let mut names: Vec<String> = asset.names.iter().cloned().chain(dhcp).collect();
        names.dedup();
        let mut systems: Vec<String> = asset.systems.iter().map(known).collect();
        systems.sort();
        systems.dedup();
        let service = |service: &Service| {
            let Service { transport, port, protocol, banner, .. } = service;
            let protocol = if protocol == Protocol::Unknown.name() { "?" } else { protocol.as_str() };
            let banner = banner.as_deref().map(|banner| format!(" ({banner})")).unwrap_or_default();
            format!("{port}/{transport} {protocol}{banner}")
        };
        let announced = asset.announced.iter().map(|one| one.name.clone());
        grid.row([
            or_dash(asset.address.as_deref()),
            or_dash(asset.mac.as_deref()),
            joined(names.into_iter()),
            joined(systems.into_iter()),
            joined(asset.services.iter().map(service).chain(announced)),
        ]);
    }
    grid.print(nothing);
}

/// What is unknown is said as that, with what was seen.
fn known(system: &System) -> String {
    match &system.name {
        Some(name) => name.clone(),
        None => format!("unknown ({})", system.signature),
    }
}
