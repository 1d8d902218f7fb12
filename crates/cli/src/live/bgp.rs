//! `tidemill bgp`: peers and their sessions, what they have told, BMP routers.

use super::grid::{Grid, or_dash, span};
use super::{Live, failed, print_line};
use anyhow::Result;
use clap::Subcommand;
use tidemill_control::schema::bgp::{
    Done, Flowspecs, Monitors, Peers, Reset, Route, Routes, RoutesQuery, path,
};

/// Prefixes asked for at once.
const PAGE: u32 = 10_000;

/// The verbs of `tidemill bgp`.
#[derive(Subcommand)]
pub(crate) enum BgpVerb {
    /// Peers: their sessions, how many paths they have told, why the last session ended
    #[command(after_help = "Examples:\n  tidemill bgp peers\n  tidemill bgp peers --json")]
    Peers,
    /// Paths that peers have told: the best one of each prefix is marked
    #[command(
        after_help = "Examples:\n  tidemill bgp routes 192.0.2.0/24\n  tidemill bgp routes --peer upstream --limit 20\n  \
        tidemill bgp routes --json"
    )]
    Routes {
        /// Only those to this very prefix; an address alone is /32 or /128 (see `show routes` for what it matches)
        #[arg(value_name = "PREFIX")]
        prefix: Option<String>,
        /// Only those of this peer
        #[arg(long, value_name = "NAME")]
        peer: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// BMP routers, and the peers that they tell of
    #[command(after_help = "Example:\n  tidemill bgp bmp --json")]
    Bmp,
    /// Have a peer's session begin anew
    #[command(after_help = "Example:\n  tidemill bgp reset upstream")]
    Reset {
        /// The peer's name
        #[arg(value_name = "PEER")]
        peer: String,
    },
}

pub(super) fn run(live: &Live, verb: &BgpVerb) -> Result<bool> {
    match verb {
        BgpVerb::Peers => peers(live),
        BgpVerb::Routes { prefix, peer, limit } => routes(
            live,
            RoutesQuery { prefix: prefix.clone(), peer: peer.clone(), ..RoutesQuery::default() },
            *limit,
        ),
        BgpVerb::Bmp => bmp(live),
        BgpVerb::Reset { peer } => {
            let done: Done =
                live.client()?.post(path::RESET, &Reset { peer: peer.clone() }).map_err(failed)?;
            live.done(&done)
        }
    }
}

fn peers(live: &Live) -> Result<bool> {
    let answer: Peers = live.client()?.get(path::PEERS, &()).map_err(failed)?;
    if live.json {
        answer.peers.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&[
        "peer",
        "address",
        ">AS",
        "state",
        ">since",
        ">IPv4",
        ">IPv6",
        ">announced",
        ">updates",
        "last end",
    ]);
    for peer in answer.peers {
        let stale = if peer.stale { " (stale)" } else { "" };
        grid.row([
            peer.name,
            peer.address,
            peer.asn.to_string(),
            format!("{}{stale}", peer.state),
            peer.since_s.map_or_else(|| "-".into(), span),
            peer.paths4.to_string(),
            peer.paths6.to_string(),
            peer.announced.to_string(),
            peer.updates.to_string(),
            or_dash(peer.ended.as_deref()),
        ]);
    }
    grid.print("there are no peers");
    Ok(true)
}

fn routes(live: &Live, mut query: RoutesQuery, limit: u32) -> Result<bool> {
    let client = live.client()?;
    let (mut left, mut shown) = (limit as usize, Vec::new());
    while left > 0 {
        query.limit = Some(u32::try_from(left).unwrap_or(PAGE).min(PAGE));
        let mut page: Routes = client.get(path::ROUTES, &query).map_err(failed)?;
        page.routes.truncate(left);
        left -= page.routes.len();
        if live.json {
            page.routes.iter().try_for_each(print_line)?;
        } else {
            shown.extend(page.routes);
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    if !live.json {
        print_routes(&shown);
    }
    Ok(true)
}

fn print_routes(routes: &[Route]) {
    let mut grid = Grid::new(&[
        "",
        "prefix",
        "next hop",
        "peer",
        ">preference",
        ">MED",
        "origin",
        "AS path",
        "communities",
    ]);
    for route in routes {
        let number = |number: Option<u32>| number.map_or_else(|| "-".into(), |number| number.to_string());
        let mark = if route.best { "*" } else { "" };
        let stale = if route.stale { " (stale)" } else { "" };
        let lost = if route.reachable { "" } else { " (unreachable)" };
        grid.row([
            mark.into(),
            route.prefix.clone(),
            format!("{}{lost}", route.next_hop),
            format!("{}{stale}", route.peer),
            number(route.local_pref),
            number(route.med),
            route.origin.clone(),
            or_dash(Some(&route.as_path)),
            or_dash(Some(&communities(route))),
        ]);
    }
    grid.print("there are no such routes");
}

/// Both kinds, and how many there are besides.
fn communities(route: &Route) -> String {
    let shown = [&route.communities[..], &route.large_communities[..]].concat().join(" ");
    match route.more_communities {
        0 => shown,
        more => format!("{shown} (and {more} more)"),
    }
}

/// `tidemill show flowspec`.
pub(super) fn flowspecs(live: &Live) -> Result<bool> {
    let answer: Flowspecs = live.client()?.get(path::FLOWSPEC, &()).map_err(failed)?;
    if live.json {
        answer.flowspecs.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&["", "packets", "then", "peer", "state", ">packets", ">dropped", "why"]);
    for flow in answer.flowspecs {
        grid.row([
            flow.family,
            flow.rule,
            flow.actions,
            flow.peer,
            flow.state,
            flow.packets.to_string(),
            flow.dropped.to_string(),
            or_dash(flow.why.as_deref()),
        ]);
    }
    grid.print("there are no flow specifications");
    Ok(true)
}

fn bmp(live: &Live) -> Result<bool> {
    let answer: Monitors = live.client()?.get(path::BMP, &()).map_err(failed)?;
    if live.json {
        answer.routers.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&["router", "its peer", ">AS", "state", ">IPv4", ">IPv6", ">malformed"]);
    for router in answer.routers {
        let state = if router.connected { "connected" } else { "away" };
        let malformed = router.malformed.to_string();
        grid.row([
            router.name.clone(),
            "-".into(),
            "-".into(),
            state.into(),
            "-".into(),
            "-".into(),
            malformed,
        ]);
        for peer in router.peers {
            let state = if peer.up { "up" } else { "down" };
            let [paths4, paths6] = [peer.paths4, peer.paths6].map(|paths| paths.to_string());
            grid.row([
                router.name.clone(),
                peer.address,
                peer.asn.to_string(),
                state.into(),
                paths4,
                paths6,
                "-".into(),
            ]);
        }
    }
    grid.print("there are no BMP routers");
    Ok(true)
}
