//! Remapping: wraps any port and gives each packet that it receives another destination, so that a capture from
//! elsewhere can be routed by the table at hand.

use crate::headers::rewrite_destination;
use crate::rng::mix;
use crate::{Port, PortCounters, PortError, RxStatus, Wake, Waker};
use std::net::IpAddr;
use tidemill_burst::{Burst, Pool};

/// Chooses a destination: from the original one and a hash of the seed and that original. `None` leaves the packet as
/// it is. The answer must be of the original's family, else it is ignored.
pub type Choose = Box<dyn Fn(IpAddr, u64) -> Option<IpAddr> + Send>;

/// A port whose received packets get new destinations. The same destination becomes the same new one, in every queue and
/// every run with that seed. Checksums are kept right (wrong ones stay wrong); packets that are not IP pass unchanged.
pub struct Remap<P> {
    inner: P,
    seed: u64,
    choose: Choose,
    remapped: u64,
}

impl<P: Port> Remap<P> {
    /// Wraps `inner`.
    pub fn new(inner: P, seed: u64, choose: Choose) -> Self {
        Remap { inner, seed: mix(seed), choose, remapped: 0 }
    }

    /// Packets that got a new destination.
    pub fn remapped(&self) -> u64 {
        self.remapped
    }
}

/// The hash that a [`Choose`] is handed; `seed` has been through [`mix`].
fn hash(seed: u64, original: IpAddr) -> u64 {
    match original {
        IpAddr::V4(a) => mix(seed ^ u64::from(a.to_bits())),
        IpAddr::V6(a) => mix(mix(seed ^ (a.to_bits() >> 64) as u64) ^ a.to_bits() as u64),
    }
}

impl<P: Port> Port for Remap<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let before = burst.len();
        let status = self.inner.rx(now_ns, pool, burst);
        for packet in &mut burst[before..] {
            let choose = |original| (self.choose)(original, hash(self.seed, original));
            self.remapped += u64::from(rewrite_destination(packet.data_mut(), choose));
        }
        status
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.inner.tx(now_ns, pool, burst)
    }

    fn finish(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.inner.finish(now_ns, pool)
    }

    fn counters(&self) -> PortCounters {
        self.inner.counters()
    }

    fn wake(&mut self, waker: &Waker) -> Wake<'_> {
        self.inner.wake(waker)
    }

    fn has_ended(&self) -> bool {
        self.inner.has_ended()
    }
}
