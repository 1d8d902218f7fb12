//! What the tiers of the cache have in common, whatever they are made of: a store that is never wrong, though it sees memcached's traffic only from
//! outside.
//!
//! ```text
//!            begins(k)                     ends(k)                       a value read in here may be the old or the new one
//!  ------------|----------executed------------|------------>  time
//!   serve      |  void: no serving, no        |  serve what            token(k) -> None while a mutation of k is between its two bars
//!              |  admitting under this key    |  is admitted           admit(.., token): only if no bar was passed since token(k)
//! ```
//!
//! Keys share slots (two keys on one cost a hit). A slot has a number that every mutation moves, and counts the mutations that are seen and not yet
//! known to be executed. A [`Token`] is the slot's number and the store's epoch, read **before** memcached is asked; a value is kept with its token and
//! served while slot and epoch are still at it. So a value is served only if no mutation has been seen since before it was asked for, and none was on
//! its way then.
//!
//! It holds as long as `begins` comes before memcached can execute the mutation, and `ends` after it has. What memcached itself evicts is the one
//! exception: a value may be served after that.
//!
//! Times are nanoseconds of one clock that does not go back. memcached's clock counts seconds, so a value ends [`EARLY_NS`] early, and around the moment
//! of a `flush_all` that was for later nothing is served for [`MARGIN_NS`] on either side.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};

/// A value ends so much before memcached says: its clock counts seconds.
pub const EARLY_NS: u64 = 1_000_000_000;

/// Around the moment of a later flush nothing is served for so long on either side.
pub const MARGIN_NS: u64 = 1_500_000_000;

/// What was read of a store before memcached was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Of the key's slot.
    pub seq: u64,
    /// Of the store.
    pub epoch: u64,
}

/// Of what something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Of one key.
    Key(&'a [u8]),
    /// Of all, or of something not known.
    All,
}

/// When a value ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// At this time.
    At(u64),
}

impl Expiry {
    /// Of the seconds that memcached says are left (`t` of a meta get; negative: for ever), asked for at `asked_ns`.
    pub fn after(asked_ns: u64, seconds: i64) -> Self {
        match u64::try_from(seconds) {
            Err(_) => Expiry::Never,
            Ok(seconds) => Expiry::At(
                asked_ns.saturating_add(seconds.saturating_mul(1_000_000_000)).saturating_sub(EARLY_NS),
            ),
        }
    }

    /// Of a command's exptime, as memcached understands it: 0 never, negative at once, up to 30 days from now, else seconds since 1970 (`unix_s` is now).
    pub fn of(exptime: i64, now_ns: u64, unix_s: i64) -> Self {
        const MONTH: i64 = 60 * 60 * 24 * 30;
        match exptime {
            0 => Expiry::Never,
            1..=MONTH => Self::after(now_ns, exptime),
            _ => Self::after(now_ns, (exptime - unix_s).max(0)),
        }
    }
}

/// A value that may be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit<'a> {
    /// The value.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// Nanoseconds for which it holds; `None`: for ever.
    pub remaining_ns: Option<u64>,
}

/// A value to be kept.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    /// The value.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// When it ends.
    pub expiry: Expiry,
}

/// Why a value was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A mutation has come since the token was read, or one is not known to be executed.
    #[error("it may have changed since it was read")]
    Changed,
    /// It has ended.
    #[error("it has expired")]
    Expired,
    /// It is larger than all of the memory, or its key is no key.
    #[error("it is too large")]
    TooLarge,
}

/// A tier's store.
pub trait Store {
    /// The value of a key, if it may be served.
    fn get(&mut self, key: &[u8], now_ns: u64) -> Option<Hit<'_>>;

    /// What to keep until memcached has answered. `None`: what it answers may not be kept.
    fn token(&mut self, key: &[u8], now_ns: u64) -> Option<Token>;

    /// Keeps what memcached has answered to a question that was asked after `token` was read.
    fn admit(&mut self, key: &[u8], value: Value<'_>, token: Token, now_ns: u64) -> Result<(), Refused>;

    /// A mutation is seen, and memcached may execute it from now on.
    fn begins(&mut self, scope: Scope<'_>);

    /// One that has begun has surely been executed, or will surely not be.
    fn ends(&mut self, scope: Scope<'_>);

    /// A mutation has been executed, or will not be.
    fn invalidate(&mut self, key: &[u8]) {
        self.begins(Scope::Key(key));
        self.ends(Scope::Key(key));
    }

    /// Everything is void now, and at `at_ns` what is kept then, if that is later (`flush_all` with a delay).
    fn flush(&mut self, at_ns: u64, now_ns: u64);
}

/// How many flushes may wait for their time; with more, nothing is served until the last of them.
const FLUSHES: usize = 8;

/// The plain store: what the other ones are compared with. A hash table of the standard library, the oldest value goes first.
#[derive(Debug)]
pub struct Plain<S> {
    values: HashMap<Box<[u8]>, Kept>,
    /// Keys in the order in which they were admitted, with the number of that.
    order: VecDeque<(Box<[u8]>, u64)>,
    admitted: u64,
    bytes: usize,
    most_bytes: usize,
    slots: Box<[Slot]>,
    hasher: S,
    epoch: u64,
    /// Mutations of all that are not known to be executed.
    pending: u64,
    /// Moments of flushes to come.
    flushes: Vec<u64>,
    closed_until_ns: u64,
}

#[derive(Debug)]
struct Kept {
    value: Box<[u8]>,
    flags: u32,
    expiry: Expiry,
    token: Token,
    number: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    seq: u64,
    pending: u64,
}

/// Bytes that a value takes beside key and value.
const OVERHEAD: usize = 160;

impl<S: BuildHasher> Plain<S> {
    /// With at most `most_bytes` of memory for values and `slots` slots (a power of two is made of it). `hasher`: with a seed that nobody outside knows.
    pub fn new(most_bytes: usize, slots: usize, hasher: S) -> Self {
        Plain {
            values: HashMap::new(),
            order: VecDeque::new(),
            admitted: 0,
            bytes: 0,
            most_bytes,
            slots: vec![Slot::default(); slots.max(1).next_power_of_two()].into(),
            hasher,
            epoch: 0,
            pending: 0,
            flushes: Vec::with_capacity(FLUSHES),
            closed_until_ns: 0,
        }
    }

    /// Bytes taken by values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many values there are, void ones too.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn slot(&self, key: &[u8]) -> usize {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish() as usize & (self.slots.len() - 1)
    }

    /// Carries out flushes whose time has come. Whether nothing may be served now.
    fn closed(&mut self, now_ns: u64) -> bool {
        let before = self.flushes.len();
        self.flushes.retain(|at| now_ns < at.saturating_add(MARGIN_NS));
        // Whatever was kept before a flush's last moment is void.
        self.epoch += u64::from(self.flushes.len() < before);
        let closed = self.flushes.iter().any(|at| now_ns >= at.saturating_sub(MARGIN_NS));
        closed || now_ns < self.closed_until_ns || self.pending > 0
    }

    fn current(&self, key: &[u8]) -> Option<Token> {
        let slot = self.slots[self.slot(key)];
        (slot.pending == 0).then_some(Token { seq: slot.seq, epoch: self.epoch })
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(kept) = self.values.remove(key) {
            self.bytes -= kept.value.len() + key.len() + OVERHEAD;
        }
    }

    fn make_room(&mut self, size: usize) {
        while self.bytes + size > self.most_bytes {
            let Some((key, number)) = self.order.pop_front() else { return };
            if self.values.get(&key).is_some_and(|kept| kept.number == number) {
                self.remove(&key);
            }
        }
        // Places in the order of values that are gone: at most as many as there are values.
        if self.order.len() > 2 * self.values.len() + 16 {
            let values = &self.values;
            self.order.retain(|(key, number)| values.get(key).is_some_and(|kept| kept.number == *number));
        }
    }
}

impl<S: BuildHasher> Store for Plain<S> {
    fn get(&mut self, key: &[u8], now_ns: u64) -> Option<Hit<'_>> {
        if self.closed(now_ns) {
            return None;
        }
        let token = self.current(key)?;
        let kept = self.values.get(key).filter(|kept| kept.token == token)?;
        let remaining_ns = match kept.expiry {
            Expiry::Never => None,
            Expiry::At(at) => Some(at.checked_sub(now_ns).filter(|&left| left > 0)?),
        };
        Some(Hit { value: &kept.value, flags: kept.flags, remaining_ns })
    }

    fn token(&mut self, key: &[u8], now_ns: u64) -> Option<Token> {
        if self.closed(now_ns) { None } else { self.current(key) }
    }

    fn admit(&mut self, key: &[u8], value: Value<'_>, token: Token, now_ns: u64) -> Result<(), Refused> {
        if self.closed(now_ns) || self.current(key) != Some(token) {
            return Err(Refused::Changed);
        }
        if matches!(value.expiry, Expiry::At(at) if at <= now_ns) {
            return Err(Refused::Expired);
        }
        let size = key.len() + value.value.len() + OVERHEAD;
        if size > self.most_bytes || key.is_empty() || key.len() > crate::codec::MAX_KEY {
            return Err(Refused::TooLarge);
        }
        self.remove(key);
        self.make_room(size);
        self.admitted += 1;
        self.bytes += size;
        let (flags, expiry, number) = (value.flags, value.expiry, self.admitted);
        self.order.push_back((key.into(), number));
        self.values.insert(key.into(), Kept { value: value.value.into(), flags, expiry, token, number });
        Ok(())
    }

    fn begins(&mut self, scope: Scope<'_>) {
        match scope {
            Scope::Key(key) => {
                let at = self.slot(key);
                self.slots[at].seq += 1;
                self.slots[at].pending += 1;
            }
            Scope::All => {
                self.epoch += 1;
                self.pending += 1;
            }
        }
    }

    fn ends(&mut self, scope: Scope<'_>) {
        let pending = match scope {
            Scope::Key(key) => {
                let at = self.slot(key);
                &mut self.slots[at].pending
            }
            Scope::All => &mut self.pending,
        };
        // One end too many is a fault of the caller, not a reason to serve for ever after.
        *pending = pending.saturating_sub(1);
    }

    fn flush(&mut self, at_ns: u64, now_ns: u64) {
        self.epoch += 1;
        if at_ns.saturating_add(MARGIN_NS) <= now_ns {
            return;
        }
        if self.flushes.len() < FLUSHES {
            self.flushes.push(at_ns);
        } else {
            self.closed_until_ns = self.closed_until_ns.max(at_ns.saturating_add(MARGIN_NS));
        }
    }
}
