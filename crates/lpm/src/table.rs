//! The control side's façade: one routing table with its RIB, the structure built from it, and the root that workers read.
//!
//! ```text
//! changes --apply--> Rib --patch or rebuild--> FibWriter --> Arc<dyn Fib> <--View-- workers
//! ```
//! With several memory nodes there is a structure, and a root, on each ([`Table::copy`]): every change is made in all of them.
//! A patch changes the structure in place, word by word; a rebuild makes a new one and swaps the root. Either way every
//! lookup answers each key with its old or its new label. With `auto` a rebuild may be by another structure: see
//! [`crate::auto`].
//!
//! The default route is not in the structure but above it (`fallback.rs`), where the change that a table sees most costs one store.
//! While a worker may still go by the old one, no other route may go (others may come), or the worker would take the old default route for what
//! that one covered: its label is neither the old nor the new one there. So in a batch that changes the default route what is announced comes first, then the
//! default route, then, when all workers have moved on, what is withdrawn; those who do not in time keep the old structure, and a new
//! one is built, as it is if what is announced has room only when the rest has gone. A table in which another route leads nowhere (label 0, which is what a structure says where it has no route) has its
//! default route in the structure.

mod fallback;

pub use crate::algorithm::{Algorithm, AlgorithmError, Family, Named, Sharing};

use crate::auto;
use crate::fib::{AfterFailure, BuildError, Fib, FibWriter, Label};
use crate::prefix::{Address, Prefix};
use crate::rib::{Change, Rib, last_of_each};
use std::sync::Arc;
use std::time::Duration;
use tidemill_lookup::numa::Copies;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::publish::{Publisher, View};
use tidemill_lookup::qsbr::{Domain, Epoch};

/// From this many changes at once on, a rebuild is considered...
const REBUILD_CHANGES: usize = 1024;
/// ... and done if the table has at most this many prefixes per change. A patch costs microseconds per change, a rebuild
/// a fraction of one per prefix.
const REBUILD_RATIO: usize = 8;
/// The control side waits for readers so long before it copies, or builds anew, what they hold up.
const FOR_READERS: Duration = Duration::from_millis(2);
/// A table that has grown by this factor since `auto` chose gets another choice at its next rebuild.
const CHOOSE_AGAIN: usize = 4;

/// How [`Table::apply`] brought the structure up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// There was nothing to do.
    Unchanged,
    /// In place; or it was the default route, which is above the structure.
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

impl Touched {
    /// Readers may use what has been done so far.
    const YES: Touched = Touched { seen: true, left: true };
}

/// Builds the structure of one copy.
type Make<A> = Box<dyn FnMut(&Rib<A>, &Domain, usize) -> Result<Made<A>, BuildError> + Send>;

/// An update under way.
struct Update<'a, A: Address> {
    /// Prefixes that are different in the RIB now, and what was there before.
    changed: Vec<Prefix<A>>,
    before: Vec<Option<Label>>,
    touched: Touched,
    /// The default route above the structure is another one.
    default_moved: bool,
    probe: Option<&'a dyn Probe>,
}

/// What the workers of one memory node read.
struct Copy<A: Address> {
    writer: Box<dyn FibWriter<A>>,
    publisher: Publisher<Arc<dyn Fib<A>>>,
    /// The writer's structure that is published, below the default route if there is one above it.
    shown: Arc<dyn Fib<A>>,
    /// Some workers may still go by another default route above it.
    default_moved: bool,
    /// A patch made another structure of it, which will want this one's place when workers have left that.
    changes_places: bool,
}

impl<A: Address> Copy<A> {
    fn new(writer: Box<dyn FibWriter<A>>, default: Label, domain: &Domain) -> Self {
        let shown = writer.fib();
        let publisher = Publisher::new(domain, fallback::over(shown.clone(), default));
        Copy { writer, publisher, shown, default_moved: false, changes_places: false }
    }

    /// Publishes the writer's structure below this default route.
    fn show(&mut self, default: Label) {
        self.shown = self.writer.fib();
        self.publisher.publish(fallback::over(self.shown.clone(), default));
    }

    /// Publishes the same structure below another default route.
    fn move_default(&mut self, default: Label, probe: Option<&dyn Probe>) {
        self.show(default);
        self.default_moved = true;
        if let Some(probe) = probe.filter(|_| default != Label::NONE) {
            let place = Arc::as_ptr(self.publisher.current()).cast::<u8>().addr();
            probe.write(place, size_of::<Label>());
        }
    }

    /// Whether the structure may be patched: where something goes, not before nobody goes by an earlier default route any more. Waits for workers
    /// only then, or if it is patched as a spare, which takes the one that they have left.
    fn is_settled(&mut self, goes: impl FnOnce() -> bool) -> bool {
        self.default_moved &= self.publisher.collect() > 0;
        let unsettled = self.default_moved && goes();
        if unsettled || self.changes_places {
            self.default_moved &= self.publisher.collect_within(FOR_READERS) > 0;
        }
        !(unsettled && self.default_moved)
    }

    /// Brings the structure up to date; false if it has to be built anew.
    fn patch(
        &mut self,
        rib: &Rib<A>,
        changed: &[Prefix<A>],
        default: Label,
        touched: &mut Touched,
        probe: Option<&dyn Probe>,
    ) -> bool {
        let patched = match probe {
            None => self.writer.patch(rib, changed),
            Some(probe) => self.writer.patch_probed(rib, changed, probe),
        };
        if patched.is_err() {
            match self.writer.after_failure() {
                AfterFailure::Untouched => {}
                AfterFailure::Restored => touched.seen = true,
                AfterFailure::Partly => *touched = Touched::YES,
            }
            return false;
        }
        *touched = Touched::YES;
        if Arc::ptr_eq(&self.writer.fib(), &self.shown) {
            self.publisher.touch();
        } else {
            self.changes_places = true;
            self.show(default);
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
    /// The default route is above the structures, not in them. Without one the two are the same.
    apart: bool,
    /// Prefixes besides the default route that lead nowhere: with them, it cannot be above.
    nowhere: usize,
}

/// Whether this is a route to nowhere, and not the default route.
fn is_nowhere<A: Address>(prefix: Prefix<A>, label: Option<Label>) -> bool {
    label == Some(Label::NONE) && prefix != Prefix::DEFAULT
}

/// The label that a change announces.
fn announced<A: Address>(change: &Change<A>) -> Option<Label> {
    match *change {
        Change::Announce(_, label) => Some(label),
        Change::Withdraw(_) => None,
    }
}

fn count_nowhere<A: Address>(rib: &Rib<A>) -> usize {
    rib.iter().filter(|&(prefix, label)| is_nowhere(prefix, Some(label))).count()
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
    /// ```
    /// use tidemill_lpm::{Algorithm, Copies, Domain, Family, Label, Rib, Table};
    ///
    /// let domain = Domain::new();
    /// let store = u32::sharing(Algorithm::Auto, &domain).expect("auto shares");
    /// let vrfs: Result<Vec<Table<u32>>, Box<dyn std::error::Error>> = (1..=100)
    ///     .map(|label| {
    ///         let mut rib = Rib::new();
    ///         rib.insert("10.0.0.0/8".parse()?, Label(1));
    ///         rib.insert("192.0.2.0/24".parse()?, Label(label));
    ///         Ok(Table::sharing(&domain, rib, vec![store.clone()], String::new(), &Copies::one())?)
    ///     })
    ///     .collect();
    /// let (view, reader) = (vrfs?[6].view(), domain.register()); // one reader for all of them
    /// assert_eq!(view.get(&reader).lookup(0xc000_0201), Label(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
        let nowhere = count_nowhere(&rib);
        let apart = nowhere == 0;
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
            apart,
            nowhere,
        };
        let made = table.build(apart)?;
        let default = table.default_above();
        for (at, (writer, why)) in made.into_iter().enumerate() {
            table.copies.push(nodes.on(at, || Copy::new(writer, default, domain)));
            table.why = why;
        }
        Ok(table)
    }

    /// A new structure for each copy, with the default route or without.
    fn build(&mut self, apart: bool) -> Result<Vec<Made<A>>, BuildError> {
        let Table { rib, make, nodes, domain, .. } = self;
        let mut build = |rib: &Rib<A>| -> Result<Vec<Made<A>>, BuildError> {
            (0..nodes.count()).map(|copy| nodes.on(copy, || make(rib, domain, copy))).collect()
        };
        if apart { rib.without_default(build) } else { build(&*rib) }
    }

    /// The label of the default route above the structures.
    fn default_above(&self) -> Label {
        let default = if self.apart { self.rib.get(Prefix::DEFAULT) } else { None };
        default.unwrap_or(Label::NONE)
    }

    /// Applies changes in their order - of several to one prefix only the last matters - to the RIB and to what
    /// workers see.
    ///
    /// # Errors
    /// The structure cannot hold the new table. Nothing has changed then: the RIB is as before, and so are the
    /// answers; whether a reader may have seen some of it in between, [`glimpsed`](Self::glimpsed) says. Only if there is no memory to
    /// build the structure of the RIB as before either, some of the changes stay in the answers: see [`is_broken`](Self::is_broken).
    pub fn apply(&mut self, changes: &[Change<A>]) -> Result<Applied, BuildError> {
        self.apply_told(changes, None)
    }

    /// The same, with every store to what lookups can touch told to `probe`; what a rebuild stores is not. A structure that cannot
    /// be probed tells nothing.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn apply_probed(&mut self, changes: &[Change<A>], probe: &dyn Probe) -> Result<Applied, BuildError> {
        self.apply_told(changes, Some(probe))
    }

    fn apply_told(
        &mut self,
        changes: &[Change<A>],
        probe: Option<&dyn Probe>,
    ) -> Result<Applied, BuildError> {
        let mended = self.broken && self.mend();
        if self.rib.get(Prefix::DEFAULT).is_none() {
            self.apart = self.nowhere == 0;
        }
        let nowhere = self.nowhere;
        let touched = Touched { seen: self.broken, left: self.broken };
        let (changed, before) = (Vec::new(), Vec::new());
        let mut update = Update { changed, before, touched, default_moved: false, probe };
        let how = match self.exchange(changes, &mut update) {
            Ok(How::Unchanged) if mended => How::Rebuilt,
            Ok(how) => how,
            Err(error) => {
                for (&prefix, old) in update.changed.iter().zip(update.before) {
                    match old {
                        Some(label) => self.rib.insert(prefix, label),
                        None => self.rib.remove(prefix),
                    };
                }
                self.nowhere = nowhere;
                self.glimpsed = update.touched.seen;
                if update.default_moved {
                    // This needs no memory but a few bytes.
                    self.move_default(probe);
                }
                if update.touched.left {
                    self.broken = self.rebuild().is_err();
                }
                return Err(error);
            }
        };
        if how != How::Unchanged {
            self.epoch = self.domain.advance();
        }
        let changed = update.changed.len();
        Ok(Applied { changed, how, generation: self.generation(), epoch: self.epoch })
    }

    /// Makes the changes, the last one of each prefix, in the RIB and in what workers see.
    fn exchange(&mut self, changes: &[Change<A>], update: &mut Update<'_, A>) -> Result<How, BuildError> {
        let last = last_of_each(changes.iter().map(Change::prefix));
        let default = last.first().filter(|(prefix, _)| *prefix == Prefix::DEFAULT);
        let above = self.apart && self.nowhere == 0 && !self.broken && !self.are_many(last.len());
        let leads = |&(prefix, at): &(Prefix<A>, usize)| !is_nowhere(prefix, announced(&changes[at]));
        let Some(&(_, default)) = default.filter(|_| above && last.iter().all(leads)) else {
            return self.step(changes, &last, |_| true, update);
        };
        // See the module's page for why in this order.
        let others = &last[1..];
        let withdraws = |&(_, at): &(Prefix<A>, usize)| announced(&changes[at]).is_none();
        let mut how = match self.step(changes, others, |label| label.is_some(), update) {
            Ok(how) => how,
            // What is announced has no room beside what is withdrawn: all at once, in a new structure below the new default route.
            Err(_) if others.iter().any(withdraws) => {
                self.take(changes, &last, |_| true, update);
                self.rebuild()?;
                return Ok(How::Rebuilt);
            }
            Err(error) => return Err(error),
        };
        if let Some(old) = self.rib.exchange(&changes[default]) {
            update.changed.push(Prefix::DEFAULT);
            update.before.push(old);
            self.move_default(update.probe);
            (update.default_moved, update.touched.seen) = (true, true);
            how = how.max(How::Patched);
        }
        let withdrawn = self.step(changes, others, |label| label.is_none(), update)?;
        Ok(how.max(withdrawn))
    }

    /// Has the RIB's default route above all structures.
    fn move_default(&mut self, probe: Option<&dyn Probe>) {
        let label = self.default_above();
        for (at, copy) in self.copies.iter_mut().enumerate() {
            self.nodes.on(at, || copy.move_default(label, probe));
        }
    }

    /// Makes the changes at these places that announce or withdraw as wanted.
    fn step(
        &mut self,
        changes: &[Change<A>],
        places: &[(Prefix<A>, usize)],
        wanted: impl Fn(Option<Label>) -> bool,
        update: &mut Update<'_, A>,
    ) -> Result<How, BuildError> {
        let from = update.changed.len();
        self.take(changes, places, wanted, update);
        self.follow(from, update)
    }

    /// Makes them in the RIB.
    fn take(
        &mut self,
        changes: &[Change<A>],
        places: &[(Prefix<A>, usize)],
        wanted: impl Fn(Option<Label>) -> bool,
        update: &mut Update<'_, A>,
    ) {
        for &(prefix, at) in places {
            let label = announced(&changes[at]);
            if !wanted(label) {
                continue;
            }
            if let Some(old) = self.rib.exchange(&changes[at]) {
                self.nowhere += usize::from(is_nowhere(prefix, label));
                self.nowhere -= usize::from(is_nowhere(prefix, old));
                update.changed.push(prefix);
                update.before.push(old);
            }
        }
    }

    /// Brings the structure up to date with the RIB, for what has been changed in it from number `from` on.
    fn follow(&mut self, from: usize, update: &mut Update<'_, A>) -> Result<How, BuildError> {
        let Update { changed, touched, probe, .. } = update;
        let changed = &changed[from..];
        let Some(&first) = changed.first() else { return Ok(How::Unchanged) };
        // The default route has to go from above the structure into it.
        let default = Prefix::DEFAULT;
        let into = self.apart && (first == default || (self.nowhere > 0 && self.rib.get(default).is_some()));
        let patch = !into && !self.broken && !self.are_many(changed.len());
        if patch && self.patch(changed, touched, *probe) {
            return Ok(How::Patched);
        }
        if let Err(error) = self.rebuild() {
            // Perhaps only workers were in the way, which have moved on meanwhile: what was patched in part is patched again.
            if patch && self.patch(changed, touched, *probe) {
                return Ok(How::Patched);
            }
            return Err(error);
        }
        *touched = Touched::YES;
        Ok(How::Rebuilt)
    }

    /// Whether so many changes are better answered by a rebuild.
    fn are_many(&self, changes: usize) -> bool {
        changes >= REBUILD_CHANGES && changes * REBUILD_RATIO >= self.rib.len()
    }

    /// Patches all copies; false if they have to be built anew.
    fn patch(&mut self, changed: &[Prefix<A>], touched: &mut Touched, probe: Option<&dyn Probe>) -> bool {
        let default = self.default_above();
        let Table { rib, copies, nodes, apart, .. } = self;
        let mut patch = |rib: &Rib<A>| -> bool {
            let goes =
                || changed.iter().any(|&prefix| rib.get(prefix).is_none_or(|label| label == Label::NONE));
            copies.iter_mut().enumerate().all(|(at, copy)| {
                copy.is_settled(goes) && nodes.on(at, || copy.patch(rib, changed, default, touched, probe))
            })
        };
        if *apart { rib.without_default(patch) } else { patch(&*rib) }
    }

    /// Builds all copies anew, or none.
    fn rebuild(&mut self) -> Result<(), BuildError> {
        let apart = self.nowhere == 0;
        let made = self.build(apart)?;
        self.apart = apart;
        let default = self.default_above();
        for (copy, (writer, why)) in self.copies.iter_mut().zip(made) {
            let _before = std::mem::replace(&mut copy.writer, writer);
            copy.show(default);
            (copy.default_moved, copy.changes_places) = (false, false);
            self.why = why;
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
        let nowhere = std::mem::replace(&mut self.nowhere, count_nowhere(&rib));
        let old = std::mem::replace(&mut self.rib, rib);
        if let Err(error) = self.rebuild() {
            (self.rib, self.nowhere) = (old, nowhere);
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

    /// The structure now published. For the control side; workers use a [`view`](Self::view). Nobody waits for who looks into a clone of
    /// it: once the table changes, its answers may be of no state of the table, or a panic.
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
