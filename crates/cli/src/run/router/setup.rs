//! What the router needs of a configuration beside its ports: interfaces, and the control side.

use crate::run::config::Config;
use crate::run::setup::clock;
use crate::usage;
use anyhow::Result;
use std::time::{Duration, Instant};
use tidemill_feed::kernel::{KernelFeed, KernelOptions};
use tidemill_graph::Clock;
use tidemill_ip::Owner;
use tidemill_lookup::numa::Copies;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::PortSpec;
use tidemill_router::settings::Devices;
use tidemill_router::state::Resumed;
use tidemill_router::{Device, PortInfo, RouterControl, RouterError, Routes};

/// What the router has to know of the ports. An interface that the kernel does not have is an error; if `lenient`, it is
/// made up with number 0.
pub(crate) fn port_infos(config: &Config, lenient: bool) -> Result<Vec<PortInfo>> {
    let info = |spec: &PortSpec| {
        let device = match spec.interface().map(tidemill_port::packet::device) {
            None => None,
            Some(Ok(device)) => Some(Device {
                index: device.index,
                mac: device.mac,
                mtu: device.mtu as u32,
                up: device.running,
            }),
            Some(Err(_)) if lenient => {
                let mac = tidemill_wire::MacAddr([2, 0, 0, 0, 0, 1]);
                Some(Device { index: 0, mac, mtu: 1500, up: true })
            }
            Some(Err(error)) => return Err(usage(error)),
        };
        let capture = matches!(spec, PortSpec::Pcap(pcap) if pcap.input.is_some());
        let interface = spec.interface().unwrap_or_default().into();
        Ok(PortInfo { name: spec.name().into(), capture, device, interface })
    };
    config.port.iter().map(info).collect()
}

/// Cold bytes, headroom, an Ethernet header with its tag.
const AROUND: usize = 256 + 18;

/// The longest packet that a frame holds.
pub(crate) fn longest_packet(config: &Config) -> u32 {
    config.memory.frame_size.saturating_sub(AROUND) as u32
}

/// Refuses interfaces whose longest packets no frame would hold: they would vanish, and no sender would be told.
pub(crate) fn check_mtu(config: &Config, control: &RouterControl) -> Result<()> {
    for interface in control.settings().interfaces.iter() {
        let needed = usize::from(interface.mtu) + AROUND;
        if needed > config.memory.frame_size {
            let frame_size = needed.next_power_of_two();
            let way = if frame_size <= 32768 {
                format!("memory.frame_size = {frame_size}, or ")
            } else {
                String::new()
            };
            return Err(usage(format!(
                "interface {}: packets of its MTU ({}) do not fit memory.frame_size = {}: set {way}mtu = {}",
                interface.name,
                interface.mtu,
                config.memory.frame_size,
                config.memory.frame_size - AROUND
            )));
        }
    }
    Ok(())
}

/// Warns of frames that have no room for a second segment: nothing would be coalesced.
pub(crate) fn warn_of_small_frames(config: &Config) {
    const WANTED: usize = 8192;
    let size = config.memory.frame_size;
    if config.router.coalesce_tcp && size < WANTED {
        eprintln!(
            "tidemill: warning: router.coalesce_tcp: frames of memory.frame_size = {size} have room for hardly more than one \
             segment: set memory.frame_size = 16384, or leave coalesce_tcp out"
        );
    }
}

/// What the kernel says of its devices, if it owns an interface's addresses: static routes name neighbors there.
fn kernel_devices(config: &Config, ports: &[PortInfo]) -> Result<Devices> {
    /// Longer than any dump of addresses takes; without them, routes by them must name their interface.
    const PATIENCE: Duration = Duration::from_secs(2);
    let there = |port: &PortInfo| port.device.is_some_and(|device| device.index > 0);
    if !config.interface.iter().any(|i| i.owner == Owner::Kernel) || !ports.iter().any(there) {
        return Ok(Devices::new());
    }
    let options = KernelOptions { tables: Vec::new(), ..KernelOptions::default() };
    let (mut feed, mut events, start) = (KernelFeed::open(&options)?, Vec::new(), Instant::now());
    while feed.poll(&mut events)?.syncing && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(tidemill_router::kernel_devices(ports, &events))
}

/// Makes the control side; a mistake in the configuration is the caller's to mend.
#[allow(clippy::too_many_arguments)]
pub(crate) fn control(
    config: &Config,
    ports: &[PortInfo],
    name: &str,
    v4: Routes<u32>,
    v6: Routes<u128>,
    resumed: &Resumed,
    domain: &Domain,
    copies: &Copies,
) -> Result<RouterControl> {
    let devices = kernel_devices(config, ports)?;
    let mut router = config.router();
    if matches!(clock(config), Clock::Capture) {
        // The same run gives the same report, names and sizes of structures included.
        router.router.auto_ms = 0;
        router.queue.iter_mut().for_each(|queue| queue.seed = queue.seed.or(Some(0)));
    }
    RouterControl::resume(&router, ports, devices, v4, v6, resumed, domain, copies).map_err(|error| {
        match error {
            RouterError::Config(error) => usage(format!("{name}: {error}")),
            other => other.into(),
        }
    })
}
