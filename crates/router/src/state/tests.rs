//! The image gives back what was put in, and nothing else passes for one.

use super::*;

fn names(texts: &[&str]) -> Labels {
    let mut labels = Labels::new();
    texts.iter().for_each(|text| {
        labels.label(&NextHopName::parse(text).unwrap());
    });
    labels
}

fn list<A: Address>(routes: &[(&str, u32)]) -> List<A>
where
    Prefix<A>: std::str::FromStr<Err: std::fmt::Debug>,
{
    routes.iter().map(|(prefix, label)| (prefix.parse().unwrap(), Label(*label))).collect()
}

fn sample() -> State {
    let via = SavedHop::Via("left".into(), "10.1.0.2".parse().unwrap());
    let group = SavedHop::Group(vec![(via.clone(), 1), (SavedHop::OnLink("right".into()), 7)]);
    State {
        origin: b"from somewhere".to_vec(),
        labels: names(&["10.1.0.2", "veth6", "2001:db8::1@ae0"]),
        v4: list(&[("0.0.0.0/0", 1), ("10.0.0.0/8", 2), ("10.0.0.0/9", 1), ("10.1.2.3/32", 3)]),
        v6: list(&[("2001:db8::/32", 3), ("2001:db8::1/128", 1)]),
        added: vec![RouteConfig {
            prefix: "10.9.0.0/16".into(),
            via: Some(crate::config::OneOrMany::Many(vec!["10.1.0.2@3".into(), "10.1.0.3".into()])),
            ..RouteConfig::default()
        }],
        resumed: Resumed {
            hops: vec![via, SavedHop::Unreachable, group, SavedHop::Mac("left".into(), [2, 0, 0, 0, 0, 9])],
            kernel: vec![
                KernelRoutes { vrf: String::new(), v4: list(&[("10.2.0.0/16", 2)]), v6: Vec::new() },
                KernelRoutes {
                    vrf: "blue".into(),
                    v4: list(&[("10.2.0.0/16", 0), ("10.3.0.0/16", 1)]),
                    v6: list(&[("fd00::/8", 3)]),
                },
            ],
            chosen: vec![ChosenStructure {
                vrf: String::new(),
                family: 4,
                algorithm: "dxr-d18r".into(),
                why: "measured".into(),
            }],
        },
    }
}

fn same(a: &State, b: &State) -> bool {
    (&a.origin, &a.v4, &a.v6, &a.added, &a.resumed) == (&b.origin, &b.v4, &b.v6, &b.added, &b.resumed)
        && a.labels.numbering() == b.labels.numbering()
        && a.labels.iter().eq(b.labels.iter())
}

/// Makes the checksum right.
fn seal(bytes: &mut [u8]) {
    if let Err(ImageError::Checksum { computed, .. }) = Image::parse(bytes) {
        bytes[44..48].copy_from_slice(&computed.to_ne_bytes());
    }
}

#[test]
fn what_was_saved_comes_back() {
    for state in [sample(), State::default()] {
        let bytes = state.encode().unwrap();
        let again = State::decode(&bytes).unwrap();
        assert!(same(&state, &again), "{again:?}");
        assert_eq!(again.encode().unwrap(), bytes);
    }
}

#[test]
fn every_damaged_byte_and_every_length_is_refused() {
    let bytes = sample().encode().unwrap();
    for at in 0..bytes.len() {
        assert!(State::decode(&bytes[..at]).is_err(), "{at} bytes");
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(State::decode(&damaged).is_err(), "bit {bit} of byte {at}");
        }
    }
    let longer = [&bytes[..], &[0; 64]].concat();
    assert!(State::decode(&longer).is_err());
}

/// With the right checksum a change may make another sound image, but never a panic or something that cannot be saved again.
#[test]
fn a_wrong_writer_does_not_get_through() {
    let bytes = sample().encode().unwrap();
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] = other[at].wrapping_add(1);
        seal(&mut other);
        match State::decode(&other) {
            Err(_) => refused += 1,
            Ok(state) => assert!(same(&state, &State::decode(&state.encode().unwrap()).unwrap())),
        }
    }
    assert!(refused > bytes.len() / 2, "{refused} of {}", bytes.len());
}

#[test]
fn nonsense_is_named() {
    let wrong = |change: &dyn Fn(&mut State)| {
        let mut state = sample();
        change(&mut state);
        State::decode(&state.encode().unwrap()).unwrap_err().to_string()
    };
    let has = |text: String, what: &str| assert!(text.contains(what), "{text}");
    has(wrong(&|state| state.v4.swap(0, 1)), "section \"table4.first\": 0.0.0.0/0 is out of order");
    has(wrong(&|state| state.v6.push(state.v6[1])), "2001:db8::1/128 is out of order");
    has(
        wrong(&|state| state.v4[1].1 = Label(4)),
        "section \"table4.label\": 10.0.0.0/8 has an unknown next hop",
    );
    has(wrong(&|state| state.v4[1].1 = Label(0)), "unknown next hop");
    has(
        wrong(&|state| state.resumed.kernel[1].v6[0].1 = Label(4)),
        "\"kernel6.hop\": fd00::/8 has an unknown",
    );
    has(wrong(&|state| state.resumed.kernel[1].vrf = String::new()), "the VRF \"\" is there twice");
    let nested = || SavedHop::Group(vec![(sample().resumed.hops[2].clone(), 1)]);
    has(wrong(&|state| state.resumed.hops[1] = nested()), "a group of next hops is empty, or inside another");
    has(wrong(&|state| state.resumed.hops[1] = SavedHop::Group(Vec::new())), "a group of next hops");
    let other = ImageBuilder::new("dxr", 1, 16).finish();
    has(
        State::decode(&other).unwrap_err().to_string(),
        "holds a \"dxr\" of version 1, not a \"router-state\"",
    );
    let bare = ImageBuilder::new(KIND, VERSION, 32).finish();
    has(State::decode(&bare).unwrap_err().to_string(), "sections are not those of this version");
}
