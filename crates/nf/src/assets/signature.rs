//! What a host's first TCP segment tells of its operating system: TTL, window, and the options in their order.
//!
//! Systems choose these by themselves and differ in them (RFC 9293 leaves them free). Nothing here says whose they are: that is
//! [`crate::assets::fingerprints`].

use std::fmt;
use tidemill_wire::tcp::{self, Flags, TcpOption};

/// Kinds of TCP options (IANA's registry) by the names that signatures use.
const NAMES: &[(u8, &str)] =
    &[(0, "end"), (1, "nop"), (2, "mss"), (3, "scale"), (4, "sack"), (8, "ts"), (30, "mptcp"), (34, "tfo")];
const MSS: u8 = 2;
const SCALE: u8 = 3;
const SACK: u8 = 4;
const SACK_BLOCKS: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// TCP options in their order, by kind: the 40 bytes that a header has for them hold no more than 40. What pads behind the end is left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    len: u8,
    kinds: [u8; Layout::MOST],
}

impl Layout {
    const MOST: usize = 40;
    const EMPTY: Layout = Layout { len: 0, kinds: [0; Layout::MOST] };

    fn push(&mut self, kind: u8) {
        if let Some(place) = self.kinds.get_mut(usize::from(self.len)) {
            *place = kind;
            self.len += 1;
        }
    }

    /// The kinds.
    pub fn kinds(&self) -> &[u8] {
        &self.kinds[..usize::from(self.len)]
    }

    /// Reads `mss,sack,ts,nop,scale`, or `none`.
    ///
    /// # Errors
    /// The name that is no option's.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut layout = Layout::EMPTY;
        if text == "none" {
            return Ok(layout);
        }
        for name in text.split(',') {
            let known = NAMES.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind);
            let kind = known.or_else(|| name.parse().ok());
            layout.push(kind.ok_or_else(|| format!("{name:?} is no TCP option: give a name or a number"))?);
        }
        Ok(layout)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len == 0 {
            return f.write_str("none");
        }
        for (n, kind) in self.kinds().iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            match NAMES.iter().find(|(known, _)| known == kind) {
                Some((_, name)) => f.write_str(name)?,
                None => write!(f, "{kind}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What a SYN or a SYN-ACK looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature {
    /// A SYN-ACK, which also depends on the SYN that it answers.
    pub answer: bool,
    /// Over IPv6, which has no DF.
    pub v6: bool,
    /// TTL or hop limit, as it arrived.
    pub ttl: u8,
    /// Whether it must not be fragmented (IPv4).
    pub dont_fragment: bool,
    /// The window; of a SYN never scaled.
    pub window: u16,
    /// Maximum segment size, if it is said.
    pub mss: Option<u16>,
    /// The scale of later windows, if it is said.
    pub scale: Option<u8>,
    /// The options.
    pub options: Layout,
}

impl Signature {
    /// That of a segment, from the TCP header on, that begins a connection or answers one; none of others, and none of malformed options.
    pub fn read(v6: bool, ttl: u8, dont_fragment: bool, segment: &[u8]) -> Option<Self> {
        let packet = tcp::Packet::new_checked(segment).ok()?;
        let flags = packet.flags();
        if !flags.contains(Flags::SYN) || flags.contains(Flags::RST) || flags.contains(Flags::FIN) {
            return None;
        }
        let mut signature = Signature {
            answer: flags.contains(Flags::ACK),
            v6,
            ttl,
            dont_fragment: dont_fragment && !v6,
            window: packet.window(),
            mss: None,
            scale: None,
            options: Layout::EMPTY,
        };
        let mut length = 0;
        for option in packet.options() {
            let (kind, bytes) = match option.ok()? {
                TcpOption::Nop => (1, 1),
                TcpOption::Mss(mss) => {
                    signature.mss = Some(mss);
                    (MSS, 4)
                }
                TcpOption::WindowScale(scale) => {
                    signature.scale = Some(scale);
                    (SCALE, 3)
                }
                TcpOption::SackPermitted => (SACK, 2),
                TcpOption::Sack(blocks) => (SACK_BLOCKS, 2 + blocks.len()),
                TcpOption::Timestamps { .. } => (TIMESTAMPS, 10),
                TcpOption::Other { kind, data } => (kind, 2 + data.len()),
            };
            signature.options.push(kind);
            length += bytes;
        }
        // The walk ends at the end of the list without a word.
        if length < packet.option_bytes().len() {
            signature.options.push(0);
        }
        Some(signature)
    }

    /// The TTL that it was sent with, most likely: systems begin with 32, 64, 128 or 255.
    pub fn first_ttl(&self) -> u8 {
        [32, 64, 128].into_iter().find(|first| self.ttl <= *first).unwrap_or(255)
    }

    /// Routers on its way, by that.
    pub fn hops(&self) -> u8 {
        self.first_ttl() - self.ttl
    }

    /// Bytes of data that a full segment carries: the MSS without the timestamps that every segment will have.
    pub(crate) fn carried(&self) -> Option<u16> {
        let stamped = self.options.kinds().contains(&TIMESTAMPS);
        self.mss.map(|mss| mss.saturating_sub(if stamped { 12 } else { 0 })).filter(|bytes| *bytes > 0)
    }

    /// The same but for what its way has done to it.
    pub fn is_like(&self, other: &Signature) -> bool {
        Signature { ttl: other.ttl, ..*self } == *other
    }
}

/// `syn ip4 ttl 64 df window 64240 mss 1460 scale 7 options mss,sack,ts,nop,scale`
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.answer { "syn-ack" } else { "syn" };
        let family = if self.v6 { 6 } else { 4 };
        let df = if self.dont_fragment { " df" } else { "" };
        write!(f, "{kind} ip{family} ttl {}{df} window {}", self.ttl, self.window)?;
        if let Some(mss) = self.mss {
            write!(f, " mss {mss}")?;
        }
        if let Some(scale) = self.scale {
            write!(f, " scale {scale}")?;
        }
        write!(f, " options {}", self.options)
    }
}
