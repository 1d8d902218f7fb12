//! The binary protocol: 24 bytes of header, then extras, key, value.
//!
//! ```text
//!  0      1       2      4       5          6                 8       12      16   24
//!  magic  opcode  key    extras  data type  vbucket / status  body    opaque  cas  extras key value
//!                 length length                               length
//! ```
//!
//! All numbers most significant byte first; the body is extras, key and value together. memcached reads magic 0x80 and sends 0x81; it looks at neither
//! the data type nor the vbucket.

use super::MAX_KEY;
use super::event::{Answer, Command, Event, Family, Lost};

/// Bytes of a header.
pub const HEADER: usize = 24;
/// First byte of a request, and of a connection that speaks binary.
pub const REQUEST: u8 = 0x80;
/// First byte of a reply.
pub const REPLY: u8 = 0x81;

/// Opcodes. The quiet ones of 0x01 to 0x08, 0x0e and 0x0f lie 0x10 above them (from 0x0e: 0x0b above).
#[expect(missing_docs, reason = "the protocol's names")]
pub mod opcode {
    pub const GET: u8 = 0x00;
    pub const SET: u8 = 0x01;
    pub const ADD: u8 = 0x02;
    pub const REPLACE: u8 = 0x03;
    pub const DELETE: u8 = 0x04;
    pub const INCREMENT: u8 = 0x05;
    pub const DECREMENT: u8 = 0x06;
    pub const QUIT: u8 = 0x07;
    pub const FLUSH: u8 = 0x08;
    pub const GETQ: u8 = 0x09;
    pub const NOOP: u8 = 0x0a;
    pub const VERSION: u8 = 0x0b;
    pub const GETK: u8 = 0x0c;
    pub const GETKQ: u8 = 0x0d;
    pub const APPEND: u8 = 0x0e;
    pub const PREPEND: u8 = 0x0f;
    pub const STAT: u8 = 0x10;
    pub const SETQ: u8 = 0x11;
    pub const ADDQ: u8 = 0x12;
    pub const REPLACEQ: u8 = 0x13;
    pub const DELETEQ: u8 = 0x14;
    pub const INCREMENTQ: u8 = 0x15;
    pub const DECREMENTQ: u8 = 0x16;
    pub const QUITQ: u8 = 0x17;
    pub const FLUSHQ: u8 = 0x18;
    pub const APPENDQ: u8 = 0x19;
    pub const PREPENDQ: u8 = 0x1a;
    pub const TOUCH: u8 = 0x1c;
    pub const GAT: u8 = 0x1d;
    pub const GATQ: u8 = 0x1e;
    pub const SASL_LIST: u8 = 0x20;
    pub const SASL_AUTH: u8 = 0x21;
    pub const SASL_STEP: u8 = 0x22;
    pub const GATK: u8 = 0x23;
    pub const GATKQ: u8 = 0x24;
}

/// A header, of a request or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// [`REQUEST`] or [`REPLY`].
    pub magic: u8,
    /// See [`opcode`].
    pub opcode: u8,
    /// Bytes of key.
    pub key: u16,
    /// Bytes of extras.
    pub extras: u8,
    /// Of a reply: 0 is success. Of a request: the vbucket, ignored.
    pub status: u16,
    /// Bytes of extras, key and value.
    pub body: u32,
    /// Repeated in the reply.
    pub opaque: u32,
    /// The version of what is stored; 0 for any.
    pub cas: u64,
}

impl Header {
    /// Reads it.
    pub fn read(bytes: &[u8; HEADER]) -> Self {
        let [magic, opcode, k0, k1, extras, _, s0, s1, b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = *bytes;
        Header {
            magic,
            opcode,
            key: u16::from_be_bytes([k0, k1]),
            extras,
            status: u16::from_be_bytes([s0, s1]),
            body: u32::from_be_bytes([b0, b1, b2, b3]),
            opaque: u32::from_be_bytes([o0, o1, o2, o3]),
            cas: u64::from_be_bytes(cas),
        }
    }

    /// Writes it.
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend([self.magic, self.opcode]);
        to.extend(self.key.to_be_bytes());
        to.extend([self.extras, 0]);
        to.extend(self.status.to_be_bytes());
        to.extend(self.body.to_be_bytes());
        to.extend(self.opaque.to_be_bytes());
        to.extend(self.cas.to_be_bytes());
    }

    /// Bytes of value; `None` if extras and key are longer than the body that holds them.
    pub fn value(&self) -> Option<u32> {
        self.body.checked_sub(u32::from(self.extras) + u32::from(self.key))
    }
}

/// What a request's header says of its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Reads its key.
    Reads,
    /// May change what is stored under its key.
    Mutates,
    /// May change anything.
    All,
    /// Changes nothing.
    Nothing,
    /// Changes nothing, and ends the connection.
    Quits,
}

/// What a request does, or why memcached cannot be followed behind it.
///
/// memcached checks lengths only where it uses them; what it would read differently from what the header says is refused here.
pub fn class(header: &Header) -> Result<(Class, Command), Lost> {
    use opcode::*;
    let key = u32::from(header.key);
    let value = header.value().ok_or(Lost::Binary)?;
    if header.magic != REQUEST || header.key as usize > MAX_KEY {
        return Err(Lost::Binary);
    }
    let bare = header.body == 0;
    let (class, right) = match header.opcode {
        GET | GETQ | GETK | GETKQ => (Class::Reads, key > 0 && header.extras == 0 && value == 0),
        SET | ADD | REPLACE | SETQ | ADDQ | REPLACEQ => (Class::Mutates, key > 0 && header.extras == 8),
        DELETE | DELETEQ => (Class::Mutates, key > 0 && header.extras == 0 && value == 0),
        INCREMENT | DECREMENT | INCREMENTQ | DECREMENTQ => {
            (Class::Mutates, key > 0 && header.extras == 20 && value == 0)
        }
        APPEND | PREPEND | APPENDQ | PREPENDQ => (Class::Mutates, key > 0 && header.extras == 0),
        TOUCH | GAT | GATQ | GATK | GATKQ => (Class::Mutates, key > 0 && header.extras == 4 && value == 0),
        FLUSH | FLUSHQ => (Class::All, key == 0 && matches!(header.extras, 0 | 4) && value == 0),
        NOOP | VERSION | SASL_LIST => (Class::Nothing, bare),
        QUIT | QUITQ => (Class::Quits, bare),
        STAT => (Class::Nothing, header.extras == 0 && value == 0),
        SASL_AUTH | SASL_STEP => (Class::Nothing, header.extras == 0 && key > 0),
        // Of an unknown command memcached skips the body once more than it should, from behind key and extras.
        _ => (Class::All, key == 0 && header.extras == 0),
    };
    let quiet = matches!(header.opcode, GETQ | GETKQ | SETQ..=PREPENDQ | GATQ | GATKQ);
    let answer = match header.opcode {
        QUITQ => Answer::Never,
        _ if quiet => Answer::Maybe,
        _ => Answer::Always,
    };
    let family = Family::Binary { opcode: header.opcode, opaque: header.opaque };
    if right { Ok((class, Command { answer, family })) } else { Err(Lost::Binary) }
}

/// A request, whole in a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its header.
    pub header: Header,
    /// What it does.
    pub class: Class,
    /// How it is answered.
    pub command: Command,
    /// 0, 4 (a time), 8 (flags, a time) or 20 bytes (amount, first value, a time).
    pub extras: &'a [u8],
    /// 0 to 250 bytes.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl Request<'_> {
    /// Its events.
    pub fn events(&self, emit: &mut impl FnMut(Event<'_>)) {
        emit_class(self.class, self.key, emit);
        emit(Event::Command(self.command));
    }

    /// Flags of SET, ADD, REPLACE and their quiet forms.
    pub fn flags(&self) -> Option<u32> {
        (self.extras.len() == 8).then(|| be32(self.extras, 0))
    }

    /// The time after which what is stored ends, as memcached understands it; a delay of FLUSH.
    pub fn exptime(&self) -> Option<u32> {
        let at = self.extras.len().checked_sub(4)?;
        Some(be32(self.extras, at))
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte))
}

pub(super) fn emit_class(class: Class, key: &[u8], emit: &mut impl FnMut(Event<'_>)) {
    match class {
        Class::Reads => emit(Event::Reads(key)),
        Class::Mutates => emit(Event::Mutates(key)),
        Class::All => emit(Event::All),
        Class::Nothing | Class::Quits => {}
    }
}

/// A reply, whole in a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Its header.
    pub header: Header,
    /// 4 bytes of flags in front of a value.
    pub extras: &'a [u8],
    /// The key, in the forms that return it.
    pub key: &'a [u8],
    /// The value, or the text of an error.
    pub value: &'a [u8],
}

/// The three parts of a body of which all is there: `bytes` begins with the header.
pub(super) fn parts<'a>(header: &Header, bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8], &'a [u8])> {
    header.value()?;
    let body = bytes.get(HEADER..HEADER.checked_add(header.body as usize)?)?;
    let (extras, rest) = body.split_at(header.extras.into());
    let (key, value) = rest.split_at(header.key.into());
    Some((extras, key, value))
}

impl<'a> Reply<'a> {
    /// Reads the first reply of `bytes`, and its length. `None`: not whole, or none.
    pub fn read(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let header = Header::read(bytes.first_chunk()?);
        let (extras, key, value) = parts(&header, bytes)?;
        (header.magic == REPLY)
            .then_some((Reply { header, extras, key, value }, HEADER + header.body as usize))
    }

    /// Flags in front of a value.
    pub fn flags(&self) -> Option<u32> {
        (self.extras.len() == 4).then(|| be32(self.extras, 0))
    }
}

/// Appends a request. Lengths in `header` are set from the parts.
pub fn write(mut header: Header, extras: &[u8], key: &[u8], value: &[u8], to: &mut Vec<u8>) {
    header.extras = extras.len() as u8;
    header.key = key.len() as u16;
    header.body = (extras.len() + key.len() + value.len()) as u32;
    header.write(to);
    for part in [extras, key, value] {
        to.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_has_its_class() {
        // What memcached 1.6.18 does with each, from the protocol's list.
        let reads = [0x00, 0x09, 0x0c, 0x0d];
        let quits = [0x07, 0x17];
        let nothing = [0x0a, 0x0b, 0x10, 0x20, 0x21, 0x22];
        let keyed = [
            1, 2, 3, 4, 5, 6, 14, 15, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x19, 0x1a, 0x1c, 0x1d, 0x1e, 0x23,
            0x24,
        ];
        let quiet = [9, 13, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x18, 0x19, 0x1a, 0x1e, 0x24];
        for opcode in 0..=255_u8 {
            let expected = match opcode {
                _ if reads.contains(&opcode) => Class::Reads,
                _ if quits.contains(&opcode) => Class::Quits,
                _ if nothing.contains(&opcode) => Class::Nothing,
                _ if keyed.contains(&opcode) => Class::Mutates,
                _ => Class::All,
            };
            let shapes = [(0, 0, 0), (0, 1, 0), (0, 1, 5), (4, 1, 0), (8, 1, 5), (20, 1, 0), (4, 0, 0)];
            let mut right = 0;
            for (extras, key, value) in shapes {
                let body = u32::from(extras) + u32::from(key) + value;
                let header = Header { magic: REQUEST, opcode, key, extras, body, ..Header::default() };
                let Ok((class, command)) = class(&header) else { continue };
                right += 1;
                assert_eq!(class, expected, "{opcode:#x}");
                let answer = if opcode == 0x17 {
                    Answer::Never
                } else if quiet.contains(&opcode) {
                    Answer::Maybe
                } else {
                    Answer::Always
                };
                assert_eq!(command.answer, answer, "{opcode:#x}");
                assert_eq!(class == Class::Mutates, expected == Class::Mutates && key > 0);
            }
            assert!(right > 0, "no shape of {opcode:#x} is right");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        let header =
            Header { magic: REPLY, opcode: opcode::GETK, opaque: 7, cas: 9, status: 1, ..Header::default() };
        write(header, &[0, 0, 0, 5], b"key", b"value", &mut bytes);
        let (reply, len) = Reply::read(&bytes).unwrap();
        assert_eq!(
            (len, reply.flags(), reply.key, reply.value),
            (bytes.len(), Some(5), &b"key"[..], &b"value"[..])
        );
        assert_eq!((reply.header.opaque, reply.header.cas, reply.header.status), (7, 9, 1));
        for short in 0..len {
            assert_eq!(Reply::read(&bytes[..short]), None);
        }
    }
}
