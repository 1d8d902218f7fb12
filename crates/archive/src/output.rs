//! Writing: compressed as the output's name asks.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

const BUFFER_BYTES: usize = 64 << 10;
const GZIP_LEVEL: u32 = 6;
const XZ_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 9;

/// A file that is being written. Call [`finish`](Self::finish): only it writes the trailer, flushes and reports what
/// failed; a file that is dropped without it is cut short.
#[must_use = "an output is whole only after finish()"]
pub struct Output {
    name: String,
    encoder: Encoder,
}

enum Encoder {
    Plain(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
    Xz(Box<liblzma::write::XzEncoder<BufWriter<File>>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
}

/// Creates (or empties) a file; `.gz`, `.xz` and `.zst` at the end of its name compress, anything else is plain.
///
/// # Errors
/// As the operating system says, with the file's name.
pub fn create(path: &Path) -> io::Result<Output> {
    let name = path.display().to_string();
    let file = File::create(path).map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
    let file = BufWriter::with_capacity(BUFFER_BYTES, file);
    let encoder = match path.extension().and_then(|e| e.to_str()) {
        Some("gz") => {
            Encoder::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::new(GZIP_LEVEL)))
        }
        Some("xz") => Encoder::Xz(Box::new(liblzma::write::XzEncoder::new(file, XZ_LEVEL))),
        Some("zst") => {
            let mut encoder = zstd::stream::write::Encoder::new(file, ZSTD_LEVEL)?;
            encoder.include_checksum(true)?;
            Encoder::Zstd(encoder)
        }
        _ => Encoder::Plain(file),
    };
    Ok(Output { name, encoder })
}

impl Output {
    /// Ends the compressed stream, flushes and closes.
    ///
    /// # Errors
    /// As the operating system says (a full disk shows here at the latest), with the file's name.
    pub fn finish(self) -> io::Result<()> {
        let Output { name, encoder } = self;
        let finished = match encoder {
            Encoder::Plain(file) => Ok(file),
            Encoder::Gzip(encoder) => encoder.finish(),
            Encoder::Xz(encoder) => encoder.finish(),
            Encoder::Zstd(encoder) => encoder.finish(),
        };
        finished
            .and_then(|mut file| file.flush())
            .map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))
    }

    fn sink(&mut self) -> &mut dyn Write {
        match &mut self.encoder {
            Encoder::Plain(w) => w,
            Encoder::Gzip(w) => w,
            Encoder::Xz(w) => w.as_mut(),
            Encoder::Zstd(w) => w,
        }
    }

    fn named<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|e| match e.kind() {
            io::ErrorKind::Interrupted => e,
            kind => io::Error::new(kind, format!("{}: {e}", self.name)),
        })
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let result = self.sink().write(buf);
        self.named(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.sink().flush();
        self.named(result)
    }
}
