//! The thread that runs a worker's policy, and in which order it does.
//!
//! ```text
//! ring --all that is there--> turns: renewals | strangers, 61 levels by DSCP | doubted strangers | doubted renewals --a batch--> Engine --ring--> judge
//!                               '-- who has waited for half of `wait_ms`: unasked, late ----------------------------------------------------^
//! ```
//! - **Four kinds share the time**, each in batches of its own: renewals, strangers, and each of these of senders at whose questions of the kind the script has failed lately ([`Doubted`]): two kinds, so that
//!   who asks with somebody else's address takes nothing from what that one is granted. Of those that wait
//!   that kind goes next which has had the least time, doubted ones a batch later. So while renewals are cheap each is next, and what others ask holds it up for one batch of theirs; and who asks for more than his part
//!   takes nobody else's, be his questions as slow as they may.
//! - **Strangers go by priority**: who has waited longest at his Gatekeeper, which is what a DSCP says, then in the order of asking. Each fourth is the one who has asked first of all: else
//!   many who come again after a while would keep out whoever repeats what he asks faster, and so has never waited for long.
//! - **Half of the wait is for the turn, the other half for the answer.** Where more is asked than can be answered, who is served is whoever has waited as long as one may: were that all of
//!   `wait_ms`, each answer would be late, and the work for it lost.
//!   Who is doubted has no longer than a batch is to take: he loses least by it, and is not to fill the room.
//! - **If a batch takes more than a sixteenth of `wait_ms`, the next is smaller**, so that what is urgent does not wait for long behind what is slow. A policy that takes microseconds for a
//!   question always has whole ones.
//! - **While there is no state** ([`Engine::rests_ns`]) nobody is asked: who waits has his turn when there is one again, which is sooner than he would come again. The time that making it takes
//!   is that of the kind whose batch has spent the last one.

use super::doubted::Doubted;
use super::handle::Orders;
use super::{Bounds, Notify, Rings};
use crate::answer::{Answer, Failure};
use crate::error::PolicyError;
use crate::policy::Engine;
use crate::question::Question;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::JoinHandle;
use std::time::Duration;
use tidemill_ip::queue::{LEVELS, PriorityQueue};

/// It looks again after this long, whether it was woken or not.
const NAP: Duration = Duration::from_millis(50);
/// The levels of renewals, of doubted ones, and of doubted strangers; other strangers have those between.
const RENEWALS: u8 = LEVELS as u8 - 1;
const DOUBTED_RENEWALS: u8 = 0;
const DOUBTED_STRANGERS: u8 = 1;
/// Of so many strangers one is who has asked first of all.
const FOR_FIRST: u32 = 4;
/// One may wait for its turn for the wait divided by this,
const FOR_TURN: u64 = 2;
/// and a batch is to take the wait divided by this at most.
const FOR_BATCH: u64 = 16;

/// A question, its number, its place among those that wait, and since when it does, by the clock that the engine has.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) at: u32,
    pub(super) asked_ns: u64,
    pub(super) question: Question,
}

/// An answer, its question's number and place.
#[derive(Clone, Copy)]
pub(super) struct Given {
    pub(super) number: u64,
    pub(super) at: u32,
    /// None: it was too late to ask.
    pub(super) answer: Option<Answer>,
}

/// What a batch is of. Of two that have had as much time the first goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Renewals,
    Strangers,
    DoubtedRenewals,
    DoubtedStrangers,
}

const KINDS: [Kind; 4] = [Kind::Renewals, Kind::Strangers, Kind::DoubtedRenewals, Kind::DoubtedStrangers];

impl Kind {
    fn is_doubted(self) -> bool {
        matches!(self, Kind::DoubtedRenewals | Kind::DoubtedStrangers)
    }
}

/// A kind's part.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// How many a batch has at most now.
    most: usize,
    /// How much time it has had, of which only the difference to another one's says anything.
    had_ns: u64,
}

/// What the thread has.
pub(super) struct Companion {
    engine: Box<Engine>,
    questions: rtrb::Consumer<Asked>,
    answers: rtrb::Producer<Given>,
    orders: Arc<Orders>,
    notify: Notify,
    wait_ns: u64,
    /// Those that are not in the ring any more.
    turns: PriorityQueue<Asked>,
    doubted_renewals: Doubted,
    doubted_strangers: Doubted,
    /// By kind.
    shares: [Share; 4],
    /// Whose batch has spent the last state: the next is made at their cost.
    spent_by: Option<Kind>,
    /// How many strangers have had their turn.
    strangers: u32,
    // Those of one batch.
    batch: Vec<Asked>,
    asked: Vec<Question>,
    given: Vec<Answer>,
}

/// Starts the thread.
pub(super) fn start(
    engine: Box<Engine>,
    orders: Arc<Orders>,
    notify: Notify,
    bounds: Bounds,
    worker: usize,
) -> Result<(Rings, JoinHandle<()>), PolicyError> {
    let (companion, questions, answers) = Companion::new(engine, orders, notify, bounds);
    // Whatever happens in it.
    let guarded = move || drop(catch_unwind(AssertUnwindSafe(|| companion.run())));
    let builder = std::thread::Builder::new().name(format!("policy-{worker}"));
    let thread = builder.spawn(guarded).map_err(PolicyError::Thread)?;
    Ok((Rings { questions, answers, thread: thread.thread().clone() }, thread))
}

/// Where a stranger's question waits.
fn level(question: &Question) -> u8 {
    question.dscp.saturating_sub(1).clamp(DOUBTED_STRANGERS + 1, RENEWALS - 1)
}

/// At first nobody knows how slow a policy is; but who is doubted is known for that.
fn shares(batch: usize) -> [Share; 4] {
    KINDS.map(|kind| Share { most: if kind.is_doubted() { 1 } else { batch }, had_ns: 0 })
}

/// Whose turn it is: of the kinds that wait, that which has had the least time, but who is doubted comes `behind_ns` later. Who does not wait saves nothing up.
fn turn(shares: &mut [Share; 4], waits: [bool; 4], behind_ns: u64) -> Option<Kind> {
    let waiting = KINDS.into_iter().filter(|kind| waits[*kind as usize]);
    let least_ns = waiting.clone().map(|kind| shares[kind as usize].had_ns).min()?;
    let late_ns = |kind: Kind| if kind.is_doubted() { behind_ns } else { 0 };
    let kind = waiting.min_by_key(|kind| shares[*kind as usize].had_ns + late_ns(*kind))?;
    for (share, waits) in shares.iter_mut().zip(waits) {
        if !waits {
            share.had_ns = share.had_ns.max(least_ns);
        }
    }
    Some(kind)
}

/// How many are to be taken at once, at most `batch`, when `went` of at most `most` took `took_ns` and were to take `aim_ns`.
fn paced(most: usize, batch: usize, went: usize, took_ns: u64, aim_ns: u64) -> usize {
    if took_ns > aim_ns {
        return ((went as u64).saturating_mul(aim_ns) / took_ns).max(1) as usize;
    }
    if went == most && took_ns <= aim_ns / 2 { (2 * most).min(batch) } else { most }
}

impl Companion {
    /// With the judge's ends of its rings.
    pub(super) fn new(
        engine: Box<Engine>,
        orders: Arc<Orders>,
        notify: Notify,
        bounds: Bounds,
    ) -> (Companion, rtrb::Producer<Asked>, rtrb::Consumer<Given>) {
        let (questions, asked) = rtrb::RingBuffer::new(bounds.queue);
        let (given, answers) = rtrb::RingBuffer::new(bounds.queue);
        let batch = engine.policy().batch;
        let companion = Companion {
            doubted_renewals: Doubted::new(engine.around().seed),
            doubted_strangers: Doubted::new(engine.around().seed),
            engine,
            questions: asked,
            answers: given,
            orders,
            notify,
            wait_ns: bounds.wait_ns,
            turns: PriorityQueue::new(bounds.queue),
            shares: shares(batch),
            spent_by: None,
            strangers: 0,
            batch: Vec::with_capacity(batch),
            asked: Vec::with_capacity(batch),
            given: Vec::with_capacity(batch),
        };
        (companion, questions, answers)
    }

    fn run(mut self) {
        while !self.orders.stop.load(Ordering::Acquire) {
            if self.round() {
                continue;
            }
            if self.questions.is_abandoned() {
                return;
            }
            if self.turns.is_empty() { self.sleep() } else { self.rest() }
        }
    }

    /// Takes in what has been asked, and answers a batch of it; whether it may go on at once.
    pub(super) fn round(&mut self) -> bool {
        if self.orders.swap(&mut self.engine).is_some() {
            self.shares = shares(self.engine.policy().batch);
            self.spent_by = None;
            self.doubted_renewals.forget();
            self.doubted_strangers.forget();
        }
        while self.turns.len() < self.turns.capacity()
            && let Ok(asked) = self.questions.pop()
        {
            let level = self.level(&asked);
            // There is room.
            let _ = self.turns.push(level, asked);
        }
        if self.turns.is_empty() {
            return false;
        }
        let now_ns = (self.engine.around().clock)();
        let waiting = self.turns.len();
        self.give_up(now_ns);
        if self.engine.rests_ns(now_ns) > 0 {
            if self.turns.len() < waiting {
                (self.notify)();
            }
            return false;
        }
        self.decide(now_ns);
        (self.notify)();
        true
    }

    /// Where it waits for its turn.
    fn level(&self, asked: &Asked) -> u8 {
        let flow = &asked.question.flow;
        if asked.question.is_renewal() {
            let is_doubted = self.doubted_renewals.has(asked.asked_ns, flow);
            return if is_doubted { DOUBTED_RENEWALS } else { RENEWALS };
        }
        let is_doubted = self.doubted_strangers.has(asked.asked_ns, flow);
        if is_doubted { DOUBTED_STRANGERS } else { level(&asked.question) }
    }

    /// Those whose answers would come too late are not asked. At each level they are the first.
    fn give_up(&mut self, now_ns: u64) {
        for level in 0..LEVELS as u8 {
            let most_ns = self.wait_ns / if level <= DOUBTED_STRANGERS { FOR_BATCH } else { FOR_TURN };
            let is_over = |asked: &Asked| now_ns.saturating_sub(asked.asked_ns) >= most_ns;
            while self.turns.oldest(level).is_some_and(is_over) {
                let Some(asked) = self.turns.take(level) else { break };
                self.give(&asked, None);
            }
        }
    }

    /// The next of this kind, if there is one.
    fn next(&mut self, kind: Kind) -> Option<Asked> {
        let level = match kind {
            Kind::Renewals => RENEWALS,
            Kind::Strangers => self.stranger()?,
            Kind::DoubtedRenewals => DOUBTED_RENEWALS,
            Kind::DoubtedStrangers => DOUBTED_STRANGERS,
        };
        self.turns.take(level)
    }

    /// The level of the stranger whose turn it is.
    fn stranger(&mut self) -> Option<u8> {
        let highest = self.turns.highest_below(RENEWALS).filter(|level| *level > DOUBTED_STRANGERS)?;
        self.strangers = self.strangers.wrapping_add(1);
        if !self.strangers.is_multiple_of(FOR_FIRST) {
            return Some(highest);
        }
        let number = |level: u8| self.turns.oldest(level).map(|asked| (asked.number, level));
        (DOUBTED_STRANGERS + 1..=highest).filter_map(number).min().map(|(_, level)| level)
    }

    /// Asks about those whose turn it is.
    fn decide(&mut self, now_ns: u64) {
        let strangers = self.turns.highest_below(RENEWALS).is_some_and(|level| level > DOUBTED_STRANGERS);
        let waits = KINDS.map(|kind| match kind {
            Kind::Renewals => self.turns.oldest(RENEWALS).is_some(),
            Kind::Strangers => strangers,
            Kind::DoubtedRenewals => self.turns.oldest(DOUBTED_RENEWALS).is_some(),
            Kind::DoubtedStrangers => self.turns.oldest(DOUBTED_STRANGERS).is_some(),
        });
        let aim_ns = self.wait_ns / FOR_BATCH;
        let Some(kind) = turn(&mut self.shares, waits, aim_ns) else { return };
        let most = self.shares[kind as usize].most;
        self.batch.clear();
        while self.batch.len() < most
            && let Some(asked) = self.next(kind)
        {
            self.batch.push(asked);
        }
        self.asked.clear();
        self.asked.extend(self.batch.iter().map(|asked| asked.question));
        self.given.clear();
        self.engine.decide(now_ns, &self.asked, &mut self.given);
        let took_ns = (self.engine.around().clock)().saturating_sub(now_ns);
        // Not of those who come first behind a rest.
        let took_ns = took_ns.saturating_sub(self.engine.made_ns());
        if let Some(spent_by) = self.spent_by {
            self.shares[spent_by as usize].had_ns += self.engine.made_ns().min(self.wait_ns);
        }
        // Who finds that there can be none has spent nothing: it stays with whoever has.
        if !self.engine.is_unmade() {
            self.spent_by = self.engine.is_spent().then_some(kind);
        }
        for at in 0..self.batch.len() {
            let (asked, answer) = (self.batch[at], self.given.get(at).copied());
            let failure = answer.and_then(|answer| answer.failure);
            if failure.is_some_and(Failure::is_of_script) {
                let is_renewal = asked.question.is_renewal();
                let doubted =
                    if is_renewal { &mut self.doubted_renewals } else { &mut self.doubted_strangers };
                doubted.add(now_ns, &asked.question.flow);
            }
            self.give(&asked, answer);
        }
        let (batch, distinct) = (self.engine.policy().batch, self.engine.distinct());
        let share = &mut self.shares[kind as usize];
        // A clock that was set meanwhile says nothing.
        share.had_ns += took_ns.clamp(1, self.wait_ns);
        // Fewer would not make it faster where one answer was for all.
        if took_ns <= aim_ns || distinct > 1 {
            share.most = paced(most, batch, self.batch.len(), took_ns, aim_ns);
        }
    }

    fn give(&mut self, asked: &Asked, answer: Option<Answer>) {
        // There is room: a judge has no more questions under way than this ring has places.
        let _ = self.answers.push(Given { number: asked.number, at: asked.at, answer });
    }

    /// Until there may be a state again, or some have waited for too long. Nobody is to wake it for more of them: a worker that polls would do so all the time.
    fn rest(&self) {
        let rests_ns = self.engine.rests_ns((self.engine.around().clock)());
        std::thread::park_timeout(Duration::from_nanos(rests_ns.min(self.wait_ns / FOR_BATCH)));
    }

    /// Until a question comes, or an order.
    fn sleep(&self) {
        // Told first, looked after: a question that comes in between is seen here, or its asker sees that we sleep.
        self.orders.idle.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let nothing = self.questions.is_empty()
            && !self.orders.changed.load(Ordering::Acquire)
            && !self.orders.stop.load(Ordering::Acquire);
        if nothing {
            std::thread::park_timeout(NAP);
        }
        self.orders.idle.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_wire::flow::Addresses;

    #[test]
    fn of_strangers_who_has_waited_longest_comes_first() {
        let of = |dscp| level(&Question { dscp, ..Question::about(Addresses::V4 { src: 1, dst: 2 }) });
        // 0 and 1 ask for nothing and do not come.
        let levels = [0, 1, 3, 4, 41, 42, 63].map(of);
        assert_eq!(levels, [2, 2, 2, 3, 40, 41, 62]);
        assert_eq!(of(255), 62, "no code point has more than 6 bits");
    }

    /// Batches in milliseconds, by kind, while these wait.
    fn goes(shares: &mut [Share; 4], waits: [bool; 4], took: [u64; 4], batches: usize) -> Vec<Kind> {
        let mut went = Vec::new();
        for _ in 0..batches {
            let kind = turn(shares, waits, 12).unwrap();
            shares[kind as usize].had_ns += took[kind as usize];
            went.push(kind);
        }
        went
    }

    #[test]
    fn kinds_that_wait_have_as_much_time_each() {
        use Kind::{DoubtedRenewals, DoubtedStrangers, Renewals, Strangers};
        let mut shares = shares(64);
        assert_eq!(turn(&mut shares, [false; 4], 12), None);
        // However slow one is, and whoever was alone before.
        for took in [[12; 4], [1, 3, 12, 12], [12, 1, 12, 3]] {
            for alone in 0..4 {
                let waits = [0, 1, 2, 3].map(|kind| kind == alone);
                assert!(goes(&mut shares, waits, took, 50).iter().all(|kind| *kind == KINDS[alone]));
                let before = shares;
                goes(&mut shares, [true; 4], took, 500);
                let had = [0, 1, 2, 3].map(|kind| shares[kind].had_ns - before[kind].had_ns);
                let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
                assert!(most - least <= 36, "{took:?} {alone}: {had:?}");
            }
        }
        // Cheap renewals come at once, though the others always wait, and each of these has its part of the rest.
        let (mut shares, took) = (super::shares(64), [1, 12, 12, 12]);
        let mut rest = Vec::new();
        for _ in 0..50 {
            rest.extend(goes(&mut shares, [false, true, true, true], took, 1));
            assert_eq!(goes(&mut shares, [true; 4], took, 1), [Renewals]);
        }
        // Who is doubted is a batch behind.
        assert_eq!(rest[0], Strangers);
        for three in rest[1..].chunks_exact(3) {
            let kinds = [Strangers, DoubtedRenewals, DoubtedStrangers];
            assert!(kinds.iter().all(|kind| three.contains(kind)), "{rest:?}");
        }
    }

    #[test]
    fn slow_batches_become_small_and_fast_ones_large() {
        // 64 ms for 64: 12 have room in 12.
        assert_eq!(paced(64, 64, 64, 64, 12), 12);
        assert_eq!(paced(64, 64, 3, 1000, 12), 1, "one at least");
        assert_eq!((paced(12, 64, 12, 7, 12), paced(12, 64, 12, 12, 12)), (12, 12));
        assert_eq!((paced(12, 64, 12, 6, 12), paced(48, 64, 48, 0, 12)), (24, 64));
        assert_eq!(paced(12, 64, 5, 0, 12), 12, "whether more would be fast enough nobody knows");
    }

    /// A question of one kind fills the script's memory; then one of another kind comes.
    #[cfg(feature = "lua")]
    #[test]
    fn a_state_is_made_at_the_cost_of_those_who_have_spent_the_last() {
        use crate::config::PolicySection;
        use crate::policy::{Policy, Surroundings};
        use crate::question::RENEWAL;
        use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

        let folder = tempfile::tempdir().unwrap();
        let script = "kept = {}\nfunction decide(q)\n\
            while q.destination_port == 5 do table.insert(kept, table.create(200000, 1)) end\n\
            return granted { rate = 1 }\nend";
        std::fs::write(folder.path().join("p.lua"), script).unwrap();
        let section = PolicySection { file: Some("p.lua".into()), ..PolicySection::default() };
        let policy = Policy::open(&section, folder.path()).unwrap();
        let clock = Arc::new(AtomicU64::new(0));
        let (asks, loads) = (clock.clone(), clock.clone());
        let mut around =
            Surroundings::new(Arc::new(move || asks.fetch_add(1, Relaxed)), Arc::new(|_: &str| ()), 1);
        // A step takes much longer while the script loads.
        around.loading = Arc::new(move || loads.fetch_add(10_000, Relaxed));
        let engine = Box::new(Engine::new(&policy, &around, 0).unwrap());
        let (mut companion, mut questions, _answers) =
            Companion::new(engine, Orders::new(), Arc::new(|| ()), Bounds::of(&policy));
        let mut round = |number: u64, dscp, destination_port| {
            let about = Question::about(Addresses::V4 { src: 1, dst: 2 });
            let question = Question { dscp, destination_port, ..about };
            let asked_ns = clock.load(Relaxed);
            assert!(questions.push(Asked { number, at: number as u32, asked_ns, question }).is_ok());
            assert!(companion.round());
            (companion.engine.made_ns(), companion.shares.map(|share| share.had_ns))
        };
        let (made_ns, before) = round(0, 41, 5);
        assert_eq!((made_ns, before[Kind::Renewals as usize]), (0, 0));
        let (made_ns, after) = round(1, RENEWAL, 80);
        assert!(made_ns >= 100_000, "{made_ns}");
        assert!(after[Kind::Renewals as usize] < 10_000, "{after:?}");
        let strangers = Kind::Strangers as usize;
        assert_eq!(after[strangers] - before[strangers], made_ns.min(policy.wait_ns));
        // Once.
        let (made_ns, last) = round(2, RENEWAL, 80);
        assert_eq!((made_ns, last[strangers]), (0, after[strangers]));
    }
}
