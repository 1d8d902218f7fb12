//! A structure beside another one in a store that they share.

use super::edges;
use crate::algorithm::Sharing;
use crate::fib::{AfterFailure, Built, Fib, FibWriter, Label, Outgrown};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use std::sync::Arc;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// Keys that the other structure is asked for after each patch, about.
const KEYS: usize = 256;

/// Builds a structure that shares with another one, which is made of the same routes and never changed: after each patch it is asked whether
/// it still answers by them, and a patch panics if it does not.
///
/// # Errors
/// What `sharing` says.
pub fn beside<A: Address>(sharing: &Sharing<A>, rib: &Rib<A>, domain: &Domain) -> Built<A> {
    let (other, _) = sharing(rib, domain)?;
    let (writer, _) = sharing(rib, domain)?;
    // An odd step: each of the four edges in turn.
    let step = (4 * rib.len() / KEYS) | 1;
    let keys: Vec<A> = rib.iter().flat_map(|(prefix, _)| edges(prefix)).step_by(step).collect();
    let label = |&key: &A| rib.lookup(key).map_or(Label::NONE, |(_, label)| label);
    let labels = keys.iter().map(label).collect();
    Ok(Box::new(Beside { writer, other, keys, labels }))
}

struct Beside<A: Address> {
    writer: Box<dyn FibWriter<A>>,
    other: Box<dyn FibWriter<A>>,
    /// What the other one is asked for, and has to answer.
    keys: Vec<A>,
    labels: Vec<Label>,
}

impl<A: Address> Beside<A> {
    fn check(&self) {
        let mut found = vec![Label(u32::MAX); self.keys.len()];
        self.other.fib().lookup_batch(&self.keys, &mut found);
        let pairs = self.keys.iter().zip(&self.labels).zip(&found);
        for ((key, label), found) in pairs {
            assert_eq!(found, label, "{} in the structure beside the one that was patched", key.to_ip());
        }
    }
}

impl<A: Address> FibWriter<A> for Beside<A> {
    fn fib(&self) -> Arc<dyn Fib<A>> {
        self.writer.fib()
    }

    fn patch(&mut self, rib: &Rib<A>, changed: &[Prefix<A>]) -> Result<(), Outgrown> {
        let done = self.writer.patch(rib, changed);
        self.check();
        done
    }

    fn after_failure(&self) -> AfterFailure {
        self.writer.after_failure()
    }

    fn patch_probed(
        &mut self,
        rib: &Rib<A>,
        changed: &[Prefix<A>],
        probe: &dyn Probe,
    ) -> Result<(), Outgrown> {
        let done = self.writer.patch_probed(rib, changed, probe);
        self.check();
        done
    }
}
