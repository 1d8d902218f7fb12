//! Requests in pieces.
//!
//! ```text
//!  *2 CRLF $3 CRLF GET CRLF $1 CRLF k CRLF     an array of bulk strings: the two bytes behind a string are skipped, whatever they are
//!  GET k LF                                    inline: words between white space; CR before LF is white space
//!  *0 CRLF, *-1 CRLF, LF                       no words: Redis does nothing, and answers nothing
//! ```
//! Words are kept as far as there is room ([`KEPT`], [`WORDS`]); of a request with more the first are, and it is *cut*. So what a connection takes is bounded, and a value of
//! 512 MiB goes by uncopied.

use super::integer;

/// Bytes of a request's words that are kept.
pub const KEPT: usize = 64 << 10;
/// Words of a request that are kept.
pub const WORDS: usize = 4096;
/// The longest inline command; Redis' own limit.
const INLINE: usize = 64 << 10;
/// Longer than any number.
const NUMBER: usize = 24;
/// The longest bulk string, as Redis is configured by default.
const BULK: i64 = 512 << 20;

/// How far a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It goes on.
    More,
    /// It has ended: its words are there until the next byte is read.
    Whole,
    /// Redis answers an error and ends the connection, or may read it in another way.
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Between two requests.
    #[default]
    Start,
    Inline,
    /// In the number behind `*`.
    Count,
    /// A `$` has to come; so many words are left.
    Dollar(u32),
    /// In the number behind it.
    Length(u32),
    /// In a word: so many words are left, so many bytes of this one, so many of the two behind it.
    Word(u32, u64, u8),
    Broken,
}

/// Reads one direction of a connection.
#[derive(Debug, Default)]
pub struct Requests {
    state: State,
    /// Of the number, or of the inline command.
    line: Vec<u8>,
    /// The words, one behind the other.
    text: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    count: usize,
    cut: bool,
}

impl Requests {
    /// At the beginning of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads to the end of the request, or of the bytes; how many were read.
    pub fn push(&mut self, bytes: &[u8]) -> (usize, Step) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.state {
                State::Broken => return (at, Step::Broken),
                State::Start => {
                    self.line.clear();
                    self.text.clear();
                    self.ends.clear();
                    (self.count, self.cut) = (0, false);
                    self.state = if byte == b'*' { State::Count } else { State::Inline };
                    at += usize::from(byte == b'*');
                    continue;
                }
                State::Word(left, value, behind) if value > 0 => {
                    let there = &bytes[at..];
                    let take = usize::try_from(value).map_or(there.len(), |value| value.min(there.len()));
                    if !self.cut {
                        self.text.extend_from_slice(&there[..take]);
                    }
                    self.state = State::Word(left, value - take as u64, behind);
                    at += take;
                    continue;
                }
                _ => at += 1,
            }
            match self.byte(byte) {
                Step::More => {}
                Step::Whole => {
                    self.state = State::Start;
                    return (at, Step::Whole);
                }
                Step::Broken => {
                    self.state = State::Broken;
                    return (at, Step::Broken);
                }
            }
        }
        (at, if self.state == State::Broken { Step::Broken } else { Step::More })
    }

    /// A byte that is in no word.
    fn byte(&mut self, byte: u8) -> Step {
        match self.state {
            State::Inline if byte == b'\n' => self.split(),
            State::Inline => self.keep(byte, INLINE),
            State::Count | State::Length(_) if byte != b'\n' => self.keep(byte, NUMBER),
            State::Count | State::Length(_) => match self.line.strip_suffix(b"\r").and_then(integer) {
                Some(number) => self.number(number),
                None => Step::Broken,
            },
            State::Dollar(left) if byte == b'$' => {
                self.line.clear();
                self.state = State::Length(left);
                Step::More
            }
            State::Word(left, _, behind) if behind > 1 => {
                self.state = State::Word(left, 0, behind - 1);
                Step::More
            }
            State::Word(left, ..) => {
                if !self.cut {
                    self.ends.push(self.text.len());
                }
                self.state = State::Dollar(left);
                if left == 0 { Step::Whole } else { Step::More }
            }
            State::Dollar(_) | State::Start | State::Broken => Step::Broken,
        }
    }

    fn keep(&mut self, byte: u8, most: usize) -> Step {
        self.line.push(byte);
        if self.line.len() > most { Step::Broken } else { Step::More }
    }

    /// Behind `*`, or `$`.
    fn number(&mut self, number: i64) -> Step {
        match self.state {
            State::Length(left) if (0..=BULK).contains(&number) => {
                let bytes = number.unsigned_abs();
                self.cut |= self.text.len() as u64 + bytes > KEPT as u64 || self.ends.len() >= WORDS;
                self.state = State::Word(left - 1, bytes, 2);
                Step::More
            }
            State::Count if number <= 0 => Step::Whole,
            State::Count if number <= i64::from(i32::MAX) => {
                self.count = number as usize;
                self.state = State::Dollar(number as u32);
                Step::More
            }
            _ => Step::Broken,
        }
    }

    /// The words of an inline command.
    fn split(&mut self) -> Step {
        let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c);
        // What is in quotes has escapes, and is one word with what is beside it.
        if self.line.iter().any(|byte| matches!(byte, b'"' | b'\'' | 0)) {
            return Step::Broken;
        }
        for word in self.line.split(space).filter(|word| !word.is_empty()) {
            self.count += 1;
            self.cut |= self.ends.len() >= WORDS;
            if !self.cut {
                self.text.extend_from_slice(word);
                self.ends.push(self.text.len());
            }
        }
        Step::Whole
    }

    /// How many words it has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether not all of them are kept.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// One of them, if it is kept.
    pub fn word(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends.get(at)?;
        let from = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.text.get(from..end)
    }

    /// Those that are kept.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).filter_map(|at| self.word(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every request of a text: its words, how many it has; and how it ends.
    fn all(pieces: &[&[u8]]) -> (Vec<(Vec<String>, usize, bool)>, Step) {
        let (mut requests, mut all) = (Requests::new(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let (read, step) = requests.push(rest);
                rest = &rest[read..];
                match step {
                    Step::More => assert!(rest.is_empty()),
                    Step::Whole => {
                        let word = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
                        all.push((requests.words().map(word).collect(), requests.count(), requests.is_cut()));
                    }
                    Step::Broken => return (all, Step::Broken),
                }
            }
        }
        (all, Step::More)
    }

    fn words(text: &str) -> Vec<Vec<String>> {
        let (whole, step) = all(&[text.as_bytes()]);
        assert_eq!(step, Step::More, "{text:?}");
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(all(&bytes), (whole.clone(), step), "{text:?} byte by byte");
        whole.into_iter().map(|(words, ..)| words).collect()
    }

    #[test]
    fn arrays_and_lines() {
        let get = ["GET", "k"];
        assert_eq!(words("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), [get]);
        assert_eq!(words("GET k\r\nGET  k\n\t GET k \r\n"), [get, get, get]);
        assert_eq!(words("*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\n\r\n*1\r\n"), [["SET", "", "\r\n*1"]]);
        assert_eq!(words("*0\r\n*-1\r\n\r\nPING\r\n"), [&[][..], &[], &[], &["PING".to_owned()]]);
        // What is behind a string is not looked at, as Redis does not.
        assert_eq!(words("*1\r\n$4\r\nPINGxy*1\r\n$4\r\nECHO\r\n"), [["PING"], ["ECHO"]]);
    }

    #[test]
    fn what_cannot_be_read_is_broken_for_good() {
        for text in [
            "*x\r\n",
            "*01\r\n",
            "*\r\n",
            "*1\n",
            "*2147483648\r\n",
            "*1\r\nPING\r\n",
            "*1\r\n:1\r\n",
            "*1\r\n$-1\r\n",
            "*1\r\n$536870913\r\n",
            "*1\r\n$1\rx\nk\r\n",
            "*1111111111111111111111111",
            "GET \"k\"\r\n",
            "GET 'k'\r\n",
            "GET \0\r\n",
        ] {
            let mut requests = Requests::new();
            let mut step = Step::More;
            for byte in text.as_bytes() {
                if step == Step::More {
                    step = requests.push(&[*byte]).1;
                }
            }
            assert_eq!(step, Step::Broken, "{text:?}");
            assert_eq!(requests.push(b"PING\r\n"), (0, Step::Broken));
        }
        let long = vec![b'a'; INLINE + 1];
        assert_eq!(all(&[&long[..]]).1, Step::Broken);
    }

    #[test]
    fn more_than_is_kept_goes_by() {
        let value = vec![b'v'; KEPT];
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${KEPT}\r\n");
        let (read, step) = all(&[head.as_bytes(), &value[..100], &value[100..], b"\r\nPING\r\n"]);
        assert_eq!(step, Step::More);
        assert_eq!(read[0], (vec!["SET".to_owned(), "k".to_owned()], 3, true));
        assert_eq!(read[1], (vec!["PING".to_owned()], 1, false));
        let many = format!("*{}\r\n{}", WORDS + 2, "$1\r\nx\r\n".repeat(WORDS + 2));
        let (read, _) = all(&[many.as_bytes()]);
        assert_eq!((read[0].0.len(), read[0].1, read[0].2), (WORDS, WORDS + 2, true));
    }
}
