//! Round trips, concatenation, truncation and corruption in every format.

#![allow(clippy::unwrap_used)]
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};

fn text() -> Vec<u8> {
    (0..20_000u32)
        .flat_map(|i| format!("10.{}.{}.0/24\t{i}\n", i / 256 % 256, i % 256).into_bytes())
        .collect()
}

fn packed(dir: &Path, extension: &str, data: &[u8]) -> Vec<u8> {
    let path = dir.join(format!("packed.{extension}"));
    let mut out = tidemill_archive::create(&path).unwrap();
    out.write_all(data).unwrap();
    out.finish().unwrap();
    std::fs::read(path).unwrap()
}

/// Under a name that says nothing about the format.
fn read_back(dir: &Path, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let path = dir.join("table");
    std::fs::write(&path, bytes).unwrap();
    let mut data = Vec::new();
    tidemill_archive::open(&path)?.read_to_end(&mut data)?;
    Ok(data)
}

#[test]
fn every_format_reads_back_whatever_the_name() {
    let dir = tempfile::tempdir().unwrap();
    for extension in ["txt", "gz", "xz", "zst"] {
        let bytes = packed(dir.path(), extension, &text());
        assert_eq!(extension == "txt", bytes == text(), "{extension}");
        assert!(read_back(dir.path(), &bytes).unwrap() == text(), "{extension}");
        let twice = [bytes.as_slice(), &bytes].concat();
        assert!(read_back(dir.path(), &twice).unwrap() == [text(), text()].concat(), "{extension} twice");
    }
    for tiny in [&b""[..], b"\x1f", b"1.0.0.0/8"] {
        assert_eq!(read_back(dir.path(), tiny).unwrap(), tiny);
        for extension in ["gz", "xz", "zst"] {
            assert_eq!(read_back(dir.path(), &packed(dir.path(), extension, tiny)).unwrap(), tiny);
        }
    }
}

#[test]
fn cut_and_corrupt_data_says_where() {
    let dir = tempfile::tempdir().unwrap();
    for (extension, name) in [("gz", "gzip"), ("xz", "xz"), ("zst", "zstd")] {
        let bytes = packed(dir.path(), extension, &text());
        for cut in [8, 20, bytes.len() / 2, bytes.len() - 1] {
            let error = read_back(dir.path(), &bytes[..cut]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{extension} cut at {cut}: {error}");
            let wanted = format!("{}: {name} data is cut short after ", dir.path().join("table").display());
            assert!(error.to_string().starts_with(&wanted), "{error}");
        }
        let mut bad = bytes.clone();
        let at = bad.len() - 6; // in the trailer or the last block: gzip CRC-32, xz footer, zstd block or checksum
        bad[at] ^= 0x55;
        let error = read_back(dir.path(), &bad).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{extension}: {error}");
        let garbage = [bytes.as_slice(), b"garbage"].concat();
        assert!(read_back(dir.path(), &garbage).is_err(), "{extension} with garbage behind it");
    }
}

#[test]
fn the_first_buffer_shows_sixteen_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for extension in ["txt", "gz", "xz", "zst"] {
        packed(dir.path(), extension, &text());
        let mut reader = tidemill_archive::open(&dir.path().join(format!("packed.{extension}"))).unwrap();
        assert!(reader.fill_buf().unwrap().len() >= 16, "{extension}");
    }
}

#[test]
fn missing_and_bzip2_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing: PathBuf = dir.path().join("no-such-file");
    let error = tidemill_archive::open(&missing).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().starts_with(&format!("{}: ", missing.display())));
    for no_file in [Path::new("/dev/zero"), dir.path()] {
        let error = tidemill_archive::open(no_file).err().unwrap().to_string();
        assert_eq!(error, format!("{}: a device or a folder, and no file", no_file.display()));
    }
    let error = read_back(dir.path(), b"BZh91AY&SY").unwrap_err();
    assert!(error.to_string().contains("bzip2 is not read: unpack it with bunzip2"), "{error}");
}

#[test]
fn a_write_that_fails_is_reported_by_finish() {
    // /dev/full accepts nothing: the buffer hides it until finish.
    let mut out = tidemill_archive::create(Path::new("/dev/full")).unwrap();
    out.write_all(b"text").unwrap();
    let error = out.finish().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(error.to_string().starts_with("/dev/full: "), "{error}");
}

#[test]
fn decode_reads_from_any_reader() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = packed(dir.path(), "zst", b"hello");
    let mut data = Vec::new();
    tidemill_archive::decode(io::Cursor::new(bytes)).unwrap().read_to_end(&mut data).unwrap();
    assert_eq!(data, b"hello");
}
