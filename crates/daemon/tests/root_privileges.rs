//! A process that was started by root and gives up what it does not need, looked at from outside by /proc.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use tidemill_daemon::privileges::{Keep, forgo_new, give_up, hand_over};

/// A field of /proc/self/task/THREAD/status.
fn status(thread: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let field =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    text.lines().filter_map(field).collect()
}

#[test]
#[ignore = "started by nobody_is_left_with_what_he_does_not_need"]
fn as_root() {
    let (start, waits) = std::sync::mpsc::channel::<()>();
    let (tell, id) = std::sync::mpsc::channel();
    // One that runs already.
    let other = std::thread::spawn(move || {
        tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
        let _ = waits.recv();
    });
    let other_id = id.recv().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    forgo_new().unwrap();
    let file = std::env::temp_dir().join(format!("tidemill-privileges-{}", std::process::id()));
    std::fs::write(&file, "").unwrap();
    let handed = hand_over(&file, "nobody", None);
    let data = std::fs::metadata(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    handed.unwrap();
    assert_eq!((data.uid(), data.gid()), (65_534, 65_534));
    let given = give_up(Some("nobody"), None, &[Keep::NetRaw, Keep::NetAdmin]).unwrap();
    println!("gave up: {given}");
    // It lies in a thread of its own, as the test program has it.
    let own =
        std::fs::read_link("/proc/thread-self").unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let child = std::thread::spawn(|| {
        let id = std::fs::read_link("/proc/thread-self").unwrap();
        status(&id.file_name().unwrap().to_string_lossy())
    });
    for (who, fields) in
        [("own", status(&own)), ("child", child.join().unwrap()), ("other", status(&other_id))]
    {
        for name in ["Uid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"] {
            println!("{who} {name} {}", fields[name].replace('\t', " "));
        }
    }
    assert!(std::fs::read("/etc/shadow").is_err());
    assert!(give_up(Some("root"), None, &[]).is_err(), "there is no way back");
    drop(start);
    other.join().unwrap();
}

#[test]
#[ignore = "started by a_service_with_capabilities_gives_up_those_that_it_does_not_need"]
fn as_a_service() {
    let (start, waits) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || waits.recv());
    assert!(tidemill_daemon::privileges::is_given_some());
    let given = give_up(None, None, &[Keep::NetRaw, Keep::NetAdmin]).unwrap();
    println!("gave up: {given}");
    let child = std::thread::spawn(|| {
        let id = std::fs::read_link("/proc/thread-self").unwrap();
        status(&id.file_name().unwrap().to_string_lossy())
    });
    let fields = child.join().unwrap();
    for name in ["Uid", "CapInh", "CapPrm", "CapEff", "CapAmb"] {
        println!("child {name} {}", fields[name].replace('\t', " "));
    }
    drop(start);
    assert!(other.join().unwrap().is_err());
}

/// As systemd starts one with User= and AmbientCapabilities=.
#[test]
fn a_service_with_capabilities_gives_up_those_that_it_does_not_need() {
    const TEST: &str = "a_service_with_capabilities_gives_up_those_that_it_does_not_need";
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: {TEST} (needs root)");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([
        "--inh-caps=+net_raw,+net_bind_service",
        "--ambient-caps=+net_raw,+net_bind_service",
        "--",
    ]);
    command.arg(std::env::current_exe().unwrap()).args([
        "--exact",
        "as_a_service",
        "--ignored",
        "--nocapture",
    ]);
    let output = match command.stdin(Stdio::null()).output() {
        Err(error) => return println!("skipped: {TEST} (setpriv of util-linux: {error})"),
        Ok(output) => output,
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let has = |line: &str| assert!(said.lines().any(|said| said == line), "{line}: {said}");
    // The test program's first thread, and one of the test's own.
    has("gave up: of the capabilities only CAP_NET_RAW; 2 threads that ran before have more");
    for what in ["CapPrm 0000000000002000", "CapEff 0000000000002000"] {
        has(&format!("child {what}"));
    }
    for what in ["Uid 65534 65534 65534 65534", "CapInh 0000000000000000", "CapAmb 0000000000000000"] {
        has(&format!("child {what}"));
    }
}

#[test]
fn nobody_is_left_with_what_he_does_not_need() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: nobody_is_left_with_what_he_does_not_need (needs root)");
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "as_root", "--ignored", "--nocapture"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let has = |line: &str| assert!(said.lines().any(|said| said == line), "{line}: {said}");
    has("gave up: user nobody, of the capabilities only CAP_NET_ADMIN, CAP_NET_RAW");
    // CAP_NET_ADMIN is bit 12, CAP_NET_RAW bit 13.
    for who in ["own", "child"] {
        has(&format!("{who} CapPrm 0000000000003000"));
        has(&format!("{who} CapEff 0000000000003000"));
    }
    for who in ["own", "child", "other"] {
        has(&format!("{who} Uid 65534 65534 65534 65534"));
        has(&format!("{who} CapInh 0000000000000000"));
        has(&format!("{who} CapAmb 0000000000000000"));
    }
    has("own CapBnd 0000000000003000");
    has("own NoNewPrivs 1");
    has("child NoNewPrivs 1");
    has("other CapEff 0000000000000000");
    has("other CapPrm 0000000000000000");
}
