//! Rules as text: any bytes are read or refused with a message of one line, and what is read, shown and read again is the same. What is
//! read goes into a pipeline, and packets go the oracle's way through it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_classify::flows::{
    Item, PortNames, read_filter, read_flow, read_flows, read_packet, show_flow, show_group, show_meter,
};
use tidemill_classify::pipeline::{Meter, Pipeline, PipelineSettings};
use tidemill_classify::suite::{Rng, key};
use tidemill_classify::{Grouping, Rule};
use tidemill_lookup::qsbr::Domain;

fuzz_target!(|data: &[u8]| {
    let ports = PortNames(["lan", "wan", "dmz"].map(str::to_owned).to_vec());
    if let Ok(text) = std::str::from_utf8(data) {
        let read = [
            read_filter(text, true, &ports).map(|_| ()),
            read_packet(text, &ports).map(|_| ()),
            read_flow(text, &ports).map(|_| ()),
        ];
        for error in read.into_iter().filter_map(Result::err) {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
    let items = match read_flows(data, &ports) {
        Ok(items) => items,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            return;
        }
    };
    let domain = Domain::new();
    let settings = PipelineSettings { tables: 8, rules: 300, grouping: Grouping::Merged };
    let mut book = Pipeline::new(&domain, settings);
    let mut rules = Vec::new();
    for (_, item) in items.into_iter().take(250) {
        let shown = match &item {
            Item::Flow(spec) => show_flow(spec, &ports),
            Item::Group(number, group) => show_group(*number, group, &ports),
            Item::Meter(number, rate) => show_meter(*number, *rate),
        };
        match read_flow(&shown, &ports) {
            Ok(again) => assert_eq!(again, item, "{shown}"),
            Err(error) => panic!("{shown}: {error}"),
        }
        match item {
            Item::Flow(spec) => {
                rules.push(Rule { matches: spec.matches, priority: spec.priority.into() });
                if let Err(error) = book.add(*spec, 0) {
                    assert!(!error.to_string().contains('\n'), "{error}");
                }
            }
            Item::Group(number, group) => {
                let _ = book.set_group(number, group);
            }
            Item::Meter(number, rate) => book.set_meter(number, Meter::new(rate)),
        }
    }
    book.commit();
    let (oracle, mut rng) = (book.oracle(), Rng::new(data.len() as u64));
    for _ in 0..30 {
        let key = key(&rules, &mut rng);
        assert_eq!(book.snapshot().walk(&key, |_| {}).0, oracle.way(&key), "{key:?}");
    }
});
