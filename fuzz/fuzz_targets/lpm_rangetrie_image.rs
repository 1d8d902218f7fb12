//! Words that claim to be a range trie: loading refuses them or gives a trie whose lookups stay inside and end.
//!
//! Input: records of six bytes, a word number and the word; words that are not named are 0.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_lookup::image::ImageBuilder;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::Random;
use tidemill_lpm::rangetrie::Writer;
use tidemill_lpm::{FibWriter, Label};

fuzz_target!(|data: &[u8]| {
    let mut words = vec![0_u32; 1 << 12];
    for record in data.chunks_exact(6) {
        let at = usize::from(u16::from_le_bytes([record[0], record[1]])) & 0x1fff;
        if at >= words.len() {
            words.resize((at / 16 + 1) * 16, 0);
        }
        words[at] = u32::from_le_bytes([record[2], record[3], record[4], record[5]]);
    }
    let image = ImageBuilder::new("rangetrie", 1, 32).section_u32("params", [6, 12].into_iter());
    let image = image.section_u32("words", words.into_iter()).finish();
    let Ok(writer) = Writer::<u128>::from_image(&image, &Domain::new()) else { return };
    let mut random = Random::new(1);
    let keys: Vec<u128> = (0..300).map(|_| random.address()).collect();
    let mut labels = vec![Label(0); keys.len()];
    let fib = writer.fib();
    fib.lookup_batch(&keys, &mut labels);
    for (&key, label) in keys.iter().zip(labels) {
        assert_eq!(fib.lookup(key), label);
    }
    assert_eq!(fib.image().as_deref().map(<[u8]>::len), Some(image.len()));
});
