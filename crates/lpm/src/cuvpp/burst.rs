//! CuVPP with eight lengths of a key at once.
//!
//! A group are the eight lengths that end in one byte of the key. Their hashes differ in a few loads (see `hash.rs`), their buckets
//! in the filter are compared at once, and the longest "maybe" is the highest bit of a mask. The table's bucket is asked for then, and
//! looked at when all keys of some have come so far.

use super::CuVpp;
use crate::copies::{self, Whole};
use crate::fib::{Built, Fib, Label, Outgrown};
use crate::hashlengths::hash::{Eight, halves_bytes};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// The code that answers bursts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Key by key, length by length: the specification.
    Scalar,
    /// Eight lengths at a time.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Kernel {
    /// What this CPU can do, the best last.
    pub fn all() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Kernel::Scalar];
        #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
        if super::simd::has_avx512() {
            all.push(Kernel::Avx512);
        }
        all
    }

    /// As checks name it.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => "avx512",
        }
    }
}

/// Eight lengths of which one at least has prefixes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub(super) eight: Eight,
    /// Four bits for each length that has prefixes, the shortest's lowest.
    pub(super) lengths: u32,
}

/// [`CuVpp`] with a kernel for bursts.
#[derive(Debug, Clone)]
pub struct CuVppSimd<A> {
    fib: CuVpp<A>,
    /// Longest first.
    groups: Vec<Group>,
    kernel: Kernel,
}

/// Builds a [`CuVppSimd`] of `rib` with a filter that has its size, and its writer.
///
/// # Errors
/// None.
pub fn simd_writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(CuVppSimd::new(super::sized(rib)))
}

impl<A: Address> CuVppSimd<A> {
    /// The best kernel over what has been built.
    pub fn new(fib: CuVpp<A>) -> Self {
        let kernel = Kernel::all().last().copied().unwrap_or(Kernel::Scalar);
        let mut wide = CuVppSimd { fib, groups: Vec::new(), kernel };
        wide.group();
        wide
    }

    /// What the kernels look into.
    pub fn fib(&self) -> &CuVpp<A> {
        &self.fib
    }

    fn group(&mut self) {
        self.groups.clear();
        for cut in self.fib.lengths.cuts().iter().filter(|cut| cut.len > 0) {
            let (whole, i) = (usize::from(cut.len - 1) / 8, (cut.len - 1) % 8);
            if self.groups.last().is_none_or(|group| group.eight.whole != whole) {
                self.groups.push(Group { eight: Eight::new(whole), lengths: 0 });
            }
            if let Some(group) = self.groups.last_mut() {
                group.lengths |= 0xf << (4 * i);
            }
        }
    }

    fn burst(&self, kernel: Kernel, keys: &[A], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        match kernel {
            Kernel::Scalar => keys.iter().zip(out).for_each(|(&key, out)| *out = self.fib.lookup(key)),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => super::simd::burst(&self.fib, &self.groups, keys, out),
        }
    }
}

impl<A: Address> Fib<A> for CuVppSimd<A> {
    fn lookup(&self, key: A) -> Label {
        self.fib.lookup(key)
    }

    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        self.burst(self.kernel, keys, out);
    }

    fn lookup_batch_each(&self, keys: &[A], each: &mut dyn FnMut(&'static str, &[Label])) {
        for kernel in Kernel::all() {
            let mut out = vec![Label(u32::MAX); keys.len()];
            self.burst(kernel, keys, &mut out);
            each(kernel.name(), &out);
        }
    }

    fn name(&self) -> String {
        "cuvpp-simd".into()
    }

    fn bytes(&self) -> usize {
        self.fib.bytes() + size_of_val(&self.groups[..]) + halves_bytes::<A>()
    }

    fn shared_bytes(&self) -> usize {
        self.fib.shared_bytes() + halves_bytes::<A>()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        self.fib.lookup_probed(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        self.fib.details()
    }
}

impl<A: Address> Whole<A> for CuVppSimd<A> {
    fn collapse(&self) {
        self.fib.collapse();
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        prefix: Prefix<A>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let before = self.fib.lengths.count(prefix.len()) > 0;
        self.fib.change(rib, prefix, probe)?;
        if before != (self.fib.lengths.count(prefix.len()) > 0) {
            self.group();
            let groups = self.groups.iter();
            groups.for_each(|group| probe.write((&raw const *group).addr(), size_of::<Group>()));
        }
        Ok(())
    }
}
