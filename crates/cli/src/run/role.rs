//! What a role adds to a run: its nodes, its control side, its verbs. Everything else in this folder is the same for all.

use super::config::{Config, Role as Name};
use super::log::{Level, Levels};
use super::setup::{Places, Queues};
use super::taps::{self, Taps};
use super::{gatekeeper, grantor, kvcache, mitigator, router, switch};
use crate::usage::{complain_as, one_line, usage};
use anyhow::Result;
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use tidemill_control::schema::{Event, Severity, Table};
use tidemill_control::{Events, Family, Registry};
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Left;

/// A role that runs, as its run sees it.
pub(crate) trait Role: Send + Sync {
    /// Its nodes, between the ports.
    fn graph(&self) -> GraphBuilder;

    /// One round of the control side at `now_ns`. Returns whether there was anything to do.
    fn turn(&self, now_ns: u64, recorder: Option<&Recorder>) -> bool;

    /// Applies a change that a recorder was given, and returns the generation that was recorded with it.
    fn repeat(&self, _change: &[u8]) -> Result<u64, String> {
        Err("this role records no changes".into())
    }

    /// Takes over what has changed between two configurations, or is refused and has changed nothing. `name` is for messages.
    fn reload(&self, name: &str, old: &Config, new: &Config, text: &str) -> Result<LeftOver>;

    /// Adds its verbs to those of every run, and its figures.
    fn verbs(self: Arc<Self>, registry: &mut Registry);

    /// Starts what goes on beside the packets, each on a thread of its own, until `done`.
    fn beside<'scope>(&'scope self, _scope: &'scope Scope<'scope, '_>, _done: &'scope AtomicBool) {}

    /// All workers have stopped.
    fn end(&self) {}

    /// Whether a port's link is up, as far as the role follows that.
    fn link(&self, _port: usize) -> Option<bool> {
        None
    }

    /// What a port has left to the kernel, if it takes packets away from that.
    fn left(&self, port: usize) -> Option<Left>;

    /// What to say of itself in the line of a run that goes on, as `updates 17`.
    fn progress(&self) -> String;

    /// What to say in the end.
    fn told(&self) -> Told;

    /// Its tables and caches.
    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }
}

/// What of a new configuration is not in force, although it was taken, a line each; empty if all of it is.
pub(crate) type LeftOver = Vec<String>;

/// What a role says when a run has ended.
#[derive(Default)]
pub(crate) struct Told {
    /// Lines above the counters.
    pub(crate) first: Vec<String>,
    /// Lines below them.
    pub(crate) last: Vec<String>,
    /// Its part of the JSON object.
    pub(crate) json: Map<String, Value>,
}

impl Told {
    /// Adds counters: those that counted something in a line below the run's, all of them to the JSON object.
    pub(crate) fn counters<'a>(
        &mut self,
        role: &str,
        key: &str,
        counters: impl Iterator<Item = (&'a str, u64)> + Clone,
    ) {
        let there = counters.clone().filter(|(_, count)| *count > 0);
        let there: Vec<String> = there.map(|(name, count)| format!("{name} {count}")).collect();
        if !there.is_empty() {
            self.last.push(format!("{role}: {}", there.join(", ")));
        }
        let all = counters.map(|(name, count)| (name.to_owned(), Value::from(count))).collect();
        self.json.insert(key.into(), Value::Object(all));
    }
}

/// A role's counters as metrics: `tidemill_KEY_total{figure="NAME"}` for what only grows, `tidemill_KEY_now{figure="NAME"}` for what is so now.
/// Each comes with its name, its number, and whether that is so now.
pub(crate) fn figures<'a>(key: &str, counters: impl Iterator<Item = (&'a str, u64, bool)>) -> Vec<Family> {
    let mut grows = Family::counter(key, "What the role has counted");
    let mut now = Family::gauge(format!("{key}_now"), "What the role has now");
    for (name, count, is_now) in counters {
        if is_now { &mut now } else { &mut grows }.add(&[("figure", name)], count);
    }
    [grows, now].into_iter().filter(|family| !family.is_empty()).collect()
}

/// What a role is made from.
pub(crate) struct Opening<'a> {
    pub(crate) config: &'a Config,
    /// The configuration as it was written.
    pub(crate) text: &'a str,
    /// Its name, for messages.
    pub(crate) name: &'a str,
    /// The folder that relative paths start from.
    pub(crate) base: &'a Path,
    pub(crate) places: &'a Places,
    pub(crate) domain: &'a Domain,
    /// Whether the run is recorded.
    pub(crate) record: bool,
    pub(crate) trouble: Arc<Trouble>,
}

/// A role with its ports.
pub(crate) struct Open {
    pub(crate) role: Arc<dyn Role>,
    pub(crate) ports: Queues,
    /// What a record of the run begins with: all that is not in the configuration.
    pub(crate) state: Vec<u8>,
}

/// Makes the role that a configuration names, with what looks on beside it, and opens its ports.
pub(crate) fn open(opening: &Opening<'_>) -> Result<Open> {
    // What is wrong there is said before the tables are built.
    let taps = Taps::open(opening)?;
    let open = open_alone(opening)?;
    Ok(Open { role: taps::beside(taps, open.role, &opening.trouble), ..open })
}

fn open_alone(opening: &Opening<'_>) -> Result<Open> {
    match opening.config.role {
        Name::Router | Name::Nat | Name::Filter => router::open(opening),
        Name::Mitigator => mitigator::open(opening),
        Name::Gatekeeper => gatekeeper::open(opening),
        Name::Grantor => grantor::open(opening),
        Name::Kvcache => kvcache::open(opening),
        Name::Switch => switch::open(opening),
    }
}

/// Makes the role of a record that begins with `state`; its ports are the record's.
pub(crate) fn reopen(opening: &Opening<'_>, state: &[u8]) -> Result<Arc<dyn Role>> {
    let taps = Taps::reopen(opening)?;
    Ok(taps::beside(taps, reopen_alone(opening, state)?, &opening.trouble))
}

fn reopen_alone(opening: &Opening<'_>, state: &[u8]) -> Result<Arc<dyn Role>> {
    match opening.config.role {
        Name::Router | Name::Nat | Name::Filter => router::reopen(opening, state),
        Name::Mitigator => mitigator::reopen(opening),
        Name::Gatekeeper => gatekeeper::reopen(opening, state),
        Name::Grantor => Err(usage("a grantor is in no record")),
        Name::Kvcache => kvcache::reopen(opening),
        Name::Switch => Err(usage("a switch is in no record")),
    }
}

/// Checks what a role makes of a configuration without opening anything. Returns its nodes, and what to say of it.
pub(crate) fn check(config: &Config, name: &str) -> Result<(GraphBuilder, String)> {
    let taps = Taps::check(config, name)?;
    let (mut graph, said) = check_alone(config, name)?;
    taps.splice(&mut graph);
    Ok((graph, said + &taps.said()))
}

fn check_alone(config: &Config, name: &str) -> Result<(GraphBuilder, String)> {
    match config.role {
        Name::Router | Name::Nat | Name::Filter => router::check(config, name),
        Name::Mitigator => mitigator::check(config, name),
        Name::Gatekeeper => gatekeeper::check(config, name),
        Name::Grantor => grantor::check(config, name),
        Name::Kvcache => kvcache::check(config, name),
        Name::Switch => switch::check(config, name),
    }
}

/// What a run has to say beside the packets: to standard error as far as its levels let it, and as events. What went wrong lets packets flow on, and the run fails in
/// the end.
#[derive(Default)]
pub(crate) struct Trouble {
    any: AtomicBool,
    events: Events,
    levels: Levels,
}

impl Trouble {
    /// Where the events go.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// How much is said.
    pub(crate) fn levels(&self) -> &Levels {
        &self.levels
    }

    /// Says what went wrong, whatever the levels are.
    pub(crate) fn complain(&self, what: &str, error: &anyhow::Error) {
        let message = one_line(error);
        complain_as(Severity::Error, &format!("tidemill: {what}: {message}"));
        self.any.store(true, Ordering::Relaxed);
        self.note_silently("trouble", Severity::Error, what, message);
    }

    /// Says a line of a role's, which has registered its name as a kind of events; one that begins with `warning: ` is one.
    pub(crate) fn note(&self, role: &str, line: &str) {
        let (severity, message) = match line.strip_prefix("warning: ") {
            Some(message) => (Severity::Warning, message),
            None => (Severity::Info, line),
        };
        self.say(role, severity, line);
        self.note_silently(role, severity, "", message);
    }

    /// Says a line of a part's on standard error, and tells of no event.
    pub(crate) fn say(&self, module: &str, severity: Severity, line: &str) {
        if self.levels.says(module, severity.into()) {
            complain_as(severity, &format!("tidemill: {line}"));
        }
    }

    /// Tells of an event, without a line on standard error.
    pub(crate) fn note_silently(
        &self,
        kind: &str,
        severity: Severity,
        about: &str,
        message: impl Into<String>,
    ) {
        self.events.tell(event(kind, severity, about, message));
    }

    /// Tells of an event that is a line on standard error with the level `debug` alone.
    pub(crate) fn tell(&self, kind: &str, severity: Severity, about: &str, message: impl Into<String>) {
        self.pass_on(event(kind, severity, about, message));
    }

    /// The same, of one that is made already.
    pub(crate) fn pass_on(&self, event: Event) {
        if self.levels.says(&event.kind, Level::Debug) {
            // Some messages begin with what they are about.
            let about = Some(format!("{}: ", event.about));
            let about = about.filter(|about| !event.about.is_empty() && !event.message.starts_with(about));
            let line = format!("tidemill: {}: {}{}", event.kind, about.unwrap_or_default(), event.message);
            complain_as(event.severity, &line);
        }
        self.events.tell(event);
    }

    /// Whether there was any.
    pub(crate) fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }
}

fn event(kind: &str, severity: Severity, about: &str, message: impl Into<String>) -> Event {
    let (kind, about, message) = (kind.to_owned(), about.to_owned(), message.into());
    Event { kind, severity, about, message, ..Event::default() }
}
