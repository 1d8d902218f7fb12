//! Any sequence of batches to three tables of one domain, two of which share a store: after each batch they answer as the oracle does of what
//! they were told, singly and in bursts of every kernel, and their RIBs are that. A batch may be refused for a label of more than 31 bits
//! only, and has changed nothing then. Default routes come, go and lead nowhere; tables are replaced, dropped and made anew; a reader
//! looks, is late, or is offline.
//!
//! Input: a byte that chooses the third table's structure, its lowest bit the family; then what `common/lpm.rs` reads.

#![no_main]

#[path = "common/lpm.rs"]
mod lpm;

use libfuzzer_sys::fuzz_target;
use lpm::Record;
use std::collections::BTreeMap;
use tidemill_lookup::numa::Copies;
use tidemill_lookup::qsbr::{Domain, Reader};
use tidemill_lpm::suite::edges;
use tidemill_lpm::table::Sharing;
use tidemill_lpm::{Algorithm, BuildError, Change, Family, Label, Oracle, Prefix, Rib, Table};

type Routes<A> = BTreeMap<Prefix<A>, Label>;

/// How a table's structures are made.
enum Kind<A: Family> {
    Shared(Sharing<A>),
    Alone(Algorithm),
}

impl<A: Family> Kind<A> {
    fn table(&self, domain: &Domain, routes: &Routes<A>) -> Result<Table<A>, BuildError> {
        let rib: Rib<A> = rib(routes);
        match self {
            Kind::Shared(sharing) => {
                Table::sharing(domain, rib, vec![sharing.clone()], "shared".into(), &Copies::one())
            }
            Kind::Alone(algorithm) => Table::new(domain, rib, algorithm),
        }
    }
}

fn rib<A: Family>(routes: &Routes<A>) -> Rib<A> {
    routes.iter().map(|(&prefix, &label)| (prefix, label)).collect()
}

/// Whether there is a label that IPv6's structures have no room for, which is the one reason to refuse a table.
fn is_wide<A: Family>(routes: &Routes<A>) -> bool {
    routes.values().any(|label| label.0 > u32::MAX >> 1)
}

/// Prefixes that are in one of them only, or lead elsewhere.
fn different<A: Family>(one: &Routes<A>, other: &Routes<A>) -> usize {
    let changed = one.iter().filter(|(prefix, label)| other.get(*prefix) != Some(*label)).count();
    changed + other.keys().filter(|prefix| !one.contains_key(*prefix)).count()
}

/// A table, and what it was told.
struct Told<A: Family> {
    kind: Kind<A>,
    table: Table<A>,
    truth: Routes<A>,
}

impl<A: Family> Told<A> {
    fn new(kind: Kind<A>, domain: &Domain) -> Option<Self> {
        let table = kind.table(domain, &Routes::new()).ok()?;
        Some(Told { kind, table, truth: Routes::new() })
    }

    /// All at once.
    fn apply(&mut self, batch: &[Change<A>]) {
        let mut after = self.truth.clone();
        for change in batch {
            match *change {
                Change::Announce(prefix, label) => after.insert(prefix, label),
                Change::Withdraw(prefix) => after.remove(&prefix),
            };
        }
        match self.table.apply(batch) {
            Ok(applied) => {
                assert_eq!(applied.changed, different(&self.truth, &after));
                self.truth = after;
            }
            Err(error) => assert!(is_wide(&self.truth) || is_wide(&after), "{error}"),
        }
        assert!(!self.table.is_broken());
    }

    /// Other routes.
    fn replace(&mut self, after: Routes<A>) {
        match self.table.replace(rib(&after)) {
            Ok(applied) => {
                assert_eq!(applied.changed, different(&self.truth, &after));
                self.truth = after;
            }
            Err(error) => assert!(is_wide(&after), "{error}"),
        }
    }

    /// The same routes in a table that is made anew; the old one goes.
    fn remake(&mut self, domain: &Domain) {
        match self.kind.table(domain, &self.truth) {
            Ok(table) => self.table = table,
            Err(error) => assert!(is_wide(&self.truth), "{error}"),
        }
    }

    /// Compares answers and RIB with the truth.
    fn check(&self, keys: &[A], reader: &Reader) {
        let list: Vec<(Prefix<A>, Label)> =
            self.truth.iter().map(|(&prefix, &label)| (prefix, label)).collect();
        assert!(self.table.rib().iter().eq(list.iter().copied()));
        let oracle = Oracle::new(&list);
        let expected: Vec<Label> = keys.iter().map(|&key| oracle.lookup(key)).collect();
        let same = |how: &str, found: &[Label]| {
            for ((key, expected), found) in keys.iter().zip(&expected).zip(found) {
                assert_eq!(found, expected, "{}, {}, {how}", self.table.fib().name(), key.to_ip());
            }
        };
        let fib = self.table.fib();
        same("singly", &keys.iter().map(|&key| fib.lookup(key)).collect::<Vec<_>>());
        fib.lookup_batch_each(keys, &mut |kernel, found| same(kernel, found));
        if reader.is_online() {
            let (view, mut found) = (self.table.view(), vec![Label(u32::MAX); keys.len()]);
            view.get(reader).lookup_batch(keys, &mut found);
            same("by a reader", &found);
        }
    }
}

/// Labels that make encodings move, and mostly fit; 0 leads nowhere.
fn label(low: u8) -> Label {
    Label(match low >> 3 {
        0 => 0,
        1 => u32::MAX,
        _ => [1, 2, 3, 200, 256, 0x1_0000, 0x7fff_ffff, 4][usize::from(low & 7)],
    })
}

fn check<A: Family>(choice: usize, data: &[u8]) {
    let Some((_, records)) = lpm::read::<A>(data) else { return };
    let domain = Domain::new();
    // Two of one store: what routers take for the tables of many VRFs.
    let Some(sharing) = A::sharing(Algorithm::Auto, &domain) else { return };
    let alone: Vec<Algorithm> = [Algorithm::Auto; 3].into_iter().chain(A::likely()).collect();
    let third = Kind::Alone(alone[choice % alone.len()]);
    let kinds = [Kind::Shared(sharing.clone()), Kind::Shared(sharing), third];
    let tables: Option<Vec<Told<A>>> = kinds.into_iter().map(|kind| Told::new(kind, &domain)).collect();
    let Some(mut tables) = tables else { panic!("empty tables are not built") };
    let mut reader = domain.register();
    let mut keys: Vec<A> = vec![A::MIN, A::MAX];
    let mut batch: Vec<Change<A>> = Vec::new();
    for Record { what, prefix, len, low } in records {
        let at = usize::from(low) % tables.len();
        let told = &mut tables[at];
        match what {
            0 | 1 => batch.push(Change::Withdraw(prefix)),
            2 => told.apply(&std::mem::take(&mut batch)),
            3 => match len % 8 {
                0 if reader.is_online() => reader.quiescent(),
                1 => reader.offline(),
                2 => reader.online(),
                3 => {
                    let routes = batch.drain(..).filter_map(|change| match change {
                        Change::Announce(prefix, label) => Some((prefix, label)),
                        Change::Withdraw(_) => None,
                    });
                    told.replace(routes.collect());
                }
                4 => told.remake(&domain),
                5 => _ = told.table.collect(),
                _ => {}
            },
            4 if len % 4 == 0 => batch.push(Change::Withdraw(Prefix::DEFAULT)),
            4 => batch.push(Change::Announce(Prefix::DEFAULT, label(low))),
            _ => batch.push(Change::Announce(prefix, label(low))),
        }
        if !matches!(what, 2 | 3) {
            keys.extend(edges(prefix));
            continue;
        }
        // The one that was changed, and another one.
        for at in [at, (at + 1) % tables.len()] {
            tables[at].check(&keys, &reader);
        }
    }
    for told in &mut tables {
        told.apply(&batch);
    }
    reader.offline();
    for told in &mut tables {
        told.check(&keys, &reader);
        assert_eq!(told.table.collect(), 0, "nobody looks any more");
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    match choice & 1 {
        0 => check::<u32>(usize::from(choice >> 1), data),
        _ => check::<u128>(usize::from(choice >> 1), data),
    }
});
