//! Compiles the C part of the DPDK ports (`src/dpdk/shim.c`), if the feature is on.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk::build();
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::process::Command;

    /// The libraries whose functions the shim calls. Drivers are loaded by DPDK when it starts.
    const LIBRARIES: &[&str] = &["rte_ethdev", "rte_mempool", "rte_mbuf", "rte_eal"];

    pub(super) fn build() {
        println!("cargo:rerun-if-changed=src/dpdk/shim.c");
        let flags = pkg_config(&["--cflags", "libdpdk >= 22.11"]);
        let mut build = cc::Build::new();
        // DPDK's headers are not ours to warn about.
        build
            .file("src/dpdk/shim.c")
            .opt_level(3)
            .force_frame_pointer(false)
            .warnings(true)
            .extra_warnings(false);
        for flag in &flags {
            match flag.strip_prefix("-I") {
                Some(folder) => build.flag("-isystem").flag(folder),
                None => build.flag(flag),
            };
        }
        build.compile("tidemill_dpdk");
        for flag in pkg_config(&["--libs-only-L", "libdpdk"]) {
            println!("cargo:rustc-link-search=native={}", flag.trim_start_matches("-L"));
        }
        for library in LIBRARIES {
            println!("cargo:rustc-link-lib={library}");
        }
    }

    fn pkg_config(arguments: &[&str]) -> Vec<String> {
        let program = std::env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
        let output = Command::new(&program).args(arguments).output();
        match output {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
            }
            Ok(output) => missing(String::from_utf8_lossy(&output.stderr).trim()),
            Err(error) => missing(&format!("{}: {error}", program.display())),
        }
    }

    fn missing(why: &str) -> ! {
        let why = why.replace('\n', " ");
        eprintln!(
            "feature `dpdk` needs DPDK 22.11 or newer and pkg-config (Debian: libdpdk-dev pkg-config): {why}"
        );
        std::process::exit(1)
    }
}
