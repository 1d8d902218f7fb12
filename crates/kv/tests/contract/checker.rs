//! Whether what was seen of one key can have come from one memcached that does one thing after the other.
//!
//! The question is whether the commands have an order in which each takes effect at one moment between its sending and its reply,
//! and every reply is the one that memcached gives then (linearizability; the search is Wing and Gong's, with Lowe's memory of
//! places where it has been). Data are unique, so that a wrong turn is seen at the next read, and the search hardly ever turns back.
//!
//! What is not known is allowed, and nothing more:
//! - A command without a reply takes effect at any time after it was sent; one that may be lost need not at all.
//! - memcached counts seconds by its own clock. A value with `n` seconds to live dies between `n - 2` and `n + 1` seconds after
//!   it was stored (the former if its second was nearly over and its clock late, the latter if it was late again); before that it
//!   may not be gone, after it not be there. Tests give memcached memory enough, so that it never evicts.

use super::history::{Action, Event, Expiry, OPEN, Outcome, SECOND_NS};
use super::wire::Mode;
use std::collections::HashSet;
use std::rc::Rc;

/// What memcached has under a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Item {
    pub(crate) data: Rc<[u8]>,
    pub(crate) flags: u32,
    /// From when on it may be gone, and until when it may be there, nanoseconds.
    pub(crate) dies_ns: Option<(u64, u64)>,
}

type State = Option<Item>;

/// What came out.
#[derive(Debug)]
pub(crate) enum Verdict {
    Right,
    /// No order explains it.
    Wrong,
    /// The search was given up; the tests keep histories short enough.
    TooHard,
}

/// Steps of the search at most.
const STEPS: usize = 4_000_000;
/// Events of a history at most.
pub(crate) const MOST: usize = 64 * WORDS;
const WORDS: usize = 12;

type Places = [u64; WORDS];

fn dies(event: &Event, expiry: Expiry, end_ns: u64) -> Option<(u64, u64)> {
    match expiry {
        Expiry::In(seconds) => {
            let seconds = u64::from(seconds);
            let after = event.to_ns.min(end_ns);
            Some((event.from_ns + seconds.saturating_sub(2) * SECOND_NS, after + (seconds + 1) * SECOND_NS))
        }
        Expiry::Never | Expiry::Past => None,
    }
}

fn item(event: &Event, data: Vec<u8>, flags: u32, expiry: Expiry, end_ns: u64) -> State {
    let is_past = expiry == Expiry::Past;
    (!is_past).then(|| Item { data: data.into(), flags, dies_ns: dies(event, expiry, end_ns) })
}

fn touched(event: &Event, item: &Item, expiry: Expiry, end_ns: u64) -> State {
    (expiry != Expiry::Past).then(|| Item { dies_ns: dies(event, expiry, end_ns), ..item.clone() })
}

/// What is there afterwards, if memcached would have said so.
fn apply(state: &State, event: &Event, end_ns: u64) -> Option<State> {
    let said = |wanted: Outcome| event.outcome == Outcome::Unknown || event.outcome == wanted;
    let is_read = |item: &Item| match &event.outcome {
        Outcome::Hit { data, flags } => **data == *item.data && *flags == item.flags,
        Outcome::Unknown => true,
        _ => false,
    };
    let same = || Some(state.clone());
    let new = |data: &[u8], flags, expiry| Some(item(event, data.to_vec(), flags, expiry, end_ns));
    match (&event.action, state) {
        (Action::Flush, _) => Some(None),
        (Action::Read | Action::ReadTouch(_) | Action::Touch(_) | Action::Count(_), None)
        | (Action::Cas { .. } | Action::Delete, None) => same().filter(|_| said(Outcome::Miss)),
        (Action::Read, Some(item)) => same().filter(|_| is_read(item)),
        (Action::ReadTouch(expiry), Some(item)) => {
            is_read(item).then(|| touched(event, item, *expiry, end_ns))
        }
        (Action::Touch(expiry), Some(item)) => {
            said(Outcome::Done).then(|| touched(event, item, *expiry, end_ns))
        }
        (Action::Put { mode, data, flags, expiry }, state) => match (mode, state) {
            (Mode::Set, _) | (Mode::Add, None) | (Mode::Replace, Some(_)) => {
                new(data, *flags, *expiry).filter(|_| said(Outcome::Done))
            }
            (Mode::Append | Mode::Prepend, Some(item)) => said(Outcome::Done).then(|| {
                let parts =
                    if *mode == Mode::Append { [&item.data[..], data] } else { [data, &item.data[..]] };
                Some(Item { data: parts.concat().into(), ..item.clone() })
            }),
            _ => same().filter(|_| said(Outcome::NotStored)),
        },
        (Action::Cas { wanted, data, flags, expiry }, Some(item)) => {
            if **wanted == *item.data {
                new(data, *flags, *expiry).filter(|_| said(Outcome::Done))
            } else {
                same().filter(|_| said(Outcome::Exists))
            }
        }
        (Action::Delete, Some(_)) => said(Outcome::Done).then_some(None),
        (Action::Count(by), Some(item)) => {
            let number: u64 = std::str::from_utf8(&item.data).ok()?.parse().ok()?;
            let number = if *by < 0 {
                number.saturating_sub(by.unsigned_abs())
            } else {
                number.wrapping_add(by.unsigned_abs())
            };
            let next = Item { data: number.to_string().into_bytes().into(), ..item.clone() };
            said(Outcome::Number(number)).then_some(Some(next))
        }
    }
}

/// What can be there after an event, given that a value may have died before it.
fn after(state: &State, event: &Event, end_ns: u64) -> impl Iterator<Item = State> {
    let dies = state.as_ref().and_then(|item| item.dies_ns);
    let lives = dies.is_none_or(|(_, until)| event.from_ns <= until);
    let died = dies.is_some_and(|(since, _)| event.to_ns >= since);
    let alive = lives.then(|| apply(state, event, end_ns)).flatten();
    let dead = died.then(|| apply(&None, event, end_ns)).flatten();
    alive.into_iter().chain(dead)
}

/// Whether the events, all of one key, can be explained; `first` is what was there before all of them. `end_ns`: when
/// whatever was on its way had arrived.
pub(crate) fn check(first: &State, events: &[Event], end_ns: u64) -> Verdict {
    assert!(events.len() <= MOST, "{} events of one key: make rounds shorter", events.len());
    let mut order: Vec<&Event> = events.iter().collect();
    // Those that must come first are tried first; what may never have happened is tried last.
    order.sort_by_key(|event| (event.optional, event.to_ns, event.from_ns));
    let has = |places: &Places, at: usize| places[at / 64] >> (at % 64) & 1 == 1;
    let must = order.iter().filter(|event| !event.optional).count();
    let mut been: HashSet<(Places, State)> = HashSet::new();
    // Places done; where in `order` the first one lies that has to be done.
    let mut open: Vec<(Places, usize, State)> = vec![([0; WORDS], 0, first.clone())];
    while let Some((done, mut next, state)) = open.pop() {
        while next < must && has(&done, next) {
            next += 1;
        }
        if next == must {
            return Verdict::Right;
        }
        if been.len() > STEPS {
            return Verdict::TooHard;
        }
        // Nothing that was sent after this reply had come can be before it. Events are sorted by replies.
        let limit = order[next].to_ns;
        // The last one pushed is tried first.
        for at in (next..order.len()).rev() {
            let event = order[at];
            if has(&done, at) || event.from_ns > limit {
                continue;
            }
            for state in after(&state, event, end_ns) {
                let mut done = done;
                done[at / 64] |= 1 << (at % 64);
                if been.insert((done, state.clone())) {
                    open.push((done, next, state));
                }
            }
        }
    }
    Verdict::Wrong
}

/// A part of a wrong history that is wrong by itself: the shortest beginning, without what does not matter.
pub(crate) fn minimal(first: &State, events: &[Event], end_ns: u64) -> Vec<Event> {
    let is_wrong = |events: &[Event]| matches!(check(first, events, end_ns), Verdict::Wrong);
    let mut ends: Vec<u64> = events.iter().map(|event| event.to_ns).filter(|to| *to != OPEN).collect();
    ends.sort_unstable();
    let until = |end: u64| -> Vec<Event> {
        let begun = events.iter().filter(|event| event.from_ns <= end).cloned();
        begun
            .map(|event| match event.to_ns > end {
                // Its reply is not known yet.
                true => Event { to_ns: OPEN, outcome: Outcome::Unknown, optional: true, ..event },
                false => event,
            })
            .collect()
    };
    // A beginning of a right history is right, so halves will do.
    let at = ends.partition_point(|end| !is_wrong(&until(*end)));
    let mut kept = ends.get(at).map_or_else(|| events.to_vec(), |end| until(*end));
    // Everything but the reply that cannot be has to stay explainable: what goes must not be missed by another.
    let Some(last) = (0..kept.len()).filter(|at| kept[*at].to_ns != OPEN).max_by_key(|at| kept[*at].to_ns)
    else {
        return kept;
    };
    let last = kept.remove(last);
    for at in (0..kept.len()).rev() {
        let mut fewer = kept.clone();
        fewer.remove(at);
        if is_wrong(&fewer) {
            continue;
        }
        fewer.push(last.clone());
        if is_wrong(&fewer) {
            fewer.pop();
            kept = fewer;
        }
    }
    kept.push(last);
    kept
}

/// memcached's `flush_all` is not of one moment for a command that reads a value and then stores another: one that has read before it and
/// stores after it survives with what was there. So a flush that overlaps with such a command may have left this key alone.
pub(crate) fn loosen(events: &mut [Event]) {
    let stores_what_it_read = |event: &Event| match &event.action {
        Action::Put { mode, .. } => *mode != Mode::Set,
        Action::Cas { .. } | Action::Count(_) => true,
        _ => false,
    };
    let times: Vec<(u64, u64)> = events
        .iter()
        .filter(|event| stores_what_it_read(event))
        .map(|event| (event.from_ns, event.to_ns))
        .collect();
    for event in events.iter_mut().filter(|event| event.action == Action::Flush) {
        event.optional |= times.iter().any(|(from, to)| event.from_ns <= *to && *from <= event.to_ns);
    }
}
