//! TCP by hand, for what a kernel would not send: segments out of order, again, overlapping, or none of the connection's.
//!
//! The client's address is one that its kernel does not have: nobody else answers.

use super::lab::{Lab, PORT};
use crate::raw::Raw;
use std::time::{Duration, Instant};

const SERVER: [u8; 4] = [10, 1, 0, 2];
const CLIENT: [u8; 4] = [10, 1, 0, 77];

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

impl Segments {
    /// Connects from this port, with this first sequence number.
    pub(crate) fn connect(lab: &Lab, port: u16, first: u32) -> Self {
        let own = Segments::begin(lab, port, first);
        own.segment(1, ACK, b"");
        own
    }

    /// Begins to connect: the last ACK is not sent.
    pub(crate) fn begin(lab: &Lab, port: u16, first: u32) -> Self {
        let own = mac(&lab.client.run("ip -o link show dev cached"));
        let theirs = mac(&lab.cached.net.run("ip -o link show dev eth0"));
        let text: Vec<String> = own.iter().map(|byte| format!("{byte:02x}")).collect();
        lab.cached
            .net
            .run(&format!("ip neigh replace 10.1.0.77 lladdr {} dev eth0 nud permanent", text.join(":")));
        let raw = Raw::open(&lab.client, "cached");
        let mut own =
            Segments { raw, macs: [theirs, own], port, first, acked: 0, theirs: 0, said: Vec::new() };
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
