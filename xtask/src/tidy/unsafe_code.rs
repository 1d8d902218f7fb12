//! Where `unsafe` may live. The list is the whole truth: a file that is not on it has none, and a crate without any file
//! on it forbids it to the compiler.

use super::{File, source};

/// Files, and folders (with a final `/`), that may hold `unsafe`, each with what for.
const HOMES: &[(&str, &str)] = &[
    ("crates/lookup/src/publish.rs", "roots: pointers shared between threads"),
    ("crates/lookup/src/prefetch.rs", "prefetch instructions"),
    ("crates/lookup/src/cycles.rs", "the time stamp counter"),
    ("crates/lookup/src/mem.rs", "huge-page memory"),
    ("crates/lookup/src/mem/array.rs", "arrays that grow, on pages of their own"),
    ("crates/lookup/src/numa.rs", "memory policies"),
    ("crates/lookup/src/gather.rs", "SIMD gathers, as a measure"),
    ("crates/lookup/src/drive/slots.rs", "futures pinned in an array"),
    ("crates/lookup/tests/common/allocations.rs", "an allocator that counts"),
    ("crates/classify/src/cache/simd.rs", "SIMD loads"),
    ("crates/classify/src/cross/simd.rs", "SIMD loads"),
    ("crates/classify/src/tuple/simd.rs", "SIMD gathers"),
    ("crates/flow/src/flowtable/group.rs", "SIMD loads of tags and keys"),
    ("crates/flow/src/simd.rs", "SIMD comparisons"),
    ("crates/flowprog/examples/rate.rs", "another library's machine code, to compare with"),
    ("crates/flowprog/src/jit/code.rs", "machine code that is made and called"),
    ("crates/lpm/src/gather.rs", "SIMD gathers"),
    ("crates/lpm/src/cuvpp/simd.rs", "SIMD loads and comparisons"),
    ("crates/lpm/src/dir24/simd.rs", "SIMD gathers"),
    ("crates/lpm/src/dxr/simd/", "SIMD gathers"),
    ("crates/lpm/src/poptrie/simd.rs", "SIMD gathers"),
    ("crates/lpm/src/popdir/simd/", "SIMD gathers"),
    ("crates/lpm/src/rangetrie/simd.rs", "SIMD comparisons"),
    ("crates/lpm/src/lulea/simd.rs", "SIMD gathers"),
    ("crates/lpm/src/lulea/simd/", "SIMD gathers"),
    ("crates/lpm/src/treebitmap/simd.rs", "bit counts by instructions"),
    ("crates/bgp/src/signature.rs", "socket options that no safe library has"),
    ("crates/bpf/src/sys.rs", "the bpf system call"),
    ("crates/bpf/src/mapped.rs", "maps in memory"),
    ("crates/lpm-c/src/api.rs", "functions that C calls"),
    ("crates/lpm-c/src/guard.rs", "pointers that come from C"),
    ("crates/lpm-c/tests/c_api.rs", "calls of those functions"),
    ("crates/burst/src/memory.rs", "frames in shared packet memory"),
    ("crates/burst/tests/conservation.rs", "states that a made-up device is closed"),
    ("crates/cli/tests/root_wire/raw.rs", "packet sockets by hand"),
    ("crates/port/src/xdp/", "AF_XDP rings, sockets and system calls"),
    ("crates/port/src/dpdk/sys.rs", "calls of DPDK"),
    ("crates/port/src/dpdk/queue.rs", "mbufs, and frames shared with DPDK"),
    ("crates/port/src/dpdk/device.rs", "devices that are started and closed"),
    ("crates/port/src/packet/ring/", "AF_PACKET rings"),
    ("crates/port/src/packet/sys.rs", "AF_PACKET system calls"),
    ("crates/port/tests/root_af_packet.rs", "a socket option that the standard library lacks"),
];

pub(crate) fn check(files: &[File], findings: &mut Vec<String>) {
    for file in files.iter().filter(|file| file.name.ends_with(".rs")) {
        let code = source::code(&file.text);
        let header = "named homes of `unsafe`";
        if let Some((home, _)) = home(&file.name) {
            let uses = source::lines_with(&code, "unsafe").next().is_some();
            // A test may call what is unsafe; a module of the library says that it is such a home.
            if uses && !file.name.contains("/tests/") && !file.text.contains(header) {
                findings.push(format!(
                    "{}: its header does not say that it is one of the {header} ({home})",
                    file.name
                ));
            }
            continue;
        }
        for line in source::lines_with(&code, "unsafe") {
            findings.push(format!(
                "{}:{line}: `unsafe` outside its homes (xtask/src/tidy/unsafe_code.rs)",
                file.name
            ));
        }
    }
    for file in files.iter().filter(|file| is_crate_root(&file.name)) {
        // A test's home is none of the crate's.
        let end = file.name.rfind('/').unwrap_or_default();
        let has_home = HOMES.iter().any(|(home, _)| home.starts_with(&file.name[..=end]));
        if !has_home && !source::code(&file.text).contains("#![forbid(unsafe_code)]") {
            findings.push(format!("{}: has no `unsafe`, so say #![forbid(unsafe_code)]", file.name));
        }
    }
}

/// Every home is there: a line that outlives its file would let `unsafe` in unseen.
pub(crate) fn check_homes(files: &[File], findings: &mut Vec<String>) {
    for (listed, _) in HOMES {
        if !files.iter().any(|file| home(&file.name).is_some_and(|(found, _)| found == listed)) {
            findings.push(format!("xtask/src/tidy/unsafe_code.rs: {listed} is listed, and is not there"));
        }
    }
}

fn home(name: &str) -> Option<&'static (&'static str, &'static str)> {
    HOMES.iter().find(|(home, _)| name == *home || (home.ends_with('/') && name.starts_with(home)))
}

fn is_crate_root(name: &str) -> bool {
    name.ends_with("/src/lib.rs") || name.ends_with("/src/main.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(&[File { name: name.into(), text: text.into() }], &mut findings);
        findings
    }

    #[test]
    fn a_home_without_a_house_is_found() {
        let mut findings = Vec::new();
        check_homes(
            &[File { name: "crates/burst/src/memory.rs".into(), text: String::new() }],
            &mut findings,
        );
        assert_eq!(findings.len(), HOMES.len() - 1);
        assert!(
            !findings.iter().any(|finding| finding.contains("crates/burst/src/memory.rs")),
            "{findings:?}"
        );
    }

    #[test]
    fn unsafe_stays_at_home() {
        let block = "fn f() { unsafe { g() } }";
        let header = "//! This module is one of the named homes of `unsafe`.\n";
        assert_eq!(findings("crates/burst/src/memory.rs", &format!("{header}{block}")).len(), 0);
        assert_eq!(findings("crates/burst/src/memory.rs", block).len(), 1);
        assert_eq!(
            findings("crates/burst/src/burst.rs", block),
            ["crates/burst/src/burst.rs:1: `unsafe` outside its homes (xtask/src/tidy/unsafe_code.rs)"]
        );
        assert_eq!(findings("crates/burst/src/burst.rs", "// unsafe\nlet a = \"unsafe\";").len(), 0);
    }

    #[test]
    fn crates_without_it_forbid_it() {
        assert_eq!(findings("crates/wire/src/lib.rs", "mod a;").len(), 1);
        assert_eq!(findings("crates/wire/src/lib.rs", "#![forbid(unsafe_code)]").len(), 0);
        assert_eq!(findings("crates/burst/src/lib.rs", "mod a;").len(), 0);
        assert_eq!(findings("crates/router/src/lib.rs", "mod a;").len(), 1);
    }
}
