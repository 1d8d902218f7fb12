//! `tidemill show`: what a running router has and knows.

use super::grid::{Grid, or_dash, span};
use super::{Live, failed, print_line};
use crate::usage;
use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::net::IpAddr;
use tidemill_control::Client;
use tidemill_control::schema::{
    Drops, Fibs, Interfaces, Kernel, Link, Neighbors, NextHops, Node, Nodes, Offload, OffloadBypass,
    OffloadDeclined, OffloadInterface, OffloadPort, Ports, Queue, Queues, Route, RoutePath, Routes,
    RoutesQuery, StateFile, Summary, Table, Tables, Workers, path,
};
use tidemill_lpm::Prefix;

/// Arguments of `tidemill show`.
#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    live: Live,
    #[command(subcommand)]
    what: What,
}

/// What to show.
#[derive(Subcommand)]
enum What {
    /// The whole in a few figures: packets in and out, the books, how long it has run
    #[command(after_help = "Example:\n  tidemill show summary --json")]
    Summary,
    /// Ports: links, packets, bytes, drops
    #[command(after_help = "Example:\n  tidemill show ports")]
    Ports,
    /// The graph: nodes, and where their outputs lead
    #[command(after_help = "Example:\n  tidemill show graph")]
    Graph,
    /// Counters of the nodes that have seen packets, and the books
    #[command(after_help = "Example:\n  tidemill show counters")]
    Counters,
    /// What was dropped, why, and where
    #[command(
        after_help = "Examples:\n  tidemill show drops\n  tidemill show drops --json | jq -s 'map(.count) | add'"
    )]
    Drops,
    /// Lookup structures: algorithm, prefixes, memory
    #[command(after_help = "Example:\n  tidemill show fib")]
    Fib,
    /// Routes of all sources: all, to a prefix, or those that match an address
    #[command(
        after_help = "The route that packets take has a `*`.\n\nExamples:\n  tidemill show routes --limit 20\n  \
        tidemill show routes 192.0.2.1\n  tidemill show routes 10.9.0.0/16 --vrf blue --json"
    )]
    Routes(RouteArgs),
    /// Neighbors by ARP and ND
    #[command(after_help = "Example:\n  tidemill show neighbors")]
    Neighbors,
    /// Interfaces: ports and their VLANs, with addresses
    #[command(after_help = "Example:\n  tidemill show interfaces")]
    Interfaces,
    /// Queues in front of ports: what waits, what left and how long it waited, by class
    #[command(
        after_help = "Examples:\n  tidemill show queues\n  tidemill show queues --json | jq '.classes[1].levels'"
    )]
    Queues,
    /// What an offload forwards or drops before packets come in, and why it leaves others to the router
    #[command(after_help = "Examples:\n  tidemill show offload\n  tidemill show offload --json | jq .left")]
    Offload,
    /// Workers: load, rates, frames
    #[command(after_help = "Example:\n  tidemill show workers")]
    Workers,
    /// Tables and caches: entries, room, memory, how often what is sought is found
    #[command(after_help = "Example:\n  tidemill show tables")]
    Tables,
    /// What lookups' labels stand for
    #[command(after_help = "Example:\n  tidemill show next-hops")]
    NextHops,
    /// Rules of a switch with their counters: all, or those within a match
    #[command(after_help = "Examples:\n  tidemill show flows\n  tidemill show flows table=1\n  \
            tidemill show flows tcp,nw_dst=192.0.2.0/24 --json")]
    Flows {
        /// A rule without actions
        filter: Option<String>,
    },
    /// Hosts that were detected by their packets: systems, services, names
    #[command(
        after_help = "Examples:\n  tidemill show assets\n  tidemill show assets 10.0.0.5 --json\n  tidemill show assets --counters"
    )]
    Assets(super::assets::AssetArgs),
    /// Flows that are exported (IPFIX): all that is counted
    #[command(after_help = "Example:\n  tidemill show ipfix --json")]
    Ipfix,
    /// Flow specifications of BGP peers: which packets, what becomes of them, and of how many
    #[command(
        after_help = "Examples:\n  tidemill show flowspec\n  tidemill show flowspec --json | jq -s 'map(.dropped) | add'"
    )]
    Flowspec,
    /// Whether we have what the kernel has (netlink)
    #[command(after_help = "Example:\n  tidemill show kernel")]
    Kernel,
    /// The state file: what would outlive the process
    #[command(after_help = "Example:\n  tidemill show state")]
    State,
}

/// Which routes.
#[derive(Args)]
struct RouteArgs {
    /// Routes to exactly this prefix, or the longest match of this address
    #[arg(value_name = "PREFIX|ADDR")]
    to: Option<String>,
    /// Only this VRF
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
}

pub(super) fn run(args: &Show) -> Result<bool> {
    let live = &args.live;
    match &args.what {
        What::Summary => {
            let summary: Summary = get(live, path::SUMMARY)?;
            if live.json {
                print_line(&summary)?;
            } else {
                print_summary(&summary);
            }
        }
        What::Assets(args) => return super::assets::run(live, args),
        What::Ipfix => return live.counters(tidemill_control::schema::ipfix::path::COUNTERS),
        What::Flowspec => return super::bgp::flowspecs(live),
        What::Flows { filter } => return super::switch::flows(live, filter.as_deref()),
        What::Ports => list(live, path::PORTS, |ports: Ports| ports.ports, print_ports)?,
        What::Graph => list(live, path::NODES, |nodes: Nodes| nodes.nodes, print_graph)?,
        What::Counters => {
            list(live, path::NODES, |nodes: Nodes| nodes.nodes, print_nodes)?;
            let summary: Summary = get(live, path::SUMMARY)?;
            if live.json {
                print_line(&summary)?;
            } else {
                println!("\n{}", books(&summary));
            }
        }
        What::Drops => list(live, path::DROPS, sorted_drops, |drops| {
            let mut grid = Grid::new(&["reason", "at", ">packets", ""]);
            drops.iter().for_each(|drop| {
                grid.row([drop.reason.clone(), drop.at.clone(), drop.count.to_string(), drop.help.clone()]);
            });
            grid.print("nothing has been dropped");
        })?,
        What::Fib => list(
            live,
            path::FIB,
            |fibs: Fibs| fibs.fibs,
            |fibs| {
                let mut grid = Grid::new(&[
                    "vrf",
                    "family",
                    "algorithm",
                    ">prefixes",
                    ">bytes",
                    ">shared",
                    ">next hops",
                    ">generation",
                    "chosen by auto because",
                ]);
                for fib in fibs {
                    let family = format!("IPv{}", fib.family);
                    let numbers = [fib.prefixes, fib.bytes, fib.shared_bytes, fib.next_hops, fib.generation]
                        .map(|n| n.to_string());
                    let [prefixes, bytes, shared, next_hops, generation] = numbers;
                    let (algorithm, why) = (fib.algorithm.clone(), fib.why.clone());
                    grid.row([
                        fib.vrf.clone(),
                        family,
                        algorithm,
                        prefixes,
                        bytes,
                        shared,
                        next_hops,
                        generation,
                        why,
                    ]);
                }
                grid.print("there are no lookup structures");
            },
        )?,
        What::Routes(args) => return show_routes(live, args),
        What::Neighbors => list(
            live,
            path::NEIGHBORS,
            |all: Neighbors| all.neighbors,
            |neighbors| {
                let mut grid = Grid::new(&["interface", "address", "mac", "state", ">age", "kind"]);
                for n in neighbors {
                    let mac = or_dash(n.mac.as_deref());
                    let (interface, address) = (n.interface.clone(), n.address.clone());
                    grid.row([interface, address, mac, n.state.clone(), span(n.age_s), n.kind.clone()]);
                }
                grid.print("there are no neighbors");
            },
        )?,
        What::Tables => list(live, path::TABLES, |all: Tables| all.tables, print_tables)?,
        What::Interfaces => list(
            live,
            path::INTERFACES,
            |all: Interfaces| all.interfaces,
            |interfaces| {
                let mut grid = Grid::new(&[
                    "interface",
                    "port",
                    ">vlan",
                    "vrf",
                    "mac",
                    ">mtu",
                    "owner",
                    "state",
                    "addresses",
                ]);
                for i in interfaces {
                    let vlan = i.vlan.map_or_else(|| "-".to_owned(), |vlan| vlan.to_string());
                    let state = if i.up { "up" } else { "down" }.to_owned();
                    let (name, port, vrf, mac) =
                        (i.name.clone(), i.port.clone(), i.vrf.clone(), i.mac.clone());
                    let addresses = i.addresses.join(" ");
                    grid.row([
                        name,
                        port,
                        vlan,
                        vrf,
                        mac,
                        i.mtu.to_string(),
                        i.owner.clone(),
                        state,
                        addresses,
                    ]);
                }
                grid.print("there are no interfaces");
            },
        )?,
        What::Workers => list(
            live,
            path::WORKERS,
            |all: Workers| all.workers,
            |workers| {
                let mut grid = Grid::new(&[
                    ">worker",
                    ">cpu",
                    ">node",
                    ">stage",
                    ">busy %",
                    ">asleep %",
                    ">packets",
                    ">in/s",
                    ">frames free",
                    ">of",
                ]);
                for w in workers {
                    let dash = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
                    let (index, busy) = (w.index.to_string(), format!("{:.1}", w.busy_percent));
                    let (packets, rate) = (w.packets.to_string(), format!("{:.0}", w.rx_pps));
                    grid.row([
                        index,
                        dash(w.cpu),
                        dash(w.node),
                        w.stage.to_string(),
                        busy,
                        format!("{:.1}", w.asleep_percent),
                        packets,
                        rate,
                        w.pool_free.to_string(),
                        w.pool_frames.to_string(),
                    ]);
                }
                grid.print("there are no workers");
                workers.iter().flat_map(|w| &w.unbound).for_each(|why| println!("{why}"));
            },
        )?,
        What::NextHops => list(
            live,
            path::NEXT_HOPS,
            |all: NextHops| all.next_hops,
            |next_hops| {
                let mut grid = Grid::new(&[">label", "kind", "interface", "via", "mac", ">mtu", "members"]);
                for n in next_hops {
                    let texts = [n.interface.as_deref(), n.via.as_deref(), n.mac.as_deref()].map(or_dash);
                    let [interface, via, mac] = texts;
                    let mtu = if n.mtu == 0 { "-".to_owned() } else { n.mtu.to_string() };
                    let members: Vec<String> = n.members.iter().map(u32::to_string).collect();
                    let kind = n.kind.clone();
                    grid.row([n.label.to_string(), kind, interface, via, mac, mtu, members.join(" ")]);
                }
                grid.print("there are no next hops");
            },
        )?,
        What::Offload => {
            let Offload { ports, declined, bypass, .. } = get(live, path::OFFLOAD)?;
            if live.json {
                ports.iter().try_for_each(print_line)?;
                declined.iter().try_for_each(print_line)?;
                bypass.iter().try_for_each(print_line)?;
            } else {
                bypass.iter().for_each(print_bypass);
                declined.iter().for_each(print_declined);
                if declined.is_none() || !ports.is_empty() {
                    print_offload(&ports);
                }
            }
        }
        What::Queues => list(live, path::QUEUES, |queues: Queues| queues.queues, print_queues)?,
        What::Kernel => {
            let kernel: Kernel = get(live, path::KERNEL)?;
            if live.json {
                print_line(&kernel)?;
            } else {
                print_kernel(&kernel);
            }
        }
        What::State => {
            let state: StateFile = get(live, path::STATE)?;
            if live.json {
                print_line(&state)?;
            } else {
                print_state(&state);
            }
        }
    }
    Ok(true)
}

fn get<T: DeserializeOwned>(live: &Live, path: &str) -> Result<T> {
    live.client()?.get(path, &()).map_err(failed)
}

/// Asks for a list and prints its rows, each as a line of JSON, or all as text.
fn list<T: DeserializeOwned, R: Serialize>(
    live: &Live,
    path: &str,
    rows: impl Fn(T) -> Vec<R>,
    text: impl Fn(&[R]),
) -> Result<()> {
    let rows = rows(get(live, path)?);
    if live.json {
        rows.iter().try_for_each(print_line)
    } else {
        text(&rows);
        Ok(())
    }
}

/// The most frequent first.
fn sorted_drops(drops: Drops) -> Vec<tidemill_control::schema::DropCount> {
    let mut drops = drops.drops;
    drops.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (&a.reason, &a.at).cmp(&(&b.reason, &b.at))));
    drops
}

fn total(dropped: &BTreeMap<String, u64>) -> u64 {
    dropped.values().sum()
}

/// The books in a line.
pub(super) fn books(s: &Summary) -> String {
    format!(
        "in {} + made {} = out {} + dropped {} + consumed {} + held {}",
        s.received,
        s.made,
        s.out,
        total(&s.dropped),
        s.consumed,
        s.held
    )
}

fn print_summary(summary: &Summary) {
    println!("tidemill {}, {}", summary.version, summary.config);
    println!("up {}, {} reloads", span(summary.seconds), summary.reloads);
    println!("{}", books(summary));
    println!("{} bytes in, {} bytes out, {:.3} Mpps", summary.in_bytes, summary.out_bytes, summary.mpps);
}

fn print_tables(tables: &[Table]) {
    let mut grid =
        Grid::new(&["table", "made of", ">entries", ">room", ">bytes", ">changes", ">hits", ">misses"]);
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    for table in tables {
        let [room, bytes, generation, hits, misses] =
            [table.room, table.bytes, table.generation, table.hits, table.misses].map(number);
        let (name, kind, entries) =
            (table.name.clone(), or_dash(Some(&table.kind)), table.entries.to_string());
        grid.row([name, kind, entries, room, bytes, generation, hits, misses]);
    }
    grid.print("there are no tables");
}

fn print_ports(ports: &[tidemill_control::schema::Port]) {
    let mut grid = Grid::new(&[
        "port",
        "kind",
        "link",
        ">queues",
        ">in",
        ">in bytes",
        ">in drops",
        ">out",
        ">out bytes",
        ">out drops",
        ">lost",
    ]);
    for port in ports {
        let link = match port.link {
            Some(Link::Up) => "up",
            Some(Link::Down) => "down",
            Some(Link::Away) => "away",
            None => "-",
        };
        let (rx, tx) = (&port.rx, &port.tx);
        let numbers = [rx.packets, rx.bytes, total(&rx.dropped), tx.packets, tx.bytes, total(&tx.dropped)];
        let [a, b, c, d, e, f] = numbers.map(|n| n.to_string());
        let (name, kind) = (port.name.clone(), port.kind.clone());
        let lost = if port.link.is_some() { port.lost.to_string() } else { "-".into() };
        grid.row([name, kind, link.to_owned(), port.queues.to_string(), a, b, c, d, e, f, lost]);
    }
    grid.print("there are no ports");
    for port in ports {
        if let Some(why) = &port.hindered {
            println!("{}: its device is there, but cannot be opened: {why}", port.name);
        }
        if port.taken_by_others > 0 {
            println!(
                "{}: {} tries to open a queue found it taken by another AF_XDP socket",
                port.name, port.taken_by_others
            );
        }
        if port.asked_in_vain > 0 {
            println!(
                "{}: its driver has asked for {} frames in vain; if they go on, raise memory.frames",
                port.name, port.asked_in_vain
            );
        }
        if let Some(left) = port.left {
            println!("{}: {left} packets left to the kernel", port.name);
        }
        if let Some(unread @ 1..) = port.unread {
            println!(
                "{}: {unread} packets came by queues that nobody reads, and went to the kernel",
                port.name
            );
        }
    }
}

fn print_queues(queues: &[Queue]) {
    let mut grid = Grid::new(&[
        "port",
        "class",
        ">came",
        ">left",
        ">bytes",
        ">wait",
        ">dropped",
        ">waited, half",
        ">99 %",
        ">longest",
    ]);
    let wait = |us: Option<f64>| us.map_or("-".into(), |us| format!("{us:.0} us"));
    for queue in queues {
        for class in &queue.classes {
            let numbers = [class.arrived, class.sent, class.sent_bytes, class.waiting, total(&class.dropped)];
            let [came, left, bytes, waiting, dropped] = numbers.map(|n| n.to_string());
            let [half, most, longest] = [class.wait_p50_us, class.wait_p99_us, class.wait_max_us].map(wait);
            let (port, class) = (queue.port.clone(), class.class.clone());
            grid.row([port, class, came, left, bytes, waiting, dropped, half, most, longest]);
        }
    }
    grid.print("there are no queues: a section [[queue]] puts one in front of a port");
}

fn print_offload(ports: &[OffloadPort]) {
    let mut grid =
        Grid::new(&["port", ">forwarded", ">bytes", ">sent", ">sent bytes", ">left to the router", "why"]);
    for port in ports {
        let numbers = [port.forwarded, port.forwarded_bytes, port.sent, port.sent_bytes, total(&port.left)];
        let [forwarded, bytes, sent, sent_bytes, left] = numbers.map(|n| n.to_string());
        let why = port.left.iter().filter(|(_, count)| **count > 0);
        let why: Vec<String> = why.map(|(why, count)| format!("{why} {count}")).collect();
        grid.row([port.port.clone(), forwarded, bytes, sent, sent_bytes, left, why.join(", ")]);
    }
    grid.print(
        "nothing is done before packets come in: router.offload = \"xdp\" has the driver forward, gatekeeper.offload = \"xdp\" drop what is declined, and forward what nobody judges",
    );
}

/// What came of a kind of packets, and the part of it that an offload has dealt with.
fn hits(above: u64, rate: Option<f64>) -> String {
    match rate {
        Some(rate) => format!("{:.1} % of all such, {above} came in", 100.0 * rate),
        None => "there were no others".into(),
    }
}

fn print_bypass(bypass: &OffloadBypass) {
    let OffloadBypass { forwarded, forwarded_bytes, above, hit_rate } = bypass;
    println!(
        "forwarded       {forwarded} packets that nobody judges, {forwarded_bytes} bytes: {}",
        hits(*above, *hit_rate)
    );
}

fn print_declined(declined: &OffloadDeclined) {
    let OffloadDeclined { flows, room, refused, dropped, dropped_bytes, above, hit_rate, .. } = declined;
    println!("declined flows  {flows}, room for {room}; {refused} times there was none");
    println!(
        "dropped         {dropped} packets that are declined, {dropped_bytes} bytes: {}",
        hits(*above, *hit_rate)
    );
    let mut grid = Grid::new(&["port", "interface", "program"]);
    for OffloadInterface { port, interface, mode } in &declined.interfaces {
        grid.row([port.clone(), interface.clone(), mode.clone().unwrap_or_else(|| "nowhere".into())]);
    }
    grid.print("it is on no interface");
}

fn print_graph(nodes: &[Node]) {
    let width = nodes.iter().map(|node| node.name.chars().count()).max().unwrap_or(0);
    for node in nodes {
        let outputs: Vec<String> = node
            .outputs
            .iter()
            .map(|o| if o.name == o.to { o.to.clone() } else { format!("{} -> {}", o.name, o.to) })
            .collect();
        println!(
            "{:<width$}  {}",
            node.name,
            if outputs.is_empty() { "-".into() } else { outputs.join(", ") }
        );
    }
}

fn print_nodes(nodes: &[Node]) {
    let mut grid = Grid::new(&[
        "node",
        ">packets",
        ">bursts",
        ">per burst",
        ">ns/packet",
        ">made",
        ">consumed",
        ">dropped",
    ]);
    for node in nodes.iter().filter(|node| node.packets + node.made > 0 || !node.dropped.is_empty()) {
        let per_burst = format!("{:.1}", node.packets as f64 / node.calls.max(1) as f64);
        let numbers = [node.packets, node.calls, node.made, node.consumed, total(&node.dropped)];
        let [packets, calls, made, consumed, dropped] = numbers.map(|n| n.to_string());
        let ns = format!("{:.1}", node.ns_per_packet);
        grid.row([node.name.clone(), packets, calls, per_burst, ns, made, consumed, dropped]);
    }
    grid.print("no node has seen a packet");
}

fn print_kernel(kernel: &Kernel) {
    let state = match (kernel.enabled, kernel.in_sync) {
        (false, _) => "not followed: [kernel] routes = true follows its routes",
        (true, true) => "in sync",
        (true, false) => "out of sync: being read anew",
    };
    println!("kernel        {state}");
    if kernel.enabled {
        println!("routes        {} IPv4, {} IPv6", kernel.routes4, kernel.routes6);
        let Kernel { messages, overruns, resyncs, .. } = kernel;
        println!("messages      {messages}, {overruns} overruns, {resyncs} times read anew");
    }
}

fn print_state(state: &StateFile) {
    if !state.enabled {
        return println!("state   not saved: a section [state] with a path does that");
    }
    let every = match state.every_s {
        0.0 => "on request and at the end".to_owned(),
        seconds => format!("every {seconds} s while routes change"),
    };
    println!("state   {} ({every})", state.path);
    match state.age_s {
        None => println!("image   none yet"),
        Some(age) => {
            let stale = if state.stale { ", routes have changed since" } else { "" };
            println!("image   {} ago, {} bytes{stale}", span(age), state.bytes);
            println!("routes  {} IPv4, {} IPv6 of the table", state.routes4, state.routes6);
        }
    }
    println!("saved   {} times, {} failures", state.saves, state.failures);
    state.error.iter().for_each(|error| println!("error   {error}"));
}

/// All pages of the routes that are asked for; false if there are none where one was asked for.
fn show_routes(live: &Live, args: &RouteArgs) -> Result<bool> {
    let client = live.client()?;
    let mut query = RoutesQuery { vrf: args.vrf.clone(), ..RoutesQuery::default() };
    match args.to.as_deref() {
        None => {}
        Some(to) if to.contains('/') => query.prefix = Some(prefix(to)?),
        Some(to) => {
            let address: IpAddr = to
                .parse()
                .map_err(|_| usage(format!("{to}: is no address and no prefix: 192.0.2.1, 10.0.0.0/8")))?;
            query.address = Some(address.to_string());
        }
    }
    let mut left = args.limit.unwrap_or(u32::MAX);
    let mut vrf = None;
    let mut found = false;
    while left > 0 {
        query.limit = args.limit.is_some().then_some(left);
        let page = routes(&client, &query)?;
        for route in page.routes.iter().take(left as usize) {
            if live.json {
                print_line(route)?;
            } else {
                print_route(route, &mut vrf);
            }
        }
        found |= !page.routes.is_empty();
        left = left.saturating_sub(page.routes.len() as u32);
        // A page without routes that promises more would go on for ever.
        match page.next {
            Some(next) if !page.routes.is_empty() && query.after.as_ref() != Some(&next) => {
                query.after = Some(next);
            }
            _ => break,
        }
    }
    if !found {
        let to = args.to.as_deref().map(|to| format!(" to {to}")).unwrap_or_default();
        eprintln!("tidemill: there is no route{to}");
    }
    Ok(found || args.to.is_none())
}

fn routes(client: &Client, query: &RoutesQuery) -> Result<Routes> {
    client.get(path::ROUTES, query).map_err(failed)
}

/// A prefix of either family, in its usual notation.
pub(super) fn prefix(text: &str) -> Result<String> {
    if text.contains(':') {
        text.parse::<Prefix<u128>>().map(|prefix| prefix.to_string()).map_err(usage)
    } else {
        text.parse::<Prefix<u32>>().map(|prefix| prefix.to_string()).map_err(usage)
    }
}

/// A route in a line, further paths below it. The VRF is said when it changes.
fn print_route(route: &Route, vrf: &mut Option<String>) {
    if vrf.as_ref() != Some(&route.vrf) {
        println!("VRF {}:", if route.vrf.is_empty() { "-" } else { &route.vrf });
        *vrf = Some(route.vrf.clone());
    }
    let best = if route.best { '*' } else { ' ' };
    let mut paths: Vec<String> = route.next_hops.iter().map(path_text).collect();
    let equal = route.next_hops.iter().all(|path| path.weight == route.next_hops[0].weight);
    if !equal {
        for (text, path) in paths.iter_mut().zip(&route.next_hops) {
            text.push_str(&format!(" weight {}", path.weight));
        }
    }
    let kind = if route.kind == "forward" && !paths.is_empty() { "" } else { &route.kind };
    let first = [kind, paths.first().map_or("", String::as_str)].join(" ");
    println!("{best} {:<24} {:<10} {}", route.prefix, route.source, first.trim());
    for path in paths.iter().skip(1) {
        println!("  {:<24} {:<10} {path}", "", "");
    }
}

fn path_text(path: &RoutePath) -> String {
    let mut text = String::new();
    if let Some(via) = &path.via {
        text.push_str(&format!("via {via} "));
    }
    if let Some(interface) = &path.interface {
        text.push_str(&format!("dev {interface} "));
    }
    if !path.state.is_empty() {
        text.push_str(&format!("({})", path.state));
    }
    text.trim_end().to_owned()
}
