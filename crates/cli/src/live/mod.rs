//! The verbs that ask what runs, over its control socket.

mod amp;
mod assets;
#[cfg(target_os = "linux")]
mod attached;
mod bgp;
mod capture;
mod completions;
mod events;
mod filter;
mod gate;
mod grantor;
mod grid;
#[cfg(target_os = "linux")]
mod kv;
mod log;
mod nat;
#[cfg(target_os = "linux")]
mod redis;
mod route;
mod service;
mod show;
mod switch;
mod top;
mod trace;

use crate::json;
use crate::usage;
pub(crate) use amp::AmpVerb;
use anyhow::Result;
pub(crate) use bgp::BgpVerb;
pub(crate) use capture::Capture;
use clap::Args;
pub(crate) use completions::Completions;
pub(crate) use events::Events;
pub(crate) use filter::FilterVerb;
pub(crate) use gate::GateVerb;
pub(crate) use grantor::GrantorVerb;
pub(crate) use grid::{Grid, or_dash};
#[cfg(target_os = "linux")]
pub(crate) use kv::{Kv, run as kv};
pub(crate) use log::Log;
pub(crate) use nat::NatVerb;
pub(crate) use route::RouteVerb;
use serde::Serialize;
pub(crate) use service::{Reload, StateVerb, Stop};
pub(crate) use show::Show;
use std::path::PathBuf;
use std::time::Duration;
pub(crate) use switch::SwitchVerb;
use tidemill_control::schema::{Counters, Done};
use tidemill_control::{Client, ClientError, DEFAULT_SOCKET, PATIENCE, SOCKET_VARIABLE};
pub(crate) use top::Top;
pub(crate) use trace::TraceVerb;

/// `tidemill trace`: its verbs share the options.
#[derive(Args)]
pub(crate) struct Trace {
    #[command(flatten)]
    live: Live,
    #[command(subcommand)]
    verb: TraceVerb,
}

/// `tidemill route`.
#[derive(Args)]
pub(crate) struct Route {
    #[command(flatten)]
    live: Live,
    #[command(subcommand)]
    verb: RouteVerb,
}

/// `tidemill bgp`.
#[derive(Args)]
pub(crate) struct Bgp {
    #[command(flatten)]
    live: Live,
    #[command(subcommand)]
    verb: BgpVerb,
}

/// `tidemill amp`.
#[derive(Args)]
pub(crate) struct Amp {
    #[command(flatten)]
    live: Live,
    #[command(subcommand)]
    verb: AmpVerb,
}

/// `tidemill gate`.
#[derive(Args)]
pub(crate) struct Gate {
    #[command(flatten)]
    live: Live,
    #[command(subcommand)]
    verb: GateVerb,
}

/// `tidemill grantor`.
#[derive(Args)]
pub(crate) struct Grantor {
    #[command(flatten)]
    live: Live,
    #[command(subcommand)]
    verb: GrantorVerb,
}

/// `tidemill nat`.
#[derive(Args)]
pub(crate) struct Nat {
    #[command(flatten)]
    live: Live,
    #[command(subcommand)]
    verb: NatVerb,
}

/// `tidemill filter`.
#[derive(Args)]
pub(crate) struct Filter {
    #[command(flatten)]
    live: Live,
    #[command(subcommand)]
    verb: FilterVerb,
}

/// `tidemill switch`.
#[derive(Args)]
pub(crate) struct Switch {
    #[command(flatten)]
    live: Live,
    #[command(subcommand)]
    verb: SwitchVerb,
}

/// `tidemill state`.
#[derive(Args)]
pub(crate) struct State {
    #[command(flatten)]
    live: Live,
    #[command(subcommand)]
    verb: StateVerb,
}

/// `tidemill show`.
pub(crate) fn show(args: &Show) -> Result<bool> {
    show::run(args)
}

/// `tidemill trace`.
pub(crate) fn trace(args: &Trace) -> Result<bool> {
    trace::run(&args.live, &args.verb)
}

/// `tidemill route`.
pub(crate) fn route(args: &Route) -> Result<bool> {
    route::run(&args.live, &args.verb)
}

/// `tidemill bgp`.
pub(crate) fn bgp(args: &Bgp) -> Result<bool> {
    bgp::run(&args.live, &args.verb)
}

/// `tidemill amp`.
pub(crate) fn amp(args: &Amp) -> Result<bool> {
    amp::run(&args.live, &args.verb)
}

/// `tidemill gate`.
pub(crate) fn gate(args: &Gate) -> Result<bool> {
    gate::run(&args.live, &args.verb)
}

/// `tidemill grantor`.
pub(crate) fn grantor(args: &Grantor) -> Result<bool> {
    grantor::run(&args.live, &args.verb)
}

/// `tidemill nat`.
pub(crate) fn nat(args: &Nat) -> Result<bool> {
    nat::run(&args.live, &args.verb)
}

/// `tidemill filter`.
pub(crate) fn filter(args: &Filter) -> Result<bool> {
    filter::run(&args.live, &args.verb)
}

/// `tidemill switch`.
pub(crate) fn switch(args: &Switch) -> Result<bool> {
    switch::run(&args.live, &args.verb)
}

/// `tidemill state`.
pub(crate) fn state(args: &State) -> Result<bool> {
    service::state(&args.live, &args.verb)
}

/// `tidemill capture`.
pub(crate) fn capture(args: &Capture) -> Result<bool> {
    capture::run(args)
}

/// `tidemill reload`.
pub(crate) fn reload(args: &Reload) -> Result<bool> {
    service::reload(args)
}

/// `tidemill stop`.
pub(crate) fn stop(args: &Stop) -> Result<bool> {
    service::stop(args)
}

/// `tidemill log`.
pub(crate) fn log(args: &Log) -> Result<bool> {
    log::run(args)
}

/// `tidemill events`.
pub(crate) fn events(args: &Events) -> Result<bool> {
    events::run(args)
}

/// `tidemill top`.
pub(crate) fn top(args: &Top) -> Result<bool> {
    top::run(args)
}

/// `tidemill completions`.
pub(crate) fn completions(args: &Completions, command: &mut clap::Command) -> Result<bool> {
    completions::run(args, command)
}

/// Whom to ask, and how to answer.
#[derive(Args, Clone)]
pub(crate) struct Live {
    /// The control socket of what runs
    #[arg(long, value_name = "PATH", global = true, env = SOCKET_VARIABLE, hide_env_values = true,
        default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Seconds to wait for an answer, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", global = true, default_value_t = PATIENCE.as_secs_f64(), value_parser = patience)]
    timeout: f64,
    /// One JSON object per line
    #[arg(long, global = true)]
    json: bool,
}

/// How long to wait.
fn patience(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "give seconds, 0.1 to 3600".to_owned())
}

impl Live {
    fn client(&self) -> Result<Client> {
        let client = Client::new(&self.socket).map_err(failed)?;
        Ok(client.with_patience(Duration::from_secs_f64(self.timeout)))
    }

    /// Prints all that a service counts.
    fn counters(&self, path: &str) -> Result<bool> {
        let all: Counters = self.client()?.get(path, &()).map_err(failed)?;
        if self.json {
            print_line(&all)?;
            return Ok(true);
        }
        let mut grid = Grid::new(&["counter", ">"]);
        for (name, count) in &all.counters {
            grid.row([name.clone(), count.to_string()]);
        }
        grid.print("nothing is counted");
        Ok(true)
    }

    /// Says what the router has done: to standard error, or as JSON.
    fn done(&self, done: &Done) -> Result<bool> {
        if self.json {
            print_line(done)?;
        } else {
            done.done.iter().for_each(|line| eprintln!("tidemill: {line}"));
        }
        Ok(true)
    }
}

/// An error of a call: what the router finds wrong with the question is the caller's to mend.
fn failed(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Answer { status: 400 | 404, message } => usage(message),
        ClientError::Write(error) => error.into(),
        other => other.into(),
    }
}

/// Prints an object as a line, with the version.
fn print_line(object: &impl Serialize) -> Result<()> {
    #[derive(Serialize)]
    struct Line<'a, T> {
        v: u8,
        #[serde(flatten)]
        object: &'a T,
    }
    Ok(json::print(&Line { v: json::VERSION, object })?)
}
