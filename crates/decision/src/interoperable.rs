//! The interoperable format: decisions in the payload of a UDP packet, all numbers most significant byte first.
//!
//! ```text
//! header     version = 1 | 0 | 0 | 0 |
//! decision   type | 0 | 0 | 0 | source, destination: 4 or 16 bytes each | what was decided
//!
//! type 0, 1  declined   seconds: 4 |                                                                   16 or 40 bytes in all
//! type 2, 3  granted    KiB/s: 4 | seconds: 4 | to the first renewal, ms: 4 | from one to the next, ms: 4 |      28 or 52
//! type 4, 5  BPF        seconds: 4 | program | 0 | 0 | n | cookie: 4 n bytes, n at most 16 |            20 or 44, and 4 n
//!            (even: IPv4, odd: IPv6)
//! ```
//!
//! From [`GRANTOR_PORT`](crate::GRANTOR_PORT) to [`GATEKEEPER_PORT`](crate::GATEKEEPER_PORT), with a checksum, which is the business of who takes
//! the packet. **It carries no authentication**: who takes decisions from it must know by other means where they come from. Source: the wire
//! facts of the public system (v1.2); a word of a cookie is 4 bytes, and a program has 64 bytes for it.
//!
//! Bytes that must be zero and are not are a fault, as is an unknown type: whoever sent them means something that we do not know. A decision
//! has no length of its own, so nothing behind a fault can be read: [`Decisions`] gives what came before it, then the fault, then nothing.

use crate::Decision;
use crate::bytes::{Bytes, DECISIONS, Room};
use std::iter::FusedIterator;
use tidemill_wire::Error;

/// The first byte.
pub const VERSION: u8 = 1;
/// Bytes before the first decision.
pub const HEADER_LEN: usize = 4;

const PROTOCOL: &str = "ggu";

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
        let mut bytes = Bytes { protocol: PROTOCOL, payload: self.payload, at: self.at.take()? };
        if bytes.at == 0
            && let Err(fault) = header(&mut bytes)
        {
            return Some(Err(fault));
        }
        if bytes.at == bytes.payload.len() {
            return None;
        }
        let decision = decision(&mut bytes);
        if decision.is_ok() {
            self.at = Some(bytes.at);
        }
        Some(decision)
    }
}

impl FusedIterator for Decisions<'_> {}

fn header(bytes: &mut Bytes<'_>) -> Result<(), Error> {
    match bytes.take("version")? {
        [VERSION] => bytes.zeros::<3>(),
        [other] => Err(bytes.invalid("version", 0, other, "1")),
    }
}

fn decision(bytes: &mut Bytes<'_>) -> Result<Decision, Error> {
    let start = bytes.at;
    let [kind] = bytes.take("type")?;
    if kind > DECISIONS {
        return Err(bytes.invalid("type", start, kind, "0 to 5"));
    }
    bytes.decision(kind, false)
}

/// Writes decisions into a payload until it is full.
#[derive(Debug)]
pub struct Writer<'a>(Room<'a>);

impl<'a> Writer<'a> {
    /// Begins a payload, which is as long as `buffer` at most.
    ///
    /// # Errors
    /// [`Error::NoRoom`] for the header.
    pub fn new(buffer: &'a mut [u8]) -> Result<Self, Error> {
        let mut room = Room { protocol: PROTOCOL, buffer, len: 0, spare: 0 };
        room.put([&[VERSION, 0, 0, 0]])?;
        Ok(Writer(room))
    }

    /// Adds a decision. A grant that is direct is written as one that is not: the format has no such thing, and a Grantor sends on what
    /// comes to it.
    ///
    /// # Errors
    /// [`Error::NoRoom`]: it does not fit any more; nothing has changed.
    pub fn push(&mut self, decision: &Decision) -> Result<(), Error> {
        self.0.decision(decision, false)
    }

    /// Whether there is no decision yet.
    pub fn is_empty(&self) -> bool {
        self.0.len == HEADER_LEN
    }

    /// The payload so far.
    pub fn payload(&self) -> &[u8] {
        &self.0.buffer[..self.0.len]
    }

    /// Bytes of the payload so far, the header's included.
    pub fn len(&self) -> usize {
        self.0.len
    }
}

#[cfg(test)]
mod tests;
