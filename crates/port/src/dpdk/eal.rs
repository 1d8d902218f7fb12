//! DPDK's environment abstraction layer: started once for the process, when the first port needs it.
//!
//! It is started so that it disturbs nobody: no files that other DPDK processes see (`--no-shconf`), no telemetry socket,
//! no device taken that no port names (`--no-pci`, or an allow list that holds nothing), no thread pinned, nothing
//! printed below an error. With huge pages reserved it uses them (`--in-memory`), else ordinary ones (`--no-huge`, which that
//! does not go with). Arguments of
//! the configuration come last, and replace ours where they are about the same thing.

use super::sys;
use crate::PortError;
use crate::spec::{attaches_buffers, no_buffers, pci_address};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Megabytes for DPDK's own use where no huge pages are reserved: queues, rings, a driver's copies.
const MEGABYTES: u64 = 256;

#[derive(Default)]
struct State {
    arguments: Vec<String>,
    pci: bool,
    /// Whether it was started with PCI devices, or why it could not be: it tries once.
    started: Option<Result<bool, String>>,
}

fn state() -> MutexGuard<'static, State> {
    static STATE: Mutex<State> = Mutex::new(State { arguments: Vec::new(), pci: false, started: None });
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says with what DPDK is to be started, before the first port is opened: further arguments, and whether a port is on a
/// PCI device.
pub(crate) fn prepare(arguments: &[String], pci: bool) {
    let mut state = state();
    state.arguments = arguments.to_vec();
    state.pci |= pci;
}

/// Whether this device is on PCI: `0000:3b:00.0`, `3b:00.0`.
pub(crate) fn is_pci(device: &str) -> bool {
    pci_address(device.split(',').next().unwrap_or_default()).is_some()
}

/// Starts DPDK if it is not running.
pub(super) fn start(port: &str, pci: bool) -> Result<(), PortError> {
    let mut state = state();
    let failed = |what: &String| PortError::Device {
        port: port.to_owned(),
        action: "cannot start DPDK",
        source: io::Error::other(what.clone()),
    };
    match &state.started {
        Some(Err(what)) => return Err(failed(what)),
        Some(Ok(false)) if pci => {
            return Err(PortError::config(
                port,
                "DPDK runs without PCI devices already: the first dpdk port of the process decides: open this one first",
            ));
        }
        Some(Ok(_)) => return Ok(()),
        None => {}
    }
    check_arguments(port, &state.arguments)?;
    let pci = pci || state.pci;
    let arguments = arguments(&state.arguments, pci, has_huge_pages(), &allowed_cpus());
    let started = sys::control().eal(&arguments);
    let started = started.map_err(|said| format!("{said} [arguments: {}]", arguments[1..].join(" ")));
    let result = started.as_ref().map(drop).map_err(failed);
    state.started = Some(started.map(|()| pci));
    result
}

/// Finds arguments with which we do not start DPDK.
pub(crate) fn check_arguments(port: &str, arguments: &[String]) -> Result<(), PortError> {
    // Devices may have arguments here, too: `-a 3b:00.0,mprq_en=1`.
    if let Some(argument) = arguments.iter().find_map(|argument| attaches_buffers(argument)) {
        return Err(PortError::config(port, format!("[dpdk] arguments: {}", no_buffers(argument))));
    }
    if let Some(argument) = arguments.iter().find(|argument| is_help(argument)) {
        let what = format!(
            "[dpdk] arguments: {argument}: DPDK would print its manual and end this process: leave it out"
        );
        return Err(PortError::config(port, what));
    }
    if joins_another(arguments) {
        let what = "[dpdk] arguments: --proc-type=secondary: nothing is shared with another process, neither devices nor memory: leave it out";
        return Err(PortError::config(port, what));
    }
    Ok(())
}

/// Whether DPDK takes it for `-h`, `--help` or a beginning of that which no other argument has.
fn is_help(argument: &str) -> bool {
    argument.starts_with("-h") || argument.len() > "--h".len() && "--help".starts_with(argument)
}

/// Whether DPDK is to be a part of another process's, by `--proc-type=secondary`, in one argument or in two, the name written out or not.
fn joins_another(arguments: &[String]) -> bool {
    let is_name = |name: &str| name.len() > "--p".len() && "--proc-type".starts_with(name);
    let in_one = |argument: &String| {
        argument.split_once('=').is_some_and(|(name, value)| is_name(name) && value == "secondary")
    };
    let in_two = |pair: &[String]| is_name(&pair[0]) && pair[1] == "secondary";
    arguments.iter().any(in_one) || arguments.windows(2).any(in_two)
}

fn arguments(wanted: &[String], pci: bool, huge: bool, cpus: &str) -> Vec<String> {
    let says = |names: &[&str]| {
        let is = |argument: &String| {
            names.iter().any(|name| {
                let rest = argument.strip_prefix(name);
                // `-l3`, `--lcores=3`, or the name alone.
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || !name.starts_with("--"))
            })
        };
        wanted.iter().any(is)
    };
    let mut arguments = vec!["tidemill".to_owned(), "--no-telemetry".into(), "--no-shconf".into()];
    if !says(&["--iova-mode"]) {
        arguments.push("--iova-mode=va".into());
    }
    if !says(&["-l", "-c", "--lcores"]) {
        // One thread of DPDK's, this one, which may go on running on any CPU.
        arguments.push(format!("--lcores=0@({cpus})"));
    }
    if !says(&["-m", "--no-huge", "--socket-mem", "--huge-dir", "--in-memory", "--legacy-mem"]) {
        let ordinary = || vec!["--no-huge".into(), "-m".into(), MEGABYTES.to_string()];
        arguments.extend(if huge { vec!["--in-memory".to_owned()] } else { ordinary() });
    }
    if !says(&["--no-pci", "-a", "--allow", "-b", "--block"]) {
        // With PCI, an allow list keeps DPDK from taking every card it could drive; ports name theirs.
        arguments.extend(if pci {
            vec!["-a".into(), "ffff:ff:1f.7".into()]
        } else {
            vec!["--no-pci".into()]
        });
    }
    arguments.extend_from_slice(wanted);
    arguments
}

/// The CPUs that this thread may run on, as the kernel writes them: `0-3,8`.
fn allowed_cpus() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or_else(|| "0".into(), |list| list.trim().to_owned())
}

/// Whether enough huge pages are reserved and free.
fn has_huge_pages() -> bool {
    let Ok(sizes) = std::fs::read_dir("/sys/kernel/mm/hugepages") else { return false };
    let free = |folder: std::fs::DirEntry| -> Option<u64> {
        let name = folder.file_name().into_string().ok()?;
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count = std::fs::read_to_string(folder.path().join("free_hugepages")).ok()?;
        Some(count.trim().parse::<u64>().ok()? * kib)
    };
    sizes.flatten().filter_map(free).sum::<u64>() >= MEGABYTES << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_on_pci_may_have_arguments() {
        assert!(is_pci("10000:01:00.0,queues=2"));
        assert!(!is_pci("net_pcap0,rx_pcap=a:b.c"));
    }

    #[test]
    fn asking_for_help_is_told_from_other_arguments() {
        assert!(["-h", "--help", "--he"].into_iter().all(is_help));
        assert!(!["--huge-dir=/x", "--h", "--", "-l", "-", "", "--helper"].into_iter().any(is_help));
    }

    #[test]
    fn a_part_of_another_process_is_told_from_other_arguments() {
        let joins = |text: &str| joins_another(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for text in ["--proc-type=secondary", "-l 1 --proc-type secondary", "--proc=secondary -l1"] {
            assert!(joins(text), "{text}");
        }
        for text in ["--proc-type=primary", "--file-prefix=secondary", "--file-prefix secondary", ""] {
            assert!(!joins(text), "{text}");
        }
    }

    #[test]
    fn own_arguments_win() {
        let plain = arguments(&[], false, false, "0-1");
        assert_eq!(
            plain,
            [
                "tidemill",
                "--no-telemetry",
                "--no-shconf",
                "--iova-mode=va",
                "--lcores=0@(0-1)",
                "--no-huge",
                "-m",
                "256",
                "--no-pci"
            ]
        );
        let own = ["-l1", "-m", "64", "--iova-mode=pa", "-a", "3b:00.0"].map(str::to_owned);
        assert_eq!(arguments(&own, true, false, "0")[3..], own);
        assert_eq!(arguments(&[], true, true, "0")[5..], ["--in-memory", "-a", "ffff:ff:1f.7"]);
    }
}
