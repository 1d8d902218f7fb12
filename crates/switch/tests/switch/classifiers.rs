//! By which structure the rules of a table are looked up.

use crate::common::{PORTS, SECOND, START};
use tidemill_lookup::qsbr::Domain;
use tidemill_switch::SwitchControl;

#[test]
fn rules_choose_their_classifier() {
    let ports = PORTS.map(str::to_owned);
    let made = |section: &str| {
        let section = toml::from_str(section).unwrap();
        SwitchControl::new(&section, &ports, 1, &Domain::new(), 9).unwrap()
    };
    // Many masks in table 0, one in table 1.
    let text: String = (0..400)
        .map(|n: u32| {
            let (source, destination) = (17 + n % 16, 17 + n / 16 % 16);
            let of_many = format!("nw_src=10.{}.7.9/{source},nw_dst=10.{}.9.1/{destination}", n % 200, n % 250);
            format!("priority={n},ip,{of_many} actions=wan\ntable=1,priority=1,ip,nw_src=10.0.{}.{} actions=wan\n", n / 200, n % 200)
        })
        .collect();
    let mut auto = made("");
    assert_eq!(auto.classifiers(), [(0, 1, "tuple-space")]);
    auto.load(text.as_bytes(), "test", true).unwrap();
    assert_eq!(auto.classifiers(), [(0, 400, "tuple-merge"), (1, 400, "tuple-space")]);
    auto.load("priority=1,arp actions=normal".as_bytes(), "test", false).unwrap();
    assert_eq!(auto.classifiers()[0], (0, 401, "tuple-merge"));
    auto.delete("table=0,ip", false).unwrap();
    assert_eq!(auto.classifiers()[0], (0, 1, "tuple-space"));
    // A group, or a meter, takes its rules along: what is left is grouped anew.
    let things = [
        ("group_id=7,type=all,bucket=wan", "group:7"),
        ("meter=7,pktps,band=type=drop,rate=5", "meter:7,wan"),
    ];
    for (thing, action) in things {
        let rules = text.replace("actions=wan", &format!("actions={action}"));
        let rules = format!("{thing}\npriority=1,arp actions=normal\n{rules}");
        auto.load(rules.as_bytes(), "test", true).unwrap();
        assert_eq!(auto.classifiers(), [(0, 401, "tuple-merge"), (1, 400, "tuple-space")], "{thing}");
        let gone = if action == "group:7" { auto.delete_group(7) } else { auto.delete_meter(7) };
        assert_eq!((gone.unwrap(), auto.classifiers()), (800, vec![(0, 1, "tuple-space")]), "{thing}");
    }
    for name in ["tuple-space", "tuple-merge"] {
        let mut fixed = made(&format!("classifier = \"{name}\""));
        fixed.load(text.as_bytes(), "test", true).unwrap();
        assert_eq!(fixed.classifiers(), [(0, 400, name), (1, 400, name)]);
    }
}

#[test]
fn the_first_tables_cross_product_is_shown_and_made_anew() {
    let ports = PORTS.map(str::to_owned);
    let text = |numbers: std::ops::Range<u32>| -> String {
        let rule = |n: u32| {
            let (source, destination) = (17 + n % 16, 17 + n / 16);
            let addresses = format!("nw_src=10.170.170.170/{source},nw_dst=10.85.85.85/{destination}");
            format!("priority={n},ip,{addresses} actions=wan\n")
        };
        numbers.map(rule).collect()
    };
    let made = |section: &str| {
        let section = toml::from_str(section).unwrap();
        let mut control = SwitchControl::new(&section, &ports, 1, &Domain::new(), 9).unwrap();
        assert_eq!(control.cross_product(), None, "of one rule");
        control.load(text(0..150).as_bytes(), "test", true).unwrap();
        control
    };
    assert_eq!(made("classifier = \"tuple-space\"").cross_product(), None);
    let mut control = made("");
    let product = control.cross_product().unwrap();
    assert_eq!((product.rules, product.changed, product.worn), (150, 0, false));
    assert!(product.bytes > 4 * 2 * 65_536, "{product:?}");
    control.poll(START);
    control.load(text(150..220).as_bytes(), "test", false).unwrap();
    for now_ns in [START + SECOND, START + SECOND * 3 / 2] {
        control.poll(now_ns);
        let product = control.cross_product().unwrap();
        assert_eq!((product.rules, product.worn), (150, true), "rules have come just now: {product:?}");
    }
    control.poll(START + 100 * SECOND);
    let product = control.cross_product().unwrap();
    assert_eq!((product.rules, product.changed, product.worn), (220, 0, false));
}
