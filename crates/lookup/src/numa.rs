//! Memory nodes (NUMA): which CPUs lie next to which memory, and having memory come from one of them.
//!
//! ```text
//! /sys/devices/system/node/node0/cpulist   0-15     worker 0 on CPU 2  -> node 0: packets, tables: copy 0
//! /sys/devices/system/node/node1/cpulist   16-31    worker 1 on CPU 18 -> node 1: packets, tables: copy 1
//! ```
//!
//! A load from the other node's memory takes about twice as long as one from the own (Zec 2019, table 2.1), which is what a
//! lookup in a large table consists of; copies of the tables on each node are his future work (section 3.7). The control
//! side makes every change in each copy, so they cost memory and time to update, and readers nothing.
//!
//! A machine with one node, and a kernel that knows none, has one copy, wherever memory comes from.
//!
//! This module is one of the named homes of `unsafe`: the system calls for memory policies.

use std::io;
use std::path::Path;

/// One memory node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number in the system.
    pub id: u32,
    /// The CPUs next to it.
    pub cpus: Vec<usize>,
}

/// The nodes of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// In order of their numbers; none if the system does not say.
    pub nodes: Vec<Node>,
}

impl Topology {
    /// What the kernel says under `sys` (`/sys`). What cannot be read is not there.
    pub fn read(sys: &Path) -> Self {
        let folder = sys.join("devices/system/node");
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let node = |name: &str| {
            let id = name.strip_prefix("node")?.parse().ok()?;
            let list = std::fs::read_to_string(folder.join(name).join("cpulist")).ok()?;
            Some(Node { id, cpus: cpu_list(list.trim()).ok()? })
        };
        let mut nodes: Vec<Node> =
            entries.filter_map(|entry| node(entry.file_name().to_str().unwrap_or_default())).collect();
        nodes.sort_by_key(|node| node.id);
        Topology { nodes }
    }

    /// The node that a CPU is next to.
    pub fn node_of(&self, cpu: usize) -> Option<u32> {
        self.nodes.iter().find(|node| node.cpus.contains(&cpu)).map(|node| node.id)
    }
}

/// The largest number of a CPU in a list.
const MAX_CPU: usize = 4095;

/// Reads CPUs as the kernel writes them: `2-5,8`. In their order, and as often as they are there.
///
/// # Errors
/// What is wrong with the list.
pub fn cpu_list(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim).filter(|_| !text.is_empty()) {
        let number = |text: &str| {
            let number = text.trim().parse::<usize>().ok().filter(|number| *number <= MAX_CPU);
            number.ok_or_else(|| format!("{part:?} is no CPU: give numbers up to {MAX_CPU}, as in 2-5,8"))
        };
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first {
            return Err(format!("{part:?}: give the lower CPU first"));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// Copies of what workers read: on which nodes, and which worker has which.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copies {
    /// The node of each copy. Empty: one copy, anywhere.
    nodes: Vec<u32>,
    /// The copy of each worker.
    of_worker: Vec<usize>,
}

impl Copies {
    /// One copy, anywhere, for all.
    pub fn one() -> Self {
        Self::default()
    }

    /// A copy for each node that a worker is on. A worker that is bound to no CPU, or to one whose node is not known, has
    /// the first.
    pub fn of(topology: &Topology, cpus: &[Option<usize>]) -> Self {
        if topology.nodes.len() < 2 {
            return Self::one();
        }
        let mut copies = Self::default();
        for cpu in cpus {
            let node = cpu.and_then(|cpu| topology.node_of(cpu));
            let known = |node: u32| copies.nodes.iter().position(|n| *n == node);
            let copy = match node {
                None => 0,
                Some(node) => known(node).unwrap_or_else(|| {
                    copies.nodes.push(node);
                    copies.nodes.len() - 1
                }),
            };
            copies.of_worker.push(copy);
        }
        copies
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.nodes.len().max(1)
    }

    /// The copy that a worker reads.
    pub fn of_worker(&self, worker: usize) -> usize {
        self.of_worker.get(worker).copied().unwrap_or(0)
    }

    /// The node that a copy is on, if it matters.
    pub fn node(&self, copy: usize) -> Option<u32> {
        self.nodes.get(copy).copied()
    }

    /// Does what makes or changes a copy: new memory that is touched meanwhile comes from its node.
    pub fn on<T>(&self, copy: usize, work: impl FnOnce() -> T) -> T {
        match self.node(copy) {
            // A node that has no memory left is no reason to fail: the kernel takes the next.
            Some(node) => {
                let _policy = Policy::prefer(node).ok();
                work()
            }
            None => work(),
        }
    }
}

/// `MPOL_PREFERRED` of linux/mempolicy.h: from this node, or the nearest that has memory.
const MPOL_PREFERRED: libc::c_int = 1;
/// Bits of a set of nodes.
const BITS: usize = 1024;
const WORD: usize = libc::c_ulong::BITS as usize;

type NodeSet = [libc::c_ulong; BITS / WORD];

/// This thread's policy for new memory, until it is dropped; then the one before is in force again.
#[derive(Debug)]
pub struct Policy {
    before: (libc::c_int, NodeSet),
}

impl Policy {
    /// New memory that this thread touches comes from `node`.
    ///
    /// # Errors
    /// There is no such node, or the kernel knows no nodes; the policy is as before then.
    pub fn prefer(node: u32) -> io::Result<Self> {
        let mut set: NodeSet = [0; BITS / WORD];
        let word = set.get_mut(node as usize / WORD).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node as usize % WORD);
        let before = policy()?;
        set_policy(MPOL_PREFERRED, &set)?;
        Ok(Policy { before })
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        // It was in force before, so it can be again.
        let _ = set_policy(self.before.0, &self.before.1);
    }
}

#[cfg(target_os = "linux")]
fn policy() -> io::Result<(libc::c_int, NodeSet)> {
    let (mut mode, mut set): (libc::c_int, NodeSet) = (0, [0; BITS / WORD]);
    let (mode_at, set_at) = (std::ptr::from_mut(&mut mode), set.as_mut_ptr());
    // SAFETY: the kernel writes one `int`, and `BITS` bits at most, of which `set` has so many.
    let result = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, mode_at, set_at, BITS as libc::c_ulong, 0_usize, 0_usize)
    };
    if result == 0 { Ok((mode, set)) } else { Err(io::Error::last_os_error()) }
}

#[cfg(target_os = "linux")]
fn set_policy(mode: libc::c_int, set: &NodeSet) -> io::Result<()> {
    // The default policy has no set. The kernel takes one bit less than it is told.
    let (set, bits) = if set.iter().all(|word| *word == 0) {
        (std::ptr::null(), 0)
    } else {
        (set.as_ptr(), BITS as libc::c_ulong + 1)
    };
    // SAFETY: the kernel reads `bits` bits of `set`, which has so many.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, set, bits) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn policy() -> io::Result<(libc::c_int, NodeSet)> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn set_policy(_: libc::c_int, _: &NodeSet) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpu_list("2-5,8"), Ok(vec![2, 3, 4, 5, 8]));
        assert_eq!(cpu_list(" 3, 1 "), Ok(vec![3, 1]));
        assert_eq!(cpu_list(""), Ok(vec![]));
        for (text, part) in
            [("5-2", "\"5-2\""), ("1,x", "\"x\""), ("1,,2", "\"\""), ("0-99999999", "0-99999999")]
        {
            let error = cpu_list(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn workers_have_the_copy_of_their_node() {
        let node = |id, cpus: &str| Node { id, cpus: cpu_list(cpus).unwrap() };
        let two = Topology { nodes: vec![node(0, "0-3"), node(4, "4-7")] };
        let copies = Copies::of(&two, &[Some(5), Some(1), Some(4), None, Some(99)]);
        assert_eq!((copies.count(), copies.node(0), copies.node(1)), (2, Some(4), Some(0)));
        let of: Vec<_> = (0..6).map(|worker| copies.of_worker(worker)).collect();
        assert_eq!(of, [0, 1, 0, 0, 0, 0]);
        // Workers of one node only: a copy there, and none elsewhere.
        assert_eq!(Copies::of(&two, &[Some(4), Some(6)]).nodes, [4]);
        for topology in [Topology::default(), Topology { nodes: vec![node(0, "0-3")] }] {
            let copies = Copies::of(&topology, &[Some(0), Some(1)]);
            assert_eq!((copies.clone(), copies.count(), copies.node(0)), (Copies::one(), 1, None));
        }
    }
}
