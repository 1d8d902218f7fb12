//! The program on an interface, and the rule in its maps: `bpf/xsk.bpf.c`, made into an object that is part of this one.
//!
//! All queues of a port share it. It is loaded once; when the interface went away and is back, it is attached to the new
//! one, with its maps as they are. It goes with its link, that is with this process, however that ends: then the kernel
//! gets everything again.

use super::failed;
use crate::PortError;
use crate::rule::{Left, Ownership, Rule};
use crate::spec::{Leave, Mode};
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, XskMap};
use aya::programs::Xdp;
use aya::programs::xdp::{XdpLinkId, XdpMode};
use aya::{Ebpf, EbpfError};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The compiled program, at an address that its reader can work with.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../../bpf/xsk.bpf.o");
const PROGRAM: &str = "tidemill_xsk";

// As in bpf/xsk.bpf.c.
const LEFT: u32 = 0;
const UNBOUND: u32 = 1;
const KERNELS: u32 = 1;
const OURS: u32 = 2;
const LEAVE_ALL: u32 = 1;
const LEAVE_PORTS: u32 = 2;
const TOLD: u32 = 1;
const KERNEL: u32 = 2;
const LEAVES: u32 = 4;
const FILTER_WORDS: usize = 128;
/// What the map of addresses and that of ports hold.
const MAX_HOSTS: usize = 16384;
const MAX_PORTS: usize = 1024;
/// Queues that the map of sockets has room for.
pub(super) const MAX_QUEUES: usize = 256;

/// The program of one port.
pub(super) struct Program {
    port: String,
    interface: String,
    mode: Mode,
    leave: Vec<Leave>,
    state: Mutex<State>,
}

struct State {
    ebpf: Ebpf,
    /// Those that are not done.
    queues: usize,
    attached: Option<(Attached, XdpLinkId)>,
    hosts: BTreeMap<[u32; 4], u32>,
    told: Option<Ownership>,
}

/// Where the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attached {
    /// The device's number.
    pub(super) index: u32,
    /// In the driver, not behind it.
    pub(super) native: bool,
}

impl Program {
    /// Loads the program for so many queues, with what is left to the kernel.
    pub(super) fn load(
        port: &str,
        interface: &str,
        queues: usize,
        mode: Mode,
        leave: &[Leave],
    ) -> Result<Self, PortError> {
        let ports = leave.iter().filter(|leave| matches!(leave, Leave::Port(..))).count();
        if ports > MAX_PORTS {
            return Err(PortError::config(port, format!("leave: {ports} ports: {MAX_PORTS} at most")));
        }
        let mut ebpf = Ebpf::load(OBJECT).map_err(|error| match error {
            EbpfError::MapError(MapError::CreateError { io_error, .. }) => failed(
                port,
                "cannot make the XDP program's maps (run as root, or give the program cap_net_admin, cap_net_raw, cap_bpf)",
            )(io_error),
            other => failed(port, "cannot read the XDP program")(io::Error::other(other)),
        })?;
        load(&mut ebpf).map_err(failed(
            port,
            "the kernel refuses the XDP program (run as root, or give the program cap_net_admin, cap_bpf)",
        ))?;
        let state = State { ebpf, queues, attached: None, hosts: BTreeMap::new(), told: None };
        Ok(Program {
            port: port.into(),
            interface: interface.into(),
            mode,
            leave: leave.to_vec(),
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the program on the device `index`, unless it is there. Another one that is there is waited for.
    pub(super) fn attach(&self, index: u32, patience: Duration) -> Result<Attached, PortError> {
        let mut state = self.state();
        if let Some((attached, _)) = &state.attached
            && attached.index == index
        {
            return Ok(*attached);
        }
        if let Some((_, link)) = state.attached.take() {
            // A link to a device that is gone holds nothing any more.
            let _ = program(&mut state.ebpf).and_then(|xdp| xdp.detach(link).map_err(to_io));
        }
        let modes: &[bool] = match self.mode {
            Mode::Auto => &[true, false],
            Mode::Native | Mode::ZeroCopy => &[true],
            Mode::Generic => &[false],
        };
        let mut last = io::Error::from(io::ErrorKind::Unsupported);
        for &native in modes {
            let started = Instant::now();
            loop {
                let mode = if native { XdpMode::Driver } else { XdpMode::Skb };
                let attached = program(&mut state.ebpf)
                    .and_then(|xdp| xdp.attach_to_if_index(index, mode).map_err(to_io));
                match attached {
                    Ok(link) => {
                        let attached = Attached { index, native };
                        state.attached = Some((attached, link));
                        return Ok(attached);
                    }
                    // The link of a process that has just ended goes a moment later.
                    Err(error) if is_taken(&error) && started.elapsed() < patience => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    Err(error) if is_taken(&error) => {
                        let what = format!(
                            "another XDP program is on {0}: remove it, if it is not needed (ip link set dev {0} xdp off; a \
                             program held by a link goes with the process that made it: bpftool link)",
                            self.interface
                        );
                        return Err(PortError::config(&self.port, what));
                    }
                    Err(error) => {
                        last = error;
                        break;
                    }
                }
            }
        }
        let action = match self.mode {
            Mode::Native | Mode::ZeroCopy => {
                "the driver takes no XDP program here (its MTU may be too large for one; mode = \"generic\" works with any)"
            }
            Mode::Auto | Mode::Generic => "cannot attach the XDP program",
        };
        Err(failed(&self.port, action)(last))
    }

    /// Sends a queue's packets to a socket.
    pub(super) fn insert(&self, queue: u32, socket: &OwnedFd) -> Result<(), PortError> {
        let mut state = self.state();
        let inserted = map(&mut state.ebpf, "sockets")
            .and_then(|map| XskMap::try_from(map).map_err(to_io))
            .and_then(|mut map| map.set(queue, socket.as_raw_fd(), 0).map_err(to_io));
        inserted.map_err(failed(&self.port, "cannot give the queue's packets to the socket"))
    }

    /// A queue is done; the last one takes the program off the interface.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        state.queues = state.queues.saturating_sub(1);
        if state.queues > 0 {
            return;
        }
        if let Some((_, link)) = state.attached.take() {
            // It may have gone with its device.
            let _ = program(&mut state.ebpf).and_then(|xdp| xdp.detach(link).map_err(to_io));
        }
    }

    fn tell(&self, state: &mut State, ownership: &Ownership) -> io::Result<()> {
        let mut hosts = BTreeMap::new();
        hosts.extend(ownership.own_hosts.iter().map(|address| (words(*address), OURS)));
        hosts.extend(ownership.kernel_hosts.iter().map(|address| (words(*address), KERNELS)));
        if hosts.len() > MAX_HOSTS {
            let text = format!("{} addresses of this host: {MAX_HOSTS} at most", hosts.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let before = state.told.replace(ownership.clone());
        let ebpf = &mut state.ebpf;
        if before.is_none() {
            set_leave(ebpf, &self.leave)?;
        }
        // What is new can be found before anybody looks for it, and what is old until nobody does.
        let mut map: HashMap<&mut MapData, [u32; 4], u32> =
            HashMap::try_from(self::map(ebpf, "hosts")?).map_err(to_io)?;
        for (host, value) in &hosts {
            if state.hosts.get(host) != Some(value) {
                map.insert(host, value, 0).map_err(to_io)?;
            }
        }
        array::<[u64; FILTER_WORDS]>(ebpf, "filter")?.set(0, filter(hosts.keys()), 0).map_err(to_io)?;
        let mut map: HashMap<&mut MapData, [u32; 4], u32> =
            HashMap::try_from(self::map(ebpf, "hosts")?).map_err(to_io)?;
        for host in state.hosts.keys().filter(|host| !hosts.contains_key(*host)) {
            map.remove(host).map_err(to_io)?;
        }
        state.hosts = hosts;
        let mut vlans = array::<u32>(ebpf, "vlans")?;
        let known = before.unwrap_or_default().vlans;
        for id in known.symmetric_difference(&ownership.vlans) {
            vlans.set(u32::from(*id), u32::from(ownership.vlans.contains(id)), 0).map_err(to_io)?;
        }
        let kernel = if ownership.kernel { KERNEL } else { 0 };
        let leaves = if self.leave.is_empty() { 0 } else { LEAVES };
        array::<u32>(ebpf, "settings")?.set(0, TOLD | kernel | leaves, 0).map_err(to_io)
    }
}

impl Rule for Program {
    fn set(&self, ownership: &Ownership) -> Result<(), PortError> {
        let mut state = self.state();
        if state.told.as_ref() == Some(ownership) {
            return Ok(());
        }
        let told = self.tell(&mut state, ownership);
        if told.is_err() {
            state.told = None;
        }
        told.map_err(failed(&self.port, "cannot tell the XDP program what is left to the kernel"))
    }

    fn left(&self) -> Left {
        let mut state = self.state();
        let mut sum = |which: u32| -> io::Result<u64> {
            let counts = PerCpuArray::<_, u64>::try_from(map(&mut state.ebpf, "counts")?).map_err(to_io)?;
            Ok(counts.get(&which, 0).map_err(to_io)?.iter().sum())
        };
        Left { by_rule: sum(LEFT).unwrap_or(0), unread: sum(UNBOUND).unwrap_or(0) }
    }
}

fn load(ebpf: &mut Ebpf) -> io::Result<()> {
    program(ebpf)?.load().map_err(to_io)
}

fn program(ebpf: &mut Ebpf) -> io::Result<&mut Xdp> {
    let program =
        ebpf.program_mut(PROGRAM).ok_or_else(|| io::Error::other("no such program in the object"))?;
    program.try_into().map_err(to_io)
}

fn map<'a>(ebpf: &'a mut Ebpf, name: &str) -> io::Result<&'a mut Map> {
    ebpf.map_mut(name).ok_or_else(|| io::Error::other(format!("no map {name:?} in the object")))
}

fn array<'a, V: aya::Pod>(ebpf: &'a mut Ebpf, name: &str) -> io::Result<Array<&'a mut MapData, V>> {
    Array::try_from(map(ebpf, name)?).map_err(to_io)
}

/// Writes down what is left to the kernel of what is ours; it does not change while the port is open.
fn set_leave(ebpf: &mut Ebpf, leave: &[Leave]) -> io::Result<()> {
    let mut protocols = BTreeMap::<u8, u32>::new();
    let mut map: HashMap<&mut MapData, u32, u32> =
        HashMap::try_from(self::map(ebpf, "ports")?).map_err(to_io)?;
    for leave in leave {
        match *leave {
            Leave::Protocol(protocol) => *protocols.entry(protocol).or_default() |= LEAVE_ALL,
            Leave::Port(protocol, port) => {
                *protocols.entry(protocol).or_default() |= LEAVE_PORTS;
                map.insert(u32::from(protocol) << 16 | u32::from(port), 1, 0).map_err(to_io)?;
            }
        }
    }
    let mut map = array::<u32>(ebpf, "protocols")?;
    protocols
        .into_iter()
        .try_for_each(|(protocol, rules)| map.set(u32::from(protocol), rules, 0).map_err(to_io))
}

/// An address as the program has it: four words as they lie in a packet; IPv4 as ::ffff:a.b.c.d.
fn words(address: IpAddr) -> [u32; 4] {
    let octets = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
    .octets();
    std::array::from_fn(|i| {
        u32::from_ne_bytes([octets[4 * i], octets[4 * i + 1], octets[4 * i + 2], octets[4 * i + 3]])
    })
}

/// One bit for each address's hash, as `who` in the program looks for it.
fn filter<'a>(hosts: impl Iterator<Item = &'a [u32; 4]>) -> [u64; FILTER_WORDS] {
    let mut bits = [0; FILTER_WORDS];
    for host in hosts {
        let mixed = host[0] ^ host[1] ^ host[2] ^ host[3];
        let hash = mixed.wrapping_mul(2_654_435_761) >> 19;
        bits[(hash >> 6) as usize % FILTER_WORDS] |= 1 << (hash & 63);
    }
    bits
}

/// Whether another program is there.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// The system's own error, where there is one at the bottom.
fn to_io<E: std::error::Error + Send + Sync + 'static>(error: E) -> io::Error {
    let mut at: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(cause) = at {
        if let Some(code) = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code);
        }
        at = cause.source();
    }
    io::Error::other(error)
}
