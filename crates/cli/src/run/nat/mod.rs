//! NAT in a router's graph: the role `nat`, and `[nat]` beside others.

mod api;

use super::config::{Config, Role};
use super::handover::{HandoverFile, HandsOver};
use super::role::Opening;
use super::router::Router;
use super::spliced::{self, Part, Spliced, check_room, hops, mistake};
use crate::usage;
use anyhow::Result;
use std::sync::Arc;
use tidemill_control::Registry;
use tidemill_graph::GraphBuilder;
use tidemill_ip::Interfaces;
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::nat::image::{KIND, Sessions};
use tidemill_nf::nat::{Counter, Exporter, Host, NatControl, Prepared};
use tidemill_router::RouterControl;

/// A NAT that runs.
type Nat = Spliced<NatPart>;

/// What it has beside its control side.
pub(super) struct NatPart {
    handover: Option<HandoverFile>,
}

fn remark(config: &Config, name: &str, nat: &NatControl, interfaces: &Interfaces) {
    let mut remarks = nat.remarks(interfaces);
    if matches!(config.role, Role::Gatekeeper | Role::Grantor) {
        remarks.extend(nat.ours().take(3).map(|address| {
            format!(
                "nat.pool: {address} is an interface's, too: decisions and probes that come to it are dropped as unmapped: give NAT an address of its own"
            )
        }));
    }
    remarks.iter().for_each(|remark| eprintln!("tidemill: {name}: {remark}"));
}

impl HandsOver for NatControl {
    const SECTION: &'static str = "nat";
    const WHAT: &'static str = "sessions";
    const KIND: &'static str = KIND;
    type Exporter = Exporter;

    fn go_on(&mut self, now_ms: u64, image: &[u8]) -> Result<(String, usize)> {
        let taken = self.import(now_ms, image)?;
        Ok((format!("{} sessions", taken.sessions), taken.left_out))
    }

    fn reads(&self) -> Exporter {
        self.exporter()
    }

    fn image(exporter: &Exporter, now_ms: u64) -> Result<Vec<u8>> {
        let image = exporter.export(now_ms);
        // One that would be refused is found out now, not when it is needed.
        Sessions::decode(&image)?;
        Ok(image)
    }
}

impl Part for NatPart {
    type Control = NatControl;
    type Files = ();
    type Prepared = Prepared;
    const NAME: &'static str = "nat";
    const WHO: &'static str = "the NAT";
    const TITLE: &'static str = "NAT";

    fn open(opening: &Opening<'_>, is_recorded: bool, interfaces: &Interfaces) -> Result<(Self, NatControl)> {
        let Opening { config, name, domain, .. } = *opening;
        let (section, workers) = (config.nat.clone().unwrap_or_default(), config.run.workers);
        // What is replayed finds the same ports, and what follows a capture gives the same output every time.
        let repeatable = is_recorded || super::setup::is_repeatable(config);
        let made = if repeatable {
            NatControl::with_secret(&section, interfaces, workers, domain, 0)
        } else {
            NatControl::new(&section, interfaces, workers, domain)
        };
        let mut nat = made.map_err(|error| mistake(name, &error))?;
        remark(config, name, &nat, interfaces);
        let (path, every_s) = (section.handover.as_ref(), section.handover_s);
        let handover = HandoverFile::open(opening, is_recorded, path, every_s, &mut nat);
        Ok((NatPart { handover }, nat))
    }

    fn check(
        config: &Config,
        name: &str,
        interfaces: &Interfaces,
        domain: &Domain,
    ) -> Result<(NatControl, String)> {
        let section = config.nat.clone().unwrap_or_default();
        let nat = NatControl::check(&section, interfaces, domain).map_err(|error| mistake(name, &error))?;
        remark(config, name, &nat, interfaces);
        let (v4, v6) = nat.pool();
        let inside = section.inside.join(", ");
        Ok((nat, format!("inside: {inside}; pool: {v4} IPv4 and {v6} IPv6 addresses")))
    }

    fn splice(graph: &mut GraphBuilder, control: &NatControl, router: &RouterControl) {
        let (hops4, hops6): (spliced::Hops, spliced::Hops) = hops(router);
        tidemill_nf::nat::splice(graph, control, Host { hops4, hops6 });
    }

    fn handover(&self) -> Option<&HandoverFile> {
        self.handover.as_ref()
    }

    fn check_section(config: &Config, name: &str) -> Result<()> {
        let Some(section) = &config.nat else {
            return Err(usage(format!(
                "{name}: nat: is missing: say in [nat] who is inside, and which pool there is"
            )));
        };
        HandoverFile::check::<NatControl>(section.handover.as_ref(), name)?;
        check_room(config, name, "a NAT")
    }

    /// It names no file.
    fn read(_config: &Config, _name: &str) -> Result<()> {
        Ok(())
    }

    fn prepare(
        &self,
        control: &NatControl,
        (): (),
        config: &Config,
        name: &str,
        interfaces: &Interfaces,
    ) -> Result<Prepared> {
        let section = config.nat.clone().unwrap_or_default();
        control.prepare(&section, interfaces).map_err(|error| mistake(name, &error))
    }

    fn commit(control: &mut NatControl, prepared: Prepared) {
        control.commit(prepared);
    }

    fn interfaces(control: &mut NatControl, interfaces: &Interfaces) -> Result<(), String> {
        control.interfaces(interfaces).map_err(|error| error.to_string())
    }

    fn remarks(control: &NatControl, interfaces: &Interfaces) -> Vec<String> {
        control.remarks(interfaces)
    }

    fn poll(control: &mut NatControl) {
        control.poll();
    }

    fn figures(control: &NatControl) -> Vec<(&'static str, u64, bool)> {
        control.counters().figures().collect()
    }

    fn tables(control: &NatControl) -> Vec<(&'static str, u64, usize)> {
        let (counters, section) = (control.counters(), control.section());
        let of = |counter| counters.get(counter);
        vec![
            ("IPv4 mappings", of(Counter::Mappings4), section.mappings),
            ("IPv6 mappings", of(Counter::Mappings6), section.mappings),
            ("IPv4 sessions", of(Counter::Sessions4), section.sessions),
            ("IPv6 sessions", of(Counter::Sessions6), section.sessions),
        ]
    }

    fn progress(control: &NatControl) -> String {
        let counters = control.counters();
        format!("sessions {}", counters.get(Counter::Sessions4) + counters.get(Counter::Sessions6))
    }

    fn verbs(nat: &Arc<Nat>, _router: &Arc<Router>, registry: &mut Registry) {
        api::register(nat, registry);
    }
}
