//! How many reflected answers a second each way of dropping them gets rid of, on one cable, in one interleaved run. Needs root and
//! `nft`; Linux 5.18.
//!
//! ```sh
//! cargo run --release -p tidemill-amp --features xdp --example xdp_rate               # 1024 and 262144 flows
//! cargo run --release -p tidemill-amp --features xdp --example xdp_rate -- 1024 0.2 5  # flows, seconds of a turn, rounds
//! ```
//! With `--json` one object a line, as `tidemill bench` prints them; `cargo xtask record --only bench-amp-xdp` keeps them.
//!
//! A thread of the kernel's offers answers of all flows in an order that no cache knows, as fast as the cable takes them
//! (`bpf/flood.bpf.c`); all of them are filtered. It shares its processor with whatever drops in the kernel, so that such a rate is
//! that of making a packet *and* dropping it; what drops in user space has a processor of its own beside. That favours user space.
//! Ways: `bare` (a program that drops without a look: the ceiling), `xdp`, `af_packet` and `af_xdp` (the mitigator's tables behind such a
//! port), `nft-ingress` and `nft-prerouting` (a set of as many elements). Medians over rounds, and medians of each round's ratio to `xdp`,
//! with the least and the most. A way that drops nothing in a turn ends the run: there is no rate without a drop.

use serde_json::json;
use std::error::Error;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_amp::offload::xdp::{XdpOffload, XdpOptions};
use tidemill_amp::offload::{Offload, OffloadSettings, RuleEvent};
use tidemill_amp::{Mitigator, MitigatorSection, Settings, Side, Tuple};
use tidemill_bpf::{Attachment, Kernel, Mode, Object, Source, to_io};
use tidemill_burst::{Burst, Memory};
use tidemill_port::{OpenContext, Ownership, PortSpec};
use tidemill_wire::flow::Addresses;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

static FLOOD: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../bpf/flood.bpf.o"),
    program: "tidemill_flood",
    minimum: Kernel(5, 18),
    layout: 1,
    shared: &[],
};
static BARE: Source = Source { program: "tidemill_drop", ..FLOOD };

/// Which of the ways is the one that others are compared with.
const XDP: usize = 1;
const WAYS: [&str; 6] = ["bare", "xdp", "af_packet", "af_xdp", "nft-ingress", "nft-prerouting"];
/// The first amplifier, the victim, and the ports.
const SOURCE: u32 = 0x0a00_0000;
const VICTIM: u32 = 0xc000_0201;
const PORT: u16 = 53;
const VICTIMS_PORT: u16 = 4000;

fn run(command: &str) -> Fallible<String> {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap_or_default()).args(words).output()?;
    if !output.status.success() {
        return Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn nft(script: &str) -> Fallible<()> {
    let mut child = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no pipe")?.write_all(script.as_bytes())?;
    if !child.wait()?.success() {
        return Err("nft -f".into());
    }
    Ok(())
}

/// An answer of the first flow, in 60 bytes.
fn frame(source: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame.extend(source.to_be_bytes());
    frame.extend(VICTIM.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend(VICTIMS_PORT.to_be_bytes());
    frame.extend([0, 26, 0, 0]);
    frame.resize(60, 0);
    frame
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
}

fn checksum(mut sum: u32) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// The victim's answer to that.
fn unreachable(source: u32) -> Vec<u8> {
    let inner = &frame(source)[14..];
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(inner);
    let check = checksum(sum(&message));
    message[2..4].copy_from_slice(&check);
    let mut packet = frame(source)[..34].to_vec();
    packet[16..18].copy_from_slice(&(20 + message.len() as u16).to_be_bytes());
    packet[23] = 1;
    packet[26..30].copy_from_slice(&VICTIM.to_be_bytes());
    packet[30..34].copy_from_slice(&source.to_be_bytes());
    packet.extend(message);
    packet
}

fn tuple(source: u32) -> Tuple {
    let addresses = Addresses::V4 { src: source, dst: VICTIM };
    Tuple { addresses, source_port: PORT, destination_port: VICTIMS_PORT }
}

fn index(interface: &str) -> Fallible<u32> {
    Ok(tidemill_port::device(interface)?.index)
}

/// Answers in one call: setting up a run takes the kernel tens of milliseconds.
const RUN: u32 = 1 << 19;

/// Offers answers until it is told to stop: millions a second.
fn flood(flows: u32, stop: &AtomicBool) -> Fallible<f64> {
    let mut object = Object::load(&FLOOD, &[], None)?;
    let mut frame = frame(0);
    frame[24..26].fill(0);
    // As words lie in memory.
    let header = frame[14..34].chunks(2).map(|pair| u32::from(u16::from_ne_bytes([pair[0], pair[1]]))).sum();
    let load = [flows - 1, SOURCE, header, 0, 0, 0, 0, 0, 0, 0];
    object.array::<[u32; 10]>("load")?.set(0, load, 0).map_err(to_io)?;
    let (left, mut offered) = (index("left")?, 0_u64);
    let started = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        match object.flood(&frame, left, RUN) {
            Ok(()) => offered += u64::from(RUN),
            // It made some of them, nobody knows how many.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(offered as f64 / started.elapsed().as_secs_f64() / 1e6)
}

/// Something that drops, once it is set up.
struct Way {
    name: &'static str,
    /// What it has dropped so far.
    count: Box<dyn FnMut() -> Fallible<u64>>,
    /// Takes it down.
    end: Box<dyn FnOnce() -> Fallible<()>>,
    /// Bytes of the kernel's memory for each rule, where they are known.
    each: Option<f64>,
}

/// Whatever goes when it is dropped.
fn ending<T: 'static>(what: T) -> Box<dyn FnOnce() -> Fallible<()>> {
    Box::new(move || {
        drop(what);
        Ok(())
    })
}

fn bare() -> Fallible<Way> {
    let object = Object::load(&BARE, &[], None)?;
    let attachment =
        Attachment::attach(&object, "right", index("right")?, Mode::Native, Duration::ZERO, None)?;
    let count = move || Ok(object.sum("dropped", 0)?);
    Ok(Way { name: "bare", count: Box::new(count), end: ending(attachment), each: None })
}

/// Memory of this process's largest hash table in the kernel, as that says.
fn map_bytes() -> u64 {
    let text = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path()).unwrap_or_default();
    let files = std::fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten().map(text);
    let hashes = files.filter(|text| text.lines().any(|line| line == "map_type:\t1"));
    let bytes = |text: String| text.lines().find_map(|line| line.strip_prefix("memlock:\t")?.parse().ok());
    hashes.filter_map(bytes).max().unwrap_or_default()
}

fn xdp(flows: u32) -> Fallible<Way> {
    let options = XdpOptions { mode: Mode::Native, entries: flows as usize, ..XdpOptions::new("right") };
    let mut xdp = XdpOffload::open(&options)?;
    let settings =
        OffloadSettings { tuple: 4, protocols: vec![PORT], dry_run: false, entries: flows as usize };
    xdp.configure(&settings)?;
    let started = Instant::now();
    let rules: Vec<RuleEvent> = (0..flows)
        .map(|n| RuleEvent::Filtered { key: tuple(SOURCE + n), expires_ns: 3_600_000_000_000 })
        .collect();
    xdp.apply(0, &rules, &|_| true);
    let (written, elapsed) = (xdp.counters().rules, started.elapsed());
    if written != u64::from(flows) {
        return Err(format!("xdp: {written} rules of {flows}").into());
    }
    let each = map_bytes() as f64 / f64::from(flows);
    eprintln!("xdp: {written} rules written in {elapsed:.0?}, {each:.1} bytes each");
    let xdp = Arc::new(xdp);
    let counted = xdp.clone();
    let count = move || Ok(counted.counters().dropped.packets);
    Ok(Way { name: "xdp", count: Box::new(count), end: ending(xdp), each: Some(each) })
}

/// The mitigator's tables behind a port, on a thread of their own.
fn user_space(name: &'static str, flows: u32) -> Fallible<Way> {
    let section: MitigatorSection = toml::from_str("icmp_rate = 0\nexpiry_s = 86400\nsuspect_s = 3600")?;
    let settings = Settings::new(&section)?;
    let mut mitigator = Mitigator::new(flows as usize * 2, 1)?;
    let now_ns = 1_000_000_000_000;
    for n in 0..flows {
        for (side, frame) in [(Side::Outside, frame(SOURCE + n)), (Side::Inside, unreachable(SOURCE + n))] {
            mitigator.decide(&settings, now_ns, &[(side, &frame[..])], |item| (item.0, item.1), |_| ());
        }
    }
    let rules = mitigator.counters().get(tidemill_amp::Counter::Rules);
    if rules != u64::from(flows) {
        return Err(format!("{name}: {rules} rules of {flows}").into());
    }
    let spec: PortSpec = toml::from_str(&format!("name = \"right\"\nkind = \"{name}\""))?;
    let memory = [Memory::new(16_384, 2048)?];
    let context = OpenContext { base: ".".as_ref(), table: None, memory: &memory };
    let open = spec.open_beside_kernel(1, &context)?;
    open.rule.iter().try_for_each(|rule| rule.set(&Ownership::default()))?;
    let mut port = open.queues.into_iter().next().ok_or("no queue")?;
    let (stop, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (stopped, counted) = (stop.clone(), dropped.clone());
    let worker = std::thread::spawn(move || -> Fallible<()> {
        let mut pool = memory[0].pool(16_384)?;
        let (mut burst, mut packets) = (Burst::new(), Vec::new());
        while !stopped.load(Ordering::Relaxed) {
            port.rx(now_ns, &mut pool, &mut burst)?;
            packets.extend(burst.drain());
            let mut gone = 0;
            mitigator.decide(
                &settings,
                now_ns,
                &packets,
                |packet| (Side::Outside, packet.data()),
                |_| gone += 1,
            );
            packets.drain(..).for_each(|packet| pool.free(packet));
            counted.fetch_add(gone, Ordering::Relaxed);
        }
        port.finish(now_ns, &mut pool)?;
        Ok(())
    });
    let count = move || Ok(dropped.load(Ordering::Relaxed));
    let end = move || {
        stop.store(true, Ordering::Relaxed);
        worker.join().map_err(|_| "the worker ended early")?
    };
    Ok(Way { name, count: Box::new(count), end: Box::new(end), each: None })
}

fn nftables(name: &'static str, flows: u32) -> Fallible<Way> {
    let (family, hook) = match name {
        "nft-ingress" => ("netdev", "hook ingress device \"right\" priority 0"),
        _ => ("inet", "hook prerouting priority raw"),
    };
    let address = |n: u32| std::net::Ipv4Addr::from(n);
    let elements: Vec<String> = (0..flows)
        .map(|n| format!("{} . {PORT} . {} . {VICTIMS_PORT}", address(SOURCE + n), address(VICTIM)))
        .collect();
    let started = Instant::now();
    nft(&format!(
        "table {family} amp {{\n set s {{ type ipv4_addr . inet_service . ipv4_addr . inet_service; size {flows}; elements = {{ {} }}; }}\n \
         chain c {{ type filter {hook}; ip saddr . udp sport . ip daddr . udp dport @s counter drop; }}\n}}\n",
        elements.join(", ")
    ))?;
    eprintln!("{name}: {flows} elements written in {:.0?}", started.elapsed());
    let count = move || {
        let text = run(&format!("nft list chain {family} amp c"))?;
        let number = text.split("counter packets ").nth(1).and_then(|rest| rest.split_whitespace().next());
        Ok(number.ok_or("nft shows no counter")?.parse()?)
    };
    let end = move || run(&format!("nft delete table {family} amp")).map(drop);
    Ok(Way { name, count: Box::new(count), end: Box::new(end), each: None })
}

fn set_up(name: &'static str, flows: u32) -> Fallible<Way> {
    match name {
        "bare" => bare(),
        "xdp" => xdp(flows),
        "af_packet" | "af_xdp" => user_space(name, flows),
        _ => nftables(name, flows),
    }
}

/// Millions a second in one turn: dropped, and offered.
fn turn(way: &mut Way, flows: u32, seconds: f64) -> Fallible<(f64, f64)> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let source = std::thread::spawn(move || flood(flows, &stopped));
    // From when the first is seen to go, and a moment later.
    let begun = Instant::now();
    while (way.count)()? == 0 && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_secs_f64(seconds / 4.0));
    let (before, started) = ((way.count)()?, Instant::now());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let (after, elapsed) = ((way.count)()?, started.elapsed().as_secs_f64());
    stop.store(true, Ordering::Relaxed);
    let offered = source.join().map_err(|_| "the source ended early")??;
    if after <= before {
        return Err(format!("{}: nothing was dropped in {elapsed:.2} s: there is no rate", way.name).into());
    }
    Ok(((after - before) as f64 / elapsed / 1e6, offered))
}

/// Of numbers: the median, the least, the most.
struct Spread {
    value: f64,
    low: f64,
    high: f64,
}

impl Spread {
    fn of(what: &str, numbers: impl Iterator<Item = f64>) -> Fallible<Spread> {
        let mut numbers: Vec<f64> = numbers.collect();
        numbers.sort_by(f64::total_cmp);
        match (numbers.first(), numbers.get(numbers.len() / 2), numbers.last()) {
            (Some(&low), Some(&value), Some(&high)) if numbers.iter().all(|n| n.is_finite() && *n > 0.0) => {
                Ok(Spread { value, low, high })
            }
            _ => Err(format!("{what}: {numbers:?}: not all of these are rates").into()),
        }
    }
}

/// What the turns of one size came to.
fn report(
    flows: u32,
    rates: &[(Vec<f64>, Vec<f64>); WAYS.len()],
    each: Option<f64>,
    seconds: f64,
    json: bool,
) -> Fallible<()> {
    let case = format!("drop/{flows}");
    let rounds = rates[XDP].0.len();
    if !json {
        println!("{flows} flows, {rounds} turns of {seconds} s each");
    }
    for (name, (dropped, offered)) in WAYS.into_iter().zip(rates) {
        let rate = Spread::of(name, dropped.iter().copied())?;
        let offered = Spread::of(name, offered.iter().copied())?;
        let ratio = Spread::of(name, rates[XDP].0.iter().zip(dropped).map(|(xdp, other)| xdp / other))?;
        if json {
            let params = json!({"family": 4, "frame": 60, "flows": flows, "seconds": seconds});
            for (metric, rate) in [("mpps", &rate), ("mpps_offered", &offered)] {
                println!(
                    "{}",
                    json!({"v": 1, "bench": "amp-xdp", "subject": name, "case": case, "metric": metric, "value": rate.value,
                        "min": rate.low, "max": rate.high, "runs": rounds, "params": params})
                );
            }
            if name != WAYS[XDP] {
                println!(
                    "{}",
                    json!({"v": 1, "bench": "amp-xdp", "case": case, "metric": "ratio", "of": WAYS[XDP], "to": name,
                        "value": ratio.value, "low": ratio.low, "high": ratio.high, "pairs": rounds})
                );
            }
        } else {
            println!(
                " {name:14} {:6.3} M/s dropped ({:.3} to {:.3}), of {:6.3} offered; xdp / {name} = {:.2} ({:.2} to {:.2})",
                rate.value, rate.low, rate.high, offered.value, ratio.value, ratio.low, ratio.high
            );
        }
    }
    if let (true, Some(each)) = (json, each) {
        println!(
            "{}",
            json!({"v": 1, "bench": "amp-xdp", "subject": WAYS[XDP], "case": case, "metric": "bytes_per_rule", "value": each})
        );
    }
    Ok(())
}

fn main() -> Fallible<()> {
    if std::env::var_os("TIDEMILL_INSIDE").is_none() {
        // In a namespace of its own: nothing is left behind.
        let status = Command::new("unshare")
            .args(["--net", "--"])
            .arg(std::env::current_exe()?)
            .args(std::env::args().skip(1))
            .env("TIDEMILL_INSIDE", "1")
            .status()?;
        return if status.success() {
            Ok(())
        } else {
            Err("it failed in its namespace (is this root?)".into())
        };
    }
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    arguments.retain(|argument| argument != "--json");
    let number = |at: usize| arguments.get(at).map(|text| text.parse::<f64>()).transpose();
    let sizes = number(0)?.map_or(vec![1024, 262_144], |flows| vec![(flows as u32).next_power_of_two()]);
    let (seconds, rounds) = (number(1)?.unwrap_or(1.0), number(2)?.unwrap_or(5.0).max(1.0) as usize);
    run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1")?;
    run("ip link add left type veth peer name right")?;
    run("ip link set right address 02:00:00:00:00:01")?;
    // Without a program, a veth takes frames from a program on the other end only with this.
    run("ethtool -K right gro on")?;
    run("ip link set left up")?;
    run("ip link set right up")?;
    for flows in sizes {
        let mut rates: [(Vec<f64>, Vec<f64>); WAYS.len()] = Default::default();
        let mut each = None;
        for _ in 0..rounds {
            for (name, (dropped, offered)) in WAYS.into_iter().zip(&mut rates) {
                let mut way = set_up(name, flows)?;
                let (a, b) = turn(&mut way, flows, seconds)?;
                dropped.push(a);
                offered.push(b);
                let Way { name, count, end, each: bytes } = way;
                each = each.or(bytes);
                drop(count);
                end().map_err(|error| format!("{name}: {error}"))?;
            }
        }
        report(flows, &rates, each, seconds, json)?;
    }
    Ok(())
}
