//! `record-capture`: records the example's capture anew, from real programs between namespaces of our own, and looks at
//! what came out.

use crate::test::Totals;
use crate::{env, proc};
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Compressed; the repository is no place for more.
const MOST_BYTES: u64 = 600 * 1024;

/// What must be in the capture, as tshark's display filters: each kind of packet that the example is to show.
const KINDS: &[(&str, &str)] = &[
    ("ARP", "arp"),
    ("neighbor discovery", "icmpv6.type == 135"),
    ("ping", "icmp.type == 8"),
    ("ping over IPv6", "icmpv6.type == 128"),
    ("IPv4 fragments", "ip.frag_offset > 0"),
    ("IPv6 fragments", "ipv6.fraghdr"),
    ("time exceeded", "icmp.type == 11"),
    ("hop limit exceeded", "icmpv6.type == 3"),
    ("port unreachable", "icmp.type == 3"),
    ("DNS over UDP", "dns && udp && ip"),
    ("DNS over TCP", "dns && tcp"),
    ("DNS over IPv6", "dns && ipv6"),
    ("HTTP", "http && ip"),
    ("HTTP over IPv6", "http && ipv6"),
    ("fragmentation needed", "icmp.type == 3 && icmp.code == 4"),
    ("packet too big", "icmpv6.type == 2"),
    ("low time to live", "ip.ttl == 1"),
];

/// Whether the new capture is in place.
pub(crate) fn run() -> Result<bool> {
    ensure!(env::is_root(), "recording needs root: network namespaces");
    let folder = env::root().join("examples/router");
    let raw = env::scratch("capture")?.join("capture.pcapng");
    proc::check(Command::new(folder.join("record-capture.sh")).arg(&raw))?;
    let mut kinds = Totals::default();
    for (name, filter) in KINDS {
        let packets = count(&raw, filter)?;
        kinds.count(&format!("capture: {name}, {packets} packets"), packets > 0);
    }
    ensure!(kinds.failed == 0, "the capture lacks something");
    let packed = folder.join("capture.pcapng.zst");
    let mut output = tidemill_archive::create(&packed).with_context(|| packed.display().to_string())?;
    output.write_all(&std::fs::read(&raw)?)?;
    output.finish()?;
    let bytes = std::fs::metadata(&packed)?.len();
    println!("{}: {} packets, {bytes} bytes", packed.display(), count(&raw, "frame")?);
    ensure!(bytes <= MOST_BYTES, "at most {MOST_BYTES} bytes");
    Ok(true)
}

fn count(capture: &Path, filter: &str) -> Result<usize> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-e", "frame.number", "-Y", filter, "-r"]).arg(capture);
    Ok(proc::output(&mut tshark)?.lines().count())
}
