//! ICMP messages to us about packets of ours, and datagrams to nobody. Nobody here looks at their checksums.

/// An IP packet between the host and us (10.0.0.2, fd00::2; 10.0.0.1, fd00::1).
fn packet(v6: bool, protocol: u8, to_us: bool, body: &[u8]) -> Vec<u8> {
    let host = |last: u8| if v6 { [&[0xFD][..], &[0; 14], &[last]].concat() } else { vec![10, 0, 0, last] };
    let (from, to) = if to_us { (host(2), host(1)) } else { (host(1), host(2)) };
    let len = body.len() as u8;
    let head = match v6 {
        true => vec![0x60, 0, 0, 0, 0, len, protocol, 64],
        false => vec![0x45, 0, 0, 20 + len, 0, 0, 0, 0, 64, protocol, 0, 0],
    };
    [&head[..], &from, &to, body].concat()
}

/// A frame with an ICMP message of this type to us, and in it a packet of ours.
pub(crate) fn message(v6: bool, kind: u8, protocol: u8, ports: [u16; 2]) -> Vec<u8> {
    let ports = ports.map(u16::to_be_bytes).concat();
    let ours = packet(v6, protocol, false, &[&ports[..], &[0; 4]].concat());
    let icmp = [&[kind, 0, 0, 0, 0, 0, 5, 0][..], &ours].concat();
    let (ethertype, icmps) = if v6 { ([0x86, 0xDD], 58) } else { ([0x08, 0x00], 1) };
    [&[0xFF; 6][..], &[2, 0, 0, 0, 0, 2], &ethertype, &packet(v6, icmps, true, &icmp)].concat()
}

/// A frame with a datagram between these ports, to an address that nobody has.
pub(crate) fn to_nobody(ports: [u16; 2]) -> Vec<u8> {
    let head = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 50];
    let ports = ports.map(u16::to_be_bytes).concat();
    [&[0xFF; 6][..], &[2, 0, 0, 0, 0, 2, 0x08, 0x00], &head, &ports, &[0, 8, 0, 0]].concat()
}
