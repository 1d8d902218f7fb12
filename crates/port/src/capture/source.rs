//! Where a capture port's packets come from: a file read as it goes (again and again, if it loops), or one that was
//! read into memory before the start.

use super::reader::{Reader, Record};
use crate::PortError;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_burst::Packet;

/// A captured packet as the graph wants it: an Ethernet frame.
#[derive(Clone, Copy)]
pub(crate) struct Framed<'a> {
    pub(crate) timestamp_ns: u64,
    /// The made-up link header, if the capture had none.
    header: Option<[u8; 14]>,
    /// What follows it, or the whole frame.
    data: &'a [u8],
    /// Length of the frame on the wire if the capture was cut short, else 0.
    wire_len: u32,
}

impl<'a> Framed<'a> {
    pub(crate) fn new(record: &Record<'a>) -> Self {
        let conversion = record.link.conversion(record.data);
        let data = &record.data[conversion.skip..];
        let added = conversion.header.map_or(0, |h| h.len());
        let cut = record.wire_len.saturating_sub(record.data.len() as u32);
        let wire_len = if cut == 0 { 0 } else { ((added + data.len()) as u32).saturating_add(cut) };
        Framed { timestamp_ns: record.timestamp_ns, header: conversion.header, data, wire_len }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.header.map_or(0, |h| h.len()) + self.data.len()
    }

    /// Writes the frame into a fresh packet; the caller has checked that there is room.
    #[inline]
    pub(crate) fn copy_to(&self, packet: &mut Packet) {
        packet.set_len(self.len());
        match &self.header {
            None => packet.data_mut().copy_from_slice(self.data),
            Some(header) => {
                let (front, rest) = packet.data_mut().split_at_mut(header.len());
                front.copy_from_slice(header);
                rest.copy_from_slice(self.data);
            }
        }
        if self.wire_len != 0 {
            packet.set_wire_len(self.wire_len);
        }
    }

    /// A hash that is the same for both directions of a conversation and for all fragments of a packet.
    pub(crate) fn spread(&self) -> u64 {
        match &self.header {
            None => crate::headers::spread(self.data),
            Some(header) => crate::headers::spread_ip(&header[12..], self.data),
        }
    }
}

/// Bytes of packets that are kept in memory at most: a small file may unpack to any length, and a pipe may have no end.
const PRELOAD_MAX_BYTES: u64 = 16 << 30;

/// A whole capture in memory, shared by the queues of a port.
pub(crate) struct Preloaded {
    bytes: Vec<u8>,
    records: Vec<Slot>,
    /// What ended the capture early, for the first queue that gets there.
    error: Mutex<Option<PortError>>,
}

struct Slot {
    timestamp_ns: u64,
    start: usize,
    len: u32,
    wire_len: u32,
}

impl Preloaded {
    /// Reads a whole capture, of which at most `limit` packets are wanted. A fault inside is kept for later.
    pub(crate) fn read(path: &Path, limit: u64) -> Result<Self, PortError> {
        Self::read_within(path, limit, PRELOAD_MAX_BYTES)
    }

    fn read_within(path: &Path, limit: u64, most: u64) -> Result<Self, PortError> {
        let mut reader = Reader::open(path)?;
        let (mut bytes, mut records, mut error) = (Vec::new(), Vec::new(), None);
        while (records.len() as u64) < limit {
            match reader.next() {
                Ok(None) => break,
                Err(fault) => {
                    error = Some(fault);
                    break;
                }
                Ok(Some(record)) => {
                    let framed = Framed::new(&record);
                    records.push(Slot {
                        timestamp_ns: framed.timestamp_ns,
                        start: bytes.len(),
                        len: framed.len() as u32,
                        wire_len: framed.wire_len,
                    });
                    bytes.extend_from_slice(framed.header.as_ref().map_or(&[], |h| &h[..]));
                    bytes.extend_from_slice(framed.data);
                    if (bytes.len() + records.len() * size_of::<Slot>()) as u64 > most {
                        let what = format!(
                            "{}: more than {most} bytes in memory: play it without `preload`, or give `limit`",
                            path.display()
                        );
                        return Err(PortError::File(std::io::Error::other(what)));
                    }
                }
            }
        }
        Ok(Preloaded { bytes, records, error: Mutex::new(error) })
    }
}

pub(crate) enum Source {
    File { path: PathBuf, reader: Reader },
    Memory { capture: Arc<Preloaded>, at: usize },
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self, PortError> {
        Ok(Source::File { path: path.to_owned(), reader: Reader::open(path)? })
    }

    pub(crate) fn preloaded(capture: Arc<Preloaded>) -> Self {
        Source::Memory { capture, at: 0 }
    }

    /// The next packet, or `None` at the end of this pass.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Framed<'_>>, PortError> {
        match self {
            Source::File { reader, .. } => Ok(reader.next()?.map(|record| Framed::new(&record))),
            Source::Memory { capture, at } => match capture.records.get(*at) {
                Some(slot) => {
                    *at += 1;
                    Ok(Some(Framed {
                        timestamp_ns: slot.timestamp_ns,
                        header: None,
                        data: &capture.bytes[slot.start..slot.start + slot.len as usize],
                        wire_len: slot.wire_len,
                    }))
                }
                None => {
                    let error = capture.error.lock().unwrap_or_else(PoisonError::into_inner).take();
                    error.map_or(Ok(None), Err)
                }
            },
        }
    }

    /// Starts the next pass.
    pub(crate) fn rewind(&mut self) -> Result<(), PortError> {
        match self {
            Source::File { path, reader } => *reader = Reader::open(path)?,
            Source::Memory { at, .. } => *at = 0,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.pcap");
        let header = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65535, 1];
        let record = [0_u32, 0, 60, 60].into_iter().chain([0; 15]);
        let words = header.into_iter().chain(record.clone()).chain(record);
        std::fs::write(&path, words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
        let both = 2 * (60 + size_of::<Slot>()) as u64;
        let read = |limit, most| Preloaded::read_within(&path, limit, most).map(|read| read.records.len());
        assert_eq!(read(u64::MAX, both).unwrap(), 2);
        assert_eq!(read(1, both - 1).unwrap(), 1);
        let said = read(u64::MAX, both - 1).unwrap_err().to_string();
        assert!(said.ends_with("bytes in memory: play it without `preload`, or give `limit`"), "{said}");
    }
}
