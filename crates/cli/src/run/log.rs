//! How much a run says on standard error, and of which of its parts. A level hides no event: `GET /v1/events` has all of them, whatever is said.

use super::service::lock;
use super::watch::KINDS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tidemill_control::schema::{self, Severity};

/// The parts that say something, beside those of every run: as the roles name their events.
const OF_ROLES: [&str; 8] =
    ["router", "bgp", "mitigator", "gatekeeper", "grantor", "kvcache", "nat", "filter"];

/// The word for a part that has no level of its own.
const USUAL: &str = "default";

/// How much is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// What went wrong.
    Error,
    /// Also what somebody should know.
    Warning,
    /// Also what is as it should be.
    #[default]
    Info,
    /// Also what is an event and no line otherwise.
    Debug,
}

impl Level {
    const ALL: [Level; 4] = [Level::Error, Level::Warning, Level::Info, Level::Debug];

    fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    fn named(name: &str) -> Result<Level, String> {
        let level = Level::ALL.into_iter().find(|level| level.name() == name);
        level.ok_or_else(|| format!("there is no level {name:?}: give error, warning, info or debug"))
    }
}

impl From<Severity> for Level {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Error => Level::Error,
            Severity::Warning => Level::Warning,
            Severity::Info => Level::Info,
        }
    }
}

/// How much is said on standard error while it runs. `tidemill log` changes that until the next reload.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogSection {
    /// How much of all parts that are not in `modules`.
    level: Level,
    /// How much of single parts, as `{ bgp = "warning", table = "debug" }`: the kinds of events. `tidemill log` lists them.
    modules: BTreeMap<String, Level>,
}

impl LogSection {
    pub(super) fn check(&self) -> Result<(), String> {
        self.modules.keys().try_for_each(|name| known(name)).map_err(|what| format!("log.modules: {what}"))
    }
}

fn modules() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().map(|(kind, _)| kind).chain(OF_ROLES)
}

fn known(name: &str) -> Result<(), String> {
    if modules().any(|module| module == name) {
        return Ok(());
    }
    let all: Vec<&str> = modules().collect();
    Err(format!("there is no module {name:?}: give one of {}", all.join(", ")))
}

/// The levels of a run, now.
#[derive(Debug, Default)]
pub(crate) struct Levels(Mutex<LogSection>);

impl Levels {
    /// Has all of them as a configuration says.
    pub(super) fn set(&self, section: &LogSection) {
        lock(&self.0).clone_from(section);
    }

    /// Whether a line of a part is to be said.
    pub(super) fn says(&self, module: &str, level: Level) -> bool {
        let section = lock(&self.0);
        level <= section.modules.get(module).copied().unwrap_or(section.level)
    }

    /// Whether the line that says how a run is going is to be said: unless less is wanted, and in the journal with `run = "debug"` alone.
    pub(super) fn counts(&self, is_journal: bool) -> bool {
        self.says("run", if is_journal { Level::Debug } else { Level::Info })
    }

    /// All of them.
    pub(super) fn show(&self) -> schema::Log {
        let section = lock(&self.0);
        let one = |name: &str| {
            let own = section.modules.get(name).copied();
            let level = own.unwrap_or(section.level).name().to_owned();
            schema::LogModule { name: name.to_owned(), level, own: own.is_some() }
        };
        schema::Log { level: section.level.name().to_owned(), modules: modules().map(one).collect() }
    }

    /// Changes those that are named: all of them, or none if one makes no sense.
    pub(super) fn change(&self, change: &schema::LogChange) -> Result<(), String> {
        let level = change.level.as_deref().map(Level::named).transpose()?;
        let mut own = Vec::new();
        for (name, level) in &change.modules {
            known(name)?;
            own.push((name, if level == USUAL { None } else { Some(Level::named(level)?) }));
        }
        let mut section = lock(&self.0);
        section.level = level.unwrap_or(section.level);
        for (name, level) in own {
            match level {
                Some(level) => section.modules.insert(name.clone(), level),
                None => section.modules.remove(name),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(level: Option<&str>, modules: &[(&str, &str)]) -> schema::LogChange {
        let modules = modules.iter().map(|(name, level)| ((*name).to_owned(), (*level).to_owned()));
        schema::LogChange { level: level.map(str::to_owned), modules: modules.collect() }
    }

    #[test]
    fn a_part_has_its_level_or_the_usual_one() {
        let levels = Levels::default();
        assert!(levels.says("bgp", Level::Info) && !levels.says("bgp", Level::Debug));
        levels.change(&change(Some("error"), &[("bgp", "debug")])).unwrap();
        assert!(levels.says("bgp", Level::Debug) && levels.says("router", Level::Error));
        assert!(!levels.says("router", Level::Warning));
        assert!(!levels.counts(false), "at this level nobody wants to see it");
        let shown = levels.show();
        let of = |name: &str| shown.modules.iter().find(|module| module.name == name).cloned();
        let bgp = schema::LogModule { name: "bgp".into(), level: "debug".into(), own: true };
        let router = schema::LogModule { name: "router".into(), level: "error".into(), own: false };
        assert_eq!((of("bgp"), of("router"), shown.level.as_str()), (Some(bgp), Some(router), "error"));
        levels.change(&change(None, &[("bgp", "default")])).unwrap();
        assert!(!levels.says("bgp", Level::Warning));
        levels.set(&LogSection::default());
        assert!(levels.says("bgp", Level::from(Severity::Info)));
        assert!(levels.counts(false) && !levels.counts(true));
        levels.change(&change(None, &[("run", "debug")])).unwrap();
        assert!(levels.counts(true));
    }

    #[test]
    fn what_makes_no_sense_changes_nothing() {
        let levels = Levels::default();
        let before = levels.show();
        for (wrong, what) in [
            (change(Some("loud"), &[]), "there is no level \"loud\": give error, warning, info or debug"),
            (change(Some("error"), &[("bgp", "error"), ("rain", "error")]), "there is no module \"rain\""),
            (change(Some("error"), &[("bgp", "quiet")]), "there is no level \"quiet\""),
        ] {
            let error = levels.change(&wrong).unwrap_err();
            assert!(error.starts_with(what), "{error}");
            assert_eq!(levels.show(), before);
        }
    }
}
