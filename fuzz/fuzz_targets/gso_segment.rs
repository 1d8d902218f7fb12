//! Any virtio-net header in front of any frame: no panic, and what can be segmented falls into segments that carry the
//! payload, all of it and in order, with right checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_port::packet::gso::{HEADER_LEN, Offload};

fuzz_target!(|data: &[u8]| {
    let Some((header, frame)) = data.split_first_chunk::<HEADER_LEN>() else { return };
    let offload = Offload::parse(header);
    let mut copy = frame.to_vec();
    let finished = offload.finish(&mut copy);
    assert!(finished.is_ok() || copy == frame);
    let changed = copy.iter().zip(frame).filter(|(a, b)| a != b).count();
    // An Internet checksum, or SCTP's CRC32c.
    assert!(changed <= 4 && copy.len() == frame.len());
    if !offload.is_super() {
        return;
    }
    let Ok(plan) = offload.plan(frame) else { return };
    let (mut payload, mut out, headers) = (Vec::new(), vec![0; frame.len()], plan.header_len());
    for index in 0..plan.count() {
        assert!(plan.write(frame, index, &mut out), "segment {index}");
        let segment = &out[..plan.len(index)];
        if let Err(fault) = tidemill_wire::verify_checksums(segment) {
            // A tunnel over UDP may be without, over IPv6 too (RFC 6935).
            assert!(fault.found == 0 && fault.protocol == "udp", "{fault}");
        }
        payload.extend_from_slice(&segment[headers..]);
    }
    assert_eq!(frame[headers..headers + payload.len()], payload);
});
