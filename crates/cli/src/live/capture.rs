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
    let Blocks { target, packets, bytes, .. } = file;
    let finished = target.finish();
    streamed.map_err(failed)?;
    finished?;
    if args.live.json {
        print_line(&Captured { packets, bytes })?;
    } else {
        eprintln!("tidemill: {packets} packets, {bytes} bytes");
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
}

/// Enhanced packet block.
const PACKET_BLOCK: u32 = 6;
/// No block of ours is longer: something else than pcapng arrives.
const LONGEST_BLOCK: usize = 1 << 24;

impl<'a> Blocks<'a> {
    fn new(target: Target<'a>) -> Self {
        Blocks { target, waiting: Vec::new(), packets: 0, bytes: 0 }
    }
}

impl Write for Blocks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        let word = |at: usize| {
            let bytes = self.waiting.get(at..at + 4)?;
            Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        let (mut whole, mut packets) = (0, 0);
        while let (Some(kind), Some(length)) = (word(whole), word(whole + 4)) {
            let length = length as usize;
            if !(12..=LONGEST_BLOCK).contains(&length) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the router sends no pcapng"));
            }
            if self.waiting.len() < whole + length {
                break;
            }
            whole += length;
            packets += u64::from(kind == PACKET_BLOCK);
        }
        if whole > 0 {
            self.target.write(&self.waiting[..whole])?;
            self.waiting.drain(..whole);
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
