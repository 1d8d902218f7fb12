//! Part 14, HALO's near-cache accelerator, simulated: what the figures show, the race, the speed of simulation, what is beyond the paper.

use super::{Line, Machine, Outcome, number, verdict};
use crate::{env, tidy};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::time::Instant;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("the figures in shape: who wins, where it bends", shape),
    ("headline ratios within a fifth of the paper's, or with a cause that explains them", headlines),
    ("Table 4's entries are inputs; 48.2 is their quotient", |machine| {
        let energy = ["-p", "tidemill-sim", "--lib", "halo::energy"];
        Ok(Outcome::Pass(format!("{} tests: halo::energy", machine.tests(&energy, 2)?)))
    }),
    (
        "the race of Fig 7a without the lock, never with it: every interleaving, and 10^7 at random",
        |machine| {
            let mut passed = machine.tests(&["-p", "tidemill-sim", "--lib", "halo::race"], 3)?;
            if !machine.quick {
                let long = ["-p", "tidemill-sim", "--release", "--lib", "--", "--ignored", "ten_million"];
                passed += machine.tests(&long, 1)?;
            }
            Ok(Outcome::Pass(format!("{passed} tests: halo::race")))
        },
    ),
    ("the same result on one thread and on two", deterministic),
    ("10 M accelerator and 1 M software lookups a minute on one core", speed),
    ("the whole figure set within 20 minutes on 2 cores", figures),
    ("beyond: other structures, what is gained", |machine| {
        let objects = machine.tidemill(&["sim", "halo", "--figure", "halo-structures", "--json"])?;
        let gained = gains(&objects);
        let all = ["dxr-d16x4r", "poptrie-d18", "cuckoo-filter", "key-value"];
        let there = all.into_iter().all(|name| gained.contains(name));
        Ok(verdict(there, gained))
    }),
    ("beyond: 4 to 64 cores, a distributor by table and by bucket", cores),
    ("beyond: a real capture through the whole classifier", capture),
    // What must exist besides.
    ("the tests under \"Credible because\", and all others of the crate", |machine| {
        Ok(Outcome::Pass(format!("{} tests: tidemill-sim", machine.tests(&["-p", "tidemill-sim"], 50)?)))
    }),
    ("the command: figures and their progress, machines, sweeps, logs, captures", |machine| {
        let passed = machine.tests(&["-p", "tidemill-cli", "--test", "sim_halo"], 8)?;
        Ok(Outcome::Pass(format!("{passed} tests: sim_halo")))
    }),
    ("Figure 3: cycles of a packet of the switch, measured", |machine| {
        let objects = machine.tidemill(&[
            "bench",
            "classify",
            "--case",
            "traffic",
            "--quick",
            "--seconds",
            "0.2",
            "--json",
        ])?;
        let of = |line: &&Value| line["subject"] == "switch" && line["metric"] == "cycles_per_packet";
        let told = |line: &Value| {
            let case = line["case"].as_str().unwrap_or_default();
            format!("{case} {:.0}", number(line, "value"))
        };
        let cases: Vec<String> = objects.iter().filter(of).map(told).collect();
        ensure!(cases.len() == 5, "{} cases", cases.len());
        Ok(Outcome::Measured(format!("{} (the paper: 340 to 993)", cases.join(", "))))
    }),
    ("this machine beside a model of it", calibration),
    ("any text as a log or as a machine", |machine| {
        let seconds = if machine.quick { "20" } else { "300" };
        let said: Result<Vec<String>> = ["sim_log", "sim_config"]
            .iter()
            .map(|target| machine.said(&["fuzz", "--target", target, "--seconds", seconds]))
            .collect();
        Ok(Outcome::Pass(said?.join("; ")))
    }),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

/// The figures of the paper, then those beyond it.
const FIGURES: [&str; 14] = [
    "halo-4",
    "halo-table1",
    "halo-8b",
    "halo-9",
    "halo-10",
    "halo-11",
    "halo-12",
    "halo-13",
    "halo-table4",
    "halo-headlines",
    "halo-hybrid",
    "halo-cores",
    "halo-llc",
    "halo-structures",
];

fn figure(machine: &Machine, name: &str, more: &[&str]) -> Result<Vec<Value>> {
    let points = machine.tidemill(&[&["sim", "halo", "--figure", name, "--json"], more].concat())?;
    ensure!(!points.is_empty(), "{name}: no points");
    Ok(points)
}

/// A curve of a figure, in the order of its places.
fn curve(points: &[Value], unit: &str, series: &str) -> Vec<f64> {
    let of = |point: &&Value| point["unit"] == unit && point["series"] == series;
    points.iter().filter(of).map(|point| number(point, "y")).collect()
}

/// Whether two curves have as many points as that, and each of the first lies above the second's.
fn above(upper: &[f64], lower: &[f64], points: usize) -> bool {
    upper.len() == points && lower.len() == points && upper.iter().zip(lower).all(|(a, b)| a > b)
}

/// The tests hold who is ahead in small runs, and why; the figures are held to it at their full size.
fn shape(machine: &Machine) -> Result<Outcome> {
    let tests = [
        "the_figures_have_their_shape",
        "software_is_ahead_where_its_lines_are_its_own",
        "eight_at_once_are_ahead_because_they_overlap",
    ];
    let passed = machine.tests(&[&["-p", "tidemill-sim", "--test", "halo", "--"], &tests[..]].concat(), 3)?;
    if machine.quick {
        return Ok(Outcome::Pass(format!("{passed} tests")));
    }
    let mut wrong: Vec<&str> = Vec::new();
    let mut claim = |holds: bool, text: &'static str| {
        if !holds {
            wrong.push(text);
        }
    };
    let nine = figure(machine, "halo-9", &["--most", "20"])?;
    let of = |series| curve(&nine, "each waits for the last, load 90 %", series);
    let (blocking, tcam, sram) = (of("halo-blocking"), of("tcam"), of("sram-tcam"));
    claim(above(&tcam, &sram, 10) && above(&sram, &blocking, 10), "9: TCAM, then SRAM-TCAM, then LOOKUP_B");
    claim(above(&sram, &of("software"), 10), "9: software is behind TCAM");
    // Relative to software: 1 is where LOOKUP_B takes the lead.
    let leads: Vec<bool> = blocking.iter().map(|gain| *gain > 1.0).collect();
    claim(leads.first() == Some(&false) && leads.is_sorted(), "9: one bend, from software to LOOKUP_B");
    claim(blocking.last().is_some_and(|gain| *gain > 1.5), "9: LOOKUP_B is ahead in the LLC");

    let eleven = figure(machine, "halo-11", &[])?;
    let of = |series| curve(&eleven, "keys in the last tuple", series);
    let (blocking, nonblocking) = (of("halo-blocking"), of("halo-nonblocking"));
    claim(above(&of("tcam"), &nonblocking, 4) && above(&nonblocking, &blocking, 4), "11: who is ahead");
    claim(nonblocking.is_sorted_by(|a, b| a < b), "11: LOOKUP_NB gains with tuples");
    claim(blocking.iter().all(|gain| (0.8..1.5).contains(gain)), "11: LOOKUP_B does not");

    let twelve = figure(machine, "halo-12", &[])?;
    let of = |series| curve(&twelve, "throughput lost, percent", series);
    let (software, blocking) = (of("software"), of("halo-blocking"));
    claim(above(&software, &blocking, 12), "12: software takes more from a neighbor than LOOKUP_B");
    claim(blocking.iter().all(|lost| *lost < 3.2), "12: LOOKUP_B takes less than 3.2 %");

    let thirteen = figure(machine, "halo-13", &[])?;
    let of = |series| curve(&thirteen, "packets a second relative to software", series);
    claim(above(&of("halo-nonblocking"), &of("software"), 9), "13: every function gains");
    let good = wrong.is_empty();
    let said = if good { "all hold".to_owned() } else { format!("NOT SO: {}", wrong.join("; ")) };
    Ok(verdict(good, format!("{passed} tests; claims of figures 9, 11, 12 and 13: {said}")))
}

/// Whether a number of the paper's is met within a fifth, or ranges meet: as it is or, where a cause is named, with that taken away. What is "less than" has to be.
fn is_met(points: &[Value], unit: &str) -> bool {
    let own: Vec<&Value> = points.iter().filter(|point| point["unit"] == unit).collect();
    let has_cause = own.iter().any(|point| point["x"] != "as it is");
    let ends = |field: &str| {
        let last = own.iter().filter(|point| !has_cause || point["x"] != "as it is");
        last.map(|point| number(point, field))
            .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], y| [low.min(y), high.max(y)])
    };
    let ([low, high], [least, most]) = (ends("y"), ends("paper"));
    if unit.contains("less than") { high < most } else { low <= 1.2 * most && high >= 0.8 * least }
}

/// The tests hold the numbers in small runs; here they are held at full size, and shown, ours by the paper's.
fn headlines(machine: &Machine) -> Result<Outcome> {
    let passed = machine.tests(&["-p", "tidemill-sim", "--test", "causes"], 3)?;
    let points = figure(machine, "halo-headlines", &[])?;
    let mut units: Vec<&str> = points.iter().filter_map(|point| point["unit"].as_str()).collect();
    units.dedup();
    let far: Vec<&str> = units.iter().copied().filter(|unit| !is_met(&points, unit)).collect();
    let mut shown: Vec<String> = Vec::new();
    for point in &points {
        let word = |name: &str| point[name].as_str().unwrap_or("?").to_owned();
        let (unit, x) = (word("unit"), word("x"));
        let end = if x == "as it is" { String::new() } else { format!(" [{x}]") };
        shown.push(format!("{unit}{end}: {:.3} (the paper {})", number(point, "y"), point["paper"]));
    }
    let far = if far.is_empty() { String::new() } else { format!("; NOT SO: {}", far.join(", ")) };
    // Nine, and two beside a switch: a panel each.
    let good = far.is_empty() && units.len() == 11;
    Ok(verdict(good, format!("{passed} tests: causes; {}{far}", shown.join("; "))))
}

fn deterministic(machine: &Machine) -> Result<Outcome> {
    let small = ["--lookups", "2000", "--warm", "1000", "--most", "14"];
    let names = if machine.quick { &FIGURES[3..6] } else { &FIGURES[..] };
    for name in names {
        let on = |jobs: &str| figure(machine, name, &[&small[..], &["--jobs", jobs]].concat());
        if on("1")? != on("2")? {
            return Ok(Outcome::Fail(format!("{name} differs")));
        }
    }
    Ok(Outcome::Pass(format!("{} figures, twice each", names.len())))
}

fn speed(machine: &Machine) -> Result<Outcome> {
    let lookups = if machine.quick { "200000" } else { "2000000" };
    let arguments = ["sim", "halo", "--speed", "--jobs", "1", "--lookups", lookups, "--json"];
    let series = ["--series", "software,halo-blocking,halo-nonblocking"];
    let objects = machine.tidemill(&[&arguments[..], &series].concat())?;
    let (mut good, mut said) = (objects.len() == 3, Vec::new());
    for line in &objects {
        let name = line["series"].as_str().unwrap_or("?");
        let least = if name == "software" { 1.0 } else { 10.0 };
        let minute = number(line, "simulated_per_second") * 60.0 / 1e6;
        good &= minute >= least;
        said.push(format!("{name} {minute:.1} M a minute"));
    }
    Ok(verdict(good, said.join(", ")))
}

fn figures(machine: &Machine) -> Result<Outcome> {
    let small: &[&str] = if machine.quick { &["--lookups", "2000", "--most", "18"] } else { &[] };
    let start = Instant::now();
    let mut slowest = (0.0, "");
    for name in FIGURES {
        let own = Instant::now();
        let picture = env::scratch("held")?.join(format!("{name}.svg"));
        std::fs::remove_file(&picture).ok();
        let plot = picture.display().to_string();
        figure(machine, name, &[small, &["--jobs", "2", "--plot", plot.as_str()]].concat())?;
        ensure!(std::fs::metadata(&picture).is_ok_and(|file| file.len() > 0), "{name}: no drawing");
        let seconds = own.elapsed().as_secs_f64();
        if seconds > slowest.0 {
            slowest = (seconds, name);
        }
    }
    let all = start.elapsed().as_secs_f64();
    let text =
        format!("{} figures, drawn, in {all:.0} s; {} {:.0} s of it", FIGURES.len(), slowest.1, slowest.0);
    Ok(verdict(all <= 1200.0, text))
}

/// Of a figure of structures: what LOOKUP_NB gains.
fn gains(objects: &[Value]) -> String {
    let of =
        |line: &&Value| line["unit"] == "relative to its software" && line["series"] == "halo-nonblocking";
    let one = |line: &Value| format!("{} {:.1}", line["x"].as_str().unwrap_or("?"), number(line, "y"));
    objects.iter().filter(of).map(one).collect::<Vec<_>>().join(", ")
}

fn cores(machine: &Machine) -> Result<Outcome> {
    let points = figure(machine, "halo-cores", &[])?;
    let rate = |series: &str, cores: f64| {
        let of = |line: &&Value| {
            line["unit"] == "million lookups a second"
                && line["series"] == series
                && number(line, "x") == cores
        };
        points.iter().find(of).map_or(f64::NAN, |line| number(line, "y"))
    };
    let (mut good, mut said) = (true, Vec::new());
    for cores in [4.0, 8.0, 16.0, 32.0, 64.0] {
        let table = rate("halo-nonblocking, one table", cores);
        let bucket = rate("halo-nonblocking, one table, by bucket", cores);
        let software = rate("software, one table", cores);
        // One accelerator is at its end with 16 cores; all of them are not.
        let least = if cores < 16.0 { 0.9 * table } else { 2.0 * table };
        good &= bucket > least && software.is_finite();
        said.push(format!(
            "{cores} cores: software {software:.0}, by table {table:.0}, by bucket {bucket:.0} M/s"
        ));
    }
    Ok(verdict(good, said.join("; ")))
}

fn capture(machine: &Machine) -> Result<Outcome> {
    let file = machine.data()?.join("pcap/dns/lroot-knot-live.pcap.xz").display().to_string();
    let arguments =
        ["sim", "halo", "--capture", &file, "--series", "software,halo-blocking,halo-nonblocking", "--json"];
    let objects = machine.tidemill(&arguments)?;
    let of = |name: &str| {
        let line = objects.iter().find(|line| line["series"] == name).context("a series is missing")?;
        Ok::<_, anyhow::Error>((
            number(line, "cycles"),
            number(&line["each"], "exact"),
            number(line, "relative"),
        ))
    };
    let (software, exact, _) = of("software")?;
    let ((blocking, by_blocking, _), (nonblocking, by_nonblocking, gain)) =
        (of("halo-blocking")?, of("halo-nonblocking")?);
    // Whoever looks up: the packets are the same, and so is what is known of them.
    let same = exact == by_blocking && exact == by_nonblocking;
    Ok(verdict(
        same && gain > 1.0 && software > 0.0,
        format!(
            "cycles of a packet: software {software:.0}, LOOKUP_B {blocking:.0}, LOOKUP_NB {nonblocking:.0} ({gain:.1} times); {:.0} % in the EMC",
            100.0 * exact
        ),
    ))
}

/// The model of this CPU: AMD's family 25 is Zen 3 and Zen 4.
fn model() -> Option<&'static str> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let field = |name: &str| {
        let line = info.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        line.split(':').nth(1)?.trim().parse::<u32>().ok()
    };
    if !info.contains("AuthenticAMD") || field("cpu family")? != 25 {
        return None;
    }
    Some(if matches!(field("model")?, 0x10..=0x1f | 0x60..=0xaf) { "zen-4" } else { "zen-3" })
}

fn calibration(machine: &Machine) -> Result<Outcome> {
    let Some(model) = model() else {
        return Ok(Outcome::Measured("there is no model of this CPU: zen-3, zen-4".into()));
    };
    let objects = machine.tidemill(&["sim", "halo", "--machine", model, "--calibrate", "--json"])?;
    let one = |line: &Value| {
        let (bytes, what) = (number(line, "bytes"), line["calibration"].as_str().unwrap_or("?"));
        format!("{what} in {bytes} bytes {:.2}", number(line, "ratio"))
    };
    let rows: Vec<String> = objects.iter().map(one).collect();
    ensure!(rows.len() > 8, "{} rows", rows.len());
    // The clock: a core has one, and a compiler that does several multiplications by one would show here.
    let clock = objects.first().map_or(f64::NAN, |line| number(line, "ratio"));
    ensure!((0.4..2.5).contains(&clock), "multiplications: simulated by measured {clock:.2}");
    Ok(Outcome::Measured(format!("{model}, simulated by measured: {}", rows.join(", "))))
}
