//! The flow register (4.6): linear counting in a few bits, and the hybrid mode that chooses by it between the accelerator and software.
//!
//! Every query sets bit `hash mod m`. At the end of a window the bits `u` that are still clear tell the flows, `n = m ln(m / u)`, and
//! all are cleared. With no clear bit left the register only knows that there were many.
//!
//! The arithmetic is [`tidemill_flow::cardinality::LinearCounter`]'s, which a test holds this one to: that one is a table for counting, this one the 32 bits of a register.

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct FlowRegister {
    words: Vec<u64>,
    bits: u64,
}

impl FlowRegister {
    /// A register of so many bits (at least one).
    pub fn new(bits: u64) -> Self {
        let bits = bits.max(1);
        FlowRegister { words: vec![0; bits.div_ceil(64) as usize], bits }
    }

    /// A query with this hash.
    #[inline]
    pub fn set(&mut self, hash: u64) {
        let bit = hash % self.bits;
        self.words[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    /// Bits that are still clear.
    pub fn clear_bits(&self) -> u64 {
        self.bits - self.words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>()
    }

    /// Flows since the last window; `None` if all bits are set.
    pub fn flows(&self) -> Option<f64> {
        let (m, u) = (self.bits as f64, self.clear_bits() as f64);
        (u > 0.0).then(|| m * (m / u).ln())
    }

    /// The end of a window: what it has counted, and all bits are clear.
    pub fn window(&mut self) -> Option<f64> {
        let flows = self.flows();
        self.words.fill(0);
        flows
    }
}

/// Who looks up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The core, in its own caches.
    Software,
    /// The accelerators.
    Halo,
}

/// The hybrid mode: after each window of so many queries, software if there were fewer flows than a bound.
#[derive(Debug, Clone)]
pub struct Hybrid {
    register: FlowRegister,
    window: u64,
    bound: f64,
    queries: u64,
    mode: Mode,
    /// Times that it has changed over.
    pub switches: u64,
}

impl Hybrid {
    /// With a register of `bits`, windows of `window` queries, and software below `bound` flows; it begins with the accelerator.
    pub fn new(bits: u64, window: u64, bound: f64) -> Self {
        let register = FlowRegister::new(bits);
        Hybrid { register, window: window.max(1), bound, queries: 0, mode: Mode::Halo, switches: 0 }
    }

    /// Who looks up this key.
    pub fn next(&mut self, hash: u64) -> Mode {
        let mode = self.mode;
        self.register.set(hash);
        self.queries += 1;
        if self.queries == self.window {
            self.queries = 0;
            let few = self.register.window().is_some_and(|flows| flows < self.bound);
            let next = if few { Mode::Software } else { Mode::Halo };
            self.switches += u64::from(next != mode);
            self.mode = next;
        }
        mode
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_cachesim::random::Random;
    use tidemill_flow::cardinality::LinearCounter;

    #[test]
    fn it_counts_as_linear_counting_does() {
        let mut random = Random::new(3);
        for bits in [8_u64, 32, 64, 1000] {
            let mut register = FlowRegister::new(bits);
            let mut counter = LinearCounter::new(bits as usize).unwrap_or_else(|error| panic!("{error}"));
            for _ in 0..bits {
                let hash = random.bits();
                register.set(hash);
                // Its bit is chosen by the high half: the same bit.
                counter.add((((hash % bits) << 32) / bits + 1) << 32);
                match (register.flows(), counter.estimate()) {
                    (Some(ours), Ok(theirs)) => assert!((ours - theirs).abs() < 1e-9 * theirs.max(1.0)),
                    (ours, theirs) => assert!(ours.is_none() && theirs.is_err(), "{ours:?} {theirs:?}"),
                }
            }
        }
    }

    #[test]
    fn software_is_chosen_while_flows_are_few() {
        let mut hybrid = Hybrid::new(32, 256, 64.0);
        let mut random = Random::new(9);
        let mut share = |flows: u64, hybrid: &mut Hybrid| {
            let hash = |flow: u64| tidemill_cachesim::random::mix(flow + 1);
            let modes = (0..256 * 50).map(|_| hybrid.next(hash(random.below(flows))));
            modes.filter(|&mode| mode == Mode::Software).count() as f64 / (256.0 * 50.0)
        };
        assert!(share(8, &mut hybrid) > 0.9);
        assert!(share(1000, &mut hybrid) < 0.1);
        assert!(share(8, &mut hybrid) > 0.9);
        assert_eq!(hybrid.switches, 3);
    }
}
