//! Packets of captures, and of captures in tar archives, as IP packets.

use crate::usage;
use anyhow::{Context, Result};
use std::io::{BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use tidemill_port::capture::{LinkType, Reader, Record};
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, ipv4};

/// The longest member of an archive that is read.
const LONGEST_MEMBER: u64 = 256 << 20;

/// An IP packet of a capture, of its header on; may be cut short.
pub(super) struct Captured<'a> {
    pub(super) timestamp_ns: u64,
    pub(super) ip: &'a [u8],
}

/// The captures of a study.
pub(super) struct Captures {
    files: Vec<PathBuf>,
    /// Files that the user named have to be right; of a collection that was made to be read wrongly, what can be read is.
    strict: bool,
    /// Packets of all of them, at most.
    most: u64,
}

/// What was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// Captures, those in archives included.
    pub(super) captures: u64,
    /// Captures that could not be read to their end.
    pub(super) broken: u64,
    /// Packets, IP or not.
    pub(super) packets: u64,
}

impl Captures {
    /// The files that the user names; else all in the folder `pcap` of the project's data.
    ///
    /// # Errors
    /// Neither was given, or the folder cannot be read.
    pub(super) fn find(named: &[PathBuf], figure: &str) -> Result<Self> {
        if !named.is_empty() {
            return Ok(Captures { files: named.to_vec(), strict: true, most: u64::MAX });
        }
        let Some(data) = std::env::var_os("TIDEMILL_DATA").filter(|data| !data.is_empty()) else {
            return Err(usage(format!("--figure {figure}: give --capture FILE, once or several times")));
        };
        let mut files = Vec::new();
        collect(&Path::new(&data).join("pcap"), &mut files)?;
        files.sort();
        Ok(Captures { files, strict: false, most: u64::MAX })
    }

    /// The same, refused where there are more packets: for who keeps them.
    pub(super) fn at_most(self, most: u64) -> Self {
        Captures { most, ..self }
    }

    /// Of the collection only the file whose path ends so; all that the user has named.
    pub(super) fn only(mut self, end: &str) -> Self {
        self.files.retain(|file| self.strict || file.ends_with(end));
        self
    }

    /// Reads them in turn: `each` gets the file's name without folders and an IP packet.
    ///
    /// # Errors
    /// A file that the user named cannot be read to its end.
    pub(super) fn read(&self, mut each: impl FnMut(&str, &Captured<'_>)) -> Result<Summary> {
        let mut read = Summary::default();
        for file in &self.files {
            let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
            let result = if is_archive(&name) {
                self.archive(file, &name, &mut read, &mut each)
            } else {
                let reader = Reader::open(file);
                self.packets(reader, &name, &mut read, &mut each)
            };
            self.judge(result, &mut read)?;
        }
        Ok(read)
    }

    fn judge(&self, result: Result<()>, read: &mut Summary) -> Result<()> {
        match result {
            Err(error) if self.strict => Err(error),
            Err(_) => {
                read.broken += 1;
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn archive(
        &self,
        file: &Path,
        name: &str,
        read: &mut Summary,
        each: &mut impl FnMut(&str, &Captured<'_>),
    ) -> Result<()> {
        let mut archive = tar::Archive::new(tidemill_archive::open(file)?);
        for entry in archive.entries()? {
            let entry = entry.with_context(|| file.display().to_string())?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let path = file.join(entry.path()?);
            let mut bytes = Vec::new();
            entry.take(LONGEST_MEMBER).read_to_end(&mut bytes).with_context(|| path.display().to_string())?;
            let result = (|| {
                let plain = tidemill_archive::decode(Cursor::new(bytes))?;
                self.packets(Reader::new(&path, Box::new(BufReader::new(plain))), name, read, each)
            })();
            self.judge(result, read)?;
        }
        Ok(())
    }

    fn packets(
        &self,
        reader: Result<Reader, tidemill_port::PortError>,
        name: &str,
        read: &mut Summary,
        each: &mut impl FnMut(&str, &Captured<'_>),
    ) -> Result<()> {
        read.captures += 1;
        let mut reader = reader?;
        while let Some(record) = reader.next()? {
            if read.packets >= self.most {
                let most = self.most;
                return Err(usage(format!("{name}: more than {most} packets in all: give shorter captures")));
            }
            read.packets += 1;
            if let Some(ip) = ip(&record) {
                each(name, &Captured { timestamp_ns: record.timestamp_ns, ip });
            }
        }
        Ok(())
    }
}

fn is_archive(name: &str) -> bool {
    [".tar", ".tar.gz", ".tar.xz", ".tar.zst"].iter().any(|end| name.ends_with(end))
}

/// Files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() { collect(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

/// The IP packet in a record, if it is one.
fn ip<'a>(record: &Record<'a>) -> Option<&'a [u8]> {
    let data = match record.link {
        LinkType::Ethernet => {
            let l2 = L2::parse(record.data).ok()?;
            if l2.ethertype != EtherType::IPV4 && l2.ethertype != EtherType::IPV6 {
                return None;
            }
            record.data.get(l2.l3_offset..)?
        }
        LinkType::Null => record.data.get(4..)?,
        LinkType::LinuxSll => record.data.get(16..)?,
        LinkType::LinuxSll2 => record.data.get(20..)?,
        LinkType::Raw | LinkType::Ipv4 | LinkType::Ipv6 => record.data,
    };
    (!data.is_empty() && matches!(ipv4::version(data), 4 | 6)).then_some(data)
}
