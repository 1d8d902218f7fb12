//! TCP by hand, for what a kernel would not send: segments out of order, again, overlapping, or none of the connection's; and UDP, in frames that are longer than their packets.
//!
//! The client's address is one that its kernel does not have: nobody else answers.

use super::lab::{Lab, PORT};
use super::wire;
use crate::raw::Raw;
use std::time::{Duration, Instant};

const SERVER: [u8; 4] = [10, 1, 0, 2];
const CLIENT: [u8; 4] = [10, 1, 0, 77];
const SERVER6: [u8; 16] = [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const CLIENT6: [u8; 16] = [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77];

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;

/// A connection to the memcached that has the cache.
pub(crate) struct Segments {
    raw: Raw,
    /// Ethernet addresses: to, from.
    macs: [[u8; 6]; 2],
    port: u16,
    /// The first sequence number; what is counted from it begins at 1, after SYN.
    first: u32,
    /// What the server has acknowledged, counted so.
    pub(crate) acked: u32,
    /// The server's next sequence number.
    theirs: u32,
    /// What it has said.
    pub(crate) said: Vec<u8>,
}

fn mac(text: &str) -> [u8; 6] {
    let mut mac = [0; 6];
    let words = text.split_whitespace().skip_while(|word| *word != "link/ether");
    let word = words.into_iter().nth(1).unwrap();
    for (byte, part) in mac.iter_mut().zip(word.split(':')) {
        *byte = u8::from_str_radix(part, 16).unwrap();
    }
    mac
}

fn sum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let words = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A socket on the cable to the memcached that has the cache, and the Ethernet addresses there: to, from.
fn by_hand(lab: &Lab) -> (Raw, [[u8; 6]; 2]) {
    let own = mac(&lab.client.run("ip -o link show dev cached"));
    let theirs = mac(&lab.cached.net.run("ip -o link show dev eth0"));
    let text: Vec<String> = own.iter().map(|byte| format!("{byte:02x}")).collect();
    for address in ["10.1.0.77", "fd01::77"] {
        let known = format!("ip neigh replace {address} lladdr {} dev eth0 nud permanent", text.join(":"));
        lab.cached.net.run(&known);
    }
    (Raw::open(&lab.client, "cached"), [theirs, own])
}

/// A client of UDP whose frames are as long as the cable takes, whatever is in them: so an answer has room in a question's place.
pub(crate) struct Padded {
    raw: Raw,
    macs: [[u8; 6]; 2],
    port: u16,
    is_v6: bool,
    next: u16,
}

impl Padded {
    pub(crate) fn new(lab: &Lab, port: u16, is_v6: bool) -> Self {
        let (raw, macs) = by_hand(lab);
        Padded { raw, macs, port, is_v6, next: 0 }
    }

    /// The first datagram that is said to a request, if one comes in time.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        self.next = self.next.wrapping_add(1);
        self.raw.send(&self.frame(&wire::datagram(self.next, request)));
        let end = Instant::now() + Duration::from_millis(500);
        loop {
            let frame = self.raw.receive(end.saturating_duration_since(Instant::now()))?;
            if let Some(said) = self.take(&frame.bytes) {
                return Some(said);
            }
        }
    }

    fn frame(&self, data: &[u8]) -> Vec<u8> {
        let length = ((8 + data.len()) as u16).to_be_bytes();
        let mut udp = [self.port.to_be_bytes(), PORT.to_be_bytes(), length, [0, 0]].concat();
        udp.extend(data);
        let (kind, ip, check) = if self.is_v6 {
            let head = [0x60, 0, 0, 0, length[0], length[1], 17, 64];
            let ip = [&head[..], &CLIENT6, &SERVER6].concat();
            ([0x86_u8, 0xdd], ip, sum(&[&CLIENT6, &SERVER6, &[0, 17], &length, &udp]))
        } else {
            let total = ((28 + data.len()) as u16).to_be_bytes();
            let head = [0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, 17, 0, 0];
            let mut ip = [&head[..], &CLIENT, &SERVER].concat();
            let check = sum(&[&ip]);
            ip[10..12].copy_from_slice(&check.to_be_bytes());
            ([8, 0], ip, sum(&[&CLIENT, &SERVER, &[0, 17], &length, &udp]))
        };
        udp[6..8].copy_from_slice(&if check == 0 { 0xffff } else { check }.to_be_bytes());
        let mut frame = [&self.macs[0][..], &self.macs[1], &kind, &ip, &udp].concat();
        frame.resize(14 + 1500, 0);
        frame
    }

    /// What is said to the last request: with right sums, in a frame that is as long as it has to be.
    fn take(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let kind: [u8; 2] = if self.is_v6 { [0x86, 0xdd] } else { [8, 0] };
        let ip = frame.get(14..).filter(|_| frame[12..14] == kind)?;
        let half = |at: usize| Some(u16::from_be_bytes([*ip.get(at)?, *ip.get(at + 1)?]));
        let (header, protocol, total, addresses) = if self.is_v6 {
            (40, *ip.get(6)?, 40 + half(4)?, ip.get(8..40)?)
        } else {
            (20, *ip.get(9)?, half(2)?, ip.get(12..20)?)
        };
        let udp = ip.get(header..usize::from(total)).filter(|_| protocol == 17)?;
        if udp.get(2..4)? != self.port.to_be_bytes() || udp.get(8..10)? != self.next.to_be_bytes() {
            return None;
        }
        assert_eq!(frame.len(), 14 + usize::from(total), "a frame's length");
        assert_eq!(udp[4..6], (udp.len() as u16).to_be_bytes(), "a datagram's");
        assert_eq!(sum(&[addresses, &[0, 17], &udp[4..6], udp]), 0, "of UDP");
        Some(udp.get(16..)?.to_vec())
    }
}

impl Segments {
    /// Connects from this port, with this first sequence number.
    pub(crate) fn connect(lab: &Lab, port: u16, first: u32) -> Self {
        let own = Segments::begin(lab, port, first);
        own.segment(1, ACK, b"");
        own
    }

    /// Begins to connect: the last ACK is not sent.
    pub(crate) fn begin(lab: &Lab, port: u16, first: u32) -> Self {
        let (raw, macs) = by_hand(lab);
        let mut own = Segments { raw, macs, port, first, acked: 0, theirs: 0, said: Vec::new() };
        let start = Instant::now();
        while own.acked == 0 {
            own.segment(0, SYN, b"");
            own.hear(Duration::from_millis(100));
            assert!(start.elapsed() < Duration::from_secs(10), "no connection");
        }
        own
    }

    /// Sends a segment whose first byte is the `at`-th of ours.
    pub(crate) fn segment(&self, at: u32, flags: u8, data: &[u8]) {
        self.raw.send(&self.frame(at, flags, &[], data));
    }

    /// One whose IP header has a wrong sum: no kernel takes it.
    pub(crate) fn with_a_wrong_header(&self, at: u32, flags: u8, data: &[u8]) {
        let mut frame = self.frame(at, flags, &[], data);
        frame[14 + 10] ^= 1;
        self.raw.send(&frame);
    }

    /// One with an IP option that is not as long as it should be: no kernel takes it.
    pub(crate) fn with_a_wrong_option(&self, at: u32, flags: u8, data: &[u8]) {
        self.raw.send(&self.frame(at, flags, &[0x83, 2, 0, 0], data));
    }

    /// One that acknowledges a byte that was never sent: no kernel takes it.
    pub(crate) fn with_a_wrong_acknowledgment(&mut self, at: u32, flags: u8, data: &[u8]) {
        self.theirs = self.theirs.wrapping_add(1);
        self.segment(at, flags, data);
        self.theirs = self.theirs.wrapping_sub(1);
    }

    /// One in two fragments of IP.
    pub(crate) fn in_fragments(&self, at: u32, flags: u8, data: &[u8], later_first: bool) {
        let frame = self.frame(at, flags, &[], data);
        let (head, payload) = frame.split_at(14 + 20);
        // Its place is counted by eight bytes.
        let (one, two) = payload.split_at(24);
        let part = |field: u16, bytes: &[u8]| {
            let mut part = head.to_vec();
            part[16..18].copy_from_slice(&(20 + bytes.len() as u16).to_be_bytes());
            part[20..22].copy_from_slice(&field.to_be_bytes());
            part[24..26].fill(0);
            let check = sum(&[&part[14..]]);
            part[24..26].copy_from_slice(&check.to_be_bytes());
            part.extend(bytes);
            part
        };
        let mut parts = [part(0x2000, one), part(3, two)];
        if later_first {
            parts.reverse();
        }
        parts.iter().for_each(|part| self.raw.send(part));
    }

    fn frame(&self, at: u32, flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
        let mut tcp = self.port.to_be_bytes().to_vec();
        tcp.extend(PORT.to_be_bytes());
        tcp.extend(self.first.wrapping_add(at).to_be_bytes());
        tcp.extend(if flags & ACK == 0 { 0 } else { self.theirs }.to_be_bytes());
        tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        let length = ((tcp.len() + data.len()) as u16).to_be_bytes();
        let check = sum(&[&CLIENT, &SERVER, &[0, 6], &length, &tcp, data]);
        tcp[16..18].copy_from_slice(&check.to_be_bytes());
        let total = (20 + options.len() + tcp.len() + data.len()) as u16;
        let mut ip = vec![0x45 + options.len() as u8 / 4, 0];
        ip.extend(total.to_be_bytes());
        ip.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
        ip.extend([&CLIENT, &SERVER, options].concat());
        let check = sum(&[&ip]);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        [&self.macs[0][..], &self.macs[1], &[8, 0], &ip, &tcp, data].concat()
    }

    /// Takes what the server sends, for so long, or until it has acknowledged something new.
    pub(crate) fn hear(&mut self, wait: Duration) {
        let (end, before) = (Instant::now() + wait, (self.acked, self.said.len()));
        while (self.acked, self.said.len()) == before {
            let Some(frame) = self.raw.receive(end.saturating_duration_since(Instant::now())) else { return };
            self.take(&frame.bytes);
        }
    }

    fn take(&mut self, frame: &[u8]) -> Option<()> {
        let ip = frame.get(14..).filter(|_| frame[12..14] == [8, 0])?;
        let header = usize::from(ip.first()? & 15) * 4;
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let tcp = ip.get(header..total).filter(|_| ip[9] == 6 && ip[16..20] == CLIENT)?;
        if tcp[2..4] != self.port.to_be_bytes() {
            return None;
        }
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let (theirs, acked, flags) = (word(4), word(8).wrapping_sub(self.first), tcp[13]);
        let data = tcp.get(usize::from(tcp[12] >> 4) * 4..)?;
        // A SYN-ACK is ours if it acknowledges our SYN.
        if flags & RST != 0 || (flags & SYN != 0 && acked != 1) {
            return None;
        }
        if flags & SYN != 0 {
            self.theirs = theirs.wrapping_add(1);
        }
        if flags & ACK != 0 && acked < 1 << 30 {
            self.acked = self.acked.max(acked);
        }
        if !data.is_empty() {
            if theirs == self.theirs {
                self.theirs = self.theirs.wrapping_add(data.len() as u32);
                self.said.extend(data);
            }
            self.segment(self.acked, ACK, b"");
        }
        Some(())
    }

    /// Sends parts of a stream that begins at `at`, in the order given; then, like any sender, again what is not acknowledged.
    pub(crate) fn deliver(&mut self, at: u32, stream: &[u8], parts: &[std::ops::Range<usize>]) {
        for part in parts {
            self.segment(at + part.start as u32, ACK | PSH, &stream[part.clone()]);
        }
        let (start, end) = (Instant::now(), at + stream.len() as u32);
        while self.acked < end {
            self.hear(Duration::from_millis(50));
            if self.acked < end && self.acked >= at {
                self.segment(self.acked, ACK | PSH, &stream[(self.acked - at) as usize..]);
            }
            assert!(start.elapsed() < Duration::from_secs(10), "{} of {end} acknowledged", self.acked);
        }
    }

    /// Waits until what the server has said ends like this.
    pub(crate) fn until(&mut self, end: &[u8]) {
        let start = Instant::now();
        while !self.said.ends_with(end) {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "said: {:?}",
                String::from_utf8_lossy(&self.said)
            );
            self.hear(Duration::from_millis(50));
        }
    }
}
