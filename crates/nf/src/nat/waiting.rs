//! Fragments that wait for the first of their datagram. Each occupies a frame, and whoever sends some wants the frames of all.
//!
//! * What comes from inside has one half of the room, and what comes from outside the other one.
//! * One source has half of that at most; of more, its own oldest one goes.
//! * Where a side has no room left its oldest one goes. So nobody's fragments are refused for others were there first: each has as long to wait
//!   as it takes to send half of the room behind it.
//!
//! Sources and tokens are told apart by hash: two may share a list, and the room of one. Every step costs the same, however many wait.

use crate::nat::fragments::Token;
use tidemill_flow::hash::mix;

const NONE: u32 = u32::MAX;

/// The ends of a list, oldest first.
#[derive(Debug, Clone, Copy)]
struct List {
    oldest: u32,
    newest: u32,
    count: u32,
}

const EMPTY: List = List { oldest: NONE, newest: NONE, count: 0 };

/// The lists that each is in: its side's, its source's, its token's.
const LISTS: usize = 3;
const SIDE: usize = 0;
const SOURCE: usize = 1;
const TOKEN: usize = 2;

struct Held<P> {
    token: Token,
    until_ns: u64,
    packet: P,
    lists: [u32; LISTS],
    older: [u32; LISTS],
    newer: [u32; LISTS],
}

/// See the [module](self).
pub(crate) struct Waiting<P> {
    held: Vec<Option<Held<P>>>,
    free: Vec<u32>,
    /// Two sides, then sources, then tokens.
    lists: [Vec<List>; LISTS],
    of_side: u32,
    of_source: u32,
    salt: u64,
}

impl<P> Waiting<P> {
    /// Room for so many.
    pub(crate) fn new(room: usize, salt: u64) -> Self {
        let half = (room / 2).max(1) as u32;
        let buckets = (2 * room).next_power_of_two();
        Waiting {
            held: (0..room).map(|_| None).collect(),
            free: (0..room as u32).rev().collect(),
            lists: [2, 2 * buckets, buckets].map(|count| vec![EMPTY; count]),
            of_side: half,
            of_source: half.div_ceil(2),
            salt,
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.held.len() - self.free.len()
    }

    fn token_list(&self, token: Token) -> u32 {
        (mix(self.salt ^ token.bits()) as usize & (self.lists[TOKEN].len() - 1)) as u32
    }

    /// Keeps a fragment of `source`, from inside or not; the one that it has pushed out, if it has. `Err`: there is no room at all.
    pub(crate) fn put(
        &mut self,
        token: Token,
        until_ns: u64,
        (source, from_inside): (u128, bool),
        packet: P,
    ) -> Result<Option<P>, P> {
        let side = u32::from(from_inside);
        let sources = self.lists[SOURCE].len() / 2;
        let hash = mix(self.salt ^ mix((source >> 64) as u64) ^ source as u64) as usize & (sources - 1);
        let source = (2 * hash) as u32 + side;
        let lists = [side, source, self.token_list(token)];
        let of = |kind: usize| self.lists[kind][lists[kind] as usize];
        let goes = match (of(SOURCE), of(SIDE)) {
            (mine, _) if mine.count >= self.of_source => mine.oldest,
            (_, all) if all.count >= self.of_side => all.oldest,
            // An odd place, or the only one there is.
            _ if self.free.is_empty() => {
                self.lists[SIDE].iter().map(|l| l.oldest).find(|l| *l != NONE).unwrap_or(NONE)
            }
            _ => NONE,
        };
        let gone = self.take_out(goes).map(|held| held.packet);
        let Some(at) = self.free.pop() else { return Err(packet) };
        let (older, newer) = (lists.map(|_| NONE), lists.map(|_| NONE));
        self.held[at as usize] = Some(Held { token, until_ns, packet, lists, older, newer });
        for kind in 0..LISTS {
            self.append(kind, at);
        }
        Ok(gone)
    }

    fn append(&mut self, kind: usize, at: u32) {
        let Some(held) = &mut self.held[at as usize] else { return };
        let list = &mut self.lists[kind][held.lists[kind] as usize];
        let before = std::mem::replace(&mut list.newest, at);
        held.older[kind] = before;
        list.count += 1;
        if before == NONE {
            list.oldest = at;
        } else if let Some(before) = &mut self.held[before as usize] {
            before.newer[kind] = at;
        }
    }

    fn take_out(&mut self, at: u32) -> Option<Held<P>> {
        let held = self.held.get_mut(at as usize)?.take()?;
        for kind in 0..LISTS {
            let (older, newer) = (held.older[kind], held.newer[kind]);
            let list = &mut self.lists[kind][held.lists[kind] as usize];
            list.count -= 1;
            if older == NONE {
                list.oldest = newer;
            }
            if newer == NONE {
                list.newest = older;
            }
            if let Some(Some(other)) = self.held.get_mut(older as usize) {
                other.newer[kind] = newer;
            }
            if let Some(Some(other)) = self.held.get_mut(newer as usize) {
                other.older[kind] = older;
            }
        }
        self.free.push(at);
        Some(held)
    }

    fn of_token(&self, token: Token) -> impl Iterator<Item = u32> {
        let mut at = self.lists[TOKEN][self.token_list(token) as usize].oldest;
        std::iter::from_fn(move || {
            let held = self.held.get(at as usize)?.as_ref()?;
            let this = std::mem::replace(&mut at, held.newer[TOKEN]);
            Some((this, held.token))
        })
        .filter(move |(_, of)| *of == token)
        .map(|(at, _)| at)
    }

    /// How many wait for this.
    pub(crate) fn count(&self, token: Token) -> usize {
        if self.free.len() == self.held.len() {
            return 0;
        }
        self.of_token(token).count()
    }

    /// The oldest of those that wait for this, and until when it would have waited.
    pub(crate) fn take(&mut self, token: Token) -> Option<(u64, P)> {
        let at = self.of_token(token).next()?;
        self.take_out(at).map(|held| (held.until_ns, held.packet))
    }

    /// One whose time is over.
    pub(crate) fn take_over(&mut self, now_ns: u64) -> Option<P> {
        let over = |at: &u32| self.until_ns(*at).is_some_and(|until_ns| until_ns <= now_ns);
        let at = self.lists[SIDE].iter().map(|list| list.oldest).find(over)?;
        self.take_out(at).map(|held| held.packet)
    }

    fn until_ns(&self, at: u32) -> Option<u64> {
        Some(self.held.get(at as usize)?.as_ref()?.until_ns)
    }

    /// When the next one's time is over.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.lists[SIDE].iter().filter_map(|list| self.until_ns(list.oldest)).min()
    }

    /// All that wait.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = P> {
        let all = self.held.len() as u32;
        (0..all).filter_map(move |at| self.take_out(at).map(|held| held.packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    fn token(n: u32) -> Token {
        Token::numbered(n)
    }

    /// As it should be: a list that is walked from end to end; sources do not share.
    struct Model {
        room: usize,
        held: Vec<(u32, u64, u128, bool, u32)>,
    }

    impl Model {
        fn put(&mut self, new: (u32, u64, u128, bool, u32)) -> Option<u32> {
            let half = (self.room / 2).max(1);
            let side = self.held.iter().filter(|held| held.3 == new.3).count();
            let source = self.held.iter().filter(|held| (held.2, held.3) == (new.2, new.3)).count();
            let goes = if source >= half.div_ceil(2) {
                self.held.iter().position(|held| (held.2, held.3) == (new.2, new.3))
            } else if side >= half {
                self.held.iter().position(|held| held.3 == new.3)
            } else {
                None
            };
            let gone = goes.map(|at| self.held.remove(at).4);
            self.held.push(new);
            gone
        }
    }

    #[test]
    fn it_is_as_a_list_has_it() {
        for seed in 0..30 {
            let mut random = StdRng::seed_from_u64(seed);
            let room = [2, 4, 10, 64][seed as usize % 4];
            let (mut waiting, mut model) = (Waiting::new(room, seed), Model { room, held: Vec::new() });
            // A few sources that share no list.
            let mut sources: Vec<u128> = Vec::new();
            for source in 0..200_u128 {
                let list = |source: u128| {
                    mix(seed ^ mix(0) ^ source as u64) as usize & ((2 * room).next_power_of_two() - 1)
                };
                if sources.len() < 4 && sources.iter().all(|other| list(*other) != list(source)) {
                    sources.push(source);
                }
            }
            for step in 0..3000_u32 {
                let now = u64::from(step);
                match random.random_range(0..8) {
                    0..5 => {
                        let (of, source) =
                            (random.random_range(0..20), sources[random.random_range(0..sources.len())]);
                        let from_inside = random.random_bool(0.4);
                        let until = now + 40;
                        let gone = waiting.put(token(of), until, (source, from_inside), step).unwrap();
                        assert_eq!(
                            gone,
                            model.put((of, until, source, from_inside, step)),
                            "seed {seed}, step {step}"
                        );
                    }
                    5 | 6 => {
                        let of = random.random_range(0..20);
                        let at = model.held.iter().position(|held| held.0 == of);
                        assert_eq!(
                            waiting.count(token(of)),
                            model.held.iter().filter(|held| held.0 == of).count()
                        );
                        let expected = at.map(|at| model.held.remove(at)).map(|held| (held.1, held.4));
                        assert_eq!(waiting.take(token(of)), expected, "seed {seed}, step {step}");
                    }
                    _ => {
                        while let Some(packet) = waiting.take_over(now) {
                            let at = model.held.iter().position(|held| held.4 == packet && held.1 <= now);
                            model
                                .held
                                .remove(at.unwrap_or_else(|| panic!("seed {seed}: {packet} is not over")));
                        }
                        assert!(model.held.iter().all(|held| held.1 > now), "seed {seed}, step {step}");
                    }
                }
                assert_eq!(waiting.len(), model.held.len());
                assert_eq!(waiting.next_ns(), model.held.iter().map(|held| held.1).min());
            }
            let mut rest: Vec<u32> = waiting.drain().collect();
            rest.sort_unstable();
            let mut expected: Vec<u32> = model.held.iter().map(|held| held.4).collect();
            expected.sort_unstable();
            assert_eq!((rest, waiting.len()), (expected, 0));
        }
    }

    #[test]
    fn a_flood_from_outside_takes_nothing_from_inside() {
        let mut waiting = Waiting::new(256, 5);
        waiting.put(token(1), 99, (7, true), 0).unwrap();
        waiting.put(token(2), 99, (8, false), 1).unwrap();
        // One address has its part, and pushes out its own.
        for n in 0..10_000 {
            waiting.put(token(10 + n), 99, (9, false), 2).unwrap();
        }
        assert_eq!((waiting.count(token(1)), waiting.count(token(2)), waiting.len()), (1, 1, 2 + 64));
        // Many push out each other, and in the end everybody else who is outside.
        for n in 0..10_000 {
            waiting.put(token(n + 20_000), 99, (u128::from(n) + 1000, false), 3).unwrap();
        }
        assert_eq!((waiting.count(token(1)), waiting.count(token(2)), waiting.len()), (1, 0, 1 + 128));
        assert!(waiting.put(token(3), 99, (7, true), 4).unwrap().is_none());
    }

    #[test]
    fn no_room_and_little_room() {
        assert_eq!(Waiting::new(0, 1).put(token(1), 9, (1, false), 5), Err(5));
        let mut one = Waiting::new(1, 1);
        assert_eq!(one.put(token(1), 9, (1, false), 5), Ok(None));
        assert_eq!(one.put(token(2), 9, (1, true), 6), Ok(Some(5)));
        assert_eq!((one.count(token(1)), one.count(token(2))), (0, 1));
    }
}
