//! What answers which rule a key has: the structures, the caches in front of one, the linear oracle.

use anyhow::Result;
use clap::ValueEnum;
use std::sync::Arc;
use tidemill_classify::cache::{Cache, Settings};
use tidemill_classify::live::{LiveRules, Snapshot};
use tidemill_classify::oracle::Oracle;
use tidemill_classify::yardstick::CuckooLayers;
use tidemill_classify::{Crossed, Grouping, Key, Rank, RuleSet, TupleSpace};
use tidemill_lookup::publish::View;
use tidemill_lookup::qsbr::{Domain, Reader};
use tidemill_switch::{IDLE_S, SWEPT};

/// A structure by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// A table for each mask
    TupleSpace,
    /// The same without vectors
    TupleSpaceScalar,
    /// Few tables of narrower masks
    TupleMerge,
    /// The same without vectors
    TupleMergeScalar,
    /// A cross-product of addresses, for sets that are not too large for one
    Cross,
    /// The same without vectors
    CrossScalar,
    /// The switch's caches, and behind them the structure that the set gets
    Cache,
    /// These caches without filters and signatures: mask by mask
    CachePlain,
    /// HALO's baseline of them: cuckoo hashing with optimistic versions
    Cuckoo,
    /// Every rule in order
    Linear,
}

impl Kind {
    pub(super) const ALL: [Kind; 10] = [
        Kind::TupleSpace,
        Kind::TupleSpaceScalar,
        Kind::TupleMerge,
        Kind::TupleMergeScalar,
        Kind::Cross,
        Kind::CrossScalar,
        Kind::Cache,
        Kind::CachePlain,
        Kind::Cuckoo,
        Kind::Linear,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::TupleSpace => "tuple-space",
            Kind::TupleSpaceScalar => "tuple-space-scalar",
            Kind::TupleMerge => "tuple-merge",
            Kind::TupleMergeScalar => "tuple-merge-scalar",
            Kind::Cross => Crossed::NAME,
            Kind::CrossScalar => "cross-scalar",
            Kind::Cache => "cache",
            Kind::CachePlain => "cache-plain",
            Kind::Cuckoo => "cuckoo",
            Kind::Linear => "linear",
        }
    }

    /// What it is compared with.
    pub(super) fn rivals(self) -> &'static [Kind] {
        match self {
            Kind::TupleSpace => &[Kind::TupleSpaceScalar],
            Kind::TupleMerge => &[Kind::TupleMergeScalar],
            Kind::Cross => &[Kind::CrossScalar, Kind::TupleSpace, Kind::TupleMerge],
            Kind::Cache => &[Kind::CachePlain, Kind::Cuckoo],
            _ => &[],
        }
    }
}

/// Answers.
pub(super) trait Structure {
    /// The first match of each key.
    fn lookup_batch(&mut self, keys: &[Key], out: &mut [Rank]);

    /// Its size.
    fn bytes(&self) -> usize;

    /// A second passes, with what a worker of a switch does then.
    fn second(&mut self) {}
}

impl Structure for TupleSpace {
    fn lookup_batch(&mut self, keys: &[Key], out: &mut [Rank]) {
        TupleSpace::lookup_batch(self, keys, out);
    }

    fn bytes(&self) -> usize {
        TupleSpace::bytes(self)
    }
}

/// Without vectors.
struct Scalar(TupleSpace);

impl Structure for Scalar {
    fn lookup_batch(&mut self, keys: &[Key], out: &mut [Rank]) {
        self.0.lookup_batch_scalar(keys, out);
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// The tuple space is beside it for what changes.
struct Cross {
    crossed: Crossed,
    space: TupleSpace,
    scalar: bool,
}

impl Structure for Cross {
    fn lookup_batch(&mut self, keys: &[Key], out: &mut [Rank]) {
        match self.scalar {
            false => self.crossed.lookup_batch(&self.space, keys, out),
            true => self.crossed.lookup_batch_scalar(&self.space, keys, out),
        }
    }

    fn bytes(&self) -> usize {
        self.crossed.bytes()
    }
}

/// HALO's baseline.
struct Baseline(CuckooLayers, TupleSpace);

impl Structure for Baseline {
    fn lookup_batch(&mut self, keys: &[Key], out: &mut [Rank]) {
        self.0.classify(&self.1, keys, out);
    }

    fn bytes(&self) -> usize {
        self.0.bytes() + self.1.bytes()
    }
}

/// The oracle.
struct Linear(Oracle, usize);

impl Structure for Linear {
    fn lookup_batch(&mut self, keys: &[Key], out: &mut [Rank]) {
        self.0.lookup_batch(keys, out);
    }

    fn bytes(&self) -> usize {
        self.1
    }
}

/// The caches of one worker in front of published rules.
struct Cached {
    cache: Cache,
    now_s: u32,
    view: View<Arc<Snapshot>>,
    reader: Reader,
    /// Nothing is published any more, but a view wants its owner.
    _rules: LiveRules,
}

impl Structure for Cached {
    fn lookup_batch(&mut self, keys: &[Key], out: &mut [Rank]) {
        self.cache.classify(self.view.get(&self.reader), self.now_s, keys, out);
        self.reader.quiescent();
    }

    fn bytes(&self) -> usize {
        let snapshot = self.view.get(&self.reader);
        self.cache.bytes() + snapshot.space().bytes() + snapshot.crossed().map_or(0, Crossed::bytes)
    }

    fn second(&mut self) {
        self.now_s += 1;
        self.cache.maintain(self.view.get(&self.reader), self.now_s, IDLE_S, SWEPT);
    }
}

/// Makes a structure of a set, if it is one that it can be made of.
///
/// # Errors
/// A cache that cannot be made.
pub(super) fn build(
    kind: Kind,
    rules: &RuleSet,
    settings: Settings,
    seed: u64,
) -> Result<Option<Box<dyn Structure>>> {
    let structure: Box<dyn Structure> = match kind {
        Kind::TupleSpace => Box::new(TupleSpace::build(rules, Grouping::Exact)),
        Kind::TupleMerge => Box::new(TupleSpace::build(rules, Grouping::Merged)),
        Kind::TupleSpaceScalar => Box::new(Scalar(TupleSpace::build(rules, Grouping::Exact))),
        Kind::TupleMergeScalar => Box::new(Scalar(TupleSpace::build(rules, Grouping::Merged))),
        Kind::Cross | Kind::CrossScalar => {
            let space = TupleSpace::build(rules, Grouping::Merged);
            let Ok(crossed) = Crossed::build(&space) else { return Ok(None) };
            Box::new(Cross { crossed, space, scalar: kind == Kind::CrossScalar })
        }
        Kind::Cuckoo => {
            let space = TupleSpace::build(rules, Grouping::for_set(rules));
            Box::new(Baseline(CuckooLayers::new(settings.exact, seed.into())?, space))
        }
        Kind::Linear => {
            Box::new(Linear(Oracle::new(rules), rules.len() * size_of::<tidemill_classify::Rule>()))
        }
        Kind::Cache | Kind::CachePlain => {
            let plain = kind == Kind::CachePlain;
            let signatures = if plain { 0 } else { settings.signatures };
            let settings = Settings { signatures, filters: !plain, ..settings };
            let domain = Domain::new();
            let mut live = LiveRules::new(&domain, Grouping::for_set(rules), rules.len() + 1);
            for (_, rule) in rules.iter() {
                live.insert(*rule)?;
            }
            live.commit();
            if live.cross() {
                live.commit();
            }
            let (view, reader) = (live.view(), domain.register());
            let cache = Cache::new(settings, seed.into())?;
            Box::new(Cached { cache, now_s: 0, view, reader, _rules: live })
        }
    };
    Ok(Some(structure))
}
