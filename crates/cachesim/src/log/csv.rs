//! Twitter's cache traces (Yang, Yue, Rashmi, OSDI 2020): a request a line.
//!
//! ```text
//! timestamp, anonymized key, key size, value size, client id, operation, TTL
//! 0,q:q:1:8WTfjZU14ee,17,213,4,get,0
//! ```
//!
//! Times and times to live have to be numbers, and are not simulated. The value size of a get is what the log says; where it is 0, the last
//! one that was stored counts in the simulation.

use super::{Builder, Log, Op, VALUE_MAX_BYTES};
use crate::LogError;
use crate::error::Fault;
use std::io::{BufRead, ErrorKind};

/// No line is longer: memcached's keys have 250 bytes.
const LINE_MAX_BYTES: usize = 4096;
const FIELDS: [&str; 7] = ["timestamp", "key", "key size", "value size", "client id", "operation", "TTL"];

pub(super) fn read(mut reader: impl BufRead, name: &str, limit: usize) -> Result<Log, LogError> {
    let mut log = Builder::new(name, limit);
    let (mut line, mut number) = (Vec::new(), 0);
    while !log.is_full() && next(&mut reader, &mut line)? {
        number += 1;
        let result = if line.len() > LINE_MAX_BYTES {
            Err(Fault::Long(LINE_MAX_BYTES))
        } else {
            request(line.strip_suffix(b"\r").unwrap_or(&line), &mut log)
        };
        result.map_err(|fault| LogError::Line { file: log.file.to_owned(), line: number, fault })?;
    }
    Ok(log.finish())
}

/// Whether there is a line. Of one that is too long only so much is read as shows that it is: it may have no end.
fn next(reader: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, LogError> {
    line.clear();
    let mut any = false;
    loop {
        let chunk = match reader.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        if chunk.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let taken = end.unwrap_or(chunk.len());
        let room = (LINE_MAX_BYTES + 1).saturating_sub(line.len());
        line.extend_from_slice(&chunk[..taken.min(room)]);
        reader.consume(taken + usize::from(end.is_some()));
        if end.is_some() || line.len() > LINE_MAX_BYTES {
            return Ok(true);
        }
    }
}

fn request(line: &[u8], log: &mut Builder<'_>) -> Result<(), Fault> {
    let mut fields = [&line[..0]; 7];
    let mut count = 0;
    for field in line.split(|&byte| byte == b',') {
        if let Some(place) = fields.get_mut(count) {
            *place = field;
        }
        count += 1;
    }
    if count != fields.len() {
        return Err(Fault::Fields(count));
    }
    let number = |field: usize| {
        let text = std::str::from_utf8(fields[field]).ok();
        text.and_then(|text| text.parse::<u64>().ok()).ok_or(Fault::Number(FIELDS[field]))
    };
    number(0)?;
    number(6)?;
    let (key_bytes, value_bytes) = (number(2)?, number(3)?);
    if value_bytes > VALUE_MAX_BYTES.into() || key_bytes > VALUE_MAX_BYTES.into() {
        return Err(Fault::Large(value_bytes.max(key_bytes)));
    }
    if fields[1].is_empty() {
        return Err(Fault::NoKey);
    }
    let op = match fields[5] {
        b"get" | b"gets" => Op::Get,
        b"set" | b"add" | b"replace" | b"cas" => Op::Set,
        b"append" | b"prepend" | b"incr" | b"decr" => Op::Change,
        b"delete" => Op::Delete,
        other => {
            return Err(Fault::Operation(
                String::from_utf8_lossy(&other[..other.len().min(20)]).escape_default().to_string(),
            ));
        }
    };
    let key = log.keys.text(fields[1], key_bytes as u32).ok_or(Fault::Keys)?;
    log.push(op, key, value_bytes as u32);
    Ok(())
}
