//! The connection to Redis that is nobody's: what it says, and what is made of that.
//!
//! ```text
//!  HELLO 3 [AUTH user password], CLIENT TRACKING ON BCAST, COMMAND, CONFIG GET timeout, ROLE
//!  < push: invalidate [k ...]       somebody has changed k, or it has ended: what is kept of it is void
//!  < push: invalidate null          all of them
//!  PTTL k                           for a value that was seen: it holds so long, if nothing has touched k since
//!  ROLE                             four times each lease
//! ```
//! Redis tells of a change in the turn of its loop in which the writer gets its reply, and replies and pushes of a connection come in their order. So an answer to a ROLE that was sent at some time says that
//! all changes were heard whose writers had their reply by then: for a lease from that time on values may be given.

use super::Shared;
use super::commands::Commands;
use super::counters::Counter;
use super::session::{Outgoing, Question};
use super::store::Kept;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tidemill_kv::resp::integer;
use tidemill_kv::resp::item::{Item, Items, request};
use tidemill_kv::resp::reply::{Frame, Replies};

/// The longest reply or push that is taken.
const REPLY_MAX: usize = 64 << 20;
/// A lease that is over so many times: it is not there any more.
const LEASES: u32 = 10;

/// What a reply will be to.
enum Told {
    Hello,
    Tracking,
    Commands,
    Timeout,
    Role(Instant),
    Select,
    Holds(Question, Instant),
}

/// The state of the connection.
pub(super) struct Keeper {
    pub(super) to_redis: Outgoing,
    replies: Replies,
    reply: Vec<u8>,
    waiting: VecDeque<Told>,
    db: u32,
    lease: Duration,
    hold: Duration,
}

impl Keeper {
    /// The beginning of a connection.
    pub(super) fn new(options: &super::Options, now: Instant) -> Self {
        let mut keeper = Keeper {
            to_redis: Outgoing::default(),
            replies: Replies::new(),
            reply: Vec::new(),
            waiting: VecDeque::new(),
            db: 0,
            lease: options.lease,
            hold: options.hold,
        };
        match &options.login {
            Some((user, password)) => {
                let user = user.as_deref().unwrap_or("default").as_bytes();
                keeper.say(&[b"HELLO", b"3", b"AUTH", user, password.as_bytes()], Told::Hello);
            }
            None => keeper.say(&[b"HELLO", b"3"], Told::Hello),
        }
        keeper.say(&[b"CLIENT", b"TRACKING", b"ON", b"BCAST"], Told::Tracking);
        keeper.say(&[b"COMMAND"], Told::Commands);
        keeper.say(&[b"CONFIG", b"GET", b"timeout"], Told::Timeout);
        keeper.say(&[b"ROLE"], Told::Role(now));
        keeper
    }

    fn say(&mut self, words: &[&[u8]], told: Told) {
        request(self.to_redis.more(), words);
        self.waiting.push_back(told);
    }

    /// Some of a lease is over.
    ///
    /// # Errors
    /// Redis has not answered for long.
    pub(super) fn beat(&mut self, now: Instant) -> Result<(), String> {
        let sent = self.waiting.iter().find_map(|told| match told {
            Told::Role(sent) => Some(*sent),
            _ => None,
        });
        match sent {
            Some(sent) if now.saturating_duration_since(sent) > self.lease * LEASES => {
                Err("it does not answer".into())
            }
            Some(_) => Ok(()),
            None => {
                self.say(&[b"ROLE"], Told::Role(now));
                Ok(())
            }
        }
    }

    /// Asks what sessions want to know.
    pub(super) fn ask(&mut self, now: Instant, shared: &mut Shared) {
        while let Some(question) = shared.questions.pop_front() {
            if question.db != self.db {
                self.db = question.db;
                let db = self.db.to_string();
                self.say(&[b"SELECT", db.as_bytes()], Told::Select);
            }
            shared.counters.one(Counter::Asked);
            shared.asked += 1;
            request(self.to_redis.more(), &[b"PTTL", &question.key]);
            self.waiting.push_back(Told::Holds(question, now));
        }
    }

    /// Bytes of Redis.
    ///
    /// # Errors
    /// The connection is of no use: why.
    pub(super) fn redis(&mut self, bytes: &[u8], shared: &mut Shared) -> Result<(), String> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (read, frame) = self.replies.push(rest);
            let (piece, behind) = rest.split_at(read);
            rest = behind;
            self.reply.extend_from_slice(piece);
            if self.reply.len() > REPLY_MAX {
                return Err(format!("it says more than {REPLY_MAX} bytes at once"));
            }
            let reply = match frame {
                Frame::More => return Ok(()),
                Frame::Broken => return Err("what it says is no RESP".into()),
                Frame::Push | Frame::Reply => std::mem::take(&mut self.reply),
            };
            if frame == Frame::Push {
                pushed(&reply, shared);
                continue;
            }
            match self.waiting.pop_front() {
                Some(told) => self.replied(told, &reply, shared)?,
                None => return Err(said(&reply)),
            }
        }
        Ok(())
    }

    fn replied(&mut self, told: Told, reply: &[u8], shared: &mut Shared) -> Result<(), String> {
        let mut items = Items::new(reply);
        let first = items.next();
        if let Some(Item::Error(_)) = first
            && !matches!(told, Told::Holds(..) | Told::Timeout)
        {
            return Err(said(reply));
        }
        match told {
            Told::Hello | Told::Select => {}
            // From here on changes are told.
            Told::Tracking => {
                shared.store.void();
                shared.is_heard = true;
            }
            Told::Commands => {
                let commands = Commands::from_reply(reply);
                shared.commands = commands.ok_or("its answer to COMMAND is of another form")?;
            }
            // Who may not ask is not told: then it counts as none.
            Told::Timeout => {
                let seconds = match items.last() {
                    Some(Item::Text(text)) => integer(text).and_then(|number| u64::try_from(number).ok()),
                    _ => None,
                };
                shared.idle = seconds.filter(|seconds| *seconds > 0).map(|s| Duration::from_secs(s) / 8);
            }
            Told::Role(sent) => match items.next() {
                Some(Item::Text(b"master")) => shared.store.sure(sent.checked_add(self.lease)),
                _ => return Err("it is no master (ROLE)".into()),
            },
            Told::Holds(question, sent) => {
                shared.asked = shared.asked.saturating_sub(1);
                let Question { db, key, value, token, user, read } = question;
                let Some(until) = self.until(first, sent) else {
                    shared.counters.one(Counter::Soon);
                    return Ok(());
                };
                let kept = shared.store.keep(db, &key, Kept { value, token, until, user, read });
                shared.counters.one(if kept { Counter::Filled } else { Counter::Stale });
            }
        }
        Ok(())
    }

    /// Until when a value holds of which Redis has said that: a thousandth and a millisecond early, for two clocks.
    fn until(&self, answer: Option<Item<'_>>, sent: Instant) -> Option<Instant> {
        let Some(Item::Number(text)) = answer else { return None };
        let lasts = match integer(text)? {
            -1 => self.hold,
            ms => {
                let ms = u64::try_from(ms).ok()?;
                Duration::from_millis(ms.checked_sub(ms / 1000 + 1)?).min(self.hold)
            }
        };
        sent.checked_add(lasts).filter(|_| !lasts.is_zero())
    }
}

/// Somebody has changed something.
fn pushed(push: &[u8], shared: &mut Shared) {
    let mut items = Items::new(push);
    let is_told = matches!(items.next(), Some(Item::Many(b'>', 2)))
        && matches!(items.next(), Some(Item::Text(b"invalidate")));
    if !is_told {
        return;
    }
    match items.next() {
        Some(Item::Many(..)) => {
            for item in items {
                if let Item::Text(key) = item {
                    shared.store.changed(key);
                    shared.counters.one(Counter::Told);
                }
            }
        }
        _ => {
            shared.store.void();
            shared.counters.one(Counter::ToldAll);
        }
    }
}

/// What it says, for a reader.
fn said(reply: &[u8]) -> String {
    let line = reply.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    format!("it says {:?}", String::from_utf8_lossy(line.get(..200).unwrap_or(line)))
}

#[cfg(test)]
mod tests {
    use super::super::commands::Read;
    use super::super::value::Value;
    use super::*;

    fn options() -> super::super::Options {
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        super::super::Options {
            listen: vec![any],
            redis: any,
            login: Some((None, "secret".into())),
            connections: 1,
            per_address: 1,
            unread: Duration::from_secs(300),
            memory: 1 << 20,
            value_max: 1 << 16,
            lease: Duration::from_secs(1),
            hold: Duration::from_secs(60),
        }
    }

    const TABLE: &str = "*2\r\n*6\r\n$3\r\nget\r\n:2\r\n~1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n\
        *6\r\n$3\r\nset\r\n:-3\r\n~1\r\n+write\r\n:1\r\n:1\r\n:1\r\n";

    /// A keeper that is heard.
    fn begun(now: Instant) -> (Keeper, Shared) {
        let (mut keeper, mut shared) = (Keeper::new(&options(), now), Shared::new(1 << 20, 1 << 16));
        let sent = String::from_utf8(keeper.to_redis.pending().to_vec()).unwrap();
        assert!(
            sent.starts_with(
                "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$6\r\nsecret\r\n"
            )
        );
        keeper.to_redis.clear();
        let text = format!("%1\r\n+proto\r\n:3\r\n+OK\r\n{TABLE}%1\r\n$7\r\ntimeout\r\n$2\r\n10\r\n");
        assert_eq!(keeper.redis(text.as_bytes(), &mut shared), Ok(()));
        assert_eq!(shared.idle, Some(Duration::from_millis(1250)));
        assert!(!shared.store.is_sure(now));
        assert_eq!(keeper.redis(b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n", &mut shared), Ok(()));
        (keeper, shared)
    }

    fn question(shared: &Shared) -> Question {
        let value = Value::from_reply(Read::Get, b"$1\r\nv\r\n").unwrap();
        Question {
            db: 2,
            key: (*b"k").into(),
            value,
            token: shared.store.token(b"k").unwrap(),
            user: 0,
            read: Read::Get,
        }
    }

    #[test]
    fn values_are_given_for_a_lease_after_redis_was_heard() {
        let now = Instant::now();
        let (mut keeper, shared) = begun(now);
        assert!(shared.store.is_sure(now + Duration::from_millis(999)));
        assert!(!shared.store.is_sure(now + Duration::from_secs(1)));
        // One question at a time.
        assert_eq!(keeper.beat(now), Ok(()));
        assert_eq!(keeper.to_redis.pending(), b"*1\r\n$4\r\nROLE\r\n");
        assert_eq!(keeper.beat(now + Duration::from_secs(5)), Ok(()));
        assert_eq!(keeper.to_redis.pending(), b"*1\r\n$4\r\nROLE\r\n");
        assert!(keeper.beat(now + Duration::from_secs(11)).is_err());
    }

    #[test]
    fn a_value_is_kept_for_as_long_as_redis_says() {
        let now = Instant::now();
        for (answer, change, lasts_ms) in [
            (":-1\r\n", "", Some(60_000)),
            (":5000\r\n", "", Some(4994)),
            (":5000\r\n", ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n", None),
            (":5000\r\n", ">2\r\n$10\r\ninvalidate\r\n_\r\n", None),
            (":5000\r\n", ">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nother\r\n", Some(4994)),
            (":-2\r\n", "", None),
            (":1\r\n", "", None),
            ("-NOPERM x\r\n", "", None),
        ] {
            let (mut keeper, mut shared) = begun(now);
            let question = question(&shared);
            shared.ask(question);
            keeper.ask(now, &mut shared);
            assert_eq!(
                keeper.to_redis.pending(),
                b"*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n*2\r\n$4\r\nPTTL\r\n$1\r\nk\r\n"
            );
            let text = format!("{change}+OK\r\n{answer}");
            assert_eq!(keeper.redis(text.as_bytes(), &mut shared), Ok(()));
            let mut is_there = |at: Duration| shared.store.find(2, b"k", 0, Read::Get, now + at).is_ok();
            assert_eq!(is_there(Duration::ZERO), lasts_ms.is_some(), "{answer} {change}");
            if let Some(lasts_ms) = lasts_ms {
                assert!(is_there(Duration::from_millis(lasts_ms - 1)));
                assert!(!is_there(Duration::from_millis(lasts_ms)));
            }
            assert_eq!(shared.asked, 0);
        }
    }

    #[test]
    fn a_redis_that_does_not_tell_its_timeout_has_none() {
        let now = Instant::now();
        for told in ["%1\r\n$7\r\ntimeout\r\n$1\r\n0\r\n", "%0\r\n", "-NOPERM x\r\n", "-ERR x 10\r\n"] {
            let (mut keeper, mut shared) = (Keeper::new(&options(), now), Shared::new(1 << 20, 1 << 16));
            let text = format!("%0\r\n+OK\r\n{TABLE}{told}");
            assert_eq!(keeper.redis(text.as_bytes(), &mut shared), Ok(()));
            assert_eq!(shared.idle, None, "{told}");
        }
    }

    #[test]
    fn a_redis_that_is_of_no_use_is_named() {
        let now = Instant::now();
        for (said, why) in [
            ("-NOAUTH Authentication required.\r\n", "NOAUTH"),
            ("-ERR unknown command 'HELLO'\r\n", "HELLO"),
            ("%0\r\n-NOPERM x\r\n", "NOPERM"),
            ("%0\r\n+OK\r\n*0\r\n", "COMMAND"),
            ("x", "no RESP"),
        ] {
            let mut keeper = Keeper::new(&options(), now);
            let error = keeper.redis(said.as_bytes(), &mut Shared::new(1 << 20, 64)).unwrap_err();
            assert!(error.contains(why), "{said:?}: {error}");
        }
        let (mut keeper, mut shared) = begun(now);
        keeper.beat(now).unwrap();
        assert!(keeper.redis(b"*1\r\n$5\r\nslave\r\n", &mut shared).unwrap_err().contains("no master"));
    }
}
