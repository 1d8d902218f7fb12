//! Any header values, chosen by the bytes: what is emitted reads back, adds up, and means the same to etherparse.
#![no_main]
#![allow(dead_code, reason = "the shared module has what the other target needs, too")]

#[path = "../../crates/wire/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let built = common::build::frame(&mut common::build::Source(bytes));
    assert_eq!(tidemill_wire::verify_checksums(&built.frame), Ok(()));
    common::agree::agree(&built.frame);
    common::touch::touch(&built.frame);
});
