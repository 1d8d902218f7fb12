//! One client: connections that ask so many things at once, and one that asks one thing at a time. Every answer is compared with Redis' own.

use super::asks::{Asks, shown};
use super::lab::Lab;
use anyhow::{Context as _, Result, bail};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection.
struct Line {
    stream: TcpStream,
    requests: Vec<u8>,
    /// What has to come, and what has.
    wanted: Vec<u8>,
    heard: Vec<u8>,
}

impl Line {
    fn new(stream: TcpStream) -> Self {
        Line { stream, requests: Vec::new(), wanted: Vec::new(), heard: Vec::new() }
    }

    /// Asks for these keys, at once.
    fn say(&mut self, asks: &Asks, keys: impl Iterator<Item = u32>) -> Result<()> {
        self.requests.clear();
        self.wanted.clear();
        for key in keys {
            asks.put(key, &mut self.requests);
            self.wanted.extend_from_slice(asks.answer(key));
        }
        self.stream.write_all(&self.requests).context("a request")
    }

    /// Takes the answers.
    fn hear(&mut self) -> Result<()> {
        self.heard.resize(self.wanted.len(), 0);
        let mut length = 0;
        while length < self.wanted.len() {
            let read = self.stream.read(&mut self.heard[length..]).context("no answer")?;
            if read == 0 {
                bail!("the connection has been ended");
            }
            let end = length + read;
            if self.heard[length..end] != self.wanted[length..end] {
                let (heard, wanted) = (&self.heard[..end], &self.wanted[..end]);
                bail!("a wrong answer: {} where Redis has said {}", shown(heard), shown(wanted));
            }
            length = end;
        }
        Ok(())
    }
}

/// The connections of a client, each with so many requests on their way.
pub(super) struct Fleet {
    lines: Vec<Line>,
    depth: usize,
}

/// What came of a turn.
pub(super) struct Turn {
    pub(super) answers: u64,
    pub(super) rate: f64,
}

impl Fleet {
    pub(super) fn new(lab: &Lab, port: u16, connections: usize, depth: usize) -> Result<Self> {
        let line = |_| lab.connect(port).map(Line::new);
        Ok(Fleet { lines: (0..connections).map(line).collect::<Result<_>>()?, depth })
    }

    /// Asks for the keys of this order, over and over, for so long.
    pub(super) fn ask(&mut self, asks: &Asks, order: &[u32], time: Duration) -> Result<Turn> {
        let (depth, mut next) = (self.depth, order.iter().copied().cycle());
        let (mut answers, started) = (0_u64, Instant::now());
        for line in &mut self.lines {
            line.say(asks, next.by_ref().take(depth))?;
        }
        while started.elapsed() < time {
            for line in &mut self.lines {
                line.hear()?;
                answers += depth as u64;
                line.say(asks, next.by_ref().take(depth))?;
            }
        }
        for line in &mut self.lines {
            line.hear()?;
            answers += depth as u64;
        }
        Ok(Turn { answers, rate: answers as f64 / started.elapsed().as_secs_f64() })
    }

    /// Asks for each of these keys once, by each connection, one after the other.
    pub(super) fn once(&mut self, asks: &Asks, keys: &[u32]) -> Result<()> {
        for line in &mut self.lines {
            for key in keys {
                line.say(asks, std::iter::once(*key))?;
                line.hear()?;
            }
        }
        Ok(())
    }

    /// Round trips of one request at a time by the first connection, ascending, at a low rate.
    pub(super) fn round_trips(
        &mut self,
        asks: &Asks,
        order: &[u32],
        per_second: u32,
        time: Duration,
    ) -> Result<Vec<Duration>> {
        let line = self.lines.first_mut().context("no connection")?;
        let (mut times, gap) = (Vec::new(), Duration::from_secs(1) / per_second);
        let started = Instant::now();
        let mut due = started;
        for key in order.iter().cycle() {
            // Awake, so that the clock of waking up is not measured.
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            due += gap;
            let sent = Instant::now();
            if sent.duration_since(started) >= time {
                break;
            }
            line.say(asks, std::iter::once(*key))?;
            line.hear()?;
            times.push(sent.elapsed());
        }
        times.sort_unstable();
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::super::asks::tests::answered;
    use super::*;
    use std::net::TcpListener;

    /// What a client makes of these bytes where the answers `a` and `b` have to come.
    fn heard(bytes: &str) -> Result<()> {
        let server = TcpListener::bind("127.0.0.1:0")?;
        let mut line = Line::new(TcpStream::connect(server.local_addr()?)?);
        let mut other = server.accept()?.0;
        line.say(&answered(&["$1\r\na\r\n", "$1\r\nb\r\n"]), [0, 1].into_iter())?;
        // Or it would end with a reset.
        assert!(other.read(&mut [0; 1024])? > 0);
        other.write_all(bytes.as_bytes())?;
        drop(other);
        line.hear()
    }

    #[test]
    fn an_answer_that_is_another_ends_the_benchmark() {
        heard("$1\r\na\r\n$1\r\nb\r\n").unwrap();
        for wrong in ["$1\r\na\r\n$1\r\na\r\n", "$1\r\nb\r\n$1\r\na\r\n", "$-1\r\n$1\r\nb\r\n", "-ERR x\r\n"]
        {
            assert!(heard(wrong).unwrap_err().to_string().contains("a wrong answer"), "{wrong}");
        }
        assert!(heard("$1\r\na\r\n").is_err(), "half of them");
    }
}
