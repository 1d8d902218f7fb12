//! One of the randomised clients: it has sockets of every kind, does one thing after the other, and writes down what it saw.

use super::client::{Tcp, Udp};
use super::history::{Action, Event, Expiry, OPEN, Outcome, trimmed};
use super::wire::{self, Ask, MODES, Mode, SPEECHES, Said, Speech};
use crate::rng::Rng;
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The keys that all clients fight for. The last ones hold numbers only.
pub(crate) struct Keys {
    pub(crate) names: Vec<Vec<u8>>,
    /// From here on they are numbers.
    pub(crate) numbers: usize,
}

/// What a round is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Commands of each client.
    pub(crate) commands: usize,
    /// Between two of them at most.
    pub(crate) pause: Duration,
    /// Mostly reads, and nothing that makes everything void: `flush_all`, datagrams in fragments. Else there would hardly be a hit.
    pub(crate) calm: bool,
    /// One of them asks for a flush in a second or two.
    pub(crate) later: bool,
    /// Items are made stale: from then on a cache asks in another way, and keeps less.
    pub(crate) stale: bool,
    /// memcached is killed: nothing goes by connections, as of what is unanswered there nothing would be known; and numbers for `cas` are not used, as the next memcached
    /// gives the same ones again.
    pub(crate) mortal: bool,
}

/// What an actor saw of each key.
pub(crate) type Seen = Vec<(usize, Event)>;

/// Seconds after which a time to live is a date for memcached: 30 days.
const MONTH_S: i64 = 60 * 60 * 24 * 30;

/// A client.
pub(crate) struct Actor {
    pub(crate) number: usize,
    rng: Rng,
    epoch: Instant,
    udp: Vec<Udp>,
    text: Tcp,
    binary: Tcp,
    /// Of each connection: events without a reply, which have happened once the next one comes.
    silent: [Vec<usize>; 2],
    seen: Seen,
    /// By key: the number for `cas`, and what it came with.
    tokens: HashMap<usize, (u64, Vec<u8>)>,
    made: u64,
    calm: bool,
    stale: bool,
    mortal: bool,
    /// UDP requests, and those without a reply.
    pub(crate) asked: u64,
    pub(crate) lost: u64,
}

impl Actor {
    /// `text` and `binary`: connections for either kind of protocol.
    pub(crate) fn new(
        number: usize,
        seed: u64,
        epoch: Instant,
        udp: Vec<Udp>,
        [text, binary]: [Tcp; 2],
    ) -> Self {
        let rng = Rng::new(seed.wrapping_mul(1000).wrapping_add(number as u64));
        let silent = [Vec::new(), Vec::new()];
        let (seen, tokens) = (Vec::new(), HashMap::new());
        Actor {
            number,
            rng,
            epoch,
            udp,
            text,
            binary,
            silent,
            seen,
            tokens,
            made: 0,
            calm: false,
            stale: false,
            mortal: false,
            asked: 0,
            lost: 0,
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Other connections, between two rounds: nothing waits for an answer.
    pub(crate) fn connect(&mut self, [text, binary]: [Tcp; 2]) {
        (self.text, self.binary) = (text, binary);
    }

    /// One round; what was seen. A fault that needs no checker is an error.
    pub(crate) fn round(&mut self, keys: &Keys, pace: Pace) -> Result<Seen, String> {
        (self.calm, self.stale, self.mortal) = (pace.calm, pace.stale, pace.mortal);
        for at in 0..pace.commands {
            if pace.later && self.number == 0 && at == pace.commands / 6 {
                self.flush_later(keys)?;
            }
            if !pace.pause.is_zero() {
                let pause = self.rng.below(pace.pause.as_nanos() as u64);
                std::thread::sleep(Duration::from_nanos(pause));
            }
            self.command(keys).map_err(|what| format!("client {}: {what}", self.number))?;
        }
        self.settle()?;
        // What was read for `cas` may be another value of the same name in the next round.
        self.tokens.clear();
        Ok(std::mem::take(&mut self.seen))
    }

    /// Has everything without a reply happen.
    fn settle(&mut self) -> Result<(), String> {
        for binary in [false, true] {
            if !self.silent[usize::from(binary)].is_empty() {
                let tcp = if binary { &mut self.binary } else { &mut self.text };
                let rest = tcp.until_noop(binary);
                // Quiet forms say what went wrong: that is no answer that anybody waits for.
                if String::from_utf8_lossy(&rest).contains("closed the connection") {
                    return Err("memcached has closed the connection".into());
                }
                self.happened(binary);
            }
        }
        Ok(())
    }

    /// A reply has come: all before it has been done.
    fn happened(&mut self, binary: bool) {
        let now_ns = self.now_ns();
        for at in std::mem::take(&mut self.silent[usize::from(binary)]) {
            self.seen[at].1.to_ns = now_ns;
        }
    }

    fn command(&mut self, keys: &Keys) -> Result<(), String> {
        if self.mortal {
            return match self.rng.below(10) {
                0 | 1 => self.several(keys),
                2..=5 => self.again(keys),
                _ => self.by_udp(keys),
            };
        }
        match self.rng.below(100) {
            0..=9 => self.several(keys),
            10..=17 => self.pipeline(keys),
            18..=33 if self.calm => self.again(keys),
            18..=59 => self.by_udp(keys),
            _ => self.by_tcp(keys),
        }
    }

    /// The same key a few times: what a cache is for.
    fn again(&mut self, keys: &Keys) -> Result<(), String> {
        let key = self.key(keys);
        (0..6).try_for_each(|_| self.udp(keys, key, Speech::Ascii, (Action::Read, Ask::Get)))
    }

    /// All keys, in a second or two.
    fn flush_later(&mut self, keys: &Keys) -> Result<(), String> {
        let speech = SPEECHES[self.rng.below(3) as usize];
        let seconds = 1 + self.rng.below(2) as u32;
        let action = Action::FlushLater { seconds, firm: true };
        let ask = Ask::Flush(seconds.into());
        if self.rng.chance(0.3) {
            self.udp(keys, 0, speech, (action, ask))
        } else {
            self.tcp(keys, 0, speech, (action, ask))
        }
    }

    /// Few keys are hot.
    fn key(&mut self, keys: &Keys) -> usize {
        let count = keys.names.len() as u64;
        let (one, two) = (self.rng.below(count), self.rng.below(count));
        one.min(two) as usize
    }

    fn expiry(&mut self) -> Expiry {
        match self.rng.below(20) {
            0 => Expiry::Past,
            1 | 2 => Expiry::In(1 + self.rng.below(3) as u32),
            _ => Expiry::Never,
        }
    }

    /// As it is written down in a protocol: relative, or a date.
    fn written(&mut self, expiry: Expiry, speech: Speech) -> i64 {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        match expiry {
            Expiry::Never => 0,
            // Binary has no negative numbers: a date long ago.
            Expiry::Past if speech == Speech::Binary => MONTH_S + 1,
            Expiry::Past => -1,
            Expiry::In(seconds) if self.rng.chance(0.3) => now_s + i64::from(seconds),
            Expiry::In(seconds) => i64::from(seconds),
        }
    }

    /// A value like no other; sometimes with what looks like a command, sometimes large.
    fn value(&mut self, number: bool) -> Vec<u8> {
        self.made += 1;
        if number {
            return ((self.rng.bits() >> 8) + 1_000_000_000).to_string().into_bytes();
        }
        let filling: Vec<u8> = match self.rng.below(30) {
            0 => b"\r\nset hot:0 0 0 1\r\nx\r\n".to_vec(),
            1 => b"\nEND\r\nget hot:1\r\nflush_all\r\n".to_vec(),
            2 => vec![0x80; 30],
            3 => vec![b'.'; 900],
            4 if !self.calm => vec![b'+'; 2500],
            _ => vec![b'-'; self.rng.below(40) as usize],
        };
        [format!("<{}.{}:", self.number, self.made).as_bytes(), &filling, b">"].concat()
    }

    /// What to do with a key, and how that is written in a protocol.
    fn pick(&mut self, keys: &Keys, key: usize, speech: Speech) -> (Action, Ask) {
        // What is always being written is never kept: a cache has something to say where most of it is read.
        if self.calm && self.rng.chance(0.97) {
            return (Action::Read, Ask::Get);
        }
        let is_number = key >= keys.numbers;
        let expiry = self.expiry();
        let written = self.written(expiry, speech);
        let flags = self.rng.below(1 << 16) as u32;
        match self.rng.below(100) {
            0 => (Action::Read, Ask::Recache),
            1..=3 if speech == Speech::Meta && !is_number => match expiry {
                Expiry::Past => (Action::Vivify(Expiry::Never), Ask::Vivify(0)),
                expiry => (Action::Vivify(expiry), Ask::Vivify(written)),
            },
            4 | 5 if speech == Speech::Meta && self.stale => (Action::Stale, Ask::Stale),
            6 | 7 if speech == Speech::Meta && self.stale && !is_number && self.tokens.contains_key(&key) => {
                let (token, data) = (self.tokens[&key].0, self.value(false));
                let ask = Ask::CasStale { token, data: data.clone(), flags };
                (Action::CasStale { data, flags }, ask)
            }
            1..=39 => (Action::Read, Ask::Get),
            40..=47 => (Action::Read, Ask::Gets),
            48 | 49 => (Action::ReadTouch(expiry), Ask::Gat(written)),
            50 | 51 => (Action::ReadTouch(expiry), Ask::Gats(written)),
            52..=55 => (Action::Touch(expiry), Ask::Touch(written)),
            56..=63 => (Action::Delete, Ask::Delete),
            64 if !self.calm && self.rng.chance(0.3) => (Action::Flush, Ask::Flush(0)),
            65..=72 if is_number => {
                let by = self.rng.below(1 << 20);
                match self.rng.chance(0.5) {
                    true => (Action::Count(by as i64), Ask::Incr(by)),
                    false => (Action::Count(-(by as i64)), Ask::Decr(by)),
                }
            }
            // What is made stale has another number, and the same bytes: the checker tells numbers by these.
            65..=72 if self.tokens.contains_key(&key) && !self.stale => {
                let (token, wanted) = self.tokens[&key].clone();
                let data = self.value(false);
                let ask = Ask::Cas { token, data: data.clone(), flags, expiry: written };
                (Action::Cas { wanted, data, flags, expiry }, ask)
            }
            number => {
                let mode = if number < 86 { Mode::Set } else { MODES[self.rng.below(5) as usize] };
                let mode = match mode {
                    Mode::Append | Mode::Prepend if is_number => Mode::Add,
                    mode => mode,
                };
                let data = self.value(is_number);
                let ask = Ask::Put { mode, data: data.clone(), flags, expiry: written };
                (Action::Put { mode, data, flags, expiry }, ask)
            }
        }
    }

    /// Writes down what is about to happen, to all keys that it is about; where.
    fn begin(
        &mut self,
        keys: &Keys,
        key: usize,
        action: &Action,
        how: &'static str,
    ) -> std::ops::Range<usize> {
        let (start, from_ns) = (self.seen.len(), self.now_ns());
        let all = if action.is_of_all() { 0..keys.names.len() } else { key..key + 1 };
        for key in all {
            let event = Event {
                from_ns,
                to_ns: OPEN,
                action: action.clone(),
                outcome: Outcome::Unknown,
                optional: false,
                client: self.number,
                how,
            };
            self.seen.push((key, event));
        }
        start..self.seen.len()
    }

    /// Writes down a reply.
    fn end(&mut self, key: usize, events: std::ops::Range<usize>, said: Said) -> Result<(), String> {
        // Empty ones are made more than once: a number is of one of them.
        if let Said::Value { data, cas: Some(token), .. } = &said
            && !data.is_empty()
            && !self.mortal
        {
            self.tokens.insert(key, (*token, data.clone()));
        }
        let now_ns = self.now_ns();
        let shown = format!("{said:?}");
        let outcome = Outcome::of(said).ok_or_else(|| {
            let event = &self.seen[events.start].1;
            format!("not a reply to this: {shown}: {event}")
        })?;
        for (_, event) in &mut self.seen[events] {
            event.outcome = outcome.clone();
            event.to_ns = now_ns;
        }
        Ok(())
    }

    fn by_udp(&mut self, keys: &Keys) -> Result<(), String> {
        let speech = SPEECHES[self.rng.below(3) as usize];
        let key = self.key(keys);
        let what = self.pick(keys, key, speech);
        // Only these can be a cache's.
        let speech =
            if self.calm && what.1 == Ask::Get && self.rng.chance(0.8) { Speech::Ascii } else { speech };
        self.udp(keys, key, speech, what)
    }

    fn udp(&mut self, keys: &Keys, key: usize, speech: Speech, what: (Action, Ask)) -> Result<(), String> {
        let (action, ask) = what;
        // Without a reply a key waits for as long as memcached may take.
        let often = if self.calm { 0.01 } else { 0.06 };
        let quiet = action.is_write() && !always_answers(speech, &ask) && self.rng.chance(often);
        let socket = self.rng.below(self.udp.len() as u64) as usize;
        let bytes = self.spoken(speech, (&action, &ask), &keys.names[key], quiet, 0x1234);
        let events = self.begin(keys, key, &action, how(speech, true));
        self.asked += 1;
        let request = self.udp[socket].send(&bytes);
        if quiet {
            self.seen[events].iter_mut().for_each(|(_, event)| event.optional = true);
            return Ok(());
        }
        match self.udp[socket].receive(request) {
            Some(bytes) => {
                let heard = wire::reply(speech, &ask, &bytes).filter(|heard| heard.used == bytes.len());
                let heard = heard
                    .ok_or_else(|| format!("not one whole reply: {:?}", String::from_utf8_lossy(&bytes)))?;
                self.end(key, events, heard.said)
            }
            None => {
                self.lost += 1;
                self.seen[events].iter_mut().for_each(|(_, event)| event.optional = true);
                Ok(())
            }
        }
    }

    /// `get` of several keys, over UDP or TCP.
    fn several(&mut self, keys: &Keys) -> Result<(), String> {
        let count = 2 + self.rng.below(4);
        let wanted: Vec<usize> = (0..count).map(|_| self.key(keys)).collect();
        let names: Vec<&[u8]> = wanted.iter().map(|key| &keys.names[*key][..]).collect();
        // Some read and touch, each key by itself.
        let touches = self.rng.chance(if self.calm { 0.02 } else { 0.3 });
        let (action, verb) = if touches {
            let expiry = self.expiry();
            let written = self.written(expiry, Speech::Ascii);
            let word = if self.rng.chance(0.5) { "gat" } else { "gats" };
            (Action::ReadTouch(expiry), format!("{word} {written} "))
        } else {
            (Action::Read, "get ".to_owned())
        };
        let bytes = [verb.as_bytes(), &names.join(&b' ')[..], b"\r\n"].concat();
        let udp = self.mortal || self.rng.chance(0.7);
        let how = if udp { "udp multi-get" } else { "tcp multi-get" };
        let start = self.seen.len();
        for key in &wanted {
            self.begin(keys, *key, &action, how);
        }
        let values = if udp {
            let socket = self.rng.below(self.udp.len() as u64) as usize;
            self.asked += 1;
            let request = self.udp[socket].send(&bytes);
            let Some(bytes) = self.udp[socket].receive_values(request) else {
                self.lost += 1;
                if touches {
                    self.seen[start..].iter_mut().for_each(|(_, event)| event.optional = true);
                } else {
                    self.seen.truncate(start);
                }
                return Ok(());
            };
            let shown = || String::from_utf8_lossy(&bytes).into_owned();
            let (values, used) = wire::values(&bytes).ok_or_else(|| format!("cut off: {:?}", shown()))??;
            if used != bytes.len() {
                return Err(format!("more than one reply: {:?}", shown()));
            }
            values
        } else {
            self.text.send(&bytes);
            let values = self.text.hear_values(SILENT)?;
            self.happened(false);
            values
        };
        let now_ns = self.now_ns();
        // Values come in the order of the keys; what is not there is left out.
        let mut values = values.into_iter().peekable();
        for (at, key) in wanted.iter().enumerate() {
            let event = &mut self.seen[start + at].1;
            let value = values.next_if(|(name, ..)| *name == keys.names[*key]);
            event.outcome =
                value.map_or(Outcome::Miss, |(_, data, flags)| Outcome::Hit { data: trimmed(data), flags });
            event.to_ns = now_ns;
        }
        match values.next() {
            Some((name, ..)) => {
                Err(format!("a value nobody asked for there: {:?}", String::from_utf8_lossy(&name)))
            }
            None => Ok(()),
        }
    }

    fn by_tcp(&mut self, keys: &Keys) -> Result<(), String> {
        let speech = SPEECHES[self.rng.below(3) as usize];
        let key = self.key(keys);
        let what = self.pick(keys, key, speech);
        self.tcp(keys, key, speech, what)
    }

    fn tcp(&mut self, keys: &Keys, key: usize, speech: Speech, what: (Action, Ask)) -> Result<(), String> {
        let (action, ask) = what;
        let quiet = action.is_write() && !always_answers(speech, &ask) && self.rng.chance(0.2);
        // Some of what is quiet answers all the same: its opaque is another.
        let opaque = if quiet { SILENT } else { LOUD };
        let bytes = self.spoken(speech, (&action, &ask), &keys.names[key], quiet, opaque);
        let events = self.begin(keys, key, &action, how(speech, false));
        self.send(speech, &bytes);
        if quiet {
            self.silent[usize::from(speech == Speech::Binary)].extend(events);
            return Ok(());
        }
        let said = self.hear(speech, &ask)?;
        self.end(key, events, said)
    }

    /// Several commands in one write; replies in their order.
    fn pipeline(&mut self, keys: &Keys) -> Result<(), String> {
        let speech = SPEECHES[self.rng.below(3) as usize];
        let (mut bytes, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..2 + self.rng.below(6) {
            let key = self.key(keys);
            let (action, ask) = self.pick(keys, key, speech);
            let events = self.begin(keys, key, &action, "tcp pipeline");
            bytes.extend(self.spoken(speech, (&action, &ask), &keys.names[key], false, LOUD));
            asked.push((Some((key, events)), ask));
            // One that says that all before it is done.
            if self.rng.chance(0.2) {
                bytes.extend(wire::request(speech, &Ask::Noop, b"", false, LOUD));
                asked.push((None, Ask::Noop));
            }
        }
        self.send(speech, &bytes);
        for (what, ask) in asked {
            let said = self.hear(speech, &ask)?;
            match what {
                Some((key, events)) => self.end(key, events, said)?,
                None if said == Said::Done => {}
                None => return Err(format!("not a reply to mn or NOOP: {said:?}")),
            }
        }
        Ok(())
    }

    /// The bytes of a request; of the meta protocol now and then with a key in base64. A mutation of such a key makes everything void.
    fn spoken(
        &mut self,
        speech: Speech,
        (action, ask): (&Action, &Ask),
        key: &[u8],
        quiet: bool,
        opaque: u32,
    ) -> Vec<u8> {
        let may = speech == Speech::Meta && (!self.calm || *action == Action::Read && *ask != Ask::Recache);
        let encoded = if may && self.rng.chance(0.1) { wire::encoded(ask, key, quiet, opaque) } else { None };
        encoded.unwrap_or_else(|| wire::request(speech, ask, key, quiet, opaque))
    }

    /// Often in pieces.
    fn send(&mut self, speech: Speech, bytes: &[u8]) {
        let mut cuts = Vec::new();
        if self.rng.chance(0.3) {
            cuts = (0..1 + self.rng.below(3)).map(|_| self.rng.below(bytes.len() as u64) as usize).collect();
            cuts.sort_unstable();
            cuts.dedup();
        }
        let tcp = if speech == Speech::Binary { &mut self.binary } else { &mut self.text };
        tcp.send_cut(bytes, &cuts);
    }

    /// The next reply that was asked for.
    fn hear(&mut self, speech: Speech, ask: &Ask) -> Result<Said, String> {
        let binary = speech == Speech::Binary;
        loop {
            let tcp = if binary { &mut self.binary } else { &mut self.text };
            let heard = tcp.hear(speech, ask)?;
            if heard.opaque != Some(SILENT) {
                self.happened(binary);
                return Ok(heard.said);
            }
        }
    }
}

/// Opaque numbers of what is answered, and of what is quiet unless it goes wrong.
const LOUD: u32 = 1;
const SILENT: u32 = 2;

/// Binary TOUCH has no quiet form.
fn always_answers(speech: Speech, ask: &Ask) -> bool {
    speech == Speech::Binary && matches!(ask, Ask::Touch(_))
}

fn how(speech: Speech, udp: bool) -> &'static str {
    match (speech, udp) {
        (Speech::Ascii, true) => "udp ascii",
        (Speech::Binary, true) => "udp binary",
        (Speech::Meta, true) => "udp meta",
        (Speech::Ascii, false) => "tcp ascii",
        (Speech::Binary, false) => "tcp binary",
        (Speech::Meta, false) => "tcp meta",
    }
}
