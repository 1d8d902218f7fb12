//! oracleGeneral, libCacheSim's binary format. All requests are gets.
//!
//! ```text
//! byte 0     time, u32, seconds
//!      4     key, u64
//!      12    size, u32, bytes
//!      16    when the key comes next, i64: a request's number; -1 or the greatest i64: never
//! ```
//!
//! The format has no magic number. What tells a wrong file from a right one is the last field: it lies behind the request itself.
//! Numbers are from 0 or from 1, as who wrote the file counted. Departure: requests of size 0, which libCacheSim leaves out, are kept.

use super::{Builder, Log, Op, VALUE_MAX_BYTES};
use crate::LogError;
use crate::error::Fault;
use std::io::{BufRead, ErrorKind};

const RECORD_BYTES: usize = 24;

pub(super) fn read(mut reader: impl BufRead, name: &str, limit: usize) -> Result<Log, LogError> {
    let mut log = Builder::new(name, limit);
    let mut record = [0; RECORD_BYTES];
    while !log.is_full() {
        let index = log.requests.len() as u64;
        let wrong = |fault| LogError::Record {
            file: name.to_owned(),
            record: index + 1,
            offset: index * RECORD_BYTES as u64,
            fault,
        };
        match fill(&mut reader, &mut record)? {
            0 => break,
            RECORD_BYTES => {}
            got => return Err(wrong(Fault::Short { got, wanted: RECORD_BYTES })),
        }
        let [_, _, _, _, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, s2, s3, next @ ..] = record;
        let next = i64::from_le_bytes(next);
        let never = next == -1 || next == i64::MAX;
        if !never && u64::try_from(next).is_ok_and(|next| next <= index) || next < -1 {
            return Err(wrong(Fault::Next(next)));
        }
        let value_bytes = u32::from_le_bytes([s0, s1, s2, s3]);
        if value_bytes > VALUE_MAX_BYTES {
            return Err(wrong(Fault::Large(value_bytes.into())));
        }
        let id = u64::from_le_bytes([k0, k1, k2, k3, k4, k5, k6, k7]);
        let key = log.keys.number(id).ok_or_else(|| wrong(Fault::Keys))?;
        log.push(Op::Get, key, value_bytes);
    }
    Ok(log.finish())
}

/// Reads until the buffer is full or the file ends; how much it was.
pub(super) fn fill(reader: &mut impl BufRead, buffer: &mut [u8]) -> Result<usize, LogError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}
