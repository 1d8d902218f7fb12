//! The authenticated format: decisions, revocations and probes in the payload of a UDP packet, all numbers most significant byte first.
//!
//! ```text
//!   0  version = 2 | direction | key: 2 | epoch, s: 4 | sequence: 4 | policy version: 4 | time, ns since 1970: 8 |
//!  24  messages ...
//!  -16 tag: 16
//!
//! type 0 to 5    a decision, as in the interoperable format; in types 2 and 3 the byte behind the type is 1 if the grant is direct
//! type 8, 9      revoke     type | bits | 0 | 0 | below this version: 4 | prefix: 4 or 16 |         12 or 24 bytes in all
//! type 16        probe      type | 0 | 0 | 0 | nonce: 8 | epoch, s: 4 | sequence: 4 | version: 4 |   24
//! type 17        answer     type | 0 | 0 | 0 | nonce: 8 |                                           12
//!                (0 to 9: even IPv4, odd IPv6)
//! ```
//!
//! **The same ports** as the interoperable format, and version 2 in the first byte: one rule in firewalls, one place that takes them, and who
//! speaks version 1 only refuses it by that byte. Probes go the other way, between the same ports.
//!
//! Direction is 1 to a Gatekeeper, 2 to a Grantor. Epoch and sequence are a [`Stamp`]; the time is the sender's clock; the policy version is the one
//! that the sender decides by, for all decisions of the datagram. A Gatekeeper gives 0. The tag is [`crate::keys`]'.
//!
//! **A probe also says what is known of the Grantor** ([`Known`]): its highest stamp that was taken, and the highest policy version of what was taken; zeros: nothing. So a Grantor that
//! has started again with an earlier clock hears that it has to go on behind both ([`Stamps::raise`](crate::replay::Stamps::raise)), and its answer already does. A Gatekeeper
//! needs no such thing: nothing that it sends is held against a stamp.
//!
//! **The order of checks**, cheapest first: length, version and direction ([`Header::read`]); the key's number; the tag; the time; the stamp; then what is
//! in it. So `stale` and `replayed` are said only of what a holder of the key once sent, and nothing forged is parsed or changes anything. What a
//! holder of the key says and is no message is a fault as in the interoperable format: what came before it counts.

use crate::Decision;
use crate::bytes::{Bytes, DECISIONS, Room, V6};
use crate::keys::{Direction, Ends, Keyring};
use crate::replay::Stamp;
use std::iter::FusedIterator;
use std::net::IpAddr;
use tidemill_wire::Error;

/// The first byte.
pub const VERSION: u8 = 2;
/// Bytes before the first message.
pub const HEADER_LEN: usize = 24;
/// Bytes behind the last one.
pub const TAG_LEN: usize = 16;
/// Bytes of a probe, without header and tag.
pub const PROBE_LEN: usize = 24;

const PROTOCOL: &str = "decision";
const REVOKE: u8 = 8;
const PROBE: u8 = 16;
const ANSWER: u8 = 17;

/// Why a datagram does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Shorter than header and tag, or going the wrong way.
    #[error("malformed")]
    Malformed,
    /// Another version.
    #[error("version {0}, not 2")]
    Version(u8),
    /// There is no key of this number.
    #[error("unknown key")]
    UnknownKey,
    /// The tag is wrong.
    #[error("forged")]
    Forged,
    /// Sent at another time, or by a clock that differs.
    #[error("sent {behind_ns} ns before our clock's time")]
    Stale {
        /// How far the sender's clock is behind ours; negative: ahead.
        behind_ns: i64,
    },
    /// Taken before, or of a sender that has started again since.
    #[error("replayed")]
    Replayed,
}

/// What stands before the messages; nothing of it is proven until it is [opened](Keyring::open).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Which way it goes.
    pub direction: Direction,
    /// The number of the key.
    pub key: u16,
    /// Its number among the sender's.
    pub stamp: Stamp,
    /// What the sender decides by.
    pub policy_version: u32,
    /// When it was sent.
    pub time_ns: u64,
}

impl Header {
    /// The header of a datagram that goes in this direction.
    ///
    /// # Errors
    /// [`Refusal::Version`], [`Refusal::Malformed`].
    pub fn read(datagram: &[u8], direction: Direction) -> Result<Self, Refusal> {
        match datagram.first() {
            Some(&VERSION) => {}
            Some(&other) => return Err(Refusal::Version(other)),
            None => return Err(Refusal::Malformed),
        }
        let whole = datagram.len() >= HEADER_LEN + TAG_LEN && datagram.get(1) == Some(&direction.code());
        if !whole {
            return Err(Refusal::Malformed);
        }
        let mut bytes = Bytes { protocol: PROTOCOL, payload: datagram, at: 2 };
        let mut header = || {
            Ok::<_, Error>(Header {
                direction,
                key: bytes.take("key").map(u16::from_be_bytes)?,
                stamp: Stamp { epoch_s: bytes.u32("epoch")?, sequence: bytes.u32("sequence")? },
                policy_version: bytes.u32("policy version")?,
                time_ns: bytes.u64("time")?,
            })
        };
        header().map_err(|_| Refusal::Malformed)
    }
}

/// A prefix of either family; its bits behind the length are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    address: IpAddr,
    bits: u8,
}

impl Range {
    /// `None` if it is longer than its address, or has bits behind its length.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let (left, most) = match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let behind = left.checked_shl(bits.into()).unwrap_or(0);
        (bits <= most && behind == 0).then_some(Range { address, bits })
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Its length.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Its first and its last address, of IPv4.
    pub fn v4(&self) -> Option<(u32, u32)> {
        let IpAddr::V4(address) = self.address else { return None };
        let first = u32::from(address);
        Some((first, first | u32::MAX.checked_shr(self.bits.into()).unwrap_or(0)))
    }

    /// Its first and its last address, of IPv6.
    pub fn v6(&self) -> Option<(u128, u128)> {
        let IpAddr::V6(address) = self.address else { return None };
        let first = u128::from(address);
        Some((first, first | u128::MAX.checked_shr(self.bits.into()).unwrap_or(0)))
    }
}

/// What a Gatekeeper knows of a Grantor; the default: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// The highest stamp that was taken.
    pub stamp: Stamp,
    /// The highest version of its policy, of all datagrams that were taken.
    pub version: u32,
}

/// What a datagram says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// About a flow.
    Decision(Decision),
    /// What the sender has decided under a version below this, for flows to these destinations, counts no more.
    Revoke {
        /// The destinations.
        to: Range,
        /// The least version that still counts.
        below: u32,
    },
    /// Are you there?
    Probe {
        /// Comes back in the answer.
        nonce: u64,
        /// What the sender knows of the receiver.
        known: Known,
    },
    /// Yes.
    Answer {
        /// The probe's.
        nonce: u64,
    },
}

/// The messages of a datagram whose tag and time are right. Iterate it: at a fault the fault, and no more.
#[derive(Debug, Clone)]
pub struct Opened<'a> {
    messages: &'a [u8],
    /// The next byte; `None` after a fault.
    at: Option<usize>,
}

impl<'a> Opened<'a> {
    /// Of bytes that were found to be right; their offsets in faults count from the first message.
    pub(crate) fn new(messages: &'a [u8]) -> Self {
        Opened { messages, at: Some(0) }
    }
}

impl Iterator for Opened<'_> {
    type Item = Result<Message, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = Bytes { protocol: PROTOCOL, payload: self.messages, at: self.at.take()? };
        if bytes.at == bytes.payload.len() {
            return None;
        }
        let message = message(&mut bytes);
        if message.is_ok() {
            self.at = Some(bytes.at);
        }
        Some(message)
    }
}

impl FusedIterator for Opened<'_> {}

/// Reads messages that nobody has checked; for tests and fuzzing.
pub fn messages(bytes: &[u8]) -> Opened<'_> {
    Opened::new(bytes)
}

fn message(bytes: &mut Bytes<'_>) -> Result<Message, Error> {
    let start = bytes.at;
    let [kind] = bytes.take("type")?;
    match kind {
        0..=DECISIONS => bytes.decision(kind, true).map(Message::Decision),
        PROBE => {
            bytes.zeros::<3>()?;
            let nonce = bytes.u64("nonce")?;
            let stamp = Stamp { epoch_s: bytes.u32("epoch")?, sequence: bytes.u32("sequence")? };
            Ok(Message::Probe { nonce, known: Known { stamp, version: bytes.u32("policy version")? } })
        }
        ANSWER => {
            bytes.zeros::<3>()?;
            Ok(Message::Answer { nonce: bytes.u64("nonce")? })
        }
        _ if kind & !V6 == REVOKE => {
            let [bits] = bytes.take("prefix length")?;
            bytes.zeros::<2>()?;
            let below = bytes.u32("version")?;
            let address = if kind & V6 == 0 {
                IpAddr::V4(bytes.u32("prefix")?.into())
            } else {
                IpAddr::V6(bytes.u128("prefix")?.into())
            };
            let wanted = "the length of this prefix";
            let to =
                Range::new(address, bits).ok_or(bytes.invalid("prefix length", start + 1, bits, wanted))?;
            Ok(Message::Revoke { to, below })
        }
        _ => Err(bytes.invalid("type", start, kind, "0 to 5, 8, 9, 16 or 17")),
    }
}

/// Writes messages into a datagram until it is full, and seals it. To fill a path's MTU give a buffer of that, less 28 bytes for IPv4 and UDP or 48 for
/// IPv6 and UDP: 51 grants of IPv4 go into 1,472 bytes, 27 of IPv6 into 1,452.
#[derive(Debug)]
pub struct Writer<'a>(Room<'a>);

impl<'a> Writer<'a> {
    /// Begins a datagram, which is as long as `buffer` at most.
    ///
    /// # Errors
    /// [`Error::NoRoom`] for header and tag.
    pub fn new(buffer: &'a mut [u8]) -> Result<Self, Error> {
        let mut room = Room { protocol: PROTOCOL, buffer, len: 0, spare: TAG_LEN };
        room.put([&[0; HEADER_LEN]])?;
        Ok(Writer(room))
    }

    /// Adds a message.
    ///
    /// # Errors
    /// [`Error::NoRoom`]: it does not fit any more; nothing has changed.
    pub fn push(&mut self, message: &Message) -> Result<(), Error> {
        let room = &mut self.0;
        match *message {
            Message::Decision(ref decision) => room.decision(decision, true),
            Message::Probe { nonce, known: Known { stamp, version } } => {
                let known = [stamp.epoch_s, stamp.sequence, version].map(u32::to_be_bytes);
                room.put([&[PROBE, 0, 0, 0], &nonce.to_be_bytes(), known.as_flattened()])
            }
            Message::Answer { nonce } => room.put([&[ANSWER, 0, 0, 0], &nonce.to_be_bytes()]),
            Message::Revoke { to: Range { address, bits }, below } => {
                let below = below.to_be_bytes();
                match address {
                    IpAddr::V4(address) => room.put([&[REVOKE, bits, 0, 0], &below, &address.octets()]),
                    IpAddr::V6(address) => room.put([&[REVOKE | V6, bits, 0, 0], &below, &address.octets()]),
                }
            }
        }
    }

    /// Whether there is no message yet.
    pub fn is_empty(&self) -> bool {
        self.0.len == HEADER_LEN
    }

    /// Bytes that the datagram will have.
    pub fn len(&self) -> usize {
        self.0.len + TAG_LEN
    }

    /// The datagram, sealed with the ring's first key; the header's key is that one's number, whatever `header` says.
    pub fn seal(self, keys: &Keyring, header: &Header, ends: &Ends) -> &'a [u8] {
        let Room { buffer, len, .. } = self.0;
        let (signed, rest) = buffer.split_at_mut(len);
        let parts: [&[u8]; 6] = [
            &[VERSION, header.direction.code()],
            &keys.signer().to_be_bytes(),
            &header.stamp.epoch_s.to_be_bytes(),
            &header.stamp.sequence.to_be_bytes(),
            &header.policy_version.to_be_bytes(),
            &header.time_ns.to_be_bytes(),
        ];
        let mut at = 0;
        for part in parts {
            signed[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        rest[..TAG_LEN].copy_from_slice(&keys.tag(header.direction, ends, signed));
        &buffer[..len + TAG_LEN]
    }
}

#[cfg(test)]
mod tests;
