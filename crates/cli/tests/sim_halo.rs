//! `tidemill sim halo`, as a user sees it.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::Value;
use tool::Folder;

fn number(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap()
}

#[test]
fn configurations_are_the_product_of_the_lists_and_of_sweeps() {
    let folder = Folder::new();
    let line = "sim halo --entries 2^8,2^12 --load 50,90 --series software,halo-nonblocking \
        --sweep halo.scoreboard=2,10 --lookups 400 --warm 400 --json";
    let lines = folder.ok(line).json();
    assert_eq!(lines.len(), 16);
    for pair in lines.chunks(2) {
        assert_eq!((pair[0]["series"].as_str(), number(&pair[0], "relative")), (Some("software"), 1.0));
        let gain = number(&pair[0], "ns") / number(&pair[1], "ns");
        assert!((number(&pair[1], "relative") / gain - 1.0).abs() < 0.01, "{pair:?}");
        assert_eq!(pair[1]["lookups"], 400);
    }
    // Two entries of the scoreboard are fewer than eight lookups at once need; software has none.
    let at = |scoreboard: &str, series: &str| {
        let of = |line: &&Value| line["config"]["halo.scoreboard"] == scoreboard && line["series"] == series;
        number(lines.iter().find(of).unwrap(), "ns")
    };
    assert!(at("2", "halo-nonblocking") > 1.2 * at("10", "halo-nonblocking"));
    assert_eq!(at("2", "software"), at("10", "software"));
    assert_eq!(folder.ok(&format!("{line} --jobs 1")).json(), lines, "the same on one thread");

    // Fewer than are looked up at once: so many then.
    let few = "sim halo --entries 256 --lookups 3 --warm 5 --series software,halo-nonblocking,software-batch --json";
    let few = folder.ok(few).json();
    let counted: Vec<_> = few.iter().map(|line| line["lookups"].as_u64().unwrap()).collect();
    assert_eq!(counted, [3, 8, 32]);
    assert!(few.iter().all(|line| number(line, "ns") > 1.0), "{few:?}");

    let text = folder.ok("sim halo --entries 256 --lookups 80 --warm 80 --speed --serial").out;
    assert!(text.contains("halo-blocking") && text.contains("lookups simulated a second"), "{text}");
}

#[test]
fn logs_are_written_and_run() {
    let folder = Folder::new();
    folder.ok("sim halo --write-log a.log --entries 2^10 --lookups 300");
    let lines = folder
        .ok("sim halo --log a.log --lookups 400 --warm 100 --series software,halo-blocking --json")
        .json();
    assert_eq!((lines.len(), lines[0]["config"]["log_lookups"].as_u64()), (2, Some(300)));
    // The same in every run, wherever the process has its memory.
    folder.ok("sim halo --write-log again.log --entries 2^10 --lookups 300");
    assert!(folder.read("again.log") == folder.read("a.log"), "two runs write the same");
    folder.ok("sim halo --write-log again.log --entries 2^10 --lookups 300 --seed 2");
    assert!(folder.read("again.log") != folder.read("a.log"), "other keys lie elsewhere");
    folder.write("b.log", "lookup 1\nread 0x1000 64\nread zero 8\n");
    folder.fail(&[
        ("sim halo --log b.log", 2, "b.log: line 3: the address: give a number"),
        ("sim halo --log absent.log", 1, "absent.log: cannot be read"),
        ("sim halo --log a.log --entries 5", 2, "--entries"),
        ("sim halo --log /dev/zero", 2, "/dev/zero: line 1: longer than 65536 bytes"),
        ("sim halo --write-log c.log --entries 8,16", 2, "give one value of --entries"),
        ("sim halo --write-log c.log --load 50,90", 2, "and one of --load"),
        ("sim halo --write-log absent/c.log --entries 8 --lookups 8", 1, "absent/c.log: give a file"),
    ]);
}

/// Whoever looks up, the packets are the same.
#[test]
fn captures_go_through_a_whole_classifier() {
    let folder = Folder::new();
    folder.ok("gen traffic --pattern random --packets 300 -o a.pcap");
    let line = "sim halo --capture a.pcap --capture a.pcap --tuples 5 --lookups 400 --warm 200 --json";
    let lines = folder.ok(line).json();
    let names: Vec<_> = lines.iter().map(|line| line["series"].as_str().unwrap()).collect();
    assert_eq!(names, ["software", "halo-blocking", "halo-nonblocking", "tcam", "sram-tcam"]);
    for line in &lines {
        assert_eq!((line["packets"].as_u64(), line["config"]["captured"].as_u64()), (Some(400), Some(600)));
        assert_eq!(
            (&line["each"]["exact"], &line["each"]["unknown"]),
            (&lines[0]["each"]["exact"], &lines[0]["each"]["unknown"])
        );
        assert!(number(line, "ns") > 1.0);
    }
    // The second time all flows are known.
    assert!(lines[0]["each"]["exact"].as_f64().unwrap() > 0.5);
    assert_eq!(folder.ok(line).json(), lines);
    assert!(folder.ok(&line.replace(" --json", "")).out.contains("in no tuple"));
    // Which row is which is said.
    let swept =
        folder.ok(&line.replace(" --json", " --series halo-nonblocking --sweep halo.scoreboard=3,10")).out;
    assert!(swept.contains("halo.scoreboard 3") && swept.contains("halo.scoreboard 10"), "{swept}");
    folder.write("text.pcap", "no capture").fail(&[
        ("sim halo --capture absent.pcap", 1, "absent.pcap"),
        ("sim halo --capture text.pcap", 1, "text.pcap"),
        ("sim halo --capture a.pcap --entries 5", 2, "--entries"),
        ("sim halo --capture a.pcap --tuples 21", 2, "--tuples"),
        ("sim halo --capture a.pcap --series software-batch", 2, "leave it out"),
        ("sim halo --capture a.pcap --series tcam,tcam", 2, "--series tcam: twice: give each once"),
        (
            "sim halo --capture a.pcap --lookups 7",
            2,
            "--lookups 7: packets of captures come in bursts: give 8",
        ),
    ]);
}

#[test]
fn machines_are_shown_changed_and_refused() {
    let folder = Folder::new();
    let shown = folder.ok("sim halo --machine zen-4 --show-config").out;
    assert!(
        shown.contains("machine = \"zen-4\"") && shown.contains("# ") && shown.contains("assumed"),
        "{shown}"
    );
    folder.write("own.toml", shown.replace("cores = 8", "cores = 2"));
    assert!(folder.ok("sim halo --config own.toml --show-config").out.contains("cores = 2"));
    folder.write("wrong.toml", "[halo]\nscorebord = 3\n").write("bytes.toml", b"cores = 2\n# \xff\n");
    folder.write("long.toml", "\n".repeat((1 << 20) + 1));
    // Figures make other machines of these, which there are none of.
    folder.write("slow.toml", "ghz = 0.7\n").write("large.toml", "slices = 1\n[cache]\nllc_kib = 1048576\n");
    folder.fail(&[
        ("sim halo --config wrong.toml", 2, "wrong.toml: unknown field `scorebord`"),
        ("sim halo --config absent.toml", 2, "absent.toml: No such file or directory"),
        ("sim halo --machine 486", 2, "no such machine: use skylake-sp, zen-4"),
        ("sim halo --sweep halo.scoreboard", 2, "give KEY=V1,V2"),
        ("sim halo --sweep halo.scoreboard=0", 2, "halo.scoreboard = 0: use 1 to 1024"),
        ("sim halo --sweep core.loads=1", 2, "core.loads = 1: use 16 to 1024"),
        ("sim halo --sweep nothing=0", 2, "nothing: unknown field"),
        ("sim halo --sweep halo={}", 2, "--sweep halo: a table is no value: give a number"),
        ("sim halo --sweep cores=2,2", 2, "--sweep cores=2: twice: give each value once"),
        ("sim halo --sweep ghz=2,2.0", 2, "--sweep ghz=2.0: twice: give each value once"),
        ("sim halo --series tcam,software,tcam", 2, "--series tcam: twice: give each once"),
        ("sim halo --entries 2^3,8", 2, "--entries 8: twice: give each once"),
        ("sim halo --load 50,50", 2, "--load 50: twice: give each once"),
        // A folder is no file, whatever it is given as.
        ("sim halo --config .", 2, ".: a device or a folder, and no file: give a machine"),
        ("sim halo --log .", 1, ".: line 1: cannot be read"),
        ("sim halo --capture .", 1, "."),
        ("sim halo --sweep cores=2 --sweep ghz=2 --sweep cores=4", 2, "--sweep cores: twice: give all"),
        ("sim halo --config /dev/zero", 2, "/dev/zero: a device or a folder, and no file: give a machine"),
        ("sim halo --config long.toml", 2, "long.toml: longer than 1048576 bytes: give a machine"),
        ("sim halo --config bytes.toml", 2, "bytes.toml: line 2: no UTF-8"),
        ("sim halo --config slow.toml --figure halo-10", 2, "--figure halo-10: DRAM of 70 ns: this machine"),
        ("sim halo --config large.toml --figure halo-cores", 2, "--figure halo-cores: 16 slices, each of"),
        ("sim halo --series fpga", 2, "no such series: use software"),
        ("sim halo --mix fpga", 2, "no such mix: use rte_hash"),
        ("sim halo --figure halo-99", 2, "use list"),
        ("sim halo --figure halo-11 --serial", 2, "--serial"),
        ("sim halo --figure halo-11 --speed", 2, "--speed"),
        ("sim halo --tuples 5", 2, "--capture"),
        ("sim halo --figure halo-11 --plot absent/f.svg", 2, "give a file that can be written"),
        ("sim halo --figure list --plot f.svg", 2, "the list is not drawn"),
    ]);
}

/// Every pair is looked at beside the arguments themselves; these are those that were once taken and not looked at.
#[test]
fn what_a_mode_would_not_look_at_is_refused() {
    let plot = |mode| (mode, "--plot f.svg");
    let pairs = [
        plot("--show-config"),
        plot("--calibrate"),
        plot("--write-log a.log"),
        plot("--capture a.pcap"),
        plot("--log a.log"),
        plot("--entries 8"),
        plot("--serial"),
        plot("--sweep cores=2"),
        ("--figure halo-9", "--tuples 5"),
        ("--show-config", "--tuples 5"),
        ("--calibrate", "--tuples 5"),
        ("--write-log a.log", "--tuples 5"),
        ("--log a.log", "--tuples 5"),
        ("--load 50", "--tuples 5"),
        ("--entries 8", "--most 5"),
        ("--capture a.pcap", "--most 5"),
        ("--calibrate", "--jobs 1"),
        ("--show-config", "--figure halo-9"),
        ("--show-config", "--json"),
        ("--write-log a.log", "--json"),
        ("--write-log a.log", "--machine zen-4"),
        ("--log a.log", "--seed 2"),
    ];
    let folder = Folder::new();
    for (mode, option) in pairs {
        let ran = folder.run(&format!("sim halo {mode} {option}"));
        assert_eq!(ran.code, 2, "{mode} {option}: {}{}", ran.out, ran.err);
        // Which two, and how it is done.
        let [mode, option] = [mode, option].map(|words| words.split(' ').next().unwrap());
        let said = [mode, option, "cannot be used with", "--help"].iter().all(|word| ran.err.contains(word));
        assert!(said && ran.out.is_empty(), "{mode} {option}: {}", ran.err);
    }
    folder.fail(&[
        ("sim halo --plot f.svg", 2, "--figure <NAME>"),
        ("sim halo --most 5", 2, "--figure <NAME>"),
        ("sim halo --figure halo-4 --most 5", 2, "--most 5: --figure halo-4 has nothing so small"),
    ]);
}

#[test]
fn figures_have_the_papers_numbers_beside_ours() {
    let folder = Folder::new();
    let list = folder.ok("sim halo --figure list").out;
    for name in [
        "halo-4",
        "halo-table1",
        "halo-headlines",
        "halo-8b",
        "halo-9",
        "halo-10",
        "halo-11",
        "halo-12",
        "halo-13",
        "halo-table4",
    ] {
        assert!(list.contains(name), "{name}: {list}");
    }
    let run = "--lookups 200 --warm 100";
    let lines = folder.ok(&format!("sim halo --figure halo-10 {run} --json --plot f.svg")).json();
    let stated = lines.iter().filter(|line| line["paper"].as_f64() == Some(4.1)).count();
    assert_eq!(stated, 2, "each waits, and overlapping");
    assert!(lines.iter().all(|line| line["figure"] == "halo-10" && line["y"].is_number()));
    assert!(folder.read("f.svg").contains("</svg>"));
    let text = folder.ok(&format!("sim halo --figure halo-9 --most 4 {run}")).out;
    assert!(text.contains("halo-nonblocking") && text.contains("skylake-sp, 16 cores"), "{text}");
}

/// On a terminal a bar says how far a figure is, and is gone at its end; elsewhere nothing is said of a run as short as this. The numbers are the same.
#[test]
#[cfg(target_os = "linux")] // whose `script` takes a command
fn a_figure_says_how_far_it_is_on_a_terminal() {
    use std::process::{Command, Stdio};
    let folder = Folder::new();
    let line = "sim halo --figure halo-10 --lookups 200 --warm 100 --json";
    let quiet = folder.ok(line);
    assert!(!quiet.err.contains('\r') && !quiet.err.contains(" left"), "{}", quiet.err);
    // `script` runs it on a terminal and writes what comes there; standard output goes to a file.
    let command = format!("'{}' {line} > points", env!("CARGO_BIN_EXE_tidemill"));
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &command, "/dev/null"]).env("SHELL", "/bin/sh").env("TERM", "xterm");
    let output = match script.current_dir(folder.path(".")).stdin(Stdio::null()).output() {
        Err(error) if std::env::var_os("CI").is_none() => {
            println!("skipped: a_figure_says_how_far_it_is_on_a_terminal (script: {error})");
            return;
        }
        output => output.unwrap(),
    };
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    assert_eq!(folder.read("points"), quiet.out);
    // Seven steps, and the end.
    for part in ["halo-10 [ ", " 0 %", "[==", " 14 %", " 57 %", " 100 %", " left"] {
        assert!(shown.contains(part), "{part}: {shown:?}");
    }
    assert!(shown.ends_with("\r\u{1b}[2K"), "the line is cleared: {shown:?}");
}

/// Ctrl-C ends whatever is computed, and a drawing that was there stays as it was.
#[test]
#[cfg(target_os = "linux")] // whose /proc says which signals a process takes
fn ctrl_c_ends_it_at_once_and_leaves_no_half_a_file() {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};
    let folder = Folder::new();
    folder.ok("gen traffic --pattern random --packets 50 -o a.pcap");
    folder.write("f.svg", "before");
    for line in [
        "sim halo --figure halo-9 --plot f.svg",
        "sim halo --sweep halo.scoreboard=1,2 --lookups 2^30 --json",
        "sim halo --capture a.pcap --lookups 2^30 --json",
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidemill"))
            .args(line.split_whitespace())
            .current_dir(folder.path("."))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let status = format!("/proc/{}/status", child.id());
        let takes = || {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let taken = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
            u64::from_str_radix(taken.trim(), 16).is_ok_and(|taken| taken & 2 != 0)
        };
        let from = Instant::now();
        while !takes() && from.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let interrupted = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
        assert!(interrupted.success());
        let from = Instant::now();
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if from.elapsed() > Duration::from_secs(20) {
                child.kill().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(ended.and_then(|status| status.code()), Some(130), "{line}: {said}");
        assert_eq!((said.as_str(), output.stdout.len()), ("tidemill: interrupted\n", 0), "{line}");
    }
    assert_eq!(folder.read("f.svg"), "before");
    assert_eq!(std::fs::read_dir(folder.path(".")).unwrap().count(), 2, "a.pcap, f.svg");
}
