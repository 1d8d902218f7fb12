//! What a new flow costs where the table is far larger than the caches, by the length of its entry: key (1 word), head (1 word) and a state of 2 or 3 words, so
//! 32 bytes, which never lie across two lines, or 40, of which every second slot does; these are taken last. Found out before anybody packs a state into less.
//!
//! `cargo run --release -p tidemill-flow --example new_flows [SLOTS, as a power of 2: 25]`
//!
//! Both tables are filled from empty in turn, a part at a time, so whatever else the machine does hits both. As the Gatekeeper does it: bursts of 256 new keys found or
//! made, then the state of each written. Besides, the machine's own figures: random lines of a region of that size, asked for ahead of their use, only read, or
//! written too.

use std::time::{Duration, Instant};
use tidemill_flow::flowtable::{FlowTable, Outcome, State};
use tidemill_flow::hash::{KeyHash, Keyed, mix};
use tidemill_flow::key::Key;
use tidemill_lookup::mem::collapse;
use tidemill_lookup::prefetch::prefetch_read;

const BURST: usize = 256;
/// Keys that a table gets before it is the other's turn.
const PART: usize = 1 << 18;

struct Filling<S: State> {
    table: FlowTable<1, S>,
    next: u64,
    spent: Duration,
}

impl<S: State> Filling<S> {
    fn new(slots: usize) -> Result<Self, Box<dyn std::error::Error>> {
        Ok(Filling { table: FlowTable::new(slots, Keyed::new(7))?, next: 0, spent: Duration::ZERO })
    }

    /// Gives it so many new flows, each with this state. Returns how many found room.
    fn fill(&mut self, flows: usize, state: S) -> usize {
        let (mut keys, mut hashes, mut outcomes) = ([Key([0]); BURST], [0; BURST], [Outcome::Full; BURST]);
        let mut made = 0;
        let start = Instant::now();
        for _ in 0..flows / BURST {
            for key in &mut keys {
                self.next += 1;
                *key = Key([mix(self.next)]);
            }
            self.table.hasher().hash_batch(&keys, &mut hashes);
            self.table.find_or_insert_batch(1, &hashes, &keys, &mut outcomes);
            for slot in outcomes.iter().filter_map(|outcome| outcome.slot()) {
                self.table.set_state(slot, state);
                made += 1;
            }
        }
        self.spent += start.elapsed();
        made
    }
}

/// Nanoseconds for each random line of a region of so many bytes.
fn line_ns(bytes: usize, write: bool) -> f64 {
    let mut region = vec![1_u64; bytes / 8];
    // In huge pages, as the table's.
    collapse(&region);
    let lines = region.len() / 8;
    let at = |n: u64| ((u128::from(mix(n)) * lines as u128) >> 64) as usize * 8;
    const AHEAD: u64 = 32;
    let (count, mut sum) = (1 << 24, 0_u64);
    let start = Instant::now();
    for n in 0..count {
        prefetch_read(std::ptr::from_ref(&region[at(n + AHEAD)]));
        let place = &mut region[at(n)];
        sum = sum.wrapping_add(*place);
        if write {
            *place = sum;
        }
    }
    std::hint::black_box(sum);
    start.elapsed().as_nanos() as f64 / count as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let power: u32 = std::env::args().nth(1).map_or(Ok(25), |text| text.parse())?;
    let slots = 1_usize.checked_shl(power).filter(|slots| *slots >= 1 << 14).ok_or("give 14 to 30")?;
    let (mut short, mut long) = (Filling::<[u64; 2]>::new(slots)?, Filling::<[u64; 3]>::new(slots)?);
    println!("2^{power} slots; ns for each new flow while the table fills");
    println!("{:>12} {:>10} {:>10} {:>8}", "load", "32 bytes", "40 bytes", "ratio");
    let quarter = slots / 4;
    // A small table's parts are a quarter at most.
    let part = PART.min(quarter / 8);
    for n in 1..=4 {
        (short.spent, long.spent) = (Duration::ZERO, Duration::ZERO);
        // The last quarter ends before the table is full.
        let flows = if n < 4 { quarter } else { quarter * 3 / 4 };
        for turn in 0..flows / part {
            // Who goes first takes turns.
            let made = if turn % 2 == 0 {
                [short.fill(part, [1; 2]), long.fill(part, [1; 3])]
            } else {
                let long = long.fill(part, [1; 3]);
                [short.fill(part, [1; 2]), long]
            };
            if made != [part; 2] {
                return Err("a table is full too early".into());
            }
        }
        let ns = |spent: Duration| spent.as_nanos() as f64 / (flows / part * part) as f64;
        let (short, long) = (ns(short.spent), ns(long.spent));
        println!("{:>12} {short:>10.1} {long:>10.1} {:>8.2}", format!("to {}/4", n), long / short);
    }
    let bytes = (slots as f64 * FlowTable::<1, [u64; 3]>::BYTES_PER_SLOT) as usize;
    drop((short, long));
    let (read, written) = (line_ns(bytes, false), line_ns(bytes, true));
    println!("a random line of {} MiB: {read:.1} ns read, {written:.1} ns written", bytes >> 20);
    Ok(())
}
