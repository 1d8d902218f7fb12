//! What becomes of a system that has nothing but what Debian begins with, and a real service manager: the package is installed there, each example role is started
//! as its unit, stood still, upgraded while it runs, removed and purged.
//!
//! ```text
//! debootstrap (once, kept) --copied--> a folder --systemd-nspawn--> systemd as process 1, in namespaces of its own
//!                                                                   `- clean.sh as a unit: what it prints is what the trial says
//! ```
//! Its network is one of its own: pairs of interfaces that lead nowhere, named as the examples' ports are. What the package depends on, and the system lacks, is fetched
//! before that: a dependency that nobody has named is not there, and is seen.

use crate::{env, proc};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SUITE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";

/// What systemd counts the units' exposure as, at most, in tenths (`systemd-analyze security`): 44 when this was written.
const EXPOSURE: u32 = 45;

/// How long it may take: about a minute on a machine that does nothing else.
const LIMIT_S: u32 = 600;

/// What runs in there, as root.
const STEPS: &str = include_str!("clean.sh");

/// The unit that does, and ends the system with it.
const UNIT: &str = "[Unit]\nAfter=multi-user.target\nSuccessAction=poweroff\nFailureAction=poweroff\n\
                    [Service]\nType=exec\nExecStart=/bin/bash /trial/steps.sh\nStandardOutput=file:/trial/said\nStandardError=file:/trial/said\n";

/// Brings the system up in a network of its own, whose interfaces are there before.
const BOOT: &str = r#"
set -e
ip link set dev lo up
for port in lan wan dmz outside inside front back up down eth1 eth2; do
    ip link add name $port type veth peer name x-$port
    ip link set dev $port addrgenmode none up
    ip link set dev x-$port addrgenmode none up
done
# What is sent to 10.99.0.2 comes in by "lan", where the kernel has an address that it is warned of.
ip addr add 10.98.0.1/24 dev lan
ip addr add 10.99.0.1/24 dev x-lan
ip neigh add 10.99.0.2 lladdr 02:00:00:00:00:77 dev x-lan
exec timeout --kill-after=10 "$2" systemd-nspawn -q -D "$1" -b --register=no --keep-unit --console=pipe --machine=tidemill-trial \
    --capability=all --system-call-filter='bpf perf_event_open' --setenv=SYSTEMD_COLORS=0
"#;

/// Programs of this machine that it takes, and their packages.
const TOOLS: &[(&str, &str)] = &[
    ("debootstrap", "debootstrap"),
    ("systemd-nspawn", "systemd-container"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
];

/// Tries an older and a newer package.
pub(super) fn run(first: &Path, second: &Path) -> Result<()> {
    ensure!(env::is_root(), "deb --clean: needs root");
    for (program, package) in TOOLS {
        ensure!(
            env::has_program(program),
            "deb --clean: {program} is missing: apt-get install {package} (Debian, Ubuntu)"
        );
    }
    let base = base()?;
    let place = env::scratch("debian")?.join("trial");
    let _ = fs::remove_dir_all(&place);
    proc::check(Command::new("cp").arg("-a").arg(&base).arg(&place))?;
    let trial = place.join("trial");
    fs::create_dir(&trial).with_context(|| trial.display().to_string())?;
    fs::copy(first, trial.join("first.deb")).with_context(|| first.display().to_string())?;
    fs::copy(second, trial.join("second.deb")).with_context(|| second.display().to_string())?;
    fs::write(trial.join("steps.sh"), format!("EXPOSURE={EXPOSURE}\n{STEPS}"))?;
    let units = place.join("etc/systemd/system");
    fs::write(units.join("trial.service"), UNIT)?;
    let wanted = units.join("multi-user.target.wants");
    fs::create_dir_all(&wanted)?;
    std::os::unix::fs::symlink("../trial.service", wanted.join("trial.service"))?;
    fetch(&place, &base)?;

    let boot = Command::new("unshare")
        .args(["--net", "--mount", "bash", "-c", BOOT, "boot"])
        .arg(&place)
        .arg(LIMIT_S.to_string())
        .stdin(std::process::Stdio::null())
        .output()
        .context("cannot start unshare")?;
    let Ok(said) = fs::read_to_string(trial.join("said")) else {
        let mut text = String::from_utf8_lossy(&boot.stdout).into_owned();
        text += &String::from_utf8_lossy(&boot.stderr);
        bail!(
            "deb --clean: the clean system does not start here ({}): systemd-nspawn wants root outside of containers, cgroups and namespaces. It said last:\n{}",
            boot.status,
            proc::last(&text, 15)
        );
    };
    print!("{said}");
    // That is what `timeout` ends with.
    let late = matches!(boot.status.code(), Some(124 | 137));
    ensure!(
        said.lines().last().is_some_and(|line| line.ends_with("nothing is left")),
        "deb --clean: the trial {}, see above; its system is in {}",
        if late { format!("was not through after {LIMIT_S} s") } else { "failed".to_owned() },
        place.display()
    );
    let _ = fs::remove_dir_all(&place);
    Ok(())
}

/// Debian as it begins, with systemd; made once.
fn base() -> Result<PathBuf> {
    let folder = env::scratch("debian")?;
    let base = folder.join(SUITE);
    if base.is_dir() {
        return Ok(base);
    }
    let half = folder.join(format!("{SUITE}.half"));
    let _ = fs::remove_dir_all(&half);
    println!("deb --clean: making Debian {SUITE} from {MIRROR}: about 90 s, once");
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include=systemd,systemd-sysv", SUITE]);
    let made = proc::output(debootstrap.arg(&half).arg(MIRROR));
    made.with_context(|| format!("deb --clean: debootstrap needs {MIRROR}, and root outside of containers"))?;
    proc::check(Command::new("chroot").arg(&half).args(["apt-get", "clean"]))?;
    fs::rename(&half, &base).with_context(|| base.display().to_string())?;
    Ok(base)
}

/// Has the packages there that ours depends on, if any are lacking: the system itself reaches nobody.
fn fetch(place: &Path, base: &Path) -> Result<()> {
    let mut apt = Command::new("chroot");
    apt.arg(place).args(["apt-get", "-q", "-y", "install", "--download-only", "--no-install-recommends"]);
    let fetched = proc::output(apt.arg("/trial/first.deb"));
    fetched.map(drop).with_context(|| {
        format!(
            "deb --clean: what the package depends on cannot be had; if the lists of {} are old, remove that folder",
            base.display()
        )
    })
}
