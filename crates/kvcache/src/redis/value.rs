//! A value of one of Redis' five types, as it is kept, and what it answers.
//!
//! ```text
//!  HGETALL k -> a 1 b 2      text  a1b2      ends  1 2 3 4      order  0 2     (members, sorted: found by halving)
//!                            string: one piece; list: its elements; set: members; hash: field, value, ...; sorted set: member, score, ... by rank
//! ```
//! A value comes from a reply that has all of it, and is never changed. What it cannot answer for sure (another type's command, options, odd numbers) is Redis' to answer.

use super::commands::Read;
use std::ops::Range;
use tidemill_kv::resp::integer;
use tidemill_kv::resp::item::{Item, Items, bulk, head, line};
use tidemill_kv::resp::request::Requests;

/// The types, by the words of `TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    String,
    Hash,
    Set,
    List,
    Sorted,
}

/// One value, whole.
#[derive(Debug)]
pub(super) struct Value {
    kind: Kind,
    text: Box<[u8]>,
    /// Where each piece ends.
    ends: Box<[u32]>,
    /// Of sets, hashes and sorted sets: the pieces that are members, sorted by what they say.
    order: Box<[u32]>,
}

impl Value {
    /// That of a reply to a command that [fills](Read::fills). None: there is no such value, or not all of it.
    pub(super) fn from_reply(read: Read, reply: &[u8]) -> Option<Self> {
        let mut items = Items::new(reply);
        let first = items.next()?;
        // Pieces that have to come, and how many of them belong to a member.
        let (kind, pieces, each) = match (read, first) {
            (Read::Get, Item::Text(_)) => {
                items = Items::new(reply);
                (Kind::String, 1, 1)
            }
            (Read::Hgetall, Item::Many(b'*', pieces)) => (Kind::Hash, pieces, 2),
            (Read::Hgetall, Item::Many(b'%', fields)) => (Kind::Hash, fields.checked_mul(2)?, 2),
            (Read::Smembers, Item::Many(b'*' | b'~', pieces)) => (Kind::Set, pieces, 1),
            (Read::Lrange, Item::Many(b'*', pieces)) => (Kind::List, pieces, 1),
            // RESP2: member, score, ...; RESP3: an array of pairs.
            (Read::Zrange, Item::Many(b'*', pieces)) => match items.clone().next()? {
                Item::Many(..) => (Kind::Sorted, pieces.checked_mul(2)?, 2),
                _ => (Kind::Sorted, pieces, 2),
            },
            _ => return None,
        };
        let (mut text, mut ends) = (Vec::with_capacity(reply.len()), Vec::new());
        for item in items.by_ref() {
            match item {
                Item::Text(piece) => text.extend_from_slice(piece),
                Item::Number(score) if kind == Kind::Sorted => text.extend_from_slice(score),
                Item::Many(b'*', 2) if kind == Kind::Sorted => continue,
                _ => return None,
            }
            ends.push(u32::try_from(text.len()).ok()?);
        }
        let whole =
            items.is_at_end() && ends.len() as u64 == pieces && pieces > 0 && pieces.is_multiple_of(each);
        if !whole {
            return None;
        }
        let (text, ends, order) = (text.into(), ends.into(), Box::default());
        let mut value = Value { kind, text, ends, order };
        if matches!(kind, Kind::Hash | Kind::Set | Kind::Sorted) {
            let mut order: Vec<u32> = (0..value.ends.len() as u32).step_by(each as usize).collect();
            order.sort_unstable_by(|a, b| value.piece(*a as usize).cmp(value.piece(*b as usize)));
            value.order = order.into();
        }
        Some(value)
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len() + (self.ends.len() + self.order.len()) * size_of::<u32>()
    }

    fn piece(&self, at: usize) -> &[u8] {
        let from = at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end as usize);
        let end = self.ends.get(at).map_or(from, |end| *end as usize);
        self.text.get(from..end).unwrap_or_default()
    }

    /// The number of the piece that a member is.
    fn find(&self, member: &[u8]) -> Option<usize> {
        let at = self.order.binary_search_by(|piece| self.piece(*piece as usize).cmp(member)).ok()?;
        self.order.get(at).map(|piece| *piece as usize)
    }

    /// Elements of a list, members of a set, fields, members with their scores.
    fn len(&self) -> usize {
        match self.kind {
            Kind::Hash | Kind::Sorted => self.ends.len() / 2,
            _ => self.ends.len(),
        }
    }

    /// Writes what Redis would answer; `three`: in RESP3. Whether it is known what that is: if not, nothing is written.
    pub(super) fn answer(&self, read: Read, request: &Requests, three: bool, to: &mut Vec<u8>) -> bool {
        if request.is_cut() {
            return false;
        }
        let (count, word) = (request.count(), |at| request.word(at).unwrap_or_default());
        let number = |to: &mut Vec<u8>, number: usize| head(to, b':', number as u64);
        let found = || self.find(word(2));
        let part = |at: Option<usize>, to: &mut Vec<u8>| match at {
            Some(at) => bulk(to, self.piece(at)),
            None => null(to, three),
        };
        match (self.kind, read, count) {
            (_, Read::Exists, 2) => number(to, 1),
            (_, Read::Type, 2) => line(to, b'+', self.kind.name()),
            (Kind::String, Read::Get, 2) => bulk(to, &self.text),
            (Kind::String, Read::Strlen, 2) => number(to, self.text.len()),
            (Kind::Hash, Read::Hget, 3) => part(found().map(|at| at + 1), to),
            (Kind::Hash, Read::Hexists, 3) | (Kind::Set, Read::Sismember, 3) => {
                number(to, usize::from(found().is_some()));
            }
            (Kind::Hash, Read::Hmget, 3..) => {
                head(to, b'*', count as u64 - 2);
                for at in 2..count {
                    part(self.find(word(at)).map(|at| at + 1), to);
                }
            }
            (Kind::Hash, Read::Hgetall, 2) => {
                let (kind, items) = if three { (b'%', self.len()) } else { (b'*', self.ends.len()) };
                self.all(kind, items, to);
            }
            (Kind::Set, Read::Smembers, 2) => self.all(if three { b'~' } else { b'*' }, self.len(), to),
            (Kind::Hash, Read::Hlen, 2)
            | (Kind::Set, Read::Scard, 2)
            | (Kind::List, Read::Llen, 2)
            | (Kind::Sorted, Read::Zcard, 2) => number(to, self.len()),
            (Kind::List, Read::Lindex, 3) => {
                let Some(index) = integer(word(2)) else { return false };
                let at = if index < 0 { index.saturating_add(self.len() as i64) } else { index };
                part(usize::try_from(at).ok().filter(|at| *at < self.len()), to);
            }
            (Kind::List, Read::Lrange, 4) => {
                let Some(range) = self.range(word(2), word(3)) else { return false };
                head(to, b'*', range.len() as u64);
                range.for_each(|at| bulk(to, self.piece(at)));
            }
            (Kind::Sorted, Read::Zrange, 4 | 5) => {
                let scores = count == 5;
                if scores && !word(4).eq_ignore_ascii_case(b"withscores") {
                    return false;
                }
                let Some(range) = self.range(word(2), word(3)) else { return false };
                let pairs = scores && three;
                head(to, b'*', range.len() as u64 * if scores && !three { 2 } else { 1 });
                for rank in range {
                    if pairs {
                        head(to, b'*', 2);
                    }
                    bulk(to, self.piece(2 * rank));
                    if scores {
                        score(to, self.piece(2 * rank + 1), three);
                    }
                }
            }
            (Kind::Sorted, Read::Zscore, 3) => match found() {
                Some(at) => score(to, self.piece(at + 1), three),
                None => null(to, three),
            },
            (Kind::Sorted, Read::Zrank, 3) => match found() {
                Some(at) => number(to, at / 2),
                None => null(to, three),
            },
            _ => return false,
        }
        true
    }

    fn all(&self, kind: u8, items: usize, to: &mut Vec<u8>) {
        head(to, kind, items as u64);
        (0..self.ends.len()).for_each(|at| bulk(to, self.piece(at)));
    }

    /// What LRANGE and ZRANGE mean by two numbers.
    fn range(&self, start: &[u8], stop: &[u8]) -> Option<Range<usize>> {
        let len = self.len() as i64;
        let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
        let (start, stop) = (from_end(integer(start)?).max(0), from_end(integer(stop)?).min(len - 1));
        Some(if start > stop { 0..0 } else { start as usize..stop as usize + 1 })
    }
}

impl Kind {
    fn name(self) -> &'static [u8] {
        match self {
            Kind::String => b"string",
            Kind::Hash => b"hash",
            Kind::Set => b"set",
            Kind::List => b"list",
            Kind::Sorted => b"zset",
        }
    }
}

fn null(to: &mut Vec<u8>, three: bool) {
    to.extend_from_slice(if three { b"_\r\n" } else { b"$-1\r\n" });
}

fn score(to: &mut Vec<u8>, text: &[u8], three: bool) {
    if three { line(to, b',', text) } else { bulk(to, text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_kv::resp::item::request;

    fn answer(value: &Value, words: &str, three: bool) -> Option<String> {
        let (mut text, mut requests, mut to) = (Vec::new(), Requests::new(), Vec::new());
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        request(&mut text, &words);
        requests.push(&text);
        let read = Read::named(words[0]).unwrap();
        value
            .answer(read, &requests, three, &mut to)
            .then(|| String::from_utf8(to).unwrap().replace("\r\n", " "))
    }

    /// Words, and what they are answered in RESP2 and in RESP3, if that is known here.
    type Question = (&'static str, Option<&'static str>, Option<&'static str>);

    /// Redis 7.0.15 says the same to the same words, where anything is said here.
    #[test]
    fn a_value_answers_as_redis_does() {
        let cases: &[(Read, &str, &[Question])] = &[
            (
                Read::Get,
                "$3\r\nabc\r\n",
                &[
                    ("GET k", Some("$3 abc "), Some("$3 abc ")),
                    ("STRLEN k", Some(":3 "), Some(":3 ")),
                    ("EXISTS k", Some(":1 "), Some(":1 ")),
                    ("EXISTS k k", None, None),
                    ("TYPE k", Some("+string "), Some("+string ")),
                    ("HGET k f", None, None),
                ],
            ),
            (
                Read::Hgetall,
                "*4\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\na\r\n$0\r\n\r\n",
                &[
                    ("HGET k a", Some("$0  "), Some("$0  ")),
                    ("HGET k c", Some("$-1 "), Some("_ ")),
                    ("HMGET k b c b", Some("*3 $1 2 $-1 $1 2 "), Some("*3 $1 2 _ $1 2 ")),
                    ("HGETALL k", Some("*4 $1 b $1 2 $1 a $0  "), Some("%2 $1 b $1 2 $1 a $0  ")),
                    ("HLEN k", Some(":2 "), Some(":2 ")),
                    ("HEXISTS k 2", Some(":0 "), Some(":0 ")),
                    ("GET k", None, None),
                ],
            ),
            (
                Read::Smembers,
                "~2\r\n$1\r\ny\r\n$1\r\nx\r\n",
                &[
                    ("SMEMBERS k", Some("*2 $1 y $1 x "), Some("~2 $1 y $1 x ")),
                    ("SISMEMBER k x", Some(":1 "), Some(":1 ")),
                    ("SISMEMBER k z", Some(":0 "), Some(":0 ")),
                    ("SCARD k", Some(":2 "), Some(":2 ")),
                ],
            ),
            (
                Read::Lrange,
                "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
                &[
                    ("LRANGE k 0 -1", Some("*3 $1 a $1 b $1 c "), Some("*3 $1 a $1 b $1 c ")),
                    ("LRANGE k -100 1", Some("*2 $1 a $1 b "), Some("*2 $1 a $1 b ")),
                    ("LRANGE k 2 1", Some("*0 "), Some("*0 ")),
                    ("LRANGE k 5 9", Some("*0 "), Some("*0 ")),
                    ("LRANGE k 0 -9", Some("*0 "), Some("*0 ")),
                    ("LRANGE k 0 x", None, None),
                    ("LINDEX k -1", Some("$1 c "), Some("$1 c ")),
                    ("LINDEX k 3", Some("$-1 "), Some("_ ")),
                    ("LINDEX k -4", Some("$-1 "), Some("_ ")),
                    ("LLEN k", Some(":3 "), Some(":3 ")),
                ],
            ),
            (
                Read::Zrange,
                "*2\r\n*2\r\n$1\r\nm\r\n,1.5\r\n*2\r\n$1\r\na\r\n,inf\r\n",
                &[
                    (
                        "ZRANGE k 0 -1 WITHSCORES",
                        Some("*4 $1 m $3 1.5 $1 a $3 inf "),
                        Some("*2 *2 $1 m ,1.5 *2 $1 a ,inf "),
                    ),
                    ("ZRANGE k 1 1", Some("*1 $1 a "), Some("*1 $1 a ")),
                    ("ZRANGE k 0 -1 REV", None, None),
                    ("ZSCORE k a", Some("$3 inf "), Some(",inf ")),
                    ("ZSCORE k b", Some("$-1 "), Some("_ ")),
                    ("ZRANK k a", Some(":1 "), Some(":1 ")),
                    ("ZRANK k 1.5", Some("$-1 "), Some("_ ")),
                    ("ZCARD k", Some(":2 "), Some(":2 ")),
                ],
            ),
        ];
        for (read, reply, questions) in cases {
            let value = Value::from_reply(*read, reply.as_bytes()).unwrap();
            for (words, two, three) in *questions {
                assert_eq!(answer(&value, words, false).as_deref(), *two, "{words}");
                assert_eq!(answer(&value, words, true).as_deref(), *three, "{words}, RESP3");
            }
        }
    }

    #[test]
    fn only_whole_replies_with_a_value_fill() {
        for (read, reply) in [
            (Read::Get, "$-1\r\n"),
            (Read::Get, "-WRONGTYPE x\r\n"),
            (Read::Get, "+QUEUED\r\n"),
            (Read::Hgetall, "*0\r\n"),
            (Read::Hgetall, "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"),
            (Read::Smembers, "*2\r\n$1\r\na\r\n"),
            (Read::Lrange, "*1\r\n$-1\r\n"),
            (Read::Zrange, "*1\r\n$1\r\na\r\n"),
            (Read::Zrange, "*0\r\n"),
        ] {
            assert!(Value::from_reply(read, reply.as_bytes()).is_none(), "{reply:?}");
        }
    }
}
