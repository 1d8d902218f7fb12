//! The tier `examples`: the README's first command works as printed, its counters add up, and tshark finds nothing wrong
//! with the capture that it wrote.

use super::Totals;
use crate::{env, proc};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Enough packets to pass the whole capture several times, few enough for seconds.
const PACKETS: &str = "200000";

pub(crate) fn run() -> Result<Totals> {
    let mut totals = Totals::default();
    let readme = env::root().join("README.md");
    // Before the command line exists there is neither; afterwards both must be there.
    if !readme.exists() && !env::root().join("examples/router/router.toml").exists() {
        totals
            .skip("examples::readme_command", "there is no README.md and no examples/router/router.toml yet");
        totals
            .skip("examples::output_capture", "there is no README.md and no examples/router/router.toml yet");
        return Ok(totals);
    }
    let arguments = first_command(&std::fs::read_to_string(&readme).context("README.md")?)?;
    let output = env::scratch("examples")?.join("out.pcapng");
    let ran = readme_command(&arguments, &output);
    if let Err(error) = &ran {
        println!("{error:#}");
    }
    totals.count("examples::readme_command", ran.is_ok());
    if !env::has_program("tshark") && !env::in_ci() {
        totals.skip("examples::output_capture", "tshark is not installed");
        return Ok(totals);
    }
    let judged = judge(&output);
    if let Err(error) = &judged {
        println!("{error:#}");
    }
    totals.count("examples::output_capture", judged.is_ok());
    Ok(totals)
}

/// The arguments of the first `cargo run` line of the text.
fn first_command(readme: &str) -> Result<Vec<String>> {
    let line =
        readme.lines().map(|line| line.trim().trim_start_matches("$ ")).find(|l| l.starts_with("cargo run "));
    let line = line.context("README.md shows no line that begins with `cargo run`")?;
    Ok(line.split_whitespace().skip(1).map(str::to_owned).collect())
}

fn readme_command(arguments: &[String], output: &Path) -> Result<()> {
    let mut command = env::cargo();
    command.args(arguments).args(["--packets", PACKETS, "--output"]).arg(output);
    let printed = proc::output(&mut command)?;
    println!("{}", printed.trim_end());
    let line = printed.lines().rev().find(|line| line.starts_with("{\"in\"") || line.contains("\"in\":"));
    let line = line.context("`run` printed no line of counters")?;
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

/// Fails, showing the first packets, if tshark finds anything wrong.
pub(crate) fn judge(capture: &Path) -> Result<()> {
    let mut tshark = Command::new("tshark");
    for protocol in ["ip", "tcp", "udp"] {
        tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    tshark.arg("-n").arg("-r").arg(capture).args(["-Y", FILTER]);
    let found = proc::output(&mut tshark)?;
    if !found.trim().is_empty() {
        let first: Vec<&str> = found.lines().take(5).collect();
        bail!("tshark finds {} bad packets:\n{}", found.lines().count(), first.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_command_is_found_behind_a_prompt() {
        let readme = "# T\n```sh\n$ cargo run --release -- run examples/router/router.toml\n```\ncargo run x";
        assert_eq!(
            first_command(readme).unwrap(),
            ["run", "--release", "--", "run", "examples/router/router.toml"]
        );
        assert!(first_command("nothing").is_err());
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
