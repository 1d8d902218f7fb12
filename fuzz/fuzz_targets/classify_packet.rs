//! Any frame has a key or ends in its link layer; what the key says is what other readers of the same bytes say.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_classify::packet::parse;
use tidemill_classify::{Field, Key, Mask};
use tidemill_wire::flow::Addresses;
use tidemill_wire::vlan::L2;
use tidemill_wire::{flow_key, tcp};

fuzz_target!(|data: &[u8]| {
    let Some((key, layers)) = parse(data, 0x1234) else {
        // Only frames that end inside the MAC header or the first tag have none.
        assert!(data.len() < 18);
        return;
    };
    assert_eq!(key.masked(&Mask::ALL), key, "bits that no field has");
    assert_eq!(key.get(Field::InPort), 0x1234);
    let family = key.get(Field::EtherType);
    let ethernet = |at: usize| data[at..at + 6].iter().fold(0_u128, |mac, byte| mac << 8 | u128::from(*byte));
    assert_eq!(key.get(Field::MacDestination), ethernet(0));
    assert_eq!(key.get(Field::MacSource), ethernet(6));
    let ip = [0x0800, 0x86dd].contains(&family);
    let Some(network) = layers.network else {
        assert!(key.0[0] == 0 && key.ports() == [0, 0] && key.get(Field::Fragment) == 0);
        return;
    };
    if let Ok(l2) = L2::parse(data)
        && l2.depth() <= 1
        && u128::from(l2.ethertype.0) == family
    {
        assert_eq!(l2.l3_offset, network);
        let tag = l2.tags().next().map_or(0, |tag| tag.tci.0 | 0x1000);
        assert_eq!(key.get(Field::Vlan), tag.into());
    }
    if !ip {
        return;
    }
    let Some(flow) = flow_key(data, network) else {
        // Headers of IPv6 that cannot be followed: the addresses stand, and of what lies above nothing is known.
        assert_eq!(family, 0x86dd, "a whole header of IPv4 has addresses");
        let address = |at: usize| {
            data[network + at..network + at + 16]
                .iter()
                .fold(0_u128, |word, byte| word << 8 | u128::from(*byte))
        };
        let addresses = [address(8), address(24)].map(|word| [(word >> 64) as u64, word as u64]);
        assert_eq!(key.0[..4], *addresses.as_flattened());
        assert_eq!((key.get(Field::Protocol), key.get(Field::Fragment), key.ports()), (0, 0, [0, 0]));
        assert!(layers.transport.is_none());
        return;
    };
    let addresses = match flow.addresses {
        Addresses::V4 { src, dst } => Key::ipv4(src, dst, 0, 0, flow.protocol.0),
        Addresses::V6 { src, dst } => Key::ipv6(src, dst, 0, 0, flow.protocol.0),
    };
    assert_eq!(key.0[..4], addresses.0[..4]);
    assert_eq!(key.get(Field::Protocol), flow.protocol.0.into());
    assert_eq!(key.get(Field::Fragment) & 2 != 0, key.get(Field::Fragment) == 3);
    if let (Some(at), Some((source, destination))) = (layers.transport, flow.ports) {
        assert_eq!(key.ports(), [source, destination]);
        if flow.protocol.0 == 6 {
            let flags = tcp::Packet::new_unchecked(&data[at..]).flags().bits();
            assert_eq!(key.get(Field::TcpFlags) & 0x1ff, flags.into());
        }
    }
    if layers.transport.is_none() {
        assert_eq!((key.ports(), key.get(Field::TcpFlags)), ([0, 0], 0));
    }
});
