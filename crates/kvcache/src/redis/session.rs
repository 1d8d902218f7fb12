//! One client's connection and the one to Redis that is its own: what is answered here, what goes on, what a reply ends.
//!
//! ```text
//!  client --> requests --> a read that may be answered, and nothing before it is unanswered --> client
//!                     \--> waiting: (effect, kind) --> Redis
//!  client <-------------------- replies <------------- Redis      each ends the effect of the oldest that waits
//! ```
//! Both connections of a client are of one mind: who it is, in which database, in which version of the protocol, in a transaction or not, is learnt from Redis' own replies, and all that is not
//! understood ends the answering: *apart* (nothing is answered or kept by this connection any more), or *blind* (nor are replies followed: what it may change is so until it ends).

use super::Shared;
use super::commands::{Class, Read, Special};
use super::counters::Counter;
use super::store::{Effect, Not, Token};
use super::value::Value;
use std::collections::VecDeque;
use std::time::Instant;
use tidemill_kv::resp::integer;
use tidemill_kv::resp::reply::{Frame, Replies};
use tidemill_kv::resp::request::{Requests, Step};

/// Requests without a reply, what they hold, and bytes that wait for a reader: beyond, the other side is not read.
const WAITING: usize = 1 << 14;
const WAITING_BYTES: usize = 1 << 20;
const REQUESTS_BYTES: usize = 1 << 20;
const REPLIES_BYTES: usize = 64 << 20;
/// Of a reply that cannot fill so much is looked at.
const GLANCE: usize = 16;
/// Effects that a blind connection, and a transaction, hold one by one. With more they hold everything.
const HELD: usize = 64;
const QUEUED: usize = 1 << 12;

/// Bytes on their way out.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    from: usize,
}

impl Outgoing {
    /// What is to be sent.
    pub(super) fn pending(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }

    /// What comes behind it.
    pub(super) fn more(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// So much of it was.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.from += bytes;
        if self.from >= self.bytes.len() {
            self.clear();
        } else if self.from >= REQUESTS_BYTES.max(self.bytes.len() / 2) {
            self.bytes.drain(..self.from);
            self.from = 0;
        }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(REQUESTS_BYTES);
        self.from = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending().is_empty()
    }
}

/// A read that was sent on.
#[derive(Debug)]
struct Asked {
    read: Read,
    key: Box<[u8]>,
    token: Option<Token>,
    fills: bool,
}

/// What a reply says besides that its request was executed.
#[derive(Debug)]
enum Kind {
    Plain,
    /// In a transaction: it is only queued.
    Queued,
    Read(Asked),
    Select(Option<u32>),
    /// A user, by name.
    Auth(Vec<u8>),
    /// A version, and perhaps a user.
    Hello(Option<bool>, Option<Vec<u8>>),
    /// The end of a transaction, if there was one.
    Ends(bool),
    Unwatch,
}

#[derive(Debug)]
struct Waiting {
    effect: Effect,
    kind: Kind,
}

impl Waiting {
    /// What it holds besides its place.
    fn bytes(&self) -> usize {
        let kind = match &self.kind {
            Kind::Read(asked) => asked.key.len(),
            Kind::Auth(name) => name.len(),
            Kind::Hello(_, name) => name.as_ref().map_or(0, Vec::len),
            _ => 0,
        };
        kind + self.effect.bytes()
    }
}

/// A value that is kept when Redis has said how long it holds.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) db: u32,
    pub(super) key: Box<[u8]>,
    pub(super) value: Value,
    pub(super) token: Token,
    pub(super) user: u32,
    pub(super) read: Read,
}

/// The state of a connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    requests: Requests,
    replies: Replies,
    /// Of the request that is being read: not sent on yet.
    held: Vec<u8>,
    /// Of the reply that is being read, what is looked at; and how long it is.
    reply: Vec<u8>,
    reply_bytes: usize,
    pub(super) to_client: Outgoing,
    pub(super) to_redis: Outgoing,
    waiting: VecDeque<Waiting>,
    /// What they hold.
    waiting_bytes: usize,
    db: u32,
    user: u32,
    three: bool,
    /// Redis has answered this user a read here.
    proven: bool,
    /// When the last request was sent on.
    sent: Option<Instant>,
    multi: bool,
    watch: bool,
    apart: bool,
    blind: bool,
    /// What waits for the end of a transaction.
    queued: Vec<Effect>,
    /// What ends with the connection.
    kept: Vec<Effect>,
    /// What the client says is not followed either.
    raw: bool,
}

impl Session {
    /// Whether more of the client can be read.
    pub(super) fn wants_requests(&self) -> bool {
        self.waiting.len() < WAITING
            && self.waiting_bytes < WAITING_BYTES
            && self.to_redis.pending().len() < REQUESTS_BYTES
            && self.wants_replies()
    }

    /// Whether more of Redis can be read.
    pub(super) fn wants_replies(&self) -> bool {
        self.to_client.pending().len() < REPLIES_BYTES
    }

    /// The connection to Redis has ended: what it was to execute, it has, or never will.
    pub(super) fn end(&mut self, shared: &mut Shared) {
        self.waiting_bytes = 0;
        let waiting = self.waiting.drain(..).map(|waiting| waiting.effect);
        for effect in waiting.chain(self.queued.drain(..)).chain(self.kept.drain(..)) {
            shared.store.end(effect);
        }
    }

    /// Bytes of the client.
    pub(super) fn client(&mut self, bytes: &[u8], now: Instant, shared: &mut Shared) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.raw {
                self.to_redis.bytes.extend_from_slice(rest);
                return;
            }
            let (read, step) = self.requests.push(rest);
            let (piece, behind) = rest.split_at(read);
            rest = behind;
            self.held.extend_from_slice(piece);
            match step {
                // It can neither be answered nor be executed yet.
                Step::More if self.requests.is_cut() => self.send(),
                Step::More => {}
                Step::Whole => self.request(now, shared),
                Step::Broken => {
                    // Redis says what is wrong, and ends it; or it reads something there, which may be anything.
                    shared.counters.one(Counter::Broken);
                    let effect = shared.store.begin_all();
                    self.kept.push(effect);
                    self.blinded(shared);
                    self.send();
                    self.raw = true;
                }
            }
        }
    }

    fn send(&mut self) {
        self.to_redis.bytes.append(&mut self.held);
    }

    /// A request is whole.
    fn request(&mut self, now: Instant, shared: &mut Shared) {
        if self.requests.count() == 0 {
            // Redis answers nothing to it.
            self.held.clear();
            return;
        }
        let class = shared.commands.class(&self.requests);
        if self.requests.is_cut() {
            shared.counters.one(Counter::Large);
        }
        if let Class::Reads(Some(read)) = class
            && self.requests.word(1).is_some()
        {
            match self.given(read, now, shared) {
                Ok(()) => {
                    shared.counters.one(read.hit());
                    self.held.clear();
                    return;
                }
                Err(why) => shared.counters.one(why),
            }
        }
        let effect = match class {
            Class::Reads(read) => {
                if read.is_none() {
                    shared.counters.one(Counter::Other);
                }
                Effect::Nothing
            }
            Class::Special(_) => {
                shared.counters.one(Counter::Other);
                Effect::Nothing
            }
            Class::Keys(first, last, step) => {
                shared.counters.one(Counter::Changes);
                let keys = (first..=last).step_by(step).filter_map(|at| self.requests.word(at));
                shared.store.begin(keys)
            }
            Class::All | Class::Unknown => {
                shared.counters.one(Counter::Alls);
                shared.store.begin_all()
            }
        };
        if class == Class::Unknown {
            shared.counters.one(Counter::Unknown);
            self.apart = true;
        }
        let kind = match class {
            Class::Special(special) => self.special(special, shared),
            Class::Reads(Some(read)) if !self.multi && !self.apart => self.asked(read, shared),
            _ if self.multi => Kind::Queued,
            _ => Kind::Plain,
        };
        self.send();
        self.sent = Some(now);
        if self.blind {
            self.hold(effect, shared);
        } else if matches!(kind, Kind::Queued) {
            gather(&mut self.queued, QUEUED, effect, shared);
            self.wait(Waiting { effect: Effect::Nothing, kind });
        } else if let Kind::Ends(_) = kind {
            let effect = Effect::Several(std::mem::take(&mut self.queued));
            self.wait(Waiting { effect, kind });
        } else {
            self.wait(Waiting { effect, kind });
        }
    }

    /// A request was sent on.
    fn wait(&mut self, waiting: Waiting) {
        self.waiting_bytes += waiting.bytes();
        self.waiting.push_back(waiting);
    }

    /// Answers a read, or says why Redis has to.
    fn given(&mut self, read: Read, now: Instant, shared: &mut Shared) -> Result<(), Counter> {
        if self.multi || self.watch || self.apart || self.blind {
            return Err(Counter::State);
        }
        // Redis is not read while so much waits for the client: what many short requests ask for is bounded by that.
        if !self.waiting.is_empty() || !self.replies.is_between() || !self.wants_replies() {
            return Err(Counter::Behind);
        }
        if !shared.store.is_sure(now) {
            return Err(Counter::Unsure);
        }
        if !self.proven {
            return Err(Counter::Permission);
        }
        if let (Some(idle), Some(sent)) = (shared.idle, self.sent)
            && now.saturating_duration_since(sent) >= idle
        {
            return Err(Counter::Idle);
        }
        let Some(key) = self.requests.word(1) else { return Err(Counter::Form) };
        let found = shared.store.find(self.db, key, self.user, read, now);
        let value = found.map_err(|not| match not {
            Not::Here => Counter::Miss,
            Not::Allowed => Counter::Permission,
        })?;
        let is_known = value.answer(read, &self.requests, self.three, &mut self.to_client.bytes);
        if is_known { Ok(()) } else { Err(Counter::Form) }
    }

    fn asked(&self, read: Read, shared: &Shared) -> Kind {
        let Some(key) = self.requests.word(1) else { return Kind::Plain };
        // Where fields of a hash end by themselves, nobody says when.
        let ends = read == Read::Hgetall && shared.commands.has("hpexpire");
        let fills = read.fills(&self.requests) && !self.requests.is_cut() && !ends;
        Kind::Read(Asked { read, key: key.into(), token: shared.store.token(key), fills })
    }

    /// A word that changes the connection is about to be sent on.
    fn special(&mut self, special: Special, shared: &mut Shared) -> Kind {
        let word = |at: usize| self.requests.word(at);
        let in_multi = self.multi;
        let kind = match special {
            Special::Multi => {
                self.multi = true;
                return Kind::Plain;
            }
            Special::Exec | Special::Discard => {
                (self.multi, self.watch) = (false, false);
                return Kind::Ends(in_multi);
            }
            Special::Watch => {
                self.watch = true;
                Kind::Plain
            }
            Special::Unwatch => {
                // As long as that it is executed is not known, nothing is answered for what waits.
                self.watch &= in_multi;
                Kind::Unwatch
            }
            Special::Select => {
                let number = word(1).and_then(integer).and_then(|number| u32::try_from(number).ok());
                Kind::Select(number.filter(|_| self.requests.count() == 2))
            }
            Special::Auth => match (word(1), word(2), self.requests.count()) {
                (Some(_), None, 2) => Kind::Auth(b"default".to_vec()),
                (Some(user), Some(_), 3) => Kind::Auth(user.to_vec()),
                _ => {
                    self.apart = true;
                    Kind::Plain
                }
            },
            Special::Hello => {
                let three = match word(1) {
                    Some(b"2") => Some(false),
                    Some(b"3") => Some(true),
                    _ => None,
                };
                let (mut at, mut user) = (2, None);
                while let Some(option) = word(at) {
                    if option.eq_ignore_ascii_case(b"auth") {
                        user = word(at + 1).map(<[u8]>::to_vec);
                        at += 3;
                    } else if option.eq_ignore_ascii_case(b"setname") {
                        at += 2;
                    } else {
                        break;
                    }
                }
                // What is not understood may make it another.
                self.apart |= at < self.requests.count() || self.requests.is_cut();
                Kind::Hello(three, user)
            }
            Special::Apart => {
                self.apart = true;
                Kind::Plain
            }
            Special::Blind => {
                self.blinded(shared);
                Kind::Plain
            }
        };
        // Whether and when it is executed is not followed.
        self.apart |= in_multi;
        if in_multi { Kind::Queued } else { kind }
    }

    /// From here on replies are not followed.
    fn blinded(&mut self, shared: &mut Shared) {
        if !std::mem::replace(&mut self.blind, true) {
            shared.counters.one(Counter::Blind);
        }
        self.waiting_bytes = 0;
        let effects: Vec<Effect> =
            self.waiting.drain(..).map(|waiting| waiting.effect).chain(self.queued.drain(..)).collect();
        effects.into_iter().for_each(|effect| self.hold(effect, shared));
    }

    /// Holds what a request may change until the connection ends.
    fn hold(&mut self, effect: Effect, shared: &mut Shared) {
        gather(&mut self.kept, HELD, effect, shared);
    }

    /// Bytes of Redis. Whether they are replies.
    pub(super) fn redis(&mut self, bytes: &[u8], now: Instant, shared: &mut Shared) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.blind {
                self.to_client.bytes.extend_from_slice(rest);
                return true;
            }
            let (read, frame) = self.replies.push(rest);
            let (piece, behind) = rest.split_at(read);
            rest = behind;
            self.to_client.bytes.extend_from_slice(piece);
            let fills =
                matches!(self.waiting.front(), Some(Waiting { kind: Kind::Read(asked), .. }) if asked.fills);
            let most = if fills { shared.value_max } else { GLANCE };
            let take = most.saturating_sub(self.reply.len()).min(piece.len());
            self.reply.extend_from_slice(&piece[..take]);
            self.reply_bytes += piece.len();
            match frame {
                Frame::More => {}
                Frame::Broken => return false,
                Frame::Reply => {
                    let reply = std::mem::take(&mut self.reply);
                    self.replied(&reply, now, shared);
                    self.reply = reply;
                }
                Frame::Push => {}
            }
            if frame != Frame::More {
                self.reply.clear();
                self.reply_bytes = 0;
            }
        }
        true
    }

    /// A reply is whole; of a long one, its beginning.
    fn replied(&mut self, reply: &[u8], now: Instant, shared: &mut Shared) {
        let Some(waiting) = self.waiting.pop_front() else {
            // Redis says something of its own: that it ends the connection.
            self.blinded(shared);
            return;
        };
        self.waiting_bytes -= waiting.bytes();
        let Waiting { effect, kind } = waiting;
        let error = matches!(reply.first(), Some(b'-' | b'!'));
        let ok = reply.starts_with(b"+OK\r\n");
        if reply.starts_with(b"+QUEUED\r\n") && !matches!(kind, Kind::Queued) {
            // It is in a transaction, and we did not know.
            self.hold(effect, shared);
            self.blinded(shared);
            return;
        }
        match kind {
            Kind::Ends(in_multi) if error && !reply.starts_with(b"-EXECABORT") => {
                self.watch = true;
                if in_multi {
                    self.hold(effect, shared);
                    self.blinded(shared);
                    return;
                }
            }
            Kind::Plain | Kind::Queued | Kind::Ends(_) => {}
            Kind::Unwatch => self.watch |= !ok,
            Kind::Select(Some(db)) if ok => self.db = db,
            Kind::Select(_) => self.apart |= !error,
            Kind::Auth(name) if ok => self.is_now(&name, shared),
            Kind::Auth(_) => self.apart |= !error,
            Kind::Hello(three, name) if !error => {
                self.three = three.unwrap_or(self.three);
                if let Some(name) = name {
                    self.is_now(&name, shared);
                }
            }
            // It may be another all the same: Redis does one word after the other.
            Kind::Hello(_, name) => self.apart |= name.is_some(),
            Kind::Read(asked) if !error => {
                self.proven = true;
                self.read(asked, reply, now, shared);
            }
            Kind::Read(_) => {}
        }
        shared.store.end(effect);
    }

    /// It has proven to be another.
    fn is_now(&mut self, name: &[u8], shared: &mut Shared) {
        self.proven = false;
        match shared.user(name) {
            Some(user) => self.user = user,
            None => self.apart = true,
        }
    }

    /// Redis has answered a read.
    fn read(&mut self, asked: Asked, reply: &[u8], now: Instant, shared: &mut Shared) {
        let Asked { read, key, token, fills } = asked;
        let (db, user) = (self.db, self.user);
        let Some(token) = token.filter(|token| !self.apart && shared.store.holds(token)) else {
            if fills {
                shared.counters.one(Counter::Stale);
            }
            return;
        };
        if shared.store.allow(db, &key, &token, user, read, now) || !fills {
            return;
        }
        let whole = self.reply_bytes == reply.len();
        match Value::from_reply(read, reply).filter(|_| whole) {
            Some(value) => shared.ask(Question { db, key, value, token, user, read }),
            None => shared.counters.one(Counter::Odd),
        }
    }
}

/// One effect more: each of so many is held, and with another one all.
fn gather(effects: &mut Vec<Effect>, most: usize, effect: Effect, shared: &mut Shared) {
    match effects.len() {
        _ if matches!(effect, Effect::Nothing) => {}
        len if len < most => effects.push(effect),
        len if len == most => effects.extend([effect, shared.store.begin_all()]),
        // All is held already.
        _ => shared.store.end(effect),
    }
}

#[cfg(test)]
mod tests;
