//! How questions get into a state and answers out: two Luau buffers of fixed layout, written and read once per batch. So a batch costs one
//! call into Lua and a handful of copies, not a dozen calls per question.
//!
//! ```text
//! question, 88 bytes: source 16, destination 16, width of an address 1 (4 or 16), protocol, DSCP, fragment, TCP flags, -, source port 2,
//!                     destination port 2, length 2, packets 4, bytes f64, 4 fields f64 (below 0: no prefix)
//! answers: number of the question that is being asked 4, -4; then 104 bytes for each: kind, forward, cookie's length, direct, -4, 4 numbers
//!          f64, cookie 64
//! ```
//! The script's numbers arrive as they are (NaN, negative, huge): [`answer`] decides what is one.

use crate::answer::{Answer, Decision};
use crate::question::Question;
use tidemill_decision::Cookie;
use tidemill_wire::flow::Addresses;

pub(crate) const QUESTION: usize = 88;
pub(crate) const ANSWER: usize = 104;
pub(crate) const HEADER: usize = 8;

/// Fields that a script may have looked up for each question.
pub(crate) const FIELDS_MAX: usize = 4;

/// No prefix.
pub(crate) const ABSENT: f64 = -1.0;

/// Appends a question.
pub(crate) fn put(question: &Question, fields: &[f64; FIELDS_MAX], out: &mut Vec<u8>) {
    let from = out.len();
    let mut address = |bytes: &[u8]| {
        out.extend_from_slice(bytes);
        out.resize(out.len() + 16 - bytes.len(), 0);
    };
    let width: u8 = match question.flow {
        Addresses::V4 { src, dst } => {
            address(&src.to_be_bytes());
            address(&dst.to_be_bytes());
            4
        }
        Addresses::V6 { src, dst } => {
            address(&src.to_be_bytes());
            address(&dst.to_be_bytes());
            16
        }
    };
    let fragment = question.fragment as u8;
    out.extend_from_slice(&[width, question.protocol, question.dscp, fragment, question.tcp_flags, 0]);
    for short in [question.source_port, question.destination_port, question.length] {
        out.extend_from_slice(&short.to_le_bytes());
    }
    out.extend_from_slice(&question.packets.to_le_bytes());
    out.extend_from_slice(&(question.bytes as f64).to_le_bytes());
    fields.iter().for_each(|field| out.extend_from_slice(&field.to_le_bytes()));
    debug_assert_eq!(out.len() - from, QUESTION);
}

/// Reads an answer, or says what is wrong with it.
pub(crate) fn answer(bytes: &[u8; ANSWER]) -> Result<Answer, String> {
    let number = |at: usize| {
        let mut value = [0; 8];
        value.copy_from_slice(&bytes[8 + at * 8..16 + at * 8]);
        f64::from_le_bytes(value)
    };
    let whole = |at: usize, what: &str, least: u32, most: u32| {
        let value = number(at);
        // NaN is in no range.
        if value >= f64::from(least) && value <= f64::from(most) {
            Ok(value as u32)
        } else {
            Err(format!("decide: {what} = {value:?}: give {least} to {most}"))
        }
    };
    let decision = match bytes[0] {
        1 => Decision::None,
        2 => Decision::Declined { expire_s: whole(0, "expire", 1, u32::MAX)? },
        3 => Decision::Granted {
            rate_kib_s: whole(0, "rate", 1, u32::MAX)?,
            expire_s: whole(1, "expire", 1, u32::MAX)?,
            renew_ms: whole(2, "renew", 0, u32::MAX)?,
            step_ms: whole(3, "step", 0, u32::MAX)?,
            direct: bytes[3] == 1,
        },
        4 => {
            let cookie = bytes[40..].get(..bytes[2].into()).and_then(Cookie::new);
            let Some(cookie) = cookie else {
                return Err("decide: a cookie is of at most 64 bytes, in whole words of 4".into());
            };
            let expire_s = whole(0, "expire", 1, u32::MAX)?;
            Decision::Program { expire_s, program: whole(1, "index", 0, 255)? as u8, cookie }
        }
        200 => return Err("decide returned no answer: return granted, declined, program or undecided".into()),
        202 => return Err("decide: forward is neither true nor false".into()),
        203 => return Err("decide: a number of the answer is none".into()),
        204 => return Err("decide: the cookie is no text of at most 64 bytes".into()),
        205 => return Err("decide: direct is neither true nor false".into()),
        _ => return Err("decide returned a table of no known kind".into()),
    };
    Ok(Answer { decision, forward: bytes[1] == 1, failure: None })
}
