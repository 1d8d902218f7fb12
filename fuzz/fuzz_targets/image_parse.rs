//! Any bytes: `Image::parse` gives an image whose sections lie inside, or an error; never a panic. The bytes are also
//! tried with their checksum made right, so that the checks behind it are reached.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_lookup::image::{Image, ImageError};

fn look(bytes: &[u8]) -> Result<(), ImageError> {
    let image = Image::parse(bytes)?;
    for name in ["direct", "ext", "ranges", "params"] {
        if let Ok(section) = image.section(name) {
            assert!(bytes.as_ptr_range().contains(&section.as_ptr()) || section.is_empty());
        }
        let _ = image.section_u32(name).map(Iterator::count);
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    if let Err(ImageError::Checksum { computed, .. }) = look(bytes) {
        let mut sealed = bytes.to_vec();
        sealed[44..48].copy_from_slice(&computed.to_ne_bytes());
        assert!(!matches!(look(&sealed), Err(ImageError::Checksum { .. })));
    }
});
