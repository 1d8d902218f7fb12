//! Packets that are spread by addresses alone: by the kernel, by our program for it, and by the first worker.

use super::*;
use tidemill_port::SpreadBy;

/// A UDP packet from a host, which is the source's last two bytes.
fn from_host(v6: bool, host: u16, port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let [high, low] = host.to_be_bytes();
    let link = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    let net = |last: [u8; 2]| [[0xFD, 7], [0; 2], [0; 2], [0; 2], [0; 2], [0; 2], [0; 2], last].concat();
    if v6 {
        let [from, to] = [[high, low], [9, 9]].map(|last| <[u8; 16]>::try_from(net(last)).unwrap());
        link.ipv6(from, to, 64).udp(port, 53).write(&mut frame, &[0; 40]).unwrap();
    } else {
        link.ipv4([10, 7, high, low], [10, 9, 9, 9], 64).udp(port, 53).write(&mut frame, &[0; 40]).unwrap();
    }
    frame
}

/// The family and the host that a frame is from, behind a tag if it has one.
fn host_of(frame: &[u8]) -> (bool, u16) {
    let packet = &frame[if frame[12..14] == [0x81, 0x00] { 18 } else { 14 }..];
    let v6 = packet[0] >> 4 == 6;
    let at = if v6 { 22 } else { 14 };
    (v6, u16::from_be_bytes([packet[at], packet[at + 1]]))
}

#[test]
fn root_fanout_by_addresses_keeps_hosts_whole() {
    const HOSTS: u16 = 64;
    if !inside("addresses::root_fanout_by_addresses_keeps_hosts_whole") {
        return;
    }
    cable("left", "right");
    let (mut left, mut pool) = (port("left"), pool(4096));
    let options = Options { spread_by: SpreadBy::Addresses, ..Options::default() };
    let mut queues = open("right", "right", 2, &options).unwrap();
    let mut by_ports = open("other", "right", 2, &Options::default()).unwrap();
    let frames = [false, true].into_iter().flat_map(|v6| (0..HOSTS).map(move |host| (v6, host)));
    let frames = frames.flat_map(|(v6, host)| {
        let mut frames: Vec<_> = (1000..1008).map(|port| from_host(v6, host, port)).collect();
        // In a VLAN, a fragment with its ports, and one that has none.
        let mut tagged = from_host(v6, host, 1);
        tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
        let mut first = from_host(v6, host, 2);
        first[20] = if v6 { 44 } else { 0x20 };
        let mut rest = first.clone();
        // Of IPv6, the offset in the header that UDP's has become.
        let at = if v6 { 56 } else { 20 };
        rest[at..at + 2].copy_from_slice(&[0, 8]);
        frames.extend([tagged, first, rest]);
        frames
    });
    let frames: Vec<_> = frames.collect();
    send(&mut left, &mut pool, &frames);
    // By family and host, the queues that it has come to.
    let mut homes = |queues: &mut [PacketPort]| {
        let mut homes = HashMap::<(bool, u16), HashSet<usize>>::new();
        let mut count = 0;
        for (number, queue) in queues.iter_mut().enumerate() {
            for frame in receive(queue, &mut pool, 0) {
                count += 1;
                homes.entry(host_of(&frame)).or_default().insert(number);
            }
        }
        assert_eq!((count, homes.len()), (frames.len(), 2 * usize::from(HOSTS)), "lost or twice");
        homes
    };
    let came = homes(&mut queues);
    assert!(came.values().all(|queues| queues.len() == 1), "{came:?}");
    for family in [false, true] {
        for number in 0..2 {
            let there = |(host, queues): &(&(bool, u16), &HashSet<usize>)| {
                host.0 == family && queues.contains(&number)
            };
            let hosts = came.iter().filter(there).count();
            assert!(hosts >= 8, "queue {number}, IPv6 {family}: {hosts} of {HOSTS}");
        }
    }
    // Which is no accident of these flows: by their ports, they come to both.
    let came = homes(&mut by_ports);
    assert!(came.values().filter(|queues| queues.len() == 2).count() > usize::from(HOSTS), "{came:?}");

    // What is no IP, and what ends before its addresses do, comes to the first queue.
    let others =
        [numbered(1, 60), from_host(false, 5, 9)[..33].to_vec(), from_host(true, 5, 9)[..53].to_vec()];
    send(&mut left, &mut pool, &others);
    assert_eq!(receive(&mut queues[0], &mut pool, others.len()), others);
    assert!(receive(&mut queues[1], &mut pool, 0).is_empty());
    drop((queues, by_ports));
    assert_home(&pool);
}

#[test]
fn root_a_configurations_queues_go_by_addresses_where_asked() {
    if !inside("addresses::root_a_configurations_queues_go_by_addresses_where_asked") {
        return;
    }
    cable("left", "right");
    let context = OpenContext { base: Path::new("."), table: None, memory: &[] };
    let (mut left, mut pool) = (port("left"), pool(2048));
    let hosts = (0..64).flat_map(|host| (0..4).map(move |port| from_host(false, host, port)));
    let frames: Vec<_> = hosts.collect();
    // The kernel spreads them, or the first worker.
    for text in ["", "queues = 1"] {
        let text = format!("kind = \"af_packet\"\nname = \"right\"\n{text}");
        let mut spec: PortSpec = toml::from_str(&text).unwrap();
        spec.spread_by(SpreadBy::Addresses);
        let mut queues = spec.open(2, &context).unwrap();
        send(&mut left, &mut pool, &frames);
        let mut homes = HashMap::<(bool, u16), HashSet<usize>>::new();
        let (mut burst, mut count, started) = (Burst::new(), 0, Instant::now());
        while count < frames.len() {
            for (number, queue) in queues.iter_mut().enumerate() {
                queue.rx(now_ns(), &mut pool, &mut burst).unwrap();
                for packet in burst.drain() {
                    homes.entry(host_of(packet.data())).or_default().insert(number);
                    count += 1;
                    pool.free(packet);
                }
            }
            assert!(started.elapsed() < PATIENCE, "{count} of {text}");
        }
        assert!(homes.len() == 64 && homes.values().all(|queues| queues.len() == 1), "{text}: {homes:?}");
        assert_eq!(homes.values().flatten().collect::<HashSet<_>>().len(), 2, "{text}: {homes:?}");
        for queue in queues.iter_mut().rev() {
            queue.finish(now_ns(), &mut pool).unwrap();
        }
    }
    assert_home(&pool);
}
