//! `record-capture`: records an example's captures anew, from real programs between namespaces of our own, and looks at
//! what came out.

use crate::test::Totals;
use crate::{env, proc};
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Compressed; the repository is no place for more.
const MOST_BYTES: u64 = 600 * 1024;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which example's
    #[arg(value_parser = ["router", "mitigator"])]
    example: String,
}

/// A capture by the name of its file, and what must be in it, as tshark's display filters.
type Recorded = (&'static str, &'static [(&'static str, &'static str)]);

const ROUTER: &[Recorded] = &[(
    "capture.pcapng",
    &[
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
    ],
)];

const MITIGATOR: &[Recorded] = &[
    (
        "outside.pcapng",
        &[
            (
                "answers to nobody's question",
                "dns.flags.response == 1 && udp.dstport >= 40000 && udp.dstport < 40025 && ip",
            ),
            (
                "the same over IPv6",
                "dns.flags.response == 1 && udp.dstport >= 40000 && udp.dstport < 40025 && ipv6",
            ),
            ("later fragments", "ip.frag_offset > 0"),
            ("HTTP", "http"),
            ("ping", "icmp.type == 0"),
        ],
    ),
    (
        "inside.pcapng",
        &[
            ("port unreachable", "icmp.type == 3 && icmp.code == 3"),
            ("port unreachable over IPv6", "icmpv6.type == 1 && icmpv6.code == 4"),
            ("questions", "dns.flags.response == 0 && udp && !icmp && !icmpv6"),
        ],
    ),
];

/// Whether the new captures are in place.
pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(env::is_root(), "recording needs root: network namespaces");
    let folder = env::root().join("examples").join(&options.example);
    let recorded = if options.example == "router" { ROUTER } else { MITIGATOR };
    let scratch = env::scratch("capture")?;
    proc::check(Command::new(folder.join("record-capture.sh")).arg(&scratch))?;
    let mut kinds = Totals::default();
    for (file, wanted) in recorded {
        for (name, filter) in *wanted {
            let packets = count(&scratch.join(file), filter)?;
            kinds.count(&format!("{file}: {name}, {packets} packets"), packets > 0);
        }
    }
    ensure!(kinds.failed == 0, "the capture lacks something");
    for (file, _) in recorded {
        let raw = scratch.join(file);
        let packed = folder.join(format!("{file}.zst"));
        let mut output = tidemill_archive::create(&packed).with_context(|| packed.display().to_string())?;
        output.write_all(&std::fs::read(&raw)?)?;
        output.finish()?;
        let bytes = std::fs::metadata(&packed)?.len();
        println!("{}: {} packets, {bytes} bytes", packed.display(), count(&raw, "frame")?);
        ensure!(bytes <= MOST_BYTES, "at most {MOST_BYTES} bytes");
    }
    Ok(true)
}

fn count(capture: &Path, filter: &str) -> Result<usize> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-e", "frame.number", "-Y", filter, "-r"]).arg(capture);
    Ok(proc::output(&mut tshark)?.lines().count())
}
