//! One process after another: killed or ended in order, and followed while traffic flows; never two at once. What is pinned goes when somebody removes it.

use crate::net::{cable, inside, run};
use crate::packets::{plain, tuple};
use crate::{End, KINDS, MINUTE_NS, filtered, settings, through};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_amp::Tuple;
use tidemill_amp::offload::xdp::{XdpOffload, XdpOptions};
use tidemill_amp::offload::{Offload, OffloadSettings, RuleEvent};
use tidemill_bpf::Pins;

fn options() -> XdpOptions {
    XdpOptions { pin: Some("right".to_owned()), entries: 1000, ..XdpOptions::new("right") }
}

fn rule(n: u16) -> Tuple {
    tuple("198.51.100.7", 53, "192.0.2.1", n)
}

/// The other side of the tests: a process with rules 0 to 9 in the driver, until it is killed or told to end.
#[test]
fn root_amp_xdp_holder() {
    if std::env::var_os("TIDEMILL_HOLD").is_none() {
        return;
    }
    let mut xdp = XdpOffload::open(&options()).unwrap();
    xdp.configure(&settings()).unwrap();
    let events: Vec<RuleEvent> = (0..10).map(|n| filtered(rule(n), 100 + MINUTE_NS)).collect();
    xdp.apply(100, &events, &|_| true);
    println!("holding");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

struct Holder(Child);

impl Holder {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "upgrade::root_amp_xdp_holder", "--nocapture"])
            .env("TIDEMILL_HOLD", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("holding")), "the holder ended");
        std::thread::spawn(move || lines.for_each(drop));
        Holder(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// In order, as by SIGTERM.
    fn end(&mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// By hand, as `tidemill amp pins --remove` does it.
fn remove() {
    assert!(Pins::remove(Path::new(Pins::ROOT), "right").unwrap());
    assert_eq!(Pins::left(Path::new(Pins::ROOT)).unwrap(), []);
    // The kernel takes the program off a moment later; on a busy machine that is a long one.
    let is_on = || {
        let shown = Command::new("ip").args(["link", "show", "right"]).output().unwrap().stdout;
        String::from_utf8_lossy(&shown).contains("xdp")
    };
    let started = Instant::now();
    while is_on() && started.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn root_amp_xdp_goes_on_when_its_process_ends() {
    if !inside("upgrade::root_amp_xdp_goes_on_when_its_process_ends") {
        return;
    }
    run("mount -t bpf bpf /sys/fs/bpf");
    for kind in KINDS {
        cable("left", "right");
        let (mut left, mut right) = (End::new("left", KINDS[0], None), End::new("right", KINDS[0], None));
        let frames: Vec<_> = (0..20).map(|n| plain(&rule(n))).collect();
        let mut come = |left: &mut End, wanted: usize| through(left, &mut right, &frames, wanted).len();
        let mut holder = Holder::start();
        assert_eq!(come(&mut left, 10), 10);
        holder.end();
        assert_eq!(come(&mut left, 10), 10, "an upgrade: nobody is there, and it drops on");
        assert_eq!(Pins::left(Path::new(Pins::ROOT)).unwrap()[0].process, None);
        // The next one, with a port of whatever kind behind it, takes them on, and leaves them likewise.
        let now = 77_000_000_000;
        let mut xdp = XdpOffload::open(&options()).unwrap();
        let port = End::new("right", kind, Some(&xdp));
        xdp.configure(&settings()).unwrap();
        assert_eq!(xdp.adopted(now).len(), 10);
        drop(xdp);
        drop(port);
        assert_eq!(come(&mut left, 10), 10, "{kind}");
        // A start that fails leaves what was there.
        let mut xdp = XdpOffload::open(&XdpOptions { interface: "nowhere".into(), ..options() }).unwrap();
        assert!(xdp.configure(&settings()).is_err());
        drop(xdp);
        assert_eq!(come(&mut left, 10), 10);
        remove();
        assert_eq!(come(&mut left, 20), 20);
        // One that has never been in force leaves nothing.
        let mut xdp = XdpOffload::open(&XdpOptions { interface: "nowhere".into(), ..options() }).unwrap();
        assert!(xdp.configure(&settings()).is_err());
        drop(xdp);
        assert_eq!(Pins::left(Path::new(Pins::ROOT)).unwrap(), []);
        run("ip link del left");
    }
}

#[test]
fn root_amp_xdp_goes_on_when_its_process_is_killed() {
    if !inside("upgrade::root_amp_xdp_goes_on_when_its_process_is_killed") {
        return;
    }
    run("mount -t bpf bpf /sys/fs/bpf");
    cable("left", "right");
    let (mut left, mut right) = (End::new("left", KINDS[0], None), End::new("right", KINDS[0], None));
    let frames: Vec<_> = (0..20).map(|n| plain(&rule(n))).collect();
    let mut come = |left: &mut End, wanted: usize| through(left, &mut right, &frames, wanted).len();
    assert_eq!(come(&mut left, 20), 20);
    let mut holder = Holder::start();
    assert_eq!(come(&mut left, 10), 10);
    holder.kill();
    assert_eq!(come(&mut left, 10), 10, "nobody is there, and it drops on");
    // Whoever comes next knows what was there, lifts a rule of it, adds one of its own, and counts from zero.
    let mut xdp = XdpOffload::open(&options()).unwrap();
    xdp.configure(&settings()).unwrap();
    let now = 77_000_000_000;
    assert_eq!((xdp.counters().rules, xdp.counters().dropped.packets), (10, 0));
    let mut adopted = xdp.adopted(now);
    adopted.sort_unstable();
    assert_eq!(
        adopted.iter().map(|(tuple, _)| *tuple).collect::<Vec<_>>(),
        (0..10).map(rule).collect::<Vec<_>>()
    );
    assert!(
        adopted.iter().all(|(_, end)| (now + MINUTE_NS / 2..=now + MINUTE_NS).contains(end)),
        "{adopted:?}"
    );
    assert_eq!(xdp.adopted(now), []);
    xdp.apply(now, &[RuleEvent::Removed { key: rule(3) }, filtered(rule(15), now + MINUTE_NS)], &|_| true);
    assert_eq!(come(&mut left, 10), 10);
    assert_eq!((xdp.counters().rules, xdp.counters().dropped.packets), (10, 10));
    drop(xdp);
    assert_eq!(come(&mut left, 10), 10);
    remove();
    assert_eq!(come(&mut left, 20), 20);
    // Another tuple mode: rules of the one before say nothing.
    Holder::start().kill();
    let mut xdp = XdpOffload::open(&options()).unwrap();
    xdp.configure(&OffloadSettings { tuple: 3, ..settings() }).unwrap();
    assert_eq!((xdp.counters().rules, come(&mut left, 20)), (0, 20));
    let notes = xdp.take_notes();
    let is_said =
        |note: &String| note.contains("10 rules that were there are gone: they were made for another");
    assert!(notes.iter().any(is_said), "{notes:?}");
    drop(xdp);
    remove();
    // Nobody asks for what was there: it ends a minute after the first minute.
    Holder::start().kill();
    let mut xdp = XdpOffload::open(&options()).unwrap();
    xdp.configure(&settings()).unwrap();
    let end = |xdp: &mut XdpOffload| xdp.hits(&rule(0));
    xdp.poll(now);
    xdp.poll(now + 61_000_000_000);
    assert_eq!(xdp.adopted(now), [], "too late");
    assert_eq!((come(&mut left, 10), end(&mut xdp).packets), (10, 1));
    drop(xdp);
    // Or they are removed by hand, and never while a process works with them (below).
    remove();
    Holder::start().kill();
    remove();
    assert_eq!(come(&mut left, 20), 20);
}

#[test]
fn root_amp_xdp_is_followed_under_traffic_without_a_gap() {
    if !inside("upgrade::root_amp_xdp_is_followed_under_traffic_without_a_gap") {
        return;
    }
    run("mount -t bpf bpf /sys/fs/bpf");
    cable("left", "right");
    let mut holder = Holder::start();
    let mut left = End::new("left", KINDS[0], None);
    let mut right = End::new("right", KINDS[0], None);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    // Nothing but what is filtered: a single frame that comes through is one too many.
    let sender = std::thread::spawn(move || {
        let (frames, mut sent): (Vec<_>, u64) = ((0..200).map(|n| plain(&rule(n % 10))).collect(), 0);
        while !stopped.load(Ordering::Relaxed) {
            left.send(&frames);
            sent += frames.len() as u64;
        }
        sent
    });
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(30));
        holder.kill();
        std::thread::sleep(Duration::from_millis(30));
        holder = Holder::start();
    }
    holder.kill();
    let mut last = XdpOffload::open(&options()).unwrap();
    last.configure(&settings()).unwrap();
    assert_eq!(last.counters().rules, 10);
    stop.store(true, Ordering::Relaxed);
    let sent = sender.join().unwrap();
    assert_eq!(right.receive(0), Vec::<Vec<u8>>::new(), "{sent} were sent");
    assert_eq!(right.port.counters().rx.packets, 0);
    assert!(sent > 1000, "{sent}");
    let dropped = last.front().with(|object| object.sum("counts", 0).unwrap());
    assert_eq!(dropped, sent, "every one of them met a program with the rules");
    println!("{sent} frames, seven programs, none came through");
}

#[test]
fn root_amp_xdp_a_second_process_is_refused_while_the_first_lives() {
    if !inside("upgrade::root_amp_xdp_a_second_process_is_refused_while_the_first_lives") {
        return;
    }
    run("mount -t bpf bpf /sys/fs/bpf");
    cable("left", "right");
    let (mut left, mut right) = (End::new("left", KINDS[0], None), End::new("right", KINDS[0], None));
    let frames: Vec<_> = (0..20).map(|n| plain(&rule(n))).collect();
    let mut come = |wanted: usize| through(&mut left, &mut right, &frames, wanted).len();
    let mut holder = Holder::start();
    let refused = |who: u32| {
        let error = XdpOffload::open(&options()).map(drop).unwrap_err();
        let wanted = format!(
            "offload xdp: right: process {who} works with what is pinned in /sys/fs/bpf/tidemill/right: end it first"
        );
        assert!(error.starts_with(&wanted), "{error}");
        let error = Pins::remove(Path::new(Pins::ROOT), "right").unwrap_err().to_string();
        assert!(error.starts_with(&format!("process {who} works with")), "{error}");
        let names = Pins::left(Path::new(Pins::ROOT)).unwrap();
        assert_eq!((names.len(), names[0].process, names[0].attached.is_some()), (1, Some(who), true));
    };
    refused(holder.0.id());
    assert_eq!(come(10), 10, "nobody has disturbed it");
    holder.kill();
    assert_eq!(Pins::left(Path::new(Pins::ROOT)).unwrap()[0].process, None);
    // Who has it now can lift rules, also after somebody else has tried.
    let mut xdp = XdpOffload::open(&options()).unwrap();
    xdp.configure(&settings()).unwrap();
    let mut hand = xdp.lifter().unwrap();
    refused(std::process::id());
    assert!(hand.lift(&rule(3)));
    assert_eq!(come(11), 11);
    xdp.apply(1, &[RuleEvent::Removed { key: rule(3) }, RuleEvent::Removed { key: rule(4) }], &|_| true);
    assert_eq!((come(12), xdp.counters().rules), (12, 8));
    drop(xdp);
    assert_eq!(come(12), 12);
    // A hand that outlives its offload harms nobody.
    assert!(hand.lift(&rule(5)));
    assert_eq!(come(13), 13);
    remove();
    assert_eq!(come(20), 20);
    assert!(hand.lift(&rule(6)));
}
