//! Capture files: written and read back in every format, built by hand in every variant, and broken at every byte.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Seen, assert_all_home, pool, read, receive, theirs};
use proptest::prelude::*;
use std::io::Read as _;
use std::path::Path;
use tidemill_burst::{Burst, DropReason};
use tidemill_port::capture::{Reader, Sense, Writer};
use tidemill_port::{Pace, PcapPort, Playback, Port, PortError, RxStatus};

const FORMATS: [&str; 8] =
    ["pcap", "pcapng", "pcap.gz", "pcapng.gz", "pcap.xz", "pcapng.xz", "pcap.zst", "pcapng.zst"];

fn packets() -> impl Strategy<Value = Vec<Seen>> {
    let packet = (any::<u32>(), 0..1_000_000_000u64, proptest::collection::vec(any::<u8>(), 0..200), 0..3u32);
    let packet = packet.prop_map(|(seconds, ns, data, cut)| Seen {
        timestamp_ns: (u64::from(seconds) * 1_000_000_000 + ns).max(1),
        wire_len: if cut == 0 { 0 } else { data.len() as u32 + cut * 700 },
        data,
    });
    proptest::collection::vec(packet, 0..20)
}

fn write(path: &Path, packets: &[Seen]) {
    let mut pool = pool(32);
    let mut port = PcapPort::open("out", None, Some(path), 1).unwrap().remove(0);
    assert_eq!(port.rx(0, &mut pool, &mut Burst::new()).unwrap(), RxStatus::Ended);
    let mut burst = Burst::new();
    for seen in packets {
        let mut packet = pool.packet(&seen.data).unwrap();
        packet.set_timestamp_ns(seen.timestamp_ns);
        packet.set_wire_len(seen.wire_len);
        burst.push(packet).unwrap();
        port.tx(1, &mut pool, &mut burst).unwrap();
    }
    port.finish(2, &mut pool).unwrap();
    let counters = port.counters();
    assert_eq!(counters.tx.packets, packets.len() as u64);
    assert_eq!(counters.tx.bytes, packets.iter().map(|p| p.data.len() as u64).sum::<u64>());
    assert_all_home(&pool);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(packets in packets(), format in 0..FORMATS.len()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("x.{}", FORMATS[format]));
        write(&path, &packets);
        let (seen, error) = read(&path);
        prop_assert!(error.is_none(), "{}", error.unwrap());
        prop_assert_eq!(&seen, &packets);
        // The other reader of this world agrees.
        let mut bytes = Vec::new();
        tidemill_archive::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
        prop_assert_eq!(theirs(&bytes), Some(packets));
    }

    #[test]
    fn any_cut_and_any_flip_is_an_error_with_its_place(
        packets in packets(),
        format in 0..2usize,
        at in any::<prop::sample::Index>(),
        bit in 0..9u8,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("x.{}", FORMATS[format]));
        write(&path, &packets);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        if bit == 8 { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
        std::fs::write(&path, &bytes).unwrap();
        let (seen, error) = read(&path);
        if let Some(error) = error {
            let text = error.to_string();
            prop_assert!(text.contains("x.pcap") && !text.contains('\n'), "{text}");
            // A link type is refused where it is needed.
            prop_assert!(text.contains("byte ") && text.contains(&format!("after packet {}", seen.len())), "{text}");
        } else if bit == 8 {
            prop_assert!(packets.starts_with(&seen));
        }
    }
}

/// Builds files in either byte order.
struct Maker {
    big: bool,
    bytes: Vec<u8>,
}

impl Maker {
    fn u16(mut self, v: u16) -> Self {
        self.bytes.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }

    fn u32(mut self, v: u32) -> Self {
        self.bytes.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }

    fn u64(mut self, v: u64) -> Self {
        self.bytes.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }

    fn raw(mut self, data: &[u8]) -> Self {
        self.bytes.extend(data);
        self
    }

    fn block(self, kind: u32, body: impl FnOnce(Maker) -> Maker) -> Self {
        let mut body = body(Maker { big: self.big, bytes: Vec::new() }).bytes;
        body.resize(body.len().next_multiple_of(4), 0);
        let len = body.len() as u32 + 12;
        self.u32(kind).u32(len).raw(&body).u32(len)
    }

    fn section(self) -> Self {
        self.block(0x0A0D_0D0A, |b| b.u32(0x1A2B_3C4D).u16(1).u16(0).u64(u64::MAX))
    }

    fn read(&self) -> (Vec<Seen>, Option<PortError>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made.cap");
        std::fs::write(&path, &self.bytes).unwrap();
        read(&path)
    }
}

fn seen(timestamp_ns: u64, wire_len: u32, data: &[u8]) -> Seen {
    Seen { timestamp_ns, wire_len, data: data.to_vec() }
}

#[test]
fn pcap_in_both_byte_orders_and_resolutions() {
    for big in [false, true] {
        for (magic, scale) in [(0xA1B2_C3D4, 1000), (0xA1B2_3C4D, 1)] {
            let make = Maker { big, bytes: Vec::new() };
            let make = make.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65535).u32(1);
            let make = make.u32(7).u32(123_456).u32(3).u32(3).raw(b"abc");
            let make = make.u32(8).u32(0).u32(2).u32(1500).raw(b"de");
            let (packets, error) = make.read();
            assert!(error.is_none());
            let expected =
                [seen(7_000_000_000 + 123_456 * scale, 0, b"abc"), seen(8_000_000_000, 1500, b"de")];
            assert_eq!(packets, expected, "{big} {magic:x}");
        }
        // The modified header: 8 more bytes per packet.
        let make = Maker { big, bytes: Vec::new() };
        let make = make.u32(0xA1B2_CD34).u16(2).u16(4).u32(0).u32(0).u32(65535).u32(1);
        let make = make.u32(7).u32(1).u32(3).u32(3).u32(0).u32(0).raw(b"abc");
        assert_eq!(make.read().0, [seen(7_000_001_000, 0, b"abc")]);
    }
}

#[test]
fn a_section_has_so_many_interfaces() {
    let mut make = Maker { big: false, bytes: Vec::new() }.section();
    for _ in 0..1 << 16 {
        make = make.block(1, |b| b.u16(1).u16(0).u32(0));
    }
    let make = make.block(6, |b| b.u32(65_535).u32(0).u32(1).u32(1).u32(1).raw(b"k"));
    let (packets, error) = make.read();
    assert!(error.is_none() && packets == [seen(1000, 0, b"k")]);
    let error = make.block(1, |b| b.u16(1).u16(0).u32(0)).read().1.unwrap().to_string();
    assert!(error.ends_with("more interfaces than 65536"), "{error}");
}

#[test]
fn pcapng_with_sections_interfaces_resolutions_and_all_packet_blocks() {
    for big in [false, true] {
        let make = Maker { big, bytes: Vec::new() }.section();
        // Interface 0: microseconds. 1: nanoseconds, an hour ahead. 2: 2^-20 s, raw IP.
        let make = make.block(1, |b| b.u16(1).u16(0).u32(4));
        let make = make.block(1, |b| {
            b.u16(1).u16(0).u32(0).u16(9).u16(1).raw(&[9, 0, 0, 0]).u16(14).u16(8).u64(3600).u16(0).u16(0)
        });
        let make = make
            .block(1, |b| b.u16(101).u16(0).u32(0).u16(2).u16(3).raw(b"eth\0").u16(9).u16(1).raw(&[0x94]));
        // Name resolution: skipped.
        let make = make.block(4, |b| b.raw(&[0; 20]));
        let make = make.block(6, |b| b.u32(0).u32(1).u32(2).u32(3).u32(3).raw(b"abc"));
        let make =
            make.block(6, |b| b.u32(1).u32(0).u32(5).u32(1).u32(9).raw(b"d\0\0\0").u16(2).u16(4).u32(1));
        let make = make.block(6, |b| b.u32(2).u32(0).u32(3 << 20).u32(2).u32(2).raw(&[0x60, 1]));
        let make = make.block(2, |b| b.u16(1).u16(7).u32(0).u32(6).u32(2).u32(2).raw(b"ef"));
        // Simple: no time, cut to interface 0's snap length of 4.
        let make = make.block(3, |b| b.u32(6).raw(b"ghij"));
        // Another section, of the other byte order, with its own interfaces.
        let mut make = make;
        make.big = !big;
        let make = make.section().block(1, |b| b.u16(1).u16(0).u32(0));
        let make = make.block(6, |b| b.u32(0).u32(0).u32(1).u32(1).u32(1).raw(b"k"));
        let (packets, error) = make.read();
        assert!(error.is_none(), "{}", error.unwrap());
        let mut raw = tidemill_port::capture::SYNTHETIC_DST.to_vec();
        raw.extend(tidemill_port::capture::SYNTHETIC_SRC);
        raw.extend([0x86, 0xDD, 0x60, 1]);
        let expected = [
            seen(((1 << 32) + 2) * 1000, 0, b"abc"),
            seen(3_600_000_000_005, 9, b"d"),
            seen(3_000_000_000, 0, &raw),
            seen(3_600_000_000_006, 0, b"ef"),
            seen(3_600_000_000_006, 6, b"ghij"),
            seen(1000, 0, b"k"),
        ];
        assert_eq!(packets, expected);
    }
}

#[test]
fn odd_clocks_do_not_overflow() {
    for resolution in [0u8, 9, 10, 38, 47, 48, 127, 0x80, 0xBF, 0xFF] {
        for offset in [0, 1, u64::MAX, i64::MAX as u64, i64::MIN as u64] {
            let make = Maker { big: false, bytes: Vec::new() }.section();
            let make = make.block(1, |b| {
                b.u16(1).u16(0).u32(0).u16(9).u16(1).raw(&[resolution, 0, 0, 0]).u16(14).u16(8).u64(offset)
            });
            let make = make.block(6, |b| b.u32(0).u32(u32::MAX).u32(u32::MAX).u32(0).u32(0));
            let (packets, error) = make.read();
            assert!(error.is_none() && packets.len() == 1);
        }
    }
}

#[test]
fn faults_have_their_place() {
    let header = || {
        Maker { big: false, bytes: Vec::new() }
            .u32(0xA1B2_C3D4)
            .u16(2)
            .u16(4)
            .u32(0)
            .u32(0)
            .u32(65535)
            .u32(1)
            .u32(7)
            .u32(1)
            .u32(3)
            .u32(3)
            .raw(b"abc")
    };
    let section = || Maker { big: false, bytes: Vec::new() }.section();
    let ethernet = || section().block(1, |b| b.u16(1).u16(0).u32(0));
    let cases: Vec<(Maker, usize, &str)> = vec![
        (header().u32(1).u32(1).u32(300_000).u32(9), 1, "byte 43, after packet 1: a packet of 300000 bytes"),
        (
            header().u32(1).u32(1).u32(30).u32(30).raw(b"xy"),
            1,
            "byte 43, after packet 1: the file ends inside a packet (2 of 30 bytes)",
        ),
        (header().u32(1), 1, "byte 43, after packet 1: the file ends inside a packet header (4 of 16 bytes)"),
        (ethernet().u32(6).u32(33), 0, "byte 48, after packet 0: a block of 33 bytes"),
        (ethernet().u32(6).u32(u32::MAX - 3), 0, "the limit is 16777216"),
        (
            ethernet().block(6, |b| b.u32(1).u64(0).u32(0).u32(0)),
            0,
            "a packet of interface 1, and 1 are described",
        ),
        (
            ethernet().block(6, |b| b.u32(0).u64(0).u32(9).u32(9)),
            0,
            "a packet of 9 bytes in a block with room for 0",
        ),
        (ethernet().block(6, |b| b.u32(0)), 0, "a packet block of 16 bytes (at least 32)"),
        (ethernet().u32(5).u32(16).u32(0).u32(12), 0, "says 12 bytes at its end"),
        (ethernet().u32(5).u32(160).u32(0), 0, "the file ends inside a block (144 bytes are missing)"),
        (
            section().block(1, |b| b.u16(105).u16(0).u32(0)).block(6, |b| b.u32(0).u64(0).u32(0).u32(0)),
            0,
            "link type 105 (IEEE 802.11)",
        ),
        (section().block(1, |b| b.u16(1).u16(0).u32(0).u16(9).u16(40)), 0, "option 9 of 40 bytes runs over"),
        (
            Maker { big: false, bytes: b"GET / HTTP/1.1".to_vec() },
            0,
            "byte 0, after packet 0: not a pcap or pcapng file",
        ),
        (
            Maker { big: false, bytes: Vec::new() },
            0,
            "byte 0, after packet 0: too short for a capture file (0 bytes; a pcap file begins with 24)",
        ),
        (
            Maker { big: false, bytes: vec![0xd4, 0xc3, 0xb2] },
            0,
            "too short for a capture file (3 bytes; a pcap file begins with 24)",
        ),
        (
            Maker { big: false, bytes: [&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4][..], &[0; 16]].concat() },
            0,
            "byte 0, after packet 0: the file ends inside the file header (23 of 24 bytes)",
        ),
    ];
    for (make, good, text) in cases {
        let (packets, error) = make.read();
        let message = error.map_or("no error".to_owned(), |e| e.to_string());
        assert_eq!(packets.len(), good, "{message}");
        assert!(message.contains(text) && message.contains("made.cap"), "{message}\nshould say: {text}");
    }
    let error = Reader::open(Path::new("no/such.pcap")).unwrap_err().to_string();
    assert!(error.contains("no/such.pcap"), "{error}");
}

#[test]
fn a_cut_archive_gives_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["pcap.gz", "pcap.xz", "pcap.zst"] {
        let path = folder.path().join(format!("x.{format}"));
        let packets: Vec<_> = (0..2000u64)
            .map(|i| seen(i + 1, 0, &i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes().repeat(20)))
            .collect();
        write(&path, &packets);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() * 3 / 4]).unwrap();
        let (got, error) = read(&path);
        let text = error.unwrap().to_string();
        assert!(packets.starts_with(&got), "{format}");
        assert!(text.contains(format) && text.contains("after packet"), "{text}");
    }
}

fn made(folder: &Path, n: u64, gap_ns: u64) -> std::path::PathBuf {
    let path = folder.join("made.pcap");
    let writer = Writer::create(&path).unwrap();
    for i in 0..n {
        writer.write(1_000 + i * gap_ns, Sense::Unknown, &[i as u8; 60], 0).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn open(playback: &Playback) -> PcapPort {
    PcapPort::open("p", Some(playback), None, 1).unwrap().remove(0)
}

#[test]
fn loops_limits_and_preloading() {
    let folder = tempfile::tempdir().unwrap();
    let input = made(folder.path(), 300, 10);
    for preload in [false, true] {
        let mut pool = pool(300);
        let playback = Playback { repeat: 3, preload, ..Playback::once(&input) };
        let (packets, error) = receive(&mut open(&playback), 0, &mut pool);
        assert!(error.is_none());
        let times: Vec<_> = packets.iter().map(|p| p.timestamp_ns).collect();
        // Pass 2 begins one mean gap (2990 / 300, rounded down) after the end of pass 1.
        assert_eq!((times.len(), times[299], times[300], times[600]), (900, 3990, 3999, 6998));
        assert!(times.is_sorted() && packets[0].data == packets[300].data);
        let playback = Playback { repeat: 0, limit: Some(1000), preload, ..Playback::once(&input) };
        assert_eq!(receive(&mut open(&playback), 0, &mut pool).0.len(), 1000);
        // An empty capture ends, however often it is played.
        let empty = folder.path().join("empty.pcap");
        Writer::create(&empty).unwrap().finish().unwrap();
        let playback = Playback { repeat: 0, preload, ..Playback::once(&empty) };
        assert_eq!(receive(&mut open(&playback), 0, &mut pool).0.len(), 0);
        assert_all_home(&pool);
    }
}

#[test]
fn packets_come_when_they_are_due() {
    let folder = tempfile::tempdir().unwrap();
    let input = made(folder.path(), 5, 1000);
    let mut pool = pool(16);
    let mut port = open(&Playback { pace: Pace::Time { speed: 2.0 }, ..Playback::once(&input) });
    let mut burst = Burst::new();
    let start = 1_000_000;
    let mut poll = |at: u64| {
        let status = port.rx(start + at, &mut pool, &mut burst).unwrap();
        let n = burst.len();
        pool.free_all(&mut burst);
        (n, status)
    };
    let due = |at: u64| RxStatus::Idle { next_due_ns: Some(start + at) };
    assert_eq!(poll(0), (1, RxStatus::Received));
    assert_eq!(poll(0), (0, due(500)));
    assert_eq!(poll(499), (0, due(500)));
    assert_eq!(poll(500), (1, RxStatus::Received));
    assert_eq!(poll(1700), (2, RxStatus::Received));
    assert_eq!(poll(1999), (0, due(2000)));
    port.finish(0, &mut pool).unwrap();
    assert_eq!((port.counters().rx.packets, pool.stats().free), (4, 16));
    assert!(
        PcapPort::open(
            "p",
            Some(&Playback { pace: Pace::Time { speed: 0.0 }, ..Playback::once(&input) }),
            None,
            1
        )
        .is_err()
    );
}

#[test]
fn a_packet_too_long_for_a_frame_is_received_and_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.pcap");
    let writer = Writer::create(&path).unwrap();
    for len in [60, 5000, 61] {
        writer.write(1, Sense::Unknown, &vec![0; len], 0).unwrap();
    }
    writer.finish().unwrap();
    let mut pool = tidemill_burst::Memory::new(4, 2048).unwrap().pool(4).unwrap();
    let mut port = open(&Playback::once(&path));
    let (packets, error) = receive(&mut port, 0, &mut pool);
    let counters = port.counters();
    assert!(error.is_none());
    assert_eq!((packets.len(), counters.rx.packets, counters.delivered()), (2, 3, 2));
    assert_eq!(counters.rx.dropped.get(DropReason::FrameTooSmall), 1);
}

#[test]
fn without_frames_packets_stay_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut port = open(&Playback::once(made(folder.path(), 10, 1)));
    let (mut pool, mut burst) = (pool(4), Burst::new());
    assert_eq!(port.rx(0, &mut pool, &mut burst).unwrap(), RxStatus::Received);
    assert_eq!(burst.len(), 4);
    assert_eq!(port.rx(0, &mut pool, &mut burst).unwrap(), RxStatus::Idle { next_due_ns: None });
    pool.free_all(&mut burst);
    assert_eq!(receive(&mut port, 0, &mut pool).0.len(), 6);
}

#[test]
fn queues_share_flows_and_a_file() {
    use tidemill_port::{Fields, Payload, Template};
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcapng"));
    let (writer, template) = (Writer::create(&input).unwrap(), Template::new(false, 64, Payload::Udp));
    let mut frame = vec![0; template.len()];
    for i in 0..400u32 {
        let host = |n: u32| std::net::Ipv4Addr::from_bits(0x0A00_0000 + n % 20).into();
        let (src, dst) = if i % 2 == 0 { (host(i), host(0)) } else { (host(0), host(i - 1)) };
        template.emit(&mut frame, &Fields { src, dst, src_port: 1, dst_port: 2, ident: i as u16 });
        writer.write(u64::from(i) + 1, Sense::Unknown, &frame, 0).unwrap();
    }
    writer.finish().unwrap();
    for preload in [false, true] {
        let playback = Playback { preload, ..Playback::once(&input) };
        let mut ports = PcapPort::open("p", Some(&playback), Some(&output), 3).unwrap();
        let mut pool = pool(64);
        let mut shares = Vec::new();
        for port in &mut ports {
            let mut seen = Vec::new();
            let mut burst = Burst::new();
            while port.rx(0, &mut pool, &mut burst).unwrap() == RxStatus::Received {
                seen.extend(burst.iter().map(Seen::of));
                port.tx(0, &mut pool, &mut burst).unwrap();
            }
            shares.push(seen);
        }
        ports.iter_mut().for_each(|port| port.finish(0, &mut pool).unwrap());
        assert!(shares.iter().all(|s| !s.is_empty() && s.is_sorted_by_key(|p| p.timestamp_ns)));
        // Both directions of a conversation are in the same queue.
        let hosts = |s: &Vec<Seen>| -> std::collections::BTreeSet<u8> {
            s.iter().map(|p| p.data[29] + p.data[33]).collect()
        };
        assert!(
            hosts(&shares[0]).is_disjoint(&hosts(&shares[1]))
                && hosts(&shares[1]).is_disjoint(&hosts(&shares[2]))
        );
        let (mut all, error) = read(&output);
        assert!(error.is_none());
        all.sort_by_key(|p| p.timestamp_ns);
        assert_eq!(all, read(&input).0);
        // A limit is of all of them together, in one pass or in several; and each of them ends.
        for limit in [0, 150, 1000] {
            let playback = Playback { repeat: 0, limit: Some(limit), preload, ..Playback::once(&input) };
            let mut ports = PcapPort::open("p", Some(&playback), None, 3).unwrap();
            let received = ports.iter_mut().map(|port| receive(port, 0, &mut pool).0.len() as u64);
            assert_eq!(received.sum::<u64>(), limit);
        }
    }
}

#[test]
fn a_killed_run_leaves_whole_packets() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["pcap", "pcapng", "pcap.gz", "pcap.zst"] {
        let path = folder.path().join(format!("killed.{format}"));
        let writer = Writer::create(&path).unwrap();
        for i in 0..10u64 {
            writer.tick(1_000_000_000 + i * 300_000_000).unwrap();
            writer.write(i, Sense::Outbound, &[i as u8; 99], 0).unwrap();
        }
        // Nobody runs destructors in a killed process.
        std::mem::forget(writer);
        let (packets, error) = read(&path);
        assert_eq!(packets.len(), 8, "{format}: flushed at 1.2 and 2.4 s");
        if let Some(error) = error {
            // A compressed file is cut short, and says so; what was flushed is there.
            assert!(format.ends_with("gz") || format.ends_with("zst"), "{error}");
        }
    }
}

#[test]
fn a_full_disk_is_reported_once() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let mut pool = pool(64);
    let error = PcapPort::open("p", None, Some(Path::new("/dev/full")), 1).err().unwrap().to_string();
    assert!(error.contains("/dev/full"), "{error}");
    // A disk that fills up later: a pipe whose reader goes away does the same.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.pcap");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let reader = std::thread::spawn({
        let path = path.clone();
        move || std::fs::File::open(path).unwrap().read_exact(&mut [0; 24]).unwrap()
    });
    let mut ports = PcapPort::open("p", None, Some(&path), 2).unwrap();
    reader.join().unwrap();
    let (mut burst, mut errors) = (Burst::new(), Vec::new());
    for round in 0..4u64 {
        for port in &mut ports {
            (0..3).for_each(|i| burst.push(pool.packet(&[i; 60]).unwrap()).unwrap());
            errors.extend(port.tx(1 + round * 2_000_000_000, &mut pool, &mut burst).err());
            assert!(burst.is_empty());
        }
    }
    ports.iter_mut().for_each(|port| errors.extend(port.finish(0, &mut pool).err()));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].to_string().contains("pipe.pcap"), "{}", errors[0]);
    let taken: u64 = ports.iter().map(|port| port.counters().taken()).sum();
    let refused: u64 = ports.iter().map(|port| port.counters().tx.dropped.get(DropReason::TxFailed)).sum();
    assert!(taken == 24 && refused >= 12, "{taken} {refused}");
    assert_all_home(&pool);
}

#[test]
fn a_port_without_output_refuses() {
    let (mut pool, mut burst) = (pool(4), Burst::new());
    let mut port = PcapPort::open("q", None, None, 1).unwrap().remove(0);
    burst.push(pool.packet(&[0; 60]).unwrap()).unwrap();
    port.tx(0, &mut pool, &mut burst).unwrap();
    assert_eq!(port.counters().tx.dropped.get(DropReason::TxFailed), 1);
    port.finish(0, &mut pool).unwrap();
    assert_all_home(&pool);
}

/// As another library reads it; and our own reader passes over it.
#[test]
fn statistics_of_an_interface_are_a_block_of_pcapng() {
    use pcap_file::pcapng::Block;
    use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption::{
        self, IsbIfDrop, IsbIfRecv,
    };
    use tidemill_port::capture::{pcapng_header, pcapng_packet, pcapng_statistics};
    let mut file = Vec::new();
    pcapng_header(&mut file);
    pcapng_packet(&mut file, 1_000_000_007, Sense::Inbound, &[1; 60], 0);
    let (received, missed, now_ns) = (5_000_000_001, u64::from(u32::MAX) + 7, 1_700_000_000_123_456_789);
    pcapng_statistics(&mut file, now_ns, received, missed);
    pcapng_packet(&mut file, 1_000_000_008, Sense::Outbound, &[2; 61], 0);
    let mut parser = pcap_file::pcapng::PcapNgReader::new(&file[..]).unwrap();
    let mut told = Vec::new();
    while let Some(block) = parser.next_block() {
        if let (Block::InterfaceStatistics(block), _) = block.unwrap() {
            let of = |option: &InterfaceStatisticsOption| match option {
                IsbIfRecv(count) => ("received", *count),
                IsbIfDrop(count) => ("missed", *count),
                other => panic!("{other:?}"),
            };
            let options: Vec<_> = block.options.iter().map(of).collect();
            told.push((block.interface_id, block.timestamp.as_nanos() as u64, options));
        }
    }
    assert_eq!(told, [(0, now_ns, vec![("received", received), ("missed", missed)])]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcapng");
    std::fs::write(&path, &file).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let lengths: Vec<usize> =
        std::iter::from_fn(|| reader.next().unwrap().map(|record| record.data.len())).collect();
    assert_eq!(lengths, [60, 61]);
}
