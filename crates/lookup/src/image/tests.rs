use super::*;
use proptest::prelude::*;

const DIRECT: [u8; 6] = [1, 0, 2, 0, 0xff, 0xff];

fn sample() -> Vec<u8> {
    ImageBuilder::new("dxr", 3, 16)
        .section("direct", DIRECT.to_vec())
        .section("ranges", (0_u32..50).flat_map(u32::to_ne_bytes).collect())
        .section("empty", Vec::new())
        .finish()
}

/// Makes the checksum right again, so that the checks behind it are reached.
fn reseal(bytes: &mut [u8]) {
    let checksum = checksum(bytes);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_ne_bytes());
}

#[test]
fn an_image_gives_back_what_was_put_in_wherever_it_lies() {
    let bytes = sample();
    for shift in 0..3 {
        let mut moved = vec![0xaa; shift];
        moved.extend_from_slice(&bytes);
        let image = Image::parse(&moved[shift..]).unwrap();
        assert_eq!((image.kind(), image.kind_version(), image.label_bits()), ("dxr", 3, 16));
        assert_eq!(image.section("direct").unwrap(), DIRECT);
        assert!(image.section_u32("ranges").unwrap().eq(0..50));
        assert_eq!(image.section("empty").unwrap(), b"");
        assert!(image.sections().eq(["direct", "ranges", "empty"]));
        for (_, offset, _) in &image.sections {
            assert_eq!(offset % SECTION_ALIGN, 0);
        }
    }
}

#[test]
fn errors_name_the_place() {
    let text = |bytes: &[u8]| Image::parse(bytes).unwrap_err().to_string();
    let changed = |at: usize, with: &[u8]| {
        let mut bytes = sample();
        bytes[at..at + with.len()].copy_from_slice(with);
        reseal(&mut bytes);
        text(&bytes)
    };
    assert_eq!(text(b""), "table image ends at byte 0, before its header at byte 0 is complete");
    assert_eq!(text(b"TIDEMILK........"), "byte 0: not a table image (it does not begin with \"TIDEMILL\")");
    assert_eq!(
        text(&sample()[..200]),
        "table image ends at byte 200, before its content at byte 64 is complete"
    );
    assert!(changed(8, &0x0403_0201_u32.to_ne_bytes()).starts_with("byte 8: byte-order mark 0x04030201"));
    assert_eq!(
        changed(12, &9_u32.to_ne_bytes()),
        "byte 12: image format version 9, this program reads version 1"
    );
    assert_eq!(changed(16, &[0]), "byte 16: the kind is not a padded ASCII name");
    assert_eq!(changed(36, &9_u32.to_ne_bytes()), "byte 36: label width 9: it is 8, 16 or 32");
    assert_eq!(changed(40, &u32::MAX.to_ne_bytes()), "byte 40: 4294967295 sections: at most 64 are possible");
    assert!(changed(48, &7_u64.to_ne_bytes()).starts_with("byte 48: length 7, but there are "));
    assert_eq!(changed(60, &[1]), "byte 56: reserved bytes are not zero");
    assert_eq!(
        changed(80, &64_u64.to_ne_bytes()),
        "byte 80: section \"direct\" at 64 does not follow what is before it"
    );
    assert_eq!(
        changed(88, &u64::MAX.to_ne_bytes()),
        "byte 88: section \"direct\" of 18446744073709551615 bytes at 192 ends behind the image"
    );
    assert_eq!(changed(96, b"direct"), "byte 96: section \"direct\" is there twice");
    assert_eq!(changed(191, &[1]), "byte 191: padding is not zero");
    let mut damaged = sample();
    damaged[200] ^= 1;
    assert!(text(&damaged).contains("the file is damaged"));

    let bytes = sample();
    let image = Image::parse(&bytes).unwrap();
    assert_eq!(image.expect("dxr", 3), Ok(()));
    assert_eq!(
        image.expect("sail", 1).unwrap_err().to_string(),
        "byte 16: the image holds a \"dxr\" of version 3, not a \"sail\" of version 1"
    );
    assert_eq!(image.section("none").unwrap_err().to_string(), "the image has no section \"none\"");
    assert_eq!(
        image.section_u32("direct").err().unwrap().to_string(),
        "byte 192: section \"direct\": 6 bytes are not a whole number of 4-byte words"
    );
}

#[test]
fn every_flipped_bit_and_every_truncation_is_an_error() {
    let bytes = sample();
    for at in 0..bytes.len() {
        assert!(Image::parse(&bytes[..at]).is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(Image::parse(&flipped).is_err(), "byte {at} bit {bit}");
        }
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(Image::parse(&longer).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parsing_is_total(bytes: Vec<u8>) {
        prop_assert!(Image::parse(&bytes).is_err());
    }

    #[test]
    fn resealed_damage_never_panics_and_sections_stay_inside(
        changes in prop::collection::vec((0_usize..448, any::<u8>()), 1..5)
    ) {
        let mut bytes = sample();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        reseal(&mut bytes);
        if let Ok(image) = Image::parse(&bytes) {
            for name in ["direct", "ranges", "empty"] {
                if let Ok(section) = image.section(name) {
                    prop_assert!(section.len() <= bytes.len());
                }
                let _ = image.section_u32(name).map(Iterator::count);
            }
        }
    }
}
