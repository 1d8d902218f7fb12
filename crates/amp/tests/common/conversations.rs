//! Recorded traffic cut in two: what a box on the link gets from outside, and what from inside. Who asks is inside; who answers is outside; and who has
//! an answer that he asked for may say afterwards that he has given up waiting.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // two crates' tests use it

use std::collections::{HashMap, HashSet};
use tidemill_wire::flow::Addresses;
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, Protocol, checksum, flow_key};

/// The ports that answers come from, as the mitigator has them by itself.
const ANSWERS: [u16; 8] = [17, 19, 53, 123, 161, 389, 1900, 11211];

/// A frame of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Whether it comes from inside.
    pub inside: bool,
    pub frame: Vec<u8>,
    /// Of an answer to a question before it: the port unreachable that its host sends if it has given up, as a frame from inside.
    pub late: Option<Vec<u8>>,
}

/// Cuts a record. Between two hosts, who was first to send to such a port, or first got something from one, is inside.
pub fn cut(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<Step> {
    let (mut askers, mut asked) = (HashMap::new(), HashSet::new());
    let mut step = |frame: Vec<u8>| {
        let l3_offset = L2::parse(&frame).map_or(14, |l2| l2.l3_offset);
        let Some(key) = flow_key(&frame, l3_offset) else { return Step { inside: false, frame, late: None } };
        let (src, dst) = match key.addresses {
            Addresses::V4 { src, dst } => (u128::from(src), u128::from(dst)),
            Addresses::V6 { src, dst } => (src, dst),
        };
        let pair = (src.min(dst), src.max(dst));
        let ports = key.ports.filter(|_| key.protocol == Protocol::UDP);
        if let Some((from, to)) = ports {
            if ANSWERS.contains(&to) {
                askers.entry(pair).or_insert(src);
            } else if ANSWERS.contains(&from) {
                askers.entry(pair).or_insert(dst);
            }
        }
        let inside = askers.get(&pair) == Some(&src);
        let mut late = None;
        match ports {
            Some((_, to)) if inside && ANSWERS.contains(&to) => _ = asked.insert(key.reversed()),
            Some((from, _)) if !inside && ANSWERS.contains(&from) && asked.contains(&key) => {
                late = port_unreachable(key.addresses, &frame[l3_offset..]);
            }
            _ => {}
        }
        Step { inside, frame, late }
    };
    frames.into_iter().map(&mut step).collect()
}

/// What the destination of a packet without options says when nobody there has the port any more.
fn port_unreachable(addresses: Addresses, packet: &[u8]) -> Option<Vec<u8>> {
    let (header, kind) = match addresses {
        Addresses::V4 { .. } => (20, [3, 3]),
        Addresses::V6 { .. } => (40, [1, 4]),
    };
    let quoted = packet.get(..header + 8)?;
    let plain = if header == 20 { packet[0] == 0x45 } else { packet[6] == 17 };
    if !plain {
        return None;
    }
    let mut message = [kind[0], kind[1], 0, 0, 0, 0, 0, 0].to_vec();
    message.extend_from_slice(quoted);
    let length = message.len() as u16;
    let mut frame = vec![2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 9];
    match addresses {
        Addresses::V4 { src, dst } => {
            frame.extend(EtherType::IPV4.0.to_be_bytes());
            let mut ip = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, 1, 0, 0];
            ip[2..4].copy_from_slice(&(20 + length).to_be_bytes());
            ip.extend(dst.to_be_bytes());
            ip.extend(src.to_be_bytes());
            tidemill_wire::ipv4::fill_checksum(&mut ip);
            frame.extend(ip);
            let sum = checksum::checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        Addresses::V6 { src, dst } => {
            frame.extend(EtherType::IPV6.0.to_be_bytes());
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([58, 64]);
            frame.extend(dst.to_be_bytes());
            frame.extend(src.to_be_bytes());
            let mut covered = [dst.to_be_bytes(), src.to_be_bytes()].concat();
            covered.extend(u32::from(length).to_be_bytes());
            covered.extend([0, 0, 0, 58]);
            covered.extend_from_slice(&message);
            let sum = checksum::checksum(&covered);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
    }
    frame.extend(message);
    let least = frame.len().max(60);
    frame.resize(least, 0);
    Some(frame)
}
