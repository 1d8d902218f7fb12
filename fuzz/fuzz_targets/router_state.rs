//! Any bytes as a router's state image, also with their checksum made right: an error, or a state that is the same when it has
//! been saved and read again, with routes in order.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_lookup::image::ImageError;
use tidemill_router::State;

fn look(bytes: &[u8]) -> Result<(), ImageError> {
    let state = State::decode(bytes)?;
    assert!(state.v4.is_sorted_by(|a, b| a.0 < b.0) && state.v6.is_sorted_by(|a, b| a.0 < b.0));
    assert!(state.v4.iter().all(|(_, label)| state.labels.name(*label).is_some()));
    let saved = state.encode().unwrap();
    let again = State::decode(&saved).unwrap();
    assert_eq!((&again.origin, &again.added, &again.resumed), (&state.origin, &state.added, &state.resumed));
    assert_eq!((&again.v4, &again.v6), (&state.v4, &state.v6));
    assert!(again.labels.iter().eq(state.labels.iter()));
    assert_eq!(again.encode().unwrap(), saved);
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    if let Err(ImageError::Checksum { computed, .. }) = look(bytes) {
        let mut sealed = bytes.to_vec();
        sealed[44..48].copy_from_slice(&computed.to_ne_bytes());
        assert!(!matches!(look(&sealed), Err(ImageError::Checksum { .. })));
    }
});
