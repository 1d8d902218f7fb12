//! `tidemill gate`: what a running Gatekeeper knows of flows, and what it does by which policy.

use super::grid::{Grid, or_dash, span};
use super::{Live, failed, print_line};
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use std::net::IpAddr;
use tidemill_control::schema::Done;
use tidemill_control::schema::gate::{
    Decide, Fib, Flow, FlowAnswer, FlowQuery, Flows, FlowsQuery, Policy, PolicyQuery, Solicitor, Top,
    TopQuery, path,
};

/// Flows asked for at once.
const PAGE: u32 = 10_000;

/// The verbs of `tidemill gate`.
#[derive(Subcommand)]
pub(crate) enum GateVerb {
    /// Flows: pairs of source and destination, and what was decided about them
    #[command(
        after_help = "Examples:\n  tidemill gate flows\n  tidemill gate flows --state declined --limit 20\n  \
        tidemill gate flows --address 192.0.2.1 --json"
    )]
    Flows {
        /// Only those in this state
        #[arg(long)]
        state: Option<State>,
        /// Only those from or to this address
        #[arg(long, value_name = "ADDR")]
        address: Option<IpAddr>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// One flow: its policy, its Grantor, what each worker knows of it
    #[command(after_help = "Example:\n  tidemill gate flow 192.0.2.1 198.51.100.7")]
    Flow {
        /// The source's address
        source: IpAddr,
        /// The destination's address
        destination: IpAddr,
    },
    /// Let a flow send: for tests, and until its Grantor says otherwise
    #[command(
        after_help = "Examples:\n  tidemill gate grant 192.0.2.1 198.51.100.7 --rate 1024 --for 300\n  \
        tidemill gate grant 2001:db8::1 2001:db8:1::7 --direct"
    )]
    Grant(Grant),
    /// Stop a flow: until its Grantor says otherwise
    #[command(after_help = "Example:\n  tidemill gate decline 192.0.2.1 198.51.100.7 --for 600")]
    Decline {
        /// The source's address
        source: IpAddr,
        /// The destination's address
        destination: IpAddr,
        /// Seconds, 1 or more; it holds 52 days at most
        #[arg(long = "for", value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
        expire_s: u32,
    },
    /// Policies by destination; adds and deletes them
    #[command(
        after_help = "Examples:\n  tidemill gate fib\n  tidemill gate fib --add 198.51.100.0/24 --grantor 10.0.0.9 --grantor 10.0.0.10\n  \
        tidemill gate fib --add 203.0.113.0/24 --action drop\n  tidemill gate fib --delete 203.0.113.0/24"
    )]
    Fib(FibArgs),
    /// Requests on their way to Grantors
    #[command(after_help = "Example:\n  tidemill gate solicitor --json")]
    Solicitor,
    /// Where the most is dropped, in the last window of 5 s, all workers together
    #[command(
        after_help = "What the gate and the solicitor drop: by policies, of declined flows, beyond granted rates, what is dressed as ours, requests that found no place. \
        What is dropped elsewhere (no route, too long, decisions) is in show drops.\n\nPackets are an estimate: one dropped packet in sixteen is counted, for sixteen. The truth is from `from` to `to` in 19 of 20 cases (with --json: \
        low, high); who had only a few dropped may not be there.\n\nExamples:\n  tidemill gate top\n  tidemill gate top --by destination --limit 5 --json"
    )]
    Top {
        /// What is told apart
        #[arg(long, default_value = "source")]
        by: By,
        /// At most so many lines
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// All that the gate counts
    #[command(after_help = "Example:\n  tidemill gate counters --json")]
    Counters,
}

/// `tidemill gate grant`.
#[derive(Args)]
pub(crate) struct Grant {
    /// The source's address
    source: IpAddr,
    /// The destination's address
    destination: IpAddr,
    /// KiB per second, 1 to 16,777,215 (gate decline lets nothing pass)
    #[arg(long, value_name = "KIB_S", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16_777_215))]
    rate: u32,
    /// Seconds, 1 or more; it holds 52 days at most
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    expire_s: u32,
    /// Milliseconds until the grant is renewed the first time [default: three quarters of the time]
    #[arg(long, value_name = "MS")]
    renew_ms: Option<u32>,
    /// Milliseconds between two renewals [default: 5000]
    #[arg(long, value_name = "MS")]
    step_ms: Option<u32>,
    /// Send its packets past the Grantor
    #[arg(long)]
    direct: bool,
}

/// `tidemill gate fib`.
#[derive(Args)]
pub(crate) struct FibArgs {
    /// Add or replace the policy of this prefix, until the next reload
    #[arg(long, value_name = "PREFIX", conflicts_with = "delete")]
    add: Option<String>,
    /// What is done with packets there
    #[arg(long, requires = "add", conflicts_with = "delete", default_value = "grantor")]
    action: Action,
    /// A Grantor that decides about them; several share the flows
    #[arg(long, value_name = "ADDR", requires = "add", conflicts_with = "delete")]
    grantor: Vec<IpAddr>,
    /// Delete the policy of this prefix, until the next reload
    #[arg(long, value_name = "PREFIX")]
    delete: Option<String>,
}

/// What a policy does.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Action {
    /// A Grantor decides.
    Grantor,
    /// Routed.
    Route,
    /// Dropped.
    Drop,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Grantor => "grantor",
            Action::Route => "route",
            Action::Drop => "drop",
        }
    }
}

/// A flow's state.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum State {
    /// It asks.
    Request,
    /// It may send.
    Granted,
    /// It may not.
    Declined,
    /// A program decides.
    Program,
    /// What was decided is taken back, and no packet has come since.
    Revoked,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Request => "request",
            State::Granted => "granted",
            State::Declined => "declined",
            State::Program => "program",
            State::Revoked => "revoked",
        }
    }
}

/// What a line of `top` stands for.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum By {
    /// A pair of addresses.
    Flow,
    /// A source address.
    Source,
    /// A destination address.
    Destination,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Flow => "flow",
            By::Source => "source",
            By::Destination => "destination",
        }
    }
}

pub(super) fn run(live: &Live, verb: &GateVerb) -> Result<bool> {
    match verb {
        GateVerb::Flows { state, address, limit } => flows(live, *state, *address, *limit),
        GateVerb::Flow { source, destination } => flow(live, *source, *destination),
        GateVerb::Grant(grant) => decide(
            live,
            &Decide {
                source: grant.source.to_string(),
                destination: grant.destination.to_string(),
                rate_kib_s: Some(grant.rate),
                expire_s: grant.expire_s,
                renew_ms: grant.renew_ms,
                step_ms: grant.step_ms,
                direct: grant.direct,
            },
        ),
        GateVerb::Decline { source, destination, expire_s } => decide(
            live,
            &Decide {
                source: source.to_string(),
                destination: destination.to_string(),
                expire_s: *expire_s,
                ..Decide::default()
            },
        ),
        GateVerb::Fib(args) => fib(live, args),
        GateVerb::Solicitor => solicitor(live),
        GateVerb::Top { by, limit } => top(live, *by, *limit),
        GateVerb::Counters => live.counters(path::COUNTERS),
    }
}

fn flows(live: &Live, state: Option<State>, address: Option<IpAddr>, limit: u32) -> Result<bool> {
    let client = live.client()?;
    let mut query = FlowsQuery {
        state: state.map(|state| state.name().into()),
        address: address.map(|address| address.to_string()),
        ..FlowsQuery::default()
    };
    let (mut left, mut shown) = (limit, Vec::new());
    while left > 0 {
        query.limit = Some(left.min(PAGE));
        let mut page: Flows = client.get(path::FLOWS, &query).map_err(failed)?;
        page.flows.truncate(left as usize);
        left -= page.flows.len() as u32;
        if live.json {
            page.flows.iter().try_for_each(print_line)?;
        } else {
            shown.extend(page.flows);
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    if !live.json {
        print_flows(&shown, "there are no such flows");
    }
    Ok(true)
}

fn print_flows(flows: &[Flow], none: &str) {
    let mut grid = Grid::new(&["state", "from", "to", ">worker", "what is known"]);
    for flow in flows {
        let (from, to) = (flow.source.clone(), flow.destination.clone());
        grid.row([flow.state.clone(), from, to, flow.worker.to_string(), known(flow)]);
    }
    grid.print(none);
}

/// What a flow's state says, in words.
fn known(flow: &Flow) -> String {
    let time = |s: Option<f64>| span(s.unwrap_or_default());
    match flow.state.as_str() {
        "granted" => {
            let rate = flow.rate_kib_s.unwrap_or_default();
            let renewal =
                flow.renewal_s.map_or("never renewed".into(), |s| format!("renewed in {}", time(Some(s))));
            let direct = if flow.direct == Some(true) { ", direct" } else { "" };
            format!("{rate} KiB/s, ends in {}, {renewal}{direct}", time(flow.expires_s))
        }
        "declined" => format!("ends in {}", time(flow.expires_s)),
        "revoked" => "its next packet asks again".into(),
        "program" => {
            format!("program {}, ends in {}", flow.program.unwrap_or_default(), time(flow.expires_s))
        }
        _ => {
            let level = flow.level.unwrap_or_default();
            let allowance = flow.allowance.unwrap_or_default();
            match flow.idle_s {
                Some(idle) => format!("level {level}, {allowance} more, silent for {}", time(Some(idle))),
                None => format!("level {level}, {allowance} more"),
            }
        }
    }
}

fn flow(live: &Live, source: IpAddr, destination: IpAddr) -> Result<bool> {
    let query = FlowQuery { source: source.to_string(), destination: destination.to_string() };
    let answer: FlowAnswer = live.client()?.get(path::FLOW, &query).map_err(failed)?;
    if live.json {
        print_line(&answer)?;
        return Ok(true);
    }
    let policy = match &answer.prefix {
        Some(prefix) => format!("{} ({prefix})", answer.action),
        None => format!("{} (no policy: the default)", answer.action),
    };
    println!("policy: {policy}, Grantor: {}", or_dash(answer.grantor.as_deref()));
    print_flows(&answer.flows, "no worker knows this flow");
    Ok(true)
}

fn decide(live: &Live, decide: &Decide) -> Result<bool> {
    let answer: Done = live.client()?.post(path::FLOW, decide).map_err(failed)?;
    live.done(&answer)
}

fn fib(live: &Live, args: &FibArgs) -> Result<bool> {
    let client = live.client()?;
    if let Some(prefix) = &args.add {
        let policy = Policy {
            prefix: prefix.clone(),
            action: args.action.name().into(),
            grantors: args.grantor.iter().map(IpAddr::to_string).collect(),
        };
        let answer: Done = client.post(path::FIB, &policy).map_err(failed)?;
        return live.done(&answer);
    }
    if let Some(prefix) = &args.delete {
        let answer: Done =
            client.delete(path::FIB, &PolicyQuery { prefix: prefix.clone() }).map_err(failed)?;
        return live.done(&answer);
    }
    let fib: Fib = client.get(path::FIB, &()).map_err(failed)?;
    if live.json {
        fib.policies.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&["prefix", "action", "grantors"]);
    for policy in fib.policies {
        let action = match policy.ours {
            true => format!("{} (no effect: the gate's own address)", policy.action),
            false => policy.action,
        };
        grid.row([policy.prefix, action, policy.grantors.join(", ")]);
    }
    grid.print("there are no policies: everything is the default's");
    Ok(true)
}

fn solicitor(live: &Live) -> Result<bool> {
    let solicitor: Solicitor = live.client()?.get(path::SOLICITOR, &()).map_err(failed)?;
    if live.json {
        print_line(&solicitor)?;
        return Ok(true);
    }
    println!(
        "{} requests wait, room for {} in each worker; {} bits per second at most",
        solicitor.waiting, solicitor.capacity, solicitor.bits_per_s
    );
    let mut grid = Grid::new(&[
        "dscp",
        ">waiting",
        ">sent",
        ">refused",
        ">evicted",
        ">waited, half",
        ">99 %",
        ">longest",
    ]);
    let wait = |us: Option<f64>| us.map_or("-".into(), |us| format!("{us:.0} us"));
    for level in solicitor.levels.iter().rev() {
        grid.row([
            level.dscp.to_string(),
            level.waiting.to_string(),
            level.sent.to_string(),
            level.refused.to_string(),
            level.evicted.to_string(),
            wait(level.wait_p50_us),
            wait(level.wait_p99_us),
            wait(level.wait_max_us),
        ]);
    }
    grid.print("no request has come");
    Ok(true)
}

fn top(live: &Live, by: By, limit: u32) -> Result<bool> {
    let query = TopQuery { by: by.name().into(), limit: Some(limit) };
    let top: Top = live.client()?.get(path::TOP, &query).map_err(failed)?;
    if top.lines.is_empty() {
        let window_s = top.window_s;
        if top.begun {
            eprintln!(
                "tidemill: nothing was dropped in the last window of {window_s} s, or too little to be in the sample"
            );
        } else {
            eprintln!("tidemill: the first window of {window_s} s has not ended yet: ask again");
        }
        return Ok(true);
    }
    if live.json {
        top.lines.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&[
        "source",
        "destination",
        ">packets, about",
        ">from",
        ">to",
        ">per second",
        ">ended",
        ">workers",
    ]);
    for line in top.lines {
        let rate = line.packets as f64 / line.window_s.max(0.001);
        grid.row([
            or_dash(line.source.as_deref()),
            or_dash(line.destination.as_deref()),
            line.packets.to_string(),
            line.low.to_string(),
            line.high.to_string(),
            format!("{rate:.0}"),
            format!("{} ago", span(line.age_s)),
            line.workers.to_string(),
        ]);
    }
    grid.print("");
    Ok(true)
}
