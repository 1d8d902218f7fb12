//! A run as a service: what the manager hears, what the process gives up, what its workers may still do.

use super::config::Config;
use super::role::Trouble;
use super::service::Service;
use super::setup;
use crate::usage;
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tidemill_control::schema::Severity;
use tidemill_daemon::confine::Confinement;
use tidemill_daemon::notify::{self, Watchdog};
use tidemill_daemon::privileges::{self, Keep};
use tidemill_graph::{Engine, Handle};
use tidemill_port::PortSpec;

/// Refuses to confine workers that do what files and sockets are needed for: the control side of a run that can be repeated is the first worker's.
pub(super) fn check(config: &Config, name: &str, is_recorded: bool) -> Result<()> {
    if config.run.confine && (is_recorded || setup::clock(config).follows_packets()) {
        return Err(usage(format!(
            "{name}: run.confine: not in a run that is recorded, or takes its time from captures: its control side is in the first worker"
        )));
    }
    // What repeats a file from the disk opens it again, which a confined worker cannot.
    let again = config.port.iter().find(|spec| {
        matches!(spec, PortSpec::Pcap(pcap) if pcap.input.is_some() && pcap.repeat != 1 && !pcap.preload)
    });
    if let Some(spec) = again.filter(|_| config.run.confine) {
        return Err(usage(format!(
            "{name}: run.confine: port {} repeats a file, which its worker opens anew each time: set preload = true",
            spec.name()
        )));
    }
    Ok(())
}

/// What workers do before they touch a packet. One that is not on its CPU says so. Where they are to confine themselves, one that cannot ends the run: it must not go
/// on as if it were.
pub(super) fn workers(
    config: &Config,
    engine: &mut Engine,
    handle: &Handle,
    trouble: &Arc<Trouble>,
) -> Result<()> {
    let confinement = config.run.confine.then(Confinement::of_workers).transpose().context("run.confine")?;
    let (handle, trouble) = (handle.clone(), trouble.clone());
    let without = handle.seats().iter().position(|seat| seat.cpu.is_none()).filter(|_| config.run.pin);
    engine.before_work(move |worker| {
        let unbound = match handle.unbound(worker) {
            Some(unbound) => Some(format!("is not bound to CPU {}: {}", unbound.cpu, unbound.source)),
            None if without == Some(worker) => {
                Some("and those after it are bound to no CPU: there are fewer than workers".to_owned())
            }
            None => None,
        };
        if let Some(what) = unbound {
            let about = format!("worker {worker}");
            trouble.say("worker", Severity::Warning, &format!("warning: {about} {what}"));
            trouble.note_silently("worker", Severity::Warning, &about, what);
        }
        match confinement.as_ref().map(Confinement::take_on) {
            Some(Ok(confined)) if worker == 0 && !confined.landlock => {
                trouble.note(
                    "run",
                    "warning: run.confine: this kernel has no Landlock: seccomp alone confines workers",
                );
            }
            None | Some(Ok(_)) => {}
            Some(Err(error)) => {
                trouble.complain("run.confine", &error.into());
                handle.stop();
            }
        }
    });
    Ok(())
}

/// Whoever is to give something up gains nothing by any program from now on: before the first thread begins, for each has what its parent had.
pub(super) fn forgo_new(config: &Config) -> Result<()> {
    if config.run.user.is_some() || config.run.confine || privileges::is_given_some() {
        privileges::forgo_new()?;
    }
    Ok(())
}

/// What ports need to come back.
fn kept(config: &Config) -> &'static [Keep] {
    let is_real = config.port.iter().any(|spec: &PortSpec| spec.interface().is_some());
    if is_real { &[Keep::NetRaw, Keep::NetAdmin, Keep::Bpf] } else { &[] }
}

/// Gives up capabilities that a service manager has given, where ports, sockets and tables have taken what they needed: before the threads of the API begin, for the user
/// stays, and threads that run would keep theirs.
pub(super) fn give_up_given(config: &Config) -> Result<()> {
    if config.run.user.is_none() && privileges::is_given_some() {
        let given = privileges::give_up(None, None, kept(config))?;
        eprintln!("tidemill: {given}");
    }
    Ok(())
}

/// Becomes another user, if one is named, with what ports need to come back. The socket of the API is his then, too: who is of his group may ask.
pub(super) fn give_up(config: &Config, socket: Option<&Path>) -> Result<()> {
    let run = &config.run;
    let Some(user) = &run.user else { return Ok(()) };
    if let Some(socket) = socket {
        privileges::hand_over(socket, user, run.group.as_deref())?;
    }
    let given = privileges::give_up(Some(user), run.group.as_deref(), kept(config))?;
    eprintln!("tidemill: {given}");
    Ok(())
}

/// What the service manager hears of a run; looked at beside the packets.
pub(super) struct Manager<'a> {
    service: &'a Service,
    watchdog: Watchdog,
    stop: Arc<AtomicBool>,
    begun: bool,
    ends: bool,
}

impl<'a> Manager<'a> {
    pub(super) fn new(service: &'a Service) -> Self {
        let stop = service.handle.stop_flag();
        Manager { service, watchdog: Watchdog::of_manager(), stop, begun: false, ends: false }
    }

    /// Tells what has changed.
    pub(super) fn turn(&mut self) {
        if !self.begun && progress(&self.service.handle).iter().all(|at| at.is_none_or(|at| at > 0)) {
            self.begun = true;
            notify::ready(&format!("{}: at work", self.service.path.display()));
        }
        if self.begun && !self.ends && self.stop.load(Ordering::Relaxed) {
            self.ends = true;
            notify::stopping("ends: what is inside is sent, nothing more is received");
        }
        self.watchdog.look(Instant::now(), || progress(&self.service.handle));
    }
}

/// How far each worker is; none for one that has ended.
fn progress(handle: &Handle) -> Vec<Option<u64>> {
    let workers = handle.per_worker().into_iter().enumerate();
    workers.map(|(n, worker)| (!handle.has_ended(n)).then_some(worker.elapsed_ns)).collect()
}
