//! The contract with each combination of tiers: L0, L1, and both, inclusive or not, each with and without the kernel's behind them; both by themselves are what the tests of `reads` and `mutations` have. It is their
//! text: a part for each, and all of it for all of them where there is time (`--ignored`, `cargo xtask held 11`), with what the kernel's tier's suite has of time and of TCP's segments.

use crate::both_answer;
use crate::contract::lab::{Lab, Memcached, THREADS, turn};
use crate::contract::pair::{Pair, Way};
use crate::contract::wire::{Ask, Mode, SPEECHES, Said, Speech};
use crate::cuts;
use crate::ends;
use crate::front::{bridge, over, with};
use crate::mutations::{To, all};
use crate::net::wait_until;
use crate::reads;
use std::time::Duration;

/// As large an answer as a frame has room for.
const L0: &str = "[kvcache.l0]\nchunk = 2048\n[kvcache.l1]\nentries = 0";
const L1: &str = "[kvcache.l0]\nentries = 0";
/// Few, so that something is left to the tier below.
const SMALL: &str = "[kvcache.l0]\nentries = 2\n[kvcache.l1]\nentries = 4\nways = 4\nmemory_mib = 1";
const SMALL_L0: &str = "[kvcache.l0]\nentries = 2\nchunk = 2048\n[kvcache.l1]\nentries = 0";
const SMALL_L1: &str = "[kvcache.l0]\nentries = 0\n[kvcache.l1]\nentries = 4\nways = 4\nmemory_mib = 1";
/// L1 lets go of what L0 has, and L0 of what L1 has.
const BESIDE: &str = "inclusion = \"non-inclusive\"\n[kvcache.l0]\nentries = 2\n[kvcache.l1]\nentries = 4\nways = 4\nmemory_mib = 1";
/// L1 has what L0 has let go of.
const BEHIND: &str = "inclusion = \"non-inclusive\"\nwrite = \"back\"\n[kvcache.l0]\nentries = 2\nchunk = 2048\n\
    [kvcache.l1]\nentries = 4\nways = 4\nmemory_mib = 1";
/// Each with or without the kernel's tier; the first is what a role has that says nothing of them.
const ALL: [(&str, bool); 10] = [
    ("", false),
    (L0, false),
    (L1, false),
    (SMALL_L0, true),
    (SMALL_L1, true),
    (SMALL, true),
    (BESIDE, false),
    (BESIDE, true),
    (BEHIND, false),
    (BEHIND, true),
];

/// What is read, then what voids it.
fn hold(lab: &Lab, reads: &[fn(&Lab)], mutations: &[(To, Speech)]) {
    reads.iter().for_each(|read| read(lab));
    for (to, speech) in mutations {
        assert_eq!(all(lab, *to, *speech), 28, "{to:?} {speech:?}");
    }
}

/// Whether L0 and L1 have answered, and what they have now.
fn answered(lab: &Lab) -> ([bool; 2], [bool; 2]) {
    bridge(lab).shown();
    let is_some = |name: &str| bridge(lab).count(name) > 0;
    (["hit-l0", "hit-l1"].map(is_some), ["entries-l0", "entries-l1"].map(is_some))
}

/// Asks for more keys in turn than a small L0 has room for, and no more than both tiers have, until L1 has answered too.
fn takes_turns(lab: &Lab) {
    let mut pair = Pair::new(lab);
    let keys: [String; 4] = std::array::from_fn(|n| format!("turn:{n}"));
    keys.iter().for_each(|key| pair.given(key.as_bytes(), 7, 0, b"abc"));
    wait_until("L1 answers", Duration::from_secs(20), || {
        for key in &keys {
            pair.ask(Way::Udp, format!("get {key}\r\n").as_bytes(), "get");
        }
        answered(lab).0[1]
    });
}

#[test]
fn l0_alone() {
    let Some(_turn) = turn("l0_alone") else { return };
    let lab = with(L0, false);
    hold(&lab, &[reads::flags, reads::lines_in_values], &[(To::Tcp, Speech::Ascii)]);
    assert_eq!(answered(&lab), ([true, false], [true, false]));
}

#[test]
fn l1_alone() {
    let Some(_turn) = turn("l1_alone") else { return };
    let lab = with(L1, false);
    hold(&lab, &[reads::flags, reads::bytes_of_keys], &[(To::Udp, Speech::Binary)]);
    assert_eq!(answered(&lab), ([false, true], [false, true]));
}

#[test]
fn both_with_the_kernels_tier_behind() {
    let Some(_turn) = turn("both_with_the_kernels_tier_behind") else { return };
    let lab = with(SMALL, true);
    hold(&lab, &[reads::several_keys, reads::cas], &[(To::Tcp, Speech::Meta)]);
    both_answer(&lab, bridge(&lab));
}

/// All mutations.
fn mutations() -> Vec<(To, Speech)> {
    [To::Tcp, To::Udp].iter().flat_map(|to| SPEECHES.map(|speech| (*to, speech))).collect()
}

#[test]
#[ignore = "all of the contract nine times: minutes"]
fn every_combination_whole() {
    let Some(_turn) = turn("every_combination_whole") else { return };
    let mutations = mutations();
    assert_eq!(mutations.len(), 6);
    for (section, kernels) in ALL.into_iter().skip(1) {
        println!("{section:?}");
        let lab = with(section, kernels);
        hold(&lab, &reads::READS, &mutations);
        if kernels {
            both_answer(&lab, bridge(&lab));
        }
        match section {
            L0 | SMALL_L0 => assert_eq!(answered(&lab).0, [true, false]),
            L1 | SMALL_L1 => assert_eq!(answered(&lab).0, [false, true]),
            _ => {
                takes_turns(&lab);
                assert_eq!(answered(&lab).0, [true, true], "{section:?}");
            }
        }
    }
}

/// The ports that the role is measured with.
#[test]
#[ignore = "all of the contract three times: half a minute"]
fn every_combination_over_af_xdp() {
    let Some(_turn) = turn("every_combination_over_af_xdp") else { return };
    for section in ["", L0, L1] {
        println!("{section:?}");
        let lab = over("kind = \"af_xdp\"\npromiscuous = true", section, false);
        hold(&lab, &reads::READS, &mutations());
        let [l0, l1] = answered(&lab).0;
        assert_eq!((l0, l1), (section != L1, section != L0));
    }
}

/// memcached is killed and another one started, six times: once the lease is over (0.4 s here, and a tenth more) nothing is given that the one before had.
fn restarts(lab: &mut Lab) {
    for life in 0..6 {
        let put = Ask::Put { mode: Mode::Set, data: format!("life {life}").into(), flags: 0, expiry: 0 };
        assert_eq!(lab.tcp(&lab.cached).ask(Speech::Ascii, &put, b"mortal"), Said::Done);
        lab.warm(b"mortal");
        let mut udp = lab.udp(&lab.cached);
        // Each tier that there is has it then.
        (0..20).for_each(|_| drop(udp.ask(b"get mortal\r\n")));
        lab.cached.memcached.kill();
        lab.cached.memcached = Memcached::start(&lab.cached.net, THREADS);
        std::thread::sleep(Duration::from_millis(500));
        for _ in 0..20 {
            let said = udp.ask(b"get mortal\r\n");
            assert_eq!(said.as_deref(), Some(&b"END\r\n"[..]), "life {life}: a value from before");
        }
    }
}

#[test]
#[ignore = "no answer past its time, ten times: minutes"]
fn every_combination_in_time() {
    let Some(_turn) = turn("every_combination_in_time") else { return };
    for (section, kernels) in ALL {
        let mut lab = with(section, kernels);
        println!("{section:?}");
        let parts: [fn(&Lab); 3] = [ends::past, ends::touched, ends::flushed];
        parts.iter().for_each(|part| part(&lab));
        restarts(&mut lab);
    }
}

#[test]
#[ignore = "commands cut at each byte, ten times: minutes"]
fn every_combination_cut_anywhere() {
    let Some(_turn) = turn("every_combination_cut_anywhere") else { return };
    let parts: [fn(&Lab); 9] = [
        cuts::cut_anywhere,
        cuts::byte_by_byte,
        cuts::crowds,
        cuts::last_words,
        cuts::fragments,
        cuts::out_of_order,
        cuts::strangers,
        cuts::used_again,
        cuts::used_again_by_cookie,
    ];
    for (section, kernels) in ALL {
        let lab = with(section, kernels);
        println!("{section:?}");
        parts.iter().for_each(|part| part(&lab));
    }
}
