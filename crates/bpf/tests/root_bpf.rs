//! Programs on virtual cables: loading, maps, modes, other programs in the way, devices that go, pins, take-over, and what is said
//! when something is missing. Needs root; every test runs in namespaces of its own.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "../../port/tests/common/net.rs"]
mod net;

use net::{cable, cable_at, inside, run};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tidemill_bpf::{Attachment, Cursor, Front, Kernel, Mode, Object, Pins, Shared, Source, Verdict};

/// The mitigator's program: maps of all kinds. It drops nothing until it is told to.
static AMP: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../bpf/amp.bpf.o"),
    program: "tidemill_amp",
    minimum: Kernel(5, 11),
    layout: 1,
    shared: &[Shared { name: "rules4", key: 12, value: 24 }, Shared { name: "counts", key: 4, value: 8 }],
};
/// The program of AF_XDP ports: it passes everything until it is told to redirect.
static XSK: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../bpf/xsk.bpf.o"),
    program: "tidemill_xsk",
    minimum: Kernel(5, 9),
    layout: 1,
    shared: &[],
};

const PATIENCE: Duration = Duration::from_secs(2);
type Rules4 = ([u32; 3], [u64; 3]);

fn index(interface: &str) -> u32 {
    let text = Command::new("ip").args(["-o", "link", "show", interface]).output().unwrap().stdout;
    String::from_utf8(text).unwrap().split(':').next().unwrap().parse().unwrap()
}

fn load(source: &Source) -> Object {
    Object::load(source, &[], None).unwrap()
}

fn attach(object: &Object, mode: Mode) -> Result<Attachment, String> {
    let attachment = Attachment::attach(object, "left", index("left"), mode, Duration::ZERO, None);
    attachment.map_err(|error| error.to_string())
}

/// A BPF file system of this test's own.
fn bpf_fs() -> PathBuf {
    run("mount -t bpf bpf /sys/fs/bpf");
    PathBuf::from(Pins::ROOT)
}

#[test]
fn root_bpf_maps_are_written_and_read() {
    if !inside("root_bpf_maps_are_written_and_read") {
        return;
    }
    let mut object = Object::load(&AMP, &[("rules4", 20_000)], None).unwrap();
    let keys: Vec<[u32; 3]> = (0..30_000).map(|i| [i, i * 7, 9]).collect();
    let values: Vec<[u64; 3]> = (0..30_000).map(|i| [i, i + 1, i + 2]).collect();
    let mut table = object.table::<[u32; 3], [u64; 3]>("rules4").unwrap();
    assert_eq!(table.insert_many(&[], &[]), 0);
    assert_eq!(table.insert_many(&keys[..10_000], &values[..10_000]), 10_000);
    assert_eq!(table.insert_many(&keys[5_000..], &values[5_000..]), 15_000, "room for 20,000");
    assert_eq!(table.get(&keys[19_999]).unwrap(), Some(values[19_999]));
    assert_eq!(table.get(&keys[20_000]).unwrap(), None);
    let full = table.insert(&keys[20_000], &values[0]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(7), "{full}");
    // All of it comes back, in pages.
    let (mut seen, mut cursor, mut pages): (Vec<Rules4>, _, _) = (Vec::new(), Cursor::default(), 0);
    loop {
        let (next, done) = table.read_some(cursor, &mut seen).unwrap();
        (cursor, pages) = (next, pages + 1);
        if done {
            break;
        }
    }
    assert_eq!(cursor, Cursor::default());
    assert!(pages > 3, "{pages}");
    seen.sort_unstable();
    let there: Vec<Rules4> = keys.iter().copied().zip(values.iter().copied()).take(20_000).collect();
    assert!(seen == there, "{} entries", seen.len());
    // Every other one is removed, and of those asked for again only the rest is there.
    let even: Vec<[u32; 3]> = keys.iter().copied().step_by(2).take(10_000).collect();
    assert_eq!(table.remove_many(&even), 10_000);
    assert_eq!(table.remove_many(&keys), 10_000);
    assert_eq!((table.remove_many(&keys), table.remove(&keys[0]).unwrap()), (0, false));
    // What is no such map is an error.
    assert!(object.table::<[u32; 3], u64>("rules4").is_err(), "other values");
    assert!(object.table::<u32, u64>("counts").is_err(), "no hash table");
    assert!(object.array::<u64>("nothing").is_err());
    assert_eq!(object.sum("counts", 0).unwrap(), 0);
    assert!(object.sum("counts", 99).is_err());
    assert_eq!(object.run(&[0; 64], 1).unwrap().action, Verdict::PASS);
}

#[test]
fn root_bpf_one_program_at_a_time() {
    if !inside("root_bpf_one_program_at_a_time") {
        return;
    }
    cable("left", "right");
    let (first, second) = (load(&AMP), load(&XSK));
    for (mode, native) in [(Mode::Auto, true), (Mode::Native, true), (Mode::Generic, false)] {
        let attachment = attach(&first, mode).unwrap();
        assert_eq!((attachment.attached().native, attachment.attached().index), (native, index("left")));
        assert!(attachment.is_ours());
        let error = attach(&second, mode).unwrap_err();
        assert!(error.starts_with("another XDP program is on left: remove it"), "{error}");
        drop(attachment);
        drop(attach(&second, mode).unwrap());
    }
    // One that leaves meanwhile is waited for.
    let attachment = attach(&first, Mode::Auto).unwrap();
    let leaving = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(attachment);
    });
    let waited = Attachment::attach(&second, "left", index("left"), Mode::Auto, PATIENCE, None).unwrap();
    leaving.join().unwrap();
    // A device that goes takes its program along.
    run("ip link del left");
    assert!(!waited.is_ours());
    cable("left", "right");
    assert!(attach(&second, Mode::Native).unwrap().is_ours());
    let error =
        Attachment::attach(&second, "gone", 4242, Mode::Auto, PATIENCE, None).unwrap_err().to_string();
    assert!(error.starts_with("cannot attach the XDP program: "), "{error}");
    // A frame that does not fit into a page keeps the driver from taking one.
    run("ip link set left mtu 9000");
    run("ip link set right mtu 9000");
    let error = attach(&second, Mode::Native).unwrap_err();
    assert!(error.contains("mode = \"generic\" works with any"), "{error}");
    assert!(!attach(&second, Mode::Auto).unwrap().attached().native);
}

#[test]
fn root_bpf_a_device_with_the_number_of_one_before_is_another() {
    if !inside("root_bpf_a_device_with_the_number_of_one_before_is_another") {
        return;
    }
    cable("left", "right");
    let (number, front) = (index("left"), Front::new(load(&AMP), Mode::Auto, None));
    let attached = front.attach("left", number, PATIENCE).unwrap();
    assert_eq!((front.attached(), attached.index), (Some(attached), number));
    run("ip link del left");
    assert_eq!(front.attached(), None);
    cable_at(number, "left", "right");
    assert_eq!((index("left"), front.attached()), (number, None), "it is not on that one yet");
    assert_eq!(front.attach("left", number, PATIENCE).unwrap(), attached);
    assert_eq!(front.attached(), Some(attached));
    let error = attach(&load(&XSK), Mode::Auto).unwrap_err();
    assert!(error.starts_with("another XDP program is on left"), "{error}");
}

/// The other side of the tests below: a process that holds a pinned program until it is killed.
#[test]
fn root_bpf_holder() {
    let Some(layout) = std::env::var_os("TIDEMILL_HOLD") else { return };
    let source = Source { layout: layout.to_str().unwrap().parse().unwrap(), ..AMP };
    let pins = Pins::new(Path::new(Pins::ROOT), "test", source.layout).unwrap();
    let mut object = Object::load(&source, &[("rules4", 1000)], Some(&pins)).unwrap();
    object.table::<[u32; 3], [u64; 3]>("rules4").unwrap().insert(&[1, 2, 3], &[4, 5, 6]).unwrap();
    let front = Front::new(object, Mode::Auto, Some(pins));
    front.attach("left", index("left"), PATIENCE).unwrap();
    println!("holding");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

struct Holder(Child);

impl Holder {
    /// A process that has pinned its program.
    fn start(layout: u32) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "root_bpf_holder", "--nocapture"])
            .env("TIDEMILL_HOLD", layout.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("holding")), "the holder ended");
        std::thread::spawn(move || lines.for_each(drop));
        Holder(child)
    }

    /// Killed without a word.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Ends in order.
    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

fn left(root: &Path) -> Vec<(String, Option<(u32, bool)>)> {
    Pins::left(root).unwrap().into_iter().map(|left| (left.name, left.attached)).collect()
}

fn front(root: &Path, mode: Mode) -> Result<Front, String> {
    let pins = Pins::new(root, "test", AMP.layout).map_err(|error| error.to_string())?;
    let object = Object::load(&AMP, &[("rules4", 1000)], Some(&pins)).map_err(|error| error.to_string())?;
    let front = Front::new(object, mode, Some(pins));
    front.attach("left", index("left"), Duration::ZERO).map_err(|error| error.to_string())?;
    Ok(front)
}

fn rule(front: &Front) -> Option<[u64; 3]> {
    front.with(|object| object.table::<[u32; 3], [u64; 3]>("rules4").unwrap().get(&[1, 2, 3]).unwrap())
}

#[test]
fn root_bpf_a_killed_process_is_followed() {
    if !inside("root_bpf_a_killed_process_is_followed") {
        return;
    }
    cable("left", "right");
    let root = bpf_fs();
    assert_eq!(left(&root), []);
    // In order: nothing is left.
    Holder::start(1).end();
    assert_eq!(left(&root), []);
    // Killed: the program stays, with its maps, and the next one takes over.
    Holder::start(1).kill();
    assert_eq!(left(&root), [("test".to_owned(), Some((index("left"), true)))]);
    let error = attach(&load(&XSK), Mode::Auto).unwrap_err();
    assert!(error.contains("another XDP program is on left"), "{error}");
    let next = front(&root, Mode::Auto).unwrap();
    assert_eq!(rule(&next), Some([4, 5, 6]));
    drop(next);
    assert_eq!(left(&root), []);
    // Or somebody removes what is left.
    Holder::start(1).kill();
    assert!(Pins::remove(&root, "test").unwrap());
    assert!(!Pins::remove(&root, "test").unwrap());
    // The kernel takes its program off a moment later; on a busy machine that is a long one.
    let (other, most) = (load(&XSK), Duration::from_secs(10));
    drop(Attachment::attach(&other, "left", index("left"), Mode::Auto, most, None).unwrap());
    // Or the interface goes: maps stay for the next.
    Holder::start(1).kill();
    run("ip link del left");
    assert_eq!(left(&root), [("test".to_owned(), None)]);
    cable("left", "right");
    let next = front(&root, Mode::Generic).unwrap();
    assert_eq!(rule(&next), Some([4, 5, 6]));
    // It goes under a program that runs, too.
    run("ip link del left");
    cable("left", "right");
    assert!(!next.attach("left", index("left"), PATIENCE).unwrap().native);
    assert_eq!(
        (rule(&next), left(&root)),
        (Some([4, 5, 6]), vec![("test".to_owned(), Some((index("left"), false)))])
    );
}

#[test]
fn root_bpf_a_running_process_is_not_replaced() {
    if !inside("root_bpf_a_running_process_is_not_replaced") {
        return;
    }
    cable("left", "right");
    let root = bpf_fs();
    let there = [("test".to_owned(), Some((index("left"), true)))];
    let holder = Holder::start(1);
    let said = format!(
        "process {} works with what is pinned in {}/test: end it first",
        holder.0.id(),
        root.display()
    );
    for layout in [1, 2] {
        let error = Pins::new(&root, "test", layout).map(drop).unwrap_err().to_string();
        assert!(error.starts_with(&said), "{error}");
    }
    assert!(Pins::remove(&root, "test").unwrap_err().to_string().starts_with(&said));
    assert_eq!(left(&root), there);
    assert!(Pins::new(&root, "other", 1).is_ok(), "another name is free");
    assert!(Pins::remove(&root, "other").is_ok());
    holder.kill();
    // What does not fit is refused, and changes nothing.
    let error = front(&root, Mode::Generic).map(drop).unwrap_err();
    assert!(error.contains("is in native mode, not generic: remove it: rm "), "{error}");
    let pins = Pins::new(&root, "test", 2).unwrap();
    let error = Object::load(&AMP, &[], Some(&pins)).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("are of layout 1, and this program's of layout 2: start with what it was made for"),
        "{error}"
    );
    drop(pins);
    let pins = Pins::new(&root, "test", 1).unwrap();
    let error = Object::load(&AMP, &[("rules4", 7)], Some(&pins)).map(drop).unwrap_err().to_string();
    assert!(error.contains("values of 24 and 1000 entries, and this program's 12, 24 and 7"), "{error}");
    cable("third", "fourth");
    let object = Object::load(&AMP, &[("rules4", 1000)], Some(&pins)).unwrap();
    let elsewhere = Attachment::attach(&object, "third", index("third"), Mode::Auto, PATIENCE, Some(&pins));
    let error = elsewhere.map(drop).unwrap_err().to_string();
    assert!(error.contains("is on another interface than third, with the number"), "{error}");
    drop(pins);
    assert_eq!(left(&root), there);
    let next = front(&root, Mode::Auto).unwrap();
    assert_eq!(rule(&next), Some([4, 5, 6]));
    drop(next);
    assert_eq!(left(&root), []);
}

#[test]
fn root_bpf_a_program_in_front_goes_on_to_the_next() {
    if !inside("root_bpf_a_program_in_front_goes_on_to_the_next") {
        return;
    }
    let front = Arc::new(Front::new(load(&AMP), Mode::Auto, None));
    let next = load(&XSK);
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    let passed = || next.sum("counts", 0).unwrap();
    let ask = || front.with(|object| object.run(&frame, 1).unwrap().action);
    assert_eq!((ask(), passed()), (Verdict::PASS, 0));
    front.set_next(Some(&next.program_fd().unwrap())).unwrap();
    assert_eq!((ask(), passed()), (Verdict::PASS, 1), "it counts what it leaves to the kernel");
    front.set_next(None).unwrap();
    front.set_next(None).unwrap();
    assert_eq!((ask(), passed()), (Verdict::PASS, 1));
    let error = load(&XSK);
    let error = Front::new(error, Mode::Auto, None).set_next(None).unwrap_err().to_string();
    assert!(error.contains("no map \"next\""), "{error}");
}

/// The other side of the test below: a process that may nothing.
#[test]
fn root_bpf_without_rights() {
    if std::env::var_os("TIDEMILL_POWERLESS").is_some() {
        println!("said: {}", Object::load(&AMP, &[], None).map(drop).unwrap_err());
    }
}

#[test]
fn root_bpf_missing_rights_are_named() {
    if !inside("root_bpf_missing_rights_are_named") {
        return;
    }
    let said = |keep: &str| {
        let output = Command::new("setpriv")
            .args(["--inh-caps=-all", &format!("--bounding-set=-all{keep}"), "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "root_bpf_without_rights", "--nocapture"])
            .env("TIDEMILL_POWERLESS", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find_map(|line| Some(line.split_once("said: ")?.1.to_owned())).expect("an answer")
    };
    let text = said("");
    assert!(text.contains("lacks cap_net_admin, cap_bpf: run as root, or setcap "), "{text}");
    let text = said(",+net_admin");
    assert!(text.contains("lacks cap_bpf: run as root"), "{text}");
    // The lower half of what is needed to be told of an old kernel: one that wants a newer one, and fails for another reason.
    let broken = Source { object: &AMP.object[..64], minimum: Kernel(99, 0), ..AMP };
    let error = Object::load(&broken, &[], None).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("cannot read the XDP program: the XDP program needs Linux 99.0 or newer"),
        "{error}"
    );
}
