//! The control side's façade: one routing table with its RIB, the structure built from it, and the root that workers read.
//!
//! ```text
//! changes --apply--> Rib --patch or rebuild--> FibWriter --> Arc<dyn Fib> <--View-- workers
//! ```
//! A patch changes the structure in place, word by word; a rebuild makes a new one and swaps the root. Either way every
//! lookup answers each key with its old or its new label. With `auto` a rebuild may be by another structure: see
//! [`crate::auto`].

pub use crate::algorithm::{Algorithm, AlgorithmError, Family, Named, Sharing};

use crate::auto;
use crate::fib::{BuildError, Fib, FibWriter, Label};
use crate::prefix::{Address, Prefix};
use crate::rib::{Change, Rib, last_of_each};
use std::sync::Arc;
use std::time::Duration;
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

type Make<A> = Box<dyn FnMut(&Rib<A>, &Domain) -> Result<Made<A>, BuildError> + Send>;

/// A routing table: truth, structure and root.
pub struct Table<A: Address> {
    rib: Rib<A>,
    make: Make<A>,
    writer: Box<dyn FibWriter<A>>,
    why: String,
    publisher: Publisher<Arc<dyn Fib<A>>>,
    epoch: Epoch,
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
        Self::resumed(domain, rib, algorithm, budget, None)
    }

    /// The same with what [`Algorithm::Auto`] chose for this table before, and why: it stays with that without measuring.
    ///
    /// # Errors
    /// What the structure says: see [`BuildError`].
    pub fn resumed(
        domain: &Domain,
        rib: Rib<A>,
        algorithm: &Algorithm,
        budget: Duration,
        chosen: Option<(Algorithm, String)>,
    ) -> Result<Self, BuildError>
    where
        A: Family,
    {
        let algorithm = *algorithm;
        // What `auto` has chosen, for how many prefixes, and why.
        let chosen = chosen.filter(|(chosen, _)| *chosen != Algorithm::Auto);
        let mut kept = chosen.map(|(chosen, why)| (chosen, rib.len(), why));
        Self::make(domain, rib, move |rib: &Rib<A>, domain: &Domain| {
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
        Self::make(domain, rib, move |rib, domain| Ok((make(rib, domain)?, String::new())))
    }

    /// The same for a structure that shares with others: `why` it is this one.
    ///
    /// # Errors
    /// What `sharing` says.
    pub fn sharing(
        domain: &Domain,
        rib: Rib<A>,
        sharing: Sharing<A>,
        why: String,
    ) -> Result<Self, BuildError> {
        Self::make(domain, rib, move |rib, domain| Ok((sharing(rib, domain)?, why.clone())))
    }

    fn make(
        domain: &Domain,
        rib: Rib<A>,
        mut make: impl FnMut(&Rib<A>, &Domain) -> Result<Made<A>, BuildError> + Send + 'static,
    ) -> Result<Self, BuildError> {
        let (writer, why) = make(&rib, domain)?;
        let publisher = Publisher::new(domain, writer.fib());
        Ok(Table { rib, make: Box::new(make), writer, why, publisher, epoch: domain.current() })
    }

    /// Applies changes in their order - of several to one prefix only the last matters - to the RIB and to what
    /// workers see.
    ///
    /// # Errors
    /// The structure cannot hold the new table. Nothing has changed then: the RIB is as before, and so are the
    /// answers.
    pub fn apply(&mut self, changes: &[Change<A>]) -> Result<Applied, BuildError> {
        let mut changed = Vec::new();
        let mut before: Vec<Option<Label>> = Vec::new();
        for (prefix, at) in last_of_each(changes.iter().map(Change::prefix)) {
            let old = self.rib.get(prefix);
            if self.rib.apply(&changes[at]) {
                changed.push(prefix);
                before.push(old);
            }
        }
        let how = match self.update(&changed) {
            Ok(how) => how,
            Err((error, touched)) => {
                for (&prefix, old) in changed.iter().zip(before) {
                    match old {
                        Some(label) => self.rib.insert(prefix, label),
                        None => self.rib.remove(prefix),
                    };
                }
                if touched {
                    self.rebuild()?;
                }
                return Err(error);
            }
        };
        if how != How::Unchanged {
            self.epoch = self.publisher.domain().advance();
        }
        Ok(Applied { changed: changed.len(), how, generation: self.generation(), epoch: self.epoch })
    }

    /// Brings the structure up to date with the RIB. An error says whether the structure has been touched.
    fn update(&mut self, changed: &[Prefix<A>]) -> Result<How, (BuildError, bool)> {
        if changed.is_empty() {
            return Ok(How::Unchanged);
        }
        let many = changed.len() >= REBUILD_CHANGES && changed.len() * REBUILD_RATIO >= self.rib.len();
        // A structure that is patched as a copy takes the one that readers have left.
        self.publisher.collect_within(FOR_READERS);
        if !many && self.writer.patch(&self.rib, changed).is_ok() {
            let patched = self.writer.fib();
            if Arc::ptr_eq(&patched, self.publisher.current()) {
                self.publisher.touch();
            } else {
                self.publisher.publish(patched);
            }
            return Ok(How::Patched);
        }
        self.rebuild().map(|()| How::Rebuilt).map_err(|error| (error, !many))
    }

    fn rebuild(&mut self) -> Result<(), BuildError> {
        let (writer, why) = (self.make)(&self.rib, self.publisher.domain())?;
        self.publisher.publish(writer.fib());
        (self.writer, self.why) = (writer, why);
        Ok(())
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
        self.epoch = self.publisher.domain().advance();
        Ok(Applied { changed, how: How::Rebuilt, generation: self.generation(), epoch: self.epoch })
    }

    /// What a worker looks into: one per worker, cheap to clone.
    pub fn view(&self) -> View<Arc<dyn Fib<A>>> {
        self.publisher.view()
    }

    /// The structure now published. For the control side; workers use a [`view`](Self::view).
    pub fn fib(&self) -> &Arc<dyn Fib<A>> {
        self.publisher.current()
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
        self.publisher.generation()
    }

    /// The epoch of the last change; see [`Applied::epoch`].
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Drops replaced structures that no worker can see any more; returns how many still wait.
    pub fn collect(&mut self) -> usize {
        self.publisher.collect()
    }
}

#[cfg(test)]
mod tests;
