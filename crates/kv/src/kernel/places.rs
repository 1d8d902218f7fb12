//! The programs on their interfaces: put there, lost with an interface, put there again when it comes back, taken off where nobody names it any more.

use super::cache::{Cache, interface_socket};
use super::layout::{EGRESS, LAYOUT};
use super::scopes::is_cable;
use super::state::now_ns;
use super::{KvError, Mode, Options};
use rustix::net::netdevice::{index_to_name, name_to_index};
use std::time::Duration;
use tidemill_bpf::{Attachment, Egress, Pins};

/// How often an interface that has come back is tried, where that does not go at once.
const AGAIN_NS: u64 = 200_000_000;

/// One interface's programs.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) interface: String,
    pub(super) index: u32,
    native: bool,
    /// It is an end of a virtual cable (veth).
    is_cable: bool,
    ingress: Attachment,
    egress: Egress,
    pins: Pins,
}

/// The number of `lo` in each network namespace. It has no driver that a program could run in.
const LOOPBACK: u32 = 1;

/// Where the program on what comes in runs. What the driver of a virtual cable sends back is thrown away, and counted as answered here, unless the other end has an XDP program
/// too: who does not ask for that gets the kernel's own way, by which it arrives. A program that was left in the driver goes on there.
fn way(mode: Mode, index: u32, is_cable: bool, was_native: bool) -> Mode {
    match mode {
        Mode::Auto if is_cable && !was_native => Mode::Generic,
        Mode::Native if index == LOOPBACK => Mode::Generic,
        other => other,
    }
}

/// An interface that is gone, or without its programs.
#[derive(Debug)]
pub(super) struct Missing {
    interface: String,
    tried_ns: u64,
    /// Why it could not be done was said.
    is_told: bool,
}

/// The number of an interface; `None`: there is none of that name.
pub(super) fn index(interface: &str) -> Result<Option<u32>, KvError> {
    Ok(name_to_index(interface_socket()?, interface).ok())
}

/// Under which name the pins of one interface are.
pub(super) fn pin_name(name: &str, index: u32) -> String {
    format!("{name}-{index}")
}

/// The number of the interface whose pins of a cache have this name.
pub(super) fn pin_index(pinned: &str, name: &str) -> Option<u32> {
    let rest = pinned.strip_prefix(name)?.strip_prefix('-')?;
    if rest.bytes().all(|byte| byte.is_ascii_digit()) { rest.parse().ok() } else { None }
}

impl Place {
    /// Where the programs are, and what that means on a virtual cable.
    pub(super) fn describe(&self, mode: Mode) -> String {
        let why = match (self.is_cable, self.native) {
            (true, true) => {
                ": this is a virtual cable (veth), and answers arrive only where its other end has an XDP program too; else kv detach, and attach without --native"
            }
            (true, false) if mode == Mode::Auto => {
                ": this is a virtual cable (veth), whose driver sends back only to another end with an XDP program; where that has one, --native is faster"
            }
            _ => "",
        };
        format!("on {}, {}{why}", self.interface, if self.native { "native" } else { "generic" })
    }

    /// Lets go of it, and leaves the programs where they are.
    pub(super) fn leave(self) {
        self.ingress.leave();
        self.egress.leave();
        self.pins.leave();
    }
}

impl Cache {
    /// Puts the programs on one interface. Says whether something may have passed there unseen: they have not taken the place of those of a process before.
    pub(super) fn place(&mut self, interface: &str, index: u32, patience: Duration) -> Result<bool, KvError> {
        let Options { pin_root, name, mode, .. } = &self.options;
        let (root, name, mode) = (pin_root.clone(), pin_name(name, index), *mode);
        let pins = Pins::new(&root, &name, LAYOUT)?;
        let left = Pins::left(&root)?.into_iter().find(|left| left.name == name);
        let was_native = left.and_then(|left| left.attached) == Some((index, true));
        let is_cable = is_cable(index);
        let mode = way(mode, index, is_cable, was_native);
        // What leaves first: a connection that opens meanwhile is then known from its first byte.
        let egress = Egress::attach(&mut self.object, EGRESS, index, Some(&pins))?;
        let ingress = match Attachment::attach(&self.object, interface, index, mode, patience, Some(&pins)) {
            Ok(ingress) => ingress,
            Err(error) => {
                if egress.is_taken_over() {
                    egress.leave();
                } else {
                    drop((egress, pins));
                    // What cannot be removed now can be later, by `detach`.
                    let _ = Pins::remove(&root, &name);
                }
                return Err(error.into());
            }
        };
        let native = ingress.attached().native;
        let is_gap = !ingress.is_taken_over() || !egress.is_taken_over();
        let interface = interface.to_owned();
        self.places.push(Place { interface, index, native, is_cable, ingress, egress, pins });
        Ok(is_gap)
    }

    /// Takes the programs of a process before off interfaces that are not named any more, and removes pins of interfaces that are gone. Says whether there was
    /// a program: what passes there from now on is not seen, as of connections that are known.
    pub(super) fn take_off_others(&mut self) -> Result<bool, KvError> {
        let mut is_gap = false;
        for left in Pins::left(&self.options.pin_root)? {
            let Some(index) = pin_index(&left.name, &self.options.name) else { continue };
            if self.places.iter().any(|place| place.index == index) {
                continue;
            }
            Pins::remove(&self.options.pin_root, &left.name)?;
            if left.attached.is_some() {
                is_gap = true;
                let name = index_to_name(interface_socket()?, index);
                let name = name.unwrap_or_else(|_| format!("interface {index}"));
                self.notes.push(format!(
                    "the process before had its programs on {name} too: they are taken off, and what comes there is not seen any more"
                ));
            }
        }
        Ok(is_gap)
    }

    /// Looks whether all programs are where they were put: what comes by an interface without them is not seen. One that is gone is waited for, and
    /// the others go on.
    pub(super) fn still_there(&mut self) {
        let mut at = 0;
        while let Some(place) = self.places.get(at) {
            if place.ingress.is_ours() && place.egress.is_there() {
                at += 1;
                continue;
            }
            self.serve(false);
            self.state.void();
            let place = self.places.remove(at);
            let (interface, name) = (place.interface.clone(), pin_name(&self.options.name, place.index));
            drop(place);
            // What cannot be removed now can be later, by `detach`.
            let _ = Pins::remove(&self.options.pin_root, &name);
            self.notes.push(format!(
                "the programs on {interface} are gone, with the interface or by another's hand: they are put there again when it is there"
            ));
            self.missing.push(Missing { interface, tried_ns: 0, is_told: false });
        }
    }

    /// Puts the programs on interfaces that have come back. While one is there without them nothing is served.
    pub(super) fn come_back(&mut self, now: u64) -> Result<(), KvError> {
        self.uncovered = false;
        let mut at = 0;
        while let Some(missing) = self.missing.get_mut(at) {
            let Some(index) = index(&missing.interface)? else {
                at += 1;
                continue;
            };
            self.uncovered = true;
            if now.saturating_sub(missing.tried_ns) < AGAIN_NS {
                at += 1;
                continue;
            }
            missing.tried_ns = now;
            let interface = missing.interface.clone();
            self.serve(false);
            let begun = now_ns();
            match self.place(&interface, index, Duration::ZERO) {
                Ok(_) => {
                    self.missing.remove(at);
                    self.bridge(begun)?;
                    // Whom it answers there is told at once, and which connections are not followed any more.
                    self.reconciled_ns = 0;
                    self.notes
                        .push(format!("on {interface} again: connections from before are not followed"));
                }
                Err(error) => {
                    if let Some(missing) = self.missing.get_mut(at)
                        && !std::mem::replace(&mut missing.is_told, true)
                    {
                        self.notes.push(format!("{interface}: {error}: nothing is served meanwhile"));
                    }
                    at += 1;
                }
            }
        }
        let names = |missing: &Missing| matches!(index(&missing.interface), Ok(Some(_)));
        self.uncovered = self.missing.iter().any(names);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{LOOPBACK, Mode, pin_index, way};

    #[test]
    fn a_virtual_cable_is_served_behind_its_driver_unless_somebody_asks() {
        let all = [Mode::Auto, Mode::Native, Mode::Generic];
        let of = |index, is_cable, was_native| all.map(|mode| way(mode, index, is_cable, was_native));
        assert_eq!(of(7, false, false), all);
        assert_eq!(of(7, true, false), [Mode::Generic, Mode::Native, Mode::Generic]);
        // What was left there is taken over where it is.
        assert_eq!(of(7, true, true), all);
        assert_eq!(of(LOOPBACK, false, false), [Mode::Auto, Mode::Generic, Mode::Generic]);
    }

    #[test]
    fn pins_of_interfaces_are_told_from_other_names() {
        let known =
            ["kv", "kv-7", "kv-7x", "kv-", "kv-other-7", "kvx-7", "kv-+7"].map(|name| pin_index(name, "kv"));
        assert_eq!(known, [None, Some(7), None, None, None, None, None]);
    }
}
