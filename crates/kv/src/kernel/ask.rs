//! Asks memcached for values and how long they will be true: `mg KEY v f t s`, many at a time, over TCP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What memcached says of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) value: Vec<u8>,
    pub(super) flags: u32,
    /// Seconds; `None`: it does not expire.
    pub(super) remaining_s: Option<u64>,
}

/// How long an answer may take. Longer than this, and nothing is known of how memcached works meanwhile.
const PATIENCE: Duration = Duration::from_millis(400);
/// More of one answer is no answer.
const MAX_ANSWER: usize = 64 << 20;

/// A connection to memcached.
#[derive(Debug)]
pub(super) struct Asker {
    stream: TcpStream,
    input: Vec<u8>,
    at: usize,
}

impl Asker {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Asker { stream, input: Vec::new(), at: 0 })
    }

    /// Both ends of it.
    pub(super) fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.stream.local_addr()?, self.stream.peer_addr()?))
    }

    fn more(&mut self) -> io::Result<()> {
        self.input.drain(..self.at);
        self.at = 0;
        let (had, mut room) = (self.input.len(), [0; 16384]);
        let read = self.stream.read(&mut room)?;
        if read == 0 || had > MAX_ANSWER {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        self.input.extend_from_slice(&room[..read]);
        Ok(())
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let rest = &self.input[self.at..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]).to_vec();
                self.at += end + 1;
                return Ok(line);
            }
            self.more()?;
        }
    }

    fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.input.len() - self.at < count {
            self.more()?;
        }
        let bytes = self.input[self.at..self.at + count].to_vec();
        self.at += count;
        Ok(bytes)
    }

    /// Whether it answers at all.
    pub(super) fn beat(&mut self) -> io::Result<()> {
        self.stream.write_all(b"mn\r\n")?;
        self.line().map(drop)
    }

    /// What is known of these keys, in order.
    pub(super) fn ask(&mut self, keys: &[&[u8]]) -> io::Result<Vec<Option<Answer>>> {
        let mut request = Vec::with_capacity(keys.len() * 64);
        for key in keys {
            request.extend_from_slice(b"mg ");
            request.extend_from_slice(key);
            request.extend_from_slice(b" v f t s\r\n");
        }
        self.stream.write_all(&request)?;
        keys.iter().map(|_| self.answer()).collect()
    }

    fn answer(&mut self) -> io::Result<Option<Answer>> {
        let line = self.line()?;
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split(' ');
        if words.next() != Some("VA") {
            return Ok(None);
        }
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let length: usize = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
        if length > MAX_ANSWER {
            return Err(bad());
        }
        let mut value = self.bytes(length + 2)?;
        if !value.ends_with(b"\r\n") {
            return Err(bad());
        }
        value.truncate(length);
        let (mut flags, mut remaining) = (None, None);
        for word in words {
            match word.split_at_checked(1) {
                Some(("f", number)) => flags = number.parse().ok(),
                Some(("t", number)) => remaining = number.parse::<i64>().ok(),
                Some(("s", number)) if number.parse() == Ok(length) => {}
                // W, X, Z: somebody is to make a new one. Anything else is not known to us.
                _ => return Ok(None),
            }
        }
        let (Some(flags), Some(remaining)) = (flags, remaining) else { return Ok(None) };
        let remaining_s = match remaining {
            -1 => None,
            seconds => Some(u64::try_from(seconds).map_err(|_| bad())?),
        };
        Ok(Some(Answer { value, flags, remaining_s }))
    }
}
