//! Real captures, malformed ones too, read as the independent parser reads them. Needs TIDEMILL_DATA.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(dead_code, reason = "the shared module has what the properties need, too")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use tidemill_wire::verify_checksums;

/// What was seen in the captures of one directory.
#[derive(Debug, Default)]
struct Seen {
    captures: usize,
    frames: usize,
    checksum_faults: BTreeMap<&'static str, usize>,
}

#[test]
fn real_captures_mean_the_same_to_both_parsers() {
    let Some(data) = std::env::var_os("TIDEMILL_DATA") else {
        println!("skipped: real_captures_mean_the_same_to_both_parsers (TIDEMILL_DATA is not set)");
        return;
    };
    let mut total = 0;
    for kind in ["ddos", "dns", "frag", "icmp", "malformed", "memcached", "mix", "proto"] {
        let mut seen = Seen::default();
        for entry in std::fs::read_dir(Path::new(&data).join("pcap").join(kind)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_string_lossy().into_owned();
            if !name.ends_with(".zst") {
                continue;
            }
            let bytes = zstd::decode_all(std::fs::File::open(&path).unwrap()).unwrap();
            if name.ends_with(".tar.zst") {
                for file in tar_members(&bytes) {
                    capture(file, &mut seen);
                }
            } else {
                capture(&bytes, &mut seen);
            }
        }
        println!("{kind}: {seen:?}");
        total += seen.frames;
    }
    assert!(total > 50_000, "only {total} frames");
}

/// The files of a tar archive (POSIX ustar): 512-byte headers with the size in octal, contents padded to 512.
fn tar_members(mut tar: &[u8]) -> Vec<&[u8]> {
    let mut members = vec![];
    while let Some((header, rest)) = tar.split_first_chunk::<512>() {
        let digits = header[124..136].iter().take_while(|b| b.is_ascii_digit());
        let size = digits.fold(0, |size, digit| size * 8 + usize::from(digit - b'0'));
        if header[0] == 0 || size > rest.len() {
            break;
        }
        members.push(&rest[..size]);
        tar = &rest[size.next_multiple_of(512).min(rest.len())..];
    }
    members
}

/// Reads a classic pcap file as far as it goes; other formats are the business of the port crate.
fn capture(bytes: &[u8], seen: &mut Seen) {
    let Some(magic) = bytes.first_chunk::<4>() else { return };
    let little = matches!(magic, [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1]);
    if !little && !matches!(magic, [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d]) {
        return;
    }
    let word = |at: usize| {
        let word = bytes.get(at..)?.first_chunk::<4>()?;
        Some(if little { u32::from_le_bytes(*word) } else { u32::from_be_bytes(*word) } as usize)
    };
    let Some(link_type) = word(20) else { return };
    seen.captures += 1;
    let mut at = 24;
    while let Some(len) = word(at + 8)
        && let Some(frame) = bytes.get(at + 16..at + 16 + len)
    {
        at += 16 + len;
        seen.frames += 1;
        common::touch::touch(frame);
        common::agree::network(frame);
        if link_type == 1 {
            common::agree::agree(frame);
            if let Err(fault) = verify_checksums(frame) {
                *seen.checksum_faults.entry(fault.protocol).or_default() += 1;
            }
        }
    }
}
