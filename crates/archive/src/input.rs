//! Reading: detection by magic bytes, decoders, errors with their place.

use crate::whole::readable;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::Path;

/// What a decoder may ask for to hold its window: an xz header can claim 4 GiB. `xz -9` needs 65 MiB.
const XZ_MEMORY_MAX_BYTES: u64 = 256 << 20;

/// Buffer between the layers.
const BUFFER_BYTES: usize = 64 << 10;

/// What is read before the format is told. The longest magic has 6 bytes; with 16 the first `fill_buf` of a plain file also
/// shows enough to whoever tells the formats inside apart (an MRT header has 12 bytes, a capture's magic 4).
const HEAD_BYTES: usize = 16;

/// How a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As it is.
    Plain,
    /// gzip, RFC 1952.
    Gzip,
    /// xz.
    Xz,
    /// zstd, RFC 8878; a file may begin with a skippable frame.
    Zstd,
    /// bzip2: recognised so that the message can say so, not read.
    Bzip2,
}

impl Format {
    /// Tells the format by a file's first bytes; fewer than six are enough where the file is shorter.
    pub fn detect(head: &[u8]) -> Format {
        match head {
            [0x1f, 0x8b, 0x08, ..] => Format::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0x00, ..] => Format::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Format::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Format::Bzip2,
            _ => Format::Plain,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::Plain => "plain",
            Format::Gzip => "gzip",
            Format::Xz => "xz",
            Format::Zstd => "zstd",
            Format::Bzip2 => "bzip2",
        }
    }
}

/// Opens a file, plain or compressed. A pipe is waited for. What it gives may have no end, and a small file may unpack to any length: who keeps what he reads
/// needs a bound.
///
/// # Errors
/// As the operating system says, with the file's name; it is neither a file nor a pipe. Later reads fail as [`decode`]'s do, with the file's name.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    let name = path.display().to_string();
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("{name}: {e}"));
    // Opening may do something to a device already; and the path may mean something else when it is opened.
    fs::metadata(path).and_then(|data| readable(&data)).map_err(failed)?;
    let file = File::open(path).map_err(failed)?;
    file.metadata().and_then(|data| readable(&data)).map_err(failed)?;
    unpack(file, name)
}

/// Unpacks what a reader gives, plain or compressed.
///
/// # Errors
/// Those of the reader. A read from the result fails with kind `InvalidData` where compressed data is corrupt and
/// `UnexpectedEof` where it ends early: `NAME: gzip data is cut short after 4096 uncompressed bytes (...)`.
pub fn decode(reader: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    unpack(reader, "input".into())
}

fn unpack(mut reader: impl Read + Send + 'static, name: String) -> io::Result<Box<dyn BufRead + Send>> {
    let mut head = [0; HEAD_BYTES];
    let mut filled = 0;
    while filled < head.len() {
        match reader.read(&mut head[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(io::Error::new(e.kind(), format!("{name}: {e}"))),
        }
    }
    let format = Format::detect(&head[..filled]);
    let raw: Raw<_> = Cursor::new(head[..filled].to_vec()).chain(reader);
    let raw = BufReader::with_capacity(BUFFER_BYTES, raw);
    let inner: Box<dyn Read + Send> = match format {
        Format::Plain => Box::new(raw),
        Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(raw)),
        Format::Xz => {
            let flags = liblzma::stream::CONCATENATED;
            let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_MAX_BYTES, flags)
                .map_err(|e| io::Error::other(format!("{name}: xz: {e}")))?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(raw, stream))
        }
        Format::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(raw)?),
        Format::Bzip2 => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "{name}: bzip2 is not read: unpack it with bunzip2, or repack it with zstd, xz or gzip"
                ),
            ));
        }
    };
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, Located { inner, name, format, offset: 0 })))
}

type Raw<R> = Chain<Cursor<Vec<u8>>, R>;

/// Counts what was unpacked, so that an error can say where it struck.
struct Located {
    inner: Box<dyn Read + Send>,
    name: String,
    format: Format,
    offset: u64,
}

impl Read for Located {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buf) {
            Ok(n) => {
                self.offset += n as u64;
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Err(e),
            Err(e) => Err(self.locate(e)),
        }
    }
}

impl Located {
    fn locate(&self, error: io::Error) -> io::Error {
        let Located { name, format, offset, .. } = self;
        if error.raw_os_error().is_some() || *format == Format::Plain {
            return io::Error::new(error.kind(), format!("{name}: at byte {offset}: {error}"));
        }
        // The decoders disagree on kinds (zstd says `Other` for corruption): one kind per meaning from here on.
        let (kind, what) = match error.kind() {
            io::ErrorKind::UnexpectedEof => (io::ErrorKind::UnexpectedEof, "cut short"),
            _ => (io::ErrorKind::InvalidData, "corrupt"),
        };
        let format = format.name();
        io::Error::new(
            kind,
            format!("{name}: {format} data is {what} after {offset} uncompressed bytes ({error})"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_format() {
        for (head, format) in [
            (&b""[..], Format::Plain),
            (b"\x1f\x8b", Format::Plain),
            (b"\x1f\x8b\x08\x00", Format::Gzip),
            (b"\xfd7zXZ\x00", Format::Xz),
            (b"\xfd7zXZ", Format::Plain),
            (b"\x28\xb5\x2f\xfd", Format::Zstd),
            (b"\x5a\x2a\x4d\x18", Format::Zstd),
            (b"BZh91A", Format::Bzip2),
            (b"1.0.0.", Format::Plain),
        ] {
            assert_eq!(Format::detect(head), format, "{head:x?}");
        }
    }
}
