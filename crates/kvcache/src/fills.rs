//! What waits to be kept. A `get`'s reply says nothing of how long its value holds, so memcached is asked:
//!
//! ```text
//! client  -- get k ------------> memcached      version of k is noted with the request's number (the miss table)
//! client <-- VALUE k 0 3 ...  -- memcached      the reply passes; its text is kept here
//! (client:ask_port) -- mg k t O~ -> memcached   made by us, in the client's name
//! (client:ask_port) <- HD t60 O~ -- memcached   consumed by us: kept, if k's version is still the one that was noted
//! ```
//! The value cannot have changed between reply and question: each mutation moves the version. `mg` without flags that change something has memcached count a read,
//! and it takes the win (`W`) of an item that `md I` has made stale: clients that work with stale items lose that one.

use crate::gate::Version;
use crate::tier::{Kept, Stamp};
use crate::tiers::ANSWER_MAX;
use std::io::Write;
use tidemill_kv::codec::reply::{self, Item};

/// Questions that wait no longer than this take no place from others.
const WAIT_NS: u64 = 1_000_000_000;
/// A value ends so much before memcached says, as the kernel's tier has it: memcached's clock counts seconds, and now and then jumps by two.
const EARLY_NS: u64 = 2_100_000_000;
/// A value that ends is kept no longer: the clocks of two machines drift apart, by less than what is left of the 2.1 s in this time (300 ppm).
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A value whose end is not known yet.
#[derive(Debug)]
struct Fill {
    /// 0: none.
    nonce: u64,
    asked_ns: u64,
    hash: u64,
    version: Version,
    key_len: u8,
    answer: Vec<u8>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Fills {
    fills: Box<[Fill]>,
    next: usize,
    number: u64,
}

/// What came of an answer to us.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// Nothing that we have asked for.
    Unknown,
    /// The value ends too soon.
    Soon,
    /// Its form is another.
    Odd,
    /// The value of this fill holds until then.
    Until(usize, u64),
}

impl Fills {
    /// With room for so many at a time. `secret`: where numbers begin.
    pub(crate) fn new(most: usize, secret: u64) -> Self {
        let fill = || Fill {
            nonce: 0,
            asked_ns: 0,
            hash: 0,
            version: Version { seq: 0, epoch: 0 },
            key_len: 0,
            answer: Vec::with_capacity(ANSWER_MAX),
        };
        Fills { fills: (0..most).map(|_| fill()).collect(), next: 0, number: secret >> 16 }
    }

    /// Keeps a reply's text, and writes the question. Whether there was room.
    pub(crate) fn ask(
        &mut self,
        hash: u64,
        version: Version,
        key: &[u8],
        answer: &[u8],
        now_ns: u64,
        to: &mut Vec<u8>,
    ) -> bool {
        let (at, count) = (self.next, self.fills.len());
        let Some(fill) = self.fills.get_mut(at) else { return false };
        if fill.nonce != 0 && now_ns < fill.asked_ns + WAIT_NS || answer.len() > ANSWER_MAX {
            return false;
        }
        self.next = (at + 1) % count;
        self.number = self.number.wrapping_add(1);
        fill.nonce = (self.number << 16 | at as u64).max(1);
        (fill.asked_ns, fill.hash, fill.version, fill.key_len) = (now_ns, hash, version, key.len() as u8);
        fill.answer.clear();
        fill.answer.extend_from_slice(answer);
        to.extend_from_slice(b"mg ");
        to.extend_from_slice(key);
        // Writing to memory cannot fail.
        let _ = write!(to, " t q O{:016x}\r\n", fill.nonce);
        true
    }

    /// An answer to us.
    pub(crate) fn reply(&mut self, text: &[u8]) -> Came {
        let Item::Meta(meta, len) = reply::next(text) else { return Came::Unknown };
        let nonce = meta.flag(b'O').and_then(|text| std::str::from_utf8(text).ok());
        let Some(nonce) = nonce.and_then(|text| u64::from_str_radix(text, 16).ok()) else {
            return Came::Unknown;
        };
        let at = (nonce & 0xffff) as usize;
        let Some(fill) = self.fills.get_mut(at).filter(|fill| fill.nonce == nonce && nonce != 0) else {
            return Came::Unknown;
        };
        fill.nonce = 0;
        let asked_ns = fill.asked_ns;
        // W, X, Z: somebody is to make a new one. Anything else is not known to us.
        let known = meta.flags().all(|flag| matches!(flag[0], b't' | b'O'));
        let right = meta.code == *b"HD" && known && len == text.len();
        match meta.number(b't').filter(|_| right) {
            Some(-1) => Came::Until(at, u64::MAX),
            Some(seconds @ 0..) => {
                let lasts_ns = (seconds as u64).saturating_mul(1_000_000_000).min(LONGEST_NS);
                let until_ns = asked_ns.saturating_add(lasts_ns).saturating_sub(EARLY_NS);
                if until_ns > asked_ns { Came::Until(at, until_ns) } else { Came::Soon }
            }
            _ => Came::Odd,
        }
    }

    /// What is to be kept.
    pub(crate) fn kept(&self, at: usize, expires_ns: u64) -> Kept<'_> {
        let fill = &self.fills[at];
        let stamp = Stamp { version: fill.version, expires_ns, asked_ns: fill.asked_ns };
        Kept { hash: fill.hash, stamp, key_len: fill.key_len, answer: &fill.answer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers() {
        let mut fills = Fills::new(2, 0x1234_5678_9abc_def0);
        let version = Version { seq: 1, epoch: 2 };
        let ask = |fills: &mut Fills, now| {
            let mut to = Vec::new();
            let asked = fills.ask(7, version, b"key", b"VALUE key 0 1\r\nx\r\n", now, &mut to);
            let text = String::from_utf8(to).unwrap();
            asked.then(|| text["mg key t q O".len()..].trim_end().to_owned())
        };
        let nonce = ask(&mut fills, 0).unwrap();
        assert!(ask(&mut fills, 0).is_some());
        assert_eq!(ask(&mut fills, WAIT_NS - 1), None, "all are under way");
        assert_eq!(fills.reply(b"HD t60 O1\r\n"), Came::Unknown);
        assert_eq!(fills.reply(b"EN\r\n"), Came::Unknown);
        let until_ns = 60_000_000_000 - EARLY_NS;
        assert_eq!(fills.reply(format!("HD t60 O{nonce}\r\n").as_bytes()), Came::Until(0, until_ns));
        assert_eq!(fills.reply(format!("HD t60 O{nonce}\r\n").as_bytes()), Came::Unknown, "twice");
        let kept = fills.kept(0, until_ns);
        assert_eq!((kept.key(), kept.stamp.expires_ns, kept.hash), (&b"key"[..], until_ns, 7));
        for (text, came) in [
            ("HD t2 O", Came::Soon),
            ("HD t60 W O", Came::Odd),
            ("NF t60 O", Came::Odd),
            ("HD t-1 O", Came::Until(1, u64::MAX)),
            ("HD t2592000 O", Came::Until(1, WAIT_NS + LONGEST_NS - EARLY_NS)),
        ] {
            // The second place is free again when its answer has not come within the time.
            fills.next = 1;
            let nonce = ask(&mut fills, WAIT_NS).unwrap();
            assert_eq!(fills.reply(format!("{text}{nonce}\r\n").as_bytes()), came, "{text}");
        }
    }
}
