//! What is asked, and what Redis has answered to it: each answer of the benchmark is compared with that.

use super::lab::{Lab, REDIS};
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use tidemill_kv::resp::item::request;
use tidemill_kv::resp::reply::{Frame, Replies};

/// Digits of a key's number.
const DIGITS: usize = 7;
/// Requests that are sent at once when keys are set and answers are learnt.
const CHUNK: u32 = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Ask {
    /// GET of 64 strings, all of them kept by the front
    Get,
    /// HGETALL of 64 hashes, likewise
    Hgetall,
    /// SMEMBERS of 64 sets
    Smembers,
    /// LRANGE, from the first to the last, of 64 lists
    Lrange,
    /// ZRANGE, from the first to the last, with scores, of 64 sorted sets
    Zrange,
    /// GET of keys that are not there: nothing of it can be kept, and all of it passes through the front
    Absent,
    /// GET of many strings (--keys), by Zipf's law, exponent 0.99: more than the front may have room for
    Zipf,
}

impl Ask {
    pub(super) fn name(self) -> &'static str {
        match self {
            Ask::Get => "get",
            Ask::Hgetall => "hgetall",
            Ask::Smembers => "smembers",
            Ask::Lrange => "lrange",
            Ask::Zrange => "zrange",
            Ask::Absent => "absent",
            Ask::Zipf => "zipf",
        }
    }

    /// The words of a request; `KEY` is where the key stands.
    fn words(self) -> &'static str {
        match self {
            Ask::Get | Ask::Absent | Ask::Zipf => "GET KEY",
            Ask::Hgetall => "HGETALL KEY",
            Ask::Smembers => "SMEMBERS KEY",
            Ask::Lrange => "LRANGE KEY 0 -1",
            Ask::Zrange => "ZRANGE KEY 0 -1 WITHSCORES",
        }
    }

    fn key(self, number: u32) -> String {
        format!("{}:{number:0DIGITS$}", self.name())
    }

    /// The words that set a key, if any do: values of so many bytes, so many elements.
    fn setting(self, number: u32, value: usize, elements: u32) -> Option<Vec<String>> {
        let element = |at: u32| text(u64::from(number) * u64::from(elements) + u64::from(at), value);
        let all = |word: &str, each: &dyn Fn(u32) -> Vec<String>| -> Option<Vec<String>> {
            let head = [word.to_owned(), self.key(number)];
            Some(head.into_iter().chain((0..elements).flat_map(each)).collect())
        };
        match self {
            Ask::Absent => None,
            Ask::Get | Ask::Zipf => {
                Some(vec!["SET".to_owned(), self.key(number), text(number.into(), value)])
            }
            Ask::Hgetall => all("HSET", &|at: u32| vec![format!("field:{at}"), element(at)]),
            Ask::Smembers => all("SADD", &|at: u32| vec![element(at)]),
            Ask::Lrange => all("RPUSH", &|at: u32| vec![element(at)]),
            Ask::Zrange => all("ZADD", &|at: u32| vec![at.to_string(), element(at)]),
        }
    }

    /// A set or a hash that was made moves its members on with what is looked for in it, and so may change their order; the same words once more, and it is done with that.
    fn times(self) -> usize {
        if matches!(self, Ask::Hgetall | Ask::Smembers) { 2 } else { 1 }
    }

    /// Whether it is what Redis says of what was set.
    fn is_answer(self, answer: &[u8]) -> bool {
        let nothing = b"$-1\r\n";
        match self {
            Ask::Absent => answer == nothing,
            _ => answer != nothing && !answer.starts_with(b"-") && !answer.starts_with(b"*0\r\n"),
        }
    }
}

/// A number, in so many bytes.
fn text(number: u64, bytes: usize) -> String {
    let digits = format!("{number:0bytes$}");
    digits[digits.len() - bytes..].to_owned()
}

/// Requests for keys, and Redis' answers.
pub(super) struct Asks {
    /// The request for key 0, and where its digits are.
    request: Vec<u8>,
    digits: usize,
    /// The answers, one behind the other, and where each ends.
    answers: Vec<u8>,
    ends: Vec<usize>,
}

impl Asks {
    /// Sets so many keys, past the front, and learns what Redis says of each.
    pub(super) fn new(lab: &Lab, ask: Ask, keys: u32, value: usize, elements: u32) -> Result<Self> {
        let mut asks = Asks::unanswered(ask)?;
        let mut redis = lab.connect(REDIS)?;
        for first in (0..keys).step_by(CHUNK as usize) {
            let numbers = first..keys.min(first + CHUNK);
            let (mut sets, mut count) = (Vec::new(), 0);
            for words in numbers.clone().filter_map(|number| ask.setting(number, value, elements)) {
                let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
                request(&mut sets, &words);
                count += 1;
            }
            for _ in 0..ask.times() {
                let (mut said, mut ends) = (Vec::new(), Vec::new());
                redis.write_all(&sets)?;
                replies(&mut redis, count, &mut said, &mut ends)?;
                // ":1", "+OK"
                if said.contains(&b'-') {
                    bail!("Redis refuses a value: {}", shown(&said));
                }
            }
            let mut gets = Vec::new();
            numbers.clone().for_each(|number| asks.put(number, &mut gets));
            redis.write_all(&gets)?;
            replies(&mut redis, numbers.len(), &mut asks.answers, &mut asks.ends)?;
            for number in numbers {
                if !ask.is_answer(asks.answer(number)) {
                    bail!("Redis answers {} for {}", shown(asks.answer(number)), ask.key(number));
                }
            }
        }
        Ok(asks)
    }

    fn unanswered(ask: Ask) -> Result<Self> {
        let key = ask.key(0);
        let words = ask.words().split(' ').map(|word| match word {
            "KEY" => key.as_bytes(),
            word => word.as_bytes(),
        });
        let mut whole = Vec::new();
        request(&mut whole, &words.collect::<Vec<_>>());
        let digits = whole.windows(DIGITS).position(|digits| digits == [b'0'; DIGITS]);
        let digits = digits.context("a request without a key")?;
        Ok(Asks { request: whole, digits, answers: Vec::new(), ends: Vec::new() })
    }

    /// Writes the request for a key.
    pub(super) fn put(&self, number: u32, to: &mut Vec<u8>) {
        let at = to.len() + self.digits;
        to.extend_from_slice(&self.request);
        let mut left = number;
        for digit in to[at..at + DIGITS].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
    }

    /// What Redis has said to it.
    pub(super) fn answer(&self, number: u32) -> &[u8] {
        let at = number as usize;
        let from = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.answers[from..self.ends[at]]
    }
}

/// Takes so many replies, and notes where each ends.
fn replies(from: &mut TcpStream, count: usize, to: &mut Vec<u8>, ends: &mut Vec<usize>) -> Result<()> {
    let (mut frames, mut bytes, mut left) = (Replies::new(), vec![0; 64 << 10], count);
    while left > 0 {
        let read = from.read(&mut bytes).context("Redis does not answer")?;
        if read == 0 {
            bail!("Redis has ended the connection");
        }
        let mut rest = &bytes[..read];
        while !rest.is_empty() {
            let (taken, frame) = frames.push(rest);
            to.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            match frame {
                Frame::More => {}
                Frame::Reply if left > 0 => {
                    ends.push(to.len());
                    left -= 1;
                }
                _ => bail!("Redis says what was not asked for: {}", shown(to)),
            }
        }
    }
    Ok(())
}

/// The end of it, for a reader.
pub(super) fn shown(bytes: &[u8]) -> String {
    let end = &bytes[bytes.len().saturating_sub(200)..];
    format!("{:?}", String::from_utf8_lossy(end))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// GETs of keys with these answers.
    pub(in crate::bench::redis) fn answered(answers: &[&str]) -> Asks {
        let mut asks = Asks::unanswered(Ask::Get).unwrap();
        for answer in answers {
            asks.answers.extend_from_slice(answer.as_bytes());
            asks.ends.push(asks.answers.len());
        }
        asks
    }

    #[test]
    fn requests_and_what_sets_their_keys() {
        let mut both = Vec::new();
        let asks = Asks::unanswered(Ask::Lrange).unwrap();
        [0, 1_234_567].iter().for_each(|number| asks.put(*number, &mut both));
        let one =
            |digits: &str| format!("*4\r\n$6\r\nLRANGE\r\n$14\r\nlrange:{digits}\r\n$1\r\n0\r\n$2\r\n-1\r\n");
        assert_eq!(String::from_utf8(both).unwrap(), one("0000000") + &one("1234567"));
        let words = |ask: Ask| ask.setting(12, 3, 2).unwrap_or_default().join(" ");
        assert_eq!(words(Ask::Get), "SET get:0000012 012");
        assert_eq!(words(Ask::Hgetall), "HSET hgetall:0000012 field:0 024 field:1 025");
        assert_eq!(words(Ask::Zrange), "ZADD zrange:0000012 0 024 1 025");
        assert_eq!((words(Ask::Absent), text(12_345, 3)), (String::new(), "345".to_owned()));
    }

    #[test]
    fn answers_are_told_apart() {
        let asks = answered(&["$1\r\na\r\n", "$-1\r\n"]);
        assert_eq!((asks.answer(0), asks.answer(1)), (&b"$1\r\na\r\n"[..], &b"$-1\r\n"[..]));
        assert!(Ask::Get.is_answer(asks.answer(0)) && !Ask::Get.is_answer(asks.answer(1)));
        assert!(Ask::Absent.is_answer(asks.answer(1)) && !Ask::Absent.is_answer(b"-ERR\r\n"));
        assert!(!Ask::Lrange.is_answer(b"*0\r\n") && !Ask::Lrange.is_answer(b"-WRONGTYPE x\r\n"));
    }
}
