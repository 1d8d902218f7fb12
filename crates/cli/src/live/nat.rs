//! `tidemill nat`: what a running NAT has translated, and what an address is on the other side.

use super::grid::{Grid, span};
use super::{Live, failed, print_line};
use crate::usage;
use anyhow::Result;
use clap::{Subcommand, ValueEnum};
use std::net::{IpAddr, SocketAddr};
use tidemill_control::schema::nat::{ExplainQuery, Explained, Session, Sessions, SessionsQuery, path};

/// Sessions asked for at once.
const PAGE: u32 = 10_000;

/// The verbs of `tidemill nat`.
#[derive(Subcommand)]
pub(crate) enum NatVerb {
    /// Sessions: inside endpoints, what they look like, and whom they talk to
    #[command(
        after_help = "Examples:\n  tidemill nat sessions\n  tidemill nat sessions --protocol tcp --limit 20\n  \
        tidemill nat sessions --address 10.0.0.5 --json"
    )]
    Sessions {
        /// Only those with this address, on any side
        #[arg(long, value_name = "ADDR")]
        address: Option<IpAddr>,
        /// Only those of this protocol
        #[arg(long)]
        protocol: Option<Protocol>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// What an address or an endpoint is: of the pool, static, computed (deterministic), and the sessions that it is in
    #[command(
        after_help = "Examples:\n  tidemill nat explain 10.0.0.5\n  tidemill nat explain 192.0.2.1:61002\n  tidemill nat explain '[2001:db8::1]:443' --json"
    )]
    Explain {
        /// ADDR, ADDR:PORT or [ADDR]:PORT
        #[arg(value_name = "ENDPOINT")]
        endpoint: String,
    },
    /// All that the NAT counts
    #[command(after_help = "Example:\n  tidemill nat counters --json")]
    Counters,
}

/// A protocol.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP queries.
    Icmp,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Icmp => "icmp",
        }
    }
}

pub(super) fn run(live: &Live, verb: &NatVerb) -> Result<bool> {
    match verb {
        NatVerb::Sessions { address, protocol, limit } => sessions(live, *address, *protocol, *limit),
        NatVerb::Explain { endpoint } => explain(live, endpoint),
        NatVerb::Counters => live.counters(path::COUNTERS),
    }
}

fn sessions(live: &Live, address: Option<IpAddr>, protocol: Option<Protocol>, limit: u32) -> Result<bool> {
    let client = live.client()?;
    let mut query = SessionsQuery {
        address: address.map(|address| address.to_string()),
        protocol: protocol.map(|protocol| protocol.name().into()),
        ..SessionsQuery::default()
    };
    let (mut left, mut shown) = (limit, Vec::new());
    while left > 0 {
        query.limit = Some(left.min(PAGE));
        let mut page: Sessions = client.get(path::SESSIONS, &query).map_err(failed)?;
        page.sessions.truncate(left as usize);
        left -= page.sessions.len() as u32;
        if live.json {
            page.sessions.iter().try_for_each(print_line)?;
        } else {
            shown.extend(page.sessions);
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    if !live.json {
        print_sessions(&shown, "there are no such sessions");
    }
    Ok(true)
}

fn print_sessions(sessions: &[Session], none: &str) {
    let mut grid = Grid::new(&[
        "protocol", "inside", "outside", "remote", "state", ">ends in", ">out", ">in", ">worker",
    ]);
    for session in sessions {
        let state = session.state.as_deref().unwrap_or("-");
        let begun = if session.from_outside { " (from outside)" } else { "" };
        grid.row([
            session.protocol.clone(),
            session.inside.clone(),
            session.outside.clone(),
            session.remote.clone(),
            format!("{state}{begun}"),
            span(session.expires_s),
            session.packets_out.to_string(),
            session.packets_in.to_string(),
            session.worker.to_string(),
        ]);
    }
    grid.print(none);
}

fn explain(live: &Live, endpoint: &str) -> Result<bool> {
    if endpoint.parse::<IpAddr>().is_err() && endpoint.parse::<SocketAddr>().is_err() {
        return Err(usage(format!(
            "{endpoint:?}: give an address, or one with a port: 192.0.2.1:443, [2001:db8::1]:443"
        )));
    }
    let query = ExplainQuery { endpoint: endpoint.into() };
    let answer: Explained = live.client()?.get(path::EXPLAIN, &query).map_err(failed)?;
    if live.json {
        print_line(&answer)?;
        return Ok(true);
    }
    answer.configured.iter().for_each(|line| println!("{line}"));
    print_sessions(&answer.sessions, "it is in no session");
    if answer.more {
        println!("there are more: tidemill nat sessions --address lists all of an address");
    }
    Ok(true)
}
