//! Generated tables: exact sizes, the same for the same seed, legal, and profiles that survive their text form.

#![allow(clippy::unwrap_used)]

use tidemill_feed::synth::{self, Profile, SynthError, SynthOptions};
use tidemill_feed::{SaveFormat, shape, write};
use tidemill_lpm::Rib;

fn bytes(options: &SynthOptions) -> Vec<u8> {
    let table = synth::table(options).unwrap();
    assert_eq!((table.v4.len(), table.v6.len()), (options.v4, options.v6));
    let mut out = Vec::new();
    write(&mut out, &table.v4, &table.v6, &table.labels, SaveFormat::Text).unwrap();
    out
}

#[test]
fn the_seed_alone_decides() {
    let options = SynthOptions { v4: 20_000, v6: 5_000, next_hops: 148, seed: 7 };
    let table = bytes(&options);
    assert!(table == bytes(&options), "the same seed");
    assert!(table != bytes(&SynthOptions { seed: 8, ..options }), "another seed");
}

#[test]
fn any_size_keeps_lengths_nesting_and_the_routed_space() {
    for v4 in [0, 1, 1_000, 50_000] {
        let options = SynthOptions { v4, v6: v4 / 2, next_hops: 10, seed: 1 };
        let table = synth::table(&options).unwrap();
        assert_eq!((table.v4.len(), table.v6.len()), (v4, v4 / 2));
        for (prefix, label) in table.v4.iter() {
            let first = prefix.first() >> 24;
            assert!((1..224).contains(&first) && first != 10 && first != 127, "{prefix} is no unicast route");
            assert!((8..=24).contains(&prefix.len()) && (1..=10).contains(&label.0));
        }
        assert!(table.v6.iter().all(|(p, _)| p.first() >> 125 == 1 && (16..=48).contains(&p.len())));
        if v4 >= 50_000 {
            let shape = shape(&table.v4);
            let share = |n: u64| n as f64 / shape.prefixes as f64;
            assert!((0.5..0.75).contains(&share(shape.by_length[24])), "{:?}", shape.by_length);
            assert!((0.35..0.7).contains(&share(shape.nested)), "{} nested", shape.nested);
            assert_eq!(shape.labels, 10);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let options = SynthOptions { v4: 10, v6: 10, ..SynthOptions::default() };
    for (options, message) in [
        (
            SynthOptions { v4: 30_000_000, ..options },
            "30000000 IPv4 prefixes do not fit: at most 28966691 do",
        ),
        (SynthOptions { next_hops: 0, ..options }, "a table needs at least one next hop, and at most 65535"),
    ] {
        assert_eq!(synth::table(&options).err().unwrap().to_string(), message);
    }
    let profile = synth::internet(4).unwrap();
    assert_eq!(synth::rib::<u128>(&profile, 1, 1, 1).err(), Some(SynthError::Family(4)));
}

#[test]
fn a_profile_is_its_text() {
    let made = synth::table(&SynthOptions { v4: 5_000, v6: 2_000, next_hops: 50, seed: 3 }).unwrap();
    let profile = Profile::measure(&made.v4, 50);
    assert_eq!(profile.to_string().parse(), Ok(profile.clone()));
    let again: Rib<u32> = synth::rib(&profile, 5_000, 50, 1).unwrap();
    assert_eq!(again.len(), 5_000);
    for text in [
        "",
        "profile 4 8 24 10\n",
        "profile 5 8 24 10\nb 1 1\n",
        "profile 4 8 24 1\nb 256 1\n",
        "profile 4 8 24 1\ns 7 0 1\n",
    ] {
        assert!(text.parse::<Profile>().is_err(), "{text:?}");
    }
    let error = "profile 4 8 24 1\nb one 1\n".parse::<Profile>().unwrap_err();
    assert_eq!(error.to_string(), "line 2 of the profile is wrong: \"b one 1\"");
}
