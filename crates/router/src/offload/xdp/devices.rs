//! The interfaces that the program is on, and those that it sends by.

use crate::offload::layout::{Input, Judged};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_bpf::{BpfError, Front, Mode, Object, Receivers, to_io};
use tidemill_ip::Interfaces;

/// Ports that the program's maps have places for.
const MOST: u16 = 256;
/// How often interfaces are looked at.
const LOOK_NS: u64 = 200_000_000;
/// How long an interface that another program is on is waited for at the start.
const PATIENCE: Duration = Duration::from_secs(1);

/// A port on a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffloadPort {
    /// Its name.
    pub name: String,
    /// The interface's name.
    pub interface: String,
    /// Where in the kernel the program runs.
    pub mode: Mode,
    /// The port has a program of its own, which stands behind this one, and attaches both.
    pub is_behind: bool,
    /// What leaves by it may leave by the program: there is no queue in front of the port.
    pub sends: bool,
}

/// An interface as it was seen last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    index: u32,
    /// Whether the program runs in its driver; `None` if it is not there at all.
    native: Option<bool>,
    takes: bool,
}

struct Port {
    number: u16,
    spec: OffloadPort,
    front: Arc<Front>,
    seen: Option<Seen>,
    /// What was said last, so that it is said once.
    said: String,
    /// Another port has its place, and that was said.
    is_crowded: bool,
    /// The program could not be told to send by it, and that was said.
    has_failed: bool,
}

/// All of them.
pub(super) struct Devices {
    ports: Vec<Port>,
    object: Arc<Mutex<Object>>,
    receivers: Option<Receivers>,
    looked_ns: Option<u64>,
    /// Counts what changes.
    generation: u64,
    notes: Vec<String>,
}

pub(super) fn lock(object: &Mutex<Object>) -> MutexGuard<'_, Object> {
    object.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the program send by a port's device, unless it does. The map forgets a device that goes by itself, and the next one may have its number.
fn send_by(object: &Mutex<Object>, port: u16, index: u32) -> io::Result<()> {
    const DEVICES: &str = "devices";
    let (mut object, port) = (lock(object), u32::from(port));
    if object.device(DEVICES, port).is_ok_and(|there| there == Some(index)) {
        return Ok(());
    }
    object.devices(DEVICES)?.set(port, index, None, 0).map_err(to_io)
}

impl Devices {
    /// `drops`: the program does more than forward, so that it is to be in drivers even where nothing can be redirected there.
    pub(super) fn new(
        ports: Vec<(u16, OffloadPort)>,
        object: &Arc<Mutex<Object>>,
        drops: bool,
    ) -> Result<Self, BpfError> {
        let mut notes = Vec::new();
        let receivers = match Receivers::open() {
            Ok(receivers) => receivers,
            Err(source) => {
                let action = "cannot ask the kernel which devices take redirected frames";
                return Err(BpfError::System { action, source });
            }
        };
        if receivers.is_none() {
            let and_so = match drops {
                true => "what programs in drivers could forward is left to user space",
                false => "programs run behind the drivers, and are slower",
            };
            notes.push(format!(
                "offload: this kernel does not say which devices take what others redirect in their drivers (Linux 6.3 does): {and_so}"
            ));
        }
        let port = |(number, spec): (u16, OffloadPort)| {
            let mode = match spec.mode {
                Mode::Auto if receivers.is_none() && !drops => Mode::Generic,
                mode => mode,
            };
            let front = Arc::new(Front::beside(object.clone(), number.into(), mode));
            let (is_crowded, has_failed) = (false, false);
            Port { number, spec, front, seen: None, said: String::new(), is_crowded, has_failed }
        };
        // Others come in and leave by the router alone.
        let ports = ports.into_iter().filter(|(number, _)| *number < MOST).map(port).collect();
        let object = object.clone();
        Ok(Devices { ports, object, receivers, looked_ns: None, generation: 0, notes })
    }

    pub(super) fn front(&self, port: u16) -> Option<&Arc<Front>> {
        self.ports.iter().find(|there| there.number == port).map(|there| &there.front)
    }

    pub(super) fn names(&self) -> Vec<(u32, String)> {
        self.ports.iter().map(|port| (port.number.into(), port.spec.name.clone())).collect()
    }

    /// The ports, and whether the program is in the driver of each, or behind it; nowhere while it is on no interface.
    pub(super) fn places(&self) -> impl Iterator<Item = (&OffloadPort, Option<bool>)> {
        self.ports.iter().map(|port| (&port.spec, port.seen.and_then(|seen| seen.native)))
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Finds out what has become of the interfaces, if it is time to; puts the program where it is missing.
    pub(super) fn look(&mut self, now_ns: u64) {
        let patience = match self.looked_ns {
            Some(before) if now_ns.saturating_sub(before) < LOOK_NS => return,
            Some(_) => Duration::ZERO,
            None => PATIENCE,
        };
        self.looked_ns = Some(now_ns);
        for port in &mut self.ports {
            let (seen, says) = port.look(self.receivers.as_mut(), patience);
            if says != port.said {
                self.notes.extend((!says.is_empty()).then(|| says.clone()));
                port.said = says;
            }
            if let Some(seen) = seen
                && let Err(error) = send_by(&self.object, port.number, seen.index)
            {
                if !std::mem::replace(&mut port.has_failed, true) {
                    self.notes.push(format!(
                        "warning: offload: {}: cannot tell the program to send by {}: {error}",
                        port.spec.name, port.spec.interface
                    ));
                }
                continue;
            }
            port.has_failed = false;
            if seen != port.seen {
                port.seen = seen;
                self.generation += 1;
            }
        }
    }

    /// The ports that packets come in by, as far as the program is on them: those in the VRF without a name. Not those with VLANs: a driver may take tags off
    /// unseen, and the program would take what is tagged for what is not. `judged` says more of each.
    pub(super) fn inputs(&self, interfaces: &Interfaces, judged: &dyn Fn(u16) -> Judged) -> Vec<Input> {
        let input = |port: &Port| {
            let Seen { index, native, .. } = port.seen?;
            let interface = interfaces.get(port.number).filter(|interface| interface.vrf == 0)?;
            let is_trunk = interfaces.iter().any(|other| other.port == port.number && other.vlan.is_some());
            if is_trunk {
                return None;
            }
            let (mac, judged) = (interface.mac, judged(port.number));
            Some(Input { device: index, port: port.number.into(), mac, native: native?, judged })
        };
        self.ports.iter().filter_map(input).collect()
    }

    /// Of a port that can be sent by, whether its device takes what drivers redirect.
    pub(super) fn sends(&self, port: u16) -> Option<bool> {
        let port = self.ports.iter().find(|there| there.number == port && there.spec.sends)?;
        port.seen.map(|seen| seen.takes)
    }

    /// Another port has its place.
    pub(super) fn has_no_place(&mut self, port: u32) {
        let Some(port) = self.ports.iter_mut().find(|there| u32::from(there.number) == port) else { return };
        if std::mem::replace(&mut port.is_crowded, true) {
            return;
        }
        self.notes.push(format!(
            "warning: offload: {}: its device's number and another port's have their last 8 bits in common: what comes in there is forwarded in user space",
            port.spec.name
        ));
    }

    pub(super) fn close(&mut self) {
        self.ports.iter().for_each(|port| port.front.detach());
        self.ports.iter_mut().for_each(|port| port.seen = None);
    }
}

impl Port {
    /// What is to be seen of it now, and what to say of it.
    fn look(&self, receivers: Option<&mut Receivers>, patience: Duration) -> (Option<Seen>, String) {
        let (name, interface) = (&self.spec.name, &self.spec.interface);
        // An interface that is away is the port's to tell of.
        let Ok(device) = tidemill_port::device(interface) else { return (None, self.said.clone()) };
        let attached = match self.spec.is_behind {
            true => Ok(self.front.attached()),
            false => self.front.attach(interface, device.index, patience).map(Some),
        };
        let takes = receivers.is_some_and(|receivers| receivers.take(device.index).unwrap_or(false));
        let (native, says) = match attached {
            Ok(attached) => {
                let native = attached.filter(|there| there.index == device.index).map(|there| there.native);
                let where_it_is = match native {
                    Some(true) => "in the driver",
                    Some(false) => "behind the driver",
                    None => "",
                };
                let says = match native {
                    Some(_) => format!("offload: {name}: the program is on {interface}, {where_it_is}"),
                    None => self.said.clone(),
                };
                (native, says)
            }
            Err(error) => (
                None,
                format!("warning: offload: {name}: {error}: what comes in there is user space's alone"),
            ),
        };
        (Some(Seen { index: device.index, native, takes }), says)
    }
}
