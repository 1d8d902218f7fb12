//! Netlink messages: any bytes are decoded, ignored or counted, the events add up to what the mirror holds, and where
//! netlink-packet-route reads a route too, it reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteAttribute;
use std::collections::BTreeMap;
use tidemill_feed::AnyPrefix;
use tidemill_feed::kernel::decode::{Message, decode, frames};
use tidemill_feed::kernel::{KernelEvent, KernelPath, Mirror};

fn judge(bytes: &[u8]) -> Option<(bool, u8, u32, u32)> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).ok()?;
    let (removed, route) = match message.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => (false, route),
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelRoute(route)) => (true, route),
        _ => return None,
    };
    let (mut table, mut metric) = (u32::from(route.header.table), 0);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Table(value) => table = *value,
            RouteAttribute::Priority(value) => metric = *value,
            _ => {}
        }
    }
    Some((removed, route.header.destination_prefix_length, table, metric))
}

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    for frame in frames(data) {
        let Ok(frame) = frame else { break };
        let length = 16 + frame.body.len();
        if let (Ok(Message::Route(route)), Some(theirs)) = (decode(&frame), judge(&rest[..length])) {
            let len = match route.prefix {
                AnyPrefix::V4(prefix) => prefix.len(),
                AnyPrefix::V6(prefix) => prefix.len(),
            };
            assert_eq!((route.removed, len, route.table, route.metric), theirs);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }

    let mut mirror = Mirror::new(&[254, 100]);
    let (mut events, mut sum) = (Vec::new(), BTreeMap::new());
    // Twice: what is there already is met, too.
    for _ in 0..2 {
        mirror.apply(data, &mut events);
        for event in events.drain(..) {
            let KernelEvent::Route { table, prefix, path } = event else { continue };
            if let Some(KernelPath::Via(hops)) = path.as_deref() {
                assert!(!hops.is_empty() && hops.is_sorted());
            }
            let old = match &path {
                Some(path) => sum.insert((table, prefix), path.clone()),
                None => sum.remove(&(table, prefix)),
            };
            assert_ne!(old, path, "told again");
        }
    }
    let held: BTreeMap<_, _> = mirror.routes().map(|(table, prefix, path)| ((table, prefix), path)).collect();
    assert_eq!(held, sum);
});
