//! Records into messages, messages to the collector, templates again and again. Time is handed in; so is what sends.

use crate::ipfix::message::{Message, Statistics};
use crate::ipfix::record::Record;
use std::io::{self, ErrorKind};

/// What a message held that could not be sent, and what was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// Records.
    pub records: u64,
    /// Packets in them.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Left {
    fn of(record: &Record) -> Self {
        Left { records: 1, packets: record.packets, bytes: record.bytes }
    }

    fn add(&mut self, more: Left) {
        self.records += more.records;
        self.packets += more.packets;
        self.bytes += more.bytes;
    }
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flushed {
    Sent,
    /// It is kept.
    Later,
    Lost,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Exporter {
    message: Message,
    domain: u32,
    template_ms: u64,
    /// Records that were sent, modulo 2^32: the next message's sequence number.
    sequence: u32,
    /// When the templates were sent last.
    told_ms: Option<u64>,
    /// What of flows is in the message.
    inside: Left,
    /// A record that a full message had no room for while nobody took that.
    waiting: Option<Record>,
    sent: Left,
    unsent: Left,
    messages: u64,
    message_bytes: u64,
}

impl Exporter {
    /// One whose messages have at most so many bytes, 512 at least, and that repeats its templates after so long.
    pub fn new(message_bytes: usize, domain: u32, template_ms: u64) -> Self {
        Exporter {
            message: Message::new(message_bytes.clamp(512, 65_000)),
            domain,
            template_ms,
            sequence: 0,
            told_ms: None,
            inside: Left::default(),
            waiting: None,
            sent: Left::default(),
            unsent: Left::default(),
            messages: 0,
            message_bytes: 0,
        }
    }

    /// Records that were sent.
    pub fn sent(&self) -> Left {
        self.sent
    }

    /// Records that could not be.
    pub fn unsent(&self) -> Left {
        self.unsent
    }

    /// Messages that were sent, and their bytes.
    pub fn messages(&self) -> (u64, u64) {
        (self.messages, self.message_bytes)
    }

    /// Whoever takes messages from now on knows no templates yet: the next message begins with them.
    pub fn begin_anew(&mut self) {
        self.told_ms = None;
    }

    /// Sends what it has: `next` gives records until there are none, `send` takes messages. `ignored` packets and bytes were not metered. Returns
    /// whether there was anything. If `send` would block, that message is kept, and sent first the next time.
    pub fn run(
        &mut self,
        now_ms: u64,
        ignored: (u64, u64),
        mut next: impl FnMut() -> Option<Record>,
        mut send: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> bool {
        let mut any = false;
        let due = self.told_ms.is_none_or(|told_ms| now_ms.saturating_sub(told_ms) >= self.template_ms);
        if due {
            // Templates begin a message of their own: nothing that was kept gets into the way.
            if self.flush(now_ms, &mut send) == Flushed::Later {
                return false;
            }
            self.message.put_templates();
            let of = self.statistics(ignored);
            self.message.put_statistics(self.domain, &of);
            match self.flush(now_ms, &mut send) {
                Flushed::Later => return false,
                // The next time begins with them again: nobody understands records without.
                Flushed::Lost => {}
                Flushed::Sent => {
                    self.told_ms = Some(now_ms);
                    any = true;
                }
            }
        }
        while let Some(record) = self.waiting.take().or_else(&mut next) {
            any = true;
            if !self.message.put_record(&record) {
                // An empty one has room for it.
                let flushed = self.flush(now_ms, &mut send);
                if flushed == Flushed::Later || !self.message.put_record(&record) {
                    self.waiting = Some(record);
                    return false;
                }
            }
            self.inside.add(Left::of(&record));
        }
        any | (!self.message.is_empty() && self.flush(now_ms, &mut send) != Flushed::Later)
    }

    /// Sends the last of it: what was left out, once more.
    pub fn end(&mut self, now_ms: u64, ignored: (u64, u64), mut send: impl FnMut(&[u8]) -> io::Result<()>) {
        if self.flush(now_ms, &mut send) == Flushed::Later {
            // There is no next time.
            self.unsent.add(std::mem::take(&mut self.inside));
            self.message.clear();
        }
        self.waiting.take().iter().for_each(|record| self.unsent.add(Left::of(record)));
        let of = self.statistics(ignored);
        self.message.put_statistics(self.domain, &of);
        self.flush(now_ms, &mut send);
    }

    fn statistics(&self, (ignored_packets, ignored_bytes): (u64, u64)) -> Statistics {
        Statistics {
            messages: self.messages,
            records: self.sent.records,
            bytes: self.message_bytes,
            ignored_packets,
            ignored_bytes,
            unsent: self.unsent.records,
            unsent_packets: self.unsent.packets,
            unsent_bytes: self.unsent.bytes,
        }
    }

    /// Sends the message, if there is one.
    fn flush(&mut self, now_ms: u64, send: &mut impl FnMut(&[u8]) -> io::Result<()>) -> Flushed {
        if self.message.is_empty() {
            return Flushed::Sent;
        }
        let records = self.message.records();
        let bytes = self.message.finish((now_ms / 1000) as u32, self.sequence, self.domain);
        let length = bytes.len() as u64;
        let mut result = send(bytes);
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            // That was said about the message before, and this one was not sent for it.
            result = send(bytes);
        }
        let flushed = match result {
            Ok(()) => {
                self.messages += 1;
                self.message_bytes += length;
                self.sequence = self.sequence.wrapping_add(records);
                self.sent.add(std::mem::take(&mut self.inside));
                Flushed::Sent
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Flushed::Later,
            Err(_) => {
                self.unsent.add(std::mem::take(&mut self.inside));
                Flushed::Lost
            }
        };
        self.message.clear();
        flushed
    }
}
