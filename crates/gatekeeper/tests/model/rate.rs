//! What the model does not say: that the bucket is one.

use proptest::prelude::*;
use tidemill_gatekeeper::{Act, FlowState, Verdict};

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Between any two moments no more passes than the bucket and what the rate brings; and who
    /// is refused a packet has had all of that, but for less than that packet and the rounding (a unit of 1/1024 ns for each packet).
    #[test]
    fn a_rate_is_kept_and_given(
        rate_kib_s in prop_oneof![1..200_u32, 1..10_000_000_u32],
        // Of packets, thousandths of the bucket; of pauses after a refusal, microseconds.
        sizes in prop::collection::vec(5..200_u64, 1..8),
        pauses in prop::collection::vec(1..2000_u64, 1..8),
    ) {
        let rate = i128::from(rate_kib_s) * 1024;
        let grant = |expire_s| Verdict::Granted { rate_kib_s, expire_s, renew_ms: 700, step_ms: 100, direct: false };
        let start_ns = 77_777_777_777_777;
        let mut state = FlowState::default();
        state.decide(start_ns, &grant(100));
        let brought = |from_ns: u64, to_ns: u64| rate * i128::from(to_ns - from_ns);
        // Passed: when, and bytes with those before it.
        let (mut passed, mut total) = (vec![(start_ns, 0)], 0);
        let (mut now_ns, mut refused) = (start_ns, 0_usize);
        while passed.len() < 400 && refused < 10_000 {
            let bytes = u64::from(rate_kib_s) * 1024 * sizes[passed.len() % sizes.len()] / 1000;
            if matches!(state.packet(now_ns, bytes as u32), Act::Granted { .. }) {
                total += i128::from(bytes);
                passed.push((now_ns, total));
            } else {
                let lost = passed.len() as i128 * rate / 1_024_000_000_000 + 1;
                let had = total + i128::from(bytes) + lost;
                prop_assert!((had - rate) * 1_000_000_000 >= brought(start_ns, now_ns));
                now_ns += pauses[refused % pauses.len()] * 1000;
                refused += 1;
                // Renewals change nothing.
                if refused % 50 == 0 {
                    state.decide(now_ns, &grant(100 + refused as u32));
                }
            }
        }
        prop_assert!(refused > 0);
        for (i, &(from_ns, before)) in passed.iter().enumerate() {
            for &(to_ns, after) in &passed[i..] {
                prop_assert!((after - before - rate) * 1_000_000_000 <= brought(from_ns, to_ns));
            }
        }
    }
}
