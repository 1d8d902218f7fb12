//! Ten million packets, each with the oracle's next hop, while more than 10,000 routes a second of the full table change: one thread asks the program, another one changes routes and has it follow.
//!
//! ```text
//! router:  --change--turn------change--turn------change--turn-->   begun, done: numbers of changes
//! asking:  done, packet, begun; done, packet, begun; ...           its label is the oracle's after one of the changes from done to begun
//! afterwards: the oracle after each change, and whoever was asked then
//! ```

use super::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tidemill_bpf::Object;
use tidemill_router::offload::xdp::bytes_for;

const PACKETS: usize = 10_000_000;
/// Routes that change at once: two such are patched.
const AT_ONCE: usize = 1800;
/// From one change to the next: 11,250 routes a second.
const PERIOD: Duration = Duration::from_millis(160);
/// At least so many routes a second have to have changed.
const RATE: f64 = 10_000.0;
/// For churn beside what the table itself needs.
const MORE_BYTES: u64 = 256 << 20;

/// What both threads know.
struct Turns<A> {
    /// Changes that may have had their turn, and that have had it.
    begun: AtomicU32,
    done: AtomicU32,
    /// Addresses that the latest one is about.
    changed: Mutex<Vec<A>>,
}

/// A packet, and what became of it.
struct Asked<A> {
    to: A,
    label: Label,
    /// Changes that had had their turn before it came, and that may have had it before it left.
    done: u32,
    begun: u32,
}

/// Announces and withdraws: routes of the table, and longer ones, of which as many go as come.
fn change<A: Address>(
    rng: &mut StdRng,
    table: &[(Prefix<A>, Label)],
    longer: &mut Vec<Prefix<A>>,
) -> Vec<Change<A>> {
    let mut change = || {
        let (prefix, label) = (table[rng.random_range(0..table.len())].0, Label(rng.random_range(1..300)));
        match rng.random_range(0..4) {
            0 => Change::Withdraw(prefix),
            1 => Change::Announce(prefix, label),
            2 if !longer.is_empty() => {
                Change::Withdraw(longer.swap_remove(rng.random_range(0..longer.len())))
            }
            _ => {
                let address = prefix.first() | (A::from_u128(rng.random()) & !A::mask(prefix.len()));
                let prefix = Prefix::new(address, rng.random_range(prefix.len()..=A::BITS)).unwrap();
                longer.push(prefix);
                Change::Announce(prefix, label)
            }
        }
    };
    (0..AT_ONCE).map(|_| change()).collect()
}

/// Whether a datagram's checksum happens to be the sum of its pseudo header, as one of 65,536 is: that is left to the router, as if nobody had finished it.
fn looks_unfinished(frame: &[u8]) -> bool {
    let (addresses, datagram) = if frame[12..14] == [8, 0] { (26..34, 34) } else { (22..54, 54) };
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    let length = word(&frame[datagram + 4..]);
    let sum = frame[addresses].chunks_exact(2).map(word).sum::<u32>() + length + 17;
    let sum = (sum & 0xffff) + (sum >> 16);
    word(&frame[datagram + 6..]) == (sum & 0xffff) + (sum >> 16)
}

/// Asks for so many packets, half of them to where something changes.
fn ask<A: Address>(
    object: &Mutex<Object>,
    device: u32,
    keys: &[A],
    frame: fn(A) -> Vec<u8>,
    turns: &Turns<A>,
) -> Vec<Asked<A>> {
    let mut rng = StdRng::seed_from_u64(5);
    let mut address = || {
        let changed = turns.changed.lock().unwrap();
        let from = if rng.random() && !changed.is_empty() { &changed[..] } else { keys };
        from[rng.random_range(0..from.len())]
    };
    let mut packet = || {
        std::iter::repeat_with(&mut address)
            .map(|to| (to, frame(to)))
            .find(|(_, frame)| !looks_unfinished(frame))
            .unwrap()
    };
    let mut one = || {
        let (to, frame) = packet();
        let done = turns.done.load(Ordering::SeqCst);
        let said = object.lock().unwrap().run_once(&frame, device).unwrap();
        let begun = turns.begun.load(Ordering::SeqCst);
        let label = sent(&frame, said).map_or(Label::NONE, |frame| label(&frame));
        Asked { to, label, done, begun }
    };
    (0..PACKETS).map(|_| one()).collect()
}

/// Each has the label that the oracle gives it after one of the changes that it may have met.
fn check_all<A: Address>(table: &[(Prefix<A>, Label)], changes: &[Vec<Change<A>>], asked: &[Asked<A>]) {
    let mut truth: BTreeMap<Prefix<A>, Label> = table.iter().copied().collect();
    let mut open: Vec<&Asked<A>> = Vec::new();
    let mut coming = asked.iter().peekable();
    for number in 0..=changes.len() {
        if let Some(changes) = number.checked_sub(1).map(|before| &changes[before]) {
            follow(&mut truth, changes);
        }
        let list: Vec<_> = truth.iter().map(|(prefix, label)| (*prefix, *label)).collect();
        let oracle = Oracle::new(&list);
        open.extend(std::iter::from_fn(|| coming.next_if(|asked| asked.done as usize <= number)));
        open.retain(|asked| {
            let Asked { to, label, done, begun } = **asked;
            let right = oracle.lookup(to);
            let is_last = begun as usize == number;
            assert!(
                label == right || !is_last,
                "{}: {label:?}, after {done} to {begun}: {right:?}",
                to.to_ip()
            );
            label != right
        });
    }
    assert!(open.is_empty() && coming.next().is_none());
}

fn race<A: Routed + Address>(
    mut bench: Bench,
    rng: &mut StdRng,
    table: &[(Prefix<A>, Label)],
    frame: fn(A) -> Vec<u8>,
) {
    assert!(bench.turn());
    let keys = keys(rng, table, 500_000);
    let turns = Turns { begun: AtomicU32::new(0), done: AtomicU32::new(0), changed: Mutex::new(Vec::new()) };
    let (object, device) = (bench.offload.object(), bench.lan);
    let (mut longer, mut changes) = (Vec::new(), Vec::new());
    let (asked, took) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&object, device, &keys, frame, &turns));
        let start = Instant::now();
        for number in 1_u32.. {
            let new = change(rng, table, &mut longer);
            let due = PERIOD * number;
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            if asking.is_finished() {
                break;
            }
            let is_host = |key: &A| (*key >> usize::from(A::BITS - 8)).to_u128() < 0xe0;
            let about = new.iter().map(|change| change.prefix().first()).filter(is_host).collect();
            *turns.changed.lock().unwrap() = about;
            turns.begun.store(number, Ordering::SeqCst);
            bench.control.apply(&new).unwrap();
            assert!(bench.turn());
            turns.done.store(number, Ordering::SeqCst);
            changes.push(new);
        }
        let took = start.elapsed();
        (asking.join().unwrap(), took)
    });
    assert_eq!(bench.offload.take_notes().iter().filter(|note| note.contains("warning")).count(), 0);
    let [lan, wan] = bench.counters();
    assert_eq!((lan.forwarded, lan.bytes), (wan.sent, wan.sent_bytes));
    let left: u64 = lan.left.iter().sum();
    assert_eq!(lan.forwarded + left, PACKETS as u64);
    assert!(lan.forwarded > PACKETS as u64 / 2, "half of them at least: {lan:?}");
    check_all(table, &changes, &asked);
    let meanwhile = asked.iter().filter(|asked| asked.done != asked.begun).count();
    let rate = (changes.len() * AT_ONCE) as f64 / took.as_secs_f64();
    println!(
        "IPv{}: {} packets forwarded below, {left} left to the router, {meanwhile} of all while a change was taken up; {} routes of {} changed in {} turns, {rate:.0} a second",
        A::FAMILY,
        lan.forwarded,
        changes.len() * AT_ONCE,
        table.len(),
        changes.len()
    );
    assert!(meanwhile > 0);
    assert!(rate >= RATE, "{rate:.0} routes a second");
}

#[test]
#[ignore = "minutes: cargo xtask held 16"]
fn root_offload_long_ten_million_packets_while_routes_change() {
    if !inside("race::root_offload_long_ten_million_packets_while_routes_change") {
        return;
    }
    let mut rng = StdRng::seed_from_u64(3);
    let list = routes::<u32>(&mut rng, "ris-as3333-20260511.v4.nh148.zst", 1);
    let list: Vec<_> = list.into_iter().filter(|(prefix, _)| !prefix.contains(0x0a00_0001)).collect();
    let v4 = Routes { rib: list.iter().copied().collect(), names: Vec::new() };
    let v6 = common::routes::<u128>(&[("::/0", 7)]);
    let bytes = bytes_for(&v4.rib, &v6.rib) + MORE_BYTES;
    race(Bench::new(CONFIG, v4, v6, bytes), &mut rng, &list, to4);
}

#[test]
#[ignore = "minutes: cargo xtask held 16"]
fn root_offload_long_ten_million_of_ipv6_while_routes_change() {
    if !inside("race::root_offload_long_ten_million_of_ipv6_while_routes_change") {
        return;
    }
    let mut rng = StdRng::seed_from_u64(4);
    let list = routes::<u128>(&mut rng, "ris-as3333-20260511.v6.nh148.zst", 1);
    // What is routed in the Internet: neither our own addresses nor special ones are routes of the table's.
    let list: Vec<_> = list.into_iter().filter(|(prefix, _)| prefix.first() >> 125 == 1).collect();
    let v4 = common::routes::<u32>(&[("0.0.0.0/0", 7)]);
    let v6 = Routes { rib: list.iter().copied().collect(), names: Vec::new() };
    let bytes = bytes_for(&v4.rib, &v6.rib) + MORE_BYTES;
    race(Bench::new(CONFIG, v4, v6, bytes), &mut rng, &list, to6);
}
