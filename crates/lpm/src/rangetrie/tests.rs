//! Tests of what is particular to this structure; `tests/suite.rs` runs the family's suite over it.

use super::lookup::Search;
use super::*;
use crate::fib::{Fib, FibWriter};
use crate::keys::Random;
use crate::oracle::Oracle;
use crate::prefix::Prefix;
use crate::rib::Rib;
use crate::suite::{edges, random_case};
use tidemill_lookup::probe::Recorder;
use tidemill_lookup::qsbr::Domain;

fn rib<A: Address>(list: &[(&str, u32)]) -> Rib<A> {
    list.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

fn writer<A: Address>(rib: &Rib<A>, domain: &Domain) -> Writer<A> {
    Writer::new(rib, 16, domain).unwrap()
}

fn patch<A: Address>(writer: &mut Writer<A>, rib: &Rib<A>, changed: &[Prefix<A>], domain: &Domain) {
    if writer.patch(rib, changed).is_err() {
        *writer = Writer::new(rib, writer.trie().root_bits(), domain).unwrap();
    }
}

#[test]
fn the_picture_of_the_page_is_what_is_built() {
    let rib = rib::<u128>(&[("2001:db8::/32", 1), ("2001:db8:40::/48", 2)]);
    let writer = writer(&rib, &Domain::new());
    let trie = writer.trie();
    assert_eq!(trie.used(), (1 << 16) / CELL + 2, "a line for the bits 16..32, one for 32..48");
    let root = Entry(trie.cells[0x2001].load(Ordering::Relaxed));
    let (Node::Line, upper) = root.node().unwrap() else { panic!("{root:?}") };
    let words: Vec<u32> =
        trie.cells[upper as usize * CELL..][..CELL].iter().map(|w| w.load(Ordering::Relaxed)).collect();
    assert_eq!(words[0], 0x0db9_0db8);
    assert_eq!((words[LINE_HEAD], words[LINE_HEAD + 2]), (0, 0));
    let (Node::Line, lower) = Entry(words[LINE_HEAD + 1]).node().unwrap() else { panic!("{words:x?}") };
    let words: Vec<u32> =
        trie.cells[lower as usize * CELL..][..CELL].iter().map(|w| w.load(Ordering::Relaxed)).collect();
    assert_eq!(words[..LINE_HEAD], [0x0041_0040, u32::MAX, u32::MAX, u32::MAX, u32::MAX]);
    assert_eq!(words[LINE_HEAD..], [1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    let recorder = Recorder::new();
    assert_eq!(trie.lookup_probed(0x2001_0db8_0040 << 80, &recorder), Label(2));
    assert_eq!((recorder.counts().reads, recorder.counts().steps), (5, 2));
}

#[test]
fn every_search_answers_as_the_oracle_does() {
    fn check<A: Address>() {
        for seed in 0..60 {
            let case = random_case::<A>(seed);
            let mut rib: Rib<A> = case.table.iter().copied().collect();
            let domain = Domain::new();
            let mut writer = Writer::new(&rib, 12, &domain).unwrap();
            for batch in &case.batches {
                batch.iter().for_each(|change| _ = rib.apply(change));
                let changed: Vec<Prefix<A>> = batch.iter().map(|change| change.prefix()).collect();
                patch(&mut writer, &rib, &changed, &domain);
            }
            let list: Vec<_> = rib.iter().collect();
            let oracle = Oracle::new(&list);
            let mut random = Random::new(seed);
            let mut keys: Vec<A> = case.prefixes().flat_map(edges).collect();
            keys.extend((0..300).map(|_| random.address::<A>()));
            let wanted: Vec<Label> = keys.iter().map(|&key| oracle.lookup(key)).collect();
            for search in Search::all() {
                let mut labels = vec![Label(u32::MAX); keys.len()];
                writer.trie().burst(search, &keys, &mut labels);
                assert_eq!(labels, wanted, "{search:?}");
            }
        }
    }
    check::<u32>();
    check::<u128>();
}

#[test]
fn cells_are_used_again_after_the_grace_period_and_not_before() {
    let domain = Domain::new();
    let mut rib = rib::<u128>(&[("2001:db8::/32", 1)]);
    let mut writer = writer(&rib, &domain);
    let mut reader = domain.register();
    let mut flap = |writer: &mut Writer<u128>, rounds: usize| {
        for i in 0..rounds {
            let prefix = "2001:db8:40::/48".parse().unwrap();
            if i % 2 == 0 {
                rib.insert(prefix, Label(2))
            } else {
                rib.remove(prefix)
            };
            writer.patch(&rib, &[prefix]).unwrap();
        }
    };
    flap(&mut writer, 100);
    let held = writer.fresh;
    assert!(held >= 100, "a reader that does not report holds every cell back: {held}");
    reader.quiescent();
    flap(&mut writer, 2);
    reader.quiescent();
    flap(&mut writer, 2);
    drop(reader);
    flap(&mut writer, 1000);
    assert!(writer.fresh <= held + 4, "{} cells, {held} before", writer.fresh);
    flap(&mut writer, 2);
    assert_eq!(writer.trie().used(), (1 << 16) / CELL + 1, "back to one line");
}

#[test]
fn a_full_trie_is_outgrown() {
    let domain = Domain::new();
    let mut rib = Rib::<u128>::new();
    let mut writer = writer(&rib, &domain);
    let mut random = Random::new(5);
    let outgrown = (0..200_000).find_map(|_| {
        let prefix = Prefix::new(random.address(), 48).unwrap();
        rib.insert(prefix, Label(1));
        writer.patch(&rib, &[prefix]).err()
    });
    let text = outgrown.unwrap().to_string();
    assert!(text.starts_with("all ") && text.contains("cells are in use"), "{text}");
    let again = writer.patch(&rib, &[Prefix::DEFAULT]).unwrap_err().to_string();
    assert!(again.starts_with("an earlier patch was refused"), "{again}");
    let list: Vec<_> = rib.iter().collect();
    let refused = list.iter().filter(|(p, _)| writer.trie().lookup(p.first()) != Label(1)).count();
    assert!(refused <= 1, "what was there still answers: {refused} do not");
}

#[test]
fn parameters_and_labels_are_checked() {
    let domain = Domain::new();
    let bad = Writer::new(&Rib::<u32>::new(), 17, &domain).err().unwrap();
    assert_eq!(bad.to_string(), "root bits = 17 is not possible: 12, 16, 20 or 24");
    let mut table = rib::<u32>(&[("10.0.0.0/8", 0x7fff_ffff)]);
    let mut writer = writer(&table, &domain);
    assert_eq!(writer.fib().lookup(0x0a00_0001), Label(0x7fff_ffff));
    table.insert("10.1.0.0/16".parse().unwrap(), Label(0x8000_0000));
    assert!(matches!(Writer::new(&table, 16, &domain), Err(BuildError::LabelTooWide { width_bits: 31, .. })));
    assert!(writer.patch(&table, &["10.1.0.0/16".parse().unwrap()]).is_err());
}
