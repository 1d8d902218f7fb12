//! What is said before anything goes wrong: ways to memcached that cannot be seen, maps of another version's; and what the kernel's verifier had to do.

use crate::lab::{Lab, passing_on, ready};
use crate::net::run;
use rustix::io::{FdFlags, fcntl_setfd};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tidemill_bpf::Pins;
use tidemill_kv::kernel::{Cache, Options, detach};

const A: &str = "VALUE v 0 1\r\na\r\nEND\r\n";

/// A memcached that ends with its value.
struct Memcached(Child);

impl Memcached {
    /// `is_there` says that it listens.
    fn start(arguments: &str, is_there: impl Fn() -> bool) -> Self {
        let mut command = Command::new("memcached");
        let own = Memcached(command.args(["-u", "root"]).args(arguments.split(' ')).spawn().unwrap());
        let started = Instant::now();
        while !is_there() {
            assert!(started.elapsed() < Duration::from_secs(10), "memcached {arguments} does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        own
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_kernel_unix_sockets_cannot_be_seen() {
    if !ready("told::root_kernel_unix_sockets_cannot_be_seen") {
        return;
    }
    run("mount -t bpf bpf /sys/fs/bpf");
    run("ip link set lo up");
    let [alone, beside] = ["alone", "beside"].map(|name| {
        let path = std::env::temp_dir().join(format!("tidemill-kv-{name}-{}", std::process::id()));
        path.display().to_string()
    });
    let mut options = Options::new(&["lo"], 1);
    options.memory = 4 << 20;
    // memcached takes either a Unix socket or ports (1.6.18). Alone:
    let _alone = Memcached::start(&format!("-s {alone}"), || UnixStream::connect(&alone).is_ok());
    let error = Cache::attach(&options).err().map(|error| error.to_string()).unwrap();
    assert!(
        error.starts_with("no memcached listens on TCP port 11211 here")
            && error.contains(&format!("listens at {alone}, where what reaches it cannot be seen"))
            && error.contains("without -s"),
        "{error}"
    );
    // With ports, and one that whoever has started it has handed to it.
    let start = || {
        let listener = UnixListener::bind(&beside).unwrap();
        fcntl_setfd(&listener, FdFlags::empty()).unwrap();
        let ports = "-p 11211 -U 11211 -l 127.0.0.1";
        let memcached = Memcached::start(ports, || TcpStream::connect("127.0.0.1:11211").is_ok());
        std::fs::remove_file(&beside).unwrap();
        memcached
    };
    let told = format!("what reaches memcached by {beside} cannot be seen");
    let memcached = start();
    let mut cache = Cache::attach(&options).unwrap();
    let said = cache.describe();
    assert!(said.contains(&told), "{said:?}");
    assert!(!said.iter().any(|line| line.contains(&alone)), "that one is another's: {said:?}");
    // Another one is looked at as well.
    drop(memcached);
    let mut notes = Vec::new();
    let mut until = |cache: &mut Cache, note: &str| {
        let started = Instant::now();
        while !notes.iter().any(|said: &String| said.contains(note)) {
            assert!(started.elapsed() < Duration::from_secs(10), "{note}: {notes:?}");
            cache.round().unwrap();
            notes.extend(cache.take_notes());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    until(&mut cache, "memcached has ended");
    let _memcached = start();
    until(&mut cache, &told);
    std::fs::remove_file(&alone).unwrap();
}

/// Steps of the verifier's at most, of the million that it may take; kernels differ in how they count.
const MOST_STEPS: [(&str, u32); 3] =
    [("tidemill_kv", 500_000), ("tidemill_kv_out", 100_000), ("tidemill_kv_read", 1_000)];

/// What KERNEL.md says of them, in this order.
fn stated() -> Vec<u32> {
    let text = include_str!("../../KERNEL.md");
    let rest = text.split("Verified (Linux 6.18): ").nth(1).unwrap();
    let words = rest.split(" (").next().unwrap().split(' ');
    words.filter_map(|word| word.replace(',', "").parse().ok()).collect()
}

#[test]
fn root_kernel_what_the_verifier_has_to_do() {
    if !ready("told::root_kernel_what_the_verifier_has_to_do") {
        return;
    }
    // That they are loaded shows the rest: with 512 bytes of stack or more in any chain of calls they are refused.
    let lab = Lab::new(&["server"]);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let (release, stated) = (release.trim(), stated());
    assert_eq!(stated.len(), MOST_STEPS.len(), "KERNEL.md: {stated:?}");
    for ((program, most), stated) in MOST_STEPS.into_iter().zip(stated) {
        let steps = lab.cache.object().verified_steps(program).unwrap().unwrap();
        println!("verifier, Linux {release}: {program} {steps} steps");
        assert!(
            steps <= most && stated <= most,
            "{program}: {steps} steps, KERNEL.md {stated}, at most {most}"
        );
        // By the kernel that KERNEL.md speaks of they are what it says.
        let is_near = steps.abs_diff(stated) <= stated / 10;
        assert!(is_near || !release.starts_with("6.18."), "{program}: {steps} steps, KERNEL.md {stated}");
    }
}

#[test]
fn root_kernel_maps_of_another_version_are_refused_and_left() {
    if !ready("told::root_kernel_maps_of_another_version_are_refused_and_left") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    lab.tcp("set v 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("v", A);
    let before = lab.cache.slot(b"v").0;
    let left = lab.leave();
    let root = Path::new(Pins::ROOT);
    let [own, older] = ["layout-8", "layout-7"].map(|layout| root.join("kv").join(layout));
    // As the version before has left its own.
    std::fs::rename(&own, &older).unwrap();
    let said = left.refused(|_| {});
    assert_eq!(
        said,
        "what is pinned as \"kv\" was left by another version (its maps are of layout 7, this one's of layout 8): detach it first \
         (tidemill kv detach --name kv), or take another --name"
    );
    assert!(older.join("kv_state").exists() && !own.exists());
    assert_eq!(left.refused(|_| {}), said, "it is still there");
    // By that version it goes on: all is as it was.
    std::fs::rename(&older, &own).unwrap();
    let mut lab = left.attach_again();
    assert_eq!((lab.cache.blind(), lab.cache.slot(b"v").0), (0, before));
    lab.until_hit("v", A);
    // What is said to be done can be done.
    let left = lab.leave();
    std::fs::rename(&own, &older).unwrap();
    assert!(detach(root, "kv").unwrap());
    // Another program's pins are left as they are, too.
    run("ip link add other type veth peer name nobody");
    run("ip link set other up");
    let pins = Pins::new(root, "edge", 1).unwrap();
    let (object, attachment) = passing_on("other", Some(&pins));
    attachment.leave();
    pins.leave();
    drop(object);
    let said = left.refused(|options| options.name = "edge".to_owned());
    assert_eq!(said, "what is pinned as \"edge\" is no cache: take another --name");
    assert!(Pins::left(root).unwrap().iter().any(|left| left.name == "edge" && left.attached.is_some()));
    let mut lab = left.attach_again();
    lab.reconnect();
    lab.wait("connections from before", |lab| lab.cache.blind() == 0);
    lab.until_hit("v", A);
}
