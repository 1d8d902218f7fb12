//! Devices of DPDK's.

use super::{FaultSpec, OpenContext, Opened, PortSpec, queues_of};
use crate::{PortError, SpreadBy};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use tidemill_burst::COLD;
use tidemill_wire::MacAddr;

/// Receives from and sends to a device that DPDK drives: a network card, or a virtual one.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DpdkSpec {
    /// The port's name.
    pub name: String,
    /// The device as DPDK's `--vdev` or `--allow` has it: `0000:3b:00.0`, `net_null0`, `net_pcap0,iface=eth0`. Paths in it
    /// are relative to where the program was started. No other port can have it.
    pub device: String,
    /// Queues: one for each worker if nothing is said. With 1 and several workers, the first worker reads the device and
    /// spreads flows over all. For a gatekeeper both go by addresses alone.
    #[serde(default)]
    pub queues: Option<usize>,
    /// Receive frames to any address, not only the device's own, broadcasts and multicasts.
    #[serde(default)]
    pub promiscuous: bool,
    /// The longest packets, without the Ethernet header; the device's own if nothing is said.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Descriptors in each queue's receive ring, and so frames that wait there; what the driver recommends if nothing is
    /// said.
    #[serde(default)]
    pub rx_descriptors: Option<u16>,
    /// Descriptors in each queue's transmit ring.
    #[serde(default)]
    pub tx_descriptors: Option<u16>,
    /// The most packets that are received in one call: 1 to 256, 256 if nothing is said.
    #[serde(default)]
    pub burst: Option<u16>,
    /// Faults to inject.
    #[serde(default)]
    pub fault: Option<FaultSpec>,
    /// A capture file to copy everything that passes into.
    #[serde(default)]
    pub tap: Option<PathBuf>,
    /// By what packets are spread over the queues: no configuration has it, a role may ask for it.
    #[serde(skip)]
    pub(super) spread_by: SpreadBy,
}

/// What an open device that is none of the kernel's is called on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Station {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its MTU.
    pub mtu: u16,
    /// Whether there may be neighbors behind it: not if it is a capture or makes packets up.
    pub answers: bool,
}

/// How DPDK is started, once for the process, when there is a port of kind `dpdk`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DpdkSection {
    /// Arguments for its environment abstraction layer (EAL), as `dpdk-testpmd` has them before the `--`. They replace ours
    /// where they are about the same thing; ours are `--no-telemetry --no-shconf --iova-mode=va --lcores=...`, `--in-memory`
    /// or, where no huge pages are reserved, `--no-huge -m 256`, and `--no-pci` where no port is on a PCI device.
    pub arguments: Vec<String>,
}

impl DpdkSection {
    /// Has DPDK started like this when the first of `ports` that is its is opened.
    pub fn prepare(&self, ports: &[PortSpec]) {
        #[cfg(feature = "dpdk")]
        {
            let on_pci =
                |spec: &PortSpec| matches!(spec, PortSpec::Dpdk(spec) if crate::dpdk::is_pci(&spec.device));
            crate::dpdk::prepare(&self.arguments, ports.iter().any(on_pci));
        }
        #[cfg(not(feature = "dpdk"))]
        let _ = ports;
    }

    /// Finds what is wrong with the arguments without starting DPDK, if there is a port that has it started.
    ///
    /// # Errors
    /// Arguments that are refused before DPDK sees them. What it refuses itself is known once it is started.
    pub fn check(&self, ports: &[PortSpec]) -> Result<(), PortError> {
        #[cfg(feature = "dpdk")]
        if let Some(spec) = ports.iter().find(|spec| matches!(spec, PortSpec::Dpdk(_))) {
            crate::dpdk::check_arguments(spec.name(), &self.arguments)?;
        }
        #[cfg(not(feature = "dpdk"))]
        let _ = ports;
        Ok(())
    }
}

/// The device argument, if there is one, that has a driver attach buffers of its own to our mbufs: mlx5's `mprq_en`, unless it is 0.
pub(crate) fn attaches_buffers(device: &str) -> Option<&str> {
    let mut arguments = device.split(',').skip(1).map(str::trim);
    arguments.find(|argument| argument.strip_prefix("mprq_en=").is_some_and(|value| value.trim() != "0"))
}

/// What is said of such an argument.
pub(crate) fn no_buffers(argument: &str) -> String {
    format!(
        "{argument} has the driver receive into buffers of its own, and a packet here lies in its port's frames: \
         leave it out, or write mprq_en=0"
    )
}

/// What is around a packet in what a device receives: an Ethernet header with two VLAN tags, and a checksum.
pub(crate) const AROUND: usize = 14 + 2 * 4 + 4;

/// How much a device can receive into a frame of packet memory.
pub(crate) fn room(frame_size: usize) -> usize {
    frame_size.saturating_sub(2 * COLD)
}

/// The name of a device, without its arguments. A PCI address is written in full, for DPDK takes it with or without its domain.
fn name_of(device: &str) -> String {
    let name = device.split(',').next().unwrap_or_default().trim();
    pci_address(name).unwrap_or_else(|| name.to_owned())
}

/// The address of a PCI device (`0000:3b:00.0`, `3b:00.0`) in full; `None` if it is something else.
pub(crate) fn pci_address(name: &str) -> Option<String> {
    let number = |text: &str| {
        let hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        u32::from_str_radix(text, 16).ok().filter(|_| hex)
    };
    let (rest, function) = name.rsplit_once('.')?;
    let parts: Option<Vec<u32>> = rest.split(':').map(number).collect();
    let (domain, bus, device) = match parts?[..] {
        [bus, device] => (0, bus, device),
        [domain, bus, device] => (domain, bus, device),
        _ => return None,
    };
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{:x}", number(function)?))
}

impl DpdkSpec {
    /// The device's name, which no other port's device may have.
    pub(super) fn device_name(&self) -> String {
        name_of(&self.device)
    }

    /// What the device is called on the wire, while it is open.
    pub(super) fn station(&self) -> Option<Station> {
        #[cfg(feature = "dpdk")]
        return crate::dpdk::station(&self.device);
        #[cfg(not(feature = "dpdk"))]
        None
    }

    pub(super) fn check(&self, workers: usize) -> Result<(), PortError> {
        let wrong = |what: &str| Err(PortError::config(&self.name, what));
        if self.device.split(',').next().is_none_or(|name| name.trim().is_empty()) {
            return wrong("device is empty: give one such as \"net_null0\" or \"0000:3b:00.0\"");
        }
        if let Some(argument) = attaches_buffers(&self.device) {
            return wrong(&no_buffers(argument));
        }
        if self.mtu.is_some_and(|mtu| mtu < 68) {
            return wrong("mtu is below IPv4's minimum of 68 (RFC 791)");
        }
        if self.rx_descriptors == Some(0) || self.tx_descriptors == Some(0) {
            return wrong("rx_descriptors, tx_descriptors: give at least 1, or leave them out");
        }
        if self.burst.is_some_and(|burst| !(1..=256).contains(&burst)) {
            return wrong("burst: give 1 to 256, or leave it out");
        }
        queues_of(&self.name, self.queues, workers)?;
        if cfg!(feature = "dpdk") {
            return Ok(());
        }
        wrong(
            "kind = \"dpdk\" is not in this build: cargo build --release --features dpdk (Debian: libdpdk-dev)",
        )
    }

    /// Whether frames hold packets of the MTU that is asked for. What else a device needs is known once it is open.
    pub(super) fn check_memory(&self, frame_size: usize) -> Result<(), PortError> {
        match self.mtu {
            Some(mtu) if usize::from(mtu) + AROUND > room(frame_size) => {
                let what = format!(
                    "frames of {frame_size} bytes do not hold packets of mtu = {mtu}: raise memory.frame_size, or lower mtu"
                );
                Err(PortError::config(&self.name, what))
            }
            _ => Ok(()),
        }
    }

    #[cfg(feature = "dpdk")]
    pub(super) fn open(&self, workers: usize, context: &OpenContext<'_>) -> Result<Opened, PortError> {
        self.check(workers)?;
        let queues = queues_of(&self.name, self.queues, workers)?;
        let options = crate::dpdk::Options {
            promiscuous: self.promiscuous,
            mtu: self.mtu,
            rx_descriptors: self.rx_descriptors,
            tx_descriptors: self.tx_descriptors,
            burst: self.burst,
            spread_by: self.spread_by,
        };
        let Some(memory) = context.memory.get(..queues) else {
            return Err(PortError::config(&self.name, "a device needs each worker's packet memory"));
        };
        memory.iter().try_for_each(|memory| self.check_memory(memory.frame_size()))?;
        let ports = crate::dpdk::open(&self.name, &self.device, &options, memory)?;
        let notes = ports.first().map(|port| port.note().to_owned()).into_iter().collect();
        Ok(Opened { queues: super::boxed(ports), notes, rule: None })
    }

    #[cfg(not(feature = "dpdk"))]
    pub(super) fn open(&self, workers: usize, _: &OpenContext<'_>) -> Result<Opened, PortError> {
        self.check(workers).map(|()| Opened::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(device: &str) -> String {
        let spec: DpdkSpec = toml::from_str(&format!("name = 'p'\ndevice = '{device}'")).unwrap();
        spec.check(1).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn buffers_of_a_drivers_own_are_refused() {
        for device in ["0000:3b:00.0,mprq_en=1", "3b:00.0,rx_vec_en=1,mprq_en=0x1", "3b:00.0, mprq_en=1"] {
            let error = checked(device);
            assert!(error.contains("mprq_en=") && error.contains("or write mprq_en=0"), "{device}: {error}");
        }
        for device in ["0000:3b:00.0", "3b:00.0,mprq_en=0", "3b:00.0,mprq_log_stride_num=6"] {
            let error = checked(device);
            assert!(!error.contains("mprq"), "{device}: {error}");
        }
    }

    #[test]
    fn pci_addresses_are_told_from_names() {
        for (short, full) in [
            ("0000:3b:00.0", "0000:3b:00.0"),
            ("3b:00.1", "0000:3b:00.1"),
            ("3B:0.1", "0000:3b:00.1"),
            ("10000:01:00.0", "10000:01:00.0"),
        ] {
            assert_eq!(pci_address(short).as_deref(), Some(full));
        }
        for no in ["net_null0", "net_ring", "", "a.b", "net:x.0", "3b:00.", "1:2:3:4.0", "+1:2.0"] {
            assert_eq!(pci_address(no), None, "{no}");
        }
        assert_eq!(name_of("3b:00.0,queues=2"), name_of(" 0000:3b:00.0"));
        assert_eq!(name_of("net_pcap0,rx_pcap=a:b.c"), "net_pcap0");
    }
}
