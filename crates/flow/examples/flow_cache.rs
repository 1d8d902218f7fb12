//! A flow cache to copy from: bursts of packets, a counter for each flow, expiry, another hash on the way, and a thread that shows the biggest
//! flows meanwhile. `cargo run --release -p tidemill-flow --example flow_cache`

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidemill_flow::flowtable::{Busy, FlowReader, FlowTable, Outcome};
use tidemill_flow::hash::{KeyHash, Keyed, mix, spread};
use tidemill_flow::key::Key;

const SLOTS: usize = 1 << 20;
const BURSTS: u32 = 100_000;
const BURST: usize = 32;
/// A flow is forgotten after so many bursts without a packet.
const IDLE: u32 = 20_000;

/// What is kept of a flow: packets and bytes.
type State = [u64; 2];

/// Stands for the NIC, which sends 32 bits of hash with each packet. Where nobody does, hash with [`Keyed`] itself.
#[derive(Clone)]
struct Rss(Keyed<2>);

impl KeyHash<2> for Rss {
    fn hash(&self, key: &Key<2>) -> u64 {
        spread(self.0.hash(key) as u32)
    }
}

/// Packet `i`: source, destination, ports, protocol (13 bytes: a key of two words), and its length in bytes. Few flows send most packets.
fn packet(i: u64) -> (Key<2>, u64) {
    let random = mix(i + 1);
    let flow = mix(1 + ((random >> 40) >> (random % 24)));
    let mut tuple = [0; 13];
    tuple[..4].copy_from_slice(&[10, 0, 0, 1]);
    tuple[4..12].copy_from_slice(&flow.to_le_bytes());
    tuple[12] = if flow & 1 == 0 { 17 } else { 6 };
    (Key::from_bytes(&tuple), 64 + random % 1436)
}

fn add(sum: &mut State, more: State) {
    *sum = [sum[0] + more[0], sum[1] + more[1]];
}

/// The worker: what was sent, what has expired, what found no room.
fn work(table: &mut FlowTable<2, State, Rss>) -> Result<[State; 3], Busy> {
    let (mut sent, mut expired, mut turned_away) = ([0; 2], [0; 2], [0; 2]);
    let mut hashes = [0; BURST];
    let mut outcomes = [Outcome::Full; BURST];
    for now in 0..BURSTS {
        let packets: [_; BURST] = std::array::from_fn(|i| packet(u64::from(now) * BURST as u64 + i as u64));
        let keys = packets.map(|(key, _)| key);
        // With a NIC: `spread` of what came with each packet.
        table.hasher().hash_batch(&keys, &mut hashes);
        table.find_or_insert_batch(now, &hashes, &keys, &mut outcomes);
        for (outcome, (_, bytes)) in outcomes.iter().zip(packets) {
            add(&mut sent, [1, bytes]);
            if let Some(slot) = outcome.slot() {
                table.set_word(slot, 0, table.word(slot, 0) + 1);
                table.set_word(slot, 1, table.word(slot, 1) + bytes);
            } else {
                add(&mut turned_away, [1, bytes]); // Here it is only counted; let it pass, drop it: the caller's policy.
            }
        }
        // Between bursts, a few buckets at a time.
        table.expire(2, |_, last, counts| {
            let idle = now.wrapping_sub(last) > IDLE;
            add(&mut expired, if idle { counts } else { [0, 0] });
            idle
        });
        table.migrate(2);
        if now == BURSTS / 2 {
            // The NIC gets another RSS key. No flow is lost: `migrate` brings them over.
            table.rekey(Rss(Keyed::new(2)))?;
        }
    }
    Ok([sent, expired, turned_away])
}

/// Prints how many flows there are and which have sent most bytes, while the worker goes on.
fn show(reader: &FlowReader<2, State, Rss>) {
    let (mut cursor, mut flows) = (0, Vec::new());
    loop {
        cursor = reader.scan(cursor, 1024, |key, flow| flows.push((flow.state[1], *key)));
        if cursor == 0 {
            break;
        }
    }
    flows.sort_unstable_by(|a, b| b.cmp(a));
    print!("{} flows, the biggest:", flows.len());
    for (bytes, key) in flows.iter().take(3) {
        let [.., a, b, c, d, _, _, p, q, protocol] = key.to_bytes::<13>();
        let (to, port) = (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([p, q]));
        print!("  {to}:{port}/{protocol} {bytes} bytes");
    }
    println!();
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut table = FlowTable::<2, State, Rss>::new(SLOTS, Rss(Keyed::new(1)))?;
    let (reader, done) = (table.reader(), AtomicBool::new(false));
    let [sent, expired, turned_away] = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                show(&reader);
            }
        });
        let totals = work(&mut table);
        done.store(true, Ordering::Relaxed);
        totals
    })?;
    let mut live = [0; 2];
    table.scan(0, usize::MAX, |_, _, counts| add(&mut live, counts));
    println!(
        "packets and bytes: {sent:?} sent; {live:?} of {} flows in the table, {expired:?} of expired ones",
        table.len()
    );
    println!("{turned_away:?} turned away; {:?}", table.counters());
    for i in 0..2 {
        assert_eq!(sent[i], live[i] + expired[i] + turned_away[i], "every packet is in one place");
    }
    Ok(())
}
