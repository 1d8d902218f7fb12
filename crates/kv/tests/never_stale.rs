//! The plain store beside a model of memcached: writers whose mutations are seen before they are executed and known to be executed after it, askers whose
//! questions are under way meanwhile, flushes at once and for later, time. Whatever the store serves is what memcached would answer at that moment.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use tidemill_kv::table::store::{EARLY_NS, Expiry, MARGIN_NS, Plain, Refused, Scope, Store, Token, Value};

type Hasher = BuildHasherDefault<DefaultHasher>;

const S: u64 = 1_000_000_000;

fn plain(bytes: usize, slots: usize) -> Plain<Hasher> {
    Plain::new(bytes, slots, Hasher::default())
}

fn value(value: &[u8]) -> Value<'_> {
    Value { value, flags: 7, expiry: Expiry::Never }
}

#[test]
fn what_is_admitted_is_served_until_it_is_mutated() {
    let mut store = plain(10_000, 16);
    let token = store.token(b"k", 0).unwrap();
    store.admit(b"k", value(b"v"), token, 0).unwrap();
    let hit = store.get(b"k", 1).unwrap();
    assert_eq!((hit.value, hit.flags, hit.remaining_ns), (&b"v"[..], 7, None));
    store.begins(Scope::Key(b"k"));
    assert_eq!(store.get(b"k", 1), None);
    assert_eq!(store.token(b"k", 1), None);
    store.ends(Scope::Key(b"k"));
    assert_eq!(store.get(b"k", 1), None);
    assert_eq!(store.admit(b"k", value(b"v"), token, 1), Err(Refused::Changed));
    let token = store.token(b"k", 1).unwrap();
    store.admit(b"k", value(b"w"), token, 1).unwrap();
    assert_eq!(store.get(b"k", 1).unwrap().value, b"w");
    store.invalidate(b"k");
    assert_eq!(store.get(b"k", 1), None);
}

#[test]
fn a_value_ends_a_second_early() {
    let mut store = plain(10_000, 16);
    let token = store.token(b"k", 0).unwrap();
    let expiry = Expiry::after(0, 3);
    assert_eq!(expiry, Expiry::At(3 * S - EARLY_NS));
    store.admit(b"k", Value { value: b"v", flags: 0, expiry }, token, 0).unwrap();
    assert_eq!(store.get(b"k", 2 * S - 5).unwrap().remaining_ns, Some(5));
    assert_eq!(store.get(b"k", 2 * S), None);
    assert_eq!(
        store.admit(b"k", Value { value: b"v", flags: 0, expiry }, token, 2 * S),
        Err(Refused::Expired)
    );
    assert_eq!(Expiry::of(0, 5, 100), Expiry::Never);
    assert_eq!(Expiry::of(2_592_000, 0, 100), Expiry::At(2_591_999 * S));
    assert_eq!(Expiry::of(2_592_001, 0, 2_591_991), Expiry::At(9 * S));
    assert_eq!(Expiry::of(2_592_001, 5 * S, 2_592_001), Expiry::At(4 * S), "past");
    assert_eq!(Expiry::of(-1, 5 * S, 2_592_001), Expiry::At(4 * S), "past");
}

#[test]
fn memory_is_bounded_and_the_oldest_goes() {
    let mut store = plain(5_000, 1024);
    for number in 0..10_000_u32 {
        let key = (number % 500).to_be_bytes();
        let token = store.token(&key, 0).unwrap();
        store.admit(&key, value(&[0; 100]), token, 0).unwrap();
        assert!(store.bytes() <= 5_000);
        assert!(store.get(&key, 0).is_some());
    }
    assert!(store.len() > 5 && store.len() < 50);
    let token = store.token(b"k", 0).unwrap();
    assert_eq!(store.admit(b"k", value(&[0; 5_000]), token, 0), Err(Refused::TooLarge));
    let token = store.token(&[0; 251], 0).unwrap();
    assert_eq!(store.admit(&[0; 251], value(b""), token, 0), Err(Refused::TooLarge));
}

#[test]
fn more_flushes_than_can_wait_close_the_store() {
    let mut store = plain(10_000, 16);
    for at in 0..20 {
        store.flush((100 + at) * S, 0);
    }
    assert_eq!(store.token(b"k", 0), None);
    assert!(store.token(b"k", 119 * S + MARGIN_NS).is_some());
}

/// What memcached holds, with its clock of whole seconds.
#[derive(Default)]
struct Model {
    items: HashMap<u8, Item>,
    /// At this second all stored until then ends.
    flush_s: Option<u64>,
    writes: u32,
}

#[derive(Clone, Copy)]
struct Item {
    value: u32,
    /// The second at which it is gone.
    until_s: Option<u64>,
}

impl Model {
    fn run(&mut self, mutation: Mutation, now_ns: u64) {
        self.tick(now_ns);
        match mutation {
            Mutation::Set { key, seconds } => {
                self.writes += 1;
                let until_s = (seconds > 0).then(|| now_ns / S + u64::from(seconds));
                self.items.insert(key, Item { value: self.writes, until_s });
            }
            Mutation::Delete { key } => {
                self.items.remove(&key);
            }
            Mutation::Flush { seconds: 0 } => {
                self.items.clear();
                self.flush_s = None;
            }
            // As memcached, it knows only the last one.
            Mutation::Flush { seconds } => self.flush_s = Some(now_ns / S + u64::from(seconds)),
        }
    }

    fn tick(&mut self, now_ns: u64) {
        let now_s = now_ns / S;
        if self.flush_s.is_some_and(|at| at <= now_s) {
            self.items.clear();
            self.flush_s = None;
        }
        self.items.retain(|_, item| item.until_s.is_none_or(|at| at > now_s));
    }

    fn get(&mut self, key: u8, now_ns: u64) -> Option<Item> {
        self.tick(now_ns);
        self.items.get(&key).copied()
    }
}

#[derive(Debug, Clone, Copy)]
enum Mutation {
    Set { key: u8, seconds: u8 },
    Delete { key: u8 },
    Flush { seconds: u8 },
}

#[derive(Debug, Clone)]
enum Step {
    /// A mutation is seen.
    Begin(Mutation),
    /// One that is seen is executed.
    Execute(usize),
    /// One that is executed is known to be.
    End(usize),
    /// A token is read.
    Ask(u8),
    /// memcached answers one who has read a token.
    Answer(usize),
    /// Its answer is admitted.
    Admit(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let mutation = prop_oneof![
        12 => (0_u8..4, 0_u8..9).prop_map(|(key, seconds)| Mutation::Set { key, seconds }),
        2 => (0_u8..4).prop_map(|key| Mutation::Delete { key }),
        1 => (0_u8..6).prop_map(|seconds| Mutation::Flush { seconds }),
    ];
    prop_oneof![
        2 => mutation.prop_map(Step::Begin),
        3 => (0_usize..3).prop_map(Step::Execute),
        3 => (0_usize..3).prop_map(Step::End),
        5 => (0_u8..4).prop_map(Step::Ask),
        5 => (0_usize..3).prop_map(Step::Answer),
        5 => (0_usize..3).prop_map(Step::Admit),
        3 => (1_u64..1_500).prop_map(|ms| Step::Pass(ms * 1_000_000)),
    ]
}

/// What a question is about, and how far it has come.
#[derive(Clone, Copy)]
struct Question {
    key: u8,
    token: Token,
    asked_ns: u64,
    answer: Option<Item>,
}

fn begin(store: &mut Plain<Hasher>, mutation: Mutation, now_ns: u64, fault: Option<Fault>) {
    match mutation {
        Mutation::Set { key, .. } | Mutation::Delete { key } => store.begins(Scope::Key(&[key])),
        Mutation::Flush { seconds } => {
            store.begins(Scope::All);
            let delay = if fault == Some(Fault::NoDelay) { 0 } else { u64::from(seconds) };
            store.flush(now_ns + delay * S, now_ns);
        }
    }
}

fn end(store: &mut Plain<Hasher>, mutation: Mutation) {
    match mutation {
        Mutation::Set { key, .. } | Mutation::Delete { key } => store.ends(Scope::Key(&[key])),
        Mutation::Flush { .. } => store.ends(Scope::All),
    }
}

/// What a cache may do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The token is read when the value is admitted, not before it is asked for.
    LateToken,
    /// A mutation counts as executed as soon as it is seen.
    EarlyEnd,
    /// A flush for later is forgotten.
    NoDelay,
    /// A value never ends.
    NoExpiry,
}

/// Hits and admissions of a run; an error if something wrong is served.
fn run(steps: &[Step], slots: usize, fault: Option<Fault>) -> Result<(u32, u32), String> {
    let (mut store, mut memcached) = (plain(2_000, slots), Model::default());
    let (mut seen, mut executed, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    let (mut now, mut hits, mut admitted) = (10 * S, 0, 0);
    for step in steps {
        match *step {
            Step::Begin(mutation) => {
                begin(&mut store, mutation, now, fault);
                if fault == Some(Fault::EarlyEnd) {
                    end(&mut store, mutation);
                }
                seen.push((mutation, now));
            }
            Step::Execute(at) if !seen.is_empty() => {
                let (mutation, since) = seen.remove(at % seen.len());
                // A flush's delay counts from its execution: one that takes longer than the margin is beyond what is promised.
                let late = matches!(mutation, Mutation::Flush { seconds: 1.. }) && now - since > MARGIN_NS;
                if !late {
                    memcached.run(mutation, now);
                }
                executed.push(mutation);
            }
            Step::End(at) if !executed.is_empty() => {
                let mutation = executed.remove(at % executed.len());
                if fault != Some(Fault::EarlyEnd) {
                    end(&mut store, mutation);
                }
            }
            Step::Ask(key) => {
                if asked.len() == 4 {
                    asked.remove(0);
                }
                let token = store.token(&[key], now);
                asked.extend(token.map(|token| Question { key, token, asked_ns: now, answer: None }));
            }
            Step::Answer(at) if !asked.is_empty() => {
                let at = at % asked.len();
                let question = &mut asked[at];
                question.answer = memcached.get(question.key, now);
                question.asked_ns = now;
            }
            Step::Admit(at) if !asked.is_empty() => {
                let at = at % asked.len();
                let Question { key, token, asked_ns, answer: Some(item) } = asked[at] else { continue };
                asked.remove(at);
                let left = item.until_s.map_or(-1, |at| at as i64 - (asked_ns / S) as i64);
                let mut now_token = || store.token(&[key], now).unwrap_or(token);
                let token = if fault == Some(Fault::LateToken) { now_token() } else { token };
                let value = Value {
                    value: &item.value.to_be_bytes(),
                    flags: 0,
                    expiry: Expiry::after(asked_ns, if fault == Some(Fault::NoExpiry) { -1 } else { left }),
                };
                admitted += u32::from(store.admit(&[key], value, token, now).is_ok());
            }
            Step::Pass(ns) => now += ns,
            _ => {}
        }
        for key in 0..4 {
            let truth = memcached.get(key, now).map(|item| item.value.to_be_bytes());
            if let Some(hit) = store.get(&[key], now) {
                hits += 1;
                if truth.as_ref().map(|value| &value[..]) != Some(hit.value) {
                    return Err(format!("key {key}: served {:?}, memcached has {truth:?}", hit.value));
                }
            }
        }
    }
    Ok((hits, admitted))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_stale(steps in proptest::collection::vec(step(), 1..200), slots in 0_u32..5) {
        let result = run(&steps, 1 << slots, None);
        prop_assert!(result.is_ok(), "{:?}", result);
    }
}

/// The same check finds what is wrong with a store that is used wrongly. And used rightly, there are hits at all.
#[test]
fn the_check_can_fail_and_hits_happen() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let all = proptest::collection::vec(step(), 200..400);
    let (mut hits, mut admitted) = (0, 0);
    let mut wrong =
        [Fault::LateToken, Fault::EarlyEnd, Fault::NoDelay, Fault::NoExpiry].map(|fault| (fault, 0));
    for _ in 0..300 {
        let steps = all.new_tree(&mut runner).unwrap().current();
        for (fault, runs) in &mut wrong {
            *runs += u32::from(run(&steps, 16, Some(*fault)).is_err());
        }
        let (more, kept) = run(&steps, 16, None).unwrap();
        (hits, admitted) = (hits + more, admitted + kept);
    }
    assert!(wrong.iter().all(|(_, runs)| *runs > 2), "of 300 runs were seen to be wrong: {wrong:?}");
    assert!(hits > 300 && admitted > 300, "{hits} hits of {admitted} admitted");
}
