//! A rule set and its trace through every structure: how many lookups a second, with vectors and without, in turn.
//!
//! `cargo run --release -p tidemill-classify --example lookups -- SET.rules SET.trace`; without files on made-up rules. For figures with intervals and
//! checks against the oracle there is `tidemill bench classify --case sets`.
#![allow(clippy::print_stdout)] // an example

use std::fs::File;
use std::io::BufReader;
use std::time::Instant;
use tidemill_classify::suite::{self, Rng, Shape};
use tidemill_classify::text::{in_order, read_headers, read_rules};
use tidemill_classify::{Grouping, Key, Rank, Rule, RuleSet, TupleSpace};

/// Passes of each form.
const PASSES: usize = 15;
/// Keys that one form looks up before it is the other's turn.
const BLOCK: usize = 4096;

type Batch = fn(&TupleSpace, &[Key], &mut [Rank]);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut files = std::env::args().skip(1);
    let (rules, keys): (Vec<Rule>, Vec<Key>) = match (files.next(), files.next()) {
        (Some(rules), Some(trace)) => {
            let rules = read_rules(BufReader::new(File::open(rules)?))?;
            let headers = read_headers(BufReader::new(File::open(trace)?))?;
            let keys = headers.iter().map(|header| header.key).collect();
            (in_order(rules.iter().map(|rule| rule.five_tuple)), keys)
        }
        _ => {
            let mut rng = Rng::new(1);
            let rules = in_order((0..10_000).map(|_| Shape::Acl.rule(&mut rng).matches));
            let keys = (0..100_000).map(|_| suite::key(&rules, &mut rng)).collect();
            (rules, keys)
        }
    };
    let set = RuleSet::from_list(&rules);
    for grouping in Grouping::ALL {
        let space = TupleSpace::build(&set, grouping);
        let forms: [(&str, Batch); 2] =
            [("scalar", TupleSpace::lookup_batch_scalar), ("lookup_batch", TupleSpace::lookup_batch)];
        let mut found = vec![vec![Rank::NONE; keys.len()]; 2];
        // Of each block the best pass: somebody else's work on this machine hits some of them only.
        let mut best = vec![[f64::INFINITY; 2]; keys.len().div_ceil(BLOCK)];
        for _ in 0..PASSES {
            for (block, best) in best.iter_mut().enumerate() {
                let range = block * BLOCK..keys.len().min((block + 1) * BLOCK);
                for (i, (_, batch)) in forms.iter().enumerate() {
                    let start = Instant::now();
                    batch(&space, &keys[range.clone()], &mut found[i][range.clone()]);
                    best[i] = best[i].min(start.elapsed().as_secs_f64());
                }
            }
        }
        assert!(found[0] == found[1], "both forms answer alike");
        let seconds = [0, 1].map(|i| best.iter().map(|best| best[i]).sum::<f64>());
        for ((name, _), seconds) in forms.iter().zip(seconds) {
            let mlps = keys.len() as f64 / seconds / 1e6;
            println!("{}, {} rules, {name}: {mlps:.2} M lookups/s", grouping.name(), rules.len());
        }
        println!("  lookup_batch to scalar: {:.2}", seconds[0] / seconds[1]);
    }
    Ok(())
}
