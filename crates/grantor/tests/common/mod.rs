//! What the tests share: engines made from texts, a clock that counts how often it is looked at, a log that is kept.
// A helper that fails fails its test; and no test uses all of them.
#![allow(clippy::unwrap_used, dead_code)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tidemill_grantor::{Answer, Engine, Policy, PolicyError, PolicySection, Question, Surroundings};
use tidemill_wire::flow::Addresses;

/// A clock that goes on by `tick_ns` whenever it is looked at. An engine looks at it in every step, and once or twice per batch besides.
#[derive(Default)]
pub(crate) struct TestClock {
    pub(crate) now_ns: AtomicU64,
    pub(crate) tick_ns: AtomicU64,
    pub(crate) looks: AtomicU64,
}

impl TestClock {
    pub(crate) fn look(&self) -> u64 {
        self.looks.fetch_add(1, Relaxed);
        self.now_ns.fetch_add(self.tick_ns.load(Relaxed), Relaxed)
    }
}

pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) lines: Arc<Mutex<Vec<String>>>,
    pub(crate) around: Surroundings,
}

impl Default for Place {
    fn default() -> Self {
        let (clock, lines) = (Arc::<TestClock>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (looked, kept) = (clock.clone(), lines.clone());
        let around = Surroundings::new(
            Arc::new(move || looked.look()),
            Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned())),
            1,
        );
        Place { folder: tempfile::tempdir().unwrap(), clock, lines, around }
    }
}

impl Place {
    pub(crate) fn file(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The section that `more` gives the rest of.
    pub(crate) fn section(&self, more: &str) -> PolicySection {
        toml::from_str(more).unwrap()
    }

    pub(crate) fn policy(&self, more: &str) -> Result<Arc<Policy>, PolicyError> {
        Policy::open(&self.section(more), self.path())
    }

    /// An engine with this script as `test.lua`.
    pub(crate) fn script(&self, text: &str, more: &str) -> Result<Engine, PolicyError> {
        self.file("test.lua", text);
        self.engine(&format!("file = \"test.lua\"\n{more}"))
    }

    /// An engine of this section.
    pub(crate) fn engine(&self, section: &str) -> Result<Engine, PolicyError> {
        Engine::new(&self.policy(section)?, &self.around, 0)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

pub(crate) fn decide(engine: &mut Engine, now_ns: u64, questions: &[Question]) -> Vec<Answer> {
    let mut answers = Vec::new();
    engine.decide(now_ns, questions, &mut answers);
    answers
}

/// From 192.0.2.`source` to 198.51.100.1, a TCP SYN to port 80.
pub(crate) fn question(source: u8) -> Question {
    Question {
        protocol: 6,
        tcp_flags: 2,
        source_port: 40_000,
        destination_port: 80,
        length: 60,
        bytes: 60,
        ..Question::about(Addresses::V4 { src: 0xc000_0200 | u32::from(source), dst: 0xc633_6401 })
    }
}
