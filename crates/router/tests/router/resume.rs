//! What a router has learnt comes back by its state image, into the configuration that there is then.

use std::sync::Arc;
use tidemill_feed::kernel::{Hop, KernelEvent, KernelPath};
use tidemill_feed::{AnyPrefix, Labels, NextHopName};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::rib::Change;
use tidemill_lpm::{Label, Rib};
use tidemill_router::config::{OneOrMany, RouteConfig};
use tidemill_router::settings::{Device, Devices};
use tidemill_router::show::Wanted;
use tidemill_router::{PortInfo, RouterConfig, RouterControl, Routes, State};
use tidemill_wire::MacAddr;

const TEXT: &str = "[kernel]\n[[vrf]]\nname='blue'\ntable=100\n\
    [[interface]]\nport='lan'\naddresses=['10.1.0.1/24','fd01::1/64']\n\
    [[interface]]\nport='wan'\naddresses=['10.2.0.1/24']\n\
    [[interface]]\nport='dmz'\nvrf='blue'\naddresses=['10.3.0.1/24']\n\
    [[route]]\nprefix='10.50.0.0/16'\nvia='10.1.0.2'\n";

fn ports() -> Vec<PortInfo> {
    let device =
        |index: u32| Device { index, mac: MacAddr([2, 0, 0, 0, 0, index as u8]), mtu: 1500, up: true };
    let port = |(n, name): (u32, &str)| PortInfo { device: Some(device(10 + n)), ..PortInfo::new(name) };
    (0..).zip(["lan", "wan", "dmz"]).map(port).collect()
}

fn names() -> Labels {
    let mut labels = Labels::new();
    ["10.2.0.8", "10.2.0.9", "10.2.0.10"].iter().for_each(|text| {
        labels.label(&NextHopName::parse(text).unwrap());
    });
    labels
}

fn routes<A: tidemill_router::Routed>(
    list: impl IntoIterator<Item = (tidemill_lpm::Prefix<A>, Label)>,
) -> Routes<A> {
    let names = names().iter().map(|(label, name)| (label, name.to_string())).collect();
    Routes { rib: list.into_iter().collect::<Rib<A>>(), names }
}

fn route(table: u32, prefix: &str, index: u32, gateway: &str) -> KernelEvent {
    let prefix = AnyPrefix::V4(prefix.parse().unwrap());
    let hop = Hop { index, gateway: Some(gateway.parse().unwrap()), weight: 1 };
    KernelEvent::Route { table, prefix, path: Some(Arc::new(KernelPath::Via(vec![hop]))) }
}

/// Routes by prefix, source and next hops; labels are given out in another order each time.
fn all(control: &mut RouterControl) -> Vec<String> {
    let (mut list, more) = control.routes(None, Wanted::All, 0, 10_000);
    assert!(!more);
    list.iter_mut().flat_map(|route| &mut route.hops).for_each(|hop| hop.label = 0);
    let mut lines: Vec<String> = list.into_iter().map(|route| format!("{route:?}")).collect();
    lines.sort();
    lines
}

/// A router that has heard from everybody.
fn learned() -> RouterControl {
    let config: RouterConfig = toml::from_str(TEXT).unwrap();
    let v4 =
        routes([("192.0.2.0/24".parse().unwrap(), Label(1)), ("10.50.0.0/16".parse().unwrap(), Label(2))]);
    let v6 = routes([("2001:db8::/32".parse().unwrap(), Label(3))]);
    let mut control = RouterControl::new(&config, &ports(), v4, v6, &Domain::new()).unwrap();
    let before = control.revision();
    control.apply::<u32>(&[Change::Announce("198.51.100.0/24".parse().unwrap(), Label(3))]).unwrap();
    control.apply::<u32>(&[Change::Withdraw("192.0.2.0/24".parse().unwrap())]).unwrap();
    let add = |prefix: &str, via: &[&str], vrf: Option<&str>| RouteConfig {
        prefix: prefix.into(),
        vrf: vrf.map(Into::into),
        via: Some(OneOrMany::Many(via.iter().map(|via| (*via).into()).collect())),
        ..RouteConfig::default()
    };
    control.add_route(1, &add("10.60.0.0/16", &["10.1.0.2", "10.2.0.2@3"], None)).unwrap();
    control.add_route(1, &add("10.61.0.0/16", &["10.3.0.2"], Some("blue"))).unwrap();
    control.add_route(1, &add("fd60::/16", &["fd01::2"], None)).unwrap();
    let events = [
        route(254, "10.70.0.0/16", 11, "10.2.0.2"),
        route(254, "10.71.0.0/16", 99, "10.9.0.2"),
        route(100, "10.72.0.0/16", 12, "10.3.0.3"),
        KernelEvent::InSync,
    ];
    control.kernel(2, &events).unwrap();
    assert!(control.revision() > before);
    control
}

fn image(control: &RouterControl) -> State {
    State::decode(&control.state(names(), b"here".to_vec()).encode().unwrap()).unwrap()
}

fn resume(text: &str, state: &State) -> RouterControl {
    let config: RouterConfig = toml::from_str(text).unwrap();
    let (v4, v6) = (routes(state.v4.clone()), routes(state.v6.clone()));
    RouterControl::resume(
        &config,
        &ports(),
        Devices::new(),
        v4,
        v6,
        &state.resumed,
        &Domain::new(),
        &tidemill_lookup::numa::Copies::one(),
    )
    .unwrap()
}

#[test]
fn all_that_was_learnt_comes_back() {
    let mut first = learned();
    let state = image(&first);
    assert_eq!((&state.origin[..], state.v4.len(), state.added.len()), (&b"here"[..], 2, 3));
    let mut second = resume(TEXT, &state);
    assert!(second.resume_added(&state.added).unwrap().is_empty());
    second.poll(2).unwrap();
    assert_eq!(all(&mut second), all(&mut first));
    assert!(second.take_notes().is_empty());
    // It goes on as the first would have.
    let again = image(&second);
    assert_eq!(
        (again.v4, again.v6, again.added, again.resumed.kernel),
        (state.v4, state.v6, state.added, state.resumed.kernel)
    );
}

#[test]
fn what_the_kernel_does_not_name_again_is_withdrawn() {
    let mut control = resume(TEXT, &image(&learned()));
    let named = |control: &mut RouterControl, prefix: &str| {
        all(control).iter().any(|line| line.contains(prefix) && line.contains("Kernel"))
    };
    // Before the dump is complete, the routes of the life before count.
    control.kernel(1, &[route(254, "10.70.0.0/16", 11, "10.2.0.3")]).unwrap();
    assert!(named(&mut control, "10.70.0.0/16") && named(&mut control, "10.71.0.0/16"));
    assert!(named(&mut control, "10.72.0.0/16"));
    control.kernel(2, &[route(254, "10.71.0.0/16", 99, "10.9.0.2"), KernelEvent::InSync]).unwrap();
    assert!(named(&mut control, "10.70.0.0/16") && named(&mut control, "10.71.0.0/16"));
    assert!(!named(&mut control, "10.72.0.0/16"));
    assert_eq!(control.take_notes(), ["1 of the kernel's routes in the state image are no more"]);
    // Once is enough: a later dump is compared by the feed itself.
    control.kernel(3, &[KernelEvent::InSync]).unwrap();
    assert!(named(&mut control, "10.70.0.0/16") && control.take_notes().is_empty());
}

#[test]
fn what_the_configuration_has_no_more_is_left_out_and_said() {
    let state = image(&learned());
    let text = TEXT.replace("[[vrf]]\nname='blue'\ntable=100\n", "").replace("vrf='blue'\n", "");
    let mut control = resume(&text, &state);
    let [note] = &control.take_notes()[..] else { panic!("one note") };
    assert!(note.starts_with("1 of the kernel's routes"), "{note}");
    let left_out = control.resume_added(&state.added).unwrap();
    let left_out: Vec<String> = left_out.iter().map(ToString::to_string).collect();
    assert!(
        matches!(&left_out[..], [one] if one.contains("10.61.0.0/16") && one.contains("no VRF")),
        "{left_out:?}"
    );
    // What is left out is not saved again; configured routes are the configuration's alone.
    let again = image(&control);
    assert_eq!(again.added.len(), 2);
    let without = text.replace("[[route]]\nprefix='10.50.0.0/16'\nvia='10.1.0.2'\n", "");
    let mut control = resume(&without, &state);
    assert!(!all(&mut control).iter().any(|line| line.contains("10.50.0.0/16") && line.contains("Static")));
}

#[test]
fn a_file_that_was_read_meanwhile_replaces_the_table_by_the_difference() {
    let state = image(&learned());
    let mut control = resume(TEXT, &state);
    let kept = state.v4[0];
    let list = [kept, ("203.0.113.0/24".parse().unwrap(), Label(2))];
    let applied = control.replace_table::<u32>(routes(list)).unwrap();
    assert_eq!(applied.changed, 2, "one went and one came");
    let mut table = image(&control).v4;
    table.sort();
    let mut list = list.to_vec();
    list.sort();
    assert_eq!(table, list);
}

/// The fuzzer begins with images of this version; TIDEMILL_WRITE_SEEDS=1 writes them.
#[test]
fn the_fuzzers_seeds_are_of_this_version() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/router_state");
    for (name, state) in [("learned", image(&learned())), ("empty", State::default())] {
        if std::env::var_os("TIDEMILL_WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), state.encode().unwrap()).unwrap();
        }
        let seed = std::fs::read(folder.join(name)).unwrap();
        let mut seed = State::decode(&seed).unwrap_or_else(|error| panic!("{name}: {error}: write it anew"));
        // Which structure is the usual one is a question of the processor that wrote it.
        for (seed, here) in seed.resumed.chosen.iter_mut().zip(&state.resumed.chosen) {
            seed.algorithm.clone_from(&here.algorithm);
        }
        assert_eq!(
            (seed.v4, seed.v6, seed.resumed),
            (state.v4, state.v6, state.resumed),
            "{name}: write it anew"
        );
    }
}
