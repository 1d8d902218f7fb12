//! What becomes of a system that the package is installed on: it is tried on this one, seen through an overlay, so that whatever happens lies in a folder of its own
//! and is thrown away.
//!
//! ```text
//! / (lower, read only) + upper --overlay--> merged: chroot: install, use, change, upgrade, remove, purge
//! what differs in upper in the end, but for dpkg's own records, is what was left behind
//! ```

use crate::{env, proc};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What runs in there, as root. Each step ends it if it fails.
const STEPS: &str = r##"
set -e
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
has() { [ -e "$1" ] || { echo "trial: $1 is missing"; exit 1; }; }
hasnt() { [ ! -e "$1" ] || { echo "trial: $1 is left"; exit 1; }; }
dpkg -i /trial/first.deb
tidemill --version
getent passwd tidemill
has /usr/lib/systemd/system/tidemill.service
has /usr/share/man/man1/tidemill.1.gz
has /usr/share/man/man1/tidemill-run.1.gz
[ "$(stat -c %a:%G /etc/tidemill)" = 750:tidemill ]
dpkg --verify tidemill
if [ "$PROGRAM" = 1 ]; then
    cp -r /usr/share/doc/tidemill/examples /tmp/examples
    for role in router switch nat mitigator gatekeeper grantor; do
        tidemill run /tmp/examples/$role/$role.toml --json > /tmp/$role.json || { echo "trial: the example $role fails"; exit 1; }
        echo "trial: the example $role ran"
    done
    rm -r /tmp/examples /tmp/*.json
fi
echo "# changed by the operator" >> /etc/tidemill/tidemill.toml
touch /etc/tidemill/another.toml
mkdir -p /var/lib/tidemill && touch /var/lib/tidemill/router.state
dpkg -i /trial/second.deb
dpkg -s tidemill | grep '^Version:'
grep -q "changed by the operator" /etc/tidemill/tidemill.toml
dpkg -r tidemill
hasnt /usr/bin/tidemill
hasnt /usr/lib/systemd/system/tidemill.service
has /etc/tidemill/tidemill.toml
has /var/lib/tidemill/router.state
dpkg -i /trial/second.deb
grep -q "changed by the operator" /etc/tidemill/tidemill.toml
dpkg -P tidemill
hasnt /etc/tidemill
hasnt /var/lib/tidemill
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
