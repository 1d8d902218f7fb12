//! The verbs that only a switch has.

use super::Switch;
use crate::run::service::lock;
use std::sync::Arc;
use tidemill_control::schema::Done;
use tidemill_control::schema::switch::{self, path};
use tidemill_control::{ApiError, Registry, Request};
use tidemill_switch::SwitchError;
use tidemill_wire::MacAddr;

/// Adds them.
pub(super) fn register(role: &Arc<Switch>, registry: &mut Registry) {
    let to = role.clone();
    registry.get(path::FLOWS, "Rules with their counters", move |r: &Request| flows(&to, &r.query()?));
    registry.takes::<switch::FlowsQuery>();
    let to = role.clone();
    // As many rules as there can be, at once.
    let most = lock(&to.control).text_bytes();
    registry.post_large(path::FLOWS, "Put rules, groups and meters in", most, move |r: &Request| {
        load(&to, &r.json()?)
    });
    registry.takes::<switch::FlowsLoad>();
    let to = role.clone();
    registry.delete(path::FLOWS, "Take rules out", move |r: &Request| delete(&to, &r.query()?));
    registry.takes::<switch::FlowsDelete>();
    let to = role.clone();
    registry.get(path::GROUPS, "Groups and meters", move |_: &Request| Ok(groups(&to)));
    let to = role.clone();
    registry.delete(path::GROUPS, "Take a group or a meter out", move |r: &Request| {
        delete_group(&to, &r.query()?)
    });
    registry.takes::<switch::GroupsDelete>();
    let to = role.clone();
    registry.get(path::TRACE, "Where a packet goes, and why", move |r: &Request| trace(&to, &r.query()?));
    registry.takes::<switch::TraceQuery>();
    let to = role.clone();
    registry.get(path::STATIONS, "Stations that the bridge knows", move |_: &Request| Ok(stations(&to)));
    let to = role.clone();
    registry.delete(path::STATIONS, "Forget all stations", move |_: &Request| {
        lock(&to.control).forget_stations();
        Ok::<_, ApiError>(Done::from("all stations forgotten"))
    });
    let to = role.clone();
    registry.get(path::COUNTERS, "All that the switch counts", move |_: &Request| {
        let control = lock(&to.control);
        let counters = control.counters();
        let counters = counters.iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let table = |(table, rules, classifier): (u8, usize, &str)| switch::RuleTable {
            table,
            rules: rules as u64,
            classifier: classifier.to_owned(),
        };
        let cross_product = control.cross_product().map(|product| switch::CrossProduct {
            rules: product.rules as u64,
            changed: product.changed as u64,
            worn: product.worn,
            bytes: product.bytes as u64,
        });
        let tables = control.classifiers().into_iter().map(table).collect();
        Ok(switch::Counters { counters, tables, cross_product })
    });
}

fn wrong(error: &SwitchError) -> ApiError {
    ApiError::bad_request(error.to_string())
}

fn flows(role: &Switch, query: &switch::FlowsQuery) -> Result<switch::Flows, ApiError> {
    let flows = lock(&role.control).flows(query.filter.as_deref().unwrap_or_default());
    let flows = flows.map_err(|error| wrong(&error))?;
    let flow = |flow: tidemill_switch::ShownFlow| switch::Flow {
        flow: flow.text,
        table: flow.place.0,
        priority: flow.place.1,
        packets: flow.hits.packets,
        bytes: flow.hits.bytes,
        duration_s: flow.duration_ns as f64 / 1e9,
    };
    Ok(switch::Flows { flows: flows.into_iter().map(flow).collect() })
}

fn load(role: &Switch, load: &switch::FlowsLoad) -> Result<Done, ApiError> {
    let loaded = lock(&role.control).load(load.text.as_bytes(), "the rules", load.replace);
    let loaded = loaded.map_err(|error| wrong(&error))?;
    Ok(Done::from(format!(
        "{} rules new, {} as they were, {} gone",
        loaded.added, loaded.kept, loaded.removed
    )))
}

fn delete(role: &Switch, query: &switch::FlowsDelete) -> Result<Done, ApiError> {
    let filter = query.filter.as_deref().unwrap_or_default();
    let gone = lock(&role.control).delete(filter, query.strict.unwrap_or(false));
    gone.map(|gone| Done::from(format!("{gone} rules gone"))).map_err(|error| wrong(&error))
}

fn delete_group(role: &Switch, query: &switch::GroupsDelete) -> Result<Done, ApiError> {
    let mut control = lock(&role.control);
    let (what, number, gone) = match (query.group, query.meter) {
        (Some(number), None) => ("group", number, control.delete_group(number)),
        (None, Some(number)) => ("meter", number, control.delete_meter(number)),
        _ => return Err(ApiError::bad_request("give group=N or meter=N")),
    };
    let gone = gone.map_err(|error| wrong(&error))?;
    Ok(Done::from(format!("{what} {number} gone, with {gone} rules that used it")))
}

fn groups(role: &Switch) -> switch::Groups {
    let (groups, meters) = lock(&role.control).groups();
    let meter = |(meter, passed, refused)| switch::Meter { meter, passed, refused };
    switch::Groups { groups, meters: meters.into_iter().map(meter).collect() }
}

fn trace(role: &Switch, query: &switch::TraceQuery) -> Result<switch::Traced, ApiError> {
    let traced = lock(&role.control).trace(&query.packet).map_err(|error| wrong(&error))?;
    let step = |step: tidemill_switch::TracedStep| switch::TracedStep {
        table: step.table,
        rule: step.rule,
        looked: step.looked,
    };
    Ok(switch::Traced {
        steps: traced.steps.into_iter().map(step).collect(),
        actions: traced.actions,
        end: traced.end,
        megaflow: traced.megaflow,
    })
}

fn stations(role: &Switch) -> switch::Stations {
    let stations = lock(&role.control).stations();
    let station = |(station, port): (tidemill_switch::macs::Station, String)| {
        let [_, _, a, b, c, d, e, f] = station.mac.to_be_bytes();
        switch::Station {
            vlan: station.vlan,
            mac: MacAddr([a, b, c, d, e, f]).to_string(),
            port,
            age_s: station.age_s,
        }
    };
    switch::Stations { stations: stations.into_iter().map(station).collect() }
}
