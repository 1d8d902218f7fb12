//! Any bytes as the image of a DXR, also with their checksum made right: an error, or a table that every kernel reads alike
//! and inside its memory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_lookup::image::ImageError;
use tidemill_lpm::dxr::{Dxr, Kernel};
use tidemill_lpm::{Fib, Label};

fn look(bytes: &[u8]) -> Result<(), ImageError> {
    let keys: Vec<u32> = (0..300_u32)
        .map(|i| i.wrapping_mul(0x9e37_79b9) & [!0, !0xff, 0xff00_ffff][i as usize % 3])
        .collect();
    let mut answers = Vec::new();
    for kernel in Kernel::ALL {
        let dxr = Dxr::from_image(bytes, Some(kernel))?;
        let mut out = vec![Label::NONE; keys.len()];
        dxr.lookup_batch(&keys, &mut out);
        assert!(keys.iter().zip(&out).all(|(&key, &label)| dxr.lookup(key) == label));
        answers.push(out);
        assert!(Dxr::from_image(&dxr.to_image(), None).is_ok());
    }
    assert!(answers.iter().all(|out| *out == answers[0]));
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    if let Err(ImageError::Checksum { computed, .. }) = look(bytes) {
        let mut sealed = bytes.to_vec();
        sealed[44..48].copy_from_slice(&computed.to_ne_bytes());
        assert!(!matches!(look(&sealed), Err(ImageError::Checksum { .. })));
    }
});
