//! Any bytes through each parser of detection of assets: nothing panics, errors lie within the bytes, and what is said is within its bounds.
//!
//! Input: a byte for the parser, two for a port, the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_nf::assets::text::Text;
use tidemill_nf::assets::{Fingerprints, banner, dhcp, mdns, signature::Signature, tls};

fn is_harmless(text: &Text) {
    assert!(text.bytes().len() <= Text::ROOM);
    assert!(text.to_string().chars().all(|c| !c.is_control()));
}

fuzz_target!(|data: &[u8]| {
    let Some((&[which, high, low], bytes)) = data.split_first_chunk() else { return };
    let port = u16::from_be_bytes([high, low]);
    match which % 7 {
        0 => banner::of_stream(port, bytes).iter().for_each(|banner| is_harmless(&banner.text)),
        1 => banner::of_datagram(port, bytes).iter().for_each(|banner| is_harmless(&banner.text)),
        2 => match dhcp::read(bytes) {
            Ok(message) => [message.host_name, message.vendor].iter().for_each(is_harmless),
            Err(error) => assert!(error.at <= bytes.len()),
        },
        3 => {
            let mut said = 0;
            let read = mdns::read(bytes, |one| {
                said += 1;
                let (mdns::Said::Name(_, text) | mdns::Said::Service(text, _)) = one;
                is_harmless(&text);
            });
            assert!(said <= 32);
            // A name may begin behind a message that is cut: the error says where.
            assert!(read.map_err(|error| error.at).err().is_none_or(|at| at <= bytes.len() + 16));
        }
        4 => {
            if let Some(hello) = tls::server_hello(bytes) {
                is_harmless(&hello.text());
            }
        }
        5 => {
            if let Some(signature) = Signature::read(port & 1 != 0, high, low & 1 != 0, bytes) {
                assert_eq!(signature.hops(), signature.first_ttl() - signature.ttl);
                // What it says of options is read back as them.
                let list = signature.options.to_string();
                assert_eq!(tidemill_nf::assets::signature::Layout::parse(&list), Ok(signature.options));
            }
        }
        _ => {
            if let Ok(text) = std::str::from_utf8(bytes)
                && let Err(error) = Fingerprints::parse(text)
            {
                assert!((1..=text.lines().count()).contains(&error.line));
            }
        }
    }
});
