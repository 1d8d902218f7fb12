//! Readers look up while the writer patches and rebuilds.

use super::{Case, Make, edges, random_case};
use crate::fib::Label;
use crate::keys::Random;
use crate::oracle::Oracle;
use crate::prefix::{Address, Prefix};
use crate::rib::{Change, Rib};
use crate::table::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tidemill_lookup::qsbr::Domain;

/// Keys that readers ask for.
const KEYS: usize = 96;

/// Applies `rounds` batches to a table while two readers look up, singly and in bursts: each answer must be that of a state
/// between the last batch finished before the lookup and the last one begun when it ended - one batch's old or new
/// label.
///
/// # Panics
/// At any other answer.
pub fn concurrent<A: Address>(seed: u64, rounds: usize, make: impl Make<A> + Send + 'static) {
    let (case, keys) = flapping_case::<A>(seed, rounds);
    play(&case, &keys, make);
}

/// The same while the table grows to ten times its size and goes back again, so that structures take, number and free many parts, and are
/// built anew.
///
/// # Panics
/// As [`concurrent`].
pub fn concurrent_growth<A: Address>(seed: u64, make: impl Make<A> + Send + 'static) {
    let (case, keys) = growing_case::<A>(seed);
    play(&case, &keys, make);
}

/// The same while every other batch changes the default route together with other routes; none leads nowhere, so that the default route
/// is above the structure.
///
/// # Panics
/// As [`concurrent`].
pub fn concurrent_default<A: Address>(seed: u64, rounds: usize, make: impl Make<A> + Send + 'static) {
    let (mut case, keys) = flapping_case::<A>(seed, rounds);
    let mut random = Random::new(!seed);
    for batch in case.batches.iter_mut().step_by(2) {
        batch.push(match random.below(4) {
            0 => Change::Withdraw(Prefix::DEFAULT),
            _ => Change::Announce(Prefix::DEFAULT, Label(random.below(200) as u32)),
        });
    }
    let announced = case.batches.iter_mut().flatten().filter_map(|change| match change {
        Change::Announce(_, label) => Some(label),
        Change::Withdraw(_) => None,
    });
    case.table.iter_mut().map(|(_, label)| label).chain(announced).for_each(|label| label.0 += 1);
    play(&case, &keys, make);
}

/// Stops the readers, also where the writer panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn play<A: Address>(case: &Case<A>, keys: &[A], make: impl Make<A> + Send + 'static) {
    let states = states(case, keys);
    let domain = Domain::new();
    let rib: Rib<A> = case.table.iter().copied().collect();
    let mut table = Table::with(&domain, rib, make).unwrap_or_else(|error| panic!("{error}"));
    let (begun, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (stop, waiting) = (AtomicBool::new(false), AtomicUsize::new(2));
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for burst in [1, KEYS] {
            let (view, domain, states) = (table.view(), domain.clone(), &states);
            let (begun, finished, stop, waiting) = (&begun, &finished, &stop, &waiting);
            readers.push(scope.spawn(move || {
                let mut reader = domain.register();
                waiting.fetch_sub(1, Ordering::AcqRel);
                let mut labels = vec![Label(u32::MAX); burst];
                while !stop.load(Ordering::Relaxed) {
                    for (at, keys) in keys.chunks(burst).enumerate() {
                        let before = finished.load(Ordering::SeqCst);
                        let fib = view.get(&reader);
                        match keys {
                            [key] => labels[0] = fib.lookup(*key),
                            _ => fib.lookup_batch(keys, &mut labels),
                        }
                        let after = begun.load(Ordering::SeqCst);
                        for (i, label) in labels.iter().enumerate() {
                            let possible = states[before..=after].iter().any(|s| s[at * burst + i] == *label);
                            if !possible {
                                // A panic here ends the scope, and with it the test; the writer must not wait.
                                stop.store(true, Ordering::Relaxed);
                            }
                            assert!(
                                possible,
                                "{}: {} between {before} and {after}",
                                keys[i].to_ip(),
                                label.0
                            );
                        }
                    }
                    reader.quiescent();
                }
            }));
        }
        let stopping = Stop(&stop);
        while waiting.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
        for (i, batch) in case.batches.iter().enumerate() {
            begun.store(i + 1, Ordering::SeqCst);
            let applied = table.apply(batch);
            finished.store(i + 1, Ordering::SeqCst);
            if let Err(error) = applied {
                panic!("batch {}: {error}", i + 1);
            }
            if i % 8 == 0 {
                std::thread::yield_now();
            }
        }
        drop(stopping);
        // Joined by hand: how a scope waits for its threads happens inside the library, unseen by ThreadSanitizer.
        for reader in readers {
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    assert_eq!(table.collect(), 0, "nobody looks any more");
}

/// A table and batches that pull at the same few places again and again.
fn flapping_case<A: Address>(seed: u64, rounds: usize) -> (Case<A>, Vec<A>) {
    // A random case with enough prefixes, and labels that every format takes.
    let mut case =
        (seed..).map(random_case::<A>).find(|c| c.prefixes().count() > 60).unwrap_or_else(|| random_case(0));
    let prefixes: Vec<Prefix<A>> = case.prefixes().collect();
    let mut random = Random::new(seed);
    case.table.iter_mut().for_each(|(_, label)| label.0 %= 200);
    case.batches = (0..rounds)
        .map(|_| {
            let change = |random: &mut Random| {
                let prefix = prefixes[random.below(prefixes.len())];
                match random.below(3) {
                    0 => Change::Withdraw(prefix),
                    _ => Change::Announce(prefix, Label(random.below(200) as u32)),
                }
            };
            (0..1 + random.below(4)).map(|_| change(&mut random)).collect()
        })
        .collect();
    let places: Vec<A> = prefixes.iter().copied().flat_map(edges).collect();
    let keys = (0..KEYS).map(|_| places[random.below(places.len())]).collect();
    (case, keys)
}

/// Batches in which a table grows tenfold, and as many in which it goes back.
const GROWTH: usize = 10;

/// A table that grows to ten times its size, and goes back.
fn growing_case<A: Address>(seed: u64) -> (Case<A>, Vec<A>) {
    let mut case =
        (seed..).map(random_case::<A>).find(|c| c.table.len() > 30).unwrap_or_else(|| random_case(0));
    case.table.iter_mut().for_each(|(_, label)| label.0 %= 200);
    let around: Vec<Prefix<A>> = case.table.iter().map(|&(prefix, _)| prefix).collect();
    let mut known: BTreeSet<Prefix<A>> = around.iter().copied().collect();
    let (before, mut new) = (known.len(), Vec::new());
    let mut random = Random::new(!seed);
    while known.len() < 10 * before {
        // Beside and inside those that are there, and anywhere.
        let near = around[random.below(around.len())];
        let at = if random.below(4) == 0 { random.address() } else { random.within(near) };
        let prefix = Prefix::new(at, A::BITS / 4 + random.below(usize::from(A::BITS / 4 * 3) + 1) as u8);
        new.extend(prefix.filter(|&prefix| known.insert(prefix)));
    }
    let batches: Vec<&[Prefix<A>]> = new.chunks(new.len().div_ceil(GROWTH).max(1)).collect();
    let mut announced = |prefix: &Prefix<A>| Change::Announce(*prefix, Label(random.below(200) as u32));
    case.batches = batches.iter().map(|batch| batch.iter().map(&mut announced).collect()).collect();
    let withdrawn = |prefix: &Prefix<A>| Change::Withdraw(*prefix);
    case.batches.extend(batches.iter().map(|batch| batch.iter().map(withdrawn).collect()));
    let places: Vec<A> = new.iter().copied().chain(around).flat_map(edges).collect();
    let keys = (0..KEYS).map(|_| places[random.below(places.len())]).collect();
    (case, keys)
}

/// The answers for `keys` after every batch. Within a batch a key may show any of its changes' effects: the old label
/// or the new one, since every structure works from the RIB as it is after the batch.
fn states<A: Address>(case: &Case<A>, keys: &[A]) -> Vec<Vec<Label>> {
    let mut truth: BTreeMap<Prefix<A>, Label> = case.table.iter().copied().collect();
    let mut states = Vec::new();
    for i in 0..=case.batches.len() {
        let list: Vec<(Prefix<A>, Label)> = truth.iter().map(|(&p, &l)| (p, l)).collect();
        let oracle = Oracle::new(&list);
        states.push(keys.iter().map(|&key| oracle.lookup(key)).collect());
        for change in case.batches.get(i).into_iter().flatten() {
            match *change {
                Change::Announce(prefix, label) => truth.insert(prefix, label),
                Change::Withdraw(prefix) => truth.remove(&prefix),
            };
        }
    }
    states
}
