//! The tier `examples`: the README's first command works as printed, its counters add up, and tshark finds nothing wrong
//! with the captures that it wrote; the router on a wire works as its demonstration shows it (root), and every variant in
//! its configuration is right; the crates' examples to copy from end well.

use super::Totals;
use crate::{env, proc};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Examples of crates that are there to be copied from: they check their own sums. The others are measurements.
const TO_COPY: &[(&str, &str)] = &[("tidemill-flow", "flow_cache")];

pub(crate) fn run() -> Result<Totals> {
    let mut totals = router()?;
    for (package, name) in TO_COPY {
        let mut example = env::cargo();
        example.args(["run", "--quiet", "--package", package, "--example", name]);
        let ran = proc::output(&mut example).map(|said| print!("{said}"));
        told(&mut totals, &format!("examples::{name}"), ran);
    }
    told(&mut totals, "examples::mitigator", mitigator());
    told(&mut totals, "examples::switch", switch());
    told(&mut totals, "examples::gatekeeper", gatekeeper());
    told(&mut totals, "examples::grantor", grantor());
    told(&mut totals, "examples::nat", nat());
    told(&mut totals, "examples::filter", filter());
    told(&mut totals, "examples::bgp", bgp());
    told(&mut totals, "examples::ddos", ddos());
    told(&mut totals, "examples::wire_variants", wire_variants());
    if !env::is_root() && !env::in_ci() {
        totals.skip("examples::wire_demo", "not root");
    } else {
        told(&mut totals, "examples::wire_demo", wire_demo("tidemill").map(|said| print!("{said}")));
    }
    Ok(totals)
}

/// Builds the command as the README's does.
pub(super) fn build() -> Result<()> {
    env::tidemill().map(drop)
}

/// The router on files, as the README has it.
fn router() -> Result<Totals> {
    let mut totals = Totals::default();
    let readme = env::root().join("README.md");
    let folder = env::root().join("examples").join("router");
    // Before the command line exists there is neither; afterwards both must be there.
    if !readme.exists() && !folder.join("router.toml").exists() {
        for name in ["examples::readme_command", "examples::output_captures"] {
            totals.skip(name, "there is no README.md and no examples/router/router.toml yet");
        }
        return Ok(totals);
    }
    for old in outputs(&folder)? {
        std::fs::remove_file(&old).with_context(|| old.display().to_string())?;
    }
    let ran = std::fs::read_to_string(&readme).context("README.md").and_then(|text| readme_command(&text));
    told(&mut totals, "examples::readme_command", ran);
    if !env::has_program("tshark") && !env::in_ci() {
        totals.skip("examples::output_captures", "tshark is not installed");
        return Ok(totals);
    }
    let judged = outputs(&folder).and_then(|captures| judge_all(&captures));
    told(&mut totals, "examples::output_captures", judged);
    Ok(totals)
}

/// Counts a result, and shows its error.
fn told(totals: &mut Totals, name: &str, result: Result<()>) {
    if let Err(error) = &result {
        println!("{error:#}");
    }
    totals.count(name, result.is_ok());
}

/// The captures that the example writes: out.*.
fn outputs(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("out.")));
    files.sort();
    Ok(files)
}

/// The arguments of the first `cargo run` line of the text, without a comment at its end.
fn first_command(readme: &str) -> Result<Vec<String>> {
    let line =
        readme.lines().map(|line| line.trim().trim_start_matches("$ ")).find(|l| l.starts_with("cargo run "));
    let line = line.context("README.md shows no line that begins with `cargo run`")?;
    let words = line.split_whitespace().skip(1).take_while(|word| !word.starts_with('#'));
    Ok(words.map(str::to_owned).collect())
}

/// The command as printed, with its counters as JSON.
fn readme_command(readme: &str) -> Result<()> {
    let mut command = env::cargo();
    command.args(first_command(readme)?).arg("--json");
    let printed = proc::output(&mut command)?;
    let line = printed.lines().rev().find(|line| line.contains("\"in\":"));
    let line = line.context("`run` printed no line of counters")?;
    println!("{line}");
    conserved(&serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?)
}

/// in + made = out + dropped + consumed + held, and something came out.
fn conserved(counters: &Value) -> Result<()> {
    let count =
        |name: &str| counters[name].as_u64().with_context(|| format!("the counters have no {name:?}"));
    let dropped = counters["dropped"].as_object().context("the counters have no \"dropped\"")?;
    let dropped: u64 = dropped.values().filter_map(Value::as_u64).sum();
    let came = count("in")? + count("made")?;
    let went = count("out")? + dropped + count("consumed")? + count("held")?;
    if came != went {
        bail!("{came} packets came in or were made, {went} are accounted for");
    }
    if count("out")? == 0 {
        bail!("no packet came out");
    }
    Ok(())
}

/// What tshark is asked for: malformed packets, errors of any dissector, and wrong checksums (0 is "bad").
const FILTER: &str = "_ws.malformed || _ws.expert.severity == 8388608 || ip.checksum.status == 0 || \
    tcp.checksum.status == 0 || udp.checksum.status == 0 || icmp.checksum.status == 0 || icmpv6.checksum.status == 0";

fn judge_all(captures: &[PathBuf]) -> Result<()> {
    let mut packets = 0;
    for capture in captures {
        packets += judge(capture)?;
    }
    println!("tshark finds nothing wrong in {} captures of {packets} packets", captures.len());
    if packets == 0 {
        bail!("there is no packet to judge");
    }
    Ok(())
}

/// The number of packets; fails, showing the first ones, if tshark finds anything wrong.
fn judge(capture: &Path) -> Result<usize> {
    let tshark = |filter: &str, shown: &[&str]| {
        let mut tshark = Command::new("tshark");
        for protocol in ["ip", "tcp", "udp"] {
            tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
        }
        tshark.arg("-n").arg("-r").arg(capture).args(["-Y", filter]).args(shown);
        proc::output(&mut tshark)
    };
    // Both at once: what takes time is that it starts.
    let (found, frames) = std::thread::scope(|scope| {
        let frames = scope.spawn(|| tshark("frame", &["-T", "fields", "-e", "frame.number"]));
        (tshark(FILTER, &[]), frames.join())
    });
    let (found, frames) = (found?, frames.map_err(|_| anyhow!("counting frames panicked"))??);
    if !found.trim().is_empty() {
        let first: Vec<&str> = found.lines().take(5).collect();
        let count = found.lines().count();
        bail!("{}: tshark finds {count} bad packets:\n{}", capture.display(), first.join("\n"));
    }
    Ok(frames.lines().count())
}

/// What a run of an example says in the end; its packets are all accounted for.
fn ended(config: &str) -> Result<Value> {
    ended_by(&env::tidemill()?, config)
}

/// The same of another build of it.
fn ended_by(tidemill: &Path, config: &str) -> Result<Value> {
    let mut command = Command::new(tidemill);
    command.args(["run", config, "--json"]).current_dir(env::root());
    let printed = proc::output(&mut command)?;
    let line = printed.lines().last().context("`run` printed nothing")?;
    println!("{line}");
    let said: Value = serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
    conserved(&said)?;
    Ok(said)
}

/// The mitigator on files: of an attack little comes through, and everything else does.
fn mitigator() -> Result<()> {
    let said = ended("examples/mitigator/mitigator.toml")?;
    let dropped = said["dropped"].as_object().context("the counters have no \"dropped\"")?;
    if dropped.keys().collect::<Vec<_>>() != ["amplification"] {
        bail!("something else than the attack was dropped: {dropped:?}");
    }
    let counter = |name: &str| said["amp"][name].as_u64().with_context(|| format!("no counter {name:?}"));
    // Eight servers asked from 25 ports over IPv4 and from 7 over IPv6, six times each; the clients' questions beside them.
    let (rules, asked) = (counter("rules-made")?, counter("answers-solicited")?);
    if rules != 8 * (25 + 7) || asked == 0 {
        bail!("{rules} rules, {asked} answers that were asked for");
    }
    let attack = rules * 6;
    if counter("dropped")? * 10 < attack * 7 {
        bail!("{} packets of {attack} and their fragments were kept away", counter("dropped")?);
    }
    Ok(())
}

/// The switch on files: rules sort and send, nothing is lost without a name, and what is edited is well-formed.
fn switch() -> Result<()> {
    let folder = env::root().join("examples").join("switch");
    let said = ended("examples/switch/switch.toml")?;
    let counter = |name: &str| said["switch"][name].as_u64().with_context(|| format!("no counter {name:?}"));
    let decided = counter("exact-hits")? + counter("megaflow-hits")? + counter("misses")?;
    if said["in"].as_u64() != Some(decided) || counter("misses")? * 5 > decided {
        bail!("{decided} packets decided, {} by the rules", counter("misses")?);
    }
    let dropped = said["dropped"].as_object().context("the counters have no \"dropped\"")?;
    if !dropped.contains_key("rule-drop") || said["out"].as_u64() <= said["in"].as_u64().map(|n| n / 2) {
        bail!("sent {}, dropped {dropped:?}", said["out"]);
    }
    match env::has_program("tshark") || env::in_ci() {
        true => judge_all(&outputs(&folder)?),
        false => Ok(()),
    }
}

/// The Gatekeeper on files: every packet asks, and what goes to the Grantors is well-formed.
fn gatekeeper() -> Result<()> {
    let folder = env::root().join("examples").join("gatekeeper");
    let said = ended("examples/gatekeeper/gatekeeper.toml")?;
    let counter = |name: &str| said["gate"][name].as_u64().with_context(|| format!("no counter {name:?}"));
    if counter("front")? == 0 || counter("requests")? != counter("front")? {
        bail!("{} requests of {} packets", counter("requests")?, counter("front")?);
    }
    match env::has_program("tshark") || env::in_ci() {
        true => judge_all(&outputs(&folder)?),
        false => Ok(()),
    }
}

/// The NAT on files: what leaves has an address of the pool, and adds up.
fn nat() -> Result<()> {
    let folder = env::root().join("examples").join("nat");
    let said = ended("examples/nat/nat.toml")?;
    let counter = |name: &str| said["nat"][name].as_u64().with_context(|| format!("no counter {name:?}"));
    if counter("out")? == 0 || counter("fragments")? == 0 || counter("sessions4")? == 0 {
        bail!("{} packets translated, {} later fragments", counter("out")?, counter("fragments")?);
    }
    match env::has_program("tshark") || env::in_ci() {
        true => judge_all(&outputs(&folder)?),
        false => Ok(()),
    }
}

/// The packet filter on files: what leaves has been let through, and what is blocked is counted.
fn filter() -> Result<()> {
    let folder = env::root().join("examples").join("filter");
    let said = ended("examples/filter/filter.toml")?;
    let counter = |name: &str| said["filter"][name].as_u64().with_context(|| format!("no counter {name:?}"));
    if counter("passed")? == 0 || counter("states-made")? == 0 {
        bail!("{} packets passed, of {} connections", counter("passed")?, counter("states-made")?);
    }
    match env::has_program("tshark") || env::in_ci() {
        true => judge_all(&outputs(&folder)?),
        false => Ok(()),
    }
}

/// The Grantor on files: who is on the list is kept away, the others go on, and the Gatekeeper is told.
fn grantor() -> Result<()> {
    let folder = env::root().join("examples").join("grantor");
    // Policies need a feature that is off by default: the build that the tests use has it.
    let said = ended_by(&super::harness::tidemill()?, "examples/grantor/grantor.toml")?;
    let counter = |name: &str| said["grantor"][name].as_u64().with_context(|| format!("no counter {name:?}"));
    let (asked, on, refused) = (counter("requests")?, counter("forwarded")?, counter("policy-dropped")?);
    if on == 0 || refused == 0 || on + refused != asked || counter("decisions")? == 0 {
        bail!(
            "{asked} requests, of which {on} went on and {refused} did not; {} decisions",
            counter("decisions")?
        );
    }
    match env::has_program("tshark") || env::in_ci() {
        true => judge_all(&outputs(&folder)?),
        false => Ok(()),
    }
}

/// A process that ends with its value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The router that BIRD feeds: five of its six routes are used, for the sixth one's next hop cannot be reached; BIRD has what we announce;
/// and packets are dropped, held to a rate, and redirected, by its flow specifications.
fn bgp() -> Result<()> {
    let (tidemill, folder) = (env::tidemill()?, env::root().join("examples").join("bgp"));
    let config = folder.join("bgp.toml");
    proc::check(Command::new(&tidemill).arg("check").arg(&config))?;
    if !env::has_program("bird") && !env::in_ci() {
        println!("examples::bgp: checked only: bird is not installed");
        return Ok(());
    }
    let start = |command: &mut Command| {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok::<_, anyhow::Error>(Running(quiet.spawn().context("cannot be started")?))
    };
    let ctl = env::scratch("bgp")?.join("bird.ctl");
    let _bird =
        start(Command::new("bird").args(["-f", "-c"]).arg(folder.join("bird.conf")).arg("-s").arg(&ctl))?;
    let mut router = start(Command::new(&tidemill).arg("run").arg(&config))?;
    let ask = |arguments: &[&str]| -> String {
        let socket = folder.join("bgp.sock");
        let output = Command::new(&tidemill).args(arguments).arg("--socket").arg(socket).output();
        output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let began = Instant::now();
    loop {
        let used = ask(&["show", "routes", "--json"]).matches("\"source\":\"bgp\"").count();
        let paths = ask(&["bgp", "routes", "--json"]);
        let (told, lost) = (paths.lines().count(), paths.matches("\"reachable\":false").count());
        let output =
            Command::new("birdc").arg("-s").arg(&ctl).args(["show", "route", "198.51.100.0/24"]).output()?;
        let announced = String::from_utf8_lossy(&output.stdout).contains("AS65000");
        let applied = ask(&["show", "flowspec", "--json"]).matches("\"state\":\"applied\"").count();
        let drops = ask(&["show", "drops", "--json"]);
        let dropped = ["\"flowspec-drop\"", "\"flowspec-rate\""].iter().all(|reason| drops.contains(reason));
        let ports = ask(&["show", "ports", "--json"]);
        let sent = |port: Value| port["name"] == "scrub" && port["tx"]["packets"].as_u64() > Some(0);
        let redirected = ports.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).any(sent);
        if (used, told, lost, announced, applied, dropped, redirected) == (5, 6, 1, true, 3, true, true) {
            break;
        }
        if began.elapsed() > Duration::from_secs(60) || router.0.try_wait()?.is_some() {
            bail!(
                "{used} of 5 routes used, {told} of 6 told, {lost} of 1 unreachable, announced: {announced}, {applied} of 3 flow specifications applied, \
                 their packets dropped: {dropped}, redirected: {redirected}"
            );
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("examples::bgp: {}", ask(&["stop"]).trim());
    let ended = router.0.wait()?;
    if !ended.success() {
        bail!("the router ended with {ended}");
    }
    Ok(())
}

/// The scenarios are good ones. Played they are by `held 9`, and in a short form by the test `root_scenario`.
fn ddos() -> Result<()> {
    for file in ["examples/ddos/ddos.toml", "examples/ddos/patient.toml"] {
        let mut command = Command::new(env::tidemill()?);
        proc::check(command.current_dir(env::root()).args(["check", file]))?;
    }
    Ok(())
}

/// Each variant that the wire's configuration shows in comments makes a good configuration.
fn wire_variants() -> Result<()> {
    let path = env::root().join("examples").join("wire").join("router.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let file = env::scratch("wire")?.join("router.toml");
    let tidemill = env::tidemill()?;
    let variants = variants(&text);
    for (name, variant) in &variants {
        std::fs::write(&file, variant)?;
        // It says that there are no such devices, and that they are checked as if they were there.
        let output = Command::new(&tidemill).arg("check").arg(&file).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {name}: {}", path.display(), said.lines().last().unwrap_or_default());
        }
    }
    println!("{} variants of {} are good configurations", variants.len(), path.display());
    Ok(())
}

/// What stands above the first `# ---- `, alone and with each of the variants. A variant's prose ends with an empty
/// comment; where it says that the kernel owns the addresses, its interfaces replace the others.
fn variants(text: &str) -> Vec<(String, String)> {
    let mut parts = text.split("# ---- ");
    let base = parts.next().unwrap_or_default();
    let mut variants = vec![("as it is".to_owned(), base.to_owned())];
    for part in parts {
        let (prose, code) = part.split_once("\n#\n").unwrap_or_default();
        let uncomment = |line: &str| line.trim_start_matches('#').to_owned() + "\n";
        let code: String = code.lines().map(uncomment).collect();
        let base =
            if code.contains("owner = \"kernel\"") { without_interfaces(base) } else { base.to_owned() };
        let name = prose.split([':', '.']).next().unwrap_or_default();
        variants.push((name.to_owned(), base + &code));
    }
    variants
}

fn without_interfaces(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        if line.starts_with('[') {
            inside = *line == "[[interface]]";
        }
        !inside
    });
    lines.map(|line| line.to_owned() + "\n").collect()
}

/// Runs examples/wire/demo.sh with Tidemill or the kernel as the router; what it says.
pub(crate) fn wire_demo(router: &str) -> Result<String> {
    let mut demo = Command::new(env::root().join("examples").join("wire").join("demo.sh"));
    demo.arg(env::tidemill()?).env("ROUTER", router);
    let said = proc::output(&mut demo)?;
    let pings = said.lines().filter(|line| line.contains(" packets transmitted, ")).count();
    let whole = said.lines().filter(|line| line.contains(", 0% packet loss")).count();
    if (pings, whole) != (3, 3) {
        bail!("{pings} of 3 pings ended, {whole} without a loss:\n{said}");
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_command_is_found_behind_a_prompt() {
        let readme = "# T\n```sh\n$ cargo run --release -- run examples/router/router.toml   # route: no root\n```\ncargo run x";
        assert_eq!(
            first_command(readme).unwrap(),
            ["run", "--release", "--", "run", "examples/router/router.toml"]
        );
        assert!(first_command("nothing").is_err());
    }

    #[test]
    fn variants_are_uncommented() {
        let text = "a = 1\n[[interface]]\nb = 1\n[[route]]\nc = 1\n# ---- One: x.\n#\n# d = 1\n\n\
                    # ---- Two.\n# y\n#\n# [[interface]]\n# owner = \"kernel\"\n";
        let [base, one, two] = <[_; 3]>::try_from(variants(text)).unwrap();
        assert_eq!((&*base.0, &*one.0, &*two.0), ("as it is", "One", "Two"));
        assert!(one.1.contains("\nb = 1\n") && one.1.ends_with(" d = 1\n\n"));
        assert!(two.1.starts_with("a = 1\n[[route]]\nc = 1\n [[interface]]"));
    }

    #[test]
    fn counters_must_add_up() {
        let mut counters =
            json!({"in": 10, "made": 2, "out": 7, "consumed": 1, "held": 1, "dropped": {"a": 1, "b": 2}});
        assert!(conserved(&counters).is_ok());
        counters["dropped"]["a"] = json!(2);
        assert!(conserved(&counters).is_err());
    }
}
