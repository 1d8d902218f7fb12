//! On files that are made up, as the kernel writes them.

use super::power::tests::zone;
use super::*;
use std::fs;

/// Three seconds up, two down.
pub(crate) const RULES: &str =
    "up = { cpu = 60, watts = 50, ms = 3000 }\ndown = { cpu = 30, watts = 45, gets = 1000, ms = 2000 }\n";

/// A machine's files.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
    /// In ticks, and microjoules.
    busy: u64,
    idle: u64,
    energy_uj: u64,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        let machine = Machine { folder, busy: 1000, idle: 1000, energy_uj: 1000 };
        machine.show();
        machine
    }

    fn show(&self) {
        let text = format!("cpu  {} 0 0 {} 0 0 0 0 0 0\n", self.busy, self.idle);
        fs::write(self.folder.path().join("proc/stat"), text).unwrap();
        zone(&self.folder.path().join("powercap"), "intel-rapl:0", "package-0", self.energy_uj);
    }

    /// A second passes, with so much done.
    pub(crate) fn second(&mut self, percent: u64, watts: u64) {
        self.busy += percent;
        self.idle += 100 - percent;
        self.energy_uj += watts * 1_000_000;
        self.show();
    }

    fn at(&self, toml: &str, powercap: &str) -> Host {
        let rules = HostRules::new(&toml::from_str(toml).unwrap()).unwrap();
        let path = self.folder.path();
        Host::at(&rules, &path.join("proc"), &path.join(powercap))
    }

    pub(crate) fn host(&self, toml: &str) -> Host {
        self.at(toml, "powercap")
    }
}

/// A host with its machine, the cache's counters, and time.
struct World {
    machine: Machine,
    host: Host,
    counters: Counters,
    now_ns: u64,
}

impl World {
    fn new(toml: &str, powercap: &str) -> Self {
        let machine = Machine::new();
        let host = machine.at(toml, powercap);
        let mut world = World { machine, host, counters: Counters::default(), now_ns: 7 };
        assert!(!world.turn(), "it begins with memcached");
        world
    }

    fn turn(&mut self) -> bool {
        self.now_ns += SAMPLE_NS;
        assert!(self.host.is_due(self.now_ns));
        let answers = self.host.turn(self.now_ns, &self.counters);
        assert!(!self.host.is_due(self.now_ns + SAMPLE_NS - 1));
        answers
    }

    /// As [`Machine::second`], with gets that memcached answers, and that the cache does.
    fn second(&mut self, percent: u64, watts: u64, [left, hits]: [u64; 2]) -> bool {
        self.machine.second(percent, watts);
        self.counters.add(Counter::Resting, left);
        self.counters.add(Counter::HitL1, hits);
        self.turn()
    }

    fn notes(&mut self) -> Vec<String> {
        self.host.notes().collect()
    }

    fn shown(&mut self, counter: Counter) -> u64 {
        self.host.show(&mut self.counters);
        self.counters.get(counter)
    }
}

#[test]
fn what_it_reads_decides_and_is_said() {
    let mut world = World::new(RULES, "powercap");
    assert_eq!([(); 3].map(|()| world.second(90, 70, [20_000, 0])), [false, false, true]);
    let said = "kvcache: the cache answers: the machine's processors are busy to 90 %, 70.0 W (RAPL), \
        20000 gets a second, means over 3 s";
    assert_eq!(world.notes(), [said]);
    // It has nothing to do because the cache answers.
    assert_eq!([(); 10].map(|()| world.second(5, 40, [0, 20_000])), [true; 10]);
    assert_eq!([(); 2].map(|()| world.second(5, 40, [3, 7])), [true, false]);
    let said = "kvcache: memcached answers: the machine's processors are busy to 5 %, 40.0 W (RAPL), \
        10 gets a second, means over 2 s";
    assert_eq!(world.notes(), [said]);
    let counters = [Counter::HostRead, Counter::HostUnread, Counter::HostCpu, Counter::HostWatts];
    assert_eq!(counters.map(|counter| world.shown(counter)), [15, 0, 5, 40]);
    assert_eq!(world.shown(Counter::HostGets), 10);
}

#[test]
fn what_cannot_be_read_changes_nothing_and_is_said_once() {
    let mut world = World::new(RULES, "powercap");
    assert_eq!([(); 3].map(|()| world.second(90, 70, [20_000, 0])), [false, false, true]);
    fs::remove_file(world.machine.folder.path().join("proc/stat")).unwrap();
    assert_eq!([(); 50].map(|()| world.turn()), [true; 50]);
    let notes = world.notes();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[1].starts_with("warning: kvcache.on_demand_host: ") && notes[1].contains("proc/stat"));
    assert_eq!((world.shown(Counter::HostUnread), world.shown(Counter::HostRead)), (50, 3));
    // Two new readings, for what was before says nothing of now.
    assert_eq!([(); 2].map(|()| world.second(5, 40, [0, 0])), [true, false]);
}

#[test]
fn without_rapl_watts_are_the_models_by_what_memcached_answers() {
    let mut world = World::new(RULES, "none");
    let notes = world.notes();
    assert!(
        notes.len() == 1 && notes[0].contains("no RAPL (") && notes[0].contains("the model's"),
        "{notes:?}"
    );
    // 42 W, however busy it is; then 61, which make the mean of three at the second reading.
    assert_eq!([(); 10].map(|()| world.second(90, 0, [1000, 0])), [false; 10]);
    assert_eq!([(); 3].map(|()| world.second(90, 0, [100_000, 0])), [false, true, true]);
    let notes = world.notes();
    assert!(notes[0].contains(" W (model), 67000 gets a second"), "{notes:?}");
    // The cache's own are none of its watts.
    world.second(5, 0, [0, 100_000]);
    assert_eq!(world.shown(Counter::HostWatts), 39);
}

/// What could be answered, and goes on so that memcached hears of its key, is work of memcached's as any other.
#[test]
fn gets_that_refresh_are_counted() {
    let mut world = World::new(RULES, "none");
    world.counters.add(Counter::Refresh, 100_000);
    assert!(!world.second(5, 0, [0, 0]));
    assert_eq!(world.shown(Counter::HostGets), 100_000);
    assert!(world.shown(Counter::HostWatts) > 60);
}

#[test]
fn without_watts_power_is_not_looked_at() {
    let mut world =
        World::new("up = { cpu = 60, ms = 1000 }\ndown = { cpu = 30, gets = 1000, ms = 1000 }", "none");
    assert!(world.second(90, 0, [5, 0]) && !world.second(5, 0, [5, 0]));
    let notes = world.notes();
    assert_eq!(
        notes[0],
        "kvcache: the cache answers: the machine's processors are busy to 90 %, 5 gets a second, means over 1 s"
    );
    assert_eq!(notes.len(), 2);
}

#[test]
fn what_makes_no_sense_is_said_with_its_place() {
    let error = |toml: &str| {
        let section: OnDemandHostSection = toml::from_str(toml).unwrap();
        HostRules::new(&section).map_or_else(|error| error.to_string(), |_| String::new())
    };
    assert_eq!(error(RULES), "");
    let with = |from: &str, to: &str| {
        assert!(RULES.contains(from));
        error(&RULES.replace(from, to))
    };
    for (from, to, said) in [
        ("cpu = 60", "cpu = 100", "up.cpu: 100: give 2 to 99"),
        ("cpu = 30", "cpu = 60", "down.cpu: 60: give 1 to 59"),
        ("watts = 45", "watts = 50", "down.watts: 50: give 1 to 49"),
        ("watts = 45, ", "", "down.watts: there are none, and on_demand_host.up has some"),
        ("watts = 50, ", "", "up.watts: there are none, and on_demand_host.down has some"),
        ("gets = 1000", "gets = 0", "down.gets: 0: give 1 to"),
        ("ms = 3000", "ms = 999", "up.ms: 999: give 1000 to 600000"),
        ("ms = 3000", "ms = 1500", "up.ms: 1500: the host is read once a second: give thousands"),
        ("ms = 2000", "ms = 600001", "down.ms: 600001: give 1000 to 600000"),
    ] {
        let error = with(from, to);
        assert!(error.starts_with(&format!("kvcache.on_demand_host.{said}")), "{to}: {error}");
    }
    let named = |name: &str| error(&format!("{}process = '{name}'", RULES.replace("cpu = 60", "cpu = 1600")));
    assert_eq!(named("memcached"), "", "percent of one processor");
    for name in ["", "memcached-for-the-shop"] {
        assert!(named(name).starts_with("kvcache.on_demand_host.process: "), "{name:?}: {}", named(name));
    }
}
