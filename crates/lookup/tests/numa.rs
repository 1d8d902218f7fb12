//! Memory nodes: made-up ones, and those of this machine.
#![allow(clippy::unwrap_used)] // a test may

use std::collections::BTreeMap;
use std::path::Path;
use tidemill_lookup::mem::Region;
use tidemill_lookup::numa::{Copies, Node, Policy, Topology, cpu_list};

#[test]
fn a_made_up_machine_is_read() {
    let sys = std::env::temp_dir().join(format!("tidemill-numa-{}", std::process::id()));
    let folder = sys.join("devices/system/node");
    for (name, cpus) in
        [("node0", "0-1,4\n"), ("node10", "2-3\n"), ("node2", "5\n"), ("nodes", "9"), ("node3", "x")]
    {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        std::fs::write(folder.join(name).join("cpulist"), cpus).unwrap();
    }
    std::fs::write(folder.join("online"), "0,2,10\n").unwrap();
    let topology = Topology::read(&sys);
    std::fs::remove_dir_all(&sys).unwrap();
    let node = |id, cpus: &[usize]| Node { id, cpus: cpus.to_vec() };
    assert_eq!(topology.nodes, [node(0, &[0, 1, 4]), node(2, &[5]), node(10, &[2, 3])]);
    assert_eq!((topology.node_of(3), topology.node_of(9)), (Some(10), None));
    assert_eq!(Topology::read(Path::new("/nowhere")), Topology::default());
}

#[test]
fn a_policy_ends_with_its_work() {
    let Some(node) = Topology::read(Path::new("/sys")).nodes.first().map(|node| node.id) else {
        return println!("skipped: a_policy_ends_with_its_work (this kernel knows no memory nodes)");
    };
    let Ok(outer) = Policy::prefer(node) else {
        return println!("skipped: a_policy_ends_with_its_work (memory policies are not ours to set)");
    };
    let Some(before) = status() else {
        return println!(
            "skipped: a_policy_ends_with_its_work (this kernel does not tell the policy of a mapping)"
        );
    };
    assert!(before.starts_with("prefer"), "{before}");
    drop(outer);
    let outside = status();
    let outer = Policy::prefer(node).unwrap();
    {
        let _inner = Policy::prefer(node).unwrap();
        assert_eq!(status().as_ref(), Some(&before));
    }
    assert_eq!(status(), Some(before), "the policy before is in force again");
    drop(outer);
    assert_eq!(status(), outside, "and the one before that");
    assert!(Policy::prefer(1023).is_err() && Policy::prefer(u32::MAX).is_err(), "no machine has these");
    // A node that is not there does not keep the work from being done.
    let topology =
        Topology { nodes: vec![Node { id: 1022, cpus: vec![0] }, Node { id: 1023, cpus: vec![1] }] };
    assert_eq!(Copies::of(&topology, &[Some(1)]).on(0, || vec![7_u8; 100_000].len()), 100_000);
}

/// The policy under which this thread's first mapping is, if the kernel tells.
fn status() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/thread-self/numa_maps").ok()?;
    Some(maps.lines().next()?.split(' ').nth(1)?.to_owned())
}

#[test]
fn pages_lie_on_the_node_that_they_were_asked_of() {
    const LEN: usize = 8 << 20;
    let memory = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    let memory = cpu_list(memory.trim()).unwrap_or_default();
    let is_ours = |node: &Node| memory.contains(&(node.id as usize)) && Policy::prefer(node.id).is_ok();
    let nodes = Topology::read(Path::new("/sys")).nodes;
    let mut seen = 0;
    for id in nodes.iter().filter(|&node| is_ours(node)).map(|node| node.id) {
        // Beside one that is not there: on a machine with one node nothing is asked of it.
        let node = |id, cpu| Node { id, cpus: vec![cpu] };
        let copies = Copies::of(&Topology { nodes: vec![node(id, 0), node(1023, 1)] }, &[Some(0)]);
        assert_eq!(copies.node(0), Some(id));
        let region = copies.on(0, || Region::new(LEN)).unwrap();
        let Some(bytes) = bytes_by_node(region.as_ptr().addr()) else { break };
        assert!(bytes.len() == 1 && bytes.get(&id).is_some_and(|bytes| *bytes >= LEN), "{id}: {bytes:?}");
        seen += 1;
    }
    if seen == 0 {
        println!(
            "skipped: pages_lie_on_the_node_that_they_were_asked_of (this kernel does not tell where pages lie)"
        );
    }
}

/// How much of the mapping at an address is in memory, on which nodes, if the kernel tells.
fn bytes_by_node(address: usize) -> Option<BTreeMap<u32, usize>> {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
    let begins_at = |line: &str| usize::from_str_radix(line.split(' ').next()?, 16).ok();
    let line = maps.lines().rev().find(|line| begins_at(line).is_some_and(|start| start <= address))?;
    let size = |word: &str| word.strip_prefix("kernelpagesize_kB=")?.parse::<usize>().ok();
    let page = line.split(' ').find_map(size)? << 10;
    let of_node = |word: &str| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((node.parse::<u32>().ok()?, pages.parse::<usize>().ok()? * page))
    };
    Some(line.split(' ').filter_map(of_node).collect())
}
