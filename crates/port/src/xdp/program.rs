//! The program on an interface, and the rule in its maps: `bpf/xsk.bpf.c`, made into an object that is part of this one.
//!
//! All queues of a port share it. It is loaded once; when the interface went away and is back, it is attached to the new
//! one, with its maps as they are. It goes with its link, that is with this process, however that ends: then the kernel
//! gets everything again. Where another program stands in front (`Options::front`), that one is attached, and goes on to
//! this one with what it does not decide.

use super::socket::{self, TAKEN};
use super::{Options, failed};
use crate::PortError;
use crate::rule::{Left, Ownership, Rule};
use crate::spec::{Leave, Mode};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_bpf::{Attached, Attachment, BpfError, Front, Kernel, Object, Source, to_io};

/// The compiled program, at an address that its reader can work with.
static SOURCE: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../bpf/xsk.bpf.o"),
    program: "tidemill_xsk",
    minimum: Kernel(5, 9),
    layout: 1,
    shared: &[],
};

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
pub(super) const MAX_PORTS: usize = 1024;
/// Queues that the map of sockets has room for.
pub(super) const MAX_QUEUES: usize = 256;

/// The program of one port.
pub(super) struct Program {
    port: String,
    interface: String,
    mode: Mode,
    leave: Vec<Leave>,
    queues: usize,
    /// A program that is on the interface instead, and goes on to this one.
    front: Option<Arc<Front>>,
    state: Mutex<State>,
}

struct State {
    /// Before the object: the program leaves the interface first.
    attachment: Option<Attachment>,
    object: Object,
    /// Those that are not done.
    queues: usize,
    /// What the maps have of addresses and VLANs, also where telling them failed halfway.
    hosts: BTreeMap<[u32; 4], u32>,
    vlans: BTreeSet<u16>,
    told: Option<Ownership>,
    /// What keeps queues from the device that is there.
    hindered: BTreeMap<u32, PortError>,
}

/// A program's error, in words of the port's.
fn at(port: &str) -> impl FnOnce(BpfError) -> PortError {
    let port = port.to_owned();
    move |error| match error {
        BpfError::System { action, source } => PortError::Device { port, action, source },
        BpfError::Refused(what) => PortError::Config { port, what },
    }
}

impl Program {
    /// Loads the program for so many queues, with what is left to the kernel.
    pub(super) fn load(
        port: &str,
        interface: &str,
        queues: usize,
        options: &Options,
    ) -> Result<Self, PortError> {
        let object = Object::load(&SOURCE, &[], None).map_err(at(port))?;
        let (hosts, vlans, hindered) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let state = State { attachment: None, object, queues, hosts, vlans, told: None, hindered };
        Ok(Program {
            port: port.into(),
            interface: interface.into(),
            mode: options.mode,
            leave: options.leave.clone(),
            queues,
            front: options.front.clone(),
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the program on the device `index`, unless it is there. Another one that is there is waited for.
    pub(super) fn attach(&self, index: u32, patience: Duration) -> Result<Attached, PortError> {
        let mut state = self.state();
        if let Some(front) = &self.front {
            return self.attach_behind(front, &state.object, index, patience);
        }
        if let Some(attachment) = &state.attachment
            && attachment.attached().index == index
            && !attachment.is_gone()
        {
            return Ok(attachment.attached());
        }
        // A link to a device that is gone holds nothing any more, whatever number the next one has.
        state.attachment = None;
        let mode = match self.mode {
            Mode::Auto => tidemill_bpf::Mode::Auto,
            Mode::Native | Mode::ZeroCopy => tidemill_bpf::Mode::Native,
            Mode::Generic => tidemill_bpf::Mode::Generic,
        };
        let attachment = Attachment::attach(&state.object, &self.interface, index, mode, patience, None)
            .map_err(at(&self.port))?;
        let attached = attachment.attached();
        state.attachment = Some(attachment);
        Ok(attached)
    }

    /// The program in front goes onto the device, and this one behind it.
    fn attach_behind(
        &self,
        front: &Front,
        object: &Object,
        index: u32,
        patience: Duration,
    ) -> Result<Attached, PortError> {
        let program = object.program_fd().map_err(at(&self.port))?;
        front.set_next(Some(&program)).map_err(at(&self.port))?;
        let attached = front.attach(&self.interface, index, patience).map_err(at(&self.port))?;
        let fits = match self.mode {
            Mode::Auto => true,
            Mode::Native | Mode::ZeroCopy => attached.native,
            Mode::Generic => !attached.native,
        };
        if fits {
            return Ok(attached);
        }
        let there = if attached.native { "native" } else { "generic" };
        Err(PortError::config(
            &self.port,
            format!("the XDP program in front runs in {there} mode: set mode = \"auto\""),
        ))
    }

    /// What the program does with a frame, as XDP numbers it, without an interface.
    pub(super) fn run(&self, frame: &[u8]) -> io::Result<u32> {
        self.state().object.run(frame, 1).map(|verdict| verdict.action)
    }

    /// The port's queues.
    pub(super) fn queues(&self) -> usize {
        self.queues
    }

    /// What keeps a queue from the device that is there, or that nothing does.
    pub(super) fn hinder(&self, queue: u32, by: Option<PortError>) {
        let mut state = self.state();
        match by {
            Some(error) => state.hindered.insert(queue, error),
            None => state.hindered.remove(&queue),
        };
    }

    /// Sends a queue's packets to a socket.
    pub(super) fn insert(&self, queue: u32, socket: &OwnedFd) -> Result<(), PortError> {
        let mut state = self.state();
        let inserted = (state.object.sockets("sockets"))
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
        state.attachment = None;
        if let Some(front) = &self.front {
            // Without it, what is left goes to the kernel, as it does when this program's sockets are gone.
            let _ = front.set_next(None);
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
        let object = &mut state.object;
        if before.is_none() {
            set_leave(object, &self.leave)?;
        }
        // What is new can be found before anybody looks for it, and what is old until nobody does.
        let mut map = object.table::<[u32; 4], u32>("hosts")?;
        for (host, value) in &hosts {
            if state.hosts.get(host) != Some(value) {
                map.insert(host, value)?;
                state.hosts.insert(*host, *value);
            }
        }
        object.array::<[u64; FILTER_WORDS]>("filter")?.set(0, filter(hosts.keys()), 0).map_err(to_io)?;
        let mut map = object.table::<[u32; 4], u32>("hosts")?;
        let gone: Vec<_> = state.hosts.keys().filter(|host| !hosts.contains_key(*host)).copied().collect();
        for host in &gone {
            map.remove(host)?;
            state.hosts.remove(host);
        }
        let mut vlans = object.array::<u32>("vlans")?;
        let changed: Vec<u16> = state.vlans.symmetric_difference(&ownership.vlans).copied().collect();
        for id in changed {
            let is_ours = ownership.vlans.contains(&id);
            vlans.set(u32::from(id), u32::from(is_ours), 0).map_err(to_io)?;
            if is_ours {
                state.vlans.insert(id);
            } else {
                state.vlans.remove(&id);
            }
        }
        let kernel = if ownership.kernel { KERNEL } else { 0 };
        let leaves = if self.leave.is_empty() { 0 } else { LEAVES };
        object.array::<u32>("settings")?.set(0, TOLD | kernel | leaves, 0).map_err(to_io)
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
        let state = self.state();
        let sum = |which: u32| state.object.sum("counts", which).unwrap_or(0);
        let (by_rule, unread) = (sum(LEFT), sum(UNBOUND));
        let hindered = state.hindered.first_key_value().map(|(queue, error)| Hindrance::of(*queue, error));
        // Workers want the lock, and who has a queue is not found at once.
        drop(state);
        Left { by_rule, unread, hindered: hindered.map(Hindrance::text) }
    }
}

/// What keeps a queue from a device.
enum Hindrance {
    /// Another socket has this queue.
    Taken(u32),
    Other(String),
}

impl Hindrance {
    fn of(queue: u32, error: &PortError) -> Self {
        match error {
            PortError::Device { action, .. } if *action == TAKEN => Hindrance::Taken(queue),
            PortError::Device { action, source, .. } => Hindrance::Other(format!("{action}: {source}")),
            PortError::Config { what, .. } => Hindrance::Other(what.clone()),
            other => Hindrance::Other(other.to_string()),
        }
    }

    fn text(self) -> String {
        match self {
            Hindrance::Taken(queue) => {
                format!("queue {queue} {TAKEN} ({}): stop that program", socket::who())
            }
            Hindrance::Other(text) => text,
        }
    }
}

/// Writes down what is left to the kernel of what is ours; it does not change while the port is open.
fn set_leave(object: &mut Object, leave: &[Leave]) -> io::Result<()> {
    let mut protocols = BTreeMap::<u8, u32>::new();
    let mut map = object.table::<u32, u32>("ports")?;
    for leave in leave {
        match *leave {
            Leave::Protocol(protocol) => *protocols.entry(protocol).or_default() |= LEAVE_ALL,
            Leave::Port(protocol, port) => {
                *protocols.entry(protocol).or_default() |= LEAVE_PORTS;
                map.insert(&(u32::from(protocol) << 16 | u32::from(port)), &1)?;
            }
        }
    }
    let mut map = object.array::<u32>("protocols")?;
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
