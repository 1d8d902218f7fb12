//! Any bytes as a capture: no panic, a bounded number of packets, one error at most, and what pcap and pcapng files hold
//! agrees with the pcap-file crate as long as both read on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use std::path::Path;
use tidemill_port::capture::Reader;

fuzz_target!(|data: &[u8]| {
    let path = Path::new("fuzz.pcap");
    let mut reader = match Reader::new(path, Box::new(Cursor::new(data.to_vec()))) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(error.to_string().starts_with("fuzz.pcap: byte "), "{error}");
            return;
        }
    };
    let mut theirs = (!data.starts_with(&[0x0A, 0x0D, 0x0D, 0x0A]))
        .then(|| pcap_file::pcap::PcapReader::new(data).ok())
        .flatten()
        // Versions before 2.3 and the modified header are not theirs.
        .filter(|_| data.len() > 8 && (data[6] == 4 || data[7] == 4) && !matches!(data[0], 0x34) && data[3] != 0x34);
    let (mut packets, mut bytes) = (0, 0);
    loop {
        match reader.next() {
            Ok(Some(record)) => {
                packets += 1;
                bytes += record.data.len();
                assert!(record.wire_len as usize >= record.data.len());
                if let Some(other) = &mut theirs {
                    match other.next_packet() {
                        Some(Ok(packet)) => assert_eq!(packet.data(), record.data),
                        _ => theirs = None,
                    }
                }
            }
            Ok(None) => break,
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(&format!("after packet {packets}")), "{text}");
                assert!(matches!(reader.next(), Ok(None)), "an error is the end");
                break;
            }
        }
    }
    assert!(bytes <= data.len() && packets <= data.len());
});
