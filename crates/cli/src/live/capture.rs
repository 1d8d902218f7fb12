//! `tidemill capture`: packets at a node or a port, into a pcapng file or a pipe.

use super::{Live, failed, print_line};
use crate::usage;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidemill_archive::Output;
use tidemill_control::schema::{CaptureQuery, path};

/// Arguments of `tidemill capture`.
#[derive(Args)]
#[command(
    after_help = "A node's capture has what reaches it, a port's what it receives and sends. Ctrl-C ends it.\n\n\
    Examples:\n  tidemill capture port:left -w left.pcapng --packets 100\n  \
    tidemill capture ip4-lookup -w in.pcapng.zst --duration 10\n  \
    tidemill capture port:left -w - | wireshark -k -i -"
)]
pub(crate) struct Capture {
    /// A node of `tidemill show graph`, or port:NAME
    #[arg(value_name = "NODE")]
    at: String,
    /// The file (.zst, .xz and .gz compress); `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// Stop after so many packets
    #[arg(long, value_name = "N")]
    packets: Option<u64>,
    /// Stop after so many seconds
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// Keep only the first so many bytes of each packet
    #[arg(long, value_name = "BYTES")]
    snap: Option<u32>,
    #[command(flatten)]
    live: Live,
}

/// What came of it.
#[derive(Serialize)]
struct Captured {
    packets: u64,
    bytes: u64,
    /// Packets that passed and are not in it: they came faster than they were taken.
    missed: u64,
}

pub(super) fn run(args: &Capture) -> Result<bool> {
    if args.duration.is_some_and(|seconds| !(seconds.is_finite() && seconds >= 0.0)) {
        return Err(usage("--duration: give seconds, 0 or more"));
    }
    let to_pipe = args.write.as_os_str() == "-";
    if to_pipe && args.live.json {
        return Err(usage("--json: standard output is the capture's: write to a file"));
    }
    if to_pipe && io::stdout().is_terminal() {
        return Err(usage("-w -: standard output is a terminal: pipe it: | wireshark -k -i -"));
    }
    let stop = stop_by_signal()?;
    let query = CaptureQuery {
        at: args.at.clone(),
        packets: args.packets,
        duration_s: args.duration,
        snap: args.snap,
    };
    let mut file = Blocks::new(Target::new(&args.write, to_pipe));
    let streamed = args.live.client()?.stream(path::CAPTURE, &query, &mut file, &stop);
    // Whole blocks have been written; the file can be read whatever has happened.
    let Blocks { target, packets, bytes, missed, .. } = file;
    let finished = target.finish();
    streamed.map_err(failed)?;
    finished?;
    if args.live.json {
        print_line(&Captured { packets, bytes, missed })?;
    } else {
        eprintln!("tidemill: {packets} packets, {bytes} bytes");
    }
    if missed > 0 {
        eprintln!(
            "tidemill: {missed} packets that passed are not in it: they came faster than they were taken: give --snap, or a node that sees fewer"
        );
    }
    Ok(true)
}

/// A flag that Ctrl-C and `kill` set; the second one ends the program at once.
pub(super) fn stop_by_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// Where the capture goes. A file is made when its first bytes are here: a mistake in the question spoils no old file.
enum Target<'a> {
    Pipe,
    Later(&'a Path),
    File(Output),
}

impl<'a> Target<'a> {
    fn new(path: &'a Path, to_pipe: bool) -> Self {
        if to_pipe { Target::Pipe } else { Target::Later(path) }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Target::Later(path) = self {
            *self = Target::File(tidemill_archive::create(path)?);
        }
        match self {
            Target::File(file) => file.write_all(bytes),
            _ => {
                let mut out = crate::usage::out();
                out.write_all(bytes)?;
                out.flush()
            }
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Target::File(file) => file.finish(),
            Target::Pipe | Target::Later(_) => Ok(()),
        }
    }
}

/// Writes only whole blocks of pcapng (its draft, section 3.1: type and total length, 32 bits each, begin a block), and
/// counts packets.
struct Blocks<'a> {
    target: Target<'a>,
    waiting: Vec<u8>,
    packets: u64,
    bytes: u64,
    /// The last that was said of it.
    missed: u64,
}

/// Enhanced packet block.
const PACKET_BLOCK: u32 = 6;
/// Interface statistics block, and its option that says how many packets are missing (isb_ifdrop).
const STATISTICS_BLOCK: u32 = 5;
const MISSED_OPTION: u16 = 5;
/// No block of ours is longer: something else than pcapng arrives.
const LONGEST_BLOCK: usize = 1 << 24;

impl<'a> Blocks<'a> {
    fn new(target: Target<'a>) -> Self {
        Blocks { target, waiting: Vec::new(), packets: 0, bytes: 0, missed: 0 }
    }
}

/// What a statistics block says is missing. Its options begin after interface and time, and each with kind and length.
fn missed(block: &[u8]) -> Option<u64> {
    let mut options = block.get(20..block.len().saturating_sub(4))?;
    loop {
        let (head, rest) = options.split_first_chunk::<4>()?;
        let (kind, length) =
            (u16::from_le_bytes([head[0], head[1]]), usize::from(u16::from_le_bytes([head[2], head[3]])));
        if kind == MISSED_OPTION {
            return rest.first_chunk().map(|value| u64::from_le_bytes(*value));
        }
        options = rest.get(length.next_multiple_of(4)..)?;
    }
}

impl Write for Blocks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        let word = |at: usize| {
            let bytes = self.waiting.get(at..at + 4)?;
            Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        let (mut whole, mut packets, mut said) = (0, 0, None);
        while let (Some(kind), Some(length)) = (word(whole), word(whole + 4)) {
            let length = length as usize;
            if !(12..=LONGEST_BLOCK).contains(&length) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the router sends no pcapng"));
            }
            if self.waiting.len() < whole + length {
                break;
            }
            if kind == STATISTICS_BLOCK {
                said = missed(&self.waiting[whole..whole + length]).or(said);
            }
            whole += length;
            packets += u64::from(kind == PACKET_BLOCK);
        }
        if whole > 0 {
            self.target.write(&self.waiting[..whole])?;
            self.waiting.drain(..whole);
            self.missed = said.unwrap_or(self.missed);
            self.packets += packets;
            self.bytes += whole as u64;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the service writes them: the last one holds.
    #[test]
    fn what_is_missing_is_read_from_the_statistics() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcapng");
        let mut blocks = Blocks::new(Target::new(&path, false));
        let mut all = Vec::new();
        tidemill_port::capture::pcapng_header(&mut all);
        for missed in [7, u64::from(u32::MAX) + 9] {
            tidemill_port::capture::pcapng_statistics(&mut all, 1, missed + 3, missed);
        }
        all.chunks(11).for_each(|piece| blocks.write_all(piece).unwrap());
        assert_eq!(
            (blocks.packets, blocks.bytes, blocks.missed),
            (0, all.len() as u64, u64::from(u32::MAX) + 9)
        );
        // Cut short, or without the option: nothing is said.
        assert_eq!(missed(&[]), None);
        assert_eq!(missed(&[0; 24]), None);
    }

    #[test]
    fn only_whole_blocks_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcapng");
        let block = |kind: u32, length: u32| {
            let mut block = vec![0; length as usize];
            block[..4].copy_from_slice(&kind.to_le_bytes());
            block[4..8].copy_from_slice(&length.to_le_bytes());
            block
        };
        let all = [block(0x0a0d_0d0a, 28), block(1, 20), block(6, 100), block(6, 60)].concat();
        let mut blocks = Blocks::new(Target::new(&path, false));
        all[..all.len() - 1].chunks(7).for_each(|piece| blocks.write_all(piece).unwrap());
        assert_eq!((blocks.packets, blocks.bytes), (1, 148));
        blocks.target.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), &all[..148]);
        let mut blocks = Blocks::new(Target::new(&path, false));
        assert!(blocks.write_all(b"{\"error\":\"x\"}").is_err());
    }
}
