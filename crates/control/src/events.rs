//! What happens, as it happens: `GET /v1/events`, one JSON object per line until the reader goes away.
//!
//! The last [`KEPT`] events lie in a ring; a reader is a number, the next event that it wants. Who tells of an event puts it into the ring and
//! waits for nobody. A reader that is slower than what happens finds its number gone when it comes back, is told how many events it has
//! lost, and goes on with the oldest that is kept. So readers cost no thread and no memory that grows, and none of them is in another's way.
//!
//! ```text
//! ring   [41][42][43][44]      next: 45
//! fast reader: 45, waits       slow reader: 17 -> {"kind":"lost","values":{"events":24}}, then 41
//! ```

use crate::registry::ApiError;
use crate::schema::{Event, EventKind, EventsQuery, Severity};
use hyper::body::{Body, Bytes, Frame};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::sleep;

/// Events that are kept for who asks later or reads slowly.
pub(crate) const KEPT: usize = 1024;
/// Readers at a time on the Unix socket, and as many on TCP: each has places of its own.
pub(crate) const READERS: usize = 32;
/// The content type: a JSON object per line.
pub(crate) const CONTENT_TYPE: &str = "application/x-ndjson";
/// Characters of a text in an event; longer ones are cut.
const TEXT: usize = 1000;
/// Values in an event.
const VALUES: usize = 32;
/// Bytes that are sent together.
const PIECE: usize = 16 << 10;

/// The kinds that every service has: what a reader is told of itself.
const OF_READERS: [(&str, &str); 2] = [
    (
        "alive",
        "Nothing has happened for a while; the first line of an answer is one too. about is this process's name, for the query's of",
    ),
    (
        "lost",
        "Events were overwritten before this reader took them: values.events says how many, of all kinds",
    ),
];

/// Where a service tells of what happens. Clones tell of it in the same place.
#[derive(Clone)]
pub struct Events(Arc<Hub>);

struct Hub {
    /// This process's, unlike that of the next one.
    id: String,
    ring: Mutex<Ring>,
    /// The number of the next event, for who waits for it.
    next: watch::Sender<u64>,
}

/// The last events: those with the numbers from `next - kept.len()` to below `next`.
struct Ring {
    kept: VecDeque<Kept>,
    next: u64,
}

/// An event, ready to be sent.
struct Kept {
    kind: String,
    line: Box<[u8]>,
}

impl Default for Events {
    fn default() -> Self {
        let ring = Ring { kept: VecDeque::with_capacity(KEPT), next: 1 };
        let id = format!("{:x}-{:x}", now_ns(), std::process::id());
        Events(Arc::new(Hub { id, ring: Mutex::new(ring), next: watch::Sender::new(1) }))
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} events so far", self.ring().next - 1)
    }
}

impl Events {
    /// Tells of an event; `seq` is given here, and `time_ns` if it is 0. Returns at once, whoever reads or does not.
    pub fn tell(&self, mut event: Event) {
        if event.time_ns == 0 {
            event.time_ns = now_ns();
        }
        [&mut event.about, &mut event.message].into_iter().for_each(cut);
        while event.values.len() > VALUES {
            event.values.pop_last();
        }
        let next = {
            let mut ring = self.ring();
            event.seq = ring.next;
            // What has no form as JSON (it all has) would be no event.
            let Some(line) = line(&event) else { return };
            if ring.kept.len() == KEPT {
                ring.kept.pop_front();
            }
            ring.kept.push_back(Kept { kind: event.kind, line });
            ring.next += 1;
            ring.next
        };
        // Of two that tell at once, the later number is the one that is seen in the end.
        self.0.next.send_modify(|seen| *seen = next.max(*seen));
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cuts a text that is too long, at a character, and makes one line of it that a terminal may be shown: some of it are words of others.
fn cut(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(TEXT) {
        text.truncate(at);
        text.push('\u{2026}');
    }
    if text.contains(char::is_control) {
        *text = text.replace(char::is_control, " ");
    }
}

fn line(event: &Event) -> Option<Box<[u8]>> {
    let mut line = serde_json::to_vec(event).ok()?;
    line.push(b'\n');
    Some(line.into())
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A line about the reader itself: the number of the last event before it, and what there is to say.
fn of_reader(kind: &str, about: &str, seq: u64, message: String, events: Option<u64>) -> Box<[u8]> {
    let severity = if events.is_some() { Severity::Warning } else { Severity::Info };
    let values = events.map(|events| ("events".to_owned(), events as f64)).into_iter().collect();
    let event =
        Event { seq, time_ns: now_ns(), kind: kind.into(), severity, about: about.into(), message, values };
    line(&event).unwrap_or_default()
}

/// One reader: where it is, and what it wants.
pub(crate) struct Reader {
    events: Events,
    /// The number of the next event that it has not seen.
    at: u64,
    /// The kinds that it wants; all of them if there are none.
    kinds: Vec<String>,
    /// Whether it wants only what is there.
    once: bool,
}

impl Reader {
    /// A reader that begins where a query says. `kinds` are those that there are.
    pub(crate) fn new(events: Events, kinds: &[EventKind], query: &EventsQuery) -> Result<Self, ApiError> {
        let wanted = query.kind.as_deref().unwrap_or_default();
        let wanted: Vec<String> =
            wanted.split(',').map(str::trim).filter(|kind| !kind.is_empty()).map(str::to_owned).collect();
        if let Some(wrong) = wanted.iter().find(|wanted| !kinds.iter().any(|kind| kind.kind == **wanted)) {
            let known: Vec<&str> = kinds.iter().map(|kind| kind.kind.as_str()).collect();
            return Err(ApiError::bad_request(format!(
                "kind: there are no events {wrong:?}: give some of {}",
                known.join(", ")
            )));
        }
        if query.of.is_some() && query.after.is_none() {
            return Err(ApiError::bad_request("of: is the process whose number after is: give after too"));
        }
        if query.after.is_some() && query.last.is_some() {
            return Err(ApiError::bad_request("give after or last, not both"));
        }
        let at = {
            let ring = events.ring();
            let oldest = ring.next - ring.kept.len() as u64;
            let elsewhere = query.of.as_ref().is_some_and(|of| *of != events.0.id);
            match (query.after, query.last) {
                // Another process has counted so far: all of this one's are new.
                (Some(_), _) if elsewhere => oldest,
                // A number that is still to come is another process's: this one's events are all new.
                (Some(after), _) if after >= ring.next => oldest,
                (Some(after), _) => after + 1,
                (None, Some(last)) => {
                    let is_wanted = |kept: &Kept| wanted.is_empty() || wanted.contains(&kept.kind);
                    let mut left = last;
                    let seen = ring.kept.iter().rev().take_while(|kept| {
                        let takes = left > 0;
                        left -= u32::from(takes && is_wanted(kept));
                        takes
                    });
                    ring.next - seen.count() as u64
                }
                (None, None) if query.once.unwrap_or(false) => oldest,
                (None, None) => ring.next,
            }
        };
        Ok(Reader { events, at, kinds: wanted, once: query.once.unwrap_or(false) })
    }

    /// The lines of what has happened since the last time, as many as are sent together; none if nothing has.
    fn take(&mut self) -> Vec<u8> {
        let mut piece = Vec::new();
        let ring = self.events.ring();
        let oldest = ring.next - ring.kept.len() as u64;
        if self.at < oldest {
            let lost = oldest - self.at;
            let message = format!("{lost} events are lost: they came faster than they were read");
            piece.extend_from_slice(&of_reader("lost", "", oldest - 1, message, Some(lost)));
            self.at = oldest;
        }
        for kept in ring.kept.iter().skip((self.at - oldest) as usize) {
            if piece.len() >= PIECE {
                break;
            }
            self.at += 1;
            if self.kinds.is_empty() || self.kinds.contains(&kept.kind) {
                piece.extend_from_slice(&kept.line);
            }
        }
        piece
    }

    /// The body of the answer. `place` is given back when it ends; `every` is how often a line comes at least.
    pub(crate) fn start(
        self,
        place: OwnedSemaphorePermit,
        stopped: watch::Receiver<bool>,
        every: Duration,
    ) -> Lines {
        // One piece waits for the connection; whatever is behind it waits in the ring.
        let (sender, receiver) = channel(1);
        tokio::spawn(self.feed(sender, place, stopped, every));
        Lines(receiver)
    }

    async fn feed(
        mut self,
        sender: Sender<Bytes>,
        _place: OwnedSemaphorePermit,
        mut stopped: watch::Receiver<bool>,
        every: Duration,
    ) {
        let mut next = self.events.0.next.subscribe();
        let mut quiet = !self.once;
        loop {
            // Before looking, so that what comes in between wakes us.
            next.borrow_and_update();
            let mut piece = self.take();
            if piece.is_empty() && self.once {
                return;
            }
            if quiet {
                let (id, at) = (&self.events.0.id, self.at.saturating_sub(1));
                let alive = of_reader("alive", id, at, String::new(), None);
                piece.splice(..0, alive);
            }
            quiet = false;
            if !piece.is_empty() {
                tokio::select! {
                    sent = sender.send(piece.into()) => if sent.is_err() { return },
                    _ = stopped.wait_for(|stop| *stop) => return,
                }
                continue;
            }
            tokio::select! {
                _ = next.changed() => {}
                _ = sender.closed() => return,
                _ = stopped.wait_for(|stop| *stop) => {
                    // The last that is to be said, if there is room for it.
                    let _ = sender.try_send(self.take().into());
                    return;
                }
                _ = sleep(every) => quiet = true,
            }
        }
    }
}

/// The kinds of a service's events, with those that every reader may see.
pub(crate) fn kinds(registered: Vec<EventKind>) -> Vec<EventKind> {
    let ours = OF_READERS.iter().map(|(kind, help)| EventKind { kind: (*kind).into(), help: (*help).into() });
    registered.into_iter().chain(ours).collect()
}

/// The body of an answer.
pub(crate) struct Lines(Receiver<Bytes>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, message: impl Into<String>) -> Event {
        Event { kind: kind.into(), message: message.into(), ..Event::default() }
    }

    fn reader(events: &Events, query: EventsQuery) -> Reader {
        let known = ["a", "b"].map(|kind| EventKind { kind: kind.into(), help: String::new() });
        Reader::new(events.clone(), &known, &query).unwrap()
    }

    /// All that a reader gets now: kind, number and message of each line.
    fn read(reader: &mut Reader) -> Vec<(String, u64, String)> {
        let mut lines = Vec::new();
        loop {
            let piece = reader.take();
            if piece.is_empty() {
                return lines;
            }
            for line in String::from_utf8(piece).unwrap().lines() {
                let event: Event = serde_json::from_str(line).unwrap();
                lines.push((event.kind, event.seq, event.message));
            }
        }
    }

    fn numbers(reader: &mut Reader) -> Vec<u64> {
        read(reader).into_iter().map(|(_, seq, _)| seq).collect()
    }

    #[test]
    fn readers_begin_where_they_say() {
        let events = Events::default();
        for n in 1..=6 {
            events.tell(event(if n % 2 == 1 { "a" } else { "b" }, n.to_string()));
        }
        let of = |query| numbers(&mut reader(&events, query));
        let query = EventsQuery::default;
        assert_eq!(of(query()), Vec::<u64>::new());
        assert_eq!(of(EventsQuery { once: Some(true), ..query() }), [1, 2, 3, 4, 5, 6]);
        assert_eq!(of(EventsQuery { last: Some(2), ..query() }), [5, 6]);
        assert_eq!(of(EventsQuery { last: Some(0), ..query() }), Vec::<u64>::new());
        assert_eq!(of(EventsQuery { last: Some(9), ..query() }), [1, 2, 3, 4, 5, 6]);
        assert_eq!(of(EventsQuery { last: Some(2), kind: Some("a".into()), ..query() }), [3, 5]);
        assert_eq!(of(EventsQuery { after: Some(4), ..query() }), [5, 6]);
        assert_eq!(of(EventsQuery { after: Some(6), ..query() }), Vec::<u64>::new());
        // Another process's number: all of this one's are new.
        assert_eq!(of(EventsQuery { after: Some(7), ..query() }), [1, 2, 3, 4, 5, 6]);
        assert_eq!(of(EventsQuery { after: Some(u64::MAX), ..query() }), [1, 2, 3, 4, 5, 6]);
        // A number that may be of both: the process's name tells.
        let id = Some(events.0.id.clone());
        assert_eq!(of(EventsQuery { after: Some(4), of: id.clone(), ..query() }), [5, 6]);
        assert_eq!(
            of(EventsQuery { after: Some(4), of: Some("other".into()), ..query() }),
            [1, 2, 3, 4, 5, 6]
        );
        let known = [EventKind { kind: "a".into(), help: String::new() }];
        assert!(Reader::new(events.clone(), &known, &EventsQuery { of: id, ..query() }).is_err());
        let wrong = EventsQuery { kind: Some("a,c".into()), ..query() };
        let known = [EventKind { kind: "a".into(), help: String::new() }];
        let error = Reader::new(events.clone(), &known, &wrong).err().unwrap();
        assert_eq!(error.to_string(), "kind: there are no events \"c\": give some of a");
    }

    /// A list that keeps everything is the oracle: what a reader gets and what it is told to have lost are all of it, in order, once.
    #[test]
    fn what_is_read_and_what_is_lost_is_all_of_it() {
        let events = Events::default();
        let mut readers: Vec<(usize, Reader, u64, u64)> = [1, 7, 400, 1500, 5000]
            .map(|pace| {
                (pace, reader(&events, EventsQuery { after: Some(0), ..EventsQuery::default() }), 0, 0)
            })
            .into();
        for n in 1..=10_000_u64 {
            events.tell(event("a", n.to_string()));
            for (pace, reader, seen, lost) in &mut readers {
                if !(n as usize).is_multiple_of(*pace) {
                    continue;
                }
                for (kind, seq, message) in read(reader) {
                    if kind == "lost" {
                        let count: u64 = message.split(' ').next().unwrap().parse().unwrap();
                        *lost += count;
                        assert_eq!(*seen + *lost, seq);
                    } else {
                        *seen += 1;
                        assert_eq!((seq, message), (*seen + *lost, seq.to_string()));
                    }
                }
                assert_eq!(*seen + *lost, n);
            }
        }
        let lost: Vec<u64> = readers.iter().map(|(.., lost)| *lost).collect();
        assert_eq!(lost, [0, 0, 0, 6 * (1500 - 1024), 2 * (5000 - 1024)]);
    }

    #[test]
    fn an_event_has_its_bounds() {
        let events = Events::default();
        let values = (0..100).map(|n| (format!("{n:03}"), 1.0)).collect();
        events.tell(Event { values, ..event("a", "\u{e9}\n\u{1b}".repeat(TEXT)) });
        let piece = reader(&events, EventsQuery { last: Some(1), ..EventsQuery::default() }).take();
        let event: Event = serde_json::from_slice(&piece).unwrap();
        assert_eq!((event.message.chars().count(), event.values.len()), (TEXT + 1, VALUES));
        assert!(!event.message.contains(char::is_control) && event.time_ns > 0);
    }
}
