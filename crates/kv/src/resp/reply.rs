//! Replies in pieces: where each ends. Nothing is kept of them, and they may be of any depth: an array is as many items more.

use super::integer;

/// Longer than the number of any header.
const NUMBER: usize = 24;

/// How far a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// It goes on.
    More,
    /// A reply has ended.
    Reply,
    /// A push has ended (RESP3): it answers no request.
    Push,
    /// That is no reply, or of a form that Redis does not send.
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// A type has to come.
    #[default]
    Type,
    /// In the line of an item that is one.
    Line,
    /// In the number of a string, or of an array: so many items for each of it.
    Bytes,
    Items(u64),
    /// In a string.
    Text(u64),
    Broken,
}

/// Reads the replies of a connection.
#[derive(Debug, Default)]
pub struct Replies {
    state: State,
    line: Vec<u8>,
    /// Items still to come; 0 is between two replies.
    left: u64,
    push: bool,
}

impl Replies {
    /// At the beginning of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether no reply is half there.
    pub fn is_between(&self) -> bool {
        self.left == 0 && self.state == State::Type
    }

    /// Reads to the end of the reply, or of the bytes; how many were read.
    pub fn push(&mut self, bytes: &[u8]) -> (usize, Frame) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let good = match self.state {
                State::Broken => return (at, Frame::Broken),
                State::Text(left) => {
                    let there = bytes.len() - at;
                    let take = usize::try_from(left).map_or(there, |left| left.min(there));
                    at += take;
                    self.state = State::Text(left - take as u64);
                    if left == take as u64 { self.ended(0) } else { Some(Frame::More) }
                }
                State::Type => {
                    at += 1;
                    self.begin(byte)
                }
                State::Line | State::Bytes | State::Items(_) => {
                    at += 1;
                    self.header(byte)
                }
            };
            match good {
                Some(Frame::More) => {}
                Some(frame) => return (at, frame),
                None => {
                    self.state = State::Broken;
                    return (at, Frame::Broken);
                }
            }
        }
        (at, if self.state == State::Broken { Frame::Broken } else { Frame::More })
    }

    fn begin(&mut self, byte: u8) -> Option<Frame> {
        if self.left == 0 {
            (self.left, self.push) = (1, byte == b'>');
        }
        self.line.clear();
        self.state = match byte {
            b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => State::Line,
            b'$' | b'!' | b'=' => State::Bytes,
            b'*' | b'~' | b'>' => State::Items(1),
            // Attributes come before what they are of.
            b'%' | b'|' => State::Items(2),
            _ => return None,
        };
        if byte == b'|' {
            self.left = self.left.checked_add(1)?;
        }
        Some(Frame::More)
    }

    /// In a line; of a long one the last byte is enough.
    fn header(&mut self, byte: u8) -> Option<Frame> {
        if byte != b'\n' || self.line.last() != Some(&b'\r') {
            if self.line.len() >= NUMBER {
                if self.state != State::Line {
                    return None;
                }
                self.line.clear();
            }
            self.line.push(byte);
            return Some(Frame::More);
        }
        self.line.pop();
        let (state, number) = (self.state, integer(&self.line));
        match (state, number) {
            (State::Line, _) | (State::Bytes | State::Items(_), Some(-1)) => self.ended(0),
            (State::Bytes, Some(bytes @ 0..)) => {
                self.state = State::Text(bytes.unsigned_abs() + 2);
                Some(Frame::More)
            }
            (State::Items(each), Some(items @ 0..)) => self.ended(items.unsigned_abs().checked_mul(each)?),
            _ => None,
        }
    }

    /// An item has ended, and so many belong to it.
    fn ended(&mut self, more: u64) -> Option<Frame> {
        self.state = State::Type;
        self.left = self.left.checked_sub(1)?.checked_add(more)?;
        Some(match self.left {
            0 if self.push => Frame::Push,
            0 => Frame::Reply,
            _ => Frame::More,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(pieces: &[&[u8]]) -> Vec<(usize, Frame)> {
        let (mut replies, mut frames, mut place) = (Replies::new(), Vec::new(), 0);
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let (read, frame) = replies.push(rest);
                rest = &rest[read..];
                place += read;
                match frame {
                    Frame::More => assert!(rest.is_empty()),
                    Frame::Broken => {
                        frames.push((place, frame));
                        return frames;
                    }
                    _ => frames.push((place, frame)),
                }
            }
        }
        assert_eq!(frames.last().is_some_and(|(end, _)| *end == place), replies.is_between());
        frames
    }

    #[test]
    fn each_ends_where_it_ends() {
        let replies: &[(&str, Frame)] = &[
            ("+OK\r\n", Frame::Reply),
            ("-ERR an error that is longer than any number is\r\n", Frame::Reply),
            (":-17\r\n", Frame::Reply),
            ("$-1\r\n", Frame::Reply),
            ("$0\r\n\r\n", Frame::Reply),
            ("$6\r\nab\r\ncd\r\n", Frame::Reply),
            ("*-1\r\n", Frame::Reply),
            ("*0\r\n", Frame::Reply),
            ("*3\r\n:1\r\n*2\r\n$1\r\na\r\n*0\r\n$-1\r\n", Frame::Reply),
            ("_\r\n", Frame::Reply),
            ("#t\r\n", Frame::Reply),
            (",inf\r\n", Frame::Reply),
            ("=5\r\ntxt:a\r\n", Frame::Reply),
            ("%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n,1.5\r\n", Frame::Reply),
            (">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n", Frame::Push),
            ("|1\r\n+ttl\r\n:5\r\n$1\r\nx\r\n", Frame::Reply),
        ];
        let text: String = replies.iter().map(|(text, _)| *text).collect();
        let mut place = 0;
        let ends = replies.iter().map(|(text, frame)| {
            place += text.len();
            (place, *frame)
        });
        let ends: Vec<_> = ends.collect();
        assert_eq!(frames(&[text.as_bytes()]), ends);
        assert_eq!(frames(&text.as_bytes().chunks(1).collect::<Vec<_>>()), ends);
        assert_eq!(frames(&text.as_bytes().chunks(7).collect::<Vec<_>>()), ends);
    }

    #[test]
    fn anything_else_is_broken() {
        for text in
            ["x", "$x\r\n", "$-2\r\n", "$1\n\r\n", "*18446744073709551616\r\n", "$?\r\n", "*1\r\n\r\n"]
        {
            assert_eq!(
                frames(&[text.as_bytes()]).last().map(|(_, frame)| *frame),
                Some(Frame::Broken),
                "{text:?}"
            );
        }
        let deep = "*9223372036854775807\r\n".repeat(3);
        assert_eq!(frames(&[deep.as_bytes()]).last().map(|(_, frame)| *frame), Some(Frame::Broken));
    }
}
