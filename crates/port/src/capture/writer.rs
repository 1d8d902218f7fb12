//! The capture writer: Ethernet frames to pcap with nanoseconds, or to pcapng if the name says so.
//!
//! Whole records are collected and written together, so that a run that is killed leaves a file that ends between two
//! packets. The buffer goes out when it is full and when [`Writer::tick`] sees that a second has passed.

use crate::PortError;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Records are written to the file in lumps of about this size.
const LUMP_BYTES: usize = 256 << 10;
/// How much time a killed run may lose.
const FLUSH_NS: u64 = 1_000_000_000;
/// No packet that fits a frame is longer.
const SNAP_LEN: u32 = 262_144;

/// Which way a packet passed (kept by pcapng only).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sense {
    /// Not said.
    Unknown = 0,
    /// Received.
    Inbound = 1,
    /// Sent.
    Outbound = 2,
}

/// A capture file that several workers write to: clones share it.
#[derive(Clone)]
pub struct Writer(Arc<Shared>);

struct Shared {
    path: PathBuf,
    pcapng: bool,
    file: Mutex<File>,
}

struct File {
    output: Option<tidemill_archive::Output>,
    buffer: Vec<u8>,
    flushed_ns: u64,
}

/// The writer, locked for a burst.
pub struct Locked<'a> {
    shared: &'a Shared,
    file: MutexGuard<'a, File>,
}

impl Writer {
    /// Creates (or empties) the file. `.pcapng` makes it pcapng, anything else pcap with nanoseconds; `.gz`, `.xz` or
    /// `.zst` behind that compresses.
    pub fn create(path: &Path) -> Result<Self, PortError> {
        let stem = match path.extension().and_then(|e| e.to_str()) {
            Some("gz" | "xz" | "zst") => path.file_stem().map(Path::new),
            _ => Some(path),
        };
        let pcapng = stem.and_then(Path::extension).is_some_and(|e| e == "pcapng");
        let output = tidemill_archive::create(path).map_err(PortError::File)?;
        let mut buffer = Vec::with_capacity(LUMP_BYTES + 64 * 1024);
        if pcapng {
            pcapng_header(&mut buffer);
        } else {
            push_u32(&mut buffer, &[0xA1B2_3C4D, 2 | 4 << 16, 0, 0, SNAP_LEN, 1]);
        }
        let file = Mutex::new(File { output: Some(output), buffer, flushed_ns: 0 });
        let writer = Writer(Arc::new(Shared { path: path.to_owned(), pcapng, file }));
        writer.lock().flush()?;
        Ok(writer)
    }

    /// Locks the file for several packets.
    pub fn lock(&self) -> Locked<'_> {
        // A panic elsewhere leaves the buffer between two records or with one too many bytes; keep what there is.
        Locked { shared: &self.0, file: self.0.file.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Writes one packet.
    pub fn write(
        &self,
        timestamp_ns: u64,
        sense: Sense,
        data: &[u8],
        wire_len: u32,
    ) -> Result<(), PortError> {
        self.lock().write(timestamp_ns, sense, data, wire_len)
    }

    /// Writes the buffer out if a second has passed since that was last done.
    pub fn tick(&self, now_ns: u64) -> Result<(), PortError> {
        let mut locked = self.lock();
        if locked.file.flushed_ns == 0 {
            locked.file.flushed_ns = now_ns;
        }
        if now_ns.saturating_sub(locked.file.flushed_ns) < FLUSH_NS {
            return Ok(());
        }
        locked.file.flushed_ns = now_ns;
        locked.flush()
    }

    /// Writes everything out, and closes the file if no other clone is left.
    pub fn finish(self) -> Result<(), PortError> {
        self.lock().flush()?;
        let Some(mut shared) = Arc::into_inner(self.0) else { return Ok(()) };
        let file = shared.file.get_mut().unwrap_or_else(PoisonError::into_inner);
        file.output.take().map_or(Ok(()), |output| output.finish().map_err(PortError::File))
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

impl Locked<'_> {
    /// Writes one packet. `wire_len` is its length on the wire where that is more than `data`'s, else 0.
    #[inline]
    pub fn write(
        &mut self,
        timestamp_ns: u64,
        sense: Sense,
        data: &[u8],
        wire_len: u32,
    ) -> Result<(), PortError> {
        let buffer = &mut self.file.buffer;
        if self.shared.pcapng {
            pcapng_packet(buffer, timestamp_ns, sense, data, wire_len);
        } else {
            let len = data.len() as u32;
            let wire_len = wire_len.max(len);
            let (seconds, ns) = (timestamp_ns / 1_000_000_000, timestamp_ns % 1_000_000_000);
            push_u32(buffer, &[seconds as u32, ns as u32, len, wire_len]);
            buffer.extend_from_slice(data);
        }
        if buffer.len() >= LUMP_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer to the file. After an error the file is given up: nothing more is written.
    pub fn flush(&mut self) -> Result<(), PortError> {
        let File { output, buffer, .. } = &mut *self.file;
        let Some(file) = output.as_mut() else {
            buffer.clear();
            return Ok(());
        };
        let written = file.write_all(buffer).and_then(|()| file.flush());
        buffer.clear();
        if let Err(error) = written {
            *output = None;
            return Err(PortError::File(error));
        }
        Ok(())
    }

    /// Whether the file has been closed or given up.
    pub fn is_closed(&self) -> bool {
        self.file.output.is_none()
    }
}

/// The start of a pcapng file or stream: a section header (version 1.0, length not given), then one Ethernet interface
/// with timestamps in nanoseconds.
pub fn pcapng_header(buffer: &mut Vec<u8>) {
    push_u32(buffer, &[0x0A0D_0D0A, 28, 0x1A2B_3C4D, 1, u32::MAX, u32::MAX, 28]);
    push_u32(buffer, &[1, 32, 1, SNAP_LEN, 9 | 1 << 16, 9, 0, 32]);
}

/// One packet of a pcapng file or stream. `wire_len` is its length on the wire where that is more than `data`'s, else 0.
#[inline]
pub fn pcapng_packet(buffer: &mut Vec<u8>, timestamp_ns: u64, sense: Sense, data: &[u8], wire_len: u32) {
    let len = data.len() as u32;
    let options = if sense == Sense::Unknown { 0 } else { 12 };
    let block = 32 + len.next_multiple_of(4) + options;
    let (high, low) = ((timestamp_ns >> 32) as u32, timestamp_ns as u32);
    push_u32(buffer, &[6, block, 0, high, low, len, wire_len.max(len)]);
    buffer.extend_from_slice(data);
    buffer.resize(buffer.len() + (len.next_multiple_of(4) - len) as usize, 0);
    if options != 0 {
        // epb_flags, end of options.
        push_u32(buffer, &[2 | 4 << 16, sense as u32, 0]);
    }
    push_u32(buffer, &[block]);
}

/// The interface's statistics in a pcapng file or stream, at a moment: packets that passed and are not in it (`isb_ifdrop`), of all that did (`isb_ifrecv`). There
/// may be one at any time; the last one holds.
pub fn pcapng_statistics(buffer: &mut Vec<u8>, timestamp_ns: u64, received: u64, missed: u64) {
    const LEN: u32 = 52;
    let halves = |value: u64| [value as u32, (value >> 32) as u32];
    let [low, high] = halves(timestamp_ns);
    push_u32(buffer, &[5, LEN, 0, high, low]);
    // isb_ifrecv, isb_ifdrop, end of options.
    for (option, value) in [(4, received), (5, missed)] {
        let [low, high] = halves(value);
        push_u32(buffer, &[option | 8 << 16, low, high]);
    }
    push_u32(buffer, &[0, LEN]);
}

#[inline]
fn push_u32(buffer: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| buffer.extend_from_slice(&word.to_le_bytes()));
}

impl Drop for Shared {
    fn drop(&mut self) {
        let File { output, buffer, .. } = self.file.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut file) = output.take() {
            // Nobody called `finish`, so nobody is there to hear of an error.
            let _: io::Result<()> = file.write_all(buffer).and_then(|()| file.finish());
        }
    }
}
