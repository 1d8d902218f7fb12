//! The interoperable format: decisions in the payload of a UDP packet, all numbers most significant byte first.
//!
//! ```text
//! header     version = 1 | 0 | 0 | 0 |
//! decision   type | 0 | 0 | 0 | source, destination: 4 or 16 bytes each | what was decided
//!
//! type 0, 1  declined   seconds: 4 |                                                                   16 or 40 bytes in all
//! type 2, 3  granted    KiB/s: 4 | seconds: 4 | to the first renewal, ms: 4 | from one to the next, ms: 4 |      28 or 52
//! type 4, 5  BPF        seconds: 4 | program | 0 | 0 | n | cookie: 4 n bytes |                          20 or 44, and 4 n
//!            (even: IPv4, odd: IPv6)
//! ```
//!
//! From [`SOURCE_PORT`] to [`DESTINATION_PORT`], with a checksum, which is the business of who takes the packet. Source: the wire facts of the
//! public system (v1.2); a word of a cookie is 4 bytes.
//!
//! Bytes that must be zero and are not are a fault, as is an unknown type: whoever sent them means something that we do not know. A decision
//! has no length of its own, so nothing behind a fault can be read: [`Decisions`] gives what came before it, then the fault, then nothing.

use super::{Decision, Pair, Verdict};
use std::iter::FusedIterator;
use tidemill_wire::Error;

/// The UDP port that decisions come from.
pub const SOURCE_PORT: u16 = 41120;
/// The UDP port that they go to.
pub const DESTINATION_PORT: u16 = 45232;
/// Bytes before the first decision.
pub const HEADER_LEN: usize = 4;

const PROTOCOL: &str = "ggu";
const VERSION: u8 = 1;
const DECLINED: u8 = 0;
const GRANTED: u8 = 2;
const BPF: u8 = 4;
/// Added to a type: the flow is one of IPv6.
const V6: u8 = 1;

/// The decisions of a payload, in order; at a fault the fault, and no more. See the [module](self).
#[derive(Debug, Clone)]
pub struct Decisions<'a> {
    payload: &'a [u8],
    /// The next byte; `None` at the end.
    at: Option<usize>,
}

impl<'a> Decisions<'a> {
    /// Of the payload of a UDP packet.
    pub fn new(payload: &'a [u8]) -> Self {
        Decisions { payload, at: Some(0) }
    }
}

impl Iterator for Decisions<'_> {
    type Item = Result<Decision, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = Bytes { payload: self.payload, at: self.at.take()? };
        let decision = match bytes.at {
            0 => bytes.header().and_then(|()| bytes.decision()),
            _ => bytes.decision(),
        };
        if let Ok(Some(_)) = decision {
            self.at = Some(bytes.at);
        }
        decision.transpose()
    }
}

impl FusedIterator for Decisions<'_> {}

/// A payload, read from front to back.
struct Bytes<'a> {
    payload: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Error> {
        let (offset, present) = (self.at, self.payload.len());
        let bytes = self.payload.get(offset..).and_then(<[u8]>::first_chunk);
        let truncated = Error::Truncated { protocol: PROTOCOL, field, offset, needed: offset + N, present };
        self.at += N;
        bytes.copied().ok_or(truncated)
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, Error> {
        self.take(field).map(u32::from_be_bytes)
    }

    fn u128(&mut self, field: &'static str) -> Result<u128, Error> {
        self.take(field).map(u128::from_be_bytes)
    }

    fn zeros<const N: usize>(&mut self) -> Result<(), Error> {
        let start = self.at;
        let bytes: [u8; N] = self.take("reserved bytes")?;
        match bytes.iter().position(|&byte| byte != 0) {
            Some(i) => Err(invalid("reserved byte", start + i, bytes[i], "0")),
            None => Ok(()),
        }
    }

    fn header(&mut self) -> Result<(), Error> {
        match self.take("version")? {
            [VERSION] => self.zeros::<3>(),
            [other] => Err(invalid("version", 0, other, "1")),
        }
    }

    /// The next decision, `None` at the end.
    fn decision(&mut self) -> Result<Option<Decision>, Error> {
        if self.at == self.payload.len() {
            return Ok(None);
        }
        let start = self.at;
        let [kind] = self.take("type")?;
        if kind > BPF + V6 {
            return Err(invalid("type", start, kind, "0 to 5"));
        }
        self.zeros::<3>()?;
        let flow = if kind & V6 == 0 {
            Pair::V4 { src: self.u32("source")?, dst: self.u32("destination")? }
        } else {
            Pair::V6 { src: self.u128("source")?, dst: self.u128("destination")? }
        };
        let verdict = match kind & !V6 {
            DECLINED => Verdict::Declined { expire_s: self.u32("expiry")? },
            GRANTED => Verdict::Granted {
                rate_kib_s: self.u32("rate")?,
                expire_s: self.u32("expiry")?,
                renew_ms: self.u32("first renewal")?,
                step_ms: self.u32("renewal step")?,
                direct: false,
            },
            _ => {
                let expire_s = self.u32("expiry")?;
                let [program] = self.take("program")?;
                self.zeros::<2>()?;
                let [words] = self.take("cookie length")?;
                for _ in 0..words {
                    self.u32("cookie")?;
                }
                Verdict::Bpf { expire_s, program }
            }
        };
        Ok(Some(Decision { flow, verdict }))
    }
}

fn invalid(field: &'static str, offset: usize, value: u8, wanted: &'static str) -> Error {
    Error::Invalid { protocol: PROTOCOL, field, offset, value: value.into(), wanted }
}

/// Writes decisions into a payload until it is full.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    /// Begins a payload, which is as long as `buffer` at most.
    ///
    /// # Errors
    /// [`Error::NoRoom`] for the header.
    pub fn new(buffer: &'a mut [u8]) -> Result<Self, Error> {
        let mut writer = Writer { buffer, len: 0 };
        writer.put([&[VERSION, 0, 0, 0]])?;
        Ok(writer)
    }

    /// Adds a decision. A grant that is direct is written as one that is not: the format has no such thing, and a Grantor sends on what
    /// comes to it.
    ///
    /// # Errors
    /// [`Error::NoRoom`]: it does not fit any more. [`Error::Invalid`]: it is [`Verdict::Bpf`]. Either way nothing has changed.
    pub fn push(&mut self, decision: &Decision) -> Result<(), Error> {
        let (kind, said): (u8, &[u32]) = match decision.verdict {
            Verdict::Declined { expire_s } => (DECLINED, &[expire_s]),
            Verdict::Granted { rate_kib_s, expire_s, renew_ms, step_ms, direct: _ } => {
                (GRANTED, &[rate_kib_s, expire_s, renew_ms, step_ms])
            }
            Verdict::Bpf { .. } => return Err(invalid("type", self.len, BPF, "0 to 3")),
        };
        let mut numbers = [[0; 4]; 4];
        for (bytes, number) in numbers.iter_mut().zip(said) {
            *bytes = number.to_be_bytes();
        }
        let said = numbers[..said.len()].as_flattened();
        match decision.flow {
            Pair::V4 { src, dst } => {
                self.put([&[kind, 0, 0, 0], &src.to_be_bytes(), &dst.to_be_bytes(), said])
            }
            Pair::V6 { src, dst } => {
                self.put([&[kind | V6, 0, 0, 0], &src.to_be_bytes(), &dst.to_be_bytes(), said])
            }
        }
    }

    fn put<const N: usize>(&mut self, parts: [&[u8]; N]) -> Result<(), Error> {
        let needed = self.len + parts.iter().map(|part| part.len()).sum::<usize>();
        let present = self.buffer.len();
        let no_room = Error::NoRoom { protocol: PROTOCOL, needed, present };
        let mut room = self.buffer.get_mut(self.len..needed).ok_or(no_room)?;
        for part in parts {
            let (head, rest) = room.split_at_mut(part.len());
            head.copy_from_slice(part);
            room = rest;
        }
        self.len = needed;
        Ok(())
    }

    /// Whether there is no decision yet.
    pub fn is_empty(&self) -> bool {
        self.len == HEADER_LEN
    }

    /// The payload so far.
    pub fn payload(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Bytes of the payload so far, the header's included.
    pub fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests;
