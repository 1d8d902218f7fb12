//! cache2k's traces, as Caffeine's simulator reads them: nothing but keys of 32 bits, big-endian. All requests are gets of values of one byte,
//! so that a capacity in bytes is one in entries.

use super::general::fill;
use super::{Builder, Log, Op};
use crate::LogError;
use crate::error::Fault;
use std::io::BufRead;

const RECORD_BYTES: usize = 4;

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
        let id = u64::from(u32::from_be_bytes(record));
        let key = log.keys.number(id).ok_or_else(|| wrong(Fault::Keys))?;
        log.push(Op::Get, key, 1);
    }
    Ok(log.finish())
}
