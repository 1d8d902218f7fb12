//! Any bytes as an image of a filter's connections, also with their checksum made right: an error, or connections that are the same when they have been saved and
//! read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_lookup::image::ImageError;
use tidemill_nf::filter::image::Connections;

fn look(bytes: &[u8]) -> Result<(), ImageError> {
    let connections = Connections::decode(bytes)?;
    let saved = connections.clone().encode();
    let again = Connections::decode(&saved).unwrap();
    // Names may end in an empty line, which is none.
    assert_eq!((&again.v4, &again.v6), (&connections.v4, &connections.v6));
    assert_eq!(again.tables, connections.tables);
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    if let Err(ImageError::Checksum { computed, .. }) = look(bytes) {
        let mut sealed = bytes.to_vec();
        sealed[44..48].copy_from_slice(&computed.to_ne_bytes());
        assert!(!matches!(look(&sealed), Err(ImageError::Checksum { .. })));
    }
});
