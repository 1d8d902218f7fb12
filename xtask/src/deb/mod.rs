//! `deb`: a Debian package, made with nothing but dpkg-dev. What is in it, and what its scripts do, is in packaging/.
//!
//! ```text
//! /usr/bin/tidemill                              the program, with the feature `lua`
//! /usr/lib/systemd/system/tidemill{,@}.service
//! /usr/share/man/man1/*.1.gz                     a page for each command
//! /usr/share/bash-completion/completions/tidemill
//! /usr/share/doc/tidemill/                       README, configuration, changelog, copyright, examples
//! /etc/tidemill/tidemill.toml                    a conffile: what an operator changed stays
//! ```

mod clean;
mod trial;

use crate::{env, man, proc};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `cargo xtask deb`.
#[derive(Args)]
pub(crate) struct Options {
    /// Where the package is put
    #[arg(long, value_name = "FOLDER", default_value = "target/deb")]
    out: PathBuf,
    /// The program, instead of one that is built for it (release, feature lua)
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The Debian revision
    #[arg(long, value_name = "N", default_value_t = 1)]
    revision: u32,
    /// Install, upgrade, remove and purge it, on a copy of this system that is thrown away (root, Debian or Ubuntu, overlayfs)
    #[arg(long)]
    trial: bool,
    /// The same on a clean Debian with a systemd of its own, where each example role's unit is started (root, debootstrap, systemd-nspawn; two minutes, four the first time)
    #[arg(long)]
    clean: bool,
}

/// Makes the package.
pub(crate) fn run(options: &Options) -> Result<bool> {
    for (program, package) in [("dpkg-deb", "dpkg"), ("dpkg-shlibdeps", "dpkg-dev"), ("gzip", "gzip")] {
        ensure!(env::has_program(program), "deb: {program} is missing: apt-get install {package}");
    }
    let binary = match &options.binary {
        Some(binary) => std::path::absolute(binary)?,
        None => env::tidemill_with("lua")?,
    };
    let out = env::root().join(&options.out);
    let package = make(&binary, &out, options.revision)?;
    println!("deb: {}", package.display());
    if options.trial || options.clean {
        let next = make(&binary, &out, options.revision + 1)?;
        if options.trial {
            trial::run(&package, &next, &out)?;
        }
        if options.clean {
            clean::run(&package, &next)?;
        }
    }
    Ok(true)
}

/// Makes the package of a program.
fn make(binary: &Path, out: &Path, revision: u32) -> Result<PathBuf> {
    let version = format!("{}-{revision}", env!("CARGO_PKG_VERSION"));
    let root = out.join("root");
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| root.display().to_string())?;
    }
    let put = |from: &Path, to: &str, mode: u32| put_into(from, &root.join(to), mode);
    let packaging = env::root().join("packaging");
    let doc = "usr/share/doc/tidemill";
    put(binary, "usr/bin/tidemill", 0o755)?;
    let program = root.join("usr/bin/tidemill");
    proc::check(Command::new("strip").arg(&program))?;
    for unit in ["tidemill.service", "tidemill@.service"] {
        put(&packaging.join("systemd").join(unit), &format!("usr/lib/systemd/system/{unit}"), 0o644)?;
    }
    put(&packaging.join("tidemill.toml"), "etc/tidemill/tidemill.toml", 0o644)?;
    for file in ["README.md", "CONFIGURATION.md", "CHANGELOG.md"] {
        put(&env::root().join(file), &format!("{doc}/{file}"), 0o644)?;
    }
    compress(&root.join(doc).join("CHANGELOG.md"))?;
    fs::rename(root.join(doc).join("CHANGELOG.md.gz"), root.join(doc).join("changelog.gz"))?;
    text(&root.join(doc).join("copyright"), &copyright()?)?;
    for file in examples()? {
        put(&env::root().join(&file), &format!("{doc}/{file}"), 0o644)?;
    }
    for page in man::write(&mut Command::new(&program), &root.join("usr/share/man/man1"))? {
        compress(&page)?;
    }
    let completions = proc::output(Command::new(&program).args(["completions", "bash"]))?;
    text(&root.join("usr/share/bash-completion/completions/tidemill"), &completions)?;

    let control = root.join("DEBIAN");
    for script in ["postinst", "prerm", "postrm"] {
        put_into(&packaging.join("debian").join(script), &control.join(script), 0o755)?;
    }
    text(&control.join("conffiles"), "/etc/tidemill/tidemill.toml\n")?;
    let (architecture, size) = (proc::output(Command::new("dpkg").arg("--print-architecture"))?, kib(&root)?);
    let depends = depends(&program, out)?;
    text(&control.join("control"), &control_file(&version, architecture.trim(), &depends, size))?;
    text(&control.join("md5sums"), &sums(&root)?)?;
    let package = out.join(format!("tidemill_{version}_{}.deb", architecture.trim()));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "--build"]).arg(&root).arg(&package);
    proc::output(&mut dpkg)?;
    Ok(package)
}

fn control_file(version: &str, architecture: &str, depends: &str, kib: u64) -> String {
    format!(
        "Package: tidemill\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The Tidemill developers <tidemill@localhost>\n\
         Installed-Size: {kib}\nDepends: {depends}, passwd\nRecommends: systemd\nSection: net\nPriority: optional\n\
         Description: software packet-processing engine\n \
         Routes, switches, translates and filters packets between network interfaces (AF_PACKET, AF_XDP)\n \
         by full tables: an IP router, a switch with OpenFlow-like rules, a NAT, a mitigator of\n \
         amplification attacks, Gatekeeper and Grantor, a cache in front of memcached.\n"
    )
}

/// The libraries that the program needs, with their versions, as Debian's own tool finds them.
fn depends(program: &Path, out: &Path) -> Result<String> {
    // It wants to be in a source package.
    text(&out.join("debian/control"), "Source: tidemill\n\nPackage: tidemill\nArchitecture: any\n")?;
    let said = proc::output(Command::new("dpkg-shlibdeps").current_dir(out).arg("-O").arg(program))?;
    fs::remove_dir_all(out.join("debian"))?;
    let found = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(found.with_context(|| format!("dpkg-shlibdeps says {said:?}"))?.to_owned())
}

/// Files of examples/ that are under version control.
fn examples() -> Result<Vec<String>> {
    let list = proc::output(Command::new("git").current_dir(env::root()).args(["ls-files", "examples"]))?;
    let files: Vec<String> = list.lines().map(str::to_owned).collect();
    if files.is_empty() {
        bail!("deb: git ls-files names no examples");
    }
    Ok(files)
}

fn copyright() -> Result<String> {
    let licence = fs::read_to_string(env::root().join("LICENSE-MIT")).context("LICENSE-MIT")?;
    let lines: String = licence
        .lines()
        .map(|line| if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\n\
         Copyright: The Tidemill developers\nLicense: Expat or Apache-2.0\n\nLicense: Expat\n{lines}\n\
         License: Apache-2.0\n On Debian systems: /usr/share/common-licenses/Apache-2.0\n"
    ))
}

/// A file with its folders.
fn put_into(from: &Path, to: &Path, mode: u32) -> Result<()> {
    folder(to)?;
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn text(to: &Path, text: &str) -> Result<()> {
    folder(to)?;
    fs::write(to, text).with_context(|| to.display().to_string())?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o644))?;
    Ok(())
}

/// The folder that a file lies in, for everybody to look into.
fn folder(of: &Path) -> Result<()> {
    let Some(parent) = of.parent() else { return Ok(()) };
    fs::create_dir_all(parent).with_context(|| parent.display().to_string())
}

/// As policy wants manual pages and changelogs: the same bytes every time.
fn compress(file: &Path) -> Result<()> {
    proc::check(Command::new("gzip").args(["-9nf"]).arg(file))
}

/// All files but those of DEBIAN, by name. Folders are made such that everybody can look into them, whatever the umask is.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let (mut todo, mut files) = (vec![root.to_path_buf()], Vec::new());
    while let Some(folder) = todo.pop() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true if entry.file_name() == "DEBIAN" => {}
                true => todo.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    Ok(files)
}

fn kib(root: &Path) -> Result<u64> {
    let mut bytes = 0;
    for file in files(root)? {
        bytes += fs::metadata(&file)?.len().next_multiple_of(4096);
    }
    Ok(bytes / 1024)
}

fn sums(root: &Path) -> Result<String> {
    let names: Vec<PathBuf> =
        files(root)?.into_iter().filter_map(|file| Some(file.strip_prefix(root).ok()?.to_owned())).collect();
    proc::output(Command::new("md5sum").current_dir(root).arg("--").args(names))
}

#[cfg(test)]
mod tests {
    use crate::env;
    use std::collections::BTreeMap;

    /// A unit's settings, by section.
    fn settings(unit: &str) -> BTreeMap<String, Vec<String>> {
        let path = env::root().join("packaging/systemd").join(unit);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (mut sections, mut section) = (BTreeMap::<String, Vec<String>>::new(), String::new());
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                Some(name) => section = name.to_owned(),
                None => sections.entry(section.clone()).or_default().push(line.to_owned()),
            }
        }
        sections
    }

    #[test]
    fn units_go_on_restarting_and_start_behind_the_network() {
        for unit in ["tidemill.service", "tidemill@.service"] {
            let settings = settings(unit);
            let has = |section: &str, line: &str| {
                assert!(settings[section].iter().any(|known| known == line), "{unit}: [{section}] {line}");
            };
            // In [Service] it would count for nothing.
            has("Unit", "StartLimitIntervalSec=0");
            has("Unit", "Wants=network-online.target");
            has("Unit", "After=network-pre.target network.target network-online.target");
            has("Service", "Restart=on-failure");
            has("Service", "WatchdogSec=10");
            // What is killed forwards again within 2 seconds, by its state file.
            has("Service", "RestartSec=100ms");
            assert!(settings["Service"].iter().all(|line| !line.starts_with("ExecStartPre=")), "{unit}");
        }
        // But for what names the instance, both are the same.
        let service = |unit| settings(unit).remove("Service").unwrap_or_default();
        let of_all = |lines: Vec<String>| -> Vec<String> {
            lines.into_iter().filter(|line| !line.contains("tidemill")).collect()
        };
        assert_eq!(of_all(service("tidemill.service")), of_all(service("tidemill@.service")));
    }
}
