//! `tidemill grantor`: what a running Grantor decides by, what it was asked; revocation and reload.

use super::grid::{Grid, or_dash, span};
use super::{Live, failed, print_line, service};
use anyhow::Result;
use clap::Subcommand;
use tidemill_control::schema::grantor::{Policy, Question, Questions, QuestionsQuery, Revoke, path};
use tidemill_control::schema::{self, Done};

/// The verbs of `tidemill grantor`.
#[derive(Subcommand)]
pub(crate) enum GrantorVerb {
    /// The policy that decides: its version, its tables, who asks it
    #[command(after_help = "Examples:\n  tidemill grantor policy\n  tidemill grantor policy --json")]
    Policy,
    /// All that the Grantor counts
    #[command(after_help = "Example:\n  tidemill grantor counters --json")]
    Counters,
    /// The last questions and what was answered, the latest first
    #[command(
        after_help = "Examples:\n  tidemill grantor questions\n  tidemill grantor questions --limit 20 --json"
    )]
    Questions {
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Take back what was decided so far: flows ask again, and lose no packet that is still granted
    #[command(after_help = "Examples:\n  tidemill grantor revoke\n  tidemill grantor revoke 198.51.100.0/24")]
    Revoke {
        /// Only for flows to these destinations
        prefix: Option<String>,
    },
    /// Read the configuration, the policy and its tables anew; a mistake changes nothing
    #[command(after_help = "Example:\n  tidemill grantor reload")]
    Reload,
}

pub(super) fn run(live: &Live, verb: &GrantorVerb) -> Result<bool> {
    match verb {
        GrantorVerb::Policy => policy(live),
        GrantorVerb::Counters => live.counters(path::COUNTERS),
        GrantorVerb::Questions { limit } => questions(live, *limit),
        GrantorVerb::Revoke { prefix } => {
            let revoke = Revoke { prefix: prefix.clone() };
            let done: Done = live.client()?.post(path::REVOKE, &revoke).map_err(failed)?;
            live.done(&done)
        }
        GrantorVerb::Reload => service::post(live, schema::path::RELOAD),
    }
}

fn policy(live: &Live) -> Result<bool> {
    let policy: Policy = live.client()?.get(path::POLICY, &()).map_err(failed)?;
    if live.json {
        print_line(&policy)?;
        return Ok(true);
    }
    println!("policy: {}, version {}, decisions {}", policy.name, policy.version, policy.decisions);
    println!(
        "questions: {}, of which {} were served by another's answer and {} failed",
        policy.asked, policy.merged, policy.failed
    );
    if policy.ended > 0 {
        println!("{} workers have no policy any more: reload", policy.ended);
    }
    let mut grid = Grid::new(&["table", ">prefixes"]);
    for table in policy.tables {
        grid.row([table.file, table.prefixes.to_string()]);
    }
    grid.print("it has no tables");
    let mut grid = Grid::new(&["gatekeeper", "asks", ">probe heard"]);
    for gatekeeper in policy.gatekeepers {
        let heard = gatekeeper.heard_s.map(|s| format!("{} ago", span(s)));
        grid.row([gatekeeper.address, gatekeeper.ours, or_dash(heard.as_deref())]);
    }
    grid.print("no Gatekeeper has asked or probed");
    Ok(true)
}

/// What was answered, in words.
fn answered(question: &Question) -> String {
    let time = question.expire_s.map(|s| format!(" for {}", span(f64::from(s)))).unwrap_or_default();
    match (question.decision.as_str(), question.rate_kib_s) {
        ("granted", Some(rate)) => format!("granted {rate} KiB/s{time}"),
        ("none", _) => "nothing".into(),
        (other, _) => format!("{other}{time}"),
    }
}

fn questions(live: &Live, limit: u32) -> Result<bool> {
    let query = QuestionsQuery { limit: Some(limit) };
    let answer: Questions = live.client()?.get(path::QUESTIONS, &query).map_err(failed)?;
    if live.json {
        answer.questions.iter().try_for_each(print_line)?;
        return Ok(true);
    }
    println!("{} packets wait", answer.waiting);
    let mut grid = Grid::new(&[
        ">ago",
        "through",
        "from",
        "to",
        ">dscp",
        ">protocol",
        ">ports",
        "answer",
        "packet",
        "failed",
    ]);
    for question in &answer.questions {
        grid.row([
            span(question.ago_s),
            question.gatekeeper.clone(),
            question.source.clone(),
            question.destination.clone(),
            question.dscp.to_string(),
            question.protocol.to_string(),
            format!("{} > {}", question.source_port, question.destination_port),
            answered(question),
            if question.forward { "went on" } else { "dropped" }.into(),
            or_dash(question.failure.as_deref()),
        ]);
    }
    grid.print("nobody has asked");
    Ok(true)
}
