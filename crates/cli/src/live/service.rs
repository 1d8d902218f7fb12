//! `tidemill reload`, `tidemill stop`, `tidemill state`: the running router as a whole.

use super::{Live, failed};
use anyhow::Result;
use clap::{Args, Subcommand};
use tidemill_control::schema::{Done, path};

/// Arguments of `tidemill reload`.
#[derive(Args)]
#[command(
    after_help = "A configuration with a mistake changes nothing: the mistake is the answer. SIGHUP does the same.\n\n\
    Example:\n  tidemill reload"
)]
pub(crate) struct Reload {
    #[command(flatten)]
    live: Live,
}

/// Arguments of `tidemill stop`.
#[derive(Args)]
#[command(after_help = "Example:\n  tidemill stop")]
pub(crate) struct Stop {
    #[command(flatten)]
    live: Live,
}

/// The verbs of `tidemill state`.
#[derive(Subcommand)]
pub(crate) enum StateVerb {
    /// Save what the router has learnt, now
    #[command(after_help = "Example:\n  tidemill state save")]
    Save,
}

pub(super) fn state(live: &Live, StateVerb::Save: &StateVerb) -> Result<bool> {
    post(live, path::STATE)
}

pub(super) fn reload(args: &Reload) -> Result<bool> {
    post(&args.live, path::RELOAD)
}

pub(super) fn stop(args: &Stop) -> Result<bool> {
    post(&args.live, path::STOP)
}

pub(super) fn post(live: &Live, path: &str) -> Result<bool> {
    let done: Done = live.client()?.post(path, &serde_json::json!({})).map_err(failed)?;
    live.done(&done)
}
