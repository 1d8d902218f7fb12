//! Sums of rates of Tokusashi's thesis (2019): equation 3.1 with Figure 3.8, and Figure 3.14. Rates are in million operations per second.

/// A NIC's port, bits per second.
const NETWORK_BPS: f64 = 10e9;
/// The NIC's memory, bits per second (equation 3.1).
const MEMORY_BPS: f64 = 25.6e9;
/// A get of a 64-byte key on the wire: 9.32 M/s at 10 Gbit/s (3.6.7).
const GET_WIRE_BYTES: f64 = 134.0;
/// A set has a value of 64 bytes more.
const SET_WIRE_BYTES: f64 = 198.0;
/// Key and value, which each operation moves in the NIC's memory.
const MEMORY_BYTES: f64 = 128.0;

/// What a processing element is asked for (Table 3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query {
    /// A get that L1 answers.
    GetHit,
    /// A set of a key that L1 has.
    SetHit,
    /// A set that needs a chunk of memory.
    SetMiss,
}

impl Query {
    /// All of them with their names.
    pub const ALL: [(Query, &'static str); 3] =
        [(Query::GetHit, "GET (hit)"), (Query::SetHit, "SET (hit)"), (Query::SetMiss, "SET (miss)")];

    /// Of one processing element (Table 3.5).
    pub fn element_mops(self) -> f64 {
        match self {
            Query::GetHit => 1.42354,
            Query::SetHit => 2.20104,
            Query::SetMiss => 0.71049,
        }
    }

    fn wire_bytes(self) -> f64 {
        match self {
            Query::GetHit => GET_WIRE_BYTES,
            Query::SetHit | Query::SetMiss => SET_WIRE_BYTES,
        }
    }

    /// What the network takes.
    pub fn network_mops(self) -> f64 {
        NETWORK_BPS / 8.0 / self.wire_bytes() / 1e6
    }
}

/// The clock of chapter 3's elements (Table 3.2).
const ELEMENT_MHZ: f64 = 160.0;

/// A set of a key that is not kept, by one element: as one that is, and so many cycles in which a soft processor finds a chunk; "about 200" (3.5.4).
pub fn set_miss_mops(allocation_cycles: f64) -> f64 {
    ELEMENT_MHZ / (ELEMENT_MHZ / Query::SetHit.element_mops() + allocation_cycles)
}

/// Equation 3.1: memory, network, or so many processing elements, whichever is the least.
pub fn l1_mops(query: Query, elements: u32) -> f64 {
    let memory = MEMORY_BPS / 8.0 / MEMORY_BYTES / 1e6;
    memory.min(query.network_mops()).min(f64::from(elements) * query.element_mops())
}

/// What lies behind L1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Behind {
    /// L2's rate and miss ratio, if there is one.
    pub l2: Option<(f64, f64)>,
    /// memcached's rate.
    pub memcached_mops: f64,
}

/// Gets that are answered when `offered_mops` come and L1 misses this part (0 to 1) of them: L1 keeps up; a stage behind it answers what
/// it can, and the rest of what it is asked for is lost.
pub fn answered_mops(offered_mops: f64, l1_miss_ratio: f64, behind: Behind) -> f64 {
    let missed = offered_mops * l1_miss_ratio;
    let below = match behind.l2 {
        None => missed.min(behind.memcached_mops),
        Some((l2_mops, l2_miss_ratio)) => {
            let asked = missed.min(l2_mops);
            asked * (1.0 - l2_miss_ratio) + (asked * l2_miss_ratio).min(behind.memcached_mops)
        }
    };
    offered_mops - missed + below
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "It also shows that seven PEs and nine PEs are required to achieve the 10Gbps GET and SET throughput."
    #[test]
    fn elements_that_fill_the_network_are_the_papers() {
        let needed = |query| (1..).find(|&n| l1_mops(query, n) == Query::network_mops(query)).unwrap();
        assert_eq!((needed(Query::GetHit), needed(Query::SetMiss)), (7, 9));
        assert!((Query::GetHit.network_mops() - 9.32).abs() < 0.01);
    }

    /// The text's 200 cycles make it slower than the table's 0.71: those are 152.
    #[test]
    fn a_chunk_costs_a_set_what_the_text_says_and_less() {
        assert!(
            (set_miss_mops(200.0) - 0.587).abs() < 0.001
                && set_miss_mops(200.0) < Query::SetMiss.element_mops()
        );
        assert!((set_miss_mops(152.5) - 0.7105).abs() < 0.0005);
    }

    #[test]
    fn without_l2_the_rate_falls_with_the_misses() {
        let alone = Behind { l2: None, memcached_mops: 0.5 };
        let tiered = Behind { l2: Some((3.3, 0.15)), memcached_mops: 0.5 };
        assert_eq!(answered_mops(9.0, 0.0, alone), 9.0);
        assert!((answered_mops(9.0, 0.5, alone) - 5.0).abs() < 1e-9);
        assert!((answered_mops(9.0, 0.3, tiered) - 9.0).abs() < 1e-9, "L2 and memcached keep up");
        assert!((answered_mops(9.0, 0.5, tiered) - (4.5 + 3.3)).abs() < 1e-9, "L2 is full");
    }
}
