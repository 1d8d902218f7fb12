//! Builds a table, looks addresses up while another thread changes routes, and prints what it sees:
//! `cargo run -p tidemill-lpm --example lookup`.

use std::net::Ipv4Addr;
use tidemill_lpm::{Algorithm, Change, Domain, Label, Prefix, Rib, Table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Labels are numbers of ours: here they index this list of next hops. 0 is "no route".
    let next_hops = ["no route", "192.0.2.1", "192.0.2.2", "192.0.2.3"];
    let mut rib = Rib::<u32>::new();
    for (prefix, label) in [("10.0.0.0/8", 1), ("10.1.0.0/16", 2)] {
        rib.insert(prefix.parse()?, Label(label));
    }

    // Who reads belongs to a domain: it knows when nobody looks at an old version any more.
    let domain = Domain::new();
    let mut table = Table::new(&domain, rib, &Algorithm::Auto)?;
    println!("{} prefixes in {}, {} bytes", table.rib().len(), table.fib().name(), table.fib().bytes());

    let keys = ["10.1.2.3", "10.2.2.3", "172.16.0.1"].map(|text| text.parse::<std::net::Ipv4Addr>());
    let keys = keys.into_iter().map(|key| key.map(u32::from)).collect::<Result<Vec<u32>, _>>()?;
    let view = table.view();
    let worker = std::thread::spawn({
        let (view, domain, keys) = (view.clone(), domain.clone(), keys.clone());
        move || {
            let mut reader = domain.register();
            let mut labels = vec![Label::NONE; keys.len()];
            for _ in 0..100_000 {
                view.get(&reader).lookup_batch(&keys, &mut labels);
                // The end of a burst: nothing of the table is held here.
                reader.quiescent();
            }
            labels
        }
    });

    // Meanwhile: one route comes, one goes, one gets another next hop. Each lookup sees the old or the new answer.
    let prefix = |text: &str| text.parse::<Prefix<u32>>();
    let applied = table.apply(&[
        Change::Announce(prefix("172.16.0.0/12")?, Label(3)),
        Change::Withdraw(prefix("10.1.0.0/16")?),
        Change::Announce(prefix("10.0.0.0/8")?, Label(2)),
    ])?;
    println!("{} prefixes are different now ({:?})", applied.changed, applied.how);
    worker.join().map_err(|_| "the worker failed")?;

    let mut reader = domain.register();
    for &key in &keys {
        let label = view.get(&reader).lookup(key);
        println!("{} -> {}", Ipv4Addr::from(key), next_hops[label.0 as usize]);
    }
    reader.quiescent();
    Ok(())
}
