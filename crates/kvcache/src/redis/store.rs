//! What is kept, and whether it may be given: the rules of `tidemill_kv::table::store`, on Redis' values.
//!
//! ```text
//!  a request that may change k:   begin -- slot of k: number + 1, one more under way -- sent on -- its reply -- end
//!  a read of k that is sent on:   token (slot, number), if nothing of the slot is under way
//!  its reply, later:              kept under the token -- given while the number is that, and nothing is under way
//! ```
//! Names are of a key in a database, slots of a key in all: what Redis tells of changes does not say where. Values that may not be given any more are void where they lie, until their room is
//! wanted. Room is made first in, first out; what was given since gets another round.

use super::commands::Read;
use super::value::Value;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::time::Instant;

const SLOTS: usize = 1 << 16;
/// What an entry takes besides its value and its name.
const ENTRY_BYTES: usize = 160;
/// Users that an entry knows.
const USERS: usize = 16;
/// Keys that one request may change before it counts as one that may change any.
pub(super) const KEYS: usize = 256;

/// What a slot's keys have gone through.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    number: u64,
    under_way: u32,
}

/// Under which a value may be kept, and is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    slot: usize,
    number: u64,
    epoch: u64,
}

/// What a request holds until it has been executed.
#[derive(Debug, Default)]
#[must_use = "what is begun has to end"]
pub(super) enum Effect {
    #[default]
    Nothing,
    /// These slots.
    Slots(Vec<usize>),
    All,
    /// A transaction's.
    Several(Vec<Effect>),
}

impl Effect {
    /// What it holds besides its place.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Effect::Nothing | Effect::All => 0,
            Effect::Slots(slots) => size_of_val(slots.as_slice()),
            Effect::Several(effects) => {
                size_of_val(effects.as_slice()) + effects.iter().map(Effect::bytes).sum::<usize>()
            }
        }
    }
}

#[derive(Debug)]
struct Entry {
    value: Value,
    token: Token,
    until: Instant,
    /// Users, and the reads that Redis has answered them.
    allowed: Vec<(u32, u32)>,
    given: bool,
    number: u64,
}

/// What a value is kept with.
pub(super) struct Kept {
    pub(super) value: Value,
    pub(super) token: Token,
    pub(super) until: Instant,
    pub(super) user: u32,
    pub(super) read: Read,
}

/// Why a value is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Not {
    Here,
    Allowed,
}

/// All that is kept.
pub(super) struct Store {
    slots: Box<[Slot]>,
    epoch: u64,
    /// Requests under way that may change any key.
    all: u32,
    /// Until when Redis is believed to have told of all changes.
    sure_until: Option<Instant>,
    entries: HashMap<Rc<[u8]>, Entry, RandomState>,
    /// In the order in which they came; entries that are gone too.
    queue: VecDeque<(Rc<[u8]>, u64)>,
    bytes: usize,
    bytes_max: usize,
    number: u64,
    name: Vec<u8>,
    /// Nobody can foresee it: clients pick the keys.
    hash: RandomState,
}

/// Whether nothing has begun since, and nothing is under way.
fn holds(slots: &[Slot], all: u32, epoch: u64, token: &Token) -> bool {
    let slot = slots[token.slot];
    slot.number == token.number && slot.under_way == 0 && all == 0 && epoch == token.epoch
}

impl Store {
    /// With room for so many bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        let hash = RandomState::default();
        Store {
            slots: vec![Slot::default(); SLOTS].into(),
            epoch: 0,
            all: 0,
            sure_until: None,
            entries: HashMap::with_hasher(hash.clone()),
            queue: VecDeque::new(),
            bytes: 0,
            bytes_max,
            number: 0,
            name: Vec::new(),
            hash,
        }
    }

    fn slot(&self, key: &[u8]) -> usize {
        self.hash.hash_one(key) as usize % SLOTS
    }

    /// A request that may change these keys is about to be sent on.
    pub(super) fn begin<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) -> Effect {
        let slots: Vec<usize> = keys.take(KEYS + 1).map(|key| self.slot(key)).collect();
        if slots.len() > KEYS {
            return self.begin_all();
        }
        for &at in &slots {
            self.slots[at].number += 1;
            self.slots[at].under_way += 1;
        }
        if slots.is_empty() { Effect::Nothing } else { Effect::Slots(slots) }
    }

    /// One that may change any.
    pub(super) fn begin_all(&mut self) -> Effect {
        self.void();
        self.all += 1;
        Effect::All
    }

    /// It has been executed, or never will be.
    pub(super) fn end(&mut self, effect: Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::All => self.all -= 1,
            Effect::Slots(slots) => slots.into_iter().for_each(|at| self.slots[at].under_way -= 1),
            Effect::Several(effects) => effects.into_iter().for_each(|effect| self.end(effect)),
        }
    }

    /// Redis has told that somebody changed a key.
    pub(super) fn changed(&mut self, key: &[u8]) {
        let at = self.slot(key);
        self.slots[at].number += 1;
    }

    /// All that is kept is void.
    pub(super) fn void(&mut self) {
        self.epoch += 1;
    }

    /// Until then Redis has told of all changes whose writers have their reply.
    pub(super) fn sure(&mut self, until: Option<Instant>) {
        self.sure_until = until;
    }

    /// Whether anything can be given now.
    pub(super) fn is_sure(&self, now: Instant) -> bool {
        self.all == 0 && self.sure_until.is_some_and(|until| now < until)
    }

    /// For a read that is about to be sent on.
    pub(super) fn token(&self, key: &[u8]) -> Option<Token> {
        let slot = self.slot(key);
        let Slot { number, under_way } = self.slots[slot];
        (under_way == 0 && self.all == 0).then_some(Token { slot, number, epoch: self.epoch })
    }

    /// Whether nothing has begun since, and nothing is under way.
    pub(super) fn holds(&self, token: &Token) -> bool {
        holds(&self.slots, self.all, self.epoch, token)
    }

    fn named(&mut self, db: u32, key: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(&db.to_le_bytes());
        self.name.extend_from_slice(key);
    }

    /// The value of a key, if this user may have it by this read.
    pub(super) fn find(
        &mut self,
        db: u32,
        key: &[u8],
        user: u32,
        read: Read,
        now: Instant,
    ) -> Result<&Value, Not> {
        self.named(db, key);
        let Store { slots, epoch, all, entries, name, .. } = self;
        let entry = entries.get_mut(&name[..]).ok_or(Not::Here)?;
        if !holds(slots, *all, *epoch, &entry.token) || now >= entry.until {
            return Err(Not::Here);
        }
        if !entry.allowed.iter().any(|(one, reads)| *one == user && reads & read.bit() != 0) {
            return Err(Not::Allowed);
        }
        entry.given = true;
        Ok(&entry.value)
    }

    /// Redis has answered a user this read of a key, sent on under `token`: whether its value is here, and now it may have it.
    pub(super) fn allow(
        &mut self,
        db: u32,
        key: &[u8],
        token: &Token,
        user: u32,
        read: Read,
        now: Instant,
    ) -> bool {
        self.named(db, key);
        let holds = self.holds(token);
        let Some(entry) = self.entries.get_mut(&self.name[..]) else { return false };
        if !holds || entry.token != *token || now >= entry.until {
            return false;
        }
        match entry.allowed.iter().position(|(one, _)| *one == user) {
            Some(at) => entry.allowed[at].1 |= read.bit(),
            None if entry.allowed.len() < USERS => entry.allowed.push((user, read.bit())),
            None => {}
        }
        true
    }

    /// Keeps a value, if it may still be; whether it is.
    pub(super) fn keep(&mut self, db: u32, key: &[u8], kept: Kept) -> bool {
        let Kept { value, token, until, user, read } = kept;
        if !self.holds(&token) {
            return false;
        }
        self.named(db, key);
        let bytes = ENTRY_BYTES + self.name.len() + value.bytes();
        if bytes > self.bytes_max {
            return false;
        }
        let name: Rc<[u8]> = self.name[..].into();
        self.remove(&name);
        self.number += 1;
        let allowed = vec![(user, read.bit())];
        let entry = Entry { value, token, until, allowed, given: false, number: self.number };
        self.bytes += bytes;
        self.queue.push_back((name.clone(), self.number));
        self.entries.insert(name, entry);
        self.make_room();
        true
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(entry) = self.entries.remove(name) {
            self.bytes -= ENTRY_BYTES + name.len() + entry.value.bytes();
        }
    }

    fn make_room(&mut self) {
        while self.bytes > self.bytes_max {
            let Some((name, number)) = self.queue.pop_front() else { return };
            let Some(token) = self.entries.get(&name).filter(|entry| entry.number == number).map(|e| e.token)
            else {
                continue;
            };
            let holds = self.holds(&token);
            match self.entries.get_mut(&name) {
                Some(entry) if entry.given && holds => {
                    entry.given = false;
                    self.queue.push_back((name, number));
                }
                _ => self.remove(&name),
            }
        }
        // Values that were kept anew have left their places behind.
        if self.queue.len() > 2 * self.entries.len() + 1024 {
            let entries = &self.entries;
            self.queue
                .retain(|(name, number)| entries.get(name).is_some_and(|entry| entry.number == *number));
        }
    }

    /// Values, and the bytes that they take.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.entries.len() as u64, self.bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn value(text: &str) -> Value {
        Value::from_reply(Read::Get, format!("${}\r\n{text}\r\n", text.len()).as_bytes()).unwrap()
    }

    fn keep(store: &mut Store, key: &str, token: Option<Token>, until: Instant) -> bool {
        let Some(token) = token else { return false };
        let kept = Kept { value: value("v"), token, until, user: 0, read: Read::Get };
        store.keep(0, key.as_bytes(), kept)
    }

    fn found(store: &mut Store, key: &str, now: Instant) -> Result<(), Not> {
        store.find(0, key.as_bytes(), 0, Read::Get, now).map(|_| ())
    }

    #[test]
    fn what_may_have_changed_is_neither_kept_nor_given() {
        let (mut store, now) = (Store::new(1 << 20), Instant::now());
        let later = now + Duration::from_secs(60);
        assert!(!store.is_sure(now));
        store.sure(Some(later));
        assert!(store.is_sure(now) && !store.is_sure(later));
        // A read before a change, one while it is under way, one behind it.
        let before = store.token(b"k");
        let effect = store.begin([&b"k"[..]].into_iter());
        assert_eq!(store.token(b"k"), None);
        assert!(!keep(&mut store, "k", before, later));
        store.end(effect);
        assert!(!keep(&mut store, "k", before, later));
        let token = store.token(b"k");
        assert!(keep(&mut store, "k", token, later));
        assert_eq!(found(&mut store, "k", now), Ok(()));
        assert_eq!(found(&mut store, "k", later), Err(Not::Here));
        assert_eq!(store.find(1, b"k", 0, Read::Get, now).map(|_| ()), Err(Not::Here), "another database");
        // Each way to make it void.
        let ways: [fn(&mut Store); 4] = [
            |store| store.changed(b"k"),
            |store| store.void(),
            |store| {
                let effect = store.begin([&b"k"[..]].into_iter());
                store.end(effect);
            },
            |store| {
                let effect = store.begin_all();
                assert!(!store.is_sure(Instant::now()));
                store.end(Effect::Several(vec![effect]));
            },
        ];
        for way in ways {
            let token = store.token(b"k");
            assert!(keep(&mut store, "k", token, later));
            assert_eq!(found(&mut store, "k", now), Ok(()));
            way(&mut store);
            assert_eq!(found(&mut store, "k", now), Err(Not::Here));
        }
        let many = (0..=KEYS).map(|_| &b"k"[..]);
        let effect = store.begin(many);
        assert!(matches!(effect, Effect::All));
        store.end(effect);
        assert_eq!(store.size().0, 1);
    }

    #[test]
    fn each_user_and_read_has_to_be_answered_by_redis_once() {
        let (mut store, now) = (Store::new(1 << 20), Instant::now());
        let later = now + Duration::from_secs(60);
        let token = store.token(b"k").unwrap();
        assert!(!store.allow(0, b"k", &token, 1, Read::Get, now), "it is not here");
        assert!(keep(&mut store, "k", Some(token), later));
        let find = |store: &mut Store, user, read| store.find(0, b"k", user, read, now).map(|_| ());
        assert_eq!(find(&mut store, 1, Read::Get), Err(Not::Allowed));
        assert_eq!(find(&mut store, 0, Read::Strlen), Err(Not::Allowed));
        assert!(store.allow(0, b"k", &token, 1, Read::Get, now));
        assert!(store.allow(0, b"k", &token, 0, Read::Strlen, now));
        assert_eq!(find(&mut store, 1, Read::Get), Ok(()));
        assert_eq!(find(&mut store, 0, Read::Strlen), Ok(()));
        assert_eq!(find(&mut store, 1, Read::Strlen), Err(Not::Allowed));
        store.changed(b"k");
        assert!(!store.allow(0, b"k", &token, 2, Read::Get, now));
    }

    #[test]
    fn room_is_bounded_and_what_is_given_stays_longer() {
        let (mut store, now) = (Store::new(100_000), Instant::now());
        let later = now + Duration::from_secs(60);
        let token = store.token(b"hot");
        assert!(keep(&mut store, "hot", token, later));
        for n in 0..5000 {
            let key = format!("key:{n}");
            let token = store.token(key.as_bytes());
            assert!(keep(&mut store, &key, token, later));
            assert_eq!(found(&mut store, "hot", now), Ok(()), "{n}");
            assert!(store.size().1 <= 100_000);
        }
        assert!((300..600).contains(&store.size().0), "{:?}", store.size());
        // The same key over and over leaves nothing behind.
        for _ in 0..5000 {
            let token = store.token(b"hot");
            assert!(keep(&mut store, "hot", token, later));
        }
        assert!(store.queue.len() <= 2 * store.entries.len() + 1024);
        let token = store.token(b"large").unwrap();
        let kept = Kept { value: value(&"v".repeat(100_000)), token, until: later, user: 0, read: Read::Get };
        assert!(!store.keep(0, b"large", kept));
    }
}
