//! Virtual cables between namespaces, for measurements: who receives where, and a flood by the kernel.
//!
//! The client, or whoever makes the load and counts what comes of it, has the first processor; what is measured has the last one. Each end of a cable receives on
//! a thread of its own (threaded NAPI), which is what keeps the two apart: else the kernel would do the receiver's work on the sender's processor.

use crate::netns::Netns;
use anyhow::{Context as _, Result, bail};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tidemill_bpf::{Attachment, Kernel, Mode, Object, Source, to_io};
use tidemill_wire::checksum::checksum;

/// The client's processor.
pub(super) const FIRST: usize = 0;

/// The server's. Asked for before anything is bound to the other one.
pub(super) fn last() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from)) - 1
}

/// How long the server's processor has had something to do, and how long it is there, in ticks.
pub(super) fn ticks() -> Result<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let name = format!("cpu{} ", last());
    let line = text.lines().find_map(|line| line.strip_prefix(name.as_str()));
    let line = line.with_context(|| format!("/proc/stat: no {name}"))?;
    // user, nice, system, idle, iowait, irq, softirq, steal.
    let all: Vec<u64> = line.split_whitespace().take(8).filter_map(|ticks| ticks.parse().ok()).collect();
    let (sum, idle): (u64, u64) = (all.iter().sum(), all.iter().skip(3).take(2).sum());
    Ok([sum - idle, sum])
}

/// The share of the time between two counts of [`ticks`] in which there was something to do.
pub(super) fn busy(before: [u64; 2], after: [u64; 2]) -> f64 {
    let [busy, all] = [0, 1].map(|of| after[of].saturating_sub(before[of]));
    busy as f64 / all.max(1) as f64
}

pub(super) fn on(processor: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(processor);
    set
}

/// The threads that receive for interfaces of this name, here and in other namespaces.
fn receivers(interface: &str) -> Result<Vec<(i32, String)>> {
    let (wanted, mut found) = (format!("napi/{interface}-"), Vec::new());
    for process in std::fs::read_dir("/proc")?.flatten() {
        if let Some(id) = process.file_name().to_str().and_then(|name| name.parse().ok()) {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            if name.starts_with(&wanted) {
                found.push((id, name.trim().to_owned()));
            }
        }
    }
    if found.is_empty() {
        bail!("{interface}: no thread {wanted}*");
    }
    Ok(found)
}

/// Has an interface receive on threads of its own, on one processor, or where the sender is.
pub(super) fn receive(net: &Netns, interface: &str, processor: Option<usize>) -> Result<()> {
    // The kernel's files show the interfaces of the namespace that they are mounted in.
    let on_threads = u8::from(processor.is_some());
    let script =
        format!("mount -t sysfs sysfs /sys && echo {on_threads} > /sys/class/net/{interface}/threaded");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).stdin(Stdio::null());
    let output = net.enter(|| command.output())?.context("unshare (package util-linux)")?;
    if !output.status.success() {
        bail!("{interface}: no threaded NAPI: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    if let Some(processor) = processor {
        for (id, name) in receivers(interface)? {
            sched_setaffinity(rustix::process::Pid::from_raw(id), &on(processor)).context(name)?;
        }
    }
    Ok(())
}

/// Whether an interface receives before everything else on its processor. A flood, which is in the kernel all the time, would not let anything in.
pub(super) fn urgent(interface: &str, first: bool) -> Result<()> {
    for (id, name) in receivers(interface)? {
        let (policy, priority) = if first { ("-f", "1") } else { ("-o", "0") };
        let output = Command::new("chrt").args([policy, "-p", priority, &id.to_string()]).output();
        let output = output.context("chrt (package util-linux)")?;
        if !output.status.success() {
            bail!("{name}: chrt: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    Ok(())
}

static FLOOD: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../bpf/flood.bpf.o"),
    program: "tidemill_flood",
    minimum: Kernel(5, 18),
    layout: 1,
    shared: &[],
};
static SINK: Source = Source { program: "tidemill_drop", ..FLOOD };

/// Frames of the first call, and of the longest. Setting one up takes the kernel tens of milliseconds in which nothing is sent, so the others are as long as what is left.
const FIRST_RUN: u32 = 1 << 18;
const LONGEST_RUN: f64 = (1 << 26) as f64;
/// How long the others are at least.
const CALL: Duration = Duration::from_millis(100);
/// Bytes of a frame that the flood's program has room for, and how many frames.
const FRAME: usize = 256;
pub(super) const FRAMES: usize = 1024;

/// The shortest UDP frame there is, without a checksum of UDP's, to and from these MAC addresses.
pub(super) fn shortest(macs: [[u8; 6]; 2], from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    let mut frame = [&macs[0][..], &macs[1], &[8, 0], &[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0]].concat();
    frame.extend(from.0.octets());
    frame.extend(to.0.octets());
    let check = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame.extend(from.1.to_be_bytes());
    frame.extend(to.1.to_be_bytes());
    frame.extend([0, 26, 0, 0]);
    frame.resize(super::ends::FRAME, 0);
    frame
}

/// Numbers that are drawn at random and written into the first frame, in place of the others.
pub(super) struct Law {
    /// Numbers at equal steps of probability: a power of two of them, and one more.
    pub(super) ranks: Vec<u32>,
    /// Where the digits are.
    pub(super) place: usize,
    pub(super) seed: u64,
}

/// Source addresses that are written into the frames, another one into each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sources {
    pub(super) first: Ipv4Addr,
    /// A power of two, and more than one.
    pub(super) count: u32,
    /// How many of them have been sent before.
    pub(super) sent: u32,
}

/// The sum of the words of a frame's IPv4 header as they lie in memory, but for its checksum and its source.
fn words(frame: &[u8]) -> u32 {
    let header = frame.get(14..34).unwrap_or_default();
    let others = header.chunks_exact(2).enumerate().filter(|(at, _)| !matches!(at, 5..=7));
    others.map(|(_, word)| u32::from(u16::from_ne_bytes([word[0], word[1]]))).sum()
}

/// As many frames as go onto the cable at `from` for so long; what comes out of the one at `to`, per second. That is counted by a program that
/// drops it.
pub(super) fn flood(
    from: (&Netns, &str),
    to: (&Netns, &str),
    frames: &[Vec<u8>],
    time: Duration,
) -> Result<f64> {
    Ok(send(from, to, frames, (None, None), time, &|| Ok(0))?[0])
}

/// The same by a law; and what `counted` counts meanwhile, per second, besides.
pub(super) fn flood_by(
    from: (&Netns, &str),
    to: (&Netns, &str),
    frames: &[Vec<u8>],
    law: Option<&Law>,
    time: Duration,
    counted: &(dyn Fn() -> Result<u64> + Sync),
) -> Result<[f64; 2]> {
    send(from, to, frames, (law, None), time, counted)
}

/// [`flood`] from so many sources, if there are some.
pub(super) fn flood_of(
    from: (&Netns, &str),
    to: (&Netns, &str),
    frames: &[Vec<u8>],
    sources: Option<Sources>,
    time: Duration,
) -> Result<f64> {
    Ok(send(from, to, frames, (None, sources), time, &|| Ok(0))?[0])
}

/// What comes out, and what is counted, per second.
fn send(
    from: (&Netns, &str),
    to: (&Netns, &str),
    frames: &[Vec<u8>],
    (law, sources): (Option<&Law>, Option<Sources>),
    time: Duration,
    counted: &(dyn Fn() -> Result<u64> + Sync),
) -> Result<[f64; 2]> {
    let length = frames.first().map_or(0, Vec::len);
    if length == 0
        || length > FRAME
        || frames.len() > FRAMES
        || frames.iter().any(|frame| frame.len() != length)
    {
        bail!("a flood has 1 to {FRAMES} frames of one length, of {FRAME} bytes at most");
    }
    let sink = to.0.enter(|| -> Result<(Attachment, Object)> {
        let sink = Object::load(&SINK, &[], None)?;
        let index = tidemill_port::device(to.1)?.index;
        let at = Attachment::attach(&sink, to.1, index, Mode::Native, Duration::from_secs(2), None)?;
        Ok((at, sink))
    })??;
    from.0.enter(move || -> Result<[f64; 2]> {
        let mut object = Object::load(&FLOOD, &[], None)?;
        {
            let mut whole = object.array::<[u8; FRAME]>("frames")?;
            for (at, frame) in (0..).zip(frames) {
                let mut bytes = [0; FRAME];
                bytes[..length].copy_from_slice(frame);
                whole.set(at, bytes, 0).map_err(to_io)?;
            }
        }
        let (mut draws, mut place, mut seed) = (0, 0, 1);
        if let Some(law) = law {
            let mut table = object.array::<u32>("ranks")?;
            for (at, rank) in (0..).zip(&law.ranks) {
                table.set(at, *rank, 0).map_err(to_io)?;
            }
            (draws, place, seed) = (law.ranks.len() as u32 - 1, law.place as u32, law.seed);
        }
        let random = [seed as u32 ^ 0x9e37_79b9, 0x7f4a_7c15];
        let [mask, source, sum, serial] = sources.map_or([0; 4], |Sources { first, count, sent }| {
            [count - 1, u32::from(first), words(&frames[0]), sent]
        });
        let [count, length] = [frames.len(), length].map(|n| n as u32);
        let load = [mask, source, sum, serial, count, length, draws, place, random[0], random[1]];
        object.array::<[u32; 10]>("load")?.set(0, load, 0).map_err(to_io)?;
        let index = tidemill_port::device(from.1)?.index;
        let count = || -> Result<[u64; 2]> { Ok([sink.1.sum("dropped", 0)?, counted()?]) };
        let started = Instant::now();
        let mut first = None;
        let (begins, mut run) = (Duration::from_millis(200), FIRST_RUN);
        let whole = begins + time;
        while started.elapsed() < whole {
            let begun = Instant::now();
            match object.flood(&frames[0], index, run) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            let rate = f64::from(run) / begun.elapsed().as_secs_f64().max(0.001);
            // Whatever is being set up is over by then.
            if first.is_none() && started.elapsed() > begins {
                let before = count()?;
                first = Some((Instant::now(), before));
            }
            let end = if first.is_some() { whole } else { begins };
            let left = end.saturating_sub(started.elapsed()).max(CALL);
            run = (rate * left.as_secs_f64()).min(LONGEST_RUN) as u32;
        }
        let (since, before) = first.context("the flood took too long")?;
        let (after, took) = (count()?, since.elapsed().as_secs_f64());
        Ok([0, 1].map(|at| (after[at] - before[at]) as f64 / took))
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_busy_for_a_share_of_its_time() {
        assert_eq!(busy([10, 100], [105, 200]), 0.95);
        assert_eq!(busy([10, 100], [10, 100]), 0.0);
    }

    /// The program's arithmetic, beside the checksum of a whole header.
    #[test]
    fn a_source_makes_a_headers_checksum_whole() {
        let from = Ipv4Addr::new(10, 1, 2, 203);
        let frame = shortest([[2; 6], [4; 6]], (from, 5), (Ipv4Addr::new(192, 0, 2, 1), 80));
        let [a, b, c, d] = from.octets();
        let source = [[a, b], [c, d]].map(|word| u32::from(u16::from_ne_bytes(word)));
        let sum = words(&frame) + source[0] + source[1];
        let sum = (sum & 0xffff) + (sum >> 16);
        let check = !((sum & 0xffff) + (sum >> 16)) as u16;
        assert_eq!(check.to_ne_bytes(), frame[24..26]);
    }
}
