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
//! - A `flush_all` in `n` seconds takes what was stored by then, and in the second in which it takes effect: from `n - 3` to `n + 1` seconds after it was
//!   asked for anything may be gone that was stored by the end of that, and afterwards nothing is there that had been stored before it was asked for. Another
//!   flush takes its place: from then on it may have had its effect or not.
//! - A memcached that is killed takes everything with it, at one moment between the signal and its end; a `flush_all` for later goes with it, if it waits still.

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
    /// Between which times it was stored.
    pub(crate) stored_ns: (u64, u64),
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
    let stored_ns = (event.from_ns, event.to_ns.min(end_ns));
    (!is_past).then(|| Item { data: data.into(), flags, dies_ns: dies(event, expiry, end_ns), stored_ns })
}

/// Of one that is stored again, or not, by what changes a part of it.
fn changed(event: &Event, item: &Item, data: Vec<u8>, end_ns: u64) -> Item {
    let stored_ns = (item.stored_ns.0, event.to_ns.min(end_ns).max(item.stored_ns.1));
    Item { data: data.into(), stored_ns, ..item.clone() }
}

/// A flush for later: when it was asked for, from when to when it may take effect, and whether it surely does.
#[derive(Debug, Clone, Copy)]
struct Later {
    asked_ns: u64,
    from_ns: u64,
    to_ns: u64,
    firm: bool,
}

/// When a flush for later has taken effect at last.
pub(crate) fn over_ns(event: &Event, seconds: u32, end_ns: u64) -> u64 {
    event.to_ns.min(end_ns) + (u64::from(seconds) + 1) * SECOND_NS
}

fn later(event: &Event, end_ns: u64) -> Option<Later> {
    let Action::FlushLater { seconds, firm } = event.action else { return None };
    Some(Later {
        asked_ns: event.from_ns,
        from_ns: event.from_ns + u64::from(seconds.saturating_sub(3)) * SECOND_NS,
        to_ns: over_ns(event, seconds, end_ns),
        firm: firm && !event.optional && event.to_ns != OPEN,
    })
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
        (Action::Flush | Action::Death, _) => Some(None),
        // Seen to where values may be gone.
        (Action::FlushLater { .. }, _) => same().filter(|_| said(Outcome::Done)),
        (Action::Vivify(expiry), None) => {
            new(b"", 0, *expiry).filter(|_| said(Outcome::Hit { data: Vec::new(), flags: 0 }))
        }
        (Action::Stale, Some(_)) => same().filter(|_| said(Outcome::Done)),
        (Action::CasStale { data, flags }, Some(item)) => said(Outcome::Done).then(|| {
            let dies_ns = item.dies_ns.map(|(since, _)| (since, u64::MAX));
            Some(Item {
                flags: *flags,
                dies_ns,
                ..self::item(event, data.clone(), 0, Expiry::Never, end_ns)?
            })
        }),
        (Action::Read | Action::ReadTouch(_) | Action::Touch(_) | Action::Count(_), None)
        | (Action::Cas { .. } | Action::CasStale { .. } | Action::Stale | Action::Delete, None) => {
            same().filter(|_| said(Outcome::Miss))
        }
        (Action::Read | Action::Vivify(_), Some(item)) => same().filter(|_| is_read(item)),
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
                Some(changed(event, item, parts.concat(), end_ns))
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
            let next = changed(event, item, number.to_string().into_bytes(), end_ns);
            said(Outcome::Number(number)).then_some(Some(next))
        }
    }
}

/// What can be there after an event, given that a value may have died before it.
fn after(state: &State, event: &Event, flushes: &[Later], end_ns: u64) -> impl Iterator<Item = State> {
    let dies = state.as_ref().and_then(|item| item.dies_ns);
    let is_flushed = |flush: &Later, item: &Item| {
        flush.firm && item.stored_ns.1 <= flush.asked_ns && event.from_ns > flush.to_ns
    };
    let may_be = |flush: &Later, item: &Item| item.stored_ns.0 <= flush.to_ns && event.to_ns >= flush.from_ns;
    let any = |is: &dyn Fn(&Later, &Item) -> bool| {
        state.as_ref().is_some_and(|item| flushes.iter().any(|flush| is(flush, item)))
    };
    let lives = dies.is_none_or(|(_, until)| event.from_ns <= until) && !any(&is_flushed);
    let died = dies.is_some_and(|(since, _)| event.to_ns >= since) || any(&may_be);
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
    let flushes: Vec<Later> = events.iter().filter_map(|event| later(event, end_ns)).collect();
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
            for state in after(&state, event, &flushes, end_ns) {
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
        Action::Cas { .. } | Action::CasStale { .. } | Action::Count(_) | Action::Vivify(_) => true,
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
    // One for later takes the place of one that was: what nobody has looked for since is there again.
    let later = events.iter().filter(|event| matches!(event.action, Action::FlushLater { .. }));
    let last_ns = later.map(|event| event.to_ns).max();
    for event in events.iter_mut().filter(|event| event.action == Action::Flush) {
        event.optional |= last_ns.is_some_and(|last_ns| last_ns >= event.from_ns);
    }
    unfirm(events);
}

/// memcached has one time of a flush: any other takes the place of one for later, which then may have had its effect or not.
pub(crate) fn unfirm(events: &mut [Event]) {
    let all: Vec<(u64, u64)> = events
        .iter()
        .filter(|event| event.action.is_of_all())
        .map(|event| (event.from_ns, event.to_ns))
        .collect();
    for event in events {
        let own = (event.from_ns, event.to_ns);
        let Action::FlushLater { seconds, .. } = event.action else { continue };
        let over = over_ns(event, seconds, u64::MAX / 2);
        let others = all.iter().filter(|other| **other != own);
        let is_firm = !others.into_iter().any(|(begun, until)| *until >= own.0 && *begun <= over);
        if let Action::FlushLater { firm, .. } = &mut event.action {
            *firm &= is_firm;
        }
    }
}
