//! `kernels`: runs the tests of programs in the kernel under other kernels than this machine's, each in a virtual machine
//! (QEMU, emulated) that has this machine's files to read.

use crate::{env, held, proc};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Kernels: Debian packages (linux-image-6.1.0-50-amd64), or files of such [default: what linux-image-amd64 stands for]
    #[arg(value_name = "KERNEL")]
    kernels: Vec<String>,
    /// Only tests whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Minutes after which a machine is given up
    #[arg(long, default_value_t = 20)]
    minutes: u32,
}

/// What runs there: package, features, test target, and what the names of its tests contain.
const TESTS: [(&str, &str, &str, &str); 3] = [
    ("tidemill-kv", "", "root_kernel", "root_"),
    ("tidemill-amp", "xdp", "root_amp_xdp", "root_"),
    // For a veth kernels before 6.13 poll, and this machine's may not.
    ("tidemill-port", "xdp", "root_xdp", "busy::"),
];

/// What a kernel loads before it can read this machine's files, and what the tests use; those that it has built in are passed over.
const MODULES: &str = "virtio_pci 9pnet_virtio 9p veth sch_ingress cls_bpf act_bpf af_packet 8021q tcp_diag udp_diag inet_diag nf_tables";

/// What the machine needs of Debian's, besides the kernel.
const TOOLS: [(&str, &str); 4] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("depmod", "kmod"),
];

fn tools() -> Result<()> {
    for (program, package) in TOOLS {
        ensure!(env::has_program(program), "{program} is missing: apt-get install {package}");
    }
    Ok(())
}

/// The release of the kernel that is taken where none is named, which is here then, as the tools are. An error says what this machine lacks.
pub(crate) fn provide() -> Result<String> {
    tools()?;
    let (_, _, release) = unpacked(&env::scratch("kernels")?, &newest()?)?;
    Ok(release)
}

/// Whether all tests passed on all kernels.
pub(crate) fn run(options: &Options) -> Result<bool> {
    tools()?;
    let folder = env::scratch("kernels")?;
    let kernels = if options.kernels.is_empty() { vec![newest()?] } else { options.kernels.clone() };
    let tests = TESTS
        .iter()
        .map(|(package, features, target, names)| {
            built(package, features, target).map(|program| (program, *names))
        })
        .collect::<Result<Vec<_>>>()?;
    let mut good = true;
    for kernel in kernels {
        let (image, modules, release) = unpacked(&folder, &kernel)?;
        let text = boot(&folder, &image, &modules, &release, &tests, options)?;
        let (all, count) = (all_ended_well(&text, tests.len()), held::passed(&text));
        ensure!(count > 0, "{release}: no test ran");
        println!("kernels: {release}: {}, {count} tests passed", if all { "good" } else { "FAILED" });
        good &= all;
    }
    Ok(good)
}

/// The package that Debian's name for its newest kernel stands for.
fn newest() -> Result<String> {
    let said = proc::output(Command::new("apt-cache").args(["depends", "linux-image-amd64"]))?;
    let package = said.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image"));
    let package = package.context("apt knows no linux-image-amd64: name a kernel's package, or a file")?;
    Ok(format!("linux-image{package}"))
}

/// A test's program.
fn built(package: &str, features: &str, target: &str) -> Result<PathBuf> {
    let mut command = env::cargo();
    command.args([
        "test",
        "--no-run",
        "--message-format",
        "json",
        "--quiet",
        "-p",
        package,
        "--test",
        target,
    ]);
    if !features.is_empty() {
        command.args(["--features", features]);
    }
    let said = proc::output(&mut command)?;
    let program = said.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == target;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    program.with_context(|| format!("cargo named no program for {target}"))
}

/// The image, the folder of modules, and the release of a package or file.
fn unpacked(folder: &Path, kernel: &str) -> Result<(PathBuf, PathBuf, String)> {
    let file = if kernel.ends_with(".deb") {
        fs::canonicalize(kernel).with_context(|| kernel.to_owned())?
    } else {
        let have = |folder: &Path| -> Result<Option<PathBuf>> {
            let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
            Ok(files.filter(|path| name(path).starts_with(&format!("{kernel}_"))).max())
        };
        if have(folder)?.is_none() {
            proc::check(Command::new("apt-get").args(["download", "-qq", kernel]).current_dir(folder))?;
        }
        have(folder)?.with_context(|| format!("apt-get downloaded no {kernel}"))?
    };
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let into = folder.join(name);
    if !into.is_dir() {
        proc::check(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&into))?;
    }
    let boot = fs::read_dir(into.join("boot")).with_context(|| format!("{}: no /boot", file.display()))?;
    let image =
        boot.flatten().map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("/vmlinuz-"));
    let image = image.with_context(|| format!("{}: no kernel in /boot", file.display()))?;
    let release = image.file_name().unwrap_or_default().to_string_lossy().replacen("vmlinuz-", "", 1);
    let places = ["lib/modules", "usr/lib/modules"].map(|place| into.join(place).join(&release));
    let modules = places.into_iter().find(|place| place.is_dir());
    let modules = modules.with_context(|| format!("{}: no modules", file.display()))?;
    // The package lists its modules' dependencies only once it is installed.
    let base = modules.ancestors().nth(3).unwrap_or(&into);
    proc::check(Command::new("depmod").arg("-b").arg(base).arg(&release))?;
    Ok((image, modules, release))
}

/// What the script says after each test program, before its exit status.
const ENDED: &str = "tidemill-test-ended";

/// Whether so many test programs ended, each with exit status 0.
fn all_ended_well(text: &str, programs: usize) -> bool {
    let ends: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix(ENDED)).collect();
    ends.len() == programs && ends.iter().all(|status| status.trim() == "0")
}

/// Boots the kernel, runs the tests in it, and gives what came on its console.
fn boot(
    folder: &Path,
    image: &Path,
    modules: &Path,
    release: &str,
    tests: &[(PathBuf, &str)],
    options: &Options,
) -> Result<String> {
    let ramdisk = ramdisk(folder, modules, release, tests, options.only.as_deref())?;
    let mut command = Command::new("timeout");
    // Emulated: a virtual machine in one may hang, and this takes a minute or two anyway.
    command.args([&format!("{}m", options.minutes), "qemu-system-x86_64", "-accel", "tcg"]);
    command.args([
        "-cpu",
        "max,-arch-capabilities",
        "-smp",
        "2",
        "-m",
        "3G",
        "-nographic",
        "-no-reboot",
        "-nic",
        "none",
    ]);
    command.args(["-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"]);
    command.arg("-kernel").arg(image).arg("-initrd").arg(&ramdisk);
    command.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]);
    let mut text = String::new();
    proc::lines(&mut command, |line| {
        println!("{release}: {line}");
        text.extend([line, "\n"]);
    })?;
    Ok(text)
}

/// A first file system: modules, busybox, and a script that goes on in this machine's files.
fn ramdisk(
    folder: &Path,
    modules: &Path,
    release: &str,
    tests: &[(PathBuf, &str)],
    only: Option<&str>,
) -> Result<PathBuf> {
    let root = folder.join("ramdisk");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for place in ["bin", "proc", "host", "lib/modules"] {
        fs::create_dir_all(root.join(place))?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let busybox = std::env::split_paths(&path).map(|place| place.join("busybox")).find(|file| file.is_file());
    fs::copy(busybox.context("no busybox")?, root.join("bin/busybox"))?;
    proc::check(Command::new("cp").arg("-r").arg(modules).arg(root.join("lib/modules").join(release)))?;
    let mut script = String::from(
        "#!/bin/busybox sh\nexport PATH=/bin:/sbin:/usr/bin:/usr/sbin\nbusybox mount -t proc proc /proc\n",
    );
    for module in MODULES.split_whitespace() {
        writeln!(script, "busybox modprobe -q {module}")?;
    }
    script.push_str("busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=1048576,cache=loose root /host || echo no files\n");
    for (kind, place) in [
        ("proc", "proc"),
        ("sysfs", "sys"),
        ("devtmpfs", "dev"),
        ("tmpfs", "tmp"),
        ("tmpfs", "run"),
        ("bpf", "sys/fs/bpf"),
    ] {
        writeln!(script, "busybox mount -t {kind} {kind} /host/{place}")?;
    }
    script.push_str("cd /host\n");
    for (test, names) in tests {
        ensure!(
            !test.to_string_lossy().contains('\''),
            "{}: a path that the script cannot name",
            test.display()
        );
        writeln!(
            script,
            "CI=true HOME=/tmp TERM=dumb busybox chroot /host /bin/sh -c \"ip link set lo up; '{}' '{}' --test-threads=1\"; echo {ENDED} $?",
            test.display(),
            only.unwrap_or(names)
        )?;
    }
    script.push_str("busybox poweroff -f\n");
    let init = root.join("init");
    fs::write(&init, script)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let file = folder.join("ramdisk.cpio");
    let mut pack = Command::new("sh");
    pack.args(["-c", "cd \"$0\" && find . | cpio --quiet -o -H newc > \"$1\""]).arg(&root).arg(&file);
    if !proc::status(&mut pack)? {
        bail!("cannot pack {}", file.display());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_to_end_well() {
        let one = format!("test result: ok. 1 passed\n{ENDED} 0\r\n");
        assert!(all_ended_well(&format!("{one}{one}"), 2));
        assert!(!all_ended_well(&one, 2), "one is missing");
        assert!(!all_ended_well(&format!("{one}{ENDED} 101\n"), 2));
    }
}
