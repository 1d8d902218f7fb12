//! Tables and changes: the edges that have a name, and random ones of several adversarial kinds.

use crate::fib::Label;
use crate::keys::Random;
use crate::prefix::{Address, Prefix};
use crate::rib::Change;
use std::fmt;

/// A table, and batches of changes to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case<A: Address> {
    /// Seed of the random keys (and of the case, if it is a random one).
    pub seed: u64,
    /// What the structure is built from, in this order.
    pub table: Vec<(Prefix<A>, Label)>,
    /// What is applied then, a batch at a time.
    pub batches: Vec<Vec<Change<A>>>,
}

impl<A: Address> Case<A> {
    /// The same with labels up to `most`.
    pub(super) fn narrowed(&self, most: u32) -> Self {
        let mut case = self.clone();
        let narrow = |label: &mut Label| label.0 %= most + 1;
        case.table.iter_mut().for_each(|(_, label)| narrow(label));
        for change in case.batches.iter_mut().flatten() {
            if let Change::Announce(_, label) = change {
                narrow(label);
            }
        }
        case
    }

    /// Every prefix that the case names.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix<A>> + '_ {
        let changes = self.batches.iter().flatten().map(Change::prefix);
        self.table.iter().map(|&(prefix, _)| prefix).chain(changes)
    }
}

impl<A: Address> fmt::Display for Case<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        for (prefix, label) in &self.table {
            writeln!(f, "  {prefix} -> {}", label.0)?;
        }
        for (i, batch) in self.batches.iter().enumerate() {
            writeln!(f, "batch {}", i + 1)?;
            for change in batch {
                match change {
                    Change::Announce(prefix, label) => writeln!(f, "  announce {prefix} -> {}", label.0)?,
                    Change::Withdraw(prefix) => writeln!(f, "  withdraw {prefix}")?,
                }
            }
        }
        Ok(())
    }
}

/// A prefix whose first bits are the highest of `bits`.
fn prefix<A: Address>(bits: u128, len: u8) -> Prefix<A> {
    // Lengths come from loops over 0..=BITS.
    Prefix::new(A::from_u128(bits >> (128 - u32::from(A::BITS))), len.min(A::BITS)).unwrap_or(Prefix::DEFAULT)
}

/// The cases that have a name.
pub fn edge_cases<A: Address>() -> Vec<(&'static str, Case<A>)> {
    let default = Prefix::<A>::DEFAULT;
    let host = |addr: A| Prefix::new(addr, A::BITS).unwrap_or(default);
    let some = 0x2001_0db8_5555_5555_aaaa_aaaa_1234_5678_u128;
    let nested = |label: fn(u8) -> u32| -> Vec<(Prefix<A>, Label)> {
        (0..=A::BITS).map(|len| (prefix(some, len), Label(label(len)))).collect()
    };
    // At every length the two halves of one parent.
    let siblings = |same: bool| -> Vec<(Prefix<A>, Label)> {
        (1..=A::BITS)
            .flat_map(|len| {
                let bit = 1_u128 << (128 - u32::from(len));
                [
                    (prefix(some & !bit, len), Label(1)),
                    (prefix(some | bit, len), Label(if same { 1 } else { 2 })),
                ]
            })
            .collect()
    };
    let hosts = |count: u32| -> Vec<(Prefix<A>, Label)> {
        let at =
            |i: u32| A::from_u128((some >> (128 - u32::from(A::BITS))) & !0xffff) | A::from_u128(i.into());
        (0..count).map(|i| (host(at(i)), Label(i % 3 + 1))).collect()
    };
    let announce =
        |list: &[(Prefix<A>, Label)]| list.iter().map(|&(p, l)| Change::Announce(p, l)).collect::<Vec<_>>();
    let withdraw =
        |list: &[(Prefix<A>, Label)]| list.iter().map(|&(p, _)| Change::Withdraw(p)).collect::<Vec<_>>();
    let singly = |changes: Vec<Change<A>>| changes.into_iter().map(|c| vec![c]).collect::<Vec<_>>();
    let ends = vec![
        (host(A::MIN), Label(1)),
        (host(A::MAX), Label(2)),
        (prefix(0, 1), Label(3)),
        (prefix(u128::MAX, 1), Label(4)),
    ];
    let (deep, reversed) =
        (nested(u32::from_len), nested(u32::from_len).into_iter().rev().collect::<Vec<_>>());
    let mut all = Vec::new();
    let mut add =
        |name, table: Vec<(Prefix<A>, Label)>, batches| all.push((name, Case { seed: 1, table, batches }));
    add("empty table", vec![], vec![]);
    add("withdrawals of what is not there", vec![], vec![vec![Change::Withdraw(default)], withdraw(&deep)]);
    add("default route", vec![(default, Label(7))], vec![withdraw(&[(default, Label(7))])]);
    add(
        "default route comes and changes",
        vec![],
        vec![
            vec![Change::Announce(default, Label(1))],
            vec![Change::Announce(default, Label(2))],
            vec![Change::Announce(default, Label::NONE)],
        ],
    );
    let near = [(prefix(some, 9), Label(2)), (prefix(some, 24), Label(3)), (prefix(some, A::BITS), Label(4))];
    add(
        "default route changes among others",
        near.to_vec(),
        vec![
            vec![Change::Announce(default, Label(3)), Change::Withdraw(near[0].0)],
            vec![Change::Announce(near[0].0, Label(5)), Change::Announce(default, Label(2))],
            vec![Change::Withdraw(near[1].0), Change::Withdraw(default), Change::Withdraw(near[2].0)],
        ],
    );
    add("host routes at the ends", ends.clone(), singly(withdraw(&ends)));
    add("host routes at the ends come", vec![], singly(announce(&ends)));
    add("nested to the full depth", deep.clone(), singly(withdraw(&deep)));
    add("nested, withdrawn from inside", deep.clone(), singly(withdraw(&reversed)));
    add("nested, announced from inside", vec![], singly(announce(&reversed)));
    add("nested with two labels in turn", nested(|len| u32::from(len % 2) + 1), singly(announce(&deep)));
    add("nested with one label", nested(|_| 5), vec![withdraw(&deep)]);
    add("siblings with one label", siblings(true), singly(withdraw(&siblings(true))));
    add("siblings with two labels", siblings(false), singly(withdraw(&siblings(false))));
    add(
        "siblings become equal",
        siblings(false),
        vec![announce(&siblings(true)), announce(&siblings(false))],
    );
    add(
        "duplicates: the last wins",
        [siblings(true), siblings(false)].concat(),
        vec![[announce(&siblings(false)), announce(&siblings(true))].concat()],
    );
    add(
        "announced and withdrawn in one batch",
        deep.clone(),
        vec![[withdraw(&deep), announce(&deep)].concat(), [announce(&deep), withdraw(&deep)].concat()],
    );
    add(
        "whole table withdrawn at once",
        [deep.clone(), siblings(false), ends.clone()].concat(),
        vec![[withdraw(&deep), withdraw(&siblings(false)), withdraw(&ends)].concat(), announce(&deep)],
    );
    add(
        "a block of host routes grows and goes",
        vec![(prefix(some, 8), Label(9))],
        vec![
            announce(&hosts(9)),
            announce(&hosts(40)),
            announce(&hosts(600)),
            withdraw(&hosts(590)),
            withdraw(&hosts(600)),
        ],
    );
    let wide: Vec<_> = deep
        .iter()
        .zip([0xff, 0x100, 0xfff, 0x1000, 0xffff].iter().cycle())
        .map(|(&(p, _), &l)| (p, Label(l)))
        .collect();
    add("labels of 8 to 16 bits", wide.clone(), vec![withdraw(&wide), announce(&wide)]);
    let wider: Vec<_> = wide.iter().map(|&(p, l)| (p, Label(l.0 << 15 | 1))).collect();
    add("labels of 31 bits", wider.clone(), vec![announce(&wide), announce(&wider), withdraw(&wider)]);
    all
}

/// `u32::from_len`: a different label for each length.
trait FromLen {
    fn from_len(len: u8) -> Self;
}

impl FromLen for u32 {
    fn from_len(len: u8) -> u32 {
        u32::from(len) + 1
    }
}

/// A random case: up to some tens of prefixes, and up to twelve batches of changes to them and to new ones.
pub fn random_case<A: Address>(seed: u64) -> Case<A> {
    long_case(seed, 1)
}

/// A random case with so many times as many batches: for structures that take longer to be made than to be changed.
pub fn long_case<A: Address>(seed: u64, times: usize) -> Case<A> {
    let mut random = Random::new(seed);
    let mut source = Source::new(&mut random);
    let count = [0, 3, 12, 40, 120][random.below(5)];
    let table: Vec<(Prefix<A>, Label)> =
        (0..count).map(|_| (source.prefix(&mut random), source.label(&mut random))).collect();
    let mut known: Vec<Prefix<A>> = table.iter().map(|&(prefix, _)| prefix).collect();
    let mut batches = Vec::new();
    for _ in 0..random.below(13) * times {
        let size = [1, 1, 2, 8, 40][random.below(5)];
        let mut batch = Vec::new();
        for _ in 0..size {
            let old = (!known.is_empty() && random.below(2) == 0).then(|| known[random.below(known.len())]);
            let prefix = old.unwrap_or_else(|| source.prefix(&mut random));
            known.push(prefix);
            batch.push(match random.below(5) {
                0 | 1 => Change::Withdraw(prefix),
                _ => Change::Announce(prefix, source.label(&mut random)),
            });
        }
        if random.below(16) == 0 {
            batch = known.iter().map(|&prefix| Change::Withdraw(prefix)).collect();
        }
        batches.push(batch);
    }
    Case { seed, table, batches }
}

/// Prefixes of a large case, and changes to it.
const LARGE: usize = 100_000;
/// Batches of them.
const LARGE_BATCHES: usize = 6;
/// Points that half of its prefixes crowd around; every long IPv6 prefix is near one of them, since some structures spend 100 KB
/// for each /48 that has longer prefixes.
const LARGE_POINTS: usize = 200;

/// A random case of 100,000 prefixes, with batches of a thousand changes and less: what only a large structure does, as growing, moving
/// and numbering many parts. Labels have 16 bits at most.
pub fn large_case<A: Address>(seed: u64) -> Case<A> {
    let mut random = Random::new(seed);
    let points: Vec<A> = (0..LARGE_POINTS).map(|_| random.address()).collect();
    let labels = [4, 254, 0xffff][random.below(3)];
    let prefix = |random: &mut Random| {
        let point = points[random.below(LARGE_POINTS)];
        // Of IPv4 /4 to /32, of IPv6 /16 to /128.
        let (short, long) = (A::BITS / 8, A::BITS);
        let near = random.below(2) == 0;
        let most = if near { long } else { long.min(48) };
        let len = short + random.below(usize::from(most - short) + 1) as u8;
        let keep = if near {
            A::mask(len.min(48) / 2 + random.below(usize::from(len) / 2 + 1) as u8)
        } else {
            A::mask(0)
        };
        let keep = if near && len > 48 { keep | A::mask(48) } else { keep };
        let address = (point & keep) | (random.address::<A>() & !keep);
        Prefix::new(address, len).unwrap_or(Prefix::DEFAULT)
    };
    let label = |random: &mut Random| Label(random.below(labels + 1) as u32);
    let table: Vec<(Prefix<A>, Label)> =
        (0..LARGE).map(|_| (prefix(&mut random), label(&mut random))).collect();
    let mut batches = Vec::new();
    for i in 0..LARGE_BATCHES {
        let size = [1, 30, 1000][i % 3];
        let change = |random: &mut Random| {
            let old = table[random.below(LARGE)].0;
            match random.below(4) {
                0 => Change::Withdraw(old),
                1 => Change::Announce(old, label(random)),
                _ => Change::Announce(prefix(random), label(random)),
            }
        };
        batches.push((0..size).map(|_| change(&mut random)).collect());
    }
    Case { seed, table, batches }
}

/// Where the prefixes and labels of one case come from.
struct Source<A> {
    base: A,
    /// Prefixes keep this many bits of the base, or a random number of them.
    keep: Option<u8>,
    lens: (u8, u8),
    labels: usize,
}

impl<A: Address> Source<A> {
    fn new(random: &mut Random) -> Self {
        let base = match random.below(8) {
            0 => A::MIN,
            1 => A::MAX,
            _ => random.address(),
        };
        let any = |random: &mut Random| random.below(usize::from(A::BITS) + 1) as u8;
        let keep = match random.below(4) {
            0 => None,              // nested at every depth
            1 => Some(0),           // all over the space
            _ => Some(any(random)), // crowded below one point
        };
        let (a, b) = (any(random), any(random));
        let lens = match random.below(3) {
            0 => (0, A::BITS),
            1 => (keep.unwrap_or(0), A::BITS.min(keep.unwrap_or(0) + 12)), // crowded
            _ => (a.min(b), a.max(b)),
        };
        // Few labels make neighbours merge; many keep them apart. 15 bits and more are the limits of formats.
        let labels = [2, 4, 200, 300, 0xffff, 0x7fff_ffff][random.below(6)];
        Source { base, keep, lens, labels }
    }

    fn prefix(&mut self, random: &mut Random) -> Prefix<A> {
        let keep = self.keep.unwrap_or_else(|| random.below(usize::from(A::BITS) + 1) as u8);
        let len = self.lens.0 + random.below(usize::from(self.lens.1 - self.lens.0) + 1) as u8;
        let addr = (self.base & A::mask(keep)) | (random.address::<A>() & !A::mask(keep));
        let addr = if random.below(4) == 0 { self.base } else { addr };
        // Canonical; the length is at most the family's.
        Prefix::new(addr, len).unwrap_or(Prefix::DEFAULT)
    }

    /// 0, "no route", is a label too: a route to nowhere.
    fn label(&self, random: &mut Random) -> Label {
        Label(random.below(self.labels + 1) as u32)
    }
}
