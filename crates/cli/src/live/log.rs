//! `tidemill log`: how much what runs says on its standard error, and of which of its parts.

use super::{Grid, Live, failed, print_line};
use crate::usage;
use anyhow::Result;
use clap::Args;
use tidemill_control::schema::{self, LogChange, path};

/// Arguments of `tidemill log`.
#[derive(Args)]
#[command(
    after_help = "Levels are error, warning, info and debug; with default a module has no level of its own any more. A reload has all of them as [log] \
    in the configuration says. No level hides an event: `tidemill events` shows all.\n\n\
    Examples:\n  tidemill log\n  tidemill log warning bgp=debug\n  tidemill log bgp=default"
)]
pub(crate) struct Log {
    #[command(flatten)]
    live: Live,
    /// LEVEL for all modules without one of their own, or MODULE=LEVEL; nothing shows them
    #[arg(value_name = "LEVEL")]
    levels: Vec<String>,
}

pub(super) fn run(args: &Log) -> Result<bool> {
    let change = change(&args.levels)?;
    let client = args.live.client()?;
    let answer = match &change {
        Some(change) => client.post(path::LOG, change),
        None => client.get(path::LOG, &()),
    };
    let log: schema::Log = answer.map_err(failed)?;
    if args.live.json {
        print_line(&log)?;
        return Ok(true);
    }
    let mut grid = Grid::new(&["module", "level"]);
    grid.row(["default".into(), log.level]);
    log.modules.into_iter().filter(|module| module.own || change.is_none()).for_each(|module| {
        let level = if module.own { module.level } else { format!("({})", module.level) };
        grid.row([module.name, level]);
    });
    grid.print("it has no levels");
    Ok(true)
}

/// What is to change, if anything is.
fn change(levels: &[String]) -> Result<Option<LogChange>> {
    let mut change = LogChange::default();
    for text in levels {
        let twice = match text.split_once('=') {
            Some((module, level)) => change.modules.insert(module.into(), level.into()).is_some(),
            None => change.level.replace(text.clone()).is_some(),
        };
        if twice {
            return Err(usage(format!("{text}: there are two levels for one thing: give one")));
        }
    }
    Ok((!levels.is_empty()).then_some(change))
}
