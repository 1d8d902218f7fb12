//! `soak`: every role under load for so many minutes, while its configuration is reloaded (well and badly), its routes come and go, its API is asked and abused, and
//! the process is ended and killed.
//!
//! ```text
//! reference   the example, its capture again and again, for some seconds: the drop reasons that are its own
//! lives       start - (reload | bad reload | SIGHUP | routes | questions | nonsense)... - SIGTERM: books, reasons  or  SIGKILL
//! ```
//! A life that ends in good order has to say so: exit status 0 is books that balance, and nothing that went wrong. Its drop reasons are those of the reference. Within a life
//! memory stays flat.

use crate::{env, proc};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Options of `cargo xtask soak`.
#[derive(Args)]
pub(crate) struct Options {
    /// Minutes for each role
    #[arg(long, value_name = "N", default_value_t = 30.0)]
    minutes: f64,
    /// Only this role; repeatable
    #[arg(long, value_name = "NAME")]
    role: Vec<String>,
    /// The program, instead of one that is built for it
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// What happens when; the same happens again with the same one, as far as time allows
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Roles that need no other program beside them, and whether they take routes.
const ROLES: &[(&str, bool)] =
    &[("router", true), ("switch", false), ("nat", true), ("mitigator", false), ("gatekeeper", true)];

/// How long the reference runs.
const REFERENCE_S: &str = "20";
/// How much more memory a life may have in its end than when it had warmed up: the kernel gives pages as they are first touched.
const GROWTH_KIB: u64 = 16 << 10;
/// A question or a reload takes no longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether all roles held.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let binary = match &options.binary {
        Some(binary) => std::path::absolute(binary)?,
        None => env::tidemill()?,
    };
    if let Some(wrong) = options.role.iter().find(|role| !ROLES.iter().any(|(known, _)| known == role)) {
        let known: Vec<&str> = ROLES.iter().map(|(role, _)| *role).collect();
        bail!("soak: --role {wrong}: give some of {}", known.join(", "));
    }
    let time = Duration::try_from_secs_f64(options.minutes * 60.0).context("--minutes")?;
    let mut good = true;
    for (role, routes) in ROLES {
        if !options.role.is_empty() && !options.role.iter().any(|wanted| wanted == role) {
            continue;
        }
        match soak(&binary, role, *routes, time, options.seed) {
            Ok(said) => println!("soak {role}: held: {said}"),
            Err(error) => {
                good = false;
                println!("soak {role}: FAILED: {error:#}");
            }
        }
    }
    Ok(good)
}

/// xorshift64*: what happens when.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }
}

/// Where a role is tried.
struct Place<'a> {
    binary: &'a Path,
    folder: PathBuf,
    text: String,
}

fn soak(binary: &Path, role: &str, routes: bool, time: Duration, seed: u64) -> Result<String> {
    let place = Place::new(binary, role)?;
    let reference =
        proc::output(&mut place.command(&["run", "run.toml", "--json", "--duration", REFERENCE_S]))?;
    let known = reasons(&last_object(&reference)?);
    let (end, mut draw) = (Instant::now() + time, Draw(seed | 1));
    let (mut lives, mut kills, mut acts, mut most_kib) = (0, 0, 0, 0);
    while lives == 0 || Instant::now() < end {
        lives += 1;
        let mut life = Life::start(&place, lives)?;
        let until = (Instant::now() + Duration::from_secs(5 + draw.below(25))).min(end.max(Instant::now()));
        let mut warm_kib = None;
        let began = Instant::now();
        while Instant::now() < until {
            act(&place, &life, routes, &mut draw)?;
            acts += 1;
            let kib = life.rss_kib()?;
            if began.elapsed() > Duration::from_secs(3) {
                let warm = *warm_kib.get_or_insert(kib);
                ensure!(
                    kib <= warm + GROWTH_KIB,
                    "life {lives}: {kib} KiB of memory, {warm} when it had warmed up"
                );
            }
            most_kib = kib.max(most_kib);
            std::thread::sleep(Duration::from_millis(50 + draw.below(300)));
        }
        fs::write(place.folder.join("run.toml"), &place.text)?;
        // The last one ends in good order, so that its books are looked at.
        if draw.below(3) == 0 && Instant::now() < end {
            kills += 1;
            life.child.kill()?;
            life.child.wait()?;
            continue;
        }
        let report = life.end()?;
        let unknown: Vec<String> = reasons(&report).difference(&known).cloned().collect();
        ensure!(unknown.is_empty(), "life {lives}: drops for other reasons than the example's: {unknown:?}");
    }
    Ok(format!(
        "{lives} lives, {kills} of them killed, {acts} acts, at most {most_kib} KiB; drops: {known:?}"
    ))
}

impl<'a> Place<'a> {
    /// The role's example, played again and again at some speed, with a socket.
    fn new(binary: &'a Path, role: &str) -> Result<Self> {
        let folder = env::root().join("target/soak").join(role);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let example = env::root().join("examples").join(role);
        let file = example.join(format!("{role}.toml"));
        let written = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let paced = written.lines().any(|line| line.starts_with("pace"));
        let (mut text, mut outputs) = (String::new(), 0);
        for line in written.lines() {
            let name = |key: &str| line.strip_prefix(key)?.trim().strip_prefix('=')?.split('"').nth(1);
            if let Some(input) = name("input") {
                text += &format!("input = {:?}\nrepeat = 0\n", example.join(input));
                text += if written.contains("\npreload = true") { "" } else { "preload = true\n" };
                text += if paced { "" } else { "pace = \"time\"\nspeed = 20.0\n" };
            } else if name("output").is_some() {
                // No two outputs are one file; this one has many names.
                outputs += 1;
                text += &format!("output = \"/dev/{}null\"\n", "../dev/".repeat(outputs));
            } else {
                text += line;
                text += "\n";
            }
        }
        text += "\n[control]\nsocket = \"s.sock\"\n";
        fs::write(folder.join("run.toml"), &text)?;
        // What an example names beside its captures.
        for entry in fs::read_dir(&example)? {
            let path = entry?.path();
            if path.is_file() && path != file && path.extension().is_none_or(|kind| kind != "zst") {
                fs::copy(&path, folder.join(path.file_name().unwrap_or_default()))?;
            }
        }
        Ok(Place { binary, folder, text })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.binary);
        command.current_dir(&self.folder).args(arguments).stdin(Stdio::null());
        command
    }
}

/// A process of the role, at work.
struct Life {
    child: Child,
    out: PathBuf,
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Life {
    fn start(place: &Place<'_>, number: u64) -> Result<Self> {
        fs::write(place.folder.join("run.toml"), &place.text)?;
        let (out, log) = (place.folder.join("out.json"), place.folder.join("log.txt"));
        let log = File::options().create(true).append(true).open(log)?;
        let child =
            place.command(&["run", "run.toml", "--json"]).stdout(File::create(&out)?).stderr(log).spawn();
        let mut life = Life { child: child.with_context(|| place.binary.display().to_string())?, out };
        let began = Instant::now();
        while !place.ask(&["show", "drops"])?.0 {
            if let Some(status) = life.child.try_wait()? {
                bail!("life {number}: it ended at once, {status}: see log.txt in {}", place.folder.display());
            }
            ensure!(began.elapsed() < PATIENCE, "life {number}: nothing answers");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(life)
    }

    fn rss_kib(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).context("it has ended")?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("it has ended")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    fn signal(&self, signal: &str) -> Result<()> {
        proc::check(Command::new("kill").args([signal, &self.child.id().to_string()]))
    }

    /// Ends it, and returns its report.
    fn end(&mut self) -> Result<Value> {
        self.signal("-TERM")?;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        ensure!(
            status.success(),
            "it ended with {status}: its books do not balance, or something went wrong: see log.txt"
        );
        last_object(&fs::read_to_string(&self.out)?)
    }
}

impl Place<'_> {
    /// Whether a question was answered, and with what.
    fn ask(&self, arguments: &[&str]) -> Result<(bool, String)> {
        let output = self.command(arguments).args(["--socket", "s.sock", "--json"]).output()?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

/// One thing that happens to it.
fn act(place: &Place<'_>, life: &Life, routes: bool, draw: &mut Draw) -> Result<()> {
    let config = place.folder.join("run.toml");
    let must = |arguments: &[&str]| -> Result<String> {
        let (good, text) = place.ask(arguments)?;
        ensure!(good, "tidemill {} fails", arguments.join(" "));
        Ok(text)
    };
    match draw.below(8) {
        0 => {
            fs::write(&config, format!("{}# {}\n", place.text, draw.below(1000)))?;
            must(&["reload"])?;
        }
        1 => {
            fs::write(&config, format!("{}\n[nonsense]\n", place.text))?;
            ensure!(!place.ask(&["reload"])?.0, "a wrong configuration was taken");
            fs::write(&config, &place.text)?;
        }
        2 => life.signal("-HUP")?,
        3 | 4 if routes => {
            // Nothing of the examples' traffic goes there.
            let n = draw.below(256);
            let prefix = if n.is_multiple_of(2) {
                format!("198.18.{n}.0/24")
            } else {
                format!("2001:db8:ffff:{n:x}::/64")
            };
            must(&["route", "add", &prefix, "blackhole"])?;
            must(&["route", "delete", &prefix])?;
        }
        5 => {
            // Who says nonsense, and goes away in the midst of it.
            let mut stream = UnixStream::connect(place.folder.join("s.sock"))?;
            let bytes: Vec<u8> = (0..draw.below(3000)).map(|_| draw.below(256) as u8).collect();
            let _ = stream.write_all(&bytes);
        }
        _ => {
            let what = ["ports", "counters", "drops", "workers", "tables"][draw.below(5) as usize];
            let text = must(&["show", what])?;
            for line in text.lines() {
                serde_json::from_str::<Value>(line).with_context(|| format!("show {what}: {line}"))?;
            }
        }
    }
    Ok(())
}

fn last_object(text: &str) -> Result<Value> {
    let line = text.lines().rfind(|line| line.starts_with('{')).context("no report")?;
    Ok(serde_json::from_str(line)?)
}

/// What was dropped for.
fn reasons(report: &Value) -> BTreeSet<String> {
    report["dropped"].as_object().into_iter().flat_map(|dropped| dropped.keys().cloned()).collect()
}
