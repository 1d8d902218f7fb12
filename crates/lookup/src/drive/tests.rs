use super::*;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Which driver, at which width.
#[derive(Debug, Clone, Copy)]
enum Driver {
    Group(usize),
    Coroutine(usize),
}

impl Driver {
    fn all() -> impl Iterator<Item = Driver> {
        let widths: &[usize] =
            if cfg!(miri) { &[1, 3, 65] } else { &[0, 1, 2, 3, 7, 8, 63, 64, 65, usize::MAX] };
        widths.iter().flat_map(|&width| [Driver::Group(width), Driver::Coroutine(width)])
    }

    fn run<F: Future>(self, tasks: usize, start: impl FnMut(usize) -> F, done: impl FnMut(usize, F::Output)) {
        match self {
            Driver::Group(width) => group(tasks, width, start, done),
            Driver::Coroutine(width) => coroutine(tasks, width, start, done),
        }
    }

    fn width(self) -> usize {
        let (Driver::Group(width) | Driver::Coroutine(width)) = self;
        width.clamp(1, 64)
    }
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Chains in random memory, each of its own length: the plain walk and the coroutine.
struct Chains {
    next: Vec<u32>,
}

const END: u32 = u32::MAX;

impl Chains {
    fn new(len: usize) -> Self {
        let mut state = 1;
        let next = (0..len).map(|_| match random(&mut state) {
            r if r % 5 == 0 => END,
            r => (r >> 32) as u32 % len as u32,
        });
        Chains { next: next.collect() }
    }

    /// Links followed, and where from last; at most `most`, since chains may be rings.
    fn walk(&self, mut at: u32, most: usize) -> (usize, u32) {
        for steps in 0..most {
            match self.next[at as usize] {
                END => return (steps, at),
                next => at = next,
            }
        }
        (most, at)
    }

    async fn find(&self, mut at: u32, most: usize) -> (usize, u32) {
        for steps in 0..most {
            let place = &self.next[at as usize]; // held over the suspension: the state refers to itself and outside
            let from = &at;
            prefetch(place).await;
            match *place {
                END => return (steps, *from),
                next => at = next,
            }
        }
        (most, at)
    }
}

#[test]
fn drivers_agree_with_the_plain_walk() {
    let chains = Chains::new(if cfg!(miri) { 1 << 8 } else { 1 << 16 });
    for driver in Driver::all() {
        for tasks in [0, 1, 2, 7, 8, 9, 63, 64, 65, 130, 1000] {
            if cfg!(miri) && tasks > 130 {
                continue;
            }
            // Some tasks never suspend, some hundreds of times.
            let most = |task: usize| [50, 0, 1, 400][task % 4];
            let from = |task: usize| (task * 31 % chains.next.len()) as u32;
            let mut answers = vec![None; tasks];
            driver.run(
                tasks,
                |task| chains.find(from(task), most(task)),
                |task, answer| assert_eq!(answers[task].replace(answer), None, "{driver:?}: {task} twice"),
            );
            for (task, answer) in answers.into_iter().enumerate() {
                let wanted = chains.walk(from(task), most(task));
                assert_eq!(answer, Some(wanted), "{driver:?}: {task} of {tasks}");
            }
        }
    }
}

/// Suspends `times` times and notes each piece of its work.
async fn noting(log: &RefCell<Vec<(usize, usize)>>, task: usize, times: usize) {
    for i in 0..times {
        log.borrow_mut().push((task, i));
        prefetch(&()).await;
    }
    log.borrow_mut().push((task, times));
}

/// The picture of the module's page: a and c take three steps, b one, d one.
#[test]
fn tasks_run_in_the_order_of_the_picture() {
    let times = [2, 0, 2, 0];
    let order = |driver: Driver| {
        let log = RefCell::new(Vec::new());
        driver.run(4, |task| noting(&log, task, times[task]), |_, ()| ());
        log.into_inner()
            .into_iter()
            .map(|(task, i)| format!("{}{}", b"abcd"[task] as char, i + 1))
            .collect::<Vec<_>>()
    };
    assert_eq!(order(Driver::Group(3)), ["a1", "b1", "c1", "a2", "c2", "a3", "c3", "d1"]);
    assert_eq!(order(Driver::Coroutine(3)), ["a1", "b1", "c1", "d1", "a2", "c2", "a3", "c3"]);
    assert_eq!(order(Driver::Coroutine(1)), ["a1", "a2", "a3", "b1", "c1", "c2", "c3", "d1"]);
}

#[test]
fn never_more_side_by_side_than_the_width() {
    for driver in Driver::all() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        let task = |task: usize| {
            let (running, most) = (&running, &most);
            async move {
                running.set(running.get() + 1);
                most.set(most.get().max(running.get()));
                for _ in 0..task % 5 {
                    prefetch(&()).await;
                }
                prefetch(&()).await;
                running.set(running.get() - 1);
            }
        };
        driver.run(200, task, |_, ()| ());
        assert_eq!((running.get(), most.get()), (0, driver.width()), "{driver:?}");
    }
}

/// Counts how many of it there are.
struct Alive<'a>(&'a Cell<isize>);

impl<'a> Alive<'a> {
    fn new(count: &'a Cell<isize>) -> Self {
        count.set(count.get() + 1);
        Alive(count)
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Where a panic strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strike {
    Nowhere,
    /// When the task is started.
    Start,
    /// While it is polled.
    Work,
    /// When it has been polled to its end and is dropped.
    Drop,
    /// When its output is handed over.
    Done,
}

/// A task that suspends a few times and holds something; its output is something else.
struct Holding<'a> {
    left: usize,
    held: Alive<'a>,
    strike: Strike,
}

impl<'a> Future for Holding<'a> {
    type Output = Alive<'a>;
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Alive<'a>> {
        if self.left > 0 {
            self.left -= 1;
            return Poll::Pending;
        }
        assert_ne!(self.strike, Strike::Work, "on purpose");
        Poll::Ready(Alive::new(self.held.0))
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        assert_ne!(self.strike, Strike::Drop, "on purpose");
    }
}

#[test]
fn every_future_and_output_is_dropped_once_whatever_panics() {
    // Miri takes seconds for a panic.
    for driver in Driver::all().filter(|driver| !cfg!(miri) || driver.width() == 3) {
        for strike in [Strike::Nowhere, Strike::Start, Strike::Work, Strike::Drop, Strike::Done] {
            let (count, seen) = (Cell::new(0), Cell::new(0));
            let strike_at = |task: usize| if task == 20 { strike } else { Strike::Nowhere };
            let ran = catch_unwind(AssertUnwindSafe(|| {
                let start = |task: usize| {
                    assert_ne!(strike_at(task), Strike::Start, "on purpose");
                    Holding { left: task % 3, held: Alive::new(&count), strike: strike_at(task) }
                };
                driver.run(50, start, |task, output| {
                    seen.set(seen.get() + 1);
                    assert_ne!(strike_at(task), Strike::Done, "on purpose");
                    drop(output);
                });
            }));
            assert_eq!(ran.is_ok(), strike == Strike::Nowhere, "{driver:?} {strike:?}");
            assert_eq!(count.get(), 0, "{driver:?} {strike:?}: leaked, or dropped twice");
            assert_eq!(seen.get() == 50, strike == Strike::Nowhere, "{driver:?} {strike:?}");
        }
    }
}

/// Runs a controller against a cost per task, in ticks, and returns the widths it took.
fn steer(adaptive: &mut Adaptive, batches: usize, mut cost: impl FnMut(usize) -> f64) -> Vec<usize> {
    let mut clock = 1_000_000;
    let run = |_| {
        let width = adaptive.width();
        let to = clock + (4096.0 * cost(width)) as u64;
        adaptive.ran(4096, clock, to);
        clock = to;
        width
    };
    (0..batches).map(run).collect()
}

/// Convex, with its minimum at `best`.
fn bowl(best: usize) -> impl Fn(usize) -> f64 {
    move |width| 40.0 + (width as f64 / best as f64 + best as f64 / width as f64) * 10.0
}

#[test]
fn the_number_settles_around_the_minimum_and_follows_it() {
    for (from, first, second) in [(1, 12, 30), (64, 12, 3), (8, 1, 64), (30, 64, 1)] {
        let mut adaptive = Adaptive::new(from, MAX_WIDTH);
        for best in [first, second] {
            let widths = steer(&mut adaptive, 100, bowl(best));
            assert!(widths.windows(2).all(|pair| pair[0].abs_diff(pair[1]) == 1), "by one: {widths:?}");
            let settled = &widths[80..];
            assert!(settled.iter().all(|width| width.abs_diff(best) <= 2), "{best}: {settled:?}");
            assert!(settled.contains(&best), "{best}: {settled:?}");
        }
    }
}

/// Bursts of 32 and of 256 decide as batches of thousands do, and not before there are so many tasks.
#[test]
fn bursts_are_added_up_to_a_decision() {
    for burst in [1, 32, 256, 5000] {
        let (mut steered, mut adaptive) = (Steered::new(20, MAX_WIDTH), Adaptive::new(20, MAX_WIDTH));
        let (cost, mut clock) = (bowl(6), 0);
        for _ in 0..60 {
            let (width, bursts) = (steered.width(), Steered::GRAIN.div_ceil(burst));
            assert_eq!(width, adaptive.width(), "bursts of {burst}");
            let (ticks, before) = ((burst as f64 * cost(width)) as u64, clock);
            for _ in 0..bursts {
                assert_eq!(steered.width(), width);
                steered.ran(burst, clock, clock + ticks);
                // Of no use: the clock went back.
                steered.ran(burst, clock + ticks, clock);
                clock += ticks;
            }
            adaptive.ran(burst * bursts, before, clock);
        }
        assert!(steered.width().abs_diff(6) <= 2, "{burst}: {}", steered.width());
    }
    let mut steered = Steered::new(3, 8);
    steered.ran(usize::MAX, 0, u64::MAX);
    steered.ran(usize::MAX, 5, 5);
    assert!((1..=8).contains(&steered.width()));
}

#[test]
fn noise_costs_steps_not_the_way() {
    let mut adaptive = Adaptive::new(40, MAX_WIDTH);
    let mut state = 7;
    let cost = bowl(10);
    // One percent of noise, and every 50th batch is interrupted.
    let widths = steer(&mut adaptive, 2000, |width| {
        let noise = random(&mut state) % 1000;
        cost(width) * (1.0 + noise as f64 / 1e5) + if noise < 20 { 500.0 } else { 0.0 }
    });
    let mean = widths[200..].iter().sum::<usize>() as f64 / 1800.0;
    assert!((5.0..20.0).contains(&mean), "{mean}");
}

#[test]
fn the_number_stays_in_its_bounds_and_odd_readings_change_nothing() {
    for most in [0, 1, 2, 5, 1000] {
        let mut adaptive = Adaptive::new(usize::MAX, most);
        let bound = most.clamp(1, MAX_WIDTH);
        assert_eq!(adaptive.width(), bound);
        for curve in [|width: usize| width as f64, |width: usize| 100.0 / width as f64, |_: usize| 1.0] {
            let widths = steer(&mut adaptive, 50, curve);
            assert!(widths.iter().all(|width| (1..=bound).contains(width)), "{most}: {widths:?}");
        }
        let width = adaptive.width();
        for (tasks, from, to) in [(0, 1, 2), (5, 7, 7), (5, 7, 6), (5, u64::MAX, 0), (0, 0, 0)] {
            adaptive.ran(tasks, from, to);
            assert_eq!(adaptive.width(), width);
        }
        adaptive.ran(usize::MAX, 0, u64::MAX);
        adaptive.ran(1, 0, u64::MAX);
        assert!((1..=bound).contains(&adaptive.width()));
    }
    assert_eq!(Adaptive::new(0, 8).width(), 1);
}
