//! `check`: finds what `run` would refuse, without opening anything.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use tool::Folder;

#[test]
fn check_finds_what_is_wrong_with_an_interface_that_is_not_there() {
    let folder = Folder::new();
    let wire = "version = 1\nrole = \"router\"\n[[port]]\nname = \"a\"\nkind = \"af_packet\"\ninterface = \"tm-none\"\n";
    let fault = "fault = { rx = { loss = 2.0 } }\n";
    let socket = format!("[control]\nsocket = \"{}\"\n", "s".repeat(120));
    let interface = "[[interface]]\nport = \"a\"\n";
    for (text, message) in [
        ("queues = 3\n", "queues = 3 with one worker: give 1, or leave it out"),
        ("rx_ring_kib = 1\n", "rx_ring_kib = 1: give 256 to"),
        ("tx_ring_packets = 3\n", "tx_ring_packets = 3: give a power of two"),
        (fault, "loss = 2 is not a probability"),
        (&socket, "control.socket: "),
        ("[control]\nlisten = [\"127.0.0.1:1\"]\n", "control.listen: give control.token_file too"),
        ("[control]\ntoken_file = \"t\"\n", "control.token_file: is for TCP: give control.listen"),
        ("[control]\nlisten = [\"0.0.0.0:1\"]\ntoken_file = \"t\"\n", "0.0.0.0:1 is no loopback address"),
        (
            "[control]\nlisten = [\"[::1]:1\"]\ntoken_file = \"t\"\nkey = \"k\"\n",
            "control.certificate and control.key",
        ),
        ("[control]\nlisten = [\"[::1]:1\"]\ntoken_file = \"t\"\n", "t: No such file"),
        ("[kernel]\nreceive_buffer = 99999999999999\n", "kernel.receive_buffer: "),
        (&format!("{interface}mtu = 9000\n"), "set memory.frame_size = 16384, or mtu = 1774"),
        (&format!("{interface}vrf = \"\"\n"), "interface[0].vrf: empty"),
    ] {
        folder.write("wire.toml", format!("{wire}{text}"));
        folder.fail(&[("check wire.toml", 2, message)]);
    }
    folder.write("wire.toml", wire);
    let checked = folder.ok("check wire.toml");
    assert!(
        checked.err.contains("port a: ") && checked.err.contains("as if it were there"),
        "{}",
        checked.err
    );
    folder.fail(&[("run wire.toml", 2, "there is no network interface \"tm-none\"")]);
}

#[test]
fn check_finds_what_is_wrong_with_ports_that_run_would_not_open() {
    let folder = Folder::new();
    folder.write("table.txt", "20.0.0.0/8\t1\n");
    folder.ok("gen traffic --table table.txt --pattern prefix --packets 10 -o in.pcap");
    let router = "version = 1\nrole = \"router\"\n[[port]]\nname = \"b\"\nkind = \"null\"\nreceive = false\n";
    for (text, said) in [
        ("kind = \"pcap\"", "port `a`: a pcap port needs an input, an output or both"),
        (
            "kind = \"pcap\"\ninput = \"in.pcap\"\npace = \"time\"\nspeed = 0",
            "speed 0 is not a number above 0",
        ),
        ("kind = \"null\"\nsize = 5", "port `a`: size = 5 (64 to 9018)"),
        ("kind = \"null\"\npopulation = 0", "port `a`: population = 0: give 1 or more"),
        ("kind = \"null\"\ndestinations = \"table\"", "destinations = \"table\", and this run has no table"),
        ("kind = \"generator\"\nmix = { udp = 0 }", "port `a`: sizes and mix need at least one entry"),
        ("kind = \"generator\"\nrate_pps = -1e300", "port `a`: rate_pps = -1e300 is not a number above 0"),
        (
            "kind = \"generator\"\ndestinations = \"table\"",
            "destinations = \"table\", and this run has no table",
        ),
        ("kind = \"null\"\n[remap]\nseed = 7", "remap: there is no table to take destinations from"),
    ] {
        folder.write("a.toml", format!("{router}[[port]]\nname = \"a\"\n{text}\n"));
        folder.fail(&[("check a.toml", 2, said), ("run a.toml", 2, said)]);
    }
}

/// Packet memory is known without a device: `run` finds what does not fit before it looks for the interface, and in the same words.
#[cfg(all(feature = "xdp", target_os = "linux"))]
#[test]
fn check_finds_what_does_not_fit_packet_memory() {
    let folder = Folder::new();
    let port = |name: &str, rx_ring: usize| {
        format!(
            "[[port]]\nname = \"{name}\"\nkind = \"af_xdp\"\ninterface = \"tm-none-{name}\"\nrx_ring = {rx_ring}\n"
        )
    };
    let write = |text: &str| folder.write("a.toml", format!("version = 1\nrole = \"router\"\n{text}"));
    let frame_size =
        "port `a`: memory.frame_size = 8192: AF_XDP takes frames of 2048 or 4096 bytes: set one of them";
    let held = |port: &str, rx_ring: usize, held: usize, frames: usize| {
        format!(
            "port `{port}`: with rx_ring = {rx_ring}, the receive rings of this worker's af_xdp ports would hold {held} of its {frames} frames"
        )
    };
    for (text, said) in [
        (format!("[memory]\nframe_size = 8192\n{}", port("a", 64)), frame_size.to_owned()),
        (port("a", 8192), held("a", 8192, 8192, 8192)),
        (format!("[memory]\nframes = 1024\n{}", port("a", 1024)), held("a", 1024, 1024, 1024)),
    ] {
        write(&text);
        folder.fail(&[("check a.toml", 2, said.as_str()), ("run a.toml", 2, said.as_str())]);
    }
    // The rings of all ports together are too many, and the port is named with which they are.
    write(&(port("a", 4096) + &port("b", 4096)));
    folder.fail(&[("check a.toml", 2, held("b", 4096, 8192, 8192).as_str())]);
    write(&(port("a", 2048) + &port("b", 4096)));
    folder.ok("check a.toml");
    write(&format!("[memory]\nframes = 16384\nframe_size = 4096\n{}{}", port("a", 4096), port("b", 8192)));
    folder.ok("check a.toml");
}

#[test]
fn the_page_about_the_configuration_is_what_check_prints() {
    let printed = Folder::new().ok("check --reference").out;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../CONFIGURATION.md");
    let page = std::fs::read_to_string(path).unwrap();
    let other = printed.lines().zip(page.lines()).find(|(printed, page)| printed != page);
    let what = "CONFIGURATION.md is not what this program takes. Make it anew: cargo run --release -- check --reference > CONFIGURATION.md";
    assert!(printed == page, "{what}\n{other:?}");
}
