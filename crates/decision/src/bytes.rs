//! What both formats share: reading from front to back, writing whole messages or nothing, and the bytes of a decision.

use crate::{Cookie, Decision, Pair, Verdict};
use tidemill_wire::Error;

const DECLINED: u8 = 0;
const GRANTED: u8 = 2;
const BPF: u8 = 4;
/// Added to a type: the flow is one of IPv6.
pub(crate) const V6: u8 = 1;
/// The highest type of a decision.
pub(crate) const DECISIONS: u8 = BPF + V6;
/// In the byte behind the type of a grant: it is direct.
const DIRECT: u8 = 1;

/// A payload, read from front to back.
pub(crate) struct Bytes<'a> {
    pub(crate) protocol: &'static str,
    pub(crate) payload: &'a [u8],
    pub(crate) at: usize,
}

impl Bytes<'_> {
    pub(crate) fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Error> {
        let (protocol, offset, present) = (self.protocol, self.at, self.payload.len());
        let bytes = self.payload.get(offset..).and_then(<[u8]>::first_chunk);
        let truncated = Error::Truncated { protocol, field, offset, needed: offset + N, present };
        self.at += N;
        bytes.copied().ok_or(truncated)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Error> {
        self.take(field).map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, Error> {
        self.take(field).map(u64::from_be_bytes)
    }

    pub(crate) fn u128(&mut self, field: &'static str) -> Result<u128, Error> {
        self.take(field).map(u128::from_be_bytes)
    }

    pub(crate) fn zeros<const N: usize>(&mut self) -> Result<(), Error> {
        let start = self.at;
        let bytes: [u8; N] = self.take("reserved bytes")?;
        match bytes.iter().position(|&byte| byte != 0) {
            Some(i) => Err(self.invalid("reserved byte", start + i, bytes[i], "0")),
            None => Ok(()),
        }
    }

    pub(crate) fn invalid(
        &self,
        field: &'static str,
        offset: usize,
        value: u8,
        wanted: &'static str,
    ) -> Error {
        Error::Invalid { protocol: self.protocol, field, offset, value: value.into(), wanted }
    }

    /// The rest of a decision behind its type. Whether it may be direct is the format's.
    pub(crate) fn decision(&mut self, kind: u8, may_be_direct: bool) -> Result<Decision, Error> {
        let start = self.at;
        let mut direct = false;
        if may_be_direct && kind & !V6 == GRANTED {
            let [flags] = self.take("flags")?;
            if flags > DIRECT {
                return Err(self.invalid("flags", start, flags, "0 or 1"));
            }
            direct = flags == DIRECT;
            self.zeros::<2>()?;
        } else {
            self.zeros::<3>()?;
        }
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
                direct,
            },
            _ => {
                let expire_s = self.u32("expiry")?;
                let [program] = self.take("program")?;
                self.zeros::<2>()?;
                Verdict::Bpf { expire_s, program, cookie: self.cookie()? }
            }
        };
        Ok(Decision { flow, verdict })
    }

    fn cookie(&mut self) -> Result<Cookie, Error> {
        let (protocol, offset, present) = (self.protocol, self.at, self.payload.len());
        let [words] = self.take("cookie length")?;
        let (field, needed) = ("cookie", self.at + usize::from(words) * 4);
        let bytes = self.payload.get(self.at..needed);
        let bytes = bytes.ok_or(Error::Truncated { protocol, field, offset: self.at, needed, present })?;
        self.at = needed;
        Cookie::new(bytes).ok_or(self.invalid("cookie length", offset, words, "0 to 16"))
    }
}

/// A payload that is written from front to back: a message is written whole or not at all.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    pub(crate) protocol: &'static str,
    pub(crate) buffer: &'a mut [u8],
    pub(crate) len: usize,
    /// Bytes at the end that are kept free.
    pub(crate) spare: usize,
}

impl Room<'_> {
    pub(crate) fn put<const N: usize>(&mut self, parts: [&[u8]; N]) -> Result<(), Error> {
        let needed = self.len + parts.iter().map(|part| part.len()).sum::<usize>();
        let present = self.buffer.len();
        let no_room = Error::NoRoom { protocol: self.protocol, needed: needed + self.spare, present };
        if present < needed + self.spare {
            return Err(no_room);
        }
        let mut room = self.buffer.get_mut(self.len..needed).ok_or(no_room)?;
        for part in parts {
            let (head, rest) = room.split_at_mut(part.len());
            head.copy_from_slice(part);
            room = rest;
        }
        self.len = needed;
        Ok(())
    }

    pub(crate) fn decision(&mut self, decision: &Decision, may_be_direct: bool) -> Result<(), Error> {
        let mut numbers = [[0; 4]; 4];
        let (kind, flags, said, cookie): (u8, u8, usize, &[u8]) = match &decision.verdict {
            Verdict::Declined { expire_s } => {
                numbers[0] = expire_s.to_be_bytes();
                (DECLINED, 0, 1, &[])
            }
            Verdict::Granted { rate_kib_s, expire_s, renew_ms, step_ms, direct } => {
                numbers = [rate_kib_s, expire_s, renew_ms, step_ms].map(|number| number.to_be_bytes());
                (GRANTED, if *direct && may_be_direct { DIRECT } else { 0 }, 4, &[])
            }
            Verdict::Bpf { expire_s, program, cookie } => {
                numbers[0] = expire_s.to_be_bytes();
                numbers[1] = [*program, 0, 0, cookie.words];
                (BPF, 0, 2, cookie.bytes())
            }
        };
        let said = numbers[..said].as_flattened();
        match decision.flow {
            Pair::V4 { src, dst } => {
                self.put([&[kind, flags, 0, 0], &src.to_be_bytes(), &dst.to_be_bytes(), said, cookie])
            }
            Pair::V6 { src, dst } => {
                self.put([&[kind | V6, flags, 0, 0], &src.to_be_bytes(), &dst.to_be_bytes(), said, cookie])
            }
        }
    }
}
