//! The control side's façade: one routing table with its RIB, the structure built from it, and the root that workers read.
//!
//! ```text
//! changes --apply--> Rib --patch or rebuild--> FibWriter --> Arc<dyn Fib> <--View-- workers
//! ```
//! With several memory nodes there is a structure, and a root, on each ([`Table::copy`]): every change is made in all of them.
//! A patch changes the structure in place, word by word; a rebuild makes a new one and swaps the root. Either way every
//! lookup answers each key with its old or its new label. With `auto` a rebuild may be by another structure: see
//! [`crate::auto`].

pub use crate::algorithm::{Algorithm, AlgorithmError, Family, Named, Sharing};

use crate::auto;
use crate::fib::{AfterFailure, BuildError, Fib, FibWriter, Label};
use crate::prefix::{Address, Prefix};
use crate::rib::{Change, Rib, last_of_each};
use std::sync::Arc;
use std::time::Duration;
use tidemill_lookup::numa::Copies;
use tidemill_lookup::publish::{Publisher, View};
use tidemill_lookup::qsbr::{Domain, Epoch};

/// From this many changes at once on, a rebuild is considered...
const REBUILD_CHANGES: usize = 1024;
/// ... and done if the table has at most this many prefixes per change. A patch costs microseconds per change, a rebuild
/// a fraction of one per prefix.
const REBUILD_RATIO: usize = 8;
/// The control side waits for readers so long before it copies what they hold up.
const FOR_READERS: Duration = Duration::from_millis(2);
/// A table that has grown by this factor since `auto` chose gets another choice at its next rebuild.
const CHOOSE_AGAIN: usize = 4;

/// How [`Table::apply`] brought the structure up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// There was nothing to do.
    Unchanged,
    /// In place.
    Patched,
    /// A new structure was published.
    Rebuilt,
}

/// What [`Table::apply`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Prefixes that are different now.
    pub changed: usize,
    /// How the structure was brought up to date.
    pub how: How,
    /// The generation now published.
    pub generation: u64,
    /// When [`Domain::passed`] says so of this epoch, no worker can still obtain a label that these changes removed
    /// from the table; the label may then be given to another next hop.
    pub epoch: Epoch,
}

/// A structure's writer, and why it is this structure.
type Made<A> = (Box<dyn FibWriter<A>>, String);

/// What an update that was not taken has done to what readers use.
#[derive(Debug, Clone, Copy, Default)]
struct Touched {
    /// Some may have seen it.
    seen: bool,
    /// It is still there.
    left: bool,
}

/// Builds the structure of one copy.
type Make<A> = Box<dyn FnMut(&Rib<A>, &Domain, usize) -> Result<Made<A>, BuildError> + Send>;

/// What the workers of one memory node read.
struct Copy<A: Address> {
    writer: Box<dyn FibWriter<A>>,
    publisher: Publisher<Arc<dyn Fib<A>>>,
}

impl<A: Address> Copy<A> {
    /// Brings the structure up to date; false if it has to be built anew.
    fn patch(&mut self, rib: &Rib<A>, changed: &[Prefix<A>], touched: &mut Touched) -> bool {
        if self.writer.patch(rib, changed).is_err() {
            match self.writer.after_failure() {
                AfterFailure::Untouched => {}
                AfterFailure::Restored => touched.seen = true,
                AfterFailure::Partly => *touched = Touched { seen: true, left: true },
            }
            return false;
        }
        *touched = Touched { seen: true, left: true };
        let patched = self.writer.fib();
        if Arc::ptr_eq(&patched, self.publisher.current()) {
            self.publisher.touch();
        } else {
            self.publisher.publish(patched);
        }
        true
    }
}

/// A routing table: truth, and a structure and a root for each memory node.
pub struct Table<A: Address> {
    rib: Rib<A>,
    make: Make<A>,
    /// The first is there always.
    copies: Vec<Copy<A>>,
    nodes: Copies,
    domain: Domain,
    why: String,
    epoch: Epoch,
    glimpsed: bool,
    /// Readers may use something that is not what the RIB says.
    broken: bool,
}

impl<A: Address> Table<A> {
    /// Builds `algorithm`'s structure from `rib` and publishes it to the readers of `domain`. [`Algorithm::Auto`] goes by
    /// fixed knowledge: the same table gets the same structure every time.
    ///
    /// # Errors
    /// What the structure says: see [`BuildError`].
    pub fn new(domain: &Domain, rib: Rib<A>, algorithm: &Algorithm) -> Result<Self, BuildError>
    where
        A: Family,
    {
        Self::measured(domain, rib, algorithm, Duration::ZERO)
    }

    /// The same, but [`Algorithm::Auto`] may measure for about `budget` (see [`auto::choose`]), now and at the rebuild after
    /// the table has grown fourfold. Until then it stays with what it has chosen, unless that cannot hold the table any more.
    ///
    /// # Errors
    /// What the structure says: see [`BuildError`].
    pub fn measured(
        domain: &Domain,
        rib: Rib<A>,
        algorithm: &Algorithm,
        budget: Duration,
    ) -> Result<Self, BuildError>
    where
        A: Family,
    {
        Self::resumed(domain, rib, algorithm, budget, None, &Copies::one())
    }

    /// The same with what [`Algorithm::Auto`] chose for this table before, and why: it stays with that without measuring.
    /// There is a copy on each of `nodes`.
    ///
    /// # Errors
    /// What the structure says: see [`BuildError`].
    pub fn resumed(
        domain: &Domain,
        rib: Rib<A>,
        algorithm: &Algorithm,
        budget: Duration,
        chosen: Option<(Algorithm, String)>,
        nodes: &Copies,
    ) -> Result<Self, BuildError>
    where
        A: Family,
    {
        let algorithm = *algorithm;
        // What `auto` has chosen, for how many prefixes, and why.
        let chosen = chosen.filter(|(chosen, _)| *chosen != Algorithm::Auto);
        let mut kept = chosen.map(|(chosen, why)| (chosen, rib.len(), why));
        Self::make(domain, rib, nodes, move |rib: &Rib<A>, domain: &Domain, _| {
            if algorithm != Algorithm::Auto {
                return Ok((algorithm.writer(rib, domain)?, String::new()));
            }
            let grown = |size: usize| rib.len() >= auto::MEASURE_FROM.max(size.saturating_mul(CHOOSE_AGAIN));
            if let Some((kept, size, why)) = &kept
                && !grown(*size)
                && let Ok(writer) = kept.writer(rib, domain)
            {
                return Ok((writer, why.clone()));
            }
            let auto::Chosen { algorithm, why, writer } = auto::choose(rib, domain, budget)?;
            kept = Some((algorithm, rib.len(), why.clone()));
            Ok((writer, why))
        })
    }

    /// The same for any structure: `make` builds it, now and whenever it must be rebuilt.
    ///
    /// # Errors
    /// What `make` says.
    pub fn with(
        domain: &Domain,
        rib: Rib<A>,
        make: impl Fn(&Rib<A>, &Domain) -> Result<Box<dyn FibWriter<A>>, BuildError> + Send + 'static,
    ) -> Result<Self, BuildError> {
        Self::with_copies(domain, rib, &Copies::one(), move |rib, domain, _| make(rib, domain))
    }

    /// The same with a copy on each of `nodes`: `make` is told which one it builds.
    ///
    /// # Errors
    /// What `make` says.
    pub fn with_copies(
        domain: &Domain,
        rib: Rib<A>,
        nodes: &Copies,
        make: impl Fn(&Rib<A>, &Domain, usize) -> Result<Box<dyn FibWriter<A>>, BuildError> + Send + 'static,
    ) -> Result<Self, BuildError> {
        Self::make(domain, rib, nodes, move |rib, domain, copy| Ok((make(rib, domain, copy)?, String::new())))
    }

    /// The same for a structure that shares with others, a `sharing` for each of `nodes`: `why` it is this one, while it is.
    ///
    /// # Errors
    /// What `sharing` says.
    ///
    /// # Panics
    /// There are fewer sharings than copies.
    pub fn sharing(
        domain: &Domain,
        rib: Rib<A>,
        sharing: Vec<Sharing<A>>,
        why: String,
        nodes: &Copies,
    ) -> Result<Self, BuildError> {
        assert!(sharing.len() >= nodes.count(), "a sharing for each copy");
        Self::make(domain, rib, nodes, move |rib, domain, copy| {
            let (writer, another) = sharing[copy](rib, domain)?;
            Ok((writer, another.unwrap_or_else(|| why.clone())))
        })
    }

    fn make(
        domain: &Domain,
        rib: Rib<A>,
        nodes: &Copies,
        make: impl FnMut(&Rib<A>, &Domain, usize) -> Result<Made<A>, BuildError> + Send + 'static,
    ) -> Result<Self, BuildError> {
        let mut table = Table {
            rib,
            make: Box::new(make),
            copies: Vec::new(),
            nodes: nodes.clone(),
            domain: domain.clone(),
            why: String::new(),
            epoch: domain.current(),
            glimpsed: false,
            broken: false,
        };
        let made = table.build()?;
        for (copy, (writer, why)) in made.into_iter().enumerate() {
            let publisher = nodes.on(copy, || Publisher::new(domain, writer.fib()));
            table.copies.push(Copy { writer, publisher });
            table.why = why;
        }
        Ok(table)
    }

    /// A new structure for each copy.
    fn build(&mut self) -> Result<Vec<Made<A>>, BuildError> {
        let Table { rib, make, nodes, domain, .. } = self;
        (0..nodes.count()).map(|copy| nodes.on(copy, || make(rib, domain, copy))).collect()
    }

    /// Applies changes in their order - of several to one prefix only the last matters - to the RIB and to what
    /// workers see.
    ///
    /// # Errors
    /// The structure cannot hold the new table. Nothing has changed then: the RIB is as before, and so are the
    /// answers; whether a reader may have seen some of it in between, [`glimpsed`](Self::glimpsed) says. Only if there is no memory to
    /// build the structure of the RIB as before either, some of the changes stay in the answers: see [`is_broken`](Self::is_broken).
    pub fn apply(&mut self, changes: &[Change<A>]) -> Result<Applied, BuildError> {
        let mended = self.broken && self.mend();
        let mut changed = Vec::new();
        let mut before: Vec<Option<Label>> = Vec::new();
        for (prefix, at) in last_of_each(changes.iter().map(Change::prefix)) {
            if let Some(old) = self.rib.exchange(&changes[at]) {
                changed.push(prefix);
                before.push(old);
            }
        }
        let how = match self.update(&changed) {
            Ok(How::Unchanged) if mended => How::Rebuilt,
            Ok(how) => how,
            Err((error, touched)) => {
                for (&prefix, old) in changed.iter().zip(before) {
                    match old {
                        Some(label) => self.rib.insert(prefix, label),
                        None => self.rib.remove(prefix),
                    };
                }
                self.glimpsed = touched.seen;
                if touched.left {
                    self.broken = self.rebuild().is_err();
                }
                return Err(error);
            }
        };
        if how != How::Unchanged {
            self.epoch = self.domain.advance();
        }
        Ok(Applied { changed: changed.len(), how, generation: self.generation(), epoch: self.epoch })
    }

    /// Brings the structure up to date with the RIB. An error says what has been done to what readers use.
    fn update(&mut self, changed: &[Prefix<A>]) -> Result<How, (BuildError, Touched)> {
        if changed.is_empty() {
            return Ok(How::Unchanged);
        }
        let many = changed.len() >= REBUILD_CHANGES && changed.len() * REBUILD_RATIO >= self.rib.len();
        let broken = self.broken;
        let Table { rib, copies, nodes, .. } = self;
        let mut touched = Touched { seen: broken, left: broken };
        let patch = |(at, copy): (usize, &mut Copy<A>)| {
            // A structure that is patched as a spare takes the one that readers have left.
            copy.publisher.collect_within(FOR_READERS);
            nodes.on(at, || copy.patch(rib, changed, &mut touched))
        };
        if !many && !broken && copies.iter_mut().enumerate().all(patch) {
            return Ok(How::Patched);
        }
        self.rebuild().map(|()| How::Rebuilt).map_err(|error| (error, touched))
    }

    /// Builds all copies anew, or none.
    fn rebuild(&mut self) -> Result<(), BuildError> {
        let made = self.build()?;
        for (copy, (writer, why)) in self.copies.iter_mut().zip(made) {
            copy.publisher.publish(writer.fib());
            (copy.writer, self.why) = (writer, why);
        }
        self.broken = false;
        Ok(())
    }

    /// Whether a change was refused, and then there was no memory to build the structure without it: answers may be those of some of the
    /// changes that were refused. The next change, or [`mend`](Self::mend), tries again.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Builds what [is broken](Self::is_broken) anew; whether the answers are what the RIB says now.
    pub fn mend(&mut self) -> bool {
        if self.broken && self.rebuild().is_ok() {
            self.epoch = self.domain.advance();
        }
        !self.broken
    }

    /// Replaces the whole RIB, for example after a reload. On an error nothing has changed.
    ///
    /// # Errors
    /// The structure cannot hold the new table.
    pub fn replace(&mut self, rib: Rib<A>) -> Result<Applied, BuildError> {
        let changed = rib.iter().filter(|&(p, l)| self.rib.get(p) != Some(l)).count()
            + self.rib.iter().filter(|&(p, _)| rib.get(p).is_none()).count();
        let old = std::mem::replace(&mut self.rib, rib);
        if let Err(error) = self.rebuild() {
            self.rib = old;
            return Err(error);
        }
        self.epoch = self.domain.advance();
        Ok(Applied { changed, how: How::Rebuilt, generation: self.generation(), epoch: self.epoch })
    }

    /// What a worker looks into: one per worker, cheap to clone. This is the first copy.
    pub fn view(&self) -> View<Arc<dyn Fib<A>>> {
        self.copy(0)
    }

    /// What a worker whose copy this is looks into; of a copy that there is not, the first.
    pub fn copy(&self, copy: usize) -> View<Arc<dyn Fib<A>>> {
        self.copies.get(copy).unwrap_or(&self.copies[0]).publisher.view()
    }

    /// The structure now published. For the control side; workers use a [`view`](Self::view).
    pub fn fib(&self) -> &Arc<dyn Fib<A>> {
        self.copies[0].publisher.current()
    }

    /// After an [`apply`](Self::apply) that was refused: whether a worker may have seen part of it. If not, labels that were new in it
    /// may be given to other next hops at once.
    pub fn glimpsed(&self) -> bool {
        self.glimpsed
    }

    /// Why `auto` has chosen this structure; empty if it has not.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The truth.
    pub fn rib(&self) -> &Rib<A> {
        &self.rib
    }

    /// Counts every patch and every rebuild; 1 at first.
    pub fn generation(&self) -> u64 {
        self.copies[0].publisher.generation()
    }

    /// The epoch of the last change; see [`Applied::epoch`].
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Drops replaced structures that no worker can see any more; returns how many still wait.
    pub fn collect(&mut self) -> usize {
        self.copies.iter_mut().map(|copy| copy.publisher.collect()).sum()
    }
}

#[cfg(test)]
mod tests;
