//! A router on a wire: hosts and the router are network namespaces, the wires are veth pairs. Needs root.
//!
//! - `net`, `raw`, `traffic`: namespaces and cables; hand-made frames; traffic that knows whether it arrived.
//! - `dut`, `lab`: the router under test, and what stands around it.
//! - the rest: the tests, by subject.
//!
//! The Linux kernel can stand in for Tidemill in most tests, to tell a wrong test from a wrong router:
//! `TIDEMILL_WIRE_DUT=kernel cargo test -p tidemill-cli --test root_wire`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

mod basic;
mod bgp;
mod churn;
mod devices;
mod dut;
mod ecmp;
mod fault;
mod kernel_routes;
mod lab;
#[allow(dead_code)] // shared with other tests
mod needs;
mod neighbor;
mod net;
mod path_mtu;
mod raw;
mod reload;
mod restart;
mod scan;
mod tcp;
mod traffic;
mod vlan;
mod vrf;
mod workers;

use dut::Dut;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What a test asks of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Little: several may run at once.
    Little,
    /// The whole machine: for rates, much traffic, or deadlines.
    Machine,
}

/// Whether the kernel can be the router in a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    Can,
    /// It lacks what is tested.
    Cannot,
}

/// The right to run a test now, and with which router.
pub(crate) struct Turn {
    pub(crate) dut: Dut,
    _guard: Guard,
}

#[allow(dead_code)] // it is held, not read
enum Guard {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

static MACHINE: RwLock<()> = RwLock::new(());

/// Programs without which there is no lab.
const PROGRAMS: &[&str] = &["ip", "sysctl", "unshare", "ping", "traceroute", "tracepath", "ethtool", "bird"];

/// Waits for the machine. None if the test has to be skipped, which it never is in CI.
pub(crate) fn turn(test: &str, needs: Needs, kernel: Kernel) -> Option<Turn> {
    if !needs::met(test, PROGRAMS) {
        return None;
    }
    let dut = match std::env::var("TIDEMILL_WIRE_DUT").as_deref() {
        Ok("kernel") => Dut::Kernel,
        Ok("tidemill") => Dut::Tidemill,
        Ok(other) => panic!("TIDEMILL_WIRE_DUT={other}: say kernel or tidemill"),
        Err(_) => Dut::Tidemill,
    };
    if dut == Dut::Kernel && kernel == Kernel::Cannot {
        println!("skipped: {test} (the kernel is the router, and cannot be in this one)");
        return None;
    }
    let guard = match needs {
        Needs::Little => Guard::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner)),
        Needs::Machine => Guard::Alone(MACHINE.write().unwrap_or_else(PoisonError::into_inner)),
    };
    Some(Turn { dut, _guard: guard })
}
