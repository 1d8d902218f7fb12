//! What becomes of a system that the package is installed on: it is tried on this one, seen through an overlay, so that whatever happens lies in a folder of its own
//! and is thrown away.
//!
//! ```text
//! / (lower, read only) + upper --overlay--> merged: chroot: install, use, change, upgrade, remove, purge
//! what differs in upper in the end, but for dpkg's own records, is what was left behind
//! ```
//! No service manager runs in there: a `systemctl` of the trial's own stands in for it, that says which units are active, writes down what it is asked for, and fails where
//! it is told to. What the package's scripts ask of it is compared at each step.

use crate::{env, proc};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What runs in there, as root. Each step ends it if it fails.
const STEPS: &str = r##"
set -e
export DEBIAN_FRONTEND=noninteractive PATH=/trial/bin:/usr/sbin:/usr/bin:/sbin:/bin
has() { [ -e "$1" ] || { echo "trial: $1 is missing"; exit 1; }; }
hasnt() { [ ! -e "$1" ] || { echo "trial: $1 is left"; exit 1; }; }
# What systemctl was asked for since the last time, one a line.
asked() {
    touch /trial/asked
    [ "$(cat /trial/asked)" = "$1" ] || { echo "trial: $2: systemctl was asked for:"; cat /trial/asked; echo "and not for:"; echo "$1"; exit 1; }
    rm /trial/asked
}
list="list-units --state=active --plain --no-legend --full tidemill.service tidemill@*.service"
all="list-units --all --plain --no-legend --full tidemill.service tidemill@*.service"
mkdir -p /trial/bin /run/systemd/system
cat > /trial/bin/systemctl <<'END'
#!/bin/sh
echo "$*" >> /trial/asked
case "$1 $2" in
list-units*) if [ -e /trial/units ]; then cat /trial/units; fi ;;
"restart tidemill@broken.service"|stop*) exit 1 ;;
esac
END
chmod 755 /trial/bin/systemctl
dpkg -i /trial/first.deb
asked "--system daemon-reload" "a first installation"
tidemill --version
getent passwd tidemill
has /usr/lib/systemd/system/tidemill.service
has /usr/share/man/man1/tidemill.1.gz
has /usr/share/man/man1/tidemill-run.1.gz
[ "$(stat -c %a:%G /etc/tidemill)" = 750:tidemill ]
dpkg --verify tidemill
if [ "$PROGRAM" = 1 ]; then
    cp -r /usr/share/doc/tidemill/examples /tmp/examples
    for role in router switch nat filter mitigator gatekeeper grantor; do
        tidemill run /tmp/examples/$role/$role.toml --json > /tmp/$role.json || { echo "trial: the example $role fails"; exit 1; }
        echo "trial: the example $role ran"
    done
    rm -r /tmp/examples /tmp/*.json
fi
echo "# changed by the operator" >> /etc/tidemill/tidemill.toml
touch /etc/tidemill/another.toml
mkdir -p /var/lib/tidemill && touch /var/lib/tidemill/router.state
printf '[[port]]\nname = "%s"\nkind = "null"\n' a b >> /etc/tidemill/tidemill.toml
cp /etc/tidemill/tidemill.toml /etc/tidemill/broken.toml
# The package before asks for it once more as it goes. One that does not start any more fails neither the upgrade nor the others; one whose configuration this version
# does not take (a program that is a script takes all) is left at work. What has no file is its own matter.
old=
if [ "$PROGRAM" = 1 ]; then
    old=" tidemill@old.service"
    echo '[nonsense]' > /etc/tidemill/old.toml
fi
for unit in tidemill.service tidemill@broken.service tidemill@edge.service$old; do echo "$unit loaded active running Tidemill" >> /trial/units; done
dpkg -i /trial/second.deb 2>&1 | tee /trial/said
[ -z "$old" ] || grep -q "tidemill@old.service runs on" /trial/said || { echo "trial: nobody says what runs on"; exit 1; }
dpkg -s tidemill | grep -q '^Status: install ok installed'
grep -q "tidemill@broken.service does not start any more" /trial/said || { echo "trial: nobody says what does not start"; exit 1; }
asked "--system daemon-reload
--system daemon-reload
$list
restart tidemill.service
restart tidemill@broken.service
restart tidemill@edge.service" "an upgrade of what runs"
dpkg -s tidemill | grep '^Version:'
grep -q "changed by the operator" /etc/tidemill/tidemill.toml
# One that does not stop fails the removal as little.
dpkg -r tidemill
asked "$all
stop tidemill.service tidemill@broken.service tidemill@edge.service$old
disable --quiet tidemill.service tidemill@broken.service tidemill@edge.service$old
--system daemon-reload" "a removal of what runs"
rm /trial/units
hasnt /usr/bin/tidemill
hasnt /usr/lib/systemd/system/tidemill.service
has /etc/tidemill/tidemill.toml
has /var/lib/tidemill/router.state
dpkg -i /trial/second.deb
asked "--system daemon-reload
$list" "an installation on what was left"
grep -q "changed by the operator" /etc/tidemill/tidemill.toml
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -s /usr/lib/systemd/system/tidemill@.service /etc/systemd/system/multi-user.target.wants/tidemill@edge.service
# What is pinned goes, too (a plain file stands for it in here).
mkdir -p /sys/fs/bpf/tidemill/attacks
touch /sys/fs/bpf/tidemill/attacks/native
# Without systemd nobody is asked.
rmdir /run/systemd/system
dpkg -P tidemill
asked "" "a purge without systemd"
hasnt /etc/systemd/system/multi-user.target.wants/tidemill@edge.service
hasnt /etc/tidemill
hasnt /var/lib/tidemill
hasnt /sys/fs/bpf/tidemill
hasnt /usr/share/doc/tidemill
if getent passwd tidemill; then echo 'trial: left: getent passwd tidemill'; exit 1; fi
if getent group tidemill; then echo 'trial: left: getent group tidemill'; exit 1; fi
if dpkg -s tidemill 2>/dev/null; then echo 'trial: left: dpkg -s tidemill'; exit 1; fi
echo "trial: installed, upgraded, removed, purged"
"##;

/// What dpkg, useradd and the linker's cache write for themselves, whatever is installed.
const THEIRS: &[&str] = &[
    "/var/lib/dpkg",
    "/var/log",
    "/var/cache",
    "/etc/passwd",
    "/etc/group",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/subuid",
    "/etc/subgid",
    "/etc/.pwd.lock",
    "/etc/ld.so.cache",
    "/run",
    "/tmp",
];

/// Tries an older and a newer package.
pub(super) fn run(first: &Path, second: &Path, out: &Path) -> Result<()> {
    ensure!(env::is_root(), "deb --trial: needs root");
    let place = out.join("trial");
    // An overlay's own folder cannot lie on an overlay; a tmpfs always will do.
    let (inside, script) = (place.join("space"), place.join("steps.sh"));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&inside).with_context(|| inside.display().to_string())?;
    fs::write(&script, STEPS)?;
    let quoted = |path: &Path| format!("'{}'", path.display());
    // A program that is a script, for trials of the package alone, runs no example.
    let program = fs::read(out.join("root/usr/bin/tidemill"))?.starts_with(b"\x7fELF");
    let (space, first, second, script) = (quoted(&inside), quoted(first), quoted(second), quoted(&script));
    let flag = u8::from(program);
    let shell = format!(
        "set -e; mount -t tmpfs tmpfs {space}; cd {space}; mkdir upper work merged
         mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work merged
         mkdir merged/trial; cp {first} merged/trial/first.deb; cp {second} merged/trial/second.deb; cp {script} merged/trial/steps.sh
         mount -t proc proc merged/proc; mount --rbind /dev merged/dev; mount -t tmpfs tmpfs merged/run
         PROGRAM={flag} chroot merged sh /trial/steps.sh
         rm -r merged/trial; umount -l merged/run merged/proc merged/dev merged
         echo LEFT; find upper -mindepth 1 ! -type d | sed 's/^upper//' | sort"
    );
    // Mounts of its own: they end with it.
    let said = proc::output(Command::new("unshare").args(["--mount", "sh", "-c", &shell]))?;
    let (steps, left) = said.split_once("LEFT\n").context("the trial has no end")?;
    print!("{steps}");
    let left: Vec<&str> =
        left.lines().filter(|file| !THEIRS.iter().any(|theirs| file.starts_with(theirs))).collect();
    if !left.is_empty() {
        bail!("deb --trial: left behind, or changed: {}", left.join(", "));
    }
    println!("trial: nothing is left but dpkg's own records");
    let _ = fs::remove_dir_all(&place);
    Ok(())
}
