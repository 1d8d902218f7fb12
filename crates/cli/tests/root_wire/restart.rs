//! Kill -9 and restart: the router forwards again by its state image, with all that it had been told.

use crate::dut::Router;
use crate::lab::{Family, Lab, Owner, Plan};
use crate::net::wait_until;
use crate::traffic::Numbered;
use crate::{Kernel, Needs, turn};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidemill_control::schema::{self, path};
use tidemill_feed::synth::{self, SynthOptions};
use tidemill_feed::{FamilyChange, LoadOptions, SaveFormat, UpdateOptions, Updates};
use tidemill_lpm::{Address, Label, Prefix, Rib};
use tidemill_router::State;

/// Next hops of the tables here; all of them are the right host.
const NEXT_HOPS: u32 = 148;
const STATE: &str = "router.state";
/// Updates per second.
pub(crate) const UPDATES: u64 = 10_000;

/// A table and updates for it, in a folder for the router.
pub(crate) struct Input {
    folder: tempfile::TempDir,
    tables: Vec<PathBuf>,
    v4: Rib<u32>,
    v6: Rib<u128>,
}

impl Input {
    fn new(tables: Vec<PathBuf>, folder: tempfile::TempDir) -> Self {
        let paths: Vec<&Path> = tables.iter().map(PathBuf::as_path).collect();
        let table = tidemill_feed::load_all(&paths, &LoadOptions::default()).unwrap();
        Input { folder, tables, v4: table.v4, v6: table.v6 }
    }

    /// The same routes, for what is expected.
    fn copy(&self) -> Self {
        let (v4, v6) = (self.v4.clone(), self.v6.clone());
        Input { folder: tempfile::tempdir().unwrap(), tables: Vec::new(), v4, v6 }
    }

    /// The real table, or one of its size.
    fn full() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tables = match std::env::var_os("TIDEMILL_DATA") {
            Some(data) => ["v4", "v6"]
                .map(|family| Path::new(&data).join(format!("rib/ris-as3333-20260511.{family}.nh148.zst")))
                .into(),
            None => vec![make(folder.path(), &SynthOptions::default())],
        };
        Self::new(tables, folder)
    }

    pub(crate) fn small() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SynthOptions { v4: 20_000, v6: 2_000, ..SynthOptions::default() };
        let tables = vec![make(folder.path(), &options)];
        Self::new(tables, folder)
    }

    /// Writes an update file of so many seconds: routes of the table that move, go and come, and new ones.
    pub(crate) fn updates(&self, seconds: u64) {
        let prefixes: Vec<Prefix<u32>> = self.v4.iter().map(|(prefix, _)| prefix).step_by(17).collect();
        let mut text = String::new();
        for n in 0..seconds * UPDATES {
            let time = 1_700_000_000.0 + n as f64 / UPDATES as f64;
            let prefix = prefixes[(n as usize * 7919) % prefixes.len()];
            match n % 4 {
                0 => writeln!(text, "{time:.4} W {prefix} -").unwrap(),
                1 => {
                    let (a, b) = (n / 4 / 256 % 256, n / 4 % 256);
                    writeln!(text, "{time:.4} A 198.{}.{a}.{b}/32 {}", 18 + n / 262_144, 1 + n % 148)
                        .unwrap();
                }
                _ => writeln!(text, "{time:.4} A {prefix} {}", 1 + n % u64::from(NEXT_HOPS)).unwrap(),
            }
        }
        std::fs::write(self.folder.path().join("updates.txt"), text).unwrap();
    }

    /// The table after the first `taken` updates of the file in a folder.
    fn after(&self, folder: &Path, taken: u64) -> Rib<u32> {
        let labels = tidemill_feed::Labels::numbers(NEXT_HOPS);
        let updates = Updates::open(&folder.join("updates.txt"), labels, UpdateOptions::default()).unwrap();
        let mut rib = self.v4.clone();
        for update in updates.take(taken as usize) {
            match update.unwrap().change {
                FamilyChange::V4(change) => rib.apply(&change),
                FamilyChange::V6(_) => panic!("the updates are IPv4"),
            };
        }
        rib
    }

    pub(crate) fn plan(self, every: f64, updates: bool) -> Plan {
        let mut text = format!(
            "[state]\npath = \"{STATE}\"\nevery = {every}\n[table]\npath = {:?}\n",
            self.tables.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        );
        if updates {
            text += "[updates]\npath = \"updates.txt\"\nspeed = 1.0\n";
        }
        for label in 1..=NEXT_HOPS {
            writeln!(text, "[[next_hop]]\nlabel = {label}\nvia = \"10.2.0.2\"").unwrap();
        }
        Plan::two_hosts().config(&text).folder(self.folder)
    }

    /// An address to which a route of the table leads that no update touches.
    pub(crate) fn destination(&self) -> String {
        let mut routes =
            self.v4.iter().enumerate().filter(|(n, (prefix, _))| n % 17 == 3 && prefix.len() == 24);
        let first = routes.next().unwrap().1.0.first();
        std::net::Ipv4Addr::from(first | 1).to_string()
    }

    /// One of IPv6, which no update touches; not in the blocks that have a meaning of their own (2001::/16, 2002::/16).
    fn destination6(&self) -> String {
        let mut routes = self.v6.iter().map(|(prefix, _)| prefix);
        let route = routes.find(|route| route.len() == 48 && route.first() >> 112 > 0x2002).unwrap();
        std::net::Ipv6Addr::from(route.first() | 1).to_string()
    }
}

fn make(folder: &Path, options: &SynthOptions) -> PathBuf {
    let path = folder.join("table.txt");
    let made = synth::table(options).unwrap();
    tidemill_feed::save(&path, &made.v4, &made.v6, &made.labels, SaveFormat::Text).unwrap();
    path
}

/// The image in the router's folder: sound, whatever happened.
pub(crate) fn image(router: &Router) -> (State, u64) {
    let bytes = std::fs::read(router.file(STATE)).unwrap();
    let state = State::decode(&bytes).unwrap_or_else(|error| panic!("a bad image: {error}"));
    let origin: serde_json::Value = serde_json::from_slice(&state.origin).unwrap();
    let taken = origin["taken"].as_u64().unwrap();
    (state, taken)
}

fn assert_same<A: Address>(image: &[(Prefix<A>, Label)], rib: &Rib<A>) {
    let wrong = image.iter().copied().zip(rib.iter()).find(|(a, b)| a != b);
    assert_eq!((image.len(), wrong), (rib.len(), None));
}

fn saves(lab: &Lab) -> u64 {
    lab.router.get::<schema::StateFile>(path::STATE).unwrap().saves
}

/// Seconds from the kill to the first packet: 2 is what the release build is held to (`cargo xtask held 6`).
const MOST_S: u64 = if cfg!(debug_assertions) { 10 } else { 2 };

#[test]
fn root_restart_full_table() {
    let Some(turn) = turn("root_restart_full_table", Needs::Machine, Kernel::Cannot) else { return };
    let input = Input::full();
    input.updates(40);
    let (expected, destination, destination6) = (input.copy(), input.destination(), input.destination6());
    let mut lab = input.plan(2.0, true).build(turn.dut);
    lab.right().add_address(&format!("{destination}/32"), "lo");
    lab.right().add_address(&format!("{destination6}/128"), "lo");
    let added = |n: u32| format!("10.60.{n}.0/24");
    for n in 0..20 {
        lab.router.add_route(&added(n), "10.2.0.2");
    }
    lab.router.delete_route(&added(7));
    println!("{:?}", lab.router.post(path::STATE).done);
    let there = Numbered::start(lab.left(), lab.right(), destination.parse().unwrap(), 4, 1000, 64);
    let there6 = Numbered::start(lab.left(), lab.right(), destination6.parse().unwrap(), 4, 1000, 64);
    let back = Numbered::start(lab.right(), lab.left(), lab.address("left", Family::V4), 4, 1000, 64);
    // Once more by itself, while updates are applied.
    let before = saves(&lab);
    wait_until("the state is saved again", Duration::from_secs(60), || saves(&lab) > before);

    lab.router.kill();
    let (state, taken) = image(&lab.router);
    assert!(taken > 0 && state.added.len() == 19, "{taken} {}", state.added.len());
    assert_same(&state.v4, &expected.after(&lab.router.file(""), taken));
    assert_same(&state.v6, &expected.v6);
    let start = Instant::now();
    lab.router.start_again(None);
    lab.router.answers();
    println!("answers {} ms after the restart, which was with {taken} updates", start.elapsed().as_millis());
    let count = lab.router.prefixes(Family::V4);
    assert!(count > 900_000, "{count} prefixes");
    for n in 0..20 {
        let routes = lab.router.routes_to(&added(n));
        assert_eq!(
            routes.iter().filter(|route| route.source == "static").count(),
            usize::from(n != 7),
            "{n}"
        );
    }
    let said = lab.router.log();
    assert!(said.contains("state image router.state") && !said.contains("warning: state"), "{said}");
    std::thread::sleep(Duration::from_secs(3));
    // That packets arrive again at all is not in the gap: one that never ends is none.
    for to in [&destination, &destination6] {
        crate::basic::ping(lab.left(), to.parse().unwrap(), "", 0);
    }
    for (name, stream) in [("there", there), ("there, IPv6", there6), ("back", back)] {
        let arrived = stream.finish();
        println!("{name}: nothing arrived for {} ms", arrived.gap.as_millis());
        assert!(arrived.gap < Duration::from_secs(MOST_S), "{name}: {arrived:?}");
        // Nobody else forwards while it is away.
        assert!(arrived.gap > Duration::from_millis(5), "{name}: {arrived:?}");
        assert!(arrived.received > 2000, "{name}: {arrived:?}");
        assert!(arrived.sent - arrived.received < 1000 * MOST_S, "{name}: {arrived:?}");
    }
    // The updates go on where they were: in the end the table is as if nothing had been.
    let all = 40 * UPDATES;
    wait_until("all updates have been applied", Duration::from_secs(90), || {
        lab.router.post(path::STATE);
        image(&lab.router).1 == all
    });
    assert_same(&image(&lab.router).0.v4, &expected.after(&lab.router.file(""), all));
    lab.finish();
}

/// Killed at any moment, mostly while it writes: the image is the last one or the new one, and says what it says it is.
#[test]
fn root_restart_any_moment() {
    let Some(turn) = turn("root_restart_any_moment", Needs::Machine, Kernel::Cannot) else { return };
    let input = Input::small();
    input.updates(60);
    let expected = input.copy();
    let mut lab = input.plan(0.1, true).build(turn.dut);
    wait_until("there is an image", Duration::from_secs(20), || saves(&lab) > 0);
    let mut last = 0;
    for round in 0..25_u64 {
        // Some of the delays end while an image is made, others while it is written.
        std::thread::sleep(Duration::from_millis(round * 37 % 230));
        lab.router.kill();
        let (state, taken) = image(&lab.router);
        assert!(taken >= last, "round {round}: {taken} updates after {last}");
        assert_same(&state.v4, &expected.after(&lab.router.file(""), taken));
        last = taken;
        lab.router.start_again(None);
        lab.router.answers();
        let said = lab.router.log();
        assert!(said.contains("state image") && !said.contains("warning: state image"), "{said}");
    }
    assert!(last > 0, "no image was written in all that time");
    lab.finish();
}

/// Starts again and gives the log.
fn again(lab: &mut Lab, config: Option<&str>) -> String {
    lab.router.start_again(config);
    lab.router.answers();
    lab.router.log()
}

#[test]
fn root_restart_changed_files() {
    let Some(turn) = turn("root_restart_changed_files", Needs::Little, Kernel::Cannot) else { return };
    let input = Input::small();
    let table = input.tables[0].clone();
    let plan = input.plan(0.0, false);
    let text = plan.text();
    let mut lab = plan.build(turn.dut);
    lab.router.add_route("10.61.0.0/16", "10.2.0.2");
    lab.router.post(path::STATE);
    let before = image(&lab.router).0.v4.len();
    lab.router.kill();

    // Another file of the same name: first the old routes, then the new ones; what the API added stays.
    let old = std::fs::read_to_string(&table).unwrap();
    let gone = old.lines().nth(5).unwrap().split_whitespace().next().unwrap().to_owned();
    let new: String = old
        .lines()
        .filter(|line| line.split_whitespace().next() != Some(&gone))
        .fold(String::from("198.51.100.0/25 7\n"), |text, line| text + line + "\n");
    let rows = new.lines().count();
    assert_eq!(rows, old.lines().count(), "{gone}: one goes, one comes");
    std::fs::write(&table, &new).unwrap();
    let said = again(&mut lab, None);
    assert!(said.contains("the files of its routes have changed"), "{said}");
    wait_until("the new file has been read", Duration::from_secs(20), || {
        lab.router.log().contains("the table's files have been read")
    });
    assert!(lab.router.log().contains("2 routes are others now"), "{}", lab.router.log());
    assert!(lab.router.routes_to(&gone).iter().all(|route| route.source != "table"));
    assert_eq!(lab.router.routes_to("198.51.100.0/25").len(), 1);
    assert_eq!(lab.router.routes_to("10.61.0.0/16").len(), 1);
    // The image of these routes is the new file's.
    lab.router.post(path::STATE);
    lab.router.kill();
    let said = again(&mut lab, None);
    assert!(said.contains("state image") && !said.contains("changed"), "{said}");
    assert_eq!(image(&lab.router).0.v4.len(), before);
    lab.router.kill();

    // A configuration without the table: what was learnt otherwise is there.
    let (before_it, behind) = text.split_once("[table]\n").unwrap();
    let without = before_it.to_owned() + behind.split_once('\n').unwrap().1;
    let said = again(&mut lab, Some(&without));
    assert!(said.contains("its table is another than the configuration's"), "{said}");
    assert!(lab.router.prefixes(Family::V4) < 20);
    assert_eq!(lab.router.routes_to("10.61.0.0/16").len(), 1);
    lab.router.kill();

    // Damaged, cut off: said in one line, and the start is a normal one.
    let bytes = std::fs::read(lab.router.file(STATE)).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 4;
    let mut later = bytes.clone();
    later[12] += 1;
    for (what, bad) in [
        ("the file is damaged", &flipped[..]),
        ("is complete", &bytes[..bytes.len() / 3]),
        ("image format version", &later),
        ("ends at byte 0", b""),
    ] {
        std::fs::write(lab.router.file(STATE), bad).unwrap();
        let said = again(&mut lab, Some(&text));
        let line = said
            .lines()
            .find(|line| line.contains("warning: state image"))
            .unwrap_or_else(|| panic!("{said}"));
        assert!(line.contains(what) && line.contains("starting without it"), "{line}");
        assert!(lab.router.prefixes(Family::V4) >= before, "{what}");
        assert!(lab.router.routes_to("10.61.0.0/16").is_empty());
        lab.router.kill();
    }
    let _ = again(&mut lab, Some(&text));
    lab.finish();
}

/// The kernel's routes of the life before count until the kernel has named its own.
#[test]
fn root_restart_kernel_routes() {
    let Some(turn) = turn("root_restart_kernel_routes", Needs::Little, Kernel::Cannot) else { return };
    let plan = Plan::two_hosts()
        .owner(Owner::Kernel)
        .config(&format!("[kernel]\nroutes = true\n[state]\npath = \"{STATE}\"\nevery = 0\n"));
    let mut lab = plan.build(turn.dut);
    let route = |lab: &Lab, line: &str| drop(lab.router.ns.run(&format!("ip route {line}")));
    for n in 0..10 {
        route(&lab, &format!("add 10.70.{n}.0/24 via 10.2.0.2"));
    }
    route(&lab, "add 10.71.0.0/16 nexthop via 10.1.0.2 weight 1 nexthop via 10.2.0.2 weight 3");
    let kernel = |lab: &Lab, prefix: &str| {
        lab.router.routes_to(prefix).iter().filter(|route| route.source == "kernel").count()
    };
    wait_until("the kernel's routes are there", Duration::from_secs(5), || {
        kernel(&lab, "10.71.0.0/16") == 1 && kernel(&lab, "10.70.9.0/24") == 1
    });
    lab.router.post(path::STATE);
    lab.router.kill();
    let (state, _) = image(&lab.router);
    let saved: usize = state.resumed.kernel.iter().map(|routes| routes.v4.len()).sum();
    assert!(saved >= 11, "{saved}");

    // While it was dead, one route went and one came.
    route(&lab, "del 10.70.3.0/24");
    route(&lab, "add 10.72.0.0/16 via 10.1.0.2");
    let said = again(&mut lab, None);
    assert!(said.contains("of the kernel"), "{said}");
    wait_until("we have what the kernel has", Duration::from_secs(5), || {
        kernel(&lab, "10.72.0.0/16") == 1 && kernel(&lab, "10.70.3.0/24") == 0
    });
    let gone = "1 of the kernel's routes in the state image are no more";
    wait_until(gone, Duration::from_secs(5), || lab.router.log().contains(gone));
    assert_eq!((0..10).filter(|n| kernel(&lab, &format!("10.70.{n}.0/24")) == 1).count(), 9);
    assert_eq!(lab.router.routes_to("10.71.0.0/16")[0].next_hops.len(), 2);
    lab.finish();
}
