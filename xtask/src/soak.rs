//! `soak`: every role under load for so many minutes, while its configuration is reloaded (well and badly), its routes come and go, its API is asked and abused, and
//! the process is ended and killed.
//!
//! ```text
//! reference   the example, its capture again and again, for some seconds: the drop reasons that are its own, with `--faults` those that lost, doubled, delayed and
//!             overtaken packets bring about, too: there are more of them than in lives, so that what is rare is seen
//! full disk   a record where there is no room, of roles that can be recorded: packets flow on, and the end says so
//! lives       start - (reload | bad reload | SIGHUP | routes | questions | nonsense | TCP)... - SIGTERM: books, reasons  or  SIGKILL
//! ```
//! A life that ends in good order has to say so: exit status 0 is books that balance, and nothing that went wrong. Its drop reasons are those of the reference. Within a life
//! no more files are open than in its beginning, but for [`MORE_FILES`], and memory stays flat: it jumps by no more than [`GROWTH_KIB`], and the last life, which has half of the time, grows by no more than [`LEAK_KIB`] by the slope of its
//! memory over time. A life of half a minute shows no slow leak; one of hours shows one of a kilobyte in a second.

use crate::{env, proc};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
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
    /// Packets are lost, doubled, delayed and overtaken on their way in, too
    #[arg(long)]
    faults: bool,
    /// What happens when; the same happens again with the same one, as far as time allows
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// All roles, and whether they take routes. No memcached is behind the `kvcache`: what passes by it are packets, and no gets; those are `ten_million_commands` of
/// `root_kvcache`, which holds its memory flat.
const ROLES: &[(&str, bool)] = &[
    ("router", true),
    ("switch", false),
    ("nat", true),
    ("filter", true),
    ("mitigator", false),
    ("gatekeeper", true),
    ("kvcache", false),
    (GRANTOR, true),
];
/// The one that needs a program with the feature `lua`.
const GRANTOR: &str = "grantor";
/// Those whose runs can be recorded; but for the router, whose record begins with a full table, so that it fails before it has begun.
const RECORDED: &[&str] = &["nat", "mitigator", "gatekeeper"];
/// Who may ask on TCP.
const TOKEN: &str = "soaked-soaked-soaked-soaked-soaked";

/// How long the reference runs.
const REFERENCE_S: &str = "20";
/// How long with `--faults`: what a lost fragment leaves behind is dropped when it has waited for a minute.
const FAULTY_REFERENCE_S: &str = "100";
/// With `--faults`, the share of packets that meets each of them in a life.
const FAULTY: f64 = 0.01;
/// And in the reference: two faults that meet once in a soak's lives meet often there.
const FAULTY_REFERENCE: f64 = 0.05;
/// A line of a configuration where faults are put in.
const FAULTS_HERE: &str = "# faults\n";
/// Why packets are dropped that were delayed when their port was closed: few ends have any.
const DELAYED_TO_THE_END: &str = "port-closed";

/// Why a Grantor drops requests when its policies' thread gets no processor for a while: a busy machine's doing, of which the reference may see none.
const BUSY: &str = "ask-queue-full";

/// How much more memory a life may have in its end than when it had warmed up: the kernel gives pages as they are first touched.
const GROWTH_KIB: u64 = 16 << 10;
/// How much a life may grow by from when it had warmed up to its end, as the median slope says: single jumps, up or down, count for little in it.
const LEAK_KIB: f64 = 1024.0;
/// How many more files and sockets a life may have open than when it had warmed up: who asks does not stay.
const MORE_FILES: usize = 64;
/// A life is warm after this, or after a quarter of its time if that is longer.
const WARM: Duration = Duration::from_secs(3);
/// Looks at memory that a slope is made of, at most.
const LOOKS: usize = 500;
/// A question or a reload takes no longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether all roles held, so many minutes each, on bad lines.
pub(crate) fn all(minutes: f64) -> Result<bool> {
    run(&Options { minutes, role: Vec::new(), binary: None, faults: true, seed: 1 })
}

/// Whether all roles that were asked for held.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let is_wanted = |role: &str| options.role.is_empty() || options.role.iter().any(|wanted| wanted == role);
    let binary = match &options.binary {
        Some(binary) => std::path::absolute(binary)?,
        None if is_wanted(GRANTOR) => env::tidemill_with("lua")?,
        None => env::tidemill()?,
    };
    if let Some(wrong) = options.role.iter().find(|role| !ROLES.iter().any(|(known, _)| known == role)) {
        let known: Vec<&str> = ROLES.iter().map(|(role, _)| *role).collect();
        bail!("soak: --role {wrong}: give some of {}", known.join(", "));
    }
    let time = Duration::try_from_secs_f64(options.minutes * 60.0).context("--minutes")?;
    let mut good = true;
    for (role, routes) in ROLES {
        if !is_wanted(role) {
            continue;
        }
        match soak(&binary, role, *routes, time, options) {
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
    /// The configuration, with [`FAULTS_HERE`] where there may be faults.
    template: String,
    /// The configuration as it is now.
    text: String,
}

/// What happens to packets on their way in: each of these to such a share of them.
fn faults(share: f64, seed: u64) -> String {
    format!(
        "fault = {{ seed = {seed}, rx = {{ loss = {share}, duplicate = {share}, reorder = {share}, delay = {share}, delay_us = 2000 }} }}\n"
    )
}

fn soak(binary: &Path, role: &str, routes: bool, time: Duration, options: &Options) -> Result<String> {
    let mut place = Place::new(binary, role)?;
    place.put(&if options.faults { faults(FAULTY_REFERENCE, 0) } else { String::new() })?;
    let seconds = if options.faults { FAULTY_REFERENCE_S } else { REFERENCE_S };
    let reference = proc::output(&mut place.command(&["run", "run.toml", "--json", "--duration", seconds]))?;
    let mut known = reasons(&last_object(&reference)?);
    if options.faults {
        ensure!(known.contains("injected-loss"), "--faults: no packet is lost: {known:?}");
        known.insert(DELAYED_TO_THE_END.to_owned());
    }
    if role == GRANTOR {
        known.insert(BUSY.to_owned());
    }
    if RECORDED.contains(&role) {
        full_disk(&place)?;
    }
    let (began, mut draw) = (Instant::now(), Draw(options.seed | 1));
    let (half, end) = (began + time / 2, began + time);
    let (mut lives, mut kills, mut acts, mut most_kib) = (0, 0, 0, 0);
    let mut grown_kib = 0.0;
    let mut is_last = false;
    while !is_last {
        lives += 1;
        is_last = Instant::now() >= half;
        if options.faults {
            place.put(&faults(FAULTY, draw.below(1 << 32)))?;
        }
        let mut life = Life::start(&place, lives)?;
        let began = Instant::now();
        let short = began + Duration::from_secs(5 + draw.below(25));
        let until = if is_last { end } else { short.min(half) };
        let warm = if is_last { WARM.max(time / 8) } else { WARM };
        let (mut as_warm, mut looks) = (None, Vec::new());
        while Instant::now() < until {
            act(&place, &life, routes, &mut draw)?;
            acts += 1;
            let (kib, files) = (life.rss_kib()?, life.files()?);
            if began.elapsed() > warm {
                let (warm_kib, warm_files) = *as_warm.get_or_insert((kib, files));
                ensure!(
                    kib <= warm_kib + GROWTH_KIB,
                    "life {lives}: {kib} KiB of memory, {warm_kib} when it had warmed up"
                );
                ensure!(
                    files <= warm_files + MORE_FILES,
                    "life {lives}: {files} files and sockets are open, {warm_files} when it had warmed up"
                );
                looks.push((began.elapsed().as_secs_f64(), kib as f64));
            }
            most_kib = kib.max(most_kib);
            std::thread::sleep(Duration::from_millis(50 + draw.below(300)));
        }
        if is_last {
            grown_kib = growth(&looks);
            ensure!(
                grown_kib <= LEAK_KIB,
                "life {lives}: it grows: by {grown_kib:.0} KiB of memory since it had warmed up, {:.0} s ago, by the median slope; {LEAK_KIB} at most",
                began.elapsed().saturating_sub(warm).as_secs_f64()
            );
        }
        fs::write(place.folder.join("run.toml"), &place.text)?;
        // The last one ends in good order, so that its books are looked at.
        if !is_last && draw.below(3) == 0 {
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
        "{lives} lives, {kills} of them killed, {acts} acts, at most {most_kib} KiB, the last one grew by {grown_kib:.0}; drops: {known:?}"
    ))
}

/// Records where there is no room.
fn full_disk(place: &Place<'_>) -> Result<()> {
    let mut command =
        place.command(&["run", "run.toml", "--json", "--duration", "5", "--record", "/dev/full"]);
    let output = command.output().with_context(|| place.binary.display().to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && said.contains("No space left on device"),
        "a full disk: {}: {}",
        output.status,
        said.lines().last().unwrap_or_default()
    );
    let report = last_object(&String::from_utf8_lossy(&output.stdout)).context("a full disk")?;
    let count = |name: &str| report[name].as_u64().unwrap_or_default();
    let dropped = report["dropped"].as_object().into_iter().flat_map(|reasons| reasons.values());
    let dropped: u64 = dropped.filter_map(Value::as_u64).sum();
    ensure!(
        count("in") > 0
            && count("in") + count("made") == count("out") + dropped + count("consumed") + count("held"),
        "a full disk: the books do not balance: {report}"
    );
    Ok(())
}

/// By how much something grows over all of its looks (seconds, KiB), by the median of the slopes between each two of them (Theil-Sen): what jumps now and then, and
/// does not go on, moves it little.
fn growth(looks: &[(f64, f64)]) -> f64 {
    // As many as are compared in a moment, evenly.
    let looks: Vec<(f64, f64)> = looks.iter().step_by(looks.len().div_ceil(LOOKS).max(1)).copied().collect();
    let pairs =
        looks.iter().enumerate().flat_map(|(at, one)| looks[at + 1..].iter().map(move |other| (one, other)));
    let mut slopes: Vec<f64> = pairs
        .filter(|(one, other)| other.0 > one.0)
        .map(|(one, other)| (other.1 - one.1) / (other.0 - one.0))
        .collect();
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else { return 0.0 };
    let middle = slopes.len() / 2;
    if slopes.is_empty() {
        return 0.0;
    }
    let (_, median, _) = slopes.select_nth_unstable_by(middle, f64::total_cmp);
    *median * (last.0 - first.0)
}

impl<'a> Place<'a> {
    /// The role's example, played again and again at some speed, with a socket; packets that are made up instead of what would come by interfaces.
    fn new(binary: &'a Path, role: &str) -> Result<Self> {
        let folder = env::root().join("target/soak").join(role);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let example = env::root().join("examples").join(role);
        let file = example.join(format!("{role}.toml"));
        let written = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let paced = written.lines().any(|line| line.starts_with("pace"));
        let (mut text, mut outputs, mut interfaces) = (String::new(), 0, 0);
        for line in written.lines() {
            let name = |key: &str| line.strip_prefix(key)?.trim().strip_prefix('=')?.split('"').nth(1);
            if let Some(input) = name("input") {
                text += &format!("input = {:?}\nrepeat = 0\n{FAULTS_HERE}", example.join(input));
                text += if written.contains("\npreload = true") { "" } else { "preload = true\n" };
                text += if paced { "" } else { "pace = \"time\"\nspeed = 20.0\n" };
            } else if name("output").is_some() {
                // No two outputs are one file; this one has many names.
                outputs += 1;
                text += &format!("output = \"/dev/{}null\"\n", "../dev/".repeat(outputs));
            } else if name("kind") == Some("af_packet") {
                // They come by the first one.
                interfaces += 1;
                text += &match interfaces {
                    1 => format!("kind = \"generator\"\nrate_pps = 20000\n{FAULTS_HERE}"),
                    _ => "kind = \"null\"\nreceive = false\n".to_owned(),
                };
            } else if name("interface").is_none() && line != "[control]" {
                text += line;
                text += "\n";
            }
        }
        text += "\n[control]\nsocket = \"s.sock\"\nlisten = [\"127.0.0.1:0\"]\ntoken_file = \"tokens\"\n";
        fs::write(folder.join("tokens"), format!("soak read {TOKEN}\n"))?;
        fs::set_permissions(folder.join("tokens"), fs::Permissions::from_mode(0o600))?;
        // What an example names beside its captures.
        for entry in fs::read_dir(&example)? {
            let path = entry?.path();
            if path.is_file() && path != file && path.extension().is_none_or(|kind| kind != "zst") {
                fs::copy(&path, folder.join(path.file_name().unwrap_or_default()))?;
            }
        }
        Ok(Place { binary, folder, text: text.clone(), template: text })
    }

    /// Writes the configuration, with such faults.
    fn put(&mut self, faults: &str) -> Result<()> {
        self.text = self.template.replace(FAULTS_HERE, faults);
        let file = self.folder.join("run.toml");
        fs::write(&file, &self.text).with_context(|| file.display().to_string())
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
    /// Where it answers on TCP.
    address: String,
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
        let said = File::options().create(true).append(true).open(&log)?;
        let before = said.metadata()?.len();
        let child =
            place.command(&["run", "run.toml", "--json"]).stdout(File::create(&out)?).stderr(said).spawn();
        let child = child.with_context(|| place.binary.display().to_string())?;
        let mut life = Life { child, out, address: String::new() };
        let began = Instant::now();
        while !place.ask(&["show", "drops"])?.0 {
            if let Some(status) = life.child.try_wait()? {
                bail!("life {number}: it ended at once, {status}: see log.txt in {}", place.folder.display());
            }
            ensure!(began.elapsed() < PATIENCE, "life {number}: nothing answers");
            std::thread::sleep(Duration::from_millis(50));
        }
        while life.address.is_empty() {
            ensure!(began.elapsed() < PATIENCE, "life {number}: it does not say where it answers on TCP");
            let said = fs::read(&log)?;
            let said = String::from_utf8_lossy(said.get(before as usize..).unwrap_or_default());
            let at = said
                .lines()
                .find_map(|line| line.strip_prefix("tidemill: the API and /metrics are at "))
                .filter(|_| said.ends_with('\n'));
            life.address = at.unwrap_or_default().to_owned();
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(life)
    }

    fn rss_kib(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).context("it has ended")?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("it has ended")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    /// Files and sockets that it has open.
    fn files(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.child.id())).context("it has ended")?.count())
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
    match draw.below(9) {
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
            let _ = stream.write_all(&nonsense(draw));
        }
        6 => on_tcp(&life.address, draw)?,
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

fn nonsense(draw: &mut Draw) -> Vec<u8> {
    (0..draw.below(3000)).map(|_| draw.below(256) as u8).collect()
}

/// From the network: one that says nonsense and goes, one that guesses a token, one that has it.
fn on_tcp(address: &str, draw: &mut Draw) -> Result<()> {
    let connect = || -> Result<TcpStream> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    let _ = connect()?.write_all(&nonsense(draw));
    for (token, status) in [("guessed-guessed-guessed-guessed", "401"), (TOKEN, "200")] {
        let mut stream = connect()?;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let first = answer.lines().next().unwrap_or_default();
        ensure!(
            first.starts_with(&format!("HTTP/1.1 {status} ")),
            "/metrics on TCP: {first:?} instead of {status}"
        );
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

#[cfg(test)]
mod tests {
    use super::{Draw, GROWTH_KIB, LEAK_KIB, growth};

    /// Fifteen minutes of looks, by what is there beside noise that comes and goes by pages.
    fn looks(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let mut draw = Draw(7);
        let look = |at: u32| {
            let second = f64::from(at) * 0.2;
            (second, 50_000.0 + of(second) + (draw.below(64) * 4) as f64)
        };
        (0..4500).map(look).collect()
    }

    #[test]
    fn slow_leaks_are_seen_and_jumps_are_none() {
        let leak = |kib_s: f64| growth(&looks(|second| second * kib_s));
        assert!(leak(0.0).abs() < LEAK_KIB / 20.0);
        // 2 KiB a second: in a life of half a minute less than a jump, in a day 170 MB.
        assert!(leak(2.0) > LEAK_KIB && 2.0 * 30.0 < GROWTH_KIB as f64);
        assert!((leak(2.0) - 1800.0).abs() < 100.0, "{}", leak(2.0));
        // One table that grows once and stays; a peak that goes.
        assert!(growth(&looks(|second| if second > 600.0 { 800.0 } else { 0.0 })) < LEAK_KIB);
        let peak = growth(&looks(|second| if (300.0..400.0).contains(&second) { 12_000.0 } else { 0.0 }));
        assert!(peak.abs() < LEAK_KIB / 10.0, "{peak}");
        assert_eq!((growth(&[]), growth(&[(1.0, 5.0)]), growth(&[(1.0, 5.0), (1.0, 9.0)])), (0.0, 0.0, 0.0));
    }
}
