//! Memory nodes: made-up ones, and those of this machine.
#![allow(clippy::unwrap_used)] // a test may

use std::path::Path;
use tidemill_lookup::numa::{Copies, Node, Policy, Topology};

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
