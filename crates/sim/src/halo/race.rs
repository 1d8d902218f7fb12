//! The race of Figure 7a, as a model small enough to try every interleaving.
//!
//! A key is always in the table, in bucket 0 or bucket 1 of its own. A writer moves it to and fro, as cuckoo hashing does: it copies the entry to the
//! other bucket, then clears the old one. A query looks into bucket 0, then into bucket 1. Between its two looks the
//! writer may bring the key from bucket 1 to bucket 0: then the query finds it in neither, though it was there all the time.
//!
//! ```text
//! query     look 0: no                                   look 1: no         "not found"
//! writer                 copy 1 -> 0     clear 1
//! ```
//!
//! [`Discipline`] says what is done about it. Every access to a line is one step, and steps of all take turns in any order.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tidemill_cachesim::random::Random;

/// What keeps a query from missing a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// Nothing.
    None,
    /// Software's: a version for each bucket, raised after a copy into it and after a clear; a query that found nothing looks again if
    /// bucket 0's has changed (`tidemill_flow::keystore`).
    Versions,
    /// The paper's lock bit: set on both lines when the buckets are known, cleared at the end of the query; who writes to a locked line is refused and
    /// tries again. One bit: the end of one query clears what another has set.
    Bit,
    /// The lock bit, cleared by the last query that needs it: the scoreboard knows which those are.
    Lock,
}

impl Discipline {
    /// Every one.
    pub const ALL: [Discipline; 4] =
        [Discipline::None, Discipline::Versions, Discipline::Bit, Discipline::Lock];

    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Discipline::None => "none",
            Discipline::Versions => "versions",
            Discipline::Bit => "lock-bit",
            Discipline::Lock => "lock",
        }
    }
}

/// What has come of interleavings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Different orders of all steps.
    pub histories: u128,
    /// Of them, those in which some query missed the key.
    pub lost: u128,
    /// Of them, those in which nobody could go on.
    pub stuck: u128,
}

/// Queries at once, at most.
pub const MOST_QUERIES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Query {
    /// Its next step.
    at: u8,
    version: u8,
    found: bool,
    done: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    holds: [bool; 2],
    versions: [u8; 2],
    /// Queries that hold each line's lock; as a bit: 0 or 1.
    locks: [u8; 2],
    queries: [Query; MOST_QUERIES],
    count: usize,
    /// Steps of the writer: four for each move.
    written: u8,
    steps: u8,
    lost: bool,
}

impl World {
    fn new(queries: usize, moves: usize) -> Self {
        World {
            holds: [false, true],
            versions: [0; 2],
            locks: [0; 2],
            queries: [Query::default(); MOST_QUERIES],
            count: queries.min(MOST_QUERIES),
            written: 0,
            steps: 4 * moves.min(16) as u8,
            lost: false,
        }
    }

    /// Steps that can be taken: queries, then the writer.
    fn able(&self, discipline: Discipline) -> impl Iterator<Item = usize> + use<'_> {
        let queries = (0..self.count).filter(|&i| !self.queries[i].done);
        let locked = matches!(discipline, Discipline::Bit | Discipline::Lock) && {
            let (bucket, _) = self.write();
            self.locks[bucket] > 0
        };
        let writer = (self.written < self.steps && !locked).then_some(MOST_QUERIES);
        queries.chain(writer)
    }

    /// The writer's next step: to which bucket, and which of copy, version, clear, version.
    fn write(&self) -> (usize, u8) {
        // The first move is from bucket 1 to bucket 0.
        let from = usize::from((self.written / 4).is_multiple_of(2));
        let step = self.written % 4;
        (if step < 2 { 1 - from } else { from }, step)
    }

    fn step(&mut self, who: usize, discipline: Discipline) {
        if who < MOST_QUERIES {
            return self.query(who, discipline);
        }
        let (bucket, step) = self.write();
        match step {
            0 => self.holds[bucket] = true,
            2 => self.holds[bucket] = false,
            _ => self.versions[bucket] += 1,
        }
        self.written += 1;
    }

    fn query(&mut self, who: usize, discipline: Discipline) {
        let mut query = self.queries[who];
        match (discipline, query.at) {
            (Discipline::None, bucket @ 0..2) => query.found |= self.holds[usize::from(bucket)],
            (Discipline::Versions, 0) => query.version = self.versions[0],
            (Discipline::Versions, look @ 1..3) => query.found |= self.holds[usize::from(look) - 1],
            (Discipline::Versions, 3) if !query.found && self.versions[0] != query.version => {
                query = Query::default();
                self.queries[who] = query;
                return;
            }
            (Discipline::Bit, line @ 0..2) => self.locks[usize::from(line)] = 1,
            (Discipline::Lock, line @ 0..2) => self.locks[usize::from(line)] += 1,
            (Discipline::Bit | Discipline::Lock, look @ 2..4) => {
                query.found |= self.holds[usize::from(look) - 2]
            }
            (Discipline::Bit, line @ 4..6) => self.locks[usize::from(line) - 4] = 0,
            (Discipline::Lock, line @ 4..6) => self.locks[usize::from(line) - 4] -= 1,
            _ => {}
        }
        query.at += 1;
        let last = match discipline {
            Discipline::None => 2,
            Discipline::Versions => 4,
            Discipline::Bit | Discipline::Lock => 6,
        };
        query.done = query.at == last;
        self.lost |= query.done && !query.found;
        self.queries[who] = query;
    }

    fn over(&self) -> bool {
        self.written == self.steps && self.queries[..self.count].iter().all(|query| query.done)
    }
}

/// Tries every interleaving of some queries (up to [`MOST_QUERIES`]) and a writer with some moves (up to 16).
pub fn explore(discipline: Discipline, queries: usize, moves: usize) -> Outcome {
    let mut known = HashMap::with_hasher(FixedState::with_seed(0));
    count(World::new(queries, moves), discipline, &mut known)
}

fn count(world: World, discipline: Discipline, known: &mut HashMap<World, Outcome, FixedState>) -> Outcome {
    if let Some(outcome) = known.get(&world) {
        return *outcome;
    }
    let able: Vec<usize> = world.able(discipline).collect();
    let mut sum = Outcome::default();
    if able.is_empty() {
        sum.histories = 1;
        sum.lost = u128::from(world.lost);
        sum.stuck = u128::from(!world.over());
    }
    for who in able {
        let mut next = world.clone();
        next.step(who, discipline);
        let of = count(next, discipline, known);
        sum.histories += of.histories;
        sum.lost += of.lost;
        sum.stuck += of.stuck;
    }
    known.insert(world, sum);
    sum
}

/// So many interleavings at random: at each step whoever can go on is equally likely to.
pub fn random(discipline: Discipline, queries: usize, moves: usize, runs: u64, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let mut sum = Outcome { histories: runs.into(), ..Outcome::default() };
    for _ in 0..runs {
        let mut world = World::new(queries, moves);
        loop {
            let able = world.able(discipline).count() as u64;
            let pick = random.below(able) as usize;
            let Some(who) = world.able(discipline).nth(pick) else { break };
            world.step(who, discipline);
        }
        sum.lost += u128::from(world.lost);
        sum.stuck += u128::from(!world.over());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_race_happens_without_a_lock_and_never_with_it() {
        for queries in 1..=MOST_QUERIES {
            for moves in 1..=4 {
                for discipline in Discipline::ALL {
                    let outcome = explore(discipline, queries, moves);
                    assert_eq!(outcome.stuck, 0);
                    let loses = match discipline {
                        Discipline::None => true,
                        Discipline::Versions | Discipline::Lock => false,
                        // A second query that ends takes the first one's lock away.
                        Discipline::Bit => queries > 1,
                    };
                    assert_eq!(outcome.lost > 0, loses, "{discipline:?} {queries} {moves}: {outcome:?}");
                }
            }
        }
    }

    /// One query, one move: two looks among four steps of the writer, of which versions do not matter here.
    #[test]
    fn the_smallest_case_by_hand() {
        // 6! / (2! 4!) orders; look 0 before the copy, look 1 after the clear (the third of four steps): 1 x 2.
        assert_eq!(explore(Discipline::None, 1, 1), Outcome { histories: 15, lost: 2, stuck: 0 });
    }

    #[test]
    fn random_interleavings_agree() {
        for discipline in Discipline::ALL {
            let outcome = random(discipline, 2, 2, 20_000, 1);
            let every = explore(discipline, 2, 2);
            assert_eq!((outcome.lost > 0, outcome.stuck), (every.lost > 0, 0), "{discipline:?}");
        }
    }

    /// `cargo test -p tidemill-sim --release --lib -- --ignored ten_million`
    #[test]
    #[ignore = "half a minute and more: see above"]
    fn ten_million_random_interleavings() {
        for discipline in [Discipline::Versions, Discipline::Lock] {
            assert_eq!(random(discipline, 3, 4, 10_000_000, 1).lost, 0, "{discipline:?}");
        }
        assert!(random(Discipline::None, 3, 4, 10_000_000, 1).lost > 0);
    }
}
