//! Ports on network interfaces through AF_XDP: packets go from a driver into our memory, and from one interface to
//! another through one region of it with no copy between; what is the kernel's stays the kernel's.
//!
//! ```text
//!  interface -> XDP program: whose? --the kernel's--> kernel's stack --ARP, ND--> ear (a packet socket)
//!                              |ours                                               |
//!              Memory: one region, registered once                                 v
//!   queue of a                                            queue of another        worker
//!   fill ring  <- lend - Pool::take                       fill ring ...
//!   receive ring -> adopt -> Packet ------- moves ------> lend -> transmit ring
//!                            Pool::free <- returned ----- completion ring
//! ```
//! **Parts.** `program.rs`: the program and the rule in its maps; `socket.rs`: a socket on one queue, and how it comes to its
//! UMEM; `ring.rs`: its four rings; `port.rs`: one queue as a [`Port`](crate::Port); `partial.rs`: checksums that local senders
//! left undone; `sys.rs`: system calls; `hash.rs`: by what a card spreads packets. `unsafe` is in `socket.rs`, `ring.rs`, `sys.rs`, `port.rs`.
//!
//! **Modes.** The program runs in the driver (`native`), or behind it (`generic`: any device, slower); in the driver, packets
//! may be written into our memory by the device itself (`zero-copy`), or be copied there. `auto` takes the best there is and
//! says which it was. `zero-copy` has run on no driver that has it: virtual links refuse it, and `auto` copies there.
//!
//! **Several queues** are the device's, and it chooses among them. Where a role needs packets there by their addresses alone, the device is asked how it does it
//! (ETHTOOL_GRXFH), and the notes say what to do where it looks at ports, too (`ethtool -N`), or does not answer.
//!
//! **Whose is it?** ([`crate::rule`], `bpf/xsk.bpf.c`.) Left to the kernel is what is sent to its addresses; where it owns
//! the interface also what is not IP, and what goes to groups, to everybody or to link-local addresses; and what `leave`
//! names, of what is sent to any address of this host or to a group, by protocol or by source or destination port. Transit
//! is always ours, whatever its ports. So are malformed frames: the router counts them. ICMP errors to an address of ours go
//! where the packet that they are about would have come from: to the kernel if `leave` has it, so that its TCP learns a path's
//! MTU. What was left is counted ([`crate::rule::Left`]).
//!
//! Limits: of a fragmented packet only the first piece has ports; behind IPv6 extension headers `leave` does not look; it works
//! without a VLAN tag, and in VLANs as far as no neighbors need be found. DHCP answers a client of the kernel's at an address
//! that nobody has yet: `leave = ["udp/68"]` takes such answers along on a link of the kernel's, of what is transit there too.
//!
//! **The ear.** Where the kernel owns the interface, or where something is left to it, both of us have to find neighbors.
//! Then the answers go to the kernel, and a packet socket hears ARP and neighbor discovery along with it. It counts as
//! received, as everything from a port. The socket also makes the device let all multicast through.
//!
//! **Frames** belong to one side at a time: one in a ring waits as a packet in its queue's [`Lent`](tidemill_burst::Lent) table;
//! the kernel gives back an address, and an address that was not lent is an error, never a packet. The receive side of a
//! queue holds `rx_ring` frames at most, however they are spread over its rings, and takes none of the last eighth of the
//! pool, so that there is something to send with; [`open`] refuses rings that would take more than three quarters of a
//! worker's frames. A ring that ran dry is filled again when frames are back.
//!
//! **The books.** What the kernel had no frame or no room for counts as received and as dropped: `no-frames` if the pool
//! had none for the fill ring, `rx-ring-full` if the worker was too slow, `frame-too-small` if it was too long (its bytes
//! are unknown). What was handed to the kernel counts as sent when it gives the frame back; what the device refused
//! (no carrier, a full queue of a virtual peer) is `tx-failed`. The kernel's counters are read every 10 ms.
//!
//! **Time.** Packets carry no timestamp: the kernel writes none into these rings. Captures (`tidemill capture`, `tap`) give them the time
//! of the burst that they came with.
//!
//! **Coming and going.** A device that is removed, renamed, or moved away makes the port `lost`: its frames come back, what
//! waited to be sent is `tx-failed`, and every 100 ms a queue looks for the interface's name. So does one that is made again
//! meanwhile, also with the same number: link and socket know. When it is there the program
//! is attached again, its maps as they were, and the port is `found`. It must be one that could have been opened in the first
//! place: MTU, queues, nobody else's program or socket on it; what is in the way is tried again and told
//! ([`Left::hindered`](crate::Left::hindered)). At the start, a queue or an interface that a process that has just
//! ended still holds is waited for (2 s). The program goes with this process, however that ends.
//!
//! **Behind another program** ([`Options::front`]): an interface takes one XDP program. One that decides first, such as the
//! mitigator's filter, is attached in this port's place, and goes on to the port's program with what it lets through.
//!
//! **Virtual links** (veth): a local sender leaves checksums to its card; they are completed here (`partial.rs`). With the
//! program in the driver the kernel switches segmentation off on the other end by itself; in generic mode it does not,
//! and merged or unsegmented packets do not fit in frames: `ethtool -K DEV gro off`, `ethtool -K PEER tso off gso off`.
//!
//! **VLAN tags** that a card takes off lie beside the packet, where neither the program nor the socket finds them: the packet looks
//! as if it had none. `ethtool -K DEV rxvlan off` leaves them in it; the port says so where that is on. On a virtual link it is the
//! sender that leaves tags to its card: `ethtool -K PEER txvlan off`.
//!
//! **Busy polling** (`busy_poll_us`) needs, to be of use, interrupts that are put off:
//! `echo 2 > /sys/class/net/DEV/napi_defer_hard_irqs; echo 200000 > /sys/class/net/DEV/gro_flush_timeout`. Since Linux 6.13 the driver has to
//! tell the kernel what serves which queue (`netif_queue_set_napi`); where it does not (veth), nothing is polled, and the notes say so.
//! Where something is polled a worker that sleeps looks every `run.nap_us`, for nobody wakes it in time.

mod hash;
mod partial;
mod port;
mod program;
mod ring;
mod socket;
mod sys;

pub(crate) use hash::remark;
pub use partial::complete as complete_checksum;
pub use port::XdpPort;

use crate::rule::Rule;
use crate::spec::{Leave, Mode};
use crate::{Device, Port, PortError, SpreadBy};
use program::Program;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tidemill_bpf::{Front, Kernel};
use tidemill_burst::{DATA_START, Memory};

/// How an interface is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where in the kernel packets are taken.
    pub mode: Mode,
    /// Frames that the receive side of each queue holds; a power of two, 64 to 32768.
    pub rx_ring: usize,
    /// Packets that wait in each queue to be sent; a power of two, 64 to 32768.
    pub tx_ring: usize,
    /// Microseconds of busy polling in each call; 0 is none.
    pub busy_poll_us: u32,
    /// What is left to the kernel of what is ours.
    pub leave: Vec<Leave>,
    /// Receive frames to any address.
    pub promiscuous: bool,
    /// Use one registration of packet memory for all sockets on it, where the kernel allows.
    pub share: bool,
    /// By what packets are to be spread over several queues. The device does that; where it does otherwise, the notes say so.
    pub spread_by: SpreadBy,
    /// A program that stands on the interface in front of this port's, and decides first.
    pub front: Option<Arc<Front>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            mode: Mode::Auto,
            rx_ring: 2048,
            tx_ring: 2048,
            busy_poll_us: 0,
            leave: Vec::new(),
            promiscuous: false,
            share: true,
            spread_by: SpreadBy::default(),
            front: None,
        }
    }
}

/// An interface that is open.
pub struct Open {
    /// Its queues.
    pub queues: Vec<XdpPort>,
    /// What is left to the kernel. It is told nothing yet: everything is.
    pub rule: Arc<dyn Rule>,
    /// How it was opened, and what the operator should know.
    pub notes: Vec<String>,
}

/// How long a queue or an interface that is taken may stay so: what has just ended holds it a moment longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest Ethernet header in front of an IP packet: with a VLAN tag.
const ETHERNET: usize = 18;

fn failed(port: &str, action: &'static str) -> impl FnOnce(io::Error) -> PortError {
    let port = port.to_owned();
    move |source| PortError::Device { port, action, source }
}

/// A port's program without an interface, that is told the rule as a port's is and asked about single frames; for tests.
pub struct Alone(Program);

impl Alone {
    /// Loads the program, with what is left to the kernel.
    ///
    /// # Errors
    /// The process lacks rights; the kernel is too old.
    pub fn load(leave: &[Leave]) -> Result<Self, PortError> {
        let options = Options { leave: leave.to_vec(), ..Options::default() };
        Program::load("alone", "none", 1, &options).map(Alone)
    }

    /// Its rule. What is ours counts as unread, for no socket reads it.
    pub fn rule(&self) -> &dyn Rule {
        &self.0
    }

    /// What it does with a frame, as XDP numbers it.
    ///
    /// # Errors
    /// The kernel refuses: a frame shorter than 14 bytes, or longer than a page has room for.
    pub fn run(&self, frame: &[u8]) -> io::Result<u32> {
        self.0.run(frame)
    }
}

/// Finds what is wrong with the options without opening anything.
///
/// # Errors
/// A ring that is no power of two or out of range, more queues or ports to leave than there can be.
pub fn check(name: &str, queues: usize, options: &Options) -> Result<(), PortError> {
    let ring = |size: usize| size.is_power_of_two() && (64..=32768).contains(&size);
    let ports = options.leave.iter().filter(|leave| matches!(leave, Leave::Port(..))).count();
    let what = if !(1..=program::MAX_QUEUES).contains(&queues) {
        format!("queues = {queues}: give 1 to {}", program::MAX_QUEUES)
    } else if !ring(options.rx_ring) {
        format!("rx_ring = {}: give a power of two from 64 to 32768", options.rx_ring)
    } else if !ring(options.tx_ring) {
        format!("tx_ring = {}: give a power of two from 64 to 32768", options.tx_ring)
    } else if options.busy_poll_us > 1_000_000 {
        format!("busy_poll_us = {}: give 0 to 1000000", options.busy_poll_us)
    } else if ports > program::MAX_PORTS {
        format!("leave: {ports} ports: {} at most", program::MAX_PORTS)
    } else {
        return Ok(());
    };
    Err(PortError::config(name, what))
}

/// Finds what of a port does not fit the workers' packet memory, without opening anything: worker w is to have `frames[w]` frames of `frame_size` bytes,
/// of which receive rings hold `held[w]` already. This port's are added to that.
///
/// # Errors
/// Frames of a size that AF_XDP does not take; rings that would leave a worker too few of them to work with.
pub(crate) fn check_frames(
    name: &str,
    options: &Options,
    frames: &[usize],
    frame_size: usize,
    held: &mut [usize],
) -> Result<(), PortError> {
    check_frame_size(name, frame_size)?;
    for (held, frames) in held.iter_mut().zip(frames) {
        *held += options.rx_ring;
        if *held > frames / 4 * 3 {
            let what = format!(
                "with rx_ring = {}, the receive rings of this worker's af_xdp ports would hold {held} of its {frames} frames, and \
                 too few would be left to work with: set memory.frames = {} or more, or smaller rings",
                options.rx_ring,
                (*held * 2).next_power_of_two()
            );
            return Err(PortError::config(name, what));
        }
    }
    Ok(())
}

/// Opens `queues` queues of a network interface; queue w takes its frames from `memory[w]`, whose frames are 2048 or
/// 4096 bytes. Until its rule is told something, everything still goes to the kernel.
///
/// # Errors
/// There is no such device; it has other queues than are asked for; its MTU or the memory's frames do not fit; the process
/// lacks rights; the driver lacks the mode; another program or socket is there.
pub fn open(
    name: &str,
    interface: &str,
    queues: usize,
    options: &Options,
    memory: &[Arc<Memory>],
) -> Result<Open, PortError> {
    check(name, queues, options)?;
    let all = memory;
    let Some(memory) = all.get(..queues) else {
        return Err(PortError::config(name, format!("no packet memory for {queues} queues")));
    };
    // What the configuration has wrong comes before what the device has.
    for (worker, region) in memory.iter().enumerate() {
        // Workers on the same region have equal shares of it.
        let sharing = all.iter().filter(|other| Arc::ptr_eq(other, region)).count();
        let frames = region.frames() / sharing.max(1);
        let mut held = socket::frames_in_rings(region, worker as u32);
        check_frames(name, options, &[frames], region.frame_size(), std::slice::from_mut(&mut held))?;
    }
    let device = device(name, interface)?;
    for memory in memory {
        check_memory(name, &device, memory)?;
    }
    check_queues(name, interface, queues)?;
    let program = Arc::new(Program::load(name, interface, queues, options)?);
    let options = Arc::new(options.clone());
    let mut ports = Vec::with_capacity(queues);
    for (queue, memory) in memory.iter().enumerate() {
        let mut port = XdpPort::new(name, interface, queue as u32, &options, &program, memory)?;
        port.open(&device, PATIENCE)?;
        ports.push(port);
    }
    let notes = notes(name, interface, &options, &ports);
    Ok(Open { queues: ports, rule: program, notes })
}

/// The device of this name, in words of the port's.
fn device(name: &str, interface: &str) -> Result<Device, PortError> {
    crate::device(interface).map_err(|error| match error {
        PortError::Config { what, .. } => PortError::config(name, what),
        other => other,
    })
}

/// The longest frame that `memory` has room for: the kernel leaves 256 bytes in front of what it writes, as we do.
fn longest(memory: &Memory) -> usize {
    memory.frame_size() - DATA_START
}

fn check_frame_size(name: &str, frame_size: usize) -> Result<(), PortError> {
    if matches!(frame_size, 2048 | 4096) {
        return Ok(());
    }
    let what = format!(
        "memory.frame_size = {frame_size}: AF_XDP takes frames of 2048 or 4096 bytes: set one of them"
    );
    Err(PortError::config(name, what))
}

fn check_memory(name: &str, device: &Device, memory: &Memory) -> Result<(), PortError> {
    let frame_size = memory.frame_size();
    check_frame_size(name, frame_size)?;
    let mtu = longest(memory) - ETHERNET;
    if device.mtu <= mtu {
        return Ok(());
    }
    let larger = 4096 - DATA_START - ETHERNET;
    let way =
        if device.mtu <= larger { "set memory.frame_size = 4096, or ".to_owned() } else { String::new() };
    let what = format!(
        "the MTU of {0} is {1}, and packets of it do not fit memory.frame_size = {frame_size}: {way}ip link set dev {0} mtu {mtu}",
        device.name, device.mtu
    );
    Err(PortError::config(name, what))
}

/// What arrives on a queue that nobody reads would pass the router by.
fn check_queues(name: &str, interface: &str, queues: usize) -> Result<(), PortError> {
    let Some(there) = sys::queues(interface).map(|there| there as usize).filter(|there| *there != queues)
    else {
        return Ok(());
    };
    let what = if queues < there {
        format!(
            "{interface} has {there} queues and {queues} would be read: ethtool -L {interface} combined {queues} (or rx {queues} \
             tx {queues}), or run.workers = {there}"
        )
    } else {
        format!(
            "{interface} has {there} queues, not {queues}: set queues = 1 (the first worker then spreads flows over all), or \
             ethtool -L {interface} combined {queues} (or rx {queues} tx {queues}), if it can"
        )
    };
    Err(PortError::config(name, what))
}

/// Whether a device is a link to this host itself, whose senders leave checksums undone.
fn is_virtual(interface: &str) -> bool {
    matches!(sys::driver(interface).as_deref(), Some("veth" | "tun"))
}

/// The first kernel that goes by what a driver says of its queues when it polls for a socket; older ones go by the packets that have come.
const TOLD: Kernel = Kernel(6, 13);

fn notes(name: &str, interface: &str, options: &Options, ports: &[XdpPort]) -> Vec<String> {
    let mut line = format!("port {name}: af_xdp");
    if let Some(port) = ports.first() {
        line += if port.is_native() { ", native" } else { ", generic" };
        line += if ports.iter().all(XdpPort::is_zero_copy) { ", zero-copy" } else { ", copy" };
    }
    line += &format!(", {} queue{}, need-wakeup", ports.len(), if ports.len() == 1 { "" } else { "s" });
    if ports.iter().any(XdpPort::shares) {
        line += ", packet memory registered together";
    }
    // What the sockets have, which is what was asked for.
    let polls_us = ports.iter().map(XdpPort::busy_poll_us).min().unwrap_or(0);
    if polls_us > 0 {
        line += &format!(", busy polling for {polls_us} us");
    }
    if ports.len() > 1 {
        line += ", flows as the device spreads them: the two directions of one may be on two workers";
    }
    let mut notes = vec![line];
    let is_told = Kernel::running().is_some_and(|running| running >= TOLD);
    if options.busy_poll_us > 0 && is_told && !ports.iter().all(XdpPort::is_polled) {
        notes.push(format!(
            "port {name}: busy_poll_us changes nothing here: Linux {TOLD} and newer ask a driver what serves its queues, and {interface}'s \
             does not say: leave it at 0, and put no interrupts off"
        ));
    }
    notes.extend(remark(name, interface, ports.len(), options.spread_by));
    for (queue, port) in ports.iter().enumerate() {
        let tries = port.counters().taken_by_others;
        if tries > 0 {
            notes.push(format!(
                "port {name}: queue {queue} of {interface} was taken by another AF_XDP socket at first: it was let go after {tries} \
                 tries to bind to it, {} ms apart",
                socket::AGAIN.as_millis()
            ));
        }
    }
    if !is_virtual(interface) && sys::takes_tags_off(interface) {
        notes.push(format!(
            "port {name}: warning: {interface} takes VLAN tags off what it receives, and tagged packets look like untagged ones here: \
             ethtool -K {interface} rxvlan off"
        ));
    }
    if ports.iter().any(|port| !port.is_native()) {
        if sys::merges(interface) {
            notes.push(format!(
                "port {name}: {interface} merges packets that it receives, and in generic mode these do not fit in frames and are \
                 dropped: ethtool -K {interface} gro off"
            ));
        }
        if is_virtual(interface) {
            notes.push(format!(
                "port {name}: in generic mode, senders on the other end of {interface} must not leave packets uncut: ethtool -K PEER \
                 tso off gso off"
            ));
        }
    }
    notes
}
