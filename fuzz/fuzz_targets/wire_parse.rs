//! Any bytes: every view and accessor, the summary, the checksum validation, and agreement with etherparse.
#![no_main]
#![allow(dead_code, reason = "the shared module has what the other target needs, too")]

#[path = "../../crates/wire/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    common::touch::touch(bytes);
    common::agree::agree(bytes);
    common::agree::network(bytes);
});
