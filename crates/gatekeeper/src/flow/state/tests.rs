use super::*;
use tidemill_flow::flowtable::FlowTable;

const SECOND_NS: u64 = 1_000_000_000;
/// On a tick: 2^24 ns times something.
const START: u64 = 100_000 << 24;

fn granted(rate_kib_s: u32, expire_s: u32) -> Verdict {
    Verdict::Granted { rate_kib_s, expire_s, renew_ms: 2000, step_ms: 1000, direct: false }
}

/// Bytes that pass at this time, in packets of one size.
fn pass(state: &mut FlowState, now_ns: u64, bytes: u32) -> u64 {
    let passes = |act| matches!(act, Act::Granted { .. });
    (0..).take_while(|_| passes(state.packet(now_ns, bytes))).count() as u64 * u64::from(bytes)
}

#[test]
fn an_entry_is_40_bytes_or_64() {
    assert_eq!(FlowTable::<1, FlowState>::ENTRY_BYTES, 40);
    assert_eq!(FlowTable::<4, FlowState>::ENTRY_BYTES, 64);
}

#[test]
fn a_new_flow_asks_at_41_eight_times() {
    let mut state = FlowState::default();
    assert_eq!(state.show(START), Shown::Request { level: 38, allowance: 8, idle_ns: None });
    for _ in 0..8 {
        assert_eq!(state.packet(START, 100), Act::Request { dscp: 41 });
    }
    // In the same nanosecond: level 0.
    assert_eq!(state.packet(START, 100), Act::Request { dscp: 3 });
    assert_eq!(state.show(START + 7), Shown::Request { level: 0, allowance: 7, idle_ns: Some(7) });
    // A second is 2^39.86 ps.
    assert_eq!(state.packet(START + SECOND_NS, 100), Act::Request { dscp: 42 });
}

/// What is known of a first packet before its flow is made is what the states say of it.
#[test]
fn the_first_packet_of_a_flow_is_known_before() {
    for (now_ns, note, bytes) in [(0, 0, 0), (START, 7, 46), (u64::MAX, u16::MAX, u32::MAX)] {
        let mut state = FlowState::default();
        assert_eq!(state.packet(now_ns, bytes), Act::Request { dscp: FlowState::FIRST_DSCP });
        state.set_note(note);
        assert_eq!(state, FlowState::first(now_ns, note));
    }
}

#[test]
fn a_bucket_holds_a_second_and_fills_in_one() {
    let mut state = FlowState::default();
    state.decide(START, &granted(64, 60));
    assert_eq!(pass(&mut state, START, 1024), 64 << 10);
    assert_eq!(state.packet(START, 1024), Act::OverRate);
    assert_eq!(pass(&mut state, START + SECOND_NS / 4, 1024), 16 << 10);
    // Silence fills it once, not twice; then it is time to renew, once.
    let late = START + 10 * SECOND_NS;
    assert_eq!(state.packet(late, 1024), Act::Granted { dscp: 2, direct: false });
    assert_eq!(pass(&mut state, late, 1024), 63 << 10);
    // Longer than what the bucket holds.
    assert_eq!(state.packet(START + 20 * SECOND_NS, (64 << 10) + 1), Act::OverRate);
    assert_eq!(pass(&mut state, START + 20 * SECOND_NS, 64 << 10), 64 << 10);
}

#[test]
fn no_renewal_fills_the_bucket() {
    let mut state = FlowState::default();
    state.decide(START, &granted(64, 60));
    assert_eq!(pass(&mut state, START, 1024), 64 << 10);
    state.decide(START, &granted(64, 60));
    assert_eq!(state.packet(START, 1024), Act::OverRate);
    // By way of no rate at all neither.
    state.decide(START, &granted(0, 60));
    assert_eq!(state.packet(START, 1), Act::OverRate);
    state.decide(START, &granted(64, 60));
    assert_eq!(state.packet(START, 1024), Act::OverRate);
    // A quarter full at one rate is a quarter full at another.
    let quarter = START + SECOND_NS / 4;
    state.decide(quarter, &granted(400, 60));
    assert_eq!(pass(&mut state, quarter, 1024), 100 << 10);
    // A flow that was declined in between begins anew.
    state.decide(quarter, &Verdict::Declined { expire_s: 9 });
    state.decide(quarter, &granted(64, 60));
    assert_eq!(pass(&mut state, quarter, 1024), 64 << 10);
}

#[test]
fn grants_renew_and_expire() {
    let mut state = FlowState::default();
    let direct =
        Verdict::Granted { rate_kib_s: 1000, expire_s: 5, renew_ms: 2000, step_ms: 1000, direct: true };
    state.decide(START, &direct);
    let mut at = |ns: u64| state.packet(ns, 100);
    // Rounded up to ticks: 2 s are 119.2, 1 s is 59.6, 5 s are 298.02.
    let tick = |n: u64| START + (n << 24);
    let (on, asks) = (Act::Granted { dscp: 1, direct: true }, Act::Granted { dscp: 2, direct: false });
    assert_eq!(at(tick(120) - 1), on);
    assert_eq!(at(tick(120)), asks);
    assert_eq!(at(tick(180) - 1), on);
    // A packet within tick 180 asks; the next to ask is 60 after 181.
    assert_eq!(at(tick(180) + 5), asks);
    assert_eq!(at(tick(241) - 1), on);
    assert_eq!(at(tick(241)), asks);
    // 241 + 60 is past the end.
    assert_eq!(at(tick(299) - 1), on);
    assert_eq!(at(tick(299)), Act::Request { dscp: 41 });
    assert_eq!(at(tick(299)), Act::Request { dscp: 41 });
}

#[test]
fn declined_until_it_expires() {
    let mut state = FlowState::default();
    state.set_note(0xbeef);
    state.decide(START, &Verdict::Declined { expire_s: 1 });
    let end = START + (60 << 24);
    assert_eq!(state.packet(end - 1, 100), Act::Declined);
    assert_eq!(state.show(end - 1), Shown::Declined { left_ns: 1 });
    assert_eq!(state.show(end), Shown::Request { level: 38, allowance: 8, idle_ns: None });
    assert!(!state.reclaimable(end - 1, 0) && state.reclaimable(end, 0));
    assert!(!state.reclaimable(end + 99, 100) && state.reclaimable(end + 100, 100));
    assert_eq!(state.packet(end, 100), Act::Request { dscp: 41 });
    assert_eq!(state.note(), 0xbeef);
}

#[test]
fn long_times_end_where_it_is_said() {
    let mut state = FlowState::default();
    let most = u32::MAX;
    state.decide(
        START,
        &Verdict::Granted { rate_kib_s: most, expire_s: most, renew_ms: 0, step_ms: most, direct: false },
    );
    let Shown::Granted { left_ns, renewal_ns, step_ns, bucket, .. } = state.show(START) else { panic!() };
    assert_eq!((left_ns, renewal_ns, step_ns), (LONGEST_NS, Some(0), LONGEST_STEP_NS));
    assert_eq!(bucket, ((1 << 24) - 1) << 10, "more than 137 Gbit/s is as much as that");
    // The longest that there is, from within a tick: 2^32 - 1 ms are 255,999,999.9 ticks.
    let verdict =
        Verdict::Granted { rate_kib_s: 1, expire_s: most, renew_ms: most, step_ms: 0, direct: false };
    state.decide(START + 1, &verdict);
    let Shown::Granted { left_ns, renewal_ns, step_ns, .. } = state.show(START + 1) else { panic!() };
    assert_eq!((left_ns, step_ns), (LONGEST_NS + (1 << 24) - 1, 0));
    assert_eq!(renewal_ns, Some((256_000_000 << 24) - 1));
    // A long time after, it is still over.
    let year = 365 * 86_400 * SECOND_NS;
    for years in [1, 2] {
        assert!(matches!(state.show(START + years * year), Shown::Request { .. }), "{years} years");
        assert!(state.reclaimable(START + years * year, year / 2));
    }
}
